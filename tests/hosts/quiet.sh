#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A process that never uses CUDA notices nothing: same output, same exit code, nothing on stderr.
#   quiet.sh PRELOAD [VARIABLE=VALUE...]      (PRELOAD: the value of LD_PRELOAD)
set -eu
preload=$1
shift
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
touch a b c

# name, then a command: run plainly and preloaded
compare() {
    name=$1
    shift
    env -i PATH=/usr/bin:/bin "$@" >"$dir/plain.out" 2>"$dir/plain.err" && plain=0 || plain=$?
    env -i PATH=/usr/bin:/bin LD_PRELOAD="$preload" $variables "$@" >"$dir/ours.out" 2>"$dir/ours.err" && ours=0 || ours=$?
    if [ "$plain" != "$ours" ] || ! cmp -s plain.out ours.out || [ -s ours.err ]; then
        echo "$name: exit $plain against $ours; stdout and stderr of the preloaded run:"
        cat ours.out ours.err
        exit 1
    fi
}

for library in $(echo "$preload" | tr ':' ' '); do
    if [ ! -e "$library" ]; then
        echo "no $library"
        exit 1
    fi
done
variables=$*
compare true /bin/true
compare false /bin/false
compare pipeline sh -c 'ls | wc'
