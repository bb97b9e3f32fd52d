/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ipc_probe - legacy IPC handles of memory of cuMemAlloc between processes, asked of the driver: one line
 * each, codes and yes or no.
 * What:       what a handle names, who may open it, what opens and closes count, what is left when the
 *             memory is freed or its process gone, and which calls wait for the GPU. A line that starts with
 *             "probe" is for the record: times, and what is undefined by the manual.
 * Not here:   the pool: the program is run natively and under the preload, and must print the same
 *             (ipc_probe.sh).
 * Invariants: a spinning kernel is what makes "not complete yet" certain.
 */
#define _GNU_SOURCE
#include "bench/dev.h"
#include "shim/ipc_wire.h"
#include "tests/support/peer.h"
#include <stdio.h>
#include <string.h>
#include <time.h>

#define SPIN_US 100000
#define LARGE   ((size_t)4 << 20)
#define SMALL   ((size_t)4096)
#define LAZY    CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS

/* X(order of the other process, what it answers) */
#define ORDERS(X)                                         \
    X(EXPORT, "a block full of number, and its handle")   \
    X(OPEN, "result, address, microseconds")              \
    X(OPEN_ELSEWHERE, "the same in a second context")     \
    X(CLOSE, "result, microseconds")                      \
    X(READ, "number = the first word at address")         \
    X(RANGE, "result, address and number: base, size")    \
    X(CAPABLE, "result, number: of the legacy attribute") \
    X(FREE, "result")                                     \
    X(GET, "result")                                      \
    X(SPIN, "a kernel of so many microseconds")           \
    X(IDLE, "waits for the device")                       \
    X(QUIT, "")

typedef enum {
#define X(name, answer) DO_##name,
    ORDERS(X)
#undef X
} order_t;

typedef struct {
    order_t order;
    CUresult result;
    CUdeviceptr address;
    uint64_t number, us;
    CUipcMemHandle handle;
} word_t;

static void line(const char *name, long value)
{
    printf("%s %ld\n", name, value);
}

static uint64_t now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static void fill(CUdeviceptr block, size_t bytes, unsigned value)
{
    dev_check(cuMemsetD32(block, value, bytes / 4), "cuMemsetD32");
    dev_sync();
}

static unsigned first_word(CUdeviceptr block)
{
    unsigned word = 0;

    return cuMemcpyDtoH(&word, block, sizeof word) == CUDA_SUCCESS ? word : 0;
}

static CUdeviceptr filled(size_t bytes, unsigned value)
{
    CUdeviceptr block = dev_alloc(bytes);

    fill(block, bytes, value);
    return block;
}

/* ---- the other process ---- */

static void open_elsewhere(word_t *word)
{
    CUcontext ctx, ignored;

    dev_check(cuCtxCreate(&ctx, NULL, 0, 0), "cuCtxCreate");
    word->result = cuIpcOpenMemHandle(&word->address, word->handle, LAZY);
    if (word->result == CUDA_SUCCESS)
        cuIpcCloseMemHandle(word->address);
    dev_check(cuCtxPopCurrent(&ignored), "cuCtxPopCurrent");
    dev_check(cuCtxDestroy(ctx), "cuCtxDestroy");
    dev_join();
}

static void carry_out(word_t *word, CUstream stream)
{
    uint64_t begun = now_us();
    unsigned capable = 0;
    size_t size = 0;

    word->result = CUDA_SUCCESS;
    switch (word->order) {
    case DO_EXPORT:
        word->address = filled(LARGE, (unsigned)word->number);
        word->result = cuIpcGetMemHandle(&word->handle, word->address);
        break;
    case DO_OPEN:
        word->result = cuIpcOpenMemHandle(&word->address, word->handle, LAZY);
        break;
    case DO_OPEN_ELSEWHERE:
        open_elsewhere(word);
        break;
    case DO_CLOSE:
        word->result = cuIpcCloseMemHandle(word->address);
        break;
    case DO_READ:
        word->number = first_word(word->address);
        break;
    case DO_RANGE:
        word->result = cuMemGetAddressRange(&word->address, &size, word->address);
        word->number = size;
        break;
    case DO_CAPABLE:
        word->result =
            cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, word->address);
        word->number = capable;
        break;
    case DO_FREE:
        word->result = cuMemFree(word->address);
        break;
    case DO_GET:
        word->result = cuIpcGetMemHandle(&word->handle, word->address);
        break;
    case DO_SPIN:
        dev_spin(word->number, stream);
        break;
    case DO_IDLE:
        dev_sync();
        break;
    case DO_QUIT:
        break;
    }
    word->us = now_us() - begun;
}

static int run_other(int socket)
{
    word_t word = {.order = DO_IDLE};
    CUstream stream;

    dev_open();
    stream = dev_stream();
    while (word.order != DO_QUIT && peer_try_hear(socket, &word, sizeof word)) {
        carry_out(&word, stream);
        peer_say(socket, &word, sizeof word);
    }
    return 0;
}

static word_t tell(const peer_t *other, order_t order, word_t word)
{
    word.order = order;
    peer_say(other->socket, &word, sizeof word);
    peer_hear(other->socket, &word, sizeof word);
    return word;
}

static peer_t start_other(void)
{
    const char *const args[] = {NULL};

    return peer_start(args);
}

/* ---- one process ---- */

static void ask_get(void)
{
    CUdeviceptr block = filled(LARGE, 1), small = filled(SMALL, 2), again;
    CUipcMemHandle handle, other;
    void *host = dev_host_alloc(SMALL);

    line("get", cuIpcGetMemHandle(&handle, block));
    line("get-again", cuIpcGetMemHandle(&other, block));
    line("get-again-same", memcmp(&handle, &other, sizeof handle) == 0);
    line("get-inside", cuIpcGetMemHandle(&other, block + 4096));
    line("get-inside-same", memcmp(&handle, &other, sizeof handle) == 0);
    line("get-small", cuIpcGetMemHandle(&other, small));
    line("get-null", cuIpcGetMemHandle(NULL, block));
    line("get-host", cuIpcGetMemHandle(&other, (CUdeviceptr)(uintptr_t)host));
    line("get-wild", cuIpcGetMemHandle(&other, 4096));
    line("open-self", cuIpcOpenMemHandle(&again, handle, LAZY));
    line("open-flags-0", cuIpcOpenMemHandle(&again, handle, 0));
    line("open-null", cuIpcOpenMemHandle(NULL, handle, LAZY));
    line("close-own", cuIpcCloseMemHandle(block));
    dev_free(block);
    line("get-freed", cuIpcGetMemHandle(&other, block));
    again = filled(LARGE, 3);
    line("probe-realloc-same-address", again == block);
    line("get-realloc", cuIpcGetMemHandle(&other, again));
    line("get-realloc-other", memcmp(&handle, &other, sizeof handle) != 0);
}

static uint64_t random_word(void)
{
    static uint64_t word = 1;

    word = word * 6364136223846793005ull + 1442695040888963407ull;
    return word ^ word >> 32;
}

static CUipcMemHandle random_handle(void)
{
    CUipcMemHandle handle;

    for (size_t at = 0; at < sizeof handle; at++)
        handle.reserved[at] = (char)random_word();
    return handle;
}

/* As the library makes its tokens, of a block that nobody has. */
static CUipcMemHandle random_token(void)
{
    cup_ipc_token_t token = {.magic = CUP_IPC_MAGIC,
                             .version = CUP_IPC_VERSION,
                             .device = (uint16_t)(random_word() % 2),
                             .exporter = random_word(),
                             .id = random_word() % 1000,
                             .base = 0x7f0000000000 + random_word() % (1u << 20) * 512,
                             .size_bytes = 1 + random_word() % LARGE,
                             .pid =
                                 random_word() % 2 ? (int32_t)getppid() : (int32_t)(random_word() % 32768)};
    CUipcMemHandle handle;

    for (size_t i = 0; i < sizeof token.secret; i++)
        token.secret[i] = (uint8_t)random_word();
    token.check = cup_ipc_token_check(&token);
    memcpy(&handle, &token, sizeof handle);
    return handle;
}

/* None may be opened: of noise, and of tokens that the driver does not know. */
static void ask_strange(const char *what, CUipcMemHandle (*make)(void))
{
    enum { COUNT = 10000 };
    long refused = 0, invalid = 0;
    CUdeviceptr block;

    for (int i = 0; i < COUNT; i++) {
        CUresult result = cuIpcOpenMemHandle(&block, make(), LAZY);

        refused += result != CUDA_SUCCESS;
        invalid += result == CUDA_ERROR_INVALID_VALUE;
    }
    printf("open-%s-refused %ld of %d\n", what, refused, COUNT);
    printf("probe-open-%s-invalid-value %ld\n", what, invalid);
}

static void ask_nonsense(void)
{
    CUipcMemHandle handle;
    CUdeviceptr block;

    memset(&handle, 0, sizeof handle);
    line("open-zeros", cuIpcOpenMemHandle(&block, handle, LAZY));
    ask_strange("nonsense", random_handle);
    ask_strange("token", random_token);
}

/* ---- two processes ---- */

static void ask_counting(const peer_t *other)
{
    CUdeviceptr block = filled(LARGE, 11), small = filled(SMALL, 12);
    word_t word = {0}, first, again;

    dev_check(cuIpcGetMemHandle(&word.handle, block), "cuIpcGetMemHandle");
    first = tell(other, DO_OPEN, word);
    line("open", first.result);
    line("open-word", (long)tell(other, DO_READ, first).number);
    again = tell(other, DO_OPEN, word);
    line("open-again", again.result);
    line("open-again-same", again.address == first.address);
    line("open-elsewhere", tell(other, DO_OPEN_ELSEWHERE, word).result);
    word = tell(other, DO_RANGE, first);
    line("opened-range", word.result);
    line("opened-range-base", word.address == first.address);
    line("opened-range-size", (long)word.number);
    word = tell(other, DO_CAPABLE, first);
    line("opened-capable", word.result);
    line("opened-capable-is", (long)word.number);
    line("opened-get", tell(other, DO_GET, first).result);
    line("opened-free", tell(other, DO_FREE, first).result);
    word = first;
    word.address += 4096;
    line("close-inside", tell(other, DO_CLOSE, word).result);
    line("close", tell(other, DO_CLOSE, first).result);
    line("close-one-left", (long)tell(other, DO_READ, first).number);
    line("close-last", tell(other, DO_CLOSE, first).result);
    line("close-too-often", tell(other, DO_CLOSE, first).result);
    dev_check(cuIpcGetMemHandle(&word.handle, small), "cuIpcGetMemHandle");
    word = tell(other, DO_OPEN, word);
    line("open-small", word.result);
    line("open-small-word", (long)tell(other, DO_READ, word).number);
    line("close-small", tell(other, DO_CLOSE, word).result);
}

/* By the manual undefined where it is still open: for the record. */
static void ask_freed(const peer_t *other)
{
    CUdeviceptr block = filled(LARGE, 21);
    word_t word = {0}, late = {0}, open;

    dev_check(cuIpcGetMemHandle(&word.handle, block), "cuIpcGetMemHandle");
    late.handle = word.handle;
    open = tell(other, DO_OPEN, word);
    line("free-while-open", cuMemFree(block));
    line("probe-freed-word", (long)tell(other, DO_READ, open).number);
    word = tell(other, DO_OPEN, word);
    line("probe-freed-open-again", word.result);
    if (word.result == CUDA_SUCCESS)
        tell(other, DO_CLOSE, word);
    line("close-freed", tell(other, DO_CLOSE, open).result);
    line("open-freed", tell(other, DO_OPEN, late).result);
}

static void ask_dead(const peer_t *other)
{
    peer_t third = start_other(), fourth = start_other();
    word_t gone = tell(&third, DO_EXPORT, (word_t){.number = 31});
    word_t killed = tell(&fourth, DO_EXPORT, (word_t){.number = 41}), open;

    tell(&third, DO_QUIT, gone);
    peer_end(&third);
    line("open-of-gone", tell(other, DO_OPEN, gone).result);
    open = tell(other, DO_OPEN, killed);
    line("open-of-doomed", open.result);
    kill(fourth.pid, SIGKILL);
    peer_end(&fourth);
    line("probe-word-of-dead", (long)tell(other, DO_READ, open).number);
    line("close-of-dead", tell(other, DO_CLOSE, open).result);
    line("open-of-dead", tell(other, DO_OPEN, killed).result);
}

/* Which calls wait for a kernel in flight in their own process. */
static void ask_waits(const peer_t *other)
{
    CUdeviceptr block = filled(LARGE, 51), next = filled(LARGE, 52);
    CUstream stream = dev_stream();
    word_t spin = {.number = SPIN_US}, word = {0}, one = {0};
    uint64_t begun;

    dev_spin(SPIN_US, stream);
    begun = now_us();
    dev_check(cuIpcGetMemHandle(&word.handle, block), "cuIpcGetMemHandle");
    line("probe-get-waits", now_us() - begun > SPIN_US / 2);
    dev_sync();
    dev_check(cuIpcGetMemHandle(&one.handle, next), "cuIpcGetMemHandle");
    tell(other, DO_SPIN, spin);
    word = tell(other, DO_OPEN, word);
    line("probe-open-waits", word.us > SPIN_US / 2);
    tell(other, DO_IDLE, word);
    one = tell(other, DO_OPEN, one);
    tell(other, DO_SPIN, spin);
    line("probe-close-waits", tell(other, DO_CLOSE, word).us > SPIN_US / 2);
    tell(other, DO_IDLE, one);
    tell(other, DO_CLOSE, one);
}

static int compare(const void *a, const void *b)
{
    uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;

    return (one > other) - (one < other);
}

/* Medians: a first open of its memory, of another block beside it, of the same again; a close. */
static void ask_times(const peer_t *other)
{
    enum { ROUNDS = 21 };
    uint64_t first[ROUNDS], beside[ROUNDS], again[ROUNDS], close[ROUNDS], get[ROUNDS];

    for (int i = 0; i < ROUNDS; i++) {
        CUdeviceptr one = filled(100 << 10, 1), two = filled(100 << 10, 2);
        word_t a = {0}, b = {0}, opened;
        uint64_t begun = now_us();

        dev_check(cuIpcGetMemHandle(&a.handle, one), "cuIpcGetMemHandle");
        get[i] = now_us() - begun;
        dev_check(cuIpcGetMemHandle(&b.handle, two), "cuIpcGetMemHandle");
        opened = tell(other, DO_OPEN, a);
        first[i] = opened.us;
        b = tell(other, DO_OPEN, b);
        beside[i] = b.us;
        again[i] = tell(other, DO_OPEN, a).us;
        tell(other, DO_CLOSE, opened);
        tell(other, DO_CLOSE, b);
        close[i] = tell(other, DO_CLOSE, opened).us;
        dev_free(one);
        dev_free(two);
    }
    uint64_t *all[] = {get, first, beside, again, close};
    const char *const name[] = {"get", "open-first", "open-beside", "open-again", "close-last"};
    for (int k = 0; k < 5; k++) {
        qsort(all[k], ROUNDS, sizeof(uint64_t), compare);
        printf("probe-us-%s %llu\n", name[k], (unsigned long long)all[k][ROUNDS / 2]);
    }
}

int main(int argc, char **argv)
{
    peer_t other;

    if (argc == 2)
        return run_other(atoi(argv[1]));
    other = start_other();
    dev_open();
    ask_get();
    ask_nonsense();
    ask_counting(&other);
    ask_freed(&other);
    ask_dead(&other);
    ask_waits(&other);
    ask_times(&other);
    tell(&other, DO_QUIT, (word_t){0});
    return peer_end(&other);
}
