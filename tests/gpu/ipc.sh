#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ipc.sh BUILD [FOLDER]: what is proved on hardware of memory between processes. A line each; the output of what failed.
#   ipc_probe    handles of pooled memory answer as the driver's own do (vmm)
#   named_probe  what is opened for reading only can't be written
#   ring         rings of processes give the same bytes natively, under raw and vmm; FOLDER keeps table and chart
#   ipc_kill     a member of a ring is killed at a random moment: KILLS times under each backing (25)
#   simple_ipc   the CUDA sample, where SAMPLE names its program
#   nccl         all-reduces on two devices, where NCCL names libnccl.so.2
# What they print for the record is shown with OUT=1. Exit 77 without a driver; on the software driver the ring needs BYTES=2m
# (a smaller block can't be exported under raw).
set -u
build=$(cd "$1" && pwd) here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
folder=${2:-$dir/ring} shim=${RUNTIME-}$build/libcupola.so
passed=0 failed=0 absent=0

check() { # NAME COMMAND…
    local name=$1 code
    shift
    "$@" </dev/null >"$dir/out" 2>&1
    code=$?
    if [ $code -eq 77 ]; then
        absent=$((absent + 1))
        printf 'absent %-12s %s\n' "$name" "$(tail -n 1 "$dir/out")"
    elif [ $code -eq 0 ]; then
        passed=$((passed + 1))
        printf 'ok     %-12s %s\n' "$name" "$(tail -n 1 "$dir/out")"
        [ -z "${OUT-}" ] || cat "$dir/out"
    else
        failed=$((failed + 1))
        printf 'FAILED %-12s code %s\n' "$name" $code
        cat "$dir/out"
    fi
}

"$build/bench/ipc_ring" --used 1 >"$dir/out" 2>&1
[ $? -eq 77 ] && { cat "$dir/out"; exit 77; }
check ipc_probe "$here/ipc_probe.sh" "$build/bench/ipc_probe" "$shim"
check named_probe "$here/named_probe.sh" "$build/bench/named_probe" "$shim"
check ring "$here/../../bench/ring.sh" "$build" "$folder"
check ipc_kill "$here/ipc_kill.sh" "$build" "${KILLS:-25}"
check simple_ipc "$here/simple_ipc.sh" "$build" "${SAMPLE-}"
check nccl "$here/nccl.sh" "$build" "${NCCL-}"
echo "$passed passed, $failed failed, $absent absent"
[ $failed -eq 0 ]
