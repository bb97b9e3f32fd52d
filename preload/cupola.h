/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cupola - what a program may say to the pool under it: named blocks of device memory, between processes.
 * What:       a process publishes a block that cudaMalloc gave it under a name; other processes of the same
 *             user, or of a group that the publisher names, open it by that name, for reading only or for
 *             reading and writing, and have the same bytes, not a copy. docs/ipc.md has the table of who owns
 *             what.
 * Not here:   order. Who may read when, the processes settle between them: with interprocess events
 *             (cudaIpcGetEventHandle), or on the host (examples/).
 * How:        nothing to link: each function looks its body up in the preloaded library once. Where there
 *             is none it returns CUPOLA_ABSENT and does nothing. C and C++; needs -ldl before glibc 2.34, no
 *             CUDA header.
 * Needs:      both processes under the preload, the publisher over CUPOLA_BACKING=vmm, one
 *             CUPOLA_SOCKET_DIR.
 * Errors:     each function returns CUPOLA_OK (0) or a code, which is a CUresult: cuGetErrorString has words
 *             for it, CUPOLA_LOG=info the reason. Outputs are written on success only.
 * Threads:    any thread, but not a host function of a stream, and not a forked child: as for CUDA itself.
 */
#ifndef CUPOLA_H
#define CUPOLA_H
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

#define CUPOLA_NAME_MAX 64 /* with its end: 1 to 63 of A-Z a-z 0-9 . _ - that do not begin with a dot */

/* Codes: those of CUresult. Any other one is the driver's own, of a call inside that failed. */
enum {
    CUPOLA_OK = 0,
    CUPOLA_INVALID = 1,         /* no such name, flag or pointer; not in a live block of the pool */
    CUPOLA_NO_MEMORY = 2,       /* of the host */
    CUPOLA_FORKED = 3,          /* CUDA does not work in a forked child, nor does this */
    CUPOLA_NO_CONTEXT = 201,    /* no context is current (open); or the block is this process's own */
    CUPOLA_TAKEN = 210,         /* that name is published, by a process that is alive */
    CUPOLA_ABSENT = 302,        /* libcupola.so is not preloaded */
    CUPOLA_SYSTEM = 304,        /* no file descriptors, or no thread */
    CUPOLA_SILENT = 400,        /* its process does not answer (for 2 s): stopped, or full */
    CUPOLA_NOT_FOUND = 500,     /* nothing is published under that name */
    CUPOLA_NOT_PERMITTED = 800, /* published for reading only; a group that the publisher is not in */
    CUPOLA_NOT_SUPPORTED = 801, /* not with these settings; a line on stderr says what to set */
    CUPOLA_LOCKED = 909         /* another process holds the lock of the names (for 4 s) */
};

/* Flags of cupola_publish and cupola_open. */
enum {
    CUPOLA_READ_ONLY = 1 /* publish: nobody may open it for writing. open: map it without write access */
};

#define CUPOLA_NO_GROUP ((int64_t)-1) /* publish: for this user alone */
#define CUPOLA_MYSELF   ((int64_t)-1) /* open: published by this user */

/* One published block. */
typedef struct cupola_block {
    char name[CUPOLA_NAME_MAX];
    uint64_t address;    /* a CUdeviceptr. open: in this process; list: 0 */
    uint64_t size_bytes; /* as its owner asked for it */
    uint64_t generation; /* grows with each publication of this user, whatever the name: 1, 2, ... */
    uint32_t flags;      /* as published */
    int32_t device;      /* of the memory, as its owner counts devices */
    int32_t pid;         /* of the owner, in its own namespace */
    uint32_t uid;        /* of the owner */
    int64_t gid;         /* of the group that it is published to, or CUPOLA_NO_GROUP */
    uint32_t readers;    /* openings before this one, not closed yet (docs/ipc.md) */
    uint32_t spare[7];
} cupola_block_t;

#ifdef CUPOLA_INSIDE /* the library itself */
#define CUPOLA_FUNCTION(name, parameters, arguments) \
    __attribute__((visibility("default"))) int cupola_##name parameters;
#else
static inline void *cupola_find(const char *symbol)
{
    return dlsym((void *)0, symbol); /* RTLD_DEFAULT, which the C library names for _GNU_SOURCE only */
}
#define CUPOLA_FUNCTION(name, parameters, arguments)                          \
    static inline int cupola_##name parameters                                \
    {                                                                         \
        static void *cupola_body; /* the same whoever looks it up first */    \
        void *cupola_found = __atomic_load_n(&cupola_body, __ATOMIC_RELAXED); \
        int(*cupola_call) parameters;                                         \
                                                                              \
        if (!cupola_found)                                                    \
            cupola_found = cupola_find("cupola_" #name);                      \
        if (!cupola_found)                                                    \
            return CUPOLA_ABSENT;                                             \
        __atomic_store_n(&cupola_body, cupola_found, __ATOMIC_RELAXED);       \
        *(void **)&cupola_call = cupola_found;                                \
        return cupola_call arguments;                                         \
    }
#endif

/* clang-format off */
#ifdef __cplusplus
extern "C" {
#endif

/*
 * int cupola_publish(const char *name, uint64_t pointer, uint32_t flags, int64_t group);
 *
 * Publishes the block that pointer lies in: a CUdeviceptr or what cudaMalloc gave, its base or inside. From
 * then on others can open the whole block, of any size. flags: CUPOLA_READ_ONLY or 0. group: CUPOLA_NO_GROUP,
 * or a group of this process, whose members can open it, too; a process can name one group, and only for a
 * block that has its driver handles to itself (CUPOLA_IPC_ISOLATE=1). A block can have several names.
 * The block stays the caller's, who frees it. The free takes its names away at once; whoever has it open
 * keeps it, and the memory is not handed out again until the last of them has closed. The end of the context
 * and that of the process do as the free does.
 * Errors: INVALID; TAKEN; NOT_SUPPORTED (raw backing, handles shared with other blocks, a second group, no
 * safe CUPOLA_SOCKET_DIR, a process that the pool stands aside in); NOT_PERMITTED (a group that this process
 * is not in); SYSTEM; LOCKED; FORKED; NO_MEMORY; the driver's, where there is no context or it has an error.
 * Blocks: for the GPU work that frees before it left behind, as cudaIpcGetMemHandle; while others of the user
 * publish, 4 s at most. The first call of a process starts a thread.
 */
CUPOLA_FUNCTION(publish, (const char *name, uint64_t pointer, uint32_t flags, int64_t group),
                (name, pointer, flags, group))

/*
 * int cupola_unpublish(const char *name);
 *
 * Takes a name of this process away: nobody can open it any more. Whoever has the block open keeps it.
 * Errors: INVALID; NOT_FOUND (this process has not published it, or has freed its block); FORKED.
 */
CUPOLA_FUNCTION(unpublish, (const char *name), (name))

/*
 * int cupola_open(const char *name, uint32_t flags, int64_t owner, cupola_block_t *out_block);
 *
 * Maps the block that owner (a uid, or CUPOLA_MYSELF) has published under the name, in the current context.
 * Opening again what is open is counted and gives the same address; for reading only and for both are two
 * mappings of the same bytes. Through one with CUPOLA_READ_ONLY nothing can be written: a kernel that tries
 * breaks its own context, and the bytes stay as they are.
 * What is opened belongs to the caller, is closed by cupola_close as often as it was opened, and outlives its
 * name, its owner's free, and its owner. The end of the context closes it.
 * Errors: INVALID; NOT_FOUND; NO_CONTEXT (none is current, or the block is this process's own); NOT_PERMITTED;
 * SILENT; SYSTEM; NOT_SUPPORTED; FORKED; NO_MEMORY; 400 also where another context of this process has the
 * block open; the driver's.
 * Blocks: for answers of the owner's process, 2 s at most for each.
 */
CUPOLA_FUNCTION(open, (const char *name, uint32_t flags, int64_t owner, cupola_block_t *out_block),
                (name, flags, owner, out_block))

/*
 * int cupola_close(uint64_t address);
 *
 * Ends one opening, by the address that it gave; the same as cudaIpcCloseMemHandle. Errors: INVALID.
 * Blocks: for the context's work in flight; where that can't be waited for (a capture, more than a second)
 * the mapping stays for now, and goes with a later call.
 */
CUPOLA_FUNCTION(close, (uint64_t address), (address))

/*
 * int cupola_list(cupola_block_t *out_block, size_t room, size_t *out_count);
 *
 * The published blocks that this process may open, its own too, in no order: room of them at most are
 * written, out_count is how many there are. Where the owner does not answer only name and uid are known: pid
 * and size_bytes are 0. Needs neither a context nor a device.
 * Errors: INVALID; NOT_SUPPORTED (no safe CUPOLA_SOCKET_DIR); FORKED.
 * Blocks: 2 s at most for each process that does not answer.
 */
CUPOLA_FUNCTION(list, (cupola_block_t *out_block, size_t room, size_t *out_count), (out_block, room, out_count))

#ifdef __cplusplus
}
#endif
/* clang-format on */

#endif /* CUPOLA_H */
