/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "activation-sockets.h"
#include "attach-operation.h"
#include "auto-attach.h"
#include "cgroup.h"
#include "contention-probe.h"
#include "custom-names.h"
#include "custom-probe.h"
#include "history-collector.h"
#include "log.h"
#include "manager.h"
#include "observe.h"
#include "observer.h"
#include "openssl.h"
#include "probe.h"
#include "read-check.h"
#include "service-manager.h"
#include "state-file.h"
#include "system-bus.h"
#include "threshold-monitor.h"
#include "unit-internal.h"
#include "unit-map.h"
#include "xqos-loader.h"

/* ---- attaching ---------------------------------------------------------------------------------------- */

int manager_get_probes(Manager *m, ProbesInfo *ret) {
        ProbesInfo info;
        int r;

        r = probe_get_info(m->probe, &info);
        if (r < 0)
                return r;
        r = custom_add_info(m, &info);
        if (r < 0) {
                probes_info_done(&info);
                return r;
        }
        *ret = info;
        return 0;
}

int manager_get_programs(Manager *m, ProbesInfo *ret) {
        return probe_get_program_info(m->probe, ret);
}

/* Looks for files of custom probes. */
static void manager_scan_probes(Manager *m) {
        ProbeMask used = m->config.default_probes;

        FOREACH_UNIT(u, m)
                used |= u->probes;
        custom_names_scan(used);
}

/* ---- changes reported by PID 1 ------------------------------------------------------------------------ */

static void unit_refresh(Unit *u);

static void unit_refresh_again(Unit *u) {
        u->refresh_again = false;
        unit_refresh(u);
}

static void on_unit_refreshed(int error, const char *message, const UnitInfo *info, void *userdata) {
        Unit *u = ASSERT_PTR(userdata);
        Manager *m = u->manager;
        const char *state, *group;
        bool changed = false;

        u->refresh = NULL;
        if (error < 0) {
                if (error != -ENOTCONN) /* logged once for all units */
                        log_unit_warning_errno(u->name, error,
                                               "Failed to query properties of '%s', its state and "
                                               "control group may be outdated: %s",
                                         u->name, strempty(message));
                if (u->refresh_again)
                        unit_refresh_again(u);
                return;
        }

        state = info->active_state;
        group = strempty(info->control_group);

        if (!streq(u->active_state, state)) {
                log_unit_info(u->name, "'%s' is %s.", u->name, state);
                (void) free_and_strdup(&u->active_state, state);
                changed = true;
        }
        unit_set_lifecycle(u, &info->lifecycle);
        if (!sd_id128_equal(u->invocation_id, info->invocation_id)) {
                if (!sd_id128_is_null(info->invocation_id))
                        u->started_at[u->n_started++ % UNIT_STARTS_KEPT] = now_nsec(CLOCK_MONOTONIC);
                u->invocation_id = info->invocation_id;
                changed = true;
        }
        if (!isempty(group) && !streq(u->control_group, group)) {
                unit_set_cgroup(u, group);
                changed = true;
        }

        if (free_and_strdup(&u->aliases, info->names) < 0)
                (void) log_oom();

        unit_set_sockets(u, info);
        if (changed) {
                /* The programs have recognized new control groups by their path, but not sockets that other
                 * processes have opened for the unit */
                if (!isempty(group))
                        unit_claim_cgroup(u);
                manager_update_probes(m, u);
                manager_emit_unit_changed(u);
                manager_emit_state_changed(m);
        }

        if (u->refresh_again)
                unit_refresh_again(u);
}

static void unit_refresh(Unit *u) {
        int r;

        if (u->name[0] == '/')
                return;
        if (u->refresh) {
                u->refresh_again = true;
                return;
        }

        r = service_manager_load(u->manager->service_manager, u->name, on_unit_refreshed, u, &u->refresh);
        if (r < 0 && r != -ENOTCONN)
                log_unit_warning_errno(u->name, r, "Failed to query properties of '%s': %m",
                                       u->name);
}

/* A socket was started or stopped. If PID 1 has loaded it only now, the properties of the service that it
 * activates do not include it yet. */
static void on_socket_loaded(int error, const char *message, const UnitInfo *info, void *userdata) {
        Manager *m = ASSERT_PTR(userdata);

        if (error < 0)
                return;
        FOREACH_UNIT(u, m)
                if (names_contain(info->triggers, u->name))
                        unit_refresh(u);
}

static void manager_on_unit_changed(const char *name, void *userdata) {
        Manager *m = ASSERT_PTR(userdata);

        FOREACH_UNIT(u, m)
                if (!name || streq(u->name, name))
                        unit_refresh(u);

        if (name && endswith(name, ".socket"))
                (void) service_manager_load(m->service_manager, name, on_socket_loaded, m, NULL);
        if (!name)
                manager_emit_units_reloaded(m);
}

/* ---- manager ------------------------------------------------------------------------------------------ */

int manager_new(sd_event *event, Manager **ret) {
        Manager *m;
        int r;

        m = new0(Manager, 1);
        if (!m)
                return -ENOMEM;
        m->event = sd_event_ref(event);
        m->fds = (PassedFds) PASSED_FDS_INIT;
        m->receive_stamps = (ReceiveStamps) RECEIVE_STAMPS_INIT;

        r = config_load("", &m->config);
        if (r >= 0)
                r = turn_queue_new(m->event, &m->turns);
        if (r >= 0)
                r = memory_trim_new(m->event, m->turns, &m->trim);
        if (r >= 0)
                r = child_queue_new(m->event, &m->inspections.children);
        if (r >= 0)
                r = threshold_monitor_new(m, &m->thresholds);
        if (r >= 0)
                r = xqos_loader_new(m, &m->xqos);
        if (r >= 0)
                r = auto_attach_new(m, &m->auto_attach);
        if (r >= 0)
                r = probe_new(m->event, &m->probe);
        if (r >= 0)
                r = service_manager_new(manager_on_unit_changed, m, &m->service_manager);
        if (r >= 0)
                r = state_file_init(m);
        if (r >= 0)
                r = history_collector_init(m);
        if (r < 0) {
                manager_free(m);
                return r;
        }

        attach_operations_init(m);
        service_notify_init(m);

        passed_fds_take(&m->fds, m->probe);
        manager_restore_state(m);
        manager_scan_probes(m);
        threshold_monitor_restored(m);
        auto_attach_update(m->auto_attach);

        *ret = m;
        return 0;
}

Manager* manager_free(Manager *m) {
        if (!m)
                return NULL;

        service_notify_done(m);
        state_file_done(m);
        m->auto_attach = auto_attach_free(m->auto_attach);
        m->xqos = xqos_loader_free(m->xqos);
        attach_operations_done(m);
        /* All servers have been freed, which cancels the operations of their clients */
        assert(!m->observers);
        manager_end_assignments(m);
        m->thresholds = threshold_monitor_free(m->thresholds);
        history_collector_done(m);
        sd_event_source_disable_unref(m->hierarchy.timer);
        sd_event_source_disable_unref(m->programs.timer);
        probe_start_free(m->programs.start);
        read_check_stop(m);
        openssl_stop(m);
        contention_stop(m);
        receive_stamps_update(m, false);
        custom_done(m);

        /* The state file remains for the next run. Maps and programs are freed with their descriptors,
         * unless these are in the descriptor store */
        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++)
                if (m->units.slots[i] || m->hierarchy.retained[i])
                        unit_free(TAKE_PTR(m->units.slots[i]) ?: TAKE_PTR(m->hierarchy.retained[i]));

        mount_names_done(&m->readings.mount_names);
        service_manager_free(m->service_manager);
        probe_free(m->probe);
        system_bus_done(&m->system_bus);
        passed_fds_done(&m->fds);
        child_queue_free(m->inspections.children);
        memory_trim_free(m->trim);
        turn_queue_free(m->turns);
        sd_event_unref(m->event);
        free(m);
        return NULL;
}

int manager_reload(Manager *m) {
        int r;

        r = config_load("", &m->config);
        if (r < 0)
                return log_error_errno(r, "Failed to read the configuration, keeping the previous one: %m");
        FOREACH_UNIT(u, m)
                if (u->storage.map)
                        unit_update_probe_config(u);
        receive_stamps_update(m, m->receive_stamps.wanted);
        manager_scan_probes(m);
        log_info("Configuration reloaded.");
        auto_attach_update(m->auto_attach);
        return 0;
}
