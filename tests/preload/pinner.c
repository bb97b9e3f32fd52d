/* SPDX-License-Identifier: Apache-2.0 */
/* pinner - in place of libibverbs: a library of that name, which is all that the preload looks at. */
__attribute__((visibility("default"))) int ibv_fork_init(void);

int ibv_fork_init(void)
{
    return 0;
}
