/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

/* PIDs in the namespace of qosd. Maps are weak, as in maps.h. */

#include "contention-maps.h"

BPF_ARRAY_MAP(inspect_requests, ARRAY, 1, struct qos_inspect_request) __weak;

/* MAX_PID_NS_LEVEL of the kernel. */
#define PID_LEVEL_MAX 32

/* PID of a task in the namespace of qosd; 0: not visible there. */
static __always_inline __u32 own_number(struct task_struct *task) {
        struct qos_inspect_request *request;
        __u32 zero = 0, level;
        void *numbers = NULL;
        struct pid *pid;
        __u32 nr = 0;

        request = bpf_map_lookup_elem(&inspect_requests, &zero);
        pid = BPF_CORE_READ(task, thread_pid);
        if (!request || !pid)
                return 0;
        level = request->level;
        if (level > PID_LEVEL_MAX || level > BPF_CORE_READ(pid, level))
                return 0;
        bpf_core_read(&numbers, sizeof(numbers), &pid->numbers[level].ns);
        if ((__u64) numbers != request->numbers)
                return 0;
        bpf_core_read(&nr, sizeof(nr), &pid->numbers[level].nr);
        return nr;
}

/* Stores the PID namespace of qosd: iterators run in its context. */
static __always_inline void inquiry_note_self(struct qos_inspect_request *request) {
        struct pid *pid = BPF_CORE_READ(bpf_get_current_task_btf(), thread_pid);
        void *numbers = NULL;
        __u32 level;

        if (!pid)
                return;
        level = BPF_CORE_READ(pid, level);
        if (level > PID_LEVEL_MAX)
                return;
        bpf_core_read(&numbers, sizeof(numbers), &pid->numbers[level].ns);
        request->numbers = (__u64) numbers;
        request->level = level;
}
