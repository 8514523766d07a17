/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The baseline of a unit, from synthetic histories. */

#include <math.h>

#include "baseline.h"
#include "check.h"
#include "util.h"

#define MS NSEC_PER_MSEC
#define STEP HISTORY_FINE_NSEC

/* A step with this many requests of the same time to first byte; a tenth of a thread runs, and each request
 * has one to a peer, of half that time. */
static HistoryStep make_step(uint64_t index, uint64_t count, uint64_t nsec) {
        HistoryStep s = { .index = index, .timestamp = index * STEP, .covered = STEP };
        Metrics m;

        metrics_set_absent(&m);
        m.requests.server.count = count;
        m.requests.server.bytes_in = 100 * count;
        m.requests.server.bytes_out = 200 * count;
        history_step_set_metrics(&s, &m);
        for (unsigned i = 0; i < HISTORY_DISTRIBUTIONS; i++) {
                s.measured[i] = true;
                s.distributions[i].schema = WINDOW_BINS_SCHEMA_MAX;
                /* eight bins an octave, from 238 ns on */
                s.distributions[i].count[(unsigned) ceil(8 * (log2(nsec / 1e9) + 22))] = count;
                s.distributions[i].sum = count * nsec;
                s.distributions[i].max = nsec;
        }
        s.amounts[HISTORY_PHASED] = count;
        s.amounts[HISTORY_QUEUE] = count * nsec / 4;
        s.amounts[HISTORY_SERVICE] = count * nsec * 3 / 4;
        s.amounts[HISTORY_CPU_COVERED] = STEP;
        s.amounts[HISTORY_FIRST_STATE] = STEP / 10;
        s.amounts[HISTORY_CLIENT_COVERED] = STEP;
        s.amounts[HISTORY_CLIENT] = count;
        s.amounts[HISTORY_CLIENT_TIME] = count * nsec / 2;
        return s;
}

static void put(History *h, const HistoryStep *s) {
        check(history_put(h, s) >= 0);
        check(history_roll(h, s->index) >= 0);
}

static bool near(double a, double b) {
        return fabs(a - b) <= 0.01 * b;
}

static void test_figures(void) {
        _cleanup_history_ History *h = NULL;
        HistoryStep s;
        Baseline n;

        check(history_new(&h) >= 0);
        check(baseline_read(h, UINT64_MAX, 100, NULL, 0, &n) == -ENODATA);
        for (uint64_t i = 1000; i < 1010; i++) {
                s = make_step(i, 1000, 4 * MS);
                put(h, &s);
        }
        check(baseline_read(h, 1011 * STEP, 100, NULL, 0, &n) >= 0);
        check(n.covered == 5 * STEP && n.until > n.since && n.since >= 1000 * STEP &&
              n.until <= 1010 * STEP);
        check(near(n.figures.rate, 100) && near(n.figures.first_byte, 4.0 * MS) &&
              near(n.figures.queue, 1.0 * MS) && near(n.figures.service, 3.0 * MS));
        check(near(n.figures.bytes_in, 100) && near(n.figures.bytes_out, 200) &&
              near(n.figures.threads[QOS_STATE_RUNNING], 0.1));
        check(near(n.figures.client_rate, 100) && near(n.figures.client_latency, 2.0 * MS) &&
              near(n.usual, 4.0 * MS));
        check(isnan(n.figures.cpus) && isnan(n.figures.throttled) && isnan(n.figures.major_faults));

        /* Only steps that ended a step before, as the last one may have the problem to be diagnosed */
        check(baseline_read(h, 1004 * STEP, 100, NULL, 0, &n) >= 0 && n.covered == 3 * STEP);
        check(baseline_read(h, 1004 * STEP - 1, 100, NULL, 0, &n) == -ENODATA);
}

static void set_errors(HistoryStep *s, uint64_t status5xx, uint64_t reset, uint64_t aborts) {
        Metrics m;

        history_step_get_metrics(s, 1, &m);
        m.requests.server.parsed[PARSED(HTTP1)] = m.requests.server.count;
        m.requests.server.errors_status5xx = status5xx;
        m.requests.server.errors_reset = reset;
        m.requests.server.client_aborts = aborts;
        history_step_set_metrics(s, &m);
}

/* Failures are fast: an outage during most of the history must not become the baseline, in any way of
 * failing. */
static void test_outage(void) {
        static const struct {
                uint64_t status5xx, reset, aborts;
        } outages[] = { { 1000, 0, 0 }, { 50, 0, 0 }, { 0, 400, 0 }, { 0, 0, 400 } };

        for (size_t k = 0; k < ELEMENTSOF(outages); k++) {
                _cleanup_history_ History *h = NULL;
                Baseline n;

                check(history_new(&h) >= 0);
                for (uint64_t i = 1000; i < 1020; i++) {
                        bool out = i >= 1005 && i < 1019;
                        HistoryStep s = make_step(i, 1000, out ? 1 * MS : 50 * MS);

                        if (out)
                                set_errors(&s, outages[k].status5xx, outages[k].reset, outages[k].aborts);
                        else
                                set_errors(&s, 2, 1, 1); /* of a thousand */
                        put(h, &s);
                }
                check(baseline_read(h, UINT64_MAX, 100, NULL, 0, &n) >= 0);
                check(near(n.figures.first_byte, 50.0 * MS) && near(n.usual, 50.0 * MS));
                check(near(n.figures.status5xx, 0.2) && near(n.figures.resets, 0.1) &&
                      near(n.figures.client_aborts, 0.1) && near(n.busy, 1));
        }
}

/* A service with constant errors has a baseline with them. */
static void test_usual_errors(void) {
        _cleanup_history_ History *h = NULL;
        Baseline n;

        check(history_new(&h) >= 0);
        for (uint64_t i = 1000; i < 1020; i++) {
                HistoryStep s = make_step(i, 1000, 4 * MS);

                set_errors(&s, 40 + i % 10, 0, 0);
                put(h, &s);
        }
        check(baseline_read(h, UINT64_MAX, 100, NULL, 0, &n) >= 0);
        check(n.figures.status5xx > 4 && n.figures.status5xx < 5 && isnan(n.figures.grpc_errors));
}

/* Steps with a start of the unit are left out. */
static void test_starts(void) {
        const uint64_t starts[] = { 1001 * STEP, 1002 * STEP + STEP / 2, 1005 * STEP - 1 };
        _cleanup_history_ History *h = NULL;
        Baseline n;

        check(history_new(&h) >= 0);
        for (uint64_t i = 1000; i < 1006; i++) {
                HistoryStep s = make_step(i, 1000, 4 * MS);

                put(h, &s);
        }
        check(baseline_read(h, UINT64_MAX, 100, starts, ELEMENTSOF(starts), &n) >= 0);
        check(n.covered == 3 * STEP && near(n.busy, 1));
        check(baseline_read(h, 1006 * STEP, 100, starts, ELEMENTSOF(starts), &n) == -ENODATA);
}

/* What was slow for a third of the time is not normal, with a threshold or without. */
static void test_faults(void) {
        for (unsigned violated = 0; violated < 2; violated++) {
                _cleanup_history_ History *h = NULL;
                Baseline n;

                check(history_new(&h) >= 0);
                for (uint64_t i = 1000; i < 1012; i++) {
                        HistoryStep s = make_step(i, 1000, i >= 1008 ? 40 * MS : 4 * MS);

                        s.violated = i >= 1008 && violated;
                        put(h, &s);
                }
                check(baseline_read(h, UINT64_MAX, 100, NULL, 0, &n) >= 0);
                check(near(n.figures.first_byte, 4.0 * MS));
                check(near(n.usual, violated ? 4.0 * MS : 40.0 * MS));
        }
}

/* Idle steps are left out. */
static void test_idle(void) {
        _cleanup_history_ History *h = NULL;
        Baseline n;

        check(history_new(&h) >= 0);
        for (uint64_t i = 1000; i < 1100; i++) {
                HistoryStep s = make_step(i, i % 10 ? 9 : 1000, i % 10 ? 1 * MS : 4 * MS);

                put(h, &s);
        }
        check(baseline_read(h, UINT64_MAX, 100, NULL, 0, &n) >= 0);
        check(near(n.figures.first_byte, 4.0 * MS) && near(n.figures.rate, 100) && near(n.busy, 0.1));
}

/* More load by day, and longer times: the baseline is that of other days. */
static void test_load(void) {
        _cleanup_history_ History *h = NULL;
        Baseline n;

        check(history_new(&h) >= 0);
        for (uint64_t i = 1000; i < 1100; i++) {
                HistoryStep s = make_step(i, i < 1080 ? 1000 : 5000, i < 1080 ? 4 * MS : 9 * MS);

                put(h, &s);
        }
        check(baseline_read(h, UINT64_MAX, 110, NULL, 0, &n) >= 0 && near(n.figures.first_byte, 4.0 * MS));
        check(baseline_read(h, UINT64_MAX, 550, NULL, 0, &n) >= 0 && near(n.figures.first_byte, 9.0 * MS) &&
              near(n.figures.rate, 500) && near(n.usual, 9.0 * MS));
        /* There never was such a load */
        check(baseline_read(h, UINT64_MAX, 5000, NULL, 0, &n) >= 0 && near(n.figures.first_byte, 4.0 * MS));
}

/* A whole day: the last hour by steps of ten seconds, the rest by steps of five minutes, without
 * overlaps. */
static void test_day(void) {
        _cleanup_history_ History *h = NULL;
        Baseline n;

        check(history_new(&h) >= 0);
        for (uint64_t i = 100000; i < 110000; i++) {
                HistoryStep s = make_step(i, 1000, 4 * MS + i % 7);

                put(h, &s);
        }
        check(baseline_read(h, UINT64_MAX, 100, NULL, 0, &n) >= 0);
        check(near(n.figures.first_byte, 4.0 * MS) && near(n.figures.rate, 100));
        /* Half a day, except for the part between both kinds of steps */
        check(n.covered > 11 * 3600 * NSEC_PER_SEC && n.covered <= 12 * 3600 * NSEC_PER_SEC +
              HISTORY_COARSE_NSEC);
}

/* Threads and peers are known for some steps only, those with more load: the value is per request, as it was
 * then. */
static void test_known(void) {
        _cleanup_history_ History *h = NULL;
        Baseline n;

        check(history_new(&h) >= 0);
        for (uint64_t i = 1000; i < 1100; i++) {
                bool busy = i % 10 == 0;
                HistoryStep s = make_step(i, busy ? 3000 : 1000, 4 * MS - busy);

                if (!busy)
                        memset(s.amounts, 0, sizeof(s.amounts));
                put(h, &s);
        }
        for (unsigned again = 0; again < 2; again++) {
                /* With the same load, and with more */
                check(baseline_read(h, UINT64_MAX, again ? 200 : 100, NULL, 0, &n) >= 0);
                check(near(n.figures.threads[QOS_STATE_RUNNING] / n.figures.rate, 0.1 / 300));
                check(near(n.figures.client_rate / n.figures.rate, 1) &&
                      near(n.figures.client_latency, 2.0 * MS));
                check(near(n.figures.queue, 1.0 * MS) && near(n.figures.service, 3.0 * MS));
        }
}

int main(void) {
        test_figures();
        test_outage();
        test_usual_errors();
        test_starts();
        test_faults();
        test_idle();
        test_load();
        test_day();
        test_known();
        return 0;
}
