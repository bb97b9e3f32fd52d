#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ipc_ring_test.sh CASE PROGRAM [PRELOAD]: ipc_ring on the software driver.
#   same    natively and under the preload: the same hash, every allocation the pool's, every process exports and opens,
#           and nothing stays mapped
#   killed  a member is killed in each round in turn: the others end with an error, in time; natively, or under the preload
set -u
case=$1 program=$2 preload=${3:-}
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
figure() { # of each process, a line each
    sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" "$folder/stats"
}
fail() {
    echo "ipc_ring_test: $*"
    exit 1
}
run_preloaded() {
    env LD_PRELOAD="$preload" CUPOLA_STATS="$folder/stats" "$@"
}
hash_of() {
    sed -n 's/^name=ipc_ring .* hash=\([^ ]*\) .*/\1/p' "$1"
}
members=3
case $case in
same)
    "$program" --processes $members --rows 1 >"$folder/plain" || exit $?
    run_preloaded "$program" --processes $members --rows 1 >"$folder/pooled" || exit $?
    [ -n "$(hash_of "$folder/plain")" ] || fail "no hash"
    [ "$(hash_of "$folder/plain")" = "$(hash_of "$folder/pooled")" ] || fail "other bytes under the preload"
    grep -q '^open_first,1,0,65536,' "$folder/pooled" || fail "no rows of small blocks under the preload"
    [ "$(figure pool_allocs)" = "$(figure allocs)" ] || fail "not the pool's: $(figure pool_allocs) of $(figure allocs)"
    for name in pool_allocs ipc_exports ipc_opens; do
        # The supervisor has no driver, and none of the figures.
        [ "$(figure $name | grep -vc '^0$')" = $members ] || fail "$name: $(figure $name)"
    done
    [ -z "$(figure ipc_mapped_bytes | grep -v '^0$')" ] || fail "stays mapped: $(figure ipc_mapped_bytes)"
    echo "exported $(figure ipc_exports | tr '\n' ' ')blocks, opened $(figure ipc_opens | tr '\n' ' ')"
    ;;
killed)
    for round in 1 2 3 4 5 6; do
        if [ -n "$preload" ]; then
            run_preloaded "$program" --processes $members --kill $round || fail "round $round"
        else
            "$program" --processes $members --kill $round || fail "round $round"
        fi
    done
    ;;
*)
    fail "no case $case"
    ;;
esac
