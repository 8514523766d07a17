/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* State machine of a TCP connection in the server role: which data is a request, when it arrived, when it
 * was read, and when its response was sent.
 *
 * It advances in the order of the application, reading and then sending, both under the socket lock. Data
 * arrives without that lock, early (while an earlier request is still being processed) and repeatedly
 * (retransmissions). Arrivals therefore only leave marks in the stream, "up to this byte at this time",
 * which are removed when the bytes are read. Positions are TCP sequence numbers, compared modulo 2^32.
 *
 * Pure: no maps, no helpers, time is an argument. Compiled for BPF, where the caller holds the lock of the
 * connection, and for the unit tests. */

#include "unit-map.h"

#define EXCHANGE_INLINE static inline __attribute__((always_inline))

/* Number of separate arrivals stored while unread. A request needs two (first and last segment); more are
 * merged into the last mark, which stores when it began and ended. */
#define EXCHANGE_MARKS 4

/* How far a segment may exceed the advertised window, which may have shrunk meanwhile. Segments beyond are
 * forged or broken, and TCP drops them, too. */
#define EXCHANGE_WINDOW_SLACK (1 << 16)

/* Silence after which data sent without a request is not part of a response, but an event or notification.
 * Responses with such pauses are rare. */
#define EXCHANGE_SILENCE_NSEC 1000000000ULL

/* A client that keeps sending for this long without a response, with pauses, does not expect one (logs,
 * replication). Anything shorter is a slow request. */
#define EXCHANGE_PATIENCE_NSEC 10000000000ULL

/* The same without pauses: number of parts after which a client is considered to send messages, each after
 * all previous data was read. */
#define EXCHANGE_MESSAGES 8U
/* Maximum length of a message: those of sensors, logs and counters are shorter. Longer parts may belong to
 * an upload, with a response at its end. */
#define EXCHANGE_MESSAGE_MAX 1024U
/* Number of consecutive short parts, each written when nothing was unsent, that make a response of more than
 * EXCHANGE_SILENCE_NSEC a stream of messages (subscriptions). The response ends before the last of these
 * parts. */
#define EXCHANGE_PUSHES 2U
/* A part longer than EXCHANGE_MESSAGE_MAX that follows the previous one within this time indicates that the
 * data is not a stream of messages. */
#define EXCHANGE_MESSAGE_NSEC 10000000ULL

/* Maximum length of an unread rest of FastCGI data that still belongs to the request: PHP sends its response
 * before it reads the empty record of eight bytes that ends the request. */
#define EXCHANGE_REST_MAX 8U

/* At most one out of this many requests of a connection may overlap with another one. A connection with more
 * overlaps becomes unparsed: its requests cannot be distinguished. */
#define EXCHANGE_OVERLAP_COST 100U
#define EXCHANGE_CREDIT_MAX (100 * EXCHANGE_OVERLAP_COST)

enum exchange_state {
        EXCHANGE_IDLE,          /* no request yet */
        EXCHANGE_PENDING,       /* request read, no response yet */
        EXCHANGE_RESPONDING,    /* response being sent, or complete */
};

enum exchange_flag {
        EXCHANGE_IN_KNOWN   = 1 << 0,   /* in_end is valid */
        EXCHANGE_READ_KNOWN = 1 << 1,   /* read_end is valid */
        EXCHANGE_OUT_KNOWN  = 1 << 2,   /* out_end is valid */
        EXCHANGE_HOLE       = 1 << 3,   /* data before hole_end is missing */
        EXCHANGE_LEFT       = 1 << 4,   /* the current request arrived before the last response was sent: it
                                         * may be part of the previous request */
        EXCHANGE_DONE       = 1 << 5,   /* the unit has closed the connection: nothing more is a request.
                                         * Client role: either side has */
        EXCHANGE_PARSED     = 1 << 6,   /* protocol is parsed: has a struct pipeline (pipeline.h) */
        EXCHANGE_LATE       = 1 << 7,   /* parsed, and data arriving is the rest of a request already
                                         * responded to */
        EXCHANGE_TLS        = 1 << 8,   /* TLS: has a struct tls (tls-record.h) */
        EXCHANGE_H2         = 1 << 9,   /* HTTP/2: has a struct h2_conn (http2.h) */
        EXCHANGE_FRESH      = 1 << 10,  /* seen from its beginning */
        EXCHANGE_FAREWELL   = 1 << 11,  /* the current request is a farewell if the connection ends without
                                         * response */
        EXCHANGE_UNSOLICITED    = 1 << 12, /* the latest data received is not a request */
        EXCHANGE_ONE_WAY    = 1 << 13,  /* current requests seem to expect no response */
        EXCHANGE_PIPED      = 1 << 14,  /* client role: several requests are outstanding, and responses are
                                         * parsed when read, from read_end on */
        EXCHANGE_REST       = 1 << 15,  /* unread data of the first mark is the rest of what was read */
        EXCHANGE_FASTCGI    = 1 << 16,  /* FastCGI: its last record may be read after the response was
                                         * sent */
        EXCHANGE_WAITS      = 1 << 17,  /* client role: the request is a long poll, its duration does not
                                         * depend on the peer */
        EXCHANGE_UNCERTAIN  = 1 << 18,  /* client role: TLS that may carry HTTP/2, the last message may not
                                         * be a request */
        EXCHANGE_UNREAD     = 1 << 18,  /* reads are not observable: requests are not counted, but reported
                                         * as overlaps */
        EXCHANGE_HTTP1      = 1 << 19,  /* was HTTP/1.x, up to a request that could not be parsed, or may
                                         * have been */
        EXCHANGE_SESSION    = 1 << 20,  /* both sides send independently (SSH): no request is outstanding at
                                         * its end */
        EXCHANGE_UNPARSED   = 1 << 21,  /* requests cannot be distinguished, and only count as overlaps */
        EXCHANGE_PUSHED     = 1 << 22,  /* the server has sent an event: data sent by the client may be a
                                         * reaction to it instead of a request */
        EXCHANGE_AWAITED    = 1 << 23,  /* the event was sent to a client that waited for it: it was a
                                         * response if the next data of the client gets a response of its
                                         * own */
};

struct exchange {
        __u8 state;             /* enum exchange_state */
        __u8 n_marks;
        __u16 messages;         /* of the current request: number of parts that look like messages, minus
                                 * parts that do not; of the response: consecutive parts that do */
        __u32 flags;            /* enum exchange_flag */
        __u32 in_end;           /* end of data received */
        __u32 read_end;         /* end of data read by the application */
        __u32 out_end;          /* end of data sent */
        union {
                __u32 hole_end;
                __u32 pending;  /* client role: requests sent without any response, if they can be
                                 * distinguished */
        };
        __u32 credit;           /* requests without overlap, less EXCHANGE_OVERLAP_COST for each overlap */
        __u32 mark_end[EXCHANGE_MARKS];
        __u64 mark_at[EXCHANGE_MARKS];
        __u64 tail_at;          /* arrival of the last byte of the last mark */

        __u64 open_at;          /* in flight since; 0: not in flight */
        __u64 first_at;         /* arrival of the first request byte; 0: not seen */
        __u64 last_at;          /* arrival of the last request byte */
        __u64 read_at;          /* last request byte read */
        __u64 first_out_at;     /* first response byte sent */
        __u64 last_out_at;      /* last response byte sent so far */
};

/* Payload that arrives at the IP layer. */
struct exchange_segment {
        __u32 seq;              /* position of its first byte */
        __u32 end;              /* position after its last byte */
        __u32 rcv_nxt;          /* end of the data that TCP has in order */
        __u32 window_end;       /* end of the receive window */
};

/* Effect of an event on the counters of the unit. */
struct exchange_effect {
        __s32 in_flight;        /* -1, 0, 1 */
        __u32 bytes;            /* new data, without retransmissions */
        __u8 begun;             /* 1: first response byte, record a request */
        __u8 grown;             /* 1: later response byte, move the sample whose last_out_at was
                                 * grown_from */
        __u8 overlap;           /* 1: a request overlaps with another one, or is on an unparsed connection */
        __u8 unparsed;          /* 1: the connection becomes unparsed */
        __u32 unanswered;       /* requests outstanding at the end of the connection */
        __u64 grown_from;       /* previous last_out_at of the sample */
};

/* Detects FastCGI by the first record of the first request: version 1, begin request, body of eight bytes.
 * bytes: first one least significant. */
EXCHANGE_INLINE int exchange_is_fastcgi(__u64 bytes, __u32 length) {
        return length >= 6 && (bytes & 0xffff0000ffffULL) == 0x080000000101ULL;
}

/* Detects SSH by the first bytes of the client. */
EXCHANGE_INLINE int exchange_is_ssh(__u32 bytes) {
        return bytes == 0x2d485353;
}

EXCHANGE_INLINE __s32 exchange_distance(__u32 to, __u32 from) {
        return (__s32) (to - from);
}

/* Returns 1 if a is less than b, without a branch: the verifier would explore everything after it twice. */
EXCHANGE_INLINE __u32 exchange_is_less(__u32 a, __u32 b) {
        __u64 difference = (__u64) a - b;

        BPF_OPAQUE(difference);
        return difference >> 63;
}

/* Marks the connection as unparsed: from now on its requests cannot be distinguished. */
EXCHANGE_INLINE void exchange_set_unparsed(struct exchange *x, struct exchange_effect *effect) {
        effect->unparsed |= ~x->flags / EXCHANGE_UNPARSED & 1;
        x->flags |= EXCHANGE_UNPARSED;
}

/* A request that overlaps with another (1) or not (0). Unless overlaps are rare, the connection becomes
 * unparsed, so that one client cannot make the metrics of others absent. */
EXCHANGE_INLINE void exchange_overlap(struct exchange *x, __u32 overlaps, struct exchange_effect *effect) {
        __u32 counts = overlaps & ~x->flags / EXCHANGE_UNPARSED,
              rare = counts & ~exchange_is_less(x->credit, EXCHANGE_OVERLAP_COST);

        x->credit -= rare * EXCHANGE_OVERLAP_COST;
        x->flags |= (counts ^ rare) * EXCHANGE_UNPARSED;
        effect->overlap |= rare;
        effect->unparsed |= counts ^ rare;
}

/* Whether there is anything to record besides bytes and responses. */
EXCHANGE_INLINE int exchange_has_effect(const struct exchange_effect *effect) {
        return (effect->in_flight | effect->overlap | effect->unparsed) != 0;
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

/* Sets the positions of a connection: earlier data is not considered. Without this call, they are taken from
 * the first events. */
EXCHANGE_INLINE void exchange_begin(struct exchange *x, __u32 rcv_nxt, __u32 copied, __u32 snd_nxt) {
        x->in_end = rcv_nxt;
        x->read_end = copied;
        x->out_end = snd_nxt;
        x->flags |= EXCHANGE_IN_KNOWN | EXCHANGE_READ_KNOWN | EXCHANGE_OUT_KNOWN;
}

/* Payload has arrived. */
EXCHANGE_INLINE void exchange_arrive(struct exchange *x, __u64 now, const struct exchange_segment *s,
                                     struct exchange_effect *effect) {

        if (!(x->flags & EXCHANGE_IN_KNOWN)) {
                x->in_end = s->rcv_nxt;
                x->flags |= EXCHANGE_IN_KNOWN;
        }

        if ((x->flags & EXCHANGE_HOLE) && exchange_distance(s->rcv_nxt, x->hole_end) >= 0)
                x->flags &= ~EXCHANGE_HOLE;

        if (exchange_distance(s->end, x->in_end) <= 0) {
                /* Retransmitted or reordered. If it fills a hole, data after it could not be read before */
                if ((x->flags & EXCHANGE_HOLE) && x->n_marks > 0 &&
                    exchange_distance(s->end, s->rcv_nxt) > 0 && exchange_distance(s->seq, x->hole_end) < 0)
                        x->tail_at = now;
                return;
        }

        if (exchange_distance(s->end, s->window_end) > EXCHANGE_WINDOW_SLACK)
                return;

        if (exchange_distance(s->seq, x->in_end) > 0) {
                x->flags |= EXCHANGE_HOLE;
                x->hole_end = s->seq;
        }

        effect->bytes += s->end - x->in_end;
        x->in_end = s->end;
        x->flags &= ~EXCHANGE_FAREWELL;

        if (x->flags & EXCHANGE_DONE)
                return;

        exchange_mark(x, now, s->end);
        if (x->open_at == 0 && !(x->flags & EXCHANGE_LATE))
                exchange_open(x, now, effect);
}

/* A part of a request was received or sent. before: time of the previous part; alone: the previous part had
 * been read, and nothing else was pending. */
EXCHANGE_INLINE void exchange_note_part(struct exchange *x, __u64 now, __u64 before, __u32 length,
                                        int alone) {
        if (x->state != EXCHANGE_PENDING)
                return;
        if (alone && length <= EXCHANGE_MESSAGE_MAX)
                x->messages += x->messages < 2 * EXCHANGE_MESSAGES;
        else if (!alone || now <= before + EXCHANGE_MESSAGE_NSEC)
                x->messages -= x->messages > 0;
}

/* The application has read up to copied: drops marks before that. Returns false if there is nothing new.
 * ret_first_at, ret_last_at: arrival of the first and last byte read now, 0 if not seen. */
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
                        /* Partially read. If arrivals were merged, the time of the bytes read is unknown,
                         * and bounded by the beginning of the mark */
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

/* Messages that end a connection without a response, alone in a segment. bytes: first one least significant.
 * In other protocols the same bytes may be a request: if they get a response, it is counted. */
#define EXCHANGE_FAREWELL_MAX 8U

/* DISCONNECT of MQTT, since MQTT 5 possibly with a reason and without properties. Preceding data gets no
 * response either: mostly it is an unconfirmed message. */
EXCHANGE_INLINE int exchange_is_last_farewell(__u64 bytes, __u32 length) {
        return (length == 2 && bytes == 0x00e0) || (length == 3 && (bytes & 0xffff) == 0x01e0) ||
                (length == 4 && (bytes & 0xff00ffff) == 0x000002e0);
}

EXCHANGE_INLINE int exchange_is_farewell(__u64 bytes, __u32 length) {
        switch (length) {

        case 5: /* Terminate of PostgreSQL ("X" and length 4), COM_QUIT of MySQL (length 1 in three bytes,
                 * number 0, one command byte), last message of an rsync client: data of one byte, end of
                 * list */
                return bytes == 0x0400000058 || bytes == 0x0100000001 || bytes == 0x0007000001;
        case 6: /* "quit" in upper or lower case and CRLF: memcached, beanstalkd. Other protocols respond to
                 * it */
                return (bytes | 0x20202020) == 0x0a0d74697571;
        case 7: /* unbindRequest of LDAP: sequence of five bytes with a number of one byte */
                return (bytes & 0xffff00ffffffff) == 0x00420001020530;
        case 8: /* unbindRequest with a number of two bytes */
                return (bytes & 0xffff0000ffffffff) == 0x0042000002020630;
        case 12: /* COM_QUIT of MySQL with compression: length 5 in three bytes, a number, not compressed */
                return (bytes & 0xffffffff00ffffff) == 0x0100000000000005;
        case 16: /* CancelRequest of PostgreSQL: the server closes the connection without response */
                return bytes == 0x2e16d20410000000;
        case 28: /* NBD_CMD_DISC: magic number, flags, type 2 */
                return (bytes & 0xffff0000ffffffff) == 0x0200000013956025;
        default:
                return exchange_is_last_farewell(bytes, length);
        }
}

/* Other messages that have no response, alone in a segment. bytes: the first eight. Not recognizable within
 * TLS. */
EXCHANGE_INLINE int exchange_is_remark(__u64 bytes, __u32 length) {
        switch (length) {

        case 9: /* COM_STMT_CLOSE of MySQL (length 5, number 0, command, statement): many drivers send it
                 * after each query with arguments */
                return (bytes & 0xffffffffff) == 0x1900000005;
        case 39: /* replication feedback of PostgreSQL: standby status ('r') */
                return (bytes & 0xffffffffffff) == 0x722600000064;
        case 30: /* replication feedback of PostgreSQL: hot standby feedback ('h'), as CopyData ('d') with
                  * its length */
                return (bytes & 0xffffffffffff) == 0x681d00000064;
        default:
                return 0;
        }
}

/* Number of leading bytes that identify such messages in a segment of this length; 0: it is none of them. */
EXCHANGE_INLINE __u32 exchange_look(__u32 length) {
        if (length <= EXCHANGE_FAREWELL_MAX)
                return length;
        return length < 64 && (1ULL << 9 | 1ULL << 12 | 1ULL << 16 | 1ULL << 28 | 1ULL << 30 | 1ULL << 39) >>
                length & 1 ? 8 : 0;
}

/* Whether there is no request that arriving data may be part of. */
EXCHANGE_INLINE int exchange_is_idle(const struct exchange *x) {
        return x->state != EXCHANGE_PENDING && x->n_marks == 0;
}

/* Like exchange_arrive(), for data that is not a request. */
EXCHANGE_INLINE void exchange_arrive_unsolicited(struct exchange *x, __u64 now,
                                                 const struct exchange_segment *s,
                                                 struct exchange_effect *effect) {
        __u32 done = x->flags & EXCHANGE_DONE;

        x->flags |= EXCHANGE_DONE;
        exchange_arrive(x, now, s, effect);
        x->flags = (x->flags & ~EXCHANGE_DONE) | done;
        if (effect->bytes == 0) /* retransmitted, already handled */
                return;
        x->flags |= EXCHANGE_UNSOLICITED;
        /* The client has got its response: further data of the server is a stream without requests */
        if (x->state == EXCHANGE_RESPONDING) {
                x->state = EXCHANGE_IDLE;
                exchange_shut(x, effect);
        }
}

/* Snapshot of the marks, which may change concurrently. */
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

/* Arrival of the byte before this position; 0: not seen. last: if arrivals up to this position were merged,
 * returns that of the last one. */
EXCHANGE_INLINE __u64 exchange_when(const struct exchange_marks *m, __u32 position, int last) {
        for (int i = 0; i < EXCHANGE_MARKS; i++)
                if (i < (int) m->n && exchange_distance(position, m->end[i]) <= 0)
                        return last && position == m->end[i] && i == (int) m->n - 1 ? m->tail_at : m->at[i];
        return 0;
}

/* Arrival of all unread data before this position, if it arrived at once; otherwise 0. */
EXCHANGE_INLINE __u64 exchange_came_at_once(const struct exchange *x, __u32 position) {
        if (x->n_marks == 0 || exchange_distance(position, x->mark_end[0]) > 0)
                return 0;
        return x->n_marks > 1 || x->tail_at == x->mark_at[0] ? x->mark_at[0] : 0;
}

/* The application has read up to copied. unsent: bytes written by it but not sent. */
EXCHANGE_INLINE void exchange_read(struct exchange *x, __u64 now, __u32 copied, __u32 unsent,
                                   struct exchange_effect *effect) {
        __u64 first_at, last_at;

        if (!exchange_take(x, copied, &first_at, &last_at))
                return;
        if (x->flags & EXCHANGE_UNSOLICITED) {
                if (copied == x->in_end)
                        x->flags &= ~EXCHANGE_UNSOLICITED;
                if (first_at == 0 && x->state != EXCHANGE_PENDING)
                        return;
        }

        if (x->state != EXCHANGE_PENDING) {
                /* A new request. Data written before, but not sent yet, belongs to the previous response,
                 * and cannot be distinguished from the next one */
                if (x->state == EXCHANGE_RESPONDING && unsent > 0)
                        exchange_overlap(x, 1, effect);

                x->flags &= ~(EXCHANGE_ONE_WAY | EXCHANGE_LEFT);
                if (x->state == EXCHANGE_RESPONDING && first_at != 0 && first_at <= x->last_out_at)
                        x->flags |= EXCHANGE_LEFT;
                x->state = EXCHANGE_PENDING;
                x->messages = 0;
                x->first_at = first_at;
                x->last_at = 0;
        } else if (x->flags & EXCHANGE_LEFT && first_at > x->last_out_at) {
                /* The data read before got no response: either it was the rest of the previous request, and
                 * this is the next one; or there are two */
                x->flags &= ~EXCHANGE_LEFT;
                exchange_overlap(x, 1, effect);
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

/* Whether the request has waited for long enough to be considered one without response, on a connection
 * without any response so far. */
EXCHANGE_INLINE int exchange_is_ignored(const struct exchange *x, __u64 now) {
        return x->state == EXCHANGE_PENDING && x->n_marks == 0 && x->first_out_at == 0 && x->read_at != 0 &&
                now > (x->first_at ?: x->read_at) + EXCHANGE_PATIENCE_NSEC;
}

/* The application has read up to copied, and no part of it is a request. */
EXCHANGE_INLINE void exchange_pass(struct exchange *x, __u32 copied, struct exchange_effect *effect) {
        __u64 first_at, last_at;

        exchange_take(x, copied, &first_at, &last_at);
        if (x->state != EXCHANGE_PENDING && x->n_marks == 0)
                exchange_shut(x, effect);
}

/* Payload up to end is sent by the IP layer. Returns the number of bytes sent for the first time. */
EXCHANGE_INLINE __u32 exchange_leave(struct exchange *x, __u32 end, __u32 snd_nxt) {
        __u32 bytes;

        if (!(x->flags & EXCHANGE_OUT_KNOWN)) {
                x->out_end = snd_nxt;
                x->flags |= EXCHANGE_OUT_KNOWN;
        }

        if (exchange_distance(end, x->out_end) <= 0)
                return 0; /* retransmitted */
        bytes = end - x->out_end;
        x->out_end = end;
        return bytes;
}

/* A response begins. If the request is a stream of messages that lasts for EXCHANGE_SILENCE_NSEC or more,
 * the response belongs to the newest of them, and the others expect none. Branchless, since the verifier
 * would explore everything after a branch twice. */
EXCHANGE_INLINE void exchange_forget_messages(struct exchange *x) {
        __u64 lasts = x->last_at - x->first_at,
              stream = ~exchange_is_less(x->messages, EXCHANGE_MESSAGES) & (lasts >= EXCHANGE_SILENCE_NSEC);

        x->first_at += lasts * stream;
        x->messages = 0;
}

/* Payload up to end is sent, bytes of it for the first time. complete: everything written by the application
 * has been sent. */
EXCHANGE_INLINE void exchange_depart(struct exchange *x, __u64 now, __u32 bytes, int complete,
                                     struct exchange_effect *effect) {
        __u8 hidden, left;

        effect->bytes = bytes;

        if (x->flags & EXCHANGE_UNREAD) {
                /* Data has arrived since the last response */
                effect->overlap = x->in_end != x->read_end;
                x->read_end = x->in_end;
                return;
        }
        if (x->state == EXCHANGE_PENDING) {
                if (x->flags & EXCHANGE_ONE_WAY && x->first_out_at != 0 &&
                    now > x->read_at + EXCHANGE_SILENCE_NSEC)
                        return; /* an event, but the very first data is a response */
                x->flags &= ~EXCHANGE_ONE_WAY;
                x->state = EXCHANGE_RESPONDING;
                exchange_forget_messages(x);
                x->first_out_at = x->last_out_at = now;
                effect->begun = 1;
                /* The request arrived during the previous one, or is part of it, and its response
                 * continues */
                left = x->flags / EXCHANGE_LEFT & 1;
                exchange_overlap(x, left, effect);
                x->credit += (left ^ 1) & exchange_is_less(x->credit, EXCHANGE_CREDIT_MAX);
        } else if (x->state == EXCHANGE_RESPONDING) {
                if (x->open_at == 0 && now - x->last_out_at >= EXCHANGE_SILENCE_NSEC) {
                        x->flags |= EXCHANGE_PUSHED;
                        return; /* an event */
                }
                x->messages = x->open_at == 0 && bytes <= EXCHANGE_MESSAGE_MAX ? x->messages + 1 : 0;
                if (x->messages >= EXCHANGE_PUSHES && now - x->first_out_at >= EXCHANGE_SILENCE_NSEC)
                        return; /* next message of a stream; last_out_at is kept, so that later ones are
                                 * events */
                effect->grown = 1;
                effect->grown_from = x->last_out_at;
                x->last_out_at = now;
        } else
                return; /* the server speaks first: there was no request */

        hidden = x->flags / EXCHANGE_UNPARSED & 1;
        effect->overlap |= effect->begun & hidden;
        effect->begun &= hidden ^ 1;
        effect->grown &= hidden ^ 1;
        if (x->flags & EXCHANGE_REST && x->n_marks > 0) {
                exchange_unmark(x);
                x->flags = (x->flags & ~EXCHANGE_REST) | EXCHANGE_UNSOLICITED;
        }
        if (!complete)
                exchange_open(x, x->open_at ?: x->first_at ?: now, effect);
        else if (x->n_marks > 0)
                exchange_open(x, x->mark_at[0], effect);
        else
                exchange_shut(x, effect);
}

/* Whether data being sent may be an event instead of a response, if it was not triggered by the request.
 * waited: the client has waited for long enough to wait by intent. */
EXCHANGE_INLINE int exchange_may_push(const struct exchange *x, int waited) {
        if (!(x->flags & EXCHANGE_PUSHED))
                return waited && x->state == EXCHANGE_PENDING && !(x->flags & EXCHANGE_UNPARSED);
        return x->state == EXCHANGE_PENDING || (x->state == EXCHANGE_RESPONDING && x->open_at == 0);
}

enum exchange_push {
        EXCHANGE_PUSH_NONE,     /* a response */
        EXCHANGE_PUSH_EVENT,
        EXCHANGE_PUSH_FIRST,    /* the response to a request that was waiting by intent: of a subscription,
                                 * or of a worker that fetches work. The next data shows which */
};

/* Classifies data being sent. forwarded: it was triggered by something other than the request. awaited: the
 * client has waited for it by intent. */
EXCHANGE_INLINE enum exchange_push exchange_is_pushed(struct exchange *x, int forwarded, int awaited) {
        if (!(x->flags & EXCHANGE_PUSHED)) {
                if (!awaited)
                        return EXCHANGE_PUSH_NONE;
                x->flags |= EXCHANGE_PUSHED | EXCHANGE_AWAITED;
                return EXCHANGE_PUSH_FIRST;
        }
        if (x->flags & EXCHANGE_AWAITED && x->state == EXCHANGE_PENDING)
                x->flags &= forwarded ? ~EXCHANGE_AWAITED : ~(EXCHANGE_PUSHED | EXCHANGE_AWAITED);
        return forwarded ? EXCHANGE_PUSH_EVENT : EXCHANGE_PUSH_NONE;
}

/* Whether the data read was probably sent in reaction to an event. */
EXCHANGE_INLINE int exchange_is_reaction(const struct exchange *x) {
        return x->flags & EXCHANGE_PUSHED && x->state == EXCHANGE_PENDING && x->n_marks == 0;
}

/* An event is sent. Data that the client has sent since the last one expects no response. */
EXCHANGE_INLINE void exchange_push(struct exchange *x, __u32 bytes, struct exchange_effect *effect) {
        effect->bytes = bytes;
        x->state = EXCHANGE_RESPONDING;
        if (x->n_marks > 0)
                exchange_open(x, x->mark_at[0], effect);
        else
                exchange_shut(x, effect);
}

/* ---- client role ---- */

/* Requests in flight besides the one opened by exchange_request(). */
EXCHANGE_INLINE __u32 exchange_extra(const struct exchange *x) {
        return x->open_at != 0 && x->pending > 1 ? x->pending - 1 : 0;
}

/* Removes these from the requests in flight. */
EXCHANGE_INLINE void exchange_request_none(struct exchange *x, struct exchange_effect *effect) {
        effect->in_flight -= exchange_extra(x);
        x->pending = 0;
}

/* A part of a request is sent. Everything sent before the response is one request. Data sent to a peer that
 * has closed the connection is not a request. read_at: time of the last part. */
EXCHANGE_INLINE void exchange_request(struct exchange *x, __u64 now, struct exchange_effect *effect) {
        if (x->flags & EXCHANGE_DONE)
                return;
        if (x->state != EXCHANGE_PENDING) {
                x->state = EXCHANGE_PENDING;
                x->flags &= ~EXCHANGE_ONE_WAY;
                x->messages = 0;
                x->first_at = now;
                exchange_open(x, now, effect);
        } else if (x->open_at == 0 && x->flags & EXCHANGE_PIPED)
                exchange_open(x, now, effect);
        x->read_at = now;
}

/* Like exchange_request(), after a pause, or after messages that the peer received long before: continues a
 * request, or data that expects no response. */
EXCHANGE_INLINE void exchange_request_again(struct exchange *x, __u64 now, struct exchange_effect *effect) {
        if (x->state == EXCHANGE_PENDING && !(x->flags & (EXCHANGE_DONE | EXCHANGE_PIPED)) &&
            (now > x->read_at + EXCHANGE_SILENCE_NSEC || x->messages >= EXCHANGE_MESSAGES) &&
            (x->flags & EXCHANGE_ONE_WAY || now > x->first_at + EXCHANGE_PATIENCE_NSEC)) {
                x->flags |= EXCHANGE_ONE_WAY;
                x->first_at = now;
                exchange_request_none(x, effect);
                exchange_shut(x, effect);
        }
        exchange_request(x, now, effect);
}

/* n requests were found in the data sent. */
EXCHANGE_INLINE void exchange_request_more(struct exchange *x, __u64 now, __u32 n,
                                       struct exchange_effect *effect) {
        /* Opens a request, unless one is outstanding already */
        exchange_request(x, now, effect);
        effect->in_flight -= exchange_extra(x);
        x->pending += n;
        effect->in_flight += exchange_extra(x);
}

/* Several requests are outstanding without any response: responses are parsed from here on. rcv_nxt: end of
 * data received before. */
EXCHANGE_INLINE void exchange_pipe(struct exchange *x, __u32 rcv_nxt) {
        if (x->state != EXCHANGE_PENDING || x->flags & (EXCHANGE_DONE | EXCHANGE_PIPED))
                return;
        if (!(x->flags & EXCHANGE_IN_KNOWN))
                x->in_end = rcv_nxt;
        x->flags |= EXCHANGE_IN_KNOWN | EXCHANGE_PIPED;
        x->read_end = x->in_end;
        x->n_marks = 0;
}

/* Responses to n requests have begun to arrive. */
EXCHANGE_INLINE void exchange_piped(struct exchange *x, __u32 n, struct exchange_effect *effect) {
        effect->in_flight -= exchange_extra(x);
        x->pending -= n < x->pending ? n : x->pending;
        if (x->pending == 0)
                exchange_shut(x, effect);
        effect->in_flight += exchange_extra(x);
}

/* The application has read up to this position. end: it is the end of a response; lost: the parser has
 * failed. Returns 1 if nothing is outstanding or the parser has failed, so that the next request starts
 * anew. */
EXCHANGE_INLINE int exchange_pipe_read(struct exchange *x, __u32 position, int end, int lost,
                                       struct exchange_effect *effect) {
        __u64 first_at, last_at;

        x->flags |= EXCHANGE_READ_KNOWN;
        exchange_take(x, position, &first_at, &last_at);
        if (!lost && (!end || x->pending > 0 || x->n_marks > 0))
                return 0;
        exchange_request_none(x, effect);
        exchange_shut(x, effect);
        x->state = EXCHANGE_IDLE;
        x->flags &= ~EXCHANGE_PIPED;
        x->n_marks = 0;
        return 1;
}

/* Payload up to end has arrived at the IP layer, as for exchange_arrive(). The end of a response is unknown:
 * a request is in flight until its first byte. Returns the number of requests that got their response. */
EXCHANGE_INLINE __u32 exchange_receive_response(struct exchange *x, __u64 now, __u32 end, __u32 rcv_nxt,
                                                __u32 window_end, struct exchange_effect *effect) {
        __u32 n = 0, hidden = x->flags / EXCHANGE_UNPARSED & 1;

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
                return 0; /* closed by the unit: not read any more */
        if (x->flags & EXCHANGE_PIPED) {
                exchange_mark(x, now, end);
                return 0;
        }
        if (x->state == EXCHANGE_PENDING) {
                if (x->flags & EXCHANGE_ONE_WAY && now > x->read_at + EXCHANGE_SILENCE_NSEC)
                        return 0; /* not a response */
                x->state = EXCHANGE_RESPONDING;
                x->last_out_at = now;
                /* Requests parsed before the connection became unparsed are counted */
                hidden &= x->pending == 0;
                effect->begun = hidden ^ 1;
                effect->overlap |= hidden;
                x->credit += effect->begun & exchange_is_less(x->credit, EXCHANGE_CREDIT_MAX);
                n = x->pending > 1 ? x->pending : 1;
                exchange_request_none(x, effect);
                exchange_shut(x, effect);
        } else if (x->state == EXCHANGE_RESPONDING && now - x->last_out_at < EXCHANGE_SILENCE_NSEC) {
                effect->grown = hidden ^ 1;
                effect->grown_from = x->last_out_at;
                x->last_out_at = now;
        }
        return n;
}

/* Whether everything waiting for a response is older than the last response. */
EXCHANGE_INLINE int exchange_is_left(const struct exchange *x) {
        if (x->state == EXCHANGE_PENDING)
                return x->flags & EXCHANGE_LEFT;
        return x->state == EXCHANGE_RESPONDING && x->n_marks > 0 && x->mark_at[0] <= x->last_out_at;
}

/* The unit closes the connection (sends FIN), or it has ended (gone). pending: number of requests read
 * without any response byte sent; unsent: bytes written by the application but not sent. */
EXCHANGE_INLINE void exchange_end(struct exchange *x, int gone, __u32 pending, __u32 unsent,
                                  struct exchange_effect *effect) {
        /* Data that arrived before the last response was sent, and got no response, was part of that request
         * (a rejected body) */
        if (unsent == 0 && !(x->flags & (EXCHANGE_PARSED | EXCHANGE_H2)) && exchange_is_left(x)) {
                exchange_shut(x, effect);
                pending = 0;
        }
        if (x->flags & (EXCHANGE_FAREWELL | EXCHANGE_SESSION))
                exchange_shut(x, effect);
        if (x->open_at != 0 && (gone || (pending > 0 && unsent == 0))) {
                effect->unanswered = pending > 0 ? pending : 1;
                exchange_shut(x, effect);
        }

        x->flags |= EXCHANGE_DONE;
        /* Reading the rest does not make a request */
        if (gone)
                x->n_marks = 0;
}

EXCHANGE_INLINE __u64 exchange_between(__u64 from, __u64 to) {
        return to > from ? to - from : 0;
}
