/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dev - what the driver-level programs share: the driver's entry points, a door to allocate through,
 * kernels.
 * What:       devices (most programs use the first alone), their primary contexts, streams, kernels by
 *             name. The door is chosen when dev.c is compiled: DEV_DOOR_DLSYM (dlopen and dlsym),
 *             DEV_DOOR_LINK (-lcuda), DEV_DOOR_CUDART (cudaMalloc, static or shared).
 * Not here:   anything of cupola: these are the unmodified programs, hence dev_ and not cup_dev_.
 * Invariants: a failing call ends the program with one line and exit code 1; no driver or no device, with
 *             77. Sizes of blocks are multiples of 8. A word that a kernel adds to is zeroed on the same
 *             stream first.
 * Threads:    any thread after dev_open() and dev_join(). Calls go to the device that the thread joined.
 */
#ifndef CUP_BENCH_DEV_H
#define CUP_BENCH_DEV_H
#include <stdbool.h>
#include <stdint.h>
#include <cuda.h>
#include "bench/batch.h"

#define DEV_SKIP        77 /* exit code of "not here": CTest and compare.py know it */
#define DEV_DEVICES_MAX 8

/* Starts the driver, device 0, its primary context and the kernels. Exits with DEV_SKIP without one. */
void dev_open(void);

/* Makes the context current to this thread: for threads other than the one that called dev_open(). */
void dev_join(void);

/* The first count devices; peers: each has access to the others' memory. After dev_open(). Joins device 0. */
void dev_open_devices(int count);
void dev_open_peers(int count);
void dev_join_device(int number); /* of those: as dev_join(), which joins device 0 */
CUcontext dev_context(int number);

/* Ends the program with one line and exit code 1 unless the result is CUDA_SUCCESS. */
void dev_check(CUresult result, const char *what);

/* True on the software driver: programs take smaller sizes there, because its kernels run on the CPU. */
bool dev_is_simulated(void);

CUdeviceptr dev_alloc(uint64_t bytes);                      /* through the door; counted */
void dev_free(CUdeviceptr block);                           /* through the door; counted */
bool dev_try_alloc(uint64_t bytes, CUdeviceptr *out_block); /* as dev_alloc(); false when out of memory */

/* Stream-ordered memory instead, uncounted. The pool of the joined device keeps what is freed. */
void dev_open_async(void);
CUdeviceptr dev_alloc_async(uint64_t bytes, CUstream stream);
void dev_free_async(CUdeviceptr block, CUstream stream);

CUstream dev_stream(void);        /* a new stream that the legacy stream does not wait for */
void dev_record(CUstream stream); /* an event behind what was submitted to it; nobody looks at it */
void dev_sync(void);              /* all work of the context */
void dev_stream_sync(CUstream stream);
void *dev_host_alloc(uint64_t bytes);                      /* pinned; lives until the end of the process */
void dev_read(void *to, CUdeviceptr from, uint64_t bytes); /* blocks */
void dev_read_async(void *to, CUdeviceptr from, uint64_t bytes, CUstream stream); /* to is pinned */
void dev_zero(CUdeviceptr block, uint64_t bytes, CUstream stream);

/* Kernels, all asynchronous on stream: see kernels.cu. */
void dev_fill(CUdeviceptr block, uint64_t bytes, uint64_t seed, CUstream stream);
void dev_verify(CUdeviceptr block, uint64_t bytes, uint64_t seed, CUdeviceptr mismatches, CUstream stream);
void dev_hash(CUdeviceptr block, uint64_t bytes, CUdeviceptr out, CUstream stream);
void dev_copy(CUdeviceptr to, CUdeviceptr from, uint64_t bytes, CUstream stream);
void dev_spin(uint64_t us, CUstream stream);
/* The most groups of 256 threads of each of these; 132 at first. Before there are threads that launch. */
void dev_limit_groups(unsigned groups);

/* Launches go to the driver's own entry point, past whatever is preloaded; false: as ever. Not for threads at once. */
void dev_launch_bare(bool is_bare);
/* Waits us on the device, then fills. The software driver takes two kernels for it. */
void dev_late_fill(CUdeviceptr block, uint64_t bytes, uint64_t seed, uint64_t us, CUstream stream);
/* Many blocks in one launch; the software driver takes a kernel for the delay and one for each block. A
 * programmatic fill may start before the kernel in front of it has ended. */
void dev_batch_fill(const dev_batch_t *batch, CUstream stream, bool is_programmatic);
void dev_batch_verify(const dev_batch_t *batch, CUstream stream);

double dev_now_s(void);
double dev_median(double *values, int count); /* sorts values */

typedef struct dev_option {
    const char *name; /* "--steps" */
    uint64_t *value;  /* 0 before: "as the program finds right" */
} dev_option_t;

/* Reads "--steps 40 --bytes 4m" (suffixes k, m, g). Anything unknown: a line of usage and exit code 2. */
void dev_options(int argc, char **argv, const dev_option_t *options, int count);

uint64_t dev_violations(void); /* of the overlap detector of the software driver; 0 on a real one */

/* The program's last line, which compare.py reads; allocation counts are those of dev_alloc and
 * dev_free. */
void dev_report(const char *name, double time_s, uint64_t passes, uint64_t hash);

#endif /* CUP_BENCH_DEV_H */
