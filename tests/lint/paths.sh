#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The tree speaks of itself only: no absolute path but the system's own, no address of a machine.      paths.sh ROOT
set -eu
. "$(dirname "$0")/lib.sh"
root=$1

system='bin|dev|etc|lib|lib64|no-such[a-z-]*|nonexistent[a-z-]*|opt|proc|run|sbin|shm|sys|tmp|usr|var'

# a slash and a word after a blank, quote, bracket or sign, then another slash and a word: an absolute path
check_file() {
    grep -nIoE "(^|[[:space:]\"'\`(=:])/[a-z][a-z0-9_-]+/[A-Za-z0-9_.-]+" "$1" |
        grep -vE "/($system)/[A-Za-z0-9_.-]+$" >"$scratch/bad" || true
    grep -nIoE '\b(192\.168|10\.[0-9]+|172\.(1[6-9]|2[0-9]|3[01]))\.[0-9]+\.[0-9]+\b' "$1" >>"$scratch/bad" || true
    while read -r line; do
        say "$1:$line"
    done <"$scratch/bad"
}

cd "$root"
for file in $(tree_files "$root" | grep -vE '\.(xz|png|svg|csv)$|^tests/lint/paths\.sh$'); do
    check_file "$file"
done
echo 'see "/somewhere/private/file"' >"$scratch/p"
must_find "a path outside the tree" check_file "$scratch/p"
echo 'host 192.168.1.2' >"$scratch/p"
must_find "an address" check_file "$scratch/p"
verdict
