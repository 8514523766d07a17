/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* Who had a CPU lately. Compiled for BPF and, for the unit tests, for user space. */

#include <stdbool.h>

#include "histogram.h"

/* Those that take turns on a CPU have it for some milliseconds each. Who waits for longer than so many turns
 * is told whom he waited for last: of more who compete these are a sample. */
#define TURNS 16U

struct cpu_occupant {
        __u64 group;            /* the id of a control group, or QOS_GROUP_* */
        __u64 end;              /* CLOCK_MONOTONIC ns; 0: nothing was noted here. It began when the one
                                 * before ended */
};

struct cpu_occupants {
        __u64 newest;
        struct cpu_occupant list[TURNS];
};

/* Tasks of one group one after the other are one turn. */
static inline __attribute__((always_inline)) void cpu_occupants_push(struct cpu_occupants *t, __u64 group,
                __u64 now) {
        __u64 i = t->newest;

        BPF_BOUND(i, TURNS);
        /* Times of the scheduler's differ by some microseconds, and the offset of the clocks is measured
         * again */
        if ((__s64) (now - t->list[i].end) < 0)
                now = t->list[i].end;
        if (t->list[i].group != group || t->list[i].end == 0) {
                i = (i + 1) % TURNS;
                t->newest = i;
                t->list[i].group = group;
        }
        t->list[i].end = now;
}

/* How much of the last waited ns, which ended when the newest turn did, lies in the turn that was so many
 * before that: the turns after it are to be taken off before. Returns whether that is known. */
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
