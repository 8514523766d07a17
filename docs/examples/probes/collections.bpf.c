/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Garbage collections of programs in Python, by generation: a static probe (USDT) of the interpreter. */

#include <linux/ptrace.h>
#include <qosd/qosd-probe.h>
#include <bpf/bpf_tracing.h>
#include <bpf/usdt.bpf.h>

QOSD_COUNTER(collections);

SEC("usdt")
int on_collection(struct pt_regs *ctx) {
        struct qosd_labels labels = {};
        struct qosd_unit unit;
        long generation = 0;

        if (!qosd_unit_of_current(&unit) || bpf_usdt_arg(ctx, 0, &generation) < 0)
                return 0;
        qosd_label_number(&labels, 0, (unsigned int) generation);
        qosd_count_by(&collections, &unit, 1, &labels);
        return 0;
}

char LICENSE[] SEC("license") = "GPL";
