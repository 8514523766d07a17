/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Readers of the rows of storage maps: arithmetic, no I/O, no clock. The writers are in
 * bpf/storage/mount-table.h. */

#include "storage-window.h"

/* A file system over a window. Bins and maxima begin at a boundary of QOS_MOUNT_BINS_LEVEL, up to 10 s
 * earlier than the window. 64 bit words only. */
typedef struct MountCounts {
        struct qos_mount_counts counts;
        uint64_t bins[QOS_MOUNT_TIMED * QOS_MOUNT_BINS];
        uint64_t maxima[QOS_MOUNT_TIMED];
} MountCounts;

typedef struct MountReading {
        struct qos_address key; /* as in struct qos_mount */
        char type[QOS_MOUNT_TYPE_SIZE];
        MountCounts value;
} MountReading;

typedef struct MountsReading {
        MountReading rows[QOS_STORAGE_ROWS]; /* 0: all others; then by time, in descending order */
        size_t n;
        bool measured;          /* false: this window has no rows */
} MountsReading;

/* Reads all rows over a window. To be called before storage_read(), with the same arguments: what is
 * recorded in between is then in the unit, and in no row. */
void mounts_read(const StorageSources *sources, uint64_t now, uint64_t window, MountsReading *ret);

/* Reads the rows of step n of the history, less row 0. -ENODATA: they are not known any more. Rows at the
 * beginning of a step are kept until a second after its end. */
int mounts_read_step(const StorageSources *sources, uint64_t n, MountsReading *ret);

/* Identity of a file system with a row, selected by its device number. */
int mounts_find_identity(const StorageSources *sources, bool (*matches)(uint32_t device, void *userdata),
                         void *userdata, uint64_t *ret);

/* Calculates the counters of row 0, so that all rows together are the unit. */
void mounts_settle(MountsReading *mounts, const StorageReading *unit);

void mount_counts_add(MountCounts *counts, const MountCounts *other);
bool mount_time_is_more(const MountCounts *a, const MountCounts *b);

/* call: READ, WRITE or SYNC. Quantiles and maximum are those of the bins, count and mean those of the
 * window. */
void mount_get_latency(const MountCounts *counts, enum qos_storage_call call, unsigned minimum_samples,
                       Distribution *ret);

/* Device number in the kernel's internal encoding. */
uint32_t mount_reading_get_device(const MountReading *row);

/* Differs for each file system, also if the device number is the same. */
uint64_t mount_reading_get_identity(const MountReading *row);
