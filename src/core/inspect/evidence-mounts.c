/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "evidence-mounts.h"
#include "manager.h"
#include "mounts.h"

void evidence_format_mount(Manager *m, uint32_t device, char ret[static DIAGNOSIS_NAME_MAX]) {
        const MountLine *name = device != 0 ? mount_names_find(&m->readings.mount_names, device) : NULL;

        ret[0] = 0;
        if (name)
                (void) snprintf(ret, DIAGNOSIS_NAME_MAX, "%s", name->point);
        else if (device != 0)
                mount_format_device(device, ret);
}

typedef struct MountWaits {
        uint32_t device;
        uint64_t nsec;
} MountWaits;

void evidence_fill_mount(Manager *m, const ResourcesReading *begin, const ResourcesReading *end,
                         double passed, DiagnosisMount *ret) {
        _cleanup_free_ MountWaits *mounts = NULL;
        const MountWaits *most = NULL;
        const MountLine *name;
        size_t n = 0;

        *ret = (DiagnosisMount) {};
        mounts = new0(MountWaits, end->n + 1);
        if (!mounts || passed <= 0)
                return;
        for (size_t i = 0; i < end->n; i++) {
                const struct qos_wait_target *row = &end->resources[i].row, *before;
                size_t k;

                if (row->resource.state != QOS_STATE_DISK || row->resource.device == 0)
                        continue;
                for (k = 0; k < n && mounts[k].device != row->resource.device; k++)
                        ;
                if (k == n)
                        mounts[n++].device = row->resource.device;
                before = resources_find(begin, row);
                mounts[k].nsec += row->nsec - (before ? MIN(row->nsec, before->nsec) : 0);
        }
        for (size_t k = 0; k < n; k++)
                if (mounts[k].nsec > (most ? most->nsec : 0))
                        most = mounts + k;
        if (!most)
                return;

        ret->threads = (double) most->nsec / passed;
        evidence_format_mount(m, most->device, ret->point);
        name = mount_names_find(&m->readings.mount_names, most->device);
        if (name && name->remote)
                (void) snprintf(ret->remote, sizeof(ret->remote), "%s", name->remote);
}
