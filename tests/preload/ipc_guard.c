/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ipc_guard - who may open what over the sockets of IPC: only the same user, and only with a token;
 * whatever else arrives is refused, and disturbs nobody.
 * What:       speaks the protocol itself where a well-behaved importer would not (shim/ipc_wire.h).
 */
#define _GNU_SOURCE
#include "shim/ipc_wire.h"
#include "tests/preload/ipc_bed.h"
#include "tests/support/rng.h"
#include <sched.h>
#include <sys/stat.h>
#include <sys/un.h>

enum { SIZE = 3 << 20, NOBODY = 65534 };

static cup_ipc_token_t token_of(const servant_t *block)
{
    cup_ipc_token_t token;

    REQUIRE(cup_ipc_token_read(&block->handle, &token));
    return token;
}

static CUipcMemHandle handle_of(cup_ipc_token_t token)
{
    CUipcMemHandle handle;

    token.check = cup_ipc_token_check(&token);
    memcpy(&handle, &token, sizeof handle);
    return handle;
}

static struct sockaddr_un address_of(const cup_ipc_token_t *token)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    REQUIRE(snprintf(address.sun_path, sizeof address.sun_path, "%s/cupola-ipc-%016llx", g_folder,
                     (unsigned long long)token->exporter) < (int)sizeof address.sun_path);
    return address;
}

/* -1: not let in. */
static int reach(const cup_ipc_token_t *token)
{
    const struct timeval timeout = {.tv_sec = PEER_TIMEOUT_S};
    struct sockaddr_un address = address_of(token);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    REQUIRE(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout) == 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    close(fd);
    return -1;
}

static cup_ipc_request_t request_for(const cup_ipc_token_t *token, cup_ipc_verb_t verb, uint64_t seq)
{
    cup_ipc_request_t request = {.magic = CUP_IPC_MAGIC,
                                 .version = CUP_IPC_VERSION,
                                 .verb = (uint16_t)verb,
                                 .seq = seq,
                                 .loan = seq,
                                 .id = token->id,
                                 .count = CUP_IPC_PAGE};

    memcpy(request.secret, token->secret, sizeof request.secret);
    return request;
}

/* False: the other side has hung up. */
static bool ask(int fd, const cup_ipc_request_t *request, cup_ipc_reply_t *out_reply)
{
    return send(fd, request, sizeof *request, MSG_NOSIGNAL) == (ssize_t)sizeof *request &&
           recv(fd, out_reply, sizeof *out_reply, 0) == (ssize_t)sizeof *out_reply;
}

/* ---- another user ---- */

/* In a child without CUDA, as another user, with the right token: 0 when it was not answered. */
static int ask_as_nobody(const cup_ipc_token_t *token)
{
    cup_ipc_request_t request = request_for(token, CUP_IPC_OPEN, 1);
    cup_ipc_reply_t reply;
    int fd, status;
    pid_t child = fork();

    if (child == 0) {
        if (setgid(NOBODY) != 0 || setuid(NOBODY) != 0)
            _exit(2);
        fd = reach(token);
        if (fd < 0)
            _exit(1);
        _exit(ask(fd, &request, &reply) ? 3 : 0);
    }
    REQUIRE(waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void other_user(void)
{
    servant_t block = ipc_exported(NULL, SIZE, 1);
    cup_ipc_token_t token = token_of(&block);
    struct sockaddr_un address = address_of(&token);
    cup_ipc_request_t request = request_for(&token, CUP_IPC_OPEN, 1);
    cup_ipc_reply_t reply;
    struct stat stat;
    int fd;

    if (geteuid() != 0)
        _Exit(77); /* only root can be somebody else */
    REQUIRE(lstat(address.sun_path, &stat) == 0 && S_ISSOCK(stat.st_mode) && (stat.st_mode & 0777) == 0600);
    REQUIRE(chmod(g_folder, 0755) == 0);
    REQUIRE(ask_as_nobody(&token) == 1); /* the mode of the socket */
    REQUIRE(chmod(address.sun_path, 0666) == 0);
    REQUIRE(ask_as_nobody(&token) == 0); /* let in by the mode, and sent away by name */
    fd = reach(&token);
    REQUIRE(fd >= 0 && ask(fd, &request, &reply) && reply.reason == CUP_IPC_OK); /* the same, as this user */
    close(fd);
    ipc_count("ipc_exports", 1);
}

/* A folder that others can write to is no place to meet, and says so by a code. */
static void unsafe_folder(void)
{
    servant_t block = ipc_filled(NULL, SIZE, 1);

    REQUIRE(chmod(g_folder, 0777) == 0);
    REQUIRE(servant_tell(NULL, SERVANT_GET, &block) == CUDA_ERROR_NOT_SUPPORTED);
    REQUIRE(chmod(g_folder, 01777) == 0); /* as /tmp: each his own */
    REQUIRE(servant_tell(NULL, SERVANT_GET, &block) == CUDA_SUCCESS);
    ipc_count("ipc_exports", 1);
}

/* ---- tokens ---- */

/* A token of a block that is there, with something changed: never the block. */
static CUipcMemHandle spoil(const cup_ipc_token_t *good, cup_rng_t *rng)
{
    cup_ipc_token_t token = *good;
    uint64_t noise = cup_rng_next(rng) | 1;

    switch (cup_rng_below(rng, 5)) {
    case 0:
        token.exporter ^= noise;
        break;
    case 1:
        token.id ^= noise;
        break;
    case 2:
        token.secret[noise % sizeof token.secret] ^= 1 << noise / 64 % 8;
        break;
    case 3:
        token.base += 512 * (noise % 1000);
        break;
    case 4:
        token.size_bytes += noise % 1000;
        break;
    }
    return handle_of(token);
}

/* None of 10,000 opens anything, and the block is still there to be opened with its own. */
static void tokens(void)
{
    enum { COUNT = 10000 };
    peer_t there = ipc_peer();
    servant_t block = ipc_exported(&there, SIZE, 4), here;
    cup_ipc_token_t good = token_of(&block);
    cup_rng_t rng = {cup_rng_seed(1)};
    uint64_t own = 0;
    int result;

    for (int i = 0; i < COUNT; i++) {
        bool is_ours = cup_rng_below(&rng, 2);

        here.handle = spoil(&good, &rng);
        for (size_t at = 0; !is_ours && at < sizeof here.handle; at++)
            here.handle.reserved[at] = (char)cup_rng_next(&rng);
        own += is_ours;
        result = servant_tell(NULL, SERVANT_OPEN, &here);
        REQUIRE(result == CUDA_ERROR_INVALID_VALUE || (is_ours && result == CUDA_ERROR_INVALID_HANDLE));
    }
    REQUIRE(softcuda_calls("cuIpcOpenMemHandle_v2") == COUNT - own); /* what is not ours is the driver's */
    REQUIRE(softcuda_calls("cuMemImportFromShareableHandle") == 0);
    here = ipc_opened(NULL, &block);
    REQUIRE(servant_wrong(here.address, SIZE, 4) == 0);
    REQUIRE(servant_tell(NULL, SERVANT_CLOSE, &here) == CUDA_SUCCESS);
    REQUIRE(peer_end(&there) == 0);
    ipc_count("ipc_opens", 1);
    ipc_count("ipc_closes", 1);
}

/* ---- noise ---- */

static void send_noise(int fd, cup_rng_t *rng)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } control = {0};
    char bytes[200];
    struct iovec part = {bytes, cup_rng_below(rng, sizeof bytes) + 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    int zero = 0;

    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)cup_rng_next(rng);
    if (cup_rng_below(rng, 4) == 0) {
        message.msg_control = &control;
        message.msg_controllen = sizeof control;
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(sizeof zero);
        memcpy(CMSG_DATA(&control.header), &zero, sizeof zero);
    }
    (void)sendmsg(fd, &message, MSG_NOSIGNAL);
}

/* Messages that are none, and requests that make no sense, with the right first words. */
static void noise(void)
{
    enum { ROUNDS = 300, EACH = 10 };
    servant_t block = ipc_exported(NULL, SIZE, 1);
    cup_ipc_token_t token = token_of(&block);
    cup_rng_t rng = {cup_rng_seed(1)};
    uint64_t before = 0;
    cup_ipc_reply_t reply;

    for (int round = 0; round < ROUNDS; round++) {
        int fd = reach(&token);

        REQUIRE(fd >= 0);
        for (int i = 0; i < EACH; i++)
            send_noise(fd, &rng);
        cup_ipc_request_t request = request_for(&token, CUP_IPC_FETCH, cup_rng_next(&rng));
        request.first = (uint32_t)cup_rng_next(&rng);
        request.count = (uint32_t)cup_rng_next(&rng);
        REQUIRE(ask(fd, &request, &reply) && reply.reason == CUP_IPC_REFUSED); /* nothing is on loan */
        request = request_for(&token, CUP_IPC_OPEN, 7);
        REQUIRE(ask(fd, &request, &reply) && reply.reason == CUP_IPC_OK);
        REQUIRE(ask(fd, &request, &reply) && reply.reason == CUP_IPC_REFUSED); /* the same number twice */
        request = request_for(&token, CUP_IPC_FETCH, 7);
        request.first = (uint32_t)cup_rng_next(&rng) | 16;
        REQUIRE(ask(fd, &request, &reply) && reply.reason == CUP_IPC_OK && reply.count == 0);
        request = request_for(&token, CUP_IPC_CLOSE, 7);
        REQUIRE(send(fd, &request, sizeof request, MSG_NOSIGNAL) == (ssize_t)sizeof request);
        close(fd);
        if (round == ROUNDS / 3)
            before = servant_descriptors();
    }
    REQUIRE(servant_descriptors() <=
            before + 4); /* what was sent along was closed; connections may end late */
    REQUIRE(servant_tell(NULL, SERVANT_FREE, &block) == CUDA_SUCCESS);
    REQUIRE(ipc_comes_back(block.address, SIZE));
    ipc_count("quarantined_bytes", 0);
}

/* ---- what is left behind ---- */

/*
 * The socket of a process that was killed goes when the next one starts; that of a process that is alive
 * stays.
 */
static void leftovers(void)
{
    peer_t dead = ipc_peer(), alive = ipc_peer();
    servant_t block = ipc_exported(&dead, SIZE, 1), other = ipc_exported(&alive, SIZE, 2), here;

    REQUIRE(block.result == CUDA_SUCCESS && ipc_count_sockets(0) == 2);
    kill(dead.pid, SIGKILL);
    REQUIRE(peer_end(&dead) == 128 + SIGKILL);
    REQUIRE(ipc_count_sockets(0) == 2);
    REQUIRE(ipc_exported(NULL, SIZE, 3).result == CUDA_SUCCESS);
    REQUIRE(ipc_count_sockets(0) == 2); /* its own, and the one that is alive */
    here = ipc_opened(NULL, &other);
    REQUIRE(servant_wrong(here.address, SIZE, 2) == 0);
    REQUIRE(servant_tell(NULL, SERVANT_CLOSE, &here) == CUDA_SUCCESS);
    REQUIRE(peer_end(&alive) == 0);
    ipc_count("ipc_exports", 1);
}

/* A socket of this name in the folder, that nobody listens on, as old as that. */
static void leave_socket(const char *name, time_t age_s)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timespec times[2] = {{.tv_sec = time(NULL) - age_s}, {.tv_sec = time(NULL) - age_s}};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    REQUIRE(snprintf(address.sun_path, sizeof address.sun_path, "%s/%.40s", g_folder, name) <
            (int)sizeof address.sun_path);
    REQUIRE(bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && close(fd) == 0);
    REQUIRE(utimensat(AT_FDCWD, address.sun_path, times, AT_SYMLINK_NOFOLLOW) == 0);
}

static int is_left(const char *name)
{
    char path[128];
    struct stat stat;

    snprintf(path, sizeof path, "%s/%.40s", g_folder, name);
    return lstat(path, &stat) == 0 && unlink(path) == 0;
}

/*
 * A process that died before it listened leaves a socket, too; one that is about to listen keeps its own. What else
 * is in the folder, however much, is in nobody's way.
 */
static void leftovers_early(void)
{
    enum { OTHERS = 1200, EACH = 100 };
    char path[128];

    for (int i = 0; i < OTHERS; i++) {
        snprintf(path, sizeof path, "%s/other-%d", g_folder, i);
        REQUIRE(close(open(path, O_CREAT | O_CLOEXEC, 0600)) == 0);
        if (i % EACH == 0) { /* everywhere among them, in whatever order they are read */
            snprintf(path, sizeof path, "cupola-ipc-%016x", i);
            leave_socket(path, 0);
        }
    }
    leave_socket(".cupola-ipc-1123456789abcdef", 3600);
    leave_socket(".cupola-ipc-2123456789abcdef", 0);
    REQUIRE(ipc_exported(NULL, SIZE, 1).result == CUDA_SUCCESS);
    for (int i = 0; i < OTHERS; i++) {
        snprintf(path, sizeof path, "%s/other-%d", g_folder, i);
        REQUIRE(unlink(path) == 0);
        snprintf(path, sizeof path, "cupola-ipc-%016x", i);
        REQUIRE(!is_left(path));
    }
    REQUIRE(!is_left(".cupola-ipc-1123456789abcdef"));
    REQUIRE(is_left(".cupola-ipc-2123456789abcdef"));
    ipc_count("ipc_exports", 1);
}

/* ---- users without a number ---- */

/* A process that its user namespace has no user for. */
static int run_unmapped(const char *socket)
{
    if (unshare(CLONE_NEWUSER) != 0)
        return 77;
    return servant_run(atoi(socket));
}

/* It may be anybody: everybody else without a number looks the same. */
static void unmapped(void)
{
    const char *const args[] = {"unmapped", NULL};
    peer_t there = peer_start(args);
    servant_t block = {.size = SIZE};
    int code;

    peer_say(there.socket, &(servant_t){.order = SERVANT_NOTE}, sizeof block);
    if (!peer_try_hear(there.socket, &block, sizeof block)) {
        code = peer_end(&there);
        REQUIRE(code == 77);
        _Exit(77);
    }
    block = ipc_filled(&there, SIZE, 1);
    REQUIRE(servant_tell(&there, SERVANT_GET, &block) == CUDA_ERROR_NOT_SUPPORTED);
    REQUIRE(peer_end(&there) == 0);
    REQUIRE(ipc_exported(NULL, SIZE, 1).result == CUDA_SUCCESS);
    ipc_count("ipc_exports", 1);
}

/* ---- other versions ---- */

/* The driver refuses it, and one line says why. */
static void version(void)
{
    peer_t there = ipc_peer();
    servant_t block = ipc_exported(&there, SIZE, 4), here = block;
    cup_ipc_token_t token = token_of(&block);
    int before;

    token.version++;
    here.handle = handle_of(token);
    before = ipc_listen();
    REQUIRE(servant_tell(NULL, SERVANT_OPEN, &here) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(ipc_has_said(before, "another version"));
    REQUIRE(peer_end(&there) == 0);
    ipc_count("ipc_opens", 0);
}

#define CASE_LIST(X)   \
    X(unsafe_folder)   \
    X(tokens)          \
    X(noise)           \
    X(leftovers)       \
    X(leftovers_early) \
    X(unmapped)        \
    X(version)         \
    X(other_user)

int main(int argc, char **argv)
{
    static const ipc_case_t cases[] = {CASE_LIST(IPC_CASE)};

    if (argc == 3 && strcmp(argv[1], "unmapped") == 0)
        return run_unmapped(argv[2]);
    return ipc_main(argc, argv, cases, sizeof cases / sizeof cases[0]);
}
