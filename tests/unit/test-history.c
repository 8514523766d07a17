/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The history of a unit: steps read from the map (src/model/window.c), and their encoding, compared with
 * plain arithmetic. */

#include <math.h>

#include "check.h"
#include "util.h"

#define window_copy(to, from, size) memcpy(to, from, size)
#define window_cpu() ((uint32_t) gettid())
#define window_now() UINT64_C(0)
#define WINDOW_WAITS UINT32_MAX
#define row_loop(n, step, data) ({ for (__u64 _i = 0; _i < (n) && step(_i, data) == 0; _i++) ; })
#include "history-internal.h"
#include "util-window.h"
#include "window-record.h"

#define STEP WINDOW_STEP_NSEC
#define REALTIME (UINT64_C(1763683200) * NSEC_PER_SEC)

static struct qos_unit_map* unit_new_at(uint64_t now) {
        struct qos_unit_map *u = new0(struct qos_unit_map, 1);

        check(u);
        u->epoch = now / QOS_EPOCH_NSEC;
        u->epoch_end = (u->epoch + 1) * QOS_EPOCH_NSEC;
        return u;
}

static void record(struct qos_unit_map *u, uint64_t now, uint64_t nsec) {
        window_advance(u, now);
        window_count(u, QOS_COUNTER_COUNT, 1);
        window_add(u, QOS_FIRST_BYTE, nsec, 1);
}

static uint64_t bins_count(const WindowBins *b) {
        uint64_t n = 0;

        for (unsigned i = 0; i < window_bins_number(b->schema); i++)
                n += b->count[i];
        return n;
}

/* ---- steps from the map ------------------------------------------------------------------------------- */

/* All steps that the map must have, at many moments, compared with a list of the recorded times. */
static void test_steps(void) {
        uint64_t attached = 1234567 * NSEC_PER_MSEC, now = attached;
        struct qos_unit_map *u = unit_new_at(attached);
        static uint64_t recorded[100000], longest[100000]; /* by step */
        unsigned seed = 1;

        for (unsigned k = 0; k < 40000; k++) {
                uint64_t nsec;

                now += rand_r(&seed) % (40 * NSEC_PER_MSEC);
                if (k % 300 == 299)
                        now += rand_r(&seed) % 30 * NSEC_PER_SEC;
                if (k % 10000 == 9999)
                        now += 300 * NSEC_PER_SEC;

                nsec = 1000 + rand_r(&seed) % NSEC_PER_SEC;
                record(u, now, nsec);
                recorded[now / STEP]++;
                longest[now / STEP] = MAX(longest[now / STEP], nsec);

                if (k % 10 == 0 || k % 300 == 299) {
                        uint64_t current = now / STEP,
                                first = MAX(current - WINDOW_STEPS + 1, attached / STEP);

                        for (uint64_t n = first; n < current; n++) {
                                WindowReading r;
                                WindowGauges gauges;

                                check(window_read_step(sources_of(u, attached), n, &r, &gauges) >= 0);
                                check(r.cells[QOS_COUNTER_COUNT] == recorded[n]);
                                check(window_get_count(&r, QOS_LATENCY) == recorded[n]);
                                check(r.covered == (n == attached / STEP ? (n + 1) * STEP - attached :
                                                    STEP));
                                check(r.maxima[QOS_LATENCY] == longest[n]);
                        }
                }
        }
        free(u);
}

/* Sub-windows do not advance in silence: steps in it are known nevertheless, and are empty. Steps before the
 * attach are unknown. */
static void test_steps_silence(void) {
        uint64_t attached = 1000 * NSEC_PER_SEC + 3;
        struct qos_unit_map *u = unit_new_at(attached);
        WindowGauges gauges;
        WindowReading r;

        check(window_read_step(sources_of(u, attached), 99, &r, &gauges) == -ENODATA);
        check(window_read_step(sources_of(u, attached), 100, &r, &gauges) >= 0);
        check(r.covered == STEP - 3);

        record(u, attached + 10, 5000);
        u->in_flight = 3;
        u->open = 7;
        for (uint64_t n = 100; n < 5000; n++) {
                check(window_read_step(sources_of(u, attached), n, &r, &gauges) >= 0);
                check(r.cells[QOS_COUNTER_COUNT] == (n == 100));
                check(gauges.in_flight == 3 && gauges.open == 7);
        }

        /* One checkpoint is valid for all boundaries in the silence */
        window_advance(u, 50000 * NSEC_PER_SEC);
        u->in_flight = 1;
        record(u, 50000 * NSEC_PER_SEC, 5000);
        for (uint64_t n = 100; n < 5000; n++) {
                check(window_read_step(sources_of(u, attached), n, &r, &gauges) >= 0);
                check(r.cells[QOS_COUNTER_COUNT] == (n == 100));
                check(gauges.in_flight == 3 && gauges.open == 7);
        }
        check(window_read_step(sources_of(u, attached), 5000, &r, &gauges) >= 0);
        check(r.cells[QOS_COUNTER_COUNT] == 1 && gauges.in_flight == 1);

        /* Beyond the number of boundaries kept, steps are unknown */
        for (unsigned i = 1; i <= 20; i++)
                record(u, (50000 + 10 * i) * NSEC_PER_SEC, 5000);
        check(window_read_step(sources_of(u, attached), 5000, &r, &gauges) == -ENODATA);
        free(u);
}

/* A sample that moves leaves its step, for as long as that is known. */
static void test_steps_move(void) {
        uint64_t attached = 900 * NSEC_PER_SEC, start = 1000 * NSEC_PER_SEC + 1, last = start;
        struct qos_unit_map *u = unit_new_at(attached);
        WindowGauges gauges;
        WindowReading r;

        record(u, start, 0);
        window_add(u, QOS_SERVICE, 0, 1);
        for (uint64_t age = NSEC_PER_SEC; age <= 50 * NSEC_PER_SEC; age += NSEC_PER_SEC) {
                window_advance(u, start + age);
                window_move(u, QOS_LATENCY, last, last - start, start + age, age);
                window_move(u, QOS_ANSWER, last, last - start, start + age, age);
                last = start + age;
                record(u, last, 5000);

                for (uint64_t n = 100; n < last / STEP; n++) {
                        check(window_read_step(sources_of(u, attached), n, &r, &gauges) >= 0);
                        check(r.cells[QOS_COUNTER_COUNT] == 10);
                        check(window_get_count(&r, QOS_FIRST_BYTE) == 10);
                        check(window_get_count(&r, QOS_LATENCY) == 10 - (n == 100));
                        check(window_get_count(&r, QOS_ANSWER) == 0);
                }
        }
        free(u);
}

/* ---- distributions ------------------------------------------------------------------------------------ */

/* Merged bins equal those of the merged samples. */
static void test_bins(void) {
        uint64_t now = 1000 * NSEC_PER_SEC;
        struct qos_unit_map *u = unit_new_at(now);
        static uint64_t samples[5000];
        WindowReading r;
        WindowBins b;
        unsigned seed = 1;

        for (size_t i = 0; i < ELEMENTSOF(samples); i++) {
                samples[i] = (uint64_t) exp2(rand_r(&seed) % 40000 / 1000.0);
                record(u, now, samples[i]);
        }
        check(window_read(sources_of(u, now), now, WINDOW_TOTAL, &r) >= 0);
        window_get_bins(&r, QOS_LATENCY, &b);

        for (;; window_bins_coarsen(&b)) {
                static WindowBins twice;
                unsigned n = window_bins_number(b.schema);
                uint64_t seen = 0;
                Distribution d;

                for (unsigned bin = 0; bin < n; bin++) {
                        int index = window_bins_get_index(b.schema, bin);
                        double lower = bin == 0 ? -1 : NSEC_PER_SEC * exp2(ldexp(index - 1, -b.schema)),
                               upper = bin == n - 1 ? INFINITY :
                                       NSEC_PER_SEC * exp2(ldexp(index, -b.schema));
                        uint64_t expected = 0;

                        for (size_t i = 0; i < ELEMENTSOF(samples); i++)
                                expected += (double) samples[i] > lower && (double) samples[i] <= upper;
                        check(b.count[bin] == expected);
                        seen += expected;
                }
                check(seen == ELEMENTSOF(samples));

                window_bins_get_distribution(&b, 5, &d);
                check(d.count == seen && d.mean == r.sums[QOS_LATENCY] / seen &&
                      d.max == r.maxima[QOS_LATENCY]);
                check(d.p999 != ABSENT);

                /* Of two schemas the coarser one */
                twice = b;
                {
                        WindowBins fine;

                        window_get_bins(&r, QOS_LATENCY, &fine);
                        window_bins_add(&twice, &fine);
                }
                check(twice.schema == b.schema && twice.sum == 2 * b.sum && twice.max == b.max);
                for (unsigned bin = 0; bin < n; bin++)
                        check(twice.count[bin] == 2 * b.count[bin]);

                if (b.schema == WINDOW_BINS_SCHEMA_MIN)
                        break;
        }
        free(u);
}

/* ---- encoding ----------------------------------------------------------------------------------------- */

/* A step with count requests of about nsec, with this many different durations. */
static HistoryStep make_step(uint64_t index, uint64_t count, unsigned first_bin, unsigned spread) {
        HistoryStep s = {
                .index = index,
                .timestamp = REALTIME + index * STEP,
                .covered = STEP,
        };
        Metrics m;

        memset(&m, 0, sizeof(m));
        m.requests.server.count = count;
        m.requests.server.bytes_in = count * 100;
        m.requests.server.errors_timeout = ABSENT;
        m.requests.server.in_flight = index % 5;
        history_step_set_metrics(&s, &m);

        /* Times of a service's threads in some states. Numbers of up to eight bits, which are encoded
         * exactly */
        for (size_t i = HISTORY_RECEIVE; i <= HISTORY_SERVICE; i++)
                s.amounts[i] = (128 + index % 128) << (20 + i);
        s.amounts[HISTORY_CPU_COVERED] = s.amounts[HISTORY_BLOCK_COVERED] =
                s.amounts[HISTORY_MEMORY_COVERED] = UINT64_C(149) << 26;
        for (unsigned i = 0; i < 8; i++)
                s.amounts[HISTORY_FIRST_STATE + i] = (128 + (index + i) % 128) << (22 + i);
        s.amounts[HISTORY_RUN_QUEUES] = 250;
        s.amounts[HISTORY_RUN_QUEUE_TIME] = 128 << 10;

        for (unsigned i = 0; i < HISTORY_DISTRIBUTIONS; i++) {
                WindowBins *b = &s.distributions[i];

                s.measured[i] = true;
                b->schema = WINDOW_BINS_SCHEMA_MAX;
                for (unsigned k = 0; k < spread; k++)
                        b->count[first_bin + k] = count / spread + (k < count % spread);
                b->sum = count * 1000000;
                b->max = 2000000;
        }
        return s;
}

static bool steps_equal(const HistoryStep *a, const HistoryStep *b) {
        return memcmp(a, b, offsetof(HistoryStep, mounts)) == 0 &&
               memcmp(a->mounts, b->mounts, a->n_mounts * sizeof(HistoryMount)) == 0;
}

typedef struct Seen {
        size_t n;
        uint64_t count, first, last;
        int schema_min, schema_max;
        HistoryStep step;
} Seen;

static int see(const HistoryStep *s, void *userdata) {
        Seen *seen = userdata;
        Metrics m;

        check(seen->n == 0 || s->index > seen->last);
        if (seen->n++ == 0)
                seen->first = s->index;
        seen->last = s->index;
        seen->schema_min = MIN(seen->schema_min, s->distributions[0].schema);
        seen->schema_max = MAX(seen->schema_max, s->distributions[0].schema);
        seen->step = *s;

        history_step_get_metrics(s, 5, &m);
        if (s->measured[1] && m.requests.quality == QUALITY_EXCHANGES) {
                check(bins_count(&s->distributions[1]) == m.requests.server.latency.count);
                check(m.requests.server.latency.count == m.requests.server.count);
        }
        seen->count += m.requests.server.count;
        return 0;
}

static Seen look(const History *h, HistoryLevel level) {
        Seen seen = { .schema_min = 100, .schema_max = -100 };

        check(history_foreach(h, level, see, &seen) >= 0);
        return seen;
}

static size_t file_size(const History *h) {
        _cleanup_free_ void *data = NULL;
        size_t size;

        check(history_serialize(h, 1, &data, &size) >= 0);
        return size;
}

/* Decoded steps equal those encoded. */
static void test_record(void) {
        _cleanup_history_ History *h = NULL;
        unsigned seed = 3;

        check(history_new(&h) >= 0);
        check(look(h, HISTORY_FINE).n == 0 && look(h, HISTORY_COARSE).n == 0);

        for (unsigned k = 0; k < 2000; k++) {
                HistoryStep s = make_step(100 + k, rand_r(&seed) % 3 ? rand_r(&seed) % 100000 : 0,
                                          rand_r(&seed) % 100, 1 + rand_r(&seed) % 100);
                Metrics in, out;
                Seen seen, again;

                s.overlaps = 0;
                s.covered = k % 3 ? STEP : rand_r(&seed) % STEP;
                if (k % 4 == 0) {
                        s.distributions[0].count[rand_r(&seed) % 226] += 3;
                        s.distributions[1].count[225] += 3;
                        s.distributions[1].sum += 12345;
                        s.values[0] = bins_count(&s.distributions[1]);
                }
                if (k % 7 == 0) {
                        s.measured[0] = s.measured[1] = false;
                        s.distributions[0] = s.distributions[1] =
                                (WindowBins) { .schema = WINDOW_BINS_SCHEMA_MAX };
                }
                history_step_get_metrics(&s, 5, &in);
                if (in.requests.server.latency.count != ABSENT &&
                    in.requests.server.latency.count != in.requests.server.count)
                        continue; /* made up such that see() would reject it */

                check(history_put(h, &s) >= 0);
                seen = look(h, HISTORY_FINE);
                check(steps_equal(&seen.step, &s));
                history_step_get_metrics(&seen.step, 5, &out);
                check(memcmp(&in, &out, sizeof(in)) == 0);

                /* The same step again replaces the previous one, and keeps its time */
                s.timestamp += 17 * NSEC_PER_SEC;
                check(history_put(h, &s) >= 0);
                again = look(h, HISTORY_FINE);
                check(again.n == seen.n);
                check(again.step.timestamp == s.timestamp - 17 * NSEC_PER_SEC);
                check(history_roll(h, 100 + k) >= 0);
        }
}

/* Means of the phases: those of a step, of the sum of two, and of one of which only a half has amounts. */
static void test_phases(void) {
        HistoryStep s = make_step(100, 1000, 0, 10), later = make_step(101, 3000, 0, 10);
        Server *server;
        Metrics m;

        memset(s.amounts, 0, sizeof(s.amounts));
        memset(later.amounts, 0, sizeof(later.amounts));
        history_step_get_metrics(&s, 5, &m);
        server = &m.requests.server;
        check(server->queue.count == ABSENT && server->answer.mean == ABSENT);

        s.amounts[HISTORY_PHASED] = 1000;
        s.amounts[HISTORY_RECEIVE] = 0;
        s.amounts[HISTORY_QUEUE] = 5000;
        s.amounts[HISTORY_SERVICE] = 2000000;
        s.amounts[HISTORY_ANSWER] = 300000;
        history_step_get_metrics(&s, 5, &m);
        check(server->receive.count == 1000 && server->receive.mean == 0 && server->receive.p99 == ABSENT);
        check(server->queue.mean == 5 && server->service.mean == 2000);
        check(server->answer.count == 1000 && server->answer.mean == 300);

        /* Amounts of the first half only */
        step_add(&s, &later);
        history_step_get_metrics(&s, 5, &m);
        check(server->latency.count == 4000);
        check(server->service.count == 1000 && server->service.mean == 2000);
        check(server->answer.count == 1000 && server->answer.mean == 300);

        later.amounts[HISTORY_PHASED] = 3000;
        later.amounts[HISTORY_SERVICE] = 18000000;
        step_add(&s, &later);
        history_step_get_metrics(&s, 5, &m);
        check(server->service.mean == 5000);

        /* Only ends of responses */
        memset(&s.distributions[0].count, 0, sizeof(s.distributions[0].count));
        memset(s.amounts, 0, sizeof(s.amounts));
        s.amounts[HISTORY_ANSWER] = 14000;
        history_step_get_metrics(&s, 5, &m);
        check(server->queue.mean == ABSENT && server->answer.count == 7000 && server->answer.mean == 2);

        s.overlaps = 1000000;
        history_step_get_metrics(&s, 5, &m);
        check(m.requests.quality == QUALITY_OVERLAPPING && server->answer.count == ABSENT);
}

/* Amounts of any size are encoded to half a percent; unknown ones of a later step do not replace known
 * ones. */
static void test_amounts(void) {
        _cleanup_history_ History *h = NULL;
        unsigned seed = 5;
        Metrics m;
        Seen seen;

        check(history_new(&h) >= 0);
        for (unsigned k = 0; k < 3000; k++) {
                HistoryStep s = { .index = 7, .covered = STEP };
                uint64_t in[_HISTORY_AMOUNT_MAX];

                for (size_t i = 0; i < _HISTORY_AMOUNT_MAX; i++) {
                        uint64_t n = (uint64_t) rand_r(&seed) << 33 ^ (uint64_t) rand_r(&seed) <<
                                     10 ^ (uint64_t) rand_r(&seed);

                        in[i] = k == 0 ? UINT64_MAX : k == 1 ? UINT64_MAX >> i % 64 :
                                MAX(n >> rand_r(&seed) % 64, UINT64_C(1));
                }
                memcpy(s.amounts, in, sizeof(in));
                check(history_put(h, &s) >= 0);
                seen = look(h, HISTORY_FINE);
                for (size_t i = 0; i < _HISTORY_AMOUNT_MAX; i++) {
                        double out = seen.step.amounts[i];

                        check(fabs(out - in[i]) <= in[i] / 256.0);
                        check(in[i] >= 256 || seen.step.amounts[i] == in[i]);
                }
        }

        {
                HistoryStep s = make_step(9, 100, 50, 3), again = make_step(9, 101, 50, 3);

                s.violated = s.missed = true;
                s.amounts[HISTORY_CLIENT_COVERED] = s.amounts[HISTORY_CLIENT] = 77;
                memset(again.amounts + HISTORY_CLIENT_COVERED, 0,
                       sizeof(again.amounts) - HISTORY_CLIENT_COVERED * sizeof(again.amounts[0]));
                again.amounts[HISTORY_MEMORY_COVERED] = 1;
                check(history_put(h, &s) >= 0);
                check(history_put(h, &again) >= 0);
                seen = look(h, HISTORY_FINE);
                check(seen.step.violated && seen.step.missed && seen.step.amounts[HISTORY_CLIENT] == 77);
                check(seen.step.amounts[HISTORY_FIRST_STATE] == s.amounts[HISTORY_FIRST_STATE]);
                check(seen.step.amounts[HISTORY_MEMORY_COVERED] == 1 &&
                      seen.step.amounts[HISTORY_MAJOR_FAULTS] == 0);
        }

        /* Amounts and what they are relative to; without the latter they are absent */
        {
                double all = 0;

                history_step_get_metrics(&seen.step, 5, &m);
                for (unsigned i = QOS_STATE_RUNNING; i < QOS_STATES; i++)
                        all += m.contention.shares[i];
                check(fabs(all - 1) < 1e-9);
                check(fabs(m.contention.threads[QOS_STATE_RUNNING] -
                           (double) seen.step.amounts[HISTORY_FIRST_STATE] /
                           seen.step.amounts[HISTORY_CPU_COVERED]) < 1e-9);
                check(m.contention.run_queue_latency.count == 250 &&
                      m.contention.run_queue_latency.mean == (128 << 10) / 250);
                check(m.contention.run_queue_latency.p50 == ABSENT &&
                      m.contention.time[QOS_STATE_RUNNING] == ABSENT);
                seen.step.amounts[HISTORY_CPU_COVERED] = 0;
                history_step_get_metrics(&seen.step, 5, &m);
                check(isnan(m.contention.shares[QOS_STATE_RUNNING]) &&
                      m.contention.run_queue_latency.count == ABSENT);
        }
}

/* Two days of load: each request is in the steps of the hour, and of the day, exactly once. */
static void test_levels(void) {
        const uint64_t begin = 1000017, steps = 2 * 8640;
        static uint64_t counts[2 * 8640];
        _cleanup_history_ History *h = NULL;
        unsigned seed = 1;

        check(history_new(&h) >= 0);
        for (uint64_t k = 0; k < steps; k++) {
                HistoryStep s;

                /* A gap of some minutes now and then, without readings */
                if (k % 1000 < 50)
                        continue;
                counts[k] = rand_r(&seed) % 1000;
                s = make_step(begin + k, counts[k], 60, 20);
                check(history_put(h, &s) >= 0);
                check(history_roll(h, begin + k) >= 0);

                if (k % 577 == 0 || k == steps - 1) {
                        uint64_t newest = begin + k, fine = 0, coarse = 0, n_fine = 0;
                        Seen f = look(h, HISTORY_FINE), c = look(h, HISTORY_COARSE);

                        for (uint64_t i = 0; i <= k; i++) {
                                if (begin + i + HISTORY_FINE_STEPS > newest) {
                                        fine += counts[i];
                                        n_fine += i % 1000 >= 50;
                                }
                                if ((begin + i) / 30 + HISTORY_COARSE_STEPS > newest / 30)
                                        coarse += counts[i];
                        }
                        check(f.n == n_fine && f.count == fine);
                        check(c.count == coarse);
                        check(c.n <= HISTORY_COARSE_STEPS);
                        check(c.last == newest / 30);
                        /* It fits without loss */
                        check(f.schema_min == WINDOW_BINS_SCHEMA_MAX);
                        check(file_size(h) <= HISTORY_SIZE_MAX);
                }
        }
}

/* A step of 5 min covers its steps of 10 s, has the gauges of the last one, and begins with the first
 * one. */
static void test_merge(void) {
        _cleanup_history_ History *h = NULL;
        HistoryStep s;
        Metrics m;
        Seen seen;

        check(history_new(&h) >= 0);
        s = make_step(3003, 500, 80, 10);
        s.covered = 4 * NSEC_PER_SEC;
        check(history_put(h, &s) >= 0);
        s = make_step(3004, 1000, 120, 10);
        s.overlaps = 1001;
        s.missed = true;
        s.distributions[1].max = 70000000;
        check(history_put(h, &s) >= 0);

        seen = look(h, HISTORY_FINE);
        history_step_get_metrics(&seen.step, 5, &m);
        check(m.requests.quality == QUALITY_OVERLAPPING);
        check(m.requests.server.count == ABSENT && m.requests.server.protocol_tcp == ABSENT &&
              m.requests.server.latency.count == ABSENT);
        check(isnan(m.requests.server.rate) && m.requests.server.bytes_in == 100000);

        s = make_step(3005, 100000, 120, 10);
        check(history_put(h, &s) >= 0);
        for (unsigned i = 0; i < 2; i++) {
                seen = look(h, HISTORY_COARSE);
                check(seen.n == 1 && seen.step.index == 100 && seen.step.missed);
                check(seen.step.covered == 24 * NSEC_PER_SEC);
                check(seen.step.timestamp == REALTIME + 3000 * STEP);
                history_step_get_metrics(&seen.step, 5, &m);
                check(m.requests.quality == QUALITY_EXCHANGES);
                check(m.requests.server.count == 101500 && m.requests.server.errors_timeout == ABSENT &&
                      m.requests.server.errors_reset == 0);
                check(fabs(m.requests.server.rate - 101500 / 24.0) < 1e-6);
                check(m.requests.server.in_flight == 3005 % 5);
                check(m.requests.server.latency.count == 101500 &&
                      m.requests.server.latency.max == 70000000);
                check(m.requests.server.latency.mean == 1000000);
                check(m.requests.server.receive.count == ABSENT &&
                      m.requests.server.oldest_in_flight == ABSENT);

                /* The same after it has become a step of its own */
                check(history_roll(h, 3029 + WINDOW_STEPS) >= 0);
        }
}

/* Steps with file systems, and those without. All have their amounts. */
static int count_mounts(const HistoryStep *s, void *userdata) {
        size_t *n = userdata;

        check(s->amounts[HISTORY_CPU_COVERED] > 0 || s->index < 4000);
        n[s->n_mounts > 0]++;
        return 0;
}

static HistoryMount make_mount(uint64_t identity, uint64_t reads, uint64_t nsec) {
        HistoryMount m = { .identity = identity };

        m.value.counts.count[QOS_STORAGE_READ] = reads;
        m.value.counts.bytes[QOS_STORAGE_READ] = 4096 * reads;
        m.value.counts.nsec[QOS_STORAGE_READ] = nsec * reads;
        m.value.counts.errors[QOS_MOUNT_CHANGE] = identity % 7;
        m.value.bins[17] = reads;
        m.value.maxima[QOS_STORAGE_READ] = nsec;
        return m;
}

/* File systems of a step are kept, also by a later reading that has none, and merged by identity: those with
 * the most time remain. They are what is dropped first when the space does not suffice. */
static void test_mounts(void) {
        _cleanup_history_ History *h = NULL;
        HistoryStep s = make_step(3001, 10, 50, 10);
        size_t n[2] = {};
        Metrics m;
        Seen seen;

        check(history_new(&h) >= 0);
        for (unsigned i = 0; i < 3; i++)
                s.mounts[s.n_mounts++] = make_mount(UINT64_MAX - i, 100 + i, 1000000);
        check(history_put(h, &s) >= 0);
        s.n_mounts = 0;
        check(history_put(h, &s) >= 0);
        seen = look(h, HISTORY_FINE);
        check(seen.step.n_mounts == 3 && memcmp(seen.step.mounts, s.mounts, 3 * sizeof(*s.mounts)) == 0);
        history_step_get_mount(&seen.step, UINT64_MAX - 2, 5, &m);
        check(m.storage.timed[QOS_STORAGE_READ].calls.count == 102 &&
              m.storage.timed[QOS_STORAGE_READ].latency.mean == 1000000 &&
              m.storage.timed[QOS_STORAGE_READ].latency.max == 1000000 &&
              m.storage.bytes[QOS_STORAGE_READ] == UINT64_C(4096) * 102 &&
              m.storage.timed[QOS_STORAGE_WRITE].calls.count == 0);
        history_step_get_mount(&seen.step, 5, 5, &m);
        check(m.storage.timed[QOS_STORAGE_READ].calls.count == ABSENT);

        s = make_step(3002, 10, 50, 10);
        for (unsigned i = 0; i < HISTORY_MOUNTS_MAX; i++)
                s.mounts[s.n_mounts++] = make_mount(i == 0 ? UINT64_MAX : i, 1000, 500000 * (i + 1));
        check(history_put(h, &s) >= 0);
        seen = look(h, HISTORY_COARSE);
        check(seen.n == 1 && seen.step.n_mounts == HISTORY_MOUNTS_MAX);
        history_step_get_mount(&seen.step, UINT64_MAX, 5, &m);
        check(m.storage.timed[QOS_STORAGE_READ].calls.count == 1100);
        history_step_get_mount(&seen.step, HISTORY_MOUNTS_MAX - 1, 5, &m);
        check(m.storage.timed[QOS_STORAGE_READ].calls.count == 1000);
        history_step_get_mount(&seen.step, UINT64_MAX - 1, 5, &m);
        check(m.storage.timed[QOS_STORAGE_READ].calls.count == ABSENT);

        for (uint64_t k = 0; k < HISTORY_FINE_STEPS; k++) {
                s = make_step(4000 + k, 10, 50, 10);
                for (unsigned i = 0; i < HISTORY_MOUNTS_MAX; i++)
                        s.mounts[s.n_mounts++] = make_mount(UINT64_MAX - i, 100 + k, 1000000);
                for (unsigned i = 0; i < HISTORY_MOUNTS_MAX * QOS_MOUNT_BINS; i++)
                        s.mounts[i / QOS_MOUNT_BINS].value.bins[i % QOS_MOUNT_BINS] = 1 + k;
                s.amounts[HISTORY_CPU_COVERED] = STEP;
                check(history_put(h, &s) >= 0);
                check(history_roll(h, 4000 + k) >= 0);
                check(file_size(h) <= HISTORY_SIZE_MAX);
        }
        check(history_foreach(h, HISTORY_FINE, count_mounts, n) >= 0);
        check(n[false] > 0 && n[true] > 0 && n[false] + n[true] == HISTORY_FINE_STEPS);
        check(look(h, HISTORY_FINE).step.n_mounts == HISTORY_MOUNTS_MAX);
}

/* Worse than any service: each bin has some thousand samples, different ones in both distributions, all
 * day. */
static void test_bound(void) {
        _cleanup_history_ History *h = NULL;
        uint64_t total = 0;
        unsigned seed = 7;
        Seen f, c;

        check(history_new(&h) >= 0);
        for (uint64_t k = 0; k < 9000; k++) {
                HistoryStep s = make_step(1000000 + k, 0, 0, 1);

                for (unsigned i = 0; i < HISTORY_DISTRIBUTIONS; i++) {
                        s.distributions[i].sum = (UINT64_C(1) << 42) + rand_r(&seed);
                        s.distributions[i].max = UINT64_C(1) << 40;
                        for (unsigned bin = 0; bin < WINDOW_BINS_MAX; bin++)
                                s.distributions[i].count[bin] = rand_r(&seed) % 5000;
                }
                s.values[0] = bins_count(&s.distributions[0]);
                for (unsigned bin = 0; bin < WINDOW_BINS_MAX; bin++) {
                        /* The same number, in other bins */
                        uint64_t n = s.distributions[0].count[WINDOW_BINS_MAX - 1 - bin];

                        s.distributions[1].count[bin] = n;
                }
                total = s.values[0];
                check(history_put(h, &s) >= 0);
                check(history_roll(h, 1000000 + k) >= 0);
                if (k % 100 == 0)
                        check(file_size(h) <= HISTORY_SIZE_MAX);
        }

        /* Only precision was lost */
        f = look(h, HISTORY_FINE);
        c = look(h, HISTORY_COARSE);
        check(f.n == HISTORY_FINE_STEPS && c.n == HISTORY_COARSE_STEPS);
        check(f.schema_min < WINDOW_BINS_SCHEMA_MAX);
        check(bins_count(&f.step.distributions[0]) == total);
        check(file_size(h) <= HISTORY_SIZE_MAX && file_size(h) > HISTORY_SIZE_MAX * 9 / 10);

        /* That is insufficient if all numbers have the maximum length: the oldest steps are dropped then */
        for (uint64_t k = 9000; k < 10000; k++) {
                HistoryStep s = { .index = 1000000 + k, .overlaps = UINT64_MAX };

                for (size_t i = 0; i < HISTORY_VALUES_MAX; i++)
                        s.values[i] = UINT64_MAX - 1 - i;
                for (unsigned i = 0; i < HISTORY_DISTRIBUTIONS; i++) {
                        s.measured[i] = true;
                        s.distributions[i] = (WindowBins) { .schema = WINDOW_BINS_SCHEMA_MAX };
                        for (unsigned bin = 0; bin < WINDOW_BINS_MAX; bin++)
                                s.distributions[i].count[bin] = UINT64_C(1) << (62 - i);
                }
                check(history_put(h, &s) >= 0);
                check(history_roll(h, 1000000 + k) >= 0);
                if (k % 100 == 0)
                        check(file_size(h) <= HISTORY_SIZE_MAX);
        }
}

/* A busy service keeps its precision: two modes, each some octaves wide, all day. */
static void test_busy(void) {
        static uint64_t counts[16][WINDOW_BINS_MAX];
        _cleanup_history_ History *h = NULL;
        unsigned seed = 7;
        Seen f, c;

        for (size_t k = 0; k < ELEMENTSOF(counts); k++)
                for (unsigned i = 0; i < 20000; i++) {
                        double d = 0;

                        for (unsigned j = 0; j < 6; j++)
                                d += rand_r(&seed) % 1000 / 1000.0 - 0.5;
                        counts[k][(unsigned) ((i % 50 == 0 ? 110 : 70) + 12 * d)]++;
                }

        check(history_new(&h) >= 0);
        for (uint64_t k = 0; k < 9000; k++) {
                HistoryStep s = make_step(1000000 + k, 0, 0, 1);

                for (unsigned i = 0; i < HISTORY_DISTRIBUTIONS; i++)
                        memcpy(s.distributions[i].count, counts[k % ELEMENTSOF(counts)], sizeof(counts[0]));
                s.values[0] = 20000;
                check(history_put(h, &s) >= 0);
                check(history_roll(h, 1000000 + k) >= 0);
        }
        f = look(h, HISTORY_FINE);
        c = look(h, HISTORY_COARSE);
        check(f.n == HISTORY_FINE_STEPS && c.n == HISTORY_COARSE_STEPS);
        check(f.schema_min >= 1 && c.schema_min >= 1);
}

/* The part of the last final step of 5 min for which threads are known, and of how many steps. */
typedef struct Known {
        uint64_t final, covered;
        size_t n;
} Known;

static int see_known(const HistoryStep *s, void *userdata) {
        Known *known = userdata;

        known->n += s->amounts[HISTORY_CPU_COVERED] > 0;
        if (s->index == known->final)
                known->covered = s->amounts[HISTORY_CPU_COVERED];
        return 0;
}

/* A day of a unit with all amounts known, in any size: more than the limit. Duplicates are dropped first,
 * and the oldest steps then. */
static void test_amounts_of_a_day(void) {
        const uint64_t begin = 1000000, end = begin + 9000, steps = HISTORY_COARSE_NSEC / HISTORY_FINE_NSEC;
        _cleanup_history_ History *h = NULL;
        unsigned seed = 11;

        check(history_new(&h) >= 0);
        for (uint64_t k = begin; k < end; k++) {
                HistoryStep s = make_step(k, 1000, 50, 30);
                Known known = { .final = (k + 1 - MIN(k + 1, (uint64_t) WINDOW_STEPS)) / steps - 1 };

                /* Most round-trip times differ by a factor of 64 or less */
                for (size_t i = 0; i < HISTORY_NETWORK_RTT_BINS + 12; i++)
                        s.amounts[i] = UINT64_C(1) << 30 | (uint64_t) rand_r(&seed) >> 2;
                s.amounts[HISTORY_CPU_COVERED] = STEP;
                check(history_put(h, &s) >= 0);
                check(history_roll(h, k) >= 0);
                if (k < begin + 3 * steps || k % 100 != 99)
                        continue;

                check(history_foreach(h, HISTORY_COARSE, see_known, &known) >= 0);
                check(fabs((double) known.covered - HISTORY_COARSE_NSEC) < HISTORY_COARSE_NSEC / 100.0);
                if (k + 1 == end)
                        check(known.n > HISTORY_COARSE_STEPS / 4);
        }
}

/* ---- the file ----------------------------------------------------------------------------------------- */

static void test_file(void) {
        _cleanup_history_ History *h = NULL;
        _cleanup_free_ uint8_t *data = NULL, *broken = NULL;
        unsigned seed = 1;
        size_t size;

        check(history_new(&h) >= 0);
        {
                _cleanup_history_ History *copy = NULL;
                _cleanup_free_ void *nothing = NULL;

                check(history_serialize(h, 42, &nothing, &size) >= 0);
                check(history_deserialize(nothing, size, 42, &copy) >= 0);
                check(look(copy, HISTORY_FINE).n == 0 && look(copy, HISTORY_COARSE).n == 0);
        }
        for (uint64_t k = 0; k < 800; k++) {
                HistoryStep s = make_step(5000 + k, 1000 + k, k % 100, 20);

                check(history_put(h, &s) >= 0);
                check(history_roll(h, 5000 + k) >= 0);
        }
        check(history_serialize(h, 42, (void**) &data, &size) >= 0);

        {
                _cleanup_history_ History *copy = NULL;
                Seen a, b;

                check(history_deserialize(data, size, 42, &copy) >= 0);
                for (HistoryLevel level = 0; level < _HISTORY_LEVEL_MAX; level++) {
                        a = look(h, level);
                        b = look(copy, level);
                        check(a.n == b.n && a.count == b.count && a.first == b.first &&
                              steps_equal(&a.step, &b.step));
                }
        }

        /* Of another unit, truncated at any position, with a surplus byte, with any bit inverted */
        {
                History *copy;

                check(history_deserialize(data, size, 43, &copy) == -EBADMSG);
                for (size_t n = 0; n < size; n += 1 + n / 20)
                        check(history_deserialize(data, n, 42, &copy) == -EBADMSG);
                broken = malloc(size + 1);
                check(broken);
                memcpy(broken, data, size);
                broken[size] = 0;
                check(history_deserialize(broken, size + 1, 42, &copy) == -EBADMSG);
                for (unsigned i = 0; i < 2000; i++) {
                        size_t where = rand_r(&seed) % size;

                        broken[where] ^= 1U << i % 8;
                        check(history_deserialize(broken, size, 42, &copy) == -EBADMSG);
                        broken[where] ^= 1U << i % 8;
                }
        }

        /* A valid checksum of invalid contents does no harm (checked by the sanitizers) */
        for (unsigned i = 0; i < 500; i++) {
                uint64_t hash = UINT64_C(0xcbf29ce484222325);
                History *copy = NULL;

                memcpy(broken, data, size);
                for (unsigned k = 0; k < 1 + i % 4; k++)
                        broken[48 + rand_r(&seed) % (i % 2 ? 400 : size - 48)] = rand_r(&seed);
                for (size_t k = 16; k < size; k++)
                        hash = (hash ^ broken[k]) * UINT64_C(0x100000001b3);
                memcpy(broken + 8, &hash, sizeof(hash));
                if (history_deserialize(broken, size, 42, &copy) >= 0) {
                        HistoryStep s = make_step(6000, 1, 1, 1);

                        check(history_put(copy, &s) >= 0);
                        check(history_roll(copy, 7000) >= 0);
                        history_free(copy);
                }
        }
}

static void test_catalogue(void) {
        size_t kept = 0;

        for (size_t i = 0; i < metric_table_size; i++)
                kept += history_has_metric(metric_table + i);
        check(kept > 20 && kept < metric_table_size);
        check(history_has_metric(metric_find("contention.shares.lock")));
        check(history_has_metric(metric_find("contention.runQueueLatency.mean")));
        check(!history_has_metric(metric_find("contention.runQueueLatency.p99")));
        check(!history_has_metric(metric_find("contention.time.lock")));
        check(history_has_metric(metric_find("requests.server.latency.p99")));
        check(history_has_metric(metric_find("requests.server.rate")));
        check(history_has_metric(metric_find("requests.server.connections.open")));
        check(!history_has_metric(metric_find("requests.server.oldestInFlight")));
        check(history_has_metric(metric_find("requests.server.queue.mean")));
        check(!history_has_metric(metric_find("requests.server.queue.p99")));
        check(history_find_distribution("requests.server.latency") >= 0);
        check(history_find_distribution("requests.server.queue") < 0);
}

static const struct {
        const char *part;
        void (*test)(void);
} tests[] = {
        { "steps",  test_steps            },
        { "steps",  test_steps_silence    },
        { "steps",  test_steps_move       },
        { "steps",  test_bins             },
        { "steps",  test_catalogue        },
        { "record", test_record           },
        { "record", test_amounts          },
        { "record", test_phases           },
        { "record", test_levels           },
        { "merge",  test_merge            },
        { "merge",  test_mounts           },
        { "merge",  test_bound            },
        { "merge",  test_busy             },
        { "day",    test_amounts_of_a_day },
        { "day",    test_file             },
};

/* Runs all parts, or the given one */
int main(int argc, char *argv[]) {
        bool found = false;

        for (size_t i = 0; i < ELEMENTSOF(tests); i++)
                if (argc < 2 || strcmp(tests[i].part, argv[1]) == 0) {
                        tests[i].test();
                        found = true;
                }
        check(found);
        return EXIT_SUCCESS;
}
