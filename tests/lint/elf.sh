#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What the loader sees of the library: it needs libc alone, no newer than FLOOR, and runs nothing of ours at load or exit.
#   elf.sh LIBRARY FLOOR CC      (FLOOR: the newest glibc symbol version allowed, as 2.17)
# crtbegin's frame_dummy and __do_global_dtors_aux are allowed in the arrays: they do nothing in a C library.
set -eu
. "$(dirname "$0")/lib.sh"
library=$1 floor=$2 cc=$3

check_needed() {
    readelf -dW "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -vxE 'libc\.so\.6|ld-linux-x86-64\.so\.2' >"$scratch/bad" || true
    while read -r name; do
        say "needs $name"
    done <"$scratch/bad"
    if readelf -dW "$1" | grep -qE '\((RPATH|RUNPATH|TEXTREL)\)'; then
        say "has a run path or text relocations"
    fi
}

# library, section, allowed function: each pointer in the array is a relative relocation whose addend is the function
check_array() {
    set -- "$1" "$2" "$3" $(readelf -SW "$1" | sed 's/^ *\[ *[0-9]*\] *//' | awk -v s="$2" '$1 == s {print $3, $5}')
    [ $# -eq 5 ] || return 0
    entries=$(($(printf '%d' "0x$5") / 8))
    [ "$entries" -eq 1 ] || say "$2 has $entries entries"
    target=$(readelf -rW "$1" | awk -v at="$4" '$1 == at && $3 == "R_X86_64_RELATIVE" {print $4}')
    name=$(nm "$1" | awk -v at="$target" 'BEGIN {while (length(at) < 16) at = "0" at} $1 == at {print $3}' | head -n 1)
    [ "$name" = "$3" ] || say "$2 runs ${name:-something without a name}, not $3"
}

# crti's _init and _fini only: a body of ours would be longer than their prologue, the weak call, and the epilogue
check_init_fini() {
    for name in _init _fini; do
        lines=$(objdump -d --no-show-raw-insn "$1" | awk -v f="<$name>:" '$2 == f {on = 1; next} on && NF == 0 {exit} on' | wc -l)
        [ "$lines" -le 10 ] || say "$name has $lines instructions: not crti's"
    done
}

check_floor() {
    objdump -T "$1" | grep -oE 'GLIBC_[0-9.]+' | sed 's/GLIBC_//' | sort -uV | tail -n 1 >"$scratch/newest"
    newest=$(cat "$scratch/newest")
    if [ "$(printf '%s\n%s\n' "$newest" "$floor" | sort -V | tail -n 1)" != "$floor" ]; then
        say "wants glibc $newest, the floor is $floor: $(objdump -T "$1" | grep "GLIBC_$newest" | awk '{print $NF}' | tr '\n' ' ')"
    fi
}

check_all() {
    check_needed "$1"
    check_array "$1" .init_array frame_dummy
    check_array "$1" .fini_array __do_global_dtors_aux
    check_init_fini "$1"
    check_floor "$1"
}

check_all "$library"

plant() {
    echo "$1" >"$scratch/p.c"
    shift
    "$cc" -shared -fPIC -w "$scratch/p.c" -o "$scratch/p.so" "$@"
}
plant '#include <math.h>
double f(double x) { return exp(x); }' -lm
must_find "a second NEEDED" check_needed "$scratch/p.so"
plant '__attribute__((constructor)) void f(void) {}'
must_find "a constructor" check_array "$scratch/p.so" .init_array frame_dummy
plant '__attribute__((destructor)) void f(void) {}'
must_find "a destructor" check_array "$scratch/p.so" .fini_array __do_global_dtors_aux
plant '#include <pthread.h>
int f(pthread_once_t *o, void (*g)(void)) { return pthread_once(o, g); }'
floor=2.2.4 must_find "a symbol above the floor" check_floor "$scratch/p.so"
verdict
