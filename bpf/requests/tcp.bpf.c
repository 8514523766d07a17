// SPDX-License-Identifier: GPL-2.0-or-later

/* The probe "requests": requests on TCP, of units in both roles.
 *
 *   arrival      cgroup_skb/ingress        at the root: a unit's own group is removed with each restart,
 *                                          together with the programs attached to it
 *   content      skb_copy_datagram_iovec   data being copied to the application, in order and once, unlike
 *                                          arrivals: the read, and the protocol. Spliced and discarded data
 *                                          does not pass here, and is not parsed
 *   read         tcp_rcv_space_adjust      runs for every way to read from the socket, with copied_seq
 *                                          already moved. Attached only while a unit may have reads that
 *                                          do not pass skb_copy_datagram_iovec (read_check())
 *   departure    cgroup_skb/egress         sock_send_length runs after the data was sent, too late for the
 *                                          order
 *   connection   inet_sock_set_state       listening, accepted, closing, closed
 *
 * Every program is optional: without one, only its own metrics are missing. */

#define PREEMPTION_OBJECT tcp
#include "preemption.h"
#include "tcp-arrive.bpf.h"
#include "tcp-client.bpf.h"
#include "tcp-receive.bpf.h"
#include "tls-conn.bpf.h"
#include "tcp-segment.bpf.h"
#include "tcp-state.bpf.h"
#include "thread.h"
#include "udp.bpf.h"
#include "unix.bpf.h"

char LICENSE[] SEC("license") = "GPL";

/* ---- arrival ------------------------------------------------------------------------------------------ */

SEC("cgroup_skb/ingress")
int requests_ingress(struct __sk_buff *skb) {
        struct overhead overhead = {};
        int r = packet_receive(skb, &overhead);

        overhead_end(&overhead);
        return r;
}

/* ---- read --------------------------------------------------------------------------------------------- */

/* Adds an unknown connection, with the owner of its reader. A separate function, for its stack. */
static __attribute__((noinline)) struct conn* conn_learn_read(struct sock *sk) {
        struct qos_owner owner;
        struct qos_unit_map *u;

        /* If the socket is not locked by a process, the kernel reads (kTLS, sockmap), in the context of any
         * task. Without a file it is a socket of the kernel, read by any task */
        if (!sk || !sk->sk_lock.owned || !task_owner(&owner) || !sk->sk_socket || !sk->sk_socket->file)
                return NULL;
        u = unit_get(&owner);
        return u ? conn_learn(sk, sock_kind(sk), &owner, u) : NULL;
}

/* Result of server_read(): the caller has to call tls_plaintext_has_read(). */
#define READ_PLAINTEXT 1

/* The application has read. where: position up to which it has read (upper half), and number of bytes
 * written by it, but not sent. */
static __attribute__((noinline)) int server_read(struct sock *sk, struct conn *c, struct qos_unit_map *u,
                                                 __u64 where) {
        __u32 copied = where >> 32, unsent = where;
        struct exchange_effect effect = {};
        struct tls_plaintext *plain = NULL;
        struct pipeline *p = NULL;
        struct h2_conn *h = NULL;
        struct tls_conn *tls;
        struct tls *s = NULL;
        struct attribution a;
        bool has_request;
        __u64 now;

        if (!sk || !c || !u)
                return 0;
        now = intent_mark(bpf_ktime_get_ns(), c->x.flags / EXCHANGE_PUSHED);
        if (c->x.flags & EXCHANGE_PARSED)
                p = bpf_sk_storage_get(&pipelines, sk, 0, 0);
        else if (c->x.flags & EXCHANGE_TLS) {
                tls = bpf_sk_storage_get(&tls_conns, sk, 0, 0);
                if (tls) {
                        s = &tls->tls;
                        if (tls->key.ssl != 0)
                                plain = tls_plaintext_get(sk, c, u, tls);
                        if (plain && plain->pipeline.protocol != PROTOCOL_PLAIN)
                                return READ_PLAINTEXT;
                }
        } else if (c->x.flags & EXCHANGE_H2)
                h = bpf_sk_storage_get(&h2_conns, sk, 0, 0);

        bpf_spin_lock(&c->lock);
        has_request = !s || s->has_request;
        if (c->x.flags & EXCHANGE_READ_KNOWN && exchange_distance(copied, c->x.read_end) <= 0)
                read_again(&c->x, p, now, copied);
        else
                read_apply(&c->x, &(struct read_parsers) { p, h, s }, now, copied, unsent, &effect);
        if (plain) {
                plain->read_end = copied;
                plain->untimed = 0;
        }
        if (plain && has_request) {
                plain->came_first_at = c->x.first_at;
                plain->came_last_at = c->x.last_at;
                plain->requested = c->x.open_at != 0;
        }
        a = conn_commit(c, &effect);
        bpf_spin_unlock(&c->lock);
        thread_read_request(u, now);

        if (exchange_has_effect(&effect)) {
                u = attribution_resolve(u, &a);
                if (!u)
                        return 0;
                window_advance(u, now);
                record_effect(u, a.target, &effect);
        }
        return 0;
}

/* ---- content ------------------------------------------------------------------------------------------ */

/* Whether this is the first read of a connection. */
static __always_inline bool read_is_first(const struct sock *sk) {
        const struct tcp_sock *tp = bpf_rdonly_cast(sk, bpf_core_type_id_kernel(struct tcp_sock));

        return sk->sk_protocol == IPPROTO_TCP && tp->copied_seq == tp->rcv_nxt - (__u32) tp->bytes_received;
}

/* Adds an unknown connection that is being read. At the first read its positions are known, and it is parsed
 * from its beginning. The arrival of the data is unknown. */
static __attribute__((noinline)) struct conn* conn_learn_reader(struct sock *sk) {
        struct tcp_sock *tp;
        __u32 copied, end, snd_nxt;
        struct conn *c;
        bool first;

        if (!sk)
                return NULL;
        first = read_is_first(sk);
        tp = bpf_rdonly_cast(sk, bpf_core_type_id_kernel(struct tcp_sock));
        copied = tp->copied_seq;
        end = tp->rcv_nxt;
        snd_nxt = tp->snd_nxt;
        c = conn_learn_read(sk);
        if (!c || !first || c->kind != CONN_SERVER)
                return c;

        bpf_spin_lock(&c->lock);
        if (!(c->x.flags & (EXCHANGE_IN_KNOWN | EXCHANGE_READ_KNOWN | EXCHANGE_OUT_KNOWN))) {
                exchange_begin(&c->x, end, copied, snd_nxt);
                c->x.flags |= EXCHANGE_FRESH;
        }
        bpf_spin_unlock(&c->lock);
        return c;
}

/* Like socket_is_foreign(), for the socket that has sent the data and the one that receives it. */
static __always_inline bool unix_is_foreign(struct sock *sender) {
        struct unix_sock *us = bpf_rdonly_cast(sender, bpf_core_type_id_kernel(struct unix_sock));

        return socket_is_foreign(sender) && (!us->peer || !us->peer->sk_bpf_storage);
}

static __always_inline int content_read(struct sk_buff *skb, int len, struct overhead *overhead) {
        __u32 copied, unsent, offset, what, known = EXCHANGE_READ_KNOWN;
        struct tcp_skb_cb *cb;
        struct tcp_sock *tp;
        struct qos_unit_map *u;
        struct sock *sk;
        struct conn *c;

        sk = skb->sk;
        if (!sk)
                return 0;
        /* Handled here, as a second program on this tracepoint would be a second call for each read */
        if (sk->__sk_common.skc_family == AF_UNIX)
                return unix_is_foreign(sk) ? 0 : unix_content(skb, len, overhead);
        /* Most connections on the machine are unknown, and remain so at this read */
        if (socket_is_foreign(sk) || sk->sk_protocol != IPPROTO_TCP || connection_is_gone(sk))
                return 0;
        /* Otherwise the verifier would explore everything after for both values */
        BPF_OPAQUE(known);
        c = bpf_sk_storage_get(&conns, sk, 0, 0);
        u = c ? unit_get(&c->owner) : NULL;
        if (!u) {
                c = conn_learn_reader(sk);
                u = c ? unit_get(&c->owner) : NULL;
                if (!u)
                        return 0;
                /* If unknown, this may be in the middle of a request */
                known = c->x.flags & EXCHANGE_READ_KNOWN;
        }
        if (c->kind == CONN_CLIENT) {
                peer_note_read();
                if (!(c->x.flags & EXCHANGE_PIPED))
                        return 0;
        }
        overhead_begin(overhead, &c->owner, u);
        /* Sockets in this map are TCP. bpf_skc_to_tcp_sock() requires a trusted pointer */
        tp = bpf_rdonly_cast(sk, bpf_core_type_id_kernel(struct tcp_sock));
        if (c->kind == CONN_LISTENER)
                /* Fast open: read before the end of the handshake. rcv_nxt includes all data of the
                 * connection */
                conn_accept(c, u, tp, tp->rcv_nxt - (__u32) tp->bytes_received, bpf_ktime_get_ns());
        if (c->kind == CONN_SERVER && c->found && sk->sk_lock.owned) {
                u = conn_claim(sk, c, u);
                if (!u)
                        return 0;
        }

        /* Position of the buffer in the stream: TCP_SKB_CB(skb)->seq. A later buffer is only peeked at
         * (MSG_PEEK) */
        cb = bpf_rdonly_cast(skb->cb, bpf_core_type_id_kernel(struct tcp_skb_cb));
        copied = tp->copied_seq;
        unsent = tp->write_seq - tp->snd_nxt;
        offset = copied - cb->seq;
        if (len <= 0 || offset >= skb->len || (__u32) len > skb->len - offset)
                return 0;
        if (c->kind == CONN_CLIENT) {
                what = client_parse_responses(skb, c, u, copied, (__u64) offset << 32 | (__u32) len);
                return what ? client_read(sk, c, u, copied + (__u32) len, what == CLIENT_LOST) : 0;
        }
        if (c->kind != CONN_SERVER)
                return 0;
        what = c->x.flags & EXCHANGE_TLS ? RECEIVE_TLS :
               c->tries >= TRIES_MAX || c->x.flags & EXCHANGE_DONE || !known ? RECEIVE_NOTHING :
               c->x.flags & EXCHANGE_H2 ? RECEIVE_H2 : RECEIVE_UNKNOWN;
        BPF_OPAQUE(what);
        if (what == RECEIVE_UNKNOWN)
                what = receive_parse(skb, c, u, (__u64) copied << 32 | unsent, (__u64) offset << 32 |
                                     (__u32) len);
        BPF_OPAQUE(what);
        if (what == RECEIVE_TLS) {
                if (watch_get(&c->owner))
                        tls_plaintext_bind(sk, c, u);
                tls_receive_plaintext(skb, c, (__u64) copied << 32 | unsent,
                        (__u64) offset << 32 | (__u32) len);
        } else if (what == RECEIVE_H2)
                receive_h2(skb, c, u, (__u64) copied << 32 | unsent, (__u64) offset << 32 | (__u32) len);

        copied += (__u32) len;
        if (server_read(sk, c, u, (__u64) copied << 32 | unsent) == READ_PLAINTEXT)
                tls_plaintext_has_read(sk, (__u64) copied << 32 | unsent);
        return 0;
}

SEC("tp_btf/skb_copy_datagram_iovec")
int BPF_PROG(requests_content, struct sk_buff *skb, int len) {
        struct overhead overhead = {};
        int r;

        preemption_disable();
        r = content_read(skb, len, &overhead);
        overhead_end(&overhead);
        preemption_enable();
        return r;
}

/* ---- departure ---------------------------------------------------------------------------------------- */

/* The handshake is complete, but no program has run for it. */
static __attribute__((noinline)) int established_missed(struct conn *c, struct qos_unit_map *u) {
        __u64 now = bpf_ktime_get_ns();

        if (!c || !u)
                return 0;
        window_advance(u, now);
        window_count(u, QOS_COUNTER_ACCEPTED, 1);
        conn_count(c, u, true, now);
        return zero();
}

/* Cause of data that the current thread sends now (enum intent_cause). */
__attribute__((noinline, weak)) int transmit_get_cause(__u64 read_at, __u64 now) {
        struct pending_responses *a;
        struct intent_run run;
        __u32 zero = 0;

        a = bpf_map_lookup_elem(&responses, &zero);
        if (!a)
                return INTENT_OWN;
        task_get_run(bpf_get_current_task_btf(), now, &run);
        return intent_cause(&a->run, &run, read_at);
}

/* Data is sent on an unparsed connection that has, or may have events. Returns 1 if the data is an event
 * instead of a response. position: its end (upper half), and snd_nxt. */
static __attribute__((noinline)) int transmit_event(struct conn *c, struct qos_unit_map *u, __u64 position,
                                                    __u64 now) {
        struct exchange_effect effect = {};
        struct pipeline_batch waited = {};
        enum exchange_push pushed;
        struct attribution a;
        __u32 bytes;
        int cause;

        if (!c || !u || c->x.flags & (EXCHANGE_PARSED | EXCHANGE_TLS | EXCHANGE_H2 | EXCHANGE_UNREAD) ||
            !exchange_may_push(&c->x, now - c->x.read_at >= INTENT_WAIT_MIN_NSEC))
                return 0;
        cause = transmit_get_cause(c->x.read_at, now);
        bpf_spin_lock(&c->lock);
        waited.first_at = c->x.first_at;
        waited.read_at = c->x.read_at;
        pushed = exchange_is_pushed(&c->x, cause != INTENT_OWN, cause == INTENT_AWAITED);
        bytes = pushed != EXCHANGE_PUSH_NONE ? exchange_leave(&c->x, position >> 32, position) : 0;
        if (bytes > 0)
                exchange_push(&c->x, bytes, &effect);
        a = conn_commit(c, &effect);
        bpf_spin_unlock(&c->lock);
        if (pushed == EXCHANGE_PUSH_NONE)
                return 0;
        u = attribution_resolve(u, &a);
        if (!u)
                return 1;
        window_advance(u, now);
        record_sum(u, a.target, exchange_sum(&c->x, QOS_SUM_BYTES_OUT), QOS_ENTRY_SUM_BYTES_OUT, bytes);
        record_effect(u, a.target, &effect);
        if (pushed == EXCHANGE_PUSH_FIRST && bytes > 0)
                request_record_intended(u, &waited, 1, now, a.target);
        return 1;
}

/* The connection of a packet being sent; NULL: not observed. Datagrams are counted here. */
static __always_inline struct conn* packet_find_conn(struct __sk_buff *skb, struct overhead *overhead,
                                                     struct bpf_sock **ret_sk, struct segment *ret_segment) {
        struct bpf_sock *sk;
        struct conn *c;

        sk = skb->sk;
        if (!sk || packet_is_foreign(sk))
                return NULL;
        sk = bpf_sk_fullsock(sk);
        if (!sk)
                return NULL;
        c = bpf_sk_storage_get(&conns, sk, 0, 0);
        if (!c && sk->protocol == IPPROTO_UDP && udp_depart(skb, sk, overhead)) {
                udp_send_query(skb);
                udp_sweep();
        }
        if (!c || c->kind == CONN_OTHER || sk->state == TCP_LISTEN)
                return NULL;
        if (!segment_read(skb, ret_segment)) {
                segment_count_lost(c);
                return NULL;
        }
        if (ret_segment->len == 0)
                return NULL;

        *ret_sk = sk;
        return c;
}

static __always_inline void client_transmit_packet(struct __sk_buff *skb, struct bpf_sock *sk,
                                                   struct tcp_sock *tp, struct conn *c,
                                                   struct qos_unit_map *u, const struct segment *segment) {
        __u64 bytes;

        bytes = client_transmit(c, u, (__u64) (segment->seq + segment->len) << 32 | tp->snd_nxt,
                                client_classify_segment(skb, segment->offset, segment->len,
                                                        segment->seq == tp->snd_una,
                                                        c->x.flags & EXCHANGE_H2), tp->tcp_clock_cache);
        if (bytes > 0 && c->tries < TRIES_MAX) {
                if (tp->rcv_nxt != tp->copied_seq && sk->state == TCP_ESTABLISHED)
                        bytes |= CLIENT_UNREAD;
                client_count_requests(skb, sk, c, u, bytes);
        }
}

/* Records a response of an unparsed connection, or more of it. */
static __always_inline void packet_record(struct __sk_buff *skb, struct conn *c, struct qos_unit_map *u,
                                          struct transmit *d, struct exchange_effect *effect, bool sealed) {
        __u32 class = 0;

        if (sealed && effect->begun && !(d->attribution.target & TARGET_ONLY))
                window_count(u, QOS_COUNTER_TLS, 1);
        if (effect->begun && !sealed && (c->tries < TRIES_MAX || c->x.flags & EXCHANGE_HTTP1) &&
            !(d->attribution.target & TARGET_ONLY))
                class = transmit_error(skb, d);
        if (class != 0) {
                window_count(u, QOS_COUNTER_COUNT + PROTOCOL_HTTP1, 1);
                window_count(u, class == 4 ? QOS_COUNTER_STATUS_4XX : QOS_COUNTER_STATUS_5XX, 1);
        }
        record_effect(u, d->attribution.target, effect);
        d->record.now = d->now;
        d->record.n = 1;
        d->record.target = d->attribution.target;
        d->record.before = effect->grown_from;
        if (effect->begun)
                record_request(u, &d->record);
        else if (effect->grown)
                record_request_more(u, &d->record);
}

/* Whether all that the unit has written precedes this position. */
static __always_inline bool transmit_is_complete(const struct bpf_sock *sk, const struct tcp_sock *tp,
                                                 __u32 end) {
        /* After the unit has closed the connection, the last position is that of the FIN */
        __u32 written_end = tp->write_seq - (sk->state == TCP_FIN_WAIT1 || sk->state == TCP_LAST_ACK ||
                                             sk->state == TCP_CLOSING);

        return exchange_distance(end, written_end) >= 0;
}

/* Records reads, and the end of the handshake, that were missed before data that is sent now. Returns the
 * position up to which the unit has read. */
static __always_inline __u32 transmit_catch_up(struct bpf_sock *sk, struct tcp_sock *tp, struct conn *c,
                                               struct qos_unit_map *u) {
        __u32 copied = tcp_read_end(tp, sk->state);

        if (exchange_distance(copied, c->x.read_end) > 0 && c->x.flags & EXCHANGE_READ_KNOWN)
                read_missed((struct sock*) tp, c, u, copied);
        if (!c->counted && c->x.flags & EXCHANGE_FRESH && sk->state == TCP_ESTABLISHED)
                established_missed(c, u);
        return copied;
}

static __always_inline int packet_transmit(struct __sk_buff *skb, struct overhead *overhead) {
        struct exchange_effect effect;
        struct transmit d;
        __u32 snd_nxt, copied;
        struct segment segment;
        struct qos_unit_map *u;
        struct tcp_sock *tp;
        struct bpf_sock *sk;
        struct conn *c;
        bool parsed, sealed, muxed;
        int plaintext = 0, left = PIPELINE_TRANSMITS_MUXED;

        c = packet_find_conn(skb, overhead, &sk, &segment);
        if (!c)
                return 1;

        u = unit_get(&c->owner);
        if (!u)
                return 1;
        overhead_begin(overhead, &c->owner, u);
        tp = bpf_skc_to_tcp_sock(sk);
        if (!tp)
                return 1;
        if (c->kind == CONN_LISTENER)
                conn_accept(c, u, tp, tp->copied_seq, tp->tcp_clock_cache);

        /* Not before, as most packets on the machine are of no unit */
        effect = (struct exchange_effect) {};
        d = (struct transmit) {};
        snd_nxt = tp->snd_nxt;
        d.complete = transmit_is_complete(sk, tp, segment.seq + segment.len);
        /* CLOCK_MONOTONIC ns, read by TCP whenever it begins to transmit (tcp_mstamp_refresh() in
         * tcp_write_xmit(), tcp_write_timer_handler()). Another clock read would take 24 ns, out of about
         * 300 for an exchange */
        d.now = tp->tcp_clock_cache;
        if (c->kind == CONN_CLIENT) {
                client_transmit_packet(skb, sk, tp, c, u, &segment);
                return 1;
        }

        copied = transmit_catch_up(sk, tp, c, u);
        if (!(c->x.flags & (EXCHANGE_PARSED | EXCHANGE_TLS | EXCHANGE_H2)) && c->x.flags & EXCHANGE_FRESH &&
            c->x.state == EXCHANGE_PENDING && c->tries < TRIES_MAX)
                tls_receive_unseen(skb, (struct sock*) sk, c, (__u64) segment.offset << 32 | copied,
                                   &effect);

        if (exchange_may_push(&c->x, d.now - c->x.read_at >= INTENT_WAIT_MIN_NSEC) &&
            transmit_event(c, u, (__u64) (segment.seq + segment.len) << 32 | snd_nxt, d.now))
                return 1;

        parsed = c->x.flags & EXCHANGE_PARSED;
        sealed = c->x.flags & EXCHANGE_TLS;
        muxed = c->x.flags & EXCHANGE_H2;
        /* The position of data sent is only used under the socket lock, once it is known */
        if (parsed && c->x.flags & EXCHANGE_OUT_KNOWN && conn_get_attribution(c, &d.attribution))
                d.bytes = exchange_leave(&c->x, segment.seq + segment.len, snd_nxt);
        else {
                bpf_spin_lock(&c->lock);
                d.bytes = exchange_leave(&c->x, segment.seq + segment.len, snd_nxt);
                if (d.bytes > 0 && !parsed && !sealed && !muxed)
                        transmit_apply(&d, &c->x, &effect);
                if (!sealed)
                        d.attribution = conn_commit(c, &effect);
                bpf_spin_unlock(&c->lock);
        }
        if (d.bytes == 0)
                return 1;

        if (sealed) {
                if (d.bytes > segment.len)
                        d.bytes = segment.len;
                plaintext = tls_transmit(skb, sk, c, &d, &effect);
                sealed = c->x.flags & EXCHANGE_TLS;
        }
        u = attribution_resolve(u, &d.attribution);
        if (!u)
                return 1;

        window_advance(u, d.now);
        record_sum(u, d.attribution.target, exchange_sum(&c->x, QOS_SUM_BYTES_OUT), QOS_ENTRY_SUM_BYTES_OUT,
                   d.bytes);
        if (parsed || muxed) {
                /* There are more bytes than in the packet if data was sent before the position was known */
                if (d.bytes > segment.len)
                        d.bytes = segment.len;
                if (parsed)
                        left = pipeline_transmit(skb, sk, c, u, &d);
                if (left == PIPELINE_TRANSMITS_MUXED)
                        left = h2_conn_transmit(skb, sk, c, u, &d);
                if (left != PIPELINE_TRANSMITS_PLAIN)
                        return 1;
                transmit_lost_sync(sk, c, &d, &effect);
                u = attribution_resolve(u, &d.attribution);
                if (!u)
                        return 1;
        }
        if (!plaintext)
                packet_record(skb, c, u, &d, &effect, sealed);
        return 1;
}

SEC("cgroup_skb/egress")
int requests_egress(struct __sk_buff *skb) {
        struct overhead overhead = {};
        int r = packet_transmit(skb, &overhead);

        overhead_end(&overhead);
        return r;
}

/* Separate from requests_egress, and attached after it, so that it only runs while a unit has the probe
 * "tls". */
SEC("cgroup_skb/egress")
int openssl_egress(struct __sk_buff *skb) {
        struct exchange_effect effect = {};
        struct transmit d = {};
        struct tls_plaintext *plain;
        struct qos_unit_map *u;
        struct tcp_sock *tp;
        struct bpf_sock *sk;
        struct conn *c;
        struct tls_conn *conn;
        __u32 copied;

        sk = skb->sk;
        if (!sk)
                return 1;
        sk = bpf_sk_fullsock(sk);
        if (!sk)
                return 1;
        conn = bpf_sk_storage_get(&tls_conns, sk, 0, 0);
        if (!conn || conn->left_bytes == 0)
                return 1;
        c = bpf_sk_storage_get(&conns, sk, 0, 0);
        u = c ? unit_get(&c->owner) : NULL;
        tp = u ? bpf_skc_to_tcp_sock(sk) : NULL;
        if (!tp)
                return 1;
        d.now = conn->left_at;
        d.bytes = conn->left_bytes;
        d.complete = conn->left_complete;
        conn->left_bytes = 0;

        plain = tls_plaintext_get((struct sock*) sk, c, u, conn);
        /* As in packet_transmit() */
        copied = tcp_read_end(tp, sk->state);
        if (plain && exchange_distance(copied, c->x.read_end) > 0 && c->x.flags & EXCHANGE_READ_KNOWN)
                tls_plaintext_reads(c, u, &conn->tls, plain,
                                    (__u64) copied << 32 | (tp->write_seq - tp->snd_nxt));
        bpf_spin_lock(&c->lock);
        d.attribution = conn_commit(c, &effect);
        bpf_spin_unlock(&c->lock);
        u = attribution_resolve(u, &d.attribution);
        if (!u)
                return 1;
        window_advance(u, d.now);
        if (plain)
                tls_plaintext_transmit(plain, c, u, &d);
        else
                tls_record_request(c, u, &d);
        return 1;
}

/* ---- reads of all kinds ------------------------------------------------------------------------------- */

static __always_inline int socket_read(struct sock *sk, struct overhead *overhead) {
        struct qos_unit_map *u;
        struct tcp_sock *tp;
        struct conn *c;
        __u32 copied, unsent;

        if (socket_is_foreign(sk) || connection_is_gone(sk))
                return 0;
        c = bpf_sk_storage_get(&conns, sk, 0, 0);
        u = c ? unit_get(&c->owner) : NULL;
        if (!u) {
                c = conn_learn_read(sk);
                u = c ? unit_get(&c->owner) : NULL;
                if (!u)
                        return 0;
        }
        if (c->kind == CONN_CLIENT) {
                peer_note_read();
                if (!(c->x.flags & EXCHANGE_PIPED))
                        return 0;
        } else if (c->kind == CONN_OTHER)
                return 0;
        overhead_begin(overhead, &c->owner, u);
        tp = bpf_skc_to_tcp_sock(sk);
        if (!tp)
                return 0;
        if (c->kind == CONN_LISTENER)
                /* As in requests_content */
                conn_accept(c, u, tp, tp->rcv_nxt - (__u32) tp->bytes_received, bpf_ktime_get_ns());
        copied = tcp_read_end(tp, sk->__sk_common.skc_state);
        if (c->x.flags & EXCHANGE_READ_KNOWN && exchange_distance(copied, c->x.read_end) <= 0) {
                read_check(&c->owner, true);
                return 0;
        }
        /* splice() also triggers this for the FIN, which has a position but no byte. If that is the first
         * event of a connection, no data was read */
        if (copied != tp->copied_seq && !(c->x.flags & EXCHANGE_READ_KNOWN))
                return 0;
        read_check(&c->owner, false);
        if (c->kind == CONN_CLIENT)
                return client_read(sk, c, u, copied, true);
        if (c->found && sk->sk_lock.owned) {
                u = conn_claim(sk, c, u);
                if (!u)
                        return 0;
        }
        unsent = tp->write_seq - tp->snd_nxt;
        if (server_read(sk, c, u, (__u64) copied << 32 | unsent) == READ_PLAINTEXT)
                tls_plaintext_has_read(sk, (__u64) copied << 32 | unsent);
        return 0;
}

SEC("tp_btf/tcp_rcv_space_adjust")
int BPF_PROG(requests_read, struct sock *sk) {
        struct overhead overhead = {};
        int r;

        preemption_disable();
        r = socket_read(sk, &overhead);
        overhead_end(&overhead);
        preemption_enable();
        return r;
}

/* ---- connection state --------------------------------------------------------------------------------- */

static __always_inline int state_record(struct sock *sk, int old_state, int new_state) {
        struct overhead overhead = {};
        int r = connection_set_state(sk, old_state, new_state, &overhead);

        overhead_end(&overhead);
        return r;
}

/* 1: requests_state_nested is running on the CPU. */
BPF_ARRAY_MAP(state_running, PERCPU_ARRAY, 1, __u32);

/* A state change may occur while a program records another one on the same CPU: in an interrupt, and since
 * Linux 7.0 in a task that preempts it. The kernel does not run a program within itself, hence there are two
 * of them: the first one to run records the change, and a change is lost only if both are interrupted. A
 * skipped run of the second program has no effect if the first one has run: such runs are counted, and
 * subtracted by the daemon. If a task is preempted between the two programs, the count may be off by one. */
SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(requests_state, struct sock *sk, int old_state, int new_state) {
        __u32 zero = 0, *running;

        preemption_disable();
        running = bpf_map_lookup_elem(&state_running, &zero);
        if (running && *running)
                statistics_count(QOS_STATISTIC_STATES_RECORDED);
        (void) state_record(sk, old_state, new_state);
        preemption_enable();
        return 0;
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(requests_state_nested, struct sock *sk, int old_state, int new_state) {
        __u32 zero = 0, *running = bpf_map_lookup_elem(&state_running, &zero);

        if (!running)
                return 0; /* impossible for an array */
        preemption_disable();
        *(volatile __u32*) running = 1;
        (void) state_record(sk, old_state, new_state);
        *(volatile __u32*) running = 0;
        preemption_enable();
        return 0;
}

SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(requests_retransmit, struct sock *sk) {
        struct tcp_sock *tp;
        struct qos_unit_map *u;
        struct conn *c;

        c = bpf_sk_storage_get(&conns, sk, 0, 0);
        if (!c || c->kind != CONN_SERVER)
                return 0;
        u = unit_get(&c->owner);
        tp = u ? bpf_skc_to_tcp_sock(sk) : NULL;
        if (!tp)
                return 0;

        window_advance(u, bpf_ktime_get_ns());
        conn_count_retransmits(c, tp->total_retrans, u);
        return 0;
}
