#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# clang-tidy with the tree's .clang-tidy over the three layers. Skipped without either.      tidy.sh ROOT BUILD
set -eu
. "$(dirname "$0")/lib.sh"
root=$1 build=$2
tool=$(command -v clang-tidy-14 || command -v clang-tidy || true)
if [ -z "$tool" ] || [ ! -f "$root/.clang-tidy" ]; then
    echo "skipped: no clang-tidy, or no .clang-tidy"
    exit 77
fi

cd "$root"
# two at a time; a file's findings are its warning lines
printf '%s\n' allocator/*.c shim/*.c preload/*.c | xargs -P 2 -n 4 "$tool" --quiet -p "$build" >"$scratch/out" 2>"$scratch/err" || true
grep -E ': (warning|error): ' "$scratch/out" | sort -u >"$scratch/bad" || true
while read -r line; do
    say "$line"
done <"$scratch/bad"

printf 'int f(int *p);\nint f(int *p)\n{\n    int *q = 0;\n    return p ? *q : 0;\n}\n' >"$scratch/p.c"
check_planted() {
    "$tool" --quiet --config-file="$root/.clang-tidy" "$scratch/p.c" -- -std=gnu11 2>/dev/null | grep -E ': (warning|error): ' |
        while read -r line; do
            say "$line"
        done
}
must_find "a null dereference" check_planted
verdict
