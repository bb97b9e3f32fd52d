#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# named_probe.sh PROGRAM SHIM: whether a block that was opened for reading only can't be written, by whatever way, and what
# the calls of preload/cupola.h cost. Each "write-" line must be 1; "probe" lines are for the record.
set -u
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
LD_PRELOAD=$2 CUPOLA_BACKING=vmm CUPOLA_SOCKET_DIR=$dir CUPOLA_STATS=$dir/stats "$1" >"$dir/out" || {
    code=$?
    cat "$dir/out"
    exit $code
}
cat "$dir/out"
[ "$(grep -c '^write-.* 1$' "$dir/out")" = 5 ] || exit 1
sed -n 's/.*"named_opens":\([0-9]*\).*/\1/p' "$dir/stats" | awk '{ sum += $1 } END { print "opened", sum; exit sum < 18 }'
