/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "manager.h"
#include "mounts.h"
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
        }
        if (row_is_used(mounts->rows))
                mount_fill(&r->context, mounts->rows, ret + n++);
        return n;
}
