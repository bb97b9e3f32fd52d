/* SPDX-License-Identifier: Apache-2.0 */
/*
 * assert - what must hold by construction.
 * What:       CUP_ASSERT traps in debug builds; in release builds it is neither evaluated nor printed: a
 *             guest never ends its host.
 * Not here:   errors that can really happen (cup_status_t).
 */
#ifndef CUP_ALLOCATOR_ASSERT_H
#define CUP_ALLOCATOR_ASSERT_H

#ifdef NDEBUG
#define CUP_ASSERT(cond) ((void)sizeof(!(cond)))
#else
#define CUP_ASSERT(cond) ((cond) ? (void)0 : __builtin_trap())
#endif

#endif /* CUP_ALLOCATOR_ASSERT_H */
