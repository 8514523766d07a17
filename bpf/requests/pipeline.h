/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* What is known of a connection whose protocol is parsed: where its questions and answers end, and which
 * questions wait for their answer. Everything here happens under the socket's own lock, read and departure,
 * in the application's order; arrivals, which do not, stay in struct exchange.
 *
 * Answers are taken to come in the order of the questions. Pure: compiled for BPF and for the unit tests. */

#include "exchange.h"
#include "protocols.h"

/* Questions that came in the same segment and were read together have all their times in common, and are
 * kept as one group. A client that pipelines has few groups outstanding, whatever their size; what does not
 * fit joins the newest. */
#define PIPELINE_BATCHES 8

struct pipeline_batch {
        __u64 first_at;         /* as in struct exchange; 0: not seen */
        __u64 last_at;
        __u64 read_at;          /* 0: copied to the application, which has not returned from reading yet */
        __u32 n;
        __u16 waits;            /* PARSED_WAITS */
        __u16 excluded;         /* so many of them are left out */
};

enum pipeline_flag {
        PIPELINE_RESPONDING  = 1 << 0,       /* an answer has begun to leave and has not ended */
        PIPELINE_RESPONDED   = 1 << 1,       /* one has left: what struct exchange has of the last answer is
                                              * this one's */
        PIPELINE_SERVER_PUSH     = 1 << 2,       /* the server speaks unasked */
        PIPELINE_UNDERSTOOD = 1 << 3,       /* at least one question was: it is this protocol */
        PIPELINE_TUNNEL     = 1 << 4,       /* the newest question asks for one */
        PIPELINE_LOST_SYNC     = 1 << 5,       /* the last answer was not understood: where it ends is not
                                                * known */
        PIPELINE_EXCLUDING   = 1 << 6,       /* the question that is being read is left out */
        PIPELINE_EXCLUDED   = 1 << 7,       /* the last answer that has begun is to one that is left out */
};

/* Bytes of requests were read that the parser has not seen, as the kernel has skipped a run of the program
 * that sees them or they were spliced, or that it does not understand. Until the parser resumes
 * (pipeline_resumes()), requests are known by their responses, in which nothing is missed. */
enum pipeline_missed {
        PIPELINE_FOLLOWED,
        PIPELINE_MISSED,                    /* each response is one to a request, of which perhaps nothing
                                             * was seen */
        PIPELINE_MISSED_ANSWERED,           /* as many responses have been sent as there were requests, as
                                             * far as is known */
};

/* Requests that wait, of which is known whether their response has a body (HEAD): a ring of bits. A server
 * has read some hundreds of pipelined requests when the first response leaves, if TCP collects these
 * (Nagle). A later HEAD is not understood. */
#define PIPELINE_BODYLESS_MAX 1024U

/* Such that are left out, the same. Of Redis' own tools the one that pipelines most is mostly told to have
 * 128 on their way. */
#define PIPELINE_EXCLUDED_MAX 128U

/* When the bytes of a piece of the questions came. */
struct arrival_times {
        __u64 came_at;          /* all of them, if that was at once … */
        struct exchange_marks marks; /* … or when what did */
        __u32 names;            /* PROTOCOL_NAMES: some questions are left out */
};

struct pipeline {
        struct parser in;
        struct parser out;
        __u32 in_pos;           /* what was parsed of the questions: a sequence number */
        __u32 asked;            /* questions that were read and whose answers have not begun to leave */
        __u32 extra;            /* that are in flight besides the one that struct exchange has */
        __u8 protocol;          /* enum protocol */
        __u8 flags;             /* enum pipeline_flag */
        __u8 head;              /* the oldest group */
        __u8 n_groups;
        __u64 begun_at;         /* when the first byte of the question came that is half read */
        __u64 bare[PIPELINE_BODYLESS_MAX / 64]; /* requests whose response has no body: a ring of bits … */
        __u32 bare_head;        /* … of which this one is the oldest that waits */
        __u32 n_bare;           /* bits that are set */
        __u64 excluded[PIPELINE_EXCLUDED_MAX / 64]; /* of the requests that wait, the oldest in the lowest
                                                     * bit: it is left out */
        __u64 oldest_at;        /* when the oldest of the others began to come … */
        __u32 excluding;        /* … which are not so many of those asked */
        __u16 missed;           /* enum pipeline_missed */
        __u16 not_understood;   /* 1: the client has sent what the parser does not understand */
        struct pipeline_batch groups[PIPELINE_BATCHES];
        struct arrival_times times; /* of a piece: not on the stack of the programs, which is small */
        __u64 work[7];          /* … nor is the place in a piece, or what they book in the other role */
        struct window window;
};

/* The lowest n bits of a word. */
EXCHANGE_INLINE __u64 pipeline_mask(__u32 n) {
        return n < 64 ? (1ULL << n) - 1 : ~0ULL;
}

/* Of word i of a ring, the bits from … to. */
EXCHANGE_INLINE __u64 pipeline_ring_mask(__u32 i, __u32 from, __u32 to) {
        __u32 first = i * 64;

        return pipeline_mask(to > first ? to - first : 0) & ~pipeline_mask(from > first ? from - first : 0);
}

EXCHANGE_INLINE void pipeline_clear_bare(struct pipeline *t) {
        for (int i = 0; i < (int) (PIPELINE_BODYLESS_MAX / 64); i++)
                t->bare[i] = 0;
        t->n_bare = 0;
}

/* The oldest n requests do not wait any more. */
PARSER_FUNCTION int pipeline_forget_bare(struct pipeline *t, __u32 n) {
        __u32 from, to;
        __u64 mask;

        if (!t)
                return 0;
        from = t->bare_head & (PIPELINE_BODYLESS_MAX - 1);
        to = from + n;
        t->bare_head = to;
        if (t->n_bare == 0)
                return 0;
        for (__u32 i = 0; i < PIPELINE_BODYLESS_MAX / 64; i++) {
                mask = n >= PIPELINE_BODYLESS_MAX ? ~0ULL : pipeline_ring_mask(i, from, to) |
                        (to > PIPELINE_BODYLESS_MAX
                         ? pipeline_ring_mask(i, 0, to - PIPELINE_BODYLESS_MAX) : 0);
                t->n_bare -= __builtin_popcountll(t->bare[i] & mask);
                t->bare[i] &= ~mask;
        }
        return 0;
}

/* Has the response to request i of those that wait, from the oldest on, no body? */
EXCHANGE_INLINE int pipeline_is_bare(const struct pipeline *t, __u32 i) {
        __u32 bit = (t->bare_head + i) & (PIPELINE_BODYLESS_MAX - 1);

        return t->n_bare > 0 && i < PIPELINE_BODYLESS_MAX && t->bare[bit / 64] >> (bit & 63) & 1;
}

/* As it is at the beginning. */
EXCHANGE_INLINE void pipeline_begin(struct pipeline *t, __u32 protocol, __u32 in_pos, int answered) {
        const struct parser fresh = {};

        t->in = t->out = fresh;
        t->in_pos = in_pos;
        t->asked = t->extra = 0;
        t->protocol = protocol;
        t->flags = answered && !protocol_is_guessed(protocol) ? PIPELINE_RESPONDED : 0;
        t->head = t->n_groups = 0;
        t->begun_at = t->oldest_at = 0;
        pipeline_clear_bare(t);
        t->excluded[0] = t->excluded[1] = 0;
        t->excluding = 0;
        t->missed = PIPELINE_FOLLOWED;
        t->not_understood = 0;
}

EXCHANGE_INLINE struct pipeline_batch* pipeline_newest(struct pipeline *t) {
        return &t->groups[(t->head + t->n_groups - 1) & (PIPELINE_BATCHES - 1)];
}

/* How many of the oldest n questions are left out. */
EXCHANGE_INLINE __u32 pipeline_count_excluded(const struct pipeline *t, __u32 n) {
        if ((t->excluded[0] | t->excluded[1]) == 0)
                return 0;
        return __builtin_popcountll(t->excluded[0] & pipeline_mask(n)) +
                __builtin_popcountll(t->excluded[1] & pipeline_mask(n > 64 ? n - 64 : 0));
}

EXCHANGE_INLINE int pipeline_is_excluded(const struct pipeline *t, __u32 i) {
        if (i >= PIPELINE_EXCLUDED_MAX)
                return 0;
        return (i < 64 ? t->excluded[0] : t->excluded[1]) >> (i & 63) & 1;
}

/* The questions that wait for an answer and are not left out. */
EXCHANGE_INLINE __u32 pipeline_outstanding(const struct pipeline *t) {
        return t->asked - t->excluding;
}

/* n questions were read; one, if it is left out. */
EXCHANGE_INLINE void pipeline_push(struct pipeline *t, __u32 n, __u64 first_at, __u64 last_at,
                __u32 parsed) {
        struct pipeline_batch *g = pipeline_newest(t);
        __u16 waits = parsed & PARSED_WAITS, excluded = !!(t->flags & PIPELINE_EXCLUDING);

        if (excluded && t->asked < 64)
                t->excluded[0] |= 1ULL << (t->asked & 63);
        else if (excluded && t->asked < PIPELINE_EXCLUDED_MAX)
                t->excluded[1] |= 1ULL << (t->asked & 63);

        if (parsed & PARSED_BARE && t->asked < PIPELINE_BODYLESS_MAX) {
                __u32 bit = (t->bare_head + t->asked) & (PIPELINE_BODYLESS_MAX - 1);

                t->bare[bit / 64] |= 1ULL << (bit & 63);
                t->n_bare++;
        }
        if (!excluded && t->asked == t->excluding)
                t->oldest_at = first_at;
        t->asked += n;
        t->excluding += excluded;
        t->flags = (t->flags & ~(PIPELINE_TUNNEL | PIPELINE_LOST_SYNC | PIPELINE_EXCLUDING)) |
                   PIPELINE_UNDERSTOOD;
        if (parsed & PARSED_PUSHES)
                t->flags |= PIPELINE_SERVER_PUSH;
        if (parsed & PARSED_TUNNEL)
                t->flags |= PIPELINE_TUNNEL;

        /* The times of one whose rest is to come will change */
        if (t->n_groups > 0 &&
            (t->n_groups == PIPELINE_BATCHES || (g->first_at == first_at && g->last_at == last_at &&
                                                               g->read_at == 0 && g->waits == waits &&
                                                               !(parsed & PARSED_ASKED)))) {
                g->n += n;
                g->excluded += excluded;
                return;
        }

        g = &t->groups[(t->head + t->n_groups) & (PIPELINE_BATCHES - 1)];
        g->first_at = first_at;
        g->last_at = last_at;
        g->read_at = 0;
        g->n = n;
        g->waits = waits;
        g->excluded = excluded;
        t->n_groups++;
}

/* More was read of the newest question, which had come so far that it could be answered. It may have
 * been. */
EXCHANGE_INLINE void pipeline_push_more(struct pipeline *t, __u64 last_at) {
        struct pipeline_batch *g = pipeline_newest(t);

        if (t->n_groups == 0)
                return;
        g->last_at = last_at;
        g->read_at = 0;
}

/* Something more is requested. A response to an unseen request, that has not ended by then, was one without
 * a body (HEAD). */
EXCHANGE_INLINE void pipeline_end_unseen(struct pipeline *t) {
        const struct parser fresh = {};

        t->out = fresh;
        t->flags &= ~(PIPELINE_RESPONDING | PIPELINE_LOST_SYNC);
}

/* Where the next request begins is not known. first_at, last_at: when the bytes came that say that something
 * is requested. */
EXCHANGE_INLINE void pipeline_miss(struct pipeline *t, __u64 first_at, __u64 last_at, __u32 unsent) {
        const struct parser fresh = {};

        if (t->in.state == 0)
                t->begun_at = first_at;
        t->flags &= ~PIPELINE_EXCLUDING;
        if (t->missed && t->asked == 0 && unsent == 0)
                pipeline_end_unseen(t);
        /* Something was requested, unless it was the rest of a request that is counted already */
        if (t->in.state == 0 ? t->asked == 0 : !(t->in.flags & PARSER_ASKED))
                pipeline_push(t, 1, t->begun_at, last_at, 0);
        t->in = fresh;
        t->missed = PIPELINE_MISSED;
}

/* The application has read up to this position, and the parser has not seen all of that. first_at, last_at:
 * when these bytes came. */
EXCHANGE_INLINE void pipeline_lose_sync(struct pipeline *t, __u32 position, __u64 first_at, __u64 last_at,
                __u32 unsent) {
        const struct parser fresh = {};
        __u32 n = position - t->in_pos;

        t->in_pos = position;
        /* In the middle of a body whose length is known: nothing is lost */
        if (t->missed == PIPELINE_FOLLOWED && n <= t->in.skip) {
                t->in.skip -= n;
                if (t->in.flags & PARSER_ASKED)
                        pipeline_push_more(t, last_at);
                return;
        }
        /* All that was to come of one: it has ended, and the next byte begins a request */
        if (t->missed == PIPELINE_FOLLOWED && t->in.flags & PARSER_ASKED &&
            protocol_is_rest(t->protocol, &t->in, n)) {
                pipeline_push_more(t, last_at);
                t->in = fresh;
                return;
        }
        pipeline_miss(t, first_at, last_at, unsent);
}

/* The parser does not understand what came then, and was read up to this position. From here on requests are
 * known by their responses, as behind bytes that were not seen: what the server does not understand, either,
 * it mostly answers with an error, and hangs up. */
EXCHANGE_INLINE void pipeline_misunderstand(struct pipeline *t, __u32 position, __u64 came_at,
                                            __u32 unsent) {
        t->in_pos = position;
        t->not_understood = 1;
        pipeline_miss(t, came_at, came_at, unsent);
}

/* A response begins to which no request was seen. */
EXCHANGE_INLINE void pipeline_push_unseen(struct pipeline *t, __u32 n) {
        pipeline_push(t, n, t->begun_at, t->begun_at, 0);
}

/* Does the parser resume with what is read at this position, which begins so? Where all before it was read
 * and answered, and nothing waits to be sent, it is the beginning of a request, unless it does not look like
 * one. */
EXCHANGE_INLINE int pipeline_resumes(struct pipeline *t, __u32 position, __u64 bytes, __u32 length,
                __u32 unsent) {
        const struct parser fresh = {};

        if (position != t->in_pos || t->asked > 0 || unsent > 0 ||
            protocol_detect(bytes, length) != t->protocol)
                return 0;
        pipeline_end_unseen(t);
        t->in = fresh;
        t->missed = PIPELINE_FOLLOWED;
        t->not_understood = 0;
        return 1;
}

/* The application returns from reading. */
EXCHANGE_INLINE void pipeline_read(struct pipeline *t, __u64 now) {
        for (int i = 0; i < PIPELINE_BATCHES; i++) {
                struct pipeline_batch *g = &t->groups[(t->head + i) & (PIPELINE_BATCHES - 1)];

                if (i < t->n_groups && g->read_at == 0)
                        g->read_at = now;
        }
}

/* When the oldest question that waits for its answer, and is not left out, began to come. */
EXCHANGE_INLINE __u64 pipeline_oldest(const struct pipeline *t) {
        if (t->n_groups == 0)
                return 0;
        if (t->excluding == 0)
                return t->groups[t->head & (PIPELINE_BATCHES - 1)].first_at;
        for (int i = 0; i < PIPELINE_BATCHES; i++) {
                const struct pipeline_batch *g = &t->groups[(t->head + i) & (PIPELINE_BATCHES - 1)];

                if (i < t->n_groups && g->n > g->excluded)
                        return g->first_at;
        }
        return 0;
}

/* Takes the oldest questions of one group, at most n; 0: there are none. */
PARSER_FUNCTION __u32 pipeline_complete(struct pipeline *t, __u32 n, struct pipeline_batch *ret) {
        struct pipeline_batch *g;

        if (!t || !ret || t->n_groups == 0 || n == 0)
                return 0;

        g = &t->groups[t->head & (PIPELINE_BATCHES - 1)];
        *ret = *g;
        if (n < g->n) {
                ret->n = n;
                ret->excluded = pipeline_count_excluded(t, n);
                g->n -= n;
                g->excluded -= ret->excluded;
        } else {
                n = g->n;
                t->head++;
                t->n_groups--;
        }
        t->asked -= n < t->asked ? n : t->asked;
        if (t->n_bare > 0)
                pipeline_forget_bare(t, n);
        else
                t->bare_head += n;
        t->excluding -= ret->excluded;
        t->oldest_at = pipeline_oldest(t);
        t->flags &= ~PIPELINE_EXCLUDED;
        if ((t->excluded[0] | t->excluded[1]) != 0) {
                if (pipeline_is_excluded(t, n - 1))
                        t->flags |= PIPELINE_EXCLUDED;
                if (n < 64) {
                        t->excluded[0] = t->excluded[0] >> n | t->excluded[1] << (63 - n) << 1;
                        t->excluded[1] >>= n;
                } else {
                        t->excluded[0] = n < PIPELINE_EXCLUDED_MAX ? t->excluded[1] >> (n & 63) : 0;
                        t->excluded[1] = 0;
                }
        }
        return n;
}

/* How many more questions are in flight than before, besides the one that struct exchange counts. */
EXCHANGE_INLINE __s32 pipeline_extra(struct pipeline *t) {
        __u32 n = pipeline_outstanding(t) +
                ((t->flags & (PIPELINE_RESPONDING | PIPELINE_EXCLUDED)) == PIPELINE_RESPONDING),
                before = t->extra;

        t->extra = n > 1 ? n - 1 : 0;
        return (__s32) (t->extra - before);
}

/* Does what leaves belong to an answer that never is complete? */
EXCHANGE_INLINE int pipeline_is_streaming(const struct pipeline *t) {
        return t->out.state != 0 && t->out.flags & PARSER_STREAM;
}

/* Is the rest still to come of a question that has been answered? */
EXCHANGE_INLINE int pipeline_is_late(const struct pipeline *t) {
        return t->asked == 0 && t->in.state != 0 && t->in.flags & PARSER_ASKED;
}

/* Brings the gauge of in-flight questions up to date. complete: nothing is left to send. */
EXCHANGE_INLINE void pipeline_commit(struct pipeline *t, struct exchange *x, __u64 now, int complete,
                                     struct exchange_effect *effect) {
        __u64 at = 0;

        if (pipeline_is_late(t))
                x->flags |= EXCHANGE_LATE;
        else
                x->flags &= ~EXCHANGE_LATE;

        if (pipeline_outstanding(t) > 0)
                at = t->oldest_at ?: now;
        else if (!(t->flags & PIPELINE_EXCLUDED) &&
                 (t->flags & PIPELINE_RESPONDING ||
                  (!complete && !(t->flags & PIPELINE_SERVER_PUSH) && !pipeline_is_streaming(t))))
                at = x->first_at ?: now;
        else if (x->flags & EXCHANGE_LATE)
                at = 0;
        else if (t->in.state != 0 && !(t->flags & PIPELINE_EXCLUDING) && !(t->in.flags & PARSER_ASKED))
                at = t->begun_at ?: now;
        else if (x->n_marks > 0)
                at = x->mark_at[0];

        if (at != 0)
                exchange_open(x, at, effect);
        else
                exchange_shut(x, effect);
        effect->in_flight += pipeline_extra(t);
}

/* Nothing waits for an answer any more. */
EXCHANGE_INLINE void pipeline_reset(struct pipeline *t) {
        t->asked = t->n_groups = t->flags = 0;
        pipeline_clear_bare(t);
        t->excluded[0] = t->excluded[1] = 0;
        t->excluding = 0;
}

/* The parser has lost its place among the questions: from here on the connection is like any other, and what
 * was half known is said to be unsure. Or it never was this protocol, and nothing is lost. */
EXCHANGE_INLINE void pipeline_abandon(struct pipeline *t, struct exchange *x,
                struct exchange_effect *effect) {
        const struct pipeline_batch *g = &t->groups[t->head & (PIPELINE_BATCHES - 1)];

        if (t->n_groups > 0) {
                x->state = EXCHANGE_ASKED;
                x->first_at = g->first_at;
                x->last_at = g->last_at;
                x->read_at = g->read_at;
        } else if (t->in.state != 0 && !(t->in.flags & PARSER_ASKED) && t->begun_at != 0) {
                /* What was read of it so far is the beginning of a question still */
                x->state = EXCHANGE_ASKED;
                x->first_at = x->last_at = t->begun_at;
                x->read_at = 0;
        } else if (t->flags & PIPELINE_RESPONDED)
                x->state = EXCHANGE_ANSWERING;

        effect->overlap = !!(t->flags & PIPELINE_UNDERSTOOD);
        if (t->protocol == PROTOCOL_HTTP1)
                x->flags |= EXCHANGE_HTTP1;
        t->protocol = PROTOCOL_PLAIN;
        pipeline_reset(t);
        x->flags &= ~(EXCHANGE_PARSED | EXCHANGE_LATE);
        effect->in_flight += pipeline_extra(t);
}

/* The answer has made a stream of the connection in which nothing is asked. */
EXCHANGE_INLINE void pipeline_end(struct pipeline *t, struct exchange *x, struct exchange_effect *effect) {
        x->state = EXCHANGE_IDLE;
        x->flags = (x->flags & ~(EXCHANGE_PARSED | EXCHANGE_LATE)) | EXCHANGE_DONE;
        x->n_marks = 0;
        exchange_shut(x, effect);
        pipeline_reset(t);
        effect->in_flight += pipeline_extra(t);
}

/* The unit hangs up in order. unsent: bytes that have not left. */
EXCHANGE_INLINE void pipeline_half_close(struct pipeline *t, struct exchange *x, __u64 now, __u32 unsent,
                                         struct exchange_effect *effect) {
        if (!protocol_ends_with_stream(t->protocol, &t->out))
                return;

        t->out.state = 0;
        t->out.skip = 0;
        t->flags = (t->flags & ~PIPELINE_RESPONDING) | PIPELINE_LOST_SYNC;
        pipeline_commit(t, x, now, unsent == 0, effect);
}

/* Is what leaves now, from the beginning of an answer on, a whole one, so that it need not be parsed? A
 * single question was asked, nothing else has come, and all that the application has written leaves: then it
 * is as on any connection where questions wait for answers. More than what servers write at once may be a
 * part. */
#define PIPELINE_WHOLE_MAX 65536U

EXCHANGE_INLINE int pipeline_is_whole(const struct pipeline *t, const struct exchange *x, __u32 bytes,
                                      int complete) {
        return !protocol_is_framed(t->protocol) && t->asked == 1 && !t->missed &&
               !(t->flags & (PIPELINE_RESPONDING | PIPELINE_SERVER_PUSH)) &&
                t->in.state == 0 && x->n_marks == 0 && complete && bytes < PIPELINE_WHOLE_MAX;
}

/* Do these bytes belong to the answer before: nothing else was asked, and nobody knows where it ends? */
EXCHANGE_INLINE int pipeline_is_more(const struct pipeline *t) {
        return t->asked == 0 && t->missed != PIPELINE_MISSED &&
               !(t->flags & (PIPELINE_RESPONDING | PIPELINE_SERVER_PUSH)) && t->out.state == 0 &&
                (t->flags & PIPELINE_LOST_SYNC || !protocol_is_framed(t->protocol));
}

/* RESP3: what a server tells who wants to know which keys have changed, when it likes. It is no answer, and
 * no part of one. bytes: how what leaves begins, the first one lowest: ">2", and the end of the line. */
EXCHANGE_INLINE int pipeline_is_push(__u64 bytes, __u32 protocol) {
        return protocol == PROTOCOL_REDIS && (bytes & 0xffff00ff) == 0x0a0d003e;
}

/* What was parsed of a piece of the stream. */
struct parsed_chunk {
        __u32 begun;            /* answers that began in it */
        __u8 lost;              /* 1: the parser does not understand it */
        __u8 tunnel;            /* 1: behind the last answer nothing is asked any more; 2: … but in HTTP/2 */
        __u16 named;            /* 1: a question has a name, to be looked at before more is parsed */
        __u32 streams;          /* answers that have turned out never to be complete */
        __u32 status4xx;        /* of the answers that began */
        __u32 status5xx;
};

/* An answer begins. Before all was asked that it may answer: then that is answered early (a head that never
 * ended, a line that is too long). */
EXCHANGE_INLINE void pipeline_begins(struct pipeline *t, struct parsed_chunk *piece) {
        __u32 class = protocol_status_class(t->protocol, &t->out);

        if (piece->begun >= t->asked && protocol_is_framed(t->protocol) && t->in.state != 0 &&
            !(t->in.flags & PARSER_ASKED)) {
                pipeline_push(t, 1, t->begun_at, t->begun_at, 0);
                t->in.flags |= PARSER_ASKED;
        } else if (piece->begun >= t->asked && t->missed)
                pipeline_push_unseen(t, 1);
        piece->begun++;
        if (piece->begun > t->asked || pipeline_is_excluded(t, piece->begun - 1))
                return;
        piece->status4xx += class == 4;
        piece->status5xx += class == 5;
}

/* Both take bytes at … end of the connection's window, as many as they like, and return how many. */
PARSER_FUNCTION __u32 pipeline_response_bytes(struct pipeline *t, __u32 at, __u32 end,
                struct parsed_chunk *piece) {
        __u32 how, n, meaning, r;
        int before, after;

        if (!t || !piece)
                return 0;
        before = t->out.state != 0 && !(t->out.flags & PARSER_UNASKED);
        how = t->protocol;

        if (protocol_is_framed(t->protocol)) {
                /* One by one: each is of a kind, and to a question of a kind */
                how |= PROTOCOL_SINGLE;
                if (pipeline_is_bare(t, piece->begun))
                        how |= PROTOCOL_BARE;
        }
        if (t->flags & PIPELINE_TUNNEL) {
                how |= PROTOCOL_SINGLE;
                if (t->asked == piece->begun + 1)
                        how |= PROTOCOL_TUNNEL;
        }

        r = protocol_take_answers(how, &t->out, &t->window, at, end);
        n = PARSED_MESSAGES(r);
        meaning = PARSED_MEANING(r);
        if ((meaning & (PARSED_END | PARSED_NOTHING)) == PARSED_END)
                n++;
        if (meaning & PARSED_LOST)
                piece->lost = 1;
        if (meaning & PARSED_TUNNEL)
                piece->tunnel = meaning & PARSED_BARE ? 2 : 1;

        /* Each that ended, without the one that had begun before, and the one that has not ended */
        after = t->out.state != 0 && !(t->out.flags & PARSER_UNASKED);
        n += after - before;
        if (!protocol_is_framed(t->protocol)) {
                piece->begun += n;
                if (t->missed == PIPELINE_MISSED && piece->begun > t->asked)
                        pipeline_push_unseen(t, piece->begun - t->asked);
        } else if (n == 1)
                pipeline_begins(t, piece);
        if (meaning & PARSED_STREAM &&
            !(piece->begun > 0 ? pipeline_is_excluded(t, piece->begun - 1) : t->flags & PIPELINE_EXCLUDED))
                piece->streams++;

        /* What nobody asked for is no answer, whatever it looks like */
        if (!after || pipeline_is_streaming(t))
                t->flags &= ~PIPELINE_RESPONDING;
        else if (n > 0 && piece->begun <= t->asked)
                t->flags |= PIPELINE_RESPONDING;
        else if (n > 0)
                t->flags &= ~PIPELINE_RESPONDING;
        return PARSED_TAKEN(r);
}

EXCHANGE_INLINE __u64 pipeline_when(const struct arrival_times *times, __u32 position, int last) {
        return times->came_at ?: exchange_when(&times->marks, position, last);
}

/* window: at in the upper half, end in the lower one. position: of the first of the bytes in the stream. If
 * piece->named comes back set, the caller decides by protocol_name() whether the question is left out, sets
 * PIPELINE_EXCLUDING then, and clears it. */
EXCHANGE_INLINE __u32 pipeline_take_requests(struct pipeline *t, __u64 window,
                                             const struct arrival_times *times, __u32 position,
                                          struct parsed_chunk *piece) {
        __u32 at = window >> 32, end = window, r, n, meaning;
        int halfway, asked, too_many;
        __u64 last_at;

        halfway = t->in.state != 0;
        asked = halfway && t->in.flags & PARSER_ASKED;
        /* It is the first of those that are asked here */
        too_many = t->flags & PIPELINE_EXCLUDING && t->asked >= PIPELINE_EXCLUDED_MAX;

        if (!halfway)
                t->begun_at = pipeline_when(times, position + 1, 0);
        r = protocol_take_questions(t->protocol | times->names | (times->came_at == 0 ? PROTOCOL_SINGLE : 0),
                                    &t->in, &t->window, at, end);
        n = PARSED_MESSAGES(r);
        meaning = PARSED_MEANING(r);
        last_at = pipeline_when(times, position + PARSED_TAKEN(r), 1);

        if (too_many && (n > 0 || meaning & (PARSED_END | PARSED_ASKED))) {
                piece->lost = 1;
                return PARSED_TAKEN(r);
        }
        if (n > 0 && halfway) {
                if (asked)
                        pipeline_push_more(t, last_at);
                else
                        pipeline_push(t, 1, t->begun_at, last_at, 0);
                t->begun_at = times->came_at;
                n--;
        }
        if (n > 0)
                pipeline_push(t, n, t->begun_at, last_at, 0);
        if ((meaning & (PARSED_END | PARSED_NOTHING)) == PARSED_END || meaning & PARSED_ASKED)
                pipeline_push(t, 1, t->begun_at, last_at, meaning);
        else if (meaning & PARSED_END)
                t->flags &= ~PIPELINE_EXCLUDING; /* it had a name, and asks for nothing */
        if (meaning & PARSED_NAMED)
                piece->named = 1;
        if (meaning & PARSED_LOST || (meaning & PARSED_BARE && t->asked > PIPELINE_BODYLESS_MAX))
                piece->lost = 1;
        return PARSED_TAKEN(r);
}

/* The same, walked by the verifier once. */
PARSER_FUNCTION __u32 pipeline_request_bytes(struct pipeline *t, __u64 window,
                                             const struct arrival_times *times, __u32 position,
                                          struct parsed_chunk *piece) {
        return t && times && piece ? pipeline_take_requests(t, window, times, position, piece) : 0;
}

/* After a piece that ends at this position. */
EXCHANGE_INLINE void pipeline_request_chunk(struct pipeline *t, const struct arrival_times *times,
                __u32 position) {
        if (t->in.state != 0 && t->in.flags & PARSER_ASKED)
                pipeline_push_more(t, pipeline_when(times, position, 1));
}

/* Is the first answer on the connection none of the protocol? Then neither was the question, which only
 * looked like it. */
EXCHANGE_INLINE int pipeline_has_lost_sync(const struct pipeline *t, const struct parsed_chunk *piece) {
        return piece->lost && piece->begun == 0 && !(t->flags & PIPELINE_RESPONDED) &&
               protocol_is_guessed(t->protocol);
}

/* After the piece: how many questions it begins to answer. */
EXCHANGE_INLINE __u32 pipeline_responses(struct pipeline *t, const struct parsed_chunk *piece,
                int complete) {
        const struct parser fresh = {};

        if (piece->lost) {
                /* The place is found again where nothing is left to send: all that was read is answered
                 * then, as far as anybody can tell */
                t->out = fresh;
                t->flags = (t->flags & ~PIPELINE_RESPONDING) | PIPELINE_LOST_SYNC;
                return complete ? t->asked : piece->begun;
        }

        if (t->missed && complete && piece->begun > 0)
                t->missed = PIPELINE_MISSED_ANSWERED;
        return piece->begun;
}
