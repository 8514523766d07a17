/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What the files that read windows share. */

#include "util.h"
#include "window.h"

/* How often a reader starts anew because a checkpoint was overwritten while it was copied: that takes a
 * program that rolls on in just these microseconds, which it does ten times a second at most. */
#define TRIES_MAX 16

/* The cells that a reader wants, in order: nearly all that a reading takes is what its cells take. */
typedef struct Parts {
        struct {
                unsigned first, end;
                unsigned sum;           /* all cells are the same as long as this is; QOS_SUMS: there is
                                         * none */
        } parts[QOS_DISTRIBUTIONS + 1];
        unsigned n;
        unsigned distributions;         /* by bits, with those that they are differences from */
} Parts;

/* A distribution, wherever its bins lie. */
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
void counters_read_settled(const struct qos_unit_map *u, const Parts *parts, uint64_t *cells,
                           uint64_t *sums);
void bins_settle(uint64_t *bins, unsigned n);
void maxima_read_since(const struct qos_unit_map *u, uint64_t now, const WindowMark *mark, uint64_t *ret);
void sources_mark(const WindowSource *sources, size_t n, uint64_t now, WindowMark *ret);

/* distribution.c */
Bins reading_get_bins(const WindowReading *reading, enum qos_distribution d);
uint64_t bin_value(const Bins *b, unsigned bin, uint64_t maximum);
uint64_t maximum_of(const Bins *b, unsigned end);
bool quantile_is_known(uint64_t n, double q, unsigned minimum_samples);
uint64_t quantile_get_rank(uint64_t n, double q);
