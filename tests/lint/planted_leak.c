/* SPDX-License-Identifier: Apache-2.0 */
/* planted_leak - bookkeeping lost at exit: LeakSanitizer sees it through meta.c. */
#include "allocator/meta.h"

static void *volatile kept;

int main(void)
{
    kept = cup_meta_alloc(24);
    kept = NULL;
    return 0;
}
