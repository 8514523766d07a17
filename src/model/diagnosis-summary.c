/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The verdict in one line, and the next command of each finding. */

#include <math.h>

#include "diagnosis-internal.h"
#include "state-label.h"

#define summary_append(d, ...)                                                                          \
        (void) snprintf((d)->summary + strlen((d)->summary),                                            \
                        sizeof((d)->summary) - strlen((d)->summary), __VA_ARGS__)

/* Label of the time that the share of a finding refers to. */
static const char* whole(const Finding *f, const DiagnosisEvidence *e) {
        return f->kind >= FINDING_NETWORK && f->kind <= FINDING_RECEIVE_WINDOW ? "of the latency" :
                e->now.rate > 0 && isfinite(f->time) ? "of each request" : "of busy thread time";
}

static void summarize_wait(const DiagnosisEvidence *e, const Finding *f, const char *cause, const char *wait,
                           Diagnosis *d) {
        summary_append(d, "%s", cause);
        if (isfinite(f->share))
                summary_append(d, ": %s %s is %s", PERCENT(f->share), whole(f, e), wait);
}

static void summarize_finding(const DiagnosisEvidence *e, const Finding *f, Diagnosis *d) {
        switch (f->kind) {

        case FINDING_CPU:
                summarize_wait(e, f, "CPU contention", "run-queue wait", d);
                if (f->resource[0])
                        summary_append(d, "; %s had the CPU", f->unit[0] ? f->unit : f->resource);
                break;

        case FINDING_QUOTA:
                summarize_wait(e, f, "CPU quota", "throttled", d);
                break;

        case FINDING_DISK:
                summarize_wait(e, f, "disk", "disk wait", d);
                if (f->mount[0] || f->resource[0])
                        summary_append(d, " (%s%s%s%s%s)", f->mount,
                                       f->mount[0] && f->resource[0] ? ", " : "", f->resource,
                                       f->unit[0] ? ", used by " : "", f->unit);
                break;

        case FINDING_LOCK:
                summarize_wait(e, f, "lock contention", "lock wait", d);
                if (f->resource[0])
                        summary_append(d, " (%s)", f->resource);
                break;

        case FINDING_DEPENDENCY:
                if (!isfinite(f->share)) {
                        summary_append(d, "dependency fails: %s", f->text);
                        break;
                }
                summarize_wait(e, f, "slow dependency", "wait for responses", d);
                if (f->resource[0])
                        summary_append(d, " of %s", f->unit[0] ? f->unit : f->resource);
                break;

        case FINDING_MEMORY:
                if (!isfinite(f->share)) {
                        summary_append(d, "memory: %s", f->text);
                        break;
                }
                summarize_wait(e, f, "memory", f->state == QOS_STATE_DISK ? "reading pages again" :
                               "memory wait", d);
                break;

        case FINDING_NETWORK:
                if (!isfinite(f->share)) {
                        summary_append(d, "network: %s", f->text);
                        break;
                }
                summarize_wait(e, f, "network", e->now.answer >= e->now.receive ? "sending the response" :
                               "receiving the request", d);
                break;

        case FINDING_NAGLE:
                summarize_wait(e, f, "Nagle's algorithm", "waiting to send the end of the response", d);
                break;

        case FINDING_SEND_BUFFER:
                if (!isfinite(f->share)) {
                        summary_append(d, "small send buffers: %s", f->text);
                        break;
                }
                summarize_wait(e, f, "small send buffers", "waiting to write the response", d);
                break;

        case FINDING_RECEIVE_WINDOW:
                if (!isfinite(f->share)) {
                        summary_append(d, "receive windows: %s", f->text);
                        break;
                }
                summarize_wait(e, f, "clients read too slowly", "waiting for their receive windows", d);
                break;

        case FINDING_LIMIT:
                if (!isfinite(f->share)) {
                        summary_append(d, "saturated: %s", f->text);
                        break;
                }
                summarize_wait(e, f, "saturated", "wait for the application itself", d);
                if (f->resource[0])
                        summary_append(d, " (%s)", f->resource);
                break;

        case FINDING_WORKLOAD:
                summary_append(d, "more load: %s", f->text);
                break;

        /* Texts of failures are short */
        case FINDING_DOWN:
        case FINDING_RESTARTS:
        case FINDING_STOPPED:
        case FINDING_DROPPED:
        case FINDING_ERRORS:
        case FINDING_IDLE:
        case _FINDING_KIND_MAX:
                summary_append(d, "%s", f->text);
                break;
        }
}

/* Sets the next command: one that fixes the cause, or shows more. */
static void finding_advise(const DiagnosisEvidence *e, Finding *f) {
        const char *unit = e->unit;
        char *next = f->next;
        const size_t size = sizeof(f->next);

        if (!unit)
                return;

        switch (f->kind) {

        case FINDING_CPU:
                if (endswith(f->unit, ".service") || endswith(f->unit, ".scope") ||
                    endswith(f->unit, ".slice"))
                        (void) snprintf(next, size, "systemctl set-property %s CPUWeight=20", f->unit);
                else
                        (void) snprintf(next, size, "qosctl resources %s", unit);
                break;

        case FINDING_QUOTA:
                (void) snprintf(next, size, "systemctl show %s -p CPUQuotaPerSecUSec", unit);
                break;

        case FINDING_DISK:
                if (endswith(f->unit, ".service") || endswith(f->unit, ".scope") ||
                    endswith(f->unit, ".slice"))
                        (void) snprintf(next, size, "systemctl set-property %s IOWeight=20", f->unit);
                else
                        (void) snprintf(next, size, "qosctl resources %s", unit);
                break;

        case FINDING_LOCK:
                (void) snprintf(next, size, "qosctl resources %s", unit);
                break;

        case FINDING_DEPENDENCY:
                (void) snprintf(next, size, f->unit[0] ? "qosctl diagnose %s" : "qosctl why %s",
                                f->unit[0] ? f->unit : unit);
                break;

        case FINDING_MEMORY:
                (void) snprintf(next, size, "systemctl show %s -p MemoryHigh,MemoryMax,MemoryCurrent", unit);
                break;

        case FINDING_LIMIT:
                (void) snprintf(next, size, "qosctl threads %s", unit);
                break;

        case FINDING_SEND_BUFFER:
                (void) snprintf(next, size, "sysctl net.ipv4.tcp_wmem");
                break;

        case FINDING_NAGLE:
        case FINDING_RECEIVE_WINDOW:
        case FINDING_NETWORK:
                if (e->flows.covered > 0)
                        (void) snprintf(next, size, "qosctl connections %s", unit);
                else
                        (void) snprintf(next, size, "ss -tin state established");
                break;

        case FINDING_WORKLOAD:
        case FINDING_IDLE:
                (void) snprintf(next, size, "qosctl history %s", unit);
                break;

        case FINDING_DOWN:
        case FINDING_RESTARTS:
                (void) snprintf(next, size, "journalctl -u %s -n 50", unit);
                break;

        case FINDING_STOPPED:
                (void) snprintf(next, size, e->run.frozen ? "systemctl thaw %s" :
                                "systemctl kill --signal=SIGCONT %s", unit);
                break;

        case FINDING_DROPPED:
                (void) snprintf(next, size, "ss -lnt");
                break;

        case FINDING_ERRORS:
                (void) snprintf(next, size,
                                f->unit[0] ? "qosctl diagnose %s" : "journalctl -u %s -n 50",
                                f->unit[0] ? f->unit : unit);
                break;

        case _FINDING_KIND_MAX:
                break;
        }
}

/* Describes what threads do while nothing explains the time of requests. */
static void summarize_unknown(const DiagnosisEvidence *e, Diagnosis *d) {
        static const struct {
                enum qos_state state;
                const char *text;
        } table[] = {
                /* First, as the child processes may be sleeping */
                { QOS_STATE_CHILD, "wait for child processes" },
                { QOS_STATE_PIPE,  "wait for pipes"           },
                { QOS_STATE_SLEEP, "sleep"                    },
        };
        const DiagnosisFigures *f = &e->now;
        enum qos_state most = QOS_STATE_NONE;

        summary_append(d, "inconclusive");
        if (requests_are_stuck(f) || requests_may_be_stuck(e)) {
                for (enum qos_state i = QOS_STATE_RUNNING; i < QOS_STATES; i++)
                        if (f->threads[i] >= 1 &&
                            (most == QOS_STATE_NONE || f->threads[i] > f->threads[most]))
                                most = i;
                summary_append(d, requests_are_stuck(f) ? ": requests wait without a response" :
                               ": requests from before the attach may wait without a response");
                if (most != QOS_STATE_NONE)
                        summary_append(d, ", %.1f threads on average are in state %s%s", f->threads[most],
                                       thread_state_label(qos_state_to_string(most)),
                                       most == QOS_STATE_PARK ?
                                       ", for a lock that is not released, or an event" : "");
                return;
        }
        for (size_t i = 0; i < ELEMENTSOF(table) && f->rate > 0; i++) {
                double time = f->threads[table[i].state] / f->rate * NSEC_PER_SEC;

                if (time < SHARE_MOST * f->first_byte)
                        continue;
                summary_append(d, ": its threads %s for up to %s of the %s to the first byte", table[i].text,
                               SPAN(MIN(time, f->first_byte)), SPAN(f->first_byte));
                return;
        }
}

void diagnosis_summarize(const DiagnosisEvidence *e, Diagnosis *d) {
        for (size_t i = 0; i < d->n_findings; i++)
                finding_advise(e, d->findings + i);

        if (d->n_findings > 0)
                summarize_finding(e, d->findings, d);
        else if (d->verdict == VERDICT_UNKNOWN)
                summarize_unknown(e, d);
        else
                summary_append(d, "no bottleneck found");
}
