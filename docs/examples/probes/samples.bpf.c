/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Time that the unit uses CPUs, sampled 99 times a second on each. */

#include <qosd/qosd-probe.h>

QOSD_COUNTER(samples);

SEC("perf_event")
int on_clock(void *ctx) {
        struct qosd_labels labels = {};
        struct qosd_unit unit;

        if (!qosd_unit_of_current(&unit))
                return 0;
        qosd_label_number(&labels, 0, bpf_get_smp_processor_id());
        qosd_count_by(&samples, &unit, 1, &labels);
        return 0;
}

char LICENSE[] SEC("license") = "GPL";
