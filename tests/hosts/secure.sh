#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# secure.sh PRELOAD PROGRAM DRIVER_FOLDER: a program with privileges of its own (set-user-ID, file capabilities) runs without the
# preload, which the loader ignores there, and is none the worse for it.
set -u
preload=$1 program=$2 driver=$3
[ "$(id -u)" = 0 ] || { echo "skipped: needs root"; exit 77; }
command -v setpriv >/dev/null || { echo "skipped: no setpriv"; exit 77; }
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
chmod 755 "$dir"
cp "$program" "$dir/plain"
cp "$driver/libcuda.so.1" "$dir/"
cp "$preload" "$dir/libpreload.so" # readable for everybody
chmod 644 "$dir"/*.so*

# check NAME EXPECT COMMAND…: as nobody, with everything in the environment that the loader might take.
check() {
    name=$1 expect=$2
    shift 2
    out=$(cd "$dir" && setpriv --reuid 65534 --clear-groups env HOST_EXPECT="$expect" LD_PRELOAD="$dir/libpreload.so" \
        CUPOLA_LOG=info LD_LIBRARY_PATH="$dir" "$@" 2>&1)
    status=$?
    echo "$name: status $status: $out"
    [ "$status" = 0 ] || exit 1
    case $expect in
    native) [ "$out" = "secure 1" ] || exit 1 ;;
    pool) echo "$out" | grep -q "cupola: pooling" || exit 1 ;;
    esac
}

check plain pool ./plain
cp "$dir/plain" "$dir/setuid"
chmod 4755 "$dir/setuid"
if [ "$(cd "$dir" && setpriv --reuid 65534 --clear-groups ./setuid --is-secure)" != "secure 1" ]; then
    echo "skipped: the file system or the container keeps set-user-ID out"
    exit 77
fi
check set-user-ID native ./setuid
if command -v setcap >/dev/null; then
    cp "$dir/plain" "$dir/capable"
    setcap cap_net_raw+ep "$dir/capable" && check capabilities native ./capable
fi
exit 0
