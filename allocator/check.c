/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check - how: one walk over the chunks adds up what it sees; the trees, the limbo and the counters must
 * then agree with the sums. Each function returns the first broken invariant, or NULL. For tests and for a
 * doubtful moment in debug builds: O(everything), under the lock.
 */
#include "allocator/pool_fields.h"
#include "allocator/spanmap.h"

#define EXPECT(cond, text) \
    do {                   \
        if (!(cond))       \
            return (text); \
    } while (0)

/* What the walk has seen. Limbo addresses are summed, so that a block that is in the ring twice shows. */
typedef struct tally {
    uint64_t footprint_bytes, chunks, idle_chunks;
    uint64_t free_bytes, free_spans, hole_spans;
    uint64_t cached_bytes, cached_spans;
    uint64_t live_bytes, live_blocks;
    uint64_t limbo_bytes, limbo_blocks, limbo_addr_sum;
    uint64_t quarantined_bytes, quarantined_blocks;
    uint64_t slab_free_bytes, kept_bytes;
    uint64_t open_slabs[CUP_SIZE_CLASS_COUNT];
} tally_t;

static bool is_vacant(const cup_span_t *span)
{
    return span->state == CUP_SPAN_FREE || span->state == CUP_SPAN_HOLE;
}

static bool is_in_tree(const cup_tree_t *tree, const cup_span_t *span)
{
    return cup_tree_find(tree, span->size_bytes, span->base) == span;
}

static void add_live(tally_t *tally, uint64_t requested_bytes)
{
    tally->live_blocks++;
    tally->live_bytes += requested_bytes;
}

static void add_limbo(tally_t *tally, cup_addr_t addr, uint64_t occupied_bytes)
{
    tally->limbo_blocks++;
    tally->limbo_bytes += occupied_bytes;
    tally->limbo_addr_sum += addr;
}

static void add_quarantined(tally_t *tally, uint64_t occupied_bytes)
{
    tally->quarantined_blocks++;
    tally->quarantined_bytes += occupied_bytes;
}

/* A block of a slab that is neither free nor live. */
static bool is_held(const cup_slab_t *slab, uint32_t block)
{
    return slab->marks[block] & CUP_MARK_HOLDS;
}

static const char *check_slab(cup_pool_fields_t *f, const cup_span_t *span, tally_t *tally)
{
    const cup_slab_t *slab = span->slab;
    EXPECT(slab && slab->class_index < CUP_SIZE_CLASS_COUNT, "slab: without its bookkeeping");
    const cup_size_class_t *class = &cup_size_classes[slab->class_index];
    uint32_t blocks_free = 0, blocks_live = 0;
    EXPECT(span->size_bytes == class->slab_bytes, "slab: not of its class's size");
    EXPECT(slab->block_bytes == class->block_bytes && slab->blocks == class->slab_blocks,
           "slab: not its class's blocks");
    for (uint32_t i = 0; i < CUP_SIZE_SLAB_BLOCKS_MAX; i++) {
        bool is_free = cup_slab_bit(slab->free, i), is_live = cup_slab_bit(slab->live, i);
        EXPECT(!(is_free && is_live), "slab: a block is free and live");
        EXPECT(i < slab->blocks || !(is_free || is_live), "slab: a block behind the last one");
        blocks_free += is_free;
        blocks_live += is_live;
        if (is_live) {
            EXPECT(cup_slab_requested(slab, i) <= slab->block_bytes,
                   "slab: a block smaller than its request");
            add_live(tally, cup_slab_requested(slab, i));
        } else if (i < slab->blocks && !is_free && is_held(slab, i)) {
            add_quarantined(tally, slab->block_bytes);
        } else if (i < slab->blocks && !is_free) {
            add_limbo(tally, cup_slab_addr(span, i), slab->block_bytes);
        }
    }
    EXPECT(blocks_free == slab->blocks_free && blocks_live == slab->blocks_live,
           "slab: counts are not its bits");
    EXPECT((blocks_free == slab->blocks) == (f->bins[slab->class_index].kept == span),
           "slab: kept exactly when empty");
    EXPECT((blocks_free > 0) == is_in_tree(&f->bins[slab->class_index].open, span), "slab: bin membership");
    if (blocks_free == slab->blocks)
        tally->kept_bytes += span->size_bytes;
    else
        tally->slab_free_bytes += (uint64_t)blocks_free * slab->block_bytes;
    tally->open_slabs[slab->class_index] += blocks_free > 0;
    return NULL;
}

static const char *check_block(const cup_span_t *span, tally_t *tally)
{
    EXPECT(span->requested_bytes > 0 && span->requested_bytes <= span->size_bytes,
           "span: smaller than its request");
    if (span->state == CUP_SPAN_BLOCK)
        add_live(tally, span->requested_bytes);
    else if (span->state == CUP_SPAN_HELD)
        add_quarantined(tally, span->size_bytes);
    else
        add_limbo(tally, span->base, span->size_bytes);
    return NULL;
}

static const char *check_shared_span(cup_pool_fields_t *f, const cup_span_t *span, tally_t *tally)
{
    switch (span->state) {
    case CUP_SPAN_GUARD:
        EXPECT(!span->prev && span->size_bytes == CUP_SPAN_GUARD_BYTES, "guard: not the first granule");
        return NULL;
    case CUP_SPAN_FREE:
        EXPECT(!span->next || span->next->state != CUP_SPAN_FREE, "free span: not merged with its neighbour");
        EXPECT(is_in_tree(&f->arena.free, span), "free span: not in the tree");
        tally->free_bytes += span->size_bytes;
        tally->free_spans++;
        return NULL;
    case CUP_SPAN_SLAB:
        return check_slab(f, span, tally);
    case CUP_SPAN_BLOCK:
    case CUP_SPAN_LIMBO:
    case CUP_SPAN_HELD:
        return check_block(span, tally);
    default:
        return "span: void inside a chunk";
    }
}

/* The first granule always, the others only of a slab; none of what has no memory or is on its way. */
static const char *check_map(const cup_span_t *span)
{
    EXPECT(cup_spanmap_at(span->base) == span, "map: a span's first granule");
    const cup_span_t *inner = span->state == CUP_SPAN_SLAB ? span : NULL;
    for (uint64_t at = CUP_SIZE_GRANULE; at < span->size_bytes; at += CUP_SIZE_GRANULE)
        EXPECT(cup_spanmap_at(span->base + at) == inner, "map: a granule inside a span");
    return NULL;
}

static const char *check_shared_chunk(cup_pool_fields_t *f, cup_chunk_t *chunk, tally_t *tally)
{
    cup_addr_t at = cup_chunk_base(chunk), end = at + cup_chunk_bytes(chunk);
    const cup_span_t *prev = NULL;
    EXPECT(chunk->first && chunk->first->state == CUP_SPAN_GUARD, "chunk: without its guard");
    for (const cup_span_t *span = chunk->first; span; prev = span, span = span->next) {
        EXPECT(span->base == at && span->size_bytes > 0, "chunk: spans do not tile it");
        EXPECT(span->prev == prev && span->chunk == chunk, "span: links");
        at += span->size_bytes;
        EXPECT(at <= end, "chunk: a span crosses its end");
        const char *broken = check_shared_span(f, span, tally);
        broken = broken ? broken : check_map(span);
        EXPECT(!broken, broken);
    }
    EXPECT(at == end, "chunk: spans end before it does");
    for (at = cup_chunk_base(chunk); at < end; at += CUP_CHUNK_ALIGN) {
        uint32_t kept, counted;
        cup_spanmap_count(at, &kept, &counted);
        EXPECT(kept == counted, "map: a slot's count of entries");
    }
    EXPECT(chunk->is_idle == cup_arena_is_whole(chunk), "chunk: idle exactly when wholly free");
    return NULL;
}

static const char *check_dedicated_chunk(cup_pool_fields_t *f, cup_chunk_t *chunk, tally_t *tally)
{
    const cup_span_t *span = chunk->first;
    EXPECT(span && !span->prev && !span->next && span->chunk == chunk, "dedicated: not one span");
    EXPECT(span->base == cup_chunk_base(chunk) && span->size_bytes == cup_chunk_bytes(chunk),
           "dedicated: not its chunk");
    EXPECT(chunk->is_idle == (span->state == CUP_SPAN_FREE), "dedicated: idle exactly when free");
    EXPECT(chunk->is_idle == is_in_tree(&f->cached, span), "dedicated: cached exactly when free");
    if (span->state == CUP_SPAN_FREE) {
        tally->cached_bytes += span->size_bytes;
        tally->cached_spans++;
        return NULL;
    }
    EXPECT(span->state == CUP_SPAN_BLOCK || span->state == CUP_SPAN_LIMBO || span->state == CUP_SPAN_HELD,
           "dedicated: state");
    return check_block(span, tally);
}

static const char *check_chunks(cup_pool_t *pool, tally_t *tally)
{
    cup_chunk_t *chunk;
    TAILQ_FOREACH(chunk, &pool->f.chunks, all)
    {
        EXPECT(cup_chunk_pool(chunk) == pool, "chunk: of another pool");
        for (uint64_t at = 0; at < cup_chunk_bytes(chunk); at += CUP_CHUNK_ALIGN)
            EXPECT(cup_spanmap_chunk(cup_chunk_base(chunk) + at) == chunk, "map: a slot of a chunk");
        const char *broken = chunk->is_dedicated ? check_dedicated_chunk(&pool->f, chunk, tally)
                                                 : check_shared_chunk(&pool->f, chunk, tally);
        EXPECT(!broken, broken);
        tally->chunks++;
        tally->footprint_bytes += cup_chunk_bytes(chunk);
        tally->idle_chunks += chunk->is_idle;
    }
    return NULL;
}

/* In order, with as many spans as it says: the walk has found each of its spans in it already. */
static const char *check_tree(const cup_tree_t *tree, uint64_t spans)
{
    uint64_t count = 0;
    const cup_span_t *prev = NULL;
    for (const cup_span_t *span = cup_tree_find(tree, 0, 0); span; span = cup_tree_next(tree, span)) {
        EXPECT(!prev || prev->size_bytes < span->size_bytes ||
                   (prev->size_bytes == span->size_bytes && prev->base < span->base),
               "tree: order");
        EXPECT(++count <= spans, "tree: more spans than there are");
        prev = span;
    }
    EXPECT(count == spans && tree->count == spans, "tree: count");
    return NULL;
}

/* ---- ranges ---- */

static const char *check_place(const cup_range_t *range, size_t place, bool is_ours)
{
    const cup_handle_t *handle = &range->handle[place];
    cup_addr_t base = cup_range_place_base(range, place);
    EXPECT(!handle->is_backed ||
               base + cup_range_place_bytes(range, place) <= cup_chunk_base(range->chunk) + range->ever_bytes,
           "range: memory above what was ever backed");
    EXPECT(!is_ours || (handle->is_next == handle->is_backed && !handle->is_new),
           "range: a place half changed");
    EXPECT(!handle->is_backed || cup_spanmap_chunk(base) == range->chunk, "map: a place of a range");
    return NULL;
}

/* A hole covers whole places without memory, all else touches places with memory. */
static const char *check_backing(const cup_range_t *range, const cup_span_t *span)
{
    size_t first = cup_range_place(range, span->base), last = cup_range_place(range, cup_span_end(span) - 1);
    bool is_hole = span->state == CUP_SPAN_HOLE;
    for (size_t place = first; place <= last; place++) {
        const char *broken = check_place(range, place, span->state != CUP_SPAN_BUSY);
        EXPECT(!broken, broken);
        EXPECT(span->state == CUP_SPAN_BUSY || range->handle[place].is_backed != is_hole,
               is_hole ? "hole: a place with memory" : "span: a place without memory");
    }
    EXPECT(!is_hole || cup_range_place_base(range, first) == span->base, "hole: not from a place on");
    EXPECT(!is_hole ||
               cup_range_place_base(range, last) + cup_range_place_bytes(range, last) == cup_span_end(span),
           "hole: not up to a place");
    return NULL;
}

static const char *check_range_span(cup_pool_fields_t *f, cup_range_t *range, const cup_span_t *span,
                                    tally_t *tally, tally_t *of_range)
{
    const char *broken = check_backing(range, span);
    EXPECT(!broken, broken);
    EXPECT(!span->next || span->state != span->next->state || !is_vacant(span),
           "range: two vacant neighbours not merged");
    switch (span->state) {
    case CUP_SPAN_FREE:
        EXPECT(is_in_tree(&range->arena.free, span), "free span: not in the tree");
        of_range->free_bytes += span->size_bytes;
        of_range->free_spans++;
        return check_map(span);
    case CUP_SPAN_HOLE:
        EXPECT(is_in_tree(&range->holes, span), "hole: not in the tree");
        of_range->hole_spans++;
        return NULL;
    case CUP_SPAN_SLAB:
        broken = check_slab(f, span, tally);
        return broken ? broken : check_map(span);
    case CUP_SPAN_BLOCK:
    case CUP_SPAN_LIMBO:
    case CUP_SPAN_HELD:
        broken = check_block(span, tally);
        return broken ? broken : check_map(span);
    case CUP_SPAN_BUSY:
        return NULL;
    default:
        return "range: a span of no such state";
    }
}

static const char *check_range_sums(const cup_range_t *range, const tally_t *of_range)
{
    uint64_t backed_bytes = 0;
    for (size_t place = 0; place < range->handles; place++)
        backed_bytes += range->handle[place].is_backed ? cup_range_place_bytes(range, place) : 0;
    EXPECT(backed_bytes == range->backed_bytes, "range: its handles are not what it holds");
    EXPECT(range->arena.free_bytes == of_range->free_bytes, "range: free bytes");
    for (uint64_t at = 0; at < range->ever_bytes; at += CUP_CHUNK_ALIGN) {
        uint32_t kept, counted;
        cup_spanmap_count(cup_chunk_base(range->chunk) + at, &kept, &counted);
        EXPECT(kept == counted, "map: a slot's count of entries");
    }
    return NULL;
}

static const char *check_range(cup_pool_t *pool, cup_range_t *range, tally_t *tally)
{
    tally_t of_range = {0};
    cup_addr_t at = cup_chunk_base(range->chunk);
    const cup_span_t *prev = NULL;
    EXPECT(cup_chunk_pool(range->chunk) == pool && range->chunk->range == range, "range: of another pool");
    for (const cup_span_t *span = range->chunk->first; span; prev = span, span = span->next) {
        EXPECT(span->base == at && span->size_bytes > 0, "range: spans do not tile it");
        EXPECT(span->prev == prev && span->chunk == range->chunk, "span: links");
        at += span->size_bytes;
        EXPECT(at <= cup_range_end(range), "range: a span crosses its end");
        const char *broken = check_range_span(&pool->f, range, span, tally, &of_range);
        EXPECT(!broken, broken);
    }
    EXPECT(at == cup_range_end(range), "range: spans end before it does");
    const char *broken = check_range_sums(range, &of_range);
    broken = broken ? broken : check_tree(&range->arena.free, of_range.free_spans);
    broken = broken ? broken : check_tree(&range->holes, of_range.hole_spans);
    tally->footprint_bytes += range->backed_bytes;
    return broken;
}

static const char *check_ranges(cup_pool_t *pool, tally_t *tally)
{
    for (int i = 0; i < CUP_RANGE_COUNT; i++) {
        cup_range_t *range = &pool->f.range[i];
        const char *broken = range->chunk ? check_range(pool, range, tally) : NULL;
        EXPECT(!broken, broken);
    }
    return NULL;
}

static const char *check_trees(const cup_pool_fields_t *f, const tally_t *tally)
{
    const char *broken = check_tree(&f->arena.free, tally->free_spans);
    broken = broken ? broken : check_tree(&f->cached, tally->cached_spans);
    for (uint32_t i = 0; i < CUP_SIZE_CLASS_COUNT && !broken; i++) {
        broken = check_tree(&f->bins[i].open, tally->open_slabs[i]);
        EXPECT(f->bins[i].lowest == cup_tree_find(&f->bins[i].open, 0, 0), "bin: the lowest slab");
    }
    return broken;
}

static bool is_limbo(cup_pool_t *pool, cup_addr_t addr)
{
    cup_chunk_t *chunk = cup_spanmap_chunk(addr);
    if (!chunk || cup_chunk_pool(chunk) != pool)
        return false;
    cup_span_t *span = chunk->is_dedicated ? chunk->first : cup_spanmap_at(addr);
    if (!span || span->state != CUP_SPAN_SLAB)
        return span && span->state == CUP_SPAN_LIMBO && span->base == addr;
    uint32_t block = cup_slab_block(span, addr);
    return block < span->slab->blocks && cup_slab_addr(span, block) == addr &&
           !cup_slab_bit(span->slab->free, block) && !cup_slab_bit(span->slab->live, block) &&
           !is_held(span->slab, block);
}

static const char *check_limbo(cup_pool_t *pool, const tally_t *tally)
{
    cup_limbo_t *limbo = &pool->f.limbo;
    uint64_t addr_sum = 0;
    EXPECT(limbo->count == tally->limbo_blocks, "limbo: not as many as blocks in that state");
    EXPECT(limbo->capacity >= tally->limbo_blocks + tally->live_blocks + tally->quarantined_blocks,
           "limbo: a free would have to allocate");
    for (uint64_t i = 0; i < limbo->count; i++) {
        const cup_limbo_entry_t *entry = &limbo->ring[(limbo->head + i) & (limbo->capacity - 1)];
        EXPECT(entry->stamp != 0 && is_limbo(pool, entry->addr), "limbo: an entry that is no such block");
        EXPECT(i > 0 || cup_limbo_oldest(limbo) == entry->stamp, "limbo: the oldest stamp");
        addr_sum += entry->addr;
    }
    EXPECT(limbo->count > 0 || cup_limbo_oldest(limbo) == 0, "limbo: a stamp without a block");
    EXPECT(addr_sum == tally->limbo_addr_sum, "limbo: a block twice");
    return NULL;
}

static const char *check_counters(const cup_pool_fields_t *f, const tally_t *tally)
{
    const cup_chunk_t *chunk;
    uint64_t idle_chunks = 0;
    TAILQ_FOREACH(chunk, &f->idle, idle)
    {
        EXPECT(chunk->is_idle && ++idle_chunks <= tally->chunks,
               "idle list: a chunk that is not idle, or a loop");
    }
    EXPECT(idle_chunks == tally->idle_chunks, "idle list: a chunk is missing");
    EXPECT(f->stat.chunks == tally->chunks, "counters: chunks");
    EXPECT(f->stat.footprint_bytes == tally->footprint_bytes, "counters: footprint");
    EXPECT(f->stat.footprint_peak_bytes >= tally->footprint_bytes, "counters: footprint peak");
    EXPECT(f->stat.live_blocks == tally->live_blocks, "counters: live blocks");
    EXPECT(f->stat.live_bytes == tally->live_bytes, "counters: live bytes");
    EXPECT(f->stat.live_peak_bytes >= tally->live_bytes, "counters: live peak");
    EXPECT(f->stat.limbo_blocks == tally->limbo_blocks, "counters: limbo blocks");
    EXPECT(f->stat.limbo_bytes == tally->limbo_bytes, "counters: limbo bytes");
    EXPECT(f->stat.quarantined_blocks == tally->quarantined_blocks, "counters: quarantined blocks");
    EXPECT(f->stat.quarantined_bytes == tally->quarantined_bytes, "counters: quarantined bytes");
    EXPECT(f->stat.cached_dedicated_bytes == tally->cached_bytes, "counters: cached dedicated bytes");
    EXPECT(f->arena.free_bytes == tally->free_bytes, "counters: free bytes");
    EXPECT(f->slab_free_bytes == tally->slab_free_bytes, "counters: free bytes in slabs");
    EXPECT(f->kept_bytes == tally->kept_bytes, "counters: kept slabs");
    EXPECT(tally->live_blocks + tally->limbo_blocks > 0 || tally->kept_bytes == 0,
           "kept slabs in an empty pool");
    return NULL;
}

static const char *check_locked(cup_pool_t *pool)
{
    tally_t tally = {0};
    const char *broken = check_chunks(pool, &tally);
    broken = broken ? broken : check_ranges(pool, &tally);
    broken = broken ? broken : check_trees(&pool->f, &tally);
    broken = broken ? broken : check_limbo(pool, &tally);
    return broken ? broken : check_counters(&pool->f, &tally);
}

const char *cup_pool_check(cup_pool_t *pool)
{
    cup_lock_acquire(&pool->lock);
    const char *broken = check_locked(pool);
    cup_lock_release(&pool->lock);
    return broken;
}

const char *cup_pool_check_empty(cup_pool_t *pool)
{
    const cup_chunk_t *chunk;
    cup_lock_acquire(&pool->lock);
    const char *broken = check_locked(pool);
    TAILQ_FOREACH(chunk, &pool->f.chunks, all)
    {
        bool is_whole =
            chunk->is_dedicated ? chunk->first->state == CUP_SPAN_FREE : cup_arena_is_whole(chunk);
        if (!broken && !is_whole)
            broken = "chunk: not one free span";
    }
    for (int i = 0; i < CUP_RANGE_COUNT && !broken; i++) {
        const cup_span_t *span = pool->f.range[i].chunk ? pool->f.range[i].chunk->first : NULL;
        while (span && is_vacant(span))
            span = span->next;
        broken = span ? "range: a span that is neither free nor a hole" : NULL;
    }
    cup_lock_release(&pool->lock);
    return broken;
}
