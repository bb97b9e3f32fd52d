#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# luck.sh PROGRAM SHIM: CUPOLA_ZERO and CUPOLA_REDZONE, under each backing: with them the program sees zeros and no damage,
# without them it does not (or the test could not fail). By the counters the pool served every allocation, and set as many
# as were asked for. A line each, `ok` or `FAILED`. Exit 77 without a GPU.
#   top: vmm: a kernel that runs 256 MiB past the arena's top is stopped (700); natively it may or may not be
set -u
program=$1 shim=$2
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
failed=0

run() { # OPTION… -- ARGUMENT…: leaves $dir/out
    local option=()
    while [ "$1" != -- ]; do option+=("$1"); shift; done
    shift
    rm -f "$dir/stats"
    env LD_PRELOAD="$shim" CUPOLA_STATS="$dir/stats" "${option[@]}" timeout 100 "$program" "$@" >"$dir/out" 2>"$dir/err"
}

figure() { # COUNTER
    sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" "$dir/stats"
}

seen() { # NAME
    sed -n "s/^$1 //p" "$dir/out"
}

check() { # WHAT CONDITION…
    local what=$1
    shift
    if [ "$@" ]; then
        echo "ok     $what"
    else
        failed=1
        echo "FAILED $what: [ $* ]"
        cat "$dir/out" "$dir/err"
    fi
}

run CUPOLA_DISABLE=1 -- top 4194304
code=$?
[ $code -eq 77 ] && { cat "$dir/err"; exit 77; }
[ $code -eq 0 ] || { cat "$dir/err"; exit 1; }

for backing in raw vmm; do
    option=(CUPOLA_BACKING=$backing)
    run "${option[@]}" --
    check "$backing: ends" $? -eq 0
    check "$backing: the program reads what others left" "$(seen fresh)" -gt 0
    check "$backing: the program damages its neighbours" "$(seen neighbours)" -gt 0
    check "$backing: no sets" "$(figure zeroed)" -eq 0
    run "${option[@]}" CUPOLA_ZERO=alloc CUPOLA_REDZONE=512 --
    check "$backing, both: ends" $? -eq 0
    for name in fresh in-flight in-capture neighbours; do
        check "$backing, both: $name" "$(seen $name)" -eq 0
    done
    check "$backing, both: nothing waits for a kernel in flight" "$(seen partner)" -eq 1
    check "$backing, both: served" "$(figure pool_allocs)" -eq "$(figure allocs)"
    check "$backing, both: set" "$(figure zeroed)" -eq "$(figure allocs)"
    for mode in overlap deferred sync; do
        run "${option[@]}" CUPOLA_ZERO=alloc CUPOLA_FREE=$mode --
        check "$backing, $mode: ends" $? -eq 0
        check "$backing, $mode: zeros" "$(seen fresh)$(seen in-flight)$(seen in-capture)" -eq 000
        check "$backing, $mode: set" "$(figure zeroed)" -eq "$(figure allocs)"
    done
done
run CUPOLA_BACKING=vmm -- top 4194304
check "vmm: within the block" "$(seen top)" -eq 0
run CUPOLA_BACKING=vmm -- top 272629760
check "vmm: far past the arena's top" "$(seen top)" -eq 700
exit $failed
