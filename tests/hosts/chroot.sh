#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# chroot.sh PRELOAD PROGRAM DRIVER_FOLDER [ARGUMENT…]: the program in a root with nothing but its libraries: no /proc, no /sys,
# no /dev, no /tmp. Served all the same, also where an option asks for the executable's name.
set -u
preload=$1 program=$2 driver=$3
shift 3
[ "$(id -u)" = 0 ] || { echo "skipped: needs root"; exit 77; }
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
chroot "$dir" /nothing 2>/dev/null
[ $? = 127 ] || { echo "skipped: no chroot here"; exit 77; }

for file in $(ldd "$program" "$driver/libcuda.so.1" "$preload" | grep -o '/[^ :]*' | sort -u); do
    mkdir -p "$dir$(dirname "$file")"
    [ -e "$dir$file" ] || cp -L "$file" "$dir$file"
done
cp "$program" "$dir/program"

# run WHAT VARIABLE=VALUE…
run() {
    what=$1
    shift
    rm -f "$dir/stats"
    env -i LD_LIBRARY_PATH="$driver" LD_PRELOAD="$preload" CUPOLA_STATS=/stats "$@" /usr/sbin/chroot "$dir" /program ||
        { echo "$what: status $?"; exit 1; }
    served=$(sed 's/.*"pool_allocs":\([0-9]*\).*/\1/' "$dir/stats")
    echo "$what: served $served"
    [ "$served" -gt 0 ] || exit 1
}
run raw CUPOLA_BACKING=raw
run vmm CUPOLA_BACKING=vmm
run 'by name' CUPOLA_ONLY=program
exit 0
