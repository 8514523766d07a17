/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* What is known of a connection whose protocol is parsed: where its questions and answers end, and which questions wait
 * for their answer. Everything here happens under the socket's own lock, read and departure, in the application's order;
 * arrivals, which do not, stay in struct exchange.
 *
 * Answers are taken to come in the order of the questions. Pure: compiled for BPF and for the unit tests. */

#include "exchange.h"
#include "protocol.h"

/* Questions that came in the same segment and were read together have all their times in common, and are kept as one
 * group. A client that pipelines has few groups outstanding, whatever their size; what does not fit joins the newest. */
#define TALK_GROUPS 8

struct talk_group {
        __u64 first_at;         /* as in struct exchange; 0: not seen */
        __u64 last_at;
        __u64 read_at;          /* 0: copied to the application, which has not returned from reading yet */
        __u32 n;
        __u32 waits;            /* PARSED_WAITS */
};

enum talk_flag {
        TALK_ANSWERING  = 1 << 0,       /* an answer has begun to leave and has not ended */
        TALK_ANSWERED   = 1 << 1,       /* one has left: what struct exchange has of the last answer is this one's */
        TALK_PUSHES     = 1 << 2,       /* the server speaks unasked */
        TALK_UNDERSTOOD = 1 << 3,       /* at least one question was: it is this protocol */
};

struct talk {
        struct parser in;
        struct parser out;
        __u32 in_pos;           /* what was parsed of the questions: a sequence number */
        __u32 asked;            /* questions that were read and whose answers have not begun to leave */
        __u32 extra;            /* that are in flight besides the one that struct exchange has */
        __u8 protocol;          /* enum protocol */
        __u8 flags;             /* enum talk_flag */
        __u8 head;              /* the oldest group */
        __u8 n_groups;
        __u64 begun_at;         /* when the first byte of the question came that is half read */
        struct talk_group groups[TALK_GROUPS];
        struct window window;
};

/* n questions were read. */
EXCHANGE_INLINE void talk_ask(struct talk *t, __u32 n, __u64 first_at, __u64 last_at, __u32 parsed) {
        struct talk_group *g = &t->groups[(t->head + t->n_groups - 1) & (TALK_GROUPS - 1)];
        __u32 waits = parsed & PARSED_WAITS;

        t->asked += n;
        t->flags |= TALK_UNDERSTOOD;
        if (parsed & PARSED_PUSHES)
                t->flags |= TALK_PUSHES;

        if (t->n_groups > 0 && (t->n_groups == TALK_GROUPS || (g->first_at == first_at && g->last_at == last_at &&
                                                               g->read_at == 0 && g->waits == waits))) {
                g->n += n;
                return;
        }

        g = &t->groups[(t->head + t->n_groups) & (TALK_GROUPS - 1)];
        g->first_at = first_at;
        g->last_at = last_at;
        g->read_at = 0;
        g->n = n;
        g->waits = waits;
        t->n_groups++;
}

/* The application returns from reading. */
EXCHANGE_INLINE void talk_read(struct talk *t, __u64 now) {
        for (int i = 0; i < TALK_GROUPS; i++) {
                struct talk_group *g = &t->groups[(t->head + i) & (TALK_GROUPS - 1)];

                if (i < t->n_groups && g->read_at == 0)
                        g->read_at = now;
        }
}

/* Takes the oldest questions of one group, at most n; 0: there are none. */
EXCHANGE_INLINE __u32 talk_answer(struct talk *t, __u32 n, struct talk_group *ret) {
        struct talk_group *g = &t->groups[t->head & (TALK_GROUPS - 1)];

        if (t->n_groups == 0 || n == 0)
                return 0;

        *ret = *g;
        if (n < g->n) {
                ret->n = n;
                g->n -= n;
        } else {
                n = g->n;
                t->head++;
                t->n_groups--;
        }
        t->asked -= n < t->asked ? n : t->asked;
        return n;
}

/* When the oldest question that waits for its answer began to come. */
EXCHANGE_INLINE __u64 talk_oldest(const struct talk *t) {
        return t->n_groups > 0 ? t->groups[t->head & (TALK_GROUPS - 1)].first_at : 0;
}

/* How many more questions are in flight than before, besides the one that struct exchange counts. */
EXCHANGE_INLINE __s32 talk_extra(struct talk *t) {
        __u32 n = t->asked + !!(t->flags & TALK_ANSWERING), before = t->extra;

        t->extra = n > 1 ? n - 1 : 0;
        return (__s32) (t->extra - before);
}

/* Brings the gauge of in-flight questions up to date. complete: nothing is left to send. */
EXCHANGE_INLINE void talk_settle(struct talk *t, struct exchange *x, __u64 now, int complete, struct exchange_effect *effect) {
        __u64 at = 0;

        if (t->asked > 0)
                at = talk_oldest(t) ?: now;
        else if (t->flags & TALK_ANSWERING || (!complete && !(t->flags & TALK_PUSHES)))
                at = x->first_at ?: now;
        else if (t->in.state != 0)
                at = t->begun_at ?: now;
        else if (x->n_marks > 0)
                at = x->mark_at[0];

        if (at != 0)
                exchange_open(x, at, effect);
        else
                exchange_shut(x, effect);
        effect->in_flight += talk_extra(t);
}

/* The parser has lost its place among the questions: from here on the connection is like any other, and what was half
 * known is said to be unsure. Or it never was this protocol, and nothing is lost. */
EXCHANGE_INLINE void talk_give_up(struct talk *t, struct exchange *x, struct exchange_effect *effect) {
        const struct talk_group *g = &t->groups[t->head & (TALK_GROUPS - 1)];

        if (t->n_groups > 0) {
                x->state = EXCHANGE_ASKED;
                x->first_at = g->first_at;
                x->last_at = g->last_at;
                x->read_at = g->read_at;
        } else if (t->flags & TALK_ANSWERED)
                x->state = EXCHANGE_ANSWERING;

        effect->overlap = !!(t->flags & TALK_UNDERSTOOD);
        t->protocol = PROTOCOL_PLAIN;
        t->asked = 0;
        t->n_groups = 0;
        t->flags = 0;
        x->flags &= ~EXCHANGE_PARSED;
        effect->in_flight += talk_extra(t);
}

/* Is what leaves now, from the beginning of an answer on, a whole one, so that it need not be parsed? A single question
 * was asked, nothing else has come, and all that the application has written leaves: then it is as on any connection
 * where questions wait for answers. More than what servers write at once may be a part. */
#define TALK_WHOLE_MAX 65536U

EXCHANGE_INLINE int talk_is_whole(const struct talk *t, const struct exchange *x, __u32 bytes, int complete) {
        return t->asked == 1 && !(t->flags & (TALK_ANSWERING | TALK_PUSHES)) && t->in.state == 0 && x->n_marks == 0 &&
                complete && bytes < TALK_WHOLE_MAX;
}

/* Do these bytes belong to the answer before: nothing else was asked? */
EXCHANGE_INLINE int talk_is_more(const struct talk *t) {
        return t->asked == 0 && !(t->flags & (TALK_ANSWERING | TALK_PUSHES)) && t->out.state == 0;
}

/* What was parsed of a piece of the stream. */
struct talk_piece {
        __u32 begun;            /* answers that began in it */
        __u32 lost;             /* 1: the parser does not understand it */
};

/* Both take bytes at … end of the connection's window, as many as they like, and return how many. */
EXCHANGE_INLINE __u32 talk_answer_bytes(struct talk *t, __u32 at, __u32 end, struct talk_piece *piece) {
        int before = t->out.state != 0 && !(t->out.flags & PARSER_UNASKED), after;
        __u32 r;

        r = protocol_take(t->protocol | PROTOCOL_ANSWERS, &t->out, &t->window, at, end);
        if (PARSED_MEANING(r) & PARSED_LOST)
                piece->lost = 1;

        /* Each that ended, without the one that had begun before, and the one that has not ended */
        after = t->out.state != 0 && !(t->out.flags & PARSER_UNASKED) && !piece->lost;
        piece->begun += PARSED_MESSAGES(r) - before + after;
        t->flags = after ? t->flags | TALK_ANSWERING : t->flags & ~TALK_ANSWERING;
        return PARSED_TAKEN(r);
}

/* When the bytes of a piece of the questions came. */
struct talk_times {
        __u64 came_at;          /* all of them, if that was at once … */
        struct exchange marks;  /* … or when what did (a copy: arrivals go on meanwhile) */
};

EXCHANGE_INLINE __u64 talk_when(const struct talk_times *times, __u32 position, int last) {
        return times->came_at ?: exchange_when(&times->marks, position, last);
}

/* position: of the first of the bytes in the stream. */
EXCHANGE_INLINE __u32 talk_question_bytes(struct talk *t, __u32 at, __u32 end, const struct talk_times *times, __u32 position,
                                          struct talk_piece *piece) {
        int halfway = t->in.state != 0;
        __u32 r, n, meaning;
        __u64 last_at;

        if (!halfway)
                t->begun_at = talk_when(times, position + 1, 0);
        r = protocol_take(t->protocol | (times->came_at == 0 ? PROTOCOL_SINGLE : 0), &t->in, &t->window, at, end);
        n = PARSED_MESSAGES(r);
        meaning = PARSED_MEANING(r);
        last_at = talk_when(times, position + PARSED_TAKEN(r), 1);

        if (n > 0 && halfway) {
                talk_ask(t, 1, t->begun_at, last_at, 0);
                t->begun_at = times->came_at;
                n--;
        }
        if (n > 0)
                talk_ask(t, n, t->begun_at, last_at, 0);
        if ((meaning & (PARSED_END | PARSED_NOTHING)) == PARSED_END)
                talk_ask(t, 1, t->begun_at, last_at, meaning);
        if (meaning & PARSED_LOST)
                piece->lost = 1;
        return PARSED_TAKEN(r);
}

/* After the piece: how many questions it begins to answer. */
EXCHANGE_INLINE __u32 talk_answers(struct talk *t, const struct talk_piece *piece, int complete) {
        const struct parser fresh = {};

        if (piece->lost) {
                /* The place is found again where nothing is left to send: all that was read is answered then, as far as
                 * anybody can tell */
                t->out = fresh;
                t->flags &= ~TALK_ANSWERING;
                return complete ? t->asked : piece->begun;
        }

        /* What nobody asked for is no answer, whatever it looks like */
        if (piece->begun > t->asked)
                t->flags &= ~TALK_ANSWERING;
        return piece->begun;
}
