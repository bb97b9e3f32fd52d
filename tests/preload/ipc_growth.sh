#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ipc_growth.sh PRELOAD PROGRAM ROUNDS: ten times as many rounds leave as much host memory in the bookkeeping of both processes,
# by the counter at their exit, and nothing in quarantine or mapped. What a round would leave is at least 16 bytes.
set -u
preload=$1 program=$2 rounds=$3
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
figure() { # FILE KEY
    sed -n "s/.*\"$2\":\([0-9]*\).*/\1/p" "$1"
}
code=0
for many in "$rounds" $((rounds * 10)); do
    env LD_PRELOAD="$preload" CUPOLA_STATS="$dir/here.$many" IPC_THERE="$dir/there.$many" "$program" rounds "$many" || exit $?
done
for side in here there; do
    few=$dir/$side.$rounds many=$dir/$side.$((rounds * 10))
    before=$(figure "$few" meta_bytes) after=$(figure "$many" meta_bytes)
    echo "$side: $(figure "$many" ipc_exports) exports, $(figure "$many" ipc_opens) opens; bookkeeping $before, then $after bytes"
    [ "$(figure "$many" ipc_exports)" -ge $((rounds * 5)) ] && [ "$(figure "$many" ipc_opens)" -ge $((rounds * 5)) ] || code=1
    [ "$after" -le $((before + rounds * 9 * 16)) ] || code=1
    [ "$(figure "$many" quarantined_bytes)" = 0 ] && [ "$(figure "$many" ipc_mapped_bytes)" = 0 ] || code=1
done
exit $code
