/* SPDX-License-Identifier: Apache-2.0 */
/*
 * submit_rule - what a row of submit_list.h says about its call, where that depends on the arguments.
 * What:       cup_rule_...: CUP_SUBMIT_... of the call; cup_place_...: where its work goes.
 * Manners:    arguments may be garbage, which the driver will answer: no NULL is followed, no count
 *             believed that it would refuse.
 */
#ifndef CUP_SHIM_SUBMIT_RULE_H
#define CUP_SHIM_SUBMIT_RULE_H
#include "shim/peer_trail.h"
#include "shim/submit.h"
#include <stddef.h>

/* ---- places ---- */

/* Only with this flag does instantiation submit anything: the upload. */
static inline cup_place_t cup_place_upload(const CUDA_GRAPH_INSTANTIATE_PARAMS *params,
                                           bool is_null_per_thread)
{
    if (!params || !(params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD))
        return CUP_ON_NOTHING;
    return (cup_place_t){.stream = params->hUploadStream, .is_null_per_thread = is_null_per_thread};
}

static inline cup_place_t cup_place_launch(const CUlaunchConfig *config, bool is_null_per_thread)
{
    if (!config)
        return CUP_ON_NOTHING;
    return (cup_place_t){.stream = config->hStream, .is_null_per_thread = is_null_per_thread};
}

/* EGL hands streams over by pointer. */
static inline cup_place_t cup_place_at(const CUstream *stream)
{
    return CUP_ON(stream ? *stream : NULL);
}

/* ---- rules ---- */

/* An asynchronous operation on one address, or on two. */
static inline unsigned cup_rule_touch(CUdeviceptr pointer)
{
    return cup_submit_is_host(pointer) ? CUP_SUBMIT_HOST : CUP_SUBMIT_PLAIN;
}

/* A side of a copy: its context may be another one than the stream's. */
static inline unsigned cup_rule_side(CUdeviceptr pointer)
{
    cup_peer_trail_note(pointer);
    return CUP_SUBMIT_PLAIN;
}

static inline unsigned cup_rule_either_side(CUdeviceptr dst, CUdeviceptr src)
{
    return cup_rule_side(dst) | cup_rule_side(src);
}

static inline unsigned cup_rule_either(CUdeviceptr dst, CUdeviceptr src)
{
    cup_rule_either_side(dst, src);
    return cup_submit_is_host(dst) || cup_submit_is_host(src) ? CUP_SUBMIT_HOST : CUP_SUBMIT_PLAIN;
}

static inline bool cup_rule_is_host_side(CUmemorytype type, CUdeviceptr pointer)
{
    return type == CU_MEMORYTYPE_HOST ||
           ((type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED) && cup_submit_is_host(pointer));
}

/*
 * A synchronous copy of "unified" addresses behaves by what they are, and is done with host memory when
 * it returns; "device" ones it takes at their word, even where they name pinned memory.
 */
static inline unsigned cup_rule_sides(CUmemorytype dst_type, CUdeviceptr dst, CUmemorytype src_type,
                                      CUdeviceptr src, bool is_async)
{
    if (dst_type == CU_MEMORYTYPE_DEVICE || dst_type == CU_MEMORYTYPE_UNIFIED)
        cup_rule_side(dst);
    if (src_type == CU_MEMORYTYPE_DEVICE || src_type == CU_MEMORYTYPE_UNIFIED)
        cup_rule_side(src);
    if (is_async)
        return cup_rule_is_host_side(dst_type, dst) || cup_rule_is_host_side(src_type, src)
                   ? CUP_SUBMIT_HOST
                   : CUP_SUBMIT_PLAIN;
    if (dst_type == CU_MEMORYTYPE_HOST)
        return CUP_SUBMIT_BLOCKING;
    return (dst_type == CU_MEMORYTYPE_DEVICE && cup_submit_is_host(dst)) ||
                   (src_type == CU_MEMORYTYPE_DEVICE && cup_submit_is_host(src))
               ? CUP_SUBMIT_HOST
               : CUP_SUBMIT_PLAIN;
}

/* One shape of names in five structures. */
#define CUP_RULE_COPY(name, type)                                                               \
    static inline unsigned cup_rule_copy_##name(const type *copy, bool is_async)                \
    {                                                                                           \
        return copy ? cup_rule_sides(copy->dstMemoryType, copy->dstDevice, copy->srcMemoryType, \
                                     copy->srcDevice, is_async)                                 \
                    : CUP_SUBMIT_PLAIN;                                                         \
    }
CUP_RULE_COPY(2d, CUDA_MEMCPY2D)
CUP_RULE_COPY(2d_v1, CUDA_MEMCPY2D_v1)
CUP_RULE_COPY(3d, CUDA_MEMCPY3D)
CUP_RULE_COPY(3d_v1, CUDA_MEMCPY3D_v1)
CUP_RULE_COPY(peer, CUDA_MEMCPY3D_PEER)
#undef CUP_RULE_COPY

/*
 * Batches: looking at each address would cost more than an event on the stream, so they count as copies
 * with a host side. A source that may be read out of the stream's order is not held back by a wait in
 * the stream: what was freed before becomes complete on the host first.
 */
static inline unsigned cup_rule_batch(const CUdeviceptr *dsts, const CUdeviceptr *srcs,
                                      const CUmemcpyAttributes *attrs, size_t attr_count, size_t copy_count)
{
    for (size_t i = 0; cup_peer_is_several() && dsts && srcs && i < copy_count; i++)
        cup_rule_either_side(dsts[i], srcs[i]);
    for (size_t i = 0; attrs && attr_count <= copy_count && i < attr_count; i++) {
        if (attrs[i].srcAccessOrder != CU_MEMCPY_SRC_ACCESS_ORDER_STREAM) {
            cup_submit_doubt();
            break;
        }
    }
    return CUP_SUBMIT_HOST;
}

static inline void cup_rule_operand(const CUmemcpy3DOperand *operand)
{
    if (operand->type == CU_MEMCPY_OPERAND_TYPE_POINTER)
        cup_rule_side(operand->op.ptr.ptr);
}

static inline unsigned cup_rule_batch_3d(const CUDA_MEMCPY3D_BATCH_OP *ops, size_t count)
{
    for (size_t i = 0; cup_peer_is_several() && ops && i < count; i++) {
        cup_rule_operand(&ops[i].dst);
        cup_rule_operand(&ops[i].src);
    }
    for (size_t i = 0; ops && i < count; i++) {
        if (ops[i].srcAccessOrder != CU_MEMCPY_SRC_ACCESS_ORDER_STREAM) {
            cup_submit_doubt();
            break;
        }
    }
    return CUP_SUBMIT_HOST;
}

#define CUP_MEMOPS_MAX 256 /* the driver refuses more (cuda.h, cuStreamBatchMemOp) */

/* Waits and writes begin alike: operation, address. */
static inline unsigned cup_rule_memops(unsigned count, const CUstreamBatchMemOpParams *ops)
{
    _Static_assert(offsetof(CUstreamBatchMemOpParams, waitValue.address) ==
                       offsetof(CUstreamBatchMemOpParams, writeValue.address),
                   "one address for both");
    for (unsigned i = 0; ops && count <= CUP_MEMOPS_MAX && i < count; i++) {
        CUstreamBatchMemOpType op = ops[i].operation;
        bool has_address = op == CU_STREAM_MEM_OP_WAIT_VALUE_32 || op == CU_STREAM_MEM_OP_WAIT_VALUE_64 ||
                           op == CU_STREAM_MEM_OP_WRITE_VALUE_32 || op == CU_STREAM_MEM_OP_WRITE_VALUE_64;

        if (has_address && cup_submit_is_host(ops[i].waitValue.address))
            return CUP_SUBMIT_HOST;
    }
    return CUP_SUBMIT_PLAIN;
}

/* Whether the launch may start before the one in front of it has ended. */
static inline bool cup_rule_is_programmatic(const CUlaunchAttribute *attr)
{
    return attr->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
           attr->value.programmaticStreamSerializationAllowed != 0;
}

static inline unsigned cup_rule_launch(const CUlaunchConfig *config)
{
    for (unsigned i = 0; config && config->attrs && i < config->numAttrs; i++)
        if (cup_rule_is_programmatic(&config->attrs[i]))
            return CUP_SUBMIT_PROGRAMMATIC;
    return CUP_SUBMIT_PLAIN;
}

#endif /* CUP_SHIM_SUBMIT_RULE_H */
