/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* File systems that a unit uses, as metrics and as text. Pure. */

#include "metric.h"
#include "selector.h"
#include "snapshot-fill.h"
#include "storage-mounts.h"

/* "8:1", from the kernel's internal encoding. ret: MOUNT_DEVICE_MAX */
void mount_format_device(uint32_t device, char *ret);

/* Of a row that has no name yet. */
void mount_fill(const ReadingContext *c, const MountReading *row, Mount *ret);

/* The selected one; NULL: there is none. */
const Mount* mounts_find(const Mount *mounts, size_t n, const Selector *s);

/* Metrics of a file system; those that it does not have are absent. NULL: all are. */
void mount_get_metrics(const Mount *mount, Metrics *ret);
