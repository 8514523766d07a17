/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* Writers of the checkpoints of a map: the first event of a sub-window writes those that are due. Compiled
 * for BPF and user space; the including file provides window_cpu(). */

#include "unit-map.h"

#define CHECKPOINTS_INLINE static inline __attribute__((always_inline))

/* State of the checkpoints, in words of the map */
struct checkpoints {
        __u32 *rolling;         /* CPU + 1 of the program writing checkpoints; 0: none */
        __u64 *epoch;           /* of the newest event */
        __u32 *written;         /* number of checkpoints written, by level */
        __u64 old;              /* epoch of the previous event, while checkpoints are written */
};

/* A checkpoint that is due. */
struct checkpoint_due {
        __u64 before;           /* sub-windows of the previous event and of this one */
        __u64 now;
        __u64 index;            /* of the checkpoint, among those of all levels */
};

/* Whether checkpoints are due at epoch, and this program writes them. Does not wait if another CPU is doing
 * so: an event recorded meanwhile may land on either side of the checkpoint. */
CHECKPOINTS_INLINE int checkpoints_begin(struct checkpoints *c, __u64 epoch) {
        if (epoch <= *(volatile __u64*) c->epoch ||
            __sync_val_compare_and_swap(c->rolling, 0, window_cpu() + 1) != 0)
                return 0;
        c->old = *(volatile __u64*) c->epoch;
        return 1;
}

/* Returns 0 if none is due at this level, and hence at coarser ones: a boundary of a level is one of all
 * finer levels. */
CHECKPOINTS_INLINE int checkpoints_get_due(const struct checkpoints *c, __u32 level, __u64 epoch,
                                           struct checkpoint_due *ret) {
        ret->before = c->old / QOS_LEVEL_EPOCHS(level);
        ret->now = epoch / QOS_LEVEL_EPOCHS(level);
        if (epoch <= c->old || ret->now == ret->before)
                return 0;
        ret->index = QOS_LEVEL_FIRST_CHECKPOINT(level) + c->written[level] % QOS_LEVEL_CHECKPOINTS(level);
        BPF_BOUND(ret->index, QOS_CHECKPOINTS);
        return 1;
}

/* These enclose the writing of a checkpoint. Readers check last before and after copying. */
CHECKPOINTS_INLINE void checkpoint_begin(__u64 *first, __u64 *last, const struct checkpoint_due *due) {
        __sync_lock_test_and_set(last, 0);
        *first = due->before + 1;
}

CHECKPOINTS_INLINE void checkpoint_end(__u64 *last, const struct checkpoint_due *due) {
        __sync_lock_test_and_set(last, due->now);
}

CHECKPOINTS_INLINE void checkpoints_end(struct checkpoints *c, __u64 epoch) {
        if (epoch > c->old)
                __sync_lock_test_and_set(c->epoch, epoch);
        __sync_lock_test_and_set(c->rolling, 0);
}
