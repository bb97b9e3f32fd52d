#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test.sh PRELOAD PUBLISHED OPENED PROGRAM…: runs an example under the preload; it must succeed, every allocation of all its
# processes must have been the pool's, and so many blocks must have been published and opened by name.
set -u
preload=$1 published=$2 opened=$3
shift 3
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
chmod 700 "$dir"
env LD_PRELOAD="$preload" CUPOLA_SOCKET_DIR="$dir" CUPOLA_STATS="$dir/stats" "$@" || exit $?
total() { # over the processes, a line each
    sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" "$dir/stats" | awk '{ sum += $1 } END { print sum + 0 }'
}
echo "served $(total pool_allocs) of $(total allocs), published $(total named_publishes), opened $(total named_opens)"
[ "$(total pool_allocs)" -gt 0 ] && [ "$(total pool_allocs)" = "$(total allocs)" ] &&
    [ "$(total named_publishes)" = "$published" ] && [ "$(total named_opens)" = "$opened" ] || exit 1
rm -f "$dir/stats" "$dir"/cupola-names-*
left=$(ls "$dir")
[ -z "$left" ] || { echo "left behind: $left"; exit 1; }
