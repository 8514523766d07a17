/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Setting and clearing thresholds. */

#include <math.h>

#include "objective.h"
#include "threshold-internal.h"

/* ---- setting and clearing ----------------------------------------------------------------------------- */

/* Removes a threshold, and reports a final state "unknown", without which clients would act on the last
 * state indefinitely. */
static void threshold_remove(Threshold *t) {
        ThresholdState previous = t->machine.state;

        if (t->source != THRESHOLD_SOURCE_CONDITION &&
                        (previous != THRESHOLD_UNKNOWN || previous != t->reported)) {
                t->machine.state = THRESHOLD_UNKNOWN;
                t->since = now_nsec(CLOCK_REALTIME);
                t->value = NAN;
                t->samples = ABSENT;
                (void) threshold_notify_if_changed(t, previous, now_nsec(CLOCK_MONOTONIC), NULL);
                threshold_monitor_end_round(t->unit->manager->thresholds);
        }
        threshold_free(t);
}

static Threshold* unit_find_threshold(const Unit *u, const char *name) {
        for (Threshold *t = threshold_next(u, NULL); t; t = threshold_next(u, t))
                if (streq(t->rule.name, name))
                        return t;
        return NULL;
}

int threshold_new(Unit *u, const ThresholdRule *rule, const ThresholdRequest *request, Threshold **ret) {
        uint64_t period = threshold_rule_get_period(rule);
        Threshold **p = &u->thresholds, *t;
        double target;
        bool objective = request->source != THRESHOLD_SOURCE_CONDITION &&
                threshold_rule_is_objective(rule, &target);

        t = new0(Threshold, 1);
        if (!t)
                return -ENOMEM;
        while (*p && (*p)->period < period)
                p = &(*p)->next;
        *t = (Threshold) {
                .unit = u,
                .next = *p,
                .period = period,
                .rule = *rule,
                .source = request->source,
                .uid = request->uid,
                .owner_uid = request->owner_uid,
                .lease_key = request->lease_key,
                .origin = request->origin ? strdup(request->origin) : NULL,
                .handler = request->handler,
                .userdata = request->userdata,
                .since = now_nsec(CLOCK_REALTIME),
                .value = NAN,
                .samples = ABSENT,
        };
        if (objective)
                t->history = new0(ObjectiveHistory, 1);
        if ((request->origin && !t->origin) || (objective && !t->history)) {
                free(t->history);
                free(t->origin);
                free(t);
                return -ENOMEM;
        }
        *p = t;
        u->threshold_monitor_slow_at = 0;
        *ret = t;
        return 0;
}

static bool rule_equal(const ThresholdRule *a, const ThresholdRule *b) {
        return streq(a->name, b->name) && a->metric == b->metric && streq(a->selector, b->selector) &&
               a->below == b->below && a->inclusive == b->inclusive && a->good == b->good &&
                !(a->limit < b->limit) && !(a->limit > b->limit) &&
                !(a->clear < b->clear) && !(a->clear > b->clear) && a->window_nsec == b->window_nsec &&
                a->enter_nsec == b->enter_nsec && a->leave_nsec == b->leave_nsec &&
                a->stay_nsec == b->stay_nsec;
}

static int too_many(unsigned max, const char *owner, QosError *e) {
        char limit[16];

        (void) snprintf(limit, sizeof(limit), "%u", max);
        return qos_error_set(e, QOS_ERROR_TOO_MANY_THRESHOLDS, limit,
                             "%s %s thresholds, more are not allowed", owner, limit);
}

static int threshold_check_limits(const Unit *u, uid_t uid, QosError *e) {
        unsigned all = 0, of_unit = 0, of_uid = 0, of_others = 0;
        Manager *m = u->manager;

        FOREACH_UNIT(other, m)
                for (Threshold *t = other->thresholds; t; t = t->next) {
                        all++;
                        if (t->unit == u && t->source != THRESHOLD_SOURCE_CONDITION)
                                of_unit++;
                        if (t->uid == uid)
                                of_uid++;
                        if (t->uid != 0)
                                of_others++;
                }
        if (of_unit >= THRESHOLDS_PER_UNIT_MAX)
                return too_many(THRESHOLDS_PER_UNIT_MAX, "the unit has", e);
        if (uid != 0 && of_uid >= THRESHOLDS_PER_UID_MAX)
                return too_many(THRESHOLDS_PER_UID_MAX, "the user has", e);
        if (uid != 0 && of_others >= limit_for_unprivileged(THRESHOLDS_MAX))
                return too_many(limit_for_unprivileged(THRESHOLDS_MAX), "there are", e);
        if (all >= THRESHOLDS_MAX)
                return too_many(THRESHOLDS_MAX, "there are", e);
        return 0;
}

/* Owners of the control group must not change thresholds of the administrator. */
static bool threshold_is_for(const Threshold *t, uid_t owner_uid) {
        return owner_uid == 0 || t->owner_uid == owner_uid;
}

int threshold_set(Manager *m, const ThresholdRequest *request, Threshold **ret, QosError *e) {
        Threshold *t = NULL, *old;
        ThresholdRule rule;
        Unit *u;
        int r;

        r = request->source == THRESHOLD_SOURCE_CONDITION ?
            threshold_rule_parse_condition(request->threshold, m->config.default_window_nsec, &rule, e) :
            threshold_rule_parse(request->threshold, m->config.default_window_nsec, &rule, e);
        if (r < 0)
                return r;
        u = manager_get_unit(m, request->unit, e);
        if (!u)
                return e && e->code == QOS_ERROR_INVALID_UNIT_NAME ? -EINVAL : -ENXIO;

        if (request->source != THRESHOLD_SOURCE_CONDITION)
                t = unit_find_threshold(u, rule.name);
        if (t && (t->source != request->source || t->lease_key != request->lease_key ||
                  !threshold_is_for(t, request->owner_uid)))
                return qos_error_set(e, QOS_ERROR_THRESHOLD_EXISTS, rule.name,
                                     "'%s' has a threshold '%s' already, %s%s", u->name, rule.name,
                                     t->source == THRESHOLD_SOURCE_FILE ? "from " :
                                     t->source == THRESHOLD_SOURCE_LEASE ?
                                     "for as long as another client is connected" :
                                     "set by the administrator",
                                     strempty(t->origin));
        if (t && rule_equal(&t->rule, &rule)) {
                /* An unchanged threshold keeps its state */
                t->seen = true;
                (void) free_and_strdup(&t->origin, request->origin);
                if (ret)
                        *ret = t;
                return 0;
        }

        if (!t) {
                r = threshold_check_limits(u, request->uid, e);
                if (r < 0)
                        return r;
        }
        old = t;
        r = threshold_new(u, &rule, request, &t);
        if (r < 0)
                return r;
        if (old)
                threshold_remove(old);
        t->seen = true;
        objective_begin(t);

        if (request->source != THRESHOLD_SOURCE_CONDITION) {
                manager_emit_unit_changed(u);
                manager_emit_state_changed(m);
        }
        monitor_arm_timer(m, true);
        if (ret)
                *ret = t;
        return 0;
}

int threshold_clear(Manager *m, const char *unit, const char *name, void *lease_key, uid_t owner_uid,
                    QosError *e) {
        Threshold *t;
        Unit *u;

        u = manager_get_unit(m, unit, e);
        if (!u)
                return e && e->code == QOS_ERROR_INVALID_UNIT_NAME ? -EINVAL : -ENXIO;
        t = unit_find_threshold(u, name);
        if (!t)
                return qos_error_set(e, QOS_ERROR_NO_SUCH_THRESHOLD, name, "'%s' has no threshold '%s'",
                                     u->name, excerpt(name, (char[EXCERPT_MAX + 1]) {}));
        if (t->source == THRESHOLD_SOURCE_FILE)
                return qos_error_set(e, QOS_ERROR_THRESHOLD_EXISTS, name,
                                     "'%s' of '%s' is set in %s, it can only be removed there", name,
                                     u->name, strempty(t->origin));
        if (t->lease_key != lease_key || !threshold_is_for(t, owner_uid))
                return qos_error_set(e, QOS_ERROR_THRESHOLD_EXISTS, name,
                                     "'%s' of '%s' is owned by another client", name, u->name);

        threshold_remove(t);
        manager_emit_unit_changed(u);
        manager_emit_state_changed(m);
        monitor_arm_timer(m, false);
        return 0;
}

void threshold_monitor_forget_files(Unit *u) {
        Manager *m = u->manager;
        bool any = false;

        for (Threshold *t = u->thresholds, *next; t; t = next) {
                next = t->next;
                if (t->source != THRESHOLD_SOURCE_FILE || t->seen)
                        continue;
                any = true;
                threshold_remove(t);
        }
        if (!any)
                return;
        manager_emit_unit_changed(u);
        manager_emit_state_changed(m);
        monitor_arm_timer(m, false);
}

void threshold_monitor_release(Manager *m, const void *lease_key) {
        bool any = false;

        FOREACH_UNIT(u, m) {
                bool changed = false;

                for (Threshold *t = u->thresholds, *next; t; t = next) {
                        next = t->next;
                        if (!lease_key || t->lease_key != lease_key)
                                continue;
                        changed = changed || t->source != THRESHOLD_SOURCE_CONDITION;
                        any = true;
                        threshold_remove(t);
                }
                if (changed)
                        manager_emit_unit_changed(u);
        }
        if (!any)
                return;
        threshold_monitor_save(m->thresholds);
        monitor_arm_timer(m, false);
}

bool threshold_monitor_have_lease(const Manager *m, const void *lease_key) {
        FOREACH_UNIT(u, m)
                for (Threshold *t = u->thresholds; t; t = t->next)
                        if (t->lease_key == lease_key)
                                return true;
        return false;
}

void threshold_monitor_unit_detached(Unit *u) {
        Manager *m = u->manager;

        while (u->thresholds) {
                Threshold *t = u->thresholds;

                if (t->source == THRESHOLD_SOURCE_CONDITION) {
                        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;

                        (void) qos_error_set(&e, QOS_ERROR_NOT_ATTACHED, u->name,
                                             "'%s' is no longer attached", u->name);
                        t->handler(t, &e, t->userdata);
                }
                threshold_remove(t);
        }
        monitor_arm_timer(m, false);
}
