#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# served.sh PRELOAD PROGRAM…: runs the program under the preload; it must succeed, and by the counters every allocation
# that it made must have been the pool's.
set -u
preload=$1
shift
stats=$(mktemp) || exit 1
trap 'rm -f "$stats"' EXIT
env LD_PRELOAD="$preload" CUPOLA_STATS="$stats" "$@" || exit $?
figure() {
    sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" "$stats"
}
echo "served $(figure pool_allocs) of $(figure allocs)"
[ "$(figure pool_allocs)" -gt 0 ] && [ "$(figure pool_allocs)" = "$(figure allocs)" ]
