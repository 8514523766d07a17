/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <stdio.h>

#include "mounts.h"

static StorageCalls calls_get(const ReadingContext *c, const MountReading *row, unsigned i,
                              enum qos_storage_call call) {
        if (!is_measured(c->measured, MEASURED_STORAGE_CALLS + call))
                return (StorageCalls) { ABSENT, ABSENT };
        return (StorageCalls) { row->value.counts.count[i], row->value.counts.errors[i] };
}

static StorageRequests requests_get(const ReadingContext *c, const MountReading *row,
                                    enum qos_storage_call call) {
        const struct qos_mount_counts *counts = &row->value.counts;

        if (!is_measured(c->measured, MEASURED_STORAGE_SUBMITTED))
                return (StorageRequests) { { ABSENT, ABSENT }, ABSENT, ABSENT };
        return (StorageRequests) {
                .calls = { counts->count[call], counts->errors[call] },
                .bytes = counts->bytes[call],
                .time = counts->nsec[call],
        };
}

void mount_format_device(uint32_t device, char *ret) {
        (void) snprintf(ret, MOUNT_DEVICE_MAX, "%u:%u", device >> 20, device & ((1U << 20) - 1));
}

void mount_fill(const ReadingContext *c, const MountReading *row, Mount *ret) {
        uint32_t device = mount_reading_get_device(row);

        *ret = (Mount) {
                .opens = calls_get(c, row, QOS_STORAGE_OPEN, QOS_STORAGE_OPEN),
                .changes = calls_get(c, row, QOS_MOUNT_CHANGE, QOS_STORAGE_CHANGE),
                .round_trips = ABSENT,
                .round_trip_nsec = ABSENT,
        };
        if (device != 0) {
                mount_format_device(device, ret->device);
                memcpy(ret->type, row->type, sizeof(ret->type));
        }
        for (enum qos_storage_call call = 0; call < QOS_MOUNT_TIMED; call++) {
                ret->timed[call].calls = calls_get(c, row, call, call);
                distribution_set_absent(&ret->timed[call].latency);
                if (ret->timed[call].calls.count != ABSENT)
                        mount_get_latency(&row->value, call, c->minimum_samples, &ret->timed[call].latency);
                if (call <= QOS_STORAGE_WRITE)
                        ret->bytes[call] = ret->timed[call].calls.count == ABSENT ? ABSENT :
                                           row->value.counts.bytes[call];
        }
        for (enum qos_storage_call call = 0; call <= QOS_STORAGE_WRITE; call++)
                ret->submitted[call] = requests_get(c, row, call);
}

const Mount* mounts_find(const Mount *mounts, size_t n, const Selector *s) {
        for (size_t i = 0; i < n; i++)
                if (selector_matches_text(s, mounts[i].point) || selector_matches_text(s, mounts[i].device))
                        return mounts + i;
        return NULL;
}

void mount_get_metrics(const Mount *mount, Metrics *ret) {
        metrics_set_absent(ret);
        if (!mount)
                return;
        memcpy(ret->storage.timed, mount->timed, sizeof(mount->timed));
        memcpy(ret->storage.bytes, mount->bytes, sizeof(mount->bytes));
        memcpy(ret->storage.submitted, mount->submitted, sizeof(mount->submitted));
        ret->storage.timed[QOS_STORAGE_OPEN].calls = mount->opens;
        ret->storage.calls[QOS_STORAGE_CHANGE - QOS_STORAGE_TIMED] = mount->changes;
}
