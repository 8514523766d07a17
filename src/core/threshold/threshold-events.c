/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Events and rate limits. */

#include "log.h"
#include "threshold-internal.h"

const char* state_share_name(const ShareChange *c) {
        for (const Metric *m = metric_table; m < metric_table + metric_table_size; m++)
                if (m->offset == offsetof(Metrics, contention.shares[c->state]))
                        return m->name + strlen("contention.shares.");
        abort();
}

/* Entries of inactive users without suppressed events are freed. NULL: -ENOMEM. */
static UserRateLimit* monitor_get_rate_limit(ThresholdMonitor *thresholds, uid_t uid, uint64_t now) {
        UserRateLimit *t;

        for (UserRateLimit **p = &thresholds->rate_limits; (t = *p); ) {
                if (t->uid == uid)
                        break;
                if (t->suppressed == 0 && now >= t->since + CROSSINGS_NSEC) {
                        *p = t->next;
                        free(t);
                } else
                        p = &t->next;
        }
        if (!t) {
                t = new0(UserRateLimit, 1);
                if (!t)
                        return NULL;
                t->uid = uid;
                t->next = thresholds->rate_limits;
                thresholds->rate_limits = t;
        }
        if (now >= t->since + CROSSINGS_NSEC) {
                t->since = now;
                t->n = 0;
        }
        return t;
}

/* Emits a state change. l: sample; NULL: none. */
static void threshold_notify(Threshold *a, uint64_t suppressed, const ThresholdSample *l) {
        Manager *m = a->unit->manager;
        ThresholdMonitor *thresholds = m->thresholds;
        ThresholdEvent *e = thresholds->events + (thresholds->seq + 1) % THRESHOLD_EVENTS_MAX;
        char *unit;

        thresholds->seq++;
        unit = strdup(a->unit->name);
        if (!unit)
                (void) log_oom(); /* the event is lost, which threshold_monitor_foreach_event() reports */
        free(e->unit);
        *e = (ThresholdEvent) {
                .seq = thresholds->seq,
                .timestamp = a->since,
                .unit = unit,
                .rule = a->rule,
                .state = a->machine.state,
                .previous = a->reported,
                .value = a->value,
                .samples = a->samples,
                .suppressed = suppressed,
        };
        a->reported = a->machine.state;
        thresholds->saving = true;
        if (l)
                e->n_shares = unit_get_state_share_changes(a->unit, l->now, l->window, e->shares);
        if (!unit)
                return;
        manager_emit_threshold_event(a->unit, e);
}

/* Emits an event if the state differs from the one last reported, and the rate limit permits. Returns true
 * if it did. */
bool threshold_notify_if_changed(Threshold *a, ThresholdState previous, uint64_t now,
                                 const ThresholdSample *l) {
        bool changed = a->machine.state != previous, waited = previous != a->reported,
                news = a->machine.state != a->reported;
        ThresholdMonitor *thresholds = a->unit->manager->thresholds;
        uint64_t suppressed = 0;

        if (changed)
                threshold_update_flag(a, a->machine.state == THRESHOLD_VIOLATED);
        else if (!news)
                return false;

        if (a->uid != 0) {
                UserRateLimit *t = monitor_get_rate_limit(thresholds, a->uid, now);

                if (!t && l)
                        return false;
                /* The state pending before is superseded, and so is a return to the state last reported */
                if (t && changed && waited)
                        t->suppressed += 1 + !news;
                /* The final state is always reported: there is no later opportunity, and at most one per
                 * event before */
                if (!news || (l && t->n >= CROSSINGS_PER_UID_MAX))
                        return false;
                if (t) {
                        t->n++;
                        suppressed = t->suppressed;
                        t->suppressed = 0;
                }
        }
        threshold_notify(a, suppressed, l);
        return true;
}

uint64_t threshold_monitor_get_seq(const Manager *m) {
        return m->thresholds->seq;
}

uint64_t threshold_monitor_get_seq_begin(const Manager *m) {
        return m->thresholds->seq_begin;
}

void threshold_monitor_set_seq(Manager *m, uint64_t seq, uint64_t begin) {
        m->thresholds->seq = seq;
        m->thresholds->seq_begin = MIN(begin, seq);
        m->thresholds->ended = seq;
}

/* NULL: overwritten, or of a previous run. */
static const ThresholdEvent* threshold_monitor_get_event(const ThresholdMonitor *thresholds, uint64_t seq) {
        const ThresholdEvent *e = thresholds->events + seq % THRESHOLD_EVENTS_MAX;

        return e->seq == seq && e->unit ? e : NULL;
}

uint64_t threshold_monitor_count_missed(const Manager *m, uint64_t since) {
        const ThresholdMonitor *thresholds = m->thresholds;
        uint64_t n = thresholds->seq - since, lost = n - MIN(n, (uint64_t) THRESHOLD_EVENTS_MAX);

        for (uint64_t seq = since + lost + 1; seq <= thresholds->seq; seq++)
                if (!threshold_monitor_get_event(thresholds, seq))
                        lost++;
        return lost;
}

int threshold_monitor_foreach_event(Manager *m, uint64_t since,
                                    int (*f)(const ThresholdEvent *e, void *userdata), void *userdata) {
        const ThresholdMonitor *thresholds = m->thresholds;
        uint64_t n = MIN(thresholds->seq - since, (uint64_t) THRESHOLD_EVENTS_MAX);

        for (uint64_t seq = thresholds->seq - n + 1; seq <= thresholds->seq; seq++) {
                const ThresholdEvent *e = threshold_monitor_get_event(thresholds, seq);
                int r = e ? f(e, userdata) : 0;

                if (r < 0)
                        return r;
        }
        return 0;
}

/* To be called after a round of evaluations, for observers with slow operations. */
void threshold_monitor_end_round(ThresholdMonitor *thresholds) {
        if (thresholds->ended == thresholds->seq)
                return;
        thresholds->ended = thresholds->seq;
        manager_emit_round_end(thresholds->manager);
}
