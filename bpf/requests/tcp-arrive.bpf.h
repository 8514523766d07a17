/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

/* Arriving segments */

#include "tcp-client.bpf.h"
#include "tcp-conn.bpf.h"
#include "tcp-segment.bpf.h"
#include "udp.bpf.h"

/* Data that completes the handshake (deferred accept, a lost ACK) is seen by the ingress program with the
 * listener as socket, never with the connection. It is kept here for the connection, which is created on the
 * same CPU right after. */
struct handoff {
        __u64 at;
        __u32 seq;
        __u32 end;
        __be16 client_port;
        __u16 _padding;
        __u32 _padding2;
};

BPF_ARRAY_MAP(accept_handoffs, PERCPU_ARRAY, 1, struct handoff);

/* Whether the kernel is about to drop the segment because the queue that it needs is full. sk_drops would
 * count more: all dropped segments of handshakes, such as the acknowledgement that TCP_DEFER_ACCEPT
 * ignores. */
static __always_inline bool listener_is_full(const struct tcp_sock *tp, const struct segment *segment) {
        const struct inet_connection_sock *icsk = (const struct inet_connection_sock*) tp;
        const struct sock *sk = (const struct sock*) tp;
        __u32 flags = segment->flags & (TCP_FLAG_SYN | TCP_FLAG_RST | TCP_FLAG_ACK),
                max = sk->sk_max_ack_backlog;

        if (sk->sk_ack_backlog > max) {
                if (flags == TCP_FLAG_ACK)
                        return segment->len > 0 || segment->flags & TCP_FLAG_FIN ||
                               icsk->icsk_accept_queue.rskq_defer_accept == 0;
                return flags == TCP_FLAG_SYN;
        }
        return flags == TCP_FLAG_SYN && icsk->icsk_accept_queue.qlen.counter > max &&
                bpf_core_field_exists(sk->__sk_common.skc_net.net) &&
                BPF_CORE_READ(sk, __sk_common.skc_net.net, ipv4.sysctl_tcp_syncookies) == 0;
}

/* Finds the element of a listener at which a segment arrives. The TCP socket that accepts for an MPTCP
 * listener is in no table of files: it gets the owner of the application's socket, which was found there. */
static __attribute__((noinline)) struct conn* listener_get(struct bpf_sock *sk, struct conn *c) {
        struct mptcp_sock *msk;
        struct qos_owner owner;
        struct tcp_sock *tp;
        struct qos_unit_map *u;
        struct conn *l;

        if (!sk || !bpf_core_type_exists(struct mptcp_sock))
                return c;
        msk = bpf_skc_to_mptcp_sock(sk);
        l = msk ? bpf_sk_storage_get(&conns, msk, 0, 0) : NULL;
        if (!l || l->kind != CONN_LISTENER)
                return c;
        owner = owner_read(&l->owner);
        if (c && owner_equal(&c->owner, &owner))
                return c;
        u = unit_get(&owner);
        tp = u ? bpf_skc_to_tcp_sock(sk) : NULL;
        if (!tp)
                return c;
        c = conn_learn((struct sock*) tp, CONN_LISTENER, &owner, u);
        if (c)
                c->found = l->found;
        return c;
}

static __always_inline void listener_arrive(struct bpf_sock *sk, struct conn *c,
                                            const struct segment *segment) {
        struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
        struct qos_unit_map *u;

        if (tp && listener_is_full(tp, segment)) {
                u = unit_get(&c->owner);
                if (u) {
                        window_advance(u, bpf_ktime_get_ns());
                        window_count(u, QOS_COUNTER_LISTEN_DROPS, 1);
                }
        }

        if (segment->len > 0) {
                __u32 zero = 0;
                struct handoff *h = bpf_map_lookup_elem(&accept_handoffs, &zero);

                if (!h)
                        return;
                h->at = bpf_ktime_get_ns();
                h->seq = segment->seq + !!(segment->flags & TCP_FLAG_SYN);
                h->end = h->seq + segment->len;
                h->client_port = segment->source;
        }
}

/* The segment in a packet of a connection is not readable: it is encrypted on its way out of the machine
 * (IPsec). */
static __attribute__((noinline)) int segment_count_lost(struct conn *c) {
        struct qos_unit_map *u = c ? unit_get(&c->owner) : NULL;

        statistics_count(QOS_STATISTIC_SEGMENTS_LOST);
        if (u) {
                window_advance(u, bpf_ktime_get_ns());
                window_count(u, QOS_COUNTER_DROPS, 1);
        }
        return zero();
}

/* Shift of SEGMENT_*, above the length of the segment. */
#define SEGMENT_KIND_SHIFT 28

/* Like client_receive_segment(). A separate function, for its stack. */
static __attribute__((noinline)) int server_receive_segment(struct conn *c, struct qos_unit_map *u,
                                                            __u64 segment, __u64 tcp) {
        __u32 len = segment & ((1U << SEGMENT_KIND_SHIFT) - 1), kind = (__u32) segment >> SEGMENT_KIND_SHIFT;
        const struct exchange_segment s = {
                .seq = segment >> 32,
                .end = (segment >> 32) + len,
                .rcv_nxt = tcp >> 32,
                .window_end = tcp,
        };
        struct exchange_effect effect = {};
        __u64 before, serving, now;
        struct attribution p;
        bool idle;

        if (!c || !u)
                return 0;
        /* In this order, see window_add_in_flight_at() */
        serving = *(volatile __u64*) &u->serving;
        now = bpf_ktime_get_ns();

        bpf_spin_lock(&c->lock);
        idle = c->x.open_at == 0;
        before = c->x.tail_at;
        if (kind & SEGMENT_REMARK && exchange_is_idle(&c->x))
                exchange_arrive_unsolicited(&c->x, now, &s, &effect);
        else
                exchange_arrive(&c->x, now, &s, &effect);
        if (c->x.n_marks == 1)
                exchange_note_part(&c->x, now, before, len, kind & SEGMENT_PUSHED);
        if (kind & (idle ? SEGMENT_FAREWELL : SEGMENT_LAST_FAREWELL) && effect.bytes == len)
                c->x.flags |= EXCHANGE_FAREWELL;
        p = conn_commit(c, &effect);
        bpf_spin_unlock(&c->lock);

        if (u->generation != p.owner.generation)
                serving = QOS_SERVING; /* that is the clock of another unit */
        u = effect.bytes > 0 ? attribution_resolve(u, &p) : NULL;
        if (!u)
                return 0;
        window_advance(u, now);
        record_sum(u, p.target, exchange_sum(&c->x, QOS_SUM_BYTES_IN), QOS_ENTRY_SUM_BYTES_IN, effect.bytes);
        record_effect_at(u, p.target, &effect, serving, now);
        return zero();
}

void* bpf_rdonly_cast(const void *object, __u32 type_id) __ksym;

/* Whether a packet is of an unknown TCP connection. MPTCP listeners (listener_get()) and UDP sockets may
 * become known by a packet. Sockets other than full ones do not have these fields, and are ignored in any
 * case. */
static __always_inline bool packet_is_foreign(struct bpf_sock *sk) {
        const struct sock *s = bpf_rdonly_cast(sk, bpf_core_type_id_kernel(struct sock));

        return !s->sk_bpf_storage && s->sk_protocol == IPPROTO_TCP &&
                s->__sk_common.skc_state != TCP_LISTEN;
}

static __always_inline int packet_receive(struct __sk_buff *skb, struct overhead *overhead) {
        struct segment segment;
        struct qos_unit_map *u;
        struct tcp_sock *tp;
        struct bpf_sock *sk;
        struct conn *c;
        __u32 rcv_nxt, window_end, kind;

        sk = skb->sk;
        if (!sk || packet_is_foreign(sk))
                return 1;
        sk = bpf_sk_fullsock(sk);
        if (!sk)
                return 1;
        c = bpf_sk_storage_get(&conns, sk, 0, 0);
        if (!c && sk->protocol == IPPROTO_UDP)
                udp_arrive(skb, sk, overhead);
        else if (sk->state == TCP_LISTEN)
                c = listener_get(sk, c);
        if (!c || c->kind == CONN_OTHER)
                return 1;
        if (!segment_read(skb, &segment)) {
                segment_count_lost(c);
                return 1;
        }

        if (sk->state == TCP_LISTEN) {
                listener_arrive(sk, c, &segment);
                return 1;
        }
        if (segment.len == 0)
                return 1;

        u = unit_get(&c->owner);
        if (!u)
                return 1;
        overhead_begin(overhead, &c->owner, u);
        tp = bpf_skc_to_tcp_sock(sk);
        if (!tp)
                return 1;
        kind = c->kind == CONN_CLIENT ? client_classify_response(skb, &c->x, segment.offset, segment.len) :
               CLIENT_RECEIVED_RESPONSE;
        if (kind >= CLIENT_RECEIVED_ANNOUNCEMENT) {
                client_receive_others(c, u, tp, segment.seq + segment.len, kind);
                return 1;
        }
        if (c->kind == CONN_LISTENER)
                conn_accept(c, u, tp, tp->copied_seq, bpf_ktime_get_ns());

        rcv_nxt = tp->rcv_nxt;
        window_end = tp->rcv_wup + tp->rcv_wnd;
        if (c->kind == CONN_CLIENT) {
                __u64 now = bpf_ktime_get_ns();

                kind = kind << CLIENT_RECEIVED_SHIFT | segment.len;
                if (client_receive_segment(c, u, (__u64) segment.seq << 32 | kind,
                                           (__u64) rcv_nxt << 32 | window_end, now))
                        client_find_row((struct sock*) tp, c, u, now);
                return 1;
        }

        kind = exchange_look(segment.len) > 0 ? segment_classify(skb, segment.offset, segment.len) : 0;
        if (segment.flags & TCP_FLAG_PSH)
                kind |= SEGMENT_PUSHED;
        server_receive_segment(c, u, (__u64) segment.seq << 32 | kind << SEGMENT_KIND_SHIFT | segment.len,
                               (__u64) rcv_nxt << 32 | window_end);
        return 1;
}
