#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A process that never uses CUDA notices nothing: same output, same exit code, same stderr.
#   quiet.sh [-a] PRELOAD [VARIABLE=VALUE...]      (PRELOAD: the value of LD_PRELOAD; -a: many programs, where they are there)
set -eu
all=0
[ "$1" = -a ] && all=1 && shift
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
    if [ "$plain" != "$ours" ] || ! cmp -s plain.out ours.out || ! cmp -s plain.err ours.err; then
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
[ "$all" = 1 ] || exit 0

compared=0
# as compare, for a program that may be missing
compare_if() {
    [ -x "$(PATH=/usr/bin:/bin command -v "$1")" ] || return 0
    compare "$1" "$@"
    compared=$((compared + 1))
}
printf 'int main(void) { return 0; }\n' >a.c
compare_if ls -la /usr/bin
compare_if sort /etc/passwd
compare_if sha256sum /bin/sh
compare_if find /etc -maxdepth 1
compare_if bash -c 'for i in 1 2 3; do echo $i | tr 1 a; done; printf "%s\n" "${BASH_VERSION}"; exit 3'
compare_if bash -c '(exit 5) & wait $!; echo $?'
compare_if awk 'BEGIN { for (i = 0; i < 1000; i++) s += i; print s }'
compare_if sed -n 's,daemon,x,p' /etc/passwd
compare_if tar -cf - a b c
compare_if python3 -c 'import ctypes, json, threading, subprocess; print(json.dumps({"a": subprocess.call(["true"])}))'
compare_if perl -e 'print join(",", map { $_ * 2 } 1 .. 9), "\n"; exit 4'
compare_if gcc --version
compare_if gcc -S -o - a.c
compare_if git --version
compare_if java -version
compare_if node -e 'console.log([3, 1, 2].sort())'
compare_if openssl dgst -sha256 /bin/sh
echo "$compared programs"
[ "$compared" -ge 10 ]
