#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every row of shim/conf_list.h changes what a program sees: options.sh PROBE PRELOAD [NAME...]
# With names: also checks that each of them occurs in this script, so that a new option can't come without a test.
set -u
probe=$1 preload=$2
shift 2
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
passed=0 failed=0

# check WHAT EXPECTED VAR=VALUE…: the probe's line under these variables.
check() {
    what=$1 expected=$2
    shift 2
    got=$(env LD_PRELOAD="$preload" "$@" "$probe" 2>"$dir/err")
    verdict "$what" "$expected" "$got"
}

verdict() {
    if [ "$2" = "$3" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAILED %s\n  expected: %s\n  got:      %s\n' "$1" "$2" "$3"
        cat "$dir/err"
    fi
}

# reused: the block just freed is the next one out, though the GPU is not done with it.
pooled='calls=1 waited=0 own=0 kept=1 reused=1'
name=$(basename "$probe")
native=$("$probe")
verdict 'the probe tells native from pooled' 1 "$([ "$native" != "$pooled" ] && echo 1)"

check 'default' "$pooled"
verdict 'silent by default' '' "$(cat "$dir/err")"
check 'DISABLE=0' "$pooled" CUPOLA_DISABLE=0
check 'DISABLE=1' "$native" CUPOLA_DISABLE=1
check 'ONLY another' "$native" CUPOLA_ONLY=another
check 'ONLY this' "$pooled" CUPOLA_ONLY="another,$name"
check 'EXCLUDE another' "$pooled" CUPOLA_EXCLUDE=another
check 'EXCLUDE this' "$native" CUPOLA_EXCLUDE="another,$name"
check 'FREE=exact' "$pooled" CUPOLA_FREE=exact
check 'FREE=sync' 'calls=1 waited=1 own=0 kept=1 reused=1' CUPOLA_FREE=sync
check 'FREE=deferred' 'calls=1 waited=0 own=0 kept=1 reused=0' CUPOLA_FREE=deferred
check 'FREE=overlap' 'calls=1 waited=0 own=0 kept=1 reused=0' CUPOLA_FREE=overlap
check 'FLOOR=0: overlap hands out before it grows' "$pooled" CUPOLA_FREE=overlap CUPOLA_FLOOR=0
check 'SLACK=100: overlap grows before it hands out' 'calls=1 waited=0 own=0 kept=1 reused=0' CUPOLA_FREE=overlap CUPOLA_FLOOR=0 CUPOLA_SLACK=100
check 'WAIT_MS=0: deferred grows' 'calls=1 waited=0 own=0 kept=1 reused=0' CUPOLA_FREE=deferred CUPOLA_FLOOR=0 CUPOLA_SLACK=1 CUPOLA_WAIT_MS=0
check 'WAIT_MS=30000: deferred waits' "$pooled" CUPOLA_FREE=deferred CUPOLA_FLOOR=0 CUPOLA_SLACK=1 CUPOLA_WAIT_MS=30000
check 'DEDICATED' 'calls=1 waited=0 own=1 kept=1 reused=1' CUPOLA_DEDICATED=4k CUPOLA_BACKING=raw
check 'DEDICATED of this device' 'calls=1 waited=0 own=1 kept=1 reused=1' CUPOLA_DEDICATED=2m,0=4k CUPOLA_BACKING=raw
check 'DEDICATED of another device' "$pooled" CUPOLA_DEDICATED=1=4k CUPOLA_BACKING=raw
check 'CACHE=0' 'calls=1 waited=0 own=0 kept=0 reused=1' CUPOLA_CACHE=0 CUPOLA_BACKING=raw
check 'CACHE of a percent' 'calls=1 waited=0 own=0 kept=0 reused=1' CUPOLA_CACHE=0.1% CUPOLA_BACKING=raw
check 'CACHE=50%' "$pooled" CUPOLA_CACHE=50% CUPOLA_BACKING=raw
check 'CONF' 'calls=1 waited=1 own=1 kept=1 reused=1' CUPOLA_CONF=free:sync,dedicated:4k CUPOLA_BACKING=raw
check 'a single variable wins over CONF' 'calls=1 waited=0 own=1 kept=1 reused=0' CUPOLA_CONF=free:sync,dedicated:4k CUPOLA_FREE=deferred CUPOLA_BACKING=raw

check 'a bad value' "$pooled" CUPOLA_FREE=never
verdict 'a bad value: one line' 'cupola: CUPOLA_FREE=never is not one of exact|overlap|deferred|sync; using exact' "$(cat "$dir/err")"
check 'a bad size' "$pooled" CUPOLA_CACHE=lots
verdict 'a bad size: one line' 1 "$(grep -c CUPOLA_CACHE=lots "$dir/err")"
check 'an unknown variable' "$pooled" CUPOLA_NONSENSE=1
verdict 'an unknown variable: one line' 1 "$(grep -c 'unknown variable CUPOLA_NONSENSE' "$dir/err")"

check 'CHECKER=aside' "$native" NV_SANITIZER_INJECTION_PORT_BASE=49152 CUPOLA_CHECKER=aside
verdict 'CHECKER=aside: one line' 1 "$(grep -c 'standing aside: compute-sanitizer' "$dir/err")"
check 'CHECKER=pool' "$pooled" NV_SANITIZER_INJECTION_PORT_BASE=49152 CUPOLA_CHECKER=pool
verdict 'CHECKER=pool: silent' '' "$(cat "$dir/err")"
check 'BACKING=raw' "$pooled" CUPOLA_BACKING=raw CUPOLA_LOG=info
verdict 'BACKING is said' 1 "$(grep -c 'backing: raw' "$dir/err")"
check 'BACKING=vmm' "$pooled" CUPOLA_BACKING=vmm CUPOLA_LOG=info
verdict 'BACKING=vmm is said' 1 "$(grep -c 'backing: vmm' "$dir/err")"
check 'BACKING: two devices' "$pooled" SOFTCUDA_DEVICES=2 CUPOLA_LOG=info
verdict 'BACKING: auto is vmm' 1 "$(grep -c 'backing: vmm' "$dir/err")"
check 'BACKING: two that do not reach each other' "$pooled" SOFTCUDA_DEVICES=2 SOFTCUDA_REACH=0 CUPOLA_LOG=info
verdict 'BACKING: auto is raw' 1 "$(grep -c 'backing: raw' "$dir/err")"
check 'BACKING=auto' "$pooled" CUPOLA_BACKING=auto CUPOLA_LOG=info
verdict 'BACKING=auto is vmm' 1 "$(grep -c 'backing: vmm' "$dir/err")"
check 'BACKING=auto below MPS' "$pooled" SOFTCUDA_ATTRIBUTES=133=1 CUPOLA_LOG=info
verdict 'BACKING=auto is raw below MPS' 1 "$(grep -c 'backing: raw' "$dir/err")"
check 'BACKING=auto without handles' "$pooled" SOFTCUDA_MISSING=cuMemCreate
verdict 'BACKING=auto without handles: silent' '' "$(cat "$dir/err")"
check 'ZERO=none' "$pooled" CUPOLA_ZERO=none CUPOLA_STATS="$dir/none"
verdict 'ZERO=none: no sets' 1 "$(grep -c '"zeroed":0,' "$dir/none")"
check 'ZERO=alloc' "$pooled" CUPOLA_ZERO=alloc CUPOLA_STATS="$dir/alloc"
verdict 'ZERO=alloc: a set for each allocation' 1 "$(grep -c '"zeroed":11[0-9],' "$dir/alloc")"
check 'REDZONE' "$pooled" CUPOLA_REDZONE=4k
check 'REDZONE as large as the device: nothing is served' "$native" CUPOLA_REDZONE=100%
check 'LOG to a file' "$pooled" CUPOLA_LOG=info:"$dir/log.%p.%q{TAG}" TAG=x
verdict 'LOG: nothing on stderr' '' "$(cat "$dir/err")"
verdict 'LOG: in the file' 1 "$(cat "$dir"/log.[0-9]*.x | grep -c pooling)"
check 'LOG=off' "$pooled" CUPOLA_LOG=off
check 'a bad LOG' "$pooled" CUPOLA_LOG=loud
verdict 'a bad LOG: one line' 1 "$(grep -c CUPOLA_LOG=loud "$dir/err")"
check 'STATS=1' "$pooled" CUPOLA_STATS=1
verdict 'STATS=1: a summary' 1 "$(grep -c 'served from the pool' "$dir/err")"
check 'STATS to a file' "$pooled" CUPOLA_STATS="$dir/stats.%h"
verdict 'STATS: one line of JSON' 1 "$(cat "$dir"/stats.* | grep -c '^{"pid":.*"pool_allocs":11[0-9],.*}$')"

for option in "$@"; do
    verdict "every option is here: $option" 1 "$(grep -q "CUPOLA_$option" "$0" && echo 1)"
done
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
