/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wrap_malloc - somebody else's preload: wraps the malloc family through dlsym(RTLD_NEXT), as tracers do.
 * What:       counts the calls, and apart those whose caller lies in libcupola.so.
 * Not here:   any care for our sake.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#define API __attribute__((visibility("default")))
API void *malloc(size_t size);
API void *calloc(size_t count, size_t size);
API void *realloc(void *memory, size_t size);
API void free(void *memory);
API uint64_t wrap_malloc_calls(void);
API uint64_t wrap_malloc_calls_from_cupola(void);

static void *(*next_malloc)(size_t);
static void *(*next_calloc)(size_t, size_t);
static void *(*next_realloc)(void *, size_t);
static void (*next_free)(void *);
static _Atomic uint64_t calls, calls_from_cupola;
static _Atomic uintptr_t cupola_begin, cupola_end;

/* dlsym may call calloc before we know the next one. */
static char early[4096] __attribute__((aligned(16)));
static size_t early_used;

static int find_cupola(struct dl_phdr_info *info, size_t size, void *unused)
{
    if (strstr(info->dlpi_name, "libcupola.so") == NULL)
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD && (info->dlpi_phdr[i].p_flags & PF_X)) {
            cupola_begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            cupola_end = cupola_begin + info->dlpi_phdr[i].p_memsz;
        }
    return 1;
}

static void resolve(void)
{
    if (next_free != NULL)
        return;
    next_calloc = (void *(*)(size_t, size_t))dlsym(RTLD_NEXT, "calloc");
    next_malloc = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
    next_realloc = (void *(*)(void *, size_t))dlsym(RTLD_NEXT, "realloc");
    next_free = (void (*)(void *))dlsym(RTLD_NEXT, "free");
    dl_iterate_phdr(find_cupola, NULL);
}

static void count(void *caller)
{
    calls++;
    if ((uintptr_t)caller >= cupola_begin && (uintptr_t)caller < cupola_end)
        calls_from_cupola++;
}

void *malloc(size_t size)
{
    resolve();
    count(__builtin_return_address(0));
    return next_malloc(size);
}

void *calloc(size_t nmemb, size_t size)
{
    if (next_calloc == NULL) {
        void *memory = early + early_used;
        early_used += (nmemb * size + 15) & ~(size_t)15;
        return early_used <= sizeof early ? memory : NULL;
    }
    count(__builtin_return_address(0));
    return next_calloc(nmemb, size);
}

void *realloc(void *memory, size_t size)
{
    resolve();
    count(__builtin_return_address(0));
    return next_realloc(memory, size);
}

void free(void *memory)
{
    if ((char *)memory >= early && (char *)memory < early + sizeof early)
        return;
    resolve();
    if (memory != NULL)
        count(__builtin_return_address(0));
    next_free(memory);
}

uint64_t wrap_malloc_calls(void)
{
    return calls;
}

uint64_t wrap_malloc_calls_from_cupola(void)
{
    /* no range means that the test looked at nothing: as bad as a call */
    return cupola_end == 0 ? UINT64_MAX : calls_from_cupola;
}
