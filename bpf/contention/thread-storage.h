/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

/* Task storage of threads observed with the probe "cpu". Written by its programs, read by those of
 * "requests" and "storage" for the states of a thread during a request or a call. Maps are weak, as in
 * maps.h. */

#include "contention-maps.h"
#include "wakeup.h"

/* A thread of a unit (TASK_STORAGE). */
struct thread {
        __u64 word;             /* THREAD_*, in contention-map.h */
        __u64 since;            /* CLOCK_MONOTONIC ns of entering the state */
        __u64 served;           /* serving clock at that time */
        __u64 quota_nsec;       /* throttled time of its run queue when it became runnable */
        const void *queue;      /* that run queue; quota_nsec is invalid for another one */
        __u64 run_delay;        /* kernel's total of its time on run queues, when it was descheduled */
        __u32 cpu;              /* last CPU + 1; 0: unknown */
        __u64 woke;             /* futex address of its last FUTEX_WAKE */
        __u32 waiter;           /* PID of the last thread to wait for its lock, see lock-holder.h */
        __u32 waiter_next;      /* PID of the one before this thread, at the same holder */
        __u32 holder;           /* PID of that holder; 0: unknown, or not needed */
        __u32 waited;           /* state of its last wait, for restart_syscall(2) */
        __u32 writes;           /* sequence count of times and since, odd while being written */
        __u32 turn;             /* run to be measured next (overhead.h) */
        __u32 never;            /* 0, see overhead_begin_sample() */
        __u64 times[QOS_STATES]; /* ns in states left, and in QOS_STATE_BLOCKED_BY_REQUESTS */
        __u64 counters[QOS_THREAD_COUNTERS];
        __u64 row;              /* entry of its wait target, from 1, and the generation in the upper half; 0:
                                 * none */
        __u64 futex;            /* address of the futex it waits on; 0: none */
        const void *lock;       /* kernel lock that it is about to block on; NULL: none */
        __u64 lock_id;          /* id of the wait target of lock_known; 0: unknown */
        const void *lock_known; /* last kernel lock and the system call that took it: valid even after its
                                 * release */
        int lock_call;
        __u32 lock_kind;        /* QOS_RESOURCE_KERNEL_* of lock_known */
        __u32 lock_device;      /* file system of lock_known, kernel encoding; 0: unknown */
        __u32 locked;           /* 1: blocked on a kernel lock */
        /* Cache of the last wait target, as threads mostly wait for the same one again */
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
        struct wakeup wakeup;   /* last wakeup, see wakeup.h */
        struct intent_park park;
};

BPF_STORAGE_MAP(threads, TASK, struct thread) __weak;

/* Returns NULL if the thread is unknown. Most tasks have no storage at all: checking that here saves a
 * helper call. */
static __always_inline struct thread* thread_of(struct task_struct *task) {
        return task->bpf_storage ? bpf_task_storage_get(&threads, task, 0, 0) : NULL;
}
