/* SPDX-License-Identifier: Apache-2.0 */
/*
 * outfile - the files that we write for the user.
 * What:       names with %p (process id), %h (host name), %q{VAR} (an environment variable) and %% expanded;
 *             appending, one write per call, never the program's stdout.
 * Threads:    any thread.
 */
#ifndef CUP_SHIM_OUTFILE_H
#define CUP_SHIM_OUTFILE_H
#include <stdbool.h>
#include <stddef.h>

/* Expands pattern into out; false if it does not fit or ends inside an escape. Unknown escapes stay as they
 * are. */
bool cup_outfile_expand(const char *pattern, char *out, size_t capacity);

/* Opens an expanded name for appending, close-on-exec, created 0600 if new. Returns a descriptor or -1. Keeps
 * errno. */
int cup_outfile_open(const char *pattern);

/* Writes everything or gives up on the first error; keeps errno. */
void cup_outfile_write(int fd, const char *text, size_t length);

#endif /* CUP_SHIM_OUTFILE_H */
