/* SPDX-License-Identifier: Apache-2.0 */
/*
 * thrust_loop - an ordinary Thrust program: reductions of 1,000 ints and sorts of 1 Mi ints in a loop. Each
 * call allocates temporary storage and frees it: the library's own calls, which no source change reaches.
 * What:       the median time of a call after warm-up, and a hash over every byte that the calls return.
 * Not here:   anything that knows about cupola.
 * Invariants: inputs depend on the round alone; copies, fills and hashing are outside the clock.
 * Threads:    one.
 */
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>
#include <thrust/device_vector.h>
#include <thrust/reduce.h>
#include <thrust/sort.h>
#include "hash.h"

namespace
{

constexpr int kSkip = 77; /* CTest's and compare.py's "not here" */
constexpr size_t kReduceInts = 1000;
constexpr size_t kArrayInts = 4 << 20;
constexpr size_t kSortInts = 1 << 20;

__global__ void fill_ints(int *out, size_t n, uint32_t seed)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x) {
        uint32_t x = seed * 0x9E3779B9u + (uint32_t)i;
        x = (x ^ (x >> 16)) * 0x85EBCA6Bu;
        x = (x ^ (x >> 13)) * 0xC2B2AE35u;
        out[i] = (int)(x ^ (x >> 16));
    }
}

void check(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return;
    std::fprintf(stderr, "thrust_loop: %s: %s\n", what, cudaGetErrorString(error));
    std::exit(1);
}

void fill(thrust::device_vector<int> &ints, uint32_t seed)
{
    fill_ints<<<256, 256>>>(thrust::raw_pointer_cast(ints.data()), ints.size(), seed);
    check(cudaDeviceSynchronize(), "fill");
}

double now_s()
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> times)
{
    std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
    return times[times.size() / 2];
}

void print_row(const char *name, const std::vector<double> &times, uint64_t hash)
{
    std::printf("name=%s time_s=%.9f passes=%zu hash=0x%016llx\n", name, median(times), times.size(),
                (unsigned long long)hash);
}

/* Slices of a large array, one after the other: no other small allocation is live, as in a program that holds big data. */
void reduce_loop(int warmup, int rounds)
{
    thrust::device_vector<int> ints(kArrayInts);
    std::vector<double> times;
    uint64_t hash = HASH_START;
    fill(ints, 1);
    for (int round = 0; round < warmup + rounds; round++) {
        auto slice = ints.begin() + (size_t)round * kReduceInts % (kArrayInts - kReduceInts);
        double start = now_s();
        int sum = thrust::reduce(slice, slice + kReduceInts);
        double end = now_s();
        hash = hash_word(hash, (uint32_t)sum);
        if (round >= warmup)
            times.push_back(end - start);
    }
    print_row("reduce", times, hash);
}

/*
 * The same on a vector that stays: the driver then keeps its block of small allocations, and native calls
 * cost a microsecond. The case where a pool gains least.
 */
void reduce_small_loop(int warmup, int rounds)
{
    thrust::device_vector<int> ints(kReduceInts);
    std::vector<double> times;
    uint64_t hash = HASH_START;
    for (int round = 0; round < warmup + rounds; round++) {
        fill(ints, round);
        double start = now_s();
        int sum = thrust::reduce(ints.begin(), ints.end());
        double end = now_s();
        hash = hash_word(hash, (uint32_t)sum);
        if (round >= warmup)
            times.push_back(end - start);
    }
    print_row("reduce_small", times, hash);
}

void sort_loop(int warmup, int rounds)
{
    thrust::device_vector<int> ints(kSortInts);
    std::vector<int> sorted(kSortInts);
    std::vector<double> times;
    uint64_t hash = HASH_START;
    for (int round = 0; round < warmup + rounds; round++) {
        fill(ints, round);
        double start = now_s();
        thrust::sort(ints.begin(), ints.end());
        check(cudaDeviceSynchronize(), "sort");
        double end = now_s();
        check(cudaMemcpy(sorted.data(), thrust::raw_pointer_cast(ints.data()), kSortInts * sizeof(int),
                         cudaMemcpyDeviceToHost),
              "copy back");
        if (!std::is_sorted(sorted.begin(), sorted.end())) {
            std::fprintf(stderr, "thrust_loop: round %d is not sorted\n", round);
            std::exit(1);
        }
        hash = hash_bytes(hash, sorted.data(), kSortInts * sizeof(int));
        if (round >= warmup)
            times.push_back(end - start);
    }
    print_row("sort", times, hash);
}

} // namespace

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? std::atoi(argv[1]) : 200;
    int devices = 0;
    if (rounds < 1) {
        std::fprintf(stderr, "usage: thrust_loop [ROUNDS >= 1]\n");
        return 2;
    }
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        std::printf("skipped: no CUDA driver or no device\n");
        return kSkip;
    }
    reduce_loop(100, 10 * rounds);
    reduce_small_loop(100, 10 * rounds);
    sort_loop(20, rounds);
    return 0;
}
