#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# nccl.sh BUILD NCCL_LIB: all-reduces of NCCL between two devices are right while the program allocates and frees beside
# them: natively first, then under each backing, where by the counters the pool served it. One process with one thread and
# with two, two processes; legacy handles (NCCL_CUMEM_ENABLE=0) and NCCL's own memory (1). Bandwidth by size beside each other;
# where it is what counts (LEAST_BYTES, 16 MiB, and more) the geometric mean of it must be SHARE (0.98) of native.
# MODES and CUMEM in the environment restrict it ("--processes 2", "0"). Exit 77 without NCCL or two GPUs.
# Where the driver's own free waits for ever (the program ends with code 3), native and pooled are compared with frees that
# come after the reductions (--late 1), and the pool is run with early ones, too, for the record.
set -u
build=$1 library=$2
program=$build/bench/nccl-shared
[ -x "$program" ] || program=$build/bench/nccl-dlsym
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
export BENCH_NCCL=$library NCCL_NVLS_ENABLE=0
rounds=200 failed=0
MODES=${MODES:-"--threads 1
--threads 2
--processes 2"}
CUMEM=${CUMEM:-"0 1"}

figure() { # KEY: summed over the processes
    sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" "$dir/stats" | awk '{ sum += $1 } END { print sum + 0 }'
}
run() { # OUT OPTION…: words of $mode and $late are options
    local out=$1
    shift
    # shellcheck disable=SC2086
    NCCL_CUMEM_ENABLE=$cumem timeout -k 5 120 "$program" $mode $late --rounds $rounds --timeout 30 "$@" </dev/null >"$dir/$out" 2>&1
}
pooled() { # OUT OPTION…
    local out=$1
    shift
    rm -f "$dir/stats"
    LD_PRELOAD=${RUNTIME-}$build/libcupola.so CUPOLA_BACKING=$backing CUPOLA_STATS=$dir/stats run "$out" "$@"
}
result_of() {
    grep '^name=nccl' "$dir/$1"
}
fail() { # OUT WORDS…
    local out=$1
    shift
    failed=$((failed + 1))
    echo "FAILED $*"
    tail -n 20 "$dir/$out"
}
# A line for each size: bytes, GB/s natively and under each backing, and the share of native.
table() {
    awk -F, '/^allreduce,/ { if (FILENAME != file) { file = FILENAME; n++ } rate[n, $2] = $4; size[$2] }
        END { for (bytes in size) if (n == 3) printf "  %11d  native %8.2f  raw %8.2f (%.3f)  vmm %8.2f (%.3f) GB/s\n", bytes,
              rate[1, bytes], rate[2, bytes], rate[2, bytes] / (rate[1, bytes] + 1e-9),
              rate[3, bytes], rate[3, bytes] / (rate[1, bytes] + 1e-9) }' \
        "$dir/native" "$dir/raw" "$dir/vmm" | sort -n
}

# What there is of native's bandwidth where the size is large enough for it; nothing where no size is.
share() { # BACKING
    awk -F, -v least="${LEAST_BYTES:-16777216}" '
        /^allreduce,/ && $2 >= least && FILENAME == ARGV[1] { native[$2] = $4; next }
        /^allreduce,/ && native[$2] > 0 && $4 > 0 { sum += log($4 / native[$2]); n++ }
        END { if (n > 0) printf "%.3f\n", exp(sum / n) }' "$dir/native" "$dir/$1"
}
judge_bandwidth() { # BACKING
    local part
    part=$(share "$1")
    if [ -z "$part" ]; then
        echo "note   $mode, cumem $cumem, $1: no size to judge bandwidth by"
    elif awk -v part="$part" -v least="${SHARE:-0.98}" 'BEGIN { exit !(part >= least) }'; then
        echo "ok     $mode, cumem $cumem, $1: $part of native bandwidth"
    else
        fail "$1" "$mode, cumem $cumem, $1: $part of native bandwidth"
    fi
}

compare() { # of $mode and $cumem
    local code early="" least=$((rounds * 12)) # 2 blocks and 4 beside them on each of two devices
    late=""
    run native --sweep 1
    code=$?
    [ $code -eq 77 ] && { cat "$dir/native"; exit 77; }
    if [ $code -eq 3 ] || [ $code -eq 124 ]; then
        echo "note   $mode, cumem $cumem: natively it waits for ever; now with late frees"
        early=yes late="--late 1"
        run native --sweep 1
        code=$?
    fi
    [ $code -eq 0 ] || { fail native "$mode, cumem $cumem: natively, code $code"; return; }
    echo "native $mode, cumem $cumem: $(result_of native)"
    for backing in raw vmm; do
        pooled $backing --sweep 1
        code=$?
        [ $code -eq 0 ] || { fail $backing "$mode, cumem $cumem, $backing: code $code"; continue; }
        [ "$(figure pool_allocs)" -ge $least ] || { fail $backing "$mode: the pool served $(figure pool_allocs)"; continue; }
        echo "ok     $mode, cumem $cumem, $backing: $(result_of $backing)"
        echo "       pool $(figure pool_allocs) of $(figure allocs), exports $(figure ipc_exports), opens $(figure ipc_opens)"
        judge_bandwidth $backing
        [ -n "$early" ] || continue
        late="" pooled early
        echo "note   $mode, cumem $cumem, $backing with early frees: code $? $(result_of early)"
    done
    table
}

while read -r mode; do
    for cumem in $CUMEM; do
        compare
    done
done <<<"$MODES"
[ $failed -eq 0 ] && echo "all right"
[ $failed -eq 0 ]
