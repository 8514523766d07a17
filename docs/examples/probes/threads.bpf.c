/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Threads of the unit, by state, as seen once a second: the rate is their average number. */

#include <qosd/qosd-probe.h>

QOSD_COUNTER(seen);

struct task_struct {
        unsigned int __state;
} __attribute__((preserve_access_index));

SEC("iter/task")
int on_thread(unsigned long long *ctx) {
        struct task_struct *task = (void*) ctx[1];
        struct qosd_labels labels = {};
        struct qosd_unit unit;

        if (!task || !qosd_unit_of_task(task, &unit))
                return 0;
        qosd_label_number(&labels, 0, task->__state & 0x7f);
        qosd_count_by(&seen, &unit, 1, &labels);
        return 0;
}

char LICENSE[] SEC("license") = "GPL";
