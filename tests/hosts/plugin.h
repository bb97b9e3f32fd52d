/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugin - what the library plugin.c exports. Codes are the driver's.
 */
#ifndef CUP_TESTS_HOSTS_PLUGIN_H
#define CUP_TESTS_HOSTS_PLUGIN_H
#include <stddef.h>

#define PLUGIN_EXPORT __attribute__((visibility("default")))
PLUGIN_EXPORT int plugin_open(void);
PLUGIN_EXPORT int plugin_alloc(unsigned long long *out, size_t bytes);
PLUGIN_EXPORT int plugin_free(unsigned long long block);
PLUGIN_EXPORT int plugin_churn(int rounds);
PLUGIN_EXPORT int plugin_default(int rounds); /* as churn, by dlsym(RTLD_DEFAULT); -1: nothing found */

/* Of the program, where it has one: set in the constructor, so that another thread comes in meanwhile. */
PLUGIN_EXPORT extern _Atomic int host_is_constructing __attribute__((weak));

#endif /* CUP_TESTS_HOSTS_PLUGIN_H */
