/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* Duration of page faults of a thread, between two programs on handle_mm_fault(). The kernel may skip either
 * of them for any fault, so the end has to be matched with the beginning that was recorded last.
 *
 * Pure: compiled for BPF and for the unit tests. */

#include <linux/types.h>

struct page_fault {
        __u64 since;            /* CLOCK_MONOTONIC ns of the beginning; 0: no fault */
        __u64 address;
        __u64 number;           /* number of faults counted by the kernel before */
};

static inline __attribute__((always_inline)) void page_fault_begin(struct page_fault *f, __u64 now,
                                                                   __u64 address, __u64 number) {
        f->since = now;
        f->address = address;
        f->number = number;
}

/* Returns the duration, or 0 if the beginning of this fault was skipped: another address, or other faults
 * counted since. The kernel counts a fault at its end, unless it is to be retried. number: faults counted by
 * now. */
static inline __attribute__((always_inline)) __u64 page_fault_end(struct page_fault *f, __u64 now,
                                                                  __u64 address, __u64 number) {
        __u64 since = f->since;

        f->since = 0;
        return since != 0 && f->address == address && number - f->number <= 1 ? now - since : 0;
}
