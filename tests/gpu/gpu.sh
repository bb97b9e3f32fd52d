#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# gpu.sh BUILD: what is proved on hardware. Plain programs, so that a folder build/ carried to a GPU machine is enough.
#   quirks, vmm_quirks   the driver does what we rely on
# and under each backing, whose name follows:
#   doors     every way to the driver is served by the pool: by counters; and each block's bytes are verified on the
#             stream just before its free (the fence check)
#   latency   a free under a running kernel is served, and whoever gets the block next finds the kernel finished
# Exit 77 without a GPU.
set -u
build=$1 here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
passed=0 failed=0

"$build/bench/doors-dlsym" >"$dir/probe" 2>&1
[ $? -eq 77 ] && { cat "$dir/probe"; exit 77; }

verdict() { # NAME CODE
    if [ "$2" -eq 0 ]; then
        passed=$((passed + 1))
        echo "ok     $1"
    else
        failed=$((failed + 1))
        echo "FAILED $1"
        cat "$dir/out"
    fi
}

figure() { # KEY: from the one line of statistics
    sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" "$dir/stats"
}

# NAME COMMAND…: under the preload with $backing; every allocation and free of the program must have been the pool's.
served() {
    local name=$1 code
    shift
    rm -f "$dir/stats"
    LD_PRELOAD="$build/libcupola.so" CUPOLA_BACKING=$backing CUPOLA_STATS="$dir/stats" "$@" >"$dir/out" 2>&1
    code=$?
    cat "$dir/stats" >>"$dir/out" 2>/dev/null
    [ $code -eq 0 ] && [ "$(figure pool_allocs)" -gt 50 ] && [ "$(figure pool_allocs)" = "$(figure allocs)" ] &&
        [ "$(figure driver_frees)" -le 2 ]
    verdict "$name, $backing" $?
}

for quirks in quirks vmm_quirks; do
    "$here/same.sh" "$build/bench/$quirks" "$here/$quirks.expected" >"$dir/out" 2>&1
    verdict $quirks $?
done
for backing in raw vmm; do
    for door in static shared link dlsym; do
        served "door $door" "$build/bench/doors-$door"
    done
    served latency "$build/bench/free_latency"
    served pipeline "$build/bench/pipeline"
    served sort "$build/bench/thrust_loop-static" 20
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
