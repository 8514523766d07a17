/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

/* The scheduler's own clock, by which it knows when threads queue and run, beside CLOCK_MONOTONIC. */

#include "contention-maps.h"
#include "kernel.h"

/* When something happened is when the scheduler says so. A thread that wakes another which takes its CPU
 * goes on for some microseconds, until it comes to where it can be interrupted; the scheduler books them as
 * those of the other one, and so do cpu.stat and schedstat. With the clock at the time of the switch these
 * would be off by some percent for a server that answers on the same CPU that the client runs on.
 *
 * The scheduler's clock is not CLOCK_MONOTONIC: it is not adjusted. What lies between is measured every now
 * and then, on whatever CPU. The clock is some time old whenever it is looked at, therefore the smallest of
 * some differences counts. */
struct clock {
        __u64 offset;           /* CLOCK_MONOTONIC - clock, by now */
        __u64 candidate;        /* the smallest of those that were measured since that was set */
        __u64 next;             /* clock, when it is measured again */
        __u32 samples;
        __u32 _padding;
};

/* Each millisecond, and 64 of them: that follows an adjustment by 500 ppm, the most there is, with an error
 * of 32 us. */
#define CLOCK_SAMPLE_NSEC 1000000ULL
#define CLOCK_SAMPLES 64

BPF_ARRAY_MAP(clocks, ARRAY, 1, struct clock);

static __attribute__((noinline)) __u64 clock_sample(struct clock *c, __u64 clock) {
        __u64 offset;

        if (!c)
                return 0;
        offset = bpf_ktime_get_ns() - clock;
        if (c->offset == 0)
                c->offset = c->candidate = offset;
        else if (c->samples == 0 || (__s64) (offset - c->candidate) < 0)
                c->candidate = offset;
        if (++c->samples >= CLOCK_SAMPLES) {
                c->offset = c->candidate;
                c->samples = 0;
        }
        c->next = clock + CLOCK_SAMPLE_NSEC;
        return 0;
}

/* CLOCK_MONOTONIC ns, where the run queue of the task is locked. */
static __always_inline __u64 queue_now(struct task_struct *task) {
        struct cfs_rq *queue = task->se.cfs_rq;
        struct clock *c;
        __u32 zero = 0;
        __u64 clock;

        c = bpf_map_lookup_elem(&clocks, &zero);
        if (!c || !bpf_core_field_exists(queue->rq))
                return bpf_ktime_get_ns();
        clock = queue->rq->clock;
        if (clock >= c->next)
                clock_sample(c, clock);
        return clock + c->offset;
}

/* A time of the scheduler's, of a task whose run queue is locked. */
static __always_inline __u64 queue_time(struct task_struct *task, __u64 clock, __u64 now) {
        struct cfs_rq *queue = task->se.cfs_rq;
        __u64 behind;

        if (!bpf_core_field_exists(queue->rq))
                return now;
        behind = queue->rq->clock - clock;
        return behind < now ? now - behind : now;
}

/* … when the scheduler begins or ends to book its run time: when it chose whom to run it had the lock, and
 * looked at the clock again if it had looked for work on other CPUs. */
static __always_inline __u64 queue_switched(struct task_struct *task) {
        struct cfs_rq *queue = task->se.cfs_rq;
        __u64 now = queue_now(task), behind;

        if (!bpf_core_field_exists(queue->rq))
                return now;
        behind = queue->rq->clock_task - task->se.exec_start;
        return behind < now ? now - behind : now;
}
