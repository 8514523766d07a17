/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <elf.h>
#include <endian.h>
#include <stdbool.h>
#include <unistd.h>

#include "symbol.h"
#include "util.h"

/* What is read of a file at most: a hundred times what OpenSSL's library has. */
#define SECTIONS_MAX 1024U
#define SEGMENTS_MAX 256U
#define TABLE_SIZE_MAX (4U << 20)

#if __BYTE_ORDER == __LITTLE_ENDIAN
#define ELF_DATA_NATIVE ELFDATA2LSB
#else
#define ELF_DATA_NATIVE ELFDATA2MSB
#endif

/* -ENOEXEC: there is not that much. */
static int read_at(int fd, uint64_t offset, void *ret, size_t size) {
        for (size_t done = 0; done < size; ) {
                ssize_t n;

                if (offset + done > INT64_MAX)
                        return -ENOEXEC;
                n = pread(fd, (char*) ret + done, size - done, offset + done);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -errno;
                if (n == 0)
                        return -ENOEXEC;
                done += n;
        }
        return 0;
}

static int read_table(int fd, uint64_t offset, uint64_t size, void **ret) {
        _cleanup_free_ void *p = NULL;
        int r;

        if (size == 0 || size > TABLE_SIZE_MAX)
                return -ENOEXEC;
        p = malloc(size);
        if (!p)
                return -ENOMEM;
        r = read_at(fd, offset, p, size);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(p);
        return 0;
}

static uint64_t address_to_offset(const Elf64_Phdr *segments, size_t n, uint64_t address) {
        for (size_t i = 0; i < n; i++)
                if (segments[i].p_type == PT_LOAD && segments[i].p_flags & PF_X && address >= segments[i].p_vaddr &&
                    address - segments[i].p_vaddr < segments[i].p_filesz)
                        return address - segments[i].p_vaddr + segments[i].p_offset;
        return 0;
}

int symbol_find_offsets(int fd, const char *const *names, size_t n, uint64_t *ret) {
        _cleanup_free_ void *sections = NULL, *segments = NULL, *symbols = NULL, *strings = NULL;
        const Elf64_Shdr *dynamic = NULL, *table, *linked;
        const Elf64_Sym *symbol;
        uint64_t strings_size;
        Elf64_Ehdr header;
        int r;

        r = read_at(fd, 0, &header, sizeof(header));
        if (r < 0)
                return r;
        if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
            header.e_ident[EI_DATA] != ELF_DATA_NATIVE || header.e_type != ET_DYN ||
            header.e_shentsize != sizeof(Elf64_Shdr) || header.e_phentsize != sizeof(Elf64_Phdr) ||
            header.e_shnum > SECTIONS_MAX || header.e_phnum > SEGMENTS_MAX)
                return -ENOEXEC;

        r = read_table(fd, header.e_shoff, (uint64_t) header.e_shnum * sizeof(Elf64_Shdr), &sections);
        if (r >= 0)
                r = read_table(fd, header.e_phoff, (uint64_t) header.e_phnum * sizeof(Elf64_Phdr), &segments);
        if (r < 0)
                return r;

        table = sections;
        for (size_t i = 0; i < header.e_shnum && !dynamic; i++)
                if (table[i].sh_type == SHT_DYNSYM)
                        dynamic = table + i;
        if (!dynamic || dynamic->sh_link >= header.e_shnum || dynamic->sh_entsize != sizeof(Elf64_Sym))
                return -ENOEXEC;
        linked = table + dynamic->sh_link;
        strings_size = linked->sh_size;

        r = read_table(fd, dynamic->sh_offset, dynamic->sh_size, &symbols);
        if (r >= 0)
                r = read_table(fd, linked->sh_offset, strings_size, &strings);
        if (r < 0)
                return r;
        ((char*) strings)[strings_size - 1] = 0;

        for (size_t k = 0; k < n; k++)
                ret[k] = 0;
        symbol = symbols;
        for (size_t i = 0; i < dynamic->sh_size / sizeof(Elf64_Sym); i++) {
                if (ELF64_ST_TYPE(symbol[i].st_info) != STT_FUNC || symbol[i].st_shndx == SHN_UNDEF ||
                    symbol[i].st_name >= strings_size)
                        continue;
                for (size_t k = 0; k < n; k++)
                        if (ret[k] == 0 && streq((char*) strings + symbol[i].st_name, names[k]))
                                ret[k] = address_to_offset(segments, header.e_phnum, symbol[i].st_value);
        }
        return 0;
}
