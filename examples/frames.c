/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frames - a producer hands video frames to consumers in other processes, through a ring of blocks.
 *
 *     frames [CONSUMERS [FRAMES [WIDTH [HEIGHT]]]]
 *
 * The producer publishes each block of the ring under a name; the consumers open them read-only. What orders
 * them on the GPU are interprocess events alone, one of the producer for each block ("written") and one of
 * each consumer ("read"): nobody waits on the host for the other's GPU work. The counters in shared memory
 * only see to it that a record was called before its wait. Each consumer copies each frame to the host and
 * compares every byte.
 */
#define _GNU_SOURCE
#include "examples/common.h"
#include "preload/cupola.h"
#include <stdatomic.h>
#include <time.h>

enum { RING = 4 };

typedef struct board {
    pthread_barrier_t meeting;
    CUipcEventHandle written[RING], read[PROCESSES_MAX][RING];
    _Atomic int frames_written, frames_read[PROCESSES_MAX]; /* whose record was called */
    int owner, consumers, frames;
    size_t bytes; /* of a frame: NV12 */
} board_t;

static void wait_until(_Atomic int *counter, int least)
{
    const struct timespec pause = {.tv_nsec = 20000};

    while (atomic_load(counter) < least)
        nanosleep(&pause, NULL);
}

static void block_name(const board_t *board, int slot, char name[CUPOLA_NAME_MAX])
{
    snprintf(name, CUPOLA_NAME_MAX, "frames-%d-%d", board->owner, slot);
}

/* Byte by byte of its own frame and place. */
static void draw(unsigned char *image, size_t bytes, int frame)
{
    uint32_t noise = (uint32_t)frame * 2654435761u + 1;

    for (size_t i = 0; i < bytes; i++) {
        noise = noise * 1664525u + 1013904223u;
        image[i] = (unsigned char)(noise >> 24);
    }
}

static CUevent new_event(CUipcEventHandle *out_handle)
{
    CUevent event;

    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
    OK(cuIpcGetEventHandle(out_handle, event));
    return event;
}

/* ---- the producer ---- */

typedef struct producer {
    CUstream stream;
    CUdeviceptr block[RING];
    unsigned char *image[RING]; /* pinned: one for each block, until its copy is done */
    CUevent written[RING], read[PROCESSES_MAX][RING];
} producer_t;

static void open_producer(board_t *board, producer_t *producer)
{
    char name[CUPOLA_NAME_MAX];

    OK(cuStreamCreate(&producer->stream, CU_STREAM_NON_BLOCKING));
    for (int slot = 0; slot < RING; slot++) {
        OK(cuMemAlloc(&producer->block[slot], board->bytes));
        OK(cuMemHostAlloc((void **)&producer->image[slot], board->bytes, 0));
        producer->written[slot] = new_event(&board->written[slot]);
        block_name(board, slot, name);
        OK(cupola_publish(name, producer->block[slot], CUPOLA_READ_ONLY, CUPOLA_NO_GROUP));
    }
    meet(&board->meeting); /* the blocks have names */
    meet(&board->meeting); /* the consumers have them open, and events */
    for (int i = 0; i < board->consumers; i++)
        for (int slot = 0; slot < RING; slot++)
            OK(cuIpcOpenEventHandle(&producer->read[i][slot], board->read[i][slot]));
}

static void produce(board_t *board, producer_t *producer, int frame)
{
    int slot = frame % RING;

    if (frame >= RING) {
        OK(cuEventSynchronize(producer->written[slot])); /* of the image in host memory: our own copy of it */
        for (int i = 0; i < board->consumers; i++) {
            wait_until(&board->frames_read[i], frame - RING + 1);
            OK(cuStreamWaitEvent(producer->stream, producer->read[i][slot], 0));
        }
    }
    draw(producer->image[slot], board->bytes, frame);
    OK(cuMemcpyHtoDAsync(producer->block[slot], producer->image[slot], board->bytes, producer->stream));
    OK(cuEventRecord(producer->written[slot], producer->stream));
    atomic_store(&board->frames_written, frame + 1);
}

static int run_producer(board_t *board)
{
    producer_t producer;
    struct timespec begun, ended;
    double seconds;
    int is_simulated = open_cuda();

    open_producer(board, &producer);
    clock_gettime(CLOCK_MONOTONIC, &begun);
    for (int frame = 0; frame < board->frames; frame++)
        produce(board, &producer, frame);
    OK(cuStreamSynchronize(producer.stream));
    meet(&board->meeting); /* all consumers have seen all frames */
    clock_gettime(CLOCK_MONOTONIC, &ended);
    seconds = (double)(ended.tv_sec - begun.tv_sec) + (double)(ended.tv_nsec - begun.tv_nsec) / 1e9;
    printf("frames %d of %zu bytes to %d consumers: every byte right, %.0f frames/s%s\n", board->frames,
           board->bytes, board->consumers, board->frames / seconds, is_simulated ? " (simulated)" : "");
    for (int slot = 0; slot < RING; slot++) {
        OK(cuMemFree(producer.block[slot])); /* takes its name away, too */
        OK(cuMemFreeHost(producer.image[slot]));
        OK(cuEventDestroy(producer.written[slot]));
        for (int i = 0; i < board->consumers; i++)
            OK(cuEventDestroy(producer.read[i][slot]));
    }
    return 0;
}

/* ---- a consumer ---- */

typedef struct consumer {
    CUstream stream;
    cupola_block_t block[RING];
    unsigned char *image, *expected;
    CUevent written[RING], read[RING];
} consumer_t;

static void open_consumer(board_t *board, consumer_t *consumer, int self)
{
    char name[CUPOLA_NAME_MAX];

    OK(cuStreamCreate(&consumer->stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemHostAlloc((void **)&consumer->image, board->bytes, 0));
    consumer->expected = malloc(board->bytes);
    check(consumer->expected != NULL, "no host memory");
    meet(&board->meeting);
    for (int slot = 0; slot < RING; slot++) {
        block_name(board, slot, name);
        OK(cupola_open(name, CUPOLA_READ_ONLY, CUPOLA_MYSELF, &consumer->block[slot]));
        OK(cuIpcOpenEventHandle(&consumer->written[slot], board->written[slot]));
        consumer->read[slot] = new_event(&board->read[self][slot]);
    }
    meet(&board->meeting);
}

static void consume(board_t *board, consumer_t *consumer, int self, int frame)
{
    int slot = frame % RING;

    wait_until(&board->frames_written, frame + 1);
    OK(cuStreamWaitEvent(consumer->stream, consumer->written[slot], 0));
    OK(cuMemcpyDtoHAsync(consumer->image, consumer->block[slot].address, board->bytes, consumer->stream));
    OK(cuEventRecord(consumer->read[slot], consumer->stream));
    atomic_store(&board->frames_read[self],
                 frame + 1); /* the block can be written again, once that is done */
    draw(consumer->expected, board->bytes, frame);
    OK(cuStreamSynchronize(consumer->stream));
    check(memcmp(consumer->image, consumer->expected, board->bytes) == 0, "a frame has wrong bytes");
}

static int run_consumer(board_t *board, int self)
{
    consumer_t consumer;

    open_cuda();
    open_consumer(board, &consumer, self);
    for (int frame = 0; frame < board->frames; frame++)
        consume(board, &consumer, self, frame);
    for (int slot = 0; slot < RING; slot++) {
        OK(cupola_close(consumer.block[slot].address));
        OK(cuEventDestroy(consumer.written[slot]));
    }
    OK(cuMemFreeHost(consumer.image));
    free(consumer.expected);
    meet(&board->meeting); /* events live as long as somebody may wait for them */
    for (int slot = 0; slot < RING; slot++)
        OK(cuEventDestroy(consumer.read[slot]));
    return 0;
}

int main(int argc, char **argv)
{
    board_t *board = share(sizeof *board);
    size_t width = argc > 3 ? (size_t)atoi(argv[3]) : 1920, height = argc > 4 ? (size_t)atoi(argv[4]) : 1080;
    int self;

    board->owner = (int)getpid();
    board->consumers = argc > 1 ? atoi(argv[1]) : 2;
    board->frames = argc > 2 ? atoi(argv[2]) : 300;
    board->bytes = width * height * 3 / 2;
    check(board->consumers >= 1 && board->consumers < PROCESSES_MAX && board->frames > 0 && board->bytes > 0,
          "usage: frames [CONSUMERS (at most 15) [FRAMES [WIDTH [HEIGHT]]]]");
    make_meeting(&board->meeting, board->consumers + 1);
    self = start_processes(board->consumers + 1);
    if (self > 0)
        return run_consumer(board, self - 1);
    return run_producer(board) || !all_ended_well();
}
