/* SPDX-License-Identifier: Apache-2.0 */
/*
 * usurp - a program that closes the descriptors that it does not know, and then has files and sockets of its own
 * under their numbers.
 * What:       usurp_note() remembers what is open, usurp() takes over what came since, and usurp_changed() tells
 *             whether anybody has touched what is there now.
 * Threads:    one.
 */
#ifndef CUP_TESTS_PRELOAD_USURP_H
#define CUP_TESTS_PRELOAD_USURP_H
#include "tests/support/require.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { USURP_LEAST = 64, USURP_MOST = 4096 };

typedef struct usurped {
    int fd;
    struct stat stat;
} usurped_t;

static char usurp_known[USURP_MOST];
static usurped_t usurp_own[USURP_MOST];
static unsigned usurp_count;

static inline void usurp_each(void (*found)(int fd))
{
    static int fds[USURP_MOST];
    DIR *folder = opendir("/proc/self/fd");
    struct dirent *entry;
    int count = 0;

    REQUIRE(folder != NULL);
    while ((entry = readdir(folder)))
        if (entry->d_name[0] != '.' && atoi(entry->d_name) != dirfd(folder) && count < USURP_MOST)
            fds[count++] = atoi(entry->d_name);
    closedir(folder);
    while (count > 0)
        if (fds[--count] < USURP_MOST)
            found(fds[count]);
}

static inline void usurp_know(int fd)
{
    usurp_known[fd] = 1;
}

static inline void usurp_note(void)
{
    memset(usurp_known, 0, sizeof usurp_known);
    usurp_each(usurp_know);
}

static inline void usurp_take(int fd)
{
    if (!usurp_known[fd])
        usurp_own[usurp_count++].fd = fd;
}

static inline void usurp_take_socket(int fd)
{
    struct stat stat;

    if (fstat(fd, &stat) == 0 && S_ISSOCK(stat.st_mode))
        usurp_take(fd);
}

/* Out of the way of the numbers that are to be taken. */
static inline int usurp_raise(int fd)
{
    int raised = fcntl(fd, F_DUPFD, USURP_MOST);

    REQUIRE(fd >= 0 && raised >= 0 && close(fd) == 0);
    return raised;
}

/* A file, or a socket that has something to read; the other end of it stays open. */
static inline void usurp_fill(usurped_t *own, int is_socket)
{
    int ends[2];

    if (is_socket) {
        REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
        ends[0] = usurp_raise(ends[0]);
        REQUIRE(send(ends[0], "mine", 4, 0) == 4);
    } else {
        ends[1] = memfd_create("mine", 0);
        REQUIRE(pwrite(ends[1], "mine", 4, 0) == 4);
    }
    ends[1] = usurp_raise(ends[1]);
    REQUIRE(syscall(SYS_dup3, ends[1], own->fd, 0) == own->fd && close(ends[1]) == 0 &&
            fstat(own->fd, &own->stat) == 0);
}

/* How many numbers were taken. */
static inline unsigned usurp(int only_sockets)
{
    struct rlimit limit;
    unsigned taken, last;

    REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_max > USURP_MOST + USURP_LEAST);
    limit.rlim_cur = limit.rlim_max;
    REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    usurp_count = 0;
    usurp_each(only_sockets ? usurp_take_socket : usurp_take);
    taken = usurp_count;
    REQUIRE(taken > 0);
    for (last = USURP_MOST - 1; usurp_count < USURP_LEAST; last--) /* numbers that nobody has */
        usurp_own[usurp_count++].fd = (int)last;
    for (unsigned i = 0; i < taken; i++) /* past TSan: that others are using them is the point */
        REQUIRE(syscall(SYS_close, usurp_own[i].fd) == 0);
    for (unsigned i = 0; i < usurp_count; i++)
        usurp_fill(&usurp_own[i], i % 2 == 0);
    return taken;
}

static inline int usurp_is_whole(const usurped_t *own)
{
    char bytes[8];
    struct stat stat;

    if (fstat(own->fd, &stat) != 0 || stat.st_dev != own->stat.st_dev || stat.st_ino != own->stat.st_ino)
        return 0;
    if (S_ISSOCK(stat.st_mode))
        return recv(own->fd, bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT) == 4 &&
               memcmp(bytes, "mine", 4) == 0;
    return stat.st_size == 4 && lseek(own->fd, 0, SEEK_CUR) == 0 && pread(own->fd, bytes, 8, 0) == 4 &&
           memcmp(bytes, "mine", 4) == 0;
}

/* How many of them are gone, or not what they were. */
static inline unsigned usurp_changed(void)
{
    unsigned changed = 0;

    for (unsigned i = 0; i < usurp_count; i++)
        changed += !usurp_is_whole(&usurp_own[i]);
    return changed;
}

#endif /* CUP_TESTS_PRELOAD_USURP_H */
