/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ipc_namespaces - IPC of pooled memory between containers: processes in namespaces of their own that have the socket folder
 * in common, and such that have not.
 * What:       for each row of PAIR_LIST an exporter and an importer there: right bytes both ways; the importer is killed, and
 *             what it had comes back; one with another folder is refused, and told why. Exit 77 where nobody may make
 *             namespaces.
 */
#define _GNU_SOURCE
#include "tests/preload/ipc_bed.h"
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>

enum { SIZE = 3 << 20, OTHER_UID = 1000, NETLESS = CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC };

/* X(case, namespaces of the exporter, of the importer) */
#define PAIR_LIST(X)                          \
    X(exporter_alone, CLONE_NEWPID, 0)        \
    X(importer_alone, 0, CLONE_NEWPID)        \
    X(both_alone, CLONE_NEWPID, CLONE_NEWPID) \
    X(without_network, NETLESS, NETLESS)      \
    X(other_numbers, 0, CLONE_NEWUSER)        \
    X(rootless, CLONE_NEWUSER, NETLESS | CLONE_NEWUSER)

/* ---- in the new process ---- */

static int g_flags; /* of the next one */

static void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);

    REQUIRE(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && close(fd) == 0);
}

/* The user has another number in there, as in a container that is started without root. */
static void map_user(uid_t uid, gid_t gid)
{
    char line[64];

    write_file("/proc/self/setgroups", "deny");
    snprintf(line, sizeof line, "%d %u 1", OTHER_UID, (unsigned)uid);
    write_file("/proc/self/uid_map", line);
    snprintf(line, sizeof line, "%d %u 1", OTHER_UID, (unsigned)gid);
    write_file("/proc/self/gid_map", line);
}

/* Ends as that one ends. */
static void end_with(pid_t child)
{
    int status = 0;

    while (waitpid(child, &status, 0) != child)
        ;
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

/* A namespace of processes begins with the next child: that one is the peer, and its parent waits for it. */
static void enter(void)
{
    uid_t uid = geteuid();
    gid_t gid = getegid();
    pid_t child;

    REQUIRE(unshare(g_flags) == 0);
    if (g_flags & CLONE_NEWUSER)
        map_user(uid, gid);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* it was lost with the old credentials */
    child = g_flags & CLONE_NEWPID ? fork() : 0;
    REQUIRE(child >= 0);
    if (child > 0)
        end_with(child);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
}

static peer_t start_in(int flags, const char *const *env)
{
    static const char *const args[] = {IPC_SERVANT, NULL};

    g_flags = flags;
    return peer_start_in(&(peer_world_t){env, flags ? enter : NULL}, args);
}

/* Another process tries: this one must not change its world. */
static bool may_enter(int flags)
{
    int status = 0;
    pid_t child = fork();

    if (child == 0)
        _exit(flags == 0 || unshare(flags) == 0 ? 0 : 1);
    return waitpid(child, &status, 0) == child && status == 0;
}

/* ---- cases ---- */

/* There is a line about an open that failed, which says so. */
static bool has_said(const char *path, const char *words)
{
    FILE *log = fopen(path, "r");
    char line[1024];
    bool is_there = false;

    while (log && fgets(line, sizeof line, log))
        is_there |= strstr(line, "can't be opened") && strstr(line, words);
    if (log)
        fclose(log);
    return is_there;
}

/* It has the token, but another folder: nobody is there. */
static void refused_elsewhere(int flags, const servant_t *block)
{
    char folder[] = "/tmp/cupola-other-XXXXXX", log[sizeof folder + 8];
    char folder_is[sizeof folder + 32], log_is[sizeof log + 32];
    const char *const env[] = {folder_is, log_is, NULL};
    servant_t here = {.handle = block->handle};

    REQUIRE(mkdtemp(folder) != NULL);
    snprintf(log, sizeof log, "%s.log", folder);
    snprintf(folder_is, sizeof folder_is, "CUPOLA_SOCKET_DIR=%s", folder);
    snprintf(log_is, sizeof log_is, "CUPOLA_LOG=info:%s", log);
    peer_t to = start_in(flags, env);
    REQUIRE(servant_tell(&to, SERVANT_OPEN, &here) == CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(peer_end(&to) == 0);
    REQUIRE(has_said(log, "another CUPOLA_SOCKET_DIR"));
    REQUIRE(unlink(log) == 0 && rmdir(folder) == 0);
}

static void try_pair(int exporter, int importer)
{
    if (!may_enter(exporter) || !may_enter(importer))
        _Exit(77);
    peer_t from = start_in(exporter, NULL), to = start_in(importer, NULL);
    servant_t block = ipc_exported(&from, SIZE, 1), here = ipc_opened(&to, &block);

    REQUIRE(ipc_wrong(&to, &here, SIZE, 1) == 0);
    here.size = SIZE;
    here.number = 2;
    REQUIRE(servant_tell(&to, SERVANT_FILL, &here) == CUDA_SUCCESS);
    REQUIRE(ipc_wrong(&from, &block, SIZE, 2) == 0);
    refused_elsewhere(importer, &block);
    REQUIRE(servant_tell(&from, SERVANT_FREE, &block) == CUDA_SUCCESS);
    servant_t next = ipc_filled(&from, SIZE, 3);
    REQUIRE(next.address != block.address);
    REQUIRE(ipc_wrong(&to, &here, SIZE, 2) == 0);
    g_has_killed = 1;
    REQUIRE(kill(to.pid, SIGKILL) == 0 && peer_end(&to) == 128 + SIGKILL);
    REQUIRE(ipc_comes_back_to(&from, block.address, SIZE));
    REQUIRE(peer_end(&from) == 0);
}

#define X(name, exporter, importer)   \
    static void name(void)            \
    {                                 \
        try_pair(exporter, importer); \
    }
PAIR_LIST(X)
#undef X

#define CASE(name, exporter, importer) IPC_CASE(name)
#define CASE_LIST(ignored)             PAIR_LIST(CASE)

IPC_MAIN(CASE_LIST)
