/* SPDX-License-Identifier: Apache-2.0 */
/*
 * contexts_faults - every driver call around the life of a context fails once, for every N, under the
 * preload on the software driver.
 * Usage:      contexts_faults [vmm]: with the calls of that backing as well; CUPOLA_BACKING says the same.
 * What:       a workload that makes, shares and ends contexts runs in a fresh child per (symbol, N, code).
 *             A call of the program that gives the injected code is made again. Whatever fails: blocks of
 *             contexts that live stay right and can be freed, those of contexts that ended can't, and the
 *             pool works afterwards.
 * Invariants: a symbol that is never reached fails the test.
 */
#define _GNU_SOURCE
#include "tests/preload/client.h"
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __SANITIZE_THREAD__ /* a second for each child */
#define NTH_MAX 2
#else
#define NTH_MAX 40
#endif
#define BLOCKS 12

static const char *const g_both[] = {
    "cuCtxGetId",
    "cuCtxGetDevice",
    "cuCtxGetCurrent",
    "cuCtxDestroy_v2",
    "cuCtxFromGreenCtx",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxReset_v2",
    "cuGreenCtxCreate",
    "cuGreenCtxDestroy",
    NULL,
};
static const char *const g_vmm[] = {
    "cuMemGetInfo_v2", "cuMemUnmap", "cuMemRelease", "cuMemAddressFree", "cuMemCreate", "cuMemMap", NULL,
};

static int g_code;          /* that is injected */
static uint64_t *g_reached; /* shared with the children */

/* Again, where it was the injected failure. */
#define TRY(call)                                        \
    do {                                                 \
        CUresult got_ = (call);                          \
                                                         \
        if (got_ != CUDA_SUCCESS && (int)got_ == g_code) \
            got_ = (call);                               \
        REQUIRE(got_ == CUDA_SUCCESS);                   \
    } while (0)

static void get_blocks(CUdeviceptr *block)
{
    for (int i = 0; i < BLOCKS; i++) {
        TRY(cuMemAlloc(&block[i], (size_t)4096 << i % 11));
        TRY(cuMemsetD8(block[i], (unsigned char)i, 4096));
    }
}

static void put_blocks(const CUdeviceptr *block)
{
    unsigned char got;

    for (int i = 0; i < BLOCKS; i++) {
        TRY(cuMemcpyDtoH(&got, block[i] + 4095, 1));
        REQUIRE(got == i);
        TRY(cuMemFree(block[i]));
    }
}

/* Their context has ended: no code but an error, whatever fails. */
static void require_dead(const CUdeviceptr *block)
{
    for (int i = 0; i < BLOCKS; i++)
        REQUIRE(cuMemFree(block[i]) != CUDA_SUCCESS);
}

static void own_context(const CUdeviceptr *kept)
{
    CUdeviceptr block[BLOCKS];
    CUcontext ctx;

    TRY(cuCtxCreate_v4(&ctx, NULL, 0, 0));
    get_blocks(block);
    TRY(cuCtxDestroy(ctx));
    require_dead(block);
    REQUIRE(kept[0] != 0);
}

static void references(void)
{
    CUcontext same;

    TRY(cuDevicePrimaryCtxRetain(&same, 0));
    TRY(cuDevicePrimaryCtxRelease(0));
}

static void green_context(void)
{
    CUdevResource resource;
    CUdevResourceDesc desc;
    CUdeviceptr block[BLOCKS];
    CUcontext ctx, primary;
    CUgreenCtx green;

    TRY(cuCtxGetCurrent(&primary));
    TRY(cuDeviceGetDevResource(0, &resource, CU_DEV_RESOURCE_TYPE_SM));
    TRY(cuDevResourceGenerateDesc(&desc, &resource, 1));
    TRY(cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    TRY(cuCtxFromGreenCtx(&ctx, green));
    TRY(cuCtxSetCurrent(ctx));
    get_blocks(block);
    TRY(cuCtxSetCurrent(primary));
    TRY(cuGreenCtxDestroy(green));
    put_blocks(block);
}

static void reset(void)
{
    CUdeviceptr block[BLOCKS];
    CUcontext again;

    get_blocks(block);
    TRY(cuDevicePrimaryCtxReset(0));
    require_dead(block);
    TRY(cuDevicePrimaryCtxRetain(&again, 0));
    TRY(cuCtxSetCurrent(again));
    require_dead(block);
}

static void workload(void)
{
    CUdeviceptr kept[BLOCKS];

    for (int round = 0; round < 2; round++) {
        get_blocks(kept);
        own_context(kept);
        references();
        green_context();
        put_blocks(kept);
        reset();
    }
}

static void child(const char *symbol, uint64_t nth)
{
    uint64_t before;

    alarm(60);
    client_open();
    if (nth > 0)
        REQUIRE(softcuda_fail_nth(symbol, nth, g_code) == 0);
    workload();
    *g_reached = softcuda_calls(symbol);
    churn(2, 4096);
    before = driver_calls();
    churn(50, 4096);
    REQUIRE(driver_calls() == before); /* one failure does not turn the pool off */
    REQUIRE(softcuda_violations() == 0);
    _exit(0);
}

static void run(const char *symbol, uint64_t nth)
{
    pid_t pid = fork();
    int status;

    if (pid == 0)
        child(symbol, nth);
    REQUIRE(waitpid(pid, &status, 0) == pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fprintf(stderr, "call %llu of %s failing with %d: status %d\n", (unsigned long long)nth, symbol,
                g_code, status);
        _Exit(1);
    }
}

static void run_all(const char *const *symbol)
{
    static const int codes[] = {CUDA_ERROR_UNKNOWN, CUDA_ERROR_INVALID_VALUE};

    for (; *symbol; symbol++) {
        uint64_t reached;

        run(*symbol, 0);
        reached = *g_reached;
        fprintf(stderr, "%s: %llu calls\n", *symbol, (unsigned long long)reached);
        REQUIRE(reached > 0);
        for (size_t c = 0; c < sizeof(codes) / sizeof(codes[0]); c++)
            for (uint64_t nth = 1; nth <= reached && nth <= NTH_MAX; nth++) {
                g_code = codes[c];
                run(*symbol, nth);
            }
    }
}

int main(int argc, char **argv)
{
    g_reached = mmap(NULL, sizeof(*g_reached), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(g_reached != MAP_FAILED);
    run_all(g_both);
    if (argc > 1 && strcmp(argv[1], "vmm") == 0)
        run_all(g_vmm);
    return 0;
}
