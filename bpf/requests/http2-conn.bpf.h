/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

/* HTTP/2 connections (http2.h): parses their bytes, and records the requests. */

#include "intended.bpf.h"
#include "stream-chunk.bpf.h"
#include "http2.h"

/* Whether requests with this name are excluded. A separate function, for its stack. */
__attribute__((noinline, weak)) int h2_conn_name_is_excluded(const struct qos_owner *owner, __u32 kind,
                                                             __u64 name) {
        return owner && name_is_excluded(owner, kind, name);
}

/* Looks up the name of the last request read, and excludes the request if required. */
__attribute__((noinline, weak)) int h2_conn_look_up(struct h2_conn *h, struct h2_more *more,
                                                    const struct qos_owner *owner) {
        struct hpack_path *path;

        if (!h || !more || !owner)
                return 0;
        path = &more->paths.path;
        for (__u32 i = 0; i < NAME_DIRECTORIES && i < path->n_directories; i++)
                if (h2_conn_name_is_excluded(owner, NAME_DIRECTORY, path->directories[i])) {
                        h2_exclude(h, more);
                        return 0;
                }
        if (h2_conn_name_is_excluded(owner, NAME_PATH, path->name))
                h2_exclude(h, more);
        return 0;
}

/* Records an event on a stream. */
__attribute__((noinline, weak)) int h2_conn_record(struct qos_unit_map *u, struct h2_piece *piece,
                __u32 target) {
        const struct h2_stream *s;
        struct request_record record = {};
        __u32 event;

        if (!u || !piece)
                return 0;
        s = &piece->stream;
        event = piece->event;
        piece->event = 0;
        record.first_out_at = s->first_out_at;
        record.first_at = s->last_at == 0 ? 0 : s->first_at;
        record.last_at = s->last_at;
        record.read_at = s->read_at ?: s->first_out_at;
        record.n = 1;
        record.target = target;

        if (s->flags & H2_STREAM_EXCLUDED) {
                if (event & H2_BEGUN)
                        window_count(u, QOS_COUNTER_EXCLUDED, 1);
                return 0;
        }
        if (event & H2_BEGUN) {
                record.now = s->first_out_at;
                record_request(u, &record);
        }
        /* The time of the last byte of a stream that was reset is unknown */
        if (s->last_out_at > s->first_out_at && event & H2_ENDED &&
            !(s->flags & (H2_STREAM_CUT | H2_STREAM_INTENDED))) {
                record.before = s->first_out_at;
                record.now = s->last_out_at;
                record_request_more(u, &record);
        }
        if (target & TARGET_ONLY)
                return 0;

        if (event & H2_BEGUN) {
                window_count(u, QOS_COUNTER_COUNT +
                             (s->flags & H2_STREAM_GRPC ? PROTOCOL_GRPC : PROTOCOL_HTTP2), 1);
                if (event & H2_STREAMING)
                        window_count(u, QOS_COUNTER_STREAMS, 1);
                if (s->flags & H2_STREAM_UNKNOWN)
                        window_count(u, QOS_COUNTER_STATUS_UNKNOWN, 1);
                else if (s->status == 4)
                        window_count(u, QOS_COUNTER_STATUS_4XX, 1);
                else if (s->status == 5)
                        window_count(u, QOS_COUNTER_STATUS_5XX, 1);
        }
        if (event & H2_ENDED) {
                if (s->flags & H2_STREAM_UNKNOWN)
                        return 0; /* already counted */
                if (h2_is_failed_call(s))
                        window_count(u, QOS_COUNTER_ERRORS_GRPC, 1);
                else if (h2_is_unknown_call(s))
                        window_count(u, QOS_COUNTER_STATUS_UNKNOWN, 1);
        }
        return 0;
}

/* The head of a response was sent. If the request was delayed by intent, it is recorded here, and the event
 * is cleared. */
__attribute__((noinline, weak)) int h2_conn_record_intended(struct h2_conn *h, struct h2_more *more,
                                                            struct qos_unit_map *u, __u32 target) {
        struct pipeline_batch group = {};
        const struct h2_stream *s;
        struct h2_stream *place;

        if (!h || !u)
                return 0;
        s = &h->piece.stream;
        group.first_at = s->first_at;
        group.read_at = s->read_at;
        if (s->flags & (H2_STREAM_EXCLUDED | H2_STREAM_UNKNOWN) || s->status == 5 || s->read_at == 0 ||
            s->last_at == 0 || exchange_between(s->read_at, s->first_out_at) < INTENT_WAIT_MIN_NSEC ||
            !intent_learn(target_intended(u, target), request_get_intent(s->read_at, s->first_out_at),
                          /* again= */ 0, s->first_at, s->first_out_at))
                return 0;
        request_record_intended(u, &group, 1, s->first_out_at, target);
        h->piece.event &= ~(H2_BEGUN | H2_STREAMING);
        h->piece.stream.flags |= H2_STREAM_INTENDED;
        /* The stream may have ended */
        place = h2_stream(h, more, s->id);
        if (place)
                place->flags |= H2_STREAM_INTENDED;
        if (target & TARGET_ONLY)
                return 1;
        window_count(u, QOS_COUNTER_COUNT + (s->flags & H2_STREAM_GRPC ? PROTOCOL_GRPC : PROTOCOL_HTTP2), 1);
        if (s->status == 4)
                window_count(u, QOS_COUNTER_STATUS_4XX, 1);
        return 1;
}

/* Records an event on a stream with a response. */
static __always_inline void h2_conn_record_response(struct h2_conn *h, struct h2_more *more,
                                                    struct qos_unit_map *u, __u32 target) {
        if (h->piece.event & H2_BEGUN)
                h2_conn_record_intended(h, more, u, target);
        if (h->piece.event)
                h2_conn_record(u, &h->piece, target);
}

/* Whether the connection may turn out to be HTTP/2: the preface may be cut after its first or second letter,
 * which is how HTTP/1 requests begin, too. */
static __always_inline bool h2_conn_may_be_preface(const struct pipeline *p) {
        return p->protocol == PROTOCOL_HTTP1 && p->in.state == HTTP_METHOD && p->in.word_left >= 1 &&
               p->in.word_left <= 2 &&
                !(p->flags & PIPELINE_UNDERSTOOD);
}

/* bytes: beginning of the next data. Returns the number of bytes of the preface that were parsed as HTTP/1;
 * 0: not a preface. */
static __always_inline __u32 h2_conn_preface(const struct pipeline *p, __u64 bytes, __u32 n) {
        __u32 k = p->in.word_left;

        if (!h2_conn_may_be_preface(p))
                return 0;
        bytes = bytes << 8 * k | (k == 1 ? p->in.word : (p->in.word & 0xff) << 8 | p->in.word >> 8);
        return h2_detect(bytes, n + k) ? k : 0;
}

struct h2_conn_chunk {
        __u32 at;               /* as in struct chunk */
        __u32 end;
        __u32 window_begin;
        __u32 window_end;
        __u32 offset;           /* of the chunk in its source */
        __u32 position;         /* in the stream */
};

/* Moves the window if needed, like chunk_advance(). */
static __always_inline __u32 h2_conn_advance(struct h2_conn_chunk *f, bool blind) {
        if (f->at < f->window_end)
                return 0;
        f->window_begin = f->at;
        f->window_end = blind ? f->at : f->end - f->at > WINDOW_SIZE ? f->at + WINDOW_SIZE : f->end;
        return f->window_end - f->window_begin;
}

/* Records the streams of a chunk of requests. */
static __always_inline void h2_conn_record_requests(struct h2_conn *h, struct h2_more *more,
                                                    struct qos_unit_map *u, const struct qos_owner *owner,
                                                    __u32 target) {
        if (h->piece.event & H2_NAMED) {
                h->piece.event &= ~H2_NAMED;
                h2_conn_look_up(h, more, owner);
        }
        if (h->piece.event)
                h2_conn_record(u, &h->piece, target);
}

/* The part of the window to be parsed. */
static __always_inline __u64 h2_conn_window(const struct h2_conn_chunk *f) {
        return (__u64) (f->at - f->window_begin) << 32 | (f->window_end - f->window_begin);
}

/* Loads the next bytes into the window. Returns false if that fails: the chunk is lost. */
static __always_inline bool h2_conn_fill(struct h2_conn *h, struct h2_conn_chunk *f, bool blind,
                                         const struct chunk_source *s) {
        __u32 n = h2_conn_advance(f, blind);

        BPF_BOUND(n, WINDOW_SIZE + 1);
        if (n > 0 && chunk_load(s, h->window.bytes, n, f->offset + f->window_begin) < 0) {
                h->piece.lost = 1;
                return false;
        }
        return true;
}

struct h2_conn_request_chunk {
        struct h2_conn_chunk f;
        struct qos_owner owner;
        __u32 target;
};

/* Parses a chunk of requests. stops: stop where struct h2_more is needed. */
static __always_inline void h2_conn_parse_requests(struct h2_conn *h, struct h2_more *more,
                                                   struct qos_unit_map *u, struct h2_conn_request_chunk *q,
                                                   const struct chunk_source *s, bool stops) {
        struct h2_conn_chunk *f = &q->f;
        __u32 n;

        while (!h->piece.lost && f->at < f->end && !(stops && h2_wants_more(h)) && can_loop) {
                if (!h2_conn_fill(h, f, h2_is_blind(&h->in, 0), s))
                        break;
                h->piece.position = f->position + f->window_begin;
                n = h2_parse_requests(h, more, h2_conn_window(f), f->end - f->window_end, &h->piece);
                f->at += n;
                h2_conn_record_requests(h, more, u, &q->owner, q->target);
                if (n == 0)
                        break;
        }
}

/* Parses a part of a chunk of responses, up to an event. Returns its length; 0: no more can be parsed. */
static __always_inline __u32 h2_conn_parse_response(struct h2_conn *h, struct h2_more *more,
                                                    struct h2_conn_chunk *f, const struct chunk_source *s) {
        __u32 n;

        if (h->piece.lost || f->at >= f->end || !h2_conn_fill(h, f, h2_is_blind(&h->out, 1), s))
                return 0;
        n = h2_parse_responses(h, more, h2_conn_window(f), f->end - f->window_end, &h->piece);
        f->at += n;
        return n;
}
