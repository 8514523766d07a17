/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* Recent occupants of a CPU. Compiled for BPF and, for the unit tests, for user space. */

#include <stdbool.h>

#include "histogram.h"

/* Number of turns stored. A turn usually takes milliseconds. Of a wait longer than this many turns, only the
 * most recent ones are attributed. */
#define TURNS 16U

struct cpu_occupant {
        __u64 group;            /* id of the control group, or QOS_GROUP_* */
        __u64 end;              /* CLOCK_MONOTONIC ns; 0: unused. The turn began at the end of the previous
                                 * one */
};

struct cpu_occupants {
        __u64 newest;
        struct cpu_occupant list[TURNS];
};

/* Adds a turn that ends now. Consecutive tasks of a group are a single turn. */
static inline __attribute__((always_inline)) void cpu_occupants_push(struct cpu_occupants *t, __u64 group,
                                                                     __u64 now) {
        __u64 i = t->newest;

        BPF_BOUND(i, TURNS);
        /* Timestamps may go back by microseconds, as scheduler clocks differ and their offset to
         * CLOCK_MONOTONIC is adjusted */
        if ((__s64) (now - t->list[i].end) < 0)
                now = t->list[i].end;
        if (t->list[i].group != group || t->list[i].end == 0) {
                i = (i + 1) % TURNS;
                t->newest = i;
                t->list[i].group = group;
        }
        t->list[i].end = now;
}

/* Gets an occupant and the part of the last waited ns in its turn. back: 0 for the newest turn, which ended
 * together with the wait, 1 for the one before it, and so on; waited has to be reduced by the parts of newer
 * turns. Returns false if that turn is not known. */
static inline __attribute__((always_inline)) bool cpu_occupants_get(const struct cpu_occupants *t,
                                                                    __u64 back, __u64 waited,
                                                                    __u64 *ret_group, __u64 *ret_nsec) {
        __u64 i = (t->newest - back) % TURNS, before = (t->newest - back - 1) % TURNS, length;

        if (t->list[i].end == 0 || t->list[before].end == 0 || back >= TURNS - 1)
                return false;
        length = t->list[i].end - t->list[before].end;
        *ret_group = t->list[i].group;
        *ret_nsec = length < waited ? length : waited;
        return true;
}
