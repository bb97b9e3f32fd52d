/* SPDX-License-Identifier: Apache-2.0 */
/* planted_tsan - two threads count without a lock: ThreadSanitizer must see it. */
#include <pthread.h>

static int counter;

static void *count(void *unused)
{
    for (int i = 0; i < 1000; i++)
        counter++;
    return NULL;
}

int main(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, count, NULL) != 0)
        return 0;
    count(NULL);
    pthread_join(thread, NULL);
    return 0;
}
