/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* What a parser of a protocol is. A parser tells where in a stream the messages end, of one direction each: the questions
 * in what the application reads, the answers in what leaves. It sees the stream through a window of some bytes, keeps its
 * place in struct parser from one window to the next, and may skip what means nothing to it. It never looks back.
 *
 * A parser for one more protocol is a file like resp.h and a line in each of the three functions at the end of this one.
 *
 * Pure: compiled for BPF, for the unit tests and for the fuzzers. */

#include <linux/types.h>

/* In BPF each is a function of its own, which the verifier walks once. */
#ifdef __bpf__
#define PARSER_FUNCTION __attribute__((noinline, weak))
#else
#define PARSER_FUNCTION static inline __attribute__((unused))
#endif

enum protocol {
        PROTOCOL_PLAIN,         /* none that is known: what comes until the unit answers is a question */
        PROTOCOL_REDIS,         /* RESP */
        PROTOCOLS,
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

/* In the flags of a message that leaves: it answers nothing, to be set with its first byte. */
#define PARSER_UNASKED (1 << 5)

/* What a byte meant. */
enum parsed {
        PARSED_END      = 1 << 0,       /* it was the last one of a message */
        PARSED_NOTHING  = 1 << 1,       /* … that is no question and no answer (an empty line, a push) */
        PARSED_WAITS    = 1 << 2,       /* … that asks the server to wait for something (BLPOP): its time says nothing of the server */
        PARSED_PUSHES   = 1 << 3,       /* … after which the server speaks unasked (SUBSCRIBE, MONITOR) */
        PARSED_LOST     = 1 << 4,       /* this is not the protocol, or the place in it is lost */
};

/* What a parser returns for the bytes of a window: how many it took, how many messages ended in them that are questions or
 * answers and nothing else, and what else the last one was that ended (enum parsed). */
#define PARSED(meaning, taken, messages) ((meaning) | (taken) << 8 | (messages) << 16)
#define PARSED_MEANING(r) ((r) & 0xff)
#define PARSED_TAKEN(r) ((r) >> 8 & 0xff)
#define PARSED_MESSAGES(r) ((r) >> 16)

/* What of the stream can be seen at a time. Loading it costs as much as parsing it, the more at once the better; it lies
 * in the storage of the connection, which is charged to the application. Eight bytes at a time may be read from any
 * place in it. */
#define WINDOW_SIZE 128U

struct window {
        __u8 bytes[WINDOW_SIZE + 8];
};

static inline __attribute__((always_inline)) __u32 window_byte(const struct window *w, __u32 at) {
        return w->bytes[at & (WINDOW_SIZE - 1)];
}

/* Eight bytes, the first one highest. */
static inline __attribute__((always_inline)) __u64 window_word(const struct window *w, __u32 at) {
        __u64 word;

#ifdef __bpf__
        /* Bytes are copied one by one, as clang knows of no alignment; all that run BPF load words from anywhere */
        word = *(const __u64*) (w->bytes + (at & (WINDOW_SIZE - 1)));
#else
        __builtin_memcpy(&word, w->bytes + (at & (WINDOW_SIZE - 1)), sizeof(word));
#endif
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        word = __builtin_bswap64(word);
#endif
        return word;
}

/* Takes what is to be skipped, as far as the window goes. */
static inline __attribute__((always_inline)) __u32 window_skip(struct parser *p, __u32 at, __u32 end) {
        __u32 n = at < end ? end - at : 0;

        if (n > p->skip)
                n = p->skip;
        p->skip -= n;
        return at + n;
}

#include "resp.h"

/* By the first bytes of a connection's first question. length: how many there are, at most 8 are in bytes, in their order
 * from the lowest bits up. */
PARSER_FUNCTION __u32 protocol_detect(__u64 bytes, __u32 length) {
        if (resp_detect(bytes, length))
                return PROTOCOL_REDIS;
        return PROTOCOL_PLAIN;
}

/* Each of both takes some bytes at … end of the window, at least one, and stops behind a message's end at the latest. */
static inline __attribute__((always_inline)) __u32 protocol_question_step(__u32 protocol, struct parser *p,
                                                                          const struct window *w, __u32 at, __u32 end) {
        if (protocol == PROTOCOL_REDIS)
                return resp_question_step(p, w, at, end);
        return PARSED_LOST;
}

static inline __attribute__((always_inline)) __u32 protocol_answer_step(__u32 protocol, struct parser *p,
                                                                        const struct window *w, __u32 at, __u32 end) {
        if (protocol == PROTOCOL_REDIS)
                return resp_answer_step(p, w, at, end);
        return PARSED_LOST;
}

/* Steps in one call: a window has room for so many short lines. */
#define PROTOCOL_STEPS 32

/* How to take them: beside the protocol */
#define PROTOCOL_ANSWERS (1U << 8)      /* of the direction in which answers go */
#define PROTOCOL_SINGLE (1U << 9)       /* one message at most */

/* The bytes at … end of a window. Stops early behind a message that is more than a question, or an answer. */
PARSER_FUNCTION __u32 protocol_take(__u32 how, struct parser *p, const struct window *w, __u32 from, __u32 end) {
        __u32 at = from, meaning = 0, messages = 0, protocol = how & 0xff, r;

        if (!p || !w)
                return PARSED_LOST;

        for (int i = 0; i < PROTOCOL_STEPS && at < end; i++) {
                r = how & PROTOCOL_ANSWERS ? protocol_answer_step(protocol, p, w, at, end) :
                        protocol_question_step(protocol, p, w, at, end);
                at += PARSED_TAKEN(r);
                meaning = PARSED_MEANING(r);
                if (meaning == PARSED_END) {
                        messages++;
                        meaning = 0;
                        if (how & PROTOCOL_SINGLE)
                                break;
                }
                if (meaning != 0)
                        break;
        }

        return PARSED(meaning, at - from, messages);
}
