/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hook_getproc - the third door: what cuGetProcAddress finds. Every cudart since 11.3 comes this way.
 * How:        the real resolver first, then a substitute for the address that it returned, so version,
 *             flags, status and failures stay the driver's own. The resolver finds itself, too: its rows
 *             are in the table. What nobody has classified gets a stub.
 */
#include "preload/hook_table.h"
#include "preload/hooks.h"

static CUresult substitute(const char *name, CUresult result, void **pfn)
{
    void *found;

    if (result != CUDA_SUCCESS || !pfn || !*pfn)
        return result;
    cup_hook_prepare();
    found = cup_hook_substitute(name, *pfn);
    if (found != *pfn)
        cup_route_note_getproc();
    *pfn = found;
    return result;
}

CUresult cuGetProcAddress(const char *name, void **pfn, int version, cuuint64_t flags)
{
    return substitute(name, cup_route_cuGetProcAddress(name, pfn, version, flags), pfn);
}

CUresult cuGetProcAddress_v2(const char *name, void **pfn, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    return substitute(name, cup_route_cuGetProcAddress_v2(name, pfn, version, flags, status), pfn);
}
