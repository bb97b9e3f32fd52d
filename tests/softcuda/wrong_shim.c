/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wrong_shim - a preload that is wrong on purpose: freed memory is handed out at once, without order. The
 * overlap detector must catch it (detector.c); a detector that never fires proves nothing. Doors: exported
 * symbols and cuGetProcAddress. Memory is never given back.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#undef cuGetProcAddress

#define EXPORT     __attribute__((visibility("default")))
#define BLOCKS_MAX 65536
#define SIZES      40 /* powers of two */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    CUdeviceptr base;
    unsigned size_log2;
    int is_free;
    int below; /* in its stack of free blocks; -1 */
} blocks[BLOCKS_MAX];
static int block_count;
static int newest[SIZES] = {[0 ... SIZES - 1] = -1};

EXPORT CUresult cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags);

static void *real(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

static unsigned log2_up(size_t size)
{
    unsigned bits = 9;

    while (bits < SIZES - 1 && (size_t)1 << bits < size)
        bits++;
    return bits;
}

/* The block freed last of that size; 0. */
static CUdeviceptr take(unsigned size_log2)
{
    CUdeviceptr base = 0;

    pthread_mutex_lock(&lock);
    int index = newest[size_log2];
    if (index >= 0) {
        newest[size_log2] = blocks[index].below;
        blocks[index].is_free = 0;
        base = blocks[index].base;
    }
    pthread_mutex_unlock(&lock);
    return base;
}

static void remember(CUdeviceptr base, unsigned size_log2)
{
    pthread_mutex_lock(&lock);
    if (block_count < BLOCKS_MAX) {
        blocks[block_count].base = base;
        blocks[block_count++].size_log2 = size_log2;
    }
    pthread_mutex_unlock(&lock);
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t size)
{
    CUresult (*real_alloc)(CUdeviceptr *, size_t) = (CUresult(*)(CUdeviceptr *, size_t))real("cuMemAlloc_v2");
    unsigned size_log2 = log2_up(size);
    CUdeviceptr base = out && size > 0 ? take(size_log2) : 0;

    if (base != 0) {
        *out = base;
        return CUDA_SUCCESS;
    }
    CUresult status = real_alloc(out, size > 0 ? (size_t)1 << size_log2 : 0);
    if (status == CUDA_SUCCESS)
        remember(*out, size_log2);
    return status;
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr base)
{
    CUresult status = CUDA_ERROR_INVALID_VALUE;

    pthread_mutex_lock(&lock);
    for (int i = 0; i < block_count; i++)
        if (blocks[i].base == base && !blocks[i].is_free) {
            blocks[i].is_free = 1;
            blocks[i].below = newest[blocks[i].size_log2];
            newest[blocks[i].size_log2] = i;
            status = CUDA_SUCCESS;
            break;
        }
    pthread_mutex_unlock(&lock);
    return status;
}

static void substitute(void **pfn)
{
    if (pfn && *pfn == real("cuMemAlloc_v2"))
        *pfn = (void *)cuMemAlloc_v2;
    else if (pfn && *pfn == real("cuMemFree_v2"))
        *pfn = (void *)cuMemFree_v2;
}

EXPORT CUresult cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags)
{
    CUresult (*real_get)(const char *, void **, int, cuuint64_t) =
        (CUresult(*)(const char *, void **, int, cuuint64_t))real("cuGetProcAddress");
    CUresult status = real_get(symbol, pfn, version, flags);

    substitute(pfn);
    return status;
}

EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags,
                                    CUdriverProcAddressQueryResult *out_status)
{
    CUresult (*real_get)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *) =
        (CUresult(*)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *))real(
            "cuGetProcAddress_v2");
    CUresult status = real_get(symbol, pfn, version, flags, out_status);

    substitute(pfn);
    return status;
}
