/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spanmap - from any address of the process to its chunk and its span.
 * What:       one radix tree over 57 address bits for all pools. A slot per 2 MiB of address space knows the
 *             chunk; a leaf behind it, for shared chunks only, knows spans by 4 KiB granule: the first
 *             granule of every span, all of a slab's.
 * Not here:   what is at the address inside a span (pool.c).
 * Invariants: nodes are never freed and never move, so readers need no lock; slots of a chunk are written by
 *             its pool under the pool's lock, and no two chunks share a slot (CUP_CHUNK_ALIGN).
 * Threads:    look-ups from any thread: a few loads. Growth takes CUP_LOCK_SPANMAP. What a span entry points
 *             to may be read only under the pool's lock.
 *
 *   bit 56           45 44           33 32           21 20           12 11         0
 *      |  root: 4096   |  middle: 4096 |  slots: 4096  |   leaf: 512   |  granule    |
 */
#ifndef CUP_ALLOCATOR_SPANMAP_H
#define CUP_ALLOCATOR_SPANMAP_H
#include "allocator/span.h"

/* Addresses from here on are nobody's. */
#define CUP_SPANMAP_LIMIT ((cup_addr_t)1 << 57)

/*
 * Makes the nodes for a range, with leaves if it will be cut into spans; changes no answer. The range starts
 * and ends on CUP_CHUNK_ALIGN. Errors: CUP_ERR_NOMEM; CUP_ERR_INVALID beyond the limit.
 */
cup_status_t cup_spanmap_cover(cup_addr_t base, uint64_t size_bytes, bool has_spans);

/* The chunk starts or stops answering. It was covered; its span entries are gone when it is withdrawn. */
void cup_spanmap_publish(cup_chunk_t *chunk);
void cup_spanmap_withdraw(cup_chunk_t *chunk);

/*
 * The same for a part of a range: what is published was covered, and may have been published before; what is
 * withdrawn need not have been.
 */
void cup_spanmap_publish_part(cup_chunk_t *chunk, cup_addr_t base, uint64_t size_bytes);
void cup_spanmap_withdraw_part(cup_chunk_t *chunk, cup_addr_t base, uint64_t size_bytes);

/* The chunk whose range contains addr, or NULL. Lock-free; it may be recycled by the time it is looked at. */
cup_chunk_t *cup_spanmap_chunk(cup_addr_t addr);

/* Sets or clears (NULL) the entries of the granules in a range of a shared chunk. Never fails: it is covered.
 */
void cup_spanmap_set(cup_addr_t base, uint64_t size_bytes, cup_span_t *span);

/* The entry of the granule that contains addr, or NULL. */
cup_span_t *cup_spanmap_at(cup_addr_t addr);

/*
 * The entry at addr's granule or the nearest one below it, down to floor. Slots without an entry are skipped
 * in one step, so a block of n bytes costs at most n / 2 MiB + 512 steps.
 */
cup_span_t *cup_spanmap_below(cup_addr_t addr, cup_addr_t floor);

/* How many entries the 2 MiB around addr have, by the count kept and by counting: for check.c. */
void cup_spanmap_count(cup_addr_t addr, uint32_t *out_kept, uint32_t *out_counted);

#endif /* CUP_ALLOCATOR_SPANMAP_H */
