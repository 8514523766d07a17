// SPDX-License-Identifier: GPL-2.0-or-later

/* Holds up the threads "victim" and "reader" of turns.c when they leave the CPU to wait: after the kernel
 * has counted the switch, which is what turns.c looks at, and before the programs of qosd hear of it, until
 * another CPU has begun to wake the thread, but no longer than HELD_NSEC_MAX. Programs run in the order in
 * which they were attached. */

#include <stdbool.h>

#include <asm/unistd.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

/* turns.c looks each 100 us. Interrupts are off meanwhile. */
#define HELD_NSEC_MAX 5000000ULL
/* For the programs of qosd that run in the waker after the one below. */
#define WAKER_NSEC 100000ULL

struct task_struct {
        int pid;
        int nr_cpus_allowed;
        char comm[16];
} __attribute__((preserve_access_index));

/* Read by the test. */
struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __uint(max_entries, 1);
        __type(key, __u32);
        __type(value, __u64);
} woken_early SEC(".maps");

/* By kind the number of a thread that is held up, 0 once somebody wakes it, and the call in which each
 * is. */
static volatile int held[2];
static volatile long calls[2];

static int kind(struct task_struct *task) {
        char comm[16] = {};

        /* There may be others of these names */
        if (task->nr_cpus_allowed != 1)
                return -1;
        bpf_core_read_str(comm, sizeof(comm), &task->comm);
        if (__builtin_memcmp(comm, "victim", sizeof("victim")) == 0)
                return 0;
        if (__builtin_memcmp(comm, "reader", sizeof("reader")) == 0)
                return 1;
        return -1;
}

struct wait {
        __u64 end;
        int kind;
        bool woken;
};

static long wait(__u32 i, void *data) {
        struct wait *w = data;
        __u64 now = bpf_ktime_get_ns();


        if (!w->woken && held[w->kind & 1] == 0) {
                w->woken = true;
                w->end = now + WAKER_NSEC;
        }
        return now >= w->end;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(held_enter, struct pt_regs *regs, long number) {
        int k = kind(bpf_get_current_task_btf());

        if (k >= 0)
                calls[k & 1] = number;
        return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(held_switch, bool preempt, struct task_struct *prev, struct task_struct *next,
             unsigned int state) {
        struct wait w = { .kind = kind(prev) };
        __u32 zero = 0;
        __u64 *n;

        if (w.kind < 0 || preempt || state == 0 ||
            (calls[w.kind & 1] != __NR_futex && calls[w.kind & 1] != __NR_read))
                return 0;
        w.end = bpf_ktime_get_ns() + HELD_NSEC_MAX;
        held[w.kind & 1] = prev->pid;
        bpf_loop(1U << 20, wait, &w, 0);
        held[w.kind & 1] = 0;
        n = bpf_map_lookup_elem(&woken_early, &zero);
        if (n && w.woken)
                __sync_fetch_and_add(n, 1);
        return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(held_waking, struct task_struct *task) {
        int k = kind(task);

        if (k >= 0 && held[k & 1] == task->pid)
                held[k & 1] = 0;
        return 0;
}
