#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# nccl_test.sh CASE PROGRAM FAKE [PRELOAD]: the program nccl itself, over an NCCL that adds on the host and the software driver.
#   absent  without the library, or a second device, it is skipped
#   right   sums are right in each mode; under the preload, if any, the pool served every allocation of the program
#   wrong   one wrong word in one sum is found
#   hang    a rank that does not come ends the run with code 3
set -u
case=$1 program=$2 fake=$3 preload=${4:-}
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
modes='--threads_1 --threads_2 --processes_2'
fail() {
    echo "nccl_test: $*"
    cat "$folder/out" 2>/dev/null
    exit 1
}
run() { # MODE OPTION…
    mode=$(echo "$1" | tr _ ' ')
    shift
    # shellcheck disable=SC2086
    env BENCH_NCCL="$fake" ${preload:+LD_PRELOAD="$preload" CUPOLA_STATS="$folder/stats"} "$program" $mode "$@" >"$folder/out" 2>&1
}
figure() { # sum over the processes
    sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" "$folder/stats" | awk '{ sum += $1 } END { print sum + 0 }'
}
case $case in
absent)
    for mode in $modes; do
        fake=$folder/none run "$mode"
        [ $? -eq 77 ] || fail "$mode without the library"
        SOFTCUDA_DEVICES=1 run "$mode"
        [ $? -eq 77 ] || fail "$mode on one device"
    done
    ;;
right)
    for mode in $modes; do
        for late in 0 1; do
            rm -f "$folder/stats"
            run "$mode" --rounds 8 --sweep 1 --late $late || fail "$mode: code $?"
            grep -q '^name=nccl.* rounds=8 wrong=0 ' "$folder/out" || fail "$mode: no result"
            [ "$(grep -c '^allreduce,' "$folder/out")" -ge 2 ] || fail "$mode: no sweep"
            [ -z "$preload" ] && continue
            # 8 rounds of 2 + 4 blocks on each of two devices at least
            [ "$(figure pool_allocs)" -ge 96 ] || fail "$mode: the pool served $(figure pool_allocs)"
            [ "$(figure pool_allocs)" = "$(figure allocs)" ] || fail "$mode: $(figure pool_allocs) of $(figure allocs)"
        done
    done
    ;;
wrong)
    for mode in $modes; do
        NCCL_FAKE_WRONG=3 run "$mode" --rounds 4
        [ $? -eq 1 ] || fail "$mode: code $?"
        grep -q ' wrong=1 ' "$folder/out" || fail "$mode: not found"
    done
    ;;
hang)
    for mode in $modes; do
        NCCL_FAKE_HANG=2 run "$mode" --rounds 4 --timeout 2
        code=$?
        [ $code -eq 3 ] && grep -q 'no progress' "$folder/out" || fail "$mode: code $code"
    done
    ;;
*)
    fail "no case $case"
    ;;
esac
