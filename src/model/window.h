/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The reading half of windows and distributions: arithmetic on the maps of one unit, no I/O, no clock. The
 * writing half is bpf/core/window-record.h. */

#include "snapshot.h"
#include "unit-map.h"

typedef struct WindowReading {
        uint64_t covered;                       /* ns */
        uint64_t boundary;                      /* where the window begins, CLOCK_MONOTONIC ns: equal for
                                                 * readings of the same window */
        uint64_t cells[QOS_COUNTERS];
        uint64_t sums[QOS_SUMS];
        uint64_t maxima[QOS_DISTRIBUTIONS];
        uint64_t signature;                     /* of the counters since attach: equal while nothing
                                                 * happened; of a step: of those in it */
} WindowReading;

/* The steps of the history: the sub-windows of level 2, of which the map keeps the last ones. */
#define WINDOW_STEP_NSEC (QOS_LEVEL_EPOCHS(2) * QOS_EPOCH_NSEC)
/* Boundaries that can be read for sure: one checkpoint is the next to be overwritten. */
#define WINDOW_STEPS (QOS_LEVEL_CHECKPOINTS(2) - 1)

typedef struct WindowGauges {
        uint64_t in_flight;
        uint64_t open;
} WindowGauges;

/* A distribution by itself, for figures that outlive the map: the bins of schema 3, or of a coarser one into
 * which they were merged, which is exact. Down to schema -2, with which 4 octaves are one bin: both ends of
 * the grid (histogram.h) are bounds of that, too, and of no coarser one. */
#define WINDOW_BINS_SCHEMA_MAX HISTOGRAM_COARSE_SCHEMA
#define WINDOW_BINS_SCHEMA_MIN (-2)
#define WINDOW_BINS_MAX HISTOGRAM_COARSE_BINS

typedef struct WindowBins {
        int schema;
        uint64_t count[WINDOW_BINS_MAX];
        uint64_t sum, max;
} WindowBins;

/* The counters at a moment. A window begins at a checkpoint, which samples leave that move on; they do not
 * leave a mark: of an answer that was leaving at the mark and still does, the distribution of the latency
 * and that of the answer time have one sample further up, and none more. All that is counted is exact. */
typedef struct WindowMark {
        uint64_t at;                            /* CLOCK_MONOTONIC ns */
        uint64_t cells[QOS_COUNTERS];
        uint64_t sums[QOS_SUMS];
        uint64_t maxima[QOS_DISTRIBUTIONS];     /* since attach */
} WindowMark;

/* A map, in which something was counted since it was made. */
typedef struct WindowSource {
        const struct qos_unit_map *map;
        uint64_t since;                         /* CLOCK_MONOTONIC ns */
} WindowSource;

typedef struct CounterOffset CounterOffset;

/* Where the figures of a unit are: in its own book and in those of the units in it. Each request is in one
 * of them, and sub-windows begin at the same time in all, so that what is the unit's is the sum of what was
 * counted in each. */
typedef struct WindowSources {
        const WindowSource *sources;
        size_t n;
        uint64_t attached_at;                   /* CLOCK_MONOTONIC ns */
        const CounterOffset *base;                 /* NULL: the books are as old as the unit, and none was
                                                    * closed */
} WindowSources;

/* The level whose checkpoints a window begins at. */
unsigned window_level(uint64_t window);
/* Where a window of n sub-windows begins that ends in this one. */
uint64_t window_boundary(uint64_t current, uint64_t n);

/* now: CLOCK_MONOTONIC ns; window: WINDOW_TOTAL or one that window_is_valid(). -EAGAIN when the unit's
 * programs overtook the reader again and again. */
int window_read(const WindowSources *sources, uint64_t now, uint64_t window, WindowReading *ret);

/* The same of these distributions alone, by bits (1 << QOS_LATENCY), and of all that is in no distribution.
 * No signature, and nothing where the bins of the other distributions are. Takes as long as there are
 * samples: ten times a second for each unit with thresholds. */
#define WINDOW_ALL_DISTRIBUTIONS ((1U << QOS_DISTRIBUTIONS) - 1)
int window_read_some(const WindowSources *sources, uint64_t now, uint64_t window, unsigned distributions,
                     WindowReading *ret);

/* The same of one distribution in one book, and nothing else: of what is in ret only the bins and the sum of
 * d, its maximum, and the counters behind the bins mean anything. For those who read often: a third of the
 * time. */
int window_read_distribution(const WindowSource *source, uint64_t now, uint64_t window,
                             enum qos_distribution d, WindowReading *ret);

/* What happened from n * WINDOW_STEP_NSEC to the end of that step, which must have passed, and the gauges at
 * the end. -ENODATA when the map no longer knows, -EAGAIN as above.
 *
 * The answer is not final for as long as the map knows the step: a sample whose answer still leaves
 * (window_move()) goes on to a later step, and is then in neither this nor any other. Who keeps steps asks
 * again, and has after WINDOW_STEPS what remains; an answer that takes longer than these to leave is in the
 * latency and in the answer time of two steps then, as it was known at each. What is counted (requests,
 * bytes, time to first byte) does not move. */
int window_read_step(const WindowSources *sources, uint64_t n, WindowReading *ret, WindowGauges *ret_gauges);

/* The word of the serving clock (unit-map.h) as it was at a boundary of the level that has passed. -EAGAIN
 * as above. */
int window_read_clock(const struct qos_unit_map *u, unsigned level, uint64_t boundary, uint64_t *ret);

/* Whether so many questions came while one was open that "one answer per question" is not true. */
bool window_is_overlapping(uint64_t overlaps, uint64_t count);

/* What the counters of requests say together: their quality, how many were plain exchanges, and which mean
 * nothing: all where questions overlap, the status of answers where none was of a protocol that has one.
 * missed: the kernel has skipped runs of programs. */
void window_classify(uint64_t overlaps, bool missed, Requests *requests);

/* What the unit has counted so far, and what happened since. */
void window_mark(const WindowSources *sources, uint64_t now, WindowMark *ret);
void window_read_since(const WindowSources *sources, uint64_t now, const WindowMark *mark,
                WindowReading *ret);

/* ---- rows ---- */

/* What an endpoint or a peer has in the window. */
typedef struct WindowRow {
        uint64_t cells[QOS_ENTRY_COUNTERS];
        uint64_t sums[QOS_ENTRY_SUMS];
        uint64_t in_flight;
        uint64_t maximum;                       /* of the latency; ABSENT: not known */
} WindowRow;

/* Rows are read over windows of 2 s to 10 s, which have the level that rows have, and since the attach. */
bool window_is_for_rows(uint64_t window);

/* Whether anything was ever recorded in the row of this number (from 1 on), or is in flight. */
bool window_row_is_used(const struct qos_unit_map *unit, unsigned number);

/* As window_read(), the row of this number (from 1 on). */
int window_read_row(const struct qos_unit_map *unit, unsigned number, uint64_t now, uint64_t attached_at,
                    uint64_t window, WindowRow *ret);

/* The whole unit as a row, in_flight aside: what the first endpoint has is this without all the others. */
void window_get_row(const WindowReading *reading, WindowRow *ret);
void window_row_add(WindowRow *row, const WindowRow *other);
/* What is left has no largest sample that is known, unless the other has nothing. */
void window_row_subtract(WindowRow *row, const WindowRow *other);

void window_row_get_distribution(const WindowRow *row, unsigned minimum_samples, Distribution *ret);

/* ---- what is from before ---- */

/* What is in a unit's books and not the unit's, and the other way round, as both do not change any more. */
struct CounterOffset {
        WindowMark before;                      /* what the books had when the unit was attached, without
                                                 * what books had that are closed: modulo 2^64 */
        uint64_t maxima[QOS_DISTRIBUTIONS];     /* since then in books that are closed */
        WindowRow peers;                        /* what all peers had, likewise */
        uint64_t peers_maximum;
};

/* The unit is attached now: its books had this before. */
void counter_offset_begin(const WindowSource *sources, size_t n, uint64_t now, CounterOffset *ret);
/* A book that was the unit's is so no longer, but what it has counted is. */
void window_base_close(CounterOffset *base, uint64_t now, const WindowSource *source);
/* A book is the unit's from now on, without what it has counted before. */
void window_base_open(CounterOffset *base, const WindowSource *source);

/* What all peers together have since the unit was attached. */
void window_sources_read_peers(const WindowSources *sources, WindowRow *ret);

/* The distribution out of a reading. minimum_samples: what n * min(q, 1-q) must reach for the quantile q. */
void window_get_distribution(const WindowReading *reading, enum qos_distribution d, unsigned minimum_samples,
                             Distribution *ret);

/* The quantile q of the samples and of so many more that are larger than all of them. WINDOW_WAITING: it is
 * one of these; as they are known to be there, that takes no number of samples. */
#define WINDOW_WAITING (UINT64_MAX - 1)
uint64_t window_get_quantile(const WindowReading *reading, enum qos_distribution d, double q,
                             unsigned minimum_samples, uint64_t waiting, uint64_t *ret_samples);

/* How many samples a quantile that is compared with the limit would not be beyond it for. */
uint64_t window_count_within(const WindowReading *reading, enum qos_distribution d, double limit);

void window_get_bins(const WindowReading *reading, enum qos_distribution d, WindowBins *ret);
unsigned window_bins_number(int schema);
/* To the next coarser schema. */
void window_bins_coarsen(WindowBins *b);
/* Adds other, on the coarser grid of the two. */
void window_bins_add(WindowBins *b, const WindowBins *other);
void window_bins_get_distribution(const WindowBins *b, unsigned minimum_samples, Distribution *ret);
/* The number of a bin as native histograms count: it ends at 2^(number / 2^schema) ns. */
int window_bins_get_index(int schema, unsigned bin);

uint64_t window_get_count(const WindowReading *reading, enum qos_distribution d);

/* The bounds (lower, upper] of a bin in ns; the last one's upper is UINT64_MAX. */
void window_get_bounds(enum qos_distribution d, unsigned bin, uint64_t *ret_lower, uint64_t *ret_upper);
