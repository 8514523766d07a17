/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

/* Requests: detects their protocol and parses them when the application reads their bytes */

#include "read-position.h"
#include "tls-conn.bpf.h"

/* Parses a chunk of requests. where: offset of the chunk in the buffer (upper half), and position in the
 * stream; span: offset in the chunk from which to parse (upper half), and its length. The end is left in
 * p->work. Global, so that the verifier checks it once. */
__attribute__((noinline, weak)) int requests_parse(struct sk_buff *skb __arg_trusted, struct pipeline *p,
                                                   const struct qos_owner *owner, __u64 where, __u64 span) {
        struct bpf_dynptr data;
        struct chunk *f;

        if (!p || !owner)
                return 0;
        f = chunk_init(p, span);
        f->at = f->window_begin = f->window_end = span >> 32;
        if (bpf_dynptr_from_skb((struct __sk_buff*) skb, 0, &data) < 0)
                f->piece.lost = 1;
        chunk_parse_requests(f, p, &(struct chunk_source) { .data = &data, .offset = where >> 32,
                                                            .restarts = true },
                             &p->times, where, owner);
        return 0;
}

/* ---- HTTP/2 ---- */

/* The connection is HTTP/2. Returns RECEIVE_H2; 0: no memory. */
static __attribute__((noinline)) int receive_h2_begin(struct sock *sk, struct conn *c, __u32 copied,
                                                      __u32 late) {
        struct h2_conn *h;

        if (!sk || !c)
                return 0;
        h = bpf_sk_storage_get(&h2_conns, sk, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
        if (!h) {
                element_lost(QOS_STATISTIC_LOST_H2_CONNS, &c->owner);
                c->tries = TRIES_MAX;
                return 0;
        }
        h2_begin(h, copied, late);
        h2_clear(h, NULL);

        bpf_spin_lock(&c->lock);
        c->x.flags |= EXCHANGE_H2;
        c->x.first_at = 0; /* see read_apply() */
        bpf_spin_unlock(&c->lock);
        return RECEIVE_H2;
}

/* Like requests_parse(). Stops where struct h2_more is needed. */
__attribute__((noinline, weak)) int h2_conn_take_requests(struct sk_buff *skb __arg_trusted,
                                                          struct h2_conn *h, struct h2_more *more,
                                                          struct qos_unit_map *u,
                                                          struct h2_conn_request_chunk *q) {
        struct bpf_dynptr data;

        if (!h || !u || !q)
                return 0;
        if (bpf_dynptr_from_skb((struct __sk_buff*) skb, 0, &data) < 0)
                h->piece.lost = 1;
        h2_conn_parse_requests(h, more, u, q, &(struct chunk_source) { .data = &data }, /* stops= */ true);
        return 0;
}

/* Whether a chunk consists of whole frames. A separate function, for its stack. */
__attribute__((noinline, weak)) int receive_is_framed(struct sk_buff *skb __arg_trusted, __u32 offset,
                                                      __u32 length) {
        struct bpf_dynptr data;
        __u32 at = 0, n;

        if (bpf_dynptr_from_skb((struct __sk_buff*) skb, 0, &data) < 0)
                return 0;
        while (at < length && can_loop) {
                __u64 header = 0;
                __u8 last = 0;

                if (bpf_dynptr_read(&header, sizeof(header), &data, offset + at, 0) < 0 ||
                    bpf_dynptr_read(&last, sizeof(last), &data, offset + at + sizeof(header), 0) < 0)
                        return 0;
                n = h2_frame_size(bpf_be64_to_cpu(header), last);
                if (n == 0 || n > length - at)
                        return 0;
                at += n;
        }
        return at == length;
}

/* Returns struct h2_more of a connection, which few have. owner: of the connection, to allocate it if
 * needed; NULL: do not allocate it. */
static __always_inline struct h2_more* h2_conn_more(struct sock *sk, struct h2_conn *h,
                const struct qos_owner *owner) {
        struct h2_more *more;

        if (h->more == H2_MORE_HERE)
                return bpf_sk_storage_get(&h2_mores, sk, 0, 0);
        if (!owner || !h2_wants_more(h))
                return NULL;
        more = bpf_sk_storage_get(&h2_mores, sk, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
        if (more)
                h2_more_begin(h, more);
        else {
                h->more = H2_MORE_LOST;
                element_lost(QOS_STATISTIC_LOST_H2_MORES, owner);
        }
        return more;
}

/* Parses a chunk of requests on an HTTP/2 connection. Parameters as for receive_parse(). */
static __attribute__((noinline)) int receive_h2(struct sk_buff *skb, struct conn *c, struct qos_unit_map *u,
                                                __u64 where, __u64 piece) {
        __u32 copied = where >> 32, unsent = where, parsed;
        struct h2_conn_request_chunk q = { .f = { .offset = piece >> 32, .position = copied,
                .end = piece } };
        struct exchange_effect effect = {};
        struct attribution p;
        struct h2_more *more;
        struct sock *sk;
        struct h2_conn *h;

        if (!skb || !c || !u)
                return 0;
        sk = skb->sk;
        if (!sk)
                return 0;
        h = bpf_sk_storage_get(&h2_conns, sk, 0, 0);
        if (!h)
                return 0;

        more = h2_conn_more(sk, h, NULL);
        h2_piece_begin(&h->piece, bpf_ktime_get_ns());
        if (h2_is_time_to_doubt(h, h->piece.now)) {
                window_advance(u, h->piece.now);
                /* read_apply() updates the gauge */
                window_count(u, QOS_COUNTER_DROPS, h2_doubt(h, more, h->piece.now));
        }
        parsed = h->in_pos - copied;
        if ((__s32) parsed < 0)
                return zero(); /* something was missed before: see read_apply() */
        if (h->in.synced != H2_SYNCED) {
                struct bpf_dynptr data;
                __u64 first = 0;

                if (q.f.end < sizeof(first) || bpf_dynptr_from_skb((struct __sk_buff*) skb, 0, &data) < 0 ||
                    bpf_dynptr_read(&first, sizeof(first), &data, q.f.offset, 0) < 0 ||
                    !h2_resumes(h, copied, first, sizeof(first), unsent,
                                h2_is_doubtful(h, unsent) && receive_is_framed(skb, q.f.offset, q.f.end)))
                        return zero();
        }
        q.f.at = parsed; /* already parsed (MSG_PEEK) */

        bpf_spin_lock(&c->lock);
        h->times.came_at = exchange_came_at_once(&c->x, copied + q.f.end);
        if (h->times.came_at == 0)
                exchange_get_marks(&c->x, &h->times.marks);
        p = conn_commit(c, &effect);
        bpf_spin_unlock(&c->lock);
        if (!h->piece.lost && q.f.at < q.f.end) {
                u = attribution_resolve(u, &p);
                if (!u)
                        return 0;
                window_advance(u, h->piece.now);
                q.owner = p.owner;
                h->names = names_are_wanted(&q.owner);
                q.target = p.target;
                more = h2_conn_more(sk, h, &c->owner);
                h2_conn_take_requests(skb, h, more, u, &q);
                if (h2_wants_more(h)) {
                        more = h2_conn_more(sk, h, &c->owner);
                        h2_conn_take_requests(skb, h, more, u, &q);
                }
                h->in_pos = copied + q.f.at;
        }
        if (h->piece.lost)
                return h2_conn_abandon(c, h, u);

        effect.in_flight = h2_extra(h);
        if (effect.in_flight == 0 && h->piece.unseen == 0 && h->piece.dropped == 0)
                return zero();

        bpf_spin_lock(&c->lock);
        p = conn_commit(c, &effect);
        bpf_spin_unlock(&c->lock);
        u = attribution_resolve(u, &p);
        if (!u)
                return 0;
        window_advance(u, h->piece.now);
        record_effect(u, p.target, &effect);
        if (h->piece.unseen > 0)
                record_count(u, p.target, QOS_COUNTER_OVERLAPS, QOS_ENTRY_OVERLAPS, h->piece.unseen);
        if (h->piece.dropped > 0)
                record_count(u, p.target, QOS_COUNTER_CLIENT_ABORTS, QOS_ENTRY_CLIENT_ABORTS,
                        h->piece.dropped);
        return 0;
}

/* Whether the first chunk was the beginning of the HTTP/2 preface. */
static __attribute__((noinline)) int content_is_preface(struct sock *sk, struct conn *c, struct pipeline *p,
                                                        __u64 bytes, __u64 piece) {
        __u32 copied = piece >> 32, taken;
        struct h2_conn *h;

        if (!sk || !c || !p)
                return 0;
        taken = p->in_pos == copied ? h2_conn_preface(p, bytes, piece) : 0;
        if (taken == 0 || !receive_h2_begin(sk, c, copied, 0))
                return 0;
        h = bpf_sk_storage_get(&h2_conns, sk, 0, 0);
        if (!h)
                return 0;
        h->in.left -= taken;

        bpf_spin_lock(&c->lock);
        c->x.flags &= ~EXCHANGE_PARSED;
        bpf_spin_unlock(&c->lock);
        return RECEIVE_H2;
}

/* ---- detection ---- */

/* Detects the protocol of a chunk that begins with these bytes. Global, so that the verifier checks it
 * once. */
__attribute__((noinline, weak)) __u32 content_protocol(struct sk_buff *skb __arg_trusted, __u32 offset,
                                                       __u64 first, __u32 n) {
        struct bpf_dynptr data;
        __u64 head = 0;

        if (n == DNS_LENGTH_SIZE && bpf_dynptr_from_skb((struct __sk_buff*) skb, 0, &data) == 0 &&
            bpf_dynptr_read(&head, sizeof(head), &data, offset, 0) == 0 && dns_detect(head, sizeof(head)))
                return PROTOCOL_DNS;
        return protocol_detect(first, n);
}

/* SSH servers read the banner byte by byte, and its first byte alone may begin an HTTP request: checks the
 * whole banner. */
static __always_inline bool receive_is_ssh(struct conn *c, struct bpf_dynptr *data, __u32 offset,
                                           __u64 first) {
        __u32 word = 0;

        if ((first & 0xff) != 'S' || bpf_dynptr_read(&word, sizeof(word), data, offset, 0) != 0 ||
            !exchange_is_ssh(word))
                return false;
        bpf_spin_lock(&c->lock);
        c->x.flags |= EXCHANGE_SESSION;
        bpf_spin_unlock(&c->lock);
        c->tries = TRIES_MAX;
        return true;
}

/* Data of no protocol with a plaintext parser. first: its first bytes; n: its length. */
static __always_inline int receive_plain(struct sock *sk, struct conn *c, __u32 copied, __u64 first,
                                         __u32 n) {
        c->tries++;
        if (exchange_is_fastcgi(first, n)) {
                bpf_spin_lock(&c->lock);
                c->x.flags |= EXCHANGE_FASTCGI;
                bpf_spin_unlock(&c->lock);
        }
        if (tls_detect(first, n))
                return tls_receive(sk, c, copied, first & 0xff);
        if (!(c->x.flags & EXCHANGE_FRESH) && h2_detect_late(first, n))
                return receive_h2_begin(sk, c, copied, 1);
        return 0;
}

/* Returns NULL if there is no memory: the connection is not parsed. */
static __always_inline struct pipeline* receive_begin_pipeline(struct sock *sk, struct conn *c,
                                                               __u32 protocol, __u32 copied) {
        struct pipeline *p;

        p = bpf_sk_storage_get(&pipelines, sk, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
        if (!p) {
                element_lost(QOS_STATISTIC_LOST_PIPELINES, &c->owner);
                c->tries = TRIES_MAX;
                return NULL;
        }
        pipeline_begin(p, protocol, copied, c->x.state == EXCHANGE_RESPONDING);

        bpf_spin_lock(&c->lock);
        c->x.flags |= EXCHANGE_PARSED;
        bpf_spin_unlock(&c->lock);
        return p;
}

/* Parses a chunk of requests. where: position of the chunk in the stream (upper half), and bytes written by
 * the application, but not sent; piece: its offset in the buffer (upper half), and its length. A separate
 * function, so that unparsed connections do not need its stack. */
static __attribute__((noinline)) int receive_parse(struct sk_buff *skb, struct conn *c,
                                                   struct qos_unit_map *u, __u64 where, __u64 piece) {
        __u32 copied = where >> 32, unsent = where, offset = piece >> 32, len = piece, parsed;
        struct exchange_effect effect = {};
        struct qos_owner owner;
        struct chunk *f;
        struct sock *sk;
        struct pipeline *p;

        if (!skb || !c || !u)
                return 0;
        sk = skb->sk;
        if (!sk)
                return 0;

        p = c->x.flags & EXCHANGE_PARSED ? bpf_sk_storage_get(&pipelines, sk, 0, 0) : NULL;
        if (p && (p->missed ? p->in_pos != copied : exchange_distance(copied, p->in_pos) > 0))
                return 0; /* something was missed before: see read_apply() */
        if (!p || p->missed || h2_conn_may_be_preface(p)) {
                __u32 n = len, protocol;
                __u64 first = 0;
                struct bpf_dynptr data;

                if (n > sizeof(first))
                        n = sizeof(first);
                BPF_BOUND(n, sizeof(first) + 1);
                if (bpf_dynptr_from_skb((struct __sk_buff*) skb, 0, &data) < 0 ||
                    bpf_dynptr_read(&first, n, &data, offset, 0) < 0)
                        return 0;
                /* After a request of another protocol to start TLS, which has no response (MySQL) */
                if (!p && c->x.state == EXCHANGE_PENDING && !tls_is_greeting(first, n))
                        return 0;
                if (p && p->missed) {
                        if (!pipeline_resumes(p, copied, first, n, unsent))
                                return 0;
                        goto pipeline;
                }
                if (p) {
                        if (content_is_preface(sk, c, p, first, (__u64) copied << 32 | n))
                                return RECEIVE_H2;
                        goto pipeline;
                }
                if (h2_detect(first, n))
                        return receive_h2_begin(sk, c, copied, 0);
                if (c->tries == 0 && c->x.state == EXCHANGE_RESPONDING) {
                        /* The first request was missed: the connection is treated as older than the
                         * attach */
                        bpf_spin_lock(&c->lock);
                        c->x.flags &= ~EXCHANGE_FRESH;
                        bpf_spin_unlock(&c->lock);
                }
                if (receive_is_ssh(c, &data, offset, first))
                        return 0;
                protocol = content_protocol(skb, offset, first, n);
                if (protocol == PROTOCOL_PLAIN)
                        return receive_plain(sk, c, copied, first, n);
                p = receive_begin_pipeline(sk, c, protocol, copied);
                if (!p)
                        return 0;
        }

pipeline:
        owner = owner_read(&c->owner);
        p->times.how = names_are_wanted(&owner) ? PROTOCOL_NAMES : 0;
        /* Already parsed (MSG_PEEK) */
        parsed = p->in_pos - copied;

        /* Without the lock at first: the marks of these bytes were written before TCP queued them under the
         * socket lock, which the reader holds now. Data that arrives meanwhile only adds marks after the
         * first one: the result is the same as with the lock, or 0 */
        p->times.came_at = exchange_came_at_once(&c->x, copied + len);
        if (p->times.came_at == 0) {
                bpf_spin_lock(&c->lock);
                p->times.came_at = exchange_came_at_once(&c->x, copied + len);
                exchange_get_marks(&c->x, &p->times.marks);
                bpf_spin_unlock(&c->lock);
        }
        requests_parse(skb, p, &owner, (__u64) offset << 32 | copied, (__u64) parsed << 32 | len);
        f = (struct chunk*) p->work;

        if (!f->piece.lost) {
                if (f->at > parsed)
                        p->in_pos = copied + f->at;
                pipeline_request_chunk(p, &p->times, p->in_pos);
                effect.in_flight += pipeline_extra(p);
        } else if (p->flags & PIPELINE_UNDERSTOOD) {
                pipeline_misunderstand(p, copied + len, pipeline_when(&p->times, copied + f->at, 0), unsent);
                effect.in_flight += pipeline_extra(p);
        } else {
                bpf_spin_lock(&c->lock);
                c->tries++;
                pipeline_abandon(p, &c->x, &effect);
                bpf_spin_unlock(&c->lock);
        }

        if (effect.in_flight != 0)
                conn_apply(c, u, &effect, bpf_ktime_get_ns());
        return zero();
}
