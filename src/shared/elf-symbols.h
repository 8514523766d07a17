/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Symbols of ELF files. Files are not trusted, as any user may have written them. */

#include <stddef.h>
#include <stdint.h>

typedef struct Symbols Symbols;

/* Reads the exported symbols of a shared library. fd remains owned by the caller. -ENOEXEC: not a shared
 * library of the native architecture. */
int symbols_new(int fd, Symbols **ret);
/* As symbols_new(), including symbols that are not exported, of a program or a library. */
int symbols_new_all(int fd, Symbols **ret);
Symbols* symbols_free(Symbols *s);

/* Finds the variable at an address of a process that has the beginning of the file mapped at start. Returns
 * NULL in ret if no symbol covers it, else the offset within the variable in ret_offset. -ENOENT: the
 * address is not in the file. */
int symbols_find_object(const Symbols *s, uint64_t start, uint64_t address, const char **ret,
                        uint64_t *ret_offset);

/* File offset at which to probe an exported function, 0: not exported.
 *
 * A uprobe costs one trap if the kernel emulates the probed instruction, and two if it has to single-step
 * it; in some virtual machines the latter takes 15 to 40 us, the former less than 1 us. A function that
 * begins with endbr64 and a push is therefore probed at the push, where no argument has been modified. */
uint64_t symbols_find(const Symbols *s, const char *name);

/* As symbols_find(), for the only function, exported or not, that is called by both a and b, and can be
 * probed with a single trap. 0: none, several, or not implemented for this architecture. */
uint64_t symbols_find_callee(const Symbols *s, const char *a, const char *b);
