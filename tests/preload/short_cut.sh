#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# short_cut.sh PRELOAD DOORS: cudaMalloc goes past the runtime with CUDA 12 and newer. Before, a runtime bound its device to the
# thread at the first call that reached it, not with cudaSetDevice: there each call must reach it.
set -u
stats=$(mktemp) || exit 1
trap 'rm -f "$stats"' EXIT
runtime_calls() { # VERSION
    : >"$stats"
    env LD_PRELOAD="$1" CUPOLA_STATS="$stats" SOFTCUDA_RUNTIME="$3" "$2" short || exit 1
    sed -n 's/.*"runtime_calls":\([0-9]*\).*/\1/p' "$stats"
}
old=$(runtime_calls "$1" "$2" 11080) new=$(runtime_calls "$1" "$2" 12000)
echo "calls past the runtime: $old with 11.8, $new with 12.0"
[ "$old" = 0 ] && [ "$new" -gt 0 ]
