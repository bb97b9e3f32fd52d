/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl_fake - a libnccl.so.2 that adds on the host: for tests of nccl.c itself where there is no NCCL.
 * What:       the functions of nccl_api.h. A reduction waits for its stream, copies what goes in to an area
 *             that all ranks share, adds, and copies back: in the call, or at the end of its group.
 *             NCCL_FAKE_WRONG=N: one word of the Nth sum of rank 0 is wrong. NCCL_FAKE_HANG=N: rank 0 never
 *             comes to the Nth.
 * Not here:   anything that tells how NCCL behaves.
 * Invariants: the area is a memfd of whoever made the id, reached by others through /proc while they join.
 *             left <= published <= left + count, counted over all reductions.
 * Threads:    any; a communicator by one at a time.
 */
#define _GNU_SOURCE
#include "bench/apps/nccl_api.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define RANKS_MAX  8
#define SLOT_BYTES (16 << 20)
#define GROUP_MAX  16
#define HEAD_BYTES 65536

enum { SUCCESS = 0, CUDA_FAILED = 1, SYSTEM_FAILED = 2, BAD_ARGUMENT = 4 };

typedef struct area {
    uint64_t published, left; /* atomic: ranks that have put in their part, that have taken the sum */
} area_t;

struct ncclComm {
    area_t *area;
    CUcontext context;
    int count, rank;
    uint64_t done; /* reductions */
};

typedef struct reduction {
    nccl_comm_t comm;
    CUdeviceptr from, to;
    size_t count;
    CUstream stream;
} reduction_t;

static __thread struct {
    reduction_t calls[GROUP_MAX];
    int count, depth;
} group;

#define ENTRY_LIST(X)  \
    X(cuCtxGetCurrent) \
    X(cuCtxSetCurrent) \
    X(cuDevicePrimaryCtxRetain) X(cuStreamSynchronize) X(cuMemcpyDtoH_v2) X(cuMemcpyHtoD_v2)

#define DECLARE(entry) static __typeof__(entry) *drv_##entry;
ENTRY_LIST(DECLARE)

/* Again and again by several threads does no harm: they write the same. */
static void bind_entries(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
#define BIND(entry) \
    __atomic_store_n(&drv_##entry, (__typeof__(drv_##entry))dlsym(library, #entry), __ATOMIC_RELAXED);
    ENTRY_LIST(BIND)
}

static uint64_t *slot(const struct ncclComm *comm, int rank)
{
    return (uint64_t *)(void *)((char *)comm->area + HEAD_BYTES + (size_t)rank * SLOT_BYTES);
}

static uint64_t fault(const char *name)
{
    const char *value = getenv(name);
    return value ? strtoull(value, NULL, 10) : 0;
}

static void await(const uint64_t *word, uint64_t least)
{
    const struct timespec pause = {0, 50000};
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) < least)
        nanosleep(&pause, NULL);
}

/* ---- a reduction ---- */

static int publish(const reduction_t *call)
{
    struct ncclComm *comm = call->comm;
    await(&comm->area->left, comm->done * (uint64_t)comm->count);
    if (drv_cuCtxSetCurrent(comm->context) != CUDA_SUCCESS ||
        drv_cuStreamSynchronize(call->stream) != CUDA_SUCCESS ||
        drv_cuMemcpyDtoH_v2(slot(comm, comm->rank), call->from, call->count * 8) != CUDA_SUCCESS)
        return CUDA_FAILED;
    if (comm->rank != 0 || fault("NCCL_FAKE_HANG") != comm->done + 1)
        __atomic_add_fetch(&comm->area->published, 1, __ATOMIC_ACQ_REL);
    return SUCCESS;
}

static int collect(const reduction_t *call)
{
    struct ncclComm *comm = call->comm;
    uint64_t *sum = calloc(call->count, 8);
    CUresult result;
    if (!sum)
        return SYSTEM_FAILED;
    await(&comm->area->published, (comm->done + 1) * (uint64_t)comm->count);
    for (int rank = 0; rank < comm->count; rank++)
        for (size_t i = 0; i < call->count; i++)
            sum[i] += slot(comm, rank)[i];
    comm->done++;
    __atomic_add_fetch(&comm->area->left, 1, __ATOMIC_ACQ_REL);
    if (comm->rank == 0 && fault("NCCL_FAKE_WRONG") == comm->done)
        sum[call->count - 1]++;
    drv_cuCtxSetCurrent(comm->context);
    result = drv_cuMemcpyHtoD_v2(call->to, sum, call->count * 8);
    free(sum);
    return result == CUDA_SUCCESS ? SUCCESS : CUDA_FAILED;
}

static int run_group(void)
{
    int code = SUCCESS;
    for (int i = 0; i < group.count && code == SUCCESS; i++)
        code = publish(&group.calls[i]);
    for (int i = 0; i < group.count && code == SUCCESS; i++)
        code = collect(&group.calls[i]);
    group.count = 0;
    return code;
}

/* ---- what is exported ---- */

#define EXPORT              __attribute__((visibility("default")))
#define X(name, parameters) EXPORT int name parameters;
NCCL_API_LIST(X)
#undef X
EXPORT const char *ncclGetErrorString(int code);

const char *ncclGetErrorString(int code)
{
    return code == CUDA_FAILED ? "a call of the driver failed" : code ? "unhandled error" : "no error";
}

int ncclGetVersion(int *out_version)
{
    *out_version = 20000;
    return SUCCESS;
}

int ncclGetUniqueId(nccl_id_t *out_id)
{
    int fd = memfd_create("nccl_fake", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, HEAD_BYTES + (off_t)RANKS_MAX * SLOT_BYTES) != 0)
        return SYSTEM_FAILED;
    *out_id = (nccl_id_t){{0}};
    snprintf(out_id->bytes, sizeof out_id->bytes, "/proc/%d/fd/%d", (int)getpid(), fd);
    return SUCCESS;
}

static int join(nccl_comm_t *out_comm, int count, const nccl_id_t *id, int rank, CUcontext context)
{
    struct ncclComm *comm = calloc(1, sizeof *comm);
    int fd = open(id->bytes, O_RDWR | O_CLOEXEC);
    void *area = MAP_FAILED;
    if (fd >= 0) {
        area = mmap(NULL, HEAD_BYTES + (size_t)RANKS_MAX * SLOT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                    0);
        close(fd);
    }
    if (!comm || area == MAP_FAILED) {
        free(comm);
        return SYSTEM_FAILED;
    }
    *comm = (struct ncclComm){area, context, count, rank, 0};
    *out_comm = comm;
    return SUCCESS;
}

int ncclCommInitRank(nccl_comm_t *out_comm, int count, nccl_id_t id, int rank)
{
    CUcontext context = NULL;
    bind_entries();
    if (count > RANKS_MAX || rank >= count)
        return BAD_ARGUMENT;
    if (drv_cuCtxGetCurrent(&context) != CUDA_SUCCESS || !context)
        return CUDA_FAILED;
    return join(out_comm, count, &id, rank, context);
}

int ncclCommInitAll(nccl_comm_t *out_comms, int count, const int *devices)
{
    nccl_id_t id;
    int code = count > RANKS_MAX ? BAD_ARGUMENT : ncclGetUniqueId(&id);
    bind_entries();
    for (int i = 0; i < count && code == SUCCESS; i++) {
        CUcontext context;
        if (drv_cuDevicePrimaryCtxRetain(&context, devices[i]) != CUDA_SUCCESS)
            return CUDA_FAILED;
        code = join(&out_comms[i], count, &id, i, context);
    }
    return code;
}

int ncclCommDestroy(nccl_comm_t comm)
{
    munmap(comm->area, HEAD_BYTES + (size_t)RANKS_MAX * SLOT_BYTES);
    free(comm);
    return SUCCESS;
}

int ncclGroupStart(void)
{
    group.depth++;
    return SUCCESS;
}

int ncclGroupEnd(void)
{
    return --group.depth == 0 ? run_group() : SUCCESS;
}

int ncclAllReduce(const void *from, void *to, size_t count, int type, int op, nccl_comm_t comm,
                  CUstream stream)
{
    if (type != NCCL_UINT64 || op != NCCL_SUM || count * 8 > SLOT_BYTES || group.count == GROUP_MAX)
        return BAD_ARGUMENT;
    group.calls[group.count++] = (reduction_t){comm, (CUdeviceptr)from, (CUdeviceptr)to, count, stream};
    return group.depth == 0 ? run_group() : SUCCESS;
}
