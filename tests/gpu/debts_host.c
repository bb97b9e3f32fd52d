/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: the CPU's side. It looks at, or overwrites, memory that the device was to read or write, as soon
 * as a free has returned.
 */
#include "tests/gpu/debts.h"
#include "tests/softcuda/pattern.h"
#include <stdio.h>
#include <stdlib.h>

/* ---- the CPU, by copies ---- */

static bool read_back(uint64_t *to)
{
    CUdeviceptr x = dev_alloc(DEBTS_BYTES), other = dev_alloc(DEBTS_BYTES);
    CUstream stream = dev_stream();
    bool is_kept;

    dev_fill(x, DEBTS_BYTES, DEBTS_NEW, stream);
    dev_spin(DEBTS_SPIN_US, stream);
    DEBTS_CHECK(cuMemcpyDtoHAsync(to, x, DEBTS_BYTES, stream));
    dev_free(other);
    is_kept = debts_is_host(to, DEBTS_NEW);
    dev_sync();
    return is_kept;
}

bool debts_run_d2h_pinned(void)
{
    return read_back(debts_host);
}

bool debts_run_d2h_pageable(void)
{
    static uint64_t words[DEBTS_BYTES / 8];

    return read_back(words);
}

bool debts_run_d2h_pinned_two_streams(void)
{
    CUdeviceptr x = dev_alloc(DEBTS_BYTES), other = dev_alloc(DEBTS_BYTES);
    CUstream first = dev_stream(), second = dev_stream();
    bool is_kept;

    dev_fill(x, DEBTS_BYTES, DEBTS_NEW, first);
    dev_sync();
    dev_spin(DEBTS_SPIN_US, first);
    dev_spin(DEBTS_SPIN_US, second);
    DEBTS_CHECK(cuMemcpyDtoHAsync(debts_host, x, DEBTS_BYTES, first));
    DEBTS_CHECK(cuMemcpyDtoHAsync(debts_other, x, DEBTS_BYTES, second));
    dev_free(other);
    is_kept = debts_is_host(debts_host, DEBTS_NEW) && debts_is_host(debts_other, DEBTS_NEW);
    dev_sync();
    return is_kept;
}

/* One address space: what a pointer names tells what the copy is. */
bool debts_run_d2h_unified(void)
{
    CUdeviceptr x = dev_alloc(DEBTS_BYTES), other = dev_alloc(DEBTS_BYTES);
    CUstream stream = dev_stream();
    bool is_kept;

    dev_fill(x, DEBTS_BYTES, DEBTS_NEW, stream);
    dev_spin(DEBTS_SPIN_US, stream);
    DEBTS_CHECK(cuMemcpyAsync((CUdeviceptr)debts_host, x, DEBTS_BYTES, stream));
    dev_free(other);
    is_kept = debts_is_host(debts_host, DEBTS_NEW);
    dev_sync();
    return is_kept;
}

static bool refill(uint64_t *from)
{
    CUdeviceptr x = dev_alloc(DEBTS_BYTES), other = dev_alloc(DEBTS_BYTES);
    CUstream stream = dev_stream();

    debts_fill_host(from, DEBTS_OLD);
    dev_spin(DEBTS_SPIN_US, stream);
    DEBTS_CHECK(cuMemcpyHtoDAsync(x, from, DEBTS_BYTES, stream));
    dev_free(other);
    debts_fill_host(from, DEBTS_NEW);
    return debts_is_device(x, DEBTS_OLD);
}

bool debts_run_h2d_pinned(void)
{
    return refill(debts_host);
}

bool debts_run_h2d_pageable(void)
{
    static uint64_t words[DEBTS_BYTES / 8];

    return refill(words);
}

bool debts_run_set_pinned(void)
{
    CUdeviceptr other = dev_alloc(DEBTS_BYTES);
    CUstream stream = dev_stream();
    bool is_kept;

    dev_spin(DEBTS_SPIN_US, stream);
    DEBTS_CHECK(cuMemsetD32Async((CUdeviceptr)debts_host, 1, 2, stream));
    dev_free(other);
    is_kept = __atomic_load_n(debts_host, __ATOMIC_ACQUIRE) == 0x100000001;
    dev_sync();
    return is_kept;
}

bool debts_run_write_value(void)
{
    CUdeviceptr other = dev_alloc(DEBTS_BYTES);
    CUstream stream = dev_stream();
    bool is_kept;

    dev_spin(DEBTS_SPIN_US, stream);
    DEBTS_CHECK(cuStreamWriteValue32(stream, (CUdeviceptr)debts_flag, 1, 0));
    dev_free(other);
    is_kept = __atomic_load_n(debts_flag, __ATOMIC_ACQUIRE) == 1;
    dev_sync();
    return is_kept;
}

/* ---- the CPU, by graphs and host functions ---- */

static void capture(CUstream stream)
{
    DEBTS_CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
}

static void launch(CUgraph graph, CUstream stream)
{
    CUgraphExec exec;

    DEBTS_CHECK(cuGraphInstantiate(&exec, graph, 0));
    DEBTS_CHECK(cuGraphLaunch(exec, stream));
}

static void launch_captured(CUstream stream)
{
    CUgraph graph;

    DEBTS_CHECK(cuStreamEndCapture(stream, &graph));
    launch(graph, stream);
}

bool debts_run_graph_d2h(void)
{
    CUdeviceptr x = dev_alloc(DEBTS_BYTES), other = dev_alloc(DEBTS_BYTES);
    CUstream stream = dev_stream();
    bool is_kept;

    dev_fill(x, DEBTS_BYTES, DEBTS_NEW, stream);
    capture(stream);
    dev_spin(DEBTS_SPIN_US, stream);
    DEBTS_CHECK(cuMemcpyDtoHAsync(debts_host, x, DEBTS_BYTES, stream));
    launch_captured(stream);
    dev_free(other);
    is_kept = debts_is_host(debts_host, DEBTS_NEW);
    dev_sync();
    return is_kept;
}

bool debts_run_graph_h2d(void)
{
    CUdeviceptr x = dev_alloc(DEBTS_BYTES), other = dev_alloc(DEBTS_BYTES);
    CUstream stream = dev_stream();

    debts_fill_host(debts_host, DEBTS_OLD);
    capture(stream);
    dev_spin(DEBTS_SPIN_US, stream);
    DEBTS_CHECK(cuMemcpyHtoDAsync(x, debts_host, DEBTS_BYTES, stream));
    launch_captured(stream);
    dev_free(other);
    debts_fill_host(debts_host, DEBTS_NEW);
    return debts_is_device(x, DEBTS_OLD);
}

bool debts_run_graph_by_hand(void)
{
    CUdeviceptr x = dev_alloc(DEBTS_BYTES), other = dev_alloc(DEBTS_BYTES);
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = x,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = debts_host,
                          .WidthInBytes = DEBTS_BYTES,
                          .Height = 1,
                          .Depth = 1};
    CUstream stream = dev_stream();
    CUcontext context;
    CUgraphNode node;
    CUgraph graph;
    bool is_kept;

    DEBTS_CHECK(cuCtxGetCurrent(&context));
    DEBTS_CHECK(cuGraphCreate(&graph, 0));
    DEBTS_CHECK(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, context));
    dev_fill(x, DEBTS_BYTES, DEBTS_NEW, stream);
    dev_spin(DEBTS_SPIN_US, stream);
    launch(graph, stream);
    dev_free(other);
    is_kept = debts_is_host(debts_host, DEBTS_NEW);
    dev_sync();
    return is_kept;
}

static void note(void *flag)
{
    __atomic_store_n((int *)flag, 1, __ATOMIC_RELEASE);
}

static void note_as_callback(CUstream stream, CUresult result, void *flag)
{
    (void)stream;
    (void)result;
    note(flag);
}

/* Whether what the streams do at the end of their work is done when the free returns. */
static bool is_noted_after_free(const int *flag)
{
    bool is_noted;

    dev_free(dev_alloc(DEBTS_BYTES));
    is_noted = __atomic_load_n(flag, __ATOMIC_ACQUIRE) != 0;
    dev_sync();
    return is_noted;
}

bool debts_run_host_function(void)
{
    static int flag;
    CUstream stream = dev_stream();

    dev_free(dev_alloc(DEBTS_BYTES)); /* the first one is special */
    dev_spin(DEBTS_SPIN_US, stream);
    DEBTS_CHECK(cuLaunchHostFunc(stream, note, &flag));
    return is_noted_after_free(&flag);
}

bool debts_run_stream_callback(void)
{
    static int flag;
    CUstream stream = dev_stream();

    dev_free(dev_alloc(DEBTS_BYTES));
    dev_spin(DEBTS_SPIN_US, stream);
    DEBTS_CHECK(cuStreamAddCallback(stream, note_as_callback, &flag, 0));
    return is_noted_after_free(&flag);
}

bool debts_run_graph_host_function(void)
{
    static int flag;
    CUstream stream = dev_stream();

    dev_free(dev_alloc(DEBTS_BYTES));
    capture(stream);
    dev_spin(DEBTS_SPIN_US, stream);
    DEBTS_CHECK(cuLaunchHostFunc(stream, note, &flag));
    launch_captured(stream);
    return is_noted_after_free(&flag);
}

/* ---- the CPU, by memory that kernels reach ---- */

static bool is_written_by_kernel(CUdeviceptr x, uint64_t bytes)
{
    CUdeviceptr other = dev_alloc(DEBTS_BYTES);
    CUstream stream = dev_stream();
    bool is_kept;

    dev_fill(x, bytes, DEBTS_OLD, stream);
    dev_sync();
    dev_late_fill(x, bytes, DEBTS_NEW, DEBTS_SPIN_US, stream);
    dev_free(other);
    is_kept = debts_is_filled((const uint64_t *)x, bytes, DEBTS_NEW);
    dev_sync();
    return is_kept;
}

bool debts_run_managed(void)
{
    CUdeviceptr x;

    DEBTS_CHECK(cuMemAllocManaged(&x, DEBTS_BYTES, CU_MEM_ATTACH_GLOBAL));
    return is_written_by_kernel(x, DEBTS_BYTES);
}

bool debts_run_managed_variable(void)
{
    CUdeviceptr x;
    size_t bytes;

    DEBTS_CHECK(cuModuleGetGlobal(&x, &bytes, debts_module, "managed_words"));
    return is_written_by_kernel(x, bytes);
}

bool debts_run_mapped(void)
{
    return is_written_by_kernel((CUdeviceptr)debts_host, DEBTS_BYTES);
}

/* The program's own heap, where the device reaches it (HMM, ATS). */
bool debts_run_pageable(void)
{
    static uint64_t words[DEBTS_BYTES / 8];
    CUdevice device;
    int is_reached;

    DEBTS_CHECK(cuCtxGetDevice(&device));
    DEBTS_CHECK(cuDeviceGetAttribute(&is_reached, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, device));
    if (!is_reached) {
        printf("skipped: the device does not reach pageable memory\n");
        exit(DEV_SKIP);
    }
    return is_written_by_kernel((CUdeviceptr)words, DEBTS_BYTES);
}
