#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# gpu.sh BUILD: what is proved on hardware. Plain programs, so that a folder build/ carried to a GPU machine is enough.
#   quirks, vmm_quirks   the driver does what we rely on
#   fence_catches        a shim without order is caught by the fence check, with each kind of last user
#   debts native         what the driver's own free keeps
#   coverage, query_probe, contexts_probe, peer_probe (two devices): what the driver says is what it said when it was kept
#   golden driver, golden runtime: likewise, of odd calls; and under each backing as natively
# and under each backing, whose name follows:
#   doors     every way to the driver is served by the pool: by counters; and each block's bytes are verified on the
#             stream just before its free
#   latency   a free under a running kernel is served, and whoever gets the block next finds the kernel finished
#   fence     100,000 blocks change hands, none too early
#   debts     what CUPOLA_FREE=exact promises is kept
#   peers     two devices: copies, sets and kernels as natively (peer_same.sh)
# A line each; the output of what failed. Exit 77 without a GPU.
set -u
build=$1 here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
shim=$build/libcupola.so wrong=$build/tests/softcuda/wrong_shim.so
passed=0 failed=0

"$build/bench/doors-dlsym" >"$dir/probe" 2>&1
[ $? -eq 77 ] && { cat "$dir/probe"; exit 77; }

verdict() { # CODE NAME [REMARK]
    if [ "$1" -eq 77 ]; then
        printf 'absent %-20s %s\n' "$2" "$(tail -n 1 "$dir/out")"
    elif [ "$1" -eq 0 ]; then
        passed=$((passed + 1))
        printf 'ok     %-20s %s\n' "$2" "${3-}"
    else
        failed=$((failed + 1))
        printf 'FAILED %s\n' "$2"
        cat "$dir/out"
    fi
}

figure() { # KEY: from the one line of statistics
    sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" "$dir/stats"
}

# LEAST NAME COMMAND…: under the preload with $backing; every allocation and free of the program must have been the pool's,
# and no fewer than LEAST.
served() {
    local least=$1 name=$2 code
    shift 2
    rm -f "$dir/stats"
    LD_PRELOAD=$shim CUPOLA_BACKING=$backing CUPOLA_STATS="$dir/stats" "$@" >"$dir/out" 2>&1
    code=$?
    cat "$dir/stats" >>"$dir/out" 2>/dev/null
    [ $code -eq 0 ] && [ "$(figure pool_allocs)" -ge "$least" ] && [ "$(figure pool_allocs)" = "$(figure allocs)" ] &&
        [ "$(figure pass_frees)" = 0 ] && [ "$(figure bad_frees)" = 0 ]
    verdict $? "$name, $backing" "$(grep -o 'wrong_words=[0-9]* .*coalesced=[^ ]*' "$dir/out")"
}

# All columns of both tables at once: mostly they wait. What the device has left is not asked then.
goldens() {
    local name column
    for name in driver runtime; do
        for column in native raw vmm; do
            { GOLDEN_SHARED=1 timeout 120 "$here/golden.sh" $column "$build/bench/golden_$name" "$shim" >"$dir/golden.$name.$column" 2>&1
              echo $? >"$dir/golden.$name.$column.code"; } &
        done
    done
    wait
    for name in driver runtime; do
        for column in native raw vmm; do
            cp "$dir/golden.$name.$column" "$dir/out"
            verdict "$(cat "$dir/golden.$name.$column.code")" "golden $name, $column"
        done
    done
}

debts() { # COLUMN NAME [SHIM]: 8 at once
    DEBTS_JOBS=8 "$here/debts.sh" "$build/bench/debts" "$here/debts.expected" "$1" ${3+"$3"} >"$dir/out" 2>&1
    verdict $? "debts $2" "$(tail -n 1 "$dir/out")"
}

for quirks in quirks vmm_quirks capture_matrix query_probe contexts_probe peer_probe; do
    "$here/same.sh" "$build/bench/$quirks" "$here/$quirks.expected" >"$dir/out" 2>&1
    verdict $? $quirks
done
"$here/coverage.sh" "$build/bench/coverage" "$here/coverage.expected" >"$dir/out" 2>&1
verdict $? coverage
goldens
if [ -e "$wrong" ]; then
    "$here/fence.sh" "$build/bench/fence" "$wrong" >"$dir/out" 2>&1
    verdict $? fence_catches
fi
debts native native
for backing in raw vmm; do
    for door in static shared link dlsym; do
        served 50 "door $door" "$build/bench/doors-$door"
    done
    served 5 latency "$build/bench/free_latency"
    served 50 pipeline "$build/bench/pipeline"
    served 50 sort "$build/bench/thrust_loop-static" 20
    served 50000 fence timeout 60 "$build/bench/fence" --threads 16 --lifetimes 100000
    CUPOLA_BACKING=$backing debts exact "exact, $backing" "$shim"
    CUPOLA_BACKING=$backing "$here/peer_same.sh" "$build/bench/peer_probe" "$shim" >"$dir/out" 2>&1
    verdict $? "peers, $backing"
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
