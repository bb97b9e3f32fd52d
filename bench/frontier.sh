#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Footprint against time, simulated: lag x handle size x slack for each trace, and the rivals; then by the modelled
# GPU at three rates of work.
#   bench/frontier.sh [build/bench/replay]      writes bench/results/DATE-replay.csv and docs/replay-frontier.svg
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
replay=${1:-build/bench/replay}
[ -x "$replay" ] || { echo "frontier: $replay is not there: cmake --build build --target bench-replay" >&2; exit 2; }
rows=$(mktemp)
trap 'rm -f "$rows"' EXIT
rm -f "$rows"

# name of a trace, then options
row() {
    file=$root/bench/traces/$1.csv.xz
    shift
    "$replay" --csv "$rows" "$@" "$file" >/dev/null || { echo "frontier: $* $file failed" >&2; exit 1; }
}

for trace in gpt gen cp; do
    for lag in 0 32 200 1000; do
        for handle in 2m 8m 32m; do
            for slack in 100 105 110 125; do
                row $trace --policy pool --backing vmm --lag $lag --handle $handle --slack $slack
            done
        done
        for slack in 100 105 110 125; do # the pool's own handle sizes
            row $trace --policy pool --backing vmm --lag $lag --slack $slack
        done
        row $trace --policy pool --backing raw --lag $lag
        row $trace --policy segments --backing raw --lag $lag
        row $trace --policy classes --backing raw --lag $lag
    done
    for rate in 0.7 1.0 1.3; do
        row $trace --policy pool --backing vmm --lag time --movable time --rate $rate
        row $trace --policy pool --backing raw --lag time --movable time --rate $rate
        row $trace --policy segments --backing raw --lag time --movable time --rate $rate
        row $trace --policy classes --backing raw --lag time --movable time --rate $rate
    done
done

csv=$root/bench/results/$(date +%F)-replay.csv
{
    echo "# command: bench/frontier.sh"
    echo "# simulated: recorded traces through the allocator over a driver of numbers (bench/traces.md)"
    echo "# date: $(date +%F); commit: $(git -C "$root" describe --always --dirty 2>/dev/null || echo unknown)"
    cat "$rows"
} >"$csv"
echo "$csv: $(($(wc -l <"$rows") - 1)) rows"

command -v gnuplot >/dev/null || { echo "no gnuplot here: no chart" && exit 0; }
gnuplot -e "csv='$csv'; svg='$root/docs/replay-frontier.svg'" "$root/bench/frontier.gp"
echo "$root/docs/replay-frontier.svg"
