/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Readers of network maps: arithmetic, no I/O, no clock. The writers are in bpf/network/network-record.h. */

#include "network-map.h"
#include "snapshot.h"

/* A network map, valid since it was created. */
typedef struct NetworkSource {
        const union qos_network_element *map;
        uint64_t since;                         /* CLOCK_MONOTONIC ns */
} NetworkSource;

/* All words of a network map at a moment, or a difference of two. 64 bit words only. */
typedef struct NetworkCounts {
        uint64_t sums[QOS_NETWORK_SUMS];
        uint64_t bins[QOS_NETWORK_BINS];
} NetworkCounts;

#define NETWORK_WORDS (sizeof(NetworkCounts) / sizeof(uint64_t))

typedef struct NetworkReading {
        uint64_t covered;                       /* ns of the window in which the unit had a network map */
        NetworkCounts counts;
        uint64_t maxima[QOS_NETWORK_DISTRIBUTIONS];
        uint64_t signature;                     /* hash of the counters: unchanged if nothing but time has
                                                 * passed */
} NetworkReading;

/* The network maps that a unit is the sum of, as WindowSources. */
typedef struct NetworkSources {
        const NetworkSource *sources;
        size_t n;
        uint64_t since;                         /* CLOCK_MONOTONIC ns when the unit was first observed with
                                                 * the probe */
        const NetworkCounts *before;            /* counters of the maps that are not of the unit, modulo
                                                 * 2^64; NULL: none */
} NetworkSources;

/* Reads a window, and in ret_total, unless NULL, everything since the unit was first observed, from the same
 * words. -EAGAIN: checkpoints were written all the time. */
int network_read(const NetworkSources *sources, uint64_t now, uint64_t window, NetworkReading *ret,
                 NetworkReading *ret_total);

/* Adds the current counters of a map, times 1 or -1. */
void network_counts_add(NetworkCounts *counts, const NetworkSource *source, int times);

/* Sum of some words. */
static inline uint64_t sums_add(const uint64_t *sums, size_t n) {
        uint64_t sum = 0;

        for (size_t i = 0; i < n; i++)
                sum += sums[i];
        return sum;
}

void network_get_distribution(const NetworkReading *reading, enum qos_network_distribution d,
                              unsigned minimum_samples, Distribution *ret);
