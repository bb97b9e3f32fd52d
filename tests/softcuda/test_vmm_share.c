/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_vmm_share - device memory in two processes: a descriptor goes through a socket to a second instance
 * of this program, which sees the bytes, writes its own, and keeps the memory when the first has let go of
 * everything. A plain program: a forked child may not use the driver, so the other side is executed anew.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tests/softcuda/pattern.h"
#include "tests/softcuda/softcuda.h"

#define SIZE      (4u << 20)
#define TIMEOUT_S 50

#define MUST(call)                                                               \
    do {                                                                         \
        int got_ = (call);                                                       \
        if (got_ != 0) {                                                         \
            fprintf(stderr, "process %d: %s: %d\n", (int)getpid(), #call, got_); \
            exit(1);                                                             \
        }                                                                        \
    } while (0)

static CUfunction fill;
static CUdeviceptr range;

static void open_driver(void)
{
    CUcontext ctx;
    CUmodule module;

    MUST(cuInit(0));
    MUST(cuCtxCreate(&ctx, NULL, 0, 0));
    MUST(cuModuleLoadData(&module, "softcuda\nfill\n"));
    MUST(cuModuleGetFunction(&fill, module, "fill"));
    MUST(cuMemAddressReserve(&range, SIZE, 0, 0, 0));
}

static void map(CUmemGenericAllocationHandle handle)
{
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

    MUST(cuMemMap(range, SIZE, 0, handle, 0));
    MUST(cuMemSetAccess(range, SIZE, &access, 1));
}

static void fill_all(uint64_t seed)
{
    uint64_t bytes = SIZE;
    void *params[] = {&range, &bytes, &seed};

    MUST(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    MUST(cuCtxSynchronize());
}

static int is_wrong(uint64_t seed)
{
    void *copy = malloc(SIZE);

    MUST(cuMemcpyDtoH(copy, range, SIZE));
    int wrong = softcuda_verify_region(copy, SIZE, seed) != 0;
    free(copy);
    return wrong;
}

/* One byte and maybe a descriptor; the socket has a timeout. */
static int send_fd(int socket, int fd)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } control = {0};
    char byte = 'x';
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    if (fd >= 0) {
        message.msg_control = control.space;
        message.msg_controllen = sizeof control.space;
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(header), &fd, sizeof fd);
    }
    return sendmsg(socket, &message, MSG_NOSIGNAL) == 1 ? 0 : -1;
}

static int receive_fd(int socket, int *out_fd)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } control = {0};
    char byte;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.space,
                             .msg_controllen = sizeof control.space};

    if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1)
        return -1;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header && out_fd)
        memcpy(out_fd, CMSG_DATA(header), sizeof *out_fd);
    return 0;
}

static int run_importer(int socket)
{
    CUmemGenericAllocationHandle handle;
    int fd = -1;

    open_driver();
    MUST(receive_fd(socket, &fd));
    MUST(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    MUST(close(fd));
    MUST(softcuda_held_bytes() != 0); /* it counts where it was created */
    map(handle);
    MUST(is_wrong(1));
    fill_all(2);
    MUST(send_fd(socket, -1));      /* written */
    MUST(receive_fd(socket, NULL)); /* the other side has let go */
    MUST(is_wrong(2));
    MUST(cuMemUnmap(range, SIZE));
    MUST(cuMemRelease(handle));
    return 0;
}

static int run_exporter(int socket, pid_t importer)
{
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemGenericAllocationHandle handle;
    int fd = -1, status = -1;

    open_driver();
    MUST(cuMemCreate(&handle, SIZE, &prop, 0));
    map(handle);
    fill_all(1);
    MUST(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    MUST(send_fd(socket, fd));
    MUST(close(fd));
    MUST(receive_fd(socket, NULL));
    MUST(is_wrong(2));
    MUST(cuMemUnmap(range, SIZE));
    MUST(cuMemRelease(handle));
    MUST(softcuda_held_bytes() != 0);
    MUST(send_fd(socket, -1));
    MUST(waitpid(importer, &status, 0) != importer);
    return status != 0;
}

int main(int argc, char **argv)
{
    const struct timeval timeout = {.tv_sec = TIMEOUT_S};
    char number[16];
    int ends[2];

    if (argc == 2)
        return run_importer(atoi(argv[1]));
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    for (int i = 0; i < 2; i++)
        MUST(setsockopt(ends[i], SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout));
    pid_t importer = fork();
    if (importer == 0) {
        close(ends[0]);
        snprintf(number, sizeof number, "%d", ends[1]);
        execl("/proc/self/exe", argv[0], number, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    return run_exporter(ends[0], importer);
}
