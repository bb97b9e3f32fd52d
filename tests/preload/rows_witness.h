/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rows_witness - what the counting build of the library tells about itself: libcupola made of the same
 * objects, with a counter at the seam between preload/ and shim/ (rows_witness.c). Weak: not there
 * natively, nor in the shipped library.
 */
#ifndef CUP_TESTS_PRELOAD_ROWS_WITNESS_H
#define CUP_TESTS_PRELOAD_ROWS_WITNESS_H
#include <stdint.h>

/* How often the row's route ran in this process; a field of stat_list.h. 0 for what is not there. */
__attribute__((weak, visibility("default"))) uint64_t rows_witness_ran(const char *symbol);
__attribute__((weak, visibility("default"))) uint64_t rows_witness_stat(const char *field);

#endif /* CUP_TESTS_PRELOAD_ROWS_WITNESS_H */
