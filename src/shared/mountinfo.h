/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Where a file lies for qosd that others have at another path: in a root directory of their own, or in other
 * mounts. Pure. */

#include <stddef.h>
#include <stdint.h>

/* The path of a file in its file system. names: from its own up to the root's, each with a 0 behind it;
 * size: all of them. */
int mounts_file_path(const char *names, size_t size, char **ret);

/* A line of /proc/self/mountinfo: where it shows what has this path in the file system of this device (as
 * the kernel has it inside: major << 20 | minor). -ENOENT: it does not. */
int mounts_line_find(const char *line, uint32_t device, const char *file_path, char **ret);
