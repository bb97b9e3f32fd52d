#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What sharing memory between processes costs, and its rivals: ipc_ring natively and under each backing, on one device and
# on two.
#   bench/ring.sh BUILD FOLDER      writes FOLDER/ring.csv and, where there is gnuplot, FOLDER/ring.svg
# PROCESSES and BYTES in the environment: members of the ring (2), size of its blocks (64m). The hashes of all runs must be
# equal. Under a minute on two H200s is what it is made for (not measured). Exit 77 without a driver.
set -u
build=$(cd "$1" && pwd) folder=$2
root=$(cd "$(dirname "$0")/.." && pwd)
processes=${PROCESSES:-2}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
mkdir -p "$folder" || exit 1

ring() { # DEVICES MODE
    local -a preload=()
    [ "$2" = native ] || preload=("LD_PRELOAD=${RUNTIME-}$build/libcupola.so" "CUPOLA_BACKING=$2" "CUPOLA_STATS=$work/stats.$1.$2")
    timeout -k 5 90 env "${preload[@]}" "$build/bench/ipc_ring" --processes "$processes" --devices "$1" --rows 1 ${BYTES:+--bytes "$BYTES"}
}
figure() { # FILE KEY: summed over the members
    sed -n "s/.*\"$2\":\([0-9]*\).*/\1/p" "$1" | awk '{ sum += $1 } END { print sum + 0 }'
}
served() { # DEVICES MODE: every allocation of the members was the pool's
    local stats=$work/stats.$1.$2
    [ -s "$stats" ] && [ "$(figure "$stats" pool_allocs)" -gt 0 ] &&
        [ "$(figure "$stats" pool_allocs)" = "$(figure "$stats" allocs)" ]
}

rows=$work/rows
for devices in 1 2; do
    for mode in native raw vmm; do
        out=$work/out.$devices.$mode
        ring $devices $mode >"$out" 2>"$work/error"
        code=$?
        if [ $code -eq 77 ]; then
            cat "$out"
            [ $devices = 1 ] && exit 77
            break 2
        fi
        [ $code -eq 0 ] || { echo "ring: $devices, $mode: code $code" >&2; cat "$out" "$work/error" >&2; exit 1; }
        [ $mode = native ] || served $devices $mode || { echo "ring: $devices, $mode: not the pool's" >&2; exit 1; }
        hash=$(sed -n 's/^name=ipc_ring .* hash=\([^ ]*\) .*/\1/p' "$out")
        [ -n "$hash" ] && [ "$hash" = "${first_hash:=$hash}" ] || { echo "ring: $devices, $mode: other bytes" >&2; exit 1; }
        grep -E '^[a-z_]+,[0-9]+,[0-9]+,' "$out" | sed "s/^/$devices,$mode,/" >>"$rows"
    done
done

csv=$folder/ring.csv
{
    echo "# command: bench/ring.sh; $processes processes; outputs equal (hash $first_hash)"
    echo "# machine: $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | paste -sd';' || true)"
    echo "# date: $(date +%F); commit: $(git -C "$root" describe --always --dirty 2>/dev/null || echo unknown)"
    echo "devices,mode,op,from,to,bytes,value,unit"
    cat "$rows"
} >"$csv"
echo "$csv: $(wc -l <"$rows") rows"

# The table: a line for each price and way; of several pairs, the last one.
awk -F, '{ key = $1 "," $3 "," $6; if (!(key in seen)) order[++n] = key; seen[key] = 1; value[$1 "," $3 "," $6, $2] = $7; unit[key] = $8 }
    END { printf "%7s %-14s %10s %12s %12s %12s\n", "devices", "what", "bytes", "native", "raw", "vmm"
          for (i = 1; i <= n; i++) { split(order[i], part, ","); key = order[i]
              printf "%7s %-14s %10s %12s %12s %12s %s\n", part[1], part[2], part[3], value[key, "native"], value[key, "raw"],
                     value[key, "vmm"], unit[key] } }' "$rows"

command -v gnuplot >/dev/null || { echo "no gnuplot here: no chart"; exit 0; }
gnuplot -e "csv='$csv'; svg='$folder/ring.svg'" "$root/bench/ring.gp" && echo "$folder/ring.svg"
