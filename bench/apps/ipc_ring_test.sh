#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ipc_ring_test.sh CASE PROGRAM [PRELOAD]: ipc_ring on the software driver.
#   same    natively and under the preload: the same hash, every allocation the pool's, every process exports and opens,
#           and nothing stays mapped
#   rows    (BUILD RING_SH in place of the program) the script of the table: rows of each price and way, on one device and on two
#   killed  a member is killed in each round in turn: the others end with an error, in time; natively, or under the preload
set -u
case=$1 program=$2 preload=${3:-}
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
figure() { # of each process, a line each
    sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" "$folder/stats"
}
total() { # of the elements of all arrays of that name
    sed -n "s/.*\"$1\":\[\([0-9,]*\)\].*/\1/p" "$folder/stats" | tr ',' '\n' | awk '{ sum += $1 } END { print sum + 0 }'
}
sum() {
    figure "$1" | awk '{ sum += $1 } END { print sum + 0 }'
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
    [ "$(total ipc_open_ns)" = $(($(sum ipc_opens) + $(sum ipc_reopens))) ] || fail "opens: $(total ipc_open_ns) were timed"
    [ "$(total ipc_close_ns)" = "$(sum ipc_closes)" ] || fail "closes: $(total ipc_close_ns) were timed"
    # The ring's own handle of each member, and for each of 5 trials of a size those of 8 blocks and of one again.
    [ "$(total ipc_get_ns)" -ge $((members + 5 * 9)) ] || fail "handles: $(total ipc_get_ns) were timed"
    # Each has opened blocks of the next one, and member 1 of member 0, too, as all others do.
    peers=$(grep -o '{"pid":[1-9][0-9]*,"opens":[1-9][0-9]*,"mapped_bytes":0,"mapped_peak_bytes":[1-9][0-9]*}' "$folder/stats" | wc -l)
    [ "$peers" = $((2 * members - 2)) ] || fail "$peers processes: $(cat "$folder/stats")"
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
rows)
    "$preload" "$program" "$folder" >"$folder/out" 2>&1 || {
        cat "$folder/out"
        exit 1
    }
    for devices in 1 2; do
        for op in get_first open_first open_next open_again close_last memory_shared memory_own ipc_kernel ipc_copy own_upload staged; do
            for mode in native raw vmm; do
                grep -q "^$devices,$mode,$op,[01],[01],[0-9]*,[0-9.]*,[A-Za-z/]*\$" "$folder/ring.csv" || fail "no $devices,$mode,$op"
            done
        done
    done
    grep -q '^2,vmm,peer_copy,' "$folder/ring.csv" || fail "no peer_copy"
    ;;
*)
    fail "no case $case"
    ;;
esac
