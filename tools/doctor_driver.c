/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor_driver - the driver as a program would find it.
 * How:        dlopen by the name that every runtime uses. No context: a context costs half a gigabyte of
 *             device memory.
 */
#define _GNU_SOURCE
#include "tools/doctor.h"
#include <cuda.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>

/* What we call ourselves; in every driver since CUDA 4. */
#define ENTRY_LIST(X)     \
    X(cuInit)             \
    X(cuDriverGetVersion) \
    X(cuDeviceGetCount)   \
    X(cuDeviceGet)        \
    X(cuDeviceGetName)    \
    X(cuDeviceTotalMem_v2)

/* X(entry point, since, what the pool does with it, what it does without) */
#define FEATURE_LIST(X)                                                                 \
    X(cuCtxRecordEvent, "12.5", "one event tells when a freed block is idle",           \
      "each free waits for all of the context's work")                                  \
    X(cuGetProcAddress_v2, "12.0", "programs that look entry points up reach the pool", \
      "programs of CUDA 12 and later look nothing up")

typedef struct entries {
#define X(name) typeof(&name) name;
    ENTRY_LIST(X)
#undef X
} entries_t;

static bool find_entries(void *driver, entries_t *out)
{
    const char *missing = NULL;

#define X(name)                                      \
    out->name = (typeof(&name))dlsym(driver, #name); \
    if (!out->name)                                  \
        missing = #name;
    ENTRY_LIST(X);
#undef X
    if (missing)
        cup_doctor_find(CUP_FINDING_PROBLEM, "driver", "install the driver of your GPU anew",
                        "libcuda.so.1 has no %s: not a CUDA driver", missing);
    return !missing;
}

static const char *remedy_of_init(CUresult result)
{
    switch (result) {
    case CUDA_ERROR_NO_DEVICE:
        return "check nvidia-smi, CUDA_VISIBLE_DEVICES, and in a container that GPUs are passed in";
    case CUDA_ERROR_STUB_LIBRARY:
        return "take the folder with the toolkit's stubs out of LD_LIBRARY_PATH";
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
        return "the kernel module and libcuda.so.1 differ: restart the machine or install both from one "
               "package";
    default:
        return "check nvidia-smi and the kernel's log";
    }
}

static void find_devices(const entries_t *driver)
{
    int count = 0;

    driver->cuDeviceGetCount(&count);
    for (int i = 0; i < count; i++) {
        CUdevice device;
        char name[256] = "";
        size_t total = 0;
        CUresult result = driver->cuDeviceGet(&device, i);

        if (result == CUDA_SUCCESS)
            result = driver->cuDeviceGetName(name, sizeof(name) - 1, device);
        if (result == CUDA_SUCCESS)
            result = driver->cuDeviceTotalMem_v2(&total, device);
        if (result == CUDA_SUCCESS)
            cup_doctor_find(CUP_FINDING_OK, "device", NULL, "%d: %s, %.1f GiB", i, name,
                            (double)total / 0x1p30);
        else
            cup_doctor_find(CUP_FINDING_PROBLEM, "device", "check nvidia-smi", "%d: CUDA error %d", i,
                            (int)result);
    }
    if (count == 0)
        cup_doctor_find(CUP_FINDING_PROBLEM, "device", remedy_of_init(CUDA_ERROR_NO_DEVICE),
                        "the driver shows none");
    if (getenv("CUDA_VISIBLE_DEVICES"))
        cup_doctor_find(CUP_FINDING_NOTE, "device", NULL, "CUDA_VISIBLE_DEVICES=%s",
                        getenv("CUDA_VISIBLE_DEVICES"));
}

static void find_feature(void *driver, const char *name, const char *since, const char *use, const char *lack)
{
    if (dlsym(driver, name))
        cup_doctor_find(CUP_FINDING_OK, "feature", NULL, "%s: %s", name, use);
    else
        cup_doctor_find(CUP_FINDING_NOTE, "feature", NULL, "no %s (driver for CUDA %s): %s", name, since,
                        lack);
}

void cup_doctor_driver(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    entries_t entries;
    int version = 0;
    CUresult result;

    if (!driver) {
        cup_doctor_find(CUP_FINDING_PROBLEM, "driver",
                        "install the NVIDIA driver, or put its folder on LD_LIBRARY_PATH", "%s", dlerror());
        return;
    }
    if (!find_entries(driver, &entries))
        return;
    entries.cuDriverGetVersion(&version);
    result = entries.cuInit(0);
    if (result != CUDA_SUCCESS) {
        cup_doctor_find(CUP_FINDING_PROBLEM, "driver", remedy_of_init(result),
                        "libcuda.so.1 for CUDA %d.%d does not start: error %d", version / 1000,
                        version % 1000 / 10, (int)result);
        return;
    }
    cup_doctor_find(CUP_FINDING_OK, "driver", NULL, "libcuda.so.1 for CUDA %d.%d", version / 1000,
                    version % 1000 / 10);
    find_devices(&entries);
#define X(name, since, use, lack) find_feature(driver, #name, since, use, lack);
    FEATURE_LIST(X);
#undef X
    /* Not closed: a driver that has started does not expect to be unloaded. */
}
