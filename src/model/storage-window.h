/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Readers of storage maps: arithmetic, no I/O, no clock. The writers are in bpf/storage/storage-record.h. */

#include "snapshot.h"
#include "storage-map.h"

/* A storage map, valid since it was created. */
typedef struct StorageSource {
        const union qos_storage_element *map;
        uint64_t since;                         /* CLOCK_MONOTONIC ns */
} StorageSource;

/* All words of a storage map at a moment, or a difference of two. 64 bit words only. */
typedef struct StorageCounts {
        uint64_t sums[QOS_STORAGE_SUMS];
        uint64_t bins[QOS_STORAGE_BINS];
} StorageCounts;

#define STORAGE_WORDS (sizeof(StorageCounts) / sizeof(uint64_t))

typedef struct StorageReading {
        uint64_t covered;                       /* ns of the window in which the unit had a storage map */
        StorageCounts counts;
        uint64_t maxima[QOS_STORAGE_TIMED];
        uint64_t in_flight;                     /* calls that have not returned, at that moment */
        uint64_t oldest_at;                     /* CLOCK_MONOTONIC ns, if there are any */
        uint64_t signature;                     /* hash of the counters: unchanged if nothing but time has
                                                 * passed */
} StorageReading;

/* The storage maps that a unit is the sum of, as WindowSources. */
typedef struct StorageSources {
        const StorageSource *sources;
        size_t n;
        uint64_t since;                         /* CLOCK_MONOTONIC ns when the unit was first observed with
                                                 * the probe */
        uint64_t session;                       /* of the iterator that counted calls in flight; 0: none */
        const StorageCounts *before;            /* counters of the maps that are not of the unit, modulo
                                                 * 2^64; NULL: none */
} StorageSources;

/* Reads a window, and in ret_total, unless NULL, everything since the unit was first observed, from the same
 * words. -EAGAIN: checkpoints were written all the time. */
int storage_read(const StorageSources *sources, uint64_t now, uint64_t window, StorageReading *ret,
                 StorageReading *ret_total);

/* A counter of 32 bits and its wraparounds. */
static inline uint64_t carried_load(const __u32 *low, const __u32 *carry) {
        return __atomic_load_n(low, __ATOMIC_ACQUIRE) +
                ((uint64_t) __atomic_load_n(carry, __ATOMIC_RELAXED) << 32);
}

/* Adds the current counters of a map, times 1 or -1. */
void storage_counts_add(StorageCounts *counts, const StorageSource *source, int times);

enum qos_state storage_state_to_thread_state(enum qos_storage_state state);

/* Part of the time of these calls in each state, together 1; NaN if it is not known. ret: QOS_STATES of
 * them, by enum qos_state. call: READ, WRITE or SYNC */
void storage_get_shares(const StorageReading *reading, enum qos_storage_call call, double *ret);

void storage_get_latency(const StorageReading *reading, enum qos_storage_call call, unsigned minimum_samples,
                         Distribution *ret);
