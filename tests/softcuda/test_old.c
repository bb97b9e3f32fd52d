/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_old - what a program of its time finds on the older driver (12.2): graphs by hand, stream memory
 * operations, programmatic launches, held streams; and nothing that came later, through no door. A plain
 * program, linked to the symbols of that time.
 */
#define _GNU_SOURCE
#define __CUDA_API_VERSION_INTERNAL /* the names without their newest versions */
#include <cuda.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include "tests/softcuda/pattern.h"
#include "tests/softcuda/softcuda.h"

#define MUST(condition)                                                     \
    do {                                                                    \
        if (!(condition)) {                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                        \
        }                                                                   \
    } while (0)
#define OK(call) MUST((call) == CUDA_SUCCESS)

static CUcontext ctx;
static CUfunction fill;
static CUstream stream;
static uint64_t *words; /* pinned */

static CUdeviceptr address(const void *pointer)
{
    return (CUdeviceptr)(uintptr_t)pointer;
}

/* Not exported, and a look-up of the name finds another version of it or nothing. */
static void check_absent(const char *symbol, const char *name, const char *instead)
{
    CUdriverProcAddressQueryResult status;
    void *found = NULL;

    MUST(dlsym(RTLD_DEFAULT, symbol) == NULL);
    MUST(cuGetProcAddress_v2(name, &found, 13000, 0, &status) == CUDA_SUCCESS); /* the status tells */
    MUST(status == (instead ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND));
    MUST(found == (instead ? dlsym(RTLD_DEFAULT, instead) : NULL));
}

static void check_graph(void)
{
    CUdeviceptr target = address(&words[1]);
    uint64_t bytes = 8, seed = 4;
    void *params[] = {&target, &bytes, &seed};
    const CUDA_KERNEL_NODE_PARAMS_v2 kernel = {.func = fill,
                                               .gridDimX = 1,
                                               .gridDimY = 1,
                                               .gridDimZ = 1,
                                               .blockDimX = 1,
                                               .blockDimY = 1,
                                               .blockDimZ = 1,
                                               .kernelParams = params};
    const CUDA_MEMSET_NODE_PARAMS set = {
        .dst = address(&words[0]), .value = 7, .elementSize = 4, .width = 4, .height = 1};
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode nodes[2], dep;
    size_t count = 1;

    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddKernelNode_v2(&nodes[0], graph, NULL, 0, &kernel));
    OK(cuGraphAddMemsetNode(&nodes[1], graph, NULL, 0, &set, ctx));
    OK(cuGraphAddDependencies(graph, &nodes[1], &nodes[0], 1));
    OK(cuGraphNodeGetDependencies(nodes[0], &dep, &count));
    MUST(count == 1 && dep == nodes[1]);
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(softcuda_hold(stream) == 0);
    OK(cuGraphLaunch(exec, stream));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    MUST(words[0] == 0);
    softcuda_release(stream);
    OK(cuStreamSynchronize(stream));
    MUST(words[0] == 0x700000007 && words[1] == softcuda_fill_word(4, 0));
}

static void check_stream(void)
{
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                                   .value.programmaticStreamSerializationAllowed = 1};
    const CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, stream, &attribute, 1};
    CUdeviceptr target = address(&words[2]);
    uint64_t bytes = 8, seed = 5;
    void *params[] = {&target, &bytes, &seed};
    CUevent event;

    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuStreamWaitValue32_v2(stream, address(&words[8]), 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuLaunchKernelEx(&config, fill, params, NULL));
    OK(cuEventRecord(event, stream));
    MUST(cuEventQuery(event) == CUDA_ERROR_NOT_READY);
    __atomic_store_n((uint32_t *)(void *)&words[8], 1, __ATOMIC_RELEASE);
    OK(cuEventSynchronize(event));
    MUST(words[2] == softcuda_fill_word(5, 0));
}

int main(void)
{
    CUmodule module;
    int version;

    OK(cuInit(0));
    OK(cuDriverGetVersion(&version));
    MUST(version == 12020);
    OK(cuCtxCreate_v2(&ctx, 0, 0));
    OK(cuModuleLoadData(&module, "softcuda\n"));
    OK(cuModuleGetFunction(&fill, module, "fill"));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemHostAlloc((void **)&words, 4096, 0));
    check_graph();
    check_stream();
    check_absent("cuCtxRecordEvent", "cuCtxRecordEvent", NULL);
    check_absent("cuCtxWaitEvent", "cuCtxWaitEvent", NULL);
    check_absent("cuMemcpyBatchAsync", "cuMemcpyBatchAsync", NULL);
    check_absent("cuMemcpyBatchAsync_v2", "cuMemcpyBatchAsync", NULL);
    check_absent("cuGraphAddDependencies_v2", "cuGraphAddDependencies", "cuGraphAddDependencies");
    check_absent("cuGraphNodeGetDependencies_v2", "cuGraphNodeGetDependencies", "cuGraphNodeGetDependencies");
    OK(cuModuleUnload(module));
    OK(cuCtxDestroy_v2(ctx));
    return 0;
}
