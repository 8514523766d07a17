/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Calls on files in a step of the history, as window_read_step() for requests. No I/O, no clock. */

#include "storage-window.h"

/* Reads step n, which has to be over. Only covered and the sums before QOS_STORAGE_STATE of ret are valid.
 * -ENODATA: no longer in the maps, or the unit was not observed then. */
int storage_read_step(const StorageSources *sources, uint64_t n, StorageReading *ret);
