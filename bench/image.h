/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image - the compiled kernels as bytes of the program.
 * What:       dev_image for cuModuleLoadData, valid when dev_has_image.
 * Not here:   loading (dev.c).
 * Invariants: constant.
 * Threads:    any.
 */
#ifndef CUP_BENCH_IMAGE_H
#define CUP_BENCH_IMAGE_H
#include <stdbool.h>

extern const char dev_image[];
extern const bool dev_has_image;

#endif /* CUP_BENCH_IMAGE_H */
