#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# host.sh [-q] [-m] [-n] PRELOAD PROGRAM…: runs the program as it is, then under the preload: same stdout, same stderr, same
# end. By the counters the pool served every allocation that it was asked for. Lines of its stdout "counter NAME LEAST MOST"
# bound further counters, summed over its processes.
#   -q  it ends without exit handlers, so nothing is reported: the program counts by itself (on the software driver)
#   -m  some allocations are the driver's
#   -n  the pool stands aside
#   -b LIBRARY, -a LIBRARY  another preload, in front of ours or behind it; in the first run alone
set -u
quiet=0 mixed=0 aside=0 before='' after=''
while :; do
    case $1 in
    -q) quiet=1 ;;
    -m) mixed=1 ;;
    -n) aside=1 ;;
    -b) before=$2: && shift ;;
    -a) after=:$2 && shift ;;
    *) break ;;
    esac
    shift
done
preload=$1
shift
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT

# What a shell says of a signal is its own; the status tells enough.
(HOST_EXPECT=native LD_PRELOAD="${before%:}${after#:}" "$@" >"$dir/plain.out" 2>"$dir/plain.err") 2>/dev/null
plain=$?
if [ "$plain" = 77 ]; then
    cat "$dir/plain.out" "$dir/plain.err"
    exit 77
fi
if grep -q "not so: " "$dir/plain.err"; then
    echo "natively:"
    cat "$dir/plain.err"
    exit 1
fi
expect=pool
[ "$aside" = 1 ] && expect=native
(HOST_EXPECT=$expect LD_PRELOAD="$before$preload$after" CUPOLA_STATS="$dir/stats.%p" "$@" >"$dir/ours.out" 2>"$dir/ours.err") 2>/dev/null
ours=$?

sum() {
    cat "$dir"/stats.* 2>/dev/null | sed "s/.*\"$1\":\([0-9]*\).*/\1/" | awk '{ sum += $1 } END { printf "%.0f\n", sum }'
}
fail() {
    echo "$*; status $plain against $ours; natively, then preloaded:"
    cat "$dir/plain.out" "$dir/plain.err"
    echo ----
    cat "$dir/ours.out" "$dir/ours.err"
    exit 1
}
[ "$plain" = "$ours" ] || fail "another end"
cmp -s "$dir/plain.out" "$dir/ours.out" || fail "another stdout"
[ "$quiet" = 1 ] || [ "$aside" = 1 ] || [ "$(sum pool_allocs)" -gt 0 ] || fail "the pool served nothing"
[ "$mixed" = 1 ] || [ "$aside" = 1 ] || [ "$(sum pass_allocs)" = 0 ] || fail "$(sum pass_allocs) allocations were the driver's"
[ "$aside" = 0 ] || [ "$(sum pool_allocs)" = 0 ] || fail "the pool served"
grep -v "^cupola: standing aside: " "$dir/ours.err" | cmp -s "$dir/plain.err" - || fail "another stderr"
[ "$(grep -c "^cupola: standing aside: " "$dir/ours.err")" = "$aside" ] || fail "said, or not said"
bound() { # NAME LEAST MOST
    value=$(sum "$1")
    [ "$value" -ge "$2" ] && [ "$value" -le "$3" ] || fail "$1 is $value, expected $2 to $3"
}
[ "$aside" = 1 ] || grep "^counter " "$dir/ours.out" >"$dir/bounds"
[ ! -s "$dir/bounds" ] || while read -r _ name least most; do
    bound "$name" "$least" "$most"
done <"$dir/bounds"
echo "status $ours, served $(sum pool_allocs), passed $(sum pass_allocs)"
