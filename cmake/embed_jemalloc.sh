#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes one object of the distribution's libjemalloc_pic.a that a guest can carry (docs: allocator/jemalloc_stubs.c).
#   embed_jemalloc.sh ARCHIVE OUTPUT.o       (AR, LD, NM, OBJCOPY from the environment)
# What changes: no constructor; no malloc family and no operator new; the libc services of REDEFINED go to cup_je_ stubs;
# the few names of EXPORTED stay global, under cup_je_. A reference that neither list knows stops the build.
set -eu
archive=$1
output=$2
AR=${AR:-ar} LD=${LD:-ld} NM=${NM:-nm} OBJCOPY=${OBJCOPY:-objcopy}

# what allocator/meta.c declares
EXPORTED="mallocx sdallocx mallctl mallctlnametomib mallctlbymib malloc_conf"

# one stub each in allocator/jemalloc_stubs.c
REDEFINED="secure_getenv readlink pthread_atfork atexit dlsym pthread_create pthread_join pthread_setname_np
    pthread_getname_np sbrk exp log round _Unwind_Backtrace _Unwind_GetIP __popcountdi2
    pthread_key_create pthread_setspecific pthread_mutex_trylock pthread_mutexattr_init pthread_mutexattr_settype
    pthread_mutexattr_destroy pthread_sigmask"

# libc services that jemalloc 5.3.0 uses as they are; `abort` only when its own structures are broken
ALLOWED="_GLOBAL_OFFSET_TABLE_ __ctype_b_loc __errno_location __sched_cpucount __stack_chk_fail _exit abort
    clock_gettime close creat ffs getpid gettimeofday madvise memchr memcmp memcpy memmove memset mmap mprotect munmap
    open pthread_cond_init pthread_cond_signal pthread_cond_timedwait pthread_cond_wait pthread_mutex_init
    pthread_mutex_lock pthread_mutex_unlock pthread_self sched_getaffinity sched_getcpu sched_setaffinity sched_yield
    sigfillset strchr strcmp strcpy strerror_r strlen strncmp strncpy syscall sysconf"

work=$(mktemp -d "${TMPDIR:-/tmp}/cupola-jemalloc.XXXXXX")
trap 'rm -rf "$work"' EXIT

mkdir "$work/members"
(cd "$work/members" && "$AR" x "$archive")
rm -f "$work/members/"jemalloc_cpp.* # operator new and delete: the host's
"$LD" -r -o "$work/one.o" "$work/members/"*.o

for name in $EXPORTED $REDEFINED; do
    bare=${name#__}
    echo "$name cup_je_${bare#_}"
done >"$work/redefine"
for name in $EXPORTED; do
    echo "cup_je_$name"
done >"$work/keep"
"$OBJCOPY" --remove-section=.init_array --remove-section=.rela.init_array --strip-debug \
    --redefine-syms="$work/redefine" --keep-global-symbols="$work/keep" "$work/one.o" "$work/out.o"

{
    sed 's/.* //' "$work/redefine"
    printf '%s\n' $ALLOWED
} | sort -u >"$work/known"
"$NM" -u "$work/out.o" | sed 's/.* //' | sort -u >"$work/wanted"
unknown=$(comm -13 "$work/known" "$work/wanted" | tr '\n' ' ')
if [ -n "$unknown" ]; then
    echo "embed_jemalloc: $archive wants what cmake/embed_jemalloc.sh does not know: $unknown" >&2
    exit 1
fi
mv "$work/out.o" "$output"
