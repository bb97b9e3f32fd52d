/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log - what we say while the program runs: short lines with the prefix "cupola: ".
 * What:       levels off, error, info, debug; stderr, or the file of CUPOLA_LOG=level:FILE. No allocation,
 *             one write a line, a limit of lines per process (debug has none) so that a loop of errors can't
 *             fill a disk.
 * Manners:    errno is kept; nothing goes to stdout, ever. Whoever first knows a cause logs it, once.
 * Threads:    any thread; a line is written whole.
 */
#ifndef CUP_SHIM_LOG_H
#define CUP_SHIM_LOG_H

typedef enum { CUP_LOG_OFF, CUP_LOG_ERROR, CUP_LOG_INFO, CUP_LOG_DEBUG } cup_log_level_t;

/* Takes "level" or "level:FILE"; complains on stderr and keeps "error" for anything else. Runs once, in the
 * start. */
void cup_log_setup(const char *text);

/* One line, without the newline. */
void cup_log(cup_log_level_t level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A complaint about the environment: an error line (cup_conf_complain_t). */
void cup_log_complain(const char *line);

#endif /* CUP_SHIM_LOG_H */
