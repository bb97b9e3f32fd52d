/* SPDX-License-Identifier: Apache-2.0 */
/*
 * list - `cupola list`: the blocks that processes have published under names (preload/cupola.h), as a table.
 * How:        asks each owner over its socket, as a program would; needs neither CUDA nor the preload. The
 *             folder is that of CUPOLA_SOCKET_DIR.
 */
#include "tools/tool.h"
#include "shim/gate.h"
#include "shim/ipc_server.h"
#include "shim/named.h"
#include <grp.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>

/* X(heading, width: negative for text) */
#define COLUMN_LIST(X) \
    X("NAME", -24)     \
    X("SIZE", 12)      \
    X("DEVICE", 7)     \
    X("READERS", 8)    \
    X("PID", 8)        \
    X("USER", -12)     \
    X("GROUP", -12)    \
    X("OPEN", -5)      \
    X("GENERATION", 10)

#define NUMBER_BYTES 32

static const char *user_name(uint32_t uid, char text[NUMBER_BYTES])
{
    const struct passwd *user = getpwuid(uid);

    snprintf(text, NUMBER_BYTES, "%u", (unsigned)uid);
    return user ? user->pw_name : text;
}

static const char *group_name(uint32_t gid, char text[NUMBER_BYTES])
{
    const struct group *group = gid == CUP_IPC_NO_GROUP ? NULL : getgrgid(gid);

    snprintf(text, NUMBER_BYTES, "%u", (unsigned)gid);
    return gid == CUP_IPC_NO_GROUP ? "-" : group ? group->gr_name : text;
}

static const char *size_text(uint64_t size_bytes, char text[NUMBER_BYTES])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB"};
    double size = (double)size_bytes;
    int unit = 0;

    while (size >= 1024 && unit < 3) {
        size /= 1024;
        unit++;
    }
    snprintf(text, NUMBER_BYTES, unit ? "%.1f %s" : "%.0f %s", size, units[unit]);
    return text;
}

static void print_row(const cup_named_info_t *info, void *arg)
{
    const cup_ipc_named_t *named = &info->named;
    char user[NUMBER_BYTES], group[NUMBER_BYTES], size[NUMBER_BYTES];
    size_t *count = arg;

    ++*count;
    if (named->token.size_bytes == 0) {
        printf("%-24s its process (of user %s) does not answer\n", info->name, user_name(info->uid, user));
        return;
    }
    printf("%-24s %12s %7u %8u %8d %-12s %-12s %-5s %10" PRIu64 "\n", info->name,
           size_text(named->token.size_bytes, size), named->token.device, named->readers,
           (int)named->token.pid, user_name(info->uid, user), group_name(named->gid, group),
           named->flags & CUP_NAMED_READ_ONLY ? "read" : "write", named->generation);
}

int cup_verb_list(int argc, char **argv)
{
    bool has_entered;
    size_t count = 0;
    cup_ipc_reason_t reason;

    if (argc != 1) {
        cup_tool_say("usage: %s (CUPOLA_SOCKET_DIR names the folder)", argv[0]);
        return CUP_EXIT_OWN;
    }
#define X(heading, width) printf("%*s ", width, heading);
    COLUMN_LIST(X)
#undef X
    printf("\n");
    has_entered = cup_gate_enter(true); /* reads the options, also where it stands aside */
    reason = cup_named_list(print_row, &count);
    if (has_entered)
        cup_gate_leave();
    if (reason != CUP_IPC_OK) {
        cup_tool_say("%s; cupola doctor --ipc looks at it", cup_ipc_reason_text(reason));
        return CUP_EXIT_PROBLEM;
    }
    if (count == 0)
        cup_tool_say("no block is published in this folder; programs do so by cupola_publish (cupola.h)");
    return CUP_EXIT_OK;
}
