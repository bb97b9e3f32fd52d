/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check - a checker that finds nothing proves nothing: each row breaks one invariant of a healthy pool from
 * inside, expects it to be named, and mends it again.
 */
#include <string.h>

#include "allocator/pool_fields.h"
#include "allocator/spanmap.h"
#include "tests/support/fake_provider.h"
#include "tests/support/unit.h"

static cup_fake_provider_t fake;

/* guard | slab of 4 KiB: one live, two in limbo | hole | block | free;  a live and a cached dedicated chunk
 */
typedef struct patient {
    cup_pool_t *pool;
    cup_pool_fields_t *f;
    cup_span_t *slab, *hole, *block, *dedicated, *cached;
    cup_addr_t limbo[2];
} patient_t;

/* X(what is broken, how, how it is mended, the start of what must be said) */
#define INJURY_LIST(X)                                                                                       \
    X(span_base, p->block->base += 4096, p->block->base -= 4096, "chunk: spans do not tile it")              \
    X(span_size, p->block->size_bytes -= 4096, p->block->size_bytes += 4096, "span: smaller")                \
    X(span_links, p->block->prev = p->slab, p->block->prev = p->hole, "span: links")                         \
    X(span_request, p->block->requested_bytes = 0, p->block->requested_bytes = 100000, "span: smaller")      \
    X(span_void, p->block->state = CUP_SPAN_VOID, p->block->state = CUP_SPAN_BLOCK, "span: void")            \
    X(unmerged, p->block->state = CUP_SPAN_FREE, p->block->state = CUP_SPAN_BLOCK, "free span: not merged")  \
    X(free_tree, cup_tree_remove(&p->f->arena.free, p->hole), cup_tree_insert(&p->f->arena.free, p->hole),   \
      "free span: not in the tree")                                                                          \
    X(tree_count, p->f->arena.free.count++, p->f->arena.free.count--, "tree: count")                         \
    X(tree_extra, cup_tree_insert(&p->f->cached, p->dedicated),                                              \
      cup_tree_remove(&p->f->cached, p->dedicated), "dedicated: cached exactly when free")                   \
    X(slab_bit, p->slab->slab->free[0] ^= 2, p->slab->slab->free[0] ^= 2, "slab: counts")                    \
    X(slab_both, p->slab->slab->free[0] ^= 1, p->slab->slab->free[0] ^= 1, "slab: a block is free and live") \
    X(slab_end, p->slab->slab->live[1] ^= 1, p->slab->slab->live[1] ^= 1, "slab: a block behind the last")   \
    X(slab_count, p->slab->slab->blocks_live++, p->slab->slab->blocks_live--, "slab: counts")                \
    X(slab_request, p->slab->slab->requested_minus_1[0] += 9999,                                             \
      p->slab->slab->requested_minus_1[0] -= 9999, "slab: a block smaller than its request")                 \
    X(bin_lowest, p->f->bins[7].lowest = NULL, p->f->bins[7].lowest = p->slab, "bin: the lowest slab")       \
    X(kept, p->f->bins[7].kept = p->slab, p->f->bins[7].kept = NULL, "slab: kept exactly when empty")        \
    X(kept_bytes, p->f->kept_bytes++, p->f->kept_bytes--, "counters: kept slabs")                            \
    X(map_start, cup_spanmap_set(p->block->base, 4096, NULL),                                                \
      cup_spanmap_set(p->block->base, 4096, p->block), "map: a span's first granule")                        \
    X(map_inside, cup_spanmap_set(p->block->base + 4096, 4096, p->block),                                    \
      cup_spanmap_set(p->block->base + 4096, 4096, NULL), "map: a granule inside a span")                    \
    X(map_slab, cup_spanmap_set(p->slab->base + 8192, 4096, NULL),                                           \
      cup_spanmap_set(p->slab->base + 8192, 4096, p->slab), "map: a granule inside a span")                  \
    X(map_chunk, cup_spanmap_withdraw(p->dedicated->chunk), cup_spanmap_publish(p->dedicated->chunk),        \
      "map: a slot of a chunk")                                                                              \
    X(chunk_pool, cup_chunk_set_pool(p->block->chunk, NULL), cup_chunk_set_pool(p->block->chunk, p->pool),   \
      "chunk: of another pool")                                                                              \
    X(idle, p->cached->chunk->is_idle = false, p->cached->chunk->is_idle = true, "dedicated: idle exactly")  \
    X(idle_list, TAILQ_REMOVE(&p->f->idle, p->cached->chunk, idle),                                          \
      TAILQ_INSERT_TAIL(&p->f->idle, p->cached->chunk, idle), "idle list: a chunk is missing")               \
    X(limbo_count, p->f->limbo.count--, p->f->limbo.count++, "limbo: not as many")                           \
    X(limbo_room, p->f->limbo.capacity = 4, p->f->limbo.capacity = 256, "limbo: a free would have to")       \
    X(limbo_addr, p->f->limbo.ring[0].addr -= 4096, p->f->limbo.ring[0].addr += 4096, "limbo: an entry")     \
    X(limbo_twice, p->f->limbo.ring[0].addr = p->limbo[1], p->f->limbo.ring[0].addr = p->limbo[0],           \
      "limbo: a block twice")                                                                                \
    X(limbo_stamp, p->f->limbo.oldest = 9, p->f->limbo.oldest = 3, "limbo: the oldest stamp")                \
    X(footprint, p->f->stat.footprint_bytes -= 4096, p->f->stat.footprint_bytes += 4096,                     \
      "counters: footprint")                                                                                 \
    X(chunks, p->f->stat.chunks--, p->f->stat.chunks++, "counters: chunks")                                  \
    X(live_blocks, p->f->stat.live_blocks--, p->f->stat.live_blocks++, "counters: live blocks")              \
    X(live_bytes, p->f->stat.live_bytes--, p->f->stat.live_bytes++, "counters: live bytes")                  \
    X(limbo_blocks, p->f->stat.limbo_blocks--, p->f->stat.limbo_blocks++, "counters: limbo blocks")          \
    X(limbo_bytes, p->f->stat.limbo_bytes--, p->f->stat.limbo_bytes++, "counters: limbo bytes")              \
    X(cached_bytes, p->f->stat.cached_dedicated_bytes--, p->f->stat.cached_dedicated_bytes++,                \
      "counters: cached")                                                                                    \
    X(free_bytes, p->f->arena.free_bytes--, p->f->arena.free_bytes++, "counters: free bytes")                \
    X(slab_free, p->f->slab_free_bytes--, p->f->slab_free_bytes++, "counters: free bytes in slabs")

static cup_addr_t grow(cup_pool_t *pool, uint64_t size_bytes)
{
    cup_addr_t addr = 0;
    if (cup_pool_alloc(pool, size_bytes, &addr) != CUP_OK)
        CHECK_EQ(cup_pool_grow(pool, size_bytes, true, &addr), CUP_OK);
    return addr;
}

static void set_up(patient_t *p)
{
    cup_pool_conf_t conf = {.dedicated_bytes = 2 * CUP_MIB};
    cup_fake_init(&fake, CUP_GIB);
    cup_provider_t ops = cup_fake_ops(&fake);
    CHECK_EQ(cup_pool_create(&conf, &ops, &p->pool), CUP_OK);
    p->f = &p->pool->f;
    p->slab = cup_spanmap_at(grow(p->pool, 4096));
    p->limbo[0] = grow(p->pool, 4096);
    p->limbo[1] = grow(p->pool, 4096);
    p->block = cup_spanmap_at(grow(p->pool, 100000));
    p->hole = p->block->prev;
    p->dedicated = cup_spanmap_chunk(grow(p->pool, 4 * CUP_MIB))->first;
    p->cached = cup_spanmap_chunk(grow(p->pool, 6 * CUP_MIB))->first;
    CHECK_EQ(cup_pool_free(p->pool, p->cached->base, 0, NULL), CUP_OK);
    CHECK_EQ(cup_pool_free(p->pool, p->limbo[0], 3, NULL), CUP_OK);
    CHECK_EQ(cup_pool_free(p->pool, p->limbo[1], 4, NULL), CUP_OK);
    CHECK_SOUND(cup_pool_check(p->pool));
}

static void expect(patient_t *p, const char *name, const char *text)
{
    const char *said = cup_pool_check(p->pool);
    CHECK_MSG(said, "%s: not found out", name);
    CHECK_MSG(strncmp(said, text, strlen(text)) == 0, "%s: said '%s', not '%s'", name, said, text);
}

TEST(check, finds_each_injury)
{
    patient_t patient, *p = &patient;
    set_up(p);
#define X(name, hurt, mend, text) \
    hurt;                         \
    expect(p, #name, text);       \
    mend;                         \
    CHECK_SOUND(cup_pool_check(p->pool));
    INJURY_LIST(X)
#undef X
    cup_pool_destroy(p->pool);
}

TEST(check, an_empty_pool_is_one_that_holds_nothing)
{
    patient_t p;
    set_up(&p);
    CHECK(cup_pool_check_empty(p.pool));
    CHECK_EQ(cup_pool_free(p.pool, p.slab->base, 4, NULL), CUP_OK);
    CHECK_EQ(cup_pool_free(p.pool, p.dedicated->base, 4, NULL), CUP_OK);
    CHECK_EQ(cup_pool_free(p.pool, p.block->base, 5, NULL), CUP_OK);
    cup_pool_complete(p.pool, 4);
    CHECK(cup_pool_check_empty(p.pool));
    cup_pool_complete(p.pool, 5);
    CHECK_SOUND(cup_pool_check_empty(p.pool));
    cup_pool_destroy(p.pool);
}

/* ---- ranges ---- */

/* block | hole of two places | block | free | the unused end */
typedef struct range_patient {
    cup_pool_t *pool;
    cup_range_t *r;
    cup_span_t *first, *hole, *block, *rest, *end;
} range_patient_t;

#define RANGE_INJURY_LIST(X)                                                                                 \
    X(tiling, p->block->base += 4096, p->block->base -= 4096, "range: spans do not tile it")                 \
    X(links, p->block->prev = p->first, p->block->prev = p->hole, "span: links")                             \
    X(state, p->block->state = CUP_SPAN_GUARD, p->block->state = CUP_SPAN_BLOCK,                             \
      "range: a span of no such state")                                                                      \
    X(unmerged, p->block->state = CUP_SPAN_FREE, p->block->state = CUP_SPAN_BLOCK,                           \
      "range: two vacant neighbours")                                                                        \
    X(free_tree, cup_tree_remove(&p->r->arena.free, p->rest), cup_tree_insert(&p->r->arena.free, p->rest),   \
      "free span: not in the tree")                                                                          \
    X(hole_tree, cup_tree_remove(&p->r->holes, p->hole), cup_tree_insert(&p->r->holes, p->hole),             \
      "hole: not in the tree")                                                                               \
    X(tree_count, p->r->holes.count++, p->r->holes.count--, "tree: count")                                   \
    X(hole_backed, p->r->handle[3].is_backed = p->r->handle[3].is_next = true,                               \
      p->r->handle[3].is_backed = p->r->handle[3].is_next = false, "hole: a place with memory")              \
    X(block_hollow, p->r->handle[5].is_backed = p->r->handle[5].is_next = false,                             \
      p->r->handle[5].is_backed = p->r->handle[5].is_next = true, "span: a place without memory")            \
    X(half, p->r->handle[5].is_next = false, p->r->handle[5].is_next = true, "range: a place half changed")  \
    X(is_new, p->r->handle[5].is_new = true, p->r->handle[5].is_new = false, "range: a place half changed")  \
    X(ever, p->r->ever_bytes -= CUP_CHUNK_ALIGN, p->r->ever_bytes += CUP_CHUNK_ALIGN, "range: memory above") \
    X(backed, p->r->backed_bytes += 4096, p->r->backed_bytes -= 4096, "range: its handles are not")          \
    X(free_bytes, p->r->arena.free_bytes++, p->r->arena.free_bytes--, "range: free bytes")                   \
    X(map_free, cup_spanmap_set(p->rest->base, 4096, NULL), cup_spanmap_set(p->rest->base, 4096, p->rest),   \
      "map: a span's first granule")                                                                         \
    X(map_chunk, cup_chunk_set_pool(p->r->chunk, NULL), cup_chunk_set_pool(p->r->chunk, p->pool),            \
      "range: of another pool")                                                                              \
    X(footprint, p->pool->f.stat.footprint_bytes++, p->pool->f.stat.footprint_bytes--, "counters: footprint")

static void set_up_range(range_patient_t *p)
{
    cup_pool_conf_t conf = {.range_bytes = CUP_GIB, .slack_floor_bytes = CUP_GIB};
    cup_fake_init(&fake, CUP_GIB);
    cup_provider_t ops = cup_fake_range_ops(&fake);
    CHECK_EQ(cup_pool_create(&conf, &ops, &p->pool), CUP_OK);
    p->r = &p->pool->f.range[CUP_RANGE_LARGE];
    p->first = cup_spanmap_at(grow(p->pool, 4 * CUP_MIB));
    cup_addr_t gone = grow(p->pool, 4 * CUP_MIB);
    p->block = cup_spanmap_at(grow(p->pool, 5 * CUP_MIB));
    CHECK_EQ(cup_pool_free(p->pool, gone, 0, NULL), CUP_OK);
    CHECK_EQ(cup_pool_trim(p->pool, UINT64_MAX), 4 * CUP_MIB);
    p->hole = p->block->prev;
    p->rest = p->block->next;
    p->end = p->rest->next;
    CHECK(p->hole->state == CUP_SPAN_HOLE && p->end->state == CUP_SPAN_HOLE);
    CHECK_SOUND(cup_pool_check(p->pool));
}

static void expect_range(range_patient_t *p, const char *name, const char *text)
{
    const char *said = cup_pool_check(p->pool);
    CHECK_MSG(said, "%s: not found out", name);
    CHECK_MSG(strncmp(said, text, strlen(text)) == 0, "%s: said '%s', not '%s'", name, said, text);
}

TEST(check, finds_each_injury_of_a_range)
{
    range_patient_t patient, *p = &patient;
    set_up_range(p);
#define X(name, hurt, mend, text) \
    hurt;                         \
    expect_range(p, #name, text); \
    mend;                         \
    CHECK_SOUND(cup_pool_check(p->pool));
    RANGE_INJURY_LIST(X)
#undef X
    CHECK(cup_pool_check_empty(p->pool));
    CHECK_EQ(cup_pool_free(p->pool, p->first->base, 0, NULL), CUP_OK);
    CHECK_EQ(cup_pool_free(p->pool, p->block->base, 0, NULL), CUP_OK);
    CHECK_SOUND(cup_pool_check_empty(p->pool));
    cup_pool_destroy(p->pool);
}
