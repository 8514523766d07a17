/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* System calls, by name. */

#include <qosd/qosd-probe.h>

QOSD_COUNTER(calls);

SEC("raw_tp/sys_enter")
int on_call(struct bpf_raw_tracepoint_args *ctx) {
        struct qosd_labels labels = {};
        struct qosd_unit unit;

        if (!qosd_unit_of_current(&unit))
                return 0;
        qosd_label_number(&labels, 0, ctx->args[1]);
        qosd_count_by(&calls, &unit, 1, &labels);
        return 0;
}

char LICENSE[] SEC("license") = "GPL";
