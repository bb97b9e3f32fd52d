#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# fence.sh FENCE SHIM [OPTION…]: a shim that keeps no order must be caught with every kind of last user within
# 1,000 lifetimes, or the check proves nothing. Exit 77 without a driver.
set -u
fence=$1 shim=$2 failed=0
shift 2

for kind in 1 2 3 4 5 6 7 8; do # all but those that need a second device or cuBLAS
    out=$(LD_PRELOAD=$shim "$fence" --kind $kind --lifetimes 1000 "$@" 2>&1)
    code=$?
    [ $code -eq 77 ] && { echo "$out"; exit 77; }
    if [ $code -eq 1 ] && grep -qE ' wrong_words=[1-9]| violations=[1-9]' <<<"$out"; then
        echo "caught  $(grep -o 'violations=.*' <<<"$out")"
    else
        failed=$((failed + 1))
        echo "MISSED  kind $kind, exit code $code"
        echo "$out"
    fi
done
[ $failed -eq 0 ]
