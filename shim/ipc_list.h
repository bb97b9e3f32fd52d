/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ipc_list - LIST of the reasons why a handle is not made or not opened: X(enumerator, driver's code,
 * text). The codes are meant to be the driver's own for a handle of cuMemAlloc memory in the same case
 * (docs/ipc.md says which were measured).
 */
#ifndef CUP_SHIM_IPC_LIST_H
#define CUP_SHIM_IPC_LIST_H

/* clang-format off */
#define CUP_IPC_REASON_LIST(X)                                                                               \
    X(CUP_IPC_OK, CUDA_SUCCESS, "")                                                                          \
    X(CUP_IPC_SELF, CUDA_ERROR_INVALID_CONTEXT, "the handle is of this very process")                        \
    X(CUP_IPC_ELSEWHERE, CUDA_ERROR_INVALID_HANDLE, "another context of this process has it open")           \
    X(CUP_IPC_GONE, CUDA_ERROR_INVALID_HANDLE, "nobody listens: it has ended, or has another CUPOLA_SOCKET_DIR") \
    X(CUP_IPC_REFUSED, CUDA_ERROR_INVALID_VALUE, "its block was freed, or never was")                        \
    X(CUP_IPC_SILENT, CUDA_ERROR_INVALID_HANDLE, "its process does not answer")                              \
    X(CUP_IPC_BROKEN, CUDA_ERROR_INVALID_HANDLE, "its process answers what makes no sense")                  \
    X(CUP_IPC_NOMEM, CUDA_ERROR_OUT_OF_MEMORY, "no host memory")                                             \
    X(CUP_IPC_SYSTEM, CUDA_ERROR_OPERATING_SYSTEM, "no file descriptors, or no thread")                      \
    X(CUP_IPC_FOLDER, CUDA_ERROR_NOT_SUPPORTED, "set CUPOLA_SOCKET_DIR to a folder that only you can write to") \
    X(CUP_IPC_NO_NAME, CUDA_ERROR_NOT_FOUND, "nothing is published under that name")                         \
    X(CUP_IPC_TAKEN, CUDA_ERROR_ALREADY_ACQUIRED, "a process that is alive has published that name")         \
    X(CUP_IPC_LOCKED, CUDA_ERROR_TIMEOUT, "another process holds the lock of the names")                     \
    X(CUP_IPC_GROUP, CUDA_ERROR_NOT_PERMITTED, "this process is not in that group")                          \
    X(CUP_IPC_GROUPS, CUDA_ERROR_NOT_SUPPORTED, "a process publishes to one group")
/* clang-format on */

#endif /* CUP_SHIM_IPC_LIST_H */
