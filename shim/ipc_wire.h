/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ipc_wire - what two processes say to each other: the token that a program passes on as a
 * cudaIpcMemHandle, and the messages of the socket behind it.
 * What:       fixed structs, host byte order (both processes are of one host), one datagram a message.
 * Not here:   sockets (ipc_sock.h), who answers (ipc_export.h) and who asks (ipc_import.h).
 * Invariants: a token is 64 bytes, the size of CUipcMemHandle; one that the driver made has another first
 *             word.
 */
#ifndef CUP_SHIM_IPC_WIRE_H
#define CUP_SHIM_IPC_WIRE_H
#include "allocator/types.h"
#include "shim/ipc_list.h"
#include <string.h>

#define CUP_IPC_MAGIC        0x4355504fu
#define CUP_IPC_VERSION      2
#define CUP_IPC_SECRET_BYTES 16
#define CUP_IPC_PAGE         64 /* handles in one message: their descriptors travel with it */
#define CUP_IPC_NAME_MAX     64 /* of a named block (named.h), with its end */
#define CUP_IPC_NO_GROUP     UINT32_MAX

typedef enum {
#define X(name, code, text) name,
    CUP_IPC_REASON_LIST(X)
#undef X
        CUP_IPC_REASON_COUNT
} cup_ipc_reason_t;

typedef struct cup_ipc_token {
    uint32_t magic;
    uint16_t version;
    uint16_t device;   /* as the exporter counts */
    uint64_t exporter; /* random, of the process: names its socket */
    uint64_t id;       /* of the allocation: another one has another id, at the same address, too */
    uint8_t secret[CUP_IPC_SECRET_BYTES];
    uint64_t base, size_bytes; /* of the block, over there */
    int32_t pid;               /* for people: in its own namespace */
    uint32_t check;            /* of all the bytes before */
} cup_ipc_token_t;

_Static_assert(sizeof(cup_ipc_token_t) == 64, "a token travels as a CUipcMemHandle");

/*
 * OPEN: may this token be used, and what is behind it? From then on the block is lent to this connection,
 *       until CLOSE or the connection's end. LOOK: a page of its handles. FETCH: a page of them with their
 *       descriptors. FIND: what is published under this name?
 */
typedef enum { CUP_IPC_OPEN = 1, CUP_IPC_LOOK, CUP_IPC_FETCH, CUP_IPC_CLOSE, CUP_IPC_FIND } cup_ipc_verb_t;

typedef struct cup_ipc_request {
    uint32_t magic;
    uint16_t version;
    uint16_t verb;
    uint64_t seq;  /* of this request: its answer bears it */
    uint64_t loan; /* the seq of the OPEN that this is about */
    uint64_t id;   /* OPEN: of the token */
    uint8_t secret[CUP_IPC_SECRET_BYTES];
    uint32_t first, count;       /* LOOK and FETCH */
    char name[CUP_IPC_NAME_MAX]; /* FIND */
} cup_ipc_request_t;

/* One handle of the exporter: physical memory, and where it is mapped over there. */
typedef struct cup_ipc_part {
    uint64_t key; /* no other memory of that process ever has it */
    uint64_t base, size_bytes;
} cup_ipc_part_t;

/* A block that is published under a name. */
typedef struct cup_ipc_named {
    cup_ipc_token_t token;
    uint64_t generation; /* of this publication, among those of its user in this folder */
    uint32_t readers;    /* openings that are not closed */
    uint32_t flags;      /* CUP_NAMED_… (named_table.h) */
    uint32_t gid;        /* who else may open it; CUP_IPC_NO_GROUP: nobody */
    uint32_t spare;
} cup_ipc_named_t;

typedef struct cup_ipc_reply {
    uint32_t magic;
    uint16_t version;
    uint16_t reason; /* cup_ipc_reason_t */
    uint64_t seq;
    uint64_t range_base, range_bytes; /* all addresses that parts can be at */
    uint64_t range_id;         /* of the context's memory: what comes after it may be at the same addresses */
    uint64_t base, size_bytes; /* the block */
    uint32_t parts;            /* that the block touches, in order, without gaps */
    uint32_t first, count;     /* of them in this message */
    uint32_t spare;
    union {
        cup_ipc_part_t part[CUP_IPC_PAGE];
        cup_ipc_named_t named; /* FIND */
    };
} cup_ipc_reply_t;

static inline uint32_t cup_ipc_token_check(const cup_ipc_token_t *token)
{
    const uint8_t *byte = (const uint8_t *)token;
    uint32_t hash = 2166136261u; /* FNV-1a: tells accidents, not attacks */

    for (size_t i = 0; i < offsetof(cup_ipc_token_t, check); i++)
        hash = (hash ^ byte[i]) * 16777619u;
    return hash;
}

/* handle: a CUipcMemHandle. False: it is the driver's, or nonsense. */
static inline bool cup_ipc_token_read(const void *handle, cup_ipc_token_t *out_token)
{
    memcpy(out_token, handle, sizeof *out_token);
    return out_token->magic == CUP_IPC_MAGIC && out_token->version == CUP_IPC_VERSION &&
           out_token->check == cup_ipc_token_check(out_token);
}

#endif /* CUP_SHIM_IPC_WIRE_H */
