/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "cgroup-stat.h"
#include "custom-source.h"
#include "history.h"
#include "hold.h"
#include "manager.h"
#include "observer.h"
#include "probe.h"
#include "service-manager.h"
#include "threshold-list.h"
#include "unit-internal.h"

/* ---- holds -------------------------------------------------------------------------------------------- */

void unit_update_probe_config(Unit *u) {
        probe_set_config(u->manager->probe, u->index, u->generation,
                         (u->openssl.watched ? PROBE_TLS : 0) | (u->storage.map ? PROBE_STORAGE : 0) |
                                 (u->network.map ? PROBE_NETWORK : 0) |
                                 (u->contention.probes & ~(PROBE_TLS | PROBE_STORAGE | PROBE_NETWORK)),
                         (uint32_t) (u->manager->config.slow_operation_nsec / NSEC_PER_USEC));
}

void unit_collect_usage(Unit *u) {
        uint64_t now = now_nsec(CLOCK_MONOTONIC);
        Usage *usage = u->contention.usage;
        UsageReading r;

        if (!usage || !usage_is_old(usage, now))
                return;
        usage_read(&usage->files, u->control_group, u->contention.probes & PROBE_MEMORY, now, &r);
        usage_add(usage, &r);
}

void unit_free(Unit *u) {
        while (u->holds)
                hold_free(u->holds);
        while (u->thresholds)
                threshold_free(u->thresholds);
        service_manager_call_free(u->refresh);

        unit_forget_custom(u);
        free(u->name);
        free(u->control_group);
        free(u->instances);
        free(u->socket_groups);
        free(u->listen);
        free(u->active_state);
        free(u->aliases);
        free(u->base);
        free(u->contention.base);
        free(u->storage.base);
        free(u->network.base);
        free(u->contention.machine_base);
        usage_free(u->contention.usage);
        history_free(u->history.steps);
        free(u->exported_bins);
        free(u->endpoint_totals);
        free(u);
}

/* ---- attaching ---------------------------------------------------------------------------------------- */

bool unit_has_name(const Unit *u, const char *name) {
        return streq(u->name, name) || names_contain(u->aliases, name) ||
               (name[0] == '/' && streq(u->control_group, name));
}

int unit_new(Manager *m, const UnitInfo *info, unsigned slot, Unit **ret) {
        Unit *u;

        u = new0(Unit, 1);
        if (!u)
                return -ENOMEM;

        *u = (Unit) {
                .manager = m,
                .index = slot,
                .generation = m->units.generation + 1,
                .name = strdup(info->id),
                .control_group = strdup(info->control_group),
                .instances = info->instances ? strdup(info->instances) : NULL,
                .active_state = strdup(info->active_state),
                .lifecycle.restarts = ABSENT,
                .invocation_id = info->invocation_id,
                .attached_since = now_nsec(CLOCK_REALTIME),
                .attached_since_monotonic = now_nsec(CLOCK_MONOTONIC),
        };
        if (!u->name || !u->control_group || (info->instances && !u->instances) || !u->active_state ||
            history_new(&u->history.steps) < 0) {
                unit_free(u);
                return -ENOMEM;
        }

        m->units.generation++;
        m->units.slots[slot] = u;
        m->hierarchy.valid = false;
        m->units.n++;
        *ret = u;
        return 0;
}

void unit_set_lifecycle(Unit *u, const Lifecycle *lifecycle) {
        Lifecycle l = *lifecycle;

        /* PID 1 resets the exit status of the main process when the next one starts */
        if (l.exit_code == 0) {
                l.exit_code = u->lifecycle.exit_code;
                l.exit_status = u->lifecycle.exit_status;
        }
        /* A unit that PID 1 has unloaded and loaded again has no time of its last state change */
        if (l.changed == 0 && u->lifecycle.sub_state[0])
                l.changed = streq(l.sub_state, u->lifecycle.sub_state) ? u->lifecycle.changed :
                            now_nsec(CLOCK_REALTIME);
        u->lifecycle = l;
}

const char* hold_type_to_string(HoldType t) {
        static const char *const table[_HOLD_TYPE_MAX] = {
                [HOLD_ADMINISTRATOR] = "administrator",
                [HOLD_FILE]          = "unitFile",
                [HOLD_CONFIGURATION] = "configuration",
                [HOLD_LEASE]         = "lease",
        };

        return table[t];
}
