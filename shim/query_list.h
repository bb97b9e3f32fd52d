/* SPDX-License-Identifier: Apache-2.0 */
/*
 * query_list - LISTs of the entry points that ask about memory by its address, or would change what is
 * mapped there, and of the attributes that a pointer has.
 * What:       X(symbol, (parameters), (arguments), ...), as in hook_list.h. HAND: bodies by hand. ASK: one
 *             address, `ptr`, about which the driver is asked where it says what it says of memory of
 *             cuMemAlloc. MAP: addresses from `ptr` on that would change hands. `before` goes in front of
 *             the driver's own call. ATTRIBUTE: below.
 * Not here:   what the answers are (route_query.c).
 */
#ifndef CUP_SHIM_QUERY_LIST_H
#define CUP_SHIM_QUERY_LIST_H

/* clang-format off */
#define CUP_QUERY_HAND_LIST(X)                                                                               \
    X(cuPointerGetAttribute, (void *data, CUpointer_attribute attribute, CUdeviceptr ptr),                   \
      (data, attribute, ptr))                                                                                \
    X(cuPointerGetAttributes,                                                                                \
      (unsigned int count, CUpointer_attribute *attributes, void **data, CUdeviceptr ptr),                   \
      (count, attributes, data, ptr))                                                                        \
    X(cuPointerSetAttribute, (const void *value, CUpointer_attribute attribute, CUdeviceptr ptr),            \
      (value, attribute, ptr))                                                                               \
    X(cuMemGetHandleForAddressRange,                                                                         \
      (void *handle, CUdeviceptr dptr, size_t size, CUmemRangeHandleType type, unsigned long long flags),    \
      (handle, dptr, size, type, flags))

/* Natively these fail on memory of cuMemAlloc, or only tell; none of them changes it. */
#define CUP_QUERY_ASK_LIST(X)                                                                                \
    X(cuMemGetAccess, (unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr),           \
      (flags, location, ptr), (void)0)                                                                       \
    X(cuMemRetainAllocationHandle, (CUmemGenericAllocationHandle *handle, void *ptr), (handle, ptr),         \
      (void)0)                                                                                               \
    X(cuMulticastBindAddr,                                                                                   \
      (CUmemGenericAllocationHandle multicast, size_t offset, CUdeviceptr ptr, size_t size,                  \
       unsigned long long flags), (multicast, offset, ptr, size, flags), (void)0)                            \
    /* a mapping of cuMemMap answers as pinned host memory does (measured) */                                \
    X(cuMemHostGetDevicePointer_v2, (CUdeviceptr *out, void *ptr, unsigned int flags), (out, ptr, flags),    \
      (void)0)                                                                                               \
    X(cuMemHostGetFlags, (unsigned int *flags, void *ptr), (flags, ptr), (void)0)                            \
    X(cuMemHostUnregister, (void *ptr), (ptr), cup_submit_collect())

#define CUP_QUERY_MAP_LIST(X)                                                                                \
    X(cuMemMap,                                                                                              \
      (CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,                     \
       unsigned long long flags), (ptr, size, offset, handle, flags), (void)0)                               \
    X(cuMemUnmap, (CUdeviceptr ptr, size_t size), (ptr, size), cup_submit_collect())                         \
    X(cuMemSetAccess, (CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count),             \
      (ptr, size, desc, count), cup_submit_collect())                                                        \
    X(cuMemAddressFree, (CUdeviceptr ptr, size_t size), (ptr, size), (void)0)

/*
 * What is told of a live block (a cup_subject_t *subject): SELF(name): what the driver says of the address
 * itself. NATIVE(name, type, value): what it says of memory of cuMemAlloc in that context, or the value
 * where it has none to be asked about; all that is not here is asked so, too. BLOCK(name, type, value):
 * ours. FROM(name, type, value): ours, made of what the driver says of the address itself: `said`.
 */
#define CUP_ATTRIBUTE_LIST(SELF, NATIVE, BLOCK, FROM)                                                        \
    BLOCK(CONTEXT, uintptr_t, (uintptr_t)subject->ctx)                                                       \
    SELF(MEMORY_TYPE)                                                                                        \
    SELF(DEVICE_POINTER)                                                                                     \
    SELF(HOST_POINTER)                                                                                       \
    SELF(P2P_TOKENS)                                                                                         \
    BLOCK(SYNC_MEMOPS, unsigned, (subject->block.marks & CUP_MARK_NOTE) != 0)                                \
    BLOCK(BUFFER_ID, unsigned long long, cup_query_id(&subject->block))                                      \
    SELF(IS_MANAGED)                                                                                         \
    SELF(DEVICE_ORDINAL)                                                                                     \
    NATIVE(IS_LEGACY_CUDA_IPC_CAPABLE, unsigned, subject->heap != NULL) /* what is opened is not (measured) */                                                         \
    BLOCK(RANGE_START_ADDR, CUdeviceptr, subject->block.base)                                                \
    BLOCK(RANGE_SIZE, size_t, subject->block.size_bytes)                                                     \
    SELF(MAPPED)                                                                                             \
    NATIVE(ALLOWED_HANDLE_TYPES, unsigned long long, 0)                                                      \
    SELF(IS_GPU_DIRECT_RDMA_CAPABLE)                                                                         \
    NATIVE(ACCESS_FLAGS, unsigned,                                                                           \
           subject->is_read_only ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ                                     \
                                 : CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE)                               \
    NATIVE(MEMPOOL_HANDLE, uintptr_t, 0)                                                                     \
    BLOCK(MAPPING_SIZE, size_t, cup_query_mapping(&subject->block).size_bytes)                               \
    BLOCK(MAPPING_BASE_ADDR, CUdeviceptr, cup_query_mapping(&subject->block).base)                           \
    FROM(MEMORY_BLOCK_ID, unsigned long long, cup_query_mapping_id(&subject->block, said))                   \
    SELF(IS_HW_DECOMPRESS_CAPABLE)
/* clang-format on */

#define CUP_QUERY_LIST(X)  \
    CUP_QUERY_HAND_LIST(X) \
    CUP_QUERY_ASK_LIST(X)  \
    CUP_QUERY_MAP_LIST(X)

#endif /* CUP_SHIM_QUERY_LIST_H */
