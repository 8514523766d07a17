/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Readers of windows and distributions in the maps of a unit. Pure: no I/O, no clock. The writers are in
 * bpf/core/window-record.h. */

#include "snapshot.h"
#include "unit-map.h"

typedef struct WindowReading {
        uint64_t covered;                       /* ns */
        uint64_t boundary;                      /* beginning of the window, CLOCK_MONOTONIC ns, which
                                                 * identifies it */
        uint64_t cells[QOS_COUNTERS];
        uint64_t sums[QOS_SUMS];
        uint64_t maxima[QOS_DISTRIBUTIONS];
        uint64_t signature;                     /* hash of the counters since attach, unchanged if nothing
                                                 * happened; in a step, hash of its counters */
} WindowReading;

/* Length of a history step: sub-windows of level 2. */
#define WINDOW_STEP_NSEC (QOS_LEVEL_EPOCHS(2) * QOS_EPOCH_NSEC)
/* Number of boundaries that can be read: one checkpoint may be overwritten at any time. */
#define WINDOW_STEPS (QOS_LEVEL_CHECKPOINTS(2) - 1)

typedef struct WindowGauges {
        uint64_t in_flight;
        uint64_t open;
} WindowGauges;

/* A distribution independent of the map, for long-term storage: bins of schema 3, or of a coarser one by
 * merging bins, which is exact. Schema -2 has a bin per 4 octaves. As these do not end at the ends of the
 * range (histogram.h), the first one has everything up to 2^-20 s, the last one everything above 2^4 s. */
#define WINDOW_BINS_SCHEMA_MAX HISTOGRAM_COARSE_SCHEMA
#define WINDOW_BINS_SCHEMA_MIN (-2)
#define WINDOW_BINS_MAX HISTOGRAM_COARSE_BINS

typedef struct WindowBins {
        int schema;
        uint64_t count[WINDOW_BINS_MAX];
        uint64_t sum, max;
} WindowBins;

/* Counters at a moment. A window begins at a checkpoint, and samples that leave a checkpoint are moved
 * forward (window_move()); marks are not: for a response in transmission at the mark, the distributions of
 * latency and response time have one sample too large and none too many. Counts are exact. */
typedef struct WindowMark {
        uint64_t at;                            /* CLOCK_MONOTONIC ns */
        uint64_t cells[QOS_COUNTERS];
        uint64_t sums[QOS_SUMS];
        uint64_t maxima[QOS_DISTRIBUTIONS];     /* since attach */
} WindowMark;

/* A map, valid since it was created. */
typedef struct WindowSource {
        const struct qos_unit_map *map;
        uint64_t since;                         /* CLOCK_MONOTONIC ns */
} WindowSource;

typedef struct CounterOffset CounterOffset;

/* Maps that are summed for a unit: its own and those of its descendants. Each request is in one of them,
 * and sub-windows have the same boundaries in all. */
typedef struct WindowSources {
        const WindowSource *sources;
        size_t n;
        uint64_t attached_at;                   /* CLOCK_MONOTONIC ns */
        const CounterOffset *base;                 /* subtracted from the sum; NULL: no map is older than the
                                                    * attach, and none has been removed */
} WindowSources;

/* Level of checkpoints of a window. */
unsigned window_level(uint64_t window);
/* Beginning of a window of n sub-windows that ends with the current one. */
uint64_t window_boundary(uint64_t current, uint64_t n);

/* Reads a window. now: CLOCK_MONOTONIC ns; window: WINDOW_TOTAL, or valid by window_is_valid(). -EAGAIN:
 * data was overwritten during each attempt. */
int window_read(const WindowSources *sources, uint64_t now, uint64_t window, WindowReading *ret);

/* As window_read(), with selected distributions only (bits 1 << QOS_LATENCY) and all plain counters. No
 * signature; bins of other distributions are not set. Run time is proportional to the bins: thresholds are
 * evaluated ten times a second per unit. */
#define WINDOW_ALL_DISTRIBUTIONS ((1U << QOS_DISTRIBUTIONS) - 1)
int window_read_some(const WindowSources *sources, uint64_t now, uint64_t window, unsigned distributions,
                     WindowReading *ret);

/* As window_read(), for one distribution of one map: sets only its bins, sum and maximum, and the counters
 * after the bins. Takes a third of the time. */
int window_read_distribution(const WindowSource *source, uint64_t now, uint64_t window,
                             enum qos_distribution d, WindowReading *ret);

/* Reads the step of the history that begins at n * WINDOW_STEP_NSEC and is over, with the gauges at its end.
 * -ENODATA: no longer in the map; -EAGAIN as window_read().
 *
 * A step may change for as long as it is in the map: a sample of a response still in transmission is moved
 * to a later step (window_move()), and may then be in no step. So steps have to be read again until they
 * leave the map after WINDOW_STEPS. A response in transmission for longer than that is in latency and
 * response time of two steps. Counters (requests, bytes, time to first byte) do not change. */
int window_read_step(const WindowSources *sources, uint64_t n, WindowReading *ret, WindowGauges *ret_gauges);

/* The word of the serving clock (unit-map.h) at a boundary in the past. -EAGAIN as window_read(). */
int window_read_clock(const struct qos_unit_map *u, unsigned level, uint64_t boundary, uint64_t *ret);

/* Whether most requests overlap, so that counters are invalid. known: number of requests counted by a parser
 * or by TLS records. If there are any, requests of other connections do not matter. */
bool window_is_overlapping(uint64_t overlaps, uint64_t count, uint64_t known);
uint64_t window_count_known(const WindowReading *reading);
bool window_reading_is_overlapping(const WindowReading *reading);

/* Payload of all connections, unparsed ones included. */
uint64_t window_get_bytes_in(const WindowReading *reading);
uint64_t window_get_bytes_out(const WindowReading *reading);

/* Bytes on unparsed connections as a share of all. NaN: one of them is absent. */
double unparsed_get_share(uint64_t unparsed, uint64_t bytes_in, uint64_t bytes_out);

/* Whether quality is partial because of unparsed connections. share: see unparsed_get_share(). */
bool unparsed_is_partial(uint64_t overlaps, uint64_t count, double share);

/* Whether events could not be recorded, or the kernel has skipped program runs: requests may be missing, or
 * lack their protocol. */
bool window_is_incomplete(const WindowReading *reading);

/* Derives quality and protocols from the counters, and sets invalid ones to absent: all if requests overlap,
 * status codes if no protocol has them. incomplete: see window_is_incomplete(). */
void window_classify(uint64_t overlaps, bool incomplete, Requests *requests);

/* Records the counters at this time, and reads what was added to them since a mark. */
void window_mark(const WindowSources *sources, uint64_t now, WindowMark *ret);
void window_read_since(const WindowSources *sources, uint64_t now, const WindowMark *mark,
                       WindowReading *ret);

/* ---- endpoints and peers ----  */

/* An endpoint or a peer over a window. */
typedef struct WindowRow {
        uint64_t cells[QOS_ENTRY_COUNTERS];
        uint64_t sums[QOS_ENTRY_SUMS];
        uint64_t in_flight;
        uint64_t maximum;                       /* largest latency; ABSENT: unknown */
} WindowRow;

/* Whether entries have this window: 2 s to 10 s, as they have a single level, and since attach. */
bool window_is_for_rows(uint64_t window);

/* Whether the entry with this number (from 1) has any samples, or requests in flight. */
bool window_row_is_used(const struct qos_unit_map *unit, unsigned number);

/* As window_read(), for the entry with this number (from 1). */
int window_read_row(const struct qos_unit_map *unit, unsigned number, uint64_t now, uint64_t attached_at,
                    uint64_t window, WindowRow *ret);

/* The whole unit as a row, without in_flight: the first endpoint is this minus all other endpoints. */
void window_get_row(const WindowReading *reading, WindowRow *ret);
void window_row_add(WindowRow *row, const WindowRow *other);
/* The difference has no known maximum, unless other is empty. */
void window_row_subtract(WindowRow *row, const WindowRow *other);

/* Counters (QOS_ENTRY_COUNT to OVERLAPS) and bytes of the first endpoint since the map was created; all
 * others are 0. While events of other endpoints are recorded, a value may be too small, never too large: the
 * largest of several readings is the best one. */
void window_read_first(const struct qos_unit_map *unit, WindowRow *ret);

/* As window_get_count() and window_count_within(), of the latency. */
uint64_t window_row_get_count(const WindowRow *row);
uint64_t window_row_count_within(const WindowRow *row, double limit);
void window_row_get_distribution(const WindowRow *row, unsigned minimum_samples, Distribution *ret);

/* ---- counter offsets ----  */

/* Difference between the maps of a unit and its metrics: counters from before the attach, and of maps
 * removed since. */
struct CounterOffset {
        WindowMark before;                      /* sum of the maps at attach, minus maps removed since,
                                                 * modulo 2^64 */
        uint64_t maxima[QOS_DISTRIBUTIONS];     /* maxima since attach in maps removed since */
        WindowRow peers;                        /* likewise, sum of all peers */
        uint64_t peers_maximum;
};

/* Initializes the offset of a unit that is attached now, with these maps. */
void counter_offset_begin(const WindowSource *sources, size_t n, uint64_t now, CounterOffset *ret);
/* Removes a map from the unit. Its counters are kept. */
void window_base_close(CounterOffset *base, uint64_t now, const WindowSource *source);
/* Adds a map to the unit. Its counters so far are excluded. */
void window_base_open(CounterOffset *base, const WindowSource *source);

/* Sum of all peers since the unit was attached. */
void window_sources_read_peers(const WindowSources *sources, WindowRow *ret);

/* A distribution of a reading. minimum_samples: minimum of n * min(q, 1-q) for the quantile q. */
void window_get_distribution(const WindowReading *reading, enum qos_distribution d, unsigned minimum_samples,
                             Distribution *ret);

/* Quantile q of the samples and a number of larger ones, of requests that are still waiting. WINDOW_WAITING:
 * the quantile is one of the latter, for which no minimum number of samples is required. */
#define WINDOW_WAITING (UINT64_MAX - 1)
uint64_t window_get_quantile(const WindowReading *reading, enum qos_distribution d, double q,
                             unsigned minimum_samples, uint64_t waiting, uint64_t *ret_samples);

/* Number of samples that are within the limit, by the same rounding as quantiles. */
uint64_t window_count_within(const WindowReading *reading, enum qos_distribution d, double limit);

void window_get_bins(const WindowReading *reading, enum qos_distribution d, WindowBins *ret);
unsigned window_bins_number(int schema);
/* Merges bins to the next coarser schema. */
void window_bins_coarsen(WindowBins *b);
/* Adds other, in the coarser schema of both. */
void window_bins_add(WindowBins *b, const WindowBins *other);
void window_bins_get_distribution(const WindowBins *b, unsigned minimum_samples, Distribution *ret);
/* Index of a bin in native histograms: its upper bound is 2^(index / 2^schema) s. */
int window_bins_get_index(int schema, unsigned bin);
/* As window_get_bounds(). */
void window_bins_get_bounds(int schema, unsigned bin, uint64_t *ret_lower, uint64_t *ret_upper);

uint64_t window_get_count(const WindowReading *reading, enum qos_distribution d);

/* Bounds (lower, upper] of a bin in ns; the last upper bound is UINT64_MAX. */
void window_get_bounds(enum qos_distribution d, unsigned bin, uint64_t *ret_lower, uint64_t *ret_upper);
