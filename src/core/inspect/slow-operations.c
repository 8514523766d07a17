/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <string.h>

#include "manager.h"
#include "mounts.h"
#include "parse.h"
#include "slow-operations.h"
#include "snapshot-json.h"
#include "state-label.h"
#include "storage-probe.h"
#include "storage-slow.h"

static int shares_to_json(const SlowOperation *s, sd_json_variant **ret) {
        int r = 0;

        for (enum qos_state i = QOS_STATE_RUNNING; i < QOS_STATES && r >= 0; i++)
                if (s->shares[i] > 0)
                        r = sd_json_variant_set_fieldb(ret, qos_state_to_string(i),
                                                       SD_JSON_BUILD_REAL(s->shares[i]));
        return r;
}

/* now: CLOCK_MONOTONIC and CLOCK_REALTIME of one moment, ns */
static int slow_operation_to_json(Unit *u, SlowOperation *s, uint64_t now, uint64_t realtime,
                                  sd_json_variant **ret) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *shares = NULL;
        const MountLine *name = mount_names_find(&u->manager->readings.mount_names, s->device);
        const char *error = strerrorname_np(s->error) ?: "unknown";
        char device[MOUNT_DEVICE_MAX];
        int r;

        r = shares_to_json(s, &shares);
        if (r < 0)
                return r;
        mount_format_device(s->device, device);
        utf8_sanitize(s->name);
        utf8_sanitize(s->thread);
        return sd_json_buildo(ret,
                              SD_JSON_BUILD_PAIR_UNSIGNED("timestamp",
                                                          (realtime - MIN(realtime, now - s->at)) /
                                                          NSEC_PER_USEC),
                              SD_JSON_BUILD_PAIR_STRING("operation", storage_call_to_string(s->call)),
                              SD_JSON_BUILD_PAIR_UNSIGNED("time", s->nsec),
                              SD_JSON_BUILD_PAIR_CONDITION(s->bytes != ABSENT, "bytes",
                                                           SD_JSON_BUILD_UNSIGNED(s->bytes)),
                              SD_JSON_BUILD_PAIR_CONDITION(s->error != 0, "error",
                                                           SD_JSON_BUILD_STRING(error)),
                              SD_JSON_BUILD_PAIR_CONDITION(s->device != 0 && name && !s->reused, "mount",
                                                           SD_JSON_BUILD_STRING(name ? name->point : "")),
                              SD_JSON_BUILD_PAIR_CONDITION(s->device != 0, "device",
                                                           SD_JSON_BUILD_STRING(device)),
                              SD_JSON_BUILD_PAIR_CONDITION(*s->name, "name", SD_JSON_BUILD_STRING(s->name)),
                              SD_JSON_BUILD_PAIR_CONDITION(s->pid != 0, "tid",
                                                           SD_JSON_BUILD_UNSIGNED(s->pid)),
                              SD_JSON_BUILD_PAIR_CONDITION(*s->thread, "thread",
                                                           SD_JSON_BUILD_STRING(s->thread)),
                              SD_JSON_BUILD_PAIR_CONDITION(!!shares, "shares",
                                                           SD_JSON_BUILD_VARIANT(shares)));
}

int unit_get_slow_operations(Unit *u, sd_json_variant **ret) {
        uint64_t now = now_nsec(CLOCK_MONOTONIC), realtime = now_nsec(CLOCK_REALTIME);
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *array = NULL;
        SlowOperation operations[QOS_STORAGE_SLOW_CALLS];
        sd_json_variant *items[QOS_STORAGE_SLOW_CALLS] = {};
        StorageSource buffer[UNITS_MAX_LIMIT];
        StorageSources sources;
        size_t n;
        int r = 0;

        if (!u->view || !unit_get_storage_sources(u, buffer, &sources))
                return -ENODATA;
        n = slow_operations_read(&sources, operations);
        for (size_t i = 0; i < n && r >= 0; i++)
                r = slow_operation_to_json(u, operations + i, now, realtime, items + i);
        if (r >= 0)
                r = sd_json_variant_new_array(&array, items, n);
        json_unref_all(items, n);
        if (r < 0)
                return r;
        return sd_json_buildo(ret,
                              SD_JSON_BUILD_PAIR_UNSIGNED("timestamp", realtime / NSEC_PER_USEC),
                              SD_JSON_BUILD_PAIR_VARIANT("operations", array));
}
