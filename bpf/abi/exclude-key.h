/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* The name of a question, by which some are left out of a unit's figures: the path that is asked for (HTTP),
 * the command (RESP). As a hash, as long as a word: of two names with the same one, which is as likely as
 * one in 2^64, nobody can tell which it was.
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

/* Of a path that goes on, what is in front of each of so many slashes is a name, too: that of a
 * directory. */
#define NAME_DIRECTORIES 4U

/* Of a path, byte by byte, without the query. */
static inline __attribute__((always_inline)) __u64 name_add(__u64 name, __u32 byte) {
        return (name ^ byte) * NAME_PRIME;
}

/* Of a command in capitals: its first eight letters, the first one highest, and how many letters it has.
 * These tell all commands of Redis apart. */
static inline __attribute__((always_inline)) __u64 name_of_command(__u64 word, __u32 length) {
        return ((NAME_BEGIN ^ word) * NAME_PRIME ^ length) * NAME_PRIME;
}
