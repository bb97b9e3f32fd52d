#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# storm.sh clean PRELOAD PROGRAM…: the program must succeed under the preload; by the counters the pools served every
# allocation, have got every block back, points were recorded, and under exact passed.
# storm.sh caught PRELOAD PROGRAM…: the preload is wrong on purpose, and the program must see it.
set -u
expected=$1 preload=$2
shift 2
if [ "$expected" = caught ]; then
    output=$(env LD_PRELOAD="$preload" "$@" 2>&1) && {
        echo "not caught: $output"
        exit 1
    }
    echo "$output" | grep -e '^softcuda: OVERLAP' -e ' [1-9][0-9]* violations'
    exit
fi
stats=$(mktemp) || exit 1
trap 'rm -f "$stats"' EXIT
env LD_PRELOAD="$preload" CUPOLA_STATS="$stats" "$@" || exit $?
figure() {
    sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" "$stats"
}
for name in allocs pool_allocs live_bytes live_blocks points own_points passes waits contexts; do
    printf '%s %s  ' "$name" "$(figure $name)"
done
echo
[ "$(figure pool_allocs)" -gt 0 ] && [ "$(figure pool_allocs)" = "$(figure allocs)" ] &&
    [ "$(figure live_bytes)" = 0 ] && [ "$(figure live_blocks)" = 0 ] &&
    [ "$(figure points)" -gt 0 ] && { [ "${CUPOLA_FREE:-exact}" != exact ] || [ "$(figure passes)" -gt 0 ]; }
