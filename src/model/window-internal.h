/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Shared by the readers of windows. */

#include "util.h"
#include "window.h"

/* Limit of attempts to copy a checkpoint. A retry is needed if a checkpoint was written within these
 * microseconds, and there are ten per second at most. */
#define TRIES_MAX 16

/* Ranges of cells to be read, in ascending order. Cells dominate the cost of a reading. */
typedef struct Parts {
        struct {
                unsigned first, end;
                unsigned sum;           /* all cells are unchanged if this sum is unchanged; QOS_SUMS: there
                                         * is none */
        } parts[QOS_DISTRIBUTIONS + 1];
        unsigned n;
        unsigned distributions;         /* bitmask, including those that others are differences of */
} Parts;

/* A distribution, independent of where its bins are stored. */
typedef struct Bins {
        int schema;
        unsigned n;
        const uint64_t *count;
        uint64_t sum, max;
} Bins;

extern const Parts window_all_parts;

/* window.c */
uint64_t map_load(const __u64 *p);
uint32_t map_load32(const __u32 *p);
/* Raises each maximum, ns, to the largest of its ring in the sub-windows first to last of the level. */
void max_rings_read(const struct qos_max_ring *rings, unsigned n, unsigned level, uint64_t first,
                    uint64_t last, uint64_t *maxima);
void counters_read_settled(const struct qos_unit_map *u, const Parts *parts, uint64_t *cells,
                           uint64_t *sums);
void bins_settle(uint64_t *bins, unsigned n);
void maxima_read_since(const struct qos_unit_map *u, uint64_t now, const WindowMark *mark, uint64_t *ret);
void sources_mark(const WindowSource *sources, size_t n, uint64_t now, WindowMark *ret);

/* distribution.c */
Bins reading_get_bins(const WindowReading *reading, enum qos_distribution d);
uint64_t bin_value(const Bins *b, unsigned bin, uint64_t maximum);
uint64_t maximum_of(const Bins *b, unsigned end);
uint64_t quantile_get_rank(uint64_t n, double q);
