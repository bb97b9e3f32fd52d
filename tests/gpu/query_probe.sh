#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# query_probe.sh PROGRAM SHIM: what is told of memory under the preload is what is told natively, and by the counters the
# pool had the blocks and was asked about them. Lines that begin with "probe" are for the record. Exit 77 without a driver.
set -u
program=$1 shim=$2
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT

"$program" >"$dir/native" || { code=$?; cat "$dir/native"; exit $code; }
LD_PRELOAD=$shim CUPOLA_STATS=$dir/stats "$program" >"$dir/served" || exit 1
figure() {
    sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" "$dir/stats"
}
echo "pooled $(figure pool_allocs), asked $(figure queries), in quarantine $(figure quarantined_bytes) bytes"
[ "$(figure pool_allocs)" -ge 8 ] && [ "$(figure queries)" -ge 300 ] && [ "$(figure quarantined_bytes)" -ge 4096 ] || exit 1
diff <(grep -v '^probe' "$dir/native") <(grep -v '^probe' "$dir/served") || exit 1
echo "the same: $(grep -vc '^probe' "$dir/native") lines"
