/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Processes that the kernel kills for want of memory, the unit's or the machine's. The tracepoint has the
 * process since Linux 6.10. */

#include <qosd/qosd-probe.h>

QOSD_COUNTER(kills);

SEC("tp_btf/mark_victim")
int on_kill(unsigned long long *ctx) {
        struct qosd_unit unit;

        if (qosd_unit_of_task((struct task_struct*) ctx[0], &unit))
                qosd_count(&kills, &unit, 1);
        return 0;
}

char LICENSE[] SEC("license") = "GPL";
