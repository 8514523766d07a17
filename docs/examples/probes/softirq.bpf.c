/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Time that threads of the unit lose to soft interrupts, by kind: those run on top of whatever thread has the
 * CPU, and are seldom the work of its unit. */

#include <qosd/qosd-probe.h>

QOSD_HISTOGRAM(time);

/* When the soft interrupt of this CPU began, 0: none. */
struct {
        __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
        __uint(max_entries, 1);
        __type(key, unsigned int);
        __type(value, unsigned long long);
} began SEC(".maps");

SEC("tp_btf/softirq_entry")
int on_entry(unsigned long long *ctx) {
        unsigned int zero = 0;
        unsigned long long *begin = bpf_map_lookup_elem(&began, &zero);

        if (begin)
                *begin = bpf_ktime_get_ns();
        return 0;
}

SEC("tp_btf/softirq_exit")
int on_exit(unsigned long long *ctx) {
        struct qosd_labels labels = {};
        unsigned int zero = 0;
        unsigned long long *begin = bpf_map_lookup_elem(&began, &zero);
        struct qosd_unit unit;

        if (!begin || *begin == 0)
                return 0;
        if (qosd_unit_of_current(&unit)) {
                qosd_label_number(&labels, 0, (unsigned int) ctx[0]);
                qosd_observe_by(&time, &unit, bpf_ktime_get_ns() - *begin, &labels);
        }
        *begin = 0;
        return 0;
}

char LICENSE[] SEC("license") = "GPL";
