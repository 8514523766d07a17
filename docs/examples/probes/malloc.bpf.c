/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Calls of malloc() by the size that is requested. */

#include <linux/ptrace.h>
#include <qosd/qosd-probe.h>
#include <bpf/bpf_tracing.h>

QOSD_COUNTER(calls);
QOSD_COUNTER(bytes);

SEC("uprobe")
int on_malloc(struct pt_regs *ctx) {
        __u64 size = PT_REGS_PARM1(ctx);
        struct qosd_labels labels = {};
        struct qosd_unit unit;

        if (!qosd_unit_of_current(&unit))
                return 0;
        qosd_label_number(&labels, 0, size < 128 ? 0 : size < 128 * 1024 ? 1 : 2);
        qosd_count_by(&calls, &unit, 1, &labels);
        qosd_count(&bytes, &unit, size);
        return 0;
}

char LICENSE[] SEC("license") = "GPL";
