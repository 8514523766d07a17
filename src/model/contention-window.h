/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The reading half of the books of contention: arithmetic on their maps, no I/O, no clock. The writing half
 * is bpf/contention/contention-record.h. */

#include "contention-map.h"
#include "snapshot.h"

/* A book, in which something was counted since it was made. */
typedef struct ContentionSource {
        const struct qos_contention_map *map;
        const struct qos_contention_cpu *contention_cpus;
        uint64_t since;                         /* CLOCK_MONOTONIC ns */
        unsigned slot;                          /* of whose it is */
        const struct qos_unit_map *requests;        /* which has the serving clock; NULL: it stands still */
} ContentionSource;

/* "running", "runQueue" … */
const char* qos_state_to_string(enum qos_state s);

typedef struct ContentionCounts ContentionCounts;

/* All words of a book at a moment, or what was added to them since another one. Nothing but 64 bit words. */
struct ContentionCounts {
        uint64_t times[QOS_STATES];             /* ns that threads were in this state, waits in progress
                                                 * included */
        uint64_t serving[QOS_STATES];           /* … while questions of the book's unit were in flight */
        uint64_t served;                        /* ns in which some were; of several books the sum */
        uint64_t counters[QOS_CONTENTION_CPU_COUNTERS];
        uint64_t sums[QOS_CONTENTION_SUMS];
        uint64_t cells[QOS_CONTENTION_COUNTERS];
};

#define CONTENTION_WORDS (sizeof(ContentionCounts) / sizeof(uint64_t))

typedef struct ContentionReading {
        uint64_t covered;                       /* ns of the window in which the unit had a book */
        uint64_t boundary;                      /* where the window begins, CLOCK_MONOTONIC ns */
        ContentionCounts counts;
        uint64_t threads[QOS_STATES];           /* how many are in each state now */
        unsigned n_serving;                     /* in so many books questions were in flight */
        uint64_t maxima[QOS_CONTENTION_DISTRIBUTIONS];
        uint64_t signature;                     /* of what is counted: equal while nothing happens but
                                                 * time */
} ContentionReading;

/* Where the figures of a unit are, as WindowSources. */
typedef struct ContentionSources {
        const ContentionSource *sources;
        size_t n;
        uint64_t since;                         /* CLOCK_MONOTONIC ns: when the unit came to be watched */
        const ContentionCounts *before;         /* what is in the books and not the unit's, modulo 2^64;
                                                 * NULL: nothing */
} ContentionSources;

/* As window_read(); also -EAGAIN where a CPU was stopped in the middle of a write. ret_total: all since the
 * unit came to be watched, of the same words; NULL where that is not wanted. */
int contention_read(const ContentionSources *sources, uint64_t now, uint64_t window, ContentionReading *ret,
                    ContentionReading *ret_total);

/* The same of the states of threads and what is counted with them, and cells: also of all the rest. No
 * signature. */
int contention_read_some(const ContentionSources *sources, uint64_t now, uint64_t window, bool cells,
                         ContentionReading *ret);

/* Adds what a book has by now to counts, this many times: 1 or -1. -EAGAIN as above. */
int contention_counts_add(ContentionCounts *counts, const ContentionSource *source, uint64_t now, int times);

/* Adds what is in a row of the devices. */
void contention_add_block(const ContentionReading *reading, unsigned row, BlockCounts *counts);

void contention_get_distribution(const ContentionReading *reading, enum qos_contention_distribution d,
                                 unsigned minimum_samples, Distribution *ret);
