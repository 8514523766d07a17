/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* What the programs themselves take. Two looks at the clock take 50 ns, a run 100 to 500: one run in
 * OVERHEAD_SAMPLE_PERIOD is measured, and counts for as many. Compiled for BPF and for the unit tests. */

#include <stdbool.h>
#include <linux/types.h>

/* A prime: the programs that an exchange passes one after the other take turns at being measured. */
#define OVERHEAD_SAMPLE_PERIOD 61U

/* What took longer was interrupted, or its CPU is a virtual one that did not run. */
#define OVERHEAD_NSEC_MAX 1000000ULL

/* Whether this run is one that is measured. Programs on several CPUs at once may lose a run, or measure one
 * too many, on which nothing depends: an atomic operation would cost more than it. */
static inline __attribute__((always_inline)) bool overhead_sample(__u32 *turn) {
        __u32 n = *(volatile __u32*) turn + 1;

        *(volatile __u32*) turn = n;
        if (n < OVERHEAD_SAMPLE_PERIOD)
                return false;
        *(volatile __u32*) turn = 0;
        return true;
}

/* Where a thread begins to count: if all began at the same, those that live for less than
 * OVERHEAD_SAMPLE_PERIOD runs would never be measured. */
static inline __attribute__((always_inline)) __u32 overhead_first_sample(__u32 pid) {
        return (pid * 0x9e3779b1U >> 16) % OVERHEAD_SAMPLE_PERIOD;
}

/* How long a run took, as far as it counts. */
static inline __attribute__((always_inline)) __u64 overhead_nsec(__u64 begin, __u64 now) {
        return now - begin <= OVERHEAD_NSEC_MAX ? now - begin : 0;
}
