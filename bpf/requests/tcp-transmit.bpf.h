/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

/* Responses being sent: parses and records them. */

#include "tcp-conn.bpf.h"

/* Kernel functions may be declared in only one of the objects that are linked */
int bpf_dynptr_from_skb(struct __sk_buff *skb, __u64 flags, struct bpf_dynptr *ret) __ksym;

struct transmit {
        __u64 now;
        __u32 bytes;            /* bytes sent for the first time, at the end of the packet */
        bool complete;          /* nothing is unsent */
        bool first;             /* no response was sent before on a connection known from its beginning */
        bool failed;            /* a response reports an error of the server */
        struct request_record record; /* times of struct exchange afterwards; scratch for parsed
                                       * connections */
        struct attribution attribution; /* owner and target to record for */
};

static __always_inline void transmit_apply(struct transmit *d, struct exchange *x,
                                           struct exchange_effect *effect) {
        exchange_depart(x, d->now, d->bytes, d->complete, effect);
        d->record.first_at = x->last_at == 0 ? 0 : x->first_at;
        d->record.last_at = x->last_at;
        d->record.read_at = x->read_at;
        d->record.first_out_at = x->first_out_at;
}

/* Result of parsing sent data: number of responses begun, and these flags: */
#define TRANSMIT_TUNNEL (1ULL << 32)   /* no requests follow */
#define TRANSMIT_MORE (1ULL << 33)     /* the previous response continues */
#define TRANSMIT_UPGRADE (1ULL << 34)  /* HTTP/2 follows */
#define TRANSMIT_LOST_SYNC (1ULL << 35) /* the connection was never of the protocol */
#define TRANSMIT_LEAVES_OUT (1ULL << 36) /* all other requests get an unknown number of responses */
#define TRANSMIT_FAILED (1ULL << 37)   /* a response reports an error of the server */
#define TRANSMIT_TAKEN_SHIFT 40        /* number of bytes before HTTP/2 */

/* The parser has failed on a response: counts its bytes as unparsed and, if nothing is unsent, the
 * outstanding requests as well. */
static __attribute__((noinline)) __u64 transmit_leave_out(struct pipeline *p, struct qos_unit_map *u,
                                                          const struct transmit *d, const struct chunk *f) {
        if (!p || !u || !d || !f)
                return 0;
        if (!(p->not_understood & PIPELINE_RESPONSES) && !(d->attribution.target & TARGET_ONLY))
                window_count(u, QOS_COUNTER_UNPARSED, 1);
        p->not_understood |= PIPELINE_RESPONSES;
        record_unparsed(u, d->attribution.target, f->at < d->bytes ? d->bytes - f->at : 0);
        if (!d->complete || p->pending <= f->piece.begun)
                return 0;
        record_count(u, d->attribution.target, QOS_COUNTER_OVERLAPS, QOS_ENTRY_OVERLAPS,
                     p->pending - f->piece.begun);
        return TRANSMIT_LEAVES_OUT;
}

/* Counter of responses that report a failure, by protocol. */
static __always_inline enum qos_counter failure_counter(__u32 protocol) {
        return protocol == PROTOCOL_HTTP1 ? QOS_COUNTER_STATUS_5XX : QOS_COUNTER_ERRORS_REPLIES;
}

/* Loads n words from offset on, each with its first byte most significant. Returns false if there are fewer
 * bytes. */
static __always_inline bool transmit_load(struct __sk_buff *skb, __u32 offset, __u64 *ret, __u32 n) {
        if (bpf_skb_load_bytes(skb, offset, ret, n * sizeof(*ret)) < 0)
                return false;
        for (__u32 i = 0; i < n; i++)
                ret[i] = bpf_be64_to_cpu(ret[i]);
        return true;
}

/* Whether data is exactly one response of the shape of the last one. Global, to be verified once. */
__attribute__((noinline, weak)) int transmit_is_alike(struct __sk_buff *skb, struct pipeline *p,
                                                      const struct transmit *d) {
        __u32 offset, head, digits;
        struct http_shape *s;
        __u64 first[2], line[3];
        __be32 end;

        if (!skb || !p || !d || !pipeline_may_be_alike(p))
                return 0;
        s = &p->shape;
        offset = skb->len - d->bytes;
        if (!transmit_load(skb, offset, first, 2) || first[0] != s->first[0] || first[1] != s->first[1] ||
            !transmit_load(skb, offset + s->length_at - 1, line, 3))
                return 0;
        head = http_shape_head(line, d->bytes, &digits);
        if (digits == 0 || head != s->head + digits ||
            bpf_skb_load_bytes(skb, offset + head - sizeof(end), &end, sizeof(end)) < 0 ||
            !http_ends_head(bpf_ntohl(end)))
                return 0;
        s->misses = 0;
        return 1;
}

/* Stores the shape of a response that was parsed and is the whole data, if its Content-Length is in the last
 * window of its head. */
__attribute__((noinline, weak)) int transmit_set_shape(struct __sk_buff *skb, struct pipeline *p,
                                                       const struct transmit *d) {
        const struct chunk *f;
        __u32 offset, head, digits, length_at;
        struct http_shape *s;
        __u64 line[3];

        if (!skb || !p || !d || !pipeline_may_have_shape(p))
                return 0;
        f = (struct chunk*) p->work;
        s = &p->shape;
        s->misses++;
        s->length_at = 0;
        length_at = f->window_begin + p->out.length_at;
        if (length_at == 0 || f->piece.streams > 0)
                return 0;
        offset = skb->len - d->bytes;
        if (!transmit_load(skb, offset, s->first, 2) || !http_shape_fits(s->first) ||
            !transmit_load(skb, offset + length_at - 1, line, 3))
                return 0;
        head = http_shape_head(line, d->bytes, &digits);
        if (digits == 0 || head <= length_at)
                return 0;
        s->head = head - digits;
        s->length_at = length_at;
        return 0;
}

/* Part of pipeline_transmit(), separate for its stack. Global, so that the verifier does not explore its
 * results through the caller. */
__attribute__((noinline, weak)) __u64 transmit_parse(struct __sk_buff *skb, struct pipeline *p,
                                                     struct qos_unit_map *u,
                                                       const struct transmit *d) {
        struct chunk_source source = { .skb = skb };
        struct chunk *f;
        __u64 responses;

        if (!skb || !p || !u || !d)
                return 0;

        f = chunk_init(p, d->bytes);
        source.offset = skb->len - d->bytes;
        while (!f->piece.lost && !f->piece.tunnel && chunk_skip(f, &p->out) && can_loop) {
                if (pipeline_end_body(p)) {
                        f->at++;
                        continue;
                }
                if (chunk_fill(f, p, &p->out, &source))
                        chunk_parse_response(f, p);
        }
        if (pipeline_has_lost_sync(p, &f->piece, d->first))
                return TRANSMIT_LOST_SYNC;
        responses = pipeline_responses(p, &f->piece, d->complete);

        if (f->piece.lost)
                responses |= transmit_leave_out(p, u, d, f);
        if (f->piece.tunnel == 2)
                responses |= TRANSMIT_UPGRADE | (__u64) f->at << TRANSMIT_TAKEN_SHIFT;
        else if (f->piece.tunnel)
                responses |= TRANSMIT_TUNNEL;
        if (f->piece.failed > 0)
                responses |= TRANSMIT_FAILED;
        if (d->attribution.target & TARGET_ONLY)
                return responses;
        if (f->piece.streams > 0)
                window_count(u, QOS_COUNTER_STREAMS, f->piece.streams);
        if (f->piece.status4xx > 0)
                window_count(u, QOS_COUNTER_STATUS_4XX, f->piece.status4xx);
        if (f->piece.failed > 0)
                window_count(u, failure_counter(p->protocol), f->piece.failed);
        return responses;
}

/* Arrival of the first request of a batch. */
struct first {
        __u64 at;
        __u64 recorded;         /* 0: none of the requests is in a distribution */
};

/* Whether an HTTP/1 request, to which the response begins, was delayed by intent. */
__attribute__((noinline, weak)) int transmit_is_intended(struct pipeline *p, struct qos_intended *known,
                                                         __u64 first_at, __u64 read_at, __u64 now) {
        if (!p || !known)
                return 0;
        if (p->protocol != PROTOCOL_HTTP1)
                return 0;
        p->intends = intent_learn(known, request_get_intent(read_at, now), p->intends, first_at, now);
        return p->intends;
}

/* Records the beginning of responses to the oldest requests of a batch, at most "responses". Returns their
 * number. Global, as the verifier would otherwise walk its loops for each state of the caller. */
__attribute__((noinline, weak)) __u32 transmit_record_batch(struct pipeline *p, struct qos_unit_map *u,
                                                            struct transmit *d, __u32 responses,
                                                           struct first *ret) {
        struct pipeline_batch group;
        struct request_record *record;
        __u32 target, taken, n;

        if (!p || !u || !d || !ret)
                return 0;
        record = &d->record;
        ret->recorded = 0;
        taken = n = pipeline_complete(p, responses, &group);
        if (n == 0)
                return 0;

        target = d->attribution.target;
        if (group.excluded > 0) {
                window_count(u, QOS_COUNTER_EXCLUDED, group.excluded);
                n -= group.excluded;
                p->flags &= ~PIPELINE_RESPONDED;
                if (n == 0)
                        return taken;
        }
        if (!(target & TARGET_ONLY))
                window_count(u, QOS_COUNTER_COUNT + p->protocol, n);
        if (group.waits || (!d->failed && group.read_at != 0 && group.first_at != 0 &&
                            exchange_between(group.read_at, d->now) >= INTENT_WAIT_MIN_NSEC &&
                            transmit_is_intended(p, target_intended(u, target), group.first_at,
                                                 group.read_at, d->now))) {
                request_record_intended(u, &group, n, d->now, target);
                p->parts = PIPELINE_OVER;
                p->flags &= ~PIPELINE_RESPONDED;
                return taken;
        }
        record->now = d->now;
        record->target = target;
        record->n = n;
        record->first_at = group.last_at == 0 ? 0 : group.first_at;
        record->last_at = group.last_at;
        /* 0 if some part of the request, but not the last one, was read, and the reader is still in its
         * call */
        record->read_at = group.read_at ?: d->now;
        record_request(u, record);
        if (!(p->flags & PIPELINE_EXCLUDED))
                p->flags |= PIPELINE_RESPONDED;
        ret->at = group.first_at;
        ret->recorded = 1;
        return taken;
}

/* The previous response continues. */
static __attribute__((noinline)) int transmit_record_more(struct conn *c, struct qos_unit_map *u,
                                                          struct transmit *d) {
        if (!c || !u || !d)
                return 0;
        d->record.now = d->now;
        d->record.target = d->attribution.target;
        d->record.first_at = c->x.first_at;
        d->record.first_out_at = c->x.first_out_at;
        d->record.before = c->x.last_out_at;
        record_request_more(u, &d->record);
        c->x.last_out_at = d->now;
        return zero();
}

/* Records the result of parsing sent data. Fields of struct exchange about the last response are only used
 * here, under the socket lock; the lock of the connection is for fields that arrivals use, too. */
static __attribute__((noinline)) int transmit_record(struct pipeline *p, struct conn *c,
                                                     struct qos_unit_map *u, struct transmit *d,
                                                    __u64 parsed) {
        __u32 n, responses = parsed;
        struct exchange_effect effect = {};
        struct first first = {};
        struct attribution a;

        if (!p || !c || !u || !d)
                return 0;

        if (parsed & TRANSMIT_MORE)
                transmit_record_more(c, u, d);

        while (responses > 0 && can_loop) {
                n = transmit_record_batch(p, u, d, responses, &first);
                if (n == 0)
                        break;
                responses -= n;
                if (first.recorded) {
                        c->x.first_at = first.at;
                        c->x.first_out_at = c->x.last_out_at = d->now;
                }
        }

        if (parsed & TRANSMIT_LEAVES_OUT)
                pipeline_leave_out(p);

        bpf_spin_lock(&c->lock);
        if (parsed & TRANSMIT_TUNNEL) {
                pipeline_end(p, &c->x, &effect);
                c->tries = TRIES_MAX;
        } else
                pipeline_commit(p, &c->x, d->now, d->complete, &effect);
        a = conn_commit(c, &effect);
        bpf_spin_unlock(&c->lock);
        u = attribution_resolve(u, &a);
        if (u)
                record_effect(u, a.target, &effect);
        return zero();
}

/* ---- HTTP/2 ---- */

/* The connection is not HTTP/2, or frames were missed: it continues unparsed. */
static __attribute__((noinline)) int h2_conn_abandon(struct conn *c, struct h2_conn *h,
                struct qos_unit_map *u) {
        struct exchange_effect effect = {};

        if (!c || !h || !u)
                return 0;
        bpf_spin_lock(&c->lock);
        h2_give_up(h, &c->x, &effect);
        bpf_spin_unlock(&c->lock);
        h2_clear(h, NULL);
        effect.in_flight += h2_extra(h);
        c->tries = c->x.flags & EXCHANGE_UNPARSED ? TRIES_MAX : c->tries + 1;
        return conn_apply(c, u, &effect, bpf_ktime_get_ns());
}

/* A chunk of responses, passed by address for chunk_init(). */
struct h2_conn_response_chunk {
        struct h2_conn_chunk f;
        __u32 target;
};

__attribute__((noinline, weak)) int h2_conn_take_responses(struct __sk_buff *skb, struct h2_conn *h,
                                                           struct h2_more *more, struct qos_unit_map *u,
                                                           struct h2_conn_response_chunk *a) {
        __u32 n;

        if (!skb || !h || !u || !a)
                return 0;
        do {
                n = h2_conn_parse_response(h, more, &a->f, &(struct chunk_source) { .skb = skb });
                h2_conn_record_response(h, more, u, a->target);
        } while (n > 0 && can_loop);
        return 0;
}

/* Results of pipeline_transmit() and h2_conn_transmit(): part of the packet left to the caller */
#define PIPELINE_TRANSMITS_MUXED 1    /* HTTP/2 */
#define PIPELINE_TRANSMITS_PLAIN 2    /* all of it, unparsed, see transmit_lost_sync() */

/* Like pipeline_transmit(), for HTTP/2. */
static __attribute__((noinline)) int h2_conn_transmit(struct __sk_buff *skb, struct bpf_sock *sk,
                                                      struct conn *c, struct qos_unit_map *u,
                                                 const struct transmit *d) {
        struct exchange_effect effect = {};
        struct h2_conn_response_chunk a = {};
        struct h2_more *more = NULL;
        struct attribution attribution;
        struct h2_conn *h;

        if (!skb || !sk || !c || !u || !d)
                return 0;
        h = bpf_sk_storage_get(&h2_conns, sk, 0, 0);
        if (!h)
                return 0;

        if (h->out.synced != H2_LOST) {
                a.f.end = d->bytes;
                a.f.offset = skb->len - d->bytes;
                h2_piece_begin(&h->piece, d->now);
                a.target = d->attribution.target;
                if (h->more == H2_MORE_HERE)
                        more = bpf_sk_storage_get(&h2_mores, sk, 0, 0);
                h2_conn_take_responses(skb, h, more, u, &a);
                if (h->piece.lost && !h->settled)
                        return PIPELINE_TRANSMITS_PLAIN;
                if (h->piece.lost) {
                        h2_conn_abandon(c, h, u);
                        return 0;
                }
                if (h->piece.dropped > 0)
                        record_count(u, a.target, QOS_COUNTER_ERRORS_RESET, QOS_ENTRY_ERRORS_RESET,
                                     h->piece.dropped);
        } else if (d->complete)
                h->out.synced = H2_EDGE;

        bpf_spin_lock(&c->lock);
        h2_settle(h, &c->x, d->now, &effect);
        attribution = conn_commit(c, &effect);
        bpf_spin_unlock(&c->lock);
        u = attribution_resolve(u, &attribution);
        if (u)
                record_effect(u, attribution.target, &effect);
        return zero();
}

/* Upgrades the connection from HTTP/1.1 to HTTP/2, with the request that had the upgrade. */
static __attribute__((noinline)) int h2_conn_upgrade(struct bpf_sock *sk, struct conn *c,
                                                     struct qos_unit_map *u, struct pipeline *p) {
        struct exchange_effect effect = {};
        struct pipeline_batch group;
        struct h2_conn *h;

        if (!sk || !c || !u || !p)
                return 0;
        h = bpf_sk_storage_get(&h2_conns, sk, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
        if (!h)
                element_lost(QOS_STATISTIC_LOST_H2_CONNS, &c->owner);
        if (!h || pipeline_complete(p, 1, &group) == 0)
                return 0;
        h2_begin(h, p->in_pos, 0);
        h2_clear(h, NULL);
        h2_upgrade(h, &group);
        /* Further HTTP/1.1 requests get no response */
        pipeline_reset(p);
        effect.in_flight = pipeline_extra(p);

        bpf_spin_lock(&c->lock);
        c->x.flags = (c->x.flags & ~(EXCHANGE_PARSED | EXCHANGE_LATE)) | EXCHANGE_H2;
        bpf_spin_unlock(&c->lock);
        if (effect.in_flight != 0)
                conn_apply(c, u, &effect, bpf_ktime_get_ns());
        return 1;
}

/* Class of the status of a response that reports an HTTP error; 0: anything else. A request that could not
 * be parsed, but got such a response, was an HTTP request for the server. */
__attribute__((noinline, weak)) __u32 transmit_error(struct __sk_buff *skb, const struct transmit *d) {
        struct {
                __be64 word;
                __be32 more;
        } bytes = {};
        __u32 class;

        if (!skb || !d || d->bytes < HTTP_STATUS_LENGTH ||
            bpf_skb_load_bytes(skb, skb->len - d->bytes, &bytes, HTTP_STATUS_LENGTH) < 0)
                return 0;
        class = http_begins_with(bpf_be64_to_cpu(bytes.word), bpf_ntohl(bytes.more)) / 100;
        return class == 4 || class == 5 ? class : 0;
}

/* Beginning of the data sent, first byte least significant. */
static __attribute__((noinline)) __u64 transmit_peek(struct __sk_buff *skb, const struct transmit *d) {
        __u64 bytes = 0;

        if (skb && d && d->bytes >= sizeof(bytes))
                (void) bpf_skb_load_bytes(skb, skb->len - d->bytes, &bytes, sizeof(bytes));
        return bytes;
}

/* A response that is not parsed, as it is sent as a whole, may be an error reply. Returns 1 if it is an HTTP
 * response to what looked like a Redis command. Global, to be verified once. */
__attribute__((noinline, weak)) int transmit_count_error(struct __sk_buff *skb, struct pipeline *p,
                                                         struct qos_unit_map *u, const struct transmit *d) {
        __u64 word = 0;
        __u32 n;

        if (!skb || !p || !u || !d || p->protocol != PROTOCOL_REDIS || pipeline_is_excluded(p, 0) ||
            d->attribution.target & TARGET_ONLY)
                return 0;
        n = d->bytes < sizeof(word) ? d->bytes : sizeof(word);
        BPF_BOUND(n, sizeof(word) + 1);
        if (n == 0 || bpf_skb_load_bytes(skb, skb->len - d->bytes, &word, n) < 0)
                return 0;
        if (d->first && bpf_be64_to_cpu(word) >> 8 == WORD_OF("HTTP/1.", 7))
                return 1;
        if (resp_is_error(bpf_be64_to_cpu(word)))
                window_count(u, QOS_COUNTER_ERRORS_REPLIES, 1);
        return 0;
}

/* Like transmit_lost_sync(), after h2_conn_transmit(). */
static __attribute__((noinline)) int h2_conn_lost_sync(struct bpf_sock *sk, struct conn *c,
                                                       struct transmit *d, struct exchange_effect *effect) {
        struct h2_conn *h;

        if (!sk || !c || !d || !effect)
                return 0;
        h = bpf_sk_storage_get(&h2_conns, sk, 0, 0);
        if (!h)
                return 0;
        bpf_spin_lock(&c->lock);
        c->tries++;
        h2_refuse(h, &c->x, effect);
        transmit_apply(d, &c->x, effect);
        d->attribution = conn_commit(c, effect);
        bpf_spin_unlock(&c->lock);
        return zero();
}

/* The connection is not of the detected protocol: data read, and requests found in it, are treated as on any
 * unparsed connection. */
static __attribute__((noinline)) int transmit_lost_sync(struct bpf_sock *sk, struct conn *c,
                                                        struct transmit *d, struct exchange_effect *effect) {
        struct pipeline *p;

        if (!sk || !c || !d || !effect)
                return 0;
        if (c->x.flags & EXCHANGE_H2)
                return h2_conn_lost_sync(sk, c, d, effect);
        p = bpf_sk_storage_get(&pipelines, sk, 0, 0);
        if (!p)
                return 0;
        bpf_spin_lock(&c->lock);
        c->tries = protocol_is_guessed(p->protocol) ? c->tries + 1 : TRIES_MAX;
        pipeline_abandon(p, &c->x, effect);
        c->x.flags |= EXCHANGE_HTTP1; /* the response shows whether it was */
        transmit_apply(d, &c->x, effect);
        d->attribution = conn_commit(c, effect);
        bpf_spin_unlock(&c->lock);
        return zero();
}

/* Data is sent on a parsed connection. A separate function, like receive_parse(). */
static __attribute__((noinline)) int pipeline_transmit(struct __sk_buff *skb, struct bpf_sock *sk,
                                                       struct conn *c, struct qos_unit_map *u,
                                                  struct transmit *d) {
        bool more, single, goes_on;
        __u64 parsed = 0;
        struct pipeline *p;

        if (!skb || !sk || !c || !u || !d)
                return 0;
        p = bpf_sk_storage_get(&pipelines, sk, 0, 0);
        if (!p)
                return 0;
        d->first = c->x.flags & EXCHANGE_FRESH && c->x.first_out_at == 0;
        more = pipeline_is_more(p);
        single = pipeline_is_single(p, &c->x, d->bytes, d->complete);
        if (more || (pipeline_is_whole(p, single) && pipeline_newest(p)->waits)) {
                if (pipeline_is_push(transmit_peek(skb, d), p->protocol))
                        more = single = false;
                /* As on unparsed connections (exchange_depart()) */
                else if (more && c->x.open_at == 0 && d->now - c->x.last_out_at >= EXCHANGE_SILENCE_NSEC)
                        return 0;
        }
        goes_on = more || p->flags & PIPELINE_RESPONDING;
        if (pipeline_note_part(p, !goes_on, d->bytes, d->complete,
                               exchange_between(c->x.first_out_at, d->now))) {
                p->flags &= ~PIPELINE_RESPONDED;
                if (!(d->attribution.target & TARGET_ONLY))
                        window_count(u, QOS_COUNTER_STREAMS, 1);
        } else if (goes_on && p->flags & PIPELINE_RESPONDED)
                parsed = TRANSMIT_MORE;

        if (pipeline_is_whole(p, single)) {
                parsed |= 1;
                if (transmit_count_error(skb, p, u, d))
                        return PIPELINE_TRANSMITS_PLAIN;
        } else if (single && transmit_is_alike(skb, p, d))
                parsed |= 1;
        else if (!more) {
                parsed |= transmit_parse(skb, p, u, d);
                if (single && parsed == 1)
                        transmit_set_shape(skb, p, d);
        }
        if (parsed & TRANSMIT_LOST_SYNC)
                return PIPELINE_TRANSMITS_PLAIN;
        d->failed = parsed & TRANSMIT_FAILED;
        transmit_record(p, c, u, d, parsed);
        if (!(parsed & TRANSMIT_UPGRADE) || !h2_conn_upgrade(sk, c, u, p))
                return 0;
        d->bytes -= parsed >> TRANSMIT_TAKEN_SHIFT;
        return PIPELINE_TRANSMITS_MUXED;
}
