/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <math.h>

#include "dbus-overview.h"
#include "evidence.h"
#include "state-label.h"
#include "threshold-monitor.h"
#include "worst-wait.h"

/* Errors of all known kinds, per second; NaN if none is known. */
static double get_error_rate(const Snapshot *s) {
        const Server *server = &s->metrics.requests.server;
        const uint64_t errors[] = { server->errors_reset, server->errors_timeout, server->errors_status5xx,
                                    server->errors_grpc, server->errors_replies };
        bool known = false;
        uint64_t n = 0;

        for (size_t i = 0; i < ELEMENTSOF(errors); i++)
                if (errors[i] != ABSENT) {
                        known = true;
                        n += errors[i];
                }
        return known && s->covered > 0 ? (double) n * (double) NSEC_PER_SEC / (double) s->covered : NAN;
}

/* Combined state of all thresholds: violated if any is, ok if all are. */
static const char* get_state(const Unit *u) {
        ThresholdState state = THRESHOLD_UNKNOWN;
        bool first = true;

        for (Threshold *t = threshold_next(u, NULL); t; t = threshold_next(u, t)) {
                if (t->machine.state == THRESHOLD_VIOLATED)
                        return threshold_state_to_string(THRESHOLD_VIOLATED);
                state = first || t->machine.state != THRESHOLD_OK ? t->machine.state : state;
                first = false;
        }
        return threshold_state_to_string(state);
}

static const char* get_worst_wait(const Snapshot *s) {
        const Metrics *m = &s->metrics;
        bool of_service = worst_wait_is_of_service(m->requests.server.service_states.attributed);
        enum qos_state state;
        double share;

        return worst_wait_find(of_service ? m->requests.server.service_states.shares :
                                            m->contention.serving.shares, of_service, &state, &share) ?
               qos_state_to_string(state) : "";
}

void overview_fill(const Unit *u, const Snapshot *s, Overview *ret) {
        const Server *server = &s->metrics.requests.server;

        ret->rate = server->rate;
        ret->error_rate = get_error_rate(s);
        ret->latency_p50 = server->latency.p50;
        ret->latency_p99 = server->latency.p99;
        ret->in_flight = server->in_flight;
        ret->state = get_state(u);
        ret->worst_wait = get_worst_wait(s);
}

const char* overview_get_verdict(Unit *u, const Snapshot *s) {
        Diagnosis d;

        unit_diagnose_snapshot(u, s, &d);
        return d.n_findings > 0 ? finding_kind_to_string(d.findings[0].kind) : verdict_to_string(d.verdict);
}
