/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <elf.h>
#include <endian.h>
#include <sys/stat.h>
#include <unistd.h>

#include "elf-symbols.h"
#include "util.h"

/* Limits of data read from a file: a hundred times the sizes of libssl. */
#define SECTIONS_MAX 1024U
#define SEGMENTS_MAX 256U
#define TABLE_SIZE_MAX (4U << 20)

/* Limit of the size of a function searched for calls. Wrappers are shorter. */
#define CODE_MAX 512U

#if __BYTE_ORDER == __LITTLE_ENDIAN
#define ELF_DATA_NATIVE ELFDATA2LSB
#else
#define ELF_DATA_NATIVE ELFDATA2MSB
#endif

struct Symbols {
        int fd;
        uint64_t size;
        uint16_t machine;
        Elf64_Phdr *segments;
        size_t n_segments;
        Elf64_Sym *symbols;
        size_t n_symbols;
        char *strings;
        uint64_t strings_size;
};

/* -ENOEXEC: the file is shorter. */
static int read_at(int fd, uint64_t offset, void *ret, size_t size) {
        for (size_t done = 0; done < size; ) {
                ssize_t n;

                if (offset > INT64_MAX - size)
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

static int symbols_read(Symbols *s, bool all) {
        _cleanup_free_ void *sections = NULL;
        const Elf64_Shdr *dynamic = NULL, *table, *linked;
        Elf64_Ehdr header;
        int r;

        r = read_at(s->fd, 0, &header, sizeof(header));
        if (r < 0)
                return r;
        if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
            header.e_ident[EI_DATA] != ELF_DATA_NATIVE ||
            (header.e_type != ET_DYN && !(all && header.e_type == ET_EXEC)) ||
            header.e_shentsize != sizeof(Elf64_Shdr) || header.e_phentsize != sizeof(Elf64_Phdr) ||
            header.e_shnum > SECTIONS_MAX || header.e_phnum > SEGMENTS_MAX)
                return -ENOEXEC;
        s->machine = header.e_machine;

        r = read_table(s->fd, header.e_shoff, (uint64_t) header.e_shnum * sizeof(Elf64_Shdr), &sections);
        if (r < 0)
                return r;
        s->n_segments = header.e_phnum;
        r = read_table(s->fd, header.e_phoff, (uint64_t) header.e_phnum * sizeof(Elf64_Phdr),
                       (void**) &s->segments);
        if (r < 0)
                return r;

        table = sections;
        for (size_t i = 0; i < header.e_shnum; i++)
                if (table[i].sh_type == SHT_DYNSYM && !dynamic)
                        dynamic = table + i;
                else if (all && table[i].sh_type == SHT_SYMTAB && table[i].sh_size <= TABLE_SIZE_MAX)
                        dynamic = table + i; /* includes dynamic symbols */
        if (!dynamic || dynamic->sh_link >= header.e_shnum || dynamic->sh_entsize != sizeof(Elf64_Sym))
                return -ENOEXEC;
        linked = table + dynamic->sh_link;

        s->n_symbols = dynamic->sh_size / sizeof(Elf64_Sym);
        r = read_table(s->fd, dynamic->sh_offset, dynamic->sh_size, (void**) &s->symbols);
        if (r < 0)
                return r;
        s->strings_size = linked->sh_size;
        r = read_table(s->fd, linked->sh_offset, s->strings_size, (void**) &s->strings);
        if (r < 0)
                return r;
        s->strings[s->strings_size - 1] = 0;
        return 0;
}

static int symbols_new_internal(int fd, bool all, Symbols **ret) {
        struct stat st;
        Symbols *s;
        int r;

        if (fstat(fd, &st) < 0)
                return -errno;
        s = new0(Symbols, 1);
        if (!s)
                return -ENOMEM;
        s->fd = fd;
        s->size = st.st_size;
        r = symbols_read(s, all);
        if (r < 0) {
                symbols_free(s);
                return r;
        }
        *ret = s;
        return 0;
}

int symbols_new(int fd, Symbols **ret) {
        return symbols_new_internal(fd, /* all= */ false, ret);
}

int symbols_new_all(int fd, Symbols **ret) {
        return symbols_new_internal(fd, /* all= */ true, ret);
}

Symbols* symbols_free(Symbols *s) {
        if (!s)
                return NULL;
        free(s->segments);
        free(s->symbols);
        free(s->strings);
        free(s);
        return NULL;
}

/* File offset of an address; 0: not in a segment of code. The code may extend beyond the end of the file. */
static uint64_t address_to_offset(const Symbols *s, uint64_t address) {
        for (size_t i = 0; i < s->n_segments; i++) {
                const Elf64_Phdr *p = s->segments + i;

                if (p->p_type == PT_LOAD && p->p_flags & PF_X && address >= p->p_vaddr &&
                    address - p->p_vaddr < p->p_filesz)
                        return p->p_offset < s->size && address - p->p_vaddr < s->size - p->p_offset ?
                               address - p->p_vaddr + p->p_offset : 0;
        }
        return 0;
}

static const Elf64_Sym* symbols_get(const Symbols *s, const char *name) {
        for (size_t i = 0; i < s->n_symbols; i++) {
                const Elf64_Sym *symbol = s->symbols + i;

                if (ELF64_ST_TYPE(symbol->st_info) == STT_FUNC && symbol->st_shndx != SHN_UNDEF &&
                    symbol->st_name < s->strings_size && streq(s->strings + symbol->st_name, name))
                        return symbol;
        }
        return NULL;
}

/* Offset of the push instruction if a function begins with one; 0: it does not. */
static uint64_t find_push(const Symbols *s, uint64_t offset) {
        static const uint8_t endbr64[] = { 0xf3, 0x0f, 0x1e, 0xfa };
        size_t skip = 0;
        uint8_t code[6];

        if (s->machine != EM_X86_64 || offset == 0 || read_at(s->fd, offset, code, sizeof(code)) < 0)
                return 0;
        if (memcmp(code, endbr64, sizeof(endbr64)) == 0)
                skip = sizeof(endbr64);
        if ((code[skip] & 0xf8) == 0x50 || (code[skip] == 0x41 && (code[skip + 1] & 0xf8) == 0x50))
                return offset + skip;
        return 0;
}

uint64_t symbols_find(const Symbols *s, const char *name) {
        const Elf64_Sym *symbol = symbols_get(s, name);
        uint64_t offset = symbol ? address_to_offset(s, symbol->st_value) : 0;

        return find_push(s, offset) ?: offset;
}

/* Possible call targets of a function: operands of anything that looks like a call instruction, even in the
 * middle of another instruction, with something at the target that looks like a function. Returns their
 * number. */
static size_t find_calls(const Symbols *s, const char *name, uint64_t ret[static CODE_MAX]) {
        const Elf64_Sym *symbol = symbols_get(s, name);
        uint8_t code[CODE_MAX];
        uint64_t offset, size;
        size_t n = 0;

        offset = symbol ? address_to_offset(s, symbol->st_value) : 0;
        size = symbol ? MIN(symbol->st_size, CODE_MAX) : 0;
        if (s->machine != EM_X86_64 || offset == 0 || size < 5 || read_at(s->fd, offset, code, size) < 0)
                return 0;

        for (size_t i = 0; i + 5 <= size; i++) {
                uint64_t callee;
                int32_t relative;

                if (code[i] != 0xe8)
                        continue;
                memcpy(&relative, code + i + 1, sizeof(relative));
                callee = find_push(s, address_to_offset(s, symbol->st_value + i + 5 + (int64_t) relative));
                if (callee != 0)
                        ret[n++] = callee;
        }
        return n;
}

uint64_t symbols_find_callee(const Symbols *s, const char *a, const char *b) {
        uint64_t of_a[CODE_MAX], of_b[CODE_MAX], found = 0;
        size_t n_a, n_b;

        n_a = find_calls(s, a, of_a);
        n_b = find_calls(s, b, of_b);
        for (size_t i = 0; i < n_a; i++)
                for (size_t k = 0; k < n_b; k++)
                        if (of_a[i] == of_b[k]) {
                                if (found != 0 && found != of_a[i])
                                        return 0;
                                found = of_a[i];
                        }
        return found;
}

int symbols_find_object(const Symbols *s, uint64_t start, uint64_t address, const char **ret,
                        uint64_t *ret_offset) {
        bool inside = false, based = false;
        uint64_t base = 0;

        /* Link-time address of the beginning of the file */
        for (size_t i = 0; i < s->n_segments && !based; i++)
                if (s->segments[i].p_type == PT_LOAD && s->segments[i].p_offset == 0) {
                        base = s->segments[i].p_vaddr;
                        based = true;
                }
        if (!based || address < start)
                return -ENOENT;
        address = address - start + base;
        for (size_t i = 0; i < s->n_segments; i++) {
                const Elf64_Phdr *p = s->segments + i;

                if (p->p_type == PT_LOAD && address >= p->p_vaddr && address - p->p_vaddr < p->p_memsz)
                        inside = true;
        }
        if (!inside)
                return -ENOENT;

        *ret = NULL;
        for (size_t i = 0; i < s->n_symbols; i++) {
                const Elf64_Sym *symbol = s->symbols + i;

                if (ELF64_ST_TYPE(symbol->st_info) == STT_OBJECT && symbol->st_shndx != SHN_UNDEF &&
                    symbol->st_name < s->strings_size &&
                    address >= symbol->st_value && address - symbol->st_value < symbol->st_size) {
                        *ret = s->strings + symbol->st_name;
                        *ret_offset = address - symbol->st_value;
                        break;
                }
        }
        return 0;
}
