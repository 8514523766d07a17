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

/* A mount, with text that terminals show as it is: escaped as in the line (blanks, backslashes), and so are
 * control characters. */
typedef struct MountLine {
        uint32_t device;                /* of the file system, kernel encoding */
        bool whole;                     /* the root of the file system is mounted there, not a part of it */
        char *point;
        char *remote;                   /* what is mounted, "server:/path" or "//server/share"; NULL: it is
                                         * on no other machine */
} MountLine;

void mount_line_done(MountLine *m);
#define _cleanup_mount_line_ _cleanup_(mount_line_done)

/* A line of /proc/self/mountinfo. -EINVAL: no such line. */
int mounts_line_parse(const char *line, MountLine *ret);
