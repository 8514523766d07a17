/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* A new protocol needs a file like resp.h, and a line in the functions of protocols.h. */

#include <linux/types.h>

#include "histogram.h"
#include "exclude-key.h"

/* Global functions in BPF, verified once. */
#ifdef __bpf__
#define PARSER_FUNCTION __attribute__((noinline, weak))
#else
#define PARSER_FUNCTION static inline __attribute__((unused))
#endif

enum protocol {
        PROTOCOL_PLAIN,         /* unknown: data received until the unit responds is a request */
        PROTOCOL_HTTP1,         /* HTTP/1.0 and 1.1 */
        PROTOCOL_REDIS,         /* RESP */
        PROTOCOL_MEMCACHED,     /* text and binary */
        PROTOCOL_DNS,           /* over TCP */
        PROTOCOLS,              /* number of sequential protocols; multiplexed ones are in http2.h */
        PROTOCOL_HTTP2 = PROTOCOLS,
        PROTOCOL_GRPC,          /* HTTP/2 with gRPC */
};

/* State of one direction of a connection. All zero: at the beginning of a message. */
struct parser {
        __u64 word;             /* private to the parser: first letters of a word */
        __u32 number;           /* private: number being parsed */
        __u32 left;             /* private: remaining parts of the message */
        __u32 skip;             /* bytes to be skipped */
        __u8 state;             /* private: state within the message; 0: before its first byte */
        __u8 index;             /* private: index of the part */
        __u8 word_left;
        __u8 flags;             /* flags of the message so far */
        __u16 length_at;        /* HTTP: position of the line with Content-Length in the window; 0:
                                 * unknown */
};

/* Flag of a request: complete enough for a response, and counted, although more of it is to come. */
#define PARSER_PENDING (1 << 4)
/* Flag of a response: not a response to a request, or not known yet. */
#define PARSER_UNSOLICITED (1 << 5)
/* Flag of a response: an infinite stream, such as server-sent events, with a duration that is up to the
 * sender. */
#define PARSER_STREAM (1 << 6)

/* Meaning of a byte. */
enum parsed {
        PARSED_END      = 1 << 0,       /* last one of a message */
        PARSED_NOTHING  = 1 << 1,       /* the message is neither request nor response (empty line, push) */
        PARSED_WAITS    = 1 << 2,       /* the message is a request that blocks by intent (BLPOP) */
        PARSED_PUSHES   = 1 << 3,       /* after the message, the server sends without requests (SUBSCRIBE,
                                         * MONITOR) */
        PARSED_LOST     = 1 << 4,       /* not the protocol, or the parser is lost */
        PARSED_BARE     = 1 << 5,       /* the response to the message has no body (HEAD) */
        PARSED_TUNNEL   = 1 << 6,       /* the message requests a stream without requests (CONNECT,
                                         * PSYNC), or is a response that begins one */
        PARSED_PENDING  = 1 << 7,       /* a request is complete enough for a response */
        PARSED_ERROR    = 1 << 7,       /* a response reports that its request failed (Redis, memcached) */
        PARSED_STREAM   = 1 << 8,       /* a response is known to be a stream */
        PARSED_NAMED    = 1 << 8,       /* the name of a request is complete, see protocol_name() */
};

/* Meaning of a response after which HTTP/2 follows, with the response to the same request on stream 1. */
#define PARSED_UPGRADE (PARSED_NOTHING | PARSED_TUNNEL | PARSED_BARE)

/* Return value of a parser: number of bytes taken, number of plain requests or responses that ended in them,
 * and the meaning of the last message that ended (enum parsed). */
#define PARSED(meaning, taken, messages) ((meaning) | (taken) << 10 | (messages) << 20)
#define PARSED_MEANING(r) ((r) & 0x3ff)
#define PARSED_TAKEN(r) ((r) >> 10 & 0x3ff)
#define PARSED_MESSAGES(r) ((r) >> 20)

/* Up to eight letters as returned by window_word(), right-aligned. */
#define WORD_LETTER(w, n, i) ((i) < (n) ? (__u64) (__u8) (w)[i] << 8 * ((n) - 1 - (i)) : 0)
#define WORD_OF(w, n)                                                                                   \
        (WORD_LETTER(w, n, 0) | WORD_LETTER(w, n, 1) | WORD_LETTER(w, n, 2) | WORD_LETTER(w, n, 3) |    \
         WORD_LETTER(w, n, 4) | WORD_LETTER(w, n, 5) | WORD_LETTER(w, n, 6) | WORD_LETTER(w, n, 7))

/* Flags beside the protocol. */
#define PROTOCOL_RESPONSES (1U << 8)    /* direction of responses */
#define PROTOCOL_SINGLE (1U << 9)       /* at most one message */
#define PROTOCOL_BARE (1U << 10)        /* the next response is to a request with PARSED_BARE */
#define PROTOCOL_TUNNEL (1U << 11)      /* the next response is to a request with PARSED_TUNNEL */
#define PROTOCOL_NAMES (1U << 12)       /* names of requests are needed */
#define PROTOCOL_MORE (1U << 13)        /* more data follows the window, which may be moved forward */

/* Part of the stream visible at a time. Loading costs as much as parsing, so larger is better; but the
 * window is in the storage of the connection, which is charged to the application. Eight bytes may be read
 * at any offset. */
#define WINDOW_SIZE 512U

struct window {
        __u8 bytes[WINDOW_SIZE + 8];
};

static inline __attribute__((always_inline)) __u32 window_byte(const struct window *w, __u32 at) {
        return w->bytes[at & (WINDOW_SIZE - 1)];
}

/* Eight bytes, first one least significant. */
static inline __attribute__((always_inline)) __u64 window_word_low(const struct window *w, __u32 at) {
        __u64 word;

#ifdef __bpf__
        /* clang would copy byte by byte for lack of alignment; BPF targets support unaligned loads */
        word = *(const __u64*) (w->bytes + (at & (WINDOW_SIZE - 1)));
#else
        __builtin_memcpy(&word, w->bytes + (at & (WINDOW_SIZE - 1)), sizeof(word));
#endif
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        word = __builtin_bswap64(word);
#endif
        return word;
}

/* Eight bytes, first one most significant. */
static inline __attribute__((always_inline)) __u64 window_word(const struct window *w, __u32 at) {
        return __builtin_bswap64(window_word_low(w, at));
}

/* Skips p->skip bytes, as far as the window reaches. Returns the new position. */
static inline __attribute__((always_inline)) __u32 window_skip(struct parser *p, __u32 at, __u32 end) {
        __u32 n = at < end ? end - at : 0;

        if (n > p->skip)
                n = p->skip;
        p->skip -= n;
        return at + n;
}
