/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Timers of the kernel that threads of the unit start, by the function that they call when they expire. */

#include <qosd/qosd-probe.h>

QOSD_COUNTER(timers);
QOSD_COUNTER(precise);

struct timer_list {
        void *function;
} __attribute__((preserve_access_index));

struct hrtimer {
        void *function;
} __attribute__((preserve_access_index));

SEC("tp_btf/timer_start")
int on_timer(unsigned long long *ctx) {
        struct timer_list *timer = (void*) ctx[0];
        struct qosd_labels labels = {};
        struct qosd_unit unit;

        if (!qosd_unit_of_current(&unit))
                return 0;
        qosd_label_symbol(&labels, 0, timer->function);
        qosd_count_by(&timers, &unit, 1, &labels);
        return 0;
}

SEC("tp_btf/hrtimer_start")
int on_hrtimer(unsigned long long *ctx) {
        struct hrtimer *timer = (void*) ctx[0];
        struct qosd_labels labels = {};
        struct qosd_unit unit;

        if (!qosd_unit_of_current(&unit))
                return 0;
        qosd_label_symbol(&labels, 0, timer->function);
        qosd_count_by(&precise, &unit, 1, &labels);
        return 0;
}

char LICENSE[] SEC("license") = "GPL";
