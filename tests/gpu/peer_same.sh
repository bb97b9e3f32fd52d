#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# peer_same.sh PROBE SHIM: peer_probe's lines of cuMemAlloc memory, natively and under the preload (CUPOLA_BACKING says which),
# must be the same, but for those that are known to differ; by the counters every allocation was the pool's. Exit 77 without
# two devices.
#   taken-in-flight, kernel-taken   taking access waits for the work in flight: a kernel that natively may be cut off, is not
set -u
probe=$1 shim=$2
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
known='^raw-(taken-in-flight|kernel-taken) '

"$probe" >"$dir/native.all" 2>"$dir/err" || { code=$?; cat "$dir/err"; exit $code; }
LD_PRELOAD=$shim CUPOLA_STATS=$dir/stats "$probe" >"$dir/pooled.all" 2>"$dir/err" || { cat "$dir/err"; exit 1; }
for run in native pooled; do
    grep '^raw-' "$dir/$run.all" | grep -vE "$known" >"$dir/$run"
done
sum() { # KEY
    sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" "$dir/stats" | awk '{ sum += $1 } END { print sum + 0 }'
}
echo "$(wc -l <"$dir/native") lines; served $(sum pool_allocs) of $(sum allocs)"
[ "$(wc -l <"$dir/native")" -gt 50 ] && [ "$(sum pool_allocs)" -gt 0 ] && [ "$(sum pool_allocs)" = "$(sum allocs)" ] || exit 1
diff "$dir/native" "$dir/pooled"
