/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor_ipc - what stands between processes that want to share device memory.
 * How:        devices by their attributes, no context; the process by /proc; the socket folder by lstat,
 *             and by the rule of cup_ipc_folder() in shim/ipc_sock.c: a folder that is refused there is a problem
 *             here. Whether an instance of a partitioned GPU (MIG) is meant, no attribute tells: its name
 *             and /proc do, or nothing does, which is said.
 */
#define _GNU_SOURCE
#include "tools/doctor.h"
#include "allocator/range.h"
#include "shim/ipc_sock.h"
#include <cuda.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define NOT_KNOWN    (-1)
#define DEVICES_MAX  64
#define SOCKET_CHARS 30 /* "/.cupola-ipc-", 16 digits, the end */

#define ENTRY_LIST(X)       \
    X(cuInit)               \
    X(cuDeviceGetCount)     \
    X(cuDeviceGet)          \
    X(cuDeviceGetName)      \
    X(cuDeviceTotalMem_v2)  \
    X(cuDeviceGetAttribute) \
    X(cuDeviceCanAccessPeer)

typedef struct entries {
#define X(name) typeof(&name) name;
    ENTRY_LIST(X)
#undef X
} entries_t;

/* X(attribute, finding where it is 0, where it is 1, where it is 0, what to do then). The second one is the
 * attribute that the documentation names for legacy IPC of memory, too. */
#define FACT_LIST(X)                                                                                        \
    X(UNIFIED_ADDRESSING, CUP_FINDING_PROBLEM, "unified addressing", "no unified addressing",               \
      "IPC needs it: a 64-bit process, and a GPU of today")                                                 \
    X(IPC_EVENT_SUPPORTED, CUP_FINDING_NOTE, "the driver's own (legacy) IPC, of memory and events",         \
      "no legacy IPC: no interprocess events, no handles of the driver's own",                              \
      "wait on the host before you tell another process")                                                   \
    X(VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, CUP_FINDING_NOTE, "memory by handles (CUPOLA_BACKING=vmm)",      \
      "no memory by handles", "CUPOLA_BACKING=raw: blocks of CUPOLA_DEDICATED and more can be shared")      \
    X(HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, CUP_FINDING_NOTE,                                        \
      "handles leave the process as descriptors: under vmm blocks of any size can be shared",               \
      "no descriptors of handles", "CUPOLA_BACKING=raw: blocks of CUPOLA_DEDICATED and more can be shared") \
    X(GPU_DIRECT_RDMA_SUPPORTED, CUP_FINDING_NOTE, "GPUDirect RDMA", "no GPUDirect RDMA",                   \
      "nothing, unless a network card is to reach device memory: then load nvidia-peermem")                 \
    X(GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, CUP_FINDING_NOTE, "GPUDirect RDMA of memory by handles",     \
      "no GPUDirect RDMA of memory by handles",                                                             \
      "nothing, unless a network card is to reach pooled memory: then CUPOLA_BACKING=raw")

/* ---- devices ---- */

static int attribute(const entries_t *driver, CUdevice device, CUdevice_attribute which)
{
    int value = 0;

    return driver->cuDeviceGetAttribute(&value, which, device) == CUDA_SUCCESS ? value : NOT_KNOWN;
}

static void find_fact(int number, int value, cup_finding_t lack, const char *fine, const char *not_fine,
                      const char *remedy)
{
    if (value == NOT_KNOWN)
        cup_doctor_find(CUP_FINDING_NOTE, "ipc", NULL, "device %d: %s: not known to this driver", number,
                        fine);
    else if (value)
        cup_doctor_find(CUP_FINDING_OK, "ipc", NULL, "device %d: %s", number, fine);
    else
        cup_doctor_find(lack, "ipc", remedy, "device %d: %s", number, not_fine);
}

static void find_mode(int number, int mode)
{
    if (mode == CU_COMPUTEMODE_EXCLUSIVE_PROCESS)
        cup_doctor_find(CUP_FINDING_PROBLEM, "ipc", "nvidia-smi -c DEFAULT, or run below MPS",
                        "device %d: compute mode exclusive: one process alone gets a context", number);
    else if (mode == CU_COMPUTEMODE_PROHIBITED)
        cup_doctor_find(CUP_FINDING_PROBLEM, "ipc", "nvidia-smi -c DEFAULT",
                        "device %d: compute mode prohibited: nobody gets a context", number);
    else if (mode == CU_COMPUTEMODE_DEFAULT)
        cup_doctor_find(CUP_FINDING_OK, "ipc", NULL,
                        "device %d: compute mode default, for any number of processes", number);
    else
        cup_doctor_find(CUP_FINDING_NOTE, "ipc", NULL, "device %d: compute mode not known", number);
}

/* An instance carries its profile in its name ("… MIG 1g.10gb"). */
static void find_mig(int number, const char *name)
{
    glob_t found = {0};

    if (strstr(name, " MIG "))
        cup_doctor_find(
            CUP_FINDING_NOTE, "ipc", "give all processes the same instance (CUDA_VISIBLE_DEVICES)",
            "device %d: %s: a MIG instance, whose memory other instances can't open", number, name);
    else if (access("/proc/driver/nvidia/capabilities", R_OK) != 0)
        cup_doctor_find(CUP_FINDING_NOTE, "ipc", NULL, "device %d: MIG: not known (no capabilities in /proc)",
                        number);
    else if (glob("/proc/driver/nvidia/capabilities/gpu*/mig/gi*", 0, NULL, &found) == 0)
        cup_doctor_find(CUP_FINDING_NOTE, "ipc", "nvidia-smi -L shows which device that is",
                        "device %d: no MIG instance by its name, but this machine has some", number);
    else
        cup_doctor_find(CUP_FINDING_OK, "ipc", NULL, "device %d: no MIG instances", number);
    globfree(&found);
}

/* Returns its memory. */
static uint64_t find_device(const entries_t *driver, int number)
{
    char name[256] = "";
    CUdevice device;
    size_t bytes = 0;

    if (driver->cuDeviceGet(&device, number) != CUDA_SUCCESS)
        return 0; /* said by doctor_driver.c */
    driver->cuDeviceGetName(name, sizeof name - 1, device);
#define X(flag, lack, fine, not_fine, remedy) \
    find_fact(number, attribute(driver, device, CU_DEVICE_ATTRIBUTE_##flag), lack, fine, not_fine, remedy);
    FACT_LIST(X)
#undef X
    find_mode(number, attribute(driver, device, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE));
    find_mig(number, name);
    driver->cuDeviceTotalMem_v2(&bytes, device);
    return bytes;
}

static int may_reach(const entries_t *driver, int from, int to)
{
    CUdevice here, there;
    int may = 0;

    if (driver->cuDeviceGet(&here, from) != CUDA_SUCCESS || driver->cuDeviceGet(&there, to) != CUDA_SUCCESS ||
        driver->cuDeviceCanAccessPeer(&may, here, there) != CUDA_SUCCESS)
        return NOT_KNOWN;
    return may;
}

/* A row of the table: what device from reaches. */
static void find_reach(const entries_t *driver, int from, int count)
{
    char row[DEVICES_MAX * 20] = "";
    bool is_lacking = false;

    for (int to = 0; to < count; to++) {
        size_t at = strlen(row);
        int may = to == from ? 1 : may_reach(driver, from, to),
            back = to == from ? 1 : may_reach(driver, to, from);
        const char *word = to == from         ? "itself"
                           : may == NOT_KNOWN ? "not known"
                           : !may             ? "no"
                           : back == 1        ? "yes"
                                              : "one way";

        is_lacking |= may != 1 || back != 1;
        snprintf(row + at, sizeof row - at, "%s%d %s", at ? ", " : "", to, word);
    }
    cup_doctor_find(is_lacking ? CUP_FINDING_NOTE : CUP_FINDING_OK, "ipc",
                    is_lacking
                        ? "open a block on a device that reaches its own, or copy (cuMemcpyPeer); nvidia-smi "
                          "topo -p2p r says why"
                        : NULL,
                    "device %d reaches: %s", from, row);
}

/* Returns the memory of all of them. */
static uint64_t find_devices(const entries_t *driver)
{
    uint64_t bytes = 0;
    int count = 0;

    driver->cuDeviceGetCount(&count);
    count = count < DEVICES_MAX ? count : DEVICES_MAX;
    for (int i = 0; i < count; i++)
        bytes += find_device(driver, i);
    for (int i = 0; i < count; i++)
        find_reach(driver, i, count);
    return bytes;
}

/* What is wrong with the driver cup_doctor_driver() has said. Returns the memory of all devices; 0: not known. */
static uint64_t find_driver(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    bool is_whole = driver != NULL;
    entries_t entries;

#define X(name)                                                         \
    entries.name = driver ? (typeof(&name))dlsym(driver, #name) : NULL; \
    is_whole &= entries.name != NULL;
    ENTRY_LIST(X)
#undef X
    if (is_whole && entries.cuInit(0) == CUDA_SUCCESS)
        return find_devices(&entries);
    cup_doctor_find(CUP_FINDING_NOTE, "ipc", NULL, "devices: not known without a driver");
    return 0;
}

/* ---- the process ---- */

/* The numbers of the machine's own namespaces are fixed (PROC_PID_INIT_INO and its kin in the kernel). */
#define NAMESPACE_LIST(X)                                                                                   \
    X(pid, 4026531836, "the driver's own handles may not open outside of it: run both in one (--pid=host)") \
    X(ipc, 4026531839, "the driver's own handles may not open outside of it: run both in one (--ipc=host)") \
    X(user, 4026531837,                                                                                     \
      "processes whose user is another one outside, or none, are refused: map the same one into both")

static void find_namespace(const char *kind, uint64_t first, const char *remedy)
{
    char path[64], target[64];
    uint64_t number;

    snprintf(path, sizeof path, "/proc/self/ns/%s", kind);
    ssize_t length = readlink(path, target, sizeof target - 1);
    target[length > 0 ? length : 0] = '\0';
    const char *bracket = strchr(target, '[');
    if (!bracket || sscanf(bracket, "[%" SCNu64 "]", &number) != 1)
        cup_doctor_find(CUP_FINDING_NOTE, "ipc", NULL, "%s namespace: not known (%s)", kind, path);
    else if (number == first)
        cup_doctor_find(CUP_FINDING_OK, "ipc", NULL, "%s namespace: the machine's own", kind);
    else
        cup_doctor_find(CUP_FINDING_NOTE, "ipc", remedy, "%s namespace: one of a container, %s", kind,
                        target);
}

static void find_user(void)
{
    char line[128] = "";
    int fd = open("/proc/self/uid_map", O_RDONLY | O_CLOEXEC);
    ssize_t length = fd >= 0 ? read(fd, line, sizeof line - 1) : -1;
    unsigned long inside = 0, outside = 0, count = 0;

    if (fd >= 0)
        close(fd);
    if (length <= 0 || sscanf(line, "%lu %lu %lu", &inside, &outside, &count) != 3)
        cup_doctor_find(CUP_FINDING_NOTE, "ipc", NULL,
                        "user %u: whether others see the same number is not known", (unsigned)geteuid());
    else if (inside == 0 && outside == 0 && count == 4294967295)
        cup_doctor_find(CUP_FINDING_OK, "ipc", NULL, "user %u; processes of other users are refused",
                        (unsigned)geteuid());
    else
        cup_doctor_find(CUP_FINDING_NOTE, "ipc",
                        "run both sides in one user namespace, or map the same user of the machine into both",
                        "user %u, another number outside of this user namespace", (unsigned)geteuid());
}

/* ---- descriptors ---- */

/* What so many handles hold, the lowest of a range first: a handle's size is that of the zone where it lies. */
static uint64_t bytes_behind(uint64_t handles, bool is_isolating)
{
    static const struct {
        uint64_t from, handle;
    } zone[] = {
#define X(name, from, handle) {from, handle},
        CUP_HANDLE_ZONE_LIST(X)
#undef X
    };
    const size_t count = is_isolating ? 1 : sizeof zone / sizeof zone[0];
    uint64_t bytes = 0;

    for (size_t i = 0; i < count; i++) {
        uint64_t fit = i + 1 < count ? (zone[i + 1].from - zone[i].from) / zone[i].handle : handles;

        fit = fit < handles ? fit : handles;
        bytes += fit * zone[i].handle;
        handles -= fit;
    }
    return bytes;
}

/* Each handle behind what is exported takes one descriptor of the exporter; importers keep none. */
static void find_descriptors(const cup_conf_t *conf, uint64_t device_bytes)
{
    struct rlimit limit;

    if (conf->backing.word == CUP_BACKING_RAW || getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return; /* the driver's own handles take none */
    uint64_t descriptors = limit.rlim_cur < (1u << 30) ? limit.rlim_cur : 1u << 30;
    uint64_t bytes = bytes_behind(descriptors, conf->ipc_isolate.word);

    cup_doctor_find(bytes < device_bytes ? CUP_FINDING_NOTE : CUP_FINDING_OK, "ipc",
                    bytes < device_bytes ? "ulimit -n 65536 (containers: --ulimit nofile=65536, services: "
                                           "LimitNOFILE=) where a process exports more"
                                         : NULL,
                    "%" PRIu64 " descriptors: %.1f GiB can be exported%s", descriptors,
                    (double)bytes / (double)CUP_GIB,
                    conf->ipc_isolate.word ? " (CUPOLA_IPC_ISOLATE=1: 2 MiB each)" : "");
}

/* ---- the socket folder ---- */

/* NULL: nobody but the user and root can put or replace something there. */
static const char *fault_of(const char *path, bool must_be_own, const struct stat *stat)
{
    if (!S_ISDIR(stat->st_mode))
        return "is no folder (a link is none)";
    if (stat->st_uid != geteuid() && (must_be_own || stat->st_uid != 0))
        return "belongs to somebody else";
    if (must_be_own && (stat->st_mode & (S_IRWXG | S_IRWXO)))
        return "is open to others";
    if ((stat->st_mode & (S_IWGRP | S_IWOTH)) && !(stat->st_mode & S_ISVTX))
        return "can be written by others";
    if (faccessat(AT_FDCWD, path, W_OK | X_OK, AT_EACCESS) != 0)
        return "can't be written";
    return strlen(path) + SOCKET_CHARS > CUP_IPC_PATH_MAX ? "has too long a name for a socket" : NULL;
}

/* The folder of whose (what named it). A fault of one that is passed over (falls_back) is a note. */
static bool find_folder(const char *path, const char *whose, bool must_be_own, bool falls_back)
{
    struct stat stat;
    bool is_there = lstat(path, &stat) == 0;
    const char *fault = is_there ? fault_of(path, must_be_own, &stat) : NULL;

    if (is_there && !fault) {
        cup_doctor_find(CUP_FINDING_OK, "ipc", NULL, "sockets: %s (%s), mode %04o, owner %u", path, whose,
                        (unsigned)stat.st_mode & 07777, (unsigned)stat.st_uid);
        return true;
    }
    if (falls_back)
        cup_doctor_find(CUP_FINDING_NOTE, "ipc", NULL, "sockets: not in %s (%s): %s", path, whose,
                        fault ? fault : strerror(ENOENT));
    else if (fault)
        cup_doctor_find(CUP_FINDING_PROBLEM, "ipc",
                        "name a folder of your own, mode 0700, in CUPOLA_SOCKET_DIR on both sides",
                        "sockets: %s (%s) %s; mode %04o, owner %u", path, whose, fault,
                        (unsigned)stat.st_mode & 07777, (unsigned)stat.st_uid);
    else if (must_be_own && access("/tmp", W_OK) == 0)
        cup_doctor_find(CUP_FINDING_OK, "ipc", NULL, "sockets: %s (%s) is made when it is needed", path,
                        whose);
    else
        cup_doctor_find(CUP_FINDING_PROBLEM, "ipc",
                        "make it, mode 0700; in containers mount one folder into both",
                        "sockets: %s (%s) is not there", path, whose);
    return false;
}

static void find_sockets(const cup_conf_t *conf)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    char own[64];

    if (conf->socket_dir.text[0]) {
        find_folder(conf->socket_dir.text, "CUPOLA_SOCKET_DIR", false, false);
        return;
    }
    if (runtime && find_folder(runtime, "XDG_RUNTIME_DIR", false, true))
        return;
    snprintf(own, sizeof own, "/tmp/cupola-%u", (unsigned)geteuid());
    find_folder(own, "without CUPOLA_SOCKET_DIR", true, false);
}

static void find_backing(const cup_conf_t *conf)
{
    if (conf->backing.word == CUP_BACKING_RAW)
        cup_doctor_find(CUP_FINDING_NOTE, "ipc",
                        "CUPOLA_BACKING=vmm for blocks of any size, where both processes have the pool",
                        "CUPOLA_BACKING=raw: only blocks of CUPOLA_DEDICATED (%s) and more can be shared",
                        conf->dedicated.text);
    else
        cup_doctor_find(CUP_FINDING_OK, "ipc", NULL,
                        "CUPOLA_BACKING=%s: under vmm blocks of any size can be shared, between "
                        "processes that have the pool",
                        conf->backing.text);
}

void cup_doctor_ipc(const cup_conf_t *conf)
{
    uint64_t device_bytes = find_driver();

#define X(kind, first, remedy) find_namespace(#kind, first, remedy);
    NAMESPACE_LIST(X)
#undef X
    find_user();
    find_descriptors(conf, device_bytes);
    find_sockets(conf);
    find_backing(conf);
}
