/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hook_table - which address of ours stands for which of the driver's.
 * What:       substitution by the address that the real look-up returned, not by the name that was asked:
 *             one name is asked at several ABI versions.
 * Threads:    any thread; takes no lock, allocates nothing.
 */
#ifndef CUP_PRELOAD_HOOK_TABLE_H
#define CUP_PRELOAD_HOOK_TABLE_H
#include <stdbool.h>

/* Our function for the driver's address, or the address itself. */
void *cup_hook_substitute(void *real);

/* Whether name is one that we export: the only names that dlsym looks at. */
bool cup_hook_is_name(const char *name);

#endif /* CUP_PRELOAD_HOOK_TABLE_H */
