/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Packets that threads of the unit hand over for sending, by network interface. */

#include <qosd/qosd-probe.h>

QOSD_COUNTER(packets);

struct sk_buff {
        struct net_device *dev;
} __attribute__((preserve_access_index));

SEC("tp_btf/net_dev_queue")
int on_packet(unsigned long long *ctx) {
        struct sk_buff *packet = (void*) ctx[0];
        struct qosd_labels labels = {};
        struct qosd_unit unit;

        if (!qosd_unit_of_current(&unit))
                return 0;
        qosd_label_interface(&labels, 0, packet->dev);
        qosd_count_by(&packets, &unit, 1, &labels);
        return 0;
}

char LICENSE[] SEC("license") = "GPL";
