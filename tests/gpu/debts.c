/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: the driver and everything that a case must not do for the first time are ready before it starts.
 * The memory that this takes is pinned: the first device allocation is the case's.
 */
#include "tests/gpu/debts.h"
#include "tests/softcuda/pattern.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TIMEOUT_S 5

/*
 * spin_until ends when *flag == value, or after 20 s: a case that hangs must not leave a kernel behind.
 * As text, because the kernels of bench/ have nothing that waits for the host; the software driver has
 * both built in.
 */
static const char g_soft_image[] = "softcuda\nspin_until\nmanaged_words\n";
static const char g_ptx[] = ".version 6.4\n"
                            ".target sm_75\n"
                            ".address_size 64\n"
                            ".visible .global .attribute(.managed) .align 8 .b8 managed_words[4096];\n"
                            ".visible .entry spin_until(.param .u64 flag, .param .u32 value)\n"
                            "{\n"
                            "    .reg .u64 %address, %start, %now;\n"
                            "    .reg .u32 %wanted, %found;\n"
                            "    .reg .pred %is_there, %is_early;\n"
                            "    ld.param.u64 %address, [flag];\n"
                            "    ld.param.u32 %wanted, [value];\n"
                            "    mov.u64 %start, %globaltimer;\n"
                            "again:\n"
                            "    ld.volatile.u32 %found, [%address];\n"
                            "    setp.eq.u32 %is_there, %found, %wanted;\n"
                            "    @%is_there bra done;\n"
                            "    mov.u64 %now, %globaltimer;\n"
                            "    sub.u64 %now, %now, %start;\n"
                            "    setp.lt.u64 %is_early, %now, 20000000000;\n"
                            "    @%is_early bra again;\n"
                            "done:\n"
                            "    ret;\n"
                            "}\n";

static CUfunction g_wait[2]; /* spin_until, by device */
static int g_device;         /* the one that is joined */
static uint64_t *g_one;      /* pinned: 1 */
uint64_t *debts_flag, *debts_host, *debts_other;
CUmodule debts_module;

/* ---- words ---- */

void debts_fill_host(uint64_t *words, uint64_t seed)
{
    for (uint64_t i = 0; i < DEBTS_BYTES / 8; i++)
        words[i] = softcuda_fill_word(seed, i);
}

bool debts_is_filled(const uint64_t *words, uint64_t bytes, uint64_t seed)
{
    for (uint64_t i = 0; i < bytes / 8; i++)
        if (words[i] != softcuda_fill_word(seed, i))
            return false;
    return true;
}

bool debts_is_host(const uint64_t *words, uint64_t seed)
{
    return debts_is_filled(words, DEBTS_BYTES, seed);
}

bool debts_is_device(CUdeviceptr block, uint64_t seed)
{
    static uint64_t words[DEBTS_BYTES / 8];

    dev_sync();
    dev_read(words, block, DEBTS_BYTES);
    return debts_is_host(words, seed);
}

/* ---- preparation ---- */

void debts_join(int device)
{
    g_device = device;
    dev_join_device(device);
}

void debts_wait_for_flag(CUstream stream)
{
    CUdeviceptr flag = (CUdeviceptr)debts_flag;
    uint32_t value = 1;
    void *parameters[] = {&flag, &value};

    DEBTS_CHECK(cuLaunchKernel(g_wait[g_device], 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
}

void debts_raise_flag(void)
{
    __atomic_store_n(debts_flag, 1, __ATOMIC_RELEASE);
}

void debts_raise_flag_by_kernel(CUstream stream)
{
    dev_copy((CUdeviceptr)debts_flag, (CUdeviceptr)g_one, 8, stream);
}

/*
 * The first launch of a kernel may load it, and then wait for the GPU (lazy loading). On pinned memory:
 * the first allocation is the case's.
 */
static void use_every_kernel(void)
{
    CUdeviceptr host = (CUdeviceptr)debts_host, other = (CUdeviceptr)debts_other;
    dev_batch_t batch = {1, 0, other, {{host, DEBTS_BYTES, DEBTS_OLD}}};
    CUstream stream = dev_stream();

    dev_late_fill(host, DEBTS_BYTES, DEBTS_OLD, 1, stream);
    dev_fill(host, DEBTS_BYTES, DEBTS_OLD, stream);
    dev_copy(other, host, DEBTS_BYTES, stream);
    dev_batch_fill(&batch, stream, true);
    dev_batch_verify(&batch, stream);
    dev_zero(host, DEBTS_BYTES, stream);
    dev_spin(1, stream);
    debts_raise_flag();
    debts_wait_for_flag(stream);
    dev_sync();
    *debts_flag = 0;
    cuStreamDestroy(stream);
}

static CUmodule prepare(int device)
{
    CUmodule module;

    debts_join(device);
    DEBTS_CHECK(cuModuleLoadData(&module, dev_is_simulated() ? g_soft_image : g_ptx));
    DEBTS_CHECK(cuModuleGetFunction(&g_wait[device], module, "spin_until"));
    use_every_kernel();
    return module;
}

void *debts_pinned(uint64_t bytes)
{
    void *block;

    DEBTS_CHECK(cuMemHostAlloc(&block, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
    memset(block, 0, bytes);
    return block;
}

static void open_first(void)
{
    dev_open();
    debts_flag = debts_pinned(8);
    g_one = debts_pinned(8);
    *g_one = 1;
    debts_host = debts_pinned(DEBTS_BYTES);
    debts_other = debts_pinned(DEBTS_BYTES);
    debts_module = prepare(0);
}

void debts_open_two(void)
{
    dev_open_peers(2);
    prepare(1);
}

void debts_sync_both(void)
{
    for (int device = 0; device < 2; device++) {
        debts_join(device);
        dev_sync();
    }
}

/* ---- the list ---- */

typedef struct debt {
    const char *name;
    bool (*run)(void);
} debt_t;

static const debt_t g_debts[] = {
#define DEBTS_ROW(name, run) {name, debts_run_##run},
    DEBTS_LIST(DEBTS_ROW)
#undef DEBTS_ROW
};

#define DEBTS_COUNT (sizeof g_debts / sizeof g_debts[0])

static const debt_t *find(const char *name)
{
    for (size_t i = 0; i < DEBTS_COUNT; i++)
        if (strcmp(g_debts[i].name, name) == 0)
            return &g_debts[i];
    return NULL;
}

int main(int argc, char **argv)
{
    const debt_t *debt = argc == 2 ? find(argv[1]) : NULL;
    bool is_kept;

    for (size_t i = 0; argc == 1 && i < DEBTS_COUNT; i++)
        printf("%s\n", g_debts[i].name);
    if (!debt)
        return argc == 1 ? 0 : 2;
    open_first();
    alarm(TIMEOUT_S);
    is_kept = debt->run();
    printf("%s %s\n", debt->name, is_kept && dev_violations() == 0 ? "kept" : "lost");
    return 0;
}
