/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

/* The way of segments from the driver to the application. A segment is recorded when TCP gets it, with its
 * times before, and again when it is read: only data of established connections, in sequence. */

#include "flow-map.bpf.h"
#include "tcp-segment.bpf.h"
#include "receive-queue.h"
#include "sample-rate.h"
#include "segment-stamps.bpf.h"
#include "sent-segments.h"

/* Segments that are counted to know which are measured. */
enum {
        RATE_RECEIVED,
        RATE_QUEUED,
        RATE_TRANSMITTED,
        RATES,
};

BPF_ARRAY_MAP(segment_rates, PERCPU_ARRAY, RATES, struct sample_rate) __weak;

/* The number of segments that this one stands for; 0: it is not measured. stamp: a time of it. */
static __always_inline __u32 segment_get_weight(__u32 rate, __u64 stamp) {
        struct sample_rate *r = bpf_map_lookup_elem(&segment_rates, &rate);
        __u32 shift = r ? sample_rate_count(r, bpf_jiffies64() * tick_nsec) : 0;

        return sample_is_taken(stamp, shift) ? 1U << shift % 32 : 0;
}

/* The last segment of a unit at the IP layer of this CPU: without a backlog TCP gets it next. */
struct arrival {
        __u64 skb;              /* its address; 0: TCP has got it */
        __u64 ip_at;            /* CLOCK_MONOTONIC ns */
        __u64 came_at;          /* the same of its arrival stamp; 0: not known */
        __u64 tcp_at;           /* the same when TCP gets it */
        __u32 weight;           /* of segment_get_weight(); 0: only its acknowledgement is of interest */
        __u32 _padding;
};

BPF_ARRAY_MAP(arrivals, PERCPU_ARRAY, 1, struct arrival) __weak;

/* A segment that arrived while a process had locked the socket. */
struct delayed {
        __u32 seq;
        __u32 weight;
        __u64 ip_at;
        __u64 came_at;
};

/* A power of two. */
#define DELAYED_SEGMENTS 8U

/* A connection of a unit with the probe (SK_STORAGE). */
struct flow_path {
        struct receive_queue unread;    /* under the lock of the socket */
        __u64 next;                     /* index of the next delayed segment */
        struct delayed delayed[DELAYED_SEGMENTS];
        struct sent_segments sent;
};

BPF_STORAGE_MAP(flow_paths, SK, struct flow_path) __weak;

/* A name of its own, as in preemption.h. */
void* bpf_rdonly_cast___path(const void *object, __u32 type_id) __ksym;

/* When a segment that TCP gets from the backlog has passed the IP layer. */
static __always_inline void path_find_delayed(struct flow_path *p, __u32 seq, struct arrival *ret) {
        for (__u32 i = 0; i < DELAYED_SEGMENTS; i++) {
                struct delayed *d = p->delayed + i;

                if (d->seq != seq || d->ip_at == 0 || d->ip_at > ret->tcp_at)
                        continue;
                ret->ip_at = d->ip_at;
                ret->came_at = d->came_at;
                ret->weight = d->weight;
                d->ip_at = 0;
                return;
        }
}

static __attribute__((noinline)) int path_acknowledge(const struct flow *f, const struct sent_segment *s,
                                                      __u64 came_at, __u64 now) {
        struct qos_network_counts *live;
        __u32 generation;
        void *map;

        if (!f || !s || came_at < s->left_at)
                return 0;
        map = network_map_get(&f->owner, &generation);
        live = map ? network_enter(map, now) : NULL;
        if (!live)
                return 0;
        network_samples(map, live, now, QOS_NETWORK_RTT_KERNEL, s->weight,
                        s->weight * (s->kernel + now - came_at));
        network_samples(map, live, now, QOS_NETWORK_RTT_WIRE, s->weight,
                        s->weight * (came_at - s->left_at));
        return 0;
}

static __attribute__((noinline)) int path_record_data(struct sock *sk, const struct flow *f,
                                                      const struct arrival *arrived) {
        struct qos_network_counts *live;
        __u32 generation, n;
        __u64 now;
        void *map;

        if (!sk || !f || !arrived)
                return 0;
        now = arrived->tcp_at;
        map = network_map_get(&f->owner, &generation);
        live = map ? network_enter(map, now) : NULL;
        if (!live)
                return 0;
        n = arrived->weight;
        if (arrived->came_at == 0)
                network_add(live, QOS_NETWORK_UNSTAMPED, n);
        else
                network_samples(map, live, now, QOS_NETWORK_RECEIVING_DRIVER, n,
                                n * (arrived->ip_at - arrived->came_at));
        network_samples(map, live, now, sk->sk_lock.owned ? QOS_NETWORK_RECEIVING_BACKLOG :
                        QOS_NETWORK_RECEIVING_IP, n, n * (arrived->tcp_at - arrived->ip_at));
        return 0;
}

/* TCP gets a segment of an established connection that is measured, under the lock of the socket. */
static __attribute__((noinline)) int path_receive(struct sock *sk, struct sk_buff *skb, struct flow *f) {
        struct arrival arrived = { .tcp_at = bpf_ktime_get_ns() }, *a;
        struct sent_segment sent = {};
        const struct tcp_skb_cb *cb;
        struct unread unread;
        struct tcp_sock *tp;
        __u32 zero = 0, rcv_nxt, seq, end;
        struct flow_path *p;

        a = bpf_map_lookup_elem(&arrivals, &zero);
        if (!sk || !skb || !f || !a)
                return 0;
        cb = bpf_rdonly_cast___path(&skb->cb, bpf_core_type_id_kernel(struct tcp_skb_cb));
        tp = bpf_skc_to_tcp_sock(sk);
        p = tp ? BPF_STORAGE_CREATE(sk, flow_paths, sk) : NULL;
        if (!p) {
                element_lost(QOS_STATISTIC_LOST_FLOW_PATHS, &f->owner);
                return 0;
        }
        rcv_nxt = tp->rcv_nxt;
        seq = cb->seq;
        end = cb->end_seq - (cb->tcp_flags & TCP_FLAG_FIN);
        if (a->skb == (__u64) skb) {
                arrived.ip_at = a->ip_at;
                arrived.came_at = a->came_at;
                arrived.weight = a->weight;
                a->skb = 0;
        } else
                path_find_delayed(p, seq, &arrived);
        if (arrived.ip_at == 0)
                return 0;

        if (f->awaits) {
                if (sent_segments_take(&p->sent, cb->ack_seq, tp->total_retrans, &sent) &&
                    arrived.came_at != 0)
                        path_acknowledge(f, &sent, arrived.came_at, arrived.tcp_at);
                if (sent_segments_are_over(&p->sent, cb->ack_seq))
                        f->awaits = 0;
        }
        /* Data in sequence */
        if (seq == end || (__s32) (seq - rcv_nxt) > 0 || (__s32) (end - rcv_nxt) <= 0)
                return 0;
        if (arrived.came_at != 0 && stamps_are_wanted())
                segment_stamp(sk, f, (__u64) rcv_nxt << 32 | end, arrived.came_at, QOS_STAMP_ARRIVES);
        if (arrived.weight == 0)
                return 0;

        /* What network_read has not seen being read has no time */
        for (__u32 i = 0; i < UNREAD_ELEMENTS; i++)
                if (!receive_queue_take(&p->unread, tp->copied_seq, &unread))
                        break;
        /* The application reads from the MPTCP connection, not from this one */
        if (!(bpf_core_field_exists(tp->is_mptcp) && tp->is_mptcp))
                receive_queue_add(&p->unread, &(struct received) {
                        .rcv_nxt = rcv_nxt,
                        .end = end,
                        .tcp_at = arrived.tcp_at,
                        .came_at = arrived.came_at,
                        .weight = arrived.weight,
                });
        return path_record_data(sk, f, &arrived);
}

/* Whether the segment that TCP gets is measured, as far as is known without its connection. */
static __always_inline bool path_is_measured(const struct sock *sk, const struct sk_buff *skb) {
        const struct arrival *a;
        __u32 zero = 0;

        a = bpf_map_lookup_elem(&arrivals, &zero);
        return a && (a->skb == (__u64) skb || sk->sk_lock.owned);
}
