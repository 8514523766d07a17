/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Packets to sockets of the unit that the kernel drops, by reason. Since Linux 6.11 the kernel says which
 * socket it was. */

#include <qosd/qosd-probe.h>

QOSD_COUNTER(packets);

SEC("tp_btf/kfree_skb")
int on_drop(unsigned long long *ctx) {
        struct sock *sk = (void*) ctx[3];
        struct qosd_labels labels = {};
        struct qosd_unit unit;

        if (!sk || !qosd_unit_of_socket(sk, &unit))
                return 0;
        qosd_label_number(&labels, 0, (unsigned int) ctx[2]);
        qosd_count_by(&packets, &unit, 1, &labels);
        return 0;
}

char LICENSE[] SEC("license") = "GPL";
