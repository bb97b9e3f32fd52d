/* SPDX-License-Identifier: Apache-2.0 */
/* planted_ubsan - a signed overflow must stop the program (-fno-sanitize-recover). */
#include <limits.h>

int main(int argc, char **argv)
{
    volatile int sum = INT_MAX;
    sum = sum + argc;
    return sum == 0;
}
