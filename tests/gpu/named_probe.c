/* SPDX-License-Identifier: Apache-2.0 */
/*
 * named_probe - named blocks (preload/cupola.h) on a GPU: what a write to a block that was opened for reading
 * only comes to, and what the calls cost.
 * What:       one line each. "write-…": 1 if the write was refused or broke its own context, and the bytes are
 *             what they were; each in a process of its own. A line that begins with "probe" is for the record:
 *             codes and microseconds.
 * How:        named_probe WRITE SOCKET is such a process.
 */
#define _GNU_SOURCE
#include "bench/dev.h"
#include "preload/cupola.h"
#include "tests/support/peer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SIZE   ((uint64_t)4 << 20)
#define SEED   7
#define TRIALS 9 /* medians of */

#define WRITE_LIST(X) \
    X(kernel)         \
    X(set)            \
    X(copy_from_host) \
    X(copy_on_device) \
    X(none)

static char g_name[CUPOLA_NAME_MAX];
static uint64_t g_host[512];

static void write_kernel(CUdeviceptr to, CUdeviceptr from, CUstream stream)
{
    (void)from;
    dev_fill(to, SIZE, SEED + 1, stream);
}

static CUresult write_by(const char *way, CUdeviceptr to, CUdeviceptr from)
{
    CUstream stream = dev_stream();
    CUresult result = CUDA_SUCCESS;

    if (strcmp(way, "kernel") == 0)
        write_kernel(to, from, stream);
    else if (strcmp(way, "set") == 0)
        result = cuMemsetD32Async(to, 9, SIZE / 4, stream);
    else if (strcmp(way, "copy_from_host") == 0)
        result = cuMemcpyHtoD(to, g_host, sizeof g_host);
    else if (strcmp(way, "copy_on_device") == 0)
        result = cuMemcpyDtoDAsync(to, from, SIZE, stream);
    return result != CUDA_SUCCESS ? result : cuCtxSynchronize();
}

/* Opens, looks, writes; says the code. */
static int run_writer(const char *way, int socket)
{
    cupola_block_t block;
    CUdeviceptr own;
    uint64_t word = 0;
    int result;

    dev_open();
    own = dev_alloc(SIZE);
    REQUIRE(peer_try_hear(socket, g_name, sizeof g_name));
    REQUIRE(cupola_open(g_name, CUPOLA_READ_ONLY, CUPOLA_MYSELF, &block) == CUPOLA_OK);
    REQUIRE(cuMemcpyDtoH(&word, block.address, sizeof word) == CUDA_SUCCESS && word != 0);
    result = (int)write_by(way, block.address, own);
    peer_say(socket, &result, sizeof result);
    _exit(0); /* its context may be broken */
}

static uint64_t hash_of(CUdeviceptr block)
{
    uint64_t *copy = malloc(SIZE), hash = 0;

    REQUIRE(copy != NULL && cuMemcpyDtoH(copy, block, SIZE) == CUDA_SUCCESS);
    for (uint64_t i = 0; i < SIZE / 8; i++)
        hash = (hash ^ copy[i]) * 0x9e3779b97f4a7c15ull;
    free(copy);
    return hash;
}

static void ask_write(const char *way, CUdeviceptr block)
{
    const char *const args[] = {way, NULL};
    uint64_t before = hash_of(block);
    peer_t writer = peer_start(args);
    int result;

    peer_say(writer.socket, g_name, sizeof g_name);
    peer_hear(writer.socket, &result, sizeof result);
    REQUIRE(peer_end(&writer) == 0);
    printf("write-%s %d\n", way, (result != 0) == (strcmp(way, "none") != 0) && hash_of(block) == before);
    printf("probe-write-%s-code %d\n", way, result);
}

/* ---- costs ---- */

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static int compare(const void *one, const void *other)
{
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;

    return (a > b) - (a < b);
}

static void print_cost(const char *call, uint64_t *ns)
{
    qsort(ns, TRIALS, sizeof *ns, compare);
    printf("probe-%s-us %.1f\n", call, (double)ns[TRIALS / 2] / 1000);
}

/* Here: what publishing costs. There ("reader"): what opening does. */
static void ask_publish(CUdeviceptr block)
{
    uint64_t publish[TRIALS], unpublish[TRIALS], list[TRIALS];
    size_t count;

    for (int i = 0; i < TRIALS; i++) {
        publish[i] = now_ns();
        REQUIRE(cupola_publish("cost", block, 0, CUPOLA_NO_GROUP) == CUPOLA_OK);
        publish[i] = now_ns() - publish[i];
        list[i] = now_ns();
        REQUIRE(cupola_list(NULL, 0, &count) == CUPOLA_OK);
        list[i] = now_ns() - list[i];
        unpublish[i] = now_ns();
        REQUIRE(cupola_unpublish("cost") == CUPOLA_OK);
        unpublish[i] = now_ns() - unpublish[i];
    }
    print_cost("publish", publish);
    print_cost("list", list);
    print_cost("unpublish", unpublish);
}

static int run_reader(int socket)
{
    uint64_t first[TRIALS], again[TRIALS], last[TRIALS];
    cupola_block_t block;

    dev_open();
    dev_alloc(SIZE);
    REQUIRE(peer_try_hear(socket, g_name, sizeof g_name));
    for (int i = 0; i < TRIALS; i++) {
        first[i] = now_ns();
        REQUIRE(cupola_open(g_name, CUPOLA_READ_ONLY, CUPOLA_MYSELF, &block) == CUPOLA_OK);
        first[i] = now_ns() - first[i];
        again[i] = now_ns();
        REQUIRE(cupola_open(g_name, CUPOLA_READ_ONLY, CUPOLA_MYSELF, &block) == CUPOLA_OK);
        again[i] = now_ns() - again[i];
        REQUIRE(cupola_close(block.address) == CUPOLA_OK);
        last[i] = now_ns();
        REQUIRE(cupola_close(block.address) == CUPOLA_OK);
        last[i] = now_ns() - last[i];
    }
    print_cost("open", first);
    print_cost("open-again", again);
    print_cost("close-last", last);
    fflush(stdout);
    peer_say(socket, &block, sizeof block);
    return 0;
}

static void ask_open(void)
{
    const char *const args[] = {"reader", NULL};
    peer_t reader;
    cupola_block_t block;

    fflush(stdout);
    reader = peer_start(args);
    peer_say(reader.socket, g_name, sizeof g_name);
    peer_hear(reader.socket, &block, sizeof block);
    REQUIRE(peer_end(&reader) == 0 && block.size_bytes == SIZE);
}

int main(int argc, char **argv)
{
    CUdeviceptr block;

    if (argc == 3)
        return strcmp(argv[1], "reader") == 0 ? run_reader(atoi(argv[2]))
                                              : run_writer(argv[1], atoi(argv[2]));
    dev_open();
    block = dev_alloc(SIZE);
    dev_fill(block, SIZE, SEED, dev_stream());
    dev_sync();
    snprintf(g_name, sizeof g_name, "probe-%d", (int)getpid());
    REQUIRE(cupola_publish(g_name, block, 0, CUPOLA_NO_GROUP) == CUPOLA_OK);
#define X(way) ask_write(#way, block);
    WRITE_LIST(X)
#undef X
    ask_publish(block);
    ask_open();
    dev_free(block);
    return 0;
}
