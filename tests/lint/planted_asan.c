/* SPDX-License-Identifier: Apache-2.0 */
/* planted_asan - a write behind a block of the bookkeeping: AddressSanitizer sees it through meta.c. */
#include "allocator/meta.h"

int main(int argc, char **argv)
{
    volatile char *memory = cup_meta_alloc(24);
    memory[24 + argc - 1] = 1;
    return 0;
}
