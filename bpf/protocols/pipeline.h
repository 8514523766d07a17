/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* State of a parsed connection: where its requests and responses end, and which requests have no response
 * yet. All functions run under the socket lock, in the order in which the application reads and sends;
 * arrivals, which do not take it, are handled by struct exchange.
 *
 * Responses are in the order of requests, except for DNS, where requests have IDs. Pure: compiled for BPF
 * and for the unit tests. */

#include "exchange.h"
#include "http-shape.h"
#include "protocols.h"

/* Requests that arrived in the same segment and were read together have the same times, and form a batch.
 * Pipelining clients have few batches outstanding; requests beyond the limit join the newest batch. */
#define PIPELINE_BATCHES 8

struct pipeline_batch {
        __u64 first_at;         /* as in struct exchange; 0: not seen */
        __u64 last_at;
        __u64 read_at;          /* 0: being copied to the application, the call has not returned */
        __u32 n;
        __u16 waits;            /* PARSED_WAITS */
        __u16 excluded;         /* number of excluded ones among the n requests */
};

enum pipeline_flag {
        PIPELINE_RESPONDING  = 1 << 0,  /* a response is being sent */
        PIPELINE_RESPONDED   = 1 << 1,  /* a response has been sent: struct exchange has the times of the
                                         * last one */
        PIPELINE_SERVER_PUSH = 1 << 2,  /* the server sends without requests */
        PIPELINE_UNDERSTOOD  = 1 << 3,  /* at least one request was parsed: the protocol is confirmed */
        PIPELINE_TUNNEL      = 1 << 4,  /* the newest request is for a tunnel */
        PIPELINE_LOST_SYNC   = 1 << 5,  /* the last response was not parsed: its end is unknown */
        PIPELINE_EXCLUDING   = 1 << 6,  /* the request being read is excluded */
        PIPELINE_EXCLUDED    = 1 << 7,  /* the last response begun belongs to an excluded request */
};

/* Whether bytes of requests were read that the parser did not see, because the kernel skipped the program or
 * they were spliced, or failed to parse. Until the parser resumes (pipeline_resumes()), requests are
 * inferred from the responses, which are all seen. */
enum pipeline_missed {
        PIPELINE_FOLLOWED,
        PIPELINE_MISSED,                /* each response stands for a request, which may not have been seen
                                         * at all */
        PIPELINE_MISSED_RESPONDED,      /* all requests seem to have their response */
};

/* Which direction of a connection the parser has failed on. */
enum pipeline_side {
        PIPELINE_REQUESTS   = 1 << 0,   /* until the parser resumes */
        PIPELINE_RESPONSES  = 1 << 1,   /* at least one response: the connection counts as unparsed */
};

/* Maximum number of outstanding requests for which a bit in a ring stores whether the response has a body
 * (HEAD has none). With Nagle's algorithm, a server reads some hundred pipelined requests before the first
 * response is sent. A HEAD beyond the limit is not parsed. */
#define PIPELINE_BODYLESS_MAX 1024U

/* The same for excluded requests. Redis tools with deep pipelines mostly have 128 requests in flight. */
#define PIPELINE_EXCLUDED_MAX 128U

/* The duration of the response has ended although more of it is sent: it was delayed by intent, or is a
 * stream of messages. */
#define PIPELINE_OVER 0xffU

/* Arrival times of a chunk of requests. */
struct arrival_times {
        __u64 came_at;          /* arrival of all bytes, if they arrived at once */
        struct exchange_marks marks; /* otherwise */
        __u32 how;              /* PROTOCOL_NAMES: requests are excluded by name; PROTOCOL_MORE */
};

struct pipeline {
        struct parser in;
        struct parser out;
        __u32 in_pos;           /* end of parsed requests, sequence number */
        __u32 pending;          /* requests read without any response byte sent */
        __u32 extra;            /* requests in flight besides the one of struct exchange */
        __u8 protocol;          /* enum protocol */
        __u8 flags;             /* enum pipeline_flag */
        __u8 head;              /* index of the oldest batch */
        __u8 n_groups;
        __u64 begun_at;         /* arrival of the first byte of a partially read request */
        union {
                __u64 bare[PIPELINE_BODYLESS_MAX / 64]; /* ring of bits by request: the response has no
                                                         * body */
                struct {
                        __u32 ids[PIPELINE_BATCHES];    /* DNS: ID of the first request in each batch,
                                                         * pipeline_id() */
                        __u32 last_id;                  /* ID of the last response */
                };
        };
        __u32 bare_head;        /* index of the oldest outstanding request in this ring */
        __u32 n_bare;           /* number of bits set */
        __u64 excluded[PIPELINE_EXCLUDED_MAX / 64]; /* bitmap of excluded requests among the outstanding
                                                     * ones, oldest in the lowest bit */
        __u64 oldest_at;        /* arrival of the oldest request that is not excluded */
        __u32 excluding;        /* number of excluded ones among the outstanding requests */
        __u8 missed;            /* enum pipeline_missed */
        __u8 intends;           /* 1: the last request that took long was delayed by intent (intent.h) */
        __u8 not_understood;    /* enum pipeline_side */
        __u8 parts;             /* consecutive short parts of the response, each written when nothing was
                                 * unsent; 0: something is unsent; or PIPELINE_OVER */
        struct http_shape shape; /* of the last response */
        struct pipeline_batch groups[PIPELINE_BATCHES];
        struct arrival_times times; /* scratch, as the stack of programs is small */
        __u64 work[7];          /* scratch: position in a chunk, records of the client role */
        struct window window;
};

/* Mask of the lowest n bits. */
EXCHANGE_INLINE __u64 pipeline_mask(__u32 n) {
        return n < 64 ? (1ULL << n) - 1 : ~0ULL;
}

EXCHANGE_INLINE void pipeline_clear_bare(struct pipeline *p) {
        for (int i = 0; i < (int) (PIPELINE_BODYLESS_MAX / 64); i++)
                p->bare[i] = 0;
        p->n_bare = 0;
}

/* Whether the response to the i-th outstanding request, oldest first, has no body. */
EXCHANGE_INLINE int pipeline_is_bare(const struct pipeline *p, __u32 i) {
        __u32 bit = (p->bare_head + i) & (PIPELINE_BODYLESS_MAX - 1);

        return p->n_bare > 0 && i < PIPELINE_BODYLESS_MAX && p->bare[bit / 64] >> (bit & 63) & 1;
}

/* Clears the bit of a request in the ring when its response begins. */
EXCHANGE_INLINE void pipeline_response_bare(struct pipeline *p, __u32 i) {
        __u32 bit = (p->bare_head + i) & (PIPELINE_BODYLESS_MAX - 1);

        if (!pipeline_is_bare(p, i))
                return;
        p->bare[bit / 64] &= ~(1ULL << (bit & 63));
        p->n_bare--;
}

EXCHANGE_INLINE void pipeline_begin(struct pipeline *p, __u32 protocol, __u32 in_pos, int responded) {
        const struct parser fresh = {};

        p->in = p->out = fresh;
        p->in_pos = in_pos;
        p->pending = p->extra = 0;
        p->protocol = protocol;
        p->flags = responded && !protocol_is_guessed(protocol) ? PIPELINE_RESPONDED : 0;
        p->head = p->n_groups = 0;
        p->begun_at = p->oldest_at = 0;
        pipeline_clear_bare(p);
        p->excluded[0] = p->excluded[1] = 0;
        p->excluding = 0;
        p->missed = PIPELINE_FOLLOWED;
        p->intends = p->parts = 0;
        p->not_understood = 0;
        p->shape.length_at = p->shape.misses = 0;
}

EXCHANGE_INLINE struct pipeline_batch* pipeline_newest(struct pipeline *p) {
        return &p->groups[(p->head + p->n_groups - 1) & (PIPELINE_BATCHES - 1)];
}

/* Number of excluded requests among the oldest n. */
EXCHANGE_INLINE __u32 pipeline_count_excluded(const struct pipeline *p, __u32 n) {
        if ((p->excluded[0] | p->excluded[1]) == 0)
                return 0;
        return __builtin_popcountll(p->excluded[0] & pipeline_mask(n)) +
                __builtin_popcountll(p->excluded[1] & pipeline_mask(n > 64 ? n - 64 : 0));
}

EXCHANGE_INLINE int pipeline_is_excluded(const struct pipeline *p, __u32 i) {
        if (i >= PIPELINE_EXCLUDED_MAX)
                return 0;
        return (i < 64 ? p->excluded[0] : p->excluded[1]) >> (i & 63) & 1;
}

/* Number of outstanding requests that are not excluded. */
EXCHANGE_INLINE __u32 pipeline_outstanding(const struct pipeline *p) {
        return p->pending - p->excluding;
}

/* n requests were read; n is 1 for an excluded request. */
EXCHANGE_INLINE void pipeline_push(struct pipeline *p, __u32 n, __u64 first_at, __u64 last_at,
                                   __u32 parsed) {
        struct pipeline_batch *g = pipeline_newest(p);
        __u16 waits = parsed & PARSED_WAITS, excluded = !!(p->flags & PIPELINE_EXCLUDING);

        if (excluded && p->pending < 64)
                p->excluded[0] |= 1ULL << (p->pending & 63);
        else if (excluded && p->pending < PIPELINE_EXCLUDED_MAX)
                p->excluded[1] |= 1ULL << (p->pending & 63);

        if (parsed & PARSED_BARE && p->pending < PIPELINE_BODYLESS_MAX) {
                __u32 bit = (p->bare_head + p->pending) & (PIPELINE_BODYLESS_MAX - 1);

                p->bare[bit / 64] |= 1ULL << (bit & 63);
                p->n_bare++;
        }
        if (!excluded && p->pending == p->excluding)
                p->oldest_at = first_at;
        p->pending += n;
        p->excluding += excluded;
        p->flags = (p->flags & ~(PIPELINE_TUNNEL | PIPELINE_LOST_SYNC | PIPELINE_EXCLUDING)) |
                   PIPELINE_UNDERSTOOD;
        if (parsed & PARSED_PUSHES)
                p->flags |= PIPELINE_SERVER_PUSH;
        if (parsed & PARSED_TUNNEL)
                p->flags |= PIPELINE_TUNNEL;

        /* The times of a request still change if more of it is to come */
        if (p->n_groups > 0 &&
            (p->n_groups == PIPELINE_BATCHES || (g->first_at == first_at && g->last_at == last_at &&
                                                               g->read_at == 0 && g->waits == waits &&
                                                               !(parsed & PARSED_PENDING)))) {
                g->n += n;
                g->excluded += excluded;
                return;
        }

        g = &p->groups[(p->head + p->n_groups) & (PIPELINE_BATCHES - 1)];
        g->first_at = first_at;
        g->last_at = last_at;
        g->read_at = 0;
        g->n = n;
        g->waits = waits;
        g->excluded = excluded;
        p->n_groups++;
}

/* More was read of the newest request, which had been complete enough for a response, and may have got
 * one. */
EXCHANGE_INLINE void pipeline_push_more(struct pipeline *p, __u64 last_at) {
        struct pipeline_batch *g = pipeline_newest(p);

        if (p->n_groups == 0)
                return;
        g->last_at = last_at;
        g->read_at = 0;
}

/* Another request was read. A response to an unseen request that is still being parsed is one without body
 * (HEAD). */
EXCHANGE_INLINE void pipeline_end_unseen(struct pipeline *p) {
        const struct parser fresh = {};

        p->out = fresh;
        p->flags &= ~(PIPELINE_RESPONDING | PIPELINE_LOST_SYNC);
}

/* The beginning of the next request is unknown. first_at, last_at: arrival of the bytes that indicate a
 * request. */
EXCHANGE_INLINE void pipeline_miss(struct pipeline *p, __u64 first_at, __u64 last_at, __u32 unsent) {
        const struct parser fresh = {};

        if (p->in.state == 0)
                p->begun_at = first_at;
        p->flags &= ~PIPELINE_EXCLUDING;
        if (p->missed && p->pending == 0 && unsent == 0)
                pipeline_end_unseen(p);
        /* The bytes are a request, unless they are the rest of one that is already counted */
        if (p->in.state == 0 ? p->pending == 0 : !(p->in.flags & PARSER_PENDING))
                pipeline_push(p, 1, p->begun_at, last_at, 0);
        p->in = fresh;
        p->missed = PIPELINE_MISSED;
}

/* The application has read up to this position, partly unseen by the parser. first_at, last_at: arrival of
 * these bytes. */
EXCHANGE_INLINE void pipeline_lose_sync(struct pipeline *p, __u32 position, __u64 first_at, __u64 last_at,
                                        __u32 unsent) {
        const struct parser fresh = {};
        __u32 n = position - p->in_pos;

        p->in_pos = position;
        /* Within a body of known length: nothing is lost */
        if (p->missed == PIPELINE_FOLLOWED && n <= p->in.skip) {
                p->in.skip -= n;
                if (p->in.flags & PARSER_PENDING)
                        pipeline_push_more(p, last_at);
                return;
        }
        /* Exactly the rest of a request: the next byte begins another one */
        if (p->missed == PIPELINE_FOLLOWED && p->in.flags & PARSER_PENDING &&
            protocol_is_rest(p->protocol, &p->in, n)) {
                pipeline_push_more(p, last_at);
                p->in = fresh;
                return;
        }
        pipeline_miss(p, first_at, last_at, unsent);
}

/* Data up to this position could not be parsed. From here on requests are inferred from the responses, as
 * after unseen bytes: the server, too, mostly responds with an error and closes. */
EXCHANGE_INLINE void pipeline_misunderstand(struct pipeline *p, __u32 position, __u64 came_at,
                                            __u32 unsent) {
        p->in_pos = position;
        p->not_understood |= PIPELINE_REQUESTS;
        pipeline_miss(p, came_at, came_at, unsent);
}

/* A response to an unseen request begins. */
EXCHANGE_INLINE void pipeline_push_unseen(struct pipeline *p, __u32 n) {
        pipeline_push(p, n, p->begun_at, p->begun_at, 0);
}

/* Whether the parser resumes at this position with these bytes: everything before was read and responded to,
 * nothing is unsent, and the bytes look like the beginning of a request. */
EXCHANGE_INLINE int pipeline_resumes(struct pipeline *p, __u32 position, __u64 bytes, __u32 length,
                                     __u32 unsent) {
        const struct parser fresh = {};

        if (position != p->in_pos || p->pending > 0 || unsent > 0 ||
            protocol_detect(bytes, length) != p->protocol)
                return 0;
        pipeline_end_unseen(p);
        p->in = fresh;
        p->missed = PIPELINE_FOLLOWED;
        p->not_understood &= ~PIPELINE_REQUESTS;
        return 1;
}

/* The read call of the application returns. */
EXCHANGE_INLINE void pipeline_read(struct pipeline *p, __u64 now) {
        for (int i = 0; i < PIPELINE_BATCHES; i++) {
                struct pipeline_batch *g = &p->groups[(p->head + i) & (PIPELINE_BATCHES - 1)];

                if (i >= p->n_groups)
                        break;
                if (g->read_at == 0)
                        g->read_at = now;
        }
}

/* Arrival of the oldest outstanding request that is not excluded. */
EXCHANGE_INLINE __u64 pipeline_oldest(const struct pipeline *p) {
        if (p->n_groups == 0)
                return 0;
        if (p->excluding == 0)
                return p->groups[p->head & (PIPELINE_BATCHES - 1)].first_at;
        for (int i = 0; i < PIPELINE_BATCHES; i++) {
                const struct pipeline_batch *g = &p->groups[(p->head + i) & (PIPELINE_BATCHES - 1)];

                if (i < p->n_groups && g->n > g->excluded)
                        return g->first_at;
        }
        return 0;
}

/* Sets the arrival of the newest requests, if it was unknown when they were parsed. */
EXCHANGE_INLINE void pipeline_push_time(struct pipeline *p, __u64 first_at, __u64 last_at) {
        struct pipeline_batch *g = pipeline_newest(p);

        if (p->n_groups == 0 || g->last_at != 0)
                return;
        g->first_at = first_at;
        g->last_at = last_at;
        p->oldest_at = pipeline_oldest(p);
}

/* Removes the oldest requests of one batch, at most n. Returns their number. */
PARSER_FUNCTION __u32 pipeline_complete(struct pipeline *p, __u32 n, struct pipeline_batch *ret) {
        struct pipeline_batch *g;

        if (!p || !ret || p->n_groups == 0 || n == 0)
                return 0;

        g = &p->groups[p->head & (PIPELINE_BATCHES - 1)];
        *ret = *g;
        if (n < g->n) {
                ret->n = n;
                ret->excluded = pipeline_count_excluded(p, n);
                g->n -= n;
                g->excluded -= ret->excluded;
        } else {
                n = g->n;
                p->head++;
                p->n_groups--;
        }
        p->pending -= n < p->pending ? n : p->pending;
        p->bare_head += n;
        p->excluding -= ret->excluded;
        p->oldest_at = pipeline_oldest(p);
        p->flags &= ~PIPELINE_EXCLUDED;
        if ((p->excluded[0] | p->excluded[1]) != 0) {
                if (pipeline_is_excluded(p, n - 1))
                        p->flags |= PIPELINE_EXCLUDED;
                if (n < 64) {
                        p->excluded[0] = p->excluded[0] >> n | p->excluded[1] << (63 - n) << 1;
                        p->excluded[1] >>= n;
                } else {
                        p->excluded[0] = n < PIPELINE_EXCLUDED_MAX ? p->excluded[1] >> (n & 63) : 0;
                        p->excluded[1] = 0;
                }
        }
        return n;
}

/* Whether a response is being sent, and its duration has not ended. */
EXCHANGE_INLINE int pipeline_is_responding(const struct pipeline *p) {
        return (p->flags & (PIPELINE_RESPONDING | PIPELINE_EXCLUDED)) == PIPELINE_RESPONDING &&
                p->parts != PIPELINE_OVER;
}

/* Change of the number of requests in flight besides the one counted by struct exchange. */
EXCHANGE_INLINE __s32 pipeline_extra(struct pipeline *p) {
        __u32 n = pipeline_outstanding(p) + pipeline_is_responding(p), before = p->extra;

        p->extra = n > 1 ? n - 1 : 0;
        return (__s32) (p->extra - before);
}

/* Whether data being sent belongs to a streaming response. */
EXCHANGE_INLINE int pipeline_is_streaming(const struct pipeline *p) {
        return p->out.state != 0 && p->out.flags & PARSER_STREAM;
}

/* Data is sent. begins: it begins one response, or several. lasts: time since the response began. Returns
 * whether the data is the next message of a stream, which the server writes when it has one
 * (exchange_depart()): the response ended before it. */
PARSER_FUNCTION __u32 pipeline_note_part(struct pipeline *p, __u32 begins, __u32 bytes, __u32 complete,
                                         __u64 lasts) {
        if (!p)
                return 0;
        if (!begins && p->parts == PIPELINE_OVER)
                return 0;
        if (begins || bytes > EXCHANGE_MESSAGE_MAX)
                p->parts = 0;
        else if (p->parts > EXCHANGE_PUSHES - 1 && lasts >= EXCHANGE_SILENCE_NSEC) {
                p->parts = PIPELINE_OVER;
                return 1;
        }
        p->parts = complete ? p->parts + (p->parts < EXCHANGE_PUSHES) : 0;
        return 0;
}

/* Whether the rest of a request that already has a response is still to come. */
EXCHANGE_INLINE int pipeline_is_late(const struct pipeline *p) {
        return p->pending == 0 && p->in.state != 0 && p->in.flags & PARSER_PENDING;
}

/* Updates the gauge of requests in flight. complete: everything written has been sent. */
EXCHANGE_INLINE void pipeline_commit(struct pipeline *p, struct exchange *x, __u64 now, int complete,
                                     struct exchange_effect *effect) {
        __u64 at = 0;

        if (pipeline_is_late(p))
                x->flags |= EXCHANGE_LATE;
        else
                x->flags &= ~EXCHANGE_LATE;

        if (pipeline_outstanding(p) > 0)
                at = p->oldest_at ?: now;
        else if (!(p->flags & PIPELINE_EXCLUDED) &&
                 (pipeline_is_responding(p) ||
                  (!complete && !(p->flags & PIPELINE_SERVER_PUSH) && !pipeline_is_streaming(p))))
                at = x->first_at ?: now;
        else if (x->flags & EXCHANGE_LATE)
                at = 0;
        else if (p->in.state != 0 && !(p->flags & PIPELINE_EXCLUDING) && !(p->in.flags & PARSER_PENDING))
                at = p->begun_at ?: now;
        else if (x->n_marks > 0)
                at = x->mark_at[0];

        if (at != 0)
                exchange_open(x, at, effect);
        else
                exchange_shut(x, effect);
        effect->in_flight += pipeline_extra(p);
}

/* Removes all outstanding requests. */
EXCHANGE_INLINE void pipeline_reset(struct pipeline *p) {
        p->pending = p->n_groups = p->flags = 0;
        pipeline_clear_bare(p);
        p->excluded[0] = p->excluded[1] = 0;
        p->excluding = 0;
}

/* The connection is not of this protocol after all, or is not to be parsed any more: it continues
 * unparsed. */
EXCHANGE_INLINE void pipeline_abandon(struct pipeline *p, struct exchange *x,
                                      struct exchange_effect *effect) {
        const struct pipeline_batch *g = &p->groups[p->head & (PIPELINE_BATCHES - 1)];

        if (p->n_groups > 0) {
                x->state = EXCHANGE_PENDING;
                x->first_at = g->first_at;
                x->last_at = g->last_at;
                x->read_at = g->read_at;
        } else if (p->in.state != 0 && !(p->in.flags & PARSER_PENDING) && p->begun_at != 0) {
                /* Data read so far is the beginning of a request */
                x->state = EXCHANGE_PENDING;
                x->first_at = x->last_at = p->begun_at;
                x->read_at = 0;
        } else if (p->flags & PIPELINE_RESPONDED)
                x->state = EXCHANGE_RESPONDING;

        if (p->protocol == PROTOCOL_HTTP1)
                x->flags |= EXCHANGE_HTTP1;
        p->protocol = PROTOCOL_PLAIN;
        pipeline_reset(p);
        x->flags &= ~(EXCHANGE_PARSED | EXCHANGE_LATE);
        effect->in_flight += pipeline_extra(p);
}

/* The response turns the connection into a tunnel: no requests follow. */
EXCHANGE_INLINE void pipeline_end(struct pipeline *p, struct exchange *x, struct exchange_effect *effect) {
        x->state = EXCHANGE_IDLE;
        x->flags = (x->flags & ~(EXCHANGE_PARSED | EXCHANGE_LATE)) | EXCHANGE_DONE;
        x->n_marks = 0;
        exchange_shut(x, effect);
        pipeline_reset(p);
        effect->in_flight += pipeline_extra(p);
}

/* The unit closes the connection. unsent: bytes not sent. */
EXCHANGE_INLINE void pipeline_half_close(struct pipeline *p, struct exchange *x, __u64 now, __u32 unsent,
                                         struct exchange_effect *effect) {
        if (!protocol_ends_with_stream(p->protocol, &p->out))
                return;

        p->out.state = 0;
        p->out.skip = 0;
        p->flags = (p->flags & ~PIPELINE_RESPONDING) | PIPELINE_LOST_SYNC;
        pipeline_commit(p, x, now, unsent == 0, effect);
}

/* Number of failed requests, when a connection ends with outstanding ones. by_unit: all ones if the unit
 * ends it. In that case requests that were read before the last response was sent count as one: they follow
 * a request with which the client ends the connection ("Connection: close", QUIT), or one in error.
 * Branchless, since the verifier would explore everything after a branch twice. */
EXCHANGE_INLINE __u32 pipeline_get_failed(struct pipeline *p, const struct exchange *x, __u32 outstanding,
                                          __u64 by_unit) {
        __u64 read_at = pipeline_newest(p)->read_at; /* 0: the read call has not returned */

        return histogram_choose(by_unit & histogram_if_less(read_at - 1, x->last_out_at), 1, outstanding);
}

/* Whether data sent from the beginning of a response on may be a complete response: there is a single
 * request, nothing else was received, and everything written is sent. Such data is handled like that of a
 * connection without pipelining. More than servers write at once may be a part. */
#define PIPELINE_WHOLE_MAX 65536U

EXCHANGE_INLINE int pipeline_is_single(const struct pipeline *p, const struct exchange *x, __u32 bytes,
                                       int complete) {
        return p->pending == 1 && !p->missed &&
               !(p->flags & (PIPELINE_RESPONDING | PIPELINE_SERVER_PUSH)) &&
                p->in.state == 0 && x->n_marks == 0 && complete && bytes < PIPELINE_WHOLE_MAX;
}

/* Whether such data is a complete response, and need not be parsed. */
EXCHANGE_INLINE int pipeline_is_whole(const struct pipeline *p, int single) {
        return single && !protocol_is_framed(p->protocol);
}

/* Whether such data may have the shape of the last response. */
EXCHANGE_INLINE int pipeline_may_be_alike(const struct pipeline *p) {
        return p->shape.length_at != 0 && p->out.state == 0 && p->n_bare == 0 &&
               !(p->flags & (PIPELINE_TUNNEL | PIPELINE_LOST_SYNC));
}

/* Whether such data, after it was parsed, may provide the shape of the next response. */
EXCHANGE_INLINE int pipeline_may_have_shape(const struct pipeline *p) {
        return p->protocol == PROTOCOL_HTTP1 && p->out.state == 0 && p->shape.misses < HTTP_SHAPE_MISSES_MAX;
}

/* Whether data belongs to the previous response: there was no other request, and the end of that response is
 * unknown. */
EXCHANGE_INLINE int pipeline_is_more(const struct pipeline *p) {
        return p->pending == 0 && p->missed != PIPELINE_MISSED &&
               !(p->flags & (PIPELINE_RESPONDING | PIPELINE_SERVER_PUSH)) && p->out.state == 0 &&
                (p->flags & PIPELINE_LOST_SYNC || !protocol_is_framed(p->protocol));
}

/* Whether data is a RESP3 push message, such as a key invalidation, which is neither a response nor part of
 * one. bytes: beginning of the data (">2" and CRLF), first one least significant. */
EXCHANGE_INLINE int pipeline_is_push(__u64 bytes, __u32 protocol) {
        return protocol == PROTOCOL_REDIS && (bytes & 0xffff00ff) == 0x0a0d003e;
}

/* Result of parsing a chunk. */
struct parsed_chunk {
        __u32 begun;            /* responses begun */
        __u8 lost;              /* 1: not parsable */
        __u8 tunnel;            /* 1: a tunnel follows the last response; 2: HTTP/2 follows it */
        __u16 named;            /* 1: a request has a name, to be looked up before parsing continues */
        __u32 streams;          /* responses found to be streams */
        __u32 status4xx;        /* of the responses begun */
        __u32 failed;           /* HTTP: those of them with status 5xx; others: error replies that ended */
};

/* A response begins. If its request is not complete, it is an early response (oversized head or line). */
EXCHANGE_INLINE void pipeline_begins(struct pipeline *p, struct parsed_chunk *piece) {
        __u32 class = protocol_status_class(p->protocol, &p->out);

        if (piece->begun >= p->pending && protocol_is_framed(p->protocol) && p->in.state != 0 &&
            !(p->in.flags & PARSER_PENDING)) {
                pipeline_push(p, 1, p->begun_at, p->begun_at, 0);
                p->in.flags |= PARSER_PENDING;
        } else if (piece->begun >= p->pending && p->missed)
                pipeline_push_unseen(p, 1);
        pipeline_response_bare(p, piece->begun);
        piece->begun++;
        if (piece->begun > p->pending || pipeline_is_excluded(p, piece->begun - 1))
                return;
        piece->status4xx += class == 4;
        piece->failed += class == 5;
}

/* Set in ids together with the ID of a DNS request that has no response yet. */
#define PIPELINE_ID_OPEN (1U << 16)

EXCHANGE_INLINE __u32 pipeline_id(const struct parser *p) {
        return PIPELINE_ID_OPEN | dns_id(p->word);
}

/* A DNS response begins, after begun others in the chunk: moves the request with its ID to the front.
 * Requests that joined a batch have no ID, and are completed in order. Returns 0 if it is not the response
 * to a request: zones are transferred in several messages with the same ID. */
PARSER_FUNCTION __u32 pipeline_match(struct pipeline *p, __u32 begun) {
        __u32 id, last, at = PIPELINE_BATCHES;
        struct pipeline_batch g;

        if (!p)
                return 0;
        id = pipeline_id(&p->out);
        last = p->last_id;
        p->last_id = id;
        /* Branchless, since the verifier would explore everything after a branch twice */
        for (__u32 i = 0; i < PIPELINE_BATCHES; i++) {
                __u64 is = histogram_if_zero(p->ids[(p->head + i) & (PIPELINE_BATCHES - 1)] ^ id) &
                        histogram_if_less(i, p->n_groups) & histogram_if_less(i, at);

                at = histogram_choose(is, i, at);
        }
        if (at >= PIPELINE_BATCHES) {
                if (id == last || (begun >= p->pending && !p->missed)) {
                        p->out.flags |= p->out.state != DNS_START ? PARSER_UNSOLICITED : 0;
                        return 0;
                }
                for (__u32 i = 0; i < PIPELINE_BATCHES; i++) {
                        __u32 k = (p->head + i) & (PIPELINE_BATCHES - 1), n = p->groups[k].n;
                        __u64 here = histogram_if_less(begun, n);

                        p->ids[k] &= ~here;
                        begun = (begun - n) | here; /* all ones after the batch was found */
                }
                return 1;
        }

        g = p->groups[(p->head + at) & (PIPELINE_BATCHES - 1)];
        while (at > 0 && can_loop) {
                __u32 to = (p->head + at) & (PIPELINE_BATCHES - 1),
                        from = (p->head + at - 1) & (PIPELINE_BATCHES - 1);

                p->groups[to] = p->groups[from];
                p->ids[to] = p->ids[from];
                at--;
        }
        p->groups[p->head & (PIPELINE_BATCHES - 1)] = g;
        p->ids[p->head & (PIPELINE_BATCHES - 1)] = 0;
        return 1;
}

/* Parses bytes of responses from at to end of the window of the connection, as many as possible. Returns
 * their number. */
PARSER_FUNCTION __u32 pipeline_response_bytes(struct pipeline *p, __u32 at, __u32 end,
                                              struct parsed_chunk *piece) {
        __u32 how, n, meaning, r;
        int before, after;

        if (!p || !piece)
                return 0;
        before = p->out.state != 0 && !(p->out.flags & PARSER_UNSOLICITED);
        how = p->protocol;

        if (protocol_is_framed(p->protocol)) {
                /* One at a time, as parsing depends on the request */
                how |= PROTOCOL_SINGLE;
                if (pipeline_is_bare(p, piece->begun))
                        how |= PROTOCOL_BARE;
        }
        if (p->flags & PIPELINE_TUNNEL) {
                how |= PROTOCOL_SINGLE;
                if (p->pending == piece->begun + 1)
                        how |= PROTOCOL_TUNNEL;
        }

        r = protocol_take_responses(how, &p->out, &p->window, at, end);
        n = PARSED_MESSAGES(r);
        meaning = PARSED_MEANING(r);
        if ((meaning & (PARSED_END | PARSED_NOTHING)) == PARSED_END)
                n++;
        if (meaning & PARSED_LOST)
                piece->lost = 1;
        if (meaning & PARSED_TUNNEL)
                piece->tunnel = meaning & PARSED_BARE ? 2 : 1;

        /* Responses that began: the completed ones, without one that began before, and the incomplete one */
        after = p->out.state != 0 && !(p->out.flags & PARSER_UNSOLICITED);
        n += after - before;
        if (!protocol_is_framed(p->protocol)) {
                piece->begun += n;
                if (p->missed == PIPELINE_MISSED && piece->begun > p->pending)
                        pipeline_push_unseen(p, piece->begun - p->pending);
        } else if (n == 1 && p->protocol == PROTOCOL_DNS && !pipeline_match(p, piece->begun))
                n = after = 0;
        else if (n == 1)
                pipeline_begins(p, piece);
        if (meaning & PARSED_STREAM &&
            !(piece->begun > 0 ? pipeline_is_excluded(p, piece->begun - 1) : p->flags & PIPELINE_EXCLUDED))
                piece->streams++;
        if (meaning & PARSED_ERROR &&
            (piece->begun > 0 ? piece->begun <= p->pending && !pipeline_is_excluded(p, piece->begun - 1) :
             (p->flags & (PIPELINE_RESPONDING | PIPELINE_EXCLUDED)) == PIPELINE_RESPONDING))
                piece->failed++;

        /* Without a request it is not a response */
        if (!after || pipeline_is_streaming(p))
                p->flags &= ~PIPELINE_RESPONDING;
        else if (n > 0 && piece->begun <= p->pending)
                p->flags |= PIPELINE_RESPONDING;
        else if (n > 0)
                p->flags &= ~PIPELINE_RESPONDING;
        return PARSED_TAKEN(r);
}

/* Ends the response if its next byte is the last one of a body, whatever its value. Returns 1 if that byte
 * is taken. */
EXCHANGE_INLINE int pipeline_end_body(struct pipeline *p) {
        if (!protocol_is_rest(p->protocol, &p->out, 1))
                return 0;
        http_end(&p->out, 0);
        p->flags &= ~PIPELINE_RESPONDING;
        return 1;
}

EXCHANGE_INLINE __u64 pipeline_when(const struct arrival_times *times, __u32 position, int last) {
        return times->came_at ?: exchange_when(&times->marks, position, last);
}

/* Parses bytes of requests. window: at in the upper half, end in the lower one. position: of the first byte
 * in the stream. If piece->named is set, the caller decides by protocol_name() whether the request is
 * excluded, sets PIPELINE_EXCLUDING if it is, and clears piece->named. */
EXCHANGE_INLINE __u32 pipeline_take_requests(struct pipeline *p, __u64 window,
                                             const struct arrival_times *times, __u32 position,
                                             struct parsed_chunk *piece) {
        /* Masks instead of branches: the verifier would explore everything after a branch twice */
        __u64 last_at, dns = histogram_if_zero(p->protocol ^ PROTOCOL_DNS);
        __u32 single = (histogram_if_zero(times->came_at) | dns) & PROTOCOL_SINGLE;
        __u32 at = window >> 32, end = window, r, n, meaning, apart = dns & PARSED_PENDING, k;
        int halfway, pending, too_many;

        halfway = p->in.state != 0;
        pending = halfway && p->in.flags & PARSER_PENDING;
        /* Concerns the first of the requests parsed here */
        too_many = p->flags & PIPELINE_EXCLUDING && p->pending >= PIPELINE_EXCLUDED_MAX;

        if (!halfway)
                p->begun_at = pipeline_when(times, position + 1, 0);
        r = protocol_take_requests(p->protocol | times->how | single, &p->in, &p->window, at, end);
        n = PARSED_MESSAGES(r);
        dns &= ~histogram_if_zero(n);
        meaning = PARSED_MEANING(r);
        last_at = pipeline_when(times, position + PARSED_TAKEN(r), 1);

        if (too_many && (n > 0 || meaning & (PARSED_END | PARSED_PENDING))) {
                piece->lost = 1;
                return PARSED_TAKEN(r);
        }
        if (n > 0 && halfway) {
                if (pending)
                        pipeline_push_more(p, last_at);
                else
                        pipeline_push(p, 1, p->begun_at, last_at, apart);
                p->begun_at = times->came_at;
                n--;
        }
        if (n > 0)
                pipeline_push(p, n, p->begun_at, last_at, apart);
        k = (p->head + p->n_groups - 1) & (PIPELINE_BATCHES - 1);
        p->ids[k] = histogram_choose(dns, pipeline_id(&p->in), p->ids[k]);
        if ((meaning & (PARSED_END | PARSED_NOTHING)) == PARSED_END || meaning & PARSED_PENDING)
                pipeline_push(p, 1, p->begun_at, last_at, meaning);
        else if (meaning & PARSED_END)
                p->flags &= ~PIPELINE_EXCLUDING; /* had a name, but is not a request */
        if (meaning & PARSED_NAMED)
                piece->named = 1;
        if (meaning & PARSED_LOST || (meaning & PARSED_BARE && p->pending > PIPELINE_BODYLESS_MAX))
                piece->lost = 1;
        return PARSED_TAKEN(r);
}

/* The same, verified once. */
PARSER_FUNCTION __u32 pipeline_request_bytes(struct pipeline *p, __u64 window,
                                             const struct arrival_times *times, __u32 position,
                                             struct parsed_chunk *piece) {
        return p && times && piece ? pipeline_take_requests(p, window, times, position, piece) : 0;
}

/* Called after a chunk that ends at this position. */
EXCHANGE_INLINE void pipeline_request_chunk(struct pipeline *p, const struct arrival_times *times,
                                            __u32 position) {
        if (p->in.state != 0 && p->in.flags & PARSER_PENDING)
                pipeline_push_more(p, pipeline_when(times, position, 1));
}

/* Whether the first response on the connection is not of the protocol, and the request only looked like it.
 * first: the connection is known from its beginning, and no response was sent before. */
EXCHANGE_INLINE int pipeline_has_lost_sync(const struct pipeline *p, const struct parsed_chunk *piece,
                                           int first) {
        return piece->lost && piece->begun == 0 && !(p->flags & PIPELINE_RESPONDED) &&
               (first || protocol_is_guessed(p->protocol));
}

/* Drops all outstanding requests, when nothing is unsent and the parser has failed on their responses. */
EXCHANGE_INLINE void pipeline_leave_out(struct pipeline *p) {
        p->pending = p->n_groups = 0;
        pipeline_clear_bare(p);
        p->excluded[0] = p->excluded[1] = 0;
        p->excluding = 0;
}

/* Called after a chunk. Returns the number of requests whose response has begun. */
EXCHANGE_INLINE __u32 pipeline_responses(struct pipeline *p, const struct parsed_chunk *piece,
                                         int complete) {
        const struct parser fresh = {};

        if (piece->lost) {
                /* The parser is in sync again when nothing is unsent (pipeline_leave_out()) */
                p->out = fresh;
                p->flags = (p->flags & ~PIPELINE_RESPONDING) | PIPELINE_LOST_SYNC;
                return piece->begun;
        }

        if (p->missed && complete && piece->begun > 0)
                p->missed = PIPELINE_MISSED_RESPONDED;
        return piece->begun;
}
