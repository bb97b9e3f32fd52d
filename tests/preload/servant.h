/* SPDX-License-Identifier: Apache-2.0 */
/*
 * servant - a second process under the preload that does with the driver what it is told, one message at a
 * time.
 * What:       a message in, the same message out, with what came of it. The test's own process does the
 *             same by calling servant_do(). peer.h starts it: main() of the test calls servant_run() when
 *             it was started as one.
 * Threads:    one.
 */
#ifndef CUP_TESTS_PRELOAD_SERVANT_H
#define CUP_TESTS_PRELOAD_SERVANT_H
#include "preload/cupola.h"
#include "tests/preload/client.h"
#include "tests/preload/usurp.h"
#include "tests/softcuda/pattern.h"
#include "tests/support/peer.h"
#include <dirent.h>
#include <string.h>
#include <sys/resource.h>

/* X(order, what it does with the message: address, size, number, name, handle) */
#define SERVANT_LIST(X)                                                                                      \
    X(ALLOC, "address = a block of size bytes")                                                              \
    X(FREE, "frees address")                                                                                 \
    X(GET, "handle of address")                                                                              \
    X(OPEN, "address = what handle opens")                                                                   \
    X(CLOSE, "closes address")                                                                               \
    X(FILL, "size bytes at address with the pattern of seed number")                                         \
    X(VERIFY, "number = wrong words among size bytes at address, of seed number")                            \
    X(RANGE, "address, size = what the driver says of the block at address")                                 \
    X(CALLS, "number = calls of the entry point name")                                                       \
    X(FAIL, "the number-th call of name from now on fails")                                                  \
    X(HELD, "number = bytes of the device held")                                                             \
    X(MAPPED, "number = bytes of addresses mapped")                                                          \
    X(DESCRIPTORS, "number = descriptors open")                                                              \
    X(LIMIT, "number - 1 descriptors more than are open now; 0: as many as allowed")                         \
    X(NOTE, "remembers which descriptors are open")                                                          \
    X(USURP, "closes those that came since, with number 1 sockets only, and has files of its own there; "    \
             "number = how many")                                                                            \
    X(USURPED, "number = how many of these files are not as they were")                                      \
    X(VIOLATIONS, "number = overlap violations")                                                             \
    X(BUSY, "a kernel that fills size bytes at address, after number microseconds")                          \
    X(SYNC, "waits for the context")                                                                         \
    X(NEW_CONTEXT, "the old one is destroyed")                                                               \
    X(DEVICE, "a context of device number is current from now on")                                           \
    X(FORK, "forks a child that sleeps; number = its pid")                                                   \
    X(PUBLISH, "address under name, with flags number")                                                      \
    X(UNPUBLISH, "name")                                                                                     \
    X(NAMED_OPEN, "address, size, generation = what name of user owner - 1 opens, with flags number; owner " \
                  "0: of this one")                                                                          \
    X(NAMED_CLOSE, "closes address")                                                                         \
    X(NAMED_COUNT, "number = names that can be opened")                                                      \
    X(WRITE, "as FILL; then the context, which may be broken, is new")

typedef enum {
#define X(name, meaning) SERVANT_##name,
    SERVANT_LIST(X)
#undef X
} servant_order_t;

typedef struct servant {
    servant_order_t order;
    CUresult result;
    CUdeviceptr address;
    uint64_t size, number, generation, owner;
    char name[48];
    CUipcMemHandle handle;
} servant_t;

static CUfunction servant_late_fill;
static CUcontext servant_ctx;

static inline void servant_load(void)
{
    CUmodule module;

    REQUIRE(cuModuleLoadData(&module, "softcuda\n") == CUDA_SUCCESS);
    REQUIRE(cuModuleGetFunction(&client_fill_kernel, module, "fill") == CUDA_SUCCESS);
    REQUIRE(cuModuleGetFunction(&servant_late_fill, module, "late_fill") == CUDA_SUCCESS);
}

static inline void servant_open(void)
{
    REQUIRE(cuInit(0) == CUDA_SUCCESS);
    REQUIRE(cuCtxCreate(&servant_ctx, NULL, 0, 0) == CUDA_SUCCESS);
    servant_load();
    softcuda_reset_counters();
}

static inline CUresult servant_new_context(void)
{
    CUresult result = cuCtxDestroy(servant_ctx);

    REQUIRE(cuCtxCreate(&servant_ctx, NULL, 0, 0) == CUDA_SUCCESS);
    servant_load();
    return result;
}

static inline CUresult servant_device(CUdevice device)
{
    CUresult result = cuCtxCreate(&servant_ctx, NULL, 0, device);

    servant_load();
    return result;
}

static inline uint64_t servant_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    uint64_t count = 0;

    REQUIRE(folder != NULL);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count - 3; /* ., .., the folder itself */
}

/* The highest number that is open decides, not how many are. */
static inline void servant_limit(uint64_t more)
{
    struct rlimit limit;
    int lowest_free = more == 0 ? 0 : dup(0);

    REQUIRE(lowest_free >= 0 && (more == 0 || close(lowest_free) == 0) &&
            getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = more == 0 ? limit.rlim_max : (rlim_t)lowest_free + more - 1;
    REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

static inline uint64_t servant_wrong(CUdeviceptr address, uint64_t size, uint64_t seed)
{
    char *copy = malloc(size);

    REQUIRE(copy && cuMemcpyDtoH(copy, address, size) == CUDA_SUCCESS);
    uint64_t wrong = softcuda_verify_region(copy, size, seed);
    free(copy);
    return wrong;
}

static inline CUresult servant_fill(servant_t *m)
{
    void *params[] = {&m->address, &m->size, &m->number};
    CUresult result = cuLaunchKernel(client_fill_kernel, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL);

    return result == CUDA_SUCCESS ? cuCtxSynchronize() : result;
}

static inline CUresult servant_busy(servant_t *m)
{
    uint64_t seed = 77;
    void *params[] = {&m->address, &m->size, &seed, &m->number};

    return cuLaunchKernel(servant_late_fill, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL);
}

static inline void servant_fork(servant_t *m)
{
    pid_t child = fork();

    if (child == 0) {
        sleep(PEER_TIMEOUT_S);
        _exit(0);
    }
    m->number = (uint64_t)child;
}

static inline CUresult servant_named_open(servant_t *m)
{
    cupola_block_t block;
    int result = cupola_open(m->name, (uint32_t)m->number, (int64_t)m->owner - 1, &block);

    if (result == CUPOLA_OK) {
        m->address = block.address;
        m->size = block.size_bytes;
        m->generation = block.generation;
    }
    return (CUresult)result;
}

static inline CUresult servant_named_count(servant_t *m)
{
    size_t count = 0;
    int result = cupola_list(NULL, 0, &count);

    m->number = count;
    return (CUresult)result;
}

/* What came of it; a context that is broken ends with what is open in it. */
static inline CUresult servant_write(servant_t *m)
{
    CUresult result = servant_fill(m);

    if (result != CUDA_SUCCESS)
        (void)servant_new_context();
    return result;
}

/* Does it; sets result, and what the order says. */
static inline void servant_do(servant_t *m)
{
    size_t size;

    m->result = CUDA_SUCCESS;
    switch (m->order) {
    case SERVANT_ALLOC:
        m->result = cuMemAlloc(&m->address, m->size);
        break;
    case SERVANT_FREE:
        m->result = cuMemFree(m->address);
        break;
    case SERVANT_GET:
        m->result = cuIpcGetMemHandle(&m->handle, m->address);
        break;
    case SERVANT_OPEN:
        m->result = cuIpcOpenMemHandle(&m->address, m->handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
        break;
    case SERVANT_CLOSE:
        m->result = cuIpcCloseMemHandle(m->address);
        break;
    case SERVANT_FILL:
        m->result = servant_fill(m);
        break;
    case SERVANT_VERIFY:
        m->number = servant_wrong(m->address, m->size, m->number);
        break;
    case SERVANT_RANGE:
        m->result = cuMemGetAddressRange(&m->address, &size, m->address);
        m->size = size;
        break;
    case SERVANT_CALLS:
        m->number = softcuda_calls(m->name);
        break;
    case SERVANT_FAIL:
        REQUIRE(softcuda_fail_nth(m->name, m->number, CUDA_ERROR_UNKNOWN) == 0);
        break;
    case SERVANT_HELD:
        m->number = softcuda_held_bytes();
        break;
    case SERVANT_MAPPED:
        m->number = softcuda_mapped_bytes();
        break;
    case SERVANT_DESCRIPTORS:
        m->number = servant_descriptors();
        break;
    case SERVANT_LIMIT:
        servant_limit(m->number);
        break;
    case SERVANT_NOTE:
        usurp_note();
        break;
    case SERVANT_USURP:
        m->number = usurp((int)m->number);
        break;
    case SERVANT_USURPED:
        m->number = usurp_changed();
        break;
    case SERVANT_VIOLATIONS:
        m->number = softcuda_violations();
        break;
    case SERVANT_BUSY:
        m->result = servant_busy(m);
        break;
    case SERVANT_SYNC:
        m->result = cuCtxSynchronize();
        break;
    case SERVANT_NEW_CONTEXT:
        m->result = servant_new_context();
        break;
    case SERVANT_DEVICE:
        m->result = servant_device((CUdevice)m->number);
        break;
    case SERVANT_FORK:
        servant_fork(m);
        break;
    case SERVANT_PUBLISH:
        m->result = (CUresult)cupola_publish(m->name, m->address, (uint32_t)m->number, CUPOLA_NO_GROUP);
        break;
    case SERVANT_UNPUBLISH:
        m->result = (CUresult)cupola_unpublish(m->name);
        break;
    case SERVANT_NAMED_OPEN:
        m->result = servant_named_open(m);
        break;
    case SERVANT_NAMED_CLOSE:
        m->result = (CUresult)cupola_close(m->address);
        break;
    case SERVANT_NAMED_COUNT:
        m->result = servant_named_count(m);
        break;
    case SERVANT_WRITE:
        m->result = servant_write(m);
        break;
    }
}

/* The other process: until nobody tells it anything any more. */
static inline int servant_run(int socket)
{
    servant_t message;

    servant_open();
    while (peer_try_hear(socket, &message, sizeof message)) {
        servant_do(&message);
        peer_say(socket, &message, sizeof message);
    }
    return softcuda_violations() == 0 ? 0 : 1;
}

/* Here, with peer NULL, or there. Returns the result. */
static inline CUresult servant_tell(const peer_t *peer, servant_order_t order, servant_t *message)
{
    message->order = order;
    if (!peer) {
        servant_do(message);
    } else {
        peer_say(peer->socket, message, sizeof *message);
        peer_hear(peer->socket, message, sizeof *message);
    }
    return message->result;
}

/* Orders that are always carried out, and come to a number. */
static inline uint64_t servant_ask(const peer_t *peer, servant_order_t order, const char *name)
{
    servant_t message = {.number = 0};

    snprintf(message.name, sizeof message.name, "%s", name);
    REQUIRE(servant_tell(peer, order, &message) == CUDA_SUCCESS);
    return message.number;
}

#endif /* CUP_TESTS_PRELOAD_SERVANT_H */
