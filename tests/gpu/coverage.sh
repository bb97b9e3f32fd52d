#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# coverage.sh PROGRAM EXPECTED [LEAST]: the program's lines are the kept ones, but for rows that this machine does not have
# (the program says "skipped NAME") and for lines that begin with "probe" or "#". At least so many must be left (40). Without
# a kept output: 77.
set -u
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
"$1" >"$dir/all" || exit $?
[ -f "$2" ] || { cat "$dir/all"; echo "expected file missing: run on hardware"; exit 77; }
grep '^skipped ' "$dir/all"
sed -n 's/^skipped //p' "$dir/all" >"$dir/skipped"
awk 'FILENAME == ARGV[1] { skipped[$1] = 1; next } !($1 in skipped)' "$dir/skipped" "$2" | grep -v -e '^#' -e '^probe' >"$dir/expected"
grep -v -e '^skipped ' -e '^probe' "$dir/all" >"$dir/got"
[ "$(wc -l <"$dir/expected")" -ge "${3:-40}" ] || { echo "too few rows are left"; exit 1; }
diff "$dir/expected" "$dir/got"
