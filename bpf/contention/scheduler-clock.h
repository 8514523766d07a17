/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

/* Timestamps by the clock of the scheduler, converted to CLOCK_MONOTONIC. */

#include "contention-maps.h"
#include "kernel.h"

/* State changes are timestamped by the clock of the run queue. When a thread wakes another one on its own
 * CPU, it continues for some microseconds until it can be preempted; the scheduler accounts these to the
 * thread that follows, and so do cpu.stat and schedstat. Reading the time in sched_switch would differ by
 * some percent for a server on the same CPU as its client.
 *
 * This clock is not disciplined like CLOCK_MONOTONIC. The offset between the two is sampled periodically, on
 * any CPU. The clock is always somewhat stale when sampled, therefore the minimum of several samples is
 * used. */
struct clock {
        __u64 offset;           /* current CLOCK_MONOTONIC - clock */
        __u64 candidate;        /* minimum of the samples since offset was set */
        __u64 next;             /* value of the clock at which the next sample is due */
        __u32 samples;
        __u32 _padding;
};

/* 64 samples, one per millisecond: follows adjustments of up to 500 ppm, the maximum, with an error of 32
 * us. */
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

/* Current time, CLOCK_MONOTONIC ns. The run queue of the task has to be locked. */
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

/* Converts a scheduler timestamp of a task whose run queue is locked. */
static __always_inline __u64 queue_time(struct task_struct *task, __u64 clock, __u64 now) {
        struct cfs_rq *queue = task->se.cfs_rq;
        __u64 behind;

        if (!bpf_core_field_exists(queue->rq))
                return now;
        behind = queue->rq->clock - clock;
        return behind < now ? now - behind : now;
}

/* Time from or until which the scheduler accounts run time to the task: selecting the next task may have
 * released the lock and updated the clock, for load balancing. */
static __always_inline __u64 queue_switched(struct task_struct *task) {
        struct cfs_rq *queue = task->se.cfs_rq;
        __u64 now = queue_now(task), behind;

        if (!bpf_core_field_exists(queue->rq))
                return now;
        behind = queue->rq->clock_task - task->se.exec_start;
        return behind < now ? now - behind : now;
}
