/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Where functions lie in a shared library. The file may be anybody's: what is in it is not trusted. */

#include <stddef.h>
#include <stdint.h>

typedef struct Symbols Symbols;

/* What the library exports. fd stays the caller's, and open. -ENOEXEC: it is no library that processes of
 * this machine's own kind use. */
int symbols_new(int fd, Symbols **ret);
/* All that a program or a library has a name for, exported or not, as far as it was not stripped. */
int symbols_new_all(int fd, Symbols **ret);
Symbols* symbols_free(Symbols *s);

/* The variable at an address in a process that has the beginning of the file at start: NULL: it has no name.
 * ret_offset: how far behind the beginning of the variable that is. -ENOENT if the address is none of the
 * file's. */
int symbols_find_object(const Symbols *s, uint64_t start, uint64_t address, const char **ret,
                        uint64_t *ret_offset);

/* The offset in the file of a function that it exports, 0: it does not.
 *
 * A probe costs one trap where the kernel knows what the instruction in its place does, and two where the
 * processor has to take that step; the second one takes 15 to 40 us in some virtual machines, the first one
 * less than 1. Functions that begin with a mark for indirect jumps (endbr64) and then save a register are
 * therefore entered behind the mark, where nothing has changed. */
uint64_t symbols_find(const Symbols *s, const char *name);

/* The same of a function, exported or not, that both of these call and that begins so that one trap is
 * enough. 0: there is none, or several, or nobody knows how this processor calls. */
uint64_t symbols_find_callee(const Symbols *s, const char *a, const char *b);
