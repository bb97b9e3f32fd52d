/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_peer - who may reach what, and the vmm backing that sees to it, over a driver of numbers: the
 * ledger; a change of peers at every moment of a growth, a move and a return of memory; refusals at every
 * call.
 * Not here:   contexts, kernels and copies (tests/preload/peer*.c).
 */
#include "shim/backing.h"
#include "shim/drv.h"
#include "shim/peer.h"
#include "tests/support/unit.h"
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#define SLOT        CUP_CHUNK_ALIGN
#define SLOTS       64
#define BASE        ((cup_addr_t)1 << 40)
#define OWNER       ((CUcontext)0x1000) /* of device 0 */
#define USER        ((CUcontext)0x2000) /* of device 1 */
#define OTHER       ((CUcontext)0x3000) /* of device 1, too */
#define PATIENCE_MS 30

/* ---- the driver ---- */

/* As CHECK, in any thread: check_access() tells. */
#define NOTE(cond) atomic_fetch_add(&g_wrong, !(cond))

static _Atomic int g_wrong;

static struct {
    uint64_t access[SLOTS]; /* bit per device */
    bool is_mapped[SLOTS];
    unsigned long long id[4]; /* of contexts; 0: ended */
    int reserved, created;
    int calls;      /* of cuMemMap, cuMemUnmap and cuMemSetAccess */
    int moment;     /* at this call, from 1 on, meanwhile() runs beside it */
    int fails;      /* this call is refused */
    bool is_inside; /* calls that meanwhile() makes are no moments */
    void (*meanwhile)(void);
} gpu;

static pthread_t g_thread;
static bool g_has_thread;
static sem_t g_done;

static void *run_meanwhile(void *argument)
{
    (void)argument;
    gpu.meanwhile();
    sem_post(&g_done);
    return NULL;
}

/* Beside the call, as far as it can get: it may have to wait until the call's own caller is through. */
static void let_happen(void)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += PATIENCE_MS * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    gpu.is_inside = true;
    g_has_thread = pthread_create(&g_thread, NULL, run_meanwhile, NULL) == 0;
    NOTE(g_has_thread);
    sem_timedwait(&g_done, &until);
}

static CUresult count_call(void)
{
    int call = ++gpu.calls;

    if (call == gpu.moment && !gpu.is_inside)
        let_happen();
    return call == gpu.fails ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

static CUresult fake_reserve(CUdeviceptr *out, size_t size, size_t alignment, CUdeviceptr addr,
                             unsigned long long flags)
{
    (void)alignment, (void)addr, (void)flags;
    NOTE(size <= SLOTS * SLOT);
    *out = BASE + (cup_addr_t)gpu.reserved++ * SLOTS * SLOT;
    return CUDA_SUCCESS;
}

static CUresult fake_address_free(CUdeviceptr base, size_t size)
{
    (void)base, (void)size;
    gpu.reserved--;
    return CUDA_SUCCESS;
}

static CUresult fake_create(CUmemGenericAllocationHandle *out, size_t size, const CUmemAllocationProp *prop,
                            unsigned long long flags)
{
    (void)size, (void)prop, (void)flags;
    *out = (CUmemGenericAllocationHandle)++gpu.created;
    return CUDA_SUCCESS;
}

static CUresult fake_release(CUmemGenericAllocationHandle handle)
{
    (void)handle;
    gpu.created--;
    return CUDA_SUCCESS;
}

static CUresult fake_map(CUdeviceptr addr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                         unsigned long long flags)
{
    CUresult result = count_call();

    (void)offset, (void)handle, (void)flags;
    for (uint64_t slot = (addr - BASE) / SLOT, i = 0; result == CUDA_SUCCESS && i < size / SLOT; i++) {
        NOTE(!gpu.is_mapped[slot + i]);
        gpu.is_mapped[slot + i] = true;
        gpu.access[slot + i] = 0;
    }
    return result;
}

static CUresult fake_unmap(CUdeviceptr addr, size_t size)
{
    CUresult result = count_call();

    for (uint64_t slot = (addr - BASE) / SLOT, i = 0; result == CUDA_SUCCESS && i < size / SLOT; i++) {
        NOTE(gpu.is_mapped[slot + i]);
        gpu.is_mapped[slot + i] = false;
    }
    return result;
}

/* Over whole mappings only, as the driver. */
static CUresult fake_set_access(CUdeviceptr addr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
    CUresult result = count_call();

    for (uint64_t slot = (addr - BASE) / SLOT, i = 0; result == CUDA_SUCCESS && i < size / SLOT; i++) {
        NOTE(gpu.is_mapped[slot + i]);
        for (size_t d = 0; d < count; d++) {
            uint64_t bit = (uint64_t)1 << desc[d].location.id;

            gpu.access[slot + i] = desc[d].flags ? gpu.access[slot + i] | bit : gpu.access[slot + i] & ~bit;
        }
    }
    return result;
}

static CUresult fake_id(CUcontext ctx, unsigned long long *out)
{
    *out = gpu.id[(uintptr_t)ctx >> 12];
    return *out ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

static cup_backing_vmm_t g_vmm;

static void open_backing(void)
{
    cup_addr_t base;

    memset(&gpu, 0, sizeof(gpu));
    for (int i = 0; i < 4; i++)
        gpu.id[i] = 10u + (unsigned)i;
    sem_init(&g_done, 0, 0);
    g_has_thread = false;
    cup_drv.cuMemAddressReserve = fake_reserve;
    cup_drv.cuMemAddressFree = fake_address_free;
    cup_drv.cuMemCreate = fake_create;
    cup_drv.cuMemRelease = fake_release;
    cup_drv.cuMemMap = fake_map;
    cup_drv.cuMemUnmap = fake_unmap;
    cup_drv.cuMemSetAccess = fake_set_access;
    cup_drv.cuCtxGetId = fake_id;
    CHECK(cup_backing_vmm_probe(OWNER, 0, &g_vmm));
    CHECK_EQ(cup_backing_vmm_reserve(&g_vmm, SLOTS * SLOT, &base), CUP_OK);
    CHECK_EQ(base, BASE);
    gpu.calls = 0;
}

static void close_backing(void)
{
    if (g_has_thread)
        pthread_join(g_thread, NULL);
    cup_backing_vmm_release(&g_vmm, BASE, SLOTS * SLOT);
    CHECK_EQ(gpu.reserved, 0);
    CHECK_EQ(g_wrong, 0);
    cup_peer_forget_ended(OWNER);
}

/* Everything that is mapped can be reached by the owner's device, and by the peer exactly if it should. */
static void check_access(bool is_reachable)
{
    for (int i = 0; i < SLOTS; i++)
        if (gpu.is_mapped[i])
            CHECK_EQ(gpu.access[i], is_reachable ? 3 : 1);
    CHECK_EQ(cup_backing_vmm_is_reachable(&g_vmm, 1), is_reachable);
    CHECK_EQ(g_wrong, 0);
}

static uint64_t commit(unsigned slot, unsigned slots)
{
    uint64_t handle = 0;

    CHECK_EQ(cup_backing_vmm_commit(&g_vmm, BASE + slot * SLOT, slots * SLOT, &handle), CUP_OK);
    return handle;
}

static void give(void)
{
    NOTE(cup_peer_add(USER, 1, OWNER));
    NOTE(cup_backing_vmm_follow_peers(&g_vmm) == CUDA_SUCCESS);
}

static void take(void)
{
    NOTE(cup_peer_remove(USER, OWNER));
    NOTE(cup_backing_vmm_follow_peers(&g_vmm) == CUDA_SUCCESS);
}

/* ---- the ledger ---- */

TEST(peer, ledger)
{
    open_backing();
    CHECK_EQ(cup_peer_devices(OWNER), 0);
    CHECK(!cup_peer_remove(USER, OWNER));
    CHECK(cup_peer_add(USER, 1, OWNER));
    CHECK(cup_peer_add(USER, 1, OWNER)); /* once */
    CHECK(cup_peer_add(OTHER, 1, OWNER));
    CHECK(cup_peer_add(OWNER, 0, USER));
    CHECK_EQ(cup_peer_devices(OWNER), 2);
    CHECK_EQ(cup_peer_devices(USER), 1);
    CHECK(cup_peer_remove(USER, OWNER));
    CHECK(!cup_peer_remove(USER, OWNER));
    CHECK_EQ(cup_peer_devices(OWNER), 2); /* the other context of the device */
    CHECK(!cup_peer_forget_ended(NULL));
    gpu.id[3] = 99; /* OTHER has ended, and one like it began */
    CHECK(cup_peer_forget_ended(NULL));
    CHECK_EQ(cup_peer_devices(OWNER), 0);
    CHECK(cup_peer_forget_ended(OWNER));
    CHECK_EQ(cup_peer_devices(USER), 0);
    close_backing();
}

TEST(peer, far_devices)
{
    open_backing();
    CHECK(cup_peer_add(USER, 63, OWNER));
    CHECK(cup_peer_add(OTHER, 64, OWNER)); /* none that we can name */
    CHECK_EQ(cup_peer_devices(OWNER), (uint64_t)1 << 63);
    CHECK_EQ(cup_backing_vmm_follow_peers(&g_vmm), CUDA_SUCCESS);
    CHECK(cup_backing_vmm_is_reachable(&g_vmm, 63));
    CHECK(!cup_backing_vmm_is_reachable(&g_vmm, 64) && !cup_backing_vmm_is_reachable(&g_vmm, -1));
    close_backing();
}

/* ---- the backing ---- */

TEST(peer, now_and_later)
{
    open_backing();
    uint64_t first = commit(0, 1), second = commit(1, 4), far = commit(60, 4);
    give();
    check_access(true);
    uint64_t later = commit(20, 2);
    check_access(true);
    CHECK_EQ(cup_backing_vmm_move(&g_vmm, BASE + 20 * SLOT, BASE + 30 * SLOT, 2 * SLOT, later), CUP_OK);
    check_access(true);
    cup_backing_vmm_decommit(&g_vmm, BASE + SLOT, 4 * SLOT, second);
    take();
    check_access(false);
    cup_backing_vmm_decommit(&g_vmm, BASE, SLOT, first);
    cup_backing_vmm_decommit(&g_vmm, BASE + 30 * SLOT, 2 * SLOT, later);
    cup_backing_vmm_decommit(&g_vmm, BASE + 60 * SLOT, 4 * SLOT, far);
    CHECK_EQ(gpu.created, 0);
    close_backing();
}

static void grow_move_return(void)
{
    uint64_t a = commit(0, 2), b = commit(2, 1);

    CHECK_EQ(cup_backing_vmm_move(&g_vmm, BASE, BASE + 10 * SLOT, 2 * SLOT, a), CUP_OK);
    cup_backing_vmm_decommit(&g_vmm, BASE + 2 * SLOT, SLOT, b);
    commit(5, 1);
}

/* Beside each call of a growth, a move and a return access is given, or taken. */
TEST(peer, at_every_moment)
{
    int calls;

    open_backing();
    grow_move_return();
    calls = gpu.calls;
    CHECK(calls >= 9);
    close_backing();
    for (int moment = 1; moment <= calls; moment++)
        for (int is_given = 0; is_given < 2; is_given++) {
            open_backing();
            if (!is_given)
                give();
            gpu.calls = 0;
            gpu.moment = moment;
            gpu.meanwhile = is_given ? give : take;
            grow_move_return();
            CHECK(g_has_thread);
            pthread_join(g_thread, NULL);
            g_has_thread = false;
            check_access(is_given);
            close_backing();
        }
}

/* Each call of a change is refused once: it is as if the change had not been asked for, or as if it had
 * succeeded. */
TEST(peer, refusals)
{
    for (int fails = 1; fails <= 3; fails++) { /* three runs of mapped slots */
        open_backing();
        commit(0, 2);
        commit(4, 1);
        commit(8, 1);
        gpu.calls = 0;
        gpu.fails = fails;
        CHECK(cup_peer_add(USER, 1, OWNER));
        CHECK_EQ(cup_backing_vmm_follow_peers(&g_vmm), CUDA_ERROR_UNKNOWN);
        check_access(false);
        CHECK_EQ(cup_backing_vmm_follow_peers(&g_vmm), CUDA_SUCCESS); /* the ledger still says so */
        check_access(true);
        gpu.calls = 0;
        take();
        check_access(false);
        close_backing();
    }
}

/* A heap that is made after the access was given tries its peers, too. */
TEST(peer, trial)
{
    open_backing();
    CHECK(cup_peer_add(USER, 1, OWNER));
    cup_backing_vmm_release(&g_vmm, BASE, SLOTS * SLOT);
    CHECK(cup_backing_vmm_probe(OWNER, 0, &g_vmm));
    CHECK(cup_backing_vmm_is_reachable(&g_vmm, 1));
    CHECK_EQ(gpu.access[0], 3);
    CHECK(!gpu.is_mapped[0]);
    CHECK_EQ(gpu.reserved, 0);
    cup_peer_forget_ended(OWNER);
}

TEST(peer, ranges)
{
    cup_addr_t base[CUP_BACKING_RANGES_MAX];

    open_backing();
    for (int i = 1; i < CUP_BACKING_RANGES_MAX; i++)
        CHECK_EQ(cup_backing_vmm_reserve(&g_vmm, 16 * SLOT, &base[i]), CUP_OK);
    CHECK_EQ(cup_backing_vmm_reserve(&g_vmm, 16 * SLOT, &base[0]), CUP_ERR_NOMEM);
    CHECK_EQ(gpu.reserved, CUP_BACKING_RANGES_MAX);
    for (int i = 1; i < CUP_BACKING_RANGES_MAX; i++)
        cup_backing_vmm_release(&g_vmm, base[i], 16 * SLOT);
    close_backing();
}
