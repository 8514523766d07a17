/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Mount points by device number, as qosd's mount namespace has them. */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* File systems whose mount point is remembered, some 100 bytes each: as many as a machine with a thousand
 * containers has. */
#define MOUNT_NAMES_MAX 4096U

typedef struct MountName {
        uint32_t device;                /* kernel encoding */
        bool whole;                     /* the root of the file system is mounted there, not a part of it */
        char *point;                    /* escaped */
} MountName;

typedef struct MountNames {
        FILE *file;                     /* /proc/self/mountinfo */
        MountName *names;
        size_t n;
} MountNames;

/* Reads the mounts again if they have changed. NULL: the file system is not mounted, or not in this
 * namespace. */
const char* mount_names_find(MountNames *m, uint32_t device);
void mount_names_done(MountNames *m);
