/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Books of contention: the code that the programs run (bpf/account.h) and the one that reads (contention-reading.c), against a
 * plain list of what each thread did. */

#include <pthread.h>
#include <sched.h>

#include "contention-reading.h"
#include "util.h"

#define window_copy(to, from, size) memcpy(to, from, size)
#define window_cpu() ((uint32_t) gettid())
#define contention_now() UINT64_C(0)
#define contention_loop(n, step, data) ({ for (__u64 _i = 0; _i < (n) && step(_i, data) == 0; _i++) ; })

#define CPUS 4
#define SHARDS (CPUS + QOS_SHARDS_MORE)
static struct qos_shard *shards;

static const struct qos_shard* contention_shard(__u32 slot, __u32 generation, __u32 i) {
        return i < SHARDS && shards[i].generation == generation ? shards + i : NULL;
}

#include "account.h"

#define check(condition)                                                                                \
        do {                                                                                            \
                if (!(condition)) {                                                                     \
                        fprintf(stderr, "%s:%i: not true: %s\n", __FILE__, __LINE__, #condition);       \
                        exit(EXIT_FAILURE);                                                             \
                }                                                                                       \
        } while (false)

#define START (1000 * NSEC_PER_SEC)
#define GENERATION 7

static struct qos_contention* book_new(uint64_t now) {
        struct qos_contention *c = new0(struct qos_contention, 1);

        free(shards);
        shards = aligned_alloc(64, SHARDS * sizeof(struct qos_shard));
        check(c && shards);
        memset(shards, 0, SHARDS * sizeof(struct qos_shard));
        c->generation = GENERATION;
        c->shards = SHARDS;
        c->epoch = now / QOS_EPOCH_NSEC;
        for (unsigned i = 0; i < SHARDS; i++) {
                shards[i].generation = GENERATION;
                shards[i].epoch_end = (c->epoch + 1) * QOS_EPOCH_NSEC;
        }
        return c;
}

/* As shard_enter() in bpf/waits.h. */
static void enter(struct qos_contention *c, struct qos_shard *s, uint64_t now) {
        if (now < s->epoch_end)
                return;
        s->epoch_end = (now / QOS_EPOCH_NSEC + 1) * QOS_EPOCH_NSEC;
        contention_roll(c, 0, now / QOS_EPOCH_NSEC);
}

static ContentionReading read_at(struct qos_contention *c, uint64_t now, uint64_t window, const ContentionCounts *before) {
        ContentionBook book = { .map = c, .shards = shards, .since = START };
        ContentionBooks books = { .books = &book, .n = 1, .since = START, .before = before };
        ContentionReading r;
        int e;

        /* Who writes may be held up in the middle of it, where these are threads */
        do
                e = contention_read(&books, now, window, &r);
        while (e == -EAGAIN);
        check(e >= 0);
        return r;
}

/* What is known of a thread: since when it is in which state, all the way. */
typedef struct Event {
        uint64_t at;
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
                uint64_t from = MAX(story->events[i].at, begin), to = i + 1 < story->n ? MIN(story->events[i + 1].at, end) : end;

                if (story->events[i].state == state && to > from)
                        sum += to - from;
        }
        return sum;
}

/* Threads that do things at random, on any CPU; also nothing for long. Each window tells what was in it, to the nanosecond. */
static void test_random(unsigned seed, unsigned longest_ms) {
        static const uint64_t windows[] = {
                WINDOW_TOTAL, 100 * NSEC_PER_MSEC, 500 * NSEC_PER_MSEC, NSEC_PER_SEC, 3 * NSEC_PER_SEC, 10 * NSEC_PER_SEC,
                60 * NSEC_PER_SEC, 300 * NSEC_PER_SEC,
        };
        struct qos_contention *c = book_new(START);
        Story *stories = new0(Story, THREADS);
        unsigned states[THREADS] = {};
        uint64_t now = START, waits = 0;

        check(stories);
        for (unsigned k = 0; k < EVENTS; k++) {
                unsigned thread = rand_r(&seed) % THREADS, state = rand_r(&seed) % QOS_STATES;
                struct qos_shard *s = shards + rand_r(&seed) % CPUS;

                now += rand_r(&seed) % (rand_r(&seed) % 50 == 0 ? longest_ms * NSEC_PER_MSEC : NSEC_PER_MSEC);
                enter(c, s, now);
                shard_move(s, states[thread], state, now);
                if (state >= QOS_STATE_LOCK) {
                        shard_count(s, QOS_SHARD_WAITS + state);
                        waits++;
                }
                states[thread] = state;
                stories[thread].events[stories[thread].n++] = (Event) { now, state };

                if (k % 16 != 0)
                        continue;
                for (size_t w = 0; w < ELEMENTSOF(windows); w++) {
                        uint64_t at = now + rand_r(&seed) % (200 * NSEC_PER_MSEC), all = 0;
                        ContentionReading r = read_at(c, at, windows[w], NULL);

                        check(r.covered <= at - START && r.boundary == at - r.covered);
                        for (unsigned i = QOS_STATE_RUNNING; i < QOS_STATES; i++) {
                                uint64_t truth = 0, n = 0;

                                for (unsigned t = 0; t < THREADS; t++) {
                                        truth += time_in(stories + t, i, r.boundary, at);
                                        n += states[t] == i;
                                }
                                check(r.counts.times[i] == truth);
                                check(r.threads[i] == n);
                                all += truth;
                        }
                        check(all <= THREADS * r.covered);
                        if (windows[w] == WINDOW_TOTAL) {
                                uint64_t sum = 0;

                                for (unsigned i = 0; i < QOS_STATES; i++)
                                        sum += r.counts.counters[QOS_SHARD_WAITS + i];
                                check(sum == waits);
                        }
                }
        }

        /* What had been counted at some time is not in what is counted from then on */
        {
                ContentionBook book = { .map = c, .shards = shards, .since = START };
                ContentionCounts before = {};
                ContentionReading r;

                check(contention_counts_add(&before, &book, now, 1) >= 0);
                r = read_at(c, now, WINDOW_TOTAL, &before);
                for (size_t i = 0; i < CONTENTION_WORDS; i++)
                        check(((uint64_t*) &r.counts)[i] == 0);
                r = read_at(c, now + NSEC_PER_SEC, WINDOW_TOTAL, &before);
                for (unsigned i = QOS_STATE_RUNNING; i < QOS_STATES; i++)
                        check(r.counts.times[i] == r.threads[i] * NSEC_PER_SEC);
                check(contention_counts_add(&before, &book, now, -1) >= 0);
                for (size_t i = 0; i < CONTENTION_WORDS; i++)
                        check(((uint64_t*) &before)[i] == 0);
        }
        free(stories);
        free(c);
}

/* Samples by window, and the longest of them. */
static void test_distribution(void) {
        struct qos_contention *c = book_new(START);
        ContentionReading r;
        Distribution d;

        for (unsigned i = 0; i < 30; i++) {
                enter(c, shards, START + i * 100 * NSEC_PER_MSEC);
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

/* Nothing happens for long, and then threads are found by an iterator: they were not there before. */
static void test_after_silence(void) {
        struct qos_contention *c = book_new(START);
        uint64_t now = START + 61 * NSEC_PER_SEC;
        ContentionReading r;

        for (unsigned i = 0; i < 5; i++) {
                enter(c, shards + CPUS, now);
                shard_move(shards + CPUS, QOS_STATE_NONE, QOS_STATE_SLEEP, now);
        }
        now += NSEC_PER_SEC;
        r = read_at(c, now, 10 * NSEC_PER_SEC, NULL);
        check(r.counts.times[QOS_STATE_SLEEP] == 5 * NSEC_PER_SEC);
        enter(c, shards, now);
        r = read_at(c, now, 10 * NSEC_PER_SEC, NULL);
        check(r.counts.times[QOS_STATE_SLEEP] == 5 * NSEC_PER_SEC);
        /* And taken out again, also after a while */
        now += 30 * NSEC_PER_SEC;
        for (unsigned i = 0; i < 5; i++) {
                enter(c, shards + CPUS, now);
                shard_move(shards + CPUS, QOS_STATE_SLEEP, QOS_STATE_NONE, now);
        }
        now += 2 * NSEC_PER_SEC;
        r = read_at(c, now, 10 * NSEC_PER_SEC, NULL);
        check(r.counts.times[QOS_STATE_SLEEP] == 5 * (r.covered - 2 * NSEC_PER_SEC));
        free(c);
}

static volatile bool over;

static void* go_round(void *data) {
        struct qos_shard *s = data;
        uint64_t now = START;

        /* One thread that is in one state or the other, always */
        shard_move(s, QOS_STATE_NONE, QOS_STATE_RUNNING, now);
        while (!over) {
                now++;
                shard_move(s, QOS_STATE_RUNNING, QOS_STATE_PARK, now);
                now++;
                shard_move(s, QOS_STATE_PARK, QOS_STATE_RUNNING, now);
                /* Mostly it is taken off the CPU where it has nothing half done: else nobody could read anything until it is back */
                for (volatile unsigned i = 0; i < 200; i++)
                        ;
        }
        return NULL;
}

/* Never half of a switch, for a reader and for who writes checkpoints. */
static void test_torn(void) {
        struct qos_contention *c = book_new(START);
        ContentionReading r;
        pthread_t writers[2];

        over = false;
        for (unsigned i = 0; i < ELEMENTSOF(writers); i++)
                check(pthread_create(writers + i, NULL, go_round, shards + i) == 0);
        do
                r = read_at(c, START, WINDOW_TOTAL, NULL);
        while (r.threads[QOS_STATE_RUNNING] + r.threads[QOS_STATE_PARK] < 2);
        for (unsigned k = 0; k < 20000; k++) {
                r = read_at(c, START + 100000 * NSEC_PER_SEC, WINDOW_TOTAL, NULL);

                check(r.threads[QOS_STATE_RUNNING] + r.threads[QOS_STATE_PARK] == 2);
                check(r.counts.times[QOS_STATE_RUNNING] + r.counts.times[QOS_STATE_PARK] == 2 * 100000 * NSEC_PER_SEC);
        }
        for (unsigned k = 0, checked = 0; checked < 1000; ) {
                const struct qos_contention_checkpoint *p = c->checkpoints + c->written[0] % QOS_LEVEL_CHECKPOINTS(0);

                contention_roll(c, 0, c->epoch + 1);
                check(k++ < 1000000);
                if (p->last < p->first) {
                        (void) sched_yield(); /* a writer was held up for long: none is made */
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
        test_distribution();
        test_after_silence();
        test_torn();
        free(shards);
        return EXIT_SUCCESS;
}
