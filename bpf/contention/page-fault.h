/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* The duration of a thread's page faults, between two programs at handle_mm_fault(). The kernel may skip
 * either of them for any fault, so that an end has to prove that it belongs to the begin recorded last.
 *
 * Pure: compiled for BPF and for the unit tests. */

#include <linux/types.h>

struct page_fault {
        __u64 since;            /* CLOCK_MONOTONIC ns; 0: none has begun */
        __u64 address;
        __u64 number;           /* faults counted by the kernel before it */
};

static inline __attribute__((always_inline)) void page_fault_begin(struct page_fault *f, __u64 now,
                                                                   __u64 address, __u64 number) {
        f->since = now;
        f->address = address;
        f->number = number;
}

/* Returns the duration, 0 where this fault's begin was skipped: another address, or other faults were
 * counted since. The kernel counts a fault at its end, unless it is to be tried again. number: faults
 * counted by now. */
static inline __attribute__((always_inline)) __u64 page_fault_end(struct page_fault *f, __u64 now,
                                                                  __u64 address, __u64 number) {
        __u64 since = f->since;

        f->since = 0;
        return since != 0 && f->address == address && number - f->number <= 1 ? now - since : 0;
}
