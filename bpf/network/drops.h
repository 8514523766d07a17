/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* Rows of reasons for which packets are discarded. Compiled for BPF and for the unit tests. */

#include "network-map.h"

/* The row of a reason other than 0, which gets a free one if it has none yet; QOS_DROP_ROWS - 1: all are
 * taken. */
static inline __attribute__((always_inline)) __u32 drop_get_row(struct qos_drop_reasons *r, __u32 reason) {
        __u32 row;

        for (row = 0; row < QOS_DROP_ROWS - 1; row++) {
                __u32 found = *(volatile __u32*) &r->reasons[row];

                if (found == 0)
                        found = __sync_val_compare_and_swap(&r->reasons[row], 0, reason);
                if (found == 0 || found == reason)
                        break;
        }
        return row;
}
