/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* What a parser of a protocol is. A parser tells where in a stream the messages end, of one direction each:
 * the questions in what the application reads, the answers in what leaves. It sees the stream through a
 * window of some bytes, keeps its place in struct parser from one window to the next, and may skip what
 * means nothing to it. It never looks back.
 *
 * A parser for one more protocol is a file like resp.h, and a line in the functions of protocols.h.
 *
 * Pure: compiled for BPF, for the unit tests and for the fuzzers. */

#include <linux/types.h>

#include "histogram.h"
#include "exclude-key.h"

/* In BPF each is a function of its own, which the verifier walks once. */
#ifdef __bpf__
#define PARSER_FUNCTION __attribute__((noinline, weak))
#else
#define PARSER_FUNCTION static inline __attribute__((unused))
#endif

enum protocol {
        PROTOCOL_PLAIN,         /* none that is known: what comes until the unit answers is a question */
        PROTOCOL_HTTP1,         /* HTTP/1.0 and 1.1 */
        PROTOCOL_REDIS,         /* RESP */
        PROTOCOL_MEMCACHED,     /* text and binary */
        PROTOCOLS,              /* those whose messages come one after the other. In frames, see http2.h: */
        PROTOCOL_HTTP2 = PROTOCOLS,
        PROTOCOL_GRPC,          /* … that carries gRPC */
};

/* One direction of one connection. All zero: at the beginning of a message. */
struct parser {
        __u64 word;             /* the parser's own: the first letters of a word … */
        __u32 number;           /* … a number that is being read … */
        __u32 left;             /* … how many parts the message still has … */
        __u32 skip;             /* bytes to be skipped */
        __u8 state;             /* … where it is in the message, 0: before its first byte … */
        __u8 index;             /* … the number of the part … */
        __u8 word_left;
        __u8 flags;             /* … of the message so far */
};

/* In the flags of a question: it can be answered, and counts as asked, though its rest is still to come. */
#define PARSER_ASKED (1 << 4)
/* In the flags of an answer: it answers nothing, or that is not known yet … */
#define PARSER_UNASKED (1 << 5)
/* … it never is complete, as far as its sender knows: how long it takes says nothing (server-sent
 * events). */
#define PARSER_STREAM (1 << 6)

/* What a byte meant. */
enum parsed {
        PARSED_END      = 1 << 0,       /* it was the last one of a message */
        PARSED_NOTHING  = 1 << 1,       /* … that is no question and no answer (an empty line, a push) */
        PARSED_WAITS    = 1 << 2,       /* … that asks the server to wait for something (BLPOP): its time
                                         * says nothing of the server */
        PARSED_PUSHES   = 1 << 3,       /* … after which the server speaks unasked (SUBSCRIBE, MONITOR) */
        PARSED_LOST     = 1 << 4,       /* this is not the protocol, or the place in it is lost */
        PARSED_BARE     = 1 << 5,       /* … whose answer has no body (HEAD) */
        PARSED_TUNNEL   = 1 << 6,       /* … that asks for a stream without questions (CONNECT, PSYNC), or an
                                         * answer that begins one */
        PARSED_ASKED    = 1 << 7,       /* a question has come so far that it can be answered */
        PARSED_STREAM   = 1 << 8,       /* an answer has come so far that it is known to be a stream */
        PARSED_NAMED    = 1 << 8,       /* a question has come so far that it has a name, see
                                         * protocol_name() */
};

/* Of an answer: behind it there is HTTP/2, where the answer to the same question follows on stream 1. */
#define PARSED_UPGRADE (PARSED_NOTHING | PARSED_TUNNEL | PARSED_BARE)

/* What a parser returns for the bytes of a window: how many it took, how many messages ended in them that
 * are questions or answers and nothing else, and what else the last one was that ended (enum parsed). */
#define PARSED(meaning, taken, messages) ((meaning) | (taken) << 10 | (messages) << 20)
#define PARSED_MEANING(r) ((r) & 0x3ff)
#define PARSED_TAKEN(r) ((r) >> 10 & 0x3ff)
#define PARSED_MESSAGES(r) ((r) >> 20)

/* Up to eight letters as window_word() has them, behind each other at the lower end. */
#define WORD_LETTER(w, n, i) ((i) < (n) ? (__u64) (__u8) (w)[i] << 8 * ((n) - 1 - (i)) : 0)
#define WORD_OF(w, n)                                                                                   \
        (WORD_LETTER(w, n, 0) | WORD_LETTER(w, n, 1) | WORD_LETTER(w, n, 2) | WORD_LETTER(w, n, 3) |    \
         WORD_LETTER(w, n, 4) | WORD_LETTER(w, n, 5) | WORD_LETTER(w, n, 6) | WORD_LETTER(w, n, 7))

/* How messages are to be taken: beside the protocol. */
#define PROTOCOL_ANSWERS (1U << 8)      /* of the direction in which answers go */
#define PROTOCOL_SINGLE (1U << 9)       /* one message at most */
#define PROTOCOL_BARE (1U << 10)        /* the next answer is to a question with PARSED_BARE … */
#define PROTOCOL_TUNNEL (1U << 11)      /* … with PARSED_TUNNEL */
#define PROTOCOL_NAMES (1U << 12)       /* names of questions are wanted */

/* What of the stream can be seen at a time. Loading it costs as much as parsing it, the more at once the
 * better; it lies in the storage of the connection, which is charged to the application. Eight bytes at a
 * time may be read from any place in it. */
#define WINDOW_SIZE 256U

struct window {
        __u8 bytes[WINDOW_SIZE + 8];
};

static inline __attribute__((always_inline)) __u32 window_byte(const struct window *w, __u32 at) {
        return w->bytes[at & (WINDOW_SIZE - 1)];
}

/* Eight bytes, the first one lowest. */
static inline __attribute__((always_inline)) __u64 window_word_low(const struct window *w, __u32 at) {
        __u64 word;

#ifdef __bpf__
        /* Bytes are copied one by one, as clang knows of no alignment; all that run BPF load words from
         * anywhere */
        word = *(const __u64*) (w->bytes + (at & (WINDOW_SIZE - 1)));
#else
        __builtin_memcpy(&word, w->bytes + (at & (WINDOW_SIZE - 1)), sizeof(word));
#endif
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        word = __builtin_bswap64(word);
#endif
        return word;
}

/* … the first one highest. */
static inline __attribute__((always_inline)) __u64 window_word(const struct window *w, __u32 at) {
        return __builtin_bswap64(window_word_low(w, at));
}

/* Takes what is to be skipped, as far as the window goes. */
static inline __attribute__((always_inline)) __u32 window_skip(struct parser *p, __u32 at, __u32 end) {
        __u32 n = at < end ? end - at : 0;

        if (n > p->skip)
                n = p->skip;
        p->skip -= n;
        return at + n;
}
