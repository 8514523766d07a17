/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

/* Packets that the kernel discards, by the unit whose TCP socket they are of. To be included by the object
 * that has the network maps. */

#include "drops.h"

/* Reasons that are not counted, as nothing is lost (bitmap), and whether the tracepoint has the socket that
 * a packet has arrived for. The daemon finds both in the kernel's types. */
const volatile __u64 drops_not_lost[QOS_DROP_REASONS / 64];
const volatile bool drops_have_receiver;

BPF_ARRAY_MAP(drop_reasons, ARRAY, 1, struct qos_drop_reasons);

static __always_inline bool drop_is_loss(__u32 reason) {
        __u32 word = reason / 64;

        if (word >= QOS_DROP_REASONS / 64)
                return true;
        BPF_BOUND(word, QOS_DROP_REASONS / 64);
        return !(drops_not_lost[word] >> reason % 64 & 1);
}

static __attribute__((noinline)) int drop_record(struct sock *sk, __u32 reason) {
        struct qos_network_counts *live;
        struct qos_drop_reasons *rows;
        struct qos_owner owner;
        __u32 generation, zero = 0;
        struct conn *c;
        __u64 begin;
        void *map;

        /* The others are no whole sockets */
        if (!sk || sk->__sk_common.skc_state == TCP_NEW_SYN_RECV ||
            sk->__sk_common.skc_state == TCP_TIME_WAIT || !sk->sk_bpf_storage)
                return 0;
        begin = bpf_ktime_get_ns();
        c = bpf_sk_storage_get(&conns, sk, 0, 0);
        rows = bpf_map_lookup_elem(&drop_reasons, &zero);
        if (!c || !rows)
                return 0;
        owner = owner_read(&c->owner);
        map = network_map_get(&owner, &generation);
        live = map ? network_enter(map, begin) : NULL;
        if (!live)
                return 0;
        network_add(live, QOS_NETWORK_DROPS + drop_get_row(rows, reason), 1);
        network_add(live, QOS_NETWORK_COST, overhead_nsec(begin, bpf_ktime_get_ns()));
        return 0;
}

/* With a receiver of NULL, which some kernels take for impossible: it is looked at as a number first. */
SEC("tp_btf/kfree_skb")
int network_drop(__u64 *ctx) {
        __u32 reason = (__u32) ctx[2];
        __u64 receiver = 0;

        if (!drop_is_loss(reason))
                return 0;
        if (drops_have_receiver)
                (void) bpf_probe_read_kernel(&receiver, sizeof(receiver), ctx + 3);
        preemption_disable();
        if (receiver != 0)
                drop_record((struct sock*) ctx[3], reason);
        else
                drop_record(((struct sk_buff*) ctx[0])->sk, reason);
        preemption_enable();
        return 0;
}
