/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Time that threads of the unit wait for a CPU after they were woken. */

#include <qosd/qosd-probe.h>

struct task_struct {
        int pid;
} __attribute__((preserve_access_index));

/* When a thread was woken, ns */
struct {
        __uint(type, BPF_MAP_TYPE_TASK_STORAGE);
        __uint(map_flags, BPF_F_NO_PREALLOC);
        __type(key, int);
        __type(value, __u64);
} woken SEC(".maps");

QOSD_HISTOGRAM(wait);

SEC("tp_btf/sched_wakeup")
int on_wakeup(unsigned long long *ctx) {
        struct task_struct *task = (void*) ctx[0];
        struct qosd_unit unit;
        __u64 *at;

        if (!qosd_unit_of_task(task, &unit))
                return 0;
        at = bpf_task_storage_get(&woken, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
        if (at)
                *at = bpf_ktime_get_ns();
        return 0;
}

SEC("tp_btf/sched_switch")
int on_switch(unsigned long long *ctx) {
        struct task_struct *next = (void*) ctx[2];
        struct qosd_unit unit;
        __u64 *at;

        at = bpf_task_storage_get(&woken, next, 0, 0);
        if (!at || *at == 0)
                return 0;
        if (qosd_unit_of_task(next, &unit))
                qosd_observe(&wait, &unit, bpf_ktime_get_ns() - *at);
        *at = 0;
        return 0;
}

char LICENSE[] SEC("license") = "GPL";
