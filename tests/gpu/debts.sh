#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# debts.sh DEBTS EXPECTED COLUMN [SHIM]: every case of debts.c in a process of its own, against a column of the table:
#   native                       without a shim
#   exact overlap deferred sync  under it with that CUPOLA_FREE; every allocation must have been the pool's
#   none                         under a shim that keeps nothing
# A cell "kept" must be kept; "-" is not promised and may be either, "todo" is promised and not built yet, "hung" hangs on
# a GPU; "lost" must be lost in one of five runs, or the case could not fail. A case that hangs is lost. One line each: the
# cell, and what the program saw. DEBTS_JOBS=N: so many at once; those that may hang go alone. DEBTS_ONLY=CASE: that one.
# Exit 77 without a driver.
set -u
debts=$1 expected=$2 column=$3 shim=${4-}
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
jobs=${DEBTS_JOBS:-1}
HUNG=142 # SIGALRM, as a shell tells it

field=0
read -ra titles < <(grep -m 1 '^case ' "$expected")
for i in "${!titles[@]}"; do
    [ "${titles[$i]}" = "$column" ] && field=$i
done
[ $field -gt 0 ] || { echo "no column $column in $expected"; exit 2; }

run() { # NAME
    case $column in
    native) "$debts" "$1" ;;
    none) LD_PRELOAD=$shim "$debts" "$1" ;;
    *) CUPOLA_FREE=$column "$here/../preload/served.sh" "$shim" "$debts" "$1" ;;
    esac
}

# Sets what the program saw.
try() { # NAME
    out=$(run "$1" 2>"$dir/$1.err" </dev/null)
    code=$?
    note=
    case $code in
    0) saw=$(sed -n "s/^$1 //p" <<<"$out") ;;
    77) saw=absent ;;
    "$HUNG") saw=lost note=' (hung)' ;;
    *) saw="failed, exit code $code" ;;
    esac
}

judge() { # NAME CELL: prints
    local verdict=
    for tries in 1 2 3 4 5; do
        try "$1"
        [ "$2/$saw" = lost/kept ] || break
    done
    case $2/$saw in
    kept/kept | lost/lost | */absent | -/kept | -/lost | todo/kept | todo/lost | hung/kept | hung/lost) ;;
    *) verdict='   WRONG' ;;
    esac
    printf '%-24s %-5s %s%s%s\n' "$1" "$2" "$saw" "$note" "$verdict"
    [ -z "$verdict" ] || { echo "$out"; cat "$dir/$1.err"; }
}

rows=$(grep -v -e '^#' -e '^case ' -e '^$' "$expected" | awk -v at=$((field + 1)) -v only="${DEBTS_ONLY-}" 'only == "" || $1 == only { print $1, $at }')
[ $column = none ] && rows=$(grep -v ' -$' <<<"$rows")
diff <("$debts") <(grep -v -e '^#' -e '^case ' -e '^$' "$expected" | awk '{ print $1 }') ||
    { echo "not the cases of $expected"; exit 1; }

while read -r name cell; do
    if [[ $name = hang-* ]]; then
        wait
        judge "$name" "$cell" >"$dir/$name.seen"
        continue
    fi
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do
        wait -n
    done
    judge "$name" "$cell" >"$dir/$name.seen" &
done <<<"$rows"
wait

while read -r name cell; do
    cat "$dir/$name.seen"
done <<<"$rows" | tee "$dir/all"
tell() { # REGEX
    grep -cE "^[a-z0-9-]+ +(kept|lost|hung|todo|-) +$1" "$dir/all"
}
count=$(tell '.*') absent=$(tell absent) failed=$(tell '.* WRONG$')
[ "$absent" -lt "$count" ] || exit 77
echo "$column: $count cases, $absent absent, $failed wrong"
[ "$failed" -eq 0 ]
