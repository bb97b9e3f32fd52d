/* SPDX-License-Identifier: Apache-2.0 */
/* tool_static - a program that no preload can enter. */
int main(void)
{
    return 0;
}
