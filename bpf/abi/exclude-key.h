/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* Names by which requests are excluded from the metrics of a unit: the path (HTTP) or the command (RESP), as
 * a 64 bit hash. Names that collide cannot be distinguished.
 *
 * Pure: compiled for BPF, for the daemon and for the unit tests. */

#include <linux/types.h>

enum name_kind {
        NAME_PATH = 1,
        NAME_DIRECTORY,         /* the beginning of a path, up to a slash */
        NAME_COMMAND,
};

/* FNV-1a */
#define NAME_BEGIN 0xcbf29ce484222325ULL
#define NAME_PRIME 0x100000001b3ULL

/* Number of leading slashes of a path whose directories may be excluded: "/", "/a/", "/a/b/", ... */
#define NAME_DIRECTORIES 4U

/* Adds a byte of a path; the query string is not part of it. */
static inline __attribute__((always_inline)) __u64 name_add(__u64 name, __u32 byte) {
        return (name ^ byte) * NAME_PRIME;
}

/* Name of a command in upper case: hash of its first eight letters (word, first one most significant) and
 * its length, which identify all Redis commands. */
static inline __attribute__((always_inline)) __u64 name_of_command(__u64 word, __u32 length) {
        return ((NAME_BEGIN ^ word) * NAME_PRIME ^ length) * NAME_PRIME;
}
