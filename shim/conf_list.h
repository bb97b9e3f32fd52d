/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conf_list - LIST of the options: X(field, NAME, kind, default, values, meaning). The variable is
 * CUPOLA_<NAME>; in CUPOLA_CONF the key is the name in lower case. Parser, struct, docs/options.md and the
 * tests come from these rows: an option is added here and nowhere else. Kinds: BOOL 0|1; WORD one of the
 * values; SIZE per device; NUMBER with at most two decimals; TEXT as it stands.
 */
#ifndef CUP_SHIM_CONF_LIST_H
#define CUP_SHIM_CONF_LIST_H

/* clang-format off */
#define CUP_CONF_LIST(X)                                                                                     \
    X(disable,   DISABLE,   BOOL, "0",        "0|1",                                                         \
      "1: stand aside, every call goes to the driver")                                                       \
    X(only,      ONLY,      TEXT, "",         "name,…",                                                      \
      "serve only these executables (a preload enters every child process)")                                 \
    X(exclude,   EXCLUDE,   TEXT, "",         "name,…",                                                      \
      "stand aside in these executables")                                                                    \
    X(checker,   CHECKER,   WORD, "aside",    "aside|pool",                                                  \
      "under compute-sanitizer or cuda-gdb, which go by the bounds of driver allocations. aside: stand aside, " \
      "and say so; pool: serve all the same")                                                                \
    X(backing,   BACKING,   WORD, "auto",     "auto|raw|vmm",                                                \
      "where memory comes from: raw is cuMemAlloc; vmm one range that grows by handles, which can move and be " \
      "given back while the GPU is busy, but whose IPC handles only processes with this library open; auto is " \
      "vmm where the device can do it, and raw where network cards or GDRCopy can pin device memory, below "   \
      "MPS, and where another device can't reach this one's memory")                                          \
    X(free_mode, FREE,      WORD, "exact",    "exact|overlap|deferred|sync",                                 \
      "what a free means. exact: returns at once; whatever is submitted later runs after what was submitted "  \
      "before, as after the driver's own free, and copies to or from the host are waited for. overlap: later "  \
      "work waits only where it is given memory that the GPU is not done with. deferred: memory is handed out " \
      "again when the GPU is done with it. sync: waits for the GPU as the driver's own free does")           \
    X(floor,     FLOOR,     SIZE, "0.78%",    "size",                                                        \
      "overlap and deferred: what may be held before anybody waits for freed memory")                        \
    X(slack,     SLACK,     NUMBER, "0",      "0|1.00…100",                                                  \
      "times the most that was live: may be held before memory is moved (vmm), or anybody waits for freed "  \
      "memory (overlap and deferred). 0: 1.05, and 1.25 for overlap and deferred")                           \
    X(wait_ms,   WAIT_MS,   NUMBER, "2",      "milliseconds",                                                \
      "longest wait of an allocation for memory that the GPU is about to be done with, while memory is not " \
      "short")                                                                                               \
    X(dedicated, DEDICATED, SIZE, "2m",       "size",                                                        \
      "raw: requests of this size and more get a driver allocation of their own, kept whole")                     \
    X(cache,     CACHE,     SIZE, "25%",      "size",                                                        \
      "raw: most idle memory that is kept for reuse in driver allocations of their own; what is beyond it goes "  \
      "back to the driver, which waits for the GPU")                                                         \
    X(socket_dir, SOCKET_DIR, TEXT, "",       "folder",                                                      \
      "where processes of one user find each other to share memory by IPC handles; without one it is "         \
      "$XDG_RUNTIME_DIR, or else a folder of the user's own in /tmp")                                        \
    X(ipc_isolate, IPC_ISOLATE, BOOL, "0",    "0|1",                                                         \
      "vmm: 1: each block gets driver handles of its own, 2 MiB and more, whose rest is zeroed before an IPC "  \
      "handle is made: whoever opens that sees nothing else of this process")                                \
    X(zero,      ZERO,      WORD, "none",     "none|alloc",                                                  \
      "alloc: what the pool hands out reads as zeros. Each allocation is a set as well: for programs that rely on "  \
      "what fresh memory happens to hold (docs/luck.md)")                                                    \
    X(redzone,   REDZONE,   SIZE, "0",        "size",                                                        \
      "behind each block so many bytes, in steps of 512, belong to nobody: what a program writes there harms no " \
      "other block (docs/luck.md)")                                                                          \
    X(stats,     STATS,     TEXT, "0",        "0|1|FILE",                                                    \
      "1: a summary on stderr at exit; a file name: one line of JSON is appended to it at exit")             \
    X(log,       LOG,       TEXT, "error",    "off|error|info|debug[:FILE]",                                 \
      "what is said while running, and where (stderr unless a file is named)")
/* clang-format on */

#endif /* CUP_SHIM_CONF_LIST_H */
