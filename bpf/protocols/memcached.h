/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* The protocols of memcached: text, including meta commands, and binary.
 *
 * A request is a line, for some commands followed by a block of data whose length is in the line; or a
 * header of 24 bytes with a body. A response is a line; or lines up to "END", each possibly with a block of
 * data; or a header with a body, or several of them (STAT).
 *
 * Requests without a response ("noreply"), or with one only in some cases (the flag "q", the quiet opcodes),
 * are not counted. A binary response has the opcode of its request, which identifies responses to quiet
 * requests. In the text protocol this is only possible if "mn" follows the quiet requests: all lines up to
 * "MN" are then responses to these.
 *
 * The parser treats a line as memcached does, including invalid ones: the response to an invalid line is a
 * line. */

#include "parser.h"

/* Maximum length of data in memcached: INT_MAX - 2 */
#define MEMCACHED_LENGTH_MAX 0x7ffffffdU

#define MEMCACHED_REQUEST 0x80U
#define MEMCACHED_RESPONSE 0x81U
#define MEMCACHED_STAT 0x10U

/* Header up to and including the length of the body, and the rest of it: 4 bytes chosen by the client, and 8
 * of a version. */
#define MEMCACHED_HEADER_HEAD 12U
#define MEMCACHED_HEADER_TAIL 12U

/* GETQ, GETKQ; SETQ, ADDQ, REPLACEQ, DELETEQ, INCREMENTQ, DECREMENTQ, QUITQ, FLUSHQ, APPENDQ, PREPENDQ;
 * GATQ; GATKQ */
#define MEMCACHED_QUIET_OPCODES                                                                         \
        (1ULL << 0x09 | 1ULL << 0x0d | 0x3ffULL << 0x11 | 1ULL << 0x1e | 1ULL << 0x24)

enum memcached_state {
        MEMCACHED_START,
        MEMCACHED_WORD,         /* in the first word of a line */
        MEMCACHED_NAMED,        /* after that word, which ended with the byte in word_left; never between two
                                 * windows */
        MEMCACHED_ARGUMENTS,    /* in the other words, if they have a meaning for the parser */
        MEMCACHED_REST,         /* until the end of the line */
        MEMCACHED_BLOCK,        /* before the last byte of a block of data, the "\n" that follows it */
        MEMCACHED_NEXT,         /* before another line or header of the same response */
        MEMCACHED_HEADER,       /* in the first half of a header; index: number of bytes parsed */
        MEMCACHED_BODY,         /* before the last byte of the message */
};

/* Use of struct parser: of the first word of a line, word has the first eight letters, and number their
 * number; of other words, word has the last eight letters, index is the index of the word, and number the
 * length of the data. left: kind of the line (enum memcached_line). */
enum memcached_flag {
        MEMCACHED_KNOWN         = 1 << 0,       /* of requests: a valid one was parsed; kept between
                                                 * requests */
        MEMCACHED_BATCH         = 1 << 1,       /* of requests: quiet ones were parsed, and no "mn" since;
                                                 * kept between requests */
        MEMCACHED_NOREPLY       = 1 << 2,       /* of requests: the last word is "noreply" */
        MEMCACHED_QUIET         = 1 << 7,       /* of requests: possibly without response */
        MEMCACHED_TUNNEL        = 1 << 0,       /* of responses: to "watch" */
        MEMCACHED_BAD           = 1 << 3,       /* of both directions: an invalid number */
};

#define MEMCACHED_KEPT (MEMCACHED_KNOWN | MEMCACHED_BATCH)

/* Kind of a line, by its first word: minimum and maximum number of words including that one, and indices of
 * words with a meaning. */
#define MEMCACHED_WORDS(least, most) ((least) | (most) << 4)    /* most 15: unlimited */
#define MEMCACHED_DATA(word) ((word) << 8)                      /* the length of the data; 0: no data */
#define MEMCACHED_ENDS(word) ((word) << 12)                     /* "noreply" is valid from this word on;
                                                                 * 0: nowhere */
#define MEMCACHED_FLAGS(word) ((word) << 16)                    /* the flag "q" is valid from this word on;
                                                                 * 0: nowhere */

#define MEMCACHED_LEAST(line) ((line) & 15)
#define MEMCACHED_MOST(line) ((line) >> 4 & 15)
#define MEMCACHED_DATA_WORD(line) ((line) >> 8 & 15)
#define MEMCACHED_ENDS_WORD(line) ((line) >> 12 & 15)
#define MEMCACHED_FLAGS_WORD(line) ((line) >> 16 & 15)

enum memcached_line {
        MEMCACHED_DISTINCT         = 1 << 20,   /* of requests: specific to memcached */
        MEMCACHED_SILENT        = 1 << 21,      /* of requests: has no response */
        MEMCACHED_MN            = 1 << 22,      /* of requests: "mn"; of responses: "MN" */
        MEMCACHED_WATCH         = 1 << 23,      /* of requests: "watch", after which the server sends without
                                                 * requests */
        MEMCACHED_MORE          = 1 << 24,      /* of responses: not the last line */
        MEMCACHED_ALONE         = 1 << 25,      /* of responses: consists of this word alone */
        MEMCACHED_LAST          = 1 << 26,      /* of responses: any other last line */
        MEMCACHED_FAILS         = 1 << 27,      /* of responses: an error */
};

#define MEMCACHED_BYTES(byte) (0x0101010101010101ULL * (byte))

/* Number of bytes, out of eight with the first one least significant, before one that ends a word: a space
 * or a control character. */
static inline __attribute__((always_inline)) __u32 memcached_letters(__u64 word) {
        __u64 others = (word - MEMCACHED_BYTES(' ' + 1)) & ~word & MEMCACHED_BYTES(0x80);

        if (others == 0)
                return 8;
        /* Keeps the lowest bit of each byte before that one: their sum is the number of these bytes */
        others = (((others & -others) >> 7) - 1) & MEMCACHED_BYTES(1);
        return others * MEMCACHED_BYTES(1) >> 56;
}

/* For functions with the parameters word and length. */
#define MEMCACHED_IS(w) (length == sizeof(w) - 1 && \
                         word == WORD_OF(w, sizeof(w) - 1 < 8 ? sizeof(w) - 1 : 8))

/* Kind of a request by its first word. word: its first eight letters; length: of the whole word. 0: unknown
 * to memcached. */
PARSER_FUNCTION __u32 memcached_command(__u64 word, __u32 length) {
        if (MEMCACHED_IS("get") || MEMCACHED_IS("gets"))
                return MEMCACHED_WORDS(2, 15) | MEMCACHED_DISTINCT;
        if (MEMCACHED_IS("mg") || MEMCACHED_IS("md") || MEMCACHED_IS("ma"))
                return MEMCACHED_WORDS(2, 15) | MEMCACHED_FLAGS(2) | MEMCACHED_DISTINCT;
        if (MEMCACHED_IS("ms"))
                return MEMCACHED_WORDS(3, 15) | MEMCACHED_DATA(2) | MEMCACHED_FLAGS(3) | MEMCACHED_DISTINCT;
        if (MEMCACHED_IS("mn"))
                return MEMCACHED_WORDS(1, 15) | MEMCACHED_MN | MEMCACHED_DISTINCT;
        if (MEMCACHED_IS("set") || MEMCACHED_IS("add") || MEMCACHED_IS("replace") ||
            MEMCACHED_IS("append") || MEMCACHED_IS("prepend"))
                return MEMCACHED_WORDS(5, 6) | MEMCACHED_DATA(4) | MEMCACHED_ENDS(4) | MEMCACHED_DISTINCT;
        if (MEMCACHED_IS("cas"))
                return MEMCACHED_WORDS(6, 7) | MEMCACHED_DATA(4) | MEMCACHED_ENDS(5) | MEMCACHED_DISTINCT;
        if (MEMCACHED_IS("gat") || MEMCACHED_IS("gats"))
                return MEMCACHED_WORDS(3, 15) | MEMCACHED_DISTINCT;
        if (MEMCACHED_IS("incr") || MEMCACHED_IS("decr") || MEMCACHED_IS("touch"))
                return MEMCACHED_WORDS(3, 4) | MEMCACHED_ENDS(2) | MEMCACHED_DISTINCT;
        if (MEMCACHED_IS("delete"))
                return MEMCACHED_WORDS(2, 4) | MEMCACHED_ENDS(2) | MEMCACHED_DISTINCT;
        if (MEMCACHED_IS("quit") || MEMCACHED_IS("shutdown"))
                return MEMCACHED_WORDS(1, 15) | MEMCACHED_SILENT;
        if (MEMCACHED_IS("flush_all"))
                return MEMCACHED_WORDS(1, 3) | MEMCACHED_ENDS(1);
        if (MEMCACHED_IS("verbosity") || MEMCACHED_IS("cache_memlimit"))
                return MEMCACHED_WORDS(2, 15) | MEMCACHED_ENDS(1);
        if (MEMCACHED_IS("slabs"))
                return MEMCACHED_WORDS(1, 15) | MEMCACHED_ENDS(2);
        if (MEMCACHED_IS("watch"))
                return MEMCACHED_WORDS(1, 15) | MEMCACHED_ENDS(1) | MEMCACHED_WATCH;
        if (MEMCACHED_IS("version") || MEMCACHED_IS("stats") || MEMCACHED_IS("me") || MEMCACHED_IS("lru") ||
            MEMCACHED_IS("lru_crawler"))
                return MEMCACHED_WORDS(1, 15);
        return 0;
}

/* Kind of a line of a response. */
PARSER_FUNCTION __u32 memcached_result(__u64 word, __u32 length) {
        if (MEMCACHED_IS("VALUE"))
                return MEMCACHED_DATA(3) | MEMCACHED_MORE;
        if (MEMCACHED_IS("VA"))
                return MEMCACHED_DATA(1);
        if (MEMCACHED_IS("MN"))
                return MEMCACHED_MN | MEMCACHED_ALONE;
        if (MEMCACHED_IS("END") || MEMCACHED_IS("STORED") || MEMCACHED_IS("NOT_STORED") ||
            MEMCACHED_IS("EXISTS") || MEMCACHED_IS("NOT_FOUND") || MEMCACHED_IS("DELETED") ||
            MEMCACHED_IS("TOUCHED") || MEMCACHED_IS("OK") || MEMCACHED_IS("RESET"))
                return MEMCACHED_ALONE;
        if (MEMCACHED_IS("HD") || MEMCACHED_IS("EN") || MEMCACHED_IS("NF") || MEMCACHED_IS("NS") ||
            MEMCACHED_IS("EX") || MEMCACHED_IS("ME") || MEMCACHED_IS("ERROR") ||
            MEMCACHED_IS("CLIENT_ERROR") || MEMCACHED_IS("SERVER_ERROR") || MEMCACHED_IS("VERSION") ||
            MEMCACHED_IS("ERROR:") || MEMCACHED_IS("Error") || MEMCACHED_IS("BUSY") ||
            MEMCACHED_IS("BADCLASS") || MEMCACHED_IS("NOSPARE") || MEMCACHED_IS("NOTFULL") ||
            MEMCACHED_IS("UNSAFE") || MEMCACHED_IS("SAME"))
                return MEMCACHED_LAST;
        /* "stats", "stats cachedump", "stats detail dump", "lru_crawler mgdump" */
        if (MEMCACHED_IS("STAT") || MEMCACHED_IS("ITEM") || MEMCACHED_IS("PREFIX") || MEMCACHED_IS("mg"))
                return MEMCACHED_MORE;
        return 0;
}

PARSER_FUNCTION int memcached_is_error(__u64 word, __u32 length) {
        return MEMCACHED_IS("ERROR") || MEMCACHED_IS("CLIENT_ERROR") || MEMCACHED_IS("SERVER_ERROR");
}

/* Maximum length of the first word of a response: a number of 64 bits. */
#define MEMCACHED_RESULT_MAX 20U

/* Whether requests with this opcode have this number of bytes (extras) before the key. Requests with other
 * opcodes do not begin a memcached connection. */
static inline __attribute__((always_inline)) int memcached_is_request(__u32 opcode, __u32 extras) {
        switch (opcode) {

        case 0x01 ... 0x03: case 0x11 ... 0x13: /* SET, ADD, REPLACE */
                return extras == 8;
        case 0x05 ... 0x06: case 0x15 ... 0x16: /* INCREMENT, DECREMENT */
                return extras == 20;
        case 0x1c ... 0x1e: case 0x23 ... 0x24: /* TOUCH, GAT, GATK */
                return extras == 4;
        case 0x08: case 0x18: /* FLUSH */
                return extras == 0 || extras == 4;
        case 0x00: case 0x04: case 0x07: case 0x09 ... 0x10: case 0x14: case 0x17: case 0x19 ... 0x1a:
        case 0x20 ... 0x22:
                return extras == 0;
        }
        return 0;
}

#define MEMCACHED_KEY_MAX 250U

/* Detects memcached by the first word of the first line, or by the first third of the first header, to be
 * confirmed by the rest of the line and the response. beanstalkd has a "delete" with a number. */
PARSER_FUNCTION int memcached_detect(__u64 bytes, __u32 length) {
        __u64 word = __builtin_bswap64(bytes);
        __u32 n, command, next;

        if (word >> 56 == MEMCACHED_REQUEST)
                return length >= 8 && memcached_is_request(word >> 48 & 0xff, word >> 24 & 0xff) &&
                        (word >> 32 & 0xffff) <= MEMCACHED_KEY_MAX && (word & 0xffffff) == 0;

        n = memcached_letters(bytes);
        if (n == 0 || n >= 8 || n >= length)
                return 0;
        command = memcached_command(word >> 8 * (8 - n), n);
        if (!(command & MEMCACHED_DISTINCT))
                return 0;
        next = bytes >> 8 * n & 0xff;
        if (command & MEMCACHED_MN)
                return next == '\r' || next == '\n';
        if (next != ' ')
                return 0;
        next = word & 0xff;
        return n < 6 || word >> 16 != WORD_OF("delete", 6) || (length >= 8 && (next < '0' || next > '9'));
}

/* ---- lines ---- */

/* A word after the first one has ended. */
static inline __attribute__((always_inline)) void memcached_argument_end(struct parser *p) {
        if (p->word == 0)
                return;
        if (p->word == WORD_OF("noreply", 7))
                p->flags |= MEMCACHED_NOREPLY;
        else
                p->flags &= ~MEMCACHED_NOREPLY;
        p->word = 0;
        if (p->index < 255)
                p->index++;
}

static inline __attribute__((always_inline)) void memcached_digit(struct parser *p, __u32 byte) {
        if (byte < '0' || byte > '9' || p->number > MEMCACHED_LENGTH_MAX / 10)
                p->flags |= MEMCACHED_BAD;
        else
                p->number = p->number * 10 + (byte - '0');
}

/* A letter of a word after the first one. */
static inline __attribute__((always_inline)) void memcached_argument(struct parser *p, __u32 byte) {
        if (p->index == MEMCACHED_DATA_WORD(p->left))
                memcached_digit(p, byte);
        if (byte == 'q' && p->word == 0 && MEMCACHED_FLAGS_WORD(p->left) > 0 &&
            p->index >= MEMCACHED_FLAGS_WORD(p->left))
                p->flags |= MEMCACHED_QUIET;
        p->word = p->word << 8 | byte;
}

/* Parses the words of a line up to the end of the window, or a control character. Returns the position. */
PARSER_FUNCTION __u32 memcached_arguments(struct parser *p, const struct window *w, __u32 from, __u32 end) {
        __u32 at = from, n;
        __u64 word;

        if (!p || !w)
                return from;

        while (at < end && can_loop) {
                word = window_word_low(w, at);
                n = memcached_letters(word);
                /* The bytes after the end of the window are stale */
                if (n > end - at)
                        n = end - at;
                if (n == 0) {
                        __u32 byte = word & 0xff;

                        if (byte == ' ')
                                memcached_argument_end(p);
                        else if (byte != '\r')
                                break;
                        at++;
                } else if (n < 8 || p->index == MEMCACHED_DATA_WORD(p->left)) {
                        memcached_argument(p, word & 0xff);
                        at++;
                        if (n == 1 || p->index == MEMCACHED_DATA_WORD(p->left))
                                continue;
                        n--;
                        p->word = p->word << 8 * n | __builtin_bswap64(word >> 8) >> 8 * (8 - n);
                        at += n;
                } else {
                        if (p->word == 0)
                                memcached_argument(p, word & 0xff);
                        p->word = __builtin_bswap64(word);
                        at += 8;
                }
        }
        return at < end ? at : end;
}

/* ---- headers ---- */

/* Statuses of binary responses that are not failures: success, "key not found", "key exists", "item not
 * stored", and a step of an authentication. */
#define MEMCACHED_FINE_STATUSES (1ULL << 0x00 | 1ULL << 0x01 | 1ULL << 0x02 | 1ULL << 0x05 | 1ULL << 0x21)

/* Whether a response that begins with these bytes, zero-padded, is an error. */
static inline __attribute__((always_inline)) int memcached_is_failure(__u64 word) {
        __u32 opcode = word >> 48 & 0xff, status = word & 0xffff;

        if (word >> 56 == MEMCACHED_RESPONSE)
                return !(opcode < 64 && MEMCACHED_QUIET_OPCODES >> opcode & 1) &&
                       (status >= 64 || !(MEMCACHED_FINE_STATUSES >> status & 1));
        return word == WORD_OF("CLIENT_E", 8) || word == WORD_OF("SERVER_E", 8) ||
               word >> 16 == WORD_OF("ERROR\r", 6) || word >> 16 == WORD_OF("ERROR ", 6);
}

/* The first half of a header is complete. key: length of the key, and in the upper half the status of a
 * response. body: length of everything after the header. */
static inline __attribute__((always_inline)) __u32 memcached_header(struct parser *p, __u32 opcode,
                                                                    __u32 key, __u32 body, int responses) {
        __u32 status = key >> 16;
        int quiet = opcode < 64 && MEMCACHED_QUIET_OPCODES >> opcode & 1;

        if (responses) {
                if (!quiet)
                        p->flags &= ~PARSER_UNSOLICITED;
                p->left = opcode == MEMCACHED_STAT && (key & 0xffff) > 0 ? MEMCACHED_MORE : 0;
                if (status >= 64 || !(MEMCACHED_FINE_STATUSES >> status & 1))
                        p->left |= MEMCACHED_FAILS;
        } else
                p->flags |= MEMCACHED_KNOWN | (quiet ? MEMCACHED_QUIET : 0);
        p->state = MEMCACHED_BODY;
        if (body > MEMCACHED_LENGTH_MAX)
                return PARSED_LOST;
        p->skip = MEMCACHED_HEADER_TAIL + body - 1;
        return 0;
}

static inline __attribute__((always_inline)) __u32 memcached_header_byte(struct parser *p, __u32 byte,
                                                                         int responses) {
        p->word = p->word << 8 | byte;
        p->index++;
        if (p->index == 2) {
                p->word_left = byte;
                if (responses && !(byte < 64 && MEMCACHED_QUIET_OPCODES >> byte & 1))
                        p->flags &= ~PARSER_UNSOLICITED;
        } else if (p->index == 4)
                p->number = p->word & 0xffff;
        else if (p->index == 8)
                p->number |= (p->word & 0xffff) << 16;
        else if (p->index == MEMCACHED_HEADER_HEAD)
                return memcached_header(p, p->word_left, p->number, p->word, responses);
        return 0;
}

/* Parses the first half of a header that is in the window as a whole. */
static inline __attribute__((always_inline)) __u32 memcached_header_fast(struct parser *p,
                                                                         const struct window *w, __u32 at,
                                                                         int responses) {
        __u64 word = window_word(w, at);

        return memcached_header(p, word >> 48 & 0xff, (word >> 32 & 0xffff) | (word & 0xffff) << 16,
                                window_word(w, at + 8) >> 32, responses);
}

/* ---- requests ---- */

static inline __attribute__((always_inline)) void memcached_request_begin(struct parser *p) {
        p->word = 0;
        p->number = 0;
        p->left = 0;
        p->index = 0;
        p->flags &= MEMCACHED_KEPT;
}

/* The request is complete. */
static inline __attribute__((always_inline)) __u32 memcached_request_end(struct parser *p) {
        __u32 meaning = 0;

        p->state = MEMCACHED_START;
        if (p->flags & MEMCACHED_QUIET) {
                p->flags |= MEMCACHED_BATCH;
                return PARSED_END | PARSED_NOTHING;
        }
        if (p->left & MEMCACHED_SILENT)
                return PARSED_END | PARSED_NOTHING;
        if (p->left & MEMCACHED_WATCH)
                meaning = PARSED_TUNNEL;
        if (p->left & MEMCACHED_MN && p->flags & MEMCACHED_BATCH) {
                p->flags &= ~MEMCACHED_BATCH;
                meaning = PARSED_BARE;
        }
        return PARSED_END | meaning;
}

/* The line of a request is complete; it has index words. */
static inline __attribute__((always_inline)) __u32 memcached_request_line(struct parser *p) {
        __u32 line = p->left, words = p->index;

        if (line == 0 || words < MEMCACHED_LEAST(line) ||
            (words > MEMCACHED_MOST(line) && MEMCACHED_MOST(line) < 15)) {
                /* Too few words, or too many: the response is "ERROR" */
                p->left = 0;
                p->flags &= ~MEMCACHED_QUIET;
                return p->flags & MEMCACHED_KNOWN ? memcached_request_end(p) : PARSED_LOST;
        }
        if (MEMCACHED_ENDS_WORD(line) > 0 && words > MEMCACHED_ENDS_WORD(line) &&
            p->flags & MEMCACHED_NOREPLY)
                p->flags |= MEMCACHED_QUIET;
        if (p->flags & MEMCACHED_BAD) {
                /* The response is an error, sent at once, and no data follows. Meta commands get it even if
                 * quiet */
                if (MEMCACHED_FLAGS_WORD(line) > 0)
                        p->flags &= ~MEMCACHED_QUIET;
                return p->flags & MEMCACHED_KNOWN ? memcached_request_end(p) : PARSED_LOST;
        }
        p->flags |= MEMCACHED_KNOWN;
        if (MEMCACHED_DATA_WORD(line) == 0)
                return memcached_request_end(p);
        p->skip = p->number + 1;
        p->state = MEMCACHED_BLOCK;
        return 0;
}

PARSER_FUNCTION __u32 memcached_request_byte(struct parser *p, __u32 byte) {
        if (!p)
                return PARSED_LOST;

        switch (p->state) {

        case MEMCACHED_START:
                memcached_request_begin(p);
                if (byte == MEMCACHED_REQUEST) {
                        p->state = MEMCACHED_HEADER;
                        return memcached_header_byte(p, byte, 0);
                }
                p->state = MEMCACHED_WORD;
                /* fall through: to its first letter */
                __attribute__((fallthrough));

        case MEMCACHED_WORD:
                if (byte == '\r' || (byte == ' ' && p->number == 0))
                        return 0;
                if (byte == ' ' || byte == '\n') {
                        p->word_left = byte;
                        p->state = MEMCACHED_NAMED;
                        return 0;
                }
                if (p->number < 8)
                        p->word = p->word << 8 | byte;
                p->number++;
                return 0;

        case MEMCACHED_ARGUMENTS:
                if (byte == ' ' || byte == '\n') {
                        memcached_argument_end(p);
                        return byte == '\n' ? memcached_request_line(p) : 0;
                }
                if (byte == '\r')
                        return 0;
                memcached_argument(p, byte);
                return 0;

        case MEMCACHED_HEADER:
                return memcached_header_byte(p, byte, 0);
        }
        return PARSED_LOST;
}

PARSER_FUNCTION __u32 memcached_request_step(struct parser *p, const struct window *w, __u32 from,
                                             __u32 end) {
        __u32 at = from, meaning = 0, n;

        if (!p || !w || from >= end || end > WINDOW_SIZE)
                return PARSED_LOST;
        BPF_OPAQUE(end); /* otherwise the compiler omits bounds that the verifier needs */

        if (p->state == MEMCACHED_START) {
                n = memcached_letters(window_word_low(w, at));
                if (window_byte(w, at) == MEMCACHED_REQUEST) {
                        if (at + MEMCACHED_HEADER_HEAD <= end) {
                                memcached_request_begin(p);
                                meaning = memcached_header_fast(p, w, at, 0);
                                at += MEMCACHED_HEADER_HEAD;
                        }
                } else if (n > 0 && n < 8 && at + n < end) {
                        memcached_request_begin(p);
                        p->word = window_word(w, at) >> 8 * (8 - n);
                        p->number = n;
                        p->state = MEMCACHED_WORD;
                        at += n;
                }
        }
        if (p->state == MEMCACHED_ARGUMENTS)
                at = memcached_arguments(p, w, at, end);
        if (meaning == 0 && at < end && p->state != MEMCACHED_BLOCK && p->state != MEMCACHED_BODY)
                meaning = memcached_request_byte(p, window_byte(w, at++));
        if (p->state == MEMCACHED_NAMED) {
                p->left = p->number > 0 ? memcached_command(p->word, p->number) : 0;
                p->word = 0;
                p->index = p->number > 0;
                p->number = 0;
                p->state = MEMCACHED_ARGUMENTS;
                if (p->word_left == '\n')
                        meaning = memcached_request_line(p);
        }

        if (meaning == 0 && (p->state == MEMCACHED_BLOCK || p->state == MEMCACHED_BODY)) {
                at = window_skip(p, at, end);
                if (at < end) {
                        at++;
                        meaning = memcached_request_end(p);
                }
        }
        return PARSED(meaning, at - from, 0);
}

/* ---- responses ---- */

static inline __attribute__((always_inline)) void memcached_response_begin(struct parser *p) {
        p->word = 0;
        p->number = 0;
        p->left = 0;
        p->index = 0;
        if (p->state == MEMCACHED_START)
                p->flags = PARSER_UNSOLICITED; /* until it is known to be a response */
        p->flags &= ~MEMCACHED_BAD;
}

/* A line of a response, or a header and its body, is complete. */
static inline __attribute__((always_inline)) __u32 memcached_response_end(struct parser *p) {
        if (p->left & MEMCACHED_MORE) {
                p->state = MEMCACHED_NEXT;
                return 0;
        }
        p->state = MEMCACHED_START;
        if (p->flags & PARSER_UNSOLICITED)
                return PARSED_END | PARSED_NOTHING;
        return PARSED_END | (p->flags & MEMCACHED_TUNNEL ? PARSED_TUNNEL : 0) |
                (p->left & MEMCACHED_FAILS ? PARSED_ERROR : 0);
}

/* A line of a response is complete, without its data. */
static inline __attribute__((always_inline)) __u32 memcached_response_line(struct parser *p) {
        if (MEMCACHED_DATA_WORD(p->left) == 0)
                return memcached_response_end(p);
        if (p->flags & MEMCACHED_BAD || p->index <= MEMCACHED_DATA_WORD(p->left))
                return PARSED_LOST;
        p->skip = p->number + 1;
        p->state = MEMCACHED_BLOCK;
        return 0;
}

/* The first word of a response is complete. */
static inline __attribute__((always_inline)) __u32 memcached_response_word(struct parser *p, __u32 how) {
        __u32 line = memcached_result(p->word, p->number);

        if (line == 0) {
                /* The new value, in response to "incr" and "decr" */
                if (p->number == 0 || p->flags & MEMCACHED_BAD)
                        return PARSED_LOST;
                line = MEMCACHED_ALONE;
        }
        if (line & MEMCACHED_ALONE && p->word_left == ' ')
                return PARSED_LOST;

        /* Lines after quiet requests are responses to these, up to "MN". After "watch", if the server
         * accepts it, there are no requests */
        if (!(how & PROTOCOL_BARE) || line & MEMCACHED_MN)
                p->flags &= ~PARSER_UNSOLICITED;
        if (how & PROTOCOL_TUNNEL && p->number == 2 && p->word == WORD_OF("OK", 2))
                p->flags |= MEMCACHED_TUNNEL;
        p->flags &= ~MEMCACHED_BAD;
        if (line & MEMCACHED_LAST && memcached_is_error(p->word, p->number))
                line |= MEMCACHED_FAILS;
        p->left = line;
        p->word = 0;
        p->number = 0;
        p->index = 1;
        p->state = MEMCACHED_DATA_WORD(line) > 0 ? MEMCACHED_ARGUMENTS : MEMCACHED_REST;
        return p->word_left == '\n' ? memcached_response_line(p) : 0;
}

PARSER_FUNCTION __u32 memcached_response_byte(struct parser *p, __u32 byte, __u32 how) {
        if (!p)
                return PARSED_LOST;

        switch (p->state) {

        case MEMCACHED_START:
        case MEMCACHED_NEXT:
                memcached_response_begin(p);
                if (byte == MEMCACHED_RESPONSE) {
                        p->state = MEMCACHED_HEADER;
                        return memcached_header_byte(p, byte, 1);
                }
                p->state = MEMCACHED_WORD;
                /* fall through: to its first letter */
                __attribute__((fallthrough));

        case MEMCACHED_WORD:
                if (byte == ' ' || byte == '\r' || byte == '\n') {
                        p->word_left = byte;
                        p->state = MEMCACHED_NAMED;
                        return 0;
                }
                /* "lru_crawler metadump" */
                if (byte == '=' && p->number == 3 && p->word == WORD_OF("key", 3)) {
                        p->left = MEMCACHED_MORE;
                        if (!(how & PROTOCOL_BARE))
                                p->flags &= ~PARSER_UNSOLICITED;
                        p->state = MEMCACHED_REST;
                        return 0;
                }
                if (p->number >= MEMCACHED_RESULT_MAX)
                        return PARSED_LOST;
                if (byte < '0' || byte > '9')
                        p->flags |= MEMCACHED_BAD;
                if (p->number < 8)
                        p->word = p->word << 8 | byte;
                p->number++;
                return 0;

        case MEMCACHED_ARGUMENTS:
                if (byte == ' ' || byte == '\n') {
                        memcached_argument_end(p);
                        return byte == '\n' ? memcached_response_line(p) : 0;
                }
                if (byte == '\r')
                        return 0;
                memcached_argument(p, byte);
                return 0;

        case MEMCACHED_REST:
                return byte == '\n' ? memcached_response_line(p) : 0;

        case MEMCACHED_BLOCK:
                return byte == '\n' ? memcached_response_end(p) : PARSED_LOST;

        case MEMCACHED_HEADER:
                return memcached_header_byte(p, byte, 1);

        case MEMCACHED_BODY:
                return memcached_response_end(p);
        }
        return PARSED_LOST;
}

PARSER_FUNCTION __u32 memcached_response_step(struct parser *p, const struct window *w, __u32 from,
                                              __u32 end, __u32 how) {
        __u32 at = from, meaning = 0, n;

        if (!p || !w || from >= end || end > WINDOW_SIZE)
                return PARSED_LOST;
        BPF_OPAQUE(end); /* otherwise the compiler omits bounds that the verifier needs */

        if (p->state == MEMCACHED_START || p->state == MEMCACHED_NEXT) {
                __u64 word = window_word(w, at);

                n = memcached_letters(window_word_low(w, at));
                if (word >> 56 == MEMCACHED_RESPONSE) {
                        if (at + MEMCACHED_HEADER_HEAD <= end) {
                                memcached_response_begin(p);
                                meaning = memcached_header_fast(p, w, at, 1);
                                at += MEMCACHED_HEADER_HEAD;
                        }
                } else if (word >> 56 >= 'A' && n > 0 && n < 8 && at + n < end &&
                           word >> 32 != WORD_OF("key=", 4)) {
                        memcached_response_begin(p);
                        p->flags |= MEMCACHED_BAD;
                        p->word = word >> 8 * (8 - n);
                        p->number = n;
                        p->state = MEMCACHED_WORD;
                        at += n;
                }
        }
        if (p->state == MEMCACHED_ARGUMENTS)
                at = memcached_arguments(p, w, at, end);
        else if (p->state == MEMCACHED_REST)
                at = http_line_end(p, w, at, end) >> 1;
        if (meaning == 0 && p->state != MEMCACHED_BODY && at < end)
                meaning = memcached_response_byte(p, window_byte(w, at++), how);
        if (p->state == MEMCACHED_NAMED)
                meaning = memcached_response_word(p, how);
        if (meaning == 0 && p->skip > 0) {
                at = window_skip(p, at, end);
                if (at < end)
                        meaning = memcached_response_byte(p, window_byte(w, at++), how);
        } else if (meaning == 0 && p->state == MEMCACHED_BODY && at < end)
                meaning = memcached_response_byte(p, window_byte(w, at++), how);
        return PARSED(meaning, at - from, 0);
}
