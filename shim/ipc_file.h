/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ipc_file - a descriptor of ours that the program does not know of.
 * What:       it is moved out of the way of the program's own numbers, and recognized: a program that closes
 *             everything it does not know may have put a file of its own under our number.
 * Invariants: what is not ours any more is neither used nor closed. A program that does so in between is not
 *             noticed: nobody can look and act in one step.
 * Threads:    any thread.
 */
#ifndef CUP_SHIM_IPC_FILE_H
#define CUP_SHIM_IPC_FILE_H
#include <fcntl.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* Programs that use select() need numbers below this (FD_SETSIZE); higher ones cost the kernel a larger table. */
#define CUP_IPC_FILE_FIRST 1024

typedef struct cup_ipc_file {
    int fd; /* -1: none */
    dev_t device;
    ino_t inode;
} cup_ipc_file_t;

/* The same file under a high number, closed on exec; fd itself where there is no such number left. */
static inline int cup_ipc_file_raise(int fd)
{
    struct rlimit limit;
    int first = CUP_IPC_FILE_FIRST, raised;

    if (fd < 0 || getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return fd;
    if (limit.rlim_cur / 2 < (rlim_t)first)
        first = (int)(limit.rlim_cur / 2);
    raised = fd < first ? fcntl(fd, F_DUPFD_CLOEXEC, first) : -1;
    if (raised < 0)
        return fd;
    close(fd);
    return raised;
}

/* Takes fd over; -1 is fine. */
static inline cup_ipc_file_t cup_ipc_file_adopt(int fd)
{
    cup_ipc_file_t file = {.fd = cup_ipc_file_raise(fd)};
    struct stat stat;

    if (file.fd >= 0 && fstat(file.fd, &stat) == 0) {
        file.device = stat.st_dev;
        file.inode = stat.st_ino;
    }
    return file;
}

static inline bool cup_ipc_file_is_ours(const cup_ipc_file_t *file)
{
    struct stat stat;

    return file->fd >= 0 && fstat(file->fd, &stat) == 0 && stat.st_dev == file->device &&
           stat.st_ino == file->inode;
}

static inline void cup_ipc_file_close(cup_ipc_file_t *file)
{
    if (cup_ipc_file_is_ours(file))
        close(file->fd);
    file->fd = -1;
}

#endif /* CUP_SHIM_IPC_FILE_H */
