/* SPDX-License-Identifier: Apache-2.0 */
/*
 * softcuda - control of the software driver, for tests.
 * What:       counts, injected failures, limits, the overlap detector: exported by the software
 *             libcuda.so.1.
 * Not here:   the CUDA API (cuda.h), claim.h for programs that also run on a real driver, pattern.h.
 * Threads:    any thread.
 *
 * Built-in kernels: an image for cuModuleLoadData is the text "softcuda\n", alone (every kernel) or followed
 * by names, one a line. Any grid and block will do. Every argument is 8 bytes wide, but for u32 and float:
 *
 *   fill(u64 *ptr, u64 bytes, u64 seed)                 writes the pattern of pattern.h
 *   verify(u64 *ptr, u64 bytes, u64 seed, u64 *wrong)   adds the number of wrong words to *wrong
 *   hash(u64 *ptr, u64 bytes, u64 *out)                 adds the hash of pattern.h to *out
 *   copy(void *dst, void *src, u64 bytes)               copies
 *   late_fill(u64 *ptr, u64 bytes, u64 seed, u64 us)    takes that many microseconds, then fills
 *   held_fill(u64 *ptr, u64 bytes, u64 seed, u32 *gate)
 *                                                       *gate = 1, waits for *gate == 2 (pinned), fills
 *   spin(u64 microseconds)                              takes that long
 *   spin_until(u32 *flag, u32 value)                    ends when *flag == value; flag is pinned host memory
 *   chase(u64 *ptr, u64 words, u64 steps, u64 *out)     i = 0, steps times i = ptr[i % words]; *out = i
 *   axpy(float *y, float *x, u64 n, float a)            y[i] += a * x[i]
 *
 * Built-in variables, for cuModuleGetGlobal, 4,096 bytes each, in an image that names them: device_words, and
 * managed_words (as __managed__).
 *
 * Environment, read by cuInit unless said:
 *
 *   SOFTCUDA_DEVICES    1           devices
 *   SOFTCUDA_MEMORY     4294967296  bytes of a device
 *   SOFTCUDA_SEED       1           of the delays
 *   SOFTCUDA_DELAY_US   200         the longest delay before an operation; 0: none
 *   SOFTCUDA_LATENCY                "h200": calls and operations take that GPU's time (latency_list.h), and
 *                                   the delay is 0 unless it is set
 *   SOFTCUDA_ATTRIBUTES             values of device attributes by number ("20=3,103=0"), of every device; read by
 *                                   each query
 *   SOFTCUDA_MISSING                names that look-ups deny, comma between; read by each look-up
 *   SOFTCUDA_STRICT     0           1: a line on stderr at exit when there were violations
 */
#ifndef SOFTCUDA_H
#define SOFTCUDA_H
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* [addr, addr + size_bytes) has a new owner from now on: a new generation of that range. See claim.h. */
void softcuda_claim(uint64_t addr, uint64_t size_bytes);

/* Operations that began while an unfinished one of an older generation touched the same bytes, and
 * mappings taken away while an unfinished operation touched them; of these, the second kind. */
uint64_t softcuda_violations(void);
uint64_t softcuda_unmap_violations(void);

/* Claims made while operations on those bytes were unfinished: legal where later work runs after them. */
uint64_t softcuda_claims_in_flight(void);

/* Calls of one entry point by exported symbol ("cuMemAlloc_v2"), 0 for one that does not exist; of all but those that only
 * refuse. */
uint64_t softcuda_calls(const char *symbol);
uint64_t softcuda_total_calls(void);

/* Sets call counts, violations and claims to zero, and forgets injected failures. */
void softcuda_reset_counters(void);

/* The nth call of symbol from now on (1 is the next) returns code without effect, once. nth 0: none. Returns
 * 0, or -1 for an unknown symbol. */
int softcuda_fail_nth(const char *symbol, uint64_t nth, int code);

/* Bytes of every device from now on: what is held stays. */
void softcuda_set_memory(uint64_t bytes);

/* Device bytes held: whole 2 MiB blocks, as the driver takes them, and handles of cuMemCreate until they
 * are released and unmapped; of all devices. Bytes of addresses that something is mapped at. Live
 * allocations by cuMemAlloc and kin. */
uint64_t softcuda_held_bytes(void);
uint64_t softcuda_mapped_bytes(void);
uint64_t softcuda_live_allocations(void);

/* From now on every call answers CUDA_ERROR_DEINITIALIZED, as in a process that is exiting. */
void softcuda_deinit(void);

/* An asynchronous error: later calls of the context (a CUcontext; NULL: the current one) return code. */
void softcuda_stick(void *context, int code);

/*
 * Waits for the context's work and takes the asynchronous error away that it left, if any: the code. As no
 * driver can: for tests that ask often who reaches what, and which no call of theirs may tell of it.
 */
int softcuda_heal(void *context);

/* A call that ends a context takes that much longer from now on: after the memory is gone, before it returns. */
void softcuda_linger(uint64_t us);

/* The device's primary context is reset behind the back of whoever watches the entry points. */
void softcuda_reset_unseen(int device);

/* What the latency model takes for a row of latency_list.h ("CREATE") and a size, whether it is on or
 * not; 0 for a name that is not there. */
uint64_t softcuda_latency_ns(const char *name, uint64_t size_bytes);

/* The stream (a CUstream; NULL: the legacy one of the current context) begins no operation until it is
 * released: what is submitted is certainly in flight. 0, or -1 for a stream that is not there. The hold is
 * the work's, not the handle's: it outlives cuStreamDestroy, and release(handle) ends it then too, with those
 * of all streams that had the handle. Sixty seconds at most. */
int softcuda_hold(void *stream);
void softcuda_release(void *stream);

/* Operations submitted and not finished, of every context. */
uint64_t softcuda_unfinished(void);

#ifdef __cplusplus
}
#endif
#endif /* SOFTCUDA_H */
