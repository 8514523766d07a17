/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Calls of bind() that fail, by error: EADDRINUSE if another process has the port. While it is loaded, all
 * system calls of the machine take a little longer. */

#include <asm/unistd.h>
#include <qosd/qosd-probe.h>

/* As the kernel has it. */
struct pt_regs___qosd {
        unsigned long orig_ax;
} __attribute__((preserve_access_index));

QOSD_COUNTER(failures);

SEC("tp_btf/sys_exit")
int on_return(unsigned long long *ctx) {
        struct pt_regs___qosd *registers = (void*) ctx[0];
        struct qosd_labels labels = {};
        long result = (long) ctx[1];
        struct qosd_unit unit;

        if (result >= 0 || BPF_CORE_READ(registers, orig_ax) != __NR_bind || !qosd_unit_of_current(&unit))
                return 0;
        qosd_label_number(&labels, 0, (unsigned long long) -result);
        qosd_count_by(&failures, &unit, 1, &labels);
        return 0;
}

char LICENSE[] SEC("license") = "GPL";
