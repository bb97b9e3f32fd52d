#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# hosts.sh BUILD: the host programs (tests/hosts), each natively and under the preload, raw and vmm, some at once: the same end,
# and by the counters the pool served. What fails is shown whole. Exit 77 without a driver.
# Not run, because natively they fail on an H200's driver: exits last (a process does not end with its last thread, the driver's
# own threads live on); surroundings closed, closed_log (no context without free descriptors), addresses (a crash).
set -u
build=$(realpath "$1")
hosts=$(cd "$(dirname "$0")/../hosts" && pwd)
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$build/bench # its runtime

host() { # BACKING NAME FLAGS COMMAND…
    local out=$dir/$1.${2// /.} name="$2, $1"
    export CUPOLA_BACKING=$1
    # shellcheck disable=SC2086
    timeout 100 "$hosts/host.sh" $3 "$build/libcupola.so" "${@:4}" >"$out" 2>&1
    case $? in
    0) echo "ok $name" ;;
    77) echo "absent $name: $(tail -n 1 "$out")" ;;
    *) echo "FAILED $name: $(head -n 40 "$out")" ;;
    esac >"$out.verdict"
}

beside() { # a driver takes its time to start: some at once
    while [ "$(jobs -rp | wc -l)" -ge "${HOSTS_JOBS:-8}" ]; do wait -n; done
    host "$@" &
}
while IFS='|' read -r program flags name argument; do
    case "$program $name" in *" last" | *" closed" | *" closed_log" | *" addresses") continue ;; esac
    for backing in raw vmm; do
        beside $backing "$program $name" "$flags" "$build/tests/hosts/$program" "$name" \
            ${argument:+"$build/tests/hosts/${argument##*/}"}
    done
done <"$build/tests/hosts/hosts.rows"
for backing in raw vmm; do
    beside $backing python "" python3 -B "$hosts/ctypes_host.py"
done
wait
cat "$dir"/*.verdict >"$dir/all"
grep -v '^ok' "$dir/all"
echo "hosts: $(grep -c '^ok' "$dir/all") passed, $(grep -c '^FAILED' "$dir/all") failed, $(grep -c '^absent' "$dir/all") absent"
grep -q '^ok' "$dir/all" || exit 77
! grep -q '^FAILED' "$dir/all"
