#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ipc_kill.sh BUILD [N]: rings of three processes that write into each other's blocks, open and close; a member of each is killed
# at a random moment, N times under each backing (50). The others must end by themselves, with an error, in time; what the
# device then has in use, asked of a fresh process without the preload, must come back to what it was; and a new ring must give
# right bytes, served by the pool. Five rings at a time: meant for less than 90 s on a GPU (not measured).
# BACKINGS ("raw vmm", "native" is one, too), SEED and JOBS in the environment. Exit 77 without a driver.
set -u
build=$(cd "$1" && pwd) kills=${2:-50}
ring=$build/bench/ipc_ring
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
seed=${SEED:-$$} jobs=${JOBS:-5} failed=0 ended=0
RANDOM=$seed
echo "seed $seed"

env_of() { # BACKING: words for env
    [ "$1" = native ] || echo "LD_PRELOAD=${RUNTIME-}$build/libcupola.so CUPOLA_BACKING=$1"
}
used() {
    "$ring" --used 1 | sed -n 's/^used=\([0-9]*\) .*/\1/p'
}
figure() { # KEY: summed over the members
    sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" "$dir/stats" | awk '{ sum += $1 } END { print sum + 0 }'
}
random_us() { # BELOW
    echo $(((RANDOM << 15 | RANDOM) % $1 + 1))
}
# One in four is killed while it starts, the others while the ring turns.
one_kill() { # BACKING NUMBER WHEN US VICTIM
    # shellcheck disable=SC2046
    timeout -k 5 60 env $(env_of "$1") "$ring" --processes 3 --bytes 2m "$3" "$4" --victim "$5" >"$dir/out.$2" 2>&1
    echo $? >"$dir/code.$2"
}
judge() { # BACKING NUMBER
    local backing=$1 number=$2
    if [ "$(cat "$dir/code.$number")" = 0 ]; then
        ended=$((ended + 1))
    else
        failed=$((failed + 1))
        echo "FAILED $backing, kill $number: code $(cat "$dir/code.$number")"
        tail -n 5 "$dir/out.$number"
    fi
}
storm() { # BACKING
    local backing=$1 number first
    for ((first = 0; first < kills; first += jobs)); do
        for ((number = first; number < first + jobs && number < kills; number++)); do
            if [ $((RANDOM % 4)) -eq 0 ]; then
                one_kill "$backing" $number --kill_start_us "$(random_us 1000000)" $((RANDOM % 3 + 1)) &
            else
                one_kill "$backing" $number --kill_us "$(random_us 300000)" $((RANDOM % 3 + 1)) &
            fi
        done
        wait
        for ((number = first; number < first + jobs && number < kills; number++)); do
            judge "$backing" $number
        done
    done
}
# The driver takes back what a killed process had a moment after its end.
comes_back() {
    local end=$((SECONDS + 10))
    while :; do
        now=$(used)
        [ "$now" -le "$before" ] && return 0
        [ $SECONDS -ge $end ] && return 1
        sleep 0.2
    done
}
still_works() { # BACKING
    rm -f "$dir/stats"
    # shellcheck disable=SC2046
    timeout -k 5 60 env $(env_of "$1") CUPOLA_STATS="$dir/stats" "$ring" --processes 3 --bytes 2m >"$dir/out" 2>&1 || return 1
    [ "$1" = native ] && return 0
    [ "$(figure pool_allocs)" -ge 9 ] && [ "$(figure pool_allocs)" = "$(figure allocs)" ] || return 1
    [ "$1" = raw ] || [ "$(figure ipc_opens)" -ge 3 ]
}

"$ring" --used 1 >"$dir/out" 2>&1
code=$?
[ $code -eq 0 ] || { cat "$dir/out"; exit $code; }
before=$(used)
for backing in ${BACKINGS:-raw vmm}; do
    start=$SECONDS
    storm "$backing"
    comes_back || { failed=$((failed + 1)); echo "FAILED $backing: $before bytes in use before, $now after"; }
    still_works "$backing" || { failed=$((failed + 1)); echo "FAILED $backing: a new ring"; cat "$dir/out" "$dir/stats"; }
    echo "$backing: $kills killed, $((SECONDS - start)) s, $before bytes in use before, $now after"
done
echo "$ended rings ended as they should, $failed failures"
[ $failed -eq 0 ]
