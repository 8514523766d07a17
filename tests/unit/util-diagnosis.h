/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Evidence of units, and what their diagnoses are expected to say. */

#include <math.h>

#include "check.h"
#include "diagnosis.h"
#include "parse.h"
#include "state-label.h"
#include "util.h"

#define US 1e3
#define MS 1e6

/* A healthy server: 1000 requests per second, 200 us each, 100 us of CPU time, on two CPUs. */
static inline DiagnosisEvidence evidence(void) {
        DiagnosisEvidence e = {};
        DiagnosisFigures *f = &e.now;

        memset(f, 0, sizeof(*f));
        f->service_lock = NAN; /* its threads do whatever there is to do */
        f->covered = 10e9;
        f->rate = 1000;
        f->queue = 20 * US;
        f->service = 180 * US;
        f->first_byte = 200 * US;
        f->bytes_in = 64;
        f->bytes_out = 128;
        f->threads[QOS_STATE_RUNNING] = 0.1;
        f->threads[QOS_STATE_POLL] = 4;
        f->run_queue_wait = 5 * US;
        f->cpus = 2;
        f->idle_cpus = 1.8;
        e.accept_queue = e.accept_queue_max = NAN;
        f->busiest_process = 0.1;
        return e;
}

static inline void set_times(DiagnosisFigures *f, double queue, double service) {
        f->queue = queue;
        f->service = service;
        f->first_byte = f->receive + queue + service;
}

static inline const Finding* find(const Diagnosis *d, FindingKind kind) {
        for (size_t i = 0; i < d->n_findings; i++)
                if (d->findings[i].kind == kind)
                        return d->findings + i;
        return NULL;
}

static inline void diagnose_none(const DiagnosisEvidence *e, Diagnosis *d) {
        diagnosis_make(e, d);
        check(d->verdict == VERDICT_NOTHING && d->n_findings == 0);
}

/* This kind is found, and no other. */
static inline const Finding* only(const DiagnosisEvidence *e, FindingKind kind, Diagnosis *d) {
        diagnosis_make(e, d);
        for (size_t i = 0; i < d->n_findings; i++)
                if (d->findings[i].kind != kind)
                        fprintf(stderr, "%s: %s\n", finding_kind_to_string(d->findings[i].kind),
                                d->findings[i].text);
        check(d->n_findings == 1 && d->findings[0].kind == kind);
        check(d->verdict == VERDICT_FOUND);
        check(d->findings[0].text[0] && d->findings[0].rule);
        for (size_t i = 0; i < d->n_excluded; i++)
                check(d->excluded[i].kind != kind && d->excluded[i].text[0]);
        return d->findings;
}

static inline void nothing(const DiagnosisEvidence *e) {
        Diagnosis d;

        diagnosis_make(e, &d);
        for (size_t i = 0; i < d.n_findings; i++)
                fprintf(stderr, "%s: %s\n", finding_kind_to_string(d.findings[i].kind), d.findings[i].text);
        check(d.verdict == VERDICT_NOTHING && d.n_findings == 0 && d.text[0]);
}

/* Text of an excluded cause; empty: it is not excluded. */
static inline const char* excluded(const DiagnosisEvidence *e, FindingKind kind, Diagnosis *d) {
        diagnose_none(e, d);
        for (size_t i = 0; i < d->n_excluded; i++)
                if (d->excluded[i].kind == kind)
                        return d->excluded[i].text;
        return "";
}

/* Units without requests: states of threads while they are not idle. */
static inline DiagnosisEvidence batch(void) {
        DiagnosisEvidence e = evidence();

        e.now.rate = 0;
        e.now.first_byte = e.now.receive = e.now.queue = e.now.service = e.now.answer = NAN;
        e.now.threads[QOS_STATE_RUNNING] = 0;
        e.now.run_queue_own = e.now.run_queue_others = NAN;
        return e;
}

/* A unit that serves requests, with failures that PID 1 and the counters report. */
static inline DiagnosisEvidence serving(void) {
        DiagnosisEvidence e = evidence();

        e.unit = "app.service";
        e.run.active_state = "active";
        e.run.restarts = 0;
        e.run.now = 2000 * NSEC_PER_SEC;
        (void) snprintf(e.run.lifecycle.sub_state, sizeof(e.run.lifecycle.sub_state), "running");
        (void) snprintf(e.run.lifecycle.result, sizeof(e.run.lifecycle.result), "success");
        return e;
}
