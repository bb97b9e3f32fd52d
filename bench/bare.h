/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bare - a symbol of a library that is loaded, found without dlsym: a door that goes round a preload.
 * What:       walks the symbol table of the library by hand.
 * Not here:   versions, indirect functions: libcuda has neither.
 */
#ifndef BENCH_BARE_H
#define BENCH_BARE_H
#include <dlfcn.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct bare_table {
    const ElfW(Sym) * symbols;
    const char *strings;
    size_t count;
} bare_table_t;

/* The hash table tells how many symbols there are: directly, or by the last one of its chains. */
static inline size_t bare_count(const uint32_t *hash, bool is_gnu)
{
    if (!is_gnu)
        return hash[1];
    uint32_t buckets = hash[0], first = hash[1], words = hash[2], last = 0;
    const uint32_t *bucket = hash + 4 + words * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
    const uint32_t *chain = bucket + buckets;
    for (uint32_t i = 0; i < buckets; i++)
        last = bucket[i] > last ? bucket[i] : last;
    if (last < first)
        return first;
    while (!(chain[last - first] & 1))
        last++;
    return last + 1;
}

static inline bare_table_t bare_table(const struct link_map *map)
{
    bare_table_t table = {0};
    for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
        const void *at = (const void *)entry->d_un.d_ptr;
        if (entry->d_tag == DT_SYMTAB)
            table.symbols = at;
        else if (entry->d_tag == DT_STRTAB)
            table.strings = at;
        else if (entry->d_tag == DT_HASH || entry->d_tag == DT_GNU_HASH)
            table.count = bare_count(at, entry->d_tag == DT_GNU_HASH);
    }
    return table;
}

/* NULL when the library is not loaded, or has no such symbol. */
static inline void *bare_symbol(const char *library, const char *name)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
    struct link_map *map;
    if (!handle || dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0)
        return NULL;
    bare_table_t table = bare_table(map);
    for (size_t i = 0; table.symbols && table.strings && i < table.count; i++) {
        const ElfW(Sym) *symbol = &table.symbols[i];
        if (symbol->st_shndx != SHN_UNDEF && strcmp(table.strings + symbol->st_name, name) == 0)
            return (void *)(map->l_addr + symbol->st_value);
    }
    return NULL;
}

#endif /* BENCH_BARE_H */
