/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Calls of fallocate(), at the begin and at the end of a function of the kernel. */

#include <qosd/qosd-probe.h>

QOSD_COUNTER(calls);
QOSD_COUNTER(bytes);
QOSD_COUNTER(results);

SEC("fentry/vfs_fallocate")
int on_begin(unsigned long long *ctx) {
        struct qosd_unit unit;

        if (!qosd_unit_of_current(&unit))
                return 0;
        qosd_count(&calls, &unit, 1);
        qosd_count(&bytes, &unit, ctx[3]);
        return 0;
}

SEC("fexit/vfs_fallocate")
int on_end(unsigned long long *ctx) {
        struct qosd_labels labels = {};
        struct qosd_unit unit;

        if (!qosd_unit_of_current(&unit))
                return 0;
        qosd_label_number(&labels, 0, (unsigned int) ctx[4]);
        qosd_count_by(&results, &unit, 1, &labels);
        return 0;
}

char LICENSE[] SEC("license") = "GPL";
