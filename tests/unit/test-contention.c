/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Contention maps: the code of the programs (bpf/contention/contention-record.h) and of the reader
 * (contention-window.c), compared with a plain list of the states of each thread. */

#include <pthread.h>
#include <sched.h>

#include "check.h"
#include "contention-window.h"
#include "util.h"

#define window_copy(to, from, size) memcpy(to, from, size)
#define window_cpu() ((uint32_t) gettid())
#define window_now() (real_clock ? now_nsec(CLOCK_MONOTONIC) : clock_now)
#define WINDOW_WAITS UINT32_MAX
#define row_loop(n, step, data) ({ for (__u64 _i = 0; _i < (n) && step(_i, data) == 0; _i++) ; })
#define contention_now() UINT64_C(0)
#define contention_loop(n, step, data) ({ for (__u64 _i = 0; _i < (n) && step(_i, data) == 0; _i++) ; })

static uint64_t clock_now;
static bool real_clock;

#define CPUS 4
#define SHARDS (CPUS + QOS_CONTENTION_CPUS_MORE)
static struct qos_contention_cpu *contention_cpus;

static const struct qos_contention_cpu* contention_cpu_of(__u32 slot, __u32 generation, __u32 i) {
        return i < SHARDS && contention_cpus[i].generation == generation ? contention_cpus + i : NULL;
}

#include "contention-record.h"
#include "window-record.h"

#define START (1000 * NSEC_PER_SEC)
#define GENERATION 7

static struct qos_contention_map* contention_map_new(uint64_t now) {
        struct qos_contention_map *c = new0(struct qos_contention_map, 1);

        free(contention_cpus);
        contention_cpus = aligned_alloc(64, SHARDS * sizeof(struct qos_contention_cpu));
        check(c && contention_cpus);
        memset(contention_cpus, 0, SHARDS * sizeof(struct qos_contention_cpu));
        c->generation = GENERATION;
        c->contention_cpus = SHARDS;
        c->epoch = now / QOS_EPOCH_NSEC;
        for (unsigned i = 0; i < SHARDS; i++) {
                contention_cpus[i].generation = GENERATION;
                contention_cpus[i].epoch_end = (c->epoch + 1) * QOS_EPOCH_NSEC;
        }
        return c;
}

/* As contention_cpu_enter() in bpf/contention/contention-maps.h. */
static void enter(struct qos_contention_map *c, struct qos_contention_cpu *s, uint64_t now) {
        if (now < s->epoch_end)
                return;
        s->epoch_end = (now / QOS_EPOCH_NSEC + 1) * QOS_EPOCH_NSEC;
        contention_roll(c, 0, now / QOS_EPOCH_NSEC);
}

/* The unit of the map; NULL: without requests. */
static struct qos_unit_map *unit;

static ContentionReading read_both_at(struct qos_contention_map *c, uint64_t now, uint64_t window,
                                      const ContentionCounts *before, ContentionReading *ret_total) {
        ContentionSource source = { .map = c, .contention_cpus = contention_cpus, .since = START,
                .requests = unit };
        ContentionSources sources = { .sources = &source, .n = 1, .since = START, .before = before };
        ContentionReading r;
        int e;

        /* A writer may be interrupted, where these are threads */
        do
                e = contention_read(&sources, now, window, &r, ret_total);
        while (e == -EAGAIN);
        check(e >= 0);
        return r;
}

static ContentionReading read_at(struct qos_contention_map *c, uint64_t now, uint64_t window,
                                 const ContentionCounts *before) {
        return read_both_at(c, now, window, before, NULL);
}

/* The states of a thread and their times. */
typedef struct Event {
        uint64_t at;
        uint64_t served;
        unsigned state;
} Event;

#define THREADS 6
#define EVENTS 4000

typedef struct Story {
        Event events[EVENTS];
        size_t n;
} Story;

static uint64_t time_in(const Story *story, unsigned state, uint64_t begin, uint64_t end) {
        uint64_t sum = 0;

        for (size_t i = 0; i < story->n; i++) {
                uint64_t from = MAX(story->events[i].at, begin),
                        to = i + 1 < story->n ? MIN(story->events[i + 1].at, end) : end;

                if (story->events[i].state == state && to > from)
                        sum += to - from;
        }
        return sum;
}

/* Times of changes of the number in flight. */
typedef struct Flight {
        uint64_t at;
        uint64_t served;
        bool flies;
} Flight;

static Flight flights[EVENTS];
static size_t n_flights;

static uint64_t served_at(uint64_t at) {
        for (size_t i = n_flights; i > 0; i--)
                if (flights[i - 1].at <= at)
                        return flights[i - 1].served + (flights[i - 1].flies ? at - flights[i - 1].at : 0);
        return 0;
}

static uint64_t served_in(const Story *story, unsigned state, uint64_t begin, uint64_t end,
                          uint64_t served_begin, uint64_t served_end) {
        uint64_t sum = 0;

        for (size_t i = 0; i < story->n; i++) {
                const Event *e = story->events + i, *next = i + 1 < story->n ? e + 1 : NULL;

                if (e->state == state && (!next || next->at > begin) && e->at < end)
                        sum += (next && next->at < end ? next->served : served_end) -
                               (e->at > begin ? e->served : served_begin);
        }
        return sum;
}

/* Requests arrive and get responses, several at a time. */
static void fly(uint64_t now, int n) {
        clock_now = now;
        window_advance(unit, now);
        window_add_in_flight(unit, n);
        flights[n_flights] = (Flight) { now, served_at(now), unit->in_flight > 0 };
        n_flights++;
}

/* Threads with random states on random CPUs, also idle for long. Each window is exact to the nanosecond. */
static void test_random(unsigned seed, unsigned longest_ms) {
        static const uint64_t windows[] = {
                WINDOW_TOTAL, 100 * NSEC_PER_MSEC, 500 * NSEC_PER_MSEC, NSEC_PER_SEC, 3 * NSEC_PER_SEC,
                        10 * NSEC_PER_SEC,
                60 * NSEC_PER_SEC, 300 * NSEC_PER_SEC,
        };
        struct qos_contention_map *c = contention_map_new(START);
        Story *stories = new0(Story, THREADS);
        unsigned states[THREADS] = {};
        uint64_t now = START, waits = 0, cost = 0;

        unit = new0(struct qos_unit_map, 1);
        check(stories && unit);
        unit->epoch = START / QOS_EPOCH_NSEC;
        unit->epoch_end = (unit->epoch + 1) * QOS_EPOCH_NSEC;
        n_flights = 0;
        for (unsigned k = 0; k < EVENTS; k++) {
                unsigned thread = rand_r(&seed) % THREADS, state = rand_r(&seed) % QOS_STATES;
                struct qos_contention_cpu *s = contention_cpus + rand_r(&seed) % CPUS;

                now += rand_r(&seed) % (rand_r(&seed) % 50 == 0 ? longest_ms * NSEC_PER_MSEC :
                                        NSEC_PER_MSEC);
                if (rand_r(&seed) % 4 == 0) {
                        if (unit->in_flight == 0)
                                fly(now, 1 + rand_r(&seed) % 3);
                        else
                                fly(now, rand_r(&seed) % 3 == 0 ? 1 : -1);
                        now += rand_r(&seed) % (rand_r(&seed) % 20 == 0 ? longest_ms * NSEC_PER_MSEC :
                                                NSEC_PER_MSEC);
                }
                enter(c, s, now);
                state_transition(s, states[thread], state, now, serving_clock_read(unit->serving, now));
                if (state >= QOS_STATE_LOCK) {
                        contention_cpu_count(s, QOS_CONTENTION_CPU_WAITS + state);
                        waits++;
                }
                s->counters[QOS_CONTENTION_CPU_COST] += k;
                c->sums[QOS_COST_NSEC] += 3 * k;
                cost += k;
                states[thread] = state;
                stories[thread].events[stories[thread].n++] = (Event) { now, served_at(now), state };

                if (k % 16 != 0)
                        continue;
                for (size_t w = 0; w < ELEMENTSOF(windows); w++) {
                        uint64_t at = now + rand_r(&seed) % (200 * NSEC_PER_MSEC), all = 0;
                        ContentionReading r = read_at(c, at, windows[w], NULL),
                                total = read_at(c, at, WINDOW_TOTAL, NULL), both, both_total;

                        both = read_both_at(c, at, windows[w], NULL, &both_total);
                        check(memcmp(&both, &r, sizeof(r)) == 0);
                        check(memcmp(&both_total, &total, sizeof(total)) == 0);

                        uint64_t served_begin = served_at(r.boundary), served_end = served_at(at);

                        check(r.covered <= at - START && r.boundary == at - r.covered);
                        check(r.counts.served == served_end - served_begin);
                        check(r.n_serving == (r.counts.served > 0));
                        for (unsigned i = QOS_STATE_RUNNING; i < QOS_STATES; i++) {
                                uint64_t truth = 0, served = 0, n = 0;

                                for (unsigned t = 0; t < THREADS; t++) {
                                        truth += time_in(stories + t, i, r.boundary, at);
                                        served += served_in(stories + t, i, r.boundary, at, served_begin,
                                                            served_end);
                                        n += states[t] == i;
                                }
                                check(r.counts.times[i] == truth);
                                check(r.counts.serving[i] == served);
                                check(r.threads[i] == n);
                                all += truth;
                        }
                        check(all <= THREADS * r.covered);
                        if (windows[w] == WINDOW_TOTAL) {
                                uint64_t sum = 0;

                                for (unsigned i = 0; i < QOS_STATES; i++)
                                        sum += r.counts.counters[QOS_CONTENTION_CPU_WAITS + i];
                                check(sum == waits);
                                check(r.counts.counters[QOS_CONTENTION_CPU_COST] == cost &&
                                      r.counts.sums[QOS_COST_NSEC] == 3 * cost);
                        } else
                                check(r.counts.counters[QOS_CONTENTION_CPU_COST] <= cost &&
                                      r.counts.sums[QOS_COST_NSEC] == 3 *
                                      r.counts.counters[QOS_CONTENTION_CPU_COST]);
                }
        }

        /* Counts before a time are not part of the counts from then on */
        {
                ContentionSource source = { .map = c, .contention_cpus = contention_cpus, .since = START,
                        .requests = unit };
                ContentionCounts before = {};
                ContentionReading r;

                check(contention_counts_add(&before, &source, now, 1) >= 0);
                r = read_at(c, now, WINDOW_TOTAL, &before);
                for (size_t i = 0; i < CONTENTION_WORDS; i++)
                        check(((uint64_t*) &r.counts)[i] == 0);
                r = read_at(c, now + NSEC_PER_SEC, WINDOW_TOTAL, &before);
                for (unsigned i = QOS_STATE_RUNNING; i < QOS_STATES; i++)
                        check(r.counts.times[i] == r.threads[i] * NSEC_PER_SEC);
                check(contention_counts_add(&before, &source, now, -1) >= 0);
                for (size_t i = 0; i < CONTENTION_WORDS; i++)
                        check(((uint64_t*) &before)[i] == 0);
        }
        free(unit);
        unit = NULL;
        free(stories);
        free(c);
}

/* Samples by window, and their maximum. */
static void test_distribution(void) {
        struct qos_contention_map *c = contention_map_new(START);
        ContentionReading r;
        Distribution d;

        for (unsigned i = 0; i < 30; i++) {
                enter(c, contention_cpus, START + i * 100 * NSEC_PER_MSEC);
                contention_add(c, QOS_RUN_QUEUE_LATENCY, (i + 1) * NSEC_PER_MSEC);
        }
        r = read_at(c, START + 2950 * NSEC_PER_MSEC, WINDOW_TOTAL, NULL);
        contention_get_distribution(&r, QOS_RUN_QUEUE_LATENCY, 5, &d);
        check(d.count == 30 && d.max == 30 * NSEC_PER_MSEC && d.mean == 15500 * NSEC_PER_USEC);
        check(d.p50 > 14 * NSEC_PER_MSEC && d.p50 < 17 * NSEC_PER_MSEC && d.p90 == ABSENT);
        r = read_at(c, START + 2950 * NSEC_PER_MSEC, 500 * NSEC_PER_MSEC, NULL);
        contention_get_distribution(&r, QOS_RUN_QUEUE_LATENCY, 5, &d);
        check(d.count == 6 && d.max == 30 * NSEC_PER_MSEC && d.mean == 27500 * NSEC_PER_USEC);
        free(c);
}

/* After a long silence, threads are found by an iterator: they did not count before. */
static void test_after_silence(void) {
        struct qos_contention_map *c = contention_map_new(START);
        uint64_t now = START + 61 * NSEC_PER_SEC;
        ContentionReading r;

        for (unsigned i = 0; i < 5; i++) {
                enter(c, contention_cpus + CPUS, now);
                state_transition(contention_cpus + CPUS, QOS_STATE_NONE, QOS_STATE_SLEEP, now, 0);
        }
        now += NSEC_PER_SEC;
        r = read_at(c, now, 10 * NSEC_PER_SEC, NULL);
        check(r.counts.times[QOS_STATE_SLEEP] == 5 * NSEC_PER_SEC);
        enter(c, contention_cpus, now);
        r = read_at(c, now, 10 * NSEC_PER_SEC, NULL);
        check(r.counts.times[QOS_STATE_SLEEP] == 5 * NSEC_PER_SEC);
        /* And removed again, also after a while */
        now += 30 * NSEC_PER_SEC;
        for (unsigned i = 0; i < 5; i++) {
                enter(c, contention_cpus + CPUS, now);
                state_transition(contention_cpus + CPUS, QOS_STATE_SLEEP, QOS_STATE_NONE, now, 0);
        }
        now += 2 * NSEC_PER_SEC;
        r = read_at(c, now, 10 * NSEC_PER_SEC, NULL);
        check(r.counts.times[QOS_STATE_SLEEP] == 5 * (r.covered - 2 * NSEC_PER_SEC));
        free(c);
}

#define FLYERS 4
#define FLIGHTS 200000

static void* come_and_go(void *data) {
        struct qos_unit_map *u = data;

        for (unsigned i = 0; i < FLIGHTS; i++) {
                uint64_t seen = i % 2 == 0 ? *(volatile uint64_t*) &u->serving : QOS_SERVING;

                window_add_in_flight_at(u, 1, seen, now_nsec(CLOCK_MONOTONIC));
                window_add_in_flight(u, -1);
        }
        return NULL;
}

/* Requests on all CPUs at once: the clock runs exactly while there is one, and stops otherwise. */
static void test_clock(void) {
        pthread_t flyers[FLYERS];
        struct qos_unit_map *u = new0(struct qos_unit_map, 1);
        uint64_t begin, end, word;

        check(u);
        real_clock = true;
        for (int always = 0; always <= 1; always++) {
                uint64_t before = serving_clock_read(u->serving, 0);

                begin = now_nsec(CLOCK_MONOTONIC);
                if (always)
                        window_add_in_flight(u, 1);
                word = u->serving;
                for (unsigned i = 0; i < ELEMENTSOF(flyers); i++)
                        check(pthread_create(flyers + i, NULL, come_and_go, u) == 0);
                for (unsigned i = 0; i < ELEMENTSOF(flyers); i++)
                        check(pthread_join(flyers[i], NULL) == 0);
                if (always) {
                        check(u->serving == word); /* without an event */
                        window_add_in_flight(u, -1);
                }
                end = now_nsec(CLOCK_MONOTONIC);
                check(u->in_flight == 0);
                check(!(u->serving & QOS_SERVING));
                check(u->serving > before && u->serving - before <= end - begin);
        }
        real_clock = false;
        free(u);
}

/* The clock starts at the time of the caller, unless it was written since the caller has read it. */
static void test_clock_time(void) {
        struct qos_unit_map *u = new0(struct qos_unit_map, 1);

        check(u);
        clock_now = 100;
        window_add_in_flight_at(u, 1, u->serving, 90);
        check(serving_clock_read(u->serving, 100) == 10);
        window_add_in_flight(u, -1);
        check(u->serving == 10);

        clock_now = 200;
        window_add_in_flight_at(u, 1, 0, 90);
        check(serving_clock_read(u->serving, 210) == 20);
        window_add_in_flight(u, -1);
        check(u->serving == 10);
        free(u);
}

static volatile bool over;

static void* go_round(void *data) {
        struct qos_contention_cpu *s = data;
        uint64_t now = START;

        /* A thread that is always in one of two states */
        state_transition(s, QOS_STATE_NONE, QOS_STATE_RUNNING, now, 0);
        while (!over) {
                now++;
                state_transition(s, QOS_STATE_RUNNING, QOS_STATE_PARK, now, 0);
                now++;
                state_transition(s, QOS_STATE_PARK, QOS_STATE_RUNNING, now, 0);
                /* Usually it is preempted outside of an update: otherwise all readers would have to wait for
                 * it */
                for (volatile unsigned i = 0; i < 200; i++)
                        ;
        }
        return NULL;
}

/* Neither a reader nor the writer of checkpoints sees half of a switch. */
static void test_torn(void) {
        struct qos_contention_map *c = contention_map_new(START);
        ContentionReading r;
        pthread_t writers[2];

        over = false;
        for (unsigned i = 0; i < ELEMENTSOF(writers); i++)
                check(pthread_create(writers + i, NULL, go_round, contention_cpus + i) == 0);
        do
                r = read_at(c, START, WINDOW_TOTAL, NULL);
        while (r.threads[QOS_STATE_RUNNING] + r.threads[QOS_STATE_PARK] < 2);
        for (unsigned k = 0; k < 20000; k++) {
                r = read_at(c, START + 100000 * NSEC_PER_SEC, WINDOW_TOTAL, NULL);

                check(r.threads[QOS_STATE_RUNNING] + r.threads[QOS_STATE_PARK] == 2);
                check(r.counts.times[QOS_STATE_RUNNING] + r.counts.times[QOS_STATE_PARK] == 2 * 100000 *
                      NSEC_PER_SEC);
        }
        for (unsigned k = 0, checked = 0; checked < 1000; ) {
                const struct qos_contention_checkpoint *p = c->checkpoints +
                                                            c->written[0] % QOS_LEVEL_CHECKPOINTS(0);

                contention_roll(c, 0, c->epoch + 1);
                check(k++ < 1000000);
                if (p->last < p->first) {
                        (void) sched_yield(); /* a writer was interrupted for long: there is none */
                        continue;
                }
                checked++;
                check(p->threads[QOS_STATE_RUNNING] + p->threads[QOS_STATE_PARK] == 2);
                check(p->times[QOS_STATE_RUNNING] + p->times[QOS_STATE_PARK] == -2 * START);
        }
        over = true;
        for (unsigned i = 0; i < ELEMENTSOF(writers); i++)
                check(pthread_join(writers[i], NULL) == 0);
        free(c);
}

int main(void) {
        for (unsigned seed = 1; seed <= 4; seed++) {
                test_random(seed, 50);
                test_random(seed, 20000);
        }
        test_clock();
        test_clock_time();
        test_distribution();
        test_after_silence();
        test_torn();
        free(contention_cpus);
        return EXIT_SUCCESS;
}
