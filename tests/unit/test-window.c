/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Sub-windows and windows: the code of the programs (bpf/core/window-record.h), compared with plain
 * arithmetic. */

#include <math.h>
#include <pthread.h>

#include "util-window-record.h"

static uint64_t count_in(const struct qos_unit_map *u, uint64_t now, uint64_t attached, uint64_t window) {
        WindowReading r;

        check(window_read(sources_of(u, attached), now, window, &r) >= 0);
        check(window_get_count(&r, QOS_LATENCY) == r.cells[QOS_COUNTER_COUNT]);
        return window_get_count(&r, QOS_LATENCY);
}

/* Each distribution read by itself equals that of the whole reading. */
static void check_parts(const struct qos_unit_map *u, uint64_t attached, uint64_t now, uint64_t window,
                        const WindowReading *whole) {
        const WindowSource source = { u, attached };

        for (enum qos_distribution d = 0; d < QOS_DISTRIBUTIONS; d++) {
                WindowReading r;

                memset(&r, 0xff, sizeof(r));
                check(window_read_distribution(&source, now, window, d, &r) >= 0);
                check(r.boundary == whole->boundary && r.covered == whole->covered);
                check(memcmp(r.cells + QOS_DISTRIBUTION_FIRST_COUNTER(d),
                             whole->cells + QOS_DISTRIBUTION_FIRST_COUNTER(d),
                             QOS_DISTRIBUTION_BINS(d) * sizeof(uint64_t)) == 0);
                check(memcmp(r.cells + QOS_COUNTER_COUNT, whole->cells + QOS_COUNTER_COUNT,
                             (QOS_COUNTERS - QOS_COUNTER_COUNT) * sizeof(uint64_t)) == 0);
                check(r.sums[d] == whole->sums[d] && r.maxima[d] == whole->maxima[d]);
        }
}

/* So do several. */
static void check_some(const WindowSources *w, uint64_t now, uint64_t window, const WindowReading *whole) {
        static const unsigned choices[] = { 0, 1U << QOS_LATENCY, 1U << QOS_FIRST_BYTE | 1U << QOS_ANSWER,
                                            1U << QOS_RECEIVE | 1U << QOS_SERVICE,
                                            WINDOW_ALL_DISTRIBUTIONS };

        for (size_t i = 0; i < ELEMENTSOF(choices); i++) {
                WindowReading r;

                memset(&r, 0xff, sizeof(r));
                check(window_read_some(w, now, window, choices[i], &r) >= 0);
                check(r.boundary == whole->boundary && r.covered == whole->covered);
                for (enum qos_distribution d = 0; d < QOS_DISTRIBUTIONS; d++)
                        check(!(choices[i] & 1U << d) ||
                              (memcmp(r.cells + QOS_DISTRIBUTION_FIRST_COUNTER(d),
                                      whole->cells + QOS_DISTRIBUTION_FIRST_COUNTER(d),
                                      QOS_DISTRIBUTION_BINS(d) * sizeof(uint64_t)) == 0 &&
                                      r.maxima[d] == whole->maxima[d]));
                check(memcmp(r.cells + QOS_COUNTER_COUNT, whole->cells + QOS_COUNTER_COUNT,
                             (QOS_COUNTERS - QOS_COUNTER_COUNT) * sizeof(uint64_t)) == 0);
                check(memcmp(r.sums, whole->sums, sizeof(r.sums)) == 0);
        }
}

/* All windows, at many moments, compared with a list of the recorded times. */
static void test_windows(void) {
        static const uint64_t windows[] = {
                100 * NSEC_PER_MSEC, 300 * NSEC_PER_MSEC, 600 * NSEC_PER_MSEC, NSEC_PER_SEC,
                        2 * NSEC_PER_SEC, 5 * NSEC_PER_SEC,
                10 * NSEC_PER_SEC, 60 * NSEC_PER_SEC, 300 * NSEC_PER_SEC,
        };
        uint64_t attached = 12345678901234, now = attached;
        struct qos_unit_map *u = unit_new_at(attached);
        static uint64_t times[200000];
        size_t n = 0;
        unsigned seed = 1;

        for (unsigned step = 0; step < 60000; step++) {
                /* Usually milliseconds apart, sometimes up to 20 s, rarely ten minutes */
                now += rand_r(&seed) % (20 * NSEC_PER_MSEC);
                if (step % 500 == 499)
                        now += rand_r(&seed) % 20 * NSEC_PER_SEC + rand_r(&seed) % NSEC_PER_SEC;
                if (step % 20000 == 19999)
                        now += 600 * NSEC_PER_SEC;

                if (step % 7 == 0) {
                        for (size_t i = 0; i < ELEMENTSOF(windows); i++) {
                                uint64_t expected = 0;
                                WindowReading r;

                                check(window_read(sources_of(u, attached), now, windows[i], &r) >= 0);
                                check(r.covered == now - r.boundary);
                                check(r.covered <= windows[i] + windows[i] / 6 ||
                                      windows[i] <= 5 * NSEC_PER_SEC);
                                check(r.boundary == attached || r.covered + windows[i] / 6 +
                                      1 >= windows[i]);

                                for (size_t k = n; k > 0 && times[k - 1] >= r.boundary; k--)
                                        expected++;
                                check(window_get_count(&r, QOS_LATENCY) == expected);
                                if (step % 13 == 0) {
                                        check_parts(u, attached, now, windows[i], &r);
                                        check_some(sources_of(u, attached), now, windows[i], &r);
                                }
                        }
                        check(count_in(u, now, attached, WINDOW_TOTAL) == n);
                }

                if (step % 3 == 0) {
                        record(u, now, 1000 + step);
                        times[n++] = now;
                }
        }
        free(u);
}

/* A burst, and silence: windows are empty although no sub-window was begun, totals are kept. */
static void test_silence(void) {
        uint64_t now = 777 * NSEC_PER_SEC, attached = now - 400 * NSEC_PER_SEC;
        struct qos_unit_map *u = unit_new_at(attached);

        for (unsigned i = 0; i < 1000; i++)
                record(u, now + i, 5000);
        check(count_in(u, now + NSEC_PER_SEC / 2, attached, NSEC_PER_SEC) == 1000);

        now += 3600 * NSEC_PER_SEC;
        for (uint64_t w = NSEC_PER_SEC; w <= 10 * NSEC_PER_SEC; w += NSEC_PER_SEC)
                check(count_in(u, now, attached, w) == 0);
        check(count_in(u, now, attached, 300 * NSEC_PER_SEC) == 0);
        check(count_in(u, now, attached, WINDOW_TOTAL) == 1000);

        /* A sample after the silence is the only one in the window */
        record(u, now, 5000);
        check(count_in(u, now, attached, 300 * NSEC_PER_SEC) == 1);
        check(count_in(u, now, attached, WINDOW_TOTAL) == 1001);
        free(u);
}

/* A sample that grows while its response is sent counts once, with its current value: in no window twice,
 * and never below zero. */
static void test_move(void) {
        uint64_t start = 1000 * NSEC_PER_SEC, attached = start - 600 * NSEC_PER_SEC, last = start;
        struct qos_unit_map *u = unit_new_at(attached);
        WindowReading r;

        for (unsigned i = 0; i < 100; i++)
                record(u, start, 50 * NSEC_PER_MSEC);
        window_add(u, QOS_FIRST_BYTE, 0, 1);
        window_add(u, QOS_SERVICE, 0, 1);

        for (uint64_t age = 7 * NSEC_PER_MSEC; age < 100 * NSEC_PER_SEC; age += 7 * NSEC_PER_MSEC) {
                uint64_t now = start + age;

                window_advance(u, now);
                window_move(u, QOS_LATENCY, last, last - start, now, age);
                window_move(u, QOS_ANSWER, last, last - start, now, age);
                last = now;

                check(window_read(sources_of(u, attached), now, WINDOW_TOTAL, &r) >= 0);
                check(window_get_count(&r, QOS_LATENCY) == 101);
                check(r.sums[QOS_LATENCY] == 100 * 50 * NSEC_PER_MSEC + age);
                check(r.maxima[QOS_LATENCY] >= age);
                check(window_get_count(&r, QOS_FIRST_BYTE) == 101);
                check(r.sums[QOS_FIRST_BYTE] == 100 * 50 * NSEC_PER_MSEC);
                check(window_get_count(&r, QOS_ANSWER) == 1);

                if (age > 2 * NSEC_PER_SEC) {
                        check(window_read(sources_of(u, attached), now, NSEC_PER_SEC, &r) >= 0);
                        check(window_get_count(&r, QOS_LATENCY) == 1);
                        check(window_get_count(&r, QOS_ANSWER) == 1);
                        check(r.sums[QOS_ANSWER] == age);
                        check(r.maxima[QOS_ANSWER] == age);
                        check(r.cells[window_cell(QOS_ANSWER, age)] == 1);
                }
        }
        free(u);
}

/* The run time of programs is in the window in which they ran, whether they recorded anything or not, summed
 * over all maps. */
static void test_cost(void) {
        uint64_t attached = 1000 * NSEC_PER_SEC, now = attached;
        struct qos_unit_map *inner = unit_new_at(attached), *outer = unit_new_at(attached);
        const WindowSource sources[] = { { inner, attached }, { outer, attached } };
        const WindowSources both = { .sources = sources, .n = 2, .attached_at = attached };
        static WindowMark mark;
        WindowReading r;

        for (unsigned i = 0; i < 40; i++) {
                struct qos_unit_map *u = i % 2 ? inner : outer;

                now = attached + i * 500 * NSEC_PER_MSEC;
                if (i == 30)
                        window_mark(&both, now, &mark);
                window_advance(u, now);
                u->sums[QOS_SUM_COST] += 1000;
        }
        check(window_read(&both, now, WINDOW_TOTAL, &r) >= 0);
        check(r.sums[QOS_SUM_COST] == 40000);
        check(window_read(sources_of(inner, attached), now, WINDOW_TOTAL, &r) >= 0);
        check(r.sums[QOS_SUM_COST] == 20000);
        check(window_read(&both, now, 5 * NSEC_PER_SEC, &r) >= 0);
        check(r.sums[QOS_SUM_COST] == (r.covered / (500 * NSEC_PER_MSEC) + 1) * 1000);
        check(window_read(&both, now + 20 * NSEC_PER_SEC, 10 * NSEC_PER_SEC, &r) >= 0);
        check(r.sums[QOS_SUM_COST] == 0 && r.covered > 0);
        window_read_since(&both, now, &mark, &r);
        check(r.sums[QOS_SUM_COST] == 10000);
        free(inner);
        free(outer);
}

/* Counts since a mark at an arbitrary moment are exact. */
static void test_mark(void) {
        uint64_t attached = 1000 * NSEC_PER_SEC, now = attached, recorded_at;
        struct qos_unit_map *u = unit_new_at(attached);
        static WindowMark mark;
        unsigned seed = 1;
        WindowReading r;

        for (unsigned round = 0; round < 300; round++) {
                uint64_t n = rand_r(&seed) % 50, longest = 0, sum = 0;

                now += rand_r(&seed) % (100 * NSEC_PER_MSEC);
                window_mark(sources_of(u, 0), now, &mark);
                window_read_since(sources_of(u, 0), now, &mark, &r);
                check(window_get_count(&r, QOS_LATENCY) == 0 && r.covered == 0);

                for (uint64_t i = 0; i < n; i++) {
                        uint64_t nsec = 300 + rand_r(&seed) % (10 * NSEC_PER_SEC >> round % 24);

                        now += rand_r(&seed) % (NSEC_PER_SEC >> round % 10);
                        record(u, now, nsec);
                        longest = MAX(longest, nsec);
                        sum += nsec;
                }
                window_read_since(sources_of(u, 0), now, &mark, &r);
                check(r.cells[QOS_COUNTER_COUNT] == n);
                check(window_get_count(&r, QOS_LATENCY) == n && window_get_count(&r, QOS_FIRST_BYTE) == n);
                check(r.sums[QOS_LATENCY] == sum);
                check(r.covered == now - mark.at);
                if (n > 0) {
                        Distribution d;

                        window_get_distribution(&r, QOS_LATENCY, 5, &d);
                        /* A larger sample just before the mark may be in the same bin, but not in a higher
                         * one */
                        check(d.count == n && d.max >= longest && d.max <= longest * 1.022 + 1);
                        check(d.mean == MIN(sum / n, d.max));
                }
        }

        /* A response that was being sent at the mark is counted before it; the distributions have no surplus
         * sample */
        now += NSEC_PER_SEC;
        recorded_at = now;
        record(u, now, 5000);
        window_add(u, QOS_SERVICE, 0, 1);
        window_mark(sources_of(u, 0), now, &mark);
        for (unsigned i = 0; i < 5; i++) {
                now += 200 * NSEC_PER_MSEC;
                window_advance(u, now);
                window_move(u, QOS_LATENCY, recorded_at + i * 200 * NSEC_PER_MSEC,
                            5000 + i * 200 * NSEC_PER_MSEC, now, 5000 + (i + 1) * 200 * NSEC_PER_MSEC);
                window_move(u, QOS_ANSWER, recorded_at + i * 200 * NSEC_PER_MSEC,
                            i * 200 * NSEC_PER_MSEC, now, (i + 1) * 200 * NSEC_PER_MSEC);
                window_read_since(sources_of(u, 0), now, &mark, &r);
                check(r.cells[QOS_COUNTER_COUNT] == 0);
                check(window_get_count(&r, QOS_LATENCY) == 0 && window_get_count(&r, QOS_ANSWER) == 0);
        }
        record(u, now, 7000);
        window_read_since(sources_of(u, 0), now, &mark, &r);
        check(r.cells[QOS_COUNTER_COUNT] == 1 && window_get_count(&r, QOS_LATENCY) == 1);
        free(u);
}

/* Counters are 32 bits wide in checkpoints and wrap, which has no effect. */
static void test_carry(void) {
        uint64_t now = 1000 * NSEC_PER_SEC, attached = now - 100 * NSEC_PER_SEC;
        struct qos_unit_map *u = unit_new_at(attached);
        WindowReading r;

        window_advance(u, now);
        window_count(u, QOS_COUNTER_RETRANSMITS, UINT32_MAX - 1);
        now += 5 * NSEC_PER_SEC;
        window_advance(u, now);
        for (unsigned i = 0; i < 5; i++)
                window_count(u, QOS_COUNTER_RETRANSMITS, 1);

        check(window_read(sources_of(u, attached), now, WINDOW_TOTAL, &r) >= 0);
        check(r.cells[QOS_COUNTER_RETRANSMITS] == (uint64_t) UINT32_MAX + 4);
        check(window_read(sources_of(u, attached), now, 2 * NSEC_PER_SEC, &r) >= 0);
        check(r.cells[QOS_COUNTER_RETRANSMITS] == 5);
        free(u);
}

/* 10^7 samples of threads that begin sub-windows all the time, with a concurrent reader: the bins add up,
 * windows never exceed the samples recorded, and none is lost. */
#define WAKES 2000
#define ADDERS 4
#define ADDS (10 * 1000 * 1000 / ADDERS)

static struct {
        struct qos_unit_map *unit;
        uint64_t clock;         /* of all threads; each sample advances it by a microsecond */
        bool done;
} race;

static void* adder(void *userdata) {
        for (unsigned i = 0; i < ADDS; i++) {
                uint64_t now = __atomic_fetch_add(&race.clock, NSEC_PER_USEC, __ATOMIC_RELAXED);

                window_advance(race.unit, now);
                window_add(race.unit, QOS_FIRST_BYTE, 1000 + i % 100000, 1);
        }
        return NULL;
}

static void* reader(void *userdata) {
        const uint64_t *attached = userdata;
        uint64_t before = 0;

        while (!__atomic_load_n(&race.done, __ATOMIC_ACQUIRE)) {
                uint64_t now = __atomic_load_n(&race.clock, __ATOMIC_RELAXED), n;
                WindowReading r;
                Distribution d;

                check(window_read(sources_of(race.unit, *attached), now, WINDOW_TOTAL, &r) >= 0);
                n = window_get_count(&r, QOS_LATENCY);
                check(n >= before && n <= (uint64_t) ADDERS * ADDS);
                before = n;

                /* -EAGAIN is possible here, where a second passes in a millisecond */
                if (window_read(sources_of(race.unit, *attached), now, NSEC_PER_SEC, &r) < 0)
                        continue;
                window_get_distribution(&r, QOS_LATENCY, 5, &d);
                check(d.count == window_get_count(&r, QOS_LATENCY));
                check(d.p50 == ABSENT || (d.p50 >= 900 && d.p50 <= 102000));
        }
        return NULL;
}

static void test_threads(void) {
        uint64_t attached = 5000 * NSEC_PER_SEC, sum = 0;
        pthread_t threads[ADDERS], r;
        WindowReading reading;

        race.unit = unit_new_at(attached);
        race.clock = attached;

        check(pthread_create(&r, NULL, reader, &attached) == 0);
        for (unsigned i = 0; i < ADDERS; i++)
                check(pthread_create(threads + i, NULL, adder, NULL) == 0);
        for (unsigned i = 0; i < ADDERS; i++)
                check(pthread_join(threads[i], NULL) == 0);
        __atomic_store_n(&race.done, true, __ATOMIC_RELEASE);
        check(pthread_join(r, NULL) == 0);

        check(window_read(sources_of(race.unit, attached), race.clock, WINDOW_TOTAL, &reading) >= 0);
        check(window_get_count(&reading, QOS_LATENCY) == (uint64_t) ADDERS * ADDS);
        for (unsigned i = 0; i < ADDS; i++)
                sum += 1000 + i % 100000;
        check(reading.sums[QOS_LATENCY] == ADDERS * sum);

        /* Ten seconds of microseconds have passed: the window and its past have all samples */
        check(window_read(sources_of(race.unit, attached), race.clock, 5 * NSEC_PER_SEC, &reading) >= 0);
        check(window_get_count(&reading, QOS_LATENCY) >= 4900000);
        free(race.unit);
}

static pthread_barrier_t both;

static void* waker(void *userdata) {
        uint64_t now = *(uint64_t*) userdata;

        for (unsigned i = 0; i < WAKES; i++) {
                pthread_barrier_wait(&both);
                record(race.unit, now, 1000);
                pthread_barrier_wait(&both);
                now += 20 * NSEC_PER_SEC;
        }
        return NULL;
}

/* Samples of several threads after an idle time: none of them counts for the time before. */
static void test_wake(void) {
        uint64_t attached = 5000 * NSEC_PER_SEC, now = attached + 20 * NSEC_PER_SEC, first = now;
        pthread_t threads[2];

        race.unit = unit_new_at(attached);
        check(pthread_barrier_init(&both, NULL, 3) == 0);
        for (unsigned i = 0; i < ELEMENTSOF(threads); i++)
                check(pthread_create(threads + i, NULL, waker, &first) == 0);

        for (unsigned i = 0; i < WAKES; i++) {
                pthread_barrier_wait(&both);
                pthread_barrier_wait(&both);
                check(count_in(race.unit, now, attached, NSEC_PER_SEC) == ELEMENTSOF(threads));
                now += 20 * NSEC_PER_SEC;
        }
        for (unsigned i = 0; i < ELEMENTSOF(threads); i++)
                check(pthread_join(threads[i], NULL) == 0);
        pthread_barrier_destroy(&both);
        free(race.unit);
}

static void test_valid(void) {
        check(window_is_valid(WINDOW_TOTAL));
        check(window_is_valid(100 * NSEC_PER_MSEC));
        check(window_is_valid(NSEC_PER_SEC));
        check(window_is_valid(7 * NSEC_PER_SEC));
        check(window_is_valid(60 * NSEC_PER_SEC));
        check(window_is_valid(300 * NSEC_PER_SEC));
        check(!window_is_valid(1));
        check(!window_is_valid(150 * NSEC_PER_MSEC));
        check(!window_is_valid(1100 * NSEC_PER_MSEC));
        check(!window_is_valid(11 * NSEC_PER_SEC));
        check(!window_is_valid(UINT64_MAX));
}

/* Windows longer than the uptime. */
static void test_young(void) {
        static const uint64_t windows[] = { NSEC_PER_SEC, 10 * NSEC_PER_SEC, 60 * NSEC_PER_SEC,
                                            300 * NSEC_PER_SEC };
        uint64_t attached = NSEC_PER_SEC / 2;

        for (uint64_t now = attached; now < 310 * NSEC_PER_SEC; now += 700 * NSEC_PER_MSEC) {
                struct qos_unit_map *u = unit_new_at(attached);

                record(u, now, 1000);
                for (size_t i = 0; i < ELEMENTSOF(windows); i++)
                        check(count_in(u, now, attached, windows[i]) == 1);
                free(u);
        }
}

/* A unit with several maps, some older than the unit. */
static void test_sources(void) {
        static const uint64_t windows[] = {
                300 * NSEC_PER_MSEC, NSEC_PER_SEC, 5 * NSEC_PER_SEC, 10 * NSEC_PER_SEC, 60 * NSEC_PER_SEC,
                        300 * NSEC_PER_SEC,
        };
        uint64_t start = 10000 * NSEC_PER_SEC + 1234567, attached = start + 1007 * NSEC_PER_SEC, now;
        struct qos_unit_map *old = unit_new_at(start), *own, *all;
        WindowReading merged, one;
        WindowSource sources[3];
        WindowSources w = { .sources = sources, .attached_at = attached };
        unsigned n_inner = 0;
        CounterOffset base;
        WindowMark mark;
        struct qos_unit_map *late = NULL, *moving = NULL;
        uint64_t total = 0, marked = 0, moving_at = 0, moving_nsec = 0;

        /* Samples of the inner unit before the outer one is attached, the largest one among them */
        for (now = start; now < attached; now += 700 * NSEC_PER_MSEC)
                record(old, now, 5 * NSEC_PER_SEC);

        sources[n_inner++] = (WindowSource) { old, start };
        counter_offset_begin(sources, n_inner, attached, &base);
        w.base = &base;
        own = unit_new_at(attached);
        sources[n_inner++] = (WindowSource) { own, attached };
        w.n = n_inner;
        /* The expected result: one map with everything since then */
        all = unit_new_at(attached);

        for (unsigned i = 0; now < attached + 900 * NSEC_PER_SEC; i++,
             now += 37 * NSEC_PER_MSEC * (1 + i % 7)) {
                struct qos_unit_map *const targets[] = { old, own, late ?: own };
                uint64_t nsec = 1000 + (uint64_t) i * 7919 % 1000000;

                if (!late && now > attached + 100 * NSEC_PER_SEC) {
                        late = unit_new_at(now);
                        sources[2] = (WindowSource) { late, now };
                        w.n = 3;
                        window_mark(&w, now, &mark);
                        marked = total;
                }

                record(targets[i % 3], now, nsec);
                record(all, now, nsec);
                total++;
                /* One of five responses is still being sent when the next request arrives */
                if (moving)
                        for (unsigned k = 0; k < 2; k++) {
                                struct qos_unit_map *u = k == 0 ? moving : all;

                                window_advance(u, now);
                                window_move(u, QOS_LATENCY, moving_at, moving_nsec, now,
                                            moving_nsec + 500000);
                        }
                moving = i % 5 == 0 ? targets[i % 3] : NULL;
                moving_at = now;
                moving_nsec = nsec;

                if (i % 23 != 0)
                        continue;
                for (size_t k = 0; k < ELEMENTSOF(windows); k++) {
                        check(window_read(&w, now, windows[k], &merged) >= 0);
                        check(window_read(sources_of(all, attached), now, windows[k], &one) >= 0);
                        check(memcmp(merged.cells, one.cells, sizeof(one.cells)) == 0);
                        check(memcmp(merged.sums, one.sums, sizeof(one.sums)) == 0);
                        check(merged.covered == one.covered && merged.boundary == one.boundary);
                        check_some(&w, now, windows[k], &merged);
                        for (enum qos_distribution d = 0; d < QOS_DISTRIBUTIONS; d++) {
                                Distribution x, y;

                                window_get_distribution(&merged, d, 5, &x);
                                window_get_distribution(&one, d, 5, &y);
                                if (merged.boundary != attached)
                                        check(memcmp(&x, &y, sizeof(x)) == 0);
                                else /* including the sub-window of the attach, which has larger samples */
                                        check(x.p99 == y.p99 && x.max >= y.max &&
                                              (x.count == 0 || x.max <= y.max * 1.0906 + 1));
                        }
                }
                check(window_read(&w, now, WINDOW_TOTAL, &merged) >= 0);
                check(merged.cells[QOS_COUNTER_COUNT] == total);
                check(window_get_count(&merged, QOS_LATENCY) == total);
        }

        window_read_since(&w, now, &mark, &merged);
        check(merged.cells[QOS_COUNTER_COUNT] == total - marked);

        /* Closed: removed from the maps, but not from the totals and the counts since a mark */
        window_base_close(&base, now, &sources[0]);
        w.sources = sources + 1;
        w.n = 2;
        check(window_read(&w, now, WINDOW_TOTAL, &merged) >= 0);
        check(window_read(sources_of(all, attached), now, WINDOW_TOTAL, &one) >= 0);
        check(memcmp(merged.cells, one.cells, sizeof(one.cells)) == 0);
        check(memcmp(merged.sums, one.sums, sizeof(one.sums)) == 0);
        for (enum qos_distribution d = 0; d < QOS_DISTRIBUTIONS; d++)
                check(merged.maxima[d] >= one.maxima[d] && merged.maxima[d] <= one.maxima[d] * 1.0906 + 1);
        window_read_since(&w, now, &mark, &merged);
        check(merged.cells[QOS_COUNTER_COUNT] == total - marked);

        /* Opened again: earlier counts are not added twice */
        window_base_open(&base, &sources[0]);
        w.sources = sources;
        w.n = 3;
        record(old, now, 1000);
        check(window_read(&w, now, WINDOW_TOTAL, &merged) >= 0);
        check(merged.cells[QOS_COUNTER_COUNT] == total + 1);

        free(old);
        free(own);
        free(late);
        free(all);
}

/* A connection changes its owner while its response is sent: its sample is recorded in one map and moved in
 * the other. */
static void test_sources_moved(void) {
        uint64_t now = 5000 * NSEC_PER_SEC;
        struct qos_unit_map *a = unit_new_at(now), *b = unit_new_at(now);
        WindowSource sources[] = { { a, now }, { b, now } };
        WindowSources w = { .sources = sources, .n = 2, .attached_at = now };
        WindowReading r;
        Distribution d;

        record(a, now, 1000);
        window_advance(b, now + 3 * NSEC_PER_SEC);
        window_move(b, QOS_LATENCY, now, 1000, now + 3 * NSEC_PER_SEC, 3 * NSEC_PER_SEC);

        check(window_read(&w, now + 4 * NSEC_PER_SEC, WINDOW_TOTAL, &r) >= 0);
        window_get_distribution(&r, QOS_LATENCY, 5, &d);
        check(d.count == 1 && d.max == 3 * NSEC_PER_SEC && d.mean == 3 * NSEC_PER_SEC);
        check(r.cells[QOS_COUNTER_COUNT] == 1);

        /* No part exceeds the number of samples */
        for (unsigned i = 0; i < 2; i++) {
                check(window_read(&(WindowSources) { .sources = sources + i, .n = 1, .attached_at = now },
                                  now + 4 * NSEC_PER_SEC, WINDOW_TOTAL, &r) >= 0);
                check(window_get_count(&r, QOS_LATENCY) == (i == 0));
        }
        free(a);
        free(b);
}

/* The history of a unit that was attached around another one. */
static void test_sources_steps(void) {
        uint64_t start = 3000 * NSEC_PER_SEC, attached = start + 15 * NSEC_PER_SEC, now = start;
        struct qos_unit_map *old = unit_new_at(start), *own;
        WindowSource sources[2] = { { old, start } };
        WindowSources w = { .sources = sources, .n = 2, .attached_at = attached };
        WindowReading r;
        WindowGauges g;
        CounterOffset base;

        for (; now < attached; now += 100 * NSEC_PER_MSEC)
                record(old, now, NSEC_PER_SEC);
        counter_offset_begin(sources, 1, attached, &base);
        w.base = &base;
        own = unit_new_at(attached);
        sources[1] = (WindowSource) { own, attached };
        __sync_fetch_and_add(&old->open, 3);
        __sync_fetch_and_add(&own->open, 4);

        for (; now < start + 60 * NSEC_PER_SEC; now += 100 * NSEC_PER_MSEC) {
                record(old, now, 1000);
                record(own, now, 1000);
        }

        check(window_read_step(&w, 300, &r, &g) == -ENODATA);
        for (uint64_t n = 301; n < 306; n++) {
                check(window_read_step(&w, n, &r, &g) >= 0);
                check(r.cells[QOS_COUNTER_COUNT] == (n == 301 ? 100 : 200));
                check(window_get_count(&r, QOS_FIRST_BYTE) == r.cells[QOS_COUNTER_COUNT]);
                check(r.maxima[QOS_FIRST_BYTE] <= 1100);
                check(r.covered == (n == 301 ? 5 : 10) * NSEC_PER_SEC);
                check(g.open == 7);
        }
        free(old);
        free(own);
}

/* Connections are opened and closed, and some closes are missed: the gauges return to the true number, and
 * are never below it. */
static void test_reconcile(void) {
        struct qos_unit_map *u = unit_new_at(1000 * NSEC_PER_SEC);
        uint64_t session = 0;
        int64_t open = 0;

        /* No close is missed: with any number of changes during the summation nothing is corrected */
        for (unsigned i = 0; i < 10000; i++) {
                int64_t seen, more = (int64_t) (i * 7919 % 5);

                window_sum_begin(u);
                /* some were closed before they were visited, some afterwards */
                seen = open * (i % 3) / 2;
                window_sum(u, ++session, (int32_t) seen, 0, 0, 0);
                open += more;
                u->opened += (uint64_t) more;
                u->open = open;
                if (seen < open - more)
                        window_sum(u, session, (int32_t) (open - more - seen), 0, 0, 0);
                window_reconcile(u, session);
                check(u->open == open);
        }

        /* One close is missed: it is corrected after two summations, and not earlier */
        u->open = open + 3;
        for (unsigned i = 0; i < 4; i++) {
                window_sum_begin(u);
                window_sum(u, ++session, (int32_t) open, 0, 0, 0);
                u->opened++;
                u->open++;
                open++;
                window_reconcile(u, session);
                check(u->open == open + (i == 0 ? 3 : 0));
        }

        /* Requests in flight during silence: two of them exist, then none */
        u->in_flight = 5;
        for (unsigned i = 0; i < 3; i++) {
                window_sum_begin(u);
                window_sum(u, ++session, (int32_t) open, 2, 0, 0);
                window_reconcile(u, session);
                check(u->in_flight == (i == 0 ? 5 : 2) && u->open == open);
        }
        u->in_flight = 4;
        for (unsigned i = 0; i < 3; i++) {
                window_sum_begin(u);
                window_sum(u, ++session, (int32_t) open, 2, 0, 0);
                u->sums[QOS_SUM_BYTES_IN]++;
                window_reconcile(u, session);
                check(u->in_flight == 4);
        }
        for (unsigned i = 0; i < 2; i++) {
                window_sum_begin(u);
                window_reconcile(u, ++session);
        }
        check(u->in_flight == 0 && u->open == 0);
        free(u);
}

/* The same for rows: an endpoint, which is part of the unit's gauge, and peers and excluded endpoints, which
 * are not. */
static void test_reconcile_rows(void) {
        struct qos_unit_map *u = unit_new_at(1000 * NSEC_PER_SEC);
        const unsigned endpoint = 3, peer = 4;
        uint64_t session = 0;

        u->in_flight = u->rows[endpoint - 1].in_flight = 5;
        u->rows[peer - 1].in_flight = 3;
        u->rows[QOS_ENTRIES - 1].in_flight = 7; /* none of its connections exists any more */
        for (unsigned i = 0; i < 3; i++) {
                window_sum_begin(u);
                window_sum(u, ++session, 0, 1, endpoint, 0);
                window_sum(u, session, 0, 1, endpoint, 0);
                window_sum(u, session, 0, 1, peer, 1);
                window_reconcile(u, session);
                check(u->in_flight == (i == 0 ? 5 : 2));
                check(u->rows[endpoint - 1].in_flight == (i == 0 ? 5 : 2));
                check(u->rows[peer - 1].in_flight == (i == 0 ? 3 : 1));
                check(u->rows[QOS_ENTRIES - 1].in_flight == (i == 0 ? 7 : 0));
        }

        /* The row changes meanwhile, or is reassigned to another peer: nothing is corrected */
        u->rows[peer - 1].in_flight = 2;
        for (unsigned i = 0; i < 4; i++) {
                window_sum_begin(u);
                window_sum(u, ++session, 0, 1, peer, 1);
                if (i < 2)
                        u->rows[peer - 1].sums[QOS_ENTRY_SUM_BYTES_OUT]++;
                else
                        u->names[peer].generation++;
                window_reconcile(u, session);
                check(u->rows[peer - 1].in_flight == 2);
        }

        /* One of the requests is a query over UDP, which no connection has */
        u->rows[QOS_ENTRIES - 1].in_flight = 2;
        entry_mark_queries(u, QOS_ENTRIES);
        for (unsigned i = 0; i < 4; i++) {
                window_sum_begin(u);
                window_sum(u, ++session, 0, 1, QOS_ENTRIES, 1);
                window_reconcile(u, session);
                check(u->rows[QOS_ENTRIES - 1].in_flight == 2);
        }

        /* A request that arrived between summation and reading still exists at the second summation */
        for (unsigned i = 0; i < 4; i++) {
                u->rows[peer - 1].in_flight = 2 + (int64_t) (i & 1);
                window_sum_begin(u);
                window_sum(u, ++session, 0, 1, peer, 1);
                window_reconcile(u, session);
                check(u->rows[peer - 1].in_flight == 2 + (int64_t) (i & 1));
        }
        free(u);
}

/* If runs of programs were skipped, no quality is exact. */
static void test_missed(void) {
        for (unsigned i = 0; i < 2; i++) {
                Requests r;

                memset(&r, 0, sizeof(r));
                r.server.count = r.server.parsed[PARSED(HTTP1)] = 1000;
                window_classify(0, i, &r);
                check(r.quality == (i ? QUALITY_EXCHANGES : QUALITY_EXACT) && r.server.count == 1000 &&
                      r.server.parsed[PARSED(HTTP1)] == 1000);
        }
}

/* Windows without requests have no quality, unless some could not be counted. */
static void test_idle(void) {
        Requests r;

        memset(&r, 0, sizeof(r));
        window_classify(0, false, &r);
        check(r.quality == QUALITY_ABSENT && r.server.count == 0);

        memset(&r, 0, sizeof(r));
        window_classify(0, true, &r);
        check(r.quality == QUALITY_EXCHANGES);

        memset(&r, 0, sizeof(r));
        r.server.unparsed.bytes = r.server.bytes_in = 100;
        window_classify(0, false, &r);
        check(r.quality == QUALITY_PARTIAL);

        memset(&r, 0, sizeof(r));
        window_classify(10, false, &r);
        check(r.quality == QUALITY_OVERLAPPING);
}

/* Nothing was measured: each member is absent, also those added later. */
static void test_absent(void) {
        uint64_t words[sizeof(Distribution) / sizeof(uint64_t)];
        WindowBins none = { .schema = WINDOW_BINS_SCHEMA_MIN };
        Distribution d = {};

        window_bins_get_distribution(&none, 5, &d);
        check(d.count == 0);
        d.count = ABSENT;
        memcpy(words, &d, sizeof(words));
        for (size_t i = 0; i < ELEMENTSOF(words); i++)
                check(words[i] == ABSENT);

        for (size_t i = 0; i < QUANTILES; i++) {
                check(distribution_get_quantile(&d, quantile_table + i) == ABSENT);
                check(i == 0 || quantile_table[i].q > quantile_table[i - 1].q);
        }
}

int main(void) {
        test_absent();
        test_reconcile();
        test_reconcile_rows();
        test_missed();
        test_idle();
        test_valid();
        test_windows();
        test_silence();
        test_move();
        test_carry();
        test_cost();
        test_mark();
        test_young();
        test_sources();
        test_sources_moved();
        test_sources_steps();
        test_threads();
        test_wake();
        return EXIT_SUCCESS;
}
