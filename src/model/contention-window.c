/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <sched.h>

#include "contention-window.h"
#include "util.h"
#include "window-internal.h"

/* Current words of a contention map. Times of states depend on the moment, see bpf/abi/contention-map.h. */
typedef struct Live {
        int64_t threads[QOS_STATES];
        uint64_t times[QOS_STATES];
        uint64_t serving[QOS_STATES];
        uint64_t clock;                         /* word of the serving clock */
        uint64_t counters[QOS_CONTENTION_CPU_COUNTERS];
        uint64_t sums[QOS_CONTENTION_SUMS];
        uint64_t cells[QOS_CONTENTION_COUNTERS];
} Live;

/* Limit of attempts to read a per-CPU element consistently. A write section takes nanoseconds, unless the
 * virtual CPU of the writer is preempted: yield after some microseconds, and fail after some seconds instead
 * of returning wrong values. */
#define SHARD_SPINS 1000U
#define SHARD_TRIES (SHARD_SPINS + 100000U)

static int contention_cpu_add(const struct qos_contention_cpu *s, Live *live) {
        struct qos_contention_cpu copy;

        for (unsigned try = 0;; try++) {
                uint32_t writes = __atomic_load_n(&s->writes, __ATOMIC_ACQUIRE);

                for (unsigned i = 0; i < QOS_STATES; i++) {
                        copy.threads[i] = __atomic_load_n(&s->threads[i], __ATOMIC_RELAXED);
                        copy.times[i] = __atomic_load_n(&s->times[i], __ATOMIC_RELAXED);
                        copy.serving[i] = __atomic_load_n(&s->serving[i], __ATOMIC_RELAXED);
                }
                __atomic_thread_fence(__ATOMIC_ACQUIRE);
                if (writes % 2 == 0 && __atomic_load_n(&s->writes, __ATOMIC_RELAXED) == writes)
                        break;
                if (try >= SHARD_TRIES)
                        return -EAGAIN;
                if (try >= SHARD_SPINS)
                        (void) sched_yield();
        }

        for (unsigned i = 0; i < QOS_STATES; i++) {
                live->threads[i] += copy.threads[i];
                live->times[i] += copy.times[i];
                live->serving[i] += copy.serving[i];
        }
        for (unsigned i = 0; i < QOS_CONTENTION_CPU_COUNTERS; i++)
                live->counters[i] += __atomic_load_n(&s->counters[i], __ATOMIC_RELAXED);
        return 0;
}

/* Amount of data to read, each level including those above. */
typedef enum Depth {
        DEPTH_SHARDS,           /* times, threads, counters */
        DEPTH_CELLS,            /* sums and cells */
        DEPTH_SIGNATURE,
} Depth;

/* Number of words of ContentionCounts to read at a depth. */
static size_t depth_get_words(Depth depth) {
        _Static_assert(offsetof(ContentionCounts, sums) == (2 * QOS_STATES + 1 +
                                                            QOS_CONTENTION_CPU_COUNTERS) * sizeof(uint64_t),
                                                            "those of shards come first");

        return depth == DEPTH_SHARDS ? offsetof(ContentionCounts, sums) / sizeof(uint64_t) :
               CONTENTION_WORDS;
}

static int source_read_live(const ContentionSource *b, Depth depth, Live *ret) {
        int r;

        memset(ret, 0, offsetof(Live, sums));
        for (unsigned i = 0; i < b->map->contention_cpus; i++) {
                r = contention_cpu_add(b->contention_cpus + i, ret);
                if (r < 0)
                        return r;
        }
        ret->clock = b->requests ? map_load(&b->requests->serving) : 0;
        if (depth < DEPTH_CELLS)
                return 0;
        /* memcpy() does not tear aligned words */
        memcpy(ret->sums, b->map->sums, sizeof(ret->sums));
        memcpy(ret->cells, b->map->cells, sizeof(ret->cells));
        return 0;
}

static void counts_add_live(ContentionCounts *counts, const ContentionSource *b, const Live *live,
                            Depth depth, uint64_t now) {
        uint64_t served = serving_clock_read(live->clock, now);

        for (unsigned i = 0; i < QOS_STATES; i++) {
                counts->times[i] += live->times[i] + (uint64_t) live->threads[i] * now;
                counts->serving[i] += live->serving[i] + (uint64_t) live->threads[i] * served;
        }
        if (b->requests)
                counts->served += served - b->map->served;
        for (unsigned i = 0; i < QOS_CONTENTION_CPU_COUNTERS; i++)
                counts->counters[i] += live->counters[i];
        if (depth < DEPTH_CELLS)
                return;
        for (unsigned i = 0; i < QOS_CONTENTION_SUMS; i++)
                counts->sums[i] += live->sums[i];
        for (unsigned i = 0; i < QOS_CONTENTION_COUNTERS; i++)
                counts->cells[i] += live->cells[i];
}

static void counts_add(ContentionCounts *counts, const ContentionCounts *other, Depth depth) {
        uint64_t *to = (uint64_t*) counts;
        const uint64_t *from = (const uint64_t*) other;

        for (size_t i = 0; i < depth_get_words(depth); i++)
                to[i] += from[i];
}

static void counts_subtract(ContentionCounts *counts, const ContentionCounts *other, Depth depth) {
        uint64_t *from = (uint64_t*) counts;
        const uint64_t *what = (const uint64_t*) other;

        for (size_t i = 0; i < depth_get_words(depth); i++)
                from[i] -= what[i];
}

int contention_counts_add(ContentionCounts *counts, const ContentionSource *source, uint64_t now,
                          int times) {
        ContentionCounts all = {};
        Live live;
        int r;

        assert(counts);
        assert(source);

        r = source_read_live(source, DEPTH_CELLS, &live);
        if (r < 0)
                return r;
        counts_add_live(&all, source, &live, DEPTH_CELLS, now);
        if (times > 0)
                counts_add(counts, &all, DEPTH_CELLS);
        else
                counts_subtract(counts, &all, DEPTH_CELLS);
        return 0;
}

/* Reads the serving clock at a boundary of the level. */
static int source_read_served(const ContentionSource *b, unsigned level, uint64_t boundary, uint64_t *ret) {
        uint64_t word = 0;
        int r;

        if (b->requests) {
                r = window_read_clock(b->requests, level, boundary, &word);
                if (r < 0)
                        return r;
        }
        *ret = serving_clock_read(word, boundary * QOS_LEVEL_EPOCHS(level) * QOS_EPOCH_NSEC);
        return 0;
}

/* Subtracts the checkpoint at a boundary of the level. served: serving clock at the boundary. -ENOENT: no
 * checkpoint. */
static int checkpoint_subtract(const ContentionSource *b, Depth depth, unsigned level, uint64_t boundary,
                               uint64_t served, ContentionCounts *counts) {
        uint64_t at = boundary * QOS_LEVEL_EPOCHS(level) * QOS_EPOCH_NSEC;
        const struct qos_contention_map *c = b->map;
        size_t size = depth_get_words(depth) * sizeof(uint64_t);
        ContentionCounts result;

        memcpy(&result, counts, size);
        for (unsigned i = 0; i < QOS_LEVEL_CHECKPOINTS(level); i++) {
                const struct qos_contention_checkpoint *p =
                        &c->checkpoints[QOS_LEVEL_FIRST_CHECKPOINT(level) + i];
                uint64_t first, last;

                last = map_load(&p->last);
                first = map_load(&p->first);
                if (boundary < first || boundary > last)
                        continue;

                for (unsigned k = 0; k < QOS_STATES; k++) {
                        uint64_t threads = (uint64_t) __atomic_load_n(&p->threads[k], __ATOMIC_RELAXED);

                        result.times[k] -= __atomic_load_n(&p->times[k], __ATOMIC_RELAXED) + threads * at;
                        result.serving[k] -= __atomic_load_n(&p->serving[k], __ATOMIC_RELAXED) +
                                             threads * served;
                }
                if (b->requests)
                        result.served -= served - c->served;
                for (unsigned k = 0; k < QOS_CONTENTION_CPU_COUNTERS; k++)
                        result.counters[k] -= __atomic_load_n(&p->counters[k], __ATOMIC_RELAXED);
                for (unsigned k = 0; k < QOS_CONTENTION_SUMS && depth >= DEPTH_CELLS; k++)
                        result.sums[k] -= __atomic_load_n(&p->sums[k], __ATOMIC_RELAXED);
                for (unsigned k = 0; k < QOS_CONTENTION_COUNTERS && depth >= DEPTH_CELLS; k++)
                        result.cells[k] = (uint32_t) ((uint32_t) result.cells[k] -
                                                      __atomic_load_n(&p->cells[k], __ATOMIC_RELAXED));

                __atomic_thread_fence(__ATOMIC_ACQUIRE);
                if (map_load(&p->last) != last || map_load(&p->first) != first)
                        return -ENOENT;
                memcpy(counts, &result, size);
                return 0;
        }
        return -ENOENT;
}

/* A window, in steps of a level of checkpoints. */
typedef struct Span {
        unsigned level;
        uint64_t boundary;                      /* number of the first step */
        uint64_t now;                           /* ns */
} Span;

static int source_read(const ContentionSource *b, Depth depth, const Span *span, ContentionReading *ret,
                       Live *live) {
        uint64_t boundary = span->boundary, now = span->now,
                step = QOS_LEVEL_EPOCHS(span->level) * QOS_EPOCH_NSEC;
        unsigned level = span->level;

        for (unsigned try = 0; try < TRIES_MAX; try++) {
                /* Read before the counters: a concurrent event may then be in both, but is not lost */
                bool quiet = map_load(&b->map->epoch) / QOS_LEVEL_EPOCHS(level) < boundary &&
                             __atomic_load_n(&b->map->rolling, __ATOMIC_ACQUIRE) == 0;
                /* Without an event in the window, only times of states advance */
                bool only_threads = quiet && depth < DEPTH_SIGNATURE && boundary * step > b->since,
                        whole = boundary * step <= b->since;
                uint64_t served = 0, served_now;
                ContentionCounts counts;
                int r;

                r = source_read_live(b, only_threads ? DEPTH_SHARDS : depth, live);
                if (r < 0)
                        return r;
                if (!only_threads) {
                        memset(&counts, 0, depth_get_words(depth) * sizeof(uint64_t));
                        counts_add_live(&counts, b, live, depth, now);
                }
                if (!whole && source_read_served(b, level, boundary, &served) < 0)
                        continue;
                if (!only_threads &&
                    (whole || checkpoint_subtract(b, depth, level, boundary, served, &counts) >= 0)) {
                        counts_add(&ret->counts, &counts, depth);
                        ret->n_serving += (int64_t) counts.served > 0;
                        max_rings_read(b->map->peaks, QOS_CONTENTION_DISTRIBUTIONS, level,
                                       MAX(boundary, b->since / step), now / step, ret->maxima);
                        return 0;
                }
                if (quiet && map_load(&b->map->epoch) / QOS_LEVEL_EPOCHS(level) < boundary) {
                        /* The newest event precedes the window: threads have kept their states */
                        served_now = serving_clock_read(live->clock, now);
                        for (unsigned i = 0; i < QOS_STATES; i++) {
                                ret->counts.times[i] += (uint64_t) live->threads[i] *
                                                        (now - boundary * step);
                                ret->counts.serving[i] += (uint64_t) live->threads[i] *
                                                          (served_now - served);
                        }
                        ret->counts.served += served_now - served;
                        ret->n_serving += (int64_t) (served_now - served) > 0;
                        return 0;
                }
        }
        return -EAGAIN;
}

/* Removes negative times. CPUs are not read at the same moment, so that a thread that migrates meanwhile may
 * be missing in a state; and throttled time may have been recorded as run-queue wait before the window. What
 * is missing in one state is in excess in another, and taken from the largest. */
static void states_settle(uint64_t *times) {
        for (unsigned i = QOS_STATE_RUNNING; i < QOS_STATES; i++) {
                unsigned most = QOS_STATE_RUNNING;

                if ((int64_t) times[i] >= 0)
                        continue;
                for (unsigned k = QOS_STATE_RUNNING; k < QOS_STATES; k++)
                        if ((int64_t) times[k] > (int64_t) times[most])
                                most = k;
                if ((int64_t) (times[most] + times[i]) >= 0)
                        times[most] += times[i];
                times[i] = 0;
        }
}

static void reading_settle(ContentionReading *r) {
        uint64_t longest = r->covered * MAX(r->n_serving, 1U), signs = 0;

        states_settle(r->counts.times);
        states_settle(r->counts.serving);
        /* The clock may have been read slightly later than the time */
        r->counts.served = (int64_t) r->counts.served < 0 ? 0 : MIN(r->counts.served, longest);
        /* Fast path: usually no cell is negative */
        for (unsigned i = 0; i < QOS_CONTENTION_COUNTERS; i++)
                signs |= r->counts.cells[i];
        for (unsigned i = 0; i < QOS_CONTENTION_COUNTERS && (int64_t) signs < 0; i++)
                if ((int64_t) r->counts.cells[i] < 0)
                        r->counts.cells[i] = 0;
}

/* Adds all counters of a map, since it was created. */
static void reading_add_total(ContentionReading *r, const ContentionSource *source, const Live *live,
                              Depth depth, uint64_t now) {
        counts_add_live(&r->counts, source, live, depth, now);
        if (source->requests && (int64_t) (serving_clock_read(live->clock, now) - source->map->served) > 0)
                r->n_serving++;
}

static void reading_begin(ContentionReading *r, uint64_t boundary, uint64_t now) {
        *r = (ContentionReading) {
                .boundary = boundary,
                .covered = now - MIN(now, boundary),
        };
}

/* Reads a window; and ret_total, unless NULL, since the unit was first observed, from the same counters. */
static int depth_read(const ContentionSources *sources, uint64_t now, uint64_t window, Depth depth,
                      ContentionReading *ret, ContentionReading *ret_total) {
        bool total = window == WINDOW_TOTAL;
        unsigned level = total ? 0 : window_level(window);
        uint64_t step = QOS_LEVEL_EPOCHS(level) * QOS_EPOCH_NSEC, boundary,
                signature = UINT64_C(0xcbf29ce484222325);
        int64_t threads[QOS_STATES] = {};
        Live live;
        int r;

        assert(sources);
        assert(ret);
        assert(window_is_valid(window));

        boundary = total ? 0 : window_boundary(now / step, window / step);
        if (boundary * step <= sources->since)
                total = true;

        reading_begin(ret, total ? sources->since : boundary * step, now);
        if (ret_total)
                reading_begin(ret_total, sources->since, now);

        for (size_t i = 0; i < sources->n; i++) {
                const ContentionSource *source = sources->sources + i;
                ContentionReading *all = window == WINDOW_TOTAL ? ret : ret_total;

                if (total) {
                        r = source_read_live(source, depth, &live);
                        if (r < 0)
                                return r;
                        reading_add_total(ret, source, &live, depth, now);
                        if (window != WINDOW_TOTAL)
                                max_rings_read(source->map->peaks, QOS_CONTENTION_DISTRIBUTIONS, level,
                                               MAX(sources->since, source->since) / step,
                                               now / step, ret->maxima);
                } else {
                        r = source_read(source, depth, &(Span) { level, boundary, now }, ret, &live);
                        if (r < 0)
                                return r;
                }
                if (ret_total)
                        reading_add_total(ret_total, source, &live, depth, now);
                if (all)
                        for (unsigned d = 0; d < QOS_CONTENTION_DISTRIBUTIONS; d++)
                                all->maxima[d] = MAX(all->maxima[d], map_load(&source->map->peaks[d].total));
                for (unsigned k = 0; k < QOS_STATES; k++)
                        threads[k] += live.threads[k];
                if (depth >= DEPTH_SIGNATURE)
                        /* the signature has only words that do not change without events */
                        signature = hash_words(signature, (const uint64_t*) &live,
                                               sizeof(live) / sizeof(uint64_t));
        }
        if (total && sources->before)
                counts_subtract(&ret->counts, sources->before, depth);
        if (ret_total && sources->before)
                counts_subtract(&ret_total->counts, sources->before, depth);

        for (ContentionReading *reading = ret; reading; reading = reading == ret ? ret_total : NULL) {
                for (unsigned k = 0; k < QOS_STATES; k++)
                        reading->threads[k] = (uint64_t) MAX(threads[k], INT64_C(0));
                reading->signature = signature;
                reading_settle(reading);
        }
        return 0;
}

int contention_read(const ContentionSources *sources, uint64_t now, uint64_t window, ContentionReading *ret,
                    ContentionReading *ret_total) {
        return depth_read(sources, now, window, DEPTH_SIGNATURE, ret, ret_total);
}

int contention_read_some(const ContentionSources *sources, uint64_t now, uint64_t window, bool cells,
                         ContentionReading *ret) {
        return depth_read(sources, now, window, cells ? DEPTH_CELLS : DEPTH_SHARDS, ret, NULL);
}

void contention_get_distribution(const ContentionReading *reading, enum qos_contention_distribution d,
                                 unsigned minimum_samples, Distribution *ret) {
        WindowBins bins = {
                .schema = HISTOGRAM_COARSE_SCHEMA,
                .sum = reading->counts.sums[d],
                .max = reading->maxima[d],
        };

        memcpy(bins.count, reading->counts.cells + d * HISTOGRAM_COARSE_BINS,
               HISTOGRAM_COARSE_BINS * sizeof(uint64_t));
        window_bins_get_distribution(&bins, minimum_samples, ret);
}

void contention_add_block(const ContentionReading *reading, unsigned row, BlockCounts *counts) {
        const uint64_t *cells = reading->counts.cells + QOS_BLOCK_FIRST_COUNTER + row * QOS_BLOCK_COUNTERS;
        const uint64_t *sums = reading->counts.sums + QOS_BLOCK_FIRST_SUM + row * QOS_BLOCK_SUMS;

        assert(row < QOS_BLOCK_ROWS);

        for (unsigned i = 0; i < QOS_BLOCK_COUNTERS; i++)
                counts->operations[i] += cells[i];
        for (unsigned i = 0; i < QOS_BLOCK_SUMS; i++)
                counts->sums[i] += sums[i];
}
