/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: addresses are cheap: each new reservation takes the next ones, on a 2 MiB border, so that no page
 * has two pieces; a released reservation's addresses serve the next one of its size. A rival policy may reserve
 * less than 2 MiB: it is counted by its bytes, as if the driver packed small ones perfectly.
 */
#include "bench/replay/driver.h"

#include <stdio.h>
#include <stdlib.h>

#define PAGE_BYTES  CUP_CHUNK_ALIGN
#define RANGE_ALIGN (32 * CUP_MIB)
#define FIRST_ADDR  ((cup_addr_t)0x7f << 36)
#define LAST_ADDR   ((cup_addr_t)1 << 56)

typedef enum { PIECE_GONE, PIECE_RESERVED, PIECE_HANDLE, PIECE_RANGE } piece_kind_t;

struct driver_piece {
    cup_addr_t base;
    uint64_t size_bytes;
    piece_kind_t kind;
};

struct driver_page {
    uint64_t piece;    /* that backs it, index + 1, or 0 */
    uint64_t live;     /* blocks of the program that touch it */
    cup_point_t freed; /* the newest free of one that did */
};

static const struct {
    const char *name;
    double us, us_per_gib;
} kinds[DRIVER_CALL_COUNT] = {
#define X(call, name, us, us_per_gib) [call] = {#name, us, us_per_gib},
    DRIVER_CALL_LIST(X)
#undef X
};

void driver_init(driver_t *driver, timeline_t *timeline, uint64_t limit_bytes)
{
    *driver = (driver_t){.timeline = timeline, .limit_bytes = limit_bytes, .next_addr = FIRST_ADDR};
}

void driver_fini(driver_t *driver)
{
    table_fini(&driver->page_of);
    free(driver->pages);
    free(driver->pieces);
    *driver = (driver_t){0};
}

static void note_fault(driver_t *driver, const char *text)
{
    if (driver->faults++ == 0)
        driver->fault = text;
}

static void charge(driver_t *driver, driver_call_t call, uint64_t size_bytes)
{
    driver->calls[call]++;
    timeline_spend(driver->timeline,
                   kinds[call].us + kinds[call].us_per_gib * (double)size_bytes / (double)CUP_GIB);
}

/* ---- pages and pieces ---- */

static driver_page_t *page_at(driver_t *driver, cup_addr_t addr)
{
    uint64_t *index = table_at(&driver->page_of, addr / PAGE_BYTES);
    if (*index == 0) {
        driver->pages =
            replay_grow(driver->pages, driver->page_count, &driver->page_capacity, sizeof *driver->pages);
        driver->pages[driver->page_count++] = (driver_page_t){0};
        *index = driver->page_count;
    }
    return &driver->pages[*index - 1];
}

/* For each page that [base_, base_ + bytes_) touches. */
#define FOR_PAGES(driver_, page_, base_, bytes_)                                                          \
    for (cup_addr_t at_ = (base_) / PAGE_BYTES * PAGE_BYTES; at_ < (base_) + (bytes_); at_ += PAGE_BYTES) \
        for (driver_page_t *page_ = page_at(driver_, at_); page_; page_ = NULL)

static uint64_t add_piece(driver_t *driver, cup_addr_t base, uint64_t size_bytes, piece_kind_t kind)
{
    driver->pieces =
        replay_grow(driver->pieces, driver->piece_count, &driver->piece_capacity, sizeof *driver->pieces);
    driver->pieces[driver->piece_count] = (driver_piece_t){base, size_bytes, kind};
    return ++driver->piece_count;
}

static void set_backing(driver_t *driver, cup_addr_t base, uint64_t size_bytes, uint64_t piece)
{
    FOR_PAGES(driver, page, base, size_bytes)
    {
        if (piece && page->piece)
            note_fault(driver, "memory mapped where memory is");
        page->piece = piece;
    }
}

/* The piece that must be exactly there; NULL, and a fault, otherwise. */
static driver_piece_t *expect_piece(driver_t *driver, cup_addr_t base, uint64_t size_bytes, piece_kind_t kind)
{
    uint64_t index = page_at(driver, base)->piece;
    driver_piece_t *piece = index ? &driver->pieces[index - 1] : NULL;
    if (piece && piece->base == base && piece->size_bytes == size_bytes && piece->kind == kind)
        return piece;
    note_fault(driver, "a call for memory that is not there, or not so");
    return NULL;
}

/* No block lives there, and the work of those that did is over, or is waited for. */
static void expect_unused(driver_t *driver, cup_addr_t base, uint64_t size_bytes)
{
    cup_point_t newest = 0;
    FOR_PAGES(driver, page, base, size_bytes)
    {
        if (page->live)
            note_fault(driver, "memory given back or moved under a live block");
        if (newest < page->freed)
            newest = page->freed;
    }
    if (newest > driver->usable)
        note_fault(driver, "memory given back or moved that the policy was not told to be free");
    else if (newest > driver->movable)
        driver->wait(driver->host, newest);
}

static bool hold(driver_t *driver, uint64_t size_bytes)
{
    if (size_bytes > driver->limit_bytes - driver->held_bytes)
        return false;
    driver->held_bytes += size_bytes;
    if (driver->peak_bytes < driver->held_bytes)
        driver->peak_bytes = driver->held_bytes;
    return true;
}

static bool take_addresses(driver_t *driver, uint64_t size_bytes, uint64_t align, cup_addr_t *out_base)
{
    cup_addr_t base = (driver->next_addr + align - 1) / align * align;
    if (base > LAST_ADDR || size_bytes > LAST_ADDR - base)
        return false;
    driver->next_addr = (base + size_bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    *out_base = base;
    return true;
}

/* ---- chunks ---- */

static driver_piece_t *find_gone(driver_t *driver, uint64_t size_bytes)
{
    for (size_t i = 0; i < driver->piece_count; i++)
        if (driver->pieces[i].kind == PIECE_GONE && driver->pieces[i].size_bytes == size_bytes)
            return &driver->pieces[i];
    return NULL;
}

static cup_status_t reserve(void *self, uint64_t size_bytes, cup_addr_t *out_base)
{
    driver_t *driver = self;
    charge(driver, DRIVER_RESERVE, size_bytes);
    if (!hold(driver, size_bytes))
        return CUP_ERR_OOM;
    driver_piece_t *gone = find_gone(driver, size_bytes);
    uint64_t index = gone ? (uint64_t)(gone - driver->pieces) + 1 : 0;
    cup_addr_t base = gone ? gone->base : 0;
    if (!gone && !take_addresses(driver, size_bytes, PAGE_BYTES, &base)) {
        driver->held_bytes -= size_bytes;
        return CUP_ERR_OOM;
    }
    if (gone)
        gone->kind = PIECE_RESERVED;
    else
        index = add_piece(driver, base, size_bytes, PIECE_RESERVED);
    set_backing(driver, base, size_bytes, index);
    *out_base = base;
    return CUP_OK;
}

/* cuMemFree: all work is complete when it returns. */
static void release(void *self, cup_addr_t base, uint64_t size_bytes)
{
    driver_t *driver = self;
    driver_piece_t *piece = expect_piece(driver, base, size_bytes, PIECE_RESERVED);
    timeline_wait(driver->timeline, CUP_POINT_MAX);
    driver->movable = driver->usable;
    charge(driver, DRIVER_RELEASE, size_bytes);
    if (!piece)
        return;
    expect_unused(driver, base, size_bytes);
    set_backing(driver, base, size_bytes, 0);
    piece->kind = PIECE_GONE;
    driver->held_bytes -= size_bytes;
}

/* ---- ranges and handles ---- */

static cup_status_t range_reserve(void *self, uint64_t size_bytes, cup_addr_t *out_base)
{
    driver_t *driver = self;
    charge(driver, DRIVER_RANGE_RESERVE, 0);
    if (!take_addresses(driver, size_bytes, RANGE_ALIGN, out_base))
        return CUP_ERR_OOM;
    (void)add_piece(driver, *out_base, size_bytes, PIECE_RANGE);
    return CUP_OK;
}

static driver_piece_t *find_range(driver_t *driver, cup_addr_t addr, uint64_t size_bytes)
{
    for (size_t i = 0; i < driver->piece_count; i++) {
        driver_piece_t *piece = &driver->pieces[i];
        if (piece->kind == PIECE_RANGE && addr >= piece->base && size_bytes <= piece->size_bytes &&
            addr - piece->base <= piece->size_bytes - size_bytes)
            return piece;
    }
    note_fault(driver, "an address outside of every reserved range");
    return NULL;
}

static void range_release(void *self, cup_addr_t base, uint64_t size_bytes)
{
    driver_t *driver = self;
    charge(driver, DRIVER_RANGE_RELEASE, 0);
    driver_piece_t *range = find_range(driver, base, size_bytes);
    if (!range)
        return;
    if (range->base != base || range->size_bytes != size_bytes)
        note_fault(driver, "a part of a range released");
    for (size_t i = 0; i < driver->piece_count; i++)
        if (driver->pieces[i].kind == PIECE_HANDLE && driver->pieces[i].base - base < size_bytes)
            note_fault(driver, "a range released that is still backed");
    range->kind = PIECE_GONE;
    range->size_bytes = 0; /* its addresses are not used again */
}

static cup_status_t commit(void *self, cup_addr_t addr, uint64_t size_bytes, uint64_t *out_handle)
{
    driver_t *driver = self;
    charge(driver, DRIVER_COMMIT, size_bytes);
    if (!hold(driver, size_bytes))
        return CUP_ERR_OOM;
    (void)find_range(driver, addr, size_bytes);
    *out_handle = add_piece(driver, addr, size_bytes, PIECE_HANDLE);
    set_backing(driver, addr, size_bytes, *out_handle);
    return CUP_OK;
}

/* Looks up and checks what decommit and move have in common. */
static driver_piece_t *unmap(driver_t *driver, cup_addr_t addr, uint64_t size_bytes, uint64_t handle)
{
    driver_piece_t *piece = expect_piece(driver, addr, size_bytes, PIECE_HANDLE);
    if (!piece)
        return NULL;
    if ((uint64_t)(piece - driver->pieces) + 1 != handle)
        note_fault(driver, "another handle than the one that is mapped there");
    expect_unused(driver, addr, size_bytes);
    set_backing(driver, addr, size_bytes, 0);
    return piece;
}

static void decommit(void *self, cup_addr_t addr, uint64_t size_bytes, uint64_t handle)
{
    driver_t *driver = self;
    charge(driver, DRIVER_DECOMMIT, size_bytes);
    driver_piece_t *piece = unmap(driver, addr, size_bytes, handle);
    if (!piece)
        return;
    *piece = (driver_piece_t){0};
    driver->held_bytes -= size_bytes;
}

static cup_status_t move(void *self, cup_addr_t from, cup_addr_t to, uint64_t size_bytes, uint64_t handle)
{
    driver_t *driver = self;
    charge(driver, DRIVER_MOVE, size_bytes);
    driver_piece_t *piece = unmap(driver, from, size_bytes, handle);
    if (!piece)
        return CUP_ERR_DRIVER;
    (void)find_range(driver, to, size_bytes);
    piece->base = to;
    set_backing(driver, to, size_bytes, handle);
    return CUP_OK;
}

cup_provider_t driver_ops(driver_t *driver, bool is_chunks)
{
    cup_provider_t ops = {.reserve = reserve, .release = release, .self = driver};
    if (is_chunks)
        return ops;
    ops.range_reserve = range_reserve;
    ops.range_release = range_release;
    ops.commit = commit;
    ops.decommit = decommit;
    ops.move = move;
    return ops;
}

/* ---- the program's blocks ---- */

void driver_note_alloc(driver_t *driver, cup_addr_t addr, uint64_t bytes)
{
    FOR_PAGES(driver, page, addr, bytes)
    {
        if (!page->piece)
            note_fault(driver, "a block outside of what the driver holds");
        page->live++;
    }
}

void driver_note_free(driver_t *driver, cup_addr_t addr, uint64_t bytes, cup_point_t point)
{
    FOR_PAGES(driver, page, addr, bytes)
    {
        page->live--;
        page->freed = point;
    }
}

/* ---- the account ---- */

uint64_t driver_total_calls(const driver_t *driver)
{
    uint64_t total = 0;
    for (size_t i = 0; i < DRIVER_CALL_COUNT; i++)
        total += driver->calls[i];
    return total;
}

void driver_print_calls(const uint64_t calls[DRIVER_CALL_COUNT])
{
    for (size_t i = 0; i < DRIVER_CALL_COUNT; i++)
        if (calls[i])
            printf(" %s=%llu", kinds[i].name, (unsigned long long)calls[i]);
    putchar('\n');
}
