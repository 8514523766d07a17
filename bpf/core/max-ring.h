/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* Largest samples, in total and by sub-window. Compiled for BPF and user space. */

#include "unit-map.h"

/* Updates the maxima of the sub-windows at epoch, and the total. */
BPF_SUBPROG int max_ring_update(struct qos_max_ring *peaks, __u64 epoch, __u64 nsec) {
        __u64 value = nsec < QOS_MAXIMUM_MASK ? nsec : QOS_MAXIMUM_MASK;

        BPF_REQUIRE(peaks);
        for (__u32 level = 0; level < QOS_LEVELS; level++) {
                __u64 subwindow = epoch / QOS_LEVEL_EPOCHS(level), word = subwindow << QOS_MAXIMUM_BITS |
                        value, old;
                __u64 i = QOS_LEVEL_FIRST_MAXIMUM(level) + subwindow % QOS_LEVEL_MAXIMA(level);

                BPF_BOUND(i, QOS_MAXIMA);
                for (int try = 0; try < 4; try++) {
                        old = *(volatile __u64*) &peaks->ring[i];
                        if (old >> QOS_MAXIMUM_BITS == word >> QOS_MAXIMUM_BITS && old >= word)
                                return 0;
                        if (__sync_val_compare_and_swap(&peaks->ring[i], old, word) == old)
                                break;
                }
        }
        for (int try = 0; try < 4; try++) {
                __u64 old = *(volatile __u64*) &peaks->total;

                if (old >= nsec || __sync_val_compare_and_swap(&peaks->total, old, nsec) == old)
                        break;
        }
        return 0;
}
