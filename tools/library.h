/* SPDX-License-Identifier: Apache-2.0 */
/*
 * library - where libcupola.so is.
 * What:       beside the tool, in a build tree or an installation, or where the user says; its version.
 * Not here:   putting it into LD_PRELOAD (launch.h).
 */
#ifndef CUP_TOOLS_LIBRARY_H
#define CUP_TOOLS_LIBRARY_H
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * Finds the library: given (may be NULL: look in the usual places) as an absolute path in out_path. False,
 * said on stderr: there is none, or its path holds a space or a colon, which LD_PRELOAD can't carry.
 */
bool cup_library_find(const char *given, char out_path[PATH_MAX]);

/* What follows the tag "@(#)cupola " in the file, as what(1) would print it. False if there is no such tag.
 */
bool cup_library_version(const char *path, char *out, size_t capacity);

#endif /* CUP_TOOLS_LIBRARY_H */
