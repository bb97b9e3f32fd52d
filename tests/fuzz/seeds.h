/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seeds - where a fuzz target starts from.
 * What:       each target makes its own seeds; they are written into the corpus folder, the last word of its
 *             command line.
 * Not here:   committed corpora: what fuzzing finds becomes an example in a unit test.
 */
#ifndef CUP_TESTS_FUZZ_SEEDS_H
#define CUP_TESTS_FUZZ_SEEDS_H
#include <stddef.h>
#include <stdint.h>

/* libFuzzer's entry points. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

/* The target's: fills out with seed number index and returns its size; 0 when there are no more. */
size_t cup_fuzz_seed(unsigned index, uint8_t *out, size_t capacity);

/* A finding: printed, then abort, which libFuzzer takes as a crash and keeps the input of. */
#define FUZZ_CHECK(cond, ...) ((cond) ? (void)0 : cup_fuzz_fail(__FILE__, __LINE__, __VA_ARGS__))
void cup_fuzz_fail(const char *file, int line, const char *format, ...)
    __attribute__((noreturn, format(printf, 3, 4)));

#endif /* CUP_TESTS_FUZZ_SEEDS_H */
