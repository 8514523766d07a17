/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "network-window.h"
#include "storage-window.h"
#include "util.h"
#include "window-internal.h"

static void counts_add(NetworkCounts *counts, const NetworkCounts *other, int times) {
        uint64_t *to = (uint64_t*) counts;
        const uint64_t *from = (const uint64_t*) other;

        for (size_t i = 0; i < NETWORK_WORDS; i++)
                to[i] += (uint64_t) times * from[i];
}

/* Bins first: what is in a bin is in the sums already. */
static void source_read_live(const NetworkSource *s, NetworkCounts *ret) {
        const struct qos_network_counts *live = &s->map[QOS_NETWORK_LIVE].counts,
                *carry = &s->map[QOS_NETWORK_CARRY].counts;

        for (unsigned i = 0; i < QOS_NETWORK_BINS; i++)
                ret->bins[i] = carried_load(&live->bins[i], &carry->bins[i]);
        for (unsigned i = 0; i < QOS_NETWORK_SUMS; i++)
                ret->sums[i] = __atomic_load_n(&live->sums[i], __ATOMIC_RELAXED);
}

void network_counts_add(NetworkCounts *counts, const NetworkSource *source, int times) {
        NetworkCounts live;

        assert(counts);
        assert(source);

        source_read_live(source, &live);
        counts_add(counts, &live, times);
}

/* Subtracts the checkpoint at a boundary of the level. -ENOENT: no checkpoint. */
static int checkpoint_subtract(const NetworkSource *s, unsigned level, uint64_t boundary,
                               NetworkCounts *counts) {
        for (unsigned i = 0; i < QOS_LEVEL_CHECKPOINTS(level); i++) {
                const struct qos_network_counts *c =
                        &s->map[QOS_NETWORK_CHECKPOINT + QOS_LEVEL_FIRST_CHECKPOINT(level) + i].counts;
                uint64_t first, last;
                NetworkCounts result;

                last = map_load(&c->last);
                first = map_load(&c->first);
                if (boundary < first || boundary > last)
                        continue;

                for (unsigned k = 0; k < QOS_NETWORK_SUMS; k++)
                        result.sums[k] = counts->sums[k] - __atomic_load_n(&c->sums[k], __ATOMIC_RELAXED);
                for (unsigned k = 0; k < QOS_NETWORK_BINS; k++)
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

/* The largest samples in the sub-windows first to last of the level. */
static void source_read_maxima(const NetworkSource *s, unsigned level, uint64_t first, uint64_t last,
                               uint64_t *maxima) {
        for (unsigned d = 0; d < QOS_NETWORK_DISTRIBUTIONS; d += QOS_NETWORK_PEAKS_EACH)
                max_rings_read(s->map[QOS_NETWORK_PEAKS + d / QOS_NETWORK_PEAKS_EACH].peaks,
                               MIN(QOS_NETWORK_DISTRIBUTIONS - d, QOS_NETWORK_PEAKS_EACH), level, first,
                               last, maxima + d);
}

/* Adds a window of one map. live: its current counters, also returned. */
static int source_read(const NetworkSource *s, unsigned level, uint64_t boundary, uint64_t now,
                       NetworkReading *ret, NetworkCounts *live) {
        uint64_t step = QOS_LEVEL_EPOCHS(level) * QOS_EPOCH_NSEC;

        for (unsigned try = 0; try < TRIES_MAX; try++) {
                /* Read before the words: a concurrent event may then be in both, but not be lost */
                bool quiet = map_load(&s->map->header.epoch) / QOS_LEVEL_EPOCHS(level) < boundary &&
                             __atomic_load_n(&s->map->header.rolling, __ATOMIC_ACQUIRE) == 0;
                NetworkCounts counts;

                source_read_live(s, live);
                counts = *live;
                if (boundary * step <= s->since || checkpoint_subtract(s, level, boundary, &counts) >= 0) {
                        counts_add(&ret->counts, &counts, 1);
                        source_read_maxima(s, level, MAX(boundary, s->since / step), now / step,
                                           ret->maxima);
                        return 0;
                }
                /* The newest event precedes the window */
                if (quiet && map_load(&s->map->header.epoch) / QOS_LEVEL_EPOCHS(level) < boundary)
                        return 0;
        }
        return -EAGAIN;
}

int network_read(const NetworkSources *sources, uint64_t now, uint64_t window, NetworkReading *ret,
                 NetworkReading *ret_total) {
        bool total = window == WINDOW_TOTAL;
        unsigned level = total ? 0 : window_level(window);
        uint64_t step = QOS_LEVEL_EPOCHS(level) * QOS_EPOCH_NSEC, boundary,
                signature = UINT64_C(0xcbf29ce484222325);
        NetworkCounts live;
        int r;

        assert(sources);
        assert(ret);
        assert(window_is_valid(window));

        boundary = total ? 0 : window_boundary(now / step, window / step);
        if (boundary * step <= sources->since)
                total = true;

        *ret = (NetworkReading) { .covered = now - MIN(now, total ? sources->since : boundary * step) };
        if (ret_total)
                *ret_total = (NetworkReading) { .covered = now - MIN(now, sources->since) };

        for (size_t i = 0; i < sources->n; i++) {
                const NetworkSource *s = sources->sources + i;
                NetworkReading *all = window == WINDOW_TOTAL ? ret : ret_total;

                if (total) {
                        source_read_live(s, &live);
                        counts_add(&ret->counts, &live, 1);
                        if (window != WINDOW_TOTAL)
                                source_read_maxima(s, level, MAX(sources->since, s->since) / step,
                                                   now / step, ret->maxima);
                } else {
                        r = source_read(s, level, boundary, now, ret, &live);
                        if (r < 0)
                                return r;
                }
                if (ret_total)
                        counts_add(&ret_total->counts, &live, 1);
                if (all)
                        for (unsigned d = 0; d < QOS_NETWORK_DISTRIBUTIONS; d++) {
                                const struct qos_max_ring *peaks =
                                        s->map[QOS_NETWORK_PEAKS + d / QOS_NETWORK_PEAKS_EACH].peaks;

                                all->maxima[d] = MAX(all->maxima[d],
                                                     map_load(&peaks[d % QOS_NETWORK_PEAKS_EACH].total));
                        }
                signature = hash_words(signature, (const uint64_t*) &live, NETWORK_WORDS);
        }
        if (total && sources->before)
                counts_add(&ret->counts, sources->before, -1);
        if (ret_total && sources->before)
                counts_add(&ret_total->counts, sources->before, -1);
        ret->signature = signature;
        if (ret_total)
                ret_total->signature = signature;
        return 0;
}

void network_get_distribution(const NetworkReading *reading, enum qos_network_distribution d,
                              unsigned minimum_samples, Distribution *ret) {
        WindowBins bins = {
                .schema = QOS_NETWORK_SCHEMA(d),
                .sum = reading->counts.sums[QOS_NETWORK_NSEC + d],
                .max = reading->maxima[d],
        };

        assert(d < QOS_NETWORK_DISTRIBUTIONS);

        memcpy(bins.count, reading->counts.bins + QOS_NETWORK_FIRST_BIN(d),
               window_bins_number(bins.schema) * sizeof(uint64_t));
        window_bins_get_distribution(&bins, minimum_samples, ret);
}
