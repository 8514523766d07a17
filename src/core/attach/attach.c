/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "attach.h"
#include "cgroup.h"
#include "hierarchy.h"
#include "hold.h"
#include "log.h"
#include "manager.h"
#include "observe.h"
#include "observer.h"
#include "service-manager.h"
#include "threshold-monitor.h"
#include "unit-internal.h"
#include "unit-map.h"

/* ---- holds -------------------------------------------------------------------------------------------- */

static void hold_release(Hold *h) {
        Unit *u = h->unit;
        Manager *m = u->manager;

        if (h->uid != 0)
                manager_keep_programs(m);
        hold_free(h);
        if (!u->holds) {
                /* Saved before detaching: after a crash in between, the next run detaches the unit */
                manager_emit_state_changed(m);
                unit_detach(u);
                manager_emit_unit_detached(m);
        } else {
                unit_apply_excludes(u);
                manager_update_probes(m, NULL);
                manager_emit_unit_changed(u);
                manager_emit_state_changed(m);
        }
}

static int on_hold_expired(sd_event_source *source, uint64_t usec, void *userdata) {
        Hold *h = ASSERT_PTR(userdata);

        log_unit_info(h->unit->name, "Attachment of '%s' has expired.", h->unit->name);
        hold_release(h);
        return 0;
}

int unit_hold(Unit *u, const AttachRequest *request, uint64_t expires) {
        _cleanup_free_ char *owner = NULL;
        _cleanup_free_ Hold *new = NULL;
        sd_event_source *expiry = NULL;
        Hold *h;
        int r;

        h = unit_find_hold(u, request->type, request->lease_key, request->owner_uid);
        if (!h) {
                h = new = new0(Hold, 1);
                if (!h)
                        return -ENOMEM;
        }
        if (request->owner) {
                owner = strdup(request->owner);
                if (!owner)
                        return -ENOMEM;
        }
        if (expires != USEC_INFINITY) {
                r = sd_event_add_time(u->manager->event, &expiry, CLOCK_BOOTTIME, expires, USEC_PER_SEC,
                                      on_hold_expired, h);
                if (r < 0)
                        return r;
        }

        /* No failure from here on */
        if (new) {
                h->unit = u;
                h->type = request->type;
                h->owner_uid = request->owner_uid;
                h->lease_key = request->lease_key;
                h->next = u->holds;
                u->holds = TAKE_PTR(new);
        }
        if (h->uid != 0 && h->probes & ~request->probes)
                manager_keep_programs(u->manager);
        free(h->owner);
        h->owner = TAKE_PTR(owner);
        h->uid = request->uid;
        h->probes = request->probes;
        h->excludes = request->excludes;
        h->expires = expires;
        sd_event_source_disable_unref(h->expiry);
        h->expiry = expiry;

        u->probes = 0;
        for (Hold *i = u->holds; i; i = i->next)
                u->probes |= i->probes;
        return 0;
}

/* ---- attaching ---------------------------------------------------------------------------------------- */

/* Finds the attached unit by control group, or by name: the control group of an inactive unit may have
 * changed. */
static Unit* unit_find_attached(Manager *m, const UnitInfo *info) {
        Unit *moved = NULL;

        FOREACH_UNIT(u, m) {
                if (streq(u->control_group, info->control_group))
                        return u;
                if (info->id[0] != '/' && streq(u->name, info->id))
                        moved = u;
        }
        if (moved) {
                unit_set_cgroup(moved, info->control_group);
                unit_claim_cgroup(moved);
        }
        return moved;
}

/* Checks the limits of a user. u: NULL if the unit is not attached; retained: its retained unit, or NULL. */
static int attach_check_user(Manager *m, const AttachRequest *request, Unit *u, const Unit *retained,
                             QosError *e) {
        char limit[16];

        if (request->uid == 0 ||
            (u && unit_find_hold(u, request->type, request->lease_key, request->owner_uid)))
                return 0;
        if (request->type == HOLD_LEASE &&
            manager_count_leases(m, request->uid) >= m->config.leases_per_uid_max) {
                (void) snprintf(limit, sizeof(limit), "%u", m->config.leases_per_uid_max);
                return qos_error_set(e, QOS_ERROR_TOO_MANY_LEASES, limit,
                                     "user %u has %s leases, more are not allowed (LeasesPerUserMax=)",
                                     (unsigned) request->uid, limit);
        }
        if (!(retained && retained->last_uid == request->uid) &&
            manager_count_units(m, request->uid) >= m->config.units_per_uid_max) {
                (void) snprintf(limit, sizeof(limit), "%u", m->config.units_per_uid_max);
                return qos_error_set(e, QOS_ERROR_TOO_MANY_UNITS, limit,
                                     "user %u keeps %s units attached, more are not allowed "
                                     "(UnitsPerUserMax=)", (unsigned) request->uid, limit);
        }
        return 0;
}

/* Creates a unit in a free slot, or in that of its retained unit, if the limits permit. */
static int attach_new_unit(Manager *m, const AttachRequest *request, const UnitInfo *info,
                           const Unit *retained, Unit **ret, QosError *e) {
        unsigned max = request->uid == 0 ? m->config.units_max : limit_for_unprivileged(m->config.units_max),
                slot = UNITS_MAX_LIMIT, others = 0, retained_others = 0;
        char limit[16];

        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++) {
                if (!m->units.slots[i] && !m->hierarchy.retained[i])
                        slot = MIN(slot, i);
                others += m->units.slots[i] && !unit_is_held_by_root(m->units.slots[i]);
                retained_others += m->hierarchy.retained[i] && m->hierarchy.retained[i]->last_uid != 0;
        }
        if (retained)
                slot = retained->index;
        if (m->units.n >= m->config.units_max || (request->uid != 0 && others >= max)) {
                (void) snprintf(limit, sizeof(limit), "%u", max);
                return qos_error_set(e, QOS_ERROR_TOO_MANY_UNITS, limit,
                                     "%s units are attached, more are not allowed (UnitsMax=)", limit);
        }
        max = request->uid == 0 ? UNITS_MAX_LIMIT : limit_for_unprivileged(UNITS_MAX_LIMIT);
        if (slot >= UNITS_MAX_LIMIT || (request->uid != 0 && !retained && others + retained_others >= max)) {
                (void) snprintf(limit, sizeof(limit), "%u", max);
                return qos_error_set(e, QOS_ERROR_TOO_MANY_UNITS, limit,
                                     "%s units are attached, or were within some minutes in units that are, "
                                     "try again later", limit);
        }
        if (strlen(info->control_group) >= QOS_PATH_SIZE)
                return qos_error_set(e, QOS_ERROR_NO_CONTROL_GROUP, info->id,
                                     "the path of the control group of '%s' is longer than %u bytes",
                                     info->id, QOS_PATH_SIZE - 1);

        return unit_new(m, info, slot, ret);
}

int manager_attach_unit(Manager *m, const AttachRequest *request, const UnitInfo *info, Unit **ret,
                        QosError *e) {
        uint64_t now, expires = USEC_INFINITY;
        bool is_new = false;
        Unit *u, *retained;
        ExcludeList excludes;
        int r;

        u = unit_find_attached(m, info);
        retained = retained_find(m, info->control_group);
        r = attach_check_user(m, request, u, retained, e);
        if (r < 0)
                return r;

        if (unit_get_excludes(u, request, &excludes) < 0) {
                char limit[16];

                (void) snprintf(limit, sizeof(limit), "%u", EXCLUDES_MAX);
                return qos_error_set(e, QOS_ERROR_TOO_MANY_EXCLUDES, limit,
                                     "'%s' would have more than %s exclusions, of all its holds together",
                                     info->id, limit);
        }

        if (request->type == HOLD_ADMINISTRATOR && request->duration_usec != USEC_INFINITY) {
                now = now_usec(CLOCK_BOOTTIME);
                expires = request->duration_usec < USEC_INFINITY - now ? now + request->duration_usec :
                          USEC_INFINITY;
        }

        if (!u) {
                r = attach_new_unit(m, request, info, retained, &u, e);
                if (r < 0)
                        return r;
                is_new = true;
        }

        r = unit_hold(u, request, expires);
        if (r < 0) {
                if (is_new) {
                        m->units.slots[u->index] = NULL;
                        m->units.n--;
                        unit_free(u);
                }
                return r;
        }

        /* For unit files and the configuration, programs are loaded synchronously, so that the first
         * requests are counted, unless they are already being loaded for a client. Clients get their reply
         * later, and may attach repeatedly: programs are loaded in the background, so that other clients are
         * served meanwhile */
        if (request->type == HOLD_FILE || request->type == HOLD_CONFIGURATION)
                manager_start_probe(m);
        else
                manager_begin_start_probe(m);
        if (is_new) {
                unit_start(u);
                manager_update_probes(m, NULL);
                if (info->id[0] != '/') {
                        r = service_manager_watch(m->service_manager, u->name);
                        if (r < 0)
                                log_unit_warning_errno(u->name, r,
                                                       "Failed to subscribe to '%s', state changes "
                                                       "will be detected late: %m", u->name);
                }
                log_unit_info(u->name, "Observing '%s' (%s).", u->name, u->active_state);
                manager_emit_unit_attached(u);
                hierarchy_notify_relatives(u);
        } else {
                unit_apply_excludes(u);
                manager_update_probes(m, NULL);
                manager_emit_unit_changed(u);
        }

        manager_emit_state_changed(m);
        *ret = u;
        return 0;
}

int manager_detach(Manager *m, const char *name, void *lease_key, uid_t owner_uid, QosError *e) {
        Hold *h = NULL;
        Unit *u;

        u = manager_get_unit(m, name, e);
        if (!u)
                return e && e->code == QOS_ERROR_INVALID_UNIT_NAME ? -EINVAL : -ENXIO;

        for (Hold *i = u->holds, *next; i; i = next) {
                next = i->next;
                if (!hold_is(i, lease_key ? HOLD_LEASE : HOLD_ADMINISTRATOR, lease_key,
                             owner_uid == 0 ? i->owner_uid : owner_uid))
                        continue;
                if (h)
                        hold_free(h);
                h = i;
        }
        if (!h) {
                const Hold *file = unit_find_file_hold(u),
                        *configured = unit_find_hold(u, HOLD_CONFIGURATION, NULL, 0);

                if (file)
                        return qos_error_set(e, QOS_ERROR_NOT_ATTACHED, u->name,
                                             "'%s' is attached by its unit file '%s'", u->name,
                                             strempty(file->owner));
                if (configured)
                        return qos_error_set(e, QOS_ERROR_NOT_ATTACHED, u->name,
                                             "'%s' is attached by Observe=auto in '%s', from which "
                                             "Observe=no in [X-QoS] of its unit file excludes it", u->name,
                                             strempty(configured->owner));
                return qos_error_set(e, QOS_ERROR_NOT_ATTACHED, u->name,
                                     "'%s' is attached, but by others only", u->name);
        }

        hold_release(h);
        return 0;
}

void unit_drop_file_settings(Unit *u) {
        Hold *h = unit_find_hold(u, HOLD_FILE, NULL, 0);

        threshold_monitor_forget_files(u);
        if (h && !h->seen)
                hold_release(h);
}

void unit_drop_configured_hold(Unit *u) {
        Hold *h = unit_find_hold(u, HOLD_CONFIGURATION, NULL, 0);

        if (h)
                hold_release(h);
}

void manager_release_lease(Manager *m, void *lease_key) {
        threshold_monitor_release(m, lease_key);
        FOREACH_UNIT(u, m) {
                Hold *h = unit_find_hold(u, HOLD_LEASE, lease_key, 0);

                if (h)
                        hold_release(h);
        }
}

bool manager_probes_are_restricted(Manager *m, ProbeMask probes, QosError *e) {
        const char *name = NULL;

        probes = (probes ?: m->config.default_probes) & PROBES_MACHINE_WIDE;
        if (probes == 0)
                return false;
        for (unsigned i = 0; !name; i++)
                if (probes & probe_mask_from_name(probe_mask_name(i)))
                        name = probe_mask_name(i);
        (void) qos_error_set(e, QOS_ERROR_PROBE_NOT_PERMITTED, name,
                             "the probe '%s' slows down every process of the machine and needs "
                             "authorization (org.qosd1.%s), also from the owner of the control group",
                             name, probes & PROBES_CUSTOM ? "probe" : "attach");
        return true;
}

bool manager_probes_are_custom(const Manager *m, ProbeMask probes) {
        return (probes ?: m->config.default_probes) & PROBES_CUSTOM;
}
