/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hook_doubt - stubs for entry points of the driver that nobody has classified.
 * What:       a stub calls cup_route_doubt() and jumps to the real function with the arguments as they
 *             came: whatever its signature. It tells when it is called, not when it is looked up: runtimes
 *             look up all that there is.
 * Invariants: one real address has one stub, for ever.
 * Threads:    any thread; takes no lock, allocates nothing.
 */
#ifndef CUP_PRELOAD_HOOK_DOUBT_H
#define CUP_PRELOAD_HOOK_DOUBT_H

/* The stub in front of real, which was looked up as name (kept, cut after 63 characters); real itself when there are no more stubs: then its calls go by us. */
void *cup_hook_doubt(const char *name, void *real);

#endif /* CUP_PRELOAD_HOOK_DOUBT_H */
