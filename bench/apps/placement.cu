/* SPDX-License-Identifier: Apache-2.0 */
/*
 * placement - does it matter for the GPU how memory is mapped? Without the preload and without cupola.
 * What:       placement speed: read bandwidth and random 4-byte reads of buffers of 4 GiB that fill the
 *             device but for the last one or two, by cudaMalloc (handle_mib 0) and by handles of
 *             2 MiB ... 4 GiB mapped side by side; a CSV row each: medians over the buffers, their ratio to
 *             cudaMalloc's, the ratios of the slowest and the fastest buffer, and how many are under 0.97.
 *             placement gap: 5 ms kernels back to back on four streams, alone and beside a thread that
 *             creates, maps, unmaps and releases a 32 MiB handle all the time: the longest time between two
 *             kernels of a stream. Under the preload cudaMalloc's rows are pooled buffers.
 * Not here:   what the mapping calls cost the host (docs/placement.md).
 * Threads:    one; "gap" adds the one that maps.
 */
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>
#include <cuda.h>
#include <cuda_runtime.h>

namespace
{

constexpr size_t kBytes = (size_t)4 << 30;
constexpr size_t kReads = (size_t)1 << 28;
constexpr int kRounds = 5;
/* 0: cudaMalloc. Up and down: memory that is given back and taken again lies elsewhere. */
constexpr size_t kHandleMib[] = {0, 2, 8, 32, 256, 1024, 4096, 1024, 256, 32, 8, 2, 0};
constexpr int kStreams = 4, kKernels = 40;

__global__ void read_all(const uint4 *data, size_t n, unsigned *out)
{
    unsigned sum = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x) {
        uint4 v = data[i];
        sum += v.x ^ v.y ^ v.z ^ v.w;
    }
    if (sum == 0x12345678)
        *out = sum;
}

__global__ void read_random(const unsigned *data, size_t words, size_t reads, unsigned *out)
{
    size_t stride = (size_t)gridDim.x * blockDim.x, first = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    unsigned sum = 0;
    for (size_t i = first; i < reads; i += stride) {
        size_t x = i * 0x9E3779B97F4A7C15ull;
        x ^= x >> 29;
        sum += data[(x * 0xBF58476D1CE4E5B9ull >> 20) % words];
    }
    if (sum == 0x12345678)
        *out = sum;
}

__device__ unsigned long long now_ns()
{
    unsigned long long ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

__global__ void spin(unsigned long long ns, unsigned long long *span)
{
    unsigned long long start = now_ns(), end = start;
    while (end - start < ns)
        end = now_ns();
    span[0] = start;
    span[1] = end;
}

#define CHECK(call)                                                     \
    do {                                                                \
        int error_ = (int)(call);                                       \
        if (error_ != 0) {                                              \
            std::fprintf(stderr, "placement: %s: %d\n", #call, error_); \
            std::exit(1);                                               \
        }                                                               \
    } while (0)

CUmemAllocationProp device_memory()
{
    CUmemAllocationProp prop = {};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    return prop;
}

void back(CUdeviceptr at, size_t bytes)
{
    CUmemAllocationProp prop = device_memory();
    CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CHECK(cuMemCreate(&handle, bytes, &prop, 0));
    CHECK(cuMemMap(at, bytes, 0, handle, 0));
    CHECK(cuMemSetAccess(at, bytes, &access, 1));
    CHECK(cuMemRelease(handle)); /* the mapping keeps it */
}

template <typename Launch> double median_ms(Launch launch)
{
    std::vector<float> times(kRounds);
    cudaEvent_t start, stop;
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&stop));
    launch();
    for (float &time : times) {
        CHECK(cudaEventRecord(start));
        launch();
        CHECK(cudaEventRecord(stop));
        CHECK(cudaEventSynchronize(stop));
        CHECK(cudaEventElapsedTime(&time, start, stop));
    }
    CHECK(cudaEventDestroy(start));
    CHECK(cudaEventDestroy(stop));
    std::sort(times.begin(), times.end());
    return times[kRounds / 2];
}

void *take(size_t handle_bytes)
{
    CUdeviceptr base;
    void *plain;
    if (handle_bytes == 0) {
        CHECK(cudaMalloc(&plain, kBytes));
        return plain;
    }
    CHECK(cuMemAddressReserve(&base, kBytes, 0, 0, 0));
    for (size_t at = 0; at < kBytes; at += handle_bytes)
        back(base + at, handle_bytes);
    return (void *)base;
}

void give_back(void *buffer, size_t handle_bytes)
{
    if (handle_bytes == 0) {
        CHECK(cudaFree(buffer));
        return;
    }
    CHECK(cuMemUnmap((CUdeviceptr)buffer, kBytes));
    CHECK(cuMemAddressFree((CUdeviceptr)buffer, kBytes));
}

struct Speeds {
    std::vector<double> read, random;
};

/* All are held at once: they lie in different parts of the device. */
Speeds measure(size_t handle_bytes, size_t buffers, unsigned *out)
{
    std::vector<void *> held(buffers);
    Speeds speeds;
    for (void *&buffer : held) {
        buffer = take(handle_bytes);
        CHECK(cudaMemset(buffer, 7, kBytes));
    }
    for (void *buffer : held) {
        speeds.read.push_back(kBytes / 1e6 /
                              median_ms([&] { read_all<<<2112, 512>>>((uint4 *)buffer, kBytes / 16, out); }));
        speeds.random.push_back(kReads / 1e6 / median_ms([&] {
                                    read_random<<<2112, 512>>>((unsigned *)buffer, kBytes / 4, kReads, out);
                                }));
    }
    for (void *buffer : held)
        give_back(buffer, handle_bytes);
    std::sort(speeds.read.begin(), speeds.read.end());
    std::sort(speeds.random.begin(), speeds.random.end());
    return speeds;
}

void print(const std::vector<double> &sorted, double base)
{
    double median = sorted[sorted.size() / 2];
    size_t slow = std::count_if(sorted.begin(), sorted.end(), [&](double x) { return x < 0.97 * base; });
    std::printf(",%.1f,%.4f,%.4f,%.4f,%zu", median, median / base, sorted.front() / base,
                sorted.back() / base, slow);
}

void speed()
{
    size_t free_bytes, total_bytes;
    double base_read = 0, base_random = 0;
    unsigned *out;
    CHECK(cudaMalloc(&out, 4));
    CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
    size_t buffers = free_bytes / kBytes - 1;
    std::printf("handle_mib,buffers,read_gb_s,read_ratio,read_least,read_most,read_slow,"
                "random_g_s,random_ratio,random_least,random_most,random_slow\n");
    for (size_t mib : kHandleMib) {
        Speeds speeds = measure(mib << 20, buffers, out);
        if (base_read == 0)
            base_read = speeds.read[buffers / 2], base_random = speeds.random[buffers / 2];
        std::printf("%zu,%zu", mib, buffers);
        print(speeds.read, base_read);
        print(speeds.random, base_random);
        std::printf("\n");
    }
    CHECK(cudaFree(out));
}

/* The longest time between two kernels of a stream, in microseconds. */
double longest_gap_us(bool is_mapping)
{
    cudaStream_t stream[kStreams];
    unsigned long long *span;
    std::atomic<bool> is_done(false);
    std::atomic<long> rounds(0);
    CHECK(cudaMallocHost(&span, sizeof(*span) * 2 * kStreams * kKernels));
    std::thread mapper([&] {
        CUdeviceptr base;
        CHECK(cudaSetDevice(0));
        CHECK(cuMemAddressReserve(&base, (size_t)32 << 20, 0, 0, 0));
        while (is_mapping && !is_done) {
            back(base, (size_t)32 << 20);
            CHECK(cuMemUnmap(base, (size_t)32 << 20));
            rounds++;
        }
        CHECK(cuMemAddressFree(base, (size_t)32 << 20));
    });
    for (cudaStream_t &s : stream)
        CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    for (int k = 0; k < kKernels; k++)
        for (int s = 0; s < kStreams; s++)
            spin<<<1, 1, 0, stream[s]>>>(5000000, span + 2 * (s * kKernels + k));
    CHECK(cudaDeviceSynchronize());
    is_done = true;
    mapper.join();
    unsigned long long longest = 0;
    for (int s = 0; s < kStreams; s++)
        for (int k = 1; k < kKernels; k++)
            longest = std::max(longest, span[2 * (s * kKernels + k)] - span[2 * (s * kKernels + k - 1) + 1]);
    std::printf("%s,%ld,%.1f\n", is_mapping ? "mapping" : "alone", rounds.load(), longest / 1e3);
    CHECK(cudaFreeHost(span));
    return longest / 1e3;
}

} // namespace

int main(int argc, char **argv)
{
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        std::printf("skipped: no CUDA driver or no device\n");
        return 77;
    }
    CHECK(cudaFree(0));
    if (argc == 2 && std::strcmp(argv[1], "speed") == 0) {
        speed();
    } else if (argc == 2 && std::strcmp(argv[1], "gap") == 0) {
        std::printf("beside,map_unmap_rounds,longest_gap_us\n");
        for (int i = 0; i < 3; i++) {
            longest_gap_us(false);
            longest_gap_us(true);
        }
    } else {
        std::fprintf(stderr, "usage: placement speed|gap\n");
        return 2;
    }
    return 0;
}
