/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lookups - replays the look-ups that the real runtime library makes, through the door that it uses.
 * Usage: lookups [taken]. Prints a line for each. A look-up whose answer lies outside libcuda.so.1 has
 * been taken over. With "taken": the look-ups of names that the LISTs export must be, at every version
 * and flag, by exported functions (stubs for what nobody has classified have no name), and no others;
 * without: none. Exit code 0, or 1 when something is wrong.
 */
#define _GNU_SOURCE
#include "shim/submit_list.h"
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef int (*get_address_t)(const char *name, void **address, int version, uint64_t flags, int *status);

static const struct {
    const char *name;
    int version;
    uint64_t flags;
} lookups[] = {
#define SC_LOOKUP(name, version, flags) {name, version, flags},
#include "lookup_list.h"
#undef SC_LOOKUP
};
#define LOOKUP_COUNT (sizeof lookups / sizeof lookups[0])

/* The file name of the object that holds the address; whether an exported symbol is there. */
static const char *find_owner(void *address, bool *out_is_symbol)
{
    Dl_info info;

    *out_is_symbol = address && dladdr(address, &info) != 0 && info.dli_saddr == address;
    if (!address || dladdr(address, &info) == 0 || !info.dli_fname)
        return "nothing";
    const char *slash = strrchr(info.dli_fname, '/');
    return slash ? slash + 1 : info.dli_fname;
}

/* Whether a row of the LISTs is an ABI version of the name: the name alone, or with _v2, _ptsz. */
static bool is_exported(const char *name)
{
    static const char *const symbols[] = {
#define X(symbol, ...) #symbol,
        CUP_EXPORT_LIST(X)
#undef X
    };
    size_t length = strlen(name);

    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        const char *rest = symbols[i] + length;

        if (strncmp(symbols[i], name, length) == 0 &&
            (!*rest || strncmp(rest, "_v", 2) == 0 || strncmp(rest, "_pt", 3) == 0))
            return true;
    }
    return false;
}

int main(int argc, char **argv)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    get_address_t get_address = driver ? (get_address_t)dlsym(driver, "cuGetProcAddress_v2") : NULL;
    bool is_preloaded = argc > 1 && strcmp(argv[1], "taken") == 0;
    unsigned found = 0, taken = 0, wrong = 0;

    if (!get_address) {
        fprintf(stderr, "no driver, or one without cuGetProcAddress_v2\n");
        return 1;
    }
    for (size_t i = 0; i < LOOKUP_COUNT; i++) {
        void *address = NULL;
        int code = get_address(lookups[i].name, &address, lookups[i].version, lookups[i].flags, NULL);
        bool is_symbol;
        const char *owner = find_owner(address, &is_symbol);
        bool is_taken = address && strncmp(owner, "libcuda.so", 10) != 0;
        bool is_wrong = (code == 0) != (address != NULL) ||
                        is_taken != (is_preloaded && address && is_exported(lookups[i].name)) ||
                        (is_taken && !is_symbol);
        printf("%-44s %5d %llu %3d %s%s\n", lookups[i].name, lookups[i].version,
               (unsigned long long)lookups[i].flags, code, owner, is_wrong ? " WRONG" : "");
        found += address != NULL;
        taken += is_taken;
        wrong += is_wrong;
    }
    printf("%zu look-ups, %u found, %u taken over, %u wrong\n", LOOKUP_COUNT, found, taken, wrong);
    return wrong != 0;
}
