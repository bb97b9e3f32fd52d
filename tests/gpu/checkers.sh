#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# checkers.sh BUILD: the tools that watch a program on the GPU.
#   compute-sanitizer  finds the planted write with the preload in place as without; the pool stands aside, and says so once
#   cuda-gdb           likewise stands aside
#   ncu                the pool serves, and the profile is there
#   CUPTI              likewise, through the profiler of PyTorch
# A line each. A tool that is not there, or fails natively, is absent. Exit 77 without a GPU.
set -u
build=$(realpath "$1")
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
shim=$build/libcupola.so planted=$build/bench/planted
failed=0

verdict() { # CODE NAME [REMARK]
    [ "$1" -eq 0 ] && { printf 'ok     %-20s %s\n' "$2" "${3-}" && return; }
    failed=1
    printf 'FAILED %s\n' "$2"
    tail -n 25 "$dir/out"
}
absent() { # NAME
    printf 'absent %-20s %s\n' "$1" "$(tail -n 1 "$dir/out" 2>/dev/null)"
}
said() { grep -c 'standing aside' "$dir/out"; }
served() { # of all processes that reported
    cat "$dir"/stats.* 2>/dev/null | sed -n 's/.*"pool_allocs":\([0-9]*\).*/\1/p' | awk '{ sum += $1 } END { print sum + 0 }'
}
# COMMAND…: under the preload, which the tool hands on to its program.
preloaded() {
    rm -f "$dir"/stats.*
    LD_PRELOAD=$shim CUPOLA_STATS="$dir/stats.%p" timeout 120 "$@" >"$dir/out" 2>&1
}

"$planted" in >"$dir/out" 2>&1 || { code=$?; cat "$dir/out"; exit $code; }

timeout 120 compute-sanitizer --tool memcheck --error-exitcode 9 "$planted" out >"$dir/out" 2>&1
if [ $? -ne 9 ]; then
    absent compute-sanitizer
else
    preloaded compute-sanitizer --tool memcheck --error-exitcode 9 "$planted" out
    [ $? -eq 9 ] && grep -q 'Invalid __global__ write' "$dir/out" && [ "$(said)" = 1 ] && [ "$(served)" = 0 ]
    verdict $? "compute-sanitizer out" "$(grep -m 1 'Invalid __global__ write' "$dir/out")"
    preloaded compute-sanitizer --tool memcheck --error-exitcode 9 "$planted" in &&
        grep -q '^done' "$dir/out" && [ "$(said)" = 1 ]
    verdict $? "compute-sanitizer in"
fi

timeout 60 cuda-gdb -batch -ex run "$planted" </dev/null >"$dir/out" 2>&1
if ! grep -q '^done' "$dir/out"; then
    absent cuda-gdb
else
    rm -f "$dir"/stats.*
    timeout 60 cuda-gdb -batch -ex "set environment LD_PRELOAD $shim" -ex "set environment CUPOLA_STATS $dir/stats.%p" \
        -ex run "$planted" </dev/null >"$dir/out" 2>&1
    grep -q '^done' "$dir/out" && [ "$(said)" = 1 ] && [ "$(served)" = 0 ]
    verdict $? cuda-gdb
fi

timeout 120 ncu --section SpeedOfLight --clock-control none "$planted" in >"$dir/out" 2>&1
if ! grep -q 'Duration' "$dir/out"; then
    absent ncu
else
    preloaded ncu --section SpeedOfLight --clock-control none "$planted" in
    grep -q 'Duration' "$dir/out" && grep -q '^done' "$dir/out" && [ "$(said)" = 0 ] && [ "$(served)" -ge 3 ]
    verdict $? ncu "served $(served)"
fi

cat >"$dir/profiled.py" <<'PY'
import torch
from torch.profiler import ProfilerActivity, profile
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
    total = sum((torch.ones(1000, device="cuda") * i).sum() for i in range(20))
    torch.cuda.synchronize()
kernels = sum(e.count for e in seen.key_averages() if e.device_time_total > 0)
print("sum", int(total.item()), "kernels", kernels > 20)
PY
PYTORCH_NO_CUDA_MEMORY_CACHING=1 timeout 120 python3 "$dir/profiled.py" >"$dir/plain" 2>"$dir/out"
if ! grep -q 'kernels True' "$dir/plain"; then
    absent CUPTI
else
    PYTORCH_NO_CUDA_MEMORY_CACHING=1 preloaded python3 "$dir/profiled.py"
    grep -q "$(cat "$dir/plain")" "$dir/out" && [ "$(served)" -ge 20 ]
    verdict $? CUPTI "served $(served)"
fi
exit $failed
