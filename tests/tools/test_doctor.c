/* SPDX-License-Identifier: Apache-2.0 */
/* test_doctor - `cupola doctor`: what it finds with and without a driver, and in programs of each kind. */
#define _GNU_SOURCE
#include "tests/support/unit.h"
#include "tests/tools/shell.h"
#include <dlfcn.h>
#include <elf.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define DOCTOR TOOL, "doctor", "--library", LIBRARY

static cup_said_t said;

/* Every line is a finding, what to do about the one above, or the last one; the code says whether there is a
 * problem. */
static void check_form(void)
{
    bool has_problem = false;

    for (char *line = said.out, *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        CHECK_MSG(end, "no newline at the end: %s", said.out);
        has_problem |= strncmp(line, "problem ", 8) == 0;
        if (end[1] == '\0')
            CHECK_MSG(strstr(line, "next: cupola "), "%s", said.out);
        else
            CHECK_MSG(strncmp(line, "ok ", 3) == 0 || strncmp(line, "note ", 5) == 0 ||
                          strncmp(line, "problem ", 8) == 0 || strstr(line, " do: "),
                      "%s", line);
    }
    CHECK_MSG(WIFEXITED(said.status) && WEXITSTATUS(said.status) == has_problem, "status 0x%x: %s%s",
              said.status, said.out, said.err);
}

static bool has_line(const char *status, const char *area, const char *what)
{
    char start[32];

    snprintf(start, sizeof(start), "%-8s %-8s ", status, area);
    for (const char *line = said.out; *line; line = strchr(line, '\n') + 1) {
        const char *found = strstr(line, what);

        if (strncmp(line, start, strlen(start)) == 0 && found && found < strchr(line, '\n'))
            return true;
    }
    return false;
}

#define CHECK_LINE(status, area, what)                                                                 \
    CHECK_MSG(has_line(status, area, what), "no %s %s \"%s\" in:\n%s%s", status, area, what, said.out, \
              said.err)

static void examine(const char *driver_folder, const char *variable, char *app)
{
    char folder[512];
    const char *environment[] = {folder, variable ? variable : "CUP_NOTHING=1", NULL};

    snprintf(folder, sizeof(folder), "LD_LIBRARY_PATH=%s", driver_folder);
    cup_shell(app ? (char *const[]){DOCTOR, "--", app, NULL} : (char *const[]){DOCTOR, NULL}, environment,
              &said);
    check_form();
}

TEST(doctor, without_a_driver)
{
    if (dlopen("libcuda.so.1", RTLD_NOW)) /* a machine that has one */
        return;
    SHELL(&said, DOCTOR);
    check_form();
    CHECK_LINE("problem", "driver", "libcuda.so.1");
    CHECK(strstr(said.out, "do: install the NVIDIA driver"));
    CHECK_EQ(WEXITSTATUS(said.status), 1);
}

TEST(doctor, with_a_driver)
{
    examine(SOFTCUDA, NULL, NULL);
    CHECK_LINE("ok", "driver", "CUDA 13.0");
    CHECK_LINE("ok", "device", "0: softcuda");
    CHECK_LINE("ok", "feature", "cuCtxRecordEvent");
    CHECK_LINE("ok", "library", "libcupola.so");
    CHECK_LINE("ok", "option", "defaults");
    CHECK_EQ(WEXITSTATUS(said.status), 0);
}

TEST(doctor, with_an_older_driver)
{
    examine(SOFTCUDA_OLD, NULL, NULL);
    CHECK_LINE("ok", "driver", "CUDA 12.2");
    CHECK_LINE("note", "feature", "no cuCtxRecordEvent");
}

TEST(doctor, with_several_devices)
{
    examine(SOFTCUDA, "SOFTCUDA_DEVICES=3", NULL);
    CHECK_LINE("ok", "device", "2: softcuda");
}

TEST(doctor, options)
{
    examine(SOFTCUDA, "CUPOLA_FREE=sync", NULL);
    CHECK_LINE("note", "option", "CUPOLA_FREE=sync (default: exact)");
    examine(SOFTCUDA, "CUPOLA_FREE=maybe", NULL);
    CHECK_LINE("problem", "option", "CUPOLA_FREE=maybe");
    examine(SOFTCUDA, "CUPOLA_FEE=sync", NULL);
    CHECK_LINE("problem", "option", "CUPOLA_FEE");
    examine(SOFTCUDA, "CUPOLA_DISABLE=1", NULL);
    CHECK_LINE("problem", "option", "stands aside");
}

/* For programs that lean on luck: what to try, but for what is tried already. */
TEST(doctor, advice)
{
    examine(SOFTCUDA, NULL, NULL);
    CHECK_LINE("note", "advice", "results differ");
    CHECK_LINE("note", "advice", "illegal address");
    CHECK(strstr(said.out, "do: CUPOLA_ZERO=alloc") && strstr(said.out, "do: CUPOLA_REDZONE=4096"));
    examine(SOFTCUDA, "CUPOLA_ZERO=alloc", NULL);
    CHECK(!strstr(said.out, "do: CUPOLA_ZERO=alloc") && strstr(said.out, "do: CUPOLA_REDZONE=4096"));
    examine(SOFTCUDA, "CUPOLA_REDZONE=512", NULL);
    CHECK(strstr(said.out, "do: CUPOLA_ZERO=alloc") && !strstr(said.out, "do: CUPOLA_REDZONE=4096"));
}

TEST(doctor, another_library)
{
    SHELL(&said, TOOL, "doctor", "--library", OTHER_LIBRARY);
    check_form();
    CHECK_LINE("problem", "library", "is not libcupola.so");
}

TEST(doctor, programs_that_no_preload_enters)
{
    static const Elf64_Ehdr arm = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
                                   .e_type = ET_DYN,
                                   .e_machine = EM_AARCH64};
    char folder[64], path[128];

    examine(SOFTCUDA, NULL, "no-such-program-anywhere");
    CHECK_LINE("problem", "app", "no such program");
    cup_shell_folder(folder);
    cup_shell_file(folder, "arm", &arm, sizeof(arm), path);
    examine(SOFTCUDA, NULL, path);
    CHECK_LINE("problem", "app", "another processor");
    cup_shell_remove(folder);
#ifdef STATIC_APP
    examine(SOFTCUDA, NULL, STATIC_APP);
    CHECK_LINE("problem", "app", "fully static");
#endif
}

TEST(doctor, a_privileged_program)
{
    char folder[64], path[128];

    if (geteuid() != 0) /* only root can give a file away */
        return;
    cup_shell_folder(folder);
    snprintf(path, sizeof(path), "%s/true", folder);
    SHELL(&said, "cp", "/bin/true", path);
    CHECK_EQ(chown(path, 1, 1), 0);
    CHECK_EQ(chmod(path, 04755), 0);
    examine(SOFTCUDA, NULL, path);
    CHECK_LINE("problem", "app", "ignores LD_PRELOAD");
    cup_shell_remove(folder);
}

#ifndef CUP_SANITIZED
TEST(doctor, a_program_that_the_pool_serves)
{
    examine(SOFTCUDA, NULL, APP);
    CHECK_LINE("ok", "app", "look-ups");
    CHECK_LINE("ok", "run", "code 0");
    CHECK_LINE("ok", "doors", "answered with the pool's functions");
    CHECK_LINE("ok", "pool", "served 10 of 10 allocations");
    CHECK_MSG(strstr(said.err, "allocated 10 times"), "the program's stdout went elsewhere: %s", said.err);
    CHECK_EQ(WEXITSTATUS(said.status), 0);
}

TEST(doctor, a_script)
{
    char folder[64], path[128];

    cup_shell_folder(folder);
    cup_shell_file(folder, "script", "#!/usr/bin/env sh\nexec " APP "\n", strlen(APP) + 24, path);
    examine(SOFTCUDA, NULL, path);
    CHECK_LINE("note", "app", "is a script for");
    CHECK_LINE("ok", "pool", "served 10 of 10");
    cup_shell_remove(folder);
}

TEST(doctor, why_the_pool_stood_aside)
{
    examine(SOFTCUDA, "CUPOLA_EXCLUDE=tool_app", APP);
    CHECK_LINE("problem", "pool", "standing aside: CUPOLA_EXCLUDE");
    examine(SOFTCUDA, "CUPOLA_ONLY=solver", APP);
    CHECK_LINE("problem", "pool", "standing aside: CUPOLA_ONLY");
    examine(SOFTCUDA, NULL, "/bin/true");
    CHECK_LINE("problem", "pool", "saw no device allocation");
}
#endif

/* ---- --ipc ---- */

#define IPC_MAX 4 /* variables of one examination */

static void examine_ipc(const char *driver_folder, const char *const *variables)
{
    char folder[512];
    const char *environment[IPC_MAX + 3] = {folder, "XDG_RUNTIME_DIR"};

    snprintf(folder, sizeof(folder), "LD_LIBRARY_PATH=%s", driver_folder);
    for (size_t i = 0; i < IPC_MAX && variables[i]; i++)
        environment[i + 2] = variables[i];
    cup_shell((char *const[]){DOCTOR, "--ipc", NULL}, environment, &said);
    check_form();
}
#define EXAMINE_IPC(...) examine_ipc(SOFTCUDA, (const char *const[IPC_MAX]){__VA_ARGS__})

/* A socket folder of that mode and owner; said holds what the doctor says of it. */
static void examine_folder(mode_t mode, uid_t owner)
{
    char folder[64], variable[128];

    cup_shell_folder(folder);
    CHECK_EQ(chmod(folder, mode), 0);
    CHECK_EQ(chown(folder, owner, (gid_t)-1), 0);
    snprintf(variable, sizeof(variable), "CUPOLA_SOCKET_DIR=%s", folder);
    EXAMINE_IPC(variable);
    CHECK_EQ(chmod(folder, 0700), 0);
    cup_shell_remove(folder);
}

TEST(doctor, ipc_on_one_device)
{
    EXAMINE_IPC("CUPOLA_BACKING=vmm");
    CHECK_LINE("ok", "ipc", "device 0: unified addressing");
    CHECK_LINE("ok", "ipc", "device 0: handles leave the process as descriptors");
    CHECK_LINE("ok", "ipc", "device 0: compute mode default");
    CHECK_LINE("ok", "ipc", "device 0 reaches: 0 itself");
    CHECK_LINE("ok", "ipc", "CUPOLA_BACKING=vmm");
    CHECK(!strstr(said.out, "device 1"));
    examine(SOFTCUDA, NULL, NULL);
    CHECK_MSG(!strstr(said.out, " ipc "), "said without --ipc: %s", said.out);
}

TEST(doctor, ipc_on_two_devices)
{
    EXAMINE_IPC("SOFTCUDA_DEVICES=2");
    CHECK_LINE("ok", "ipc", "device 0 reaches: 0 itself, 1 yes");
    CHECK_LINE("ok", "ipc", "device 1 reaches: 0 yes, 1 itself");
    CHECK_LINE("ok", "ipc", "device 1: compute mode default");
}

/* The numbers are those of cuda.h: compute mode, descriptors of handles, RDMA. */
TEST(doctor, ipc_on_a_device_that_lacks_something)
{
    EXAMINE_IPC("SOFTCUDA_ATTRIBUTES=20=3");
    CHECK_LINE("problem", "ipc", "one process alone");
    CHECK_EQ(WEXITSTATUS(said.status), 1);
    EXAMINE_IPC("SOFTCUDA_ATTRIBUTES=103=0,110=0");
    CHECK_LINE("note", "ipc", "no descriptors of handles");
    CHECK_LINE("note", "ipc", "no GPUDirect RDMA of memory by handles");
    CHECK(strstr(said.out, "do: CUPOLA_BACKING=raw"));
    EXAMINE_IPC("SOFTCUDA_ATTRIBUTES=41=0");
    CHECK_LINE("problem", "ipc", "no unified addressing");
}

TEST(doctor, ipc_without_a_driver)
{
    if (dlopen("libcuda.so.1", RTLD_NOW))
        return;
    examine_ipc("/nowhere", (const char *const[IPC_MAX]){NULL});
    CHECK_LINE("note", "ipc", "devices: not known without a driver");
    CHECK_LINE("ok", "ipc", "sockets: /tmp/cupola-");
    CHECK(strstr(said.out, "pid namespace: "));
    CHECK(strstr(said.out, "user namespace: "));
}

/* Under a soft limit of so many; the doctor has that of its parent. */
static void examine_limit(rlim_t descriptors, const char *variable)
{
    struct rlimit before, limit;

    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    limit = before;
    limit.rlim_cur = descriptors;
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    EXAMINE_IPC(variable);
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

/* 2 MiB each below 1 GiB of the range, 8 MiB to 8 GiB. */
TEST(doctor, ipc_descriptors)
{
    examine_limit(512, "CUPOLA_BACKING=vmm");
    CHECK_LINE("note", "ipc", "512 descriptors: 1.0 GiB can be exported");
    CHECK(strstr(said.out, "do: ulimit -n 65536"));
    examine_limit(1024, "CUPOLA_BACKING=auto");
    CHECK_LINE("ok", "ipc", "1024 descriptors: 5.0 GiB can be exported");
    examine_limit(1024, "CUPOLA_IPC_ISOLATE=1");
    CHECK_LINE("note", "ipc", "1024 descriptors: 2.0 GiB can be exported (CUPOLA_IPC_ISOLATE=1");
    examine_limit(1024, "CUPOLA_BACKING=raw");
    CHECK(!strstr(said.out, "can be exported"));
}

TEST(doctor, ipc_socket_folder)
{
    examine_folder(0700, (uid_t)-1);
    CHECK_LINE("ok", "ipc", "(CUPOLA_SOCKET_DIR), mode 0700");
    CHECK_EQ(WEXITSTATUS(said.status), 0);
    examine_folder(0777, (uid_t)-1);
    CHECK_LINE("problem", "ipc", "can be written by others; mode 0777");
    CHECK_EQ(WEXITSTATUS(said.status), 1);
    examine_folder(01777, (uid_t)-1);
    CHECK_LINE("ok", "ipc", "mode 1777");
    EXAMINE_IPC("CUPOLA_SOCKET_DIR=/nowhere");
    CHECK_LINE("problem", "ipc", "sockets: /nowhere (CUPOLA_SOCKET_DIR) is not there");
    CHECK(strstr(said.out, "do: make it, mode 0700"));
    EXAMINE_IPC("CUPOLA_SOCKET_DIR=/etc/passwd");
    CHECK_LINE("problem", "ipc", "is no folder");
    EXAMINE_IPC("XDG_RUNTIME_DIR=/nowhere");
    CHECK_LINE("note", "ipc", "sockets: not in /nowhere (XDG_RUNTIME_DIR)");
    CHECK_LINE("ok", "ipc", "(without CUPOLA_SOCKET_DIR)");
}

TEST(doctor, ipc_socket_folder_of_somebody_else)
{
    if (geteuid() != 0) /* only root can give a folder away */
        return;
    examine_folder(0755, 1);
    CHECK_LINE("problem", "ipc", "belongs to somebody else; mode 0755, owner 1");
    CHECK_EQ(WEXITSTATUS(said.status), 1);
}
