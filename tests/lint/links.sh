#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Relative links of the documents lead to files of the tree.      links.sh ROOT
set -eu
. "$(dirname "$0")/lib.sh"
root=$1

check_file() {
    grep -oE '\]\([^)[:space:]]+\)' "$1" | sed 's/^](//; s/)$//; s/#.*//' | grep -vE '^$|^[a-z]+:' >"$scratch/links" || true
    while read -r link; do
        [ -e "$(dirname "$1")/$link" ] || say "$1 links to $link, which is not there"
    done <"$scratch/links"
}

cd "$root"
for file in $(tree_files "$root" | grep '\.md$'); do
    check_file "$file"
done
echo 'see [it](nowhere.md#part)' >"$scratch/p.md"
must_find "a broken link" check_file "$scratch/p.md"
verdict
