#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# golden.sh COLUMN PROGRAM [SHIM]: what the program prints, against what is stored and against itself without the preload.
#   native     on a real driver: the same as PROGRAM's .expected, line by line
#   soft       on the software driver: the same but for what golden.soft explains
#   raw, vmm   under the preload SHIM with this backing: the same as natively, in the same place, but for what golden.allowed
#              explains; no crash, no hang, no error where natively there is none; and, by the counters, every allocation
#              that a state stands on was the pool's
#   self       what this script must notice is planted (golden_driver alone)
#   record     prints what belongs into PROGRAM's .expected
# Fails with the lines that nothing explains. Exit 77 without a driver. GOLDEN_SHARED=1: others allocate on the device meanwhile,
# so the rows that look how much is left (".../moves") are left out.
set -u
column=$1 program=$2 shim=${3-}
here=$(cd "$(dirname "$0")" && pwd)
expected=$here/$(basename "$program").expected
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT

unshared() { # FILE: but for what others disturb
    if [ "${GOLDEN_SHARED-0}" = 1 ]; then grep -v '^[^ ]* [^ ]*/moves' "$1"; else cat "$1"; fi
}

play() { # NAME [ENVIRONMENT…]: its lines, sorted, in $dir/NAME
    local name=$1
    shift
    env "$@" "$program" >"$dir/$name.lines" 2>"$dir/$name.said"
    local code=$?
    [ $code -eq 0 ] || { cat "$dir/$name.lines" "$dir/$name.said" | tail -n 20; exit $code; }
    grep 'Sanitizer\|runtime error:' "$dir/$name.said" # seen by CTest
    unshared "$dir/$name.lines" | LC_ALL=C sort >"$dir/$name"
}

# WANTED GOT RULES: what differs and no rule explains. A rule: COLUMNS; STATES; CALLS; WANTED; GOT; reason - regular expressions
# for whole fields. Before a reason: "known:", a fault that is known, not a difference that stays; "luck:", what natively succeeds
# on memory that is gone, and need not.
compare() {
    LC_ALL=C awk -v column="$column" '
        function whole(text, pattern) { return match(text, "^(" pattern ")$") }
        function split_line(line) { # state, call, answer
            match(line, /^[^ ]+ [^ ]+/)
            key = substr(line, 1, RLENGTH)
            answer = substr(line, RLENGTH + 2)
            state = key; sub(/ .*/, "", state)
            call = key; sub(/^[^ ]+ /, "", call)
        }
        function code(text) { sub(/ .*/, "", text); return text }
        function explain(state, call, was, now,    i) {
            for (i = 1; i <= rules; i++)
                if (whole(state, states[i]) && whole(call, calls[i]) && whole(was, before[i]) && whole(now, after[i]))
                    return i
            return 0
        }
        FILENAME == ARGV[1] {
            if ($0 ~ /^(#|$)/) next
            if (split($0, field, / *; */) != 6) { print "golden.sh: not a rule: " $0; bad++; next }
            if (!whole(column, field[1])) next
            rules++
            states[rules] = field[2]; calls[rules] = field[3]; before[rules] = field[4]; after[rules] = field[5]
            reason[rules] = field[6]
            next
        }
        FILENAME == ARGV[2] {
            if ($0 ~ /^#/) next
            split_line($0)
            if (call == "(not-here)") unknown[state]
            else wanted[key] = answer
            next
        }
        {
            split_line($0)
            if (call == "(not-here)") { print "not here: " state; absent[state]; next }
            if (state in unknown) { if (unknown[state]++ == 0) print "not known: " state; next }
            lines++
            if (!(key in wanted)) { print "not wanted: " $0; bad++; next }
            was = wanted[key]; delete wanted[key]
            if (was == answer) next
            rule = explain(state, call, was, answer)
            is_worse = column != "soft" && (answer ~ /^(signal|hang|exit|no-such)/ || (code(was) == "0" && code(answer) != "0"))
            if (rule && (!is_worse || reason[rule] ~ /^(known|luck):/)) { used[rule]++; next }
            print "- " key " " was; print "+ " key " " answer
            bad++
        }
        END {
            for (key in wanted) if (!(substr(key, 1, index(key, " ") - 1) in absent)) { print "missing: " key " " wanted[key]; bad++ }
            for (rule = 1; rule <= rules; rule++)
                printf "%5d  %s\n", used[rule], reason[rule]
            printf "%d lines, %d of them unexplained\n", lines, bad
            exit bad > 0
        }' "$3" "$1" "$2"
}

# A state with memory: as many blocks from the pool as lines show pointers into blocks of cuMemAlloc. One without: none.
counted() {
    local state blocks pooled failed=0
    for state in $(grep -v '(not-here)' "$dir/native" | cut -d' ' -f1 | uniq); do
        blocks=$(grep -c "^$state .*(\(live\|interior\|last-byte\|odd\|large\|large-interior\|freed.*\)) " "$dir/native")
        pooled=$(sed -n 's/.*"pool_allocs":\([0-9]*\).*/\1/p' "$dir/stats.$state" 2>/dev/null | awk '{ sum += $1 } END { print sum + 0 }')
        if [ "$pooled" -lt "$blocks" ] || { [[ $state == no-* ]] && [ "$pooled" -ne 0 ]; }; then
            echo "$state: $pooled allocations were the pool's, $blocks are shown"
            failed=1
        fi
    done
    return $failed
}

# EDIT: what differs by it is noticed.
noticed() {
    sed "$1" "$dir/native" >"$dir/planted"
    cmp -s "$dir/native" "$dir/planted" && echo "nothing to plant by $1" && return 1
    compare "$dir/native" "$dir/planted" "$here/golden.allowed" >"$dir/said" || return 0
    echo "not noticed: $1"
    return 1
}

play native
case $column in
record)
    echo "# $(basename "$program"): ${GOLDEN_FROM:-where from: not said}"
    cat "$dir/native"
    ;;
native)
    compare <(unshared "$expected") "$dir/native" "$here/golden.allowed"
    ;;
soft)
    compare <(unshared "$expected") "$dir/native" "$here/golden.soft"
    ;;
self)
    column=raw failed=0
    cp "$dir/native" "$dir/same"
    compare "$dir/native" "$dir/same" "$here/golden.allowed" >"$dir/said" || { tail -n 20 "$dir/said"; failed=1; }
    noticed 's/^\(one cuMemFree(live)\) 0/\1 1/' || failed=1
    noticed 's/^\(one cuMemFree(interior)\) 1/\1 0/' || failed=1
    noticed 's/^\(one cuMemGetAddressRange(odd)\) .*/\1 0 base 1 size 512/' || failed=1
    noticed 's/^\(capture-global cuMemFree(live)\) .*/\1 signal-11/' || failed=1 # where another difference is allowed
    noticed 's/^\(one cuMemcpyDtoH(freed)\) .*/\1 hang/' || failed=1
    noticed '/^reset cuMemFree(live) /d' || failed=1
    noticed 's/^\(one cuMemFree\)(live)/\1(new)/' || failed=1
    counted >/dev/null && echo "not noticed: nothing was the pool's" && failed=1
    exit $failed
    ;;
raw | vmm)
    play served "LD_PRELOAD=$shim" CUPOLA_BACKING="$column" CUPOLA_LOG=off CUPOLA_STATS="$dir/stats.%q{GOLDEN_STATE}"
    compare "$dir/native" "$dir/served" "$here/golden.allowed"
    code=$?
    counted && exit $code
    exit 1
    ;;
*)
    sed -n '3,12p' "$0"
    exit 2
    ;;
esac
