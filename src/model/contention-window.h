/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Readers of contention maps. Pure: no I/O, no clock. The writers are in
 * bpf/contention/contention-record.h. */

#include "contention-map.h"
#include "snapshot.h"

/* A contention map, valid since it was created. */
typedef struct ContentionSource {
        const struct qos_contention_map *map;
        const struct qos_contention_cpu *contention_cpus;
        uint64_t since;                         /* CLOCK_MONOTONIC ns */
        unsigned slot;                          /* slot of the unit */
        const struct qos_unit_map *requests;        /* map with the serving clock; NULL: the clock is
                                                     * stopped */
} ContentionSource;

typedef struct ContentionCounts ContentionCounts;

/* All counters of a contention map at a moment, or differences of them. Consists of 64 bit words only. */
struct ContentionCounts {
        uint64_t times[QOS_STATES];             /* ns of threads in a state, current waits included */
        uint64_t serving[QOS_STATES];           /* as times, while requests of the map's unit were in
                                                 * flight */
        uint64_t served;                        /* ns with requests in flight; summed over maps */
        uint64_t counters[QOS_CONTENTION_CPU_COUNTERS];
        uint64_t sums[QOS_CONTENTION_SUMS];
        uint64_t cells[QOS_CONTENTION_COUNTERS];
};

#define CONTENTION_WORDS (sizeof(ContentionCounts) / sizeof(uint64_t))

typedef struct ContentionReading {
        uint64_t covered;                       /* ns of the window in which the unit had a contention map */
        uint64_t boundary;                      /* beginning of the window, CLOCK_MONOTONIC ns */
        ContentionCounts counts;
        uint64_t threads[QOS_STATES];           /* current number of threads by state */
        unsigned n_serving;                     /* number of maps with requests in flight */
        uint64_t maxima[QOS_CONTENTION_DISTRIBUTIONS];
        uint64_t signature;                     /* hash of the counters: unchanged if nothing but time has
                                                 * passed */
} ContentionReading;

/* The contention maps that a unit sums up, as WindowSources. */
typedef struct ContentionSources {
        const ContentionSource *sources;
        size_t n;
        uint64_t since;                         /* CLOCK_MONOTONIC ns when contention of the unit was first
                                                 * observed */
        const ContentionCounts *before;         /* counters to be subtracted, modulo 2^64; NULL: none */
} ContentionSources;

/* As window_read(); also -EAGAIN if a CPU was interrupted within a write section. ret_total: counters since
 * the unit was first observed; may be NULL. */
int contention_read(const ContentionSources *sources, uint64_t now, uint64_t window, ContentionReading *ret,
                    ContentionReading *ret_total);

/* As contention_read(), for thread states and their counters; cells: and everything else. No signature. */
int contention_read_some(const ContentionSources *sources, uint64_t now, uint64_t window, bool cells,
                         ContentionReading *ret);

/* Adds the current counters of a map, or subtracts them. times: 1 or -1. -EAGAIN as contention_read(). */
int contention_counts_add(ContentionCounts *counts, const ContentionSource *source, uint64_t now, int times);

/* Adds a row of block devices to counts. */
void contention_add_block(const ContentionReading *reading, unsigned row, BlockCounts *counts);

void contention_get_distribution(const ContentionReading *reading, enum qos_contention_distribution d,
                                 unsigned minimum_samples, Distribution *ret);
