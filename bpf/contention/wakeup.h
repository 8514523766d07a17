/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* Whether a wakeup ends a wait so that the waker is the one that was waited for. That is told by the system
 * call of the waker, as an interrupt wakes threads, too, on top of whatever task runs. Compiled for BPF and,
 * for the unit tests, for user space.
 *
 * A thread may be woken from the moment on at which it has told the kernel that it waits. It leaves the CPU
 * after that: sched_waking on another CPU may come before the sched_switch of the same wait, or at the same
 * time, and then it is not known what the thread waits for. Therefore what is known of the waker is only
 * kept by sched_waking, and compared with the wait when the wait has ended. */

#include <stdbool.h>

#include "syscalls.h"

/* What waits the system call of the waker may end. */
#define WAKEUP_FUTEX 1U
#define WAKEUP_FILE_LOCK 2U
#define WAKEUP_PIPE 4U
#define WAKEUP_POLL 8U          /* processes tell one another by signals that what they wait for is there,
                                 * through a signalfd mostly */
#define WAKEUP_CALLS (WAKEUP_FUTEX|WAKEUP_FILE_LOCK|WAKEUP_PIPE|WAKEUP_POLL)
#define WAKEUP_TASK 16U         /* the waker is known, whatever it does */
#define WAKEUP_BY_REQUEST 32U         /* … and is in the midst of a request: it has read it, and not
                                       * answered */

struct wakeup {
        __u64 futex;            /* the address that the waker gave, in the same process; 0: in another one it
                                 * may lie elsewhere */
        __u32 what;             /* WAKEUP_*; 0: nobody is known */
        __u32 _padding;
};

/* What the call with this number ends. */
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

/* What may end the wait of a thread that is in this state. One that is about to wait runs, and may wait for
 * anything. */
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

/* A wait for a lock is ended by a thread that has held it, one for a pipe by a thread at its other end.
 * state: of the wait; futex: its address, 0: it is none; row: it has one; locked: it is for a lock of the
 * kernel, which only its holder ends, also if that is a thread of the kernel. */
static inline __attribute__((always_inline)) bool wakeup_ends(const struct wakeup *w, __u64 state,
                                                              __u64 futex, bool row, bool locked) {
        __u32 what = w->what & wakeup_expected(state);

        if (locked)
                return row && w->what & WAKEUP_TASK;
        if (futex)
                return what & WAKEUP_FUTEX && (w->futex == 0 || w->futex == futex);
        return what & ~WAKEUP_FUTEX && (row || state == QOS_STATE_POLL);
}
