/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Rules for failures, which keep a unit from serving regardless of the time of its requests. */

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>

#include "diagnosis-internal.h"

/* Minimum share of failed requests. Healthy services have less. */
#define ERRORS_MIN 0.01
/* Share of failed requests that is a failure even if the baseline has as many. */
#define ERRORS_MOST 0.1
/* Share of failed requests from which on the unit does not serve. */
#define ERRORS_ALL 0.5
/* Minimum number of errors in the interval, unless most requests fail: fewer are those of single
 * requests. */
#define ERRORS_COUNT_MIN 5.0
/* Factor from which on errors exceed the baseline: shares of rare errors vary by tenths between
 * intervals. */
#define ERRORS_GROWN 1.5
/* Minimum share of the time with requests in the baseline: other units are idle at times. */
#define BUSY_MIN 0.9
/* Minimum number of requests in the interval according to the baseline: with fewer, it may have none by
 * chance. */
#define IDLE_EXPECTED_MIN 20.0
/* Share of the usual requests up to which a unit is idle: a health check makes less. */
#define IDLE_SHARE 0.01
/* Minimum average number of requests in flight to busy peers. */
#define PEERS_BUSY_MIN 0.8
/* Minimum ratio of requests in flight to requests to peers in flight: most requests wait. */
#define PEERS_WAITING 2.0

/* Size of "127.0.0.1:8080 (backend.service)". */
#define PEER_MAX (2 * DIAGNOSIS_NAME_MAX + sizeof(" ()"))

static double known(double n) {
        return n > 0 ? n : 0;
}

/* Failed requests per second. */
static double errors_rate(const DiagnosisFigures *f) {
        return known(f->status5xx) + known(f->grpc_errors) + known(f->error_replies) + known(f->resets) +
                known(f->timeouts);
}

/* Requests that ended per second, including those without a response, which rate excludes. */
static double ended_rate(const DiagnosisFigures *f) {
        return known(f->rate) + known(f->resets) + known(f->timeouts);
}

static void append(char *text, const char *separator, double n, const char *what) {
        size_t length = strlen(text);

        if (n > 0)
                (void) snprintf(text + length, DIAGNOSIS_TEXT_MAX - length, "%s%s/s %s",
                                length > 0 ? separator : "", RATE(n), what);
}

static void diagnose_errors(const DiagnosisEvidence *e, Diagnosis *d) {
        const DiagnosisFigures *f = &e->now, *n = e->normal;
        double errors = errors_rate(f), ended = ended_rate(f), share, usual = NAN,
                count = errors * f->covered / NSEC_PER_SEC;
        char kinds[DIAGNOSIS_TEXT_MAX] = "", before[64] = "";
        Finding *finding;

        if (isnan(f->rate) || !(errors > 0))
                return;
        /* Rates are rounded */
        share = MIN(errors / ended, 1.0);
        if (n && ended_rate(n) > 0 &&
            (n->status5xx >= 0 || n->grpc_errors >= 0 || n->error_replies >= 0 || n->resets >= 0))
                usual = errors_rate(n) / ended_rate(n);

        append(kinds, ", ", f->status5xx, "HTTP 5xx");
        append(kinds, ", ", f->grpc_errors, "gRPC errors");
        append(kinds, ", ", f->error_replies, "error replies");
        append(kinds, ", ", f->resets, "connections reset");
        append(kinds, ", ", f->timeouts, "timeouts");
        if (!isnan(usual))
                (void) snprintf(before, sizeof(before), "; usually %s", PERCENT(usual));

        if (share < ERRORS_MIN || (count < ERRORS_COUNT_MIN && share < ERRORS_ALL) ||
            (share < ERRORS_MOST && share < ERRORS_GROWN * usual)) {
                diagnosis_exclude(d, FINDING_ERRORS, NAN, "%s of requests fail (%s%s)", PERCENT(share),
                                  kinds, before);
                return;
        }
        finding = diagnosis_add(d, &(FindingCause) {
                        .kind = FINDING_ERRORS,
                        .certainty = count < ERRORS_COUNT_MIN ? CERTAINTY_LIKELY : CERTAINTY_CERTAIN,
                        .share = NAN, .time = NAN,
                        .rule = "1% or more of the requests fail, and 1.5 times the usual share or 10% or "
                        "more",
                }, "%s of %s requests/s fail: %s%s", PERCENT(share), RATE(ended), kinds, before);
        finding->share = share;
}

/* Aborts by clients, which are not errors. */
static void diagnose_aborts(const DiagnosisEvidence *e, Diagnosis *d) {
        const DiagnosisFigures *f = &e->now;
        double aborts = known(f->client_aborts), ended = ended_rate(f) + aborts;

        if (isnan(f->rate) || aborts * f->covered < ERRORS_COUNT_MIN * NSEC_PER_SEC ||
            aborts < ERRORS_ALL * ended || diagnosis_has(d, FINDING_ERRORS))
                return;
        diagnosis_add(d, &(FindingCause) {
                        .kind = FINDING_ERRORS, .certainty = CERTAINTY_CERTAIN, .share = NAN, .time = NAN,
                        .rule = "clients end half of the connections with a request or more before it has a "
                        "response",
                }, "clients give up: %s requests/s have no response when the client closes the connection "
                "(%s of all)", RATE(aborts), PERCENT(aborts / ended))
                ->share = MIN(aborts / ended, 1.0);
}

/* Requests to a peer per second, including failed and aborted ones. */
static double peer_requests(const DiagnosisNamed *peer) {
        return known(peer->rate) + known(peer->errors) + known(peer->aborts);
}

/* Aborted requests to a peer per second, if these are at least half of all, and as many as requests of the
 * unit that fail or are slow (own). Otherwise 0: a few are aborted as their own client has disconnected, or
 * as another one was faster. */
static double peer_given_up(const DiagnosisNamed *peer, double own) {
        return !isnan(peer->rate) && peer->aborts >= ERRORS_ALL * MAX(peer_requests(peer), own) ?
               peer->aborts : 0;
}

/* Failed requests to a peer per second. 0 if requests overlap in an unknown protocol: the number of
 * responses is unknown then, and a broken connection may be one of thousands of requests. Aborted requests
 * are failures only if the unit fails as well: clients of some protocols close connections without a
 * response. */
static double peer_failed(const DiagnosisNamed *peer, const DiagnosisEvidence *e, const Diagnosis *d) {
        return isnan(peer->rate) ? 0 :
               known(peer->errors) + known(peer->status5xx) + known(peer->error_replies) +
               (diagnosis_has(d, FINDING_ERRORS) ?
                peer_given_up(peer, errors_rate(&e->now) + known(e->now.client_aborts)) : 0);
}

static const char* peer_format(const DiagnosisNamed *peer, char buf[static PEER_MAX]) {
        /* With the limits GCC sees that nothing is truncated: as packages are built, it warns otherwise */
        (void) snprintf(buf, PEER_MAX, "%.*s%s%.*s%s", (int) sizeof(peer->name) - 1, peer->name,
                        peer->unit[0] ? " (" : "", (int) sizeof(peer->unit) - 1, peer->unit,
                        peer->unit[0] ? ")" : "");
        return buf;
}

/* Appends the peer that causes errors to their finding. */
_printf_(3, 4) static void errors_blame(const DiagnosisNamed *peer, Diagnosis *d, const char *format, ...) {
        for (Finding *own = d->findings; own < d->findings + d->n_findings; own++) {
                size_t length = strlen(own->text);
                va_list ap;

                if (own->kind != FINDING_ERRORS)
                        continue;
                va_start(ap, format);
                (void) vsnprintf(own->text + length, sizeof(own->text) - length, format, ap);
                va_end(ap);
                diagnosis_copy_name(own->resource, peer->name);
                diagnosis_copy_name(own->unit, peer->unit);
        }
}

void diagnose_silent_peer(const DiagnosisEvidence *e, double least, Diagnosis *d) {
        const DiagnosisNamed *peer = e->peers;
        char who[PEER_MAX];
        Finding *finding;

        while (peer < e->peers + e->n_peers &&
               !(peer->in_flight > 0 && peer->in_flight >= least && !(peer->rate > 0)))
                peer++;
        if (peer == e->peers + e->n_peers || diagnosis_has(d, FINDING_DEPENDENCY))
                return;
        finding = diagnosis_add(d, &(FindingCause) {
                        .kind = FINDING_DEPENDENCY, .certainty = CERTAINTY_LIKELY, .share = NAN, .time = NAN,
                        .rule = "requests fail or wait without a response, and the unit waits for a peer "
                        "that responds to nothing",
                }, "%s does not respond: %.0f %s in flight", peer_format(peer, who), peer->in_flight,
                peer->in_flight < 1.5 ? "request to it is" : "requests to it are");
        diagnosis_copy_name(finding->resource, peer->name);
        diagnosis_copy_name(finding->unit, peer->unit);
        errors_blame(peer, d, "; %s does not respond", who);
}

/* Failed requests to peers, whether the unit's own requests fail or not. */
static void diagnose_peers(const DiagnosisEvidence *e, Diagnosis *d) {
        double failed = 0, all, share, errors = errors_rate(&e->now);
        char who[PEER_MAX], kinds[DIAGNOSIS_TEXT_MAX] = "";
        const DiagnosisNamed *peer = NULL;
        Finding *finding;

        for (size_t i = 0; i < e->n_peers; i++)
                if (peer_failed(e->peers + i, e, d) > failed) {
                        peer = e->peers + i;
                        failed = peer_failed(peer, e, d);
                }
        all = peer ? peer_requests(peer) : NAN;
        share = MIN(failed / all, 1.0);
        if (!peer || failed * e->peers_covered < ERRORS_COUNT_MIN * NSEC_PER_SEC || share < ERRORS_MOST) {
                /* Requests to a peer may take so long that none has failed yet */
                if (diagnosis_has(d, FINDING_ERRORS))
                        diagnose_silent_peer(e, ERRORS_ALL * errors * e->peers_covered / NSEC_PER_SEC, d);
                return;
        }

        (void) peer_format(peer, who);
        append(kinds, ", ", peer->status5xx, "HTTP 5xx");
        append(kinds, ", ", peer->error_replies, "error replies");
        append(kinds, ", ", peer->errors, "connections refused, ended or timed out");
        append(kinds, ", ", failed - known(peer->errors) - known(peer->status5xx) -
               known(peer->error_replies), "given up by the unit without a response");
        finding = diagnosis_add(d, &(FindingCause) {
                        .kind = FINDING_DEPENDENCY,
                        .certainty = share >= ERRORS_ALL ? CERTAINTY_CERTAIN : CERTAINTY_LIKELY,
                        .share = NAN, .time = NAN,
                        .rule = "a tenth or more of the requests to a peer fail: its responses report "
                        "errors, it refuses or ends connections, or they time out; or the unit fails, and "
                        "gives up half of the requests to it or more",
                }, "%s of %s requests/s to %s fail, %.0f in %s: %s", PERCENT(share), RATE(all), who,
                failed * e->peers_covered / NSEC_PER_SEC, SPAN(e->peers_covered), kinds);
        diagnosis_copy_name(finding->resource, peer->name);
        diagnosis_copy_name(finding->unit, peer->unit);
        if (failed >= ERRORS_ALL * errors)
                errors_blame(peer, d, "; so do %s of its requests to %s", PERCENT(share), who);
}

/* Requests wait, and peers are busy all the time with fewer of them: there is a pool of connections, or a
 * limit of concurrent requests, as of a proxy. */
static void diagnose_busy_peers(const DiagnosisEvidence *e, Diagnosis *d) {
        const DiagnosisFigures *f = &e->now;
        const DiagnosisNamed *peer = e->peers;
        double n = f->client_rate * f->client_latency / NSEC_PER_SEC,
               at_once = f->rate * f->service / NSEC_PER_SEC;
        Finding *finding;
        char who[PEER_MAX];

        if (d->n_findings > 0 || e->n_peers == 0 || n < PEERS_BUSY_MIN || at_once < PEERS_WAITING * n)
                return;
        finding = diagnosis_add(d, &(FindingCause) {
                        .kind = FINDING_DEPENDENCY, .certainty = CERTAINTY_POSSIBLE,
                        .share = f->service / f->first_byte, .time = f->service,
                        .rule = "responses take 100 ms or more, nothing explains half of that, and there "
                        "are twice as many requests at a time as requests to peers, which are 0.8 or more",
                }, "of %.1f requests at a time, %.2f wait for a response of %s%s; the others may wait for a "
                "connection to it", at_once, n, peer_format(peer, who),
                e->n_peers > 1 ? " and others" : "");
        diagnosis_copy_name(finding->resource, peer->name);
        diagnosis_copy_name(finding->unit, peer->unit);
}

void diagnose_slow_without_response(const DiagnosisEvidence *e, Diagnosis *d) {
        char who[PEER_MAX];

        for (const DiagnosisNamed *peer = e->peers; peer < e->peers + e->n_peers; peer++) {
                double n = peer_given_up(peer, e->now.rate);
                Finding *finding;

                if (n * e->peers_covered < ERRORS_COUNT_MIN * NSEC_PER_SEC ||
                    diagnosis_has(d, FINDING_DEPENDENCY))
                        continue;
                finding = diagnosis_add(d, &(FindingCause) {
                                .kind = FINDING_DEPENDENCY, .certainty = CERTAINTY_POSSIBLE, .share = NAN,
                                .time = NAN,
                                .rule = "responses take 100 ms or more, nothing explains half of that, and "
                                "the unit gives up half of its requests to a peer or more",
                        }, "%s of %s requests/s to %s are given up by the unit without a response",
                        PERCENT(n / peer_requests(peer)), RATE(peer_requests(peer)),
                        peer_format(peer, who));
                diagnosis_copy_name(finding->resource, peer->name);
                diagnosis_copy_name(finding->unit, peer->unit);
        }
        diagnose_busy_peers(e, d);
}

static void diagnose_drops(const DiagnosisEvidence *e, Diagnosis *d) {
        const DiagnosisFigures *f = &e->now;
        char limit[32] = "";

        if (!(f->listen_drops > 0))
                return;
        if (e->accept_queue_max >= 0)
                (void) snprintf(limit, sizeof(limit), " (limit %.0f)", e->accept_queue_max);
        (void) diagnosis_add(d, &(FindingCause) {
                        .kind = FINDING_DROPPED, .certainty = CERTAINTY_CERTAIN, .share = NAN, .time = NAN,
                        .rule = "the kernel has dropped connection attempts at a listener",
                }, "%s connections/s dropped: the accept queue is full%s", RATE(f->listen_drops), limit);
}

/* There are no requests, unlike usually: the failure is elsewhere. */
static void diagnose_idle(const DiagnosisEvidence *e, Diagnosis *d) {
        const DiagnosisFigures *f = &e->now, *n = e->normal;
        double expected;

        if (isnan(f->rate) || !n || !(n->rate > 0) || f->in_flight > 0 || d->n_findings > 0)
                return;
        expected = n->rate * f->covered / NSEC_PER_SEC;
        if ((e->usual > 0 && e->busy < BUSY_MIN) || expected < IDLE_EXPECTED_MIN ||
            f->rate > IDLE_SHARE * n->rate)
                return;
        (void) diagnosis_add(d, &(FindingCause) {
                        .kind = FINDING_IDLE, .certainty = CERTAINTY_LIKELY, .share = NAN, .time = NAN,
                        .rule = "at most 1% of the usual requests arrive, which is usual in less than a "
                        "tenth of the time",
                }, f->rate > 0 ? "almost no requests arrive: %s/s, usually %s/s" :
                "no requests arrive: %s/s, usually %s/s", RATE(f->rate), RATE(n->rate));
}

static const char* since(const DiagnosisRun *run, char buf[static 64]) {
        const Lifecycle *l = &run->lifecycle;

        buf[0] = 0;
        if (l->changed > 0 && run->now > l->changed)
                (void) snprintf(buf, 64, " for %s", SPAN((double) (run->now - l->changed)));
        return buf;
}

/* Formats ", result exit-code, exit status 1". */
static const char* outcome(const Lifecycle *l, char buf[static 128]) {
        char ended[LIFECYCLE_EXIT_MAX];
        bool failed = l->result[0] && !streq(l->result, "success");

        buf[0] = 0;
        if (l->result[0])
                (void) snprintf(buf, 128, ", result %s", l->result);
        if (failed && lifecycle_format_exit(l, ended))
                (void) snprintf(buf + strlen(buf), 128 - strlen(buf), ", %s", ended);
        return buf;
}

/* False: the unit does not run, so that no other rules apply. */
static bool diagnose_state(const DiagnosisEvidence *e, Diagnosis *d) {
        const DiagnosisRun *run = &e->run;
        const Lifecycle *l = &run->lifecycle;
        bool failed = l->result[0] && !streq(l->result, "success"), waits, down;
        char ended[LIFECYCLE_EXIT_MAX] = "", for_[64], how[128];

        if (!run->active_state)
                return true;

        waits = streq(run->active_state, "activating") && startswith(l->sub_state, "auto-restart");
        down = streq(run->active_state, "inactive") || streq(run->active_state, "failed") ||
                streq(run->active_state, "deactivating");

        if (run->restarts != ABSENT && (run->restarts > 0 || waits)) {
                (void) lifecycle_format_exit(l, ended);
                (void) diagnosis_add(d, &(FindingCause) {
                                .kind = FINDING_RESTARTS, .certainty = CERTAINTY_CERTAIN, .share = NAN,
                                .time = NAN,
                                .rule = "the service manager restarts it as it ends by itself",
                        }, "restarted %" PRIu64 " times in %s, %" PRIu64 " times since it was started%s%s%s",
                        run->restarts, SPAN(e->now.covered), l->restarts, ended[0] ? "; last end: " : "",
                        ended, waits ? "; it waits for the next restart" : "");
                return true;
        }

        /* Services of type oneshot are activating until their work is done */
        if (streq(run->active_state, "activating") && !waits && !streq(l->type, "oneshot") &&
            l->changed > 0 && run->now >= l->changed + (uint64_t) e->now.covered &&
            !(e->now.rate * e->now.covered >= 10.0 * NSEC_PER_SEC))
                (void) diagnosis_add(d, &(FindingCause) {
                                .kind = FINDING_DOWN, .certainty = CERTAINTY_LIKELY, .share = NAN,
                                .time = NAN,
                                .rule = "the service manager has been starting it for longer than the "
                                "interval, and less than ten requests got a response",
                        }, "activating (%s)%s: it is not ready yet", l->sub_state, since(run, for_));
        if (!down)
                return true;
        (void) snprintf(d->text, sizeof(d->text), "The unit is %s%s%s%s", run->active_state,
                        since(run, for_), outcome(l, how),
                        l->on_demand && !failed ? "; it is started on demand" : "");
        /* Not a failure */
        if (l->on_demand && !failed)
                return false;
        (void) diagnosis_add(d, &(FindingCause) {
                        .kind = FINDING_DOWN, .certainty = CERTAINTY_CERTAIN, .share = NAN, .time = NAN,
                        .rule = "the service manager says that it does not run",
                }, "%s%s%s", run->active_state, since(run, for_), outcome(l, how));
        return false;
}

static void diagnose_stops(const DiagnosisEvidence *e, Diagnosis *d) {
        const DiagnosisRun *run = &e->run;
        char pids[64] = "";

        if (run->frozen) {
                (void) diagnosis_add(d, &(FindingCause) {
                                .kind = FINDING_STOPPED, .certainty = CERTAINTY_CERTAIN,
                                .state = QOS_STATE_STOPPED, .share = NAN, .time = NAN,
                                .rule = "its control group is frozen",
                        }, "frozen: no process of it runs until its control group is thawed");
                return;
        }
        if (run->n_stopped == 0)
                return;

        for (size_t i = 0; i < MIN(run->n_stopped, (size_t) DIAGNOSIS_STOPPED_MAX); i++)
                (void) snprintf(pids + strlen(pids), sizeof(pids) - strlen(pids), "%s%i",
                                i > 0 ? ", " : "", run->stopped[i]);
        (void) diagnosis_add(d, &(FindingCause) {
                        .kind = FINDING_STOPPED, .certainty = CERTAINTY_CERTAIN, .state = QOS_STATE_STOPPED,
                        .share = NAN, .time = NAN,
                        .rule = "all threads of a process were stopped by a signal or a tracer at the end "
                        "of the interval",
                }, "stopped by a signal or a tracer: %zu of %zu processes (PID %s%s)", run->n_stopped,
                run->n_processes, pids, run->n_stopped > DIAGNOSIS_STOPPED_MAX ? ", ..." : "");
}

bool diagnose_failures(const DiagnosisEvidence *e, Diagnosis *d) {
        assert(e);
        assert(d);

        if (!diagnose_state(e, d))
                return false;
        diagnose_stops(e, d);
        diagnose_drops(e, d);
        diagnose_errors(e, d);
        diagnose_aborts(e, d);
        diagnose_peers(e, d);
        diagnose_idle(e, d);
        return true;
}
