/* SPDX-License-Identifier: Apache-2.0 */
/*
 * value - stream memory operations: words that a stream writes, or waits for. The v1 entry points refuse,
 * as on systems where they were never switched on. Barriers and flushes are marks: everything is ordered
 * here.
 */
#include "driver.h"

#define COMPARISON 3u /* the bits of a wait's flags that choose it */

/* A word of a live allocation, of a mapping or of pinned memory, on its own size. */
static CUresult plan(sc_work_kind_t kind, uint64_t addr, uint64_t value, unsigned bytes, unsigned flags,
                     sc_work_t *out_work)
{
    unsigned known = kind == SC_WORK_WRITE_VALUE ? CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER
                                                 : COMPARISON | CU_STREAM_WAIT_VALUE_FLUSH;

    if (addr == 0 || addr % bytes != 0 || (flags & ~known) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (sc_is_device_address(addr) ? !sc_is_usable(addr, bytes, -1) : !sc_host_find(addr))
        return CUDA_ERROR_INVALID_VALUE;
    *out_work = (sc_work_t){
        .kind = kind,
        .value = {.addr = addr, .value = value, .bytes = bytes, .comparison = flags & COMPARISON}};
    (kind == SC_WORK_WRITE_VALUE ? sc_work_write : sc_work_touch)(out_work, addr, bytes);
    return CUDA_SUCCESS;
}

static CUresult plan_param(const CUstreamBatchMemOpParams *param, sc_work_t *out_work)
{
    switch (param->operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        return plan(SC_WORK_WAIT_VALUE, param->waitValue.address, param->waitValue.value, 4,
                    param->waitValue.flags, out_work);
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        return plan(SC_WORK_WAIT_VALUE, param->waitValue.address, param->waitValue.value64, 8,
                    param->waitValue.flags, out_work);
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        return plan(SC_WORK_WRITE_VALUE, param->writeValue.address, param->writeValue.value, 4,
                    param->writeValue.flags, out_work);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        return plan(SC_WORK_WRITE_VALUE, param->writeValue.address, param->writeValue.value64, 8,
                    param->writeValue.flags, out_work);
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
    case CU_STREAM_MEM_OP_BARRIER:
        *out_work = (sc_work_t){.kind = SC_WORK_MARK};
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* A batch with a bad operation does nothing at all. */
static CUresult submit(CUstream handle, sc_null_t null, unsigned count,
                       const CUstreamBatchMemOpParams *params)
{
    sc_stream_t *stream;
    sc_work_t work;
    CUresult status = sc_stream_find(handle, null, &stream);

    for (unsigned i = 0; status == CUDA_SUCCESS && i < count; i++)
        status = plan_param(&params[i], &work);
    for (unsigned i = 0; status == CUDA_SUCCESS && i < count; i++) {
        status = plan_param(&params[i], &work);
        if (status == CUDA_SUCCESS)
            status = sc_stream_submit(stream, &work, NULL);
    }
    return status;
}

SC_TWINS(cuStreamBatchMemOp_v2, _ptsz,
         (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *params, unsigned int flags),
         (stream, count, params, flags))
{
    if (!params || count == 0 || count > 256 || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    return submit(stream, null, count, params);
}

#define VALUE_TWINS(symbol, type, op, member, field)                                             \
    SC_TWINS(symbol, _ptsz, (CUstream stream, CUdeviceptr addr, type value, unsigned int flags), \
             (stream, addr, value, flags))                                                       \
    {                                                                                            \
        const CUstreamBatchMemOpParams param = {                                                 \
            .member = {.operation = op, .address = addr, .field = value, .flags = flags}};       \
        return submit(stream, null, 1, &param);                                                  \
    }

VALUE_TWINS(cuStreamWaitValue32_v2, cuuint32_t, CU_STREAM_MEM_OP_WAIT_VALUE_32, waitValue, value)
VALUE_TWINS(cuStreamWaitValue64_v2, cuuint64_t, CU_STREAM_MEM_OP_WAIT_VALUE_64, waitValue, value64)
VALUE_TWINS(cuStreamWriteValue32_v2, cuuint32_t, CU_STREAM_MEM_OP_WRITE_VALUE_32, writeValue, value)
VALUE_TWINS(cuStreamWriteValue64_v2, cuuint64_t, CU_STREAM_MEM_OP_WRITE_VALUE_64, writeValue, value64)
