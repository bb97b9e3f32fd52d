#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# No object of ours calls the host's heap, stdio, or a way out of the process; dl functions only where they belong.
#   undefined.sh NM CC LIST      (LIST: a file with an object a line)
set -eu
. "$(dirname "$0")/lib.sh"
nm=$1 cc=$2 list=$3

heap='malloc|calloc|realloc|reallocarray|free|memalign|aligned_alloc|posix_memalign|strn?dup|v?asprintf|get(line|delim)|open_memstream'
stdio='(v|f|vf|d|vd|s|vs)?printf|f?puts|f?putc|putchar|f(open|dopen|close|write|read|flush)|perror|__(v|f|vf|s|vs)?printf_chk|std(in|out|err)'
ways_out='abort|exit|_exit|_Exit|quick_exit|raise|__assert_fail'
dl='dlsym|dlvsym|dlopen|dlmopen|dlclose|dladdr|dladdr1|dlinfo'

# snprintf and vsnprintf are allowed: into a buffer of ours, with plain formats, glibc touches no stream and no heap.
check_object() {
    forbidden="$heap|$stdio|$ways_out|$dl"
    case $(basename "$1") in
    drv.c.o | hook_dlsym.c.o) forbidden="$heap|$stdio|$ways_out" ;;
    esac
    "$nm" -u "$1" | awk '{print $2}' | sed 's/@.*//' | grep -xE "$forbidden" >"$scratch/bad" || true
    while read -r name; do
        say "$(basename "$1") calls $name"
    done <"$scratch/bad"
}

count=0
while read -r object; do
    [ -n "$object" ] || continue
    check_object "$object"
    count=$((count + 1))
done <"$list"
[ "$count" -ge 3 ] || say "only $count objects were looked at"

for call in 'malloc(1)' 'printf("")' 'exit(1)' 'dlsym(0, "")'; do
    printf '#include <stdio.h>\n#include <stdlib.h>\n#include <dlfcn.h>\nvoid f(void) { %s; }\n' "$call" >"$scratch/p.c"
    "$cc" -O0 -w -fno-builtin -c "$scratch/p.c" -o "$scratch/p.o"
    must_find "a call of $call" check_object "$scratch/p.o"
done
verdict
