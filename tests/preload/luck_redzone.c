/* SPDX-License-Identifier: Apache-2.0 */
/*
 * luck_redzone - CUPOLA_REDZONE: a program that writes past its blocks, and what becomes of their
 * neighbours.
 * What:       luck_redzone kept|damaged BYTES: sets BYTES behind the end of each block, and looks at all
 *             others; sizes: what the program is told of its blocks; top: behind the last memory of the vmm
 *             backing is none.
 * Not here:   CUPOLA_ZERO (luck.c).
 * Invariants: damaged is the same program as kept, so that kept can fail.
 */
#define _GNU_SOURCE
#include "tests/preload/client.h"
#include "tests/softcuda/pattern.h"
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#define COUNT     24
#define BYTES_MAX (3 << 20)

static const size_t g_sizes[] = {100, 512, 4096, 20000, 40000, 300000, BYTES_MAX};
static unsigned char g_seen[BYTES_MAX];

static bool is_intact(CUdeviceptr block, size_t bytes, uint64_t seed)
{
    bool is_same = true;

    REQUIRE(cuMemcpyDtoH(g_seen, block, bytes) == CUDA_SUCCESS);
    for (size_t i = 0; i < bytes; i++)
        is_same &= g_seen[i] == (unsigned char)(softcuda_fill_word(seed, i / 8) >> i % 8 * 8);
    return is_same;
}

/* Somebody's memory is there: what no redzone protects may be nobody's, and no test is to end by that. */
static bool is_behind(const CUdeviceptr *block, size_t bytes, CUdeviceptr end, size_t overrun)
{
    for (int i = 0; i < COUNT; i++)
        if (block[i] >= end && end + overrun <= block[i] + bytes)
            return true;
    return false;
}

/* How many of the blocks of one size are not what they were. */
static int overrun_each(size_t bytes, size_t overrun, bool is_protected)
{
    CUdeviceptr block[COUNT];
    int damaged = 0;

    for (int i = 0; i < COUNT; i++)
        block[i] = client_alloc(bytes);
    for (int i = 0; i < COUNT; i++)
        client_fill(NULL, block[i], bytes, (uint64_t)i);
    for (int i = 0; i < COUNT; i++)
        if (is_protected || is_behind(block, bytes, block[i] + bytes, overrun))
            REQUIRE(cuMemsetD8(block[i] + bytes, 0xEE, overrun) == CUDA_SUCCESS);
    for (int i = 0; i < COUNT; i++)
        damaged += !is_intact(block[i], bytes, (uint64_t)i);
    for (int i = 0; i < COUNT; i++)
        REQUIRE(cuMemFree(block[i]) == CUDA_SUCCESS);
    return damaged;
}

static int overrun_all(size_t overrun, bool is_protected)
{
    int damaged = 0;

    for (size_t i = 0; i < sizeof(g_sizes) / sizeof(g_sizes[0]); i++)
        damaged += overrun_each(g_sizes[i], overrun, is_protected);
    return damaged;
}

/* The program's own sizes, whatever lies behind. */
static void check_sizes(void)
{
    for (size_t i = 0; i < sizeof(g_sizes) / sizeof(g_sizes[0]); i++) {
        CUdeviceptr block = client_alloc(g_sizes[i]), base;
        size_t size, attribute;

        REQUIRE(block % 512 == 0);
        REQUIRE(cuMemGetAddressRange(&base, &size, block + g_sizes[i] - 1) == CUDA_SUCCESS);
        REQUIRE(base == block && size == g_sizes[i]);
        REQUIRE(cuPointerGetAttribute(&attribute, CU_POINTER_ATTRIBUTE_RANGE_SIZE, block) == CUDA_SUCCESS);
        REQUIRE(attribute == g_sizes[i]);
        REQUIRE(cuMemFree(block + g_sizes[i]) == CUDA_ERROR_INVALID_VALUE);
        REQUIRE(cuMemFree(block) == CUDA_SUCCESS);
    }
}

/* Memory of this device is memory of the host; the kernel says whether it can be read. */
static bool is_there(const int *pipe, CUdeviceptr addr)
{
    char byte;

    if (write(pipe[1], (const void *)(uintptr_t)addr, 1) != 1)
        return false;
    REQUIRE(read(pipe[0], &byte, 1) == 1);
    return true;
}

/* From the highest block up: the rest of the handle in which it ends, then nothing for a long way. */
static void check_top(size_t bytes)
{
    const uint64_t handle = 2 << 20, far = 256 << 20;
    CUdeviceptr block, end = 0, top;
    int pipe[2];

    REQUIRE(pipe2(pipe, O_CLOEXEC) == 0);
    for (int i = 0; i < COUNT; i++) {
        block = client_alloc(bytes);
        end = block + bytes > end ? block + bytes : end;
    }
    REQUIRE(is_there(pipe, end - 1));
    top = (end + handle - 1) / handle * handle;
    while (is_there(pipe, top)) /* free handles above it */
        top += handle;
    REQUIRE(top - end < 4 * handle);
    for (CUdeviceptr addr = top; addr < top + far; addr += 4096)
        REQUIRE(!is_there(pipe, addr));
    close(pipe[0]);
    close(pipe[1]);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    size_t overrun = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;

    alarm(100);
    client_open();
    if (strcmp(name, "kept") == 0) {
        REQUIRE(overrun_all(overrun, true) == 0);
    } else if (strcmp(name, "damaged") == 0) {
        REQUIRE(overrun_all(overrun, false) > 0);
    } else if (strcmp(name, "sizes") == 0) {
        check_sizes();
    } else if (strcmp(name, "top") == 0) {
        check_top(4096);
        check_top(BYTES_MAX);
    } else {
        return 2;
    }
    REQUIRE(softcuda_violations() == 0);
    printf("pool_allocs 1 100000\n");
    return 0;
}
