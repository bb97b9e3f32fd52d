#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The library exports what the LISTs name, EXTRA (names without a row) and what cupola.h declares, and nothing else.
#   exports.sh LIBRARY ROOT CC NM EXTRA...
set -eu
. "$(dirname "$0")/lib.sh"
library=$1 root=$2 cc=$3 nm=$4
shift 4

# the first argument of each row, as the preprocessor sees it
rows() {
    printf '#include "shim/submit_list.h"\n#define X(symbol, ...) ROW symbol END\nCUP_EXPORT_LIST(X)\n' |
        "$cc" -E -P -I "$root" -x c - | grep -oE 'ROW [A-Za-z0-9_]+ END' | cut -d' ' -f2
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

# the functions of the header, likewise
functions() {
    printf '#define CUPOLA_INSIDE\n#include "preload/cupola.h"\n' | "$cc" -E -P -I "$root" -x c - |
        grep -oE 'cupola_[a-z]+ \(' | cut -d' ' -f1
}

{
    rows
    functions
    printf '%s\n' "$@"
} | sort -u >"$scratch/expected"
"$nm" -D --defined-only "$library" | awk '{print $3}' | sed 's/@.*//' | sort -u >"$scratch/actual"
[ "$(wc -l <"$scratch/expected")" -gt 200 ] || say "the LISTs gave hardly a row: $(cat "$scratch/expected")"
compare "$scratch/expected" "$scratch/actual"

sed 1d "$scratch/actual" >"$scratch/fewer"
must_find "a missing export" compare "$scratch/expected" "$scratch/fewer"
echo zzz_stray | cat "$scratch/actual" - >"$scratch/more"
must_find "a stray export" compare "$scratch/expected" "$scratch/more"
verdict
