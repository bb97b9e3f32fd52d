/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hook_table - which address of ours stands for which of the driver's, and which names nobody has classified.
 * What:       substitution by the address that the real look-up returned, not by the name that was asked:
 *             one name is asked at several ABI versions. The name decides only what an address that we do
 *             not know may be.
 * Invariants: the real addresses are looked up once in a process; before cup_hook_prepare() found a driver,
 *             nothing is substituted.
 * Threads:    any thread; takes no lock, allocates nothing.
 */
#ifndef CUP_PRELOAD_HOOK_TABLE_H
#define CUP_PRELOAD_HOOK_TABLE_H

typedef enum {
    CUP_NAME_OURS,    /* we export it */
    CUP_NAME_KNOWN,   /* submits nothing: goes by us */
    CUP_NAME_UNKNOWN, /* in no LIST: another library's, or newer than we are */
} cup_name_t;

/* What a cu[A-Z]... name is. Calls nothing. */
cup_name_t cup_hook_classify(const char *name);

/* Looks up the driver's addresses if a driver has been loaded, once. Calls the C library's dlsym:
 * before, not after, a look-up whose dlerror() the program may read. */
void cup_hook_prepare(void);

/* Our function for the driver's address, or the address itself. Calls nothing. */
void *cup_hook_find(void *real);

/*
 * For an address that is the driver's own answer to name: our function; the address itself, when it is
 * known to submit nothing; else a stub that says so when it is called (hook_doubt.h).
 */
void *cup_hook_substitute(const char *name, void *real);

#endif /* CUP_PRELOAD_HOOK_TABLE_H */
