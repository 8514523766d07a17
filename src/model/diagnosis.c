/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The verdict, and the rules for units with known queue and service times of requests. */

#include <math.h>

#include "diagnosis-internal.h"
#include "parse.h"
#include "util.h"

/* Minimum difference to the baseline: a busy machine adds that much to any time. It adds more if nothing
 * else is in progress: with a history, which has times when the machine was quiet, see load_is_light(). */
#define WORSE_NSEC (0.05 * NSEC_PER_MSEC)
/* Time to first byte from which on a unit is slow, without a baseline: people notice it. */
#define SLOW_NSEC (100.0 * NSEC_PER_MSEC)

/* Whether there are so few requests at a time that they do not wait for each other. All that they do then
 * depends on others: in caches that these have used, at another clock rate, or beside other virtual machines
 * it takes twice as long as on a quiet machine. */
static bool load_is_light(const DiagnosisFigures *f) {
        return f->rate * f->first_byte < THREADS_MIN * NSEC_PER_SEC;
}

/* Rules for waits for system resources, and for responses of peers. */
static void diagnose_parts(const DiagnosisEvidence *e, const Parts *now, const Parts *normal, Diagnosis *d) {
        const DiagnosisFigures *f = &e->now;

        for (Part p = PART_RUN_QUEUE; p < _PART_MAX; p++) {
                FindingKind kind = part_table[p].kind;
                double time = now->least[p], share, floor = part_table[p].floor;
                enum qos_state state = part_table[p].state;
                const DiagnosisNamed *lock = NULL;
                const char *rule = part_table[p].rule;
                Certainty certainty;
                Finding *finding;
                bool known;

                if (p == PART_PEERS ? isnan(f->client_rate) : isnan(f->threads[state]))
                        continue; /* unknown: neither a finding nor excluded */

                /* A wait of an event loop, which processes several requests, delays all of them. Not used
                 * with a baseline, which lacks it */
                if (p == PART_RUN_QUEUE && !normal && f->service > 0 && !isnan(f->service_run_queue))
                        time = fmax(time, f->service_run_queue / f->service * (f->queue + f->service));

                /* Without a certain cause, the maximum may be a possible one */
                certainty = time / f->first_byte >= SHARE_MOST ? CERTAINTY_CERTAIN : CERTAINTY_LIKELY;
                if (time / f->first_byte < SHARE_MIN && now->most[p] / f->first_byte >= SHARE_MOST &&
                    now->unexplained / f->first_byte >= SHARE_MOST) {
                        certainty = CERTAINTY_POSSIBLE;
                        time = now->most[p];
                }
                share = time / f->first_byte;

                /* The wait may be background work, while requests sleep or wait for a child process: idle
                 * threads look the same */
                if (part_table[p].in_service && certainty == CERTAINTY_CERTAIN &&
                    figures_sleep_time(f) >= SHARE_MOST * f->service)
                        certainty = CERTAINTY_LIKELY;

                /* A history may lack the waits of requests */
                known = normal && !isnan(p == PART_PEERS ? e->normal->client_rate :
                                         e->normal->threads[state]);
                if (normal && !known && certainty == CERTAINTY_CERTAIN)
                        certainty = CERTAINTY_LIKELY;

                if (known)
                        floor = STALL_MIN_NSEC;
                if (share < SHARE_MIN || time < floor) {
                        diagnosis_exclude(d, kind, share, "%s: %s of each request (%s)%s", wait_labels[kind],
                                          SPAN(time), PERCENT(share), LIMIT(share, SHARE_MIN, time, floor));
                        continue;
                }
                if (!part_has_threads(e, p, time)) {
                        diagnosis_exclude(d, kind, share,
                                          "%s: %s of each request (%s), but %.2f threads on average, limit "
                                          "%.2f", wait_labels[kind], SPAN(time), PERCENT(share),
                                          f->threads[state], part_table[p].threads);
                        continue;
                }
                if (known && time - normal->most[p] < SHARE_MIN *
                    (f->first_byte - e->normal->first_byte)) {
                        diagnosis_exclude(d, kind, share,
                                          "%s: %s of each request (%s), which is not what has changed",
                                          wait_labels[kind], SPAN(time), PERCENT(share));
                        continue;
                }

                if (part_is_waking(e, p)) {
                        diagnosis_exclude(d, kind, share,
                                          "%s: %s of each request (%s), but only %s each time, while %.2f "
                                          "CPUs are idle", wait_labels[kind], SPAN(time), PERCENT(share),
                                          SPAN(f->run_queue_wait), f->idle_cpus);
                        continue;
                }
                if (part_is_own(e, p))
                        continue; /* see diagnose_limit() */
                kind = part_find_kind(e, p, &lock);
                if (p == PART_RUN_QUEUE && f->threads[state] < part_table[p].threads)
                        rule = "its threads waited for a CPU for half of the time of a request or more, and "
                               "1 ms or more, and less than half of its CPUs was idle";
                if (lock)
                        rule = "its threads waited for files or memory for a fifth or more of the time of a "
                               "request, half of that or more for a lock of the kernel, and less than half "
                               "a thread for all else there";
                if (diagnosis_has(d, kind))
                        continue;

                finding = diagnosis_add(d, &(FindingCause) {
                                .kind = kind, .certainty = certainty, .state = state, .share = share,
                                .time = time, .rule = rule,
                        }, "%s: %s of the %s to the first byte (%s)",
                        kind == FINDING_MEMORY && p == PART_DISK ?
                        "disk wait for file pages that were in memory before" : wait_labels[kind],
                        SPAN(time), SPAN(f->first_byte), PERCENT(share));
                if (lock)
                        finding_name_lock(finding, lock);
                else
                        finding_name(finding, e);
        }
}

/* Rule for locks that look like waits for work: condition variables, and processes that send signals to each
 * other. The thread that ended such a wait was processing another request, for which the request waited: for
 * a row lock of a database, or by intent, as in a chat. Hence never certain, and only for time that nothing
 * else explains; with the limit of a disk, as requests wait that long for each other in servers with group
 * commit. */
static void diagnose_blocked(const DiagnosisEvidence *e, const Parts *now, bool compared, Diagnosis *d) {
        const DiagnosisFigures *f = &e->now;
        bool known = compared && !isnan(e->normal->blocked_by_requests);
        double time, share;
        Finding *finding;

        if (isnan(f->blocked_by_requests) || !(f->service > 0) || diagnosis_has(d, FINDING_LOCK))
                return;
        time = MIN(f->blocked_by_requests / f->service * (f->queue + f->service), now->unexplained);
        share = time / f->first_byte;
        if (share < SHARE_MIN || time < (known ? STALL_MIN_NSEC : WAIT_MIN_NSEC) ||
            f->blocked_by_requests * f->rate / NSEC_PER_SEC < THREADS_MIN ||
            (known && time - e->normal->blocked_by_requests < SHARE_MIN *
             (f->first_byte - e->normal->first_byte)))
                return;

        finding = diagnosis_add(d, &(FindingCause) {
                        .kind = FINDING_LOCK, .certainty = CERTAINTY_POSSIBLE,
                        .state = e->n_blocked > 0 ? e->blocked_state : QOS_STATE_NONE, .share = share,
                        .time = time,
                        .rule = "threads that work on requests waited, for a fifth or more of the time of a "
                        "request, and 1 ms or more, until others that work on requests let them go on, and "
                        "nothing else explains it",
                }, "requests wait for one another: %s of the %s to the first byte (%s), as for a row of a "
                "database or a connection of a pool", SPAN(time), SPAN(f->first_byte), PERCENT(share));
        if (e->n_blocked > 0)
                finding_name_lock(finding, e->blocked);
}

static bool is_more(double now, double normal, double factor) {
        return normal > 0 && now >= factor * normal;
}

/* Rule for a higher load than in the baseline. */
static void diagnose_workload(const DiagnosisEvidence *e, const Parts *now, const Parts *normal,
                              Diagnosis *d) {
        const DiagnosisFigures *f = &e->now, *n = e->normal;
        double explained = 0, grown = f->first_byte - n->first_byte;
        const char *rule =
                "it has more to do than normal, and waits for resources and peers explain less than half of "
                "what its requests take longer";

        for (size_t i = 0; i < d->n_findings; i++)
                if (d->findings[i].kind < FINDING_NETWORK && isfinite(d->findings[i].time))
                        explained += d->findings[i].time / grown;
        if (explained >= SHARE_MOST) {
                diagnosis_exclude(d, FINDING_WORKLOAD, NAN,
                                  "load: %s requests/s (baseline %s); waits explain more of the slowdown",
                                  RATE(f->rate), RATE(n->rate));
                return;
        }

        if (is_more(f->rate, n->rate, DIAGNOSIS_MORE_REQUESTS) && !load_is_light(f))
                (void) diagnosis_add(d, &(FindingCause) {
                                .kind = FINDING_WORKLOAD,
                                .certainty = f->service < WORSE * n->service ? CERTAINTY_CERTAIN :
                                CERTAINTY_LIKELY,
                                .share = grown / f->first_byte, .time = grown, .rule = rule,
                        }, "%s requests/s, baseline %s", RATE(f->rate), RATE(n->rate));
        else if (is_more(f->bytes_in, n->bytes_in, WORSE) || is_more(f->bytes_out, n->bytes_out, WORSE))
                (void) diagnosis_add(d, &(FindingCause) {
                                .kind = FINDING_WORKLOAD, .certainty = CERTAINTY_LIKELY,
                                .share = grown / f->first_byte, .time = grown, .rule = rule,
                        }, "larger requests of %.0f bytes with responses of %.0f, baseline %.0f and %.0f",
                        f->bytes_in, f->bytes_out, n->bytes_in, n->bytes_out);
        else if (is_more(now->spent[PART_RUNNING], normal->spent[PART_RUNNING], WORSE) &&
                 now->spent[PART_RUNNING] - normal->spent[PART_RUNNING] >= SHARE_MIN * grown)
                (void) diagnosis_add(d, &(FindingCause) {
                                .kind = FINDING_WORKLOAD, .certainty = CERTAINTY_LIKELY,
                                .state = QOS_STATE_RUNNING, .share = grown / f->first_byte, .time = grown,
                                .rule = rule,
                        }, "more CPU time per request: %s, baseline %s", SPAN(now->spent[PART_RUNNING]),
                        SPAN(normal->spent[PART_RUNNING]));
        else
                diagnosis_exclude(d, FINDING_WORKLOAD, NAN,
                                  "load: %s requests/s (baseline %s) of the same size, %.2g at a time",
                                  RATE(f->rate), RATE(n->rate), f->rate * f->first_byte / NSEC_PER_SEC);
}

/* Rule for processes killed by the kernel. */
static void diagnose_kills(const DiagnosisEvidence *e, Diagnosis *d) {
        if (e->now.oom_kills > 0 && !diagnosis_has(d, FINDING_MEMORY))
                (void) diagnosis_add(d, &(FindingCause) {
                                .kind = FINDING_MEMORY, .certainty = CERTAINTY_CERTAIN, .share = NAN,
                                .time = NAN,
                                .rule = "the kernel has killed processes of it for want of memory",
                        }, "the kernel killed processes of the unit for want of memory (OOM)");
}

static bool finding_is_failure(const Finding *f) {
        return f->kind > FINDING_WORKLOAD || (f->kind == FINDING_DEPENDENCY && isnan(f->share));
}

/* Order: failures by kind, then causes by share, then possible causes by share. */
static int finding_compare(const void *a, const void *b) {
        const Finding *x = a, *y = b;
        double p = isnan(x->share) ? 0 : x->share, q = isnan(y->share) ? 0 : y->share;

        if (finding_is_failure(x) != finding_is_failure(y))
                return finding_is_failure(x) ? -1 : 1;
        if (finding_is_failure(x))
                return (x->kind == FINDING_DEPENDENCY) - (y->kind == FINDING_DEPENDENCY) ?:
                        (int) x->kind - (int) y->kind;
        if ((x->certainty == CERTAINTY_POSSIBLE) != (y->certainty == CERTAINTY_POSSIBLE))
                return x->certainty == CERTAINTY_POSSIBLE ? 1 : -1;
        return q < p ? -1 : q > p;
}

static void describe_stuck(const DiagnosisFigures *f, char *ret, size_t size) {
        (void) snprintf(ret, size, f->waiting < 1.5 ? "%.0f request waits without a response, for %s" :
                        "%.0f requests wait without a response, the oldest for %s", f->waiting,
                        SPAN(f->oldest_waiting));
}

/* Minimum share of client errors to be mentioned: clients may request what was removed. */
#define STATUS_4XX_MIN 0.1

static const char* format_status4xx(const DiagnosisFigures *f, char *buf, size_t size) {
        buf[0] = 0;
        if (f->status4xx >= STATUS_4XX_MIN * f->rate)
                (void) snprintf(buf, size, ", %s with HTTP 4xx", PERCENT(f->status4xx / f->rate));
        return buf;
}

static void diagnose_requests(const DiagnosisEvidence *e, const Parts *now, Diagnosis *d) {
        const DiagnosisFigures *f = &e->now, *n = e->normal;
        DiagnosisEvidence alone;
        bool compared, worse, better, unknown;
        double least = e->usual > 0 && load_is_light(f) ? WAIT_MIN_NSEC : WORSE_NSEC;
        Parts normal = {}, own;
        char status[NUMBER_MAX + 32];
        size_t length;

        compared = n && parts_read(n, parts_are_exact(e), &normal) && n->first_byte > 0;
        worse = !compared || (f->first_byte >= WORSE * n->first_byte && f->first_byte >= n->first_byte +
                              least && f->first_byte > e->usual);

        /* Much faster than usual: waits are not a bottleneck */
        better = compared && e->usual > 0 && f->first_byte * WORSE <= n->first_byte;

        length = (size_t) snprintf(
                d->text, sizeof(d->text),
                "%s requests/s%s; mean time to first byte %s: receive %s, queue %s, service %s",
                RATE(f->rate), format_status4xx(f, status, sizeof(status)), SPAN(f->first_byte),
                SPAN(f->receive), SPAN(f->queue), SPAN(f->service));
        if (compared)
                (void) snprintf(d->text + length, sizeof(d->text) - length, "; %s: %s requests/s, %s",
                                e->usual > 0 ? "usually" : "baseline", RATE(n->rate), SPAN(n->first_byte));
        if (requests_are_stuck(f)) {
                length = strlen(d->text);
                (void) snprintf(d->text + length, sizeof(d->text) - length, "; ");
                describe_stuck(f, d->text + length + strlen("; "), sizeof(d->text) - length - strlen("; "));
        }
        /* A bottleneck may be as old as the history, which shows usual behavior, not good behavior */
        if (compared && !worse && !better && e->usual > 0) {
                alone = *e;
                alone.normal = NULL;
                e = &alone;
                if (parts_read(f, parts_are_exact(e), &own))
                        now = &own;
                compared = false;
                worse = true;
        }

        if (worse) {
                diagnose_parts(e, now, compared ? &normal : NULL, d);
                diagnose_blocked(e, now, compared, d);
                if (compared)
                        diagnose_workload(e, now, &normal, d);
                diagnose_starved_thread(e, now, d);
                diagnose_limit(e, now, d);
        }
        diagnose_network(e, d);
        diagnose_flows(e, d);

        diagnose_kills(e, d);

        /* Slow without a known wait. With a baseline from the history the difference also has to be
         * noticeable, as times vary by some microseconds */
        if (compared)
                unknown = worse && (!(e->usual > 0) || f->first_byte >= n->first_byte + WAIT_MIN_NSEC);
        else
                unknown = now->unexplained >= SHARE_MOST * f->first_byte && f->first_byte >= SLOW_NSEC;

        diagnose_unaccepted(e, d);
        if (unknown && d->n_findings == 0)
                diagnose_slow_without_response(e, d);
        d->verdict = d->n_findings > 0 ? VERDICT_FOUND : unknown ? VERDICT_UNKNOWN : VERDICT_NOTHING;
}

/* Sorts and summarizes findings. Truncated texts may end within a UTF-8 sequence, hence utf8_sanitize(). */
static void diagnosis_finish(const DiagnosisEvidence *e, Diagnosis *d) {
        qsort(d->findings, d->n_findings, sizeof(Finding), finding_compare);
        diagnosis_summarize(e, d);
        utf8_sanitize(d->summary);
        for (size_t i = 0; i < d->n_findings; i++) {
                utf8_sanitize(d->findings[i].text);
                utf8_sanitize(d->findings[i].next);
        }
}

static void describe_without_parts(const DiagnosisEvidence *e, bool enough, bool stuck, Diagnosis *d) {
        const DiagnosisFigures *f = &e->now;

        if (stuck)
                describe_stuck(f, d->text, sizeof(d->text));
        else if (isnan(f->rate))
                (void) snprintf(d->text, sizeof(d->text),
                                "it is not known when its requests begin and end");
        else if (enough && f->first_byte > 0)
                (void) snprintf(d->text, sizeof(d->text), "%s requests/s; mean time to first byte %s",
                                RATE(f->rate), SPAN(f->first_byte));
        else if (enough)
                (void) snprintf(d->text, sizeof(d->text), "%s requests/s", RATE(f->rate));
        else if (f->in_flight > 0 && isnan(f->waiting))
                (void) snprintf(d->text, sizeof(d->text),
                                "almost no requests; %.0f in flight, it is not known for how long",
                                f->in_flight);
        else if (f->in_flight > 0 && !(f->waiting > 0))
                (void) snprintf(d->text, sizeof(d->text),
                                "almost no requests; %.0f responses in progress, the oldest request %s old",
                                f->in_flight, SPAN(f->oldest));
        else if (requests_may_be_stuck(e))
                (void) snprintf(d->text, sizeof(d->text),
                                "almost no requests; on %.0f %s the client was the last to send, before the "
                                "unit was attached", e->awaiting,
                                e->awaiting < 1.5 ? "connection" : "connections");
        else
                (void) snprintf(d->text, sizeof(d->text), "almost no requests");
}

void diagnosis_make(const DiagnosisEvidence *e, Diagnosis *ret) {
        const DiagnosisFigures *f;
        bool enough, stuck, unknown;
        Parts parts;

        assert(e);
        assert(ret);

        f = &e->now;
        *ret = (Diagnosis) {};

        if (!diagnose_failures(e, ret)) {
                ret->verdict = ret->n_findings > 0 ? VERDICT_FOUND : VERDICT_NOTHING;
                diagnosis_finish(e, ret);
                return;
        }

        /* Means of fewer than ten requests depend on single ones */
        enough = f->rate * f->covered >= 10.0 * NSEC_PER_SEC;
        if (enough && parts_read(f, parts_are_exact(e), &parts) && f->first_byte > 0) {
                diagnose_requests(e, &parts, ret);
                diagnosis_finish(e, ret);
                return;
        }

        stuck = requests_are_stuck(f);
        describe_without_parts(e, enough, stuck, ret);
        diagnose_threads(e, stuck, ret);
        if (stuck) {
                diagnose_silent_peer(e, 0, ret);
                diagnose_inattention(e, ret);
        }
        else if (enough)
                diagnose_slow_peers(e, ret);
        diagnose_flows(e, ret);
        diagnose_kills(e, ret);
        diagnose_unaccepted(e, ret);
        unknown = stuck ? !waiting_is_intended(e) : isnan(f->rate) ||
                (enough && f->first_byte >= SLOW_NSEC) ||
                (!enough && ((f->in_flight > 0 && isnan(f->waiting)) || requests_may_be_stuck(e)));
        ret->verdict = ret->n_findings > 0 ? VERDICT_FOUND : unknown ? VERDICT_UNKNOWN : VERDICT_NOTHING;
        diagnosis_finish(e, ret);
}
