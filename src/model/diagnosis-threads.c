/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Rules for units without known service times: without requests, with requests over UDP, or with requests
 * that are stuck. */

#include <math.h>

#include "diagnosis-internal.h"
#include "state-label.h"
#include "util.h"

/* Minimum average number of waiting threads, in units without requests. Background work of a daemon is less,
 * and a thread that shares its CPU with another one of the same weight waits for about half of the time.
 * With several causes, each has to be at least half of that. */
#define THREADS_WAITING_MIN 0.45
#define THREADS_WAITING_PART (THREADS_WAITING_MIN / 2)

void diagnose_slow_peers(const DiagnosisEvidence *e, Diagnosis *d) {
        const DiagnosisFigures *f = &e->now;
        double time = f->client_rate / f->rate * f->client_latency, share = time / f->first_byte;

        if (isnan(share) || diagnosis_has(d, FINDING_DEPENDENCY))
                return;
        if (share < SHARE_MIN || time < WAIT_MIN_NSEC) {
                diagnosis_exclude(d, FINDING_DEPENDENCY, share, "%s: %s of each request (%s)%s",
                                  wait_labels[FINDING_DEPENDENCY], SPAN(time), PERCENT(share),
                                  LIMIT(share, SHARE_MIN, time, WAIT_MIN_NSEC));
                return;
        }
        finding_name(diagnosis_add(d, &(FindingCause) {
                        .kind = FINDING_DEPENDENCY,
                        .certainty = share >= SHARE_MOST ? CERTAINTY_LIKELY : CERTAINTY_POSSIBLE,
                        .share = MIN(share, 1.0), .time = MIN(time, f->first_byte),
                        .rule = part_table[PART_PEERS].rule,
                }, "%s: %s of the %s to the first byte (%s)", wait_labels[FINDING_DEPENDENCY],
                SPAN(MIN(time, f->first_byte)), SPAN(f->first_byte), PERCENT(MIN(share, 1.0))), e);
}

/* Whether idle processes wait for a lock around accept(), whose holder waits for a connection: no request is
 * in flight, and the accept queue is empty. */
static bool lock_is_of_idle(const DiagnosisEvidence *e, double busy) {
        const DiagnosisFigures *f = &e->now;

        return e->accept_queue_max > 0 && !(e->accept_queue > 0) && !(f->in_flight > 0) &&
                busy - f->threads[QOS_STATE_LOCK] < THREADS_MIN;
}

void diagnose_threads(const DiagnosisEvidence *e, bool stuck, Diagnosis *d) {
        const DiagnosisFigures *f = &e->now;
        double busy = 0, waiting;

        for (Part p = 0; p < PART_PEERS; p++)
                busy += f->threads[part_table[p].state] > 0 ? f->threads[part_table[p].state] : 0;
        waiting = busy - (f->threads[QOS_STATE_RUNNING] > 0 ? f->threads[QOS_STATE_RUNNING] : 0);

        for (Part p = PART_RUN_QUEUE; p < PART_PEERS; p++) {
                enum qos_state state = part_table[p].state;
                FindingKind kind = part_table[p].kind;
                const DiagnosisNamed *lock = NULL;
                double n = f->threads[state], share = n / busy;
                Finding *finding;

                if (isnan(n))
                        continue;
                if (!stuck && p == PART_LOCK && n >= THREADS_WAITING_MIN && lock_is_of_idle(e, busy)) {
                        diagnosis_exclude(d, kind, NAN,
                                          "%s: %.2f threads on average, while no request is in flight and "
                                          "no thread works: idle processes take turns at accept()",
                                          wait_labels[kind], n);
                        continue;
                }
                if (n < (stuck ? THREADS_WAITING_MIN : THREADS_WAITING_PART) ||
                    waiting < THREADS_WAITING_MIN || share < (stuck ? SHARE_MOST : SHARE_MIN) ||
                    part_is_own(e, p) || part_is_waking(e, p)) {
                        /* Share relative to the limit if there are hardly any waits */
                        if (!stuck && n > 0 && waiting < THREADS_WAITING_MIN)
                                diagnosis_exclude(d, kind, n / MAX(busy, THREADS_WAITING_MIN),
                                                  "%s: %.2f threads on average (%s of busy thread time), "
                                                  "limit %.2f for all waits",
                                                  wait_labels[kind], n, PERCENT(share), THREADS_WAITING_MIN);
                        else if (!stuck && n > 0)
                                diagnosis_exclude(d, kind, share,
                                                  "%s: %.2f threads on average, %s of busy thread time",
                                                  wait_labels[kind], n, PERCENT(share));
                        continue;
                }
                /* Only for baselines provided by the client: usual behavior in the history may include the
                 * bottleneck */
                if (!stuck && e->normal && !(e->usual > 0) && n < WORSE * e->normal->threads[state]) {
                        diagnosis_exclude(d, kind, share, "%s: %.2f threads on average, baseline %.2f",
                                          wait_labels[kind], n, e->normal->threads[state]);
                        continue;
                }
                kind = part_find_kind(e, p, &lock);
                if (diagnosis_has(d, kind))
                        continue;

                finding = stuck ? diagnosis_add(d, &(FindingCause) {
                                .kind = kind, .certainty = CERTAINTY_LIKELY, .state = state, .share = NAN,
                                .time = NAN,
                                .rule = "requests are in flight without responses, and threads that are not "
                                "idle are in this state for half of their time or more",
                        }, "%.1f threads on average in state %s", n,
                        thread_state_label(qos_state_to_string(state))) :
                        /* Waits for CPUs may be intended by the unit's CPU weight */
                        diagnosis_add(d, &(FindingCause) {
                                        .kind = kind,
                                        .certainty = share >= SHARE_MOST && kind != FINDING_CPU ?
                                        CERTAINTY_LIKELY : CERTAINTY_POSSIBLE,
                                        .state = state, .share = kind == FINDING_CPU ? NAN : share,
                                        .time = NAN,
                                        .rule = f->rate > 0 ?
                                        "0.45 threads or more wait on average, for this half of that or "
                                        "more, and a fifth or more of the time in which its threads are not "
                                        "idle; when its requests are read is not known" :
                                        "it has no requests, 0.45 threads or more wait on average, for "
                                        "this half of that or more, and a fifth or more of the time in "
                                        "which its threads are not idle",
                                }, "%s: %.1f threads on average, %s of busy thread time", wait_labels[kind],
                                n, PERCENT(share));
                if (lock)
                        finding_name_lock(finding, lock);
                else
                        finding_name(finding, e);
        }
}

static const char* format_accept_queue(const DiagnosisEvidence *e, char *buf, size_t size) {
        (void) snprintf(buf, size, "%.0f %s not accepted (limit %.0f)", e->accept_queue,
                        e->accept_queue < 1.5 ? "connection is" : "connections are", e->accept_queue_max);
        return buf;
}

void diagnose_inattention(const DiagnosisEvidence *e, Diagnosis *d) {
        const DiagnosisFigures *f = &e->now;
        bool busy = f->busiest_thread >= SHARE_MIN &&
                f->busiest_thread + e->busiest_thread_ready >= CPUS_MOST;
        char queue[3 * NUMBER_MAX + 64] = "";
        Finding *finding;

        if (e->accept_queue > 0)
                (void) format_accept_queue(e, queue, sizeof(queue));
        if (busy) {
                finding = diagnosis_add(d, &(FindingCause) {
                                .kind = FINDING_LIMIT, .certainty = CERTAINTY_LIKELY,
                                .state = QOS_STATE_RUNNING, .share = NAN, .time = NAN,
                                .rule = "requests wait without a response, while one thread runs or waits "
                                "for a CPU for four fifths of the time or more",
                        }, "%s used %.2f of a CPU and has not responded%s%s", e->busiest_thread,
                        f->busiest_thread, queue[0] ? "; " : "", queue);
                (void) snprintf(finding->resource, sizeof(finding->resource), "thread %s",
                                e->busiest_thread);
        } else if (queue[0] && d->n_findings == 0)
                (void) diagnosis_add(d, &(FindingCause) {
                                .kind = FINDING_LIMIT, .certainty = CERTAINTY_LIKELY, .share = NAN,
                                .time = NAN,
                                .rule = "requests wait without a response, and connections wait to be "
                                "accepted",
                        }, "%s, and the oldest request waits for %s", queue, SPAN(f->oldest_waiting));
}

void diagnose_unaccepted(const DiagnosisEvidence *e, Diagnosis *d) {
        char queue[3 * NUMBER_MAX + 64];

        /* Connections are accepted in order of arrival: if more wait than have arrived in the interval, the
         * first ones are older */
        if (d->n_findings > 0 || !(e->accept_queue > e->handshakes))
                return;
        (void) diagnosis_add(d, &(FindingCause) {
                        .kind = FINDING_LIMIT, .certainty = CERTAINTY_LIKELY, .share = NAN, .time = NAN,
                        .rule = "more connections wait to be accepted than have come in the interval",
                }, "%s, some of them for longer than %s",
                format_accept_queue(e, queue, sizeof(queue)), SPAN(e->now.covered));
}

bool waiting_is_intended(const DiagnosisEvidence *e) {
        const DiagnosisFigures *f = &e->now;
        double others = 0;

        if (e->normal && e->normal->rate > 0)
                return false;
        for (unsigned i = QOS_STATE_RUNNING; i < QOS_STATES; i++)
                if (i != QOS_STATE_POLL && i != QOS_STATE_SOCKET && f->threads[i] > 0)
                        others += f->threads[i];
        return f->threads[QOS_STATE_POLL] + f->threads[QOS_STATE_SOCKET] > 0 &&
                others < THREADS_WAITING_MIN;
}
