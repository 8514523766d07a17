/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

/* Client role on TCP, in separate functions, so that servers pay nothing for it. */

#include "tcp-transmit.bpf.h"
#include "tls-conn.bpf.h"
#include "tcp-segment.bpf.h"

/* connect() was called on the socket, possibly not for the first time. */
static __always_inline void client_begin(struct sock *sk, struct conn *c, const struct qos_owner *owner) {
        struct exchange x = {};

        bpf_spin_lock(&c->lock);
        c->x = x;
        c->x.flags = EXCHANGE_FRESH;
        c->tries = 0;
        bpf_spin_unlock(&c->lock);
        conn_move(sk, c, owner);
}

/* Added to the number of bytes sent: they are the first part of a request */
#define CLIENT_REQUESTS (1ULL << 32)
/* Added to it: data received has not been read */
#define CLIENT_UNREAD (1ULL << 33)

enum client_sent {
        CLIENT_SENT_NOTHING,
        CLIENT_SENT_REQUEST,
        CLIENT_SENT_AGAIN,      /* a request, with everything before acknowledged by the peer */
        CLIENT_SENT_FAREWELL,   /* possibly (EXCHANGE_FAREWELL) */
        CLIENT_SENT_LAST_FAREWELL, /* the same, and preceding data gets no response either */
};

/* Flag: possibly the end of a TLS handshake, without a response (EXCHANGE_FAREWELL). */
#define CLIENT_SENT_FINISHED 16U

/* Whether a segment consists of HTTP/2 frames that are not requests. Keep-alives have one or two frames. */
#define CLIENT_FRAMES_MAX 4
static __attribute__((noinline)) int client_classify_frames(struct __sk_buff *skb, __u32 offset,
                                                            __u32 length) {
        if (!skb)
                return 0;
        for (int i = 0; i < CLIENT_FRAMES_MAX && length >= H2_HEADER_SIZE; i++) {
                __u64 header = 0;
                __u32 type, size;

                if (bpf_skb_load_bytes(skb, offset, &header, sizeof(header)) < 0)
                        return 0;
                type = header >> 24 & 0xff;
                size = H2_HEADER_SIZE +
                       ((header & 0xff) << 16 | (header >> 8 & 0xff) << 8 | (header >> 16 & 0xff));
                if (size > length || (type != H2_RST_STREAM && type != H2_SETTINGS && type != H2_PING &&
                                      type != H2_GOAWAY && type != H2_WINDOW_UPDATE))
                        return 0;
                offset += size;
                length -= size;
        }
        return length == 0;
}

/* Classifies a segment, returns enum client_sent. acknowledged: everything before it was acknowledged;
 * muxed: HTTP/2. */
static __attribute__((noinline)) __u32 client_classify_segment(struct __sk_buff *skb, __u32 offset,
                                                               __u32 length, bool acknowledged, bool muxed) {
        __u64 bytes = 0, second = 0;
        __u32 kind;

        if (!skb || (muxed && client_classify_frames(skb, offset, length)))
                return CLIENT_SENT_NOTHING;
        if (length >= TLS_HEADER_SIZE && length <= TLS_FINISHED_SIZE_MAX)
                (void) bpf_skb_load_bytes(skb, offset, &bytes, TLS_HEADER_SIZE);
        if ((bytes & 0xff) == TLS_CHANGE_CIPHER && length >= TLS_CHANGE_CIPHER_SIZE + TLS_HEADER_SIZE)
                (void) bpf_skb_load_bytes(skb, offset + TLS_CHANGE_CIPHER_SIZE, &second, TLS_HEADER_SIZE);
        kind = exchange_look(length) > 0 ? segment_classify(skb, offset, length) : 0;
        if (kind & SEGMENT_REMARK || tls_is_farewell(bytes, length))
                return CLIENT_SENT_NOTHING;
        if (kind & SEGMENT_FAREWELL)
                return kind & SEGMENT_LAST_FAREWELL ? CLIENT_SENT_LAST_FAREWELL : CLIENT_SENT_FAREWELL;
        return (acknowledged ? CLIENT_SENT_AGAIN : CLIENT_SENT_REQUEST) |
               (tls_is_finished(bytes, second, length) ? CLIENT_SENT_FINISHED : 0);
}

/* Counts bytes of the peer's entry as unparsed if the connection is. becomes: 1 if it becomes unparsed now.
 * A separate function, as the verifier would explore everything after it for both cases. */
static __attribute__((noinline)) int client_record_unparsed(const struct conn *c, struct qos_unit_map *u,
                                                            __u32 target, __u32 bytes, __u32 becomes) {
        struct qos_peer_entry *row;

        if (!c || !u || !(c->x.flags & EXCHANGE_UNPARSED) || !(target & TARGET_ENTRY))
                return 0;
        row = entry_get(u, target & TARGET_ENTRY);
        __sync_fetch_and_add(&row->sums[QOS_ENTRY_SUM_UNPARSED], bytes);
        entry_count(row, QOS_ENTRY_UNPARSED, becomes);
        return 0;
}

/* Data is sent. tcp: end of the segment (upper half), and snd_nxt; kind: enum client_sent. Returns the
 * number of bytes sent for the first time, and CLIENT_REQUESTS. */
static __attribute__((noinline)) __u64 client_transmit(struct conn *c, struct qos_unit_map *u, __u64 tcp,
                                                       __u32 kind, __u64 now) {
        __u32 bytes, finished = kind & CLIENT_SENT_FINISHED;
        struct exchange_effect effect = {};
        __u64 begins = 0;
        struct attribution a;

        if (!c || !u)
                return 0;

        kind &= ~CLIENT_SENT_FINISHED;
        bpf_spin_lock(&c->lock);
        bytes = exchange_leave(&c->x, tcp >> 32, tcp);
        if (bytes > 0 && kind != CLIENT_SENT_NOTHING) {
                c->x.flags &= ~EXCHANGE_FAREWELL;
                if (kind == CLIENT_SENT_LAST_FAREWELL ||
                    ((kind == CLIENT_SENT_FAREWELL || finished) && c->x.open_at == 0))
                        c->x.flags |= EXCHANGE_FAREWELL;
                if (c->x.state != EXCHANGE_PENDING)
                        begins = CLIENT_REQUESTS;
                exchange_note_part(&c->x, now, c->x.read_at, bytes, kind == CLIENT_SENT_AGAIN);
                if (kind == CLIENT_SENT_AGAIN)
                        exchange_request_again(&c->x, now, &effect);
                else
                        exchange_request(&c->x, now, &effect);
        } else if (bytes > 0 && c->x.state == EXCHANGE_RESPONDING && !(c->x.flags & EXCHANGE_H2))
                /* The response was received, data from now on is a stream */
                c->x.state = EXCHANGE_IDLE;
        a = conn_commit(c, &effect);
        bpf_spin_unlock(&c->lock);
        u = bytes > 0 ? attribution_resolve(u, &a) : NULL;
        if (!u)
                return 0;

        window_advance(u, now);
        record_sum(u, a.target, QOS_SUM_BYTES_OUT, QOS_ENTRY_SUM_BYTES_OUT, bytes);
        client_record_unparsed(c, u, a.target, bytes, 0);
        record_effect(u, a.target, &effect);
        return bytes | begins;
}

/* Kind of the first segment of the response to the only request in flight; such responses are not parsed. */
enum client_received {
        CLIENT_RECEIVED_RESPONSE,
        CLIENT_RECEIVED_STATUS5XX,      /* failures, in the order of their counters */
        CLIENT_RECEIVED_ERROR,          /* error reply of Redis or memcached */
        CLIENT_RECEIVED_SWITCH,         /* 101: no requests follow (WebSocket) */
        CLIENT_RECEIVED_ANNOUNCEMENT,   /* HTTP interim response: 100, 102, 103 */
        CLIENT_RECEIVED_WARNING,        /* alerts of a TLS server, in the order of enum tls_alert */
        CLIENT_RECEIVED_SEALED_ALERT,
        CLIENT_RECEIVED_FATAL_ALERT,
};

#define CLIENT_ANNOUNCED_MIN 17U        /* "HTTP/1.1 100 " and two CRLF */

#define CLIENT_INTERIM_HEADS 4 /* interim responses in one segment; few servers send two */
#define CLIENT_INTERIM_SIZE_MAX 4096U /* of each, as its bytes are examined one by one */

/* Loads the first eight bytes of a response, zero-padded, and those from the sixth one on, first one most
 * significant. Returns false if they cannot be loaded. */
static __always_inline bool client_load(struct __sk_buff *skb, __u32 offset, __u32 length, __u64 *ret_bytes,
                                        __u64 *ret_behind) {
        __u32 n = length < sizeof(*ret_bytes) ? length : sizeof(*ret_bytes);

        *ret_bytes = *ret_behind = 0;
        BPF_BOUND(n, sizeof(*ret_bytes) + 1);
        if (n == 0 || bpf_skb_load_bytes(skb, offset, ret_bytes, n) < 0)
                return false;
        if (length >= 5 + sizeof(*ret_behind) &&
            bpf_skb_load_bytes(skb, offset + 5, ret_behind, sizeof(*ret_behind)) < 0)
                return false;
        *ret_bytes = bpf_be64_to_cpu(*ret_bytes);
        *ret_behind = bpf_be64_to_cpu(*ret_behind);
        return true;
}

static __always_inline bool client_is_interim(__u64 behind, __u32 length) {
        return length >= CLIENT_ANNOUNCED_MIN && behind >> 16 == WORD_OF("1.1 10", 6) &&
               (behind >> 8 & 0xff) != '1' && (behind & 0xff) == ' ';
}

/* Length of the response head at the beginning of these bytes of a segment; 0: it does not end there. Like
 * the next function it is global, and thus verified once. */
__attribute__((noinline, weak)) __u32 client_get_head(struct __sk_buff *skb, __u32 offset, __u32 length) {
        __u32 at = 0, last = 0, end;
        __u8 byte;

        if (!skb)
                return 0;
        /* A branch on a constant would make the verifier explore each value of the position */
        end = histogram_choose(histogram_if_less(length, CLIENT_INTERIM_SIZE_MAX), length,
                               CLIENT_INTERIM_SIZE_MAX);
        while (at < end && can_loop) {
                if (bpf_skb_load_bytes(skb, offset + at, &byte, sizeof(byte)) < 0)
                        return 0;
                at++;
                last = last << 8 | byte;
                if (http_ends_head(last))
                        return at;
        }
        return 0;
}

/* Length of the interim responses at the beginning of a segment; length if the last one does not end in
 * it. */
__attribute__((noinline, weak)) __u32 client_get_interim(struct __sk_buff *skb, __u32 offset, __u32 length) {
        __u32 at = 0, head;

        if (!skb)
                return length;
        for (int i = 0; i < CLIENT_INTERIM_HEADS; i++) {
                __u64 behind = 0;

                head = client_get_head(skb, offset + at, length - at);
                if (head == 0)
                        return length;
                at += head;
                if (at + CLIENT_ANNOUNCED_MIN > length ||
                    bpf_skb_load_bytes(skb, offset + at + 5, &behind, sizeof(behind)) < 0 ||
                    !client_is_interim(bpf_be64_to_cpu(behind), length - at))
                        break;
        }
        return at;
}

/* Classifies a segment, returns enum client_received. Global, as the verifier would otherwise explore all of
 * it together with everything that follows. */
__attribute__((noinline, weak)) __u32 client_classify_response(struct __sk_buff *skb,
                                                               const struct exchange *x, __u32 offset,
                                                               __u32 length) {
        __u64 bytes, behind;
        __u32 n;

        if (!skb || !x || x->state != EXCHANGE_PENDING || x->flags & EXCHANGE_PIPED ||
            !(x->flags & EXCHANGE_PARSED || length <= TLS_FAREWELL_MAX))
                return CLIENT_RECEIVED_RESPONSE;
        if (!client_load(skb, offset, length, &bytes, &behind))
                return CLIENT_RECEIVED_RESPONSE;
        if (!(x->flags & EXCHANGE_PARSED)) {
                enum tls_alert alert = tls_alert_of_server(bpf_cpu_to_be64(bytes), length);

                return alert == TLS_NO_ALERT ? CLIENT_RECEIVED_RESPONSE :
                       CLIENT_RECEIVED_WARNING + (alert - TLS_ALERT_WARNS);
        }
        if (client_is_interim(behind, length)) {
                n = client_get_interim(skb, offset, length);
                if (n >= length)
                        return CLIENT_RECEIVED_ANNOUNCEMENT;
                if (!client_load(skb, offset + n, length - n, &bytes, &behind))
                        return CLIENT_RECEIVED_RESPONSE;
        }
        if (bytes >> 24 == WORD_OF("HTTP/", 5) && behind == WORD_OF("1.1 101 ", 8))
                return CLIENT_RECEIVED_SWITCH;
        switch (response_get_failure(bytes, behind)) {

        case FAILURE_STATUS5XX:
                return CLIENT_RECEIVED_STATUS5XX;

        case FAILURE_REPLY:
                return CLIENT_RECEIVED_ERROR;

        default:
                return CLIENT_RECEIVED_RESPONSE;
        }
}

/* Records a segment that is not a response: only its bytes count, and the request stays outstanding, or
 * fails. An unencrypted alert shows whether it is fatal. An encrypted one is the end of the connection,
 * orderly or not, and what is in flight may be a message of the client without a response. end: of the
 * segment. */
static __attribute__((noinline)) int client_receive_others(struct conn *c, struct qos_unit_map *u,
                                                           const struct tcp_sock *tp, __u32 end,
                                                           __u32 received) {
        __u32 rcv_nxt, window_end, done, unsure, failed = 0;
        struct exchange_effect effect = {};
        struct attribution a;

        if (!c || !u || !tp)
                return 0;
        rcv_nxt = tp->rcv_nxt;
        window_end = tp->rcv_wup + tp->rcv_wnd;
        bpf_spin_lock(&c->lock);
        done = c->x.flags & EXCHANGE_DONE;
        unsure = c->x.flags & (EXCHANGE_FAREWELL | EXCHANGE_SESSION | EXCHANGE_UNCERTAIN);
        c->x.flags |= EXCHANGE_DONE;
        exchange_receive_response(&c->x, 0, end, rcv_nxt, window_end, &effect);
        if (effect.bytes > 0 && c->x.open_at != 0 && !done &&
            (received == CLIENT_RECEIVED_FATAL_ALERT ||
             (received == CLIENT_RECEIVED_SEALED_ALERT && !unsure))) {
                failed = 1;
                exchange_request_none(&c->x, &effect);
                exchange_shut(&c->x, &effect);
                c->x.state = EXCHANGE_IDLE;
        } else
                c->x.flags = (c->x.flags & ~EXCHANGE_DONE) | done;
        a = conn_commit(c, &effect);
        bpf_spin_unlock(&c->lock);
        u = effect.bytes > 0 ? attribution_resolve(u, &a) : NULL;
        if (!u)
                return 0;
        window_advance(u, bpf_ktime_get_ns());
        record_sum(u, a.target, QOS_SUM_BYTES_IN, QOS_ENTRY_SUM_BYTES_IN, effect.bytes);
        client_record_unparsed(c, u, a.target, effect.bytes, 0);
        if (failed && a.target & TARGET_ENTRY)
                entry_count(entry_get(u, a.target & TARGET_ENTRY), QOS_ENTRY_ERRORS_RESET, 1);
        record_effect(u, a.target, &effect);
        return zero();
}

/* Shift of enum client_received, above the length of a segment. */
#define CLIENT_RECEIVED_SHIFT 20

/* Records a segment of a response. segment: its position (upper half), and length and kind, see
 * CLIENT_RECEIVED_SHIFT; tcp: rcv_nxt (upper half), and end of the window. Returns 1 if a response has begun
 * and its peer has no entry. */
static __attribute__((noinline)) int client_receive_segment(struct conn *c, struct qos_unit_map *u,
                                                            __u64 segment, __u64 tcp, __u64 now) {
        __u32 seq = segment >> 32, len = segment & ((1U << CLIENT_RECEIVED_SHIFT) - 1),
              received = (__u32) segment >> CLIENT_RECEIVED_SHIFT;
        struct exchange_effect effect = {};
        struct request_record record = { .now = now };
        struct attribution a;

        if (!c || !u)
                return 0;

        bpf_spin_lock(&c->lock);
        /* Only the next segment in order is the beginning of the response */
        if (seq != (c->x.flags & EXCHANGE_IN_KNOWN ? c->x.in_end : (__u32) (tcp >> 32)))
                received = CLIENT_RECEIVED_RESPONSE;
        record.n = exchange_receive_response(&c->x, now, seq + len, tcp >> 32, tcp, &effect);
        record.first_at = c->x.flags & EXCHANGE_WAITS ? 0 : c->x.first_at;
        if (received == CLIENT_RECEIVED_SWITCH && effect.begun)
                c->x.flags |= EXCHANGE_DONE;
        a = conn_commit(c, &effect);
        bpf_spin_unlock(&c->lock);
        u = effect.bytes > 0 ? attribution_resolve(u, &a) : NULL;
        if (!u)
                return 0;

        window_advance(u, now);
        record_sum(u, a.target, QOS_SUM_BYTES_IN, QOS_ENTRY_SUM_BYTES_IN, effect.bytes);
        client_record_unparsed(c, u, a.target, effect.bytes, 0);
        record.target = a.target;
        record.before = effect.grown_from;
        if (effect.begun) {
                entry_record(u, &record);
                if (received != CLIENT_RECEIVED_RESPONSE && received != CLIENT_RECEIVED_SWITCH &&
                    a.target & TARGET_ENTRY)
                        entry_count(entry_get(u, a.target & TARGET_ENTRY),
                                    QOS_ENTRY_STATUS_5XX + (received - CLIENT_RECEIVED_STATUS5XX), 1);
        } else if (effect.grown)
                entry_record_more(u, &record);
        record_effect(u, a.target, &effect);
        return effect.begun && (a.target & TARGET_ENTRY) == QOS_ENTRY_PEERS_OTHERS;
}

/* Assigns an entry to a peer without one that has just responded, if there is one by now, or the peer has
 * earned one. */
static __attribute__((noinline)) int client_find_row(struct sock *sk, struct conn *c,
                                                     struct qos_unit_map *u, __u64 now) {
        struct qos_address a = {};
        __u64 row;

        if (!sk || !c || !u)
                return 0;
        sock_remote(sk, &a);
        row = entry_find(u, &a, QOS_ENTRY_PEER);
        if (row == QOS_ENTRY_PEERS_OTHERS)
                row = peer_challenge(u, &a, c->x.flags & EXCHANGE_WAITS ? 0 :
                                     exchange_between(c->x.first_at, now), now);
        if (row == 0)
                return 0;

        BPF_BOUND(row, QOS_ENTRIES + 1);
        row |= TARGET_ONLY | (u->names[row].generation & 0xff) << TARGET_GENERATION_SHIFT;
        bpf_spin_lock(&c->lock);
        if (c->in_flight == 0)
                c->target = row;
        bpf_spin_unlock(&c->lock);
        return 0;
}

/* A connection ends: if a request is outstanding, or connecting has failed, records it for the peer. where:
 * position up to which the unit has read (upper half), and the new state. */
static __attribute__((noinline)) int client_end(struct conn *c, struct qos_unit_map *u, __u32 error,
                                                __u32 old_state, __u64 where) {
        __u32 copied = where >> 32, new_state = where, cell, pending;
        struct exchange_effect effect = {};
        bool unread, missed;
        struct attribution a;

        if (!c || !u)
                return 0;

        bpf_spin_lock(&c->lock);
        /* If some reads were missed, their responses are unknown */
        missed = c->x.flags & EXCHANGE_PIPED && exchange_distance(copied, c->x.read_end) > 0;
        unread = new_state == TCP_CLOSE_WAIT && c->x.flags & EXCHANGE_PIPED && c->x.n_marks > 0;
        pending = c->x.pending;
        if (!unread) {
                exchange_request_none(&c->x, &effect);
                if (c->x.flags & EXCHANGE_UNCERTAIN)
                        exchange_shut(&c->x, &effect);
                exchange_end(&c->x, 1, c->x.state == EXCHANGE_PENDING, 0, &effect);
        }
        a = conn_commit(c, &effect);
        bpf_spin_unlock(&c->lock);
        /* Responses received before the end are recorded when read, see client_read() */
        if (unread)
                return 0;
        if (!effect.unanswered && effect.in_flight == 0 && old_state != TCP_SYN_SENT)
                return 0;

        if (error == ETIMEDOUT)
                cell = QOS_ENTRY_ERRORS_TIMEOUT;
        else if (error != 0 || new_state == TCP_CLOSE_WAIT)
                cell = QOS_ENTRY_ERRORS_RESET;
        else
                cell = QOS_ENTRY_CLIENT_ABORTS; /* closed by the unit */

        u = attribution_resolve(u, &a);
        if (!u)
                return 0;
        window_advance(u, bpf_ktime_get_ns());
        if (missed) {
                window_count(u, QOS_COUNTER_DROPS, pending);
                read_check(&c->owner, false);
        } else if (a.target & TARGET_ENTRY && (effect.unanswered || old_state == TCP_SYN_SENT))
                entry_count(entry_get(u, a.target & TARGET_ENTRY), cell, 1);
        record_effect(u, a.target, &effect);
        return 0;
}

/* ---- several requests at a time ---- */

/* Parses and counts the requests in the last bytes of data sent. Returns 1 if it cannot be parsed. Global,
 * to be verified once. */
__attribute__((noinline, weak)) int client_parse(struct __sk_buff *skb, struct pipeline *p, __u32 bytes) {
        struct chunk *f;

        if (!skb || !p || bytes > skb->len)
                return 0;
        f = chunk_init(p, bytes);
        p->times.how = 0;
        chunk_parse_requests(f, p, &(struct chunk_source) { .skb = skb, .offset = skb->len - bytes },
                             &p->times, /* position= */ 0, /* owner= */ NULL);
        return f->piece.lost;
}

/* Results of client_count_requests(): */
#define CLIENT_PARSED 1
#define CLIENT_H2 2
#define CLIENT_UNPARSED 4       /* no parser for the data */
#define CLIENT_NOTHING 8        /* the data has no request */
#define CLIENT_ENDS 16          /* no requests follow */
#define CLIENT_PIPES 32         /* several requests are outstanding, with distinguishable responses */
#define CLIENT_WAITS 64         /* the newest request is a long poll, or makes the peer send events */
#define CLIENT_BYTES_SHIFT 8    /* length of the data */

/* TLS, from ClientHello on: unless ClientHello excludes it, the connection may carry HTTP/2, which ends with
 * a message without response (GOAWAY) that looks like a request. offset: of the data in the packet. */
static __attribute__((noinline)) int client_begin_tls(struct __sk_buff *skb, struct conn *c, __u32 offset) {
        struct bpf_dynptr data;

        if (!skb || !c || bpf_dynptr_from_skb(skb, 0, &data) < 0 ||
            offer_read(&data, offset, skb->len) & OFFER_PLAIN)
                return 0;
        bpf_spin_lock(&c->lock);
        c->x.flags |= EXCHANGE_UNCERTAIN;
        bpf_spin_unlock(&c->lock);
        return zero();
}

/* Part of client_count_requests(), separate for its stack. found: number of requests (upper half), and how
 * many of them have an unknown latency if responses are not distinguished; what: CLIENT_*. */
static __attribute__((noinline)) int client_note_requests(struct conn *c, struct qos_unit_map *u,
                                                          __u64 found, __u32 what, __u32 rcv_nxt) {
        __u32 pending = found >> 32, bundled = found;
        struct exchange_effect effect = {};
        __u64 now = bpf_ktime_get_ns();
        struct attribution a;

        if (!c || !u)
                return 0;
        bpf_spin_lock(&c->lock);
        if (what & CLIENT_PARSED) {
                c->x.flags = (c->x.flags & ~EXCHANGE_WAITS) | EXCHANGE_PARSED |
                             (what & CLIENT_WAITS ? EXCHANGE_WAITS : 0);
        } else
                c->x.flags &= ~(EXCHANGE_PARSED | EXCHANGE_PIPED | EXCHANGE_WAITS);
        if (what & CLIENT_PARSED || pending > 0)
                exchange_request_more(&c->x, now, pending, &effect);
        if (what & CLIENT_UNPARSED)
                exchange_set_unparsed(&c->x, &effect);
        if (what & CLIENT_PIPES) {
                exchange_pipe(&c->x, rcv_nxt);
                if (c->x.flags & EXCHANGE_PIPED)
                        bundled = 0;
        }
        if (what & CLIENT_H2)
                c->x.flags |= EXCHANGE_H2;
        if (what & (CLIENT_NOTHING | CLIENT_ENDS)) {
                exchange_request_none(&c->x, &effect);
                exchange_shut(&c->x, &effect);
                c->x.state = EXCHANGE_IDLE;
        }
        if (what & CLIENT_ENDS) {
                c->x.flags |= EXCHANGE_DONE;
                c->tries = TRIES_MAX;
        }
        a = conn_commit(c, &effect);
        bpf_spin_unlock(&c->lock);

        if (!effect.unparsed && effect.in_flight == 0 && bundled == 0)
                return 0;
        u = attribution_resolve(u, &a);
        if (!u)
                return 0;
        record_effect(u, a.target, &effect);
        if (effect.unparsed)
                client_record_unparsed(c, u, a.target, what >> CLIENT_BYTES_SHIFT, 1);
        if (a.target & TARGET_ENTRY)
                entry_count(entry_get(u, a.target & TARGET_ENTRY), QOS_ENTRY_BUNDLED, bundled);
        return zero() + 1;
}

/* Counts the requests in data sent. left: number of bytes, CLIENT_REQUESTS and CLIENT_UNREAD. Requests that
 * overlap without distinguishable responses are counted without latency. If their number is unknown, too,
 * the connection becomes unparsed. */
static __attribute__((noinline)) int client_count_requests(struct __sk_buff *skb, struct bpf_sock *sk,
                                                           struct conn *c, struct qos_unit_map *u,
                                                           __u64 left) {
        bool unread = left & CLIENT_UNREAD, muxed, unparsed = false;
        __u32 bytes = left, protocol, pending = 0, bundled = 0, pipes = 0, rcv_nxt = 0;
        struct pipeline *p = NULL;

        if (!skb || !sk || !c || !u)
                return 0;
        if (bytes > skb->len)
                return 0;
        muxed = c->x.flags & EXCHANGE_H2;
        if (c->x.flags & EXCHANGE_PARSED)
                p = bpf_sk_storage_get(&pipelines, sk, 0, 0);
        if (!p && !muxed) {
                __u64 first = 0;
                __u32 n = bytes < sizeof(first) ? bytes : sizeof(first);

                if (!(left & CLIENT_REQUESTS) || n == 0)
                        return 0;
                BPF_BOUND(n, sizeof(first) + 1);
                if (n == 0 || bpf_skb_load_bytes(skb, skb->len - bytes, &first, n) < 0)
                        return 0;
                protocol = protocol_detect(first, n);
                muxed = h2_detect(first, n) ||
                        (protocol == PROTOCOL_PLAIN && !(c->x.flags & EXCHANGE_FRESH) &&
                         h2_detect_late(first, n));
                p = protocol != PROTOCOL_PLAIN ? bpf_sk_storage_get(&pipelines, sk, 0,
                                                                    BPF_LOCAL_STORAGE_GET_F_CREATE) : NULL;
                if (!p && !muxed) {
                        if (protocol != PROTOCOL_PLAIN)
                                element_lost(QOS_STATISTIC_LOST_PIPELINES, &c->owner);
                        else if (tls_is_greeting(first, n) ||
                                 (!(c->x.flags & EXCHANGE_FRESH) && tls_detect(first, n)))
                                client_begin_tls(skb, c, skb->len - bytes);
                        c->tries = protocol != PROTOCOL_PLAIN ? TRIES_MAX : c->tries + 1;
                        if (exchange_is_ssh(first)) {
                                bpf_spin_lock(&c->lock);
                                c->x.flags |= EXCHANGE_SESSION;
                                bpf_spin_unlock(&c->lock);
                        }
                        return 0;
                }
                if (p)
                        pipeline_begin(p, protocol, 0, 0);
                unread = false;
        } else if (p && left & CLIENT_REQUESTS) {
                /* Replication: no responses from now on */
                if (p->protocol == PROTOCOL_REDIS && p->flags & PIPELINE_TUNNEL)
                        return client_note_requests(c, u, 0, CLIENT_ENDS, 0);
                pipeline_reset(p);
        } else
                unread = false;

        if (p) {
                pending = p->pending;
                p->times.came_at = c->x.read_at;
                unparsed = client_parse(skb, p, bytes);
                bundled = p->pending > 1 ? p->pending - (pending > 1 ? pending : 0) : unread;
                pending = p->pending - pending;
                if (unparsed) {
                        /* Otherwise it was another protocol from the beginning */
                        unparsed = c->x.flags & EXCHANGE_PARSED || p->flags & PIPELINE_UNDERSTOOD;
                        c->tries = TRIES_MAX;
                        p = NULL;
                }
        }

        if (muxed)
                c->tries = TRIES_MAX; /* the number of its requests is unknown */
        /* Not if there are too many to have their own times, or the peer sends events */
        if (p && p->pending > 1 && p->n_groups < PIPELINE_BATCHES &&
                        !(p->flags & (PIPELINE_SERVER_PUSH | PIPELINE_TUNNEL))) {
                struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);

                if (tp) {
                        pipes = CLIENT_PIPES;
                        rcv_nxt = tp->rcv_nxt;
                }
        }
        return client_note_requests(c, u, (__u64) pending << 32 | bundled,
                                    bytes << CLIENT_BYTES_SHIFT |
                                    (p ? CLIENT_PARSED : 0) | (unparsed || muxed ? CLIENT_UNPARSED : 0) |
                                    (muxed ? CLIENT_H2 : 0) | pipes |
                                    (p && p->pending == 0 && p->in.state == 0 ? CLIENT_NOTHING : 0) |
                                    (p && (p->flags & PIPELINE_SERVER_PUSH ||
                                           (p->n_groups > 0 && pipeline_newest(p)->waits)) ?
                                     CLIENT_WAITS : 0),
                                    rcv_nxt);
}

/* ---- their responses (EXCHANGE_PIPED) ---- */

/* A chunk of responses while it is parsed, passed by address for chunk_init(). */
struct client_piece {
        struct chunk f;         /* end: of the data that arrived at the same time */
        __u32 offset;           /* of the chunk in the buffer */
        __u32 copied;           /* position of the chunk in the stream */
        __u32 end;              /* of all data */
        __u32 mark;             /* index of the current arrival (struct arrival_times) */
        __u32 begun;            /* responses begun so far */
};

#define RESPONDED_MORE (1U << 31)       /* begins with the rest of the previous response */
#define RESPONDED_UNSURE (1U << 30)     /* the arrival time is unknown */
#define RESPONDED_MAX (RESPONDED_UNSURE - 1)

/* Moves the sample of a growing response from its previous to its current value. */
__attribute__((noinline, weak)) int client_extend_response(struct qos_unit_map *u,
                                                           const struct request_record *b, __u64 was,
                                                           __u64 is) {
        if (!u || !b || !(b->target & TARGET_ENTRY))
                return 0;
        entry_move_sample(entry_get(u, b->target & TARGET_ENTRY), b->before, was, b->now, is);
        return 0;
}

/* Responses to n requests of a batch begin in data that arrived at this time. Returns 0 if there are no
 * outstanding requests. */
__attribute__((noinline, weak)) __u32 client_receive_group(struct pipeline *p, struct qos_unit_map *u,
                                                           struct request_record *b, __u32 n, __u64 at) {
        struct pipeline_batch group;

        if (!p || !u || !b)
                return 0;
        b->n = pipeline_complete(p, n, &group);
        if (b->n == 0)
                return 0;
        /* Recorded now, with the latency up to its arrival */
        b->last_at = group.first_at;
        b->first_at = group.waits ? 0 : b->now - exchange_between(group.first_at, at);
        entry_record(u, b);
        return b->n;
}

/* Prepares p->work for recording the responses of a connection. */
static __always_inline void client_record_begin(struct pipeline *p, __u32 target) {
        struct request_record *record = (struct request_record*) p->work;

        _Static_assert(sizeof(*record) <= sizeof(p->work), "no room for what is recorded");
        __builtin_memset(record, 0, sizeof(*record));
        record->target = target;
}

/* Records responses that begin in data that arrived at this time and was read. found: number of requests,
 * and RESPONDED_*. Returns the number of recorded responses. Uses fields of struct exchange: first_at, when
 * the request of the last response was sent; last_at, arrival of the newest part of that response;
 * last_out_at, when it was recorded. These have no other use in this state, and are protected by the socket
 * lock. Global, to be verified once. */
__attribute__((noinline, weak)) __u32 client_record_responses(struct exchange *x, struct qos_unit_map *u,
                                                              struct pipeline *p, __u64 at, __u32 found) {
        __u32 left = found & RESPONDED_MAX, n = 0, taken;
        struct request_record *record;

        if (!x || !u || !p)
                return 0;
        record = (struct request_record*) p->work;
        record->now = bpf_ktime_get_ns();
        window_advance(u, record->now);

        record->before = x->last_out_at;
        if (found & RESPONDED_MORE && at > x->last_at) {
                client_extend_response(u, record, exchange_between(x->first_at, x->last_at),
                                       exchange_between(x->first_at, at));
                x->last_at = at;
                x->last_out_at = record->now;
        }
        while (left > 0 && can_loop) {
                taken = client_receive_group(p, u, record, left, at);
                if (taken == 0)
                        break;
                left -= taken < left ? taken : left;
                n += taken;
        }
        if (n == 0)
                return 0;
        x->first_at = record->last_at;
        x->last_at = at;
        x->last_out_at = record->now;
        if (found & RESPONDED_UNSURE && record->target & TARGET_ENTRY)
                entry_count(entry_get(u, record->target & TARGET_ENTRY), QOS_ENTRY_BUNDLED, n);
        return n;
}

/* n requests are no longer in flight. */
static __attribute__((noinline)) int client_end_requests(struct conn *c, struct qos_unit_map *u, __u32 n) {
        struct exchange_effect effect = {};
        struct attribution a;

        if (!c || !u || n == 0)
                return 0;
        bpf_spin_lock(&c->lock);
        exchange_piped(&c->x, n, &effect);
        a = conn_commit(c, &effect);
        bpf_spin_unlock(&c->lock);
        u = attribution_resolve(u, &a);
        if (u)
                record_effect(u, a.target, &effect);
        return zero() + 1;
}

/* Parses data that arrived at the same time, or a window of it. Returns 1 at its end. */
static __always_inline int client_response_step(struct bpf_dynptr *data, struct exchange *x,
                                                struct pipeline *p, struct qos_unit_map *u,
                                                struct client_piece *a) {
        struct chunk *f = &a->f;
        struct exchange_marks *marks = &p->times.marks;
        __u64 mark = a->mark, at = 0;
        __u32 n, from = f->at, found = 0;

        BPF_BOUND(mark, EXCHANGE_MARKS);
        if (f->at >= a->end)
                return 1;
        f->end = a->end;
        if (a->mark < marks->n && a->mark < EXCHANGE_MARKS) {
                n = marks->end[mark] - a->copied;
                if ((__s32) (n - f->at) <= 0) {
                        a->mark++;
                        return 0;
                }
                if (n < f->end)
                        f->end = n;
                at = marks->at[mark];
                if (a->mark == marks->n - 1 && marks->tail_at != at)
                        found = RESPONDED_UNSURE;
        }

        if (at == 0)
                at = bpf_ktime_get_ns(); /* newer than the last known arrival */

        f->piece.begun = 0;
        if (p->flags & PIPELINE_RESPONDING)
                found |= RESPONDED_MORE;
        if (chunk_skip(f, &p->out)) {
                n = chunk_advance(f, p, &p->out);
                BPF_BOUND(n, WINDOW_SIZE + 1);
                if (n > 0 && bpf_dynptr_read(p->window.bytes, n, data, a->offset + f->window_begin, 0) < 0) {
                        f->piece.lost = 1;
                        return 1;
                }
                chunk_parse_response(f, p);
        }
        if (f->at == from || f->piece.tunnel)
                f->piece.lost = 1;
        if (f->piece.begun > 0 || found & RESPONDED_MORE)
                a->begun += client_record_responses(x, u, p, at, found | (f->piece.begun & RESPONDED_MAX));
        return f->piece.lost != 0;
}

/* Like requests_parse(), for responses. */
__attribute__((noinline, weak)) int client_take(struct sk_buff *skb __arg_trusted, struct exchange *x,
                                                struct pipeline *p, struct qos_unit_map *u,
                                                struct client_piece *a) {
        struct bpf_dynptr data;

        if (!x || !p || !u || !a)
                return 0;
        if (bpf_dynptr_from_skb((struct __sk_buff*) skb, 0, &data) < 0) {
                a->f.piece.lost = 1;
                return 0;
        }
        while (!client_response_step(&data, x, p, u, a) && can_loop)
                ;
        return 0;
}

/* Everything up to this position was read. lost: parsing has failed. A separate function, for its stack. */
static __attribute__((noinline)) int client_read(struct sock *sk, struct conn *c, struct qos_unit_map *u,
                                                 __u32 position, bool lost) {
        struct exchange_effect effect = {};
        struct qos_unit_map *at;
        struct attribution a;
        struct pipeline *p;
        bool ended;

        if (!sk || !c || !u)
                return 0;
        p = bpf_sk_storage_get(&pipelines, sk, 0, 0);
        if (!p)
                return 0;
        /* All requests are considered responded to, at an unknown time */
        if (lost) {
                bpf_spin_lock(&c->lock);
                a = conn_commit(c, &effect);
                bpf_spin_unlock(&c->lock);
                at = attribution_resolve(u, &a);
                if (at) {
                        client_record_begin(p, a.target);
                        client_end_requests(c, at,
                                            client_record_responses(&c->x, at, p, bpf_ktime_get_ns(),
                                                                    RESPONDED_UNSURE | RESPONDED_MAX));
                }
        }

        bpf_spin_lock(&c->lock);
        ended = exchange_pipe_read(&c->x, position, p->out.state == 0 && !(p->flags & PIPELINE_RESPONDING),
                                   lost, &effect);
        a = conn_commit(c, &effect);
        bpf_spin_unlock(&c->lock);
        if (ended) {
                __builtin_memset(&p->out, 0, sizeof(p->out));
                pipeline_reset(p);
        }
        u = attribution_resolve(u, &a);
        if (!u)
                return 0;
        record_effect(u, a.target, &effect);
        /* No response is growing in the entry in which it was recorded, so the connection may change its
         * entry */
        if (ended && (a.target & TARGET_ENTRY) == QOS_ENTRY_PEERS_OTHERS)
                client_find_row(sk, c, u, bpf_ktime_get_ns());
        /* The peer has closed the connection after its responses */
        if (!ended && sk->__sk_common.skc_state == TCP_CLOSE_WAIT)
                client_end(c, u, 0, TCP_ESTABLISHED, (__u64) position << 32 | TCP_CLOSE_WAIT);
        return zero();
}

/* Results of client_parse_responses(); 0: nothing new */
#define CLIENT_READ 1
#define CLIENT_LOST 2

/* Parses responses read by the unit. Parameters as for receive_parse(). The caller has to call client_read()
 * afterwards, which is not done here for the space on the stack. */
static __attribute__((noinline)) int client_parse_responses(struct sk_buff *skb, struct conn *c,
                                                            struct qos_unit_map *u, __u32 copied,
                                                            __u64 piece) {
        struct client_piece a = { .offset = piece >> 32, .copied = copied, .end = piece };
        struct exchange_effect effect = {};
        struct attribution attribution;
        struct sock *sk;
        struct pipeline *p;

        if (!skb || !c || !u)
                return 0;
        sk = skb->sk;
        if (!sk)
                return 0;
        p = bpf_sk_storage_get(&pipelines, sk, 0, 0);
        if (!p)
                return 0;
        a.f.at = a.f.window_begin = a.f.window_end = c->x.read_end - copied;
        if ((__s32) (a.f.at - a.end) >= 0)
                return 0; /* already parsed (MSG_PEEK) */

        bpf_spin_lock(&c->lock);
        exchange_get_marks(&c->x, &p->times.marks);
        attribution = conn_commit(c, &effect);
        bpf_spin_unlock(&c->lock);
        u = attribution_resolve(u, &attribution);
        if (!u)
                return 0;
        if ((__s32) a.f.at < 0)
                a.f.piece.lost = 1; /* earlier data was read without being seen */
        else {
                client_record_begin(p, attribution.target);
                client_take(skb, &c->x, p, u, &a);
                client_end_requests(c, u, a.begun);
                if (a.f.piece.failed > 0 && attribution.target & TARGET_ENTRY)
                        entry_count(entry_get(u, attribution.target & TARGET_ENTRY),
                                    p->protocol == PROTOCOL_HTTP1 ? QOS_ENTRY_STATUS_5XX :
                                    QOS_ENTRY_ERRORS_REPLIES, a.f.piece.failed);
        }
        return a.f.piece.lost ? CLIENT_LOST : CLIENT_READ;
}
