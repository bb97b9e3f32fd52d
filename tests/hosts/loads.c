/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loads - libraries that come and go: a CUDA runtime, a library that is linked with libcuda, in every way
 * of loading.
 * What:       blocks outlive the library that asked for them; constructors allocate; the loader's lock and
 *             ours don't meet. Deep binding and other namespaces go by the pool to the driver, and leave it
 *             as it was.
 * Invariants: run with the libraries' names: loads CASE PLUGIN.
 */
#define _GNU_SOURCE
#include "cases.h"
#include "driver.h"
#include "plugin.h"
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { TIMES = 10, PER_TIME = 100, SECONDS = 40 };

static const char *plugin_path;
static driver_t driver;
static _Atomic int is_over;
_Atomic int host_is_constructing;

typedef struct {
    void *handle;
    int (*open)(void);
    int (*alloc)(unsigned long long *, size_t);
    int (*free)(unsigned long long);
    int (*churn)(int);
} plugin_t;

static plugin_t take_plugin(void *handle)
{
    plugin_t plugin = {.handle = handle};
    if (handle == NULL)
        fprintf(stderr, "%s\n", dlerror());
    REQUIRE(handle != NULL);
    plugin.open = (int (*)(void))dlsym(handle, "plugin_open");
    plugin.alloc = (int (*)(unsigned long long *, size_t))dlsym(handle, "plugin_alloc");
    plugin.free = (int (*)(unsigned long long))dlsym(handle, "plugin_free");
    plugin.churn = (int (*)(int))dlsym(handle, "plugin_churn");
    return plugin;
}

static void runtime(void)
{
    unsigned long long kept[TIMES];
    driver = driver_load();
    for (int i = 0; i < TIMES; i++) {
        void *handle = dlopen("libcudart.so.13", RTLD_NOW | RTLD_LOCAL);
        REQUIRE(handle != NULL);
        int (*alloc)(void *, size_t) = (int (*)(void *, size_t))dlsym(handle, "cudaMalloc");
        int (*release)(void *) = (int (*)(void *))dlsym(handle, "cudaFree");
        for (int j = 0; j < PER_TIME; j++) {
            void *block;
            REQUIRE(alloc(&block, 4096) == 0);
            REQUIRE(release(block) == 0);
        }
        REQUIRE(alloc(&kept[i], 4096) == 0);
        REQUIRE(dlclose(handle) == 0);
    }
    for (int i = 0; i < TIMES; i++)
        REQUIRE(driver.free(kept[i]) == CUDA_SUCCESS);
    driver_require_pooled(&driver, TIMES * PER_TIME);
}

static void library(void)
{
    unsigned long long kept[TIMES];
    driver = driver_load();
    for (int i = 0; i < TIMES; i++) {
        plugin_t plugin = take_plugin(dlopen(plugin_path, RTLD_NOW | RTLD_LOCAL));
        REQUIRE(plugin.churn(PER_TIME) == 0);
        REQUIRE(plugin.alloc(&kept[i], 4096) == 0);
        REQUIRE(dlclose(plugin.handle) == 0);
    }
    for (int i = 0; i < TIMES; i++)
        REQUIRE(driver.free(kept[i]) == CUDA_SUCCESS);
    driver_require_pooled(&driver, TIMES * PER_TIME);
}

static void *churn_until_over(void *seed)
{
    REQUIRE(driver.set_current(driver.context) == CUDA_SUCCESS);
    for (unsigned round = 0; !is_over; round++)
        driver_churn(&driver, (unsigned)(uintptr_t)seed + round, 1);
    return NULL;
}

static void library_busy(void)
{
    pthread_t thread;
    driver = driver_load();
    REQUIRE(pthread_create(&thread, NULL, churn_until_over, (void *)1) == 0);
    for (int i = 0; i < 5 * TIMES; i++) {
        plugin_t plugin = take_plugin(dlopen(plugin_path, RTLD_NOW | RTLD_LOCAL));
        REQUIRE(plugin.churn(10) == 0);
        REQUIRE(dlclose(plugin.handle) == 0);
    }
    is_over = 1;
    pthread_join(thread, NULL);
    driver_require_pooled(&driver, 5 * TIMES * 10);
}

static void early(void)
{
    setenv("PLUGIN_CONSTRUCTOR", "early", 1);
    plugin_t plugin = take_plugin(dlopen(plugin_path, RTLD_NOW | RTLD_LOCAL));
    REQUIRE(plugin.open() == 0 && plugin.churn(PER_TIME) == 0);
    driver = driver_load();
    driver_require_pooled(&driver, PER_TIME);
}

/*
 * The first allocations of the process, in a constructor and outside at once: the loader's lock is held in
 * the one.
 */
static void *allocate_while_loading(void *unused)
{
    REQUIRE(driver.set_current(driver.context) == CUDA_SUCCESS);
    while (!host_is_constructing)
        usleep(100);
    driver_churn(&driver, 1, 4);
    return NULL;
}

static void load_meanwhile(int started)
{
    pthread_t thread;
    CUdeviceptr none;
    driver = driver_load();
    if (started) { /* the pool is there, and nothing for this context yet */
        REQUIRE(driver.set_current(NULL) == CUDA_SUCCESS);
        REQUIRE(driver.alloc(&none, 4096) == CUDA_ERROR_INVALID_CONTEXT);
        REQUIRE(driver.set_current(driver.context) == CUDA_SUCCESS);
    }
    setenv("PLUGIN_CONSTRUCTOR", "1", 1);
    REQUIRE(pthread_create(&thread, NULL, allocate_while_loading, NULL) == 0);
    take_plugin(dlopen(plugin_path, RTLD_NOW | RTLD_LOCAL));
    pthread_join(thread, NULL);
    driver_require_pooled(&driver, PER_TIME + 4 * 64);
}

static void constructor(void)
{
    load_meanwhile(0);
}

static void constructor_later(void)
{
    load_meanwhile(1);
}

/* What a library may look up, and the program may not: the driver is out of sight. */
static void by_default(void)
{
    driver = driver_load();
    void *handle = dlopen(plugin_path, RTLD_NOW | RTLD_LOCAL);
    REQUIRE(handle != NULL);
    int (*churn)(int) = (int (*)(int))dlsym(handle, "plugin_default");
    printf("library: %d, program: %d", churn(PER_TIME), dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") != NULL);
    printf(", %s\n", dlerror() != NULL ? "an error" : "no error");
    driver_require_pooled(&driver, PER_TIME);
}

/* Its own imports come first in its search: it never meets the pool, nor we its blocks. */
static void deep(void)
{
    unsigned long long block;
    uint64_t before;
    plugin_t plugin;
    driver = driver_load();
    driver_churn(&driver, 1, 4);
    driver_require_pooled(&driver, 4 * 64);
    plugin = take_plugin(dlopen(plugin_path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND));
    before = driver.softcuda_calls ? driver.softcuda_calls("cuMemAlloc_v2") : 0;
    REQUIRE(plugin.churn(PER_TIME) == 0);
    REQUIRE(plugin.alloc(&block, 4096) == 0);
    REQUIRE(!driver.softcuda_calls || driver.softcuda_calls("cuMemAlloc_v2") == before + PER_TIME + 1);
    printf("its block: free %d", driver.free(block));
    printf(", again %d\n", driver.free(block));
    driver_churn(&driver, 2, 4);
    REQUIRE(dlclose(plugin.handle) == 0);
}

/* A driver of its own, C library and all: preloads don't enter there. */
static void namespace(void)
{
    plugin_t plugin;
    driver = driver_load();
    driver_churn(&driver, 1, 4);
    plugin = take_plugin(dlmopen(LM_ID_NEWLM, plugin_path, RTLD_NOW | RTLD_LOCAL));
    printf("namespace: open %d", plugin.open());
    printf(", churn %d\n", plugin.churn(PER_TIME));
    driver_churn(&driver, 2, 4);
    driver_require_pooled(&driver, 8 * 64);
}

#define CASE_LIST(X)     \
    X(runtime)           \
    X(library)           \
    X(library_busy)      \
    X(early)             \
    X(constructor)       \
    X(constructor_later) \
    X(by_default)        \
    X(deep)              \
    X(namespace)

int main(int argc, char **argv)
{
    static const case_t cases[] = {CASE_LIST(CASES_ROW){NULL, NULL}};
    REQUIRE(argc == 3);
    alarm(SECONDS);
    plugin_path = argv[2];
    return cases_run(cases, argv[1]);
}
