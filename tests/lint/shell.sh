#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Shell scripts parse in the shell that they name, are executable, and stop at errors.      shell.sh ROOT
set -eu
. "$(dirname "$0")/lib.sh"
root=$1

check_file() {
    case $(head -n 1 "$1") in
    '#!/bin/sh') sh -n "$1" 2>"$scratch/bad" || say "$1: $(head -n 1 "$scratch/bad")" ;;
    '#!/bin/bash' | '#!/usr/bin/env bash') bash -n "$1" 2>"$scratch/bad" || say "$1: $(head -n 1 "$scratch/bad")" ;;
    '#!'*) return 0 ;; # another language
    *) sh -n "$1" 2>"$scratch/bad" || say "$1: $(head -n 1 "$scratch/bad")" && return 0 ;; # sourced
    esac
    [ -x "$1" ] || say "$1 is not executable"
    grep -qE '^set -[a-z]*u' "$1" || say "$1 does not begin with set -eu"
}

cd "$root"
for file in $(tree_files "$root" | grep -E '(\.sh|^\.ci/[a-z]+)$'); do
    check_file "$file"
done
printf '#!/bin/sh\nset -eu\nif true; then\n' >"$scratch/p.sh"
chmod +x "$scratch/p.sh"
must_find "a script that does not parse" check_file "$scratch/p.sh"
verdict
