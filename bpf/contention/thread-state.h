/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

/* The state of a thread, and how it is accounted when that changes. */

#include "cpu-occupants.h"
#include "scheduler-clock.h"
#include "thread.h"
#include "wait-reason.h"

/* ---- the quota ---------------------------------------------------------------------------------------- */

/* A thread that is ready may not run: by itself (since 6.18), or because its run queue may not, of which the
 * kernel takes the time. That is the clock of the load average, which goes with the CPU's frequency where it
 * is known: up to some percent of what is booked as throttled. */
static __always_inline bool thread_is_throttled(struct task_struct *task) {
        struct cfs_rq *queue = task->se.cfs_rq;

        if (bpf_core_field_exists(task->throttled)) {
                /* Not in front of a loop, where a compiler would have it: without the field nothing of this
                 * may be reached */
                barrier_var(task);
                if (BPF_CORE_READ(task, throttled))
                        return true;
        }
        return bpf_core_field_exists(queue->throttle_count) && BPF_CORE_READ(queue, throttle_count) > 0;
}

static __always_inline __u64 queue_get_quota_nsec(struct cfs_rq *queue) {
        return bpf_core_field_exists(queue->throttled_clock_pelt_time) ?
               BPF_CORE_READ(queue, throttled_clock_pelt_time) : 0;
}

/* ---- accounts ----------------------------------------------------------------------------------------- */

/* As contention_cpu_mark(). The scheduler holds its locks, so that one program at a time writes. */
static __always_inline void thread_mark(struct thread *t) {
#if defined(__TARGET_ARCH_x86)
        barrier();
        *(volatile __u32*) &t->writes = t->writes + 1;
        barrier();
#else
        __sync_lock_test_and_set(&t->writes, t->writes + 1);
#endif
}

/* Attempts to exchange a thread's word: whoever was faster has done so once, for he is one of two. */
#define THREAD_TRIES 4

/* Puts a thread into a state; 0: it is in none any more. Returns the one that it was in, or 0 if it was in
 * no book. */
static __always_inline __u32 thread_set(struct thread *t, __u32 state, __u64 now,
                struct qos_contention_cpu **ret) {
        __u64 old, word, served;
        struct qos_contention_cpu *s;

        for (int try = 0; try < THREAD_TRIES; try++) {
                old = *(volatile __u64*) &t->word;
                if (!(old & THREAD_STATE))
                        return 0;
                s = contention_cpu_get(old, bpf_get_smp_processor_id());
                if (!s) {
                        /* The book is closed */
                        __sync_val_compare_and_swap(&t->word, old, 0);
                        return 0;
                }
                word = state ? (old & THREAD_BOOK) | state : 0;
                thread_mark(t);
                if (__sync_val_compare_and_swap(&t->word, old, word) != old) {
                        thread_mark(t);
                        continue;
                }

                contention_cpu_enter(s, old, now);
                served = serving_get(old, now);
                state_transition(s, old & THREAD_STATE, state, now, served);
                old &= THREAD_STATE;
                BPF_BOUND(old, QOS_STATES);
                t->times[old] += now - t->since;
                t->since = now;
                t->served = served;
                thread_mark(t);
                *ret = s;
                return old;
        }
        return 0;
}

static __always_inline void thread_count(struct thread *t, struct qos_contention_cpu *s, __u64 counter) {
        contention_cpu_count(s, counter);
        BPF_BOUND(counter, QOS_THREAD_COUNTERS);
        t->counters[counter]++;
}

/* A run that began then was for a thread of this book, where no other program can write the shard. */
__attribute__((noinline, weak)) int thread_record_overhead(__u64 word, __u64 begin) {
        struct qos_contention_cpu *s = contention_cpu_get(word, bpf_get_smp_processor_id());

        if (s)
                s->counters[QOS_CONTENTION_CPU_COST] += overhead_nsec(begin,
                        bpf_ktime_get_ns()) * OVERHEAD_SAMPLE_PERIOD;
        return 0;
}

static __always_inline void thread_end_overhead(__u64 word, __u64 begin) {
        if (begin != 0)
                thread_record_overhead(word, begin);
}

/* A part of a time that was booked as one state was in another. served: the serving clock when it came to
 * the state that it has left. How much of what that has gone on since belongs to the part is not known but
 * for its ends: it is the end of a wait, which comes with a question rather than without. */
static __always_inline void thread_shift(struct thread *t, struct qos_contention_cpu *s, __u64 from,
                                         __u64 to, __u64 nsec, __u64 served) {
        served = t->served - served;
        if ((__s64) served < 0)
                served = 0;
        state_reclassify(s, from, to, nsec, served < nsec ? served : nsec);
        BPF_BOUND(from, QOS_STATES);
        BPF_BOUND(to, QOS_STATES);
        thread_mark(t);
        t->times[from] -= nsec;
        t->times[to] += nsec;
        thread_mark(t);
}

/* It does not wait any more. */
static __always_inline void thread_end_wait(struct thread *t, __u32 state, __u64 nsec) {
        struct qos_contention_map *c = contention_get(t->word);
        __u64 how = state;

        if ((__s64) nsec < 0) /* the clocks differ by some microseconds */
                nsec = 0;
        if (wakeup_ends(&t->wakeup, state, t->futex, t->row != 0, t->locked)) {
                how |= RESOURCE_WOKEN;
                if (!t->locked && (state == QOS_STATE_PARK || state == QOS_STATE_POLL) &&
                    t->wakeup.what & WAKEUP_BY_REQUEST) {
                        how |= RESOURCE_BY_REQUEST;
                        t->times[QOS_STATE_BLOCKED_BY_REQUESTS] += nsec;
                }
        }
        if (c && !resource_end(c, t->row, how, nsec, &t->waker) && t->row == t->known.row)
                /* the row is another one's by now, or there was none: perhaps there is one the next time */
                t->known.state = QOS_STATE_NONE;
        t->row = 0;
}

/* It is ready, and waits for a CPU from now on. */
static __always_inline __u32 ready_state(struct thread *t, struct task_struct *task) {
        struct cfs_rq *queue = task->se.cfs_rq;

        t->queue = queue;
        t->quota_nsec = queue_get_quota_nsec(queue);
        return thread_is_throttled(task) ? QOS_STATE_THROTTLED : QOS_STATE_RUN_QUEUE;
}

/* Of the time in the state that it has left, what has passed since then was another one: the event that said
 * so is missing. That happens where a program is not run because another one is interrupted, or by a kernel
 * that runs none on top of some tasks. */
static __always_inline void thread_correct(struct thread *t, struct qos_contention_cpu *s, __u64 from,
                                           __u64 to, __u64 since, __u64 served, __u64 at, __u64 now) {
        if (from > QOS_STATE_THROTTLED)
                thread_end_wait(t, from, ((__s64) (at - since) > 0 ? at : now) - since);
        if ((__s64) (at - since) <= 0 || (__s64) (now - at) <= 0)
                return;
        thread_shift(t, s, from, to, now - at, served);
}

/* It has waited for a CPU, and it is not known who had that. */
static __attribute__((noinline)) void thread_end_ready(struct thread *t, __u64 waited) {
        struct qos_contention_map *c = contention_get(t->word);

        if (!c)
                return;
        contention_add(c, QOS_RUN_QUEUE_LATENCY, waited);
        (void) resource_end(c, 0, QOS_STATE_RUN_QUEUE, waited, &t->waker);
}

/* It leaves the CPU. */
static __always_inline __u32 thread_leave(struct thread *t, struct task_struct *task, __u32 state, __u64 now,
                                          struct qos_contention_cpu **ret) {
        __u64 since = t->since, served = t->served, at;
        __u32 old;

        old = thread_set(t, state, now, ret);
        if (old > QOS_STATE_RUNNING && bpf_core_field_exists(task->sched_info)) {
                at = queue_time(task, task->sched_info.last_arrival, now);
                /* It came to the CPU just when who looks for threads took it for one that waits for that */
                if (old <= QOS_STATE_THROTTLED && (__s64) (at - since) <= 0) {
                        if ((__s64) (now - since) > 0)
                                thread_shift(t, *ret, old, QOS_STATE_RUNNING, now - since, served);
                        return old;
                }
                thread_correct(t, *ret, old, QOS_STATE_RUNNING, since, served, at, now);
                if (old == QOS_STATE_RUN_QUEUE)
                        thread_end_ready(t, at - since);
        }
        return old;
}

BPF_ARRAY_MAP(turns, PERCPU_ARRAY, 1, struct cpu_occupants);

static __always_inline __u64 task_turn_group(struct task_struct *task) {
        if (task->pid == 0)
                return QOS_GROUP_IDLE;
        if (task->flags & PF_KTHREAD)
                return QOS_GROUP_KERNEL;
        return task->cgroups->dfl_cgrp->kn->id;
}

/* In whose turns it has waited for this CPU; other: who had the last one. The wait is one of that row. */
static __attribute__((noinline)) void thread_end_turn(struct thread *t, struct task_struct *other,
                                                      __u64 waited) {
        struct qos_contention_map *c = contention_get(t->word);
        struct cpu_occupants *here;
        bool any = false;
        __u32 zero = 0;

        here = bpf_map_lookup_elem(&turns, &zero);
        if (!c || !here)
                return;
        contention_add(c, QOS_RUN_QUEUE_LATENCY, waited);
        for (__u32 back = 0; back < TURNS; back++) {
                struct qos_wait_target *row;
                __u64 group, part;

                if (!cpu_occupants_get(here, back, waited, &group, &part))
                        break;
                if (part == 0)
                        continue;
                if (t->rival.row == 0 || t->rival.group != group) {
                        struct qos_resource r = { .state = QOS_STATE_RUN_QUEUE, .kind = QOS_RESOURCE_CPU,
                                                  .id = group };

                        t->rival.group = group;
                        t->rival.row = resource_row(c, &r, &row);
                        if (row && back == 0)
                                (void) bpf_core_read(row->name, sizeof(other->comm), &other->comm);
                }
                if (!resource_end(c, t->rival.row, QOS_STATE_RUN_QUEUE | (any ? RESOURCE_PART : 0), part,
                                  &t->waker))
                        t->rival.row = 0; /* it is another one's by now, or there was none */
                any = true;
                waited -= part;
                if (waited == 0)
                        return;
        }
        (void) resource_end(c, 0, QOS_STATE_RUN_QUEUE | (any ? RESOURCE_PART : 0), waited, &t->waker);
}

/* other: who had the CPU before */
static __always_inline void thread_run(struct thread *t, struct task_struct *task, struct task_struct *other,
                                       __u64 now) {
        struct cfs_rq *queue = task->se.cfs_rq;
        __u64 since = t->since, served = t->served, waited, quota;
        struct qos_contention_cpu *s;
        __u32 old, cpu = bpf_get_smp_processor_id() + 1;

        old = thread_set(t, QOS_STATE_RUNNING, now, &s);
        if (!old)
                return;
        if (t->cpu != cpu) {
                if (t->cpu != 0)
                        thread_count(t, s, QOS_CONTENTION_CPU_MIGRATIONS);
                t->cpu = cpu;
        }
        if (old > QOS_STATE_THROTTLED && bpf_core_field_exists(task->sched_info) &&
            task->sched_info.last_queued != 0) {
                __u64 at = queue_time(task, task->sched_info.last_queued, now);

                thread_correct(t, s, old, QOS_STATE_RUN_QUEUE, since, served, at, now);
                since = at;
        } else if (old != QOS_STATE_RUN_QUEUE &&
                   (old != QOS_STATE_THROTTLED || bpf_core_field_exists(task->throttled)))
                return;

        /* It was throttled for a part of the time */
        waited = now > since ? now - since : 0; /* the difference of the clocks has been corrected */
        if (old == QOS_STATE_THROTTLED) {
                /* … and had to wait for its turn after that */
                if (t->queue != queue || !bpf_core_field_exists(queue->throttled_clock_pelt_time))
                        return;
                quota = queue_get_quota_nsec(queue) - t->quota_nsec;
                if (quota >= waited)
                        return;
                waited -= quota;
                thread_shift(t, s, QOS_STATE_THROTTLED, QOS_STATE_RUN_QUEUE, waited, served);
        } else
        if (t->queue == queue) {
                quota = queue_get_quota_nsec(queue) - t->quota_nsec;
                if (quota > waited)
                        quota = waited;
                if (quota > 0) {
                        thread_shift(t, s, QOS_STATE_RUN_QUEUE, QOS_STATE_THROTTLED, quota, served);
                        waited -= quota;
                }
        }

        /* Or it was on the way here from another CPU, or came from nowhere */
        if (t->queue == queue && old <= QOS_STATE_THROTTLED)
                thread_end_turn(t, other, waited);
        else
                thread_end_ready(t, waited);
}
