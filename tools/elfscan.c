/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How: the file is mapped; section headers lead to .dynamic and .dynsym, which stripping leaves in place.
 * Every offset is checked against the file's size: the file is whatever the user names.
 */
#define _GNU_SOURCE
#include "tools/elfscan.h"
#include <elf.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

typedef struct image {
    const unsigned char *bytes;
    size_t size;
} image_t;

/* count items of item_size at offset, or NULL if they are not all inside the file. */
static const void *inside(const image_t *image, uint64_t offset, uint64_t count, uint64_t item_size)
{
    if (offset > image->size || offset % 8 != 0 || count > (image->size - offset) / item_size)
        return NULL;
    return image->bytes + offset;
}

static const char *string_at(const image_t *image, const Elf64_Shdr *strings, uint64_t index)
{
    uint64_t at = strings->sh_offset + index;

    if (strings->sh_offset > image->size || index >= strings->sh_size || at >= image->size)
        return "";
    return memchr(image->bytes + at, '\0', image->size - at) ? (const char *)image->bytes + at : "";
}

static void read_needed(const image_t *image, const Elf64_Shdr *section, const Elf64_Shdr *strings,
                        cup_elf_t *elf)
{
    uint64_t count = section->sh_size / sizeof(Elf64_Dyn);
    const Elf64_Dyn *entry = inside(image, section->sh_offset, count, sizeof(*entry));

    for (uint64_t i = 0; entry && i < count && entry[i].d_tag != DT_NULL; i++) {
        const char *name = entry[i].d_tag == DT_NEEDED ? string_at(image, strings, entry[i].d_un.d_val) : "";

        elf->needs_driver |= strncmp(name, "libcuda.so", 10) == 0;
        elf->needs_cudart |= strncmp(name, "libcudart.so", 12) == 0;
    }
}

static void read_symbols(const image_t *image, const Elf64_Shdr *section, const Elf64_Shdr *strings,
                         cup_elf_t *elf)
{
    uint64_t count = section->sh_size / sizeof(Elf64_Sym);
    const Elf64_Sym *symbol = inside(image, section->sh_offset, count, sizeof(*symbol));

    for (uint64_t i = 0; symbol && i < count; i++) {
        const char *name = string_at(image, strings, symbol[i].st_name);
        bool is_import = symbol[i].st_shndx == SHN_UNDEF;

        elf->imports_dlsym |= is_import && strcmp(name, "dlsym") == 0;
        elf->imports_dlopen |= is_import && strcmp(name, "dlopen") == 0;
        elf->exports_alloc_door |= !is_import && strcmp(name, "cuMemAlloc_v2") == 0;
    }
}

static void read_sections(const image_t *image, const Elf64_Ehdr *head, cup_elf_t *elf)
{
    const Elf64_Shdr *section = inside(image, head->e_shoff, head->e_shnum, sizeof(*section));

    for (unsigned i = 0; section && i < head->e_shnum; i++) {
        if (section[i].sh_link >= head->e_shnum)
            continue;
        if (section[i].sh_type == SHT_DYNAMIC)
            read_needed(image, &section[i], &section[section[i].sh_link], elf);
        if (section[i].sh_type == SHT_DYNSYM)
            read_symbols(image, &section[i], &section[section[i].sh_link], elf);
    }
}

/* A static-pie has a dynamic section, but nobody to load a preload: the loader's name is what counts. */
static bool has_loader(const image_t *image, const Elf64_Ehdr *head)
{
    const Elf64_Phdr *segment = inside(image, head->e_phoff, head->e_phnum, sizeof(*segment));

    for (unsigned i = 0; segment && i < head->e_phnum; i++)
        if (segment[i].p_type == PT_INTERP)
            return true;
    return false;
}

static void read_elf(const image_t *image, cup_elf_t *elf)
{
    const Elf64_Ehdr *head = inside(image, 0, 1, sizeof(*head));

    elf->kind = CUP_ELF_OTHER;
    if (image->size < EI_NIDENT || memcmp(image->bytes, ELFMAG, SELFMAG) != 0)
        return;
    elf->kind = CUP_ELF_FOREIGN;
    if (!head || head->e_ident[EI_CLASS] != ELFCLASS64 || head->e_machine != EM_X86_64)
        return;
    elf->kind = has_loader(image, head) ? CUP_ELF_DYNAMIC : CUP_ELF_STATIC;
    read_sections(image, head, elf);
}

static bool is_privileged(const char *path, const struct stat *info)
{
    if ((info->st_mode & S_ISUID) && info->st_uid != geteuid())
        return true;
    if ((info->st_mode & S_ISGID) && info->st_gid != getegid())
        return true;
    return geteuid() != 0 && getxattr(path, "security.capability", NULL, 0) > 0;
}

static bool map_file(const char *path, struct stat *out_info, image_t *out_image)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    void *bytes = MAP_FAILED;

    if (fd < 0)
        return false;
    if (fstat(fd, out_info) == 0 && S_ISREG(out_info->st_mode) && out_info->st_size > 0)
        bytes = mmap(NULL, (size_t)out_info->st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (bytes == MAP_FAILED)
        return false;
    *out_image = (image_t){bytes, (size_t)out_info->st_size};
    return true;
}

static bool look_up(const char *word, char out_path[PATH_MAX])
{
    const char *list = getenv("PATH");

    if (strchr(word, '/'))
        return snprintf(out_path, PATH_MAX, "%s", word) < PATH_MAX;
    for (const char *at = list ? list : "/bin:/usr/bin"; *at;) {
        size_t span = strcspn(at, ":");
        int length = snprintf(out_path, PATH_MAX, "%.*s/%s", span ? (int)span : 1, span ? at : ".", word);

        if (length < PATH_MAX && access(out_path, X_OK) == 0)
            return true;
        at += span;
        at += *at == ':';
    }
    return false;
}

/* "#!/usr/bin/env python3" names python3, "#!/bin/sh -e" names /bin/sh. */
static bool read_interpreter(const image_t *image, char *out_word, size_t capacity)
{
    char line[256], *word, *rest;
    size_t length = image->size < sizeof(line) - 1 ? image->size : sizeof(line) - 1;

    if (image->size < 2 || memcmp(image->bytes, "#!", 2) != 0)
        return false;
    memcpy(line, image->bytes + 2, length - 2);
    line[length - 2] = '\0';
    line[strcspn(line, "\n")] = '\0';
    word = strtok_r(line, " \t", &rest);
    if (word && strlen(word) >= 4 && strcmp(word + strlen(word) - 4, "/env") == 0)
        word = strtok_r(NULL, " \t", &rest);
    return word && snprintf(out_word, capacity, "%s", word) < (int)capacity;
}

void cup_elf_scan(const char *word, cup_elf_t *out_elf)
{
    char interpreter[256];
    struct stat info;
    image_t image;

    memset(out_elf, 0, sizeof(*out_elf));
    if (!look_up(word, out_elf->path) || !map_file(out_elf->path, &info, &image))
        return;
    if (read_interpreter(&image, interpreter, sizeof(interpreter))) {
        munmap((void *)image.bytes, image.size);
        out_elf->is_script = true;
        if (!look_up(interpreter, out_elf->path) || !map_file(out_elf->path, &info, &image))
            return;
    }
    out_elf->is_privileged = is_privileged(out_elf->path, &info);
    read_elf(&image, out_elf);
    munmap((void *)image.bytes, image.size);
}
