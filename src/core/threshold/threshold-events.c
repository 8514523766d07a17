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

/* Rate limit of a user; NULL: out of memory. Frees those of inactive users without suppressed events. */
static UserRateLimit* monitor_get_rate_limit(ThresholdMonitor *thresholds, uid_t uid, uint64_t now) {
        UserRateLimit *limit;

        for (UserRateLimit **p = &thresholds->rate_limits; (limit = *p); ) {
                if (limit->uid == uid)
                        break;
                if (limit->suppressed == 0 && now >= limit->since + CROSSINGS_NSEC) {
                        *p = limit->next;
                        free(limit);
                } else
                        p = &limit->next;
        }
        if (!limit) {
                limit = new0(UserRateLimit, 1);
                if (!limit)
                        return NULL;
                limit->uid = uid;
                limit->next = thresholds->rate_limits;
                thresholds->rate_limits = limit;
        }
        if (now >= limit->since + CROSSINGS_NSEC) {
                limit->since = now;
                limit->n = 0;
        }
        return limit;
}

/* Emits a state change. sample: sample; NULL: none. */
static void threshold_notify(Threshold *t, uint64_t suppressed, const ThresholdSample *sample) {
        Manager *m = t->unit->manager;
        ThresholdMonitor *thresholds = m->thresholds;
        ThresholdEvent *e = thresholds->events + (thresholds->seq + 1) % THRESHOLD_EVENTS_MAX;
        char *unit;

        thresholds->seq++;
        unit = strdup(t->unit->name);
        if (!unit)
                (void) log_oom(); /* the event is lost, and counted by threshold_monitor_count_missed() */
        free(e->unit);
        *e = (ThresholdEvent) {
                .seq = thresholds->seq,
                .timestamp = t->since,
                .unit = unit,
                .rule = t->rule,
                .state = t->machine.state,
                .previous = t->reported,
                .value = t->value,
                .samples = t->samples,
                .suppressed = suppressed,
        };
        t->reported = t->machine.state;
        thresholds->saving = true;
        if (sample)
                e->n_shares = unit_get_state_share_changes(t->unit, sample->now, sample->window, e->shares);
        if (!unit)
                return;
        manager_emit_threshold_event(t->unit, e);
}

/* Emits an event if the state differs from the one last reported, and the rate limit permits. Returns true
 * if it did. */
bool threshold_notify_if_changed(Threshold *t, ThresholdState previous, uint64_t now,
                                 const ThresholdSample *sample) {
        bool changed = t->machine.state != previous, waited = previous != t->reported,
                news = t->machine.state != t->reported;
        ThresholdMonitor *thresholds = t->unit->manager->thresholds;
        uint64_t suppressed = 0;

        if (changed)
                threshold_update_flag(t, t->machine.state == THRESHOLD_VIOLATED);
        else if (!news)
                return false;

        if (t->uid != 0) {
                UserRateLimit *limit = monitor_get_rate_limit(thresholds, t->uid, now);

                if (!limit && sample)
                        return false;
                /* The state pending before is superseded, and so is a return to the state last reported */
                if (limit && changed && waited)
                        limit->suppressed += 1 + !news;
                /* The final state is always reported: there is no later opportunity, and at most one per
                 * event before */
                if (!news || (sample && limit->n >= CROSSINGS_PER_UID_MAX))
                        return false;
                if (limit) {
                        limit->n++;
                        suppressed = limit->suppressed;
                        limit->suppressed = 0;
                }
        }
        threshold_notify(t, suppressed, sample);
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

/* NULL: overwritten, lost, or of a previous run. */
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

/* To be called after a round of evaluations. */
void threshold_monitor_end_round(ThresholdMonitor *thresholds) {
        if (thresholds->ended == thresholds->seq)
                return;
        thresholds->ended = thresholds->seq;
        manager_emit_round_end(thresholds->manager);
}
