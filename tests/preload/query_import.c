/* SPDX-License-Identifier: Apache-2.0 */
/*
 * query_import - what a program is told of another process's block that it has opened: a block's story,
 * too.
 * What:       query_import CASE, on the software driver with the vmm backing; the other process exports.
 * Not here:   sharing itself (ipc.c).
 */
#define _GNU_SOURCE
#include "tests/preload/ipc_bed.h"

#define SIZE ((size_t)300 << 10)
#define SLOT ((size_t)2 << 20)

static unsigned long long told(CUpointer_attribute attribute, CUdeviceptr ptr)
{
    unsigned long long value = 0, each = 0;
    void *data[] = {&each};

    REQUIRE(cuPointerGetAttribute(&value, attribute, ptr) == CUDA_SUCCESS);
    REQUIRE(cuPointerGetAttributes(1, &attribute, data, ptr) == CUDA_SUCCESS && each == value);
    return value;
}

static void check_story(CUdeviceptr base, CUdeviceptr ptr)
{
    CUcontext context;
    CUdeviceptr start;
    size_t size;

    REQUIRE(cuCtxGetCurrent(&context) == CUDA_SUCCESS);
    REQUIRE(cuMemGetAddressRange(&start, &size, ptr) == CUDA_SUCCESS && start == base && size == SIZE);
    REQUIRE(told(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, ptr) == base);
    REQUIRE(told(CU_POINTER_ATTRIBUTE_RANGE_SIZE, ptr) == SIZE);
    REQUIRE(told(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, ptr) == ptr);
    REQUIRE(told(CU_POINTER_ATTRIBUTE_CONTEXT, ptr) == (unsigned long long)(uintptr_t)context);
    REQUIRE(told(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, ptr) == 0);
    REQUIRE(told(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, ptr) == 0);
    REQUIRE(told(CU_POINTER_ATTRIBUTE_BUFFER_ID, ptr) == told(CU_POINTER_ATTRIBUTE_BUFFER_ID, base));
}

/* What would change the mapping finds none. */
static void check_mapping(CUdeviceptr ptr)
{
    const CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
    CUdeviceptr slot = ptr & ~(CUdeviceptr)(SLOT - 1);
    CUmemGenericAllocationHandle handle;
    unsigned long long access;

    REQUIRE(cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)ptr) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuMemGetAccess(&access, &here, ptr) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuMemUnmap(ptr, SIZE) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuMemUnmap(slot, SLOT) == CUDA_ERROR_INVALID_VALUE);
}

static void story(void)
{
    peer_t there = ipc_peer();
    servant_t far = ipc_exported(&there, SIZE, 7), own = ipc_filled(NULL, SIZE, 8),
              open = ipc_opened(NULL, &far);
    unsigned long long id = told(CU_POINTER_ATTRIBUTE_BUFFER_ID, open.address), value;
    size_t size;

    REQUIRE(id >> 62 == 1 && id != told(CU_POINTER_ATTRIBUTE_BUFFER_ID, own.address));
    check_story(open.address, open.address);
    check_story(open.address, open.address + SIZE - 1);
    check_mapping(open.address);
    REQUIRE(ipc_wrong(NULL, &open, SIZE, 7) == 0);
    REQUIRE(servant_tell(NULL, SERVANT_CLOSE, &open) == CUDA_SUCCESS);
    REQUIRE(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_BUFFER_ID, open.address) ==
            CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuMemGetAddressRange(NULL, &size, open.address) == CUDA_ERROR_NOT_FOUND);
    open = ipc_opened(NULL, &far);
    REQUIRE(told(CU_POINTER_ATTRIBUTE_BUFFER_ID, open.address) != id);
    REQUIRE(servant_tell(NULL, SERVANT_CLOSE, &open) == CUDA_SUCCESS);
    REQUIRE(servant_tell(NULL, SERVANT_FREE, &own) == CUDA_SUCCESS);
    REQUIRE(servant_tell(&there, SERVANT_FREE, &far) == CUDA_SUCCESS);
    REQUIRE(peer_end(&there) == 0);
}

#define CASE_LIST(X) X(story)

IPC_MAIN(CASE_LIST)
