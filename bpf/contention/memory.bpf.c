// SPDX-License-Identifier: GPL-2.0-or-later

/* The probe "memory": memory stalls of units.
 *
 *   memory_fault, memory_fault_kernel      a page fault begins: records earlier faults of the thread
 *   memory_fork, memory_exit               a thread starts without faults; its last faults are recorded
 *   memory_find_faults                     iterator: records the latest faults, on request
 *   memory_fault_begin, memory_fault_end   duration of faults, where fentry is available
 *   memory_reclaim_*, memory_limit_*       direct reclaim, for the machine or within the limit of a
 *                                          control group
 *   memory_throttle                        a writer is throttled because of too many dirty pages
 *   memory_oom                             the OOM killer selects a process
 *
 * The kernel counts faults in task_struct. The programs record the difference since the last time, once, and
 * at the next fault at the latest. */

#include "contention-maps.h"
#include "page-fault.h"

#define PREEMPTION_OBJECT memory
#include "preemption.h"

char LICENSE[] SEC("license") = "GPL";

/* A thread of a unit (TASK_STORAGE). */
struct memory_stall {
        __u64 map_id;           /* contention map of the recorded faults; 0: none */
        __u64 loaded_at;        /* load time of the programs that recorded them */
        __u64 minor;            /* faults recorded, or from before the thread was in the unit */
        __u64 major;
        struct page_fault fault;
        __u64 reclaim_since;
        __u32 turn;             /* run to be measured next (overhead.h): there may be 100,000 faults per
                                 * second */
        __u32 never;            /* 0, see overhead_begin_sample() */
};

BPF_STORAGE_MAP(memory_stalls, TASK, struct memory_stall);

/* Returns the task storage of a thread of a unit. Faults from before the thread was known, or in the unit,
 * are not recorded, nor are those while the unit was not observed with this probe. begun: the thread is new,
 * so all its faults are known. */
static __always_inline struct memory_stall* memory_stall_get(struct task_struct *task, __u64 *ret_map_id,
                                                             bool begun) {
        struct memory_stall *s;
        __u64 map_id;

        map_id = *ret_map_id = group_find_map_id(task->cgroups->dfl_cgrp, QOS_PROBE_CONFIG_MEMORY);
        s = map_id ? BPF_STORAGE_CREATE(task, memory_stalls, task) :
            bpf_task_storage_get(&memory_stalls, task, 0, 0);
        if (!s) {
                if (map_id)
                        contention_lost(QOS_STATISTIC_LOST_MEMORY_STALLS, map_id);
                return NULL;
        }
        if (s->map_id != map_id || s->loaded_at != loaded_at) {
                s->minor = begun ? 0 : task->min_flt;
                s->major = begun ? 0 : task->maj_flt;
                s->fault.since = s->reclaim_since = 0;
                s->turn = overhead_first_sample(task->pid);
                s->map_id = map_id;
                s->loaded_at = loaded_at;
        }
        return map_id ? s : NULL;
}

static __always_inline void memory_stall_end_overhead(__u64 map_id, __u64 begin) {
        if (begin != 0)
                contention_record_overhead(map_id, begin, OVERHEAD_SAMPLE_PERIOD);
}

/* The thread and the iterator may do this concurrently: the exchanges make the sum of both right. */
static __always_inline void faults_record(struct task_struct *task) {
        __u64 map_id, begin, minor, major;
        struct qos_contention_map *c;
        struct memory_stall *s;

        s = memory_stall_get(task, &map_id, /* begun= */ false);
        if (!s)
                return;
        begin = overhead_begin_sample(s);
        minor = *(volatile unsigned long*) &task->min_flt;
        major = *(volatile unsigned long*) &task->maj_flt;
        c = minor != s->minor || major != s->major ? contention_enter(map_id, bpf_ktime_get_ns()) : NULL;
        if (c) {
                contention_count(c, QOS_MEMORY_MINOR_FAULTS,
                                 minor - __sync_lock_test_and_set(&s->minor, minor));
                contention_count(c, QOS_MEMORY_MAJOR_FAULTS,
                                 major - __sync_lock_test_and_set(&s->major, major));
        }
        memory_stall_end_overhead(map_id, begin);
}

/* A thread in user mode is neither in a fault nor in reclaim. If one is recorded, the program for its end
 * was skipped. */
SEC("tp_btf/page_fault_user")
int BPF_PROG(memory_fault) {
        struct task_struct *task = bpf_get_current_task_btf();
        struct memory_stall *s = bpf_task_storage_get(&memory_stalls, task, 0, 0);

        if (s)
                s->fault.since = s->reclaim_since = 0;
        faults_record(task);
        return 0;
}

SEC("tp_btf/page_fault_kernel")
int BPF_PROG(memory_fault_kernel) {
        faults_record(bpf_get_current_task_btf());
        return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(memory_fork, struct task_struct *parent, struct task_struct *child) {
        __u64 map_id;

        (void) memory_stall_get(child, &map_id, /* begun= */ true);
        return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(memory_exit, struct task_struct *task) {
        faults_record(task);
        return 0;
}

SEC("iter/task")
int memory_find_faults(struct bpf_iter__task *ctx) {
        struct task_struct *task = ctx->task;

        if (task && !task->exit_state)
                faults_record(task);
        return 0;
}

static __always_inline __u64 faults_count(const struct task_struct *task) {
        return task->min_flt + task->maj_flt;
}

SEC("fentry/handle_mm_fault")
int BPF_PROG(memory_fault_begin, struct vm_area_struct *area, unsigned long address) {
        struct task_struct *task = bpf_get_current_task_btf();
        struct memory_stall *s;
        __u64 word;

        preemption_disable();
        s = memory_stall_get(task, &word, /* begun= */ false);
        if (s)
                page_fault_begin(&s->fault, bpf_ktime_get_ns(), address, faults_count(task));
        preemption_enable();
        return 0;
}

static __always_inline void fault_end(unsigned long address, unsigned int flags, unsigned int result) {
        struct task_struct *task = bpf_get_current_task_btf();
        struct qos_contention_map *c;
        struct memory_stall *s;
        __u64 now, begin, nsec;

        s = bpf_task_storage_get(&memory_stalls, task, 0, 0);
        if (!s || s->fault.since == 0)
                return;
        begin = overhead_begin_sample(s);
        now = bpf_ktime_get_ns();
        nsec = page_fault_end(&s->fault, now, address, faults_count(task));
        c = nsec > 0 ? contention_enter(s->map_id, now) : NULL;
        if (c)
                contention_sum_add(c, result & VM_FAULT_MAJOR ||
                                   flags & FAULT_FLAG_TRIED ? QOS_MEMORY_MAJOR_NSEC : QOS_MEMORY_MINOR_NSEC,
                                   nsec);
        memory_stall_end_overhead(s->map_id, begin);
}

SEC("fexit/handle_mm_fault")
int BPF_PROG(memory_fault_end, struct vm_area_struct *area, unsigned long address, unsigned int flags,
             void *regs, unsigned int result) {
        preemption_disable();
        fault_end(address, flags, result);
        preemption_enable();
        return 0;
}

static __always_inline void reclaim_begin(void) {
        struct memory_stall *s;
        __u64 map_id;

        s = memory_stall_get(bpf_get_current_task_btf(), &map_id, /* begun= */ false);
        if (s)
                s->reclaim_since = bpf_ktime_get_ns();
}

static __always_inline void reclaim_end(void) {
        struct qos_contention_map *c;
        struct memory_stall *s;
        __u64 now;

        s = bpf_task_storage_get(&memory_stalls, bpf_get_current_task_btf(), 0, 0);
        if (!s || s->reclaim_since == 0)
                return;
        now = bpf_ktime_get_ns();
        c = contention_enter(s->map_id, now);
        if (c) {
                contention_count(c, QOS_MEMORY_RECLAIMS, 1);
                contention_sum_add(c, QOS_MEMORY_RECLAIM_NSEC, now - s->reclaim_since);
        }
        s->reclaim_since = 0;
        contention_record_overhead(s->map_id, now, 1);
}

SEC("tp_btf/mm_vmscan_direct_reclaim_begin")
int BPF_PROG(memory_reclaim_begin) {
        preemption_disable();
        reclaim_begin();
        preemption_enable();
        return 0;
}

SEC("tp_btf/mm_vmscan_direct_reclaim_end")
int BPF_PROG(memory_reclaim_end) {
        preemption_disable();
        reclaim_end();
        preemption_enable();
        return 0;
}

SEC("tp_btf/mm_vmscan_memcg_reclaim_begin")
int BPF_PROG(memory_limit_begin) {
        preemption_disable();
        reclaim_begin();
        preemption_enable();
        return 0;
}

SEC("tp_btf/mm_vmscan_memcg_reclaim_end")
int BPF_PROG(memory_limit_end) {
        preemption_disable();
        reclaim_end();
        preemption_enable();
        return 0;
}

/* Index of the tracepoint's argument "pause": the time to sleep in jiffies, not positive if the thread does
 * not sleep. */
#define PAUSE_ARGUMENT 6
#define PAUSE_ARGUMENT_BEFORE 10

SEC("tp_btf/balance_dirty_pages")
int memory_throttle(__u64 *ctx) {
        struct task_struct *task = bpf_get_current_task_btf();
        struct qos_contention_map *c;
        __u64 map_id, now;
        long pause;

        map_id = group_find_map_id(task->cgroups->dfl_cgrp, QOS_PROBE_CONFIG_MEMORY);
        if (!map_id)
                return 0;
        /* The verifier accepts only the access that matches the kernel. The barriers keep the compiler from
         * merging both into one with a variable offset */
        if (bpf_core_field_exists(struct trace_event_raw_balance_dirty_pages, wb_setpoint)) {
                pause = (long) ctx[PAUSE_ARGUMENT];
                __asm__ volatile("" : "+r"(pause) : "i"(PAUSE_ARGUMENT));
        } else {
                pause = (long) ctx[PAUSE_ARGUMENT_BEFORE];
                __asm__ volatile("" : "+r"(pause) : "i"(PAUSE_ARGUMENT_BEFORE));
        }
        if (pause <= 0)
                return 0;
        now = bpf_ktime_get_ns();
        c = contention_enter(map_id, now);
        if (c) {
                contention_count(c, QOS_MEMORY_THROTTLES, 1);
                contention_sum_add(c, QOS_MEMORY_THROTTLE_NSEC, pause * tick_nsec);
        }
        contention_record_overhead(map_id, now, 1);
        return 0;
}

/* Before Linux 6.8 the argument is not the task, and the program does not load. */
SEC("tp_btf/mark_victim")
int BPF_PROG(memory_oom, struct task_struct *task) {
        struct qos_contention_map *c;
        __u64 map_id;

        map_id = group_find_map_id(task->cgroups->dfl_cgrp, QOS_PROBE_CONFIG_MEMORY);
        c = map_id ? contention_enter(map_id, bpf_ktime_get_ns()) : NULL;
        if (c)
                contention_count(c, QOS_MEMORY_OOM_KILLS, 1);
        return 0;
}
