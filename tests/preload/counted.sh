#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# counted.sh PRELOAD PROGRAM…: runs the program under the preload; it must succeed, every allocation that it made must have
# been the pool's, and the counters that it names, a line "NAME LEAST [MOST]" each, must lie between these at exit.
set -u
preload=$1
shift
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
env LD_PRELOAD="$preload" CUPOLA_STATS="$dir/stats" "$@" >"$dir/out" || exit $?
figure() {
    sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" "$dir/stats"
}
[ "$(figure pool_allocs)" -gt 0 ] && [ "$(figure pool_allocs)" = "$(figure allocs)" ] || exit 1
[ -s "$dir/out" ] || { echo "it names no counter"; exit 1; }
code=0
while read -r name least most; do
    value=$(figure "$name") most=${most:-$least}
    echo "$name: $value, expected $least to $most"
    [ "$value" -ge "$least" ] && [ "$value" -le "$most" ] || code=1
done <"$dir/out"
exit $code
