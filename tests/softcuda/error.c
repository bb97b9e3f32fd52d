/* SPDX-License-Identifier: Apache-2.0 */
/*
 * error - names of the codes that the software driver can return.
 */
#include "driver.h"

#define CODE_LIST(X)                                                                                        \
    X(CUDA_SUCCESS, "no error")                                                                             \
    X(CUDA_ERROR_INVALID_VALUE, "invalid argument")                                                         \
    X(CUDA_ERROR_OUT_OF_MEMORY, "out of memory")                                                            \
    X(CUDA_ERROR_NOT_INITIALIZED, "initialization error")                                                   \
    X(CUDA_ERROR_DEINITIALIZED, "driver shutting down")                                                     \
    X(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected")                                           \
    X(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal")                                                  \
    X(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid")                                           \
    X(CUDA_ERROR_INVALID_CONTEXT, "invalid device context")                                                 \
    X(CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state")                   \
    X(CUDA_ERROR_NOT_FOUND, "named symbol not found")                                                       \
    X(CUDA_ERROR_OPERATING_SYSTEM, "OS call failed or operation not supported on this OS")                  \
    X(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle")                                                 \
    X(CUDA_ERROR_NOT_READY, "device not ready")                                                             \
    X(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered")                               \
    X(CUDA_ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated")                                 \
    X(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled")                             \
    X(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "peer access is not supported between these two devices")         \
    X(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "peer access has not been enabled")                               \
    X(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed")                                              \
    X(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,                                                            \
      "part or all of the requested memory range is already mapped")                                        \
    X(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "pointer does not correspond to a registered memory region")   \
    X(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure")                                               \
    X(CUDA_ERROR_NOT_PERMITTED, "operation not permitted")                                                  \
    X(CUDA_ERROR_NOT_SUPPORTED, "operation not supported")                                                  \
    X(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing")            \
    X(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "operation failed due to a previous error during capture")     \
    X(CUDA_ERROR_STREAM_CAPTURE_MERGE, "operation would result in a merge of separate capture sequences")   \
    X(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "capture was not ended in the same stream as it began")          \
    X(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work")                             \
    X(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "dependency created on uncaptured work in another stream")       \
    X(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,                                                                   \
      "operation would make the legacy stream depend on a capturing blocking stream")                       \
    X(CUDA_ERROR_CAPTURED_EVENT, "operation not permitted on an event last recorded in a capturing stream") \
    X(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,                                                               \
      "attempt to terminate a thread-local capture sequence from another thread")                           \
    X(CUDA_ERROR_UNKNOWN, "unknown error")

SC_EXPORT CUresult cuGetErrorName(CUresult code, const char **name)
{
    SC_ENTER(cuGetErrorName);
    if (!name)
        return CUDA_ERROR_INVALID_VALUE;
    switch ((int)code) {
#define X(symbol, text)  \
    case symbol:         \
        *name = #symbol; \
        return CUDA_SUCCESS;
        CODE_LIST(X)
#undef X
    default:
        *name = NULL;
        return CUDA_ERROR_INVALID_VALUE;
    }
}

SC_EXPORT CUresult cuGetErrorString(CUresult code, const char **text)
{
    SC_ENTER(cuGetErrorString);
    if (!text)
        return CUDA_ERROR_INVALID_VALUE;
    switch ((int)code) {
#define X(symbol, words) \
    case symbol:         \
        *text = words;   \
        return CUDA_SUCCESS;
        CODE_LIST(X)
#undef X
    default:
        *text = NULL;
        return CUDA_ERROR_INVALID_VALUE;
    }
}
