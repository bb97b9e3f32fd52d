/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tool - what the verbs of the command share.
 * What:       exit codes, the verbs, a line on stderr.
 * Not here:   finding the library (library.h), starting a program (launch.h), reading what it reported
 *             (report.h).
 * Threads:    none: the tool has one thread.
 */
#ifndef CUP_TOOLS_TOOL_H
#define CUP_TOOLS_TOOL_H

/* As env(1), nohup(1) and the shell: a program's own code is passed on, these are ours. */
enum {
    CUP_EXIT_OK = 0,
    CUP_EXIT_PROBLEM = 1,     /* doctor: something is in the way */
    CUP_EXIT_OWN = 125,       /* we failed before the program started */
    CUP_EXIT_NOT_EXEC = 126,  /* found, but it can't be executed */
    CUP_EXIT_NOT_FOUND = 127, /* no such program */
};

/* A verb gets its own words, argv[0] being "cupola VERB", and returns the exit code. */
int cup_verb_run(int argc, char **argv);
int cup_verb_doctor(int argc, char **argv);
int cup_verb_list(int argc, char **argv);
int cup_verb_stat(int argc, char **argv);

/* One line on stderr, with the prefix "cupola: " and a newline. */
void cup_tool_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif /* CUP_TOOLS_TOOL_H */
