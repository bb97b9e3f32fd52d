/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ipc_liar - an importer whose exporter answers what is not so, or not at all.
 * What:       a process of this user stands between a real exporter and this process, the importer: it passes everything
 *             on, but for one answer, which it changes as the row of LIE_LIST says. Each open then fails with the code of
 *             the row; nothing is mapped or reserved, no descriptor is left, and an honest open after it gives the block.
 * Not here:   requests that make no sense (ipc_guard.c).
 */
#define _GNU_SOURCE
#include "shim/ipc_sock.h"
#include "tests/preload/ipc_bed.h"
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/un.h>

enum { SIZE = 5 << 20, LARGE = 150 << 20 };
static const uint64_t PART = 2 << 20;

/* What becomes of an answer. */
typedef enum { SAY, HANG_UP, KEEP_QUIET, SAY_LATE } fate_t;

typedef struct answer {
    cup_ipc_reply_t reply;
    size_t bytes; /* of it that are sent */
    int fds[CUP_IPC_PAGE + 2];
    uint32_t fd_count;
    fate_t fate;
} answer_t;

static cup_ipc_part_t *last_part(answer_t *a)
{
    return &a->reply.part[a->reply.count - 1];
}

static void swap_parts(cup_ipc_reply_t *reply)
{
    cup_ipc_part_t first = reply->part[0];

    reply->part[0] = reply->part[1];
    reply->part[1] = first;
}

static void move_parts(cup_ipc_reply_t *reply, uint64_t bytes)
{
    for (uint32_t i = 0; i < reply->count; i++)
        reply->part[i].base += bytes;
}

static void drop_descriptor(answer_t *a)
{
    close(a->fds[--a->fd_count]);
}

static void add_descriptor(answer_t *a)
{
    a->fds[a->fd_count++] = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void swap_for_no_memory(answer_t *a)
{
    drop_descriptor(a);
    add_descriptor(a);
}

/*
 * X(lie, answer to, size of the block, the open's code, change). Where a driver call fails by it, the code is what that
 * call says. LOOK is asked for a block of many handles only.
 */
/* clang-format off */
#define LIE_LIST(X)                                                                                                      \
    X(magic,           OPEN,  SIZE,  INVALID_HANDLE, a->reply.magic ^= 1)                                                \
    X(version,         OPEN,  SIZE,  INVALID_HANDLE, a->reply.version++)                                                 \
    X(short_message,   OPEN,  SIZE,  INVALID_HANDLE, a->bytes--)                                                         \
    X(head_alone,      OPEN,  SIZE,  INVALID_HANDLE, a->bytes = offsetof(cup_ipc_reply_t, part))                         \
    X(no_reason,       OPEN,  SIZE,  INVALID_HANDLE, a->reply.reason = CUP_IPC_REASON_COUNT)                             \
    X(refused,         OPEN,  SIZE,  INVALID_VALUE,  a->reply.reason = CUP_IPC_REFUSED)                                  \
    X(other_base,      OPEN,  SIZE,  INVALID_HANDLE, a->reply.base += 512)                                               \
    X(other_size,      OPEN,  SIZE,  INVALID_HANDLE, a->reply.size_bytes--)                                              \
    X(range_behind,    OPEN,  SIZE,  INVALID_HANDLE, a->reply.range_base = a->reply.base + PART)                         \
    X(range_small,     OPEN,  SIZE,  INVALID_HANDLE, a->reply.range_bytes = PART)                                        \
    X(range_none,      OPEN,  SIZE,  INVALID_HANDLE, a->reply.range_bytes = 0)                                           \
    X(range_huge,      OPEN,  SIZE,  OUT_OF_MEMORY,  a->reply.range_bytes = 1ull << 62)                                  \
    X(range_crooked,   OPEN,  SIZE,  INVALID_VALUE,  a->reply.range_base -= 512)                                         \
    X(count_beyond,    OPEN,  SIZE,  INVALID_HANDLE, a->reply.count = CUP_IPC_PAGE + 1)                                  \
    X(count_none,      OPEN,  SIZE,  INVALID_HANDLE, a->reply.count = 0)                                                 \
    X(count_one,       OPEN,  SIZE,  INVALID_HANDLE, a->reply.parts = a->reply.count = 1)                                \
    X(parts_beyond,    OPEN,  SIZE,  INVALID_HANDLE, a->reply.parts = UINT32_MAX)                                        \
    X(parts_more,      OPEN,  SIZE,  INVALID_HANDLE, a->reply.parts++)                                                   \
    X(first_later,     OPEN,  SIZE,  INVALID_HANDLE, a->reply.first = 1)                                                 \
    X(part_empty,      OPEN,  SIZE,  INVALID_HANDLE, last_part(a)->size_bytes = 0)                                       \
    X(part_crooked,    OPEN,  SIZE,  INVALID_HANDLE, last_part(a)->size_bytes -= 4096)                                   \
    X(part_larger,     OPEN,  SIZE,  NOT_SUPPORTED,  last_part(a)->size_bytes += PART)                                   \
    X(part_huge,       OPEN,  SIZE,  INVALID_HANDLE, last_part(a)->size_bytes = 1ull << 62)                              \
    X(part_before,     OPEN,  SIZE,  INVALID_HANDLE, a->reply.part[0].base = a->reply.range_base - PART)                 \
    X(part_wraps,      OPEN,  SIZE,  INVALID_HANDLE, a->reply.part[0].base = -PART)                                      \
    X(gap,             OPEN,  SIZE,  INVALID_HANDLE, a->reply.part[1].base += PART)                                      \
    X(overlap,         OPEN,  SIZE,  INVALID_HANDLE, a->reply.part[1].base -= PART)                                      \
    X(order,           OPEN,  SIZE,  INVALID_HANDLE, swap_parts(&a->reply))                                              \
    X(moved_up,        OPEN,  SIZE,  INVALID_HANDLE, move_parts(&a->reply, PART))                                        \
    X(moved_far,       OPEN,  SIZE,  INVALID_HANDLE, move_parts(&a->reply, a->reply.range_bytes))                        \
    X(moved_crooked,   OPEN,  SIZE,  INVALID_VALUE,  move_parts(&a->reply, 4096))                                        \
    X(keys,            OPEN,  SIZE,  INVALID_HANDLE, a->reply.part[1].key++)                                             \
    X(unasked,         OPEN,  SIZE,  INVALID_HANDLE, add_descriptor(a))                                                  \
    X(look_first,      LOOK,  LARGE, INVALID_HANDLE, a->reply.first++)                                                   \
    X(look_again,      LOOK,  LARGE, INVALID_HANDLE, move_parts(&a->reply, -PART))                                       \
    X(look_gap,        LOOK,  LARGE, INVALID_HANDLE, move_parts(&a->reply, PART))                                        \
    X(look_count,      LOOK,  LARGE, INVALID_HANDLE, a->reply.count = 0)                                                 \
    X(look_refused,    LOOK,  LARGE, INVALID_VALUE,  a->reply.reason = CUP_IPC_REFUSED)                                  \
    X(fetch_few,       FETCH, SIZE,  INVALID_HANDLE, drop_descriptor(a))                                                 \
    X(fetch_none,      FETCH, SIZE,  INVALID_HANDLE, while (a->fd_count > 0) drop_descriptor(a))                         \
    X(fetch_extra,     FETCH, SIZE,  INVALID_HANDLE, add_descriptor(a))                                                  \
    X(fetch_fewer,     FETCH, SIZE,  INVALID_HANDLE, a->reply.count--; drop_descriptor(a))                               \
    X(fetch_key,       FETCH, SIZE,  INVALID_HANDLE, last_part(a)->key++)                                                \
    X(fetch_no_memory, FETCH, SIZE,  UNKNOWN,        swap_for_no_memory(a))                                              \
    X(fetch_refused,   FETCH, SIZE,  INVALID_VALUE,  a->reply.reason = CUP_IPC_REFUSED)                                  \
    X(dead_at_open,    OPEN,  SIZE,  INVALID_HANDLE, a->fate = HANG_UP)                                                  \
    X(dead_at_look,    LOOK,  LARGE, INVALID_HANDLE, a->fate = HANG_UP)                                                  \
    X(dead_at_fetch,   FETCH, SIZE,  INVALID_HANDLE, a->fate = HANG_UP)                                                  \
    X(silent_at_fetch, FETCH, SIZE,  INVALID_HANDLE, a->fate = KEEP_QUIET)                                               \
    X(other_request,   OPEN,  SIZE,  INVALID_HANDLE, a->reply.seq++)
/* clang-format on */

#define X(name, verb, size, code, change) \
    static void lie_##name(answer_t *a)   \
    {                                     \
        change;                           \
    }
LIE_LIST(X)
#undef X

typedef struct lie {
    const char *name;
    cup_ipc_verb_t verb;
    uint64_t size;
    CUresult code;
    void (*tell)(answer_t *answer);
} lie_t;

static const lie_t g_lie[] = {
#define X(name, verb, size, code, change) {#name, CUP_IPC_##verb, size, CUDA_ERROR_##code, lie_##name},
    LIE_LIST(X)
#undef X
};

enum { LIES = sizeof g_lie / sizeof g_lie[0], TRUTH = -1, LATE = -2 };

static _Atomic int *g_told; /* shared with the liar: which lie */

/* ---- the liar ---- */

static struct sockaddr_un address_of(uint64_t exporter)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    REQUIRE(snprintf(address.sun_path, sizeof address.sun_path, "%s/cupola-ipc-%016llx", g_folder,
                     (unsigned long long)exporter) < (int)sizeof address.sun_path);
    return address;
}

static int open_socket(void)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    REQUIRE(fd >= 0);
    return fd;
}

typedef union {
    struct cmsghdr header;
    char space[CMSG_SPACE((CUP_IPC_PAGE + 2) * sizeof(int))];
} control_t;

/* False: the exporter has gone. */
static bool hear_answer(int exporter, answer_t *a)
{
    struct iovec part = {&a->reply, sizeof a->reply};
    control_t control;
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    struct cmsghdr *header;

    *a = (answer_t){.bytes = sizeof a->reply};
    if (recvmsg(exporter, &message, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof a->reply)
        return false;
    header = CMSG_FIRSTHDR(&message);
    if (header) {
        a->fd_count = (uint32_t)((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(a->fds, CMSG_DATA(header), a->fd_count * sizeof(int));
    }
    return true;
}

static void say_answer(int importer, const answer_t *a)
{
    struct iovec part = {(void *)&a->reply, a->bytes};
    control_t control;
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    if (a->fd_count > 0) {
        memset(&control, 0, sizeof control);
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(a->fd_count * sizeof(int));
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(a->fd_count * sizeof(int));
        memcpy(CMSG_DATA(&control.header), a->fds, a->fd_count * sizeof(int));
    }
    (void)sendmsg(importer, &message, MSG_NOSIGNAL);
}

static void lie(cup_ipc_verb_t verb, answer_t *a)
{
    int told = atomic_load(g_told);

    if (told == LATE && verb == CUP_IPC_OPEN)
        a->fate = SAY_LATE;
    else if (told >= 0 && g_lie[told].verb == verb)
        g_lie[told].tell(a);
}

/* One request, passed on, and its answer, passed back. False: this connection is over. */
static bool pass_on(int importer, int exporter)
{
    cup_ipc_request_t request;
    answer_t a;

    if (recv(importer, &request, sizeof request, 0) != (ssize_t)sizeof request ||
        send(exporter, &request, sizeof request, MSG_NOSIGNAL) != (ssize_t)sizeof request)
        return false;
    if (request.verb == CUP_IPC_CLOSE)
        return true;
    if (!hear_answer(exporter, &a))
        return false;
    lie((cup_ipc_verb_t)request.verb, &a);
    if (a.fate == SAY_LATE)
        ipc_pause(CUP_IPC_TIMEOUT_MS * 1250);
    if (a.fate == SAY || a.fate == SAY_LATE)
        say_answer(importer, &a);
    while (a.fd_count > 0)
        drop_descriptor(&a);
    return a.fate != HANG_UP;
}

static void serve(int listener, uint64_t exporter)
{
    struct sockaddr_un address = address_of(exporter);

    for (;;) {
        int in = accept4(listener, NULL, NULL, SOCK_CLOEXEC), out = open_socket();

        REQUIRE(in >= 0 && connect(out, (struct sockaddr *)&address, sizeof address) == 0);
        while (pass_on(in, out))
            ;
        close(in);
        close(out);
    }
}

/* Listens under its own name for what is meant for the exporter. */
static pid_t start_liar(uint64_t own, uint64_t exporter)
{
    struct sockaddr_un address = address_of(own);
    int listener = open_socket();
    pid_t liar;

    g_told = mmap(NULL, sizeof *g_told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(g_told != MAP_FAILED);
    atomic_store(g_told, TRUTH);
    REQUIRE(bind(listener, (struct sockaddr *)&address, sizeof address) == 0 && listen(listener, 8) == 0);
    liar = fork();
    if (liar == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        serve(listener, exporter);
    }
    REQUIRE(liar > 0);
    close(listener);
    return liar;
}

static void end_liar(pid_t liar, uint64_t own)
{
    struct sockaddr_un address = address_of(own);

    REQUIRE(kill(liar, SIGKILL) == 0 && waitpid(liar, NULL, 0) == liar && unlink(address.sun_path) == 0);
}

/* ---- the importer: this process ---- */

/* What an open that failed must leave as it was. */
typedef struct traces {
    uint64_t mapped, addresses, handles, descriptors;
} traces_t;

/* Of the whole process: ranges of others are many times the slack below. */
static uint64_t addresses(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    unsigned long long pages = 0;

    REQUIRE(file && fscanf(file, "%llu", &pages) == 1);
    fclose(file);
    return pages * 4096;
}

static traces_t look(void)
{
    return (traces_t){softcuda_mapped_bytes(), addresses(),
                      softcuda_calls("cuMemImportFromShareableHandle") - softcuda_calls("cuMemRelease"),
                      servant_descriptors()};
}

/* failed: calls that import, and have failed. */
static int is_as_before(const traces_t *before, uint64_t failed)
{
    const uint64_t slack = (uint64_t)1 << 30;
    traces_t now = look();

    return now.mapped == before->mapped && now.addresses < before->addresses + slack &&
           now.handles == before->handles + failed && now.descriptors == before->descriptors;
}

/* The block's token, with the liar's name as the exporter's. */
static servant_t by_liar(const servant_t *block, uint64_t own)
{
    cup_ipc_token_t token;
    servant_t through = {.size = block->size};

    REQUIRE(cup_ipc_token_read(&block->handle, &token));
    token.exporter = own;
    token.check = cup_ipc_token_check(&token);
    memcpy(&through.handle, &token, sizeof token);
    return through;
}

static void open_and_close(const servant_t *through, uint64_t seed)
{
    servant_t here = ipc_opened(NULL, through);

    REQUIRE(servant_wrong(here.address, SIZE, seed) == 0);
    REQUIRE(servant_tell(NULL, SERVANT_CLOSE, &here) == CUDA_SUCCESS);
}

static void try_lie(const lie_t *lie, const servant_t *through)
{
    servant_t here = {.handle = through->handle};
    traces_t before = look();

    atomic_store(g_told, (int)(lie - g_lie));
    servant_tell(NULL, SERVANT_OPEN, &here);
    atomic_store(g_told, TRUTH);
    if (here.result != lie->code || !is_as_before(&before, lie->tell == lie_fetch_no_memory)) {
        fprintf(stderr, "%s: code %d\n", lie->name, (int)here.result);
        exit(1);
    }
}

enum { OWN_NAME = 0x11a5 };

static void lies(void)
{
    peer_t there = ipc_peer();
    servant_t block = ipc_exported(&there, SIZE, 1), large = {.size = LARGE};
    cup_ipc_token_t token;
    pid_t liar;

    REQUIRE(servant_tell(&there, SERVANT_ALLOC, &large) == CUDA_SUCCESS);
    REQUIRE(servant_tell(&there, SERVANT_GET, &large) == CUDA_SUCCESS);
    REQUIRE(cup_ipc_token_read(&block.handle, &token));
    liar = start_liar(OWN_NAME, token.exporter);
    servant_t through = by_liar(&block, OWN_NAME), through_large = by_liar(&large, OWN_NAME);
    for (int i = 0; i < LIES; i++) {
        try_lie(&g_lie[i], g_lie[i].size == SIZE ? &through : &through_large);
        open_and_close(&through, 1);
    }
    end_liar(liar, OWN_NAME);
    REQUIRE(servant_tell(&there, SERVANT_FREE, &block) == CUDA_SUCCESS);
    REQUIRE(ipc_comes_back_to(&there, block.address, SIZE)); /* no loan is left */
    REQUIRE(softcuda_calls("cuIpcOpenMemHandle_v2") == 0);
    REQUIRE(peer_end(&there) == 0);
    ipc_count("ipc_mapped_bytes", 0);
    ipc_count("ipc_opens", LIES);
    ipc_count("ipc_closes", LIES);
}

/*
 * The answer comes when the open has given up, over a connection that is in use: it is nobody's, the next open gets its own,
 * and what the late one lent is given back.
 */
static void late(void)
{
    peer_t there = ipc_peer();
    servant_t kept = ipc_exported(&there, SIZE, 1), block = ipc_exported(&there, SIZE, 2), here, open;
    cup_ipc_token_t token;
    pid_t liar;

    REQUIRE(cup_ipc_token_read(&block.handle, &token));
    liar = start_liar(OWN_NAME, token.exporter);
    servant_t through = by_liar(&block, OWN_NAME), through_kept = by_liar(&kept, OWN_NAME);
    open = ipc_opened(NULL, &through_kept);
    traces_t before = look();
    here = (servant_t){.handle = through.handle};
    atomic_store(g_told, LATE);
    REQUIRE(servant_tell(NULL, SERVANT_OPEN, &here) == CUDA_ERROR_INVALID_HANDLE);
    atomic_store(g_told, TRUTH);
    REQUIRE(is_as_before(&before, 0));
    open_and_close(&through, 2);
    REQUIRE(is_as_before(&before, 0));
    REQUIRE(servant_wrong(open.address, SIZE, 1) == 0);
    REQUIRE(servant_tell(&there, SERVANT_FREE, &block) == CUDA_SUCCESS);
    REQUIRE(ipc_comes_back_to(&there, block.address, SIZE));
    REQUIRE(servant_tell(NULL, SERVANT_CLOSE, &open) == CUDA_SUCCESS);
    end_liar(liar, OWN_NAME);
    REQUIRE(peer_end(&there) == 0);
    ipc_count("ipc_mapped_bytes", 0);
    ipc_count("ipc_opens", 2);
}

#define CASE_LIST(X) \
    X(lies)          \
    X(late)

IPC_MAIN(CASE_LIST)
