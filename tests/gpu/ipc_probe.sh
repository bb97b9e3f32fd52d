#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ipc_probe.sh PROGRAM SHIM: IPC handles of pooled memory do what the driver's do natively, and by the counters they were
# the pool's. Lines that begin with "probe" are for the record: they are shown. Exit 77 without a driver.
set -u
program=$1 shim=$2
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT

"$program" >"$dir/native" || { code=$?; cat "$dir/native"; exit $code; }
LD_PRELOAD=$shim CUPOLA_BACKING=vmm CUPOLA_STATS=$dir/stats "$program" >"$dir/served" || exit 1
figure() {
    sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" "$dir/stats" | sort -n | tail -n 1
}
diff -y <(grep '^probe' "$dir/native") <(grep '^probe' "$dir/served")
echo "pooled $(figure pool_allocs), exported $(figure ipc_exports), opened $(figure ipc_opens)"
[ "$(figure pool_allocs)" -ge 8 ] && [ "$(figure ipc_exports)" -ge 5 ] && [ "$(figure ipc_opens)" -ge 5 ] || exit 1
diff <(grep -v '^probe' "$dir/native") <(grep -v '^probe' "$dir/served") || exit 1
echo "the same: $(grep -vc '^probe' "$dir/native") lines"
