#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# simple_ipc.sh BUILD SAMPLE: the CUDA sample simpleIPC, unmodified and built elsewhere (SAMPLE is its program), natively and
# under each backing: it must succeed, no process of it may find a wrong byte, as many must come to their end as natively, and
# by the counters every block was the pool's. Under vmm its handles were ours, and were opened. The sample's exit code alone does
# not tell: a mismatch is only printed. Exit 77 without the sample, and where it waives itself (no device that can do it).
set -u
build=$(cd "$1" && pwd) sample=${2:-}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
failed=0

[ -x "$sample" ] || { echo "no program simpleIPC: $sample"; exit 77; }
cd "$(dirname "$sample")" || exit 1 # it starts itself anew, and looks for its kernels beside itself
sample=./$(basename "$sample")

figure() { # KEY: summed over the processes
    sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" "$dir/stats" 2>/dev/null | awk '{ sum += $1 } END { print sum + 0 }'
}
ends() { # OUT: processes that came to their end
    grep -c 'complete!' "$1"
}
is_right() { # OUT CODE
    [ "$2" -eq 0 ] && ! grep -qiE 'mismatch|failed|error' "$1" && [ "$(ends "$1")" -ge 1 ]
}
is_ours() { # BACKING
    [ "$(figure pool_allocs)" -ge 1 ] && [ "$(figure pool_allocs)" = "$(figure allocs)" ] || return 1
    if [ "$1" = vmm ]; then
        [ "$(figure ipc_exports)" -ge 1 ] && [ "$(figure ipc_opens)" -ge 1 ]
    else
        [ "$(figure ipc_exports)" = 0 ]
    fi
}

timeout -k 5 120 "$sample" </dev/null >"$dir/native" 2>&1
code=$?
[ $code -eq 2 ] || [ $code -eq 77 ] && { tail -n 1 "$dir/native"; exit 77; }
is_right "$dir/native" $code || { echo "FAILED natively: code $code"; cat "$dir/native"; exit 1; }
echo "native: $(ends "$dir/native") processes"
for backing in raw vmm; do
    rm -f "$dir/stats"
    LD_PRELOAD=${RUNTIME-}$build/libcupola.so CUPOLA_BACKING=$backing CUPOLA_STATS=$dir/stats \
        timeout -k 5 120 "$sample" </dev/null >"$dir/out" 2>&1
    code=$?
    if is_right "$dir/out" $code && [ "$(ends "$dir/out")" = "$(ends "$dir/native")" ] && is_ours $backing; then
        echo "ok     $backing: $(ends "$dir/out") processes, pool $(figure pool_allocs) of $(figure allocs), exports $(figure ipc_exports), opens $(figure ipc_opens)"
    else
        failed=$((failed + 1))
        echo "FAILED $backing: code $code"
        cat "$dir/out" "$dir/stats"
    fi
done
[ $failed -eq 0 ]
