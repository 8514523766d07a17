/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "log.h"
#include "storage-source.h"

StorageSource unit_get_storage_source(const Unit *u) {
        return (StorageSource) { .map = u->storage.map, .since = u->storage.since };
}

static void unit_add_storage(Unit *u, const Unit *inner, int times) {
        StorageSource source;

        if (!u->storage.map || !inner->storage.map)
                return;
        if (!u->storage.base) {
                u->storage.base = new0(StorageCounts, 1);
                if (!u->storage.base) {
                        (void) log_oom();
                        return;
                }
        }
        source = unit_get_storage_source(inner);
        storage_counts_add(u->storage.base, &source, times);
}

void unit_open_storage(Unit *u, const Unit *inner) {
        unit_add_storage(u, inner, 1);
}

void unit_close_storage(Unit *u, const Unit *inner) {
        unit_add_storage(u, inner, -1);
}
