/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Lines of /proc/PID/mountinfo: mount points by file system, and paths of files in other mount namespaces or
 * root directories as paths in the mount namespace of qosd. Pure. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Path of a file within its file system. names: path components from the file up to the root, each NUL
 * terminated; size: bytes of names. */
int mounts_file_path(const char *names, size_t size, char **ret);

/* The path at which a mount, given as line of /proc/self/mountinfo, shows a file of this device (kernel
 * encoding: major << 20 | minor). -ENOENT: it does not. */
int mounts_line_find(const char *line, uint32_t device, const char *file_path, char **ret);

/* The file system of a mount, given as line of /proc/self/mountinfo, and its mount point as text that
 * terminals show as it is: escaped as in the line (blanks, backslashes), and so are control characters.
 * ret_whole: the root of the file system is mounted there. -EINVAL: no such line. */
int mounts_line_parse(const char *line, uint32_t *ret_device, bool *ret_whole, char **ret_point);
