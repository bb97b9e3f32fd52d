/* SPDX-License-Identifier: Apache-2.0 */
/* fork_storm - forks while two threads are inside the hooks (storm.h says what must hold). */
#define _GNU_SOURCE
#include "driver.h"
#include "storm.h"

static driver_t driver;

static void churn(unsigned seed)
{
    REQUIRE(driver.set_current(driver.context) == CUDA_SUCCESS);
    driver_churn(&driver, seed, 1);
}

int main(void)
{
    driver = driver_load();
    uint64_t rounds = storm_run(churn);
    REQUIRE(rounds > 1);
    driver_require_pooled(&driver, rounds * 64);
    return 0;
}
