/* SPDX-License-Identifier: Apache-2.0 */
/*
 * planted - a program with one write behind the end of a block, for the tools that look for such (checkers.sh).
 * What:       planted in: a kernel fills its block. planted out: it writes 4096 B more, over the block's end. The neighbour
 *             on either side stays out of its way, so that only a tool sees it.
 * Not here:   the tool.
 * Threads:    one.
 */
#include "bench/dev.h"
#include <stdio.h>
#include <string.h>

#define BYTES 65536
#define ROOM  (4 << 20)

int main(int argc, char **argv)
{
    bool is_out = argc > 1 && strcmp(argv[1], "out") == 0;
    CUdeviceptr before, block, behind;
    CUstream stream;

    dev_open();
    stream = dev_stream();
    before = dev_alloc(ROOM);
    block = dev_alloc(BYTES);
    behind = dev_alloc(ROOM);
    dev_fill(block, BYTES + (is_out ? 4096 : 0), 1, stream);
    dev_stream_sync(stream);
    dev_free(behind);
    dev_free(block);
    dev_free(before);
    puts("done");
    return 0;
}
