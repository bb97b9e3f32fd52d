#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The library exports what the LISTs of hook_list.h name, EXTRA (names without a row) and cupola_*, and nothing else.
#   exports.sh LIBRARY HOOK_LIST CC NM EXTRA...
set -eu
. "$(dirname "$0")/lib.sh"
library=$1 hook_list=$2 cc=$3 nm=$4
shift 4

# the first argument of each row of each CUP_..._LIST, as the preprocessor sees it
rows() {
    {
        echo "#include \"$1\""
        echo '#define X(symbol, ...) ROW symbol END'
        sed -n 's/^#define \(CUP_[A-Z_]*_LIST\)(X).*/\1(X)/p' "$1"
    } | "$cc" -E -P -x c - | grep -oE 'ROW [A-Za-z0-9_]+ END' | cut -d' ' -f2
}

# expected names, actual names: files, sorted
compare() {
    comm -23 "$1" "$2" | while read -r name; do
        say "has a row but is not exported: $name"
    done
    comm -13 "$1" "$2" | while read -r name; do
        say "exported without a row: $name"
    done
}

{
    rows "$hook_list"
    printf '%s\n' "$@"
} | sort -u >"$scratch/expected"
"$nm" -D --defined-only "$library" | awk '{print $3}' | sed 's/@.*//' | grep -v '^cupola_' | sort -u >"$scratch/actual"
[ "$(wc -l <"$scratch/expected")" -gt 10 ] || say "hook_list.h gave hardly a row: $(cat "$scratch/expected")"
compare "$scratch/expected" "$scratch/actual"

sed 1d "$scratch/actual" >"$scratch/fewer"
must_find "a missing export" compare "$scratch/expected" "$scratch/fewer"
echo zzz_stray | cat "$scratch/actual" - >"$scratch/more"
must_find "a stray export" compare "$scratch/expected" "$scratch/more"
verdict
