/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor - the parts of `cupola doctor`.
 * What:       findings: one word of status, one line of text, and what to do where something is in the way.
 * Not here:   mending anything; the doctor only looks.
 */
#ifndef CUP_TOOLS_DOCTOR_H
#define CUP_TOOLS_DOCTOR_H
#include "shim/conf.h"

/* X(enumerator, text) */
#define CUP_FINDING_LIST(X)     \
    X(CUP_FINDING_OK, "ok")     \
    X(CUP_FINDING_NOTE, "note") \
    X(CUP_FINDING_PROBLEM, "problem")

typedef enum {
#define X(name, text) name,
    CUP_FINDING_LIST(X)
#undef X
} cup_finding_t;

/* Prints a finding about area on stdout; remedy (NULL: none) is printed below it. Counts problems. */
void cup_doctor_find(cup_finding_t status, const char *area, const char *remedy, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The driver, its devices, the entry points that features need. Loads libcuda.so.1; creates no context. */
void cup_doctor_driver(void);

/*
 * Whether processes can share device memory: a table of device by device, namespaces, user, socket folder.
 * After cup_doctor_driver(); creates no context, makes no folder.
 */
void cup_doctor_ipc(const cup_conf_t *conf);

/* The program's file, then one run of it under the preload; its stdout goes to stderr. */
void cup_doctor_app(const char *library, char *const *argv);

#endif /* CUP_TOOLS_DOCTOR_H */
