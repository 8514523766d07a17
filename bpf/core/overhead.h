/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* Sampling of the programs' own run time. Reading the clock twice takes 50 ns, a run takes 100 to 500: one
 * run in OVERHEAD_SAMPLE_PERIOD is measured, and multiplied. Compiled for BPF and for the unit tests. */

#include <stdbool.h>
#include <linux/types.h>

/* A prime, so that all programs of a request are sampled in turn. */
#define OVERHEAD_SAMPLE_PERIOD 61U

/* Longer runs were interrupted, or their virtual CPU was preempted. */
#define OVERHEAD_NSEC_MAX 1000000ULL

/* Whether to measure this run. Without atomics, which would cost more: concurrent programs may lose a
 * sample, or take one too many. */
static inline __attribute__((always_inline)) bool overhead_sample(__u32 *turn) {
        __u32 n = *(volatile __u32*) turn + 1;

        *(volatile __u32*) turn = n;
        if (n < OVERHEAD_SAMPLE_PERIOD)
                return false;
        *(volatile __u32*) turn = 0;
        return true;
}

/* Initial counter of a thread: with the same one for all, threads with fewer than OVERHEAD_SAMPLE_PERIOD
 * runs would never be measured. */
static inline __attribute__((always_inline)) __u32 overhead_first_sample(__u32 pid) {
        return (pid * 0x9e3779b1U >> 16) % OVERHEAD_SAMPLE_PERIOD;
}

/* Run time, 0 if it is not valid. */
static inline __attribute__((always_inline)) __u64 overhead_nsec(__u64 begin, __u64 now) {
        return now - begin <= OVERHEAD_NSEC_MAX ? now - begin : 0;
}
