#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# rows.sh PRELOAD PROGRAM MODE: what rows.c prints under the preload must be what it prints natively, but for what is known:
# under raw, blocks that share a driver allocation can't be exported.
set -u
preload=$1 program=$2 mode=$3
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
"$program" "$mode" native >"$dir/native" || exit 1
env LD_PRELOAD="$preload" "$program" "$mode" taken >"$dir/taken" || exit 1
lines=$(wc -l <"$dir/native")
if [ "${CUPOLA_BACKING:-raw}" = raw ]; then
    sed -i 's/^\(cuIpcGetMemHandle [a-z-]*\) 0$/\1 801/' "$dir/native"
fi
diff "$dir/native" "$dir/taken" || exit 1
echo "$lines lines, the same"
[ "$lines" -gt 0 ]
