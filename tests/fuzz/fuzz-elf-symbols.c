/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Any file that a process has mapped as OpenSSL's library, or as its program: the offsets found are
 * within it. The input is the file. */

#include <sys/mman.h>
#include <unistd.h>

#include "check.h"
#include "elf-symbols.h"
#include "fuzz.h"
#include "util.h"

static void look(int fd, size_t size, bool all) {
        static const char *const names[] = { "SSL_read", "SSL_read_ex", "SSL_write", "SSL_write_ex",
                                             "SSL_do_handshake", "" };
        static const uint64_t starts[] = { 0, 0x400000, 0x7f0000000000, UINT64_MAX };
        Symbols *s = NULL;
        int r;

        r = all ? symbols_new_all(fd, &s) : symbols_new(fd, &s);
        check((r >= 0) == !!s);
        if (r < 0)
                return;

        for (size_t i = 0; i < ELEMENTSOF(names); i++) {
                check(symbols_find(s, names[i]) < size);
                for (size_t k = 0; k < ELEMENTSOF(names); k++)
                        check(symbols_find_callee(s, names[i], names[k]) < size);
        }
        for (size_t i = 0; i < ELEMENTSOF(starts); i++)
                for (uint64_t offset = 0; offset < 0x8000; offset += 0x68) {
                        const char *name = NULL;
                        uint64_t behind = 0;

                        if (symbols_find_object(s, starts[i], starts[i] + offset, &name, &behind) >= 0 &&
                            name)
                                check(strlen(name) < size);
                }
        symbols_free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        _cleanup_close_ int fd = memfd_create("fuzz-symbol", MFD_CLOEXEC);

        check(fd >= 0);
        check(size == 0 || write(fd, data, size) == (ssize_t) size);
        look(fd, size, /* all= */ false);
        look(fd, size, /* all= */ true);
        return 0;
}
