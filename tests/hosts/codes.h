/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codes - what a driver that can't serve any more answers: a line of codes, to be the same with and without
 * the preload.
 * What:       in a forked child, after the driver's own end, before its start. By looked-up functions, as
 *             driver.h.
 * Threads:    any; calls nothing but the driver and stdio.
 */
#ifndef CUP_TESTS_HOSTS_CODES_H
#define CUP_TESTS_HOSTS_CODES_H
#include "driver.h"

/* Calls that differ in what the pool does around them: X(name, symbol, type, arguments). */
#define CODES_LIST(X)                                                                                 \
    X(alloc, "cuMemAlloc_v2", (CUdeviceptr *, size_t), (&out, 4096))                                  \
    X(free, "cuMemFree_v2", (CUdeviceptr), (block))                                                   \
    X(free_null, "cuMemFree_v2", (CUdeviceptr), (0))                                                  \
    X(info, "cuMemGetInfo_v2", (size_t *, size_t *), (&size, &size))                                  \
    X(range, "cuMemGetAddressRange_v2", (CUdeviceptr *, size_t *, CUdeviceptr), (&out, &size, block)) \
    X(set, "cuMemsetD8_v2", (CUdeviceptr, unsigned char, size_t), (block, 1, 512))                    \
    X(copy, "cuMemcpyHtoD_v2", (CUdeviceptr, const void *, size_t), (block, bytes, sizeof(bytes)))    \
    X(back, "cuMemcpyDtoH_v2", (void *, CUdeviceptr, size_t), (bytes, block, sizeof(bytes)))          \
    X(stream, "cuStreamCreate", (CUstream *, unsigned), (&stream, 0))                                 \
    X(query, "cuStreamQuery", (CUstream), (NULL))                                                     \
    X(sync, "cuCtxSynchronize", (void), ())                                                           \
    X(async, "cuMemAllocAsync", (CUdeviceptr *, size_t, CUstream), (&out, 512, NULL))                 \
    X(free_async, "cuMemFreeAsync", (CUdeviceptr, CUstream), (block, NULL))                           \
    X(current, "cuCtxGetCurrent", (CUcontext *), (&context))

/*
 * block: one of the program's. What the calls get where they succeed is lost: this is for where they do
 * not.
 */
static inline void codes_print(const driver_t *driver, const char *when, CUdeviceptr block)
{
    unsigned char bytes[64] = {0};
    CUdeviceptr out;
    size_t size;
    CUstream stream;
    CUcontext context;

    printf("%s:", when);
#define X(name, symbol, type, args) printf(" %s %d", #name, DRIVER_CALL(driver, symbol, type) args);
    CODES_LIST(X)
#undef X
    printf("\n");
    fflush(stdout);
}

#endif /* CUP_TESTS_HOSTS_CODES_H */
