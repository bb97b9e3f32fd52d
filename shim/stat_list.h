/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stat_list - LISTs of the counters and of what is timed: X(field, meaning). Struct, JSON and docs/stats.md
 * come from these rows.
 */
#ifndef CUP_SHIM_STAT_LIST_H
#define CUP_SHIM_STAT_LIST_H

/* clang-format off */
#define CUP_STAT_LIST(X)                                                                                     \
    X(allocs,        "allocations that the program asked for through a hooked door")                         \
    X(frees,         "frees that the program asked for through a hooked door")                               \
    X(pool_allocs,   "allocations that the pool served")                                                     \
    X(pool_frees,    "frees that the pool took")                                                             \
    X(pass_allocs,   "allocations that went to the driver as they were")                                     \
    X(pass_frees,    "frees that went to the driver as they were (foreign or null pointers)")                \
    X(bad_frees,     "frees inside our memory that name no live block: answered as the driver does")         \
    X(driver_allocs, "cuMemAlloc and cuMemCreate calls that we made, and those passed on")                        \
    X(driver_frees,  "cuMemFree and cuMemRelease calls that we made, and those passed on")                         \
    X(moves,         "handles unmapped and mapped elsewhere")                                                \
    X(points,        "order points recorded")                                                                \
    X(own_points,    "of these, on the one stream that was busy")                                            \
    X(passes,        "times that a stream was made to wait, on the device, for a point")                     \
    X(host_waits,    "frees that waited on the host for an operation that touches its memory")               \
    X(doubts,        "calls of entry points that nobody has classified")                                     \
    X(distrusts,     "contexts that have work which reached the GPU by a way that is not followed")          \
    X(polls,         "times that we asked the driver which points are complete")                             \
    X(waits,         "times that a call waited on the host for a point")                                     \
    X(limbo_misses,  "allocations that found room only in memory not complete yet, and grew instead")        \
    X(oom_rescues,   "requests that the driver refused at first and that were served after giving back")     \
    X(ooms,          "requests that the driver refused for good")                                            \
    X(contexts,      "contexts that got a pool")                                                             \
    X(peer_changes,  "times that a device was given access to the memory of a context, or lost it (vmm)")    \
    X(peer_trails,   "waits of a context for a copy of another context's stream that touches its memory")     \
    X(peer_copies,   "copies that were put in the Peer form: the copying device can't reach the memory (vmm)") \
    X(zeroed,        "allocations of the pool that were set to zero (CUPOLA_ZERO)")                           \
    X(queries,       "questions about addresses in our memory")                                              \
    X(asides,        "contexts that we stood aside for")                                                     \
    X(ipc_exports,   "pooled blocks that an IPC handle was made for")                                        \
    X(ipc_opens,     "blocks of other processes that were mapped for an IPC handle")                         \
    X(ipc_reopens,   "IPC handles that were opened again while their block was mapped")                      \
    X(ipc_closes,    "closes of such blocks")                                                                \
    X(ipc_mapped_bytes, "bytes of other processes that are mapped now, in whole driver handles")             \
    X(named_publishes, "blocks that were published under a name")                                            \
    X(named_opens,   "openings of blocks of other processes by a name")                                      \
    X(runtime_calls, "calls of cudaMalloc and cudaFree in a shared runtime that were served on the short way")       \
    X(dlsym_hits,    "look-ups by dlsym that were answered with a hook")                                     \
    X(getproc_hits,  "look-ups by cuGetProcAddress that were answered with a hook")

/* What the report adds up over all pools at exit: the fields of cup_pool_stat_t, by name. */
#define CUP_STAT_POOL_LIST(X)                                                                                \
    X(footprint_bytes,      "bytes held from the driver")                                                    \
    X(footprint_peak_bytes, "the most that was held at once (pools with several peaks: their sum)")          \
    X(live_bytes,           "bytes that the program holds, as it asked for them")                            \
    X(live_peak_bytes,      "the most that the program held at once (pools with several peaks: their sum)")  \
    X(live_blocks,          "blocks that the program holds")                                                 \
    X(limbo_bytes,          "bytes freed by the program that the GPU may still be using")                    \
    X(quarantined_bytes,    "bytes freed by the program that others may still reach: not handed out again")      \
    X(idle_bytes,           "bytes that could be handed out now")                                            \
    X(chunks,               "driver allocations held")                                                       \
    X(reserves,             "driver allocations asked for by the pools")                                     \
    X(releases,             "driver allocations given back by the pools")

/* What is timed, call by call: numbers of calls by the power of two of their nanoseconds. */
#define CUP_STAT_TIME_LIST(X)                                                                                \
    X(ipc_get_ns,   "IPC handles made of pooled blocks, a second one of the same block included")            \
    X(ipc_open_ns,  "blocks of other processes opened, again included")                                      \
    X(ipc_close_ns, "closes of such blocks, with the wait for the work that uses them")

/* Of each process that blocks were opened of. */
#define CUP_STAT_PEER_LIST(X)                                                                                \
    X(opens,             "blocks of it that were mapped")                                                    \
    X(mapped_bytes,      "bytes of it that are mapped now, in whole driver handles")                         \
    X(mapped_peak_bytes, "the most that was mapped of it at once")
/* clang-format on */

/* Bucket i of what is timed has the calls of 2^i ns up to 2^(i+1); the last one all longer ones, too. */
#define CUP_STAT_BUCKETS 32
#define CUP_STAT_PEERS   16 /* the last stands for all further processes */

#endif /* CUP_SHIM_STAT_LIST_H */
