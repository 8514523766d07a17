/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <math.h>

#include "storage-window.h"
#include "util.h"
#include "window-internal.h"

static void counts_add(StorageCounts *counts, const StorageCounts *other, int times) {
        uint64_t *to = (uint64_t*) counts;
        const uint64_t *from = (const uint64_t*) other;

        for (size_t i = 0; i < STORAGE_WORDS; i++)
                to[i] += (uint64_t) times * from[i];
}

/* The times by state in units of checkpoints. */
typedef uint32_t RoundedStates[QOS_STORAGE_SUMS - QOS_STORAGE_STATE];

/* Current counters of all CPUs. Bins first: what is in a bin is in the sums already. ret_rounded: may be
 * NULL */
static void source_read_live(const StorageSource *s, StorageCounts *ret, RoundedStates *ret_rounded) {
        *ret = (StorageCounts) {};
        if (ret_rounded)
                memset(ret_rounded, 0, sizeof(*ret_rounded));
        for (unsigned cpu = 0; cpu < s->map->header.cpus; cpu++) {
                const struct qos_storage_counts *shard = &s->map[QOS_STORAGE_SHARD(cpu)].counts,
                        *carry = &s->map[QOS_STORAGE_SHARD(cpu) + 1].counts;

                for (unsigned i = 0; i < QOS_STORAGE_BINS; i++)
                        ret->bins[i] += carried_load(&shard->bins[i], &carry->bins[i]);
                for (unsigned i = 0; i < QOS_STORAGE_WIDE; i++)
                        ret->sums[i] += __atomic_load_n(&shard->sums[i], __ATOMIC_RELAXED);
                for (unsigned i = QOS_STORAGE_WIDE; i < QOS_STORAGE_SUMS; i++) {
                        uint64_t word = carried_load(&shard->counts[i - QOS_STORAGE_WIDE],
                                                     &carry->counts[i - QOS_STORAGE_WIDE]);

                        ret->sums[i] += word;
                        if (ret_rounded && i >= QOS_STORAGE_STATE)
                                (*ret_rounded)[i - QOS_STORAGE_STATE] +=
                                        (uint32_t) (word >> QOS_STORAGE_STATE_SHIFT);
                }
        }
}

void storage_counts_add(StorageCounts *counts, const StorageSource *source, int times) {
        StorageCounts live;

        assert(counts);
        assert(source);

        source_read_live(source, &live, NULL);
        counts_add(counts, &live, times);
}

/* Subtracts the checkpoint at a boundary of the level. rounded: the times by state of counts. -ENOENT: no
 * checkpoint. */
static int checkpoint_subtract(const StorageSource *s, unsigned level, uint64_t boundary,
                               const RoundedStates *rounded, StorageCounts *counts) {
        for (unsigned i = 0; i < QOS_LEVEL_CHECKPOINTS(level); i++) {
                const struct qos_storage_counts *c =
                        &s->map[QOS_STORAGE_CHECKPOINT + QOS_LEVEL_FIRST_CHECKPOINT(level) + i].counts;
                uint64_t first, last;
                StorageCounts result;

                last = map_load(&c->last);
                first = map_load(&c->first);
                if (boundary < first || boundary > last)
                        continue;

                for (unsigned k = 0; k < QOS_STORAGE_WIDE; k++)
                        result.sums[k] = counts->sums[k] - __atomic_load_n(&c->sums[k], __ATOMIC_RELAXED);
                for (unsigned k = QOS_STORAGE_WIDE; k < QOS_STORAGE_SUMS; k++) {
                        uint32_t n = __atomic_load_n(&c->counts[k - QOS_STORAGE_WIDE], __ATOMIC_RELAXED);

                        if (k < QOS_STORAGE_STATE)
                                result.sums[k] = (uint32_t) ((uint32_t) counts->sums[k] - n);
                        else
                                result.sums[k] = (uint64_t) ((*rounded)[k - QOS_STORAGE_STATE] - n)
                                                 << QOS_STORAGE_STATE_SHIFT;
                }
                for (unsigned k = 0; k < QOS_STORAGE_BINS; k++)
                        result.bins[k] = (uint32_t) ((uint32_t) counts->bins[k] -
                                                     __atomic_load_n(&c->bins[k], __ATOMIC_RELAXED));

                __atomic_thread_fence(__ATOMIC_ACQUIRE);
                if (map_load(&c->last) != last || map_load(&c->first) != first)
                        return -ENOENT;
                *counts = result;
                return 0;
        }
        return -ENOENT;
}

/* Adds a window of one map. live: its current counters, also returned. */
static int source_read(const StorageSource *s, unsigned level, uint64_t boundary, uint64_t now,
                       StorageReading *ret, StorageCounts *live) {
        uint64_t step = QOS_LEVEL_EPOCHS(level) * QOS_EPOCH_NSEC;

        for (unsigned try = 0; try < TRIES_MAX; try++) {
                /* Read before the words: a concurrent event may then be in both, but not be lost */
                bool quiet = map_load(&s->map->header.epoch) / QOS_LEVEL_EPOCHS(level) < boundary &&
                             __atomic_load_n(&s->map->header.rolling, __ATOMIC_ACQUIRE) == 0;
                StorageCounts counts;
                RoundedStates rounded;

                source_read_live(s, live, &rounded);
                counts = *live;
                if (boundary * step <= s->since ||
                    checkpoint_subtract(s, level, boundary, &rounded, &counts) >= 0) {
                        counts_add(&ret->counts, &counts, 1);
                        max_rings_read(s->map->header.peaks, QOS_STORAGE_TIMED, level,
                                       MAX(boundary, s->since / step), now / step, ret->maxima);
                        return 0;
                }
                /* The newest event precedes the window */
                if (quiet && map_load(&s->map->header.epoch) / QOS_LEVEL_EPOCHS(level) < boundary)
                        return 0;
        }
        return -EAGAIN;
}

/* A call that ends while the words are read may be in some of them, and missing in a checkpoint: at most one
 * for each CPU. */
static void reading_settle(StorageReading *r) {
        uint64_t *words = (uint64_t*) &r->counts;

        for (size_t i = 0; i < STORAGE_WORDS; i++)
                if ((int64_t) words[i] < 0)
                        words[i] = 0;
}

static void in_flight_read(const StorageSources *sources, StorageReading *ret) {
        for (size_t i = 0; i < sources->n; i++) {
                const struct qos_storage_in_flight *f = &sources->sources[i].map->header.in_flight;

                if (sources->session == 0 || map_load(&f->session) != sources->session)
                        continue;
                ret->oldest_at = ret->in_flight == 0 ? map_load(&f->oldest_at) :
                                 MIN(ret->oldest_at, map_load(&f->oldest_at));
                ret->in_flight += map_load(&f->count);
        }
}

int storage_read(const StorageSources *sources, uint64_t now, uint64_t window, StorageReading *ret,
                 StorageReading *ret_total) {
        bool total = window == WINDOW_TOTAL;
        unsigned level = total ? 0 : window_level(window);
        uint64_t step = QOS_LEVEL_EPOCHS(level) * QOS_EPOCH_NSEC, boundary,
                signature = UINT64_C(0xcbf29ce484222325);
        StorageCounts live;
        int r;

        assert(sources);
        assert(ret);
        assert(window_is_valid(window));

        boundary = total ? 0 : window_boundary(now / step, window / step);
        if (boundary * step <= sources->since)
                total = true;

        *ret = (StorageReading) { .covered = now - MIN(now, total ? sources->since : boundary * step) };
        if (ret_total)
                *ret_total = (StorageReading) { .covered = now - MIN(now, sources->since) };

        for (size_t i = 0; i < sources->n; i++) {
                const StorageSource *s = sources->sources + i;
                StorageReading *all = window == WINDOW_TOTAL ? ret : ret_total;

                if (total) {
                        source_read_live(s, &live, NULL);
                        counts_add(&ret->counts, &live, 1);
                        if (window != WINDOW_TOTAL)
                                max_rings_read(s->map->header.peaks, QOS_STORAGE_TIMED, level,
                                               MAX(sources->since, s->since) / step,
                                               now / step, ret->maxima);
                } else {
                        r = source_read(s, level, boundary, now, ret, &live);
                        if (r < 0)
                                return r;
                }
                if (ret_total)
                        counts_add(&ret_total->counts, &live, 1);
                if (all)
                        for (unsigned call = 0; call < QOS_STORAGE_TIMED; call++)
                                all->maxima[call] = MAX(all->maxima[call],
                                                        map_load(&s->map->header.peaks[call].total));
                signature = hash_words(signature, (const uint64_t*) &live, STORAGE_WORDS);
        }
        if (total && sources->before)
                counts_add(&ret->counts, sources->before, -1);
        if (ret_total && sources->before)
                counts_add(&ret_total->counts, sources->before, -1);

        for (StorageReading *reading = ret; reading; reading = reading == ret ? ret_total : NULL) {
                reading->signature = signature;
                in_flight_read(sources, reading);
                reading_settle(reading);
        }
        return 0;
}

void storage_get_latency(const StorageReading *reading, enum qos_storage_call call, unsigned minimum_samples,
                         Distribution *ret) {
        WindowBins bins = {
                .schema = HISTOGRAM_COARSE_SCHEMA,
                .sum = reading->counts.sums[QOS_STORAGE_NSEC + call],
                .max = reading->maxima[call],
        };

        assert(call < QOS_STORAGE_TIMED);

        memcpy(bins.count, reading->counts.bins + call * HISTOGRAM_COARSE_BINS,
               HISTOGRAM_COARSE_BINS * sizeof(uint64_t));
        window_bins_get_distribution(&bins, minimum_samples, ret);
}

enum qos_state storage_state_to_thread_state(enum qos_storage_state state) {
        assert(state < QOS_STORAGE_STATES);

        /* Of several that count as "other", the last one is it */
        for (enum qos_state s = QOS_STATES - 1; s > 0; s--)
                if (storage_state(s) == (uint32_t) state)
                        return s;
        return QOS_STATE_NONE;
}

void storage_get_shares(const StorageReading *reading, enum qos_storage_call call, double *ret) {
        const uint64_t *sums;
        uint64_t all = 0;

        assert(call < QOS_STORAGE_DIVIDED);

        sums = reading->counts.sums + QOS_STORAGE_STATE + call * QOS_STORAGE_STATES;
        /* Beyond that, the units of checkpoints may have overflowed */
        if (reading->counts.sums[QOS_STORAGE_NSEC + call] < UINT64_C(1) << (32 + QOS_STORAGE_STATE_SHIFT))
                for (unsigned i = 0; i < QOS_STORAGE_STATES; i++)
                        all += sums[i];
        for (unsigned i = 0; i < QOS_STATES; i++)
                ret[i] = all > 0 ? 0 : NAN;
        for (unsigned i = 0; i < QOS_STORAGE_STATES && all > 0; i++)
                ret[storage_state_to_thread_state(i)] = (double) sums[i] / (double) all;
}
