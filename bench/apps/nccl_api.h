/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl_api - the few functions of NCCL that nccl.c calls, out of a library that is found when the program runs.
 * What:       types and numbers as in nccl.h 2.x, whose ABI they are; a LIST of the functions.
 * Not here:   nccl.h: a machine that builds this has no NCCL.
 * Threads:    written by nccl_load() alone.
 */
#ifndef CUP_BENCH_NCCL_API_H
#define CUP_BENCH_NCCL_API_H
#include <stdbool.h>
#include <stddef.h>
#include <cuda.h>

#define NCCL_UINT64 5 /* ncclUint64 */
#define NCCL_SUM    0 /* ncclSum */

typedef struct ncclComm *nccl_comm_t;
typedef struct nccl_id {
    char bytes[128];
} nccl_id_t;

/* X(name, parameters): all return ncclResult_t, 0 for success. */
#define NCCL_API_LIST(X)                                                             \
    X(ncclGetVersion, (int *out_version))                                            \
    X(ncclGetUniqueId, (nccl_id_t * out_id))                                         \
    X(ncclCommInitRank, (nccl_comm_t * out_comm, int count, nccl_id_t id, int rank)) \
    X(ncclCommInitAll, (nccl_comm_t * out_comms, int count, const int *devices))     \
    X(ncclCommDestroy, (nccl_comm_t comm))                                           \
    X(ncclGroupStart, (void))                                                        \
    X(ncclGroupEnd, (void))                                                          \
    X(ncclAllReduce,                                                                 \
      (const void *from, void *to, size_t count, int type, int op, nccl_comm_t comm, CUstream stream))

typedef struct nccl_api {
#define X(name, parameters) int(*name) parameters;
    NCCL_API_LIST(X)
#undef X
    const char *(*ncclGetErrorString)(int code);
} nccl_api_t;

extern nccl_api_t nccl;

/* The library that BENCH_NCCL names, or else libnccl.so.2 where the loader looks. False: there is none. */
bool nccl_load(void);

/* Ends the program with one line and exit code 1 unless the code is that of success. */
void nccl_check(int code, const char *what);

#endif /* CUP_BENCH_NCCL_API_H */
