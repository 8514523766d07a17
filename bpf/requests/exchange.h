/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* The state machine of one TCP connection in the server role: which data is a question, when it came, when
 * it was read, when its answer left.
 *
 * It advances in the application's own order, read and then departure: both happen under the socket's lock.
 * Arrivals happen without that lock, early (data behind a question that is still being answered) and more
 * than once (retransmissions). They therefore only leave marks on the stream, "up to this byte at this
 * time", which the read of those bytes picks up. All positions are TCP sequence numbers, compared modulo
 * 2^32.
 *
 * Pure: no map, no helper, time is an argument. Compiled for BPF, where the caller holds the connection's
 * lock, and for the unit tests. */

#include "unit-map.h"

#define EXCHANGE_INLINE static inline __attribute__((always_inline))

/* Arrivals apart that are remembered while unread. One question in flight needs two (its first and its last
 * segment); what does not fit is merged into the last mark, whose beginning and end are kept. */
#define EXCHANGE_MARKS 4

/* How far beyond the advertised window a segment may end to be taken for data of this connection: a window
 * that was shrunk meanwhile. What lies beyond is forged or broken, TCP drops it too. */
#define EXCHANGE_WINDOW_SLACK (1 << 16)

/* A silence after which what is said without a question belongs to no answer: events and notifications, that
 * a server sends as they happen, for hours on one connection. Parts of an answer that are that far apart are
 * few. */
#define EXCHANGE_SILENCE_NSEC 1000000000ULL

/* Who has asked for that long, got no answer, and goes on after a silence, does not wait for one: logs, what
 * a replica has received. Shorter ones are questions that come slowly. */
#define EXCHANGE_PATIENCE_NSEC 10000000000ULL

/* Also without silences in between: a client that has gone on like that in so many parts, each after all
 * before it had been read, sends messages. */
#define EXCHANGE_MESSAGES 8U
/* The longest of them: what sensors, logs and counters report in one is shorter. A longer part may be one of
 * an upload, whose response is counted whenever it comes. */
#define EXCHANGE_MESSAGE_MAX 1024U
/* A longer part that comes sooner than this after the one before shows that it is no stream of messages. */
#define EXCHANGE_MESSAGE_NSEC 10000000ULL

/* What is left of a piece of FastCGI that came at once, and is no longer than this, belongs to the question
 * whose other part was read: PHP answers before it reads the empty record, of eight bytes, with which a
 * question ends. */
#define EXCHANGE_REST_MAX 8U

enum exchange_state {
        EXCHANGE_IDLE,          /* nothing was asked yet */
        EXCHANGE_ASKED,         /* the application has read, and not answered */
        EXCHANGE_ANSWERING,     /* the answer has begun to leave, perhaps it is complete */
};

enum exchange_flag {
        EXCHANGE_IN_KNOWN   = 1 << 0,   /* in_end is valid */
        EXCHANGE_READ_KNOWN = 1 << 1,   /* read_end is valid */
        EXCHANGE_OUT_KNOWN  = 1 << 2,   /* out_end is valid */
        EXCHANGE_HOLE       = 1 << 3,   /* data is missing before hole_end */
        EXCHANGE_LEFT       = 1 << 4,   /* what is asked came before the last answer had left: perhaps it is
                                         * a part of what that answers */
        EXCHANGE_DONE       = 1 << 5,   /* the unit has hung up: nothing that comes is a question. Who asks:
                                         * one of the two has */
        EXCHANGE_PARSED     = 1 << 6,   /* its protocol is parsed: there is a struct pipeline beside this one
                                         * (pipeline.h) */
        EXCHANGE_LATE       = 1 << 7,   /* … and what arrives is the rest of a question that has been
                                         * answered */
        EXCHANGE_TLS     = 1 << 8,   /* TLS: there is a struct tls (tls-record.h) */
        EXCHANGE_H2      = 1 << 9,   /* HTTP/2: there is a struct h2_conn (http2.h) */
        EXCHANGE_FRESH      = 1 << 10,  /* it was seen from its beginning */
        EXCHANGE_FAREWELL   = 1 << 11,  /* what is asked may be a farewell: if nothing comes of it but the
                                         * end, it was */
        EXCHANGE_UNASKED    = 1 << 12,  /* the newest that came asks for nothing */
        EXCHANGE_ONE_WAY    = 1 << 13,  /* what is asked seems to want no answer */
        EXCHANGE_PIPED      = 1 << 14,  /* who asks: several questions are open, answers are told apart when
                                         * they are read: from read_end on */
        EXCHANGE_REST       = 1 << 15,  /* what is unread of the first mark is the rest of what was read */
        EXCHANGE_FASTCGI    = 1 << 16,  /* questions are FastCGI's, whose last record may be read behind the
                                         * answer */
        EXCHANGE_WAITS      = 1 << 17,  /* who asks: what is asked is to wait, how long that takes says
                                         * nothing of the peer */
        EXCHANGE_UNCERTAIN  = 1 << 18,  /* who asks: TLS that may carry HTTP/2, whose last message may be no
                                         * request */
        EXCHANGE_UNREAD     = 1 << 18,  /* no read is seen: requests are not counted, but each is said to be
                                         * one of which nothing is known */
        EXCHANGE_HTTP1      = 1 << 19,  /* it was HTTP/1.x, up to a request that is not understood */
        EXCHANGE_SESSION    = 1 << 20,  /* both ends say what they like, when they like (SSH): its end leaves
                                         * no question open */
};

struct exchange {
        __u8 state;             /* enum exchange_state */
        __u8 n_marks;
        __u16 messages;         /* of what is asked: how many parts look like messages, less those that do
                                 * not */
        __u32 flags;            /* enum exchange_flag */
        __u32 in_end;           /* highest byte that arrived */
        __u32 read_end;         /* the application has read up to here */
        __u32 out_end;          /* highest byte that left */
        union {
                __u32 hole_end;
                __u32 asked;    /* the other role: questions that have left and of which none has an answer,
                                 * where they can be told apart */
        };
        __u32 mark_end[EXCHANGE_MARKS];
        __u64 mark_at[EXCHANGE_MARKS];
        __u64 tail_at;          /* when the last byte of the last mark arrived */

        __u64 open_at;          /* in flight since; 0: not in flight */
        __u64 first_at;         /* arrival of the first byte of the question; 0: not seen */
        __u64 last_at;          /* … of the last byte */
        __u64 read_at;          /* the application read the last byte */
        __u64 first_out_at;     /* the first byte of the answer left */
        __u64 last_out_at;      /* the last byte so far did */
};

/* What an event means to the unit's counters. */
struct exchange_effect {
        __s32 in_flight;        /* -1, 0, 1 */
        __u32 bytes;            /* new on the wire */
        __u8 begun;             /* first answer byte: book a question */
        __u8 grown;             /* later answer byte: move the sample … */
        __u8 overlap;
        __u32 unanswered;       /* so many questions are open when the connection ends */
        __u64 grown_from;       /* … from what it was with this last_out_at */
};

/* By the first record of the first question: version 1, the beginning of a question, whose body has eight
 * bytes. bytes: the first one lowest. */
EXCHANGE_INLINE int exchange_is_fastcgi(__u64 bytes, __u32 length) {
        return length >= 6 && (bytes & 0xffff0000ffffULL) == 0x080000000101ULL;
}

/* By the first bytes that a client says. */
EXCHANGE_INLINE int exchange_is_ssh(__u32 bytes) {
        return bytes == 0x2d485353;
}

EXCHANGE_INLINE __s32 exchange_distance(__u32 to, __u32 from) {
        return (__s32) (to - from);
}

EXCHANGE_INLINE void exchange_open(struct exchange *x, __u64 at, struct exchange_effect *effect) {
        if (x->open_at == 0)
                effect->in_flight++;
        x->open_at = at;
}

EXCHANGE_INLINE void exchange_shut(struct exchange *x, struct exchange_effect *effect) {
        if (x->open_at != 0)
                effect->in_flight--;
        x->open_at = 0;
}

EXCHANGE_INLINE void exchange_unmark(struct exchange *x) {
        for (int i = 0; i < EXCHANGE_MARKS - 1; i++) {
                x->mark_end[i] = x->mark_end[i + 1];
                x->mark_at[i] = x->mark_at[i + 1];
        }
        x->n_marks--;
}

EXCHANGE_INLINE void exchange_mark(struct exchange *x, __u64 now, __u32 end) {
        if (x->n_marks < EXCHANGE_MARKS) {
                x->mark_end[x->n_marks & (EXCHANGE_MARKS - 1)] = end;
                x->mark_at[x->n_marks & (EXCHANGE_MARKS - 1)] = now;
                x->n_marks++;
        } else
                x->mark_end[EXCHANGE_MARKS - 1] = end;

        x->tail_at = now;
}

/* The connection as TCP has it now: what came, was read and was sent before is not looked at. Without this
 * call the positions are taken from the first events. */
EXCHANGE_INLINE void exchange_begin(struct exchange *x, __u32 rcv_nxt, __u32 copied, __u32 snd_nxt) {
        x->in_end = rcv_nxt;
        x->read_end = copied;
        x->out_end = snd_nxt;
        x->flags |= EXCHANGE_IN_KNOWN | EXCHANGE_READ_KNOWN | EXCHANGE_OUT_KNOWN;
}

/* Payload [seq, end) reached the IP layer. rcv_nxt: what TCP has in order so far; window_end: what it would
 * take. */
EXCHANGE_INLINE void exchange_arrive(struct exchange *x, __u64 now, __u32 seq, __u32 end, __u32 rcv_nxt,
                                     __u32 window_end, struct exchange_effect *effect) {

        if (!(x->flags & EXCHANGE_IN_KNOWN)) {
                x->in_end = rcv_nxt;
                x->flags |= EXCHANGE_IN_KNOWN;
        }

        if ((x->flags & EXCHANGE_HOLE) && exchange_distance(rcv_nxt, x->hole_end) >= 0)
                x->flags &= ~EXCHANGE_HOLE;

        if (exchange_distance(end, x->in_end) <= 0) {
                /* Sent again, or late. If it closes a hole, what lies behind could not be read before now */
                if ((x->flags & EXCHANGE_HOLE) && x->n_marks > 0 && exchange_distance(end, rcv_nxt) > 0 &&
                    exchange_distance(seq, x->hole_end) < 0)
                        x->tail_at = now;
                return;
        }

        if (exchange_distance(end, window_end) > EXCHANGE_WINDOW_SLACK)
                return;

        if (exchange_distance(seq, x->in_end) > 0) {
                x->flags |= EXCHANGE_HOLE;
                x->hole_end = seq;
        }

        effect->bytes += end - x->in_end;
        x->in_end = end;
        x->flags &= ~EXCHANGE_FAREWELL;

        if (x->flags & EXCHANGE_DONE)
                return;

        exchange_mark(x, now, end);
        if (x->open_at == 0 && !(x->flags & EXCHANGE_LATE))
                exchange_open(x, now, effect);
}

/* A part of what is asked has come, or has left. before: when the one before it did; alone: all before it
 * was taken, and its sender had no more to say. */
EXCHANGE_INLINE void exchange_note_part(struct exchange *x, __u64 now, __u64 before, __u32 length,
                                        int alone) {
        if (x->state != EXCHANGE_ASKED)
                return;
        if (alone && length <= EXCHANGE_MESSAGE_MAX)
                x->messages += x->messages < 2 * EXCHANGE_MESSAGES;
        else if (!alone || now <= before + EXCHANGE_MESSAGE_NSEC)
                x->messages -= x->messages > 0;
}

/* The application has read up to copied: forgets the marks before that. False if that is nothing new.
 * ret_first_at, ret_last_at: when the first and the last byte came of what was read now, 0 if that was not
 * seen. */
EXCHANGE_INLINE int exchange_take(struct exchange *x, __u32 copied, __u64 *ret_first_at,
                                  __u64 *ret_last_at) {
        __u64 first_at = 0, last_at = 0;
        __u32 begin = x->flags & EXCHANGE_READ_KNOWN ? x->read_end : copied;

        *ret_first_at = *ret_last_at = 0;
        if ((x->flags & EXCHANGE_READ_KNOWN) && exchange_distance(copied, x->read_end) <= 0)
                return 0;
        x->read_end = copied;
        x->flags = (x->flags & ~EXCHANGE_REST) | EXCHANGE_READ_KNOWN;

        if (x->flags & EXCHANGE_DONE)
                return 0;

        for (int i = 0; i < EXCHANGE_MARKS; i++) {
                if (x->n_marks == 0)
                        break;
                if (first_at == 0)
                        first_at = x->mark_at[0];

                if (exchange_distance(copied, x->mark_end[0]) < 0) {
                        /* Not all of it: when exactly the bytes read came is no longer known where arrivals
                         * were merged, its beginning is the bound that is */
                        last_at = x->mark_at[0];
                        if (x->flags & EXCHANGE_FASTCGI && exchange_distance(copied, begin) > 0 &&
                            x->mark_end[0] - copied <= EXCHANGE_REST_MAX)
                                x->flags |= EXCHANGE_REST;
                        break;
                }

                last_at = x->n_marks == 1 ? x->tail_at : x->mark_at[0];
                begin = x->mark_end[0];
                exchange_unmark(x);
        }

        *ret_first_at = first_at;
        *ret_last_at = last_at;
        return 1;
}

/* What clients say before they hang up, where nobody answers to it, alone in a segment. bytes: that, the
 * first byte lowest. In other protocols the same may be a question like any other: it counts if it is
 * answered. */
#define EXCHANGE_FAREWELL_MAX 8U

/* DISCONNECT of MQTT, since MQTT 5 also with a reason, and with no properties: then what was asked before
 * wants no answer either, it mostly is a message that nobody confirms. */
EXCHANGE_INLINE int exchange_is_last_farewell(__u64 bytes, __u32 length) {
        return (length == 2 && bytes == 0x00e0) || (length == 3 && (bytes & 0xffff) == 0x01e0) ||
                (length == 4 && (bytes & 0xff00ffff) == 0x000002e0);
}

EXCHANGE_INLINE int exchange_is_farewell(__u64 bytes, __u32 length) {
        switch (length) {

        case 5: /* Terminate of PostgreSQL ("X", and its own length of 4), COM_QUIT of MySQL (a length of 1
                 * in three bytes, the number 0, and a command of one byte), the last of what a client of
                 * rsync has to say: data of one byte, the end of the list */
                return bytes == 0x0400000058 || bytes == 0x0100000001 || bytes == 0x0007000001;
        case 6: /* "quit", in large or small letters, and the end of the line: memcached, beanstalkd; others
                 * answer */
                return (bytes | 0x20202020) == 0x0a0d74697571;
        case 7: /* unbindRequest of LDAP: a sequence of five bytes, of a number of one byte and nothing */
                return (bytes & 0xffff00ffffffff) == 0x00420001020530;
        case 8: /* … of two bytes */
                return (bytes & 0xffff0000ffffffff) == 0x0042000002020630;
        case 16: /* CancelRequest of PostgreSQL: the server does that, and hangs up without a word */
                return bytes == 0x2e16d20410000000;
        default:
                return exchange_is_last_farewell(bytes, length);
        }
}

/* What is said in the midst of all else and never answered, alone in a segment. bytes: the first eight.
 * Sealed, it is not known. */
EXCHANGE_INLINE int exchange_is_remark(__u64 bytes, __u32 length) {
        switch (length) {

        case 9: /* COM_STMT_CLOSE of MySQL: a length of 5, the number 0, the command, and which statement:
                 * many drivers say that behind each query that has arguments */
                return (bytes & 0xffffffffff) == 0x1900000005;
        case 39: /* What a PostgreSQL that replicates tells the one whose changes it gets: how far it has
                  * come ('r'), or … */
                return (bytes & 0xffffffffffff) == 0x722600000064;
        case 30: /* … what it still needs ('h'): copied data ('d'), and its length */
                return (bytes & 0xffffffffffff) == 0x681d00000064;
        default:
                return 0;
        }
}

/* Of a segment of this length so many bytes at its beginning tell whether it is one of these. */
EXCHANGE_INLINE __u32 exchange_look(__u32 length) {
        if (length <= EXCHANGE_FAREWELL_MAX)
                return length;
        return length == 9 || length == 16 || length == 30 || length == 39 ? 8 : 0;
}

/* Is nothing asked that what comes could be a part of? */
EXCHANGE_INLINE int exchange_is_idle(const struct exchange *x) {
        return x->state != EXCHANGE_ASKED && x->n_marks == 0;
}

/* As exchange_arrive(), of what asks for nothing. */
EXCHANGE_INLINE void exchange_arrive_unasked(struct exchange *x, __u64 now, __u32 seq, __u32 end,
                                             __u32 rcv_nxt, __u32 window_end,
                                             struct exchange_effect *effect) {
        __u32 done = x->flags & EXCHANGE_DONE;

        x->flags |= EXCHANGE_DONE;
        exchange_arrive(x, now, seq, end, rcv_nxt, window_end, effect);
        x->flags = (x->flags & ~EXCHANGE_DONE) | done;
        if (effect->bytes == 0) /* retransmitted: what it ended is over */
                return;
        x->flags |= EXCHANGE_UNASKED;
        /* Who says that has had its answer: what leaves now is a stream, in which nothing is asked */
        if (x->state == EXCHANGE_ANSWERING) {
                x->state = EXCHANGE_IDLE;
                exchange_shut(x, effect);
        }
}

/* What is known of the arrivals at a moment: they go on while somebody looks. */
struct exchange_marks {
        __u32 n;
        __u32 end[EXCHANGE_MARKS];
        __u64 at[EXCHANGE_MARKS];
        __u64 tail_at;
};

EXCHANGE_INLINE void exchange_get_marks(const struct exchange *x, struct exchange_marks *ret) {
        ret->n = x->n_marks;
        for (int i = 0; i < EXCHANGE_MARKS; i++) {
                ret->end[i] = x->mark_end[i];
                ret->at[i] = x->mark_at[i];
        }
        ret->tail_at = x->tail_at;
}

/* When the byte before this position came; 0: not seen. last: the end of something, where merged arrivals
 * count to their end. */
EXCHANGE_INLINE __u64 exchange_when(const struct exchange_marks *m, __u32 position, int last) {
        for (int i = 0; i < EXCHANGE_MARKS; i++)
                if (i < (int) m->n && exchange_distance(position, m->end[i]) <= 0)
                        return last && position == m->end[i] && i == (int) m->n - 1 ? m->tail_at : m->at[i];
        return 0;
}

/* When all that is unread before this position came, if that was at once; otherwise 0. */
EXCHANGE_INLINE __u64 exchange_came_at_once(const struct exchange *x, __u32 position) {
        if (x->n_marks == 0 || exchange_distance(position, x->mark_end[0]) > 0)
                return 0;
        return x->n_marks > 1 || x->tail_at == x->mark_at[0] ? x->mark_at[0] : 0;
}

/* The application has read up to copied. unsent: bytes written by it that have not left. */
EXCHANGE_INLINE void exchange_read(struct exchange *x, __u64 now, __u32 copied, __u32 unsent,
                                   struct exchange_effect *effect) {
        __u64 first_at, last_at;

        if (!exchange_take(x, copied, &first_at, &last_at))
                return;
        if (x->flags & EXCHANGE_UNASKED) {
                if (copied == x->in_end)
                        x->flags &= ~EXCHANGE_UNASKED;
                if (first_at == 0 && x->state != EXCHANGE_ASKED)
                        return;
        }

        if (x->state != EXCHANGE_ASKED) {
                /* A new question. What the application wrote before and TCP still holds answers the one
                 * before: from here on the two cannot be told apart */
                if (x->state == EXCHANGE_ANSWERING && unsent > 0)
                        effect->overlap = 1;

                x->flags &= ~(EXCHANGE_ONE_WAY | EXCHANGE_LEFT);
                if (x->state == EXCHANGE_ANSWERING && first_at != 0 && first_at <= x->last_out_at)
                        x->flags |= EXCHANGE_LEFT;
                x->state = EXCHANGE_ASKED;
                x->messages = 0;
                x->first_at = first_at;
                x->last_at = 0;
        } else if (x->flags & EXCHANGE_LEFT && first_at > x->last_out_at) {
                /* What was left got no answer so far: it was a part of the question before, and this is the
                 * next one; or there are two */
                x->flags &= ~EXCHANGE_LEFT;
                effect->overlap = 1;
                x->first_at = first_at;
                x->last_at = 0;
        } else if (first_at != 0 &&
                   (first_at > x->read_at + EXCHANGE_SILENCE_NSEC || x->messages >= EXCHANGE_MESSAGES) &&
                   (x->flags & EXCHANGE_ONE_WAY || now > x->first_at + EXCHANGE_PATIENCE_NSEC)) {
                x->flags |= EXCHANGE_ONE_WAY;
                x->first_at = first_at;
                x->last_at = 0;
        }

        if (last_at != 0)
                x->last_at = last_at;
        x->read_at = now;

        if (x->flags & EXCHANGE_ONE_WAY && x->n_marks == 0)
                exchange_shut(x, effect);
        else if (x->open_at == 0)
                exchange_open(x, now, effect);
}

/* Is it known by now that what was asked wants no answer, where none was ever given? */
EXCHANGE_INLINE int exchange_is_ignored(const struct exchange *x, __u64 now) {
        return x->state == EXCHANGE_ASKED && x->n_marks == 0 && x->first_out_at == 0 && x->read_at != 0 &&
                now > (x->first_at ?: x->read_at) + EXCHANGE_PATIENCE_NSEC;
}

/* The application has read up to copied, and none of it is part of a question. */
EXCHANGE_INLINE void exchange_pass(struct exchange *x, __u32 copied, struct exchange_effect *effect) {
        __u64 first_at, last_at;

        exchange_take(x, copied, &first_at, &last_at);
        if (x->state != EXCHANGE_ASKED && x->n_marks == 0)
                exchange_shut(x, effect);
}

/* Payload up to end leaves the IP layer: how much of it does so for the first time. */
EXCHANGE_INLINE __u32 exchange_leave(struct exchange *x, __u32 end, __u32 snd_nxt) {
        __u32 bytes;

        if (!(x->flags & EXCHANGE_OUT_KNOWN)) {
                x->out_end = snd_nxt;
                x->flags |= EXCHANGE_OUT_KNOWN;
        }

        if (exchange_distance(end, x->out_end) <= 0)
                return 0; /* sent again */
        bytes = end - x->out_end;
        x->out_end = end;
        return bytes;
}

/* Payload up to end leaves, bytes of it for the first time. complete: it is all that the application has
 * written. */
EXCHANGE_INLINE void exchange_depart(struct exchange *x, __u64 now, __u32 bytes, int complete,
                                     struct exchange_effect *effect) {
        effect->bytes = bytes;

        if (x->flags & EXCHANGE_UNREAD) {
                /* Something has come since the last response left */
                effect->overlap = x->in_end != x->read_end;
                x->read_end = x->in_end;
                return;
        }
        if (x->state == EXCHANGE_ASKED) {
                if (x->flags & EXCHANGE_ONE_WAY && x->first_out_at != 0 &&
                    now > x->read_at + EXCHANGE_SILENCE_NSEC)
                        return; /* neither was this asked for; but the first word of all is an answer */
                x->flags &= ~EXCHANGE_ONE_WAY;
                x->state = EXCHANGE_ANSWERING;
                x->first_out_at = x->last_out_at = now;
                effect->begun = 1;
                /* It was asked while another was open, or is a part of that, whose answer goes on */
                effect->overlap = !!(x->flags & EXCHANGE_LEFT);
        } else if (x->state == EXCHANGE_ANSWERING) {
                if (x->open_at == 0 && now - x->last_out_at >= EXCHANGE_SILENCE_NSEC)
                        return; /* nobody asked for it */
                effect->grown = 1;
                effect->grown_from = x->last_out_at;
                x->last_out_at = now;
        } else
                return; /* the server speaks first: nothing was asked */

        if (x->flags & EXCHANGE_REST && x->n_marks > 0) {
                exchange_unmark(x);
                x->flags = (x->flags & ~EXCHANGE_REST) | EXCHANGE_UNASKED;
        }
        if (!complete)
                exchange_open(x, x->open_at ?: x->first_at ?: now, effect);
        else if (x->n_marks > 0)
                exchange_open(x, x->mark_at[0], effect);
        else
                exchange_shut(x, effect);
}

/* ---- the other role: the unit asks ---- */

/* Those that are in flight besides the one that exchange_ask() has opened. */
EXCHANGE_INLINE __u32 exchange_extra(const struct exchange *x) {
        return x->open_at != 0 && x->asked > 1 ? x->asked - 1 : 0;
}

/* They are not in flight any more. */
EXCHANGE_INLINE void exchange_ask_none(struct exchange *x, struct exchange_effect *effect) {
        effect->in_flight -= exchange_extra(x);
        x->asked = 0;
}

/* A part of a question leaves. Until the peer answers all of it is one. Who has hung up is not asked any
 * more. read_at is when the last part of it left, here. */
EXCHANGE_INLINE void exchange_ask(struct exchange *x, __u64 now, struct exchange_effect *effect) {
        if (x->flags & EXCHANGE_DONE)
                return;
        if (x->state != EXCHANGE_ASKED) {
                x->state = EXCHANGE_ASKED;
                x->flags &= ~EXCHANGE_ONE_WAY;
                x->messages = 0;
                x->first_at = now;
                exchange_open(x, now, effect);
        } else if (x->open_at == 0 && x->flags & EXCHANGE_PIPED)
                exchange_open(x, now, effect);
        x->read_at = now;
}

/* The same, after the unit has said nothing for a while, or sent message after message, that the peer had
 * not taken long ago: a question goes on like that, or what wants no answer. */
EXCHANGE_INLINE void exchange_ask_again(struct exchange *x, __u64 now, struct exchange_effect *effect) {
        if (x->state == EXCHANGE_ASKED && !(x->flags & (EXCHANGE_DONE | EXCHANGE_PIPED)) &&
            (now > x->read_at + EXCHANGE_SILENCE_NSEC || x->messages >= EXCHANGE_MESSAGES) &&
            (x->flags & EXCHANGE_ONE_WAY || now > x->first_at + EXCHANGE_PATIENCE_NSEC)) {
                x->flags |= EXCHANGE_ONE_WAY;
                x->first_at = now;
                exchange_ask_none(x, effect);
                exchange_shut(x, effect);
        }
        exchange_ask(x, now, effect);
}

/* So many questions were found in what leaves. */
EXCHANGE_INLINE void exchange_ask_more(struct exchange *x, __u64 now, __u32 n,
                                       struct exchange_effect *effect) {
        exchange_ask(x, now, effect); /* unless what is answered by now was asked before these */
        effect->in_flight -= exchange_extra(x);
        x->asked += n;
        effect->in_flight += exchange_extra(x);
}

/* Several questions are open, and nothing of their answers has come: these are told apart from here on.
 * rcv_nxt: what came before. */
EXCHANGE_INLINE void exchange_pipe(struct exchange *x, __u32 rcv_nxt) {
        if (x->state != EXCHANGE_ASKED || x->flags & (EXCHANGE_DONE | EXCHANGE_PIPED))
                return;
        if (!(x->flags & EXCHANGE_IN_KNOWN))
                x->in_end = rcv_nxt;
        x->flags |= EXCHANGE_IN_KNOWN | EXCHANGE_PIPED;
        x->read_end = x->in_end;
        x->n_marks = 0;
}

/* Answers to so many questions have begun to come. */
EXCHANGE_INLINE void exchange_piped(struct exchange *x, __u32 n, struct exchange_effect *effect) {
        effect->in_flight -= exchange_extra(x);
        x->asked -= n < x->asked ? n : x->asked;
        if (x->asked == 0)
                exchange_shut(x, effect);
        effect->in_flight += exchange_extra(x);
}

/* All has been read up to this position, and that is the end of an answer. Where nothing is open any more,
 * or the place in the answers is lost, the next question is like any. Returns 1 then. */
EXCHANGE_INLINE int exchange_pipe_read(struct exchange *x, __u32 position, int end, int lost,
                                       struct exchange_effect *effect) {
        __u64 first_at, last_at;

        x->flags |= EXCHANGE_READ_KNOWN;
        exchange_take(x, position, &first_at, &last_at);
        if (!lost && (!end || x->asked > 0 || x->n_marks > 0))
                return 0;
        exchange_ask_none(x, effect);
        exchange_shut(x, effect);
        x->state = EXCHANGE_IDLE;
        x->flags &= ~EXCHANGE_PIPED;
        x->n_marks = 0;
        return 1;
}

/* Payload up to end reached the IP layer, as for exchange_arrive(). Where its answer ends nobody knows: a
 * question is in flight until the first byte of it. Returns how many questions begin to be answered. */
EXCHANGE_INLINE __u32 exchange_hear(struct exchange *x, __u64 now, __u32 end, __u32 rcv_nxt,
                                    __u32 window_end, struct exchange_effect *effect) {
        __u32 n = 0;

        if (!(x->flags & EXCHANGE_IN_KNOWN)) {
                x->in_end = rcv_nxt;
                x->flags |= EXCHANGE_IN_KNOWN;
        }
        if (exchange_distance(end, x->in_end) <= 0 ||
            exchange_distance(end, window_end) > EXCHANGE_WINDOW_SLACK)
                return 0;
        effect->bytes = end - x->in_end;
        x->in_end = end;

        if (x->flags & EXCHANGE_DONE)
                return 0; /* the unit has gone, nobody reads it */
        if (x->flags & EXCHANGE_PIPED) {
                exchange_mark(x, now, end);
                return 0;
        }
        if (x->state == EXCHANGE_ASKED) {
                if (x->flags & EXCHANGE_ONE_WAY && now > x->read_at + EXCHANGE_SILENCE_NSEC)
                        return 0; /* it has its own reasons */
                x->state = EXCHANGE_ANSWERING;
                x->last_out_at = now;
                effect->begun = 1;
                n = x->asked > 1 ? x->asked : 1;
                exchange_ask_none(x, effect);
                exchange_shut(x, effect);
        } else if (x->state == EXCHANGE_ANSWERING && now - x->last_out_at < EXCHANGE_SILENCE_NSEC) {
                effect->grown = 1;
                effect->grown_from = x->last_out_at;
                x->last_out_at = now;
        }
        return n;
}

/* Is all that waits for an answer older than the last one? */
EXCHANGE_INLINE int exchange_is_left(const struct exchange *x) {
        if (x->state == EXCHANGE_ASKED)
                return x->flags & EXCHANGE_LEFT;
        return x->state == EXCHANGE_ANSWERING && x->n_marks > 0 && x->mark_at[0] <= x->last_out_at;
}

/* The unit hangs up (it sends its FIN), or the connection is gone. asked: questions that were read and whose
 * answers have not begun to leave; unsent: bytes written by the application that have not left. */
EXCHANGE_INLINE void exchange_end(struct exchange *x, int gone, __u32 asked, __u32 unsent,
                                  struct exchange_effect *effect) {
        /* What came before the last answer had left, and was not answered, was a part of what that answers
         * (a body that is turned down) */
        if (unsent == 0 && !(x->flags & (EXCHANGE_PARSED | EXCHANGE_H2)) && exchange_is_left(x)) {
                exchange_shut(x, effect);
                asked = 0;
        }
        if (x->flags & (EXCHANGE_FAREWELL | EXCHANGE_SESSION))
                exchange_shut(x, effect);
        if (x->open_at != 0 && (gone || (asked > 0 && unsent == 0))) {
                effect->unanswered = asked > 0 ? asked : 1;
                exchange_shut(x, effect);
        }

        x->flags |= EXCHANGE_DONE;
        /* Who reads what is left in it asks for nothing any more */
        if (gone)
                x->n_marks = 0;
}

EXCHANGE_INLINE __u64 exchange_between(__u64 from, __u64 to) {
        return to > from ? to - from : 0;
}
