// SPDX-License-Identifier: GPL-2.0-or-later

/* The probe "cpu": states of the threads of units.
 *
 *   cpu_switch        a thread is descheduled, with the reason, and another one is scheduled
 *   cpu_wake          a thread becomes runnable
 *   cpu_wake_new      a new thread becomes runnable, and known
 *   cpu_waking        a task wakes another one, possibly before that one is descheduled
 *   cpu_lock          a thread is about to block on a kernel lock
 *   cpu_unlock        a thread has acquired it
 *   cpu_find_threads  iterator: finds threads older than the attach, and migrated ones
 *   cpu_read_threads  iterator: reads the known threads, on request
 *   cpu_read_mappings iterator: finds file mappings of a process, to name futexes
 *   cpu_migrate       tasks are migrated between control groups: the daemon starts cpu_find_threads
 *
 * Known threads have task storage. For any other task a switch costs two checks for storage and an update of
 * the occupants of the CPU. The first three programs run with interrupts disabled and, for each thread,
 * serialized by the locks of the scheduler, on any CPU. Iterators run concurrently: see THREAD_SEEDED. */

#include "contention-maps.h"
#include "cpu-occupants.h"
#include "kernel-locks.bpf.h"
#include "lock-holder.h"
#include "scheduler-clock.h"
#include "syscalls.h"
#include "thread.h"
#include "thread-state.h"
#include "wait-reason.h"
#include "wait-targets.h"

char LICENSE[] SEC("license") = "GPL";

/* Set by the daemon. */
const volatile __u32 page_size = 4096;

/* ---- switches ----------------------------------------------------------------------------------------- */

SEC("tp_btf/sched_switch")
int BPF_PROG(cpu_switch, bool preempt, struct task_struct *prev, struct task_struct *next,
             unsigned int state) {
        struct cpu_occupants *here;
        struct qos_contention_cpu *s;
        struct thread *t;
        __u64 now, word, begin;
        __u32 zero = 0;

        /* Idle time is not accounted to any task */
        now = prev->pid == 0 ? queue_now(prev) : queue_switched(prev);
        here = bpf_map_lookup_elem(&turns, &zero);
        if (here)
                cpu_occupants_push(here, task_turn_group(prev), now);

        t = thread_of(prev);
        word = t ? *(volatile __u64*) &t->word : 0;
        if (t && word & THREAD_STATE) {
                begin = overhead_begin_sample(t);
                pending_responses_turn(prev, t, false);
                if (state & TASK_DEAD)
                        thread_leave(t, prev, QOS_STATE_NONE, now, &s);
                else if (preempt || state == 0) {
                        if (thread_leave(t, prev, ready_state(t, prev), now, &s))
                                thread_count(t, s, QOS_CONTENTION_CPU_INVOLUNTARY);
                } else {
                        struct wait w = {};
                        __u32 reason = wait_state(prev, state, t, &w);
                        __u64 row;

                        if (t->lock)
                                lock_describe(t, state, &w);
                        row = thread_get_row(t, prev, t->word, reason, &w);
                        /* A system call that was stopped continues to wait for the same */
                        if (reason != QOS_STATE_OTHER && reason != QOS_STATE_STOPPED)
                                t->waited = reason;
                        /* If the wakeup was missed, this also ends a wait, that of the previous row */
                        if (thread_leave(t, prev, reason, now, &s)) {
                                t->futex = w.futex;
                                t->locked = w.lock != 0;
                                t->row = row;
                                thread_count(t, s, QOS_CONTENTION_CPU_WAITS + reason);
                                /* Read back: the verifier would explore everything after for each reason */
                                if ((*(volatile __u64*) &t->word & THREAD_STATE) == QOS_STATE_LOCK ||
                                    t->waiter != 0)
                                        (void) lock_begin_wait(state);
                        }
                }
                thread_end_overhead(word, begin);
        }

        t = thread_of(next);
        word = t ? *(volatile __u64*) &t->word : 0;
        if (t && word & THREAD_STATE) {
                begin = overhead_begin_sample(t);
                thread_run(t, next, queue_switched(next));
                t->wakeup.what = 0; /* belongs to the wait that has ended */
                pending_responses_turn(next, t, true);
                thread_end_overhead(word, begin);
        }
        return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(cpu_wake, struct task_struct *task) {
        struct thread *t;
        struct qos_contention_cpu *s;
        __u64 word, begin, since, now, how;
        __u32 state;

        t = thread_of(task);
        if (!t)
                return 0;
        /* The thread has not been descheduled yet, or it was preempted on its way to schedule() */
        word = *(volatile __u64*) &t->word;
        state = word & THREAD_STATE;
        if (state <= QOS_STATE_THROTTLED)
                return 0;

        begin = overhead_begin_sample(t);
        since = t->since;
        now = queue_now(task);
        state = thread_set(t, ready_state(t, task), now, &s);
        if (state) {
                thread_count(t, s, QOS_CONTENTION_CPU_WAKE_UPS);
                if (state > QOS_STATE_THROTTLED) {
                        how = thread_end_wait(t, state, now - since);
                        if ((__s64) (now - since) >= (__s64) INTENT_WAIT_MIN_NSEC)
                                thread_end_park(t, task, how, since, now);
                }
        }
        thread_end_overhead(word, begin);
        return 0;
}

/* 1: a notification is pending. */
BPF_ARRAY_MAP(moved, ARRAY, 1, __u32);

struct {
        __uint(type, BPF_MAP_TYPE_RINGBUF);
        __uint(max_entries, 4096);      /* the minimum, for a single record */
} moves SEC(".maps");

/* Requests a run of cpu_find_threads. */
static __always_inline void moves_notify(void) {
        __u32 zero = 0, one = 1, *pending;

        pending = bpf_map_lookup_elem(&moved, &zero);
        if (pending && __sync_lock_test_and_set(pending, 1) == 0 &&
            bpf_ringbuf_output(&moves, &one, sizeof(one), 0) < 0)
                *pending = 0; /* the next migration tries again */
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(cpu_wake_new, struct task_struct *task) {
        struct qos_contention_cpu *s;
        struct thread *t;
        __u64 map_id, now;

        map_id = group_find_map_id(task->cgroups->dfl_cgrp, 0);
        if (!map_id)
                return 0;
        t = BPF_STORAGE_CREATE(task, threads, task);
        s = contention_cpu_get(map_id, bpf_get_smp_processor_id());
        if (!t || !s) {
                contention_lost(QOS_STATISTIC_LOST_THREADS, map_id);
                moves_notify();
                return 0;
        }
        now = queue_now(task);
        t->since = now;
        t->served = serving_get(map_id, now);
        t->queue = NULL;
        t->turn = overhead_first_sample(task->pid);
        if (__sync_val_compare_and_swap(&t->word, 0, map_id | QOS_STATE_RUN_QUEUE) == 0) {
                contention_cpu_enter(s, map_id, now);
                state_transition(s, QOS_STATE_NONE, QOS_STATE_RUN_QUEUE, now, t->served);
        } else /* the iterator was first */
                thread_set(t, ready_state(t, task), now, &s);
        return 0;
}

static __always_inline void thread_set_waker(struct thread *t, struct task_struct *waker) {
        if (t->waker.thread == (__u32) waker->pid)
                return;
        t->waker.tid = own_number(waker);
        t->waker.group = waker->cgroups->dfl_cgrp->kn->id;
        (void) bpf_core_read(t->waker.name, sizeof(t->waker.name), &waker->comm);
        t->waker.thread = waker->pid;
}

/* Stores a candidate for the waker until the wait has ended, see wakeup.h. Serialized by the kernel: pi_lock
 * of the task is held from here until it is runnable. */
static __always_inline void thread_note_waker(struct thread *t, struct task_struct *task,
                                              struct task_struct *waker) {
        __u64 word = *(volatile __u64*) &t->word, state = word & THREAD_STATE, request_at = 0;
        __u32 what = 0;
        struct call call;

        t->wakeup.what = 0;
        if (state == QOS_STATE_NONE)
                return;
        /* Not descheduled yet, so the reason of the wait is unknown. The recorded state may belong to an
         * earlier wait whose wakeup was missed */
        if (task->on_cpu)
                state = QOS_STATE_RUNNING;
        if (wakeup_expected(state) && !(waker->flags & (PF_KTHREAD | PF_IO_WORKER | PF_USER_WORKER))) {
                call_read(waker, &call);
                what = wakeup_expected(state) & wakeup_call(call.number);
                t->wakeup.futex = waker->tgid == task->tgid ? call.arguments[0] : 0;
        }
        if (!what && !t->lock)
                return;
        thread_set_waker(t, waker);
        if (what && (state == QOS_STATE_RUNNING || state == QOS_STATE_PARK || state == QOS_STATE_POLL))
                request_at = task_get_request_time(waker, word & THREAD_MAP_ID);
        if (request_at != 0)
                what |= WAKEUP_BY_REQUEST;
        t->wakeup.request_at = request_at;
        t->wakeup.what = what | WAKEUP_TASK;
}

/* Runs in the waking task, or in an interrupt in its context, in which case its system call is a
 * coincidence. */
SEC("tp_btf/sched_waking")
int BPF_PROG(cpu_waking, struct task_struct *task) {
        struct task_struct *waker = bpf_get_current_task_btf();
        struct qos_contention_cpu *s;
        struct call call;
        struct thread *t;
        __u64 begin;

        t = thread_of(task);
        if (t) {
                begin = overhead_begin_sample(t);
                thread_note_waker(t, task, waker);
                thread_end_overhead(*(volatile __u64*) &t->word, begin);
        }

        t = thread_of(waker);
        if (!t)
                return 0;
        call_read(waker, &call);
        if (call.number != __NR_futex || (*(volatile __u64*) &t->word & THREAD_STATE) != QOS_STATE_RUNNING)
                return 0;
        t->woke = call.arguments[0];
        s = contention_cpu_get(t->word, bpf_get_smp_processor_id());
        if (s)
                thread_count(t, s, QOS_CONTENTION_CPU_FUTEX_WAKES);
        return 0;
}

/* A known thread is migrated, or any thread to a unit. The iterator finds out which: it may be a whole
 * process. */
SEC("tp_btf/cgroup_attach_task")
int BPF_PROG(cpu_migrate, struct cgroup *to, const char *path, struct task_struct *task, bool all) {
        if (thread_of(task) || group_find_map_id(to, 0))
                moves_notify();
        return 0;
}

/* ---- existing threads --------------------------------------------------------------------------------- */

/* State of a task without any event so far, possibly outdated by a moment: the daemon runs the iterator
 * twice, so that threads still without an event are checked again. */
static __always_inline __u32 task_state(struct task_struct *task, const struct thread *t, struct wait *w) {
        __u32 state = task->__state;

        if (task->on_cpu)
                return QOS_STATE_RUNNING;
        if (task->on_rq && !(bpf_core_field_exists(task->se.sched_delayed) && task->se.sched_delayed))
                return thread_is_throttled(task) ? QOS_STATE_THROTTLED : QOS_STATE_RUN_QUEUE;
        return wait_state(task, state, t, w);
}

/* Time of scheduling onto its CPU, clamped to first … last; last if unknown. */
static __always_inline __u64 arrival_time(struct task_struct *task, __u64 first, __u64 last) {
        struct clock *c;
        __u32 zero = 0;
        __u64 at;

        c = bpf_map_lookup_elem(&clocks, &zero);
        if (!c || c->offset == 0 || !bpf_core_field_exists(task->sched_info))
                return last;
        at = task->sched_info.last_arrival + c->offset;
        return (__s64) (at - first) < 0 ? first : (__s64) (last - at) < 0 ? last : at;
}

/* Records a transition by the iterator, in the element that is not of a CPU. */
BPF_SUBPROG int thread_move(__u64 word, __u64 from, __u64 to, __u64 now) {
        struct qos_contention_cpu *s = contention_cpu_get(word, cpus);

        if (!s)
                return 0;
        contention_cpu_enter(s, word, now);
        state_transition(s, from, to, now, serving_get(word, now));
        return 0;
}

SEC("iter/task")
int cpu_find_threads(struct bpf_iter__task *ctx) {
        struct task_struct *task = ctx->task;
        struct qos_iter_session session = { .id = ctx->meta->session_id };
        __u64 map_id, old = 0, word, now;
        struct qos_inspect_request *request;
        struct thread *t;
        __u32 zero = 0;
        bool done = false;

        if (!task) {
                bpf_seq_write(ctx->meta->seq, &session, sizeof(session));
                return 0;
        }
        request = bpf_map_lookup_elem(&inspect_requests, &zero);
        if (request && ctx->meta->seq_num == 0)
                inquiry_note_self(request);
        if (task->exit_state)
                return 0;

        map_id = group_find_map_id(task->cgroups->dfl_cgrp, 0);
        t = map_id ? BPF_STORAGE_CREATE(task, threads, task) : bpf_task_storage_get(&threads, task, 0, 0);
        if (!t) {
                if (map_id)
                        contention_lost(QOS_STATISTIC_LOST_THREADS, map_id);
                return 0;
        }

        for (int try = 0; try < THREAD_TRIES && !done; try++) {
                struct wait w = {};
                __u32 state = map_id ? task_state(task, t, &w) : QOS_STATE_NONE, holder;

                holder = idle_get_lock_holder(task, map_id, state, false);
                if (holder != 0 && task_accepts(holder))
                        state = QOS_STATE_PARK;

                old = *(volatile __u64*) &t->word;
                word = map_id ? map_id | THREAD_SEEDED | state : 0;
                if (old & THREAD_STATE && (old & THREAD_MAP_ID) == map_id &&
                    (!(old & THREAD_SEEDED) || old == word))
                        return 0; /* had events, or is unchanged */
                if (old == 0 && word == 0)
                        return 0;

                now = bpf_ktime_get_ns();
                if (old != 0 && (old & THREAD_MAP_ID) != map_id) { /* leave the other contention map */
                        if (__sync_val_compare_and_swap(&t->word, old, 0) != old)
                                continue;
                        thread_move(old, old & THREAD_STATE, QOS_STATE_NONE, now);
                        if (word == 0)
                                return 0;
                        old = 0;
                }
                if (old == 0) { /* visible to other programs from the exchange on */
                        t->since = now;
                        t->served = serving_get(map_id, now);
                        t->queue = NULL;
                        t->run_delay = task_get_run_delay(task);
                        t->waker.thread = t->wakeup.what = 0;
                        t->futex = w.futex;
                        t->lock = NULL;
                        t->locked = 0;
                        t->known = (struct known) {};
                        t->rival = (struct rival) {};
                        t->turn = overhead_first_sample(task->pid);
                        t->row = state > QOS_STATE_THROTTLED ? thread_get_row(t, task, word, state, &w) : 0;
                        for (int i = 0; i < QOS_STATES; i++)
                                t->times[i] = 0;
                        for (int i = 0; i < QOS_THREAD_COUNTERS; i++)
                                t->counters[i] = 0;
                }
                done = __sync_val_compare_and_swap(&t->word, old, word) == old;
        }
        if (!done)
                return 0; /* Other programs have changed the word several times, so the thread is known */

        if (old != 0) {
                __u64 state = old & THREAD_STATE;

                BPF_BOUND(state, QOS_STATES);
                /* Scheduled since the iterator found it, which no program recorded */
                if ((word & THREAD_STATE) == QOS_STATE_RUNNING &&
                    (state == QOS_STATE_RUN_QUEUE || state == QOS_STATE_THROTTLED)) {
                        now = arrival_time(task, t->since, now);
                        if (now > t->since)
                                thread_end_ready(t, now - t->since);
                }
                t->times[state] += now - t->since;
                t->since = now;
                t->served = serving_get(old, now);
                t->queue = NULL;
                t->row = 0;
                thread_move(old, old & THREAD_STATE, QOS_STATE_NONE, now);
        }
        thread_move(word, QOS_STATE_NONE, word & THREAD_STATE, now);
        /* It may have exited before the exchange, with its last switch unrecorded */
        if (*(volatile unsigned int*) &task->exit_state &&
            __sync_val_compare_and_swap(&t->word, word, 0) == word)
                thread_move(word, word & THREAD_STATE, QOS_STATE_NONE, now);
        return 0;
}

/* ---- reading threads ---------------------------------------------------------------------------------- */

/* Attempts to read a thread consistently, each of some hundred nanoseconds. */
#define THREAD_READS 8

SEC("iter/task")
int cpu_read_threads(struct bpf_iter__task *ctx) {
        struct task_struct *task = ctx->task;
        struct qos_thread out = {};
        struct qos_inspect_request *request;
        __u64 word = 0, since = 0;
        __u32 slot, before, zero = 0;
        bool whole = false;
        struct thread *t;

        if (!task || task->exit_state)
                return 0;
        request = bpf_map_lookup_elem(&inspect_requests, &zero);
        t = thread_of(task);
        if (!request || !t)
                return 0;
        slot = (*(volatile __u64*) &t->word & THREAD_SLOT) >> THREAD_SLOT_SHIFT;
        if (!(request->slots[slot / 64 % (QOS_SLOTS / 64)] & 1ULL << slot % 64))
                return 0;

        for (int try = 0; try < THREAD_READS && !whole; try++) {
                before = *(volatile __u32*) &t->writes;
                word = *(volatile __u64*) &t->word;
                since = *(volatile __u64*) &t->since;
                out.row = *(volatile __u64*) &t->row;
                out.generation = *(volatile __u64*) &t->row >> 32;
                (void) bpf_probe_read_kernel(out.times, sizeof(out.times), t->times);
                (void) bpf_probe_read_kernel(out.counters, sizeof(out.counters), t->counters);
                out.nsec = bpf_ktime_get_ns() - since;
                whole = before % 2 == 0 && *(volatile __u32*) &t->writes == before;
        }
        out.state = word & THREAD_STATE;
        if (!whole || out.state == QOS_STATE_NONE || out.state >= QOS_STATES)
                return 0;

        out.map_id = word & THREAD_MAP_ID;
        if ((__s64) out.nsec < 0) /* scheduler clocks differ by microseconds */
                out.nsec = 0;
        {
                __u64 state = out.state;

                BPF_BOUND(state, QOS_STATES);
                out.times[state] += out.nsec;
        }
        out.tid = own_number(task);
        out.pid = own_number(task->group_leader);
        bpf_core_read(out.name, sizeof(out.name), &task->comm);
        bpf_seq_write(ctx->meta->seq, &out, sizeof(out));
        return 0;
}

BPF_ARRAY_MAP(mapping_scratch, PERCPU_ARRAY, 1, struct qos_mapping);

/* Writes the beginning of each mapped file, and the mapping of the requested address. Run for one
 * process. */
SEC("iter/task_vma")
int cpu_read_mappings(struct bpf_iter__task_vma *ctx) {
        struct vm_area_struct *vma = ctx->vma;
        struct qos_inspect_request *request;
        struct qos_mapping *m;
        struct file *file;
        __u32 zero = 0;

        request = bpf_map_lookup_elem(&inspect_requests, &zero);
        m = bpf_map_lookup_elem(&mapping_scratch, &zero);
        if (!ctx->task || !vma || !request || !m)
                return 0;
        file = vma->vm_file;
        if (!file || vma->vm_start > request->address ||
            (vma->vm_pgoff != 0 && request->address >= vma->vm_end))
                return 0;

        m->start = vma->vm_start;
        m->end = vma->vm_end;
        m->offset = vma->vm_pgoff * page_size;
        m->inode = file->f_inode->i_ino;
        if (bpf_d_path(&file->f_path, m->path, sizeof(m->path)) < 0)
                m->path[0] = 0;
        bpf_seq_write(ctx->meta->seq, m, sizeof(*m));
        return 0;
}
