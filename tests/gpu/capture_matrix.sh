#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# capture_matrix.sh PROGRAM SHIM: under the preload every call in a capture does what it does natively, but that cuMemAlloc
# and cuMemFree succeed and disturb no capture; and the same again when each call comes after a free, and work on two
# streams. Exit 77 without a driver.
set -u
program=$1 shim=$2 failed=0
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT

"$program" >"$dir/native" || { code=$?; cat "$dir/native"; exit $code; }
sed -E '/^cuMem(Alloc|Free)[ \/]/s/[0-9]+ end [0-9]+$/0 end 0/' "$dir/native" >"$dir/wanted"
if cmp -s "$dir/native" "$dir/wanted"; then
    echo "natively no capture minds an allocation: this could not fail"
    exit 1
fi
for how in '' freed; do
    LD_PRELOAD=$shim "$program" $how >"$dir/served" || failed=1
    diff "$dir/wanted" "$dir/served" || failed=1
done
echo "$(diff "$dir/native" "$dir/wanted" | grep -c '^>') of $(wc -l <"$dir/native") cells differ from native"
exit $failed
