/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

/* State changes of connections: beginning and end, and reads that are noticed only then. */

#include "tcp-arrive.bpf.h"
#include "tcp-client.bpf.h"
#include "tcp-receive.bpf.h"

/* The application has read up to this position, now at the latest, and no program has run for the read. A
 * separate function, for its stack. */
static __attribute__((noinline)) int read_missed(struct sock *sk, struct conn *c, struct qos_unit_map *u,
                                                 __u32 copied) {
        struct exchange_effect effect = {};
        __u64 now = bpf_ktime_get_ns();
        struct pipeline *p = NULL;
        struct tls *s = NULL;
        struct h2_conn *h = NULL;
        struct tls_plaintext *plain;
        struct tls_conn *tls;
        struct attribution a;

        if (!sk || !c || !u)
                return 0;
        if (c->x.flags & EXCHANGE_DONE)
                return 0;
        if (c->x.flags & EXCHANGE_PARSED)
                p = bpf_sk_storage_get(&pipelines, sk, 0, 0);
        else if (c->x.flags & EXCHANGE_H2)
                h = bpf_sk_storage_get(&h2_conns, sk, 0, 0);
        else if (c->x.flags & EXCHANGE_TLS) {
                tls = bpf_sk_storage_get(&tls_conns, sk, 0, 0);
                if (!tls)
                        return 0;
                /* If the plaintext is known, openssl_egress handles the read */
                plain = tls->key.ssl != 0 ? bpf_map_lookup_elem(&plaintext, &tls->key) : NULL;
                if (plain && plain->sock == (__u64) (long) sk && plain->pipeline.protocol != PROTOCOL_PLAIN)
                        return 0;
                s = &tls->tls;
        }

        read_check(&c->owner, false);
        bpf_spin_lock(&c->lock);
        read_apply(&c->x, &(struct read_parsers) { p, h, s }, now, copied, 0, &effect);
        a = conn_commit(c, &effect);
        bpf_spin_unlock(&c->lock);

        u = exchange_has_effect(&effect) ? attribution_resolve(u, &a) : NULL;
        if (!u)
                return zero();
        window_advance(u, now);
        record_effect(u, a.target, &effect);
        return zero();
}

/* Counts retransmitted segments by the connection's counter, as a retransmitted buffer may consist of
 * several. */
static __always_inline void conn_count_retransmits(struct conn *c, __u32 total, struct qos_unit_map *u) {
        __u32 old = *(volatile __u32*) &c->retransmits;

        if ((__s32) (total - old) <= 0 || __sync_val_compare_and_swap(&c->retransmits, old, total) != old)
                return;
        window_count(u, QOS_COUNTER_RETRANSMITS, total - old);
}

/* Counter for a connection that ends with an open request. */
static __always_inline __u32 end_cell(int error, int old_state) {
        if (error == ETIMEDOUT)
                return QOS_COUNTER_ERRORS_TIMEOUT;
        if (error != 0)
                return QOS_COUNTER_CLIENT_ABORTS; /* a reset was received */
        if (old_state == TCP_CLOSE_WAIT || old_state == TCP_LAST_ACK || old_state == TCP_CLOSING)
                return QOS_COUNTER_CLIENT_ABORTS; /* the client has closed first */
        return QOS_COUNTER_ERRORS_RESET;
}

/* Counter for a failed TLS connection, by the side that has sent an alert. */
static __always_inline __u32 tls_failed_cell(const struct tls *t, __u32 cell) {
        if (t->failed & TLS_FAILED_SERVER)
                return QOS_COUNTER_ERRORS_RESET;
        return t->failed & TLS_FAILED_CLIENT ? QOS_COUNTER_CLIENT_ABORTS : cell;
}

/* The handshake is complete. */
static __always_inline int connection_begin(struct sock *sk, struct conn *c, struct qos_unit_map *u,
                                            struct tcp_sock *tp, __u32 copied) {
        __u32 zero = 0, window_end = tp->rcv_wup + tp->rcv_wnd;
        struct exchange_effect effect = {};
        __u64 now = bpf_ktime_get_ns();
        struct attribution a;
        struct handoff *h;

        h = bpf_map_lookup_elem(&accept_handoffs, &zero);
        window_advance(u, now);
        window_count(u, QOS_COUNTER_ACCEPTED, 1);

        /* The handoff may not be the first data: segments overtake each other and the acknowledgement */
        if (h && (h->at == 0 || h->client_port != sk->__sk_common.skc_dport ||
                  exchange_distance(h->seq, copied) < 0 || exchange_distance(window_end, h->end) < 0))
                h = NULL;

        if (c->kind == CONN_LISTENER)
                conn_accept(c, u, tp, copied, h ? h->at : now);

        /* Even if a segment on another CPU has initialized the connection before */
        if (h) {
                bpf_spin_lock(&c->lock);
                exchange_arrive(&c->x, h->at,
                                &(struct exchange_segment) { .seq = h->seq, .end = h->end, .rcv_nxt = copied,
                                                             .window_end = window_end }, &effect);
                a = conn_commit(c, &effect);
                bpf_spin_unlock(&c->lock);
                h->at = 0;

                u = attribution_resolve(u, &a);
                if (!u)
                        return 0;
                record_sum(u, a.target, exchange_sum(&c->x, QOS_SUM_BYTES_IN), QOS_ENTRY_SUM_BYTES_IN,
                           effect.bytes);
                record_effect(u, a.target, &effect);
        }

        conn_count(c, u, true, now);
        return 0;
}

/* The unit closes a connection, or it has ended. */
struct connection_end {
        __u64 now;
        __u64 by_unit;                  /* ~0: the unit ends it, see end_cell() */
        __u32 unsent;                   /* bytes written by the application, but not sent */
        bool gone;                      /* the connection has ended */
        /* State of its parsers, as far as there are any */
        struct pipeline *pipeline;
        struct h2_conn *h;
        struct tls_conn *conn;
        struct tls_plaintext *plain;
        bool muxed;                     /* the plaintext is HTTP/2 */
        bool missed;                    /* part of its requests was not seen */
        bool not_understood;
        bool refused;                   /* within TLS the server has reported an error */
};

static __always_inline void end_find_parsers(struct sock *sk, struct conn *c, struct connection_end *e) {
        if (c->x.flags & EXCHANGE_PARSED)
                e->pipeline = bpf_sk_storage_get(&pipelines, sk, 0, 0);
        else if (c->x.flags & EXCHANGE_H2)
                e->h = bpf_sk_storage_get(&h2_conns, sk, 0, 0);
        else if (c->x.flags & EXCHANGE_TLS || c->tries >= TRIES_MAX || e->gone) {
                e->conn = bpf_sk_storage_get(&tls_conns, sk, 0, 0);
                e->plain = e->conn && e->conn->key.ssl != 0 ?
                           bpf_map_lookup_elem(&plaintext, &e->conn->key) : NULL;
                if (e->plain && e->plain->sock != (__u64) (long) sk)
                        e->plain = NULL;
                if (e->plain && e->plain->pipeline.protocol != PROTOCOL_PLAIN &&
                    e->plain->pipeline.protocol != PROTOCOL_HTTP2 && tls_plaintext_lock(e->plain)) {
                        e->pipeline = &e->plain->pipeline;
                        /* A response was sent while another program had the lock */
                        e->pipeline->missed |= e->plain->missed_at != 0;
                }
        }
        e->muxed = e->plain && e->plain->pipeline.protocol == PROTOCOL_HTTP2;
        e->missed = (e->pipeline && e->pipeline->missed) || (e->h && e->h->in.synced != H2_SYNCED);
        e->not_understood = e->pipeline && e->pipeline->not_understood & PIPELINE_REQUESTS;
}

/* Updates the state of a connection that ends. The caller holds the lock. */
static __always_inline void end_settle(struct conn *c, const struct connection_end *e, __u32 copied,
                                       struct exchange_effect *effect) {
        struct pipeline *p = e->pipeline;
        struct h2_conn *h = e->h;
        __u32 pending;

        if (e->conn && p) {
                /* The parser knows which requests are open. Unread data is mostly close_notify of the
                 * client */
                if (c->x.in_end - copied <= TLS_FAREWELL_SIZE)
                        c->x.n_marks = 0;
                pipeline_commit(p, &c->x, e->now, e->unsent == 0, effect);
        } else if (e->conn && e->plain && e->plain->pipeline.protocol != PROTOCOL_PLAIN)
                exchange_shut(&c->x, effect); /* another program has the lock, or it is HTTP/2 */
        else if (e->conn)
                tls_end(&c->x, &e->conn->tls, e->gone, e->unsent, effect);
        pending = p ? pipeline_outstanding(p) : h ? h->open : c->x.state == EXCHANGE_PENDING;
        /* Unread frames may not be a request (GOAWAY) */
        if ((h && pending == 0) || e->muxed)
                exchange_shut(&c->x, effect);
        if (p && !e->gone)
                pipeline_half_close(p, &c->x, e->now, e->unsent, effect);
        exchange_end(&c->x, e->gone, pending, e->unsent, effect);
        if (e->conn && c->x.flags & EXCHANGE_TLS && (e->gone || e->unsent == 0))
                tls_fail(&e->conn->tls, effect);
        if (p && effect->unanswered) {
                effect->unanswered = pipeline_get_failed(p, &c->x, effect->unanswered, e->by_unit);
                pipeline_reset(p);
                effect->in_flight += pipeline_extra(p);
        }
        if (h && effect->unanswered) {
                effect->unanswered = h2_get_failed(h, effect->unanswered);
                h->open = 0;
                effect->in_flight += h2_extra(h);
        }
        if (e->gone)
                effect->in_flight = -c->in_flight; /* even while another program has the lock */
}

/* Ends the state of a connection besides struct conn. */
static __always_inline void end_parsers(struct sock *sk, struct connection_end *e,
                                        struct exchange_effect *effect) {
        const struct tls_plaintext_h2 *m;

        if (e->h && effect->unanswered)
                h2_clear(e->h, h2_conn_more(sk, e->h, NULL));
        if (e->plain && e->pipeline)
                tls_plaintext_unlock(e->plain);

        if (e->plain && e->gone)
                bpf_map_delete_elem(&plaintext, &e->conn->key);
        if (e->muxed && (e->gone || e->unsent == 0)) {
                m = bpf_map_lookup_elem(&plaintext_h2, &e->conn->key);
                e->refused = m && m->h2.settled & H2_ENDED_BY_ERROR;
                effect->unanswered = tls_plaintext_h2_drop(&e->conn->key) ?: effect->unanswered;
        } else if (e->muxed)
                tls_plaintext_h2_commit(e->plain);
        if (e->plain && e->gone)
                e->conn->key.ssl = 0;
}

/* Counts the requests without response at the end of a connection. */
static __always_inline void end_record(struct sock *sk, struct qos_unit_map *u, __u32 target, int old_state,
                                       const struct connection_end *e, __u32 unanswered) {
        __u32 cell;

        if (unanswered == 0 || e->not_understood)
                return; /* possibly not a request, and not a skipped run */
        if (e->missed) {
                /* The missed data may not have been a request */
                window_count(u, QOS_COUNTER_DROPS, unanswered);
                return;
        }
        cell = end_cell(sk->sk_err, old_state);
        /* The server has reported an error, no matter which side closes first */
        if (e->refused || (e->h && e->h->settled & H2_ENDED_BY_ERROR))
                cell = QOS_COUNTER_ERRORS_RESET;
        if (e->conn && e->conn->tls.failed & TLS_FAILED_COUNTED)
                cell = tls_failed_cell(&e->conn->tls, cell);
        /* A client that closes has not aborted a request if the server never responds */
        if (cell != QOS_COUNTER_CLIENT_ABORTS || sk->sk_err != 0 || target_has_responded(u, target))
                record_count(u, target, cell, cell - QOS_COUNTER_ERRORS_RESET + QOS_ENTRY_ERRORS_RESET,
                             unanswered);
}

static __always_inline int connection_finish(struct sock *sk, struct conn *c, struct qos_unit_map *u,
                                             struct tcp_sock *tp, __u32 copied, __u64 states) {
        int old_state = states >> 32, new_state = (__u32) states;
        struct connection_end e = {
                .now = bpf_ktime_get_ns(),
                .by_unit = histogram_if_zero(sk->sk_err) &
                           ~histogram_if_zero((old_state ^ TCP_CLOSE_WAIT) * (old_state ^ TCP_LAST_ACK) *
                                              (old_state ^ TCP_CLOSING)),
                .unsent = tp->write_seq - tp->snd_nxt,
                .gone = new_state == TCP_CLOSE,
        };
        struct exchange_effect effect = {};
        struct attribution a;

        if (exchange_distance(copied, c->x.read_end) > 0 && c->x.flags & EXCHANGE_READ_KNOWN)
                read_missed(sk, c, u, copied);
        end_find_parsers(sk, c, &e);

        bpf_spin_lock(&c->lock);
        end_settle(c, &e, copied, &effect);
        a = conn_commit(c, &effect);
        bpf_spin_unlock(&c->lock);
        end_parsers(sk, &e, &effect);

        u = attribution_resolve(u, &a);
        if (!u)
                return 0;
        window_advance(u, e.now);
        end_record(sk, u, a.target, old_state, &e, effect.unanswered);
        /* Includes a retransmission that could not be sent, which not all kernels trace */
        conn_count_retransmits(c, tp->total_retrans, u);
        record_effect(u, a.target, &effect);
        if (e.gone)
                conn_count(c, u, false, e.now);
        return 0;
}

static __always_inline int connection_set_state(struct sock *sk, int old_state, int new_state,
                                                struct overhead *overhead) {
        struct qos_owner owner;
        struct tcp_sock *tp;
        struct qos_unit_map *u;
        struct conn *c;
        __u32 copied;

        if (new_state == TCP_LISTEN) {
                if (!task_owner(&owner))
                        return 0;
                u = unit_get(&owner);
                if (u)
                        listener_learn(sk, &owner, u, false);
                return 0;
        }

        if (new_state == TCP_SYN_SENT) {
                /* connect(): the address is known. A socket may be connected repeatedly */
                if (!task_owner(&owner))
                        return 0;
                u = unit_get(&owner);
                c = u ? conn_learn(sk, CONN_CLIENT, &owner, u) : NULL;
                if (c) {
                        client_begin(sk, c, &owner);
                        c->tcp_state = new_state;
                }
                return 0;
        }

        c = bpf_sk_storage_get(&conns, sk, 0, 0);
        if (!c)
                return 0;

        if (old_state == TCP_LISTEN)
                return 0;

        /* Recorded by the other one of the two programs, see requests_state */
        if (c->tcp_state == new_state)
                return 0;
        c->tcp_state = new_state;

        if (c->kind == CONN_OTHER)
                return 0;
        u = unit_get(&c->owner);
        if (!u) {
                struct tls_conn *conn = new_state == TCP_CLOSE
                        ? bpf_sk_storage_get(&tls_conns, sk, 0, 0) : NULL;

                return conn ? tls_plaintext_reset(sk, conn) : 0;
        }
        overhead_begin(overhead, &c->owner, u);
        tp = bpf_skc_to_tcp_sock(sk);
        if (!tp)
                return 0;
        copied = tcp_read_end(tp, old_state);
        if (c->kind == CONN_CLIENT) {
                /* shutdown() for writing alone may be part of a request */
                if (new_state == TCP_CLOSE || new_state == TCP_CLOSE_WAIT ||
                    (new_state == TCP_FIN_WAIT1 && sk->sk_shutdown == SHUTDOWN_MASK))
                        client_end(c, u, sk->sk_err, old_state, (__u64) copied << 32 | new_state);
                return 0;
        }

        if (new_state == TCP_ESTABLISHED && old_state == TCP_SYN_RECV)
                return connection_begin(sk, c, u, tp, copied);
        if (new_state == TCP_FIN_WAIT1 || new_state == TCP_LAST_ACK || new_state == TCP_CLOSE)
                return connection_finish(sk, c, u, tp, copied,
                                         (__u64) (__u32) old_state << 32 | (__u32) new_state);
        return 0;
}
