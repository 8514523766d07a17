/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Where functions lie in a shared library. The file may be anybody's: what is in it is not trusted. */

#include <stddef.h>
#include <stdint.h>

/* The offset in the file of each of the functions that it exports; 0: it does not. -ENOEXEC: it is no library that processes of
 * this machine's own kind use. */
int symbol_find_offsets(int fd, const char *const *names, size_t n, uint64_t *ret);
