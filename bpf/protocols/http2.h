/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* HTTP/2 and gRPC: a connection has many concurrent requests, each on a stream of its own, in frames with
 * their length and the number of the stream. A request begins with the first byte of its HEADERS, is counted
 * when the head of its response has been sent, and ends with the last byte of the last frame of the
 * response. Of a request only the frames are parsed, and the path if some are excluded; of a response also
 * the head (hpack.h). All functions run under the socket lock, as in pipeline.h. Pure: compiled for BPF, for
 * the unit tests and for the fuzzers. */

#include "http2-stream.h"

/* ---- requests ---- */

PARSER_FUNCTION int h2_request_begin(struct h2_conn *h, struct h2_more *more, struct h2_piece *piece) {
        struct h2_frames *f;
        struct h2_stream *s;

        if (!h || !piece)
                return 0;
        f = &h->in;
        if (f->type == H2_HEADERS) {
                f->named = h->names && more;
                if (f->named && more) {
                        h2_prefix_begins(f);
                        hpack_begin(&h->requests);
                        more->paths.path.known = 0;
                } else
                        /* Fields that this block adds to the table are not seen */
                        h->requests.inserted = h->requests.lost = 0;
        }
        if (f->type == H2_HEADERS && f->stream & 1 && f->stream > h->last_id) {
                h->last_id = f->stream;
                if (h->missed_to > f->stream)
                        h->missed_to = f->stream;
                if (h->out.synced != H2_SYNCED || !h2_open(h, more, f->stream, h->begun_at))
                        piece->unseen++;

        } else if (f->type == H2_RST_STREAM) {
                s = h2_stream(h, more, f->stream);
                if (s)
                        h2_drop(h, s, piece);
        }
        return 0;
}

/* A frame of a request is complete, and arrived at last_at. Frames that arrive after the response has begun
 * do not change the times. */
PARSER_FUNCTION int h2_request_end(struct h2_conn *h, struct h2_more *more, __u64 last_at,
                                   struct h2_piece *piece) {
        struct h2_frames *f;
        struct h2_stream *s;
        int named;

        if (!h || !piece)
                return 0;
        f = &h->in;
        f->have = 0;
        if (f->type != H2_DATA && f->type != H2_HEADERS && f->type != H2_CONTINUATION)
                return 0;
        named = f->named && f->type != H2_DATA && f->flags & H2_END_HEADERS;
        if (named) {
                f->named = 0;
                if (h->requests.state != HPACK_FIELD)
                        h->requests.lost = 1;
        }
        s = h2_stream(h, more, f->stream);
        if (!s || s->first_out_at != 0)
                return 0;
        s->last_at = last_at;
        s->read_at = piece->now;
        if (named && more && more->paths.path.known && !h->requests.lost)
                piece->event |= H2_NAMED;
        return 0;
}

/* Called after H2_NAMED if the name in paths.path is excluded. */
static inline __attribute__((always_inline)) void h2_exclude(struct h2_conn *h, struct h2_more *more) {
        struct h2_stream *s = h2_stream(h, more, h->in.stream);

        if (s && !(s->flags & H2_STREAM_EXCLUDED))
                h2_leave_out(h, s);
}

/* Parses bytes of a header block. Returns their number. */
PARSER_FUNCTION __u32 h2_request_block(struct h2_conn *h, struct h2_more *more, __u64 window) {
        __u32 at = window >> 32, end = window, n = 1;
        struct h2_frames *f;

        if (!h || !more)
                return 0;
        f = &h->in;
        if (f->prefix > 0) {
                h2_pad(f, window_byte(&h->window, at));
                f->prefix--;
        } else if (h->requests.state == HPACK_SKIP) {
                n = f->left - f->pad;
                if (n > end - at)
                        n = end - at;
                n = hpack_request_skip(&h->requests, &more->paths, n);
        } else
                hpack_request_byte(&h->requests, &more->paths, window_byte(&h->window, at));
        f->left -= n;
        return n;
}

/* Parses bytes from at to end of the window (at in the upper half), and skips up to ahead bytes after it.
 * Returns their number. A single step, verified once. */
PARSER_FUNCTION __u32 h2_request_step(struct h2_conn *h, struct h2_more *more, __u64 window, __u32 ahead,
                                      struct h2_piece *piece) {
        __u32 at = window >> 32, end = window, n;
        struct h2_frames *f;

        if (!h || !piece || end > WINDOW_SIZE || at > end)
                return 0;
        f = &h->in;

        if (f->have < H2_HEADER_SIZE) {
                if (at >= end)
                        return 0;
                if (f->have == 0)
                        h->begun_at = pipeline_when(&h->times, piece->position + at + 1, 0);
                n = h2_header(f, &h->window, at, end);
                if (f->have < H2_HEADER_SIZE)
                        return n;
                if (h->late && !h2_is_header(f->header)) {
                        piece->lost = 1;
                        return n;
                }
                h2_frame(f);
                h2_request_begin(h, more, piece);
        } else if (h2_is_blind(f, 0)) {
                n = end - at + ahead;
                if (n > f->left)
                        n = f->left;
                f->left -= n;
        } else if (at >= end) {
                return 0;
        } else
                n = h2_request_block(h, more, (__u64) at << 32 | end);
        if (f->left == 0)
                h2_request_end(h, more, pipeline_when(&h->times, piece->position + at + n, 1), piece);
        return n;
}

/* Maximum number of steps in one call: the number of short frames in a window. */
#define H2_REQUEST_STEPS 32
/* The same for responses, including the bytes of header blocks, which are parsed one by one. */
#define H2_RESPONSE_STEPS 96

/* Parses bytes from at to end of the window. Returns their number. Stops after an event on a stream. */
PARSER_FUNCTION __u32 h2_parse_requests(struct h2_conn *h, struct h2_more *more, __u64 window, __u32 ahead,
                                        struct h2_piece *piece) {
        __u32 from = window >> 32, end = window, at = from, n;

        if (!h || !piece)
                return 0;
        for (int i = 0; i < H2_REQUEST_STEPS && at <= end; i++) {
                n = h2_request_step(h, more, (__u64) at << 32 | end, ahead, piece);
                if (n == 0)
                        break;
                at += n;
                if (piece->event || piece->lost || h2_wants_more(h))
                        break;
        }
        return at - from;
}

/* ---- responses ---- */

PARSER_FUNCTION int h2_response_begin(struct h2_conn *h, struct h2_more *more, struct h2_piece *piece) {
        struct h2_frames *f;
        struct h2_stream *s;

        if (!h || !piece)
                return 0;
        f = &h->out;
        switch (f->type) {

        case H2_HEADERS:
        case H2_PUSH_PROMISE:
                f->of_response = f->type == H2_HEADERS;
                f->ends = f->of_response && f->flags & H2_END_STREAM;
                if (f->of_response)
                        h2_prefix_begins(f);
                else
                        f->prefix = 4 + !!(f->flags & H2_PADDED);
                hpack_begin(&h->hpack);
                if (!f->of_response)
                        break;
                s = h2_stream(h, more, f->stream);
                if (!s)
                        s = h2_open_unseen(h, more, f->stream);
                if (!s)
                        break;
                h2_stream_respond(h, s);
                if (s->first_out_at == 0)
                        s->first_out_at = piece->now;
                break;

        case H2_RST_STREAM:
                s = h2_stream(h, more, f->stream);
                if (s)
                        h2_drop(h, s, piece);
                break;

        case H2_GOAWAY:
                f->prefix = H2_GOAWAY_SIZE;
                break;
        }
        if (f->prefix > f->left)
                f->prefix = f->left;
        return 0;
}

static inline __attribute__((always_inline)) void h2_go_away_half(struct h2_conn *h,
                                                                  struct h2_streams *streams, __u32 last) {
        for (__u32 i = 0; i < H2_STREAMS / 2; i++) {
                struct h2_stream *s = &streams->list[i];

                if (s->id > last)
                        h2_close(h, s);
        }
}

/* GOAWAY: the server has not processed requests on streams above last. */
static inline __attribute__((always_inline)) void h2_go_away(struct h2_conn *h, struct h2_more *more,
                                                             __u32 last, struct h2_piece *piece) {
        __u32 before = h->open;

        h2_go_away_half(h, &h->streams, last);
        if (more)
                h2_go_away_half(h, &more->streams, last);
        piece->dropped += before - h->open;
        if (h->last_id < last)
                return;
        /* Later streams are not counted */
        h->last_id = ~0U;
}

/* The head or the trailers of a response are complete. */
static inline __attribute__((always_inline)) void h2_block_ends(struct h2_conn *h, struct h2_stream *s,
                                                                struct h2_piece *piece) {
        struct hpack *p = &h->hpack;

        if (p->state != HPACK_FIELD)
                p->lost = p->unknown = 1;
        if (!s || s->first_out_at == 0)
                return;

        s->last_out_at = piece->now;
        if (!(s->flags & H2_STREAM_BEGUN)) {
                if (p->status == 1) {
                        s->first_out_at = 0; /* an interim response, the final one follows */
                        return;
                }
                s->status = p->status;
                if (p->content == HPACK_CONTENT_GRPC || p->grpc != 0)
                        s->flags |= H2_STREAM_GRPC;
                else if (p->unknown && p->content == HPACK_CONTENT_NONE)
                        s->flags |= H2_STREAM_UNKNOWN;
                if (p->status == 0)
                        s->flags |= H2_STREAM_UNKNOWN;
                s->flags |= H2_STREAM_BEGUN;
                /* The response is recorded now, hence not in the sub-window of its first byte */
                if (s->first_out_at / QOS_EPOCH_NSEC != piece->now / QOS_EPOCH_NSEC)
                        s->first_out_at = piece->now;
                piece->event = H2_BEGUN;
                if (p->content == HPACK_CONTENT_EVENTS && !h->out.ends)
                        piece->event |= H2_STREAMING;
        }
        s->grpc = p->grpc;
        if (h->out.ends && p->unknown && p->grpc == 0)
                s->flags |= H2_STREAM_OPEN;
        piece->stream = *s;
        if (h->out.ends || piece->event & H2_STREAMING)
                h2_end(h, s, piece);
}

/* A frame of a response is complete. */
PARSER_FUNCTION int h2_response_end(struct h2_conn *h, struct h2_more *more, struct h2_piece *piece) {
        struct h2_frames *f;
        struct h2_stream *s;

        if (!h || !piece)
                return 0;
        f = &h->out;
        f->have = 0;
        s = h2_stream(h, more, f->stream);

        switch (f->type) {

        case H2_DATA:
                if (!s)
                        break;
                h2_stream_respond(h, s);
                s->last_out_at = piece->now;
                if (f->flags & H2_END_STREAM && s->flags & H2_STREAM_BEGUN)
                        h2_end(h, s, piece);
                else if (f->flags & H2_END_STREAM)
                        h2_drop(h, s, piece); /* no head: invalid */
                break;

        case H2_HEADERS:
        case H2_PUSH_PROMISE:
        case H2_CONTINUATION:
                if (f->flags & H2_END_HEADERS)
                        h2_block_ends(h, f->of_response ? s : (struct h2_stream*) 0, piece);
                break;
        }
        return 0;
}

/* A byte before the block, or of GOAWAY. */
PARSER_FUNCTION int h2_prefix(struct h2_conn *h, struct h2_more *more, __u32 byte, struct h2_piece *piece) {
        struct h2_frames *f;

        if (!h || !piece)
                return 0;
        f = &h->out;
        if (f->type == H2_GOAWAY) {
                f->word = f->word << 8 | byte;
                if (f->prefix == H2_GOAWAY_SIZE - 3) {
                        f->named = h->open;
                        h2_go_away(h, more, f->word & 0x7fffffff, piece);
                }
                /* An error without open streams concerns the last data of the client */
                piece->dropped |= histogram_if_zero(f->prefix - 1) & ~histogram_if_zero(f->word) &
                        histogram_if_zero(f->named) & 1;
                h->settled |= histogram_if_zero(f->prefix - 1) & ~histogram_if_zero(f->word) &
                        ~histogram_if_zero(f->word ^ H2_INTERNAL_ERROR) & H2_ENDED_BY_ERROR;
        } else
                h2_pad(f, byte);
        f->prefix--;
        f->left--;
        return 0;
}

/* Whether the server may send a frame with this header next. The first frame is SETTINGS, unless it was sent
 * before the preface was read, and only GOAWAY is seen. */
static inline __attribute__((always_inline)) int h2_may_follow(const struct h2_conn *h, __u64 header) {
        __u32 type = header >> 32 & 0xff;

        if (h->late || type == H2_GOAWAY)
                return h2_is_header(header);
        return h->settled & H2_CONFIRMED || type == H2_SETTINGS;
}

/* Same as h2_request_step(), for responses. */
PARSER_FUNCTION __u32 h2_response_step(struct h2_conn *h, struct h2_more *more, __u64 window, __u32 ahead,
                                       struct h2_piece *piece) {
        __u32 at = window >> 32, end = window, n = 1;
        struct h2_frames *f;

        if (!h || !piece || end > WINDOW_SIZE || at > end)
                return 0;
        f = &h->out;

        if (h2_is_blind(f, 1)) {
                n = end - at + ahead;
                if (n > f->left)
                        n = f->left;
                f->left -= n;
        } else if (at >= end) {
                return 0;
        } else if (f->have < H2_HEADER_SIZE) {
                n = h2_header(f, &h->window, at, end);
                if (f->have < H2_HEADER_SIZE)
                        return n;
                if (!h2_may_follow(h, f->header)) {
                        piece->lost = 1;
                        return n;
                }
                f->synced = H2_SYNCED;
                h->settled |= H2_CONFIRMED;
                h2_frame(f);
                h2_response_begin(h, more, piece);
        } else if (f->prefix > 0) {
                h2_prefix(h, more, window_byte(&h->window, at), piece);
        } else if (h->hpack.state == HPACK_SKIP) {
                n = f->left - f->pad;
                if (n > end - at)
                        n = end - at;
                n = hpack_skip(&h->hpack, n);
                f->left -= n;
        } else {
                hpack_byte(&h->hpack, window_byte(&h->window, at));
                f->left--;
        }
        if (f->left == 0)
                h2_response_end(h, more, piece);
        return n;
}

PARSER_FUNCTION __u32 h2_parse_responses(struct h2_conn *h, struct h2_more *more, __u64 window, __u32 ahead,
                                         struct h2_piece *piece) {
        __u32 from = window >> 32, end = window, at = from, n;

        if (!h || !piece)
                return 0;
        for (int i = 0; i < H2_RESPONSE_STEPS && at <= end; i++) {
                n = h2_response_step(h, more, (__u64) at << 32 | end, ahead, piece);
                if (n == 0)
                        break;
                at += n;
                if (piece->event || piece->lost)
                        break;
        }
        return at - from;
}

/* ---- the connection ---- */

/* Change of the number of requests in flight besides the one counted by struct exchange. */
static inline __attribute__((always_inline)) __s32 h2_extra(struct h2_conn *h) {
        __u32 before = h->extra;

        h->extra = h->open > 1 ? h->open - 1 : 0;
        return (__s32) (h->extra - before);
}

/* Updates the gauge of requests in flight. Unread data may be a request. open_at is the time of any open
 * request: iterators search for the oldest. */
EXCHANGE_INLINE void h2_settle(struct h2_conn *h, struct exchange *x, __u64 now,
                               struct exchange_effect *effect) {
        if (h->open > 0)
                exchange_open(x, x->open_at ?: now, effect);
        else if (x->n_marks > 0 && !(x->flags & EXCHANGE_DONE))
                exchange_open(x, x->mark_at[0], effect);
        else
                exchange_shut(x, effect);
        effect->in_flight += h2_extra(h);
}

/* Number of failed requests when the connection ends with open streams, at least one. */
static inline __attribute__((always_inline)) __u32 h2_get_failed(const struct h2_conn *h, __u32 open) {
        return histogram_choose(histogram_if_zero(h->settled & H2_ENDED_BY_ERROR), open, 1);
}

/* Closes all streams. */
BPF_SUBPROG int h2_clear(struct h2_conn *h, struct h2_more *more) {
        BPF_REQUIRE(h);
        for (__u32 i = 0; i < H2_STREAMS / 2; i++)
                h->streams.list[i].id = 0;
        if (more)
                for (__u32 i = 0; i < H2_STREAMS / 2; i++)
                        more->streams.list[i].id = 0;
        h->open = h->taken = 0;
        return 0;
}

/* The parser is lost: the connection continues unparsed. Open streams are reported as overlaps. Called
 * before h2_clear(). */
EXCHANGE_INLINE void h2_give_up(const struct h2_conn *h, struct exchange *x,
                                struct exchange_effect *effect) {
        if (h->open > 0 || h->settled)
                exchange_set_unparsed(x, effect);
        effect->overlap = h->open > 0;
        x->state = EXCHANGE_IDLE;
        x->flags &= ~EXCHANGE_H2;
        exchange_shut(x, effect);
}

/* The server has responded to the preface in another protocol: the data it has read is one request. Streams
 * are cleared when the connection is recognised as HTTP/2 again. */
EXCHANGE_INLINE void h2_refuse(struct h2_conn *h, struct exchange *x, struct exchange_effect *effect) {
        effect->in_flight -= h->extra;
        h->open = h->taken = h->extra = 0;
        x->state = EXCHANGE_PENDING;
        x->flags &= ~EXCHANGE_H2;
}

/* Whether a gRPC call has failed, by the convention of OpenTelemetry for servers: UNKNOWN,
 * DEADLINE_EXCEEDED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE, DATA_LOSS. Other codes are errors of the client,
 * or none. If the status is missing, clients assume UNKNOWN, unless they have aborted the call. */
static inline __attribute__((always_inline)) int h2_is_failed_call(const struct h2_stream *s) {
        __u32 code = s->grpc > 0 ? s->grpc - 1U : HPACK_GRPC_UNKNOWN;

        return s->flags & H2_STREAM_GRPC && !(s->flags & (H2_STREAM_CUT | H2_STREAM_OPEN)) &&
               (code == 2 || code == 4 || (code >= 12 && code <= 15));
}

/* Whether the status of a gRPC call is unknown. */
static inline __attribute__((always_inline)) int h2_is_unknown_call(const struct h2_stream *s) {
        return s->flags & H2_STREAM_GRPC && s->flags & H2_STREAM_OPEN && !(s->flags & H2_STREAM_CUT);
}
