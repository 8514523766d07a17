/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* Which segments are measured: all of them as long as they are few, and of many one in 2^n, which then
 * stands for as many. Which ones follows from a time that the segment itself has, so that several programs
 * choose the same. Compiled for BPF and for the unit tests. */

#include <linux/types.h>

/* Segments that are measured in an interval of some ms on each CPU: 1,900 a second. An interval is longer
 * than a tick of a kernel with 100 a second, whose ticks would otherwise never be in intervals that follow
 * each other. */
#define SAMPLES_EACH_INTERVAL 32U
#define SAMPLE_INTERVAL_SHIFT 24 /* ns */

#define SAMPLE_SHIFT_MAX 8U

struct sample_rate {
        __u64 interval;         /* the current one */
        __u32 n;                /* segments in it */
        __u32 shift;            /* one in 2^shift is measured, as of the interval before */
};

/* Counts a segment; returns the shift. */
static inline __attribute__((always_inline)) __u32 sample_rate_count(struct sample_rate *r, __u64 nsec) {
        __u64 interval = nsec >> SAMPLE_INTERVAL_SHIFT;

        if (r->interval != interval) {
                __u32 n = r->interval + 1 == interval ? r->n : 0;

                r->shift = 0;
                for (__u32 i = 0; i < SAMPLE_SHIFT_MAX; i++)
                        r->shift += n >> i > SAMPLES_EACH_INTERVAL;
                r->interval = interval;
                r->n = 0;
        }
        r->n++;
        return r->shift;
}

static inline __attribute__((always_inline)) int sample_is_taken(__u64 stamp, __u32 shift) {
        return ((__u32) stamp * 0x9e3779b1U >> 1) >> (31 - shift % 32) == 0;
}
