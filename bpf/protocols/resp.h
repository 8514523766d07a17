/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* RESP, versions 2 and 3: the protocol of Redis, Valkey, KeyDB and other servers.
 *
 * A request is "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", or a line ("inline command"). A response is one value,
 * which may contain others to any depth. The parser keeps the number of remaining values, not their
 * structure. */

#include "parser.h"

/* Maximum number of arguments, and length of one (proto-max-bulk-len), in Redis. More is a protocol
 * error. */
#define RESP_NUMBER_MAX (512U * 1024 * 1024)

#define RESP_WORD_MAX 8U

enum resp_state {
        RESP_START,
        RESP_COUNT,             /* in "*N", the number of arguments or values */
        RESP_ARGUMENT,          /* before the "$" of an argument, or the type of a value */
        RESP_LENGTH,            /* in "$N" */
        RESP_WORD,              /* in the bytes of an argument with a meaning for the parser */
        RESP_AFTER,             /* before the "\n" that follows a string of given length */
        RESP_LINE,              /* until "\n" */
};

enum resp_flag {
        RESP_NEGATIVE   = 1 << 0,       /* the number has a "-" */
        RESP_DIGITS     = 1 << 1,       /* the number has a digit */
        RESP_PAIRS      = 1 << 2,       /* the number counts pairs (a map) */
        RESP_STRING     = 1 << 3,       /* the number is the length of a string */
        RESP_ATTRIBUTE  = 1 << 4,       /* or it counts attributes, pairs that precede a value */
        RESP_PUSH       = PARSER_UNSOLICITED, /* of a response: a push; of a request: subscribes to pushes */
        RESP_MAY_WAIT   = 1 << 6,       /* XREAD, XREADGROUP: with the argument BLOCK */
        RESP_WAITS      = 1 << 7,
        RESP_ERROR      = RESP_WAITS,   /* of a response: an error */
        RESP_REPLICA    = RESP_PUSH | RESP_WAITS, /* SYNC, PSYNC */
        /* Of requests, sharing bits with flags of responses; they outlive the command: */
        RESP_MUTE       = RESP_PAIRS,   /* no responses from now on (CLIENT REPLY OFF) */
        RESP_SKIP       = RESP_STRING,  /* no response to the next command (CLIENT REPLY SKIP) */
};

#define RESP_QUIET (RESP_MUTE | RESP_SKIP)

/* Flags that hold within one line */
#define RESP_LINE_FLAGS (RESP_NEGATIVE | RESP_DIGITS | RESP_PAIRS | RESP_STRING | RESP_ATTRIBUTE)
#define RESP_REQUEST_LINE_FLAGS (RESP_NEGATIVE | RESP_DIGITS)

/* Index of the name of CLIENT and REPLCONF, whose arguments have the following ones. In other commands the
 * name has index 0. */
#define RESP_INDEX_CLIENT 128
#define RESP_INDEX_MAX 255

/* Whether the next argument, of this length, has a meaning for the parser. */
static inline __attribute__((always_inline)) int resp_is_word(const struct parser *p, __u32 length) {
        if (p->index == 0)
                return length > 0;
        if (p->index > RESP_INDEX_CLIENT)
                return length > 0 && p->index <= RESP_INDEX_CLIENT + 2;
        return p->flags & RESP_MAY_WAIT && length == sizeof("BLOCK") - 1;
}

static inline __attribute__((always_inline)) int resp_detect(__u64 bytes, __u32 length) {
        __u32 second = bytes >> 8 & 0xff;

        /* Inline commands alone could be any line-based protocol */
        return length >= 2 && (bytes & 0xff) == '*' && second >= '1' && second <= '9';
}

/* Compares a word. word: its first eight letters, in capitals. length: of the whole word. */
#define RESP_IS(word, length, w)                                                                        \
        ((length) == sizeof(w) - 1 && (word) == WORD_OF(w, sizeof(w) - 1 < 8 ? sizeof(w) - 1 : 8))

/* Meaning of a command by its name. Names of more than eight letters differ in length. */
static inline __attribute__((always_inline)) __u32 resp_command(__u64 word, __u32 length) {
        if (RESP_IS(word, length, "BLPOP") || RESP_IS(word, length, "BRPOP") ||
            RESP_IS(word, length, "BLMOVE") ||
            RESP_IS(word, length, "BLMPOP") || RESP_IS(word, length, "BZMPOP") ||
            RESP_IS(word, length, "BZPOPMIN") ||
            RESP_IS(word, length, "BZPOPMAX") || RESP_IS(word, length, "BRPOPLPUSH") ||
            RESP_IS(word, length, "WAIT") ||
            RESP_IS(word, length, "WAITAOF"))
                return PARSED_WAITS;
        if (RESP_IS(word, length, "SUBSCRIBE") || RESP_IS(word, length, "PSUBSCRIBE") ||
            RESP_IS(word, length, "SSUBSCRIBE") ||
            RESP_IS(word, length, "MONITOR"))
                return PARSED_PUSHES;
        /* The primary responds when it begins to send its snapshot, and with an empty line each second until
         * then. After that it sends changes, and the replica its position, without responses */
        if (RESP_IS(word, length, "SYNC") || RESP_IS(word, length, "PSYNC"))
                return PARSED_TUNNEL;
        return 0;
}

#define RESP_BYTES(byte) (0x0101010101010101ULL * (byte))

/* Converts eight letters to capitals. */
static inline __attribute__((always_inline)) __u64 resp_capitals(__u64 word) {
        __u64 low = word & RESP_BYTES(0x7f), small;

        small = (low + RESP_BYTES(0x80 - 'a')) & ~(low + RESP_BYTES(0x7f - 'z')) & ~word & RESP_BYTES(0x80);
        return word - (small >> 2);
}

static inline __attribute__((always_inline)) __u32 resp_capital(__u32 byte) {
        return byte >= 'a' && byte <= 'z' ? byte - 'a' + 'A' : byte;
}

/* A byte of a number that extends to the end of the line. */
static inline __attribute__((always_inline)) __u32 resp_number_byte(struct parser *p, __u32 byte) {
        if (byte >= '0' && byte <= '9') {
                if (p->number > RESP_NUMBER_MAX / 10)
                        return PARSED_LOST;
                p->number = p->number * 10 + (byte - '0');
                p->flags |= RESP_DIGITS;
                return 0;
        }
        if (byte == '-' && !(p->flags & (RESP_DIGITS | RESP_NEGATIVE))) {
                p->flags |= RESP_NEGATIVE;
                return 0;
        }
        return byte == '\r' && (p->flags & RESP_DIGITS) ? 0 : PARSED_LOST;
}

static inline __attribute__((always_inline)) __u32 resp_request_end(struct parser *p, __u32 parsed) {
        __u32 quiet = p->flags & RESP_QUIET;

        if ((p->flags & RESP_REPLICA) == RESP_REPLICA)
                parsed |= PARSED_TUNNEL | PARSED_PUSHES | PARSED_WAITS;
        else if (p->flags & RESP_WAITS)
                parsed |= PARSED_WAITS;
        else if (p->flags & RESP_PUSH)
                parsed |= PARSED_PUSHES;
        if (quiet && !(parsed & PARSED_NOTHING)) {
                parsed |= PARSED_NOTHING;
                /* Applies to one command, and not to the one that sets it */
                if (p->index <= RESP_INDEX_CLIENT + 2)
                        quiet &= ~RESP_SKIP;
        }
        p->state = RESP_START;
        p->flags = quiet;
        return PARSED_END | parsed;
}

/* The word is complete. */
PARSER_FUNCTION int resp_request_word(struct parser *p) {
        __u32 meaning;

        if (!p)
                return 0;
        if (p->index == 0) {
                meaning = resp_command(p->word, p->number);
                if (meaning & PARSED_WAITS)
                        p->flags |= RESP_WAITS;
                if (meaning & PARSED_PUSHES)
                        p->flags |= RESP_PUSH;
                if (meaning & PARSED_TUNNEL)
                        p->flags |= RESP_REPLICA;
                if (RESP_IS(p->word, p->number, "XREAD") || RESP_IS(p->word, p->number, "XREADGROUP"))
                        p->flags |= RESP_MAY_WAIT;
                if (RESP_IS(p->word, p->number, "CLIENT") || RESP_IS(p->word, p->number, "REPLCONF"))
                        p->index = RESP_INDEX_CLIENT;
        } else if (p->index == RESP_INDEX_CLIENT + 1) {
                /* The position of a replica gets no response, like a command after CLIENT REPLY SKIP */
                if (RESP_IS(p->word, p->number, "ACK"))
                        p->flags |= RESP_SKIP;
                if (!RESP_IS(p->word, p->number, "REPLY"))
                        p->index = 1;
        } else if (p->index == RESP_INDEX_CLIENT + 2) {
                if (RESP_IS(p->word, p->number, "OFF"))
                        p->flags |= RESP_MUTE;
                else if (RESP_IS(p->word, p->number, "ON"))
                        p->flags &= ~RESP_QUIET;
                else if (RESP_IS(p->word, p->number, "SKIP") && !(p->flags & RESP_MUTE))
                        p->flags |= RESP_SKIP;
                else
                        p->index = 1;
        } else if (RESP_IS(p->word, p->number, "BLOCK"))
                p->flags |= RESP_WAITS;
        return 0;
}

/* The last byte of an argument. */
static inline __attribute__((always_inline)) __u32 resp_request_after(struct parser *p, __u32 byte) {
        if (byte != '\n')
                return PARSED_LOST;
        if (p->index < RESP_INDEX_MAX && p->index != RESP_INDEX_CLIENT - 1)
                p->index++;
        p->state = RESP_ARGUMENT;
        return --p->left == 0 ? resp_request_end(p, 0) : 0;
}

PARSER_FUNCTION __u32 resp_request_byte(struct parser *p, __u32 byte, __u32 how) {
        int named;
        __u32 r;

        if (!p)
                return PARSED_LOST;

        switch (p->state) {

        case RESP_START:
                p->word = 0;
                p->number = 0;
                p->index = 0;
                p->flags &= RESP_QUIET;
                if (byte == '*') {
                        p->state = RESP_COUNT;
                        return 0;
                }
                if (byte == '\n')
                        return PARSED_END | PARSED_NOTHING;
                if (byte == '\r') {
                        p->state = RESP_LINE; /* an empty line if number stays 0 */
                        return 0;
                }
                p->state = RESP_LINE;
                p->word = resp_capital(byte);
                p->number = 1;
                return 0;

        case RESP_COUNT:
                if (byte != '\n' || !(p->flags & RESP_DIGITS))
                        return resp_number_byte(p, byte);
                p->left = p->flags & RESP_NEGATIVE ? 0 : p->number;
                p->flags &= ~RESP_REQUEST_LINE_FLAGS;
                if (p->left == 0)
                        return resp_request_end(p, PARSED_NOTHING);
                p->state = RESP_ARGUMENT;
                return 0;

        case RESP_ARGUMENT:
                if (byte != '$')
                        return PARSED_LOST;
                p->number = 0;
                p->state = RESP_LENGTH;
                return 0;

        case RESP_LENGTH:
                if (byte != '\n' || !(p->flags & RESP_DIGITS)) {
                        r = resp_number_byte(p, byte);
                        return p->flags & RESP_NEGATIVE ? PARSED_LOST : r;
                }
                p->flags &= ~RESP_REQUEST_LINE_FLAGS;
                p->word = 0;
                if (resp_is_word(p, p->number)) {
                        p->word_left = p->number < RESP_WORD_MAX ? p->number : RESP_WORD_MAX;
                        p->state = RESP_WORD;
                        return 0;
                }
                p->skip = p->number + 1;
                p->state = RESP_AFTER;
                return 0;

        case RESP_WORD:
                p->word = p->word << 8 | resp_capital(byte);
                if (--p->word_left > 0)
                        return 0;
                named = p->index == 0 && how & PROTOCOL_NAMES;
                resp_request_word(p);
                p->skip = (p->number < RESP_WORD_MAX ? 0 : p->number - RESP_WORD_MAX) + 1;
                p->state = RESP_AFTER;
                return named ? PARSED_NAMED : 0;

        case RESP_AFTER:
                return resp_request_after(p, byte);

        case RESP_LINE:
                if (byte == '\n') {
                        if (p->number == 0)
                                return resp_request_end(p, PARSED_NOTHING);
                        if (p->index == 0)
                                resp_request_word(p);
                        return resp_request_end(p, 0);
                }
                if (byte == ' ' || byte == '\t' || byte == '\r') {
                        /* The name of the command has ended */
                        if (p->index == 0 && p->number > 0) {
                                resp_request_word(p);
                                p->index = 1;
                                return how & PROTOCOL_NAMES ? PARSED_NAMED : 0;
                        }
                        return 0;
                }
                if (p->index > 0)
                        return 0;
                if (p->number < RESP_WORD_MAX)
                        p->word = p->word << 8 | resp_capital(byte);
                p->number++;
                return 0;
        }

        return PARSED_LOST;
}

/* Parses a line "*N" or "$N" of up to three digits. word: its first eight bytes. Returns the length of the
 * line; 0: any other line. */
static inline __attribute__((always_inline)) __u32 resp_line(__u64 word, __u32 *ret_number) {
        __u32 a = (__u32) (word >> 48 & 0xff) - '0', b = (__u32) (word >> 40 & 0xff) - '0',
                c = (__u32) (word >> 32 & 0xff) - '0';

        if (a > 9)
                return 0;
        if ((word >> 32 & 0xffff) == WORD_OF("\r\n", 2)) {
                *ret_number = a;
                return 4;
        }
        if (b > 9)
                return 0;
        if ((word >> 24 & 0xffff) == WORD_OF("\r\n", 2)) {
                *ret_number = a * 10 + b;
                return 5;
        }
        if (c > 9 || (word >> 16 & 0xffff) != WORD_OF("\r\n", 2))
                return 0;
        *ret_number = a * 100 + b * 10 + c;
        return 6;
}

#define RESP_LINE_MAX 6U

/* Maximum number of lines in one step: few commands have more. */
#define RESP_LINES 4

/* Nearly all commands are arrays of short strings with a short name, which are parsed line by line. Others,
 * and lines that are only partly in the window, are parsed byte by byte. */
PARSER_FUNCTION __u32 resp_request_step(struct parser *p, const struct window *w, __u32 from, __u32 end,
                                        __u32 how) {
        __u32 at = from, number, length, meaning;
        int named;

        if (!p || !w || from >= end || end > WINDOW_SIZE)
                return PARSED_LOST;

        for (int i = 0; i < RESP_LINES && at + RESP_LINE_MAX <= end; i++) {
                __u64 word = window_word(w, at);

                length = resp_line(word, &number);
                if (length == 0)
                        break;

                if (p->state == RESP_START && word >> 56 == '*' && number > 0) {
                        p->index = 0;
                        p->flags &= RESP_QUIET;
                        p->left = number;
                        p->state = RESP_ARGUMENT;
                        at += length;
                        continue;
                }

                /* Commands of up to three letters have no meaning for the parser, but may be excluded by
                 * name */
                if (p->state != RESP_ARGUMENT || word >> 56 != '$' || at + length + number + 2 > end)
                        break;
                at += length;
                if (resp_is_word(p, number) && (p->index > 0 || number > 3 || how & PROTOCOL_NAMES)) {
                        named = p->index == 0 && how & PROTOCOL_NAMES;
                        p->word = resp_capitals(window_word(w, at));
                        if (number < RESP_WORD_MAX)
                                p->word >>= 8 * (RESP_WORD_MAX - number);
                        p->number = number;
                        resp_request_word(p);
                        if (named) {
                                p->skip = number + 1;
                                p->state = RESP_AFTER;
                                return PARSED(PARSED_NAMED, window_skip(p, at, end) - from, 0);
                        }
                }
                at += number + 2;
                meaning = resp_request_after(p, window_byte(w, at - 1));
                if (meaning != 0)
                        return PARSED(meaning, at - from, 0);
        }
        /* The window ends within the command: the next window begins here, and contains a short command as a
         * whole */
        if (how & PROTOCOL_MORE && from > 0 && window_byte(w, from) == '*' &&
            (p->state & ~RESP_ARGUMENT) == RESP_START) {
                p->state = RESP_START;
                return PARSED_NOTHING;
        }
        if (at > from)
                return PARSED(0, at - from, 0);

        meaning = resp_request_byte(p, window_byte(w, from), how);
        return PARSED(meaning, window_skip(p, from + 1, end) - from, 0);
}

/* Length of a header (RESP_SHAPE): three words are compared, of which the last may overlap the second */
#define RESP_HEADER_MIN 16U
#define RESP_HEADER_MAX 24U

/* Maximum number of messages at a time: the verifier walks each iteration */
#define RESP_ALIKE_MAX 16

/* Whether a message that ends here ends with "\n". */
static inline __attribute__((always_inline)) int resp_ends(const struct window *w, __u32 end) {
        __u32 last = end - 1;

        /* Otherwise the compiler omits the mask of window_byte(), which the verifier requires */
        BPF_OPAQUE(last);
        return window_byte(w, last) == '\n';
}

/* Shape of a plain command, equal for commands of the same name and lengths: length of the bytes that
 * precede its first argument, position of the line of the second argument (0: there is none), and length of
 * that line. 0: no shape. Returned in one word, so that the verifier does not walk the loop for each
 * case. */
#define RESP_SHAPE(header, second, line) ((header) | (second) << 10 | (line) << 20)
#define RESP_SHAPE_HEADER(r) ((r) & 0x3ff)
#define RESP_SHAPE_SECOND(r) ((r) >> 10 & 0x3ff)
#define RESP_SHAPE_LINE(r) ((r) >> 20)

PARSER_FUNCTION __u32 resp_get_shape(const struct window *w, __u32 at, __u32 length) {
        __u32 number, header, line, second;
        __u64 word;

        if (!w)
                return 0;
        word = window_word(w, at) >> 32;
        if (word != WORD_OF("*2\r\n", 4) && word != WORD_OF("*3\r\n", 4))
                return 0;
        line = resp_line(window_word(w, at + 4), &number);
        /* Their arguments have a meaning, too */
        if (line == 0 || number == sizeof("REPLCONF") - 1 || number == sizeof("CLIENT") - 1)
                return 0;
        header = 4 + line + number + 2;
        line = resp_line(window_word(w, at + header), &number);
        header += line;
        second = header + number + 2;
        if (line == 0 || header < RESP_HEADER_MIN || header > RESP_HEADER_MAX)
                return 0;
        if (word == WORD_OF("*2\r\n", 4))
                return second == length ? RESP_SHAPE(header, 0, 0) : 0;
        line = resp_line(window_word(w, at + second), &number);
        return line > 0 && second + line + number + 2 == length ? RESP_SHAPE(header, second, line) : 0;
}

/* Clients often repeat a command: takes the commands after one of this length and shape that have the same
 * lines, and hence the same name and arguments of the same lengths. */
PARSER_FUNCTION __u32 resp_take_alike(const struct window *w, __u32 from, __u32 end, __u32 length,
                                      __u32 shape) {
        __u32 header = RESP_SHAPE_HEADER(shape), second = RESP_SHAPE_SECOND(shape), n;
        __u64 mask, words[4];

        if (!w || shape == 0)
                return 0;
        mask = second > 0 ? ~0ULL >> ((64 - 8 * RESP_SHAPE_LINE(shape)) & 63) : 0;
        words[0] = window_word_low(w, from);
        words[1] = window_word_low(w, from + 8);
        words[2] = window_word_low(w, from + header - 8);
        words[3] = window_word_low(w, from + second);
        for (n = 0; n < RESP_ALIKE_MAX && from + 2 * length <= end; n++) {
                from += length;
                if (window_word_low(w, from) != words[0] || window_word_low(w, from + 8) != words[1] ||
                    window_word_low(w, from + header - 8) != words[2] ||
                    ((window_word_low(w, from + second) ^ words[3]) & mask) != 0 ||
                    !resp_ends(w, from + length))
                        break;
        }
        return PARSED(0, n * length, n);
}

/* Whether an error is a redirection, by which clusters distribute clients: not a failure. word: first eight
 * bytes of a response. */
static inline __attribute__((always_inline)) int resp_is_redirection(__u64 word) {
        return word >> 8 == WORD_OF("-MOVED ", 7) || word >> 24 == WORD_OF("-ASK ", 5);
}

/* Whether a response that begins with these bytes, zero-padded, is an error. */
static inline __attribute__((always_inline)) int resp_is_error(__u64 word) {
        return word >> 56 == '!' || (word >> 56 == '-' && !resp_is_redirection(word));
}

/* One value is complete. */
static inline __attribute__((always_inline)) __u32 resp_response_value(struct parser *p) {
        p->state = RESP_ARGUMENT;
        if (--p->left > 0)
                return 0;
        p->state = RESP_START;
        return PARSED_END | (p->flags & RESP_PUSH ? PARSED_NOTHING : 0) |
                (p->flags & RESP_ERROR ? PARSED_ERROR : 0);
}

PARSER_FUNCTION __u32 resp_response_byte(struct parser *p, __u32 byte) {
        __u64 n;

        if (!p)
                return PARSED_LOST;

        switch (p->state) {

        case RESP_START:
                p->left = 1;
                p->word = byte;
                p->flags = byte == '>' ? RESP_PUSH : byte == '-' || byte == '!' ? RESP_ERROR : 0;
                /* fall through: to its type */
                __attribute__((fallthrough));

        case RESP_ARGUMENT:
                p->number = 0;
                p->flags &= ~RESP_LINE_FLAGS;
                switch (byte) {

                case '+': case '-': case ':': case ',': case '#': case '(': case '_':
                        p->state = RESP_LINE;
                        return 0;

                case '$': case '=': case '!':
                        p->flags |= RESP_STRING;
                        break;

                case '%':
                        p->flags |= RESP_PAIRS;
                        break;

                case '|':
                        p->flags |= RESP_PAIRS | RESP_ATTRIBUTE;
                        break;

                case '*': case '~': case '>':
                        break;

                default:
                        return PARSED_LOST;
                }
                p->state = RESP_COUNT;
                return 0;

        case RESP_COUNT:
                if (byte != '\n' || !(p->flags & RESP_DIGITS))
                        return resp_number_byte(p, byte);
                if (p->flags & RESP_NEGATIVE) /* null */
                        return resp_response_value(p);
                if (p->flags & RESP_STRING) {
                        p->skip = p->number + 1;
                        p->state = RESP_AFTER;
                        return 0;
                }
                n = (__u64) p->left + ((__u64) p->number << !!(p->flags & RESP_PAIRS)) +
                    !!(p->flags & RESP_ATTRIBUTE);
                if (n > RESP_NUMBER_MAX)
                        return PARSED_LOST;
                p->left = n;
                return resp_response_value(p);

        case RESP_AFTER:
                return byte == '\n' ? resp_response_value(p) : PARSED_LOST;

        case RESP_LINE:
                if (byte != '\n') {
                        if (p->number < RESP_WORD_MAX - 1) {
                                p->word = p->word << 8 | byte;
                                p->number++;
                        }
                        return 0;
                }
                if (resp_is_redirection(p->word))
                        p->flags &= ~RESP_ERROR;
                return resp_response_value(p);
        }

        return PARSED_LOST;
}

/* Takes the responses after one of this length that have the same first line. line: number of bytes
 * compared: the whole response, or the line with the length of a string. */
PARSER_FUNCTION __u32 resp_take_alike_responses(const struct window *w, __u32 from, __u32 end, __u32 length,
                                                __u32 line) {
        __u64 mask, word;
        __u32 n;

        if (!w || line == 0 || line > 8)
                return 0;
        mask = ~0ULL >> (64 - 8 * line);
        word = window_word_low(w, from);
        for (n = 0; n < RESP_ALIKE_MAX && from + 2 * length <= end; n++) {
                from += length;
                if (((window_word_low(w, from) ^ word) & mask) != 0 || !resp_ends(w, from + length))
                        break;
        }
        return PARSED(0, n * length, n);
}

/* The most frequent responses are parsed as a whole: "+OK", null, strings of less than 1000 bytes. Others
 * are parsed byte by byte. */
PARSER_FUNCTION __u32 resp_response_step(struct parser *p, const struct window *w, __u32 from, __u32 end,
                                         __u32 how) {
        __u32 number = 0, length = 0, line = 0, meaning, alike;
        __u64 word = 0;

        if (!p || !w || from >= end || end > WINDOW_SIZE)
                return PARSED_LOST;

        /* Data after the response to SYNC looks like responses. Unless this response is an error, no request
         * follows, so its end does not matter */
        if (how & PROTOCOL_TUNNEL && p->state == RESP_START && window_byte(w, from) != '-')
                return PARSED(PARSED_END | PARSED_TUNNEL, 1U, 0);

        if (p->state == RESP_START && from + 5 <= end) {
                word = window_word(w, from);
                if (word >> 24 == WORD_OF("+OK\r\n", 5) || word >> 24 == WORD_OF("$-1\r\n", 5))
                        line = length = 5;
                else if (word >> 56 == '$' && from + RESP_LINE_MAX <= end) {
                        line = resp_line(word, &number);
                        length = line + number + 2;
                }
        }
        if (line > 0 && from + length <= end && resp_ends(w, from + length)) {
                p->flags = 0;
                alike = how & PROTOCOL_SINGLE ? 0 : resp_take_alike_responses(w, from, end, length, line);
                return PARSED(PARSED_END, length, 0) + alike;
        }
        if (line > 0) {
                p->left = 1;
                p->flags = 0;
                p->skip = number + 1;
                p->state = RESP_AFTER;
                return PARSED(0, window_skip(p, from + line, end) - from, 0);
        }

        meaning = resp_response_byte(p, window_byte(w, from));
        return PARSED(meaning, window_skip(p, from + 1, end) - from, 0);
}
