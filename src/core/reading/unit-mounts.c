/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "manager.h"
#include "mount-server.h"
#include "mounts.h"
#include "storage-probe.h"
#include "unit-mounts.h"

int unit_reading_read_storage(const UnitReading *r, uint64_t window, StorageReading *ret,
                              StorageReading *ret_total, MountsReading *ret_mounts) {
        int k;

        mounts_read(&r->storage, r->context.now, window, ret_mounts);
        k = storage_read(&r->storage, r->context.now, window, ret, ret_total);
        if (k < 0)
                return k;
        if (ret_mounts->measured)
                mounts_settle(ret_mounts, ret);
        return 0;
}

static bool row_is_used(const MountReading *row) {
        for (unsigned i = 0; i < QOS_MOUNT_CALLS; i++)
                if (row->value.counts.count[i] > 0)
                        return true;
        return false;
}

size_t mounts_fill(const UnitReading *r, const MountsReading *mounts, Mount *ret) {
        size_t n = 0;

        if (!mounts->measured ||
            (!is_measured(r->context.measured, MEASURED_STORAGE_CALLS + QOS_STORAGE_READ) &&
             !is_measured(r->context.measured, MEASURED_STORAGE_SUBMITTED)))
                return 0;
        for (size_t i = 1; i < mounts->n; i++) {
                const MountLine *name = mount_names_find(&r->unit->manager->readings.mount_names,
                                                        mount_reading_get_device(mounts->rows + i));
                Mount *m = ret + n++;

                mount_fill(&r->context, mounts->rows + i, m);
                if (name && strlen(name->point) < sizeof(m->point))
                        strcpy(m->point, name->point);
                if (name && name->remote && startswith(m->type, "nfs"))
                        (void) mount_server_read(name, &m->round_trips, &m->round_trip_nsec);
        }
        if (row_is_used(mounts->rows))
                mount_fill(&r->context, mounts->rows, ret + n++);
        return n;
}

typedef struct MountSearch {
        MountNames *names;
        const Selector *selector;
} MountSearch;

static bool mount_is_selected(uint32_t device, void *userdata) {
        const MountSearch *search = ASSERT_PTR(userdata);
        const MountLine *name = mount_names_find(search->names, device);
        char buf[MOUNT_DEVICE_MAX];

        mount_format_device(device, buf);
        return selector_matches_text(search->selector, buf) ||
               (name && selector_matches_text(search->selector, name->point));
}

int unit_find_mount(Unit *u, const Selector *s, uint64_t *ret) {
        MountSearch search = { .names = &u->manager->readings.mount_names, .selector = s };
        StorageSource buffer[UNITS_MAX_LIMIT];
        StorageSources sources;

        if (!unit_get_storage_sources(u, buffer, &sources))
                return -ENOENT;
        return mounts_find_identity(&sources, mount_is_selected, &search, ret);
}
