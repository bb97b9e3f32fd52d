/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gen_docs - the pages of docs/ that are made from the LISTs.
 * What:       a function a page that is long enough to have a file of its own; prints it.
 * Threads:    one.
 */
#ifndef CUP_TOOLS_GEN_DOCS_H
#define CUP_TOOLS_GEN_DOCS_H
#include <stdbool.h>

/* False, and a line on stderr: a LIST has a row that the page does not describe. */
bool print_interception(void);

#endif /* CUP_TOOLS_GEN_DOCS_H */
