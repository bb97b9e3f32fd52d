/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launch - starts the user's program so that nobody notices us between it and its parent.
 * What:       LD_PRELOAD, exec or fork and wait, signals both ways, the exit status as it was.
 * Not here:   which variables are set otherwise (the verbs).
 */
#ifndef CUP_TOOLS_LAUNCH_H
#define CUP_TOOLS_LAUNCH_H
#include <stdbool.h>

/*
 * Puts library (an absolute path) in front of our environment's LD_PRELOAD; what is there stays behind it, in
 * its order, without a second naming of the library. False: no memory.
 */
bool cup_launch_preload(const char *library);

/* Becomes the program. Comes back only when that failed: says why and returns CUP_EXIT_NOT_FOUND or
 * CUP_EXIT_NOT_EXEC. */
int cup_launch_exec(char *const *argv);

/*
 * Runs the program and waits for it; signals sent to us are sent on. Those of the terminal reach it by
 * themselves. is_stdout_kept: the program's stdout is our stderr, so that our stdout is a report alone.
 * Returns 0 and its wait status, or one of CUP_EXIT_* after saying why it did not start.
 */
int cup_launch_wait(char *const *argv, bool is_stdout_kept, int *out_status);

/* The exit code for a wait status. A program that a signal ended ends us by the same signal: then this does
 * not return. */
int cup_launch_mirror(int status);

#endif /* CUP_TOOLS_LAUNCH_H */
