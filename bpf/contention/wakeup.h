/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* Decides whether the waker provided what the thread was waiting for. This depends on the system call of the
 * waker, as interrupts wake threads from the context of any task. Compiled for BPF and, for the unit tests,
 * for user space.
 *
 * A thread can be woken as soon as it has set its task state, but is descheduled only later: sched_waking on
 * another CPU may precede or race with the sched_switch of that wait, when the reason of the wait is not
 * known yet. Therefore sched_waking stores properties of the waker, which are compared with the wait at its
 * end. */

#include <stdbool.h>

#include "syscalls.h"

/* Waits that the system call of the waker may end. */
#define WAKEUP_FUTEX 1U
#define WAKEUP_FILE_LOCK 2U
#define WAKEUP_PIPE 4U
#define WAKEUP_POLL 8U          /* signals are used as notifications, mostly through a signalfd */
#define WAKEUP_CALLS (WAKEUP_FUTEX|WAKEUP_FILE_LOCK|WAKEUP_PIPE|WAKEUP_POLL)
#define WAKEUP_TASK 16U         /* the waker is known, in whatever system call */
#define WAKEUP_BY_REQUEST 32U   /* the waker was processing a request */

struct wakeup {
        __u64 futex;            /* address passed by the waker, in the same process; 0: other process, where
                                 * the mapping may differ */
        __u32 what;             /* WAKEUP_*; 0: no waker */
        __u32 _padding;
        __u64 request_at;       /* WAKEUP_BY_REQUEST: when the waker had read it */
};

/* Waits that system call n may end. */
static inline __attribute__((always_inline)) __u32 wakeup_call(__u64 n) {
        __u32 kind;

        if (n >= SYSCALLS_MAX)
                return 0;
        BPF_BOUND(n, SYSCALLS_MAX);
        kind = syscall_table[n];
        if (kind == SYSCALL_FUTEX)
                return WAKEUP_FUTEX;
        if (kind == SYSCALL_SIGNAL)
                return WAKEUP_POLL;
        if (kind == SYSCALL_FILE || kind == SYSCALL_SPLICE)
                return WAKEUP_PIPE;
        if (n == __NR_close)
                return WAKEUP_PIPE|WAKEUP_FILE_LOCK;
        return n == __NR_flock || n == __NR_fcntl ? WAKEUP_FILE_LOCK : 0;
}

/* Wakeups that may end a wait in this state. A running thread may be about to wait for anything. */
static inline __attribute__((always_inline)) __u32 wakeup_expected(__u64 state) {
        switch (state) {

        case QOS_STATE_RUNNING:
                return WAKEUP_CALLS;

        case QOS_STATE_LOCK:
        case QOS_STATE_PARK:
                return WAKEUP_FUTEX|WAKEUP_FILE_LOCK;

        case QOS_STATE_PIPE:
                return WAKEUP_PIPE;

        case QOS_STATE_POLL:
                return WAKEUP_POLL;

        default:
                return 0;
        }
}

/* Whether the waker released what the thread was waiting for: a lock that it held, or data through the other
 * end of a pipe.
 *  state   of the wait
 *  futex   its address; 0: not a futex
 *  row     whether the wait has a wait target
 *  locked  whether it is a kernel lock, which is always released by its holder, even a kernel thread */
static inline __attribute__((always_inline)) bool wakeup_is_end(const struct wakeup *w, __u64 state,
                                                                __u64 futex, bool row, bool locked) {
        __u32 what = w->what & wakeup_expected(state);

        if (locked)
                return row && w->what & WAKEUP_TASK;
        if (futex)
                return what & WAKEUP_FUTEX && (w->futex == 0 || w->futex == futex);
        return what & ~WAKEUP_FUTEX && (row || state == QOS_STATE_POLL);
}
