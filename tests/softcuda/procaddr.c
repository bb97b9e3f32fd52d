/* SPDX-License-Identifier: Apache-2.0 */
/*
 * procaddr - cuGetProcAddress in both ABIs, over the LISTs of entry points and stubs. One name is kept at
 * several ABI versions, each with its own symbol; the newest that is not newer than the asked one answers.
 * Flag 2 asks for per-thread default streams: names that have such a twin answer with it, the others as
 * without the flag.
 */
#include "driver.h"
#include "stubs.h"
#include <string.h>

typedef struct {
    const char *name;
    int version;
    bool is_per_thread;
    void *address;
} row_t;

static const row_t rows[] = {
#define SC_ENTRY(symbol, name, version, per_thread, needs) \
    {#name, version, per_thread, (void *)(uintptr_t)&symbol},
#include "entry_list.h"
#undef SC_ENTRY
#define SC_STUB(symbol, name, version, per_thread) \
    {#name, version, per_thread, (void *)(uintptr_t)&sc_stub_##symbol},
#include "stub_list.h"
#undef SC_STUB
};
#define ROW_COUNT (sizeof rows / sizeof rows[0])

/* The best row for the name; out_is_known says whether the name exists at any version. */
static const row_t *find_row(const char *name, int version, bool is_per_thread, bool *out_is_known)
{
    const row_t *best = NULL;

    *out_is_known = false;
    for (size_t i = 0; i < ROW_COUNT; i++) {
        const row_t *row = &rows[i];
        if (strcmp(row->name, name) != 0 || row->version > SOFTCUDA_VERSION)
            continue;
        *out_is_known = true;
        if (row->version > version || row->is_per_thread != is_per_thread)
            continue;
        if (!best || row->version > best->version)
            best = row;
    }
    return best;
}

static CUresult look_up(const char *name, void **out_address, int version, cuuint64_t flags,
                        CUdriverProcAddressQueryResult *out_status)
{
    bool is_known = false;
    const row_t *row = NULL;

    if (!name || !out_address || (flags & ~3ull) != 0 || flags == 3)
        return CUDA_ERROR_INVALID_VALUE;
    *out_address = NULL;
    if (!sc_is_hidden(name)) {
        if (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
            row = find_row(name, version, true, &is_known);
        if (!row)
            row = find_row(name, version, false, &is_known);
    }
    if (out_status)
        *out_status = row        ? CU_GET_PROC_ADDRESS_SUCCESS
                      : is_known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                 : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    if (!row) /* whoever asks for the status is told there (measured) */
        return out_status ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
    *out_address = row->address;
    return CUDA_SUCCESS;
}

SC_EXPORT CUresult cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags)
{
    SC_ENTER(cuGetProcAddress);
    return look_up(symbol, pfn, version, flags, NULL);
}

SC_EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags,
                                       CUdriverProcAddressQueryResult *status)
{
    SC_ENTER(cuGetProcAddress_v2);
    return look_up(symbol, pfn, version, flags, status);
}
