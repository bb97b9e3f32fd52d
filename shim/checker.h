/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checker - is this process watched by a tool that must see each allocation?
 * What:       compute-sanitizer (memcheck, initcheck, ...) and cuda-gdb tell an overrun by the bounds of
 *             driver allocations: in a chunk of ours they would be blind.
 * Not here:   profilers (ncu, nsys, CUPTI): they watch, and the pool works under them. What follows
 *             (gate.c).
 * Threads:    once, in the gate's start. Takes the loader's lock: to be called with none of ours that the
 *             loader may meet.
 */
#ifndef CUP_SHIM_CHECKER_H
#define CUP_SHIM_CHECKER_H

/* By what the checker was recognised, as text for people; NULL: none. Calls no driver function. */
const char *cup_checker_find(char *const *environment);

#endif /* CUP_SHIM_CHECKER_H */
