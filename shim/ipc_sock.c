/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: a socket is bound under a name of its own, and renamed once it listens, so that whoever finds it
 * refusing finds a dead one. The folder is read by the system call: readdir would use the program's heap.
 */
#define _GNU_SOURCE
#include "shim/ipc_sock.h"
#include "shim/conf.h"
#include "shim/gate.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define NAME_PREFIX "cupola-ipc-"
#define BACKLOG     64
#define SWEEP_MAX   256 /* sockets of this user that are asked in one start */
#define EARLY_S     60  /* between bind and rename: a process that is stopped there, too, gets that long */
#define OVERFLOW_ID 65534
#define GROUPS_MAX  1024

uint64_t cup_ipc_now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* ---- users ---- */

/*
 * In a user namespace every user that has no number there is shown as this one (proc/sys/kernel/overflowuid), be it
 * this process or any other: it is nobody's unless the namespace itself has it.
 */
static bool is_somebody(uint32_t id, const char *map_path)
{
    char text[4096], *at = text, *before;
    int fd = id == OVERFLOW_ID ? open(map_path, O_RDONLY | O_CLOEXEC) : -1;
    long length = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    bool is_it = id != OVERFLOW_ID;

    if (fd >= 0)
        close(fd);
    text[length > 0 ? length : 0] = '\0';
    do { /* a line: the first one here, the first one outside, how many */
        uint64_t first, count;

        before = at;
        first = strtoull(at, &at, 10);
        (void)strtoull(at, &at, 10);
        count = strtoull(at, &at, 10);
        is_it |= id - first < count;
    } while (at != before);
    return is_it;
}

static bool is_user(uid_t uid)
{
    return is_somebody(uid, "/proc/self/uid_map");
}

/* ---- the folder ---- */

/* Nobody but the user and root can put or replace something of ours there. */
static bool is_safe_folder(const char *path)
{
    struct stat stat;

    if (lstat(path, &stat) != 0 || !S_ISDIR(stat.st_mode))
        return false;
    if (stat.st_uid != geteuid() && stat.st_uid != 0)
        return false;
    return (stat.st_mode & (S_IWGRP | S_IWOTH)) == 0 || (stat.st_mode & S_ISVTX);
}

static bool is_own_folder(const char *path)
{
    struct stat stat;

    return lstat(path, &stat) == 0 && S_ISDIR(stat.st_mode) && stat.st_uid == geteuid() &&
           (stat.st_mode & (S_IRWXG | S_IRWXO)) == 0;
}

bool cup_ipc_folder(char out_path[CUP_IPC_PATH_MAX])
{
    const char *named = cup_gate_conf()->socket_dir.text;
    const char *runtime = getenv("XDG_RUNTIME_DIR");

    if (!is_user(geteuid()))
        return false;
    if (named[0])
        return snprintf(out_path, CUP_IPC_PATH_MAX, "%s", named) < CUP_IPC_PATH_MAX &&
               is_safe_folder(out_path);
    if (runtime && snprintf(out_path, CUP_IPC_PATH_MAX, "%s", runtime) < CUP_IPC_PATH_MAX &&
        is_safe_folder(out_path))
        return true;
    snprintf(out_path, CUP_IPC_PATH_MAX, "/tmp/cupola-%u", (unsigned)geteuid());
    mkdir(out_path, 0700);
    return is_own_folder(out_path);
}

static bool fill_address(struct sockaddr_un *address, const char *folder, const char *prefix,
                         uint64_t exporter)
{
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    return snprintf(address->sun_path, sizeof address->sun_path, "%s/%s" NAME_PREFIX "%016llx", folder,
                    prefix, (unsigned long long)exporter) < (int)sizeof address->sun_path;
}

void cup_ipc_socket_name(uint64_t exporter, char out_name[CUP_IPC_PATH_MAX])
{
    snprintf(out_name, CUP_IPC_PATH_MAX, NAME_PREFIX "%016llx", (unsigned long long)exporter);
}

bool cup_ipc_socket_parse(const char *name, uint64_t *out_exporter)
{
    const char *digits = name + strlen(NAME_PREFIX);
    char *end;

    if (strncmp(name, NAME_PREFIX, strlen(NAME_PREFIX)) != 0 || strspn(digits, "0123456789abcdef") != 16)
        return false;
    *out_exporter = strtoull(digits, &end, 16);
    return *end == '\0';
}

static int open_socket(void)
{
    return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

/* ---- what is in the folder, and what dead processes left there ---- */

struct name {
    uint64_t inode;
    int64_t offset;
    unsigned short bytes;
    unsigned char type;
    char text[];
};

/* Between its bind and its rename a socket refuses, too, however alive its process: for a moment only. */
static bool may_be_dead(const char *path, const char *name)
{
    struct stat stat;

    return lstat(path, &stat) == 0 && S_ISSOCK(stat.st_mode) && stat.st_uid == geteuid() &&
           (name[0] != '.' || time(NULL) - stat.st_mtime > EARLY_S);
}

/* left: how many of ours may still be asked. */
static void sweep_one(const char *folder, const char *name, void *left)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int probe;

    if (snprintf(address.sun_path, sizeof address.sun_path, "%s/%s", folder, name) >=
            (int)sizeof address.sun_path ||
        *(int *)left == 0 || !may_be_dead(address.sun_path, name))
        return;
    --*(int *)left;
    probe = open_socket();
    if (probe >= 0 && connect(probe, (struct sockaddr *)&address, sizeof address) != 0 &&
        errno == ECONNREFUSED)
        unlink(address.sun_path);
    if (probe >= 0)
        close(probe);
}

static void sweep(const char *folder)
{
    int left = SWEEP_MAX;

    cup_ipc_each_file(folder, NAME_PREFIX, INT_MAX, sweep_one, &left);
    cup_ipc_each_file(folder, "." NAME_PREFIX, INT_MAX, sweep_one, &left);
}

void cup_ipc_each_file(const char *folder, const char *prefix, int most,
                       void (*found)(const char *folder, const char *name, void *arg), void *arg)
{
    _Alignas(struct name) char buffer[4096];
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), seen = 0;
    long length;

    while (fd >= 0 && seen < most && (length = syscall(SYS_getdents64, fd, buffer, sizeof buffer)) > 0) {
        for (long at = 0; at < length; seen++) {
            const struct name *name = (const struct name *)(buffer + at);

            if (strncmp(name->text, prefix, strlen(prefix)) == 0)
                found(folder, name->text, arg);
            at += name->bytes;
        }
    }
    if (fd >= 0)
        close(fd);
}

/* ---- listening, connecting ---- */

int cup_ipc_listen(uint64_t exporter, char out_path[CUP_IPC_PATH_MAX], cup_ipc_reason_t *out_reason)
{
    struct sockaddr_un early, address;
    char folder[CUP_IPC_PATH_MAX];
    int fd;

    *out_reason = CUP_IPC_FOLDER;
    if (!cup_ipc_folder(folder) || !fill_address(&early, folder, ".", exporter) ||
        !fill_address(&address, folder, "", exporter))
        return -1;
    sweep(folder);
    fd = open_socket();
    if (fd < 0) {
        *out_reason = CUP_IPC_SYSTEM;
        return -1;
    }
    if (bind(fd, (struct sockaddr *)&early, sizeof early) == 0) {
        if (chmod(early.sun_path, 0600) == 0 && listen(fd, BACKLOG) == 0 &&
            rename(early.sun_path, address.sun_path) == 0) {
            memcpy(out_path, address.sun_path, sizeof address.sun_path);
            return fd;
        }
        unlink(early.sun_path);
    }
    close(fd);
    return -1;
}

static bool is_of_user(int fd, uid_t uid)
{
    struct ucred peer;
    socklen_t size = sizeof peer;

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == uid && is_user(uid);
}

/* Its main group, or one of its others (Linux 4.13; one of very many is not found). */
static bool is_of_group(int fd, gid_t gid)
{
    struct ucred peer;
    gid_t groups[GROUPS_MAX];
    socklen_t size = sizeof peer, bytes = sizeof groups;

    if (!is_somebody(gid, "/proc/self/gid_map") || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
        return false;
    if (peer.gid == gid)
        return true;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &bytes) != 0)
        return false;
    for (size_t i = 0; i < bytes / sizeof groups[0]; i++)
        if (groups[i] == gid)
            return true;
    return false;
}

cup_ipc_reason_t cup_ipc_let_in(const char *path, uint32_t gid)
{
    return chown(path, (uid_t)-1, gid) == 0 && chmod(path, 0660) == 0 ? CUP_IPC_OK : CUP_IPC_GROUP;
}

static pid_t process_of(int fd)
{
    struct ucred peer;
    socklen_t size = sizeof peer;

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? peer.pid : 0;
}

int cup_ipc_accept(int listener, uint32_t gid, pid_t *out_pid, bool *out_is_foreign)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    *out_pid = fd >= 0 ? process_of(fd) : 0;
    *out_is_foreign = fd >= 0 && !is_of_user(fd, geteuid());
    if (fd < 0 || !*out_is_foreign || (gid != CUP_IPC_NO_GROUP && is_of_group(fd, gid)))
        return fd;
    close(fd);
    errno = EPERM;
    return -1;
}

/* A full backlog answers EAGAIN at once: asked again until the deadline. */
static bool try_connect(int fd, const struct sockaddr_un *address, uid_t uid, cup_ipc_reason_t *out_reason)
{
    const struct timespec pause = {0, 1000000};
    uint64_t deadline_ms = cup_ipc_now_ms() + CUP_IPC_TIMEOUT_MS;

    while (connect(fd, (const struct sockaddr *)address, sizeof *address) != 0) {
        bool is_passing = errno == EAGAIN || errno == EINTR;

        *out_reason = is_passing ? CUP_IPC_SILENT : CUP_IPC_GONE;
        if (!is_passing || cup_ipc_now_ms() >= deadline_ms)
            return false;
        nanosleep(&pause, NULL);
    }
    *out_reason = CUP_IPC_GONE;
    return is_of_user(fd, uid);
}

int cup_ipc_connect(uint64_t exporter, uint32_t uid, cup_ipc_reason_t *out_reason)
{
    struct sockaddr_un address;
    char folder[CUP_IPC_PATH_MAX];
    int fd;

    *out_reason = CUP_IPC_FOLDER;
    if (!cup_ipc_folder(folder) || !fill_address(&address, folder, "", exporter))
        return -1;
    *out_reason = CUP_IPC_SYSTEM;
    fd = open_socket();
    if (fd < 0 || try_connect(fd, &address, uid, out_reason))
        return fd;
    close(fd);
    return -1;
}

/* ---- messages ---- */

/* False: not ready by then. */
static bool wait_for(int socket, short events, uint64_t deadline_ms)
{
    struct pollfd one = {.fd = socket, .events = events};

    for (;;) {
        uint64_t now_ms = cup_ipc_now_ms();
        int ready = now_ms < deadline_ms ? poll(&one, 1, (int)(deadline_ms - now_ms)) : 0;

        if (ready > 0)
            return true;
        if (ready == 0 || errno != EINTR)
            return false;
    }
}

/* Room for the descriptors of one message, aligned as the kernel wants it. */
typedef union {
    struct cmsghdr header;
    char space[CMSG_SPACE(CUP_IPC_PAGE * sizeof(int))];
} control_t;

bool cup_ipc_send(int socket, const void *bytes, size_t size, const int *fds, uint32_t count,
                  uint64_t deadline_ms)
{
    struct iovec part = {(void *)bytes, size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    control_t control;
    ssize_t sent;

    if (count > 0) {
        memset(&control, 0, sizeof control);
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(&control.header), fds, count * sizeof(int));
    }
    do {
        sent = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (sent < 0 && (errno == EINTR || (errno == EAGAIN && wait_for(socket, POLLOUT, deadline_ms))));
    return sent == (ssize_t)size;
}

static uint32_t take_descriptors(struct msghdr *message, int *out_fds)
{
    uint32_t count = 0;

    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header; header = CMSG_NXTHDR(message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
            continue;
        size_t fds = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(out_fds + count, CMSG_DATA(header), fds * sizeof(int));
        count += (uint32_t)fds;
    }
    return count;
}

long cup_ipc_receive(int socket, void *bytes, size_t size, int *out_fds, uint32_t *out_count,
                     bool *out_has_lost, uint64_t deadline_ms)
{
    struct iovec part = {bytes, size};
    control_t control;
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t length;

    *out_count = 0;
    do {
        length = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (length < 0 && (errno == EINTR || (errno == EAGAIN && wait_for(socket, POLLIN, deadline_ms))));
    if (length < 0)
        return errno == EAGAIN || errno == EINTR ? -1 : 0;
    *out_count = take_descriptors(&message, out_fds);
    *out_has_lost = message.msg_flags & MSG_CTRUNC;
    return (long)length;
}
