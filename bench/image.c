/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image - how: the assembler includes the fat binary that nvcc made, aligned as the driver wants it and with
 * the NUL that a PTX image would want. Without nvcc the image is empty: such a program runs on the software
 * driver only.
 */
#include "image.h"

#ifdef DEV_IMAGE_FILE
__asm__(".section .rodata\n"
        ".balign 16\n"
        ".global dev_image\n"
        ".hidden dev_image\n"
        "dev_image:\n"
        ".incbin \"" DEV_IMAGE_FILE "\"\n"
        ".byte 0\n"
        ".previous\n");
const bool dev_has_image = true;
#else
const char dev_image[] = "";
const bool dev_has_image = false;
#endif
