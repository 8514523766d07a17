/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Programs that processes of the unit execute, also those that end before any tool would see them. */

#include <qosd/qosd-probe.h>

QOSD_COUNTER(programs);

SEC("tp_btf/sched_process_exec")
int on_exec(unsigned long long *ctx) {
        struct qosd_unit unit;

        if (qosd_unit_of_current(&unit))
                qosd_count(&programs, &unit, 1);
        return 0;
}

char LICENSE[] SEC("license") = "GPL";
