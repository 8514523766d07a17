/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Evaluation of thresholds. */

#include <math.h>
#include <sys/stat.h>

#include "objective.h"
#include "threshold-internal.h"
#include "threshold-monitor.h"
#include "window.h"

/* ---- evaluation --------------------------------------------------------------------------------------- */

/* Returns true if an event was emitted, whose handlers may have changed the unit's thresholds. */
static bool threshold_evaluate(Threshold *t, const ThresholdSample *sample) {
        ThresholdState previous = t->machine.state;

        t->next_evaluation = (sample->now / t->period + 1) * t->period;
        t->value = unit_get_threshold_value(t->unit, sample, &t->rule, &t->samples);
        if (!(isnan(t->value) && threshold_sample_is_hidden(t->unit, sample, &t->rule) &&
              threshold_machine_hold(&t->machine, sample->now)) &&
            threshold_machine_step(&t->rule, &t->machine, sample->now, t->value))
                t->since = sample->timestamp;
        if (t->source != THRESHOLD_SOURCE_CONDITION && t->machine.state == THRESHOLD_VIOLATED)
                unit_note_violation(t->unit,
                                    sample->now - MIN(sample->now,
                                                      t->rule.window_nsec + t->rule.enter_nsec),
                                    t->next_evaluation);
        if (t->source != THRESHOLD_SOURCE_CONDITION)
                return threshold_notify_if_changed(t, previous, sample->now, sample);
        if (t->machine.state == previous)
                return false;
        if (t->machine.state == THRESHOLD_VIOLATED) {
                t->handler(t, NULL, t->userdata);
                threshold_free(t);
        }
        return true;
}

/* First due threshold with at most this period. The list is sorted by period. */
static Threshold* unit_find_due(const Unit *u, uint64_t now, uint64_t period) {
        Threshold *t = u->thresholds;

        while (t && t->period <= period && now < t->next_evaluation)
                t = t->next;
        return t && t->period <= period ? t : NULL;
}

/* Evaluates all due thresholds, with one reading per distinct window. Returns true if events were
 * emitted. */
static bool unit_evaluate_thresholds(Unit *u, uint64_t now, uint64_t period) {
        bool news = false;

        for (;;) {
                Threshold *due = unit_find_due(u, now, period);
                ThresholdSample sample;
                unsigned n = 0;
                uint64_t cpu;

                if (!due)
                        return news;
                threshold_sample_init(&sample, due->rule.window_nsec);
                for (Threshold *t = due; t && t->period <= period; t = t->next)
                        if (t->rule.window_nsec == sample.window && now >= t->next_evaluation) {
                                threshold_sample_require(&sample, &t->rule);
                                n++;
                        }
                cpu = now_nsec(CLOCK_THREAD_CPUTIME_ID);
                threshold_sample_read(u, now, &sample);
                for (Threshold *t = due; t && t->period <= period; t = t->next)
                        objective_record(t, now);
                cpu = now_nsec(CLOCK_THREAD_CPUTIME_ID) - cpu;
                /* Charged to users, but never delayed, as evaluations have deadlines */
                for (Threshold *t = due; t && t->period <= period; t = t->next)
                        if (t->rule.window_nsec == sample.window && now >= t->next_evaluation)
                                turn_queue_charge(u->manager->turns, t->uid, cpu / MAX(n, 1U));
                for (Threshold *t = due; t && t->period <= period; t = t->next)
                        if (t->rule.window_nsec == sample.window && now >= t->next_evaluation &&
                                        threshold_evaluate(t, &sample)) {
                                news = true;
                                break;
                        }
        }
}

/* Arms the timer for the next multiple of the shortest period; disarms it if there are no thresholds. */
void monitor_arm_timer(Manager *m, bool at_once) {
        uint64_t period = 0, now = now_nsec(CLOCK_MONOTONIC);
        ThresholdMonitor *thresholds = m->thresholds;

        FOREACH_UNIT(u, m)
                if (u->thresholds)
                        period = MIN(period - 1, u->thresholds->period - 1) + 1; /* 0: none yet */
        if (period == 0) {
                (void) sd_event_source_set_enabled(thresholds->timer, SD_EVENT_OFF);
                return;
        }
        (void) sd_event_source_set_time(thresholds->timer,
                                        at_once ? 0 : (now / period + 1) * period / NSEC_PER_USEC);
        (void) sd_event_source_set_enabled(thresholds->timer, SD_EVENT_ONESHOT);
}

void threshold_monitor_save(ThresholdMonitor *thresholds) {
        if (!thresholds->saving)
                return;
        thresholds->saving = false;
        manager_emit_state_changed(thresholds->manager);
}

static int on_threshold_timer(sd_event_source *source, uint64_t usec, void *userdata) {
        uint64_t now = now_nsec(CLOCK_MONOTONIC);
        ThresholdMonitor *thresholds = ASSERT_PTR(userdata);
        Manager *m = thresholds->manager;

        /* Short periods of all units first: readings of longer windows take ten times as long */
        for (int slow = 0; slow < 2; slow++)
                FOREACH_UNIT(u, m) {
                        if (!u->thresholds || (slow && now < u->threshold_monitor_slow_at))
                                continue;
                        if (slow)
                                u->threshold_monitor_slow_at = (now / THRESHOLD_PERIOD_MAX_NSEC + 1) *
                                        THRESHOLD_PERIOD_MAX_NSEC;
                        if (!unit_evaluate_thresholds(u, now, slow ? THRESHOLD_PERIOD_MAX_NSEC :
                                                      THRESHOLD_PERIOD_MIN_NSEC))
                                continue;
                        /* Send events before other units are evaluated */
                        manager_emit_unit_evaluated(u);
                        /* Process events before the ring wraps */
                        if (thresholds->seq - thresholds->ended > THRESHOLD_EVENTS_MAX -
                            THRESHOLDS_PER_UNIT_MAX)
                                threshold_monitor_end_round(thresholds);
                }
        threshold_monitor_end_round(thresholds);
        threshold_monitor_save(thresholds);
        monitor_arm_timer(m, false);
        return 0;
}

/* ---- monitor ------------------------------------------------------------------------------------------ */

int threshold_monitor_new(Manager *m, ThresholdMonitor **ret) {
        const char *directories;
        ThresholdMonitor *thresholds;
        int r;

        thresholds = new0(ThresholdMonitor, 1);
        if (!thresholds)
                return -ENOMEM;
        thresholds->manager = m;
        /* Used without saved state: greater than any number of a previous run, as there are fewer events
         * than microseconds */
        thresholds->seq = thresholds->seq_begin = now_nsec(CLOCK_REALTIME) / NSEC_PER_USEC;
        thresholds->ended = thresholds->seq;

        r = sd_event_add_time(m->event, &thresholds->timer, CLOCK_MONOTONIC, 0, USEC_PER_MSEC,
                              on_threshold_timer, thresholds);
        /* Above the priority of clients, which could otherwise delay evaluations so much that durations
         * never elapse */
        if (r >= 0)
                r = sd_event_source_set_priority(thresholds->timer, SD_EVENT_PRIORITY_IMPORTANT);
        if (r >= 0)
                r = sd_event_source_set_enabled(thresholds->timer, SD_EVENT_OFF);

        /* Second directory of RuntimeDirectory= */
        directories = getenv("RUNTIME_DIRECTORY");
        directories = directories ? strchr(directories, ':') : NULL;
        if (r >= 0 && directories) {
                thresholds->directory = strdup(directories + 1);
                if (!thresholds->directory)
                        r = -ENOMEM;
                else
                        (void) chmod(thresholds->directory, 0755);
        }
        if (r < 0) {
                threshold_monitor_free(thresholds);
                return r;
        }

        *ret = thresholds;
        return 0;
}

/* Flag files remain for the next run; the service manager removes their directory when the service is
 * stopped. */
ThresholdMonitor* threshold_monitor_free(ThresholdMonitor *thresholds) {
        if (!thresholds)
                return NULL;

        sd_event_source_disable_unref(thresholds->timer);
        for (size_t i = 0; i < THRESHOLD_EVENTS_MAX; i++)
                free(thresholds->events[i].unit);
        while (thresholds->rate_limits) {
                UserRateLimit *limit = thresholds->rate_limits;

                thresholds->rate_limits = limit->next;
                free(limit);
        }
        free(thresholds->directory);
        free(thresholds);
        return NULL;
}
