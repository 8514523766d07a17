/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

/* Transitions of threads between states. */

#include "cpu-occupants.h"
#include "scheduler-clock.h"
#include "thread.h"
#include "wait-reason.h"

/* ---- quota -------------------------------------------------------------------------------------------- */

/* Whether a thread is throttled, by itself (since 6.18) or together with its run queue, whose throttled time
 * the kernel records. That time is in the PELT clock, which scales with CPU frequency where known: an error
 * of up to some percent. */
static __always_inline bool thread_is_throttled(struct task_struct *task) {
        struct cfs_rq *queue = task->se.cfs_rq;

        if (bpf_core_field_exists(task->throttled)) {
                /* Keeps the compiler from hoisting the read: without the field, it must not be reachable */
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

/* Like contention_cpu_mark(). Writers are serialized by the locks of the scheduler. */
static __always_inline void thread_mark(struct thread *t) {
#if defined(__TARGET_ARCH_x86)
        barrier();
        *(volatile __u32*) &t->writes = t->writes + 1;
        barrier();
#else
        __sync_lock_test_and_set(&t->writes, t->writes + 1);
#endif
}

/* Attempts to exchange a thread's word. The only competitor is the iterator, which succeeds once at most. */
#define THREAD_TRIES 4

/* Moves a thread with this word to a state; QOS_STATE_NONE: it exits. s: the element of this CPU. Returns
 * false if the word has changed. */
static __always_inline bool thread_exchange(struct thread *t, struct qos_contention_cpu *s, __u64 old,
                                            __u32 state, __u64 now) {
        __u64 word = state ? (old & THREAD_MAP_ID) | state : 0, served;

        thread_mark(t);
        if (__sync_val_compare_and_swap(&t->word, old, word) != old) {
                thread_mark(t);
                return false;
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
        return true;
}

/* Moves a thread to a state. Returns the previous one, or 0 if the thread is not in any contention map. */
static __always_inline __u32 thread_set(struct thread *t, __u32 state, __u64 now,
                                        struct qos_contention_cpu **ret) {
        struct qos_contention_cpu *s;
        __u64 old;

        for (int try = 0; try < THREAD_TRIES; try++) {
                old = *(volatile __u64*) &t->word;
                if (!(old & THREAD_STATE))
                        return 0;
                s = contention_cpu_get(old, bpf_get_smp_processor_id());
                if (!s) {
                        /* The contention map no longer exists */
                        __sync_val_compare_and_swap(&t->word, old, 0);
                        return 0;
                }
                if (!thread_exchange(t, s, old, state, now))
                        continue;
                *ret = s;
                old &= THREAD_STATE;
                BPF_BOUND(old, QOS_STATES);
                return old;
        }
        return 0;
}

static __always_inline void thread_count(struct thread *t, struct qos_contention_cpu *s, __u64 counter) {
        contention_cpu_count(s, counter);
        BPF_BOUND(counter, QOS_THREAD_COUNTERS);
        t->counters[counter]++;
}

/* Accounts for the run time of a program since begin. Only called where no other program writes the element
 * of this CPU. */
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

/* Moves a part of the time recorded for one state to another state. served: serving clock when the thread
 * entered the state that it has left. It is unknown how its progress is distributed over the parts: it is
 * attributed to this part first, which is the end of a wait and thus more likely coincides with a
 * request. */
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

/* Whether the wait of a task in futex(2) can only have ended with its timeout. The waker may be the task
 * that the timer has interrupted in a call of its own: if that task belongs to another process, it does not
 * reach a private futex. */
static __always_inline bool futex_has_timed_out(struct task_struct *task, const struct wakeup *w,
                                                bool woken) {
        struct pt_regs___saved *regs = (struct pt_regs___saved*) bpf_task_pt_regs(task);
        __u64 operation, timeout;

#if defined(__TARGET_ARCH_x86)
        operation = regs->si;
        timeout = regs->r10;
#elif defined(__TARGET_ARCH_arm64)
        operation = regs->regs[1];
        timeout = regs->regs[3];
#else
        return false;
#endif
        return timeout != 0 && (!woken || (w->futex == 0 && operation & FUTEX_PRIVATE));
}

/* A wait has ended, possibly with an event (intent.h). A separate function, as it is only called for long
 * waits. */
static __attribute__((noinline)) int thread_end_park(struct thread *t, struct task_struct *task, __u64 how,
                                                     __u64 from, __u64 until) {
        bool woken = how & RESOURCE_WOKEN;

        if (!t || !task)
                return 0;
        if (((how & ~(__u64) (RESOURCE_WOKEN | RESOURCE_BY_REQUEST)) == QOS_STATE_PARK && t->futex != 0 &&
             futex_has_timed_out(task, &t->wakeup, woken)) ||
            (how & RESOURCE_BY_REQUEST && intent_is_news(t->wakeup.request_at, from, until)))
                intent_park(&t->park, from, until);
        return 0;
}

/* A wait has ended. Returns how: the state, and RESOURCE_*. */
static __always_inline __u64 thread_end_wait(struct thread *t, __u32 state, __u64 nsec) {
        struct qos_contention_map *c = contention_get(t->word);
        __u64 how = state;

        if ((__s64) nsec < 0) /* scheduler clocks differ by microseconds */
                nsec = 0;
        if (wakeup_is_end(&t->wakeup, state, t->futex, t->row != 0, t->locked)) {
                how |= RESOURCE_WOKEN;
                if (!t->locked && (state == QOS_STATE_PARK || state == QOS_STATE_POLL) &&
                    t->wakeup.what & WAKEUP_BY_REQUEST) {
                        how |= RESOURCE_BY_REQUEST;
                        t->times[QOS_STATE_BLOCKED_BY_REQUESTS] += nsec;
                }
        }
        if (c && !resource_end(c, t->row, how, nsec, &t->waker) && t->row == t->known.row)
                /* The row was reassigned, or there was none: look it up again for the next wait */
                t->known.state = QOS_STATE_NONE;
        t->row = 0;
        return how;
}

/* The state of a thread that becomes runnable. */
static __always_inline __u32 ready_state(struct thread *t, struct task_struct *task) {
        struct cfs_rq *queue = task->se.cfs_rq;

        t->queue = queue;
        t->quota_nsec = queue_get_quota_nsec(queue);
        return thread_is_throttled(task) ? QOS_STATE_THROTTLED : QOS_STATE_RUN_QUEUE;
}

/* A missed event: the thread was in state "to", not "from", since "at". */
struct thread_missed {
        __u64 from;
        __u64 to;
        __u64 since;            /* of the state "from" */
        __u64 served;           /* serving clock at that time */
        __u64 at;
};

/* Corrects a missed event: the kernel skips a program that interrupts itself, and runs none in the context
 * of some tasks. Returns how a wait has ended, like thread_end_wait(). Global, to be verified once. */
__attribute__((noinline, weak)) __u64 thread_correct(struct thread *t, struct qos_contention_cpu *s,
                                                     const struct thread_missed *m, __u64 now) {
        __u64 how = 0;

        if (!t || !s || !m)
                return 0;
        if (m->from > QOS_STATE_THROTTLED)
                how = thread_end_wait(t, m->from,
                                      ((__s64) (m->at - m->since) > 0 ? m->at : now) - m->since);
        if ((__s64) (m->at - m->since) > 0 && (__s64) (now - m->at) > 0)
                thread_shift(t, s, m->from, m->to, now - m->at, m->served);
        return how;
}

/* Ends a wait for a CPU of unknown occupants. */
static __attribute__((noinline)) void thread_end_ready(struct thread *t, __u64 waited) {
        struct qos_contention_map *c = contention_get(t->word);

        if (!c)
                return;
        contention_add(c, QOS_RUN_QUEUE_LATENCY, waited);
        (void) resource_end(c, 0, QOS_STATE_RUN_QUEUE, waited, &t->waker);
}

static __always_inline __u64 task_get_run_delay(struct task_struct *task) {
        return bpf_core_field_exists(task->sched_info) ? task->sched_info.run_delay : 0;
}

/* A thread is descheduled. */
static __always_inline __u32 thread_leave(struct thread *t, struct task_struct *task, __u32 state, __u64 now,
                                          struct qos_contention_cpu **ret) {
        __u64 since = t->since, served = t->served, delay = task_get_run_delay(task), at;
        __u64 waited = delay - t->run_delay;
        __u32 old;

        t->run_delay = delay;
        old = thread_set(t, state, now, ret);
        if (old > QOS_STATE_RUNNING && bpf_core_field_exists(task->sched_info)) {
                at = queue_time(task, task->sched_info.last_arrival, now);
                /* Scheduled at the moment when the iterator found it runnable */
                if (old <= QOS_STATE_THROTTLED && (__s64) (at - since) <= 0) {
                        if ((__s64) (now - since) > 0)
                                thread_shift(t, *ret, old, QOS_STATE_RUNNING, now - since, served);
                        return old;
                }
                /* If a thread was woken in the context of a task that is hidden from programs, it mostly
                 * runs after that one, and neither is seen */
                if (old > QOS_STATE_THROTTLED && waited > 0 && (__s64) (at - waited - since) > 0) {
                        thread_correct(t, *ret, &(struct thread_missed) {
                                        .from = old, .to = QOS_STATE_RUN_QUEUE, .since = since,
                                        .served = served, .at = at - waited }, now);
                        old = QOS_STATE_RUN_QUEUE;
                        since = at - waited;
                }
                thread_correct(t, *ret, &(struct thread_missed) {
                                .from = old, .to = QOS_STATE_RUNNING, .since = since, .served = served,
                                .at = at }, now);
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

/* Maximum depth of control groups in the search for a name. */
#define GROUP_LEVELS 12

/* Writes the name of the current task's unit into a row without a name, by the rule of
 * control_group_find_unit(): the first group below the slices. A group outside the daemon's root has its own
 * name, preceded by "../", as in /proc/PID/cgroup: a unit with that name would be another one. The group may
 * no longer exist when the daemon reads the row. */
BPF_SUBPROG int row_write_group(struct qos_contention_map *c, __u64 row_and_generation) {
        BPF_REQUIRE(c);

        __u64 i = (__u32) row_and_generation;
        struct qos_wait_target *row;
        struct cgroup *group;
        bool inside = false;
        __u32 level;

        if (i == 0)
                return 0;
        i--;
        BPF_BOUND(i, QOS_WAIT_TARGETS);
        row = &c->rows[i];
        if (row->name[0] != 0 || row->generation != row_and_generation >> 32)
                return 0;

        group = bpf_get_current_task_btf()->cgroups->dfl_cgrp;
        level = BPF_CORE_READ(group, level);
        if (level == 0)
                return 0; /* the root of the hierarchy has no name */
        for (__u32 k = 0; k < GROUP_LEVELS && k <= level; k++) {
                struct cgroup *ancestor = NULL;
                const char *own;
                __u64 tail = 0;
                long n;

                if (bpf_core_read(&ancestor, sizeof(ancestor), &group->ancestors[k]) < 0)
                        return 0;
                if (!inside) {
                        inside = BPF_CORE_READ(ancestor, kn, id) == root_group_id;
                        continue;
                }
                own = BPF_CORE_READ(ancestor, kn, name);
                n = bpf_probe_read_kernel_str(row->name, sizeof(row->name), own);
                if (n <= (long) sizeof(".slice") ||
                    bpf_probe_read_kernel(&tail, sizeof(".slice") - 1, own + n - sizeof(".slice")) < 0 ||
                    __builtin_memcmp(&tail, ".slice", sizeof(".slice") - 1) != 0)
                        return 0;
        }
        if (inside)
                return 0; /* a slice, or deeper than any unit */
        __builtin_memcpy(row->name, "../", 3);
        (void) bpf_probe_read_kernel_str(row->name + 3, sizeof(row->name) - 3,
                                         BPF_CORE_READ(group, kn, name));
        return 0;
}

/* Ends a wait for this CPU, and attributes it to the occupants meanwhile, the last of which is the current
 * task. Counts as a single wait, in the row of the most recent occupant. */
static __attribute__((noinline)) void thread_end_turn(struct thread *t, __u64 waited) {
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
                }
                /* Only the ids of earlier occupants are known */
                if (back == 0 && group != QOS_GROUP_IDLE && group != QOS_GROUP_KERNEL)
                        (void) row_write_group(c, t->rival.row);
                if (!resource_end(c, t->rival.row, QOS_STATE_RUN_QUEUE | (any ? RESOURCE_PART : 0), part,
                                  &t->waker))
                        t->rival.row = 0; /* reassigned, or never assigned */
                any = true;
                waited -= part;
                if (waited == 0)
                        return;
        }
        (void) resource_end(c, 0, QOS_STATE_RUN_QUEUE | (any ? RESOURCE_PART : 0), waited, &t->waker);
}

/* A thread is scheduled. Called while the previous task on the CPU is still the current one. */
static __always_inline void thread_run(struct thread *t, struct task_struct *task, __u64 now) {
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
                __u64 at = queue_time(task, task->sched_info.last_queued, now), how;
                __u64 before = task_get_run_delay(task) - t->run_delay;

                /* It was in the run queue of another CPU before, and migrated */
                if ((__s64) (at - before - since) > 0)
                        at -= before;
                how = thread_correct(t, s, &(struct thread_missed) {
                                .from = old, .to = QOS_STATE_RUN_QUEUE, .since = since, .served = served,
                                .at = at }, now);
                /* Most missed wakeups are those of timers */
                if ((__s64) (at - since) >= (__s64) INTENT_WAIT_MIN_NSEC)
                        thread_end_park(t, task, how, since, at);
                since = at;
        } else if (old != QOS_STATE_RUN_QUEUE &&
                   (old != QOS_STATE_THROTTLED || bpf_core_field_exists(task->throttled)))
                return;

        waited = now > since ? now - since : 0; /* 0 if the clock offset was adjusted */
        if (old == QOS_STATE_THROTTLED) {
                /* Throttled, and runnable for the rest of the time */
                if (t->queue != queue || !bpf_core_field_exists(queue->throttled_clock_pelt_time))
                        return;
                quota = queue_get_quota_nsec(queue) - t->quota_nsec;
                if (quota >= waited)
                        return;
                waited -= quota;
                thread_shift(t, s, QOS_STATE_THROTTLED, QOS_STATE_RUN_QUEUE, waited, served);
        } else if (t->queue == queue) {
                /* Runnable, and throttled for a part of the time */
                quota = queue_get_quota_nsec(queue) - t->quota_nsec;
                if (quota > waited)
                        quota = waited;
                if (quota > 0) {
                        thread_shift(t, s, QOS_STATE_RUN_QUEUE, QOS_STATE_THROTTLED, quota, served);
                        waited -= quota;
                }
        }

        /* Otherwise the thread was migrated here from another CPU, or its wakeup was missed */
        if (t->queue == queue && old <= QOS_STATE_THROTTLED)
                thread_end_turn(t, waited);
        else
                thread_end_ready(t, waited);
}
