/* SPDX-License-Identifier: Apache-2.0 */
/*
 * named_guard - named blocks where something is in the way: other users and groups, a name that somebody else
 * put there, forked children, driver calls that fail, descriptors that run out, other backings; and the
 * command that lists them.
 * What:       cases that need another user need root, and end with 77 without. named_guard user UID GROUP
 *             SOCKET is a process of that user, also in that group if it is not 0.
 */
#define _GNU_SOURCE
#include "shim/ipc_wire.h"
#include "tests/preload/named_bed.h"
#include <grp.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/un.h>

enum { SIZE = 3 << 20, SMALL = 100 << 10, GUEST = 65533, STRANGER = 65532, TEAM = 65531 };

/* ---- other users ---- */

/* A process of user and group uid, also in group team if that is not 0; opens what root published. */
static peer_t other_user(int uid, int team)
{
    char number[16], group[16];
    const char *const args[] = {"user", number, group, NULL};

    snprintf(number, sizeof number, "%d", uid);
    snprintf(group, sizeof group, "%d", team);
    return peer_start(args);
}

static int become(char **argv)
{
    gid_t team = (gid_t)atoi(argv[3]);
    uid_t uid = (uid_t)atoi(argv[2]);

    REQUIRE(setgroups(team != 0, &team) == 0 && setgid(uid) == 0 && setuid(uid) == 0);
    return servant_run(atoi(argv[4]));
}

static void need_root(void)
{
    if (geteuid() != 0)
        _Exit(77); /* only root can be somebody else */
    REQUIRE(chmod(g_folder, 01777) == 0);
}

static CUresult opened_by(const peer_t *peer, const char *name, uint64_t flags, servant_t *out)
{
    *out = (servant_t){.number = flags, .owner = 1 /* root */};
    snprintf(out->name, sizeof out->name, "%s", name);
    return servant_tell(peer, SERVANT_NAMED_OPEN, out);
}

/* What is not published to a group nobody else finds, whatever the modes of the files. */
static void strangers(void)
{
    peer_t stranger;
    servant_t block, out;

    need_root();
    block = named_published(NULL, "own", SIZE, 1);
    stranger = other_user(STRANGER, 0);
    REQUIRE(opened_by(&stranger, "own", 0, &out) == (CUresult)CUPOLA_NOT_FOUND);
    REQUIRE(servant_ask(&stranger, SERVANT_NAMED_COUNT, "") == 0);
    REQUIRE(cupola_publish("team", block.address, 0, TEAM) == CUPOLA_NOT_SUPPORTED); /* not alone */
    REQUIRE(peer_end(&stranger) == 0);
    ipc_count("named_publishes", 1);
}

static const char *socket_path(void)
{
    static struct sockaddr_un address;
    DIR *folder = opendir(g_folder);
    struct dirent *entry;

    while (folder && (entry = readdir(folder)))
        if (strncmp(entry->d_name, "cupola-ipc-", 11) == 0)
            snprintf(address.sun_path, sizeof address.sun_path, "%s/%.27s", g_folder, entry->d_name);
    closedir(folder);
    return address.sun_path;
}

/*
 * A member of the group opens what is published to it, and nothing else; a stranger nothing, whatever the
 * mode of the socket.
 */
static void group(void)
{
    peer_t member, extra, stranger;
    servant_t block, own, out;
    struct stat stat;

    need_root();
    block = ipc_filled(NULL, SMALL, 1);
    own = named_published(NULL, "own", SMALL, 2);
    REQUIRE(cupola_publish("team", block.address, CUPOLA_READ_ONLY, TEAM) == CUPOLA_OK);
    REQUIRE(cupola_publish("other", block.address, 0, STRANGER) == CUPOLA_NOT_SUPPORTED); /* a second group */
    REQUIRE(lstat(socket_path(), &stat) == 0 && stat.st_gid == TEAM && (stat.st_mode & 0777) == 0660);
    member = other_user(TEAM, 0);
    extra = other_user(GUEST, TEAM);
    stranger = other_user(STRANGER, 0);
    REQUIRE(opened_by(&member, "team", 0, &out) == (CUresult)CUPOLA_NOT_PERMITTED);
    REQUIRE(opened_by(&member, "team", CUPOLA_READ_ONLY, &out) == CUDA_SUCCESS);
    REQUIRE(ipc_wrong(&member, &out, SMALL, 1) == 0);
    REQUIRE(opened_by(&extra, "team", CUPOLA_READ_ONLY, &out) == CUDA_SUCCESS);
    REQUIRE(ipc_wrong(&extra, &out, SMALL, 1) == 0);
    REQUIRE(named_readers("team") == 2);
    REQUIRE(opened_by(&member, "own", 0, &out) == (CUresult)CUPOLA_NOT_FOUND);
    REQUIRE(servant_ask(&member, SERVANT_NAMED_COUNT, "") == 1);
    REQUIRE(opened_by(&stranger, "team", CUPOLA_READ_ONLY, &out) == (CUresult)CUPOLA_NOT_FOUND);
    REQUIRE(chmod(socket_path(), 0666) == 0);
    REQUIRE(opened_by(&stranger, "team", CUPOLA_READ_ONLY, &out) == (CUresult)CUPOLA_NOT_FOUND);
    REQUIRE(cupola_unpublish("team") == CUPOLA_OK);
    REQUIRE(opened_by(&member, "team", CUPOLA_READ_ONLY, &out) == (CUresult)CUPOLA_NOT_FOUND);
    (void)own;
    REQUIRE(peer_end(&stranger) == 0 && peer_end(&extra) == 0 && peer_end(&member) == 0);
    ipc_count("named_publishes", 2);
}

/* With the right token of a block a member gets it if it is published to the group, and only then. */
static void ask_with_tokens(const cup_ipc_token_t *own, const cup_ipc_token_t *team)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const struct timeval timeout = {.tv_sec = PEER_TIMEOUT_S};
    const cup_ipc_token_t *tokens[] = {own, team};
    cup_ipc_reply_t reply;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);

    snprintf(address.sun_path, sizeof address.sun_path, "%s", socket_path());
    if (setgroups(0, NULL) != 0 || setgid(TEAM) != 0 || setuid(TEAM) != 0)
        _exit(2);
    if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout) != 0 ||
        connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
        _exit(3);
    for (int i = 0; i < 2; i++) {
        cup_ipc_request_t request = {.magic = CUP_IPC_MAGIC,
                                     .version = CUP_IPC_VERSION,
                                     .verb = CUP_IPC_OPEN,
                                     .seq = (uint64_t)i + 1,
                                     .id = tokens[i]->id};

        memcpy(request.secret, tokens[i]->secret, sizeof request.secret);
        if (send(fd, &request, sizeof request, 0) != (ssize_t)sizeof request ||
            recv(fd, &reply, sizeof reply, 0) != (ssize_t)sizeof reply ||
            reply.reason != (i == 0 ? CUP_IPC_REFUSED : CUP_IPC_OK))
            _exit(4 + i);
    }
    _exit(0);
}

static void tokens(void)
{
    servant_t own, team;
    cup_ipc_token_t own_token, team_token;
    int status;
    pid_t child;

    need_root();
    own = ipc_exported(NULL, SMALL, 1);
    team = ipc_exported(NULL, SMALL, 2);
    REQUIRE(cupola_publish("team", team.address, 0, TEAM) == CUPOLA_OK);
    REQUIRE(cup_ipc_token_read(&own.handle, &own_token) && cup_ipc_token_read(&team.handle, &team_token));
    child = fork();
    if (child == 0)
        ask_with_tokens(&own_token, &team_token);
    REQUIRE(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    ipc_count("named_publishes", 1);
}

/* The descriptor behind the first handle of a block, lent and given back by the book. */
static int fetch_as_member(const cup_ipc_token_t *token)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(CUP_IPC_PAGE * sizeof(int))];
    } control;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    cup_ipc_request_t request = {.magic = CUP_IPC_MAGIC, .version = CUP_IPC_VERSION, .id = token->id};
    cup_ipc_reply_t reply;
    struct iovec part = {&reply, sizeof reply};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0), memory = -1;

    snprintf(address.sun_path, sizeof address.sun_path, "%s", socket_path());
    memcpy(request.secret, token->secret, sizeof request.secret);
    if (setgroups(0, NULL) != 0 || setgid(TEAM) != 0 || setuid(TEAM) != 0 ||
        connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
        return -1;
    request.verb = CUP_IPC_OPEN;
    request.seq = request.loan = 1;
    if (send(fd, &request, sizeof request, 0) < 0 || recv(fd, &reply, sizeof reply, 0) < 0)
        return -1;
    request.verb = CUP_IPC_FETCH;
    request.count = 1;
    if (send(fd, &request, sizeof request, 0) < 0 || recvmsg(fd, &message, 0) < 0 || reply.count != 1)
        return -1;
    memcpy(&memory, CMSG_DATA(&control.header), sizeof memory);
    request.verb = CUP_IPC_CLOSE;
    (void)!send(fd, &request, sizeof request, 0);
    return memory;
}

/* 0: what the descriptor leads to was as it had been also when told to look. */
static int keep_as_member(const cup_ipc_token_t *token, int socket)
{
    int memory = fetch_as_member(token);
    const char *bytes = memory < 0 ? MAP_FAILED : mmap(NULL, SMALL, PROT_READ, MAP_SHARED, memory, 0);
    char go;

    if (bytes == MAP_FAILED || softcuda_verify_region(bytes, SMALL, 7) != 0)
        return 2;
    if (send(socket, "", 1, 0) != 1 || recv(socket, &go, 1, 0) != 1)
        return 3;
    return softcuda_verify_region(bytes, SMALL, 7) != 0;
}

/* A member of the group keeps the descriptor of a block: what the owner puts elsewhere later is none of its business. */
static void kept(void)
{
    enum { COUNT = 8 };
    servant_t team;
    cup_ipc_token_t token;
    int ends[2], status;
    char ready;
    pid_t child;

    need_root();
    team = ipc_exported(NULL, SMALL, 7);
    REQUIRE(cupola_publish("team", team.address, 0, TEAM) == CUPOLA_OK);
    REQUIRE(cup_ipc_token_read(&team.handle, &token) && socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
    child = fork();
    if (child == 0)
        _exit(keep_as_member(&token, ends[1]));
    close(ends[1]);
    REQUIRE(recv(ends[0], &ready, 1, 0) == 1);
    REQUIRE(servant_tell(NULL, SERVANT_FREE, &team) == CUDA_SUCCESS);
    ipc_pause(100000);
    for (int i = 0; i < COUNT; i++)
        REQUIRE(ipc_filled(NULL, SMALL, 50 + (uint64_t)i).address != team.address);
    REQUIRE(send(ends[0], "", 1, 0) == 1);
    REQUIRE(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    ipc_count("quarantined_bytes", 2 << 20);
}

/* Listens under this name, as a stranger, and says nothing: the death of its parent ends it. */
static void listen_as_stranger(const char *socket_name, int ready)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    snprintf(address.sun_path, sizeof address.sun_path, "%s/%s", g_folder, socket_name);
    if (setgroups(0, NULL) != 0 || setgid(STRANGER) != 0 || setuid(STRANGER) != 0 ||
        bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || chmod(address.sun_path, 0666) != 0 ||
        listen(fd, 8) != 0 || write(ready, "", 1) != 1)
        _exit(1);
    sleep(PEER_TIMEOUT_S);
    _exit(0);
}

static void put_link(const char *target, const char *path, uid_t uid)
{
    (void)unlink(path);
    REQUIRE(symlink(target, path) == 0 && lchown(path, uid, uid) == 0);
}

/* In a folder of everybody's: a stranger's link leads nowhere, nor does one of ours to a stranger's socket. */
static void impostor(void)
{
    static const char strange[] = "cupola-ipc-0123456789abcdef";
    char path[128], byte;
    const char *own;
    peer_t there;
    servant_t out = {.name = "own"};
    int ready[2];
    pid_t child;

    need_root();
    (void)named_published(NULL, "own", SMALL, 1);
    own = strrchr(socket_path(), '/') + 1;
    there = ipc_peer();
    snprintf(path, sizeof path, "%s/cupola-name-0-own", g_folder);
    put_link(own, path, STRANGER);
    REQUIRE(servant_tell(&there, SERVANT_NAMED_OPEN, &out) == (CUresult)CUPOLA_NOT_FOUND);
    put_link(own, path, 0);
    REQUIRE(servant_tell(&there, SERVANT_NAMED_OPEN, &out) == CUDA_SUCCESS);
    REQUIRE(pipe(ready) == 0);
    child = fork();
    if (child == 0)
        listen_as_stranger(strange, ready[1]);
    REQUIRE(read(ready[0], &byte, 1) == 1);
    put_link(strange, path, 0);
    REQUIRE(servant_tell(&there, SERVANT_NAMED_OPEN, &out) == (CUresult)CUPOLA_NOT_FOUND);
    REQUIRE(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
    put_link(own, path, 0);
    REQUIRE(peer_end(&there) == 0);
    snprintf(path, sizeof path, "%s/%s", g_folder, strange);
    REQUIRE(unlink(path) == 0);
    ipc_count("named_publishes", 1);
}

/* ---- where it does not work ---- */

static void forked(void)
{
    servant_t block = named_published(NULL, "a", SIZE, 1);
    cupola_block_t out;
    size_t count;
    int status;
    pid_t child = fork();

    if (child == 0)
        _exit(cupola_publish("b", block.address, 0, CUPOLA_NO_GROUP) != CUPOLA_FORKED ||
              cupola_open("a", 0, CUPOLA_MYSELF, &out) != CUPOLA_FORKED ||
              cupola_unpublish("a") != CUPOLA_FORKED || cupola_list(NULL, 0, &count) != CUPOLA_FORKED);
    REQUIRE(waitpid(child, &status, 0) == child && status == 0);
    child = fork();
    if (child == 0)
        exit(0); /* its exit handlers are the parent's: the name must stay */
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(servant_ask(NULL, SERVANT_NAMED_COUNT, "") == 1);
    ipc_count("named_publishes", 1);
}

/* Blocks of cuMemAlloc: the code, one line, and all else works. */
static void raw(void)
{
    servant_t block = {.size = SIZE}, far;
    size_t count;

    REQUIRE(servant_tell(NULL, SERVANT_ALLOC, &block) == CUDA_SUCCESS);
    REQUIRE(named_publish_code("a", block.address, 0) == CUPOLA_NOT_SUPPORTED);
    REQUIRE(cupola_list(NULL, 0, &count) == CUPOLA_OK && count == 0);
    far = named(&block);
    snprintf(far.name, sizeof far.name, "a");
    REQUIRE(servant_tell(NULL, SERVANT_NAMED_OPEN, &far) == (CUresult)CUPOLA_NOT_FOUND);
    REQUIRE(softcuda_calls("cuIpcGetMemHandle") == 0); /* the block has not been given up */
    ipc_count("named_publishes", 0);
}

/* ---- failing calls ---- */

/* Each call of that name in an order fails once: the code, nothing mapped, nothing published, nothing lent. */
static void fails_everywhere(const peer_t *where, servant_order_t order, servant_t message, const char *call)
{
    uint64_t mapped = servant_ask(where, SERVANT_MAPPED, ""),
             names = servant_ask(where, SERVANT_NAMED_COUNT, ""), nth = 1;

    for (;; nth++) {
        servant_t fault = {.number = nth}, trial = message;

        snprintf(fault.name, sizeof fault.name, "%s", call);
        REQUIRE(servant_tell(where, SERVANT_FAIL, &fault) == CUDA_SUCCESS);
        if (servant_tell(where, order, &trial) == CUDA_SUCCESS) {
            fault.number = 0;
            REQUIRE(servant_tell(where, SERVANT_FAIL, &fault) == CUDA_SUCCESS);
            break;
        }
        REQUIRE(trial.result == CUDA_ERROR_UNKNOWN);
        REQUIRE(servant_ask(where, SERVANT_MAPPED, "") == mapped);
        REQUIRE(servant_ask(where, SERVANT_NAMED_COUNT, "") == names);
    }
    fprintf(stderr, "%s: failed %d times\n", call, (int)nth - 1);
    REQUIRE(nth > 1);
}

static void failures(void)
{
    static const char *const in_open[] = {"cuMemAddressReserve", "cuMemImportFromShareableHandle", "cuMemMap",
                                          "cuMemSetAccess"};
    peer_t there = ipc_peer();
    servant_t block = ipc_filled(NULL, 5 << 20, 1), far = {.size = 4096, .number = CUPOLA_READ_ONLY};

    REQUIRE(servant_tell(&there, SERVANT_ALLOC, &far) == CUDA_SUCCESS); /* its pool is there */
    block.number = 0;
    snprintf(block.name, sizeof block.name, "a");
    fails_everywhere(NULL, SERVANT_PUBLISH, block, "cuMemExportToShareableHandle");
    far = named(&block);
    for (unsigned i = 0; i < sizeof in_open / sizeof in_open[0]; i++) {
        far.number = CUPOLA_READ_ONLY;
        fails_everywhere(&there, SERVANT_NAMED_OPEN, far, in_open[i]);
        REQUIRE(servant_tell(&there, SERVANT_NAMED_OPEN, &far) == CUDA_SUCCESS);
        for (int close = 0; close < 2; close++)
            REQUIRE(servant_tell(&there, SERVANT_NAMED_CLOSE, &far) == CUDA_SUCCESS);
    }
    named_unread("a");
    REQUIRE(servant_tell(NULL, SERVANT_FREE, &block) == CUDA_SUCCESS);
    REQUIRE(ipc_comes_back(block.address, 5 << 20)); /* no opening that failed has kept it */
    ipc_end(&there);
    ipc_count("quarantined_bytes", 0);
}

static void set_limit(const peer_t *where, uint64_t more)
{
    servant_t message = {.number = more};

    REQUIRE(servant_tell(where, SERVANT_LIMIT, &message) == CUDA_SUCCESS);
}

/* With few descriptors each call fails or not, by their number; with more it succeeds, and none was lost. */
static void descriptors(void)
{
    peer_t there = ipc_peer();
    servant_t block = ipc_filled(NULL, SIZE, 1), far;
    uint64_t before;
    int failed = 0;

    snprintf(block.name, sizeof block.name, "a");
    block.number = 0;
    (void)ipc_exported(NULL, SIZE, 2); /* the thread is there */
    for (uint64_t more = 1; more < 6; more++) {
        set_limit(NULL, more);
        if (servant_tell(NULL, SERVANT_PUBLISH, &block) == CUDA_SUCCESS)
            REQUIRE(cupola_unpublish("a") == CUPOLA_OK);
        else
            failed++;
        set_limit(NULL, 0);
    }
    REQUIRE(failed > 0);
    REQUIRE(servant_tell(NULL, SERVANT_PUBLISH, &block) == CUDA_SUCCESS);
    failed = 0;
    before = servant_ask(&there, SERVANT_DESCRIPTORS, "");
    for (uint64_t more = 1; more < 8; more++) {
        far = named(&block);
        set_limit(&there, more);
        if (servant_tell(&there, SERVANT_NAMED_OPEN, &far) == CUDA_SUCCESS)
            REQUIRE(servant_tell(&there, SERVANT_NAMED_CLOSE, &far) == CUDA_SUCCESS);
        else
            failed++;
        (void)servant_tell(&there, SERVANT_NAMED_COUNT, &far);
        set_limit(&there, 0);
    }
    REQUIRE(failed > 0);
    far = named(&block);
    REQUIRE(servant_tell(&there, SERVANT_NAMED_OPEN, &far) == CUDA_SUCCESS);
    REQUIRE(ipc_wrong(&there, &far, SIZE, 1) == 0);
    REQUIRE(servant_tell(&there, SERVANT_NAMED_CLOSE, &far) == CUDA_SUCCESS);
    REQUIRE(servant_ask(&there, SERVANT_DESCRIPTORS, "") == before);
    ipc_end(&there);
    ipc_count("ipc_mapped_bytes", 0);
}

/* ---- the command ---- */

/* NAMED_TOOL: the command, which knows nothing of this process but the folder. */
static void tool(void)
{
    char command[600], text[4000] = "";
    servant_t block = named_published(NULL, "weights", 5 << 20, 1);
    FILE *out;

    (void)block;
    snprintf(command, sizeof command, "env -u LD_PRELOAD '%s' list", getenv("NAMED_TOOL"));
    out = popen(command, "r");
    REQUIRE(out != NULL);
    (void)!fread(text, 1, sizeof text - 1, out);
    REQUIRE(pclose(out) == 0);
    fputs(text, stderr);
    REQUIRE(strstr(text, "\nweights ") && strstr(text, " 5.0 MiB ") && strstr(text, " write "));
    snprintf(command, sizeof command, " %d ", (int)getpid());
    REQUIRE(strstr(text, command) != NULL);
    ipc_count("named_publishes", 1);
}

#define CASE_LIST(X) \
    X(strangers)     \
    X(group)         \
    X(tokens)        \
    X(kept)          \
    X(impostor)      \
    X(forked)        \
    X(raw)           \
    X(failures)      \
    X(descriptors)   \
    X(tool)

int main(int argc, char **argv)
{
    static const ipc_case_t cases[] = {CASE_LIST(IPC_CASE)};

    if (argc == 5 && strcmp(argv[1], "user") == 0)
        return become(argv);
    return ipc_main(argc, argv, cases, sizeof cases / sizeof cases[0]);
}
