/* SPDX-License-Identifier: Apache-2.0 */
/*
 * secure - churns, and says whether the loader ran it with care (AT_SECURE): secure 0|1. --is-secure: only
 * that.
 */
#include "driver.h"
#include <sys/auxv.h>

enum { ROUNDS = 8, PER_ROUND = 64 };

int main(int argc, char **argv)
{
    if (argc < 2) {
        driver_t driver = driver_load();
        driver_churn(&driver, 5, ROUNDS);
        driver_require_pooled(&driver, ROUNDS * PER_ROUND);
    }
    printf("secure %lu\n", getauxval(AT_SECURE));
    return 0;
}
