/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "activation-sockets.h"
#include "cgroup.h"
#include "contention-probe.h"
#include "custom-probe.h"
#include "custom-source.h"
#include "hierarchy.h"
#include "history-collector.h"
#include "hold.h"
#include "log.h"
#include "manager.h"
#include "observe.h"
#include "observer.h"
#include "openssl.h"
#include "probe.h"
#include "network-probe.h"
#include "read-check.h"
#include "service-manager.h"
#include "storage-probe.h"
#include "threshold-monitor.h"
#include "unit-map.h"

/* ---- observing ---------------------------------------------------------------------------------------- */

/* Continues with the map of the retained unit, which ancestors still sum up. Frees it. */
static void unit_reuse_retained(Unit *u, Unit *retained) {
        Manager *m = u->manager;

        u->generation = retained->generation;
        u->view = retained->view;
        u->map_created = retained->map_created;
        m->hierarchy.retained[u->index] = NULL;
        unit_adopt_contention(u, retained);
        unit_adopt_storage(u, retained);
        unit_adopt_network(u, retained);
        unit_adopt_custom(u, retained);
        unit_free(retained);
}

/* Assigns control groups and sockets to a unit that has a map. */
void unit_claim_cgroups(Unit *u) {
        hierarchy_push_to_kernel(u->manager, u);
        unit_claim_cgroup(u);
        unit_own_socket_groups(u);
        if (unit_find_ancestor(u))
                hierarchy_reassign_sockets(u->manager);
}

void unit_complete_claim(Unit *u) {
        Manager *m = u->manager;

        /* Again, for groups assigned since unit_claim_cgroups() */
        hierarchy_push_to_kernel(m, u);
        if (unit_find_ancestor(u))
                hierarchy_reassign_sockets(m);
        manager_update_probes(m, u);
        manager_emit_state_changed(m);
}

/* To be called when probes or the hierarchy of units have changed. started: unit that has new processes; or
 * NULL. */
void manager_update_probes(Manager *m, Unit *started) {
        read_check_update(m, started);
        openssl_update(m, started);
        contention_update(m);
        storage_update(m);
        network_update(m);
        custom_update(m);
}

/* Starts counting, if possible. Otherwise the unit stays attached without metrics, and the reason is
 * reported. */
void unit_start(Unit *u) {
        Manager *m = u->manager;
        uint64_t now;
        int r;

        if (u->view || !probe_is_started(m->probe))
                return;

        now = now_nsec(CLOCK_MONOTONIC);
        if (m->hierarchy.retained[u->index]) {
                unit_reuse_retained(u, m->hierarchy.retained[u->index]);
                r = 0;
        } else {
                r = probe_add_unit(m->probe, u->index, u->generation, now, &u->view);
                u->map_created = now;
        }
        u->attached_since = now_nsec(CLOCK_REALTIME);
        u->attached_since_monotonic = now;
        if (r >= 0) {
                r = unit_init_offset(u);
                if (r < 0) {
                        probe_remove_unit(m->probe, u->index);
                        u->view = NULL;
                        u->contention.map = NULL; /* owned by u since unit_reuse_retained() */
                        u->contention.cpus = NULL;
                        u->contention.probes = 0;
                        u->storage.map = NULL;
                        u->network.map = NULL;
                        unit_forget_custom(u);
                }
        }
        if (r < 0) {
                log_unit_warning_errno(u->name, r, "Failed to create map of '%s', metrics are "
                                                   "unavailable: %m",
                                       u->name);
                return;
        }

        /* Before control groups are assigned, so that nothing excluded is counted */
        unit_apply_excludes(u);
        unit_claim_cgroups(u);
        if (u->n_listen > 0)
                manager_mark_listeners(m);
        manager_begin_history(m);
}

static void manager_stop_probe(Manager *m) {
        read_check_stop(m);
        openssl_stop(m);
        contention_stop(m);
        custom_stop(m);
        probe_stop(m->probe);
}

static void manager_start_units(Manager *m, int error) {
        if (error < 0)
                (void) log_warning_errno(error, "No metrics are available: %s.",
                                         probe_get_failure(m->probe) ?: "Out of memory");
        else
                FOREACH_UNIT(u, m)
                        unit_start(u);
}

static void on_programs_loaded(int error, void *userdata) {
        Manager *m = ASSERT_PTR(userdata);

        m->programs.start = probe_start_free(m->programs.start);
        if (m->units.n == 0 && now_usec(CLOCK_MONOTONIC) >= m->programs.keep_until) {
                manager_stop_probe(m); /* all units were detached meanwhile */
                return;
        }
        manager_start_units(m, error);
        manager_update_probes(m, NULL);
        manager_emit_programs_loaded(m);
}

void manager_start_probe(Manager *m) {
        if (!probe_is_started(m->probe) && !m->programs.start)
                manager_start_units(m, probe_start(m->probe));
}

void manager_begin_start_probe(Manager *m) {
        if (!probe_is_started(m->probe) && !m->programs.start &&
            probe_start_new(m->probe, on_programs_loaded, m, &m->programs.start) < 0)
                manager_start_probe(m);
}

static int on_programs_unused(sd_event_source *source, uint64_t usec, void *userdata) {
        Manager *m = ASSERT_PTR(userdata);

        if (m->units.n == 0)
                manager_stop_probe(m);
        else
                manager_update_probes(m, NULL);
        return 0;
}

/* Time for which unused programs stay loaded. Loading takes two to three seconds of CPU time, so that a loop
 * of attach and detach takes a fifth of a CPU at most. */
#define PROGRAMS_KEEP_USEC (15 * USEC_PER_SEC)

/* To be called when a user other than root no longer needs programs. */
void manager_keep_programs(Manager *m) {
        sd_event_source *timer = NULL;
        uint64_t until = now_usec(CLOCK_MONOTONIC) + PROGRAMS_KEEP_USEC;

        if (sd_event_add_time(m->event, &timer, CLOCK_MONOTONIC, until, USEC_PER_SEC, on_programs_unused,
                              m) < 0)
                return;
        sd_event_source_disable_unref(m->programs.timer);
        m->programs.timer = timer;
        m->programs.keep_until = until;
}

/* ---- holds -------------------------------------------------------------------------------------------- */

/* Stops observing the unit and frees it. Its map is retained if ancestors sum it up. */
void unit_stop(Unit *u) {
        bool close = u->view && unit_find_ancestor(u);
        Manager *m = u->manager;

        u->refresh = service_manager_call_free(u->refresh);
        threshold_monitor_unit_detached(u);
        unit_end_export(u);
        if (u->view) {
                probe_unassign_path(m->probe, u->control_group);
                if (u->instances)
                        probe_unassign_path(m->probe, u->instances);
                unit_disown_socket_groups(u, NULL);
                (void) probe_set_addresses(m->probe, u->index, u->generation, NULL, 0);
                (void) probe_set_excludes(m->probe, u->index, u->generation, &(ExcludeList) {});
                probe_set_config(m->probe, u->index, u->generation, 0, 0);
        }

        unit_forget_history(m, u->index);
        m->units.slots[u->index] = NULL;
        m->units.n--;
        if (u->view)
                unit_release_cgroups(u);
        hierarchy_notify_relatives(u);
        if (close) {
                unit_retain(u);
                return;
        }

        if (u->view)
                /* with its contention map, which ancestors have already merged */
                probe_remove_unit(m->probe, u->index);
        unit_free(u);
        retained_gc(m);
        hierarchy_push_to_kernel(m, NULL);
}

/* To be called when the last hold was dropped: stops observing the unit, and frees it. */
void unit_detach(Unit *u) {
        Manager *m = u->manager;
        bool listened = u->n_listen > 0;

        threshold_monitor_unit_detached(u); /* while observers can still find the unit */
        manager_emit_unit_detaching(u);
        if (u->name[0] != '/')
                service_manager_unwatch(m->service_manager, u->name);

        log_unit_info(u->name, "No longer observing '%s'.", u->name);
        unit_stop(u);

        if (m->units.n == 0) {
                if (now_usec(CLOCK_MONOTONIC) >= m->programs.keep_until)
                        manager_stop_probe(m);
                m->readings.history.timer = sd_event_source_disable_unref(m->readings.history.timer);
        } else if (listened)
                manager_mark_listeners(m); /* the addresses may be unambiguous for another unit now */
        manager_update_probes(m, NULL);
}

/* ---- attaching ---------------------------------------------------------------------------------------- */

/* To be called with the new control group path of the unit. */
void unit_set_cgroup(Unit *u, const char *control_group) {
        if (u->view)
                probe_unassign_path(u->manager->probe, u->control_group);
        hierarchy_notify_relatives(u);
        if (unit_relocate(u, control_group, u->instances) < 0)
                (void) log_oom();
        hierarchy_notify_relatives(u);
}
