/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

/* Task storage of threads observed with the probe "cpu". Written by its programs, read by those of
 * "requests" for the state of a thread between reading a request and responding to it. Maps are weak, as in
 * maps.h. */

#include "contention-maps.h"
#include "wakeup.h"

/* A thread of a unit (TASK_STORAGE). */
struct thread {
        __u64 word;             /* THREAD_*, in contention-map.h */
        __u64 since;            /* CLOCK_MONOTONIC ns of entering the state */
        __u64 served;           /* serving clock at that time */
        __u64 quota_nsec;       /* throttled time of its run queue when it became runnable */
        const void *queue;      /* the run queue; the above is void if it has changed */
        __u64 run_delay;        /* the kernel's sum of its times in run queues when it was descheduled */
        __u32 cpu;              /* last CPU + 1; 0: unknown */
        __u64 woke;             /* futex address of its last FUTEX_WAKE */
        __u32 waiter;           /* PID of the last thread to wait for its lock, see lock-holder.h */
        __u32 waiter_next;      /* PID of the one before this thread, at the same holder */
        __u32 holder;           /* PID of that holder; 0: not known, or of no interest */
        __u32 waited;           /* state of its last wait, for restart_syscall(2) */
        __u32 writes;           /* sequence count of times and since, odd while being written */
        __u32 turn;             /* run to be measured next (overhead.h) */
        __u32 never;            /* 0, see overhead_begin_sample() */
        __u64 times[QOS_STATES]; /* ns in states left, and in QOS_STATE_BLOCKED_BY_REQUESTS */
        __u64 counters[QOS_THREAD_COUNTERS];
        __u64 row;              /* entry of its wait target, from 1, generation in the upper half; 0: none */
        __u64 futex;            /* address of the futex it waits on; 0: none */
        const void *lock;       /* kernel lock that it is about to block on; NULL: none */
        __u64 lock_id;          /* id of the wait target of lock_known; 0: unknown */
        const void *lock_known; /* last kernel lock and the system call in which it was taken: valid after
                                 * release, too */
        int lock_call;
        __u32 lock_kind;        /* QOS_RESOURCE_KERNEL_* of lock_known */
        __u32 locked;           /* 1: blocked on a kernel lock */
        /* Cache of the last wait target, as threads mostly wait for the same again */
        struct known {
                const void *file;
                __u64 id;       /* inode number or futex address */
                __u64 row;
                __u32 fd;
                __u32 state;
        } known;
        /* Cache of the last CPU occupant that it waited for */
        struct rival {
                __u64 group;
                __u64 row;      /* 0: none */
        } rival;
        struct qos_waker waker; /* last candidate for a waker */
        struct wakeup wakeup;   /* properties of the last wakeup, see wakeup.h */
        struct intent_park park;
};

BPF_STORAGE_MAP(threads, TASK, struct thread) __weak;

/* NULL: not a known thread. Most tasks have no storage at all: checking that here saves a helper call. */
static __always_inline struct thread* thread_of(struct task_struct *task) {
        return task->bpf_storage ? bpf_task_storage_get(&threads, task, 0, 0) : NULL;
}

/* Requests read by a thread. */
BPF_STORAGE_MAP(services, TASK, struct service) __weak;

/* Snapshot of a thread's times. Only for the current task or in sched_switch, so that no transition
 * intervenes. */
static __always_inline void thread_get_account(const struct thread *t, struct request_cpu_run *ret) {
        ret->state = *(const volatile __u64*) &t->word & THREAD_STATE;
        ret->since = t->since;
        for (int i = 0; i < QOS_STATES; i++)
                ret->times[i] = t->times[i];
}

__attribute__((noinline, weak)) int service_record(struct service *s, struct pending_responses *a,
                                                   const struct answer *answer) {
        if (!s || !a || !answer)
                return 0;
        return request_cpu_finish(s, &a->account, answer->read_at, answer->now, answer->n, a->sums);
}

/* Attributes the first n pending responses. */
__attribute__((noinline, weak)) int pending_responses_add(struct thread *t, struct service *s,
                                                          struct pending_responses *a, __u32 n) {
        __u32 slot, zero = 0, before, attributed = 0;
        struct qos_unit_map *u;
        void *map;

        if (!t || !s || !a)
                return 0;
        if (s->book != (*(volatile __u64*) &t->word & THREAD_BOOK))
                return 0; /* The thread has moved to another contention map since it read */
        before = *(volatile __u32*) &t->writes;
        slot = (t->word & THREAD_SLOT) >> THREAD_SLOT_SHIFT;
        map = bpf_map_lookup_elem(&units, &slot);
        u = map ? bpf_map_lookup_elem(map, &zero) : NULL;
        if (!u)
                return 0;

        thread_get_account(t, &a->account);
        for (int i = 0; i < QOS_STATES; i++)
                a->sums[i] = 0;
        for (__u64 i = 0; i < ANSWERS_MAX; i++) {
                struct answer *answer = &a->list[i];

                if (i >= n)
                        break;
                if (answer->generation == u->generation && service_record(s, a, answer))
                        attributed += answer->n;
        }
        /* Preempted meanwhile */
        if (attributed == 0 || before % 2 != 0 || *(volatile __u32*) &t->writes != before)
                return 0;
        for (int i = QOS_STATE_BLOCKED_BY_REQUESTS; i < QOS_STATES; i++)
                if (a->sums[i] != 0)
                        __sync_fetch_and_add(&u->sums[QOS_SUM_STATES + i], a->sums[i]);
        __sync_fetch_and_add(&u->sums[QOS_SUM_ATTRIBUTED], attributed);
        return 0;
}

/* Attributes the responses sent since the thread was scheduled to the requests that it has read. Does not
 * enter a sub-window: the sender has done so, and the locks of the scheduler may be held. Responses added by
 * an interrupt meanwhile are not attributed. */
static __always_inline void pending_responses_settle(struct thread *t, struct service *s,
                struct pending_responses *a) {
        __u32 watched = a->watched, n;

        *(volatile __u32*) &a->watched = 0;
        n = *(volatile __u32*) &a->n;
        a->n = 0;
        pending_responses_add(t, s, a, n);
        *(volatile __u32*) &a->watched = watched;
}

/* A thread is descheduled, or scheduled. */
static __always_inline void pending_responses_turn(struct task_struct *task, struct thread *t, bool comes) {
        struct pending_responses *a;
        struct service *s;
        __u32 zero = 0;

        a = bpf_map_lookup_elem(&answers, &zero);
        if (!a)
                return;
        if (comes) {
                a->watched = 1;
                a->n = 0;
                a->park = t->park;
                return;
        }
        a->watched = 0;
        if (a->n == 0)
                return;
        s = bpf_task_storage_get(&services, task, 0, 0);
        if (s)
                pending_responses_settle(t, s, a);
}

/* When the current task has read the request of this contention map that it processes: it has not responded
 * yet. 0: it processes none. */
static __always_inline __u64 task_get_request_time(struct task_struct *task, __u64 book) {
        const struct service *s = bpf_task_storage_get(&services, task, 0, 0);
        const struct pending_responses *a;
        __u32 zero = 0;

        if (!s || !s->open || s->book != book)
                return 0;
        a = bpf_map_lookup_elem(&answers, &zero);
        /* responses sent in this run have not been matched to requests yet */
        return a && a->n == 0 ? s->read_at[(s->notes - 1) % SERVICE_NOTES] : 0;
}

/* The current task has read a part of a request at that time, which is also stored with the connection. */
__attribute__((noinline, weak)) int thread_read_request(struct qos_unit_map *u, __u64 at) {
        struct task_struct *task = bpf_get_current_task_btf();
        struct request_cpu_run *run;
        struct service *s;
        struct pending_responses *a;
        struct intent_run now;
        struct thread *t;
        __u32 zero = 0, before;
        __u64 book;

        a = bpf_map_lookup_elem(&answers, &zero);
        if (!a || !u)
                return 0;
        task_get_run(task, at, &now);
        intent_read(&a->run, &now, &u->read_at);
        /* Cheapest check first: most readers are not observed */
        if (!a->watched)
                return 0;
        t = thread_of(task);
        if (!t || !contention_cpu_get(*(volatile __u64*) &t->word, cpus))
                return 0; /* not observed, or not any more */
        s = bpf_task_storage_get(&services, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
        if (!s) {
                contention_lost(QOS_STATISTIC_LOST_SERVICES, *(volatile __u64*) &t->word);
                return 0;
        }
        book = *(volatile __u64*) &t->word & THREAD_BOOK;
        if (s->book != book) {
                s->book = book;
                s->notes = s->runs = 0;
                for (int i = 0; i < (int) SERVICE_NOTES; i++)
                        s->read_at[i] = 0;
        }
        if (a->n > 0)
                pending_responses_settle(t, s, a);

        before = *(volatile __u32*) &t->writes;
        run = request_cpu_begin(s, t->since);
        if (run)
                thread_get_account(t, run);
        /* Preempted meanwhile: the snapshot is inconsistent */
        if (before % 2 != 0 || *(volatile __u32*) &t->writes != before) {
                if (run)
                        run->since = 0;
                return 0;
        }
        request_cpu_note(s, at);
        return 0;
}
