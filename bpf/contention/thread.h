/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

/* What is known of a thread of a unit that is watched with the probe "cpu": written by that one's programs,
 * and asked by those of "requests" in which state a thread was between reading a question and answering it.
 * Maps are weak, as in maps.h. */

#include "contention-maps.h"
#include "wakeup.h"

/* A thread of a unit (TASK_STORAGE). */
struct thread {
        __u64 word;             /* THREAD_*, in contention-map.h */
        __u64 since;            /* CLOCK_MONOTONIC ns, when it came to its state */
        __u64 served;           /* the serving clock then */
        __u64 quota_nsec;       /* how long its run queue had been throttled, when it became ready there … */
        const void *queue;      /* … if it is still the same */
        __u32 cpu;              /* where it ran last, from 1; 0: not known */
        __u64 woke;             /* the address at which it has last woken others by futex(2) */
        __u32 waited;           /* the state of its last wait, unless it was stopped: if its call goes on
                                 * afterwards */
        __u32 writes;           /* odd while times or since are written */
        __u32 turn;             /* of the run that is measured next (overhead.h) */
        __u32 never;            /* 0, see overhead_begin_sample() */
        __u64 times[QOS_STATES]; /* ns, in states that it has left, and QOS_STATE_BLOCKED_BY_REQUESTS */
        __u64 counters[QOS_THREAD_COUNTERS];
        __u64 row;              /* of what it waits for, from 1, and above that its generation; 0: it has
                                 * none */
        __u64 futex;            /* … its address; 0: it is none */
        const void *lock;       /* of the kernel, that it is about to wait for; NULL: none … */
        __u64 lock_id;          /* … by which that has a row; 0: nothing is known of it … */
        const void *lock_known; /* … the one that these two are of, also when it is over, and the call in
                                 * which it was */
        int lock_call;
        __u32 lock_kind;        /* … QOS_RESOURCE_KERNEL_* */
        __u32 locked;           /* 1: it waits for that */
        /* What it has last waited for: mostly it does so again, and all the rest need not be looked at */
        struct known {
                const void *file;
                __u64 id;       /* the inode's number, which no other socket gets; the address of a futex */
                __u64 row;
                __u32 fd;
                __u32 state;
        } known;
        /* Who had the CPU that it waited for: mostly it is the same the next time */
        struct rival {
                __u64 group;
                __u64 row;      /* 0: there is none */
        } rival;
        struct qos_waker waker; /* who has last woken it, of those that may have ended a wait … */
        struct wakeup wakeup;   /* … and what is known of that, if it was the last time that it was woken */
};

BPF_STORAGE_MAP(threads, TASK, struct thread) __weak;

/* NULL: there is none. Most tasks of a machine have nothing kept with them: that is seen sooner than the
 * kernel is asked. */
static __always_inline struct thread* thread_of(struct task_struct *task) {
        return task->bpf_storage ? bpf_task_storage_get(&threads, task, 0, 0) : NULL;
}

/* What threads that read questions know of these. */
BPF_STORAGE_MAP(services, TASK, struct service) __weak;

/* The account of a thread, between two changes of it. Only the thread itself asks, or who takes it off the
 * CPU. */
static __always_inline void thread_get_account(const struct thread *t, struct request_cpu_run *ret) {
        ret->state = *(const volatile __u64*) &t->word & THREAD_STATE;
        ret->since = t->since;
        for (int i = 0; i < QOS_STATES; i++)
                ret->times[i] = t->times[i];
}

__attribute__((noinline, weak)) int answer_book(struct service *s, struct pending_responses *a,
                                                const struct answer *answer) {
        if (!s || !a || !answer)
                return 0;
        return request_cpu_answer(s, &a->account, answer->read_at, answer->now, answer->n, a->sums);
}

/* The first n of them. */
__attribute__((noinline, weak)) int pending_responses_add(struct thread *t, struct service *s,
                                                          struct pending_responses *a, __u32 n) {
        __u32 slot, zero = 0, before, attributed = 0;
        struct qos_unit_map *u;
        void *map;

        if (!t || !s || !a)
                return 0;
        if (s->book != (*(volatile __u64*) &t->word & THREAD_BOOK))
                return 0; /* what it was doing when it read is in another account */
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
                if (answer->generation == u->generation && answer_book(s, a, answer))
                        attributed += answer->n;
        }
        /* It was taken off the CPU in the middle of this */
        if (attributed == 0 || before % 2 != 0 || *(volatile __u32*) &t->writes != before)
                return 0;
        for (int i = QOS_STATE_BLOCKED_BY_REQUESTS; i < QOS_STATES; i++)
                if (a->sums[i] != 0)
                        __sync_fetch_and_add(&u->sums[QOS_SUM_STATES + i], a->sums[i]);
        __sync_fetch_and_add(&u->sums[QOS_SUM_ATTRIBUTED], attributed);
        return 0;
}

/* Books the answers that have left while the thread ran, as far as it has read what they answer. No
 * sub-window is entered: when they left one was, and the scheduler may hold its locks. Those that a packet
 * sends in the middle of this are not attributed. */
static __always_inline void pending_responses_settle(struct thread *t, struct service *s,
                struct pending_responses *a) {
        __u32 watched = a->watched, n;

        *(volatile __u32*) &a->watched = 0;
        n = *(volatile __u32*) &a->n;
        a->n = 0;
        pending_responses_add(t, s, a, n);
        *(volatile __u32*) &a->watched = watched;
}

/* A thread leaves the CPU, or another one comes. */
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
                return;
        }
        a->watched = 0;
        if (a->n == 0)
                return;
        s = bpf_task_storage_get(&services, task, 0, 0);
        if (s)
                pending_responses_settle(t, s, a);
}

/* The task that runs here is in the midst of a request of this book: it has read a question, and the answer
 * has not left. */
static __always_inline bool task_serves(struct task_struct *task, __u64 book) {
        const struct service *s = bpf_task_storage_get(&services, task, 0, 0);
        const struct pending_responses *a;
        __u32 zero = 0;

        if (!s || !s->open || s->book != book)
                return false;
        a = bpf_map_lookup_elem(&answers, &zero);
        /* which question those are for that have left since it came to the CPU is looked up later */
        return a && a->n == 0;
}

/* The running task has read a question, or a part of one, at that time: the same that is noted with the
 * connection. */
__attribute__((noinline, weak)) int question_read(__u64 at) {
        struct task_struct *task = bpf_get_current_task_btf();
        struct request_cpu_run *run;
        struct service *s;
        struct pending_responses *a;
        struct thread *t;
        __u32 zero = 0, before;
        __u64 book;

        /* First what costs least: most who read are not watched */
        a = bpf_map_lookup_elem(&answers, &zero);
        if (!a || !a->watched)
                return 0;
        t = thread_of(task);
        if (!t || !contention_cpu_get(*(volatile __u64*) &t->word, cpus))
                return 0; /* it is not watched, or not any more */
        s = bpf_task_storage_get(&services, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
        if (!s)
                return 0;
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
        /* Taken off the CPU in between: what is noted is neither of before nor of now */
        if (before % 2 != 0 || *(volatile __u32*) &t->writes != before) {
                if (run)
                        run->since = 0;
                return 0;
        }
        request_cpu_note(s, at);
        return 0;
}
