/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* Writers of network maps. Compiled for BPF and, for the unit tests, for user space; the including file
 * provides window_copy(), window_cpu(), network_element() and network_roll_due(). */

#include "checkpoints.h"
#include "max-ring.h"
#include "network-map.h"

#define NETWORK_INLINE static inline __attribute__((always_inline))

NETWORK_INLINE struct qos_network_counts* network_counts_get(void *map, __u32 i) {
        union qos_network_element *e = network_element(map, i);

        return e ? &e->counts : NULL;
}

NETWORK_INLINE struct qos_network_header* network_header_get(void *map) {
        union qos_network_element *e = network_element(map, QOS_NETWORK_HEADER);

        return e ? &e->header : NULL;
}

/* Writes the checkpoints that are due at epoch. An event recorded meanwhile may land on either side of them;
 * totals are not affected. */
NETWORK_INLINE void network_roll(void *map, struct qos_network_header *h, __u64 epoch) {
        struct checkpoints all = { &h->rolling, &h->epoch, h->written };
        const struct qos_network_counts *live = network_counts_get(map, QOS_NETWORK_LIVE);

        if (!live || !checkpoints_begin(&all, epoch))
                return;
        for (__u32 level = 0; level < QOS_LEVELS; level++) {
                struct checkpoint_due due;
                struct qos_network_counts *c;

                if (!checkpoints_get_due(&all, level, epoch, &due))
                        break;
                c = network_counts_get(map, QOS_NETWORK_CHECKPOINT + (__u32) due.index);
                if (!c)
                        break;
                checkpoint_begin(&c->first, &c->last, &due);
                window_copy(c->sums, live->sums,
                            sizeof(*c) - __builtin_offsetof(struct qos_network_counts, sums));
                checkpoint_end(&c->last, &due);
                h->written[level]++;
        }
        checkpoints_end(&all, epoch);
}

/* The counters of a map, once the checkpoints that are due at this time are written; NULL: there is none. */
NETWORK_INLINE struct qos_network_counts* network_enter(void *map, __u64 now) {
        struct qos_network_header *h = network_header_get(map);
        __u64 epoch = now / QOS_EPOCH_NSEC;

        if (!h)
                return NULL;
        if (epoch > *(volatile __u64*) &h->epoch)
                network_roll_due(map, h, epoch);
        return network_counts_get(map, QOS_NETWORK_LIVE);
}

NETWORK_INLINE void network_add(struct qos_network_counts *live, __u64 sum, __u64 n) {
        BPF_BOUND(sum, QOS_NETWORK_SUMS);
        __sync_fetch_and_add(&live->sums[sum], n);
}

/* Samples of a distribution with a sum, in ns; to be called after network_enter(). */
NETWORK_INLINE void network_samples(void *map, struct qos_network_counts *live, __u64 now,
                                    __u32 distribution, __u32 n, __u64 nsec) {
        __u32 first = QOS_NETWORK_FIRST_BIN(distribution), before,
                merged = HISTOGRAM_FINE_SCHEMA - QOS_NETWORK_SCHEMA(distribution);
        union qos_network_element *peaks;
        struct qos_network_counts *carry;
        __u64 bin, ring = distribution % QOS_NETWORK_PEAKS_EACH, mean = n == 1 ? nsec : nsec / n;

        BPF_BOUND(distribution, QOS_NETWORK_DISTRIBUTIONS);
        peaks = network_element(map, QOS_NETWORK_PEAKS + distribution / QOS_NETWORK_PEAKS_EACH);
        if (!peaks)
                return;
        BPF_BOUND(ring, QOS_NETWORK_PEAKS_EACH);
        max_ring_update(peaks->peaks + ring, now / QOS_EPOCH_NSEC, mean);
        network_add(live, QOS_NETWORK_NSEC + distribution, nsec);
        bin = first + histogram_merged_bin(histogram_fine_bin(mean), merged);
        BPF_BOUND(bin, QOS_NETWORK_BINS);
        before = __sync_fetch_and_add(&live->bins[bin], n);
        if ((__u32) (before + n) < before) {
                carry = network_counts_get(map, QOS_NETWORK_CARRY);
                if (carry)
                        __sync_fetch_and_add(&carry->bins[bin], 1);
        }
}

NETWORK_INLINE void network_sample(void *map, struct qos_network_counts *live, __u64 now, __u32 distribution,
                                   __u64 nsec) {
        network_samples(map, live, now, distribution, 1, nsec);
}
