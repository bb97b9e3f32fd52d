/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: flock goes with a descriptor of its own for each locking, so that it holds between threads; it is let
 * go explicitly, because a child that was forked meanwhile has the descriptor, too.
 */
#define _GNU_SOURCE
#include "shim/named_folder.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NAME_PREFIX "cupola-name-"
#define LOCK_PREFIX "cupola-names-"
#define PATH_BYTES  (CUP_IPC_PATH_MAX + 32 + CUP_IPC_NAME_MAX)

static const char g_letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";

bool cup_named_is_name(const char *name)
{
    size_t length = name ? strnlen(name, CUP_IPC_NAME_MAX) : 0;

    return length > 0 && length < CUP_IPC_NAME_MAX && name[0] != '.' && strspn(name, g_letters) == length;
}

static bool fill_path(uint32_t uid, const char *name, char out_path[PATH_BYTES])
{
    char folder[CUP_IPC_PATH_MAX];

    if (!cup_ipc_folder(folder))
        return false;
    snprintf(out_path, PATH_BYTES, "%s/" NAME_PREFIX "%u-%s", folder, (unsigned)uid, name);
    return true;
}

/* ---- the lock ---- */

/* Nobody else's file: in a folder like /tmp anybody may have put one there. */
static int open_lock(cup_ipc_reason_t *out_reason)
{
    char folder[CUP_IPC_PATH_MAX], path[PATH_BYTES];
    struct stat stat;
    int lock;

    *out_reason = CUP_IPC_FOLDER;
    if (!cup_ipc_folder(folder))
        return -1;
    snprintf(path, sizeof path, "%s/" LOCK_PREFIX "%u", folder, (unsigned)geteuid());
    lock = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (lock < 0 && (errno == EMFILE || errno == ENFILE))
        *out_reason = CUP_IPC_SYSTEM;
    if (lock >= 0 && (fstat(lock, &stat) != 0 || stat.st_uid != geteuid() || !S_ISREG(stat.st_mode))) {
        close(lock);
        lock = -1;
    }
    return lock;
}

int cup_named_lock(uint64_t timeout_ms, cup_ipc_reason_t *out_reason)
{
    const struct timespec pause = {0, 1000000};
    uint64_t deadline_ms = cup_ipc_now_ms() + timeout_ms;
    int lock = open_lock(out_reason);

    while (lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) != 0) {
        if (cup_ipc_now_ms() >= deadline_ms) {
            *out_reason = CUP_IPC_LOCKED;
            close(lock);
            return -1;
        }
        nanosleep(&pause, NULL);
    }
    return lock;
}

void cup_named_unlock(int lock)
{
    flock(lock, LOCK_UN);
    close(lock);
}

uint64_t cup_named_count(int lock)
{
    uint64_t count = 0;

    if (pread(lock, &count, sizeof count, 0) != sizeof count)
        count = 0;
    count++;
    return pwrite(lock, &count, sizeof count, 0) == sizeof count ? count : 0;
}

/* ---- links ---- */

bool cup_named_read(uint32_t uid, const char *name, uint64_t *out_exporter)
{
    char path[PATH_BYTES], target[CUP_IPC_PATH_MAX];
    struct stat stat;
    ssize_t length;

    if (!fill_path(uid, name, path) || lstat(path, &stat) != 0 || stat.st_uid != uid)
        return false;
    length = readlink(path, target, sizeof target - 1);
    if (length <= 0)
        return false;
    target[length] = '\0';
    return cup_ipc_socket_parse(target, out_exporter);
}

bool cup_named_link(const char *name, uint64_t exporter)
{
    char path[PATH_BYTES], target[CUP_IPC_PATH_MAX];

    cup_ipc_socket_name(exporter, target);
    return fill_path(geteuid(), name, path) && symlink(target, path) == 0;
}

void cup_named_unlink(const char *name)
{
    char path[PATH_BYTES];

    if (fill_path(geteuid(), name, path))
        unlink(path);
}

bool cup_named_is_orphan(const char *name)
{
    char path[PATH_BYTES];
    struct stat stat_of;

    return fill_path(geteuid(), name, path) && stat(path, &stat_of) != 0 && errno == ENOENT;
}

typedef struct visit {
    void (*found)(uint32_t uid, const char *name, void *arg);
    void *arg;
} visit_t;

static void visit_file(const char *folder, const char *file, void *arg)
{
    const visit_t *visit = arg;
    char *name;
    unsigned long uid = strtoul(file + strlen(NAME_PREFIX), &name, 10);

    (void)folder;
    if (uid < UINT32_MAX && *name == '-' && cup_named_is_name(name + 1))
        visit->found((uint32_t)uid, name + 1, visit->arg);
}

bool cup_named_each(void (*found)(uint32_t uid, const char *name, void *arg), void *arg)
{
    visit_t visit = {found, arg};
    char folder[CUP_IPC_PATH_MAX];

    if (!cup_ipc_folder(folder))
        return false;
    cup_ipc_each_file(folder, NAME_PREFIX, INT_MAX, visit_file, &visit);
    return true;
}
