#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# replay on traces made by hand, whose answers are counted on paper.      test_replay.sh REPLAY TRACES CASE
set -eu
replay=$1 traces=$2 case=$3
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failures=0

fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# name, then one event a word: +ID:BYTES or -ID, 10 µs apart
trace() {
    file=$scratch/$1
    shift
    printf '# made by hand\ntime_us,thread,op,id,bytes\n' >"$file"
    time=0
    for event in "$@"; do
        time=$((time + 10))
        id=${event#?}
        case $event in
        +*) echo "$time.5,0,alloc,${id%:*},${id#*:}" ;;
        *) echo "$time.5,0,free,$id," ;;
        esac >>"$file"
    done
}

# name, options: the last line
last() {
    file=$scratch/$1
    shift
    "$replay" "$@" "$file" >"$scratch/out" || echo "exit $?"
    tail -n 1 "$scratch/out"
}

# what the last line must begin with, then as last
expect() {
    want=$1
    shift
    got=$(last "$@")
    case $got in
    $want*) ;; # a pattern
    *) fail "$*: '$got' does not begin with '$want'" ;;
    esac
}

# text, exit status, options and trace: the text is on standard error, in one line
expect_refusal() {
    want=$1 status=$2
    shift 2
    code=0
    "$replay" "$@" >/dev/null 2>"$scratch/err" || code=$?
    [ "$code" = "$status" ] || fail "$*: exit $code, not $status"
    [ "$(grep -c . "$scratch/err")" = 1 ] || fail "$*: not one line: $(cat "$scratch/err")"
    grep -qF -e "$want" "$scratch/err" || fail "$*: '$(cat "$scratch/err")' has no '$want'"
}

M=1048576

# 2 MiB and more: a driver allocation each, cached whole. Smaller ones share a chunk of 2 MiB.
case_raw() {
    trace reuse +1:$((2 * M)) -1 +2:$((2 * M)) -2
    expect 'footprint_ratio=1.0000 waits=0 moves=0 driver_calls=1 ' reuse --backing raw
    trace two +1:$((2 * M)) +2:$((4 * M)) -1 -2
    expect 'footprint_ratio=1.0000 waits=0 moves=0 driver_calls=2 ' two --backing raw
    trace small +1:512 +2:512 +3:512 +4:512 -2 +5:512
    expect 'footprint_ratio=1024.0000 waits=0 moves=0 driver_calls=1 ' small --backing raw
    trace odd +1:1 +2:$((2 * M - 1)) # rounds to 512 and to 2 MiB: 1.00024; a chunk of 2 MiB and one of 4
    expect 'footprint_ratio=2.9993 waits=0 moves=0 driver_calls=2 ' odd --backing raw
}

# A free at event 2, with lag N, serves an allocation at event 2 + N.
case_lag() {
    trace reuse +1:$((12 * M)) -1 +2:$((12 * M)) -2
    for policy in pool segments classes; do
        one='driver_calls=1 ' two='driver_calls=2 '
        for lag in 0 1; do
            last reuse --backing raw --policy $policy --lag $lag | grep -q "$one" || fail "$policy, lag $lag: two calls"
        done
        last reuse --backing raw --policy $policy --lag 2 | grep -q "$two" || fail "$policy, lag 2: one call"
    done
    expect 'footprint_ratio=1.0000 waits=1 moves=0 driver_calls=1 ' reuse --backing raw --lag 2 --floor 0
    expect 'footprint_ratio=2.0000 waits=0 moves=0 driver_calls=2 ' reuse --backing raw --lag 2 --floor 64m
    # no work at all: the GPU has passed everything at once; work that outlasts the host: nothing
    expect 'footprint_ratio=1.0000 waits=0 moves=0 driver_calls=1 ' reuse --backing raw --lag time --rate 0
    expect 'footprint_ratio=2.0000 waits=0 moves=0 driver_calls=2 ' reuse --backing raw --lag time --rate 1000
    expect 'footprint_ratio=1.0000 waits=1 moves=0 driver_calls=1 ' reuse --backing raw --lag time --rate 1000 --floor 0
    # what needs the memory of both blocks, whoever serves it
    for lag in 0:1 1:1 2:2 9:2; do
        last reuse --lag ${lag%:*} >/dev/null
        grep -q "at least ${lag#*:}.0000 x peak live" "$scratch/out" || fail "lag ${lag%:*} does not need ${lag#*:} blocks"
    done
}

# One range: 2 MiB handles under 1 GiB, one call each; slabs and the rest in a range of their own.
case_vmm() {
    trace grow +1:$((2 * M)) +2:$((4 * M)) -1 +3:$((2 * M)) -2 -3
    expect 'footprint_ratio=1.0000 waits=0 moves=0 driver_calls=4 ' grow
    expect 'footprint_ratio=1.3333 waits=0 moves=0 driver_calls=2 ' grow --handle 8m
    trace ranges +1:512 +2:$((2 * M)) # two reservations of addresses, two handles
    expect 'footprint_ratio=1.9995 waits=0 moves=0 driver_calls=4 ' ranges
    # holes of 4 MiB at 0 and 8, a request of 8: one new pair of handles, one pair moves beside it
    trace holes +1:$((4 * M)) +2:$((4 * M)) +3:$((4 * M)) +4:$((4 * M)) -1 -3 +5:$((8 * M))
    expect 'footprint_ratio=1.0000 waits=0 moves=4 driver_calls=13 ' holes --floor 0 --slack 100 --movable 0
    expect 'footprint_ratio=1.5000 waits=0 moves=0 driver_calls=13 ' holes --floor 64m --movable 0
    # the same where the memory may not be unmapped yet: whoever moves it waits first
    for early in '--movable 200' '--lag 200'; do
        expect 'footprint_ratio=1.0000 waits=[12] moves=4 driver_calls=13 ' holes --floor 0 --slack 100 $early
    done
    trace tight +1:$((4 * M)) +2:$((4 * M)) +3:$((4 * M)) -1 -3 +4:$((8 * M)) # out of memory: moved, never failed
    expect 'footprint_ratio=1.0000 waits=0 moves=' tight --limit 12m --movable 0
    grep -q 'failed: 0$' "$scratch/out" || fail "8 MiB of 12 are free, and do not serve"
}

# Random histories, memory short and not: the laws hold all along. CUP_SEED=n adds a seed.
case_random() {
    for seed in 1 2 3 ${CUP_SEED:-}; do
        echo "seed $seed"
        awk -v seed="$seed" 'BEGIN {
            srand(seed)
            count = live = 0
            print "time_us,thread,op,id,bytes"
            for (i = 0; i < 3000; i++) {
                if (count && (rand() < 0.45 || live > 96 * 1048576)) {
                    k = int(rand() * count)
                    print i * 5 ",0,free," ids[k] ","
                    live -= bytes[k]; count--; ids[k] = ids[count]; bytes[k] = bytes[count]
                } else {
                    ids[count] = i
                    bytes[count] = int(2 ^ (rand() * 25)) + 1
                    live += bytes[count]
                    print i * 5 ",0,alloc," i "," bytes[count]
                    count++
                }
            }
        }' >"$scratch/random"
        for options in '--lag 0' '--lag 0 --movable 0 --slack 100 --floor 0' '--lag 32 --handle 8m' '--lag time --movable time' \
            '--lag 200 --wait 0 --handle 32m' '--backing raw --lag 32' '--policy segments' '--policy classes --lag 9'; do
            for limit in 512m 136m; do # the live peak is below 128 MiB
                last random $options --limit $limit --check 7 >/dev/null
                grep -q '^footprint_ratio=' "$scratch/out" || fail "seed $seed, $options, $limit: no result"
                grep -q '^broken' "$scratch/out" && fail "seed $seed, $options, $limit: $(grep '^broken' "$scratch/out")"
                [ $limit = 136m ] || grep -q 'failed: 0$' "$scratch/out" || fail "seed $seed, $options: an allocation failed"
            done
        done
    done
}

# The bars: peak held / peak live. Counts, not times: they hold on any machine.
at_most() {
    bound=$1
    shift
    got=$(last "$@")
    awk -v line="$got" -v bound="$bound" 'BEGIN { sub(/.*footprint_ratio=/, "", line); exit !(line + 0 > 0 && line + 0 <= bound) }' ||
        fail "$*: '$got', not <= $bound"
}

case_bars() {
    for name in gpt gpt2 gen cp; do
        cp "$traces/$name.csv.xz" "$scratch/$name"
    done
    at_most 1.05 gpt --lag 0
    at_most 1.06 gpt2 --lag 0 # 1.09 if handles of another size don't go back before new ones are made
    at_most 1.05 gen --lag 0
    at_most 1.10 cp --lag 0
    at_most 1.10 gpt --lag 32
    at_most 1.10 gen --lag 32
    at_most 1.15 cp --lag 32
}

case_segments() {
    trace kinds +1:512 +2:$((12 * M)) +3:$((3 * M / 2)) # 2 + 12 + 20 MiB for 13.5 MiB and 512 bytes
    expect 'footprint_ratio=2.5184 waits=0 moves=0 driver_calls=3 ' kinds --policy segments
    trace merge +1:$((4 * M)) +2:$((4 * M)) +3:$((4 * M)) +4:$((4 * M)) +5:$((4 * M)) -2 -4 -3 -1 -5 \
        +6:$((9 * M)) +7:$((9 * M))
    expect 'footprint_ratio=1.0000 waits=0 moves=0 driver_calls=1 ' merge --policy segments --check 1
    trace rest +1:512 +2:$((3 * M / 2)) +3:$((12 * M)) # the rest of the 20 MiB serves any large request
    expect 'footprint_ratio=1.6296 waits=0 moves=0 driver_calls=2 ' rest --policy segments
    # 1 MiB is too little to split off, 2 MiB are not: 30 + 2 MiB for 30 MiB and 512 bytes
    trace split +1:$((30 * M)) -1 +2:$((29 * M)) +3:512 -2 +4:$((28 * M)) +5:$((2 * M - 1))
    expect 'footprint_ratio=1.0666 waits=0 moves=0 driver_calls=2 ' split --policy segments --check 1
    # PyTorch's own example: 8 x 16, then 4 x 32 MiB hold 256 MiB; the other way round 128
    trace up +1:$((16 * M)) +2:$((16 * M)) +3:$((16 * M)) +4:$((16 * M)) +5:$((16 * M)) +6:$((16 * M)) +7:$((16 * M)) \
        +8:$((16 * M)) -1 -2 -3 -4 -5 -6 -7 -8 +11:$((32 * M)) +12:$((32 * M)) +13:$((32 * M)) +14:$((32 * M))
    expect 'footprint_ratio=2.0000 waits=0 moves=0 driver_calls=12 ' up --policy segments --check 1
    trace down +1:$((32 * M)) +2:$((32 * M)) +3:$((32 * M)) +4:$((32 * M)) -1 -2 -3 -4 +11:$((16 * M)) +12:$((16 * M)) \
        +13:$((16 * M)) +14:$((16 * M)) +15:$((16 * M)) +16:$((16 * M)) +17:$((16 * M)) +18:$((16 * M))
    expect 'footprint_ratio=1.0000 waits=0 moves=0 driver_calls=4 ' down --policy segments --check 1
    trace edge +1:$((10 * M)) # a segment of its own from 10 MiB on
    expect 'footprint_ratio=1.0000 waits=0 moves=0 driver_calls=1 ' edge --policy segments
    trace below +1:$((10 * M - 512))
    expect 'footprint_ratio=2.0001 waits=0 moves=0 driver_calls=1 ' below --policy segments
    trace lowest +1:$((5 * M)) +2:$((5 * M)) +3:$((5 * M)) +4:$((5 * M)) -1 -3 +5:$((5 * M)) -4 +6:$((9 * M)) # of two equals
    expect 'footprint_ratio=1.0000 waits=0 moves=0 driver_calls=1 ' lowest --policy segments
    trace short +1:$((4 * M)) -1 +2:$((22 * M)) # 20 MiB go back before 22 fit into 24
    expect 'footprint_ratio=1.0000 waits=1 moves=0 driver_calls=4 ' short --policy segments --limit 24m
}

case_classes() {
    trace exact +1:$((M + 512)) -1 +2:$((M + 1024)) -2 # both of 1.125 MiB
    expect 'footprint_ratio=1.1239 waits=0 moves=0 driver_calls=1 ' exact --policy classes --check 1
    trace never +1:$((M + 512)) -1 +2:$M -2 # whole blocks, never split
    expect 'footprint_ratio=2.1240 waits=0 moves=0 driver_calls=2 ' never --policy classes --check 1
    expect 'footprint_ratio=1.1245 waits=1 moves=0 driver_calls=4 ' never --policy classes --limit 2m
}

case_limit() {
    trace full +1:$((2 * M)) +2:$((2 * M)) -2 -1
    for policy in pool segments classes; do
        last full --backing raw --policy $policy --limit 3m >/dev/null
        grep -q 'allocations that failed: [12]$' "$scratch/out" || fail "$policy: 4 MiB fit into 3"
    done
    trace part +1:$((4 * M)) +2:$((22 * M)) # a segment in use is not given back, though its tail is free
    expect 'footprint_ratio=0.7692 waits=1 ' part --policy segments --limit 24m
    trace room +1:$((2 * M)) -1 +2:$((3 * M)) -2
    expect 'footprint_ratio=1.3333 waits=1 ' room --backing raw --limit 4m --lag 9
}

case_formats() {
    trace ours +7:3000000 +8:1000 -7 +9:2500000 -9 -8
    cat >"$scratch/rmm" <<'LOG'
Thread,Time,Action,Pointer,Size,Stream
140,23:59:59.999985,allocate,0x7f0000000000,3000000,0x0
140,23:59:59.999995,allocate,0x7f0000400000,1000,0x0
140,23:59:59.999996,allocate failure,(nil),99999999999,0x0
140,23:59:59.999996,allocate,(nil),0,0x0
140,00:00:00:000005,free,0x7f0000000000,3000000,0x0
140,00:00:00.000015,allocate,0x7f0000000000,2500000,0x0
140,00:00:00.000025,free,0x7f0000000000,2500000,0x0
140,00:00:00.000035,free,0x7f0000400000,1000,0x0
LOG
    for options in '--lag 0' '--lag time --rate 3' '--policy segments' '--policy classes'; do
        want=$(last ours $options)
        [ "$(last rmm $options)" = "$want" ] || fail "RMM's log, $options: not '$want'"
    done
    grep -q ' 0 lines left out' "$scratch/out" || fail "RMM's log: a line left out"
    command -v xz >/dev/null || return 0
    xz -k "$scratch/ours"
    [ "$(last ours.xz --lag time)" = "$(last ours --lag time)" ] || fail "not the same from .xz"
    head -c 40 "$scratch/ours.xz" >"$scratch/cut.xz"
    expect_refusal 'cannot be read to its end' 2 "$scratch/cut.xz"
}

case_malformed() {
    trace clean +1:3000000 -1 +2:3000000 -2
    cat >"$scratch/odd" <<'CSV'
# each odd line is said, in one line, and left out
time_us,thread,op,id,bytes
10.5,0,alloc,1,3000000
11,0,alloc,1,500
12,0,alloc,5,-3
12,0,alloc,5,9999999999999999
12,0,alloc,5,12x
12,0,alloc,5
later,0,alloc,5,512
20.5,0,free,1,
13,0,free,1,
14,0,free,77,
15,0,swap,1,
16,0
30.5,0,alloc,2,3000000
17,0,alloc,zero,9
40.5,0,free,2,
41,0,fr
CSV
    want=$(last clean --lag time)
    got=$(last odd --lag time 2>"$scratch/err")
    [ "$got" = "$want" ] || fail "odd lines: '$got', not '$want'"
    grep -q ' 12 lines left out' "$scratch/out" || fail "12 odd lines: $(head -n 1 "$scratch/out")"
    [ "$(wc -l <"$scratch/err")" = 11 ] || fail "ten lines and their rest: $(cat "$scratch/err")"
    grep -q 'odd:4: allocated already' "$scratch/err" || fail "no line number: $(head -n 1 "$scratch/err")"
    grep -q 'and 2 more such lines' "$scratch/err" || fail "the rest is not counted"
    : >"$scratch/empty"
    echo 'a,b,c' >"$scratch/other"
    trace nothing
    expect_refusal 'nothing to replay' 2 "$scratch/empty"
    expect_refusal 'nothing to replay' 2 "$scratch/nothing"
    expect_refusal 'not a trace' 2 "$scratch/other"
    expect_refusal 'No such file' 2 "$scratch/missing"
    expect_refusal '--lag soon: not N|time' 2 --lag soon "$scratch/clean"
    expect_refusal '--policy poo: not pool' 2 --policy poo "$scratch/clean"
    expect_refusal 'one TRACE' 2 "$scratch/clean" "$scratch/clean"
}

case_repeatable() {
    for options in '--lag 0' '--lag time --wait 0' '--lag time --rate 1.3 --seed 7' '--policy segments --lag 200'; do
        cp "$traces/cp.csv.xz" "$scratch/cp"
        one=$(last cp $options)
        two=$(last cp $options)
        [ "$one" = "$two" ] || fail "$options: '$one', then '$two'"
    done
    [ "$(last cp --lag time --seed 1)" != "$(last cp --lag time --seed 2)" ] || fail "the seed changes nothing"
    rm -f "$scratch/rows"
    last cp --csv "$scratch/rows" >/dev/null
    last cp --csv "$scratch/rows" --lag 32 >/dev/null
    [ "$(wc -l <"$scratch/rows")" = 3 ] || fail "not a header and two rows: $(cat "$scratch/rows")"
    fields=$(awk -F, '{ print NF }' "$scratch/rows" | sort -u)
    [ "$(echo "$fields" | wc -l)" = 1 ] || fail "rows of different lengths: $fields"
}

# Every policy over the recorded traces: the laws hold all along. replay exits 1 where one does not.
case_traces() {
    for name in gpt gen cp; do
        cp "$traces/$name.csv.xz" "$scratch/$name"
        for options in '--backing vmm' '--backing vmm --handle 8m --wait 0' '--backing raw' '--policy segments' '--policy classes'; do
            for lag in 0 200 time; do
                got=$(last $name $options --lag $lag --check 997)
                case $got in footprint_ratio=*) ;; *) fail "$name $options $lag: $got" ;; esac
                grep -q '^broken' "$scratch/out" && fail "$name $options --lag $lag: $(grep '^broken' "$scratch/out")"
                grep -q 'failed: 0$' "$scratch/out" || fail "$name $options --lag $lag: an allocation failed"
            done
        done
    done
}

"case_$case"
[ "$failures" = 0 ]
