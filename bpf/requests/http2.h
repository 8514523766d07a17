/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* HTTP/2, and gRPC in it.
 *
 * A connection carries many requests at a time, each on a stream of its own, in frames with their length
 * and the number of their stream. A request begins with the first byte of its HEADERS. It counts when the
 * head of its response has left, and ends with the last byte of the response's last frame. Of a request
 * nothing but its frames is parsed, and its path where some are excluded; of a response also its head
 * (hpack.h).
 *
 * As in pipeline.h everything here runs under the lock of the socket. Pure: compiled for BPF, for the unit
 * tests and for the fuzzers. */

#include "hpack.h"
#include "pipeline.h"

enum h2_type {
        H2_DATA,
        H2_HEADERS,
        H2_PRIORITY,
        H2_RST_STREAM,
        H2_SETTINGS,
        H2_PUSH_PROMISE,
        H2_PING,
        H2_GOAWAY,
        H2_WINDOW_UPDATE,
        H2_CONTINUATION,
};

enum h2_flag {
        H2_END_STREAM   = 1 << 0,
        H2_ACK          = 1 << 0,       /* of SETTINGS, PING */
        H2_END_HEADERS  = 1 << 2,
        H2_PADDED       = 1 << 3,
        H2_HAS_PRIORITY = 1 << 5,
};

#define H2_HEADER_SIZE 9U
#define H2_PREFACE_SIZE 24U     /* what a client says first */
#define H2_GOAWAY_SIZE 8U       /* last stream that the server has processed, error code */

/* Streams of one connection that are open at a time. Servers allow 100 (nghttpd, h2o, Envoy), 128 (nginx) or
 * 250 (Go); what does not fit is not counted, and that is said. */
#define H2_STREAMS 256U
/* Most connections have few open. The first half of the places is with the connection, the other half in
 * struct h2_more, which exists once so many of the first half are taken: where they are spread, a stream
 * of a window still finds one. */
#define H2_STREAMS_CROWD (H2_STREAMS / 4)
/* A stream is stored at the place of its number, or behind it where an older one is. Streams that were
 * opened in a row and stay open (watches) are stored apart: next to each other they would take all places
 * within reach of the streams between. With up to 128 of these there is a free place within so many
 * steps, whichever they are (simulated). */
#define H2_PROBES 16
#define H2_SPREAD 157U

enum h2_stream_flag {
        H2_STREAM_GRPC    = 1 << 0,
        H2_STREAM_UNKNOWN = 1 << 1,     /* what it is was in a part of its answer's head that is not known */
        H2_STREAM_OPEN    = 1 << 2,     /* its status was in a part of the trailers that was not seen */
        H2_STREAM_BEGUN   = 1 << 3,     /* the head has left */
        H2_STREAM_CUT     = 1 << 4,     /* it ended before its response was complete */
        H2_STREAM_EXCLUDED = 1 << 5,    /* the request is excluded */
        H2_STREAM_DOUBTED = 1 << 6,     /* its end was perhaps missed, and nothing is heard of it: it is in
                                         * flight no longer */
};
#define H2_STREAM_ASIDE (H2_STREAM_EXCLUDED | H2_STREAM_DOUBTED) /* it is not in h2.open */

struct h2_stream {
        __u32 id;               /* 0: none */
        __u8 flags;             /* enum h2_stream_flag */
        __u8 status;            /* the class of its answer's, 0: not known, or none so far */
        __u8 grpc;              /* status of the call + 1; 0: not known, or not yet */
        __u8 _padding;
        __u64 first_at;         /* as in struct exchange */
        __u64 last_at;
        __u64 read_at;
        __u64 first_out_at;     /* 0: no byte of the response has left */
        __u64 last_out_at;
};

struct h2_streams {
        struct h2_stream list[H2_STREAMS / 2];
};

/* One direction. */
struct h2_frames {
        __u64 header;           /* the first eight bytes of a frame's header, the first one highest */
        __u32 left;             /* bytes of the frame that are to come */
        __u32 stream;
        __u8 have;              /* bytes of the header */
        __u8 type;
        __u8 flags;
        __u8 prefix;            /* bytes left in front of the block */
        __u8 pad;               /* bytes left behind it */
        __u8 synced;            /* enum h2_sync */
        __u8 ends;              /* the block that is not complete is the last thing on its stream */
        __u8 of_answer;         /* the block is an answer's, not a promise */
        __u32 word;             /* what the prefix said */
        __u32 named;            /* of requests: 1: the block that is not complete is parsed for its path; of
                                 * GOAWAY: number of streams that were open before it */
};

enum h2_sync {
        H2_LOST,                /* where frames begin is not known: the connection is older than the
                                 * attach */
        H2_EDGE,                /* the next byte is the first of a frame, if anything is */
        H2_SYNCED,
};

enum h2_event {
        H2_BEGUN        = 1 << 0,       /* the head of its response has left */
        H2_ENDED        = 1 << 1,       /* the last of it has */
        H2_STREAMING    = 1 << 2,       /* so far as is known it never will be complete (server-sent
                                         * events) */
        H2_NAMED        = 1 << 3,       /* the request that was read last has a name, see h2_exclude() */
};

/* What was found in a piece of the stream. */
struct h2_piece {
        __u64 now;
        __u32 position;         /* of the window's first byte in the stream */
        __u32 dropped;          /* streams that one side gave up */
        __u32 unseen;           /* requests that cannot be followed */
        __u32 lost;             /* 1: these are no frames */
        __u32 event;            /* enum h2_event: what has become of this stream; the caller takes that, and
                                 * sets this to 0 */
        struct h2_stream stream;
};

struct h2_conn {
        struct h2_frames in;
        struct h2_frames out;
        struct hpack hpack;     /* of responses */
        struct hpack asked;     /* of requests, while their paths are wanted */
        __u32 in_pos;           /* sequence number up to which requests were parsed */
        __u32 last_id;          /* the highest stream that was opened */
        __u32 open;             /* streams in the table that are in flight */
        __u32 taken;            /* places in the table */
        __u32 extra;            /* that are in flight besides the one that struct exchange has */
        __u16 late;             /* 1: it was not seen from the beginning; frames are looked at with
                                 * suspicion */
        __u16 settled;          /* 1: the server speaks HTTP/2, too */
        __u32 names;            /* 1: paths of requests are wanted */
        __u32 more;             /* enum h2_more_state */
        __u32 missed_from;      /* requests were missed on streams above this one */
        __u32 missed_to;        /* and below this one; their responses show them. 0: on none */
        __u64 missed_at;        /* when the last of these was read */
        __u64 doubted_at;       /* when it was last looked which streams may have ended unseen; 0: none may
                                 * have */
        __u64 begun_at;         /* when the first byte of the question's frame came */
        struct h2_piece piece;  /* of one of both; not on the stack, which is small */
        struct arrival_times times; /* of a piece of requests */
        struct window window;
        struct h2_streams streams;
};

/* What few connections need. Apart, as since Linux 7.1 no storage of a socket can be larger than some 8 KiB,
 * and so that all others do without. */
struct h2_more {
        struct hpack_paths paths; /* of requests */
        struct h2_streams streams;
};

enum h2_more_state {
        H2_MORE_NONE,           /* it was not needed so far */
        H2_MORE_HERE,
        H2_MORE_LOST,           /* there was no memory for it */
};

/* Is it time for struct h2_more? */
static inline __attribute__((always_inline)) int h2_wants_more(const struct h2_conn *h) {
        return h->more == H2_MORE_NONE && (h->names || h->taken >= H2_STREAMS_CROWD);
}

static inline __attribute__((always_inline)) void h2_piece_begin(struct h2_piece *piece, __u64 now) {
        piece->now = now;
        piece->dropped = piece->unseen = piece->lost = piece->event = 0;
}

/* As it is at the beginning: perhaps it was that of a connection that was known before, too. */
BPF_SUBPROG int h2_more_begin(struct h2_conn *h, struct h2_more *more) {
        BPF_REQUIRE(h);
        BPF_REQUIRE(more);
        for (__u32 i = 0; i < H2_STREAMS / 2; i++)
                more->streams.list[i].id = 0;
        for (__u32 i = 0; i < HPACK_PATHS; i++)
                more->paths.entries[i].number = 0;
        h->more = H2_MORE_HERE;
        return 0;
}

/* The preface that the client begins with, as protocol_detect() sees it. Of a first piece that ends early
 * three letters must do: no method of HTTP/1 begins with them. */
static inline __attribute__((always_inline)) int h2_detect(__u64 bytes, __u32 length) {
        __u64 differs = bytes ^ __builtin_bswap64(WORD_OF("PRI * HT", 8));

        return length >= 3 && (length >= 8 ? differs : differs << (64 - 8 * length)) == 0;
}

/* Could these be the first eight bytes of a frame's header? Of the stream's number the last byte is not
 * among them. */
static inline __attribute__((always_inline)) int h2_is_header(__u64 header) {
        __u32 length = header >> 40, type = header >> 32 & 0xff, flags = header >> 24 & 0xff,
                stream = header & 0xffffff;

        if (stream & 0x800000)
                return 0;

        switch (type) {

        case H2_DATA:
                return !(flags & ~(H2_END_STREAM | H2_PADDED));

        case H2_HEADERS:
                return length > 0 &&
                       !(flags & ~(H2_END_STREAM | H2_END_HEADERS | H2_PADDED | H2_HAS_PRIORITY));

        case H2_PRIORITY:
                return length == 5 && flags == 0;

        case H2_RST_STREAM:
        case H2_WINDOW_UPDATE:
                return length == 4 && flags == 0;

        case H2_SETTINGS:
                return !(flags & ~H2_ACK) && length % 6 == 0 && length < 256 && stream == 0;

        case H2_PUSH_PROMISE:
                return length > 4 && !(flags & ~(H2_END_HEADERS | H2_PADDED));

        case H2_PING:
                return length == 8 && !(flags & ~H2_ACK) && stream == 0;

        case H2_GOAWAY:
                return length >= H2_GOAWAY_SIZE && flags == 0 && stream == 0;

        case H2_CONTINUATION:
                return !(flags & ~H2_END_HEADERS);
        }
        return 0;
}

/* The same for a connection that is older than the attach, in the order of protocol_detect(). */
static inline __attribute__((always_inline)) int h2_detect_late(__u64 bytes, __u32 length) {
        return length >= 8 && h2_is_header(__builtin_bswap64(bytes));
}

/* As it is at the beginning, but for the streams (h2_clear()). late: that was before the attach. */
static inline __attribute__((always_inline)) void h2_begin(struct h2_conn *h, __u32 in_pos, int late) {
        const struct h2_frames fresh = {};

        /* Perhaps it was known before, to a unit that was detached */
        h->in = h->out = fresh;
        h->hpack.inserted = h->hpack.lost = 0;
        h->asked.inserted = h->asked.lost = 0;
        h->last_id = h->extra = h->settled = 0;
        h->missed_from = h->missed_to = 0;
        h->doubted_at = 0;
        h->more = H2_MORE_NONE;
        h->in_pos = in_pos;
        h->late = late;
        h->in.synced = H2_SYNCED;
        if (!late) {
                h->out.synced = H2_SYNCED;
                /* The preface, as a frame that means nothing */
                h->in.have = H2_HEADER_SIZE;
                h->in.type = H2_SETTINGS;
                h->in.left = H2_PREFACE_SIZE;
        }
}

/* The place in this half of the table of the stream with this number, which would be that of for_id;
 * H2_STREAMS: it has none. id 0: a free place. */
PARSER_FUNCTION __u32 h2_find(const struct h2_streams *streams, __u32 id, __u32 for_id) {
        if (!streams)
                return H2_STREAMS;
        for (__u32 i = 0; i < H2_PROBES; i++) {
                __u32 place = (for_id / 2 * H2_SPREAD + i) & (H2_STREAMS / 2 - 1);

                if (streams->list[place].id == id)
                        return place;
        }
        return H2_STREAMS;
}

static inline __attribute__((always_inline)) struct h2_stream* h2_place(struct h2_conn *h,
                struct h2_more *more, __u32 id, __u32 for_id) {
        __u64 place = h2_find(&h->streams, id, for_id);

        if (place < H2_STREAMS / 2) {
                BPF_BOUND(place, H2_STREAMS / 2);
                return &h->streams.list[place];
        }
        place = more ? h2_find(&more->streams, id, for_id) : H2_STREAMS;
        if (!more || place >= H2_STREAMS / 2)
                return (struct h2_stream*) 0;
        BPF_BOUND(place, H2_STREAMS / 2);
        return &more->streams.list[place];
}

static inline __attribute__((always_inline)) struct h2_stream* h2_stream(struct h2_conn *h,
                struct h2_more *more, __u32 id) {
        return id != 0 ? h2_place(h, more, id, id) : (struct h2_stream*) 0;
}

/* Opens it for a request that began at this time. NULL: no place is free. */
static inline __attribute__((always_inline)) struct h2_stream* h2_open(struct h2_conn *h,
                struct h2_more *more, __u32 id, __u64 first_at) {
        struct h2_stream *s = h2_place(h, more, 0, id);

        if (!s)
                return s;
        s->id = id;
        s->flags = s->status = s->grpc = 0;
        s->first_at = first_at;
        s->last_at = s->read_at = s->first_out_at = s->last_out_at = 0;
        h->open++;
        h->taken++;
        return s;
}

static inline __attribute__((always_inline)) void h2_close(struct h2_conn *h, struct h2_stream *s) {
        /* Without branches: the verifier follows each of them for each stream that GOAWAY ends */
        s->id = 0;
        h->taken -= ~histogram_if_zero(h->taken) & 1;
        h->open -= ~histogram_if_zero(h->open) & histogram_if_zero(s->flags & H2_STREAM_ASIDE) & 1;
}

static inline __attribute__((always_inline)) void h2_end(struct h2_conn *h, struct h2_stream *s,
                                                         struct h2_piece *piece) {
        piece->stream = *s;
        piece->event |= H2_ENDED;
        h2_close(h, s);
}

/* One side gives it up. */
static inline __attribute__((always_inline)) void h2_drop(struct h2_conn *h, struct h2_stream *s,
                                                          struct h2_piece *piece) {
        piece->dropped += !(s->flags & H2_STREAM_ASIDE);
        s->flags |= H2_STREAM_CUT;
        if (s->flags & H2_STREAM_BEGUN)
                h2_end(h, s, piece);
        else
                h2_close(h, s);
}

/* The request on it is excluded: it is no longer in flight, and in no other figure. */
static inline __attribute__((always_inline)) void h2_leave_out(struct h2_conn *h, struct h2_stream *s) {
        if (h->open > 0 && !(s->flags & H2_STREAM_ASIDE))
                h->open--;
        s->flags |= H2_STREAM_EXCLUDED;
}

/* The first request was the upgrade in HTTP/1.1. */
static inline __attribute__((always_inline)) void h2_upgrade(struct h2_conn *h,
                const struct pipeline_batch *g) {
        struct h2_stream *s;

        h->last_id = 1;
        s = h2_open(h, (struct h2_more*) 0, 1, g->first_at);
        if (!s)
                return;
        s->last_at = g->last_at;
        s->read_at = g->read_at;
        if (g->excluded > 0)
                h2_leave_out(h, s);
}

/* Takes bytes of a frame's header. Returns how many. */
static inline __attribute__((always_inline)) __u32 h2_header(struct h2_frames *f, const struct window *w,
                                                             __u32 at, __u32 end) {
        if (f->have == 0 && at + H2_HEADER_SIZE <= end) {
                f->header = window_word(w, at);
                f->stream = window_byte(w, at + 8);
                f->have = H2_HEADER_SIZE;
                return H2_HEADER_SIZE;
        }
        if (f->have < 8) {
                f->header = (f->have == 0 ? 0 : f->header << 8) | window_byte(w, at);
        } else
                f->stream = window_byte(w, at);
        f->have++;
        return 1;
}

/* The header is complete. */
static inline __attribute__((always_inline)) void h2_frame(struct h2_frames *f) {
        f->left = f->header >> 40;
        f->type = f->header >> 32 & 0xff;
        f->flags = f->header >> 24 & 0xff;
        f->stream = (f->header & 0x7fffff) << 8 | (f->stream & 0xff);
        f->prefix = f->pad = 0;
        f->word = 0;
}

/* Is the next byte one that does not matter? */
static inline __attribute__((always_inline)) int h2_is_blind(const struct h2_frames *f, int answers) {
        if (f->have < H2_HEADER_SIZE)
                return 0;
        if (!answers && !f->named)
                return 1;
        if (f->prefix > 0)
                return 0;
        return (f->type != H2_HEADERS && f->type != H2_PUSH_PROMISE && f->type != H2_CONTINUATION) ||
               f->left <= f->pad;
}

/* What is in front of the block of HEADERS. */
static inline __attribute__((always_inline)) void h2_prefix_begins(struct h2_frames *f) {
        if (f->flags & H2_PADDED)
                f->prefix = 1;
        if (f->flags & H2_HAS_PRIORITY)
                f->prefix += 5;
        if (f->prefix > f->left)
                f->prefix = f->left;
}

/* A byte of that. Of how much padding there is the first one says, and only that: the block follows where
 * all have been taken. */
static inline __attribute__((always_inline)) void h2_pad(struct h2_frames *f, __u32 byte) {
        if (f->flags & H2_PADDED) {
                if (f->word == 0)
                        f->pad = byte < f->left - 1 ? byte : f->left - 1;
                f->word = 1;
        }
}

/* The application has read up to this position, and the parser has not seen all of that, as the kernel has
 * skipped a run of the program that sees it. Where the next frame begins is not known until h2_resumes().
 * Responses are seen all, so that their table of fields (hpack.h) is as it was; that of the requests begins
 * anew, and what refers to a field from before is not known. */
EXCHANGE_INLINE void h2_miss(struct h2_conn *h, __u32 position, __u64 now) {
        const struct h2_frames fresh = {};
        __u32 n = position - h->in_pos;

        h->in_pos = position;
        /* In the middle of a frame whose bytes do not matter: nothing is lost */
        if (h->in.synced == H2_SYNCED && h2_is_blind(&h->in, 0) && n < h->in.left) {
                h->in.left -= n;
                return;
        }
        h->in = fresh;
        h->asked.inserted = h->asked.lost = 0;
        if (h->missed_to == 0)
                h->missed_from = h->last_id;
        h->missed_to = ~0U;
        h->missed_at = now;
        if (h->open > 0)
                h->doubted_at = now;
}

/* Length of the frame with this header; 0: no client sends such a frame. */
static inline __attribute__((always_inline)) __u32 h2_frame_size(__u64 header, __u32 last) {
        __u32 type = header >> 32 & 0xff, stream = (header & 0x7fffff) << 8 | last;

        if (!h2_is_header(header) || type == H2_PUSH_PROMISE)
                return 0;
        if (type == H2_SETTINGS || type == H2_PING || type == H2_GOAWAY ? stream != 0 :
            type != H2_WINDOW_UPDATE && !(stream & 1))
                return 0;
        return H2_HEADER_SIZE + (__u32) (header >> 40);
}

/* Is what begins so to be looked at more closely (h2_frame_size()), before the parser resumes with it? Where
 * a request is open, or a response has not left, it may be the middle of a frame. */
static inline __attribute__((always_inline)) int h2_is_doubtful(const struct h2_conn *h, __u32 unsent) {
        return h->open > 0 || unsent > 0;
}

/* Does the parser resume with what is read at this position, which begins so? As pipeline_resumes(). framed:
 * it is nothing but whole frames. In what is no header three bytes would have to say how long the piece
 * is. */
static inline __attribute__((always_inline)) int h2_resumes(struct h2_conn *h, __u32 position, __u64 bytes,
                                                            __u32 length, __u32 unsent, int framed) {
        if (position != h->in_pos || (h2_is_doubtful(h, unsent) && !framed) ||
            !h2_detect_late(bytes, length))
                return 0;
        h->in.synced = H2_SYNCED;
        h->late = 1;
        return 1;
}

/* A stream of which the end may have been missed is no longer in flight when the server has sent nothing
 * on it for so long: the default timeout of nginx for upstream servers. */
#define H2_DOUBT_NSEC (60 * 1000000000ULL)

static inline __attribute__((always_inline)) int h2_is_time_to_doubt(const struct h2_conn *h, __u64 now) {
        return h->doubted_at != 0 && now - h->doubted_at >= H2_DOUBT_NSEC;
}

static inline __attribute__((always_inline)) void h2_doubt_half(struct h2_conn *h,
                struct h2_streams *streams, __u64 now) {
        /* The result is kept in memory: the verifier would distinguish as many paths through the loop as
         * there are sums */
        for (__u32 i = 0; i < H2_STREAMS / 2; i++) {
                struct h2_stream *s = &streams->list[i];

                if (s->id == 0 || s->flags & H2_STREAM_ASIDE || s->read_at > h->missed_at)
                        continue;
                if (now - s->last_out_at < H2_DOUBT_NSEC || now - h->missed_at < H2_DOUBT_NSEC) {
                        h->doubted_at = now;
                        continue;
                }
                s->flags |= H2_STREAM_DOUBTED;
                h->open--;
        }
}

/* A client gives a request up with a frame that may have been among what was missed, unless it has sent more
 * of that request since. Returns of how many nothing was heard for so long; should a response come
 * nevertheless, they are in flight again (h2_hear()). */
PARSER_FUNCTION __u32 h2_doubt(struct h2_conn *h, struct h2_more *more, __u64 now) {
        __u32 before;

        if (!h)
                return 0;
        before = h->open;
        h->doubted_at = 0;
        h2_doubt_half(h, &h->streams, now);
        if (more)
                h2_doubt_half(h, &more->streams, now);
        return before - h->open;
}

/* The server says something on this stream. */
static inline __attribute__((always_inline)) void h2_hear(struct h2_conn *h, struct h2_stream *s) {
        if (!(s->flags & H2_STREAM_DOUBTED))
                return;
        s->flags &= ~H2_STREAM_DOUBTED;
        if (!(s->flags & H2_STREAM_EXCLUDED))
                h->open++;
}

/* A response begins on a stream on which no request was seen. */
static inline __attribute__((always_inline)) struct h2_stream* h2_open_unseen(struct h2_conn *h,
                struct h2_more *more, __u32 id) {
        struct h2_stream *s;

        if (!(id & 1) || id <= h->missed_from || id >= h->missed_to)
                return (struct h2_stream*) 0;
        s = h2_open(h, more, id, h->missed_at);
        if (!s)
                return s;
        if (id > h->last_id)
                h->last_id = id;
        s->last_at = s->read_at = h->missed_at;
        return s;
}

/* ---- requests ---- */

PARSER_FUNCTION int h2_question_begins(struct h2_conn *h, struct h2_more *more, struct h2_piece *piece) {
        struct h2_frames *f;
        struct h2_stream *s;

        if (!h || !piece)
                return 0;
        f = &h->in;
        if (f->type == H2_HEADERS) {
                f->named = h->names && more;
                if (f->named && more) {
                        h2_prefix_begins(f);
                        hpack_begin(&h->asked);
                        more->paths.path.known = 0;
                } else
                        /* what this one adds to the table is not seen */
                        h->asked.inserted = h->asked.lost = 0;
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

/* The frame is complete since this time. The response did not wait for what arrives after it has begun. */
PARSER_FUNCTION int h2_question_ends(struct h2_conn *h, struct h2_more *more, __u64 last_at,
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
                if (h->asked.state != HPACK_FIELD)
                        h->asked.lost = 1;
        }
        s = h2_stream(h, more, f->stream);
        if (!s || s->first_out_at != 0)
                return 0;
        s->last_at = last_at;
        s->read_at = piece->now;
        if (named && more && more->paths.path.known && !h->asked.lost)
                piece->event |= H2_NAMED;
        return 0;
}

/* Behind H2_NAMED: requests with the name in paths.path are excluded. */
static inline __attribute__((always_inline)) void h2_exclude(struct h2_conn *h, struct h2_more *more) {
        struct h2_stream *s = h2_stream(h, more, h->in.stream);

        if (s && !(s->flags & H2_STREAM_EXCLUDED))
                h2_leave_out(h, s);
}

/* Takes bytes of a block that is looked into. */
PARSER_FUNCTION __u32 h2_question_block(struct h2_conn *h, struct h2_more *more, __u64 window) {
        __u32 at = window >> 32, end = window, n = 1;
        struct h2_frames *f;

        if (!h || !more)
                return 0;
        f = &h->in;
        if (f->prefix > 0) {
                h2_pad(f, window_byte(&h->window, at));
                f->prefix--;
        } else if (h->asked.state == HPACK_SKIP) {
                n = f->left - f->pad;
                if (n > end - at)
                        n = end - at;
                n = hpack_question_skip(&h->asked, &more->paths, n);
        } else
                hpack_question_byte(&h->asked, &more->paths, window_byte(&h->window, at));
        f->left -= n;
        return n;
}

/* Takes some bytes at … end of the connection's window (at in the upper half), and what follows of them that
 * need not be looked at, of which there are ahead. Returns how many. One step, which the verifier walks
 * once. */
PARSER_FUNCTION __u32 h2_question_step(struct h2_conn *h, struct h2_more *more, __u64 window, __u32 ahead,
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
                h2_question_begins(h, more, piece);
        } else if (h2_is_blind(f, 0)) {
                n = end - at + ahead;
                if (n > f->left)
                        n = f->left;
                f->left -= n;
        } else if (at >= end) {
                return 0;
        } else
                n = h2_question_block(h, more, (__u64) at << 32 | end);
        if (f->left == 0)
                h2_question_ends(h, more, pipeline_when(&h->times, piece->position + at + n, 1), piece);
        return n;
}

/* Steps in one call: a window has room for so many short frames. */
#define H2_QUESTION_STEPS 32
/* and the bytes that are parsed one by one, of blocks that are not longer. */
#define H2_ANSWER_STEPS 96

/* Takes bytes at … end of the window, as many as it likes, and returns how many. Stops where something has
 * become of a stream. */
PARSER_FUNCTION __u32 h2_questions(struct h2_conn *h, struct h2_more *more, __u64 window, __u32 ahead,
                                   struct h2_piece *piece) {
        __u32 from = window >> 32, end = window, at = from, n;

        if (!h || !piece)
                return 0;
        for (int i = 0; i < H2_QUESTION_STEPS && at <= end; i++) {
                n = h2_question_step(h, more, (__u64) at << 32 | end, ahead, piece);
                if (n == 0)
                        break;
                at += n;
                if (piece->event || piece->lost || h2_wants_more(h))
                        break;
        }
        return at - from;
}

/* ---- responses ---- */

PARSER_FUNCTION int h2_answer_begins(struct h2_conn *h, struct h2_more *more, struct h2_piece *piece) {
        struct h2_frames *f;
        struct h2_stream *s;

        if (!h || !piece)
                return 0;
        f = &h->out;
        switch (f->type) {

        case H2_HEADERS:
        case H2_PUSH_PROMISE:
                f->of_answer = f->type == H2_HEADERS;
                f->ends = f->of_answer && f->flags & H2_END_STREAM;
                if (f->of_answer)
                        h2_prefix_begins(f);
                else
                        f->prefix = 4 + !!(f->flags & H2_PADDED);
                hpack_begin(&h->hpack);
                if (!f->of_answer)
                        break;
                s = h2_stream(h, more, f->stream);
                if (!s)
                        s = h2_open_unseen(h, more, f->stream);
                if (!s)
                        break;
                h2_hear(h, s);
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

/* The server says that it has not looked at what is on streams above this one, and will not. */
static inline __attribute__((always_inline)) void h2_go_away(struct h2_conn *h, struct h2_more *more,
                                                             __u32 last, struct h2_piece *piece) {
        __u32 before = h->open;

        h2_go_away_half(h, &h->streams, last);
        if (more)
                h2_go_away_half(h, &more->streams, last);
        piece->dropped += before - h->open;
        if (h->last_id < last)
                return;
        /* Those that come nevertheless are nobody's */
        h->last_id = ~0U;
}

/* The head of a response is complete, or its trailers. */
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
                /* It is recorded now, and moved from where it was */
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

/* The frame is complete. */
PARSER_FUNCTION int h2_answer_ends(struct h2_conn *h, struct h2_more *more, struct h2_piece *piece) {
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
                h2_hear(h, s);
                s->last_out_at = piece->now;
                if (f->flags & H2_END_STREAM && s->flags & H2_STREAM_BEGUN)
                        h2_end(h, s, piece);
                else if (f->flags & H2_END_STREAM)
                        h2_drop(h, s, piece); /* without a head, which is not allowed */
                break;

        case H2_HEADERS:
        case H2_PUSH_PROMISE:
        case H2_CONTINUATION:
                if (f->flags & H2_END_HEADERS)
                        h2_block_ends(h, f->of_answer ? s : (struct h2_stream*) 0, piece);
                break;
        }
        return 0;
}

/* A byte in front of the block, or what GOAWAY says. */
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
                /* An error that ends no stream is one of what the client sent last */
                piece->dropped |= histogram_if_zero(f->prefix - 1) & ~histogram_if_zero(f->word) &
                        histogram_if_zero(f->named) & 1;
        } else
                h2_pad(f, byte);
        f->prefix--;
        f->left--;
        return 0;
}

/* Whether the server may send a frame with this header next. The first frame of all is SETTINGS. It may have
 * been sent before the preface was read, and only GOAWAY is seen. */
static inline __attribute__((always_inline)) int h2_may_follow(const struct h2_conn *h, __u64 header) {
        __u32 type = header >> 32 & 0xff;

        if (h->late || type == H2_GOAWAY)
                return h2_is_header(header);
        return h->settled || type == H2_SETTINGS;
}

/* As h2_question_step(). */
PARSER_FUNCTION __u32 h2_answer_step(struct h2_conn *h, struct h2_more *more, __u64 window, __u32 ahead,
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
                h->settled = 1;
                h2_frame(f);
                h2_answer_begins(h, more, piece);
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
                h2_answer_ends(h, more, piece);
        return n;
}

PARSER_FUNCTION __u32 h2_answers(struct h2_conn *h, struct h2_more *more, __u64 window, __u32 ahead,
                                 struct h2_piece *piece) {
        __u32 from = window >> 32, end = window, at = from, n;

        if (!h || !piece)
                return 0;
        for (int i = 0; i < H2_ANSWER_STEPS && at <= end; i++) {
                n = h2_answer_step(h, more, (__u64) at << 32 | end, ahead, piece);
                if (n == 0)
                        break;
                at += n;
                if (piece->event || piece->lost)
                        break;
        }
        return at - from;
}

/* ---- the connection ---- */

/* How many more requests are in flight than before, besides the one that struct exchange counts. */
static inline __attribute__((always_inline)) __s32 h2_extra(struct h2_conn *h) {
        __u32 before = h->extra;

        h->extra = h->open > 1 ? h->open - 1 : 0;
        return (__s32) (h->extra - before);
}

/* Updates the gauge of requests in flight. Bytes that have arrived and were not read may be one. The time
 * is that of any of them: iterators look for the oldest. */
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

/* Nothing is open any more. */
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

/* Frames are not where they should be: from here on the connection is like any other. What was open is not
 * followed any further, and that is said. Before h2_clear(). */
EXCHANGE_INLINE void h2_give_up(const struct h2_conn *h, struct exchange *x,
                struct exchange_effect *effect) {
        if (h->open > 0 || h->settled)
                exchange_set_unparsed(x, effect);
        effect->overlap = h->open > 0;
        x->state = EXCHANGE_IDLE;
        x->flags &= ~EXCHANGE_H2;
        exchange_shut(x, effect);
}

/* Whether a call of gRPC failed, with a status that OpenTelemetry takes for an error of the server:
 * UNKNOWN, DEADLINE_EXCEEDED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE, DATA_LOSS. Others are errors of the
 * client, or responses. Without a status clients assume UNKNOWN, unless they have aborted the call. */
static inline __attribute__((always_inline)) int h2_is_failed_call(const struct h2_stream *s) {
        __u32 code = s->grpc > 0 ? s->grpc - 1U : HPACK_GRPC_UNKNOWN;

        return s->flags & H2_STREAM_GRPC && !(s->flags & (H2_STREAM_CUT | H2_STREAM_OPEN)) &&
               (code == 2 || code == 4 || (code >= 12 && code <= 15));
}

/* Nobody knows whether. */
static inline __attribute__((always_inline)) int h2_is_unknown_call(const struct h2_stream *s) {
        return s->flags & H2_STREAM_GRPC && s->flags & H2_STREAM_OPEN && !(s->flags & H2_STREAM_CUT);
}
