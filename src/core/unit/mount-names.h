/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Mount points by device number, as qosd's mount namespace has them. */

#include <stdio.h>

#include "mountinfo.h"

/* File systems whose mount point is remembered, some 100 bytes each: as many as a machine with a thousand
 * containers has. */
#define MOUNT_NAMES_MAX 4096U

typedef struct MountNames {
        FILE *file;                     /* /proc/self/mountinfo */
        MountLine *names;
        size_t n;
} MountNames;

/* Reads the mounts again if they have changed. NULL: the file system is not mounted, or not in this
 * namespace. */
const MountLine* mount_names_find(MountNames *m, uint32_t device);
void mount_names_done(MountNames *m);
