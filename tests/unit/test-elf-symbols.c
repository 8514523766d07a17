/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Offsets of functions in a library, tested on this program, which exports some for that. */

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "util.h"

#include "check.h"
#include "elf-symbols.h"

#ifdef __x86_64__
/* symbol_inner is what both call, as are symbol_leaf and symbol_other. It begins with a mark and saves a
 * register, those do not. */
__asm__(".text\n"
        ".type symbol_inner, @function\n"
        "symbol_inner: endbr64\n push %r14\n pop %r14\n ret\n"
        ".size symbol_inner, . - symbol_inner\n"
        "symbol_leaf: ret\n nop\n nop\n nop\n nop\n nop\n"
        "symbol_other: push %rbx\n pop %rbx\n ret\n nop\n nop\n nop\n"
        ".globl symbol_a\n .type symbol_a, @function\n"
        "symbol_a: endbr64\n sub $8, %rsp\n call symbol_leaf\n call symbol_inner\n call symbol_other\n add "
        "$8, %rsp\n ret\n"
        ".size symbol_a, . - symbol_a\n"
        ".globl symbol_b\n .type symbol_b, @function\n"
        "symbol_b: sub $8, %rsp\n call symbol_leaf\n call symbol_inner\n add $8, %rsp\n ret\n"
        ".size symbol_b, . - symbol_b\n"
        ".globl symbol_c\n .type symbol_c, @function\n"
        "symbol_c: push %rbp\n call symbol_inner\n call symbol_other\n pop %rbp\n ret\n"
        ".size symbol_c, . - symbol_c\n"
        ".globl symbol_d\n .type symbol_d, @function\n"
        "symbol_d: sub $8, %rsp\n call symbol_leaf\n add $8, %rsp\n ret\n"
        ".size symbol_d, . - symbol_d\n");
#endif

void symbol_plain(void);
__attribute__((noinline)) void symbol_plain(void) {
        __asm__ volatile("");
}

static int open_self(void) {
        int fd = open("/proc/self/exe", O_RDONLY|O_CLOEXEC);

        check(fd >= 0);
        return fd;
}

static void test_exported(void) {
        _cleanup_close_ int fd = open_self();
        uint8_t code[16];
        uint64_t offset;
        Symbols *s;

        check(symbols_new(fd, &s) == 0);
        offset = symbols_find(s, "symbol_plain");
        check(offset != 0);
        check(pread(fd, code, sizeof(code), offset) == sizeof(code));
        check(memcmp(code, (const uint8_t*) symbol_plain, sizeof(code)) == 0 ||
              memcmp(code, (const uint8_t*) symbol_plain + 4, sizeof(code) - 4) == 0);

        check(symbols_find(s, "symbol_plai") == 0);
        check(symbols_find(s, "malloc") == 0); /* it is used, and lies elsewhere */
        check(symbols_find(s, "") == 0);
        check(symbols_find_callee(s, "symbol_plain", "nothing") == 0);
        symbols_free(s);
}

#ifdef __x86_64__
static void test_callee(void) {
        static const uint8_t inner[] = { 0x41, 0x56, 0x41, 0x5e, 0xc3 };
        _cleanup_close_ int fd = open_self();
        uint8_t code[sizeof(inner)];
        uint64_t a, c;
        Symbols *s;

        check(symbols_new(fd, &s) == 0);

        /* Behind the mark where a register is saved next, at it where that is not so */
        a = symbols_find(s, "symbol_a");
        c = symbols_find(s, "symbol_c");
        check(pread(fd, code, 4, a) == 4 && memcmp(code, "\xf3\x0f\x1e\xfa", 4) == 0);
        check(pread(fd, code, 1, c) == 1 && code[0] == 0x55);

        a = symbols_find_callee(s, "symbol_a", "symbol_b");
        check(a != 0 && pread(fd, code, sizeof(code), a) == sizeof(code) &&
              memcmp(code, inner, sizeof(inner)) == 0);
        check(symbols_find_callee(s, "symbol_b", "symbol_a") == a);
        check(symbols_find_callee(s, "symbol_b", "symbol_c") == a);

        /* Two; none that may be one */
        check(symbols_find_callee(s, "symbol_a", "symbol_c") == 0);
        check(symbols_find_callee(s, "symbol_a", "symbol_d") == 0);
        symbols_free(s);
}
#endif

/* Looks everything up that there is in it, if there is. */
static void look(const uint8_t *data, size_t size) {
        _cleanup_close_ int fd = memfd_create("symbols", MFD_CLOEXEC);
        Symbols *s;

        check(fd >= 0);
        check(write(fd, data, size) == (ssize_t) size);
        if (symbols_new(fd, &s) < 0)
                return;
        (void) symbols_find(s, "symbol_a");
        (void) symbols_find(s, "main");
        (void) symbols_find_callee(s, "symbol_a", "symbol_b");
        symbols_free(s);
}

static void test_nonsense(void) {
        _cleanup_close_ int fd = open_self();
        _cleanup_free_ uint8_t *data = NULL, *other = NULL;
        uint64_t random = 1;
        struct stat st;
        Symbols *s;

        check(fstat(fd, &st) >= 0);
        data = malloc(st.st_size);
        other = malloc(st.st_size);
        check(data && other);
        check(pread(fd, data, st.st_size, 0) == st.st_size);

        /* Cut off */
        for (size_t size = 0; size < (size_t) st.st_size; size = size < 4096 ? size + 61 : size + 40961)
                look(data, size);

        /* Numbers in the file's header and its tables are others. As far as it is read, mostly */
        for (unsigned i = 0; i < 3000; i++) {
                size_t sections, at;

                memcpy(other, data, st.st_size);
                memcpy(&sections, data + 40, sizeof(sections)); /* e_shoff */
                for (unsigned k = 0; k < 1 + i % 4; k++) {
                        random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
                        at = (random >> 33) % (st.st_size - sections + 64 + 1024);
                        at = at < 64 + 1024 ? at : sections + at - 64 - 1024;
                        other[at] = random >> 24;
                }
                look(other, st.st_size);
        }

        /* No library at all */
        check(symbols_new(-EBADF, &s) == -EBADF);
        memcpy(other, data, st.st_size);
        other[4] = 1; /* 32 bits */
        look(other, st.st_size);
        look((const uint8_t*) "#!/bin/sh\n", 10);
}

int main(void) {
        test_exported();
#ifdef __x86_64__
        test_callee();
#endif
        test_nonsense();
        return 0;
}
