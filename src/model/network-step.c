/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "network-step.h"
#include "util.h"
#include "window-internal.h"

/* Level with sub-windows of the length of a step. */
#define LEVEL 2

/* Counters at the beginning of step n, bins modulo 2^32. -ENOENT: no checkpoint. */
static int checkpoint_read(const union qos_network_element *map, uint64_t n, NetworkCounts *ret) {
        for (unsigned i = 0; i < QOS_LEVEL_CHECKPOINTS(LEVEL); i++) {
                const struct qos_network_counts *c =
                        &map[QOS_NETWORK_CHECKPOINT + QOS_LEVEL_FIRST_CHECKPOINT(LEVEL) + i].counts;
                uint64_t last = map_load(&c->last), first = map_load(&c->first);

                if (n < first || n > last)
                        continue;
                for (unsigned k = 0; k < QOS_NETWORK_SUMS; k++)
                        ret->sums[k] = __atomic_load_n(&c->sums[k], __ATOMIC_RELAXED);
                for (unsigned k = 0; k < QOS_NETWORK_BINS; k++)
                        ret->bins[k] = __atomic_load_n(&c->bins[k], __ATOMIC_RELAXED);
                __atomic_thread_fence(__ATOMIC_ACQUIRE);
                return map_load(&c->last) == last && map_load(&c->first) == first ? 0 : -ENOENT;
        }
        return -ENOENT;
}

static int source_read_at(const NetworkSource *s, uint64_t n, NetworkCounts *ret) {
        *ret = (NetworkCounts) {};
        if (n * WINDOW_STEP_NSEC <= s->since)
                return 0;

        for (unsigned try = 0; try < TRIES_MAX; try++) {
                bool quiet = map_load(&s->map->header.epoch) / QOS_LEVEL_EPOCHS(LEVEL) < n &&
                             __atomic_load_n(&s->map->header.rolling, __ATOMIC_ACQUIRE) == 0;

                if (checkpoint_read(s->map, n, ret) >= 0)
                        return 0;
                if (!quiet)
                        continue;
                /* Nothing since */
                *ret = (NetworkCounts) {};
                network_counts_add(ret, s, 1);
                if (map_load(&s->map->header.epoch) / QOS_LEVEL_EPOCHS(LEVEL) < n)
                        return 0;
        }
        return -ENODATA;
}

int network_read_step(const NetworkSources *sources, uint64_t n, NetworkReading *ret) {
        uint64_t begin = n * WINDOW_STEP_NSEC, end = begin + WINDOW_STEP_NSEC;
        bool first = begin <= sources->since;
        NetworkCounts *counts = &ret->counts;
        int r;

        assert(sources);
        assert(ret);

        if (end <= sources->since)
                return -ENODATA;

        *ret = (NetworkReading) { .covered = end - MAX(begin, sources->since) };
        for (size_t i = 0; i < sources->n; i++) {
                NetworkCounts before = {}, after;

                r = source_read_at(sources->sources + i, n + 1, &after);
                if (r >= 0 && !first)
                        r = source_read_at(sources->sources + i, n, &before);
                if (r < 0)
                        return r;
                for (unsigned k = 0; k < QOS_NETWORK_SUMS; k++)
                        counts->sums[k] += after.sums[k] - before.sums[k];
                for (unsigned k = 0; k < QOS_NETWORK_BINS; k++)
                        counts->bins[k] += after.bins[k] - before.bins[k];
        }
        for (unsigned k = 0; first && sources->before && k < QOS_NETWORK_SUMS; k++)
                counts->sums[k] -= sources->before->sums[k];
        for (unsigned k = 0; k < QOS_NETWORK_BINS; k++) {
                if (first && sources->before)
                        counts->bins[k] -= sources->before->bins[k];
                counts->bins[k] = (uint32_t) counts->bins[k];
        }
        return 0;
}

static uint64_t distribution_count(const NetworkReading *reading, enum qos_network_distribution d) {
        return sums_add(reading->counts.bins + QOS_NETWORK_FIRST_BIN(d),
                        window_bins_number(QOS_NETWORK_SCHEMA(d)));
}

void history_step_set_network(HistoryStep *s, const NetworkReading *reading) {
        const uint64_t *sums = reading->counts.sums,
                       *rtt = reading->counts.bins + QOS_NETWORK_FIRST_BIN(QOS_NETWORK_RTT);
        uint64_t *a = s->amounts;

        a[HISTORY_NETWORK_COVERED] = reading->covered;
        memcpy(a + HISTORY_NETWORK_FLOWS, sums + QOS_NETWORK_FLOWS, QOS_FLOW_COUNTERS * sizeof(*a));
        a[HISTORY_NETWORK_RECOVERIES] = sums[QOS_NETWORK_RECOVERIES];
        a[HISTORY_NETWORK_SYN_RETRANSMITS] = sums[QOS_NETWORK_SYN_RETRANSMITS];
        a[HISTORY_NETWORK_PORTS_EXHAUSTED] = sums[QOS_NETWORK_PORTS_EXHAUSTED];
        a[HISTORY_NETWORK_DROPS] = sums_add(sums + QOS_NETWORK_DROPS, QOS_DROP_ROWS);
        for (unsigned d = 0; d < HISTORY_NETWORK_MEANS; d++) {
                if (d != QOS_NETWORK_RTT) /* has its bins */
                        a[HISTORY_NETWORK_COUNTS + d] = distribution_count(reading, d);
                a[HISTORY_NETWORK_TIMES + d] = sums[QOS_NETWORK_NSEC + d];
        }
        memset(a + HISTORY_NETWORK_RTT_BINS, 0, QOS_NETWORK_ROUGH_BINS * sizeof(*a));
        for (unsigned i = 0; i < window_bins_number(HISTOGRAM_COARSE_SCHEMA); i++)
                a[HISTORY_NETWORK_RTT_BINS +
                  histogram_merged_bin(i, HISTOGRAM_COARSE_SCHEMA - QOS_NETWORK_ROUGH_SCHEMA)] += rtt[i];
}
