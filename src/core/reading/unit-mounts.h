/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* File systems that a unit uses, with their names. */

#include "selector.h"
#include "storage-mounts.h"
#include "unit-reading.h"

/* A window of the storage maps of a unit, and of its rows from the same moment. Negative errno: as
 * storage_read(). ret_total: as there. */
int unit_reading_read_storage(const UnitReading *r, uint64_t window, StorageReading *ret,
                              StorageReading *ret_total, MountsReading *ret_mounts);

/* Rows in use. ret: QOS_STORAGE_ROWS. Returns their number. */
size_t mounts_fill(const UnitReading *r, const MountsReading *mounts, Mount *ret);

/* Identity of the selected file system, -ENOENT if the unit has no row for it now: it is never
 * that of another one which had its mount point or its device number before. */
int unit_find_mount(Unit *u, const Selector *s, uint64_t *ret);
