// SPDX-License-Identifier: GPL-2.0-or-later

/* The probe "network": the way of segments from TCP to the driver.
 *
 *   network_queue    net_dev_queue         a segment reaches the queue of the device
 *   network_xmit     net_dev_start_xmit    the driver gets it: remembered for its acknowledgement
 *
 * TCP stores with each segment when it may leave at the earliest, in CLOCK_MONOTONIC: when it has sent it,
 * or later with pacing. Both points are measured from there. A segment that is split between them counts as
 * what it becomes, so that both have the same segments. Other packets cost some loads. */

#include "receive.bpf.h"

#define PREEMPTION_OBJECT transmit
#include "preemption.h"

char LICENSE[] SEC("license") = "GPL";

/* A name of its own, as in preemption.h. */
void* bpf_rdonly_cast___transmit(const void *object, __u32 type_id) __ksym;

/* enum skb_tstamp_type: that of TCP. */
#define SKB_CLOCK_MONOTONIC 1

/* As skb_is_tcp_pure_ack(). */
#define PURE_ACK_TRUESIZE 2

/* States of sockets that are not struct sock. */
#define STATES_WITHOUT_SOCKET (1U << TCP_NEW_SYN_RECV | 1U << TCP_TIME_WAIT)

/* The connection of a segment other than mere acknowledgements; NULL: none of a unit. A device above others
 * passes it on to these. */
static __always_inline struct flow* segment_find_flow(struct sk_buff *skb, const struct net_device *dev) {
        struct sock *sk = skb->sk;

        if (!sk || 1U << sk->__sk_common.skc_state & STATES_WITHOUT_SOCKET || !sk->sk_bpf_storage ||
            sk->sk_protocol != IPPROTO_TCP)
                return NULL;
        if (skb->truesize == PURE_ACK_TRUESIZE || dev->lower_level > 1 ||
            BPF_CORE_READ_BITFIELD(skb, tstamp_type) != SKB_CLOCK_MONOTONIC)
                return NULL;
        return bpf_sk_storage_get(&flows, sk, 0, 0);
}

/* Number of segments on the wire. */
static __always_inline __u32 segment_number(const struct sk_buff *skb) {
        const struct skb_shared_info *shared;
        __u32 n;

        shared = bpf_rdonly_cast___transmit(skb->head + skb->end,
                                            bpf_core_type_id_kernel(struct skb_shared_info));
        n = shared->gso_segs;
        return n > 1 ? n : 1;
}

static __attribute__((noinline)) int segment_record(const struct flow *f, __u64 now, __u64 from,
                                                    __u32 distribution, __u32 n) {
        struct qos_network_counts *live;
        __u64 nsec = from < now ? now - from : 0;
        __u32 generation;
        void *map;

        if (!f)
                return 0;
        map = network_map_get(&f->owner, &generation);
        live = map ? network_enter(map, now) : NULL;
        if (!live)
                return 0;
        network_samples(map, live, now, distribution, n, n * nsec);
        if (distribution == QOS_NETWORK_TRANSMITTING_IP && from > now)
                network_samples(map, live, now, QOS_NETWORK_TRANSMITTING_PACING, n, n * (from - now));
        return 0;
}

/* For the acknowledgement of a segment with data. */
static __attribute__((noinline)) int segment_remember(struct sk_buff *skb, struct flow *f, __u64 now,
                                                      __u32 weight) {
        struct sock *sk = skb ? skb->sk : NULL;
        struct sent_segment sent = { .left_at = now, .weight = weight };
        struct tcp_header header;
        const struct tcp_sock *tp;
        struct flow_path *p;
        __u64 from, at, offset;
        __u32 length, seq, kind;

        if (!sk || !f)
                return 0;
        at = (__u64) skb->head + skb->transport_header;
        offset = at - (__u64) skb->data;
        if (bpf_probe_read_kernel(&header, sizeof(header), (void*) at) < 0)
                return 0;
        length = skb->len - (__u32) offset - (header.offset >> 4) * 4;
        /* In a tunnel it is another header */
        if (length == 0 || length > skb->len || header.source != bpf_htons(sk->__sk_common.skc_num))
                return 0;
        p = BPF_STORAGE_CREATE(sk, flow_paths, sk);
        if (!p) {
                element_lost(QOS_STATISTIC_LOST_FLOW_PATHS, &f->owner);
                return 0;
        }
        seq = bpf_ntohl(header.seq);
        from = skb->tstamp;
        sent.end = seq + length;
        sent.kernel = from >= now ? 0 : now - from < ~0U ? now - from : ~0U;
        tp = bpf_rdonly_cast___transmit(sk, bpf_core_type_id_kernel(struct tcp_sock));
        kind = sent_segments_add(&p->sent, &sent, tp->total_retrans) ? QOS_STAMP_LEAVES :
                QOS_STAMP_RETRANSMITTED;
        f->awaits = kind == QOS_STAMP_LEAVES && weight != 0;
        if (stamps_are_wanted())
                segment_stamp(sk, f, (__u64) seq << 32 | sent.end, now, kind);
        return 0;
}

static __always_inline void segment_pass(struct sk_buff *skb, struct flow *f, __u32 rate,
                                         __u32 distribution) {
        __u64 begin = overhead_begin_sample(f), now;
        __u32 weight = segment_get_weight(rate, skb->tstamp);
        bool remember = rate == RATE_TRANSMITTED && (weight != 0 || stamps_are_wanted());

        if (weight == 0 && !remember)
                return;
        now = bpf_ktime_get_ns();
        if (weight != 0)
                segment_record(f, now, skb->tstamp, distribution, weight * segment_number(skb));
        if (remember)
                segment_remember(skb, f, now, weight);
        if (begin != 0)
                flow_record_overhead(skb->sk, begin);
}

SEC("tp_btf/net_dev_queue")
int BPF_PROG(network_queue, struct sk_buff *skb) {
        struct flow *f;

        preemption_disable();
        f = segment_find_flow(skb, skb->dev);
        if (f)
                segment_pass(skb, f, RATE_QUEUED, QOS_NETWORK_TRANSMITTING_IP);
        preemption_enable();
        return 0;
}

SEC("tp_btf/net_dev_start_xmit")
int BPF_PROG(network_xmit, struct sk_buff *skb, struct net_device *dev) {
        struct flow *f;

        preemption_disable();
        f = segment_find_flow(skb, dev);
        if (f)
                segment_pass(skb, f, RATE_TRANSMITTED, QOS_NETWORK_TRANSMITTING_TOTAL);
        preemption_enable();
        return 0;
}
