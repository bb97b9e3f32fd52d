/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LIST of what calls cost the host on one H200 (driver 580, CUDA 13.0): SC_TIME(name, points...).
 *   points  {bytes, ns}, rising in bytes: between two of them a straight line, before the first its value, after
 *           the last the line of the last two; one point: the same for every size
 *   Medians, measured, with nothing else going on unless said. A cost that is too short to be told from the
 *   reading of the clock (cuCtxGetCurrent: 9 ns) has no row: the call costs what it costs here.
 */
/* clang-format off */
/* cudaMalloc and cudaFree with nothing else live, 8 MiB, 64 MiB, 1 GiB; a free waits for the GPU before that */
SC_TIME(ALLOC, {8 * MIB, 32000}, {64 * MIB, 38000}, {GIB, 81000})
SC_TIME(FREE, {8 * MIB, 28000}, {64 * MIB, 56000}, {GIB, 323000})
/* 4 KiB with 1,000 live: the driver cuts them from a block that it has */
SC_TIME(ALLOC_SMALL, {0, 1200})
SC_TIME(FREE_SMALL, {0, 1300})
/* cudaMallocAsync, cudaFreeAsync, one thread */
SC_TIME(ALLOC_ASYNC, {0, 330})
SC_TIME(FREE_ASYNC, {0, 450})
/* cudaMallocHost, cudaFreeHost: 4 KiB, 1 MiB, 64 MiB, 512 MiB */
SC_TIME(HOST_ALLOC, {4 * KIB, 520000}, {MIB, 510000}, {64 * MIB, 24600000}, {512 * MIB, 196000000})
SC_TIME(HOST_FREE, {4 * KIB, 220000}, {MIB, 220000}, {64 * MIB, 6300000}, {512 * MIB, 49000000})
/* VMM. 2 MiB and 1 GiB as one handle; at 32 MiB set access and unmap of a handle beside a busy kernel, and create as what
 * they leave of 1.7 ms for create + map + set access of 32 handles */
SC_TIME(CREATE, {2 * MIB, 7700}, {32 * MIB, 25200}, {GIB, 66000})
SC_TIME(MAP, {2 * MIB, 700}, {GIB, 900})
SC_TIME(SET_ACCESS, {2 * MIB, 20000}, {32 * MIB, 27000}, {GIB, 69000})
SC_TIME(UNMAP, {2 * MIB, 14000}, {32 * MIB, 20000}, {GIB, 31000})
SC_TIME(RELEASE, {2 * MIB, 9700}, {GIB, 322000})
SC_TIME(EXPORT, {0, 20000}) /* 20 us to 1 ms the first time */
SC_TIME(IMPORT, {0, 75000}) /* 53 to 98 us */
SC_TIME(ADDRESS_RESERVE, {0, 29000}) /* 256 GiB; 4 us for 16 TiB */
/* events: a record on a stream, one on a context (idle; 0.3 to 0.9 us busy), a query, a wait of a context (idle) */
SC_TIME(RECORD, {0, 200})
SC_TIME(RECORD_CONTEXT, {0, 220})
SC_TIME(QUERY, {0, 200})
SC_TIME(WAIT_CONTEXT, {0, 300})
SC_TIME(LAUNCH, {0, 3700})
/* cudaMemGetInfo; cuMemGetAddressRange; cudaPointerGetAttributes; cudaDeviceSynchronize, idle, 512 streams */
SC_TIME(INFO, {0, 4700})
SC_TIME(ADDRESS_RANGE, {0, 54})
SC_TIME(ATTRIBUTES, {0, 78})
SC_TIME(SYNCHRONIZE, {0, 4900})
/* the device's own time for what it touches: a set of 1 GiB; a kernel's bytes at 4.4 TB/s */
SC_TIME(DEVICE_SET, {0, 0}, {GIB, 265000})
SC_TIME(DEVICE_BYTES, {0, 0}, {GIB, 244000})
