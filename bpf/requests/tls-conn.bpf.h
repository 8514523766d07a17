/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

/* TLS connections: parses records when they are read and sent, and, with the probe "tls", relates them to
 * the plaintext (tls-plaintext.bpf.h). */

#include "tcp-transmit.bpf.h"

/* Notifies the daemon of owners of TLS connections that are read outside of any known library, which the
 * daemon then searches for. Each unit has one record at a time. */
struct {
        __uint(type, BPF_MAP_TYPE_RINGBUF);
        __uint(max_entries, 4096);
} missing_libraries SEC(".maps");

/* Initial value of an element of plaintext, which is too large for the stack. */
BPF_ARRAY_MAP(plaintext_fresh, ARRAY, 1, struct tls_plaintext);

/* ---- records ---- */

struct tls_chunk {
        __u32 offset;           /* offset of the chunk in the buffer */
        __u32 at;               /* the next byte */
        __u32 end;              /* number of bytes */
        __u32 seen;             /* TLS_STEP_APPLICATION, TLS_STEP_LOST */
};

/* Parses records in data that is read. */
__attribute__((noinline, weak)) int tls_conn_take(struct sk_buff *skb __arg_trusted, struct tls *tls,
                                                  struct tls_chunk *f) {
        struct bpf_dynptr data;
        __u32 there, n, r;
        __u64 bytes;

        if (!tls || !f)
                return 0;
        if (bpf_dynptr_from_skb((struct __sk_buff*) skb, 0, &data) < 0)
                f->seen |= TLS_STEP_LOST;
        while (!(f->seen & TLS_STEP_LOST) && f->at < f->end && can_loop) {
                there = f->end - f->at;
                bytes = 0;
                if (tls->in.left == 0) {
                        n = there < sizeof(bytes) ? there : sizeof(bytes);
                        BPF_BOUND(n, sizeof(bytes) + 1);
                        if (n > 0 && bpf_dynptr_read(&bytes, n, &data, f->offset + f->at, 0) < 0) {
                                f->seen |= TLS_STEP_LOST;
                                break;
                        }
                }
                r = tls_step(tls, 0, bytes, there);
                f->at += TLS_STEP_TAKEN(r);
                f->seen |= r & (TLS_STEP_APPLICATION | TLS_STEP_LOST);
        }
        return 0;
}

/* Parses records in data that is sent. */
__attribute__((noinline, weak)) int tls_conn_take_out(struct __sk_buff *skb, struct tls *tls,
                                                      struct tls_chunk *f) {
        __u32 there, n, r;
        __u64 bytes;

        if (!skb || !tls || !f)
                return 0;
        while (!(f->seen & TLS_STEP_LOST) && f->at < f->end && can_loop) {
                there = f->end - f->at;
                bytes = 0;
                if (tls->out.left == 0) {
                        n = there < sizeof(bytes) ? there : sizeof(bytes);
                        BPF_BOUND(n, sizeof(bytes) + 1);
                        if (n > 0 && bpf_skb_load_bytes(skb, f->offset + f->at, &bytes, n) < 0) {
                                f->seen |= TLS_STEP_LOST;
                                break;
                        }
                }
                r = tls_step(tls, 1, bytes, there);
                f->at += TLS_STEP_TAKEN(r);
                f->seen |= r & (TLS_STEP_APPLICATION | TLS_STEP_LOST);
        }
        return 0;
}

/* Drops the plaintext of a connection. */
static __attribute__((noinline)) int tls_plaintext_reset(struct sock *sk, struct tls_conn *conn) {
        struct tls_plaintext *plain;

        if (!sk || !conn || conn->key.ssl == 0)
                return 0;
        plain = bpf_map_lookup_elem(&plaintext, &conn->key);
        if (plain && plain->sock == (__u64) (long) sk) {
                bpf_map_delete_elem(&plaintext, &conn->key);
                tls_plaintext_h2_drop(&conn->key);
        }
        conn->key.ssl = 0;
        return 0;
}

/* The connection is TLS: its records are parsed from here on. Returns RECEIVE_TLS; 0: no memory. type: of
 * the first record. */
static __attribute__((noinline)) int tls_receive(struct sock *sk, struct conn *c, __u32 copied, __u32 type) {
        const struct tls_side fresh = {};
        struct tls_conn *conn;

        if (!sk || !c)
                return 0;
        conn = bpf_sk_storage_get(&tls_conns, sk, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
        if (!conn) {
                element_lost(QOS_STATISTIC_LOST_TLS_CONNS, &c->owner);
                c->tries = TRIES_MAX;
                return 0;
        }
        /* The storage may have been used for a unit that was detached since: the protocol, and whether the
         * handshake is complete, still hold */
        tls_plaintext_reset(sk, conn);
        conn->left_bytes = 0;
        conn->tls.in = conn->tls.out = fresh;
        conn->tls.has_request = conn->tls.out_lost = conn->tls.tries = 0;
        conn->tls.missed = conn->tls.failed = conn->tls.early = 0;
        conn->tls.in_pos = copied;
        conn->tls.greeted = type == TLS_HANDSHAKE && conn->tls.phase != TLS_ESTABLISHED ?
                            TLS_GREETED_CLIENT : 0;
        if (type == TLS_APPLICATION)
                conn->tls.phase = TLS_ESTABLISHED; /* older than the attach */

        bpf_spin_lock(&c->lock);
        if (c->x.state == EXCHANGE_PENDING)
                c->x.state = EXCHANGE_IDLE;
        c->x.flags |= EXCHANGE_TLS;
        bpf_spin_unlock(&c->lock);
        return RECEIVE_TLS;
}

/* A ServerHello is sent, but no ClientHello was seen, as the kernel has skipped the run for it; or a fatal
 * alert, in response to data that is not a ClientHello. Returns RECEIVE_TLS if the connection is TLS. */
static __attribute__((noinline)) int tls_receive_unseen(struct __sk_buff *skb, struct sock *sk,
                                                        struct conn *c, __u64 where,
                                                        struct exchange_effect *effect) {
        __u32 offset = where >> 32, copied = where;
        struct tls_conn *conn;
        __u64 bytes = 0;

        if (!skb || !sk || !c || !effect || bpf_skb_load_bytes(skb, offset, &bytes, 6) < 0 ||
            (!tls_is_server_hello(bytes) && !tls_is_fatal_alert(bytes, 6)) ||
            !tls_receive(sk, c, copied, TLS_HANDSHAKE))
                return 0;
        conn = bpf_sk_storage_get(&tls_conns, sk, 0, 0);
        if (conn)
                conn->tls.missed = 1;
        bpf_spin_lock(&c->lock);
        if (c->x.n_marks == 0)
                exchange_shut(&c->x, effect);
        bpf_spin_unlock(&c->lock);
        return RECEIVE_TLS;
}

struct offer_feed {
        struct tls_offer offer;
        struct bpf_dynptr *data;
        __u32 there;            /* end of the buffer */
};

static long offer_step(__u64 i, void *data) {
        struct offer_feed *f = data;
        __u32 bytes = 0, n;

        n = f->offer.at < f->there ? f->there - f->offer.at : 0;
        if (n > sizeof(bytes))
                n = sizeof(bytes);
        BPF_BOUND(n, sizeof(bytes) + 1);
        if (n > 0 && bpf_dynptr_read(&bytes, n, f->data, f->offer.at, 0) < 0)
                return 1;
        return tls_offer_step(&f->offer, bpf_ntohl(bytes)) != 0;
}

/* Result of offer_read(), with TLS_EARLY_OFFERED: the ClientHello does not offer HTTP/2. */
#define OFFER_PLAIN (1U << 8)

/* Returns what the ClientHello at the offset offers; 0: the buffer does not contain all of it. there: end of
 * the buffer. */
static __attribute__((noinline)) int offer_read(struct bpf_dynptr *data, __u32 offset, __u32 there) {
        struct offer_feed f = {};
        __u8 session, compressions;
        __u16 ciphers, extensions;
        __u8 type;

        if (!data || bpf_dynptr_read(&type, 1, data, offset, 0) < 0 || type != TLS_HANDSHAKE)
                return 0;
        f.offer.at = offset + TLS_OFFER_SESSION;
        if (bpf_dynptr_read(&session, 1, data, f.offer.at, 0) < 0)
                return 0;
        f.offer.at += 1 + session;
        if (bpf_dynptr_read(&ciphers, 2, data, f.offer.at, 0) < 0)
                return 0;
        f.offer.at += 2 + bpf_ntohs(ciphers);
        if (bpf_dynptr_read(&compressions, 1, data, f.offer.at, 0) < 0)
                return 0;
        f.offer.at += 1 + compressions;
        if (bpf_dynptr_read(&extensions, 2, data, f.offer.at, 0) < 0)
                return 0;
        f.offer.at += 2;
        f.offer.end = f.offer.at + bpf_ntohs(extensions);
        if (f.offer.end > there)
                return 0;
        f.data = data;
        f.there = there;
        bpf_loop(TLS_OFFER_STEPS_MAX, offer_step, &f, 0);
        return f.offer.at != f.offer.end ? 0 : f.offer.early | (f.offer.http2 ? 0 : OFFER_PLAIN);
}

/* Data of a client on a TLS connection is read. Parameters as for receive_parse(). */
static __attribute__((noinline)) int tls_receive_plaintext(struct sk_buff *skb, struct conn *c, __u64 where,
                                                           __u64 piece) {
        struct tls_chunk f = { .offset = piece >> 32, .end = piece };
        __u32 copied = where >> 32, unsent = where;
        struct tls_conn *conn;
        struct sock *sk;
        struct tls *tls;

        if (!skb || !c)
                return 0;
        sk = skb->sk;
        if (!sk)
                return 0;
        conn = bpf_sk_storage_get(&tls_conns, sk, 0, 0);
        if (!conn)
                return 0;
        tls = &conn->tls;
        if ((__s32) (tls->in_pos - copied) < 0)
                return 0; /* earlier data was missed, see read_apply() */
        if (tls->missed) {
                __u32 n = f.end < sizeof(__u64) ? f.end : sizeof(__u64);
                struct bpf_dynptr data;
                __u64 first = 0;

                BPF_BOUND(n, sizeof(first) + 1);
                if (n == 0 || bpf_dynptr_from_skb((struct __sk_buff*) skb, 0, &data) < 0 ||
                    bpf_dynptr_read(&first, n, &data, f.offset, 0) < 0 || c->x.state == EXCHANGE_PENDING ||
                    !tls_resumes(tls, copied, first, n, unsent))
                        return 0;
        }
        if (tls->phase == TLS_HELLO && tls->in.have == 0 && tls->in.left == 0) {
                struct bpf_dynptr data;
                __u32 offer = 0;

                if (bpf_dynptr_from_skb((struct __sk_buff*) skb, 0, &data) == 0)
                        offer = offer_read(&data, f.offset, skb->len);
                tls->plain |= offer / OFFER_PLAIN;
                tls->early |= offer & TLS_EARLY_OFFERED;
        }
        if ((__s32) (tls->in_pos - copied) > 0)
                f.at = tls->in_pos - copied; /* already parsed (MSG_PEEK) */
        if (tls->failed & TLS_FAILED_RECORD)
                tls->in_pos = copied + f.end;
        else if (f.at < f.end) {
                tls_conn_take(skb, tls, &f);
                tls->in_pos = copied + f.at;
        }

        if (f.seen & TLS_STEP_APPLICATION)
                tls->has_request = 1;
        if (f.seen & TLS_STEP_LOST) {
                tls->certain = 0;
                tls->in_pos = copied + f.end;
                if (tls_breaks_off(tls))
                        return 0;
                bpf_spin_lock(&c->lock);
                c->x.flags &= ~EXCHANGE_TLS;
                c->tries = TRIES_MAX;
                bpf_spin_unlock(&c->lock);
        }
        return 0;
}

struct hello {
        struct __sk_buff *skb;
        __u32 at;               /* offset of the next extension */
        __u32 end;
        __u32 http2;
};

static long hello_step(__u64 i, void *data) {
        struct hello *h = data;
        __u64 bytes;

        if (h->at + sizeof(bytes) > h->end || bpf_skb_load_bytes(h->skb, h->at, &bytes, sizeof(bytes)) < 0)
                return 1;
        bytes = bpf_be64_to_cpu(bytes);
        h->http2 = bytes == TLS_EXTENSION_HTTP2;
        h->at += 4 + TLS_EXTENSION_LENGTH(bytes);
        return h->http2;
}

/* Whether a ServerHello selects HTTP/2. piece: as for receive_parse(). */
static __attribute__((noinline)) int hello_is_http2(struct __sk_buff *skb, __u64 piece) {
        __u32 offset = piece >> 32, len = piece;
        struct hello h = {};
        __u8 session;

        if (!skb || bpf_skb_load_bytes(skb, offset + TLS_HELLO_SESSION, &session, 1) < 0)
                return 0;
        h.skb = skb;
        h.at = offset + TLS_HELLO_EXTENSIONS(session);
        h.end = offset + len;
        bpf_loop(TLS_EXTENSIONS_MAX, hello_step, &h, 0);
        return h.http2;
}

/* ---- plaintext ---- */

/* Whether the element is the plaintext of this connection, and complete. */
static __always_inline bool tls_plaintext_holds(const struct tls_plaintext *plain, const struct sock *sk,
                struct conn *c) {
        return plain->sock == (__u64) (long) sk && plain->generation == c->owner.generation &&
               !plain->lost && watch_get(&c->owner);
}

/* Drops the plaintext: the connection is counted by its records from here on. Returns 0, without effect, if
 * another program has the lock. */
static __attribute__((noinline)) int tls_plaintext_abandon(struct conn *c, struct qos_unit_map *u,
                                                           struct tls_conn *conn,
                                                           struct tls_plaintext *plain) {
        struct exchange_effect effect = {};

        if (!c || !u || !conn || !plain || !tls_plaintext_lock(plain))
                return 0;

        if (plain->pipeline.protocol == PROTOCOL_HTTP2) {
                struct tls_plaintext_h2 *m = bpf_map_lookup_elem(&plaintext_h2, &conn->key);

                /* Unless it was an unconfirmed guess */
                if (!plain->late || (m && m->h2.settled))
                        conn->tls.http2 = 1;
                /* Open streams are lost, which only matters while the unit has the probe */
                effect.overlap = tls_plaintext_h2_drop(&conn->key) > 0 &&
                                 (plain->lost || watch_get(&c->owner));
                plain->pipeline.protocol = PROTOCOL_PLAIN;
        }
        conn->tls.tries = plain->pipeline.flags & PIPELINE_UNDERSTOOD && plain->lost ?
                          TRIES_MAX : plain->tries + plain->lost;
        bpf_spin_lock(&c->lock);
        if (plain->pipeline.protocol != PROTOCOL_PLAIN)
                pipeline_abandon(&plain->pipeline, &c->x, &effect);
        bpf_spin_unlock(&c->lock);
        bpf_map_delete_elem(&plaintext, &conn->key);
        conn->key.ssl = 0;

        conn_apply(c, u, &effect, bpf_ktime_get_ns());
        return zero() + 1;
}

/* Returns the plaintext of a connection; NULL: it is counted by its records. */
static __attribute__((noinline)) struct tls_plaintext* tls_plaintext_get(struct sock *sk, struct conn *c,
                                                                         struct qos_unit_map *u,
                                                                         struct tls_conn *conn) {
        struct tls_plaintext *plain;

        if (!sk || !c || !u || !conn || conn->key.ssl == 0)
                return NULL;
        plain = bpf_map_lookup_elem(&plaintext, &conn->key);
        if (!plain || plain->sock != (__u64) (long) sk) {
                conn->key.ssl = 0; /* another connection uses the object now */
                return NULL;
        }
        if (!tls_plaintext_holds(plain, sk, c)) {
                tls_plaintext_abandon(c, u, conn, plain);
                return NULL;
        }
        return plain;
}

/* Data of a TLS connection is read, by the library if the task is in one of its calls: then binds the socket
 * to the library object. */
static __attribute__((noinline)) int tls_plaintext_bind(struct sock *sk, struct conn *c,
                struct qos_unit_map *u) {
        struct qos_owner owner;
        struct library_call *call;
        struct tls_plaintext *plain;
        struct qos_probe_config *w;
        struct tls_conn *conn;
        __u32 zero = 0;
        void *fresh;

        if (!sk || !c || !u)
                return 0;
        conn = bpf_sk_storage_get(&tls_conns, sk, 0, 0);
        if (!conn || conn->tls.tries >= TRIES_MAX)
                return 0;
        /* Data can still be read after a reset, but no event would follow that drops the element */
        if (sk->__sk_common.skc_state == TCP_CLOSE)
                return 0;
        owner = owner_read(&c->owner);

        call = bpf_task_storage_get(&openssl_calls, bpf_get_current_task_btf(), 0, 0);
        if (!call || call->key.ssl == 0) {
                w = conn->key.ssl == 0 ? watch_get(&owner) : NULL;
                if (w && __sync_val_compare_and_swap(&w->missing_libraries, 0, 1) == 0 &&
                    bpf_ringbuf_output(&missing_libraries, &owner, sizeof(owner), 0) < 0)
                        w->missing_libraries = 0;
                return 0;
        }

        plain = conn->key.ssl != 0 ? bpf_map_lookup_elem(&plaintext, &conn->key) : NULL;
        if (plain && plain->sock == (__u64) (long) sk) {
                if (tls_plaintext_key_equal(&conn->key, &call->key) && tls_plaintext_holds(plain, sk, c)) {
                        /* A record may be read in two parts: the second one must not clear the flag */
                        plain->begins |= c->x.state != EXCHANGE_PENDING;
                        return 0;
                }
                if (!tls_plaintext_abandon(c, u, conn, plain))
                        return 0;
        }

        /* The object was reused before its previous connection ended */
        tls_plaintext_h2_drop(&call->key);
        fresh = bpf_map_lookup_elem(&plaintext_fresh, &zero);
        if (!fresh || bpf_map_update_elem(&plaintext, &call->key, fresh, BPF_ANY) < 0) {
                element_lost(QOS_STATISTIC_LOST_PLAINTEXT, &owner);
                return 0;
        }
        plain = bpf_map_lookup_elem(&plaintext, &call->key);
        if (!plain)
                return 0;
        plain->target = c->target;
        plain->sock = (__u64) (long) sk;
        plain->generation = owner.generation;
        plain->tries = conn->tls.tries;
        plain->begins = c->x.state != EXCHANGE_PENDING;
        plain->late = conn->tls.phase == TLS_ESTABLISHED;
        plain->key = call->key;
        conn->key = call->key;
        return 0;
}

/* Updates the exchange of an HTTP/2 connection: requests are known once the library has returned them, and
 * until then unread bytes count as one. */
static __always_inline void tls_plaintext_commit(struct exchange *x, struct exchange_effect *effect) {
        x->state = EXCHANGE_IDLE;
        if (x->n_marks > 0 && !(x->flags & EXCHANGE_DONE))
                exchange_open(x, x->mark_at[0], effect);
        else
                exchange_shut(x, effect);
}

/* Ends the correction for a request that was counted before the connection was known to be HTTP/2. */
static __attribute__((noinline)) int tls_plaintext_h2_commit(struct tls_plaintext *plain) {
        if (!plain || !plain->requested)
                return 0;
        plain->requested = 0;
        return tls_plaintext_h2_count(bpf_map_lookup_elem(&plaintext_h2, &plain->key), 1);
}

/* Records were read. where: sequence number of their end (upper half), and bytes written, but not sent. */
static __attribute__((noinline)) int tls_plaintext_reads(struct conn *c, struct qos_unit_map *u,
                                                         struct tls *t, struct tls_plaintext *plain,
                                                    __u64 where) {
        struct exchange_effect effect = {};
        __u64 now = bpf_ktime_get_ns(), first_at, last_at;
        __u32 copied = where >> 32, unsent = where;
        bool locked, muxed, untimed;

        if (!c || !u || !t || !plain)
                return 0;
        if (exchange_distance(copied, t->in_pos) > 0)
                tls_miss(t, copied);
        locked = tls_plaintext_lock(plain);
        muxed = plain->pipeline.protocol == PROTOCOL_HTTP2;
        plain->target = c->target;
        plain->read_end = copied;
        untimed = plain->untimed;
        plain->untimed = 0;

        bpf_spin_lock(&c->lock);
        exchange_take(&c->x, copied, &first_at, &last_at);
        if (untimed && locked && !muxed)
                pipeline_push_time(&plain->pipeline, first_at, last_at);
        else if (t->has_request && !(c->x.flags & EXCHANGE_DONE) && !untimed) {
                if (!plain->unread)
                        plain->came_first_at = first_at;
                plain->came_last_at = last_at;
                plain->unread = 1;
        }
        if (muxed)
                tls_plaintext_commit(&c->x, &effect);
        else if (t->has_request && !untimed && !(c->x.flags & EXCHANGE_DONE))
                exchange_open(&c->x, c->x.open_at ?: first_at ?: now, &effect);
        else if ((!t->has_request || untimed) && locked && !plain->unread)
                pipeline_commit(&plain->pipeline, &c->x, now, unsent == 0, &effect);
        if (!muxed)
                plain->requested = c->x.open_at != 0;
        bpf_spin_unlock(&c->lock);
        t->has_request = 0;
        if (locked)
                tls_plaintext_unlock(plain);

        if (effect.in_flight != 0)
                conn_apply(c, u, &effect, now);
        if (muxed)
                tls_plaintext_h2_commit(plain);
        return zero();
}

/* ---- departure ---- */

/* Maximum number of times that data is sent without a request and without a write to the library. At the
 * beginning it consists of session tickets, which OpenSSL sends together or one by one; later on it means
 * that the application uses the library in an unknown way. */
#define STRAYS_MAX 4

/* Whether data being sent still belongs to the handshake: session tickets sent before the library has
 * returned any data. The first request may have been read from the socket together with the client's
 * Finished (Apache reads 8,000 bytes at a time). */
static __always_inline bool tls_plaintext_is_handshake(struct tls_plaintext *plain) {
        if (plain->late || plain->delivered)
                return false;
        if (++plain->strays > STRAYS_MAX)
                plain->delivered = 1; /* by an unknown function of the library */
        return !plain->delivered;
}

/* Data is sent on a TLS connection. Records that are not part of a response have no effect. Returns 1 if the
 * plaintext is known: openssl_egress records it. */
static __attribute__((noinline)) int tls_transmit(struct __sk_buff *skb, struct bpf_sock *sk, struct conn *c,
                                                    struct transmit *d, struct exchange_effect *effect) {
        struct tls_chunk f = {};
        struct tls_plaintext *plain;
        struct tls_conn *conn;
        struct tls *tls;
        bool pipelines, refused = false;

        if (!skb || !sk || !c || !d || !effect)
                return 0;
        conn = bpf_sk_storage_get(&tls_conns, sk, 0, 0);
        if (!conn)
                return 0;
        conn->left_bytes = 0;
        tls = &conn->tls;
        f.offset = skb->len - d->bytes;
        f.end = d->bytes;
        if (tls->phase == TLS_HELLO && hello_is_http2(skb, (__u64) f.offset << 32 | f.end))
                tls->http2 = 1;
        if (!tls->out_lost) {
                tls_conn_take_out(skb, tls, &f);
                if (f.seen & TLS_STEP_LOST) {
                        tls->out_lost = 1;
                        /* TLS to a port of plain HTTP */
                        refused = tls->phase == TLS_HELLO && transmit_error(skb, d) != 0;
                }
        }

        pipelines = tls->out_lost || f.seen & TLS_STEP_APPLICATION;
        /* Without the probe nothing would record it */
        plain = conn->key.ssl == 0 ? NULL :
                tls_plaintext_get((struct sock*) sk, c, unit_get(&c->owner), conn);
        if (plain && plain->pipeline.protocol != PROTOCOL_PLAIN) {
                conn->left_at = d->now;
                conn->left_complete = d->complete;
                /* Shown by the plaintext, even if records were missed */
                if (plain->delivered)
                        tls->phase = TLS_ESTABLISHED;
                conn->left_bytes = pipelines || plain->pending > 0 ? d->bytes : 0;
                bpf_spin_lock(&c->lock);
                c->x.state = EXCHANGE_IDLE; /* only the parser knows which requests are open */
                d->attribution = conn_commit(c, effect);
                bpf_spin_unlock(&c->lock);
                return 1;
        }
        if (plain && pipelines && tls_plaintext_is_handshake(plain))
                pipelines = false;

        bpf_spin_lock(&c->lock);
        if (refused) {
                tls->greeted = 0;
                c->x.flags &= ~EXCHANGE_TLS;
                c->x.state = EXCHANGE_PENDING;
                c->x.first_at = c->x.last_at = 0; /* those of the ClientHello are not retained */
        }
        /* The number of HTTP/2 requests in these records is unknown */
        if (pipelines && conn->tls.http2)
                exchange_set_unparsed(&c->x, effect);
        if (pipelines)
                transmit_apply(d, &c->x, effect);
        d->attribution = conn_commit(c, effect);
        bpf_spin_unlock(&c->lock);

        if (effect->begun || effect->overlap)
                conn->tls.farewell = conn->tls.pending = 0;
        return 0;
}

/* Determines the responses in data sent up to end. Returns the same as transmit_parse(). */
__attribute__((noinline, weak)) __u64 tls_plaintext_take(struct tls_plaintext *plain, struct qos_unit_map *u,
                                                         struct transmit *d, __u32 end) {
        __u64 parsed = 0;

        if (!plain || !u || !d)
                return 0;
        if (plain->growing && plain->pipeline.flags & PIPELINE_RESPONDED)
                parsed = TRANSMIT_MORE;
        if (plain->pending == 0 || exchange_distance(end, plain->pending_position) <= 0) {
                if (parsed == 0 && plain->pending == 0 &&
                    !(plain->pipeline.flags & (PIPELINE_SERVER_PUSH | PIPELINE_RESPONDING)) &&
                    ++plain->strays > STRAYS_MAX)
                        plain->lost = 1;
                return parsed;
        }

        parsed |= plain->pending;
        plain->pending = 0;
        if (plain->missed_at != 0)
                d->now = plain->missed_at;
        if (plain->tunnel)
                parsed |= TRANSMIT_TUNNEL;
        if (plain->astray) {
                if (!(plain->pipeline.not_understood & PIPELINE_RESPONSES) &&
                    !(d->attribution.target & TARGET_ONLY))
                        window_count(u, QOS_COUNTER_UNPARSED, 1);
                plain->pipeline.not_understood |= PIPELINE_RESPONSES;
                if (plain->pipeline.pending > (__u32) parsed) {
                        record_count(u, d->attribution.target, QOS_COUNTER_OVERLAPS, QOS_ENTRY_OVERLAPS,
                                     plain->pipeline.pending - (__u32) parsed);
                        parsed |= TRANSMIT_LEAVES_OUT;
                }
                record_unparsed(u, d->attribution.target, d->bytes);
        }
        if (!(d->attribution.target & TARGET_ONLY)) {
                if (plain->streams > 0)
                        window_count(u, QOS_COUNTER_STREAMS, plain->streams);
                if (plain->status4xx > 0)
                        window_count(u, QOS_COUNTER_STATUS_4XX, plain->status4xx);
                if (plain->failed > 0)
                        window_count(u, failure_counter(plain->pipeline.protocol), plain->failed);
        }
        plain->streams = plain->status4xx = plain->failed = 0;
        plain->astray = 0;
        return parsed;
}

/* HTTP/2 frames are sent, which were recorded when written. */
static __attribute__((noinline)) int tls_plaintext_h2_transmit(struct tls_plaintext *plain, struct conn *c,
                                                               struct qos_unit_map *u,
                                                          const struct transmit *d) {
        struct exchange_effect effect = {};

        if (!plain || !c || !u || !d)
                return 0;
        if (plain->pending == 0 && !plain->growing && ++plain->strays > STRAYS_MAX)
                plain->lost = 1;
        if (exchange_distance(c->x.out_end, plain->pending_position) > 0)
                plain->pending = 0;
        plain->growing = !d->complete;

        bpf_spin_lock(&c->lock);
        tls_plaintext_commit(&c->x, &effect);
        bpf_spin_unlock(&c->lock);
        if (effect.in_flight != 0)
                conn_apply(c, u, &effect, d->now);
        return tls_plaintext_h2_commit(plain);
}

/* Part of a response is sent, whose plaintext was parsed when written. */
static __attribute__((noinline)) int tls_plaintext_transmit(struct tls_plaintext *plain, struct conn *c,
                struct qos_unit_map *u,
                                                      struct transmit *d) {
        __u64 parsed;

        if (!plain || !c || !u || !d)
                return 0;
        if (plain->pipeline.protocol == PROTOCOL_HTTP2)
                return tls_plaintext_h2_transmit(plain, c, u, d);
        if (!tls_plaintext_lock(plain)) {
                if (plain->missed_at == 0)
                        plain->missed_at = d->now;
                return 0;
        }
        parsed = tls_plaintext_take(plain, u, d, c->x.out_end);
        plain->missed_at = 0;
        transmit_record(&plain->pipeline, c, u, d, parsed);
        plain->growing = plain->pipeline.flags & PIPELINE_RESPONDING || !d->complete;
        if (parsed & TRANSMIT_TUNNEL) {
                /* No request follows, nothing needs to be parsed */
                plain->pipeline.protocol = PROTOCOL_PLAIN;
                plain->tries = TRIES_MAX;
        }
        tls_plaintext_unlock(plain);
        return zero();
}

/* Part of a response is sent whose plaintext is no longer known: an unparsed exchange. */
static __attribute__((noinline)) int tls_record_request(struct conn *c, struct qos_unit_map *u,
                struct transmit *d) {
        struct exchange_effect effect = {};

        if (!c || !u || !d)
                return 0;
        bpf_spin_lock(&c->lock);
        transmit_apply(d, &c->x, &effect);
        d->attribution = conn_commit(c, &effect);
        bpf_spin_unlock(&c->lock);
        u = attribution_resolve(u, &d->attribution);
        if (!u)
                return 0;

        record_effect(u, d->attribution.target, &effect);
        d->record.now = d->now;
        d->record.n = 1;
        d->record.target = d->attribution.target;
        d->record.before = effect.grown_from;
        if (effect.begun && !(d->attribution.target & TARGET_ONLY))
                window_count(u, QOS_COUNTER_TLS, 1);
        if (effect.begun)
                record_request(u, &d->record);
        else if (effect.grown)
                record_request_more(u, &d->record);
        return 0;
}

/* ---- read ---- */

/* Records of a connection with known plaintext were read. where: as for server_read(). */
static __attribute__((noinline)) int tls_plaintext_has_read(struct sock *sk, __u64 where) {
        struct tls_plaintext *plain;
        struct qos_unit_map *u;
        struct conn *c;
        struct tls_conn *conn;

        if (!sk)
                return 0;
        c = bpf_sk_storage_get(&conns, sk, 0, 0);
        conn = bpf_sk_storage_get(&tls_conns, sk, 0, 0);
        u = c ? unit_get(&c->owner) : NULL;
        if (!u || !conn)
                return 0;
        plain = tls_plaintext_get(sk, c, u, conn);
        return plain ? tls_plaintext_reads(c, u, &conn->tls, plain, where) : 0;
}
