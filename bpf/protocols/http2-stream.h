/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* State of an HTTP/2 connection and its streams, and frame headers: the part that requests and responses
 * (http2.h) have in common. Pure, like http2.h. */

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
        H2_ACK          = 1 << 0,       /* SETTINGS, PING */
        H2_END_HEADERS  = 1 << 2,
        H2_PADDED       = 1 << 3,
        H2_HAS_PRIORITY = 1 << 5,
};

#define H2_HEADER_SIZE 9U
#define H2_PREFACE_SIZE 24U     /* first bytes of a client */
#define H2_GOAWAY_SIZE 8U       /* last processed stream, error code */
#define H2_INTERNAL_ERROR 2U    /* error code: error of the server */

/* Limit of concurrent streams of a connection. Servers allow 100 (nghttpd, h2o, Envoy), 128 (nginx) or
 * 250 (Go); further streams are not counted, but reported as overlaps. */
#define H2_STREAMS 256U
/* Most connections have few open streams. Half of the table is in struct h2_conn, the other half in struct
 * h2_more, which is allocated once this number of entries is in use: until then a new stream still finds a
 * free entry within H2_PROBES. */
#define H2_STREAMS_CROWD (H2_STREAMS / 4)
/* Maximum number of steps of a search in the table. A stream is stored at the entry given by its number, or
 * after it if that is in use. Streams that were opened in a row and stay open (watches) are spread: adjacent
 * ones would occupy all entries within reach of others. With up to 128 of these, whichever they are, there
 * is a free entry within this number of steps (simulated). */
#define H2_PROBES 16
#define H2_SPREAD 157U

enum h2_stream_flag {
        H2_STREAM_GRPC    = 1 << 0,
        H2_STREAM_UNKNOWN = 1 << 1,     /* unknown whether gRPC: the head of the response refers to an
                                         * unknown field */
        H2_STREAM_OPEN    = 1 << 2,     /* status unknown: part of the trailers was not seen */
        H2_STREAM_BEGUN   = 1 << 3,     /* the head of the response has been sent */
        H2_STREAM_CUT     = 1 << 4,     /* ended before its response was complete */
        H2_STREAM_EXCLUDED = 1 << 5,    /* the request is excluded */
        H2_STREAM_DOUBTED = 1 << 6,     /* its end may have been missed, and nothing was sent on it since: no
                                         * longer in flight */
        H2_STREAM_INTENDED = 1 << 7,    /* the request was delayed by intent: it is in no distribution */
};
#define H2_STREAM_ASIDE (H2_STREAM_EXCLUDED | H2_STREAM_DOUBTED) /* not counted in h2_conn.open */

struct h2_stream {
        __u32 id;               /* 0: none */
        __u8 flags;             /* enum h2_stream_flag */
        __u8 status;            /* class of the status of the response; 0: unknown, or none yet */
        __u8 grpc;              /* status of the call + 1; 0: unknown, or none yet */
        __u8 _padding;
        __u64 first_at;         /* as in struct exchange */
        __u64 last_at;
        __u64 read_at;
        __u64 first_out_at;     /* 0: no byte of the response was sent */
        __u64 last_out_at;
};

struct h2_streams {
        struct h2_stream list[H2_STREAMS / 2];
};

/* One direction. */
struct h2_frames {
        __u64 header;           /* first eight bytes of the header of a frame, first one most significant */
        __u32 left;             /* remaining bytes of the frame */
        __u32 stream;
        __u8 have;              /* bytes of the header parsed */
        __u8 type;
        __u8 flags;
        __u8 prefix;            /* remaining bytes of the frame before the header block */
        __u8 pad;               /* bytes of padding after the header block */
        __u8 synced;            /* enum h2_sync */
        __u8 ends;              /* 1: the incomplete block is the last one of its stream */
        __u8 of_response;       /* 1: the block is of HEADERS, 0: of PUSH_PROMISE */
        __u32 word;             /* value of the prefix */
        __u32 named;            /* requests: 1 if the incomplete block is parsed for its path; GOAWAY: number
                                 * of streams that were open before it */
};

enum h2_sync {
        H2_LOST,                /* the boundaries of frames are unknown: the connection is older than the
                                 * attach */
        H2_EDGE,                /* the next byte, if parsable, is the first of a frame */
        H2_SYNCED,
};

enum h2_event {
        H2_BEGUN        = 1 << 0,       /* the head of the response has been sent */
        H2_ENDED        = 1 << 1,       /* the response is complete */
        H2_STREAMING    = 1 << 2,       /* the response has no known end (server-sent events) */
        H2_NAMED        = 1 << 3,       /* the last request read has a name, see h2_exclude() */
};

/* Result of parsing a chunk. */
struct h2_piece {
        __u64 now;
        __u32 position;         /* of the first byte of the window in the stream */
        __u32 dropped;          /* streams that one side has reset */
        __u32 unseen;           /* requests not counted */
        __u32 lost;             /* 1: not parsable as frames */
        __u32 event;            /* enum h2_event, on the stream below; reset to 0 by the caller, which
                                 * records it */
        struct h2_stream stream;
};

struct h2_conn {
        struct h2_frames in;
        struct h2_frames out;
        struct hpack hpack;     /* of responses */
        struct hpack requests;  /* of requests, only if paths are excluded */
        __u32 in_pos;           /* sequence number up to which requests were parsed */
        __u32 last_id;          /* highest stream opened */
        __u32 open;             /* number of streams in flight */
        __u32 taken;            /* number of entries of the table in use */
        __u32 extra;            /* requests in flight besides the one counted by struct exchange */
        __u16 late;             /* 1: the beginning was not seen, frames are validated */
        __u16 settled;          /* enum h2_settled */
        __u32 names;            /* 1: requests are excluded by path */
        __u32 more;             /* enum h2_more_state */
        __u32 missed_from;      /* requests were missed on streams above this one */
        __u32 missed_to;        /* and below this one, and are inferred from their responses; 0: none */
        __u64 missed_at;        /* time of the last of these reads */
        __u64 doubted_at;       /* time of the last check for streams that ended unseen; 0: none can have */
        __u64 begun_at;         /* arrival of the first byte of the current frame of a request */
        struct h2_piece piece;  /* scratch for either direction, as the stack is too small */
        struct arrival_times times; /* of a chunk of requests */
        struct window window;
        struct h2_streams streams;
};

/* State that few connections need: since Linux 7.1 a storage element of a socket is limited to 8 KiB, and
 * other connections save the memory. */
struct h2_more {
        struct hpack_paths paths; /* of requests */
        struct h2_streams streams;
};

enum h2_settled {
        H2_CONFIRMED            = 1 << 0,       /* by frames of the server */
        H2_ENDED_BY_ERROR       = 1 << 1,       /* of the client, which the server has reported (GOAWAY) */
        H2_UPGRADED             = 1 << 2,       /* from HTTP/1.1, by the server */
};

enum h2_more_state {
        H2_MORE_NONE,           /* not needed yet */
        H2_MORE_HERE,
        H2_MORE_LOST,           /* the allocation has failed */
};

/* Whether struct h2_more is needed. */
static inline __attribute__((always_inline)) int h2_wants_more(const struct h2_conn *h) {
        return h->more == H2_MORE_NONE && (h->names || h->taken >= H2_STREAMS_CROWD);
}

static inline __attribute__((always_inline)) void h2_piece_begin(struct h2_piece *piece, __u64 now) {
        piece->now = now;
        piece->dropped = piece->unseen = piece->lost = piece->event = 0;
}

/* Initializes struct h2_more, which may have been used for the connection before. */
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

/* Detects the preface of the client. Three letters are sufficient if the first chunk is shorter: no HTTP/1
 * method begins with them. */
static inline __attribute__((always_inline)) int h2_detect(__u64 bytes, __u32 length) {
        __u64 differs = bytes ^ __builtin_bswap64(WORD_OF("PRI * HT", 8));

        return length >= 3 && (length >= 8 ? differs : differs << (64 - 8 * length)) == 0;
}

/* Whether these may be the first eight bytes of a frame header, which has one more: the last byte of the
 * stream number. */
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

/* Detects HTTP/2 on a connection older than the attach. bytes: as for protocol_detect(). */
static inline __attribute__((always_inline)) int h2_detect_late(__u64 bytes, __u32 length) {
        return length >= 8 && h2_is_header(__builtin_bswap64(bytes));
}

/* Initializes the state, without the streams (h2_clear()). late: the connection is older than the attach. */
static inline __attribute__((always_inline)) void h2_begin(struct h2_conn *h, __u32 in_pos, int late) {
        const struct h2_frames fresh = {};

        /* The memory may have been used for a unit that was detached since */
        h->in = h->out = fresh;
        h->hpack.inserted = h->hpack.lost = 0;
        h->requests.inserted = h->requests.lost = 0;
        h->last_id = h->extra = h->settled = 0;
        h->missed_from = h->missed_to = 0;
        h->doubted_at = 0;
        h->more = H2_MORE_NONE;
        h->in_pos = in_pos;
        h->late = late;
        h->in.synced = H2_SYNCED;
        if (!late) {
                h->out.synced = H2_SYNCED;
                /* The preface is skipped as a frame */
                h->in.have = H2_HEADER_SIZE;
                h->in.type = H2_SETTINGS;
                h->in.left = H2_PREFACE_SIZE;
        }
}

/* Index of stream id in this half of the table, searched from the index for for_id on. H2_STREAMS: not
 * found. id 0: a free entry. */
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
                                                                        struct h2_more *more, __u32 id,
                                                                        __u32 for_id) {
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

/* Opens a stream for a request that began at first_at. NULL: no entry is free. */
static inline __attribute__((always_inline)) struct h2_stream* h2_open(struct h2_conn *h,
                                                                       struct h2_more *more, __u32 id,
                                                                       __u64 first_at) {
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
        /* Branchless: the verifier would walk each branch for each stream that GOAWAY ends */
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

/* One side has reset the stream. */
static inline __attribute__((always_inline)) void h2_drop(struct h2_conn *h, struct h2_stream *s,
                                                          struct h2_piece *piece) {
        piece->dropped += !(s->flags & H2_STREAM_ASIDE);
        s->flags |= H2_STREAM_CUT;
        if (s->flags & H2_STREAM_BEGUN)
                h2_end(h, s, piece);
        else
                h2_close(h, s);
}

/* Excludes the request of the stream: no longer in flight, and in no other metric. */
static inline __attribute__((always_inline)) void h2_leave_out(struct h2_conn *h, struct h2_stream *s) {
        if (h->open > 0 && !(s->flags & H2_STREAM_ASIDE))
                h->open--;
        s->flags |= H2_STREAM_EXCLUDED;
}

/* The connection was upgraded from HTTP/1.1: opens the stream of the request that did so. */
static inline __attribute__((always_inline)) void h2_upgrade(struct h2_conn *h,
                                                             const struct pipeline_batch *g) {
        struct h2_stream *s;

        h->settled = H2_UPGRADED;
        h->last_id = 1;
        s = h2_open(h, (struct h2_more*) 0, 1, g->first_at);
        if (!s)
                return;
        s->last_at = g->last_at;
        s->read_at = g->read_at;
        if (g->excluded > 0)
                h2_leave_out(h, s);
}

/* Parses bytes of a frame header. Returns their number. */
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

/* A frame header is complete. */
static inline __attribute__((always_inline)) void h2_frame(struct h2_frames *f) {
        f->left = f->header >> 40;
        f->type = f->header >> 32 & 0xff;
        f->flags = f->header >> 24 & 0xff;
        f->stream = (f->header & 0x7fffff) << 8 | (f->stream & 0xff);
        f->prefix = f->pad = 0;
        f->word = 0;
}

/* Whether the next byte is to be skipped. */
static inline __attribute__((always_inline)) int h2_is_blind(const struct h2_frames *f, int responses) {
        if (f->have < H2_HEADER_SIZE)
                return 0;
        if (!responses && !f->named)
                return 1;
        if (f->prefix > 0)
                return 0;
        return (f->type != H2_HEADERS && f->type != H2_PUSH_PROMISE && f->type != H2_CONTINUATION) ||
               f->left <= f->pad;
}

/* Sets the number of bytes before the block of HEADERS. */
static inline __attribute__((always_inline)) void h2_prefix_begins(struct h2_frames *f) {
        if (f->flags & H2_PADDED)
                f->prefix = 1;
        if (f->flags & H2_HAS_PRIORITY)
                f->prefix += 5;
        if (f->prefix > f->left)
                f->prefix = f->left;
}

/* A byte before the block. If there is padding, the first one is its length. */
static inline __attribute__((always_inline)) void h2_pad(struct h2_frames *f, __u32 byte) {
        if (f->flags & H2_PADDED) {
                if (f->word == 0)
                        f->pad = byte < f->left - 1 ? byte : f->left - 1;
                f->word = 1;
        }
}

/* The application has read up to this position, partly unseen because the kernel has skipped a run. The
 * boundaries of frames are unknown until h2_resumes(). The table of fields (hpack.h) of responses, which are
 * all seen, is retained; that of requests starts over, and references to earlier fields are unknown. */
EXCHANGE_INLINE void h2_miss(struct h2_conn *h, __u32 position, __u64 now) {
        const struct h2_frames fresh = {};
        __u32 n = position - h->in_pos;

        h->in_pos = position;
        /* Within a frame that is skipped: nothing is lost */
        if (h->in.synced == H2_SYNCED && h2_is_blind(&h->in, 0) && n < h->in.left) {
                h->in.left -= n;
                return;
        }
        h->in = fresh;
        h->requests.inserted = h->requests.lost = 0;
        if (h->missed_to == 0)
                h->missed_from = h->last_id;
        h->missed_to = ~0U;
        h->missed_at = now;
        if (h->open > 0)
                h->doubted_at = now;
}

/* Length of the frame with this header; 0: clients do not send such a frame. */
static inline __attribute__((always_inline)) __u32 h2_frame_size(__u64 header, __u32 last) {
        __u32 type = header >> 32 & 0xff, stream = (header & 0x7fffff) << 8 | last;

        if (!h2_is_header(header) || type == H2_PUSH_PROMISE)
                return 0;
        if (type == H2_SETTINGS || type == H2_PING || type == H2_GOAWAY ? stream != 0 :
            type != H2_WINDOW_UPDATE && !(stream & 1))
                return 0;
        return H2_HEADER_SIZE + (__u32) (header >> 40);
}

/* Whether all frames of the data have to be validated (h2_frame_size()) before the parser resumes: with an
 * open request, or an unsent response, the data may begin within a frame. */
static inline __attribute__((always_inline)) int h2_is_doubtful(const struct h2_conn *h, __u32 unsent) {
        return h->open > 0 || unsent > 0;
}

/* Whether the parser resumes with the data read at this position, like pipeline_resumes(). framed: the data
 * consists of whole frames: by chance, three bytes of it would have to match its length. */
static inline __attribute__((always_inline)) int h2_resumes(struct h2_conn *h, __u32 position, __u64 bytes,
                                                            __u32 length, __u32 unsent, int framed) {
        if (position != h->in_pos || (h2_is_doubtful(h, unsent) && !framed) ||
            !h2_detect_late(bytes, length))
                return 0;
        h->in.synced = H2_SYNCED;
        h->late = 1;
        return 1;
}

/* Silence of the server after which a stream is no longer in flight if its end may have been missed: the
 * default timeout of nginx for upstream servers. */
#define H2_DOUBT_NSEC (60 * 1000000000ULL)

static inline __attribute__((always_inline)) int h2_is_time_to_doubt(const struct h2_conn *h, __u64 now) {
        return h->doubted_at != 0 && now - h->doubted_at >= H2_DOUBT_NSEC;
}

PARSER_FUNCTION int h2_doubt_half(struct h2_conn *h, struct h2_streams *streams, __u64 now) {
        if (!h || !streams)
                return 0;
        /* The sum is kept in memory: otherwise the verifier would walk the loop for each value */
        for (__u32 i = 0; i < H2_STREAMS / 2 && can_loop; i++) {
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
        return 0;
}

/* A client may have reset streams with frames that were missed, unless it has sent more of the request
 * since. Returns the number of streams that are no longer in flight because nothing was sent on them. If a
 * response follows nevertheless, they are in flight again (h2_stream_respond()). */
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

/* The server sends data on this stream. */
static inline __attribute__((always_inline)) void h2_stream_respond(struct h2_conn *h, struct h2_stream *s) {
        if (!(s->flags & H2_STREAM_DOUBTED))
                return;
        s->flags &= ~H2_STREAM_DOUBTED;
        if (!(s->flags & H2_STREAM_EXCLUDED))
                h->open++;
}

/* A response begins on a stream whose request was not seen. */
static inline __attribute__((always_inline)) struct h2_stream* h2_open_unseen(struct h2_conn *h,
                                                                              struct h2_more *more,
                                                                              __u32 id) {
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
