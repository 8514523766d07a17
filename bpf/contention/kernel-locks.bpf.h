/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

/* Kernel locks that threads block on: their kind, and their symbol or caller. Part of cpu.bpf.c. */

#include "contention-maps.h"
#include "kernel-locks.h"
#include "syscalls.h"
#include "thread.h"
#include "wait-reason.h"

/* Flag of the tracepoint: a spinning lock, the thread keeps running. */
#define LCB_F_SPIN 1U

/* Depth of the stack trace: the lock implementation, then its caller. */
#define LOCK_FRAMES 16

#define LOCK_NAME_SIZE 64

struct lock_scratch {
        __u64 frames[LOCK_FRAMES];
        char name[LOCK_NAME_SIZE];
};

BPF_ARRAY_MAP(lock_scratch, PERCPU_ARRAY, 1, struct lock_scratch);

/* Return addresses, 1 if the function belongs to a lock implementation (lock_function()). Resolving a symbol
 * takes a microsecond, and there are some hundred callers; those that do not fit are resolved each time. */
struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __uint(max_entries, 1024);
        __type(key, __u64);
        __type(value, __u32);
} lock_places SEC(".maps");

/* Global locks have a symbol. Other locks, one per inode, socket or address space, are identified by their
 * caller. */
__attribute__((noinline, weak)) int lock_has_name(struct lock_scratch *s, __u64 lock) {
        if (!s)
                return 0;
        return BPF_SNPRINTF(s->name, sizeof(s->name), "%ps", (void*) lock) > 0 && s->name[0] != '0';
}

__attribute__((noinline, weak)) int lock_is_place(struct lock_scratch *s, __u64 place) {
        __u32 *known, function;

        if (!s)
                return 0;
        known = bpf_map_lookup_elem(&lock_places, &place);
        if (known)
                return !*known;
        if (BPF_SNPRINTF(s->name, sizeof(s->name), "%ps", (void*) place) < 0)
                return 0;
        function = lock_function((const struct lock_name*) s->name);
        if (bpf_map_update_elem(&lock_places, &place, &function, BPF_ANY) < 0)
                statistics_count(QOS_STATISTIC_LOST_LOCK_PLACES);
        return !function;
}

/* Device of the file system, if the lock is the semaphore of an inode, as the lock of a directory; 0: it is
 * not. No other lock is surrounded by what looks like an inode with a super block that leads to a root, and
 * back. */
static __always_inline __u32 lock_device(const void *lock) {
        const struct inode *inode = lock - bpf_core_field_offset(struct inode, i_rwsem);
        const struct super_block *sb = BPF_CORE_READ(inode, i_sb);

        return sb && BPF_CORE_READ(sb, s_root, d_sb) == sb ? BPF_CORE_READ(sb, s_dev) : 0;
}

/* Runs in the context of the blocking task. */
SEC("tp_btf/contention_begin")
int BPF_PROG(cpu_lock, void *lock, unsigned int flags) {
        struct task_struct *task = bpf_get_current_task_btf();
        struct lock_scratch *s;
        struct thread *t;
        struct call call;
        __u32 zero = 0;
        long n;

        if (flags & LCB_F_SPIN)
                return 0;
        t = thread_of(task);
        if (!t || !(*(volatile __u64*) &t->word & THREAD_STATE) || t->lock == lock)
                return 0;
        t->lock = lock;
        /* Threads mostly block on the same lock in the same system call again: this saves a stack trace,
         * which takes microseconds */
        call_read(task, &call);
        if (t->lock_known == lock && t->lock_call == call.number && t->lock_id)
                return 0;
        t->lock_known = lock;
        t->lock_call = call.number;
        t->lock_id = t->lock_device = 0;
        s = bpf_map_lookup_elem(&lock_scratch, &zero);
        if (!s)
                return 0;
        if (lock_has_name(s, (__u64) lock)) {
                t->lock_kind = QOS_RESOURCE_KERNEL_LOCK;
                t->lock_id = (__u64) lock;
                return 0;
        }
        n = bpf_get_stack(ctx, s->frames, sizeof(s->frames), 0);
        for (int i = 0; i < LOCK_FRAMES; i++) {
                if (n < (long) ((i + 1) * sizeof(s->frames[0])))
                        break;
                if (!lock_is_place(s, s->frames[i]))
                        continue;
                t->lock_kind = QOS_RESOURCE_KERNEL_CALL;
                t->lock_id = s->frames[i];
                t->lock_device = lock_device(lock);
                break;
        }
        return 0;
}

SEC("tp_btf/contention_end")
int BPF_PROG(cpu_unlock, void *lock, int result) {
        struct thread *t = thread_of(bpf_get_current_task_btf());

        if (t && t->lock == lock)
                t->lock = NULL;
        return 0;
}

/* A thread is about to block on a kernel lock, mostly uninterruptibly. If the sleep is interruptible,
 * contention_end of an earlier lock may have been missed: then the wait is classified by the system call. */
static __always_inline void lock_describe(struct thread *t, __u32 state, struct wait *w) {
        if (!(state & (TASK_UNINTERRUPTIBLE | TASK_RTLOCK_WAIT)))
                t->lock = NULL;
        else if (t->lock_id)
                *w = (struct wait) {
                        .lock = t->lock_id,
                        .lock_kind = t->lock_kind,
                        .lock_device = t->lock_device,
                };
}
