/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* HTTP/1.0 and 1.1 (RFC 9112).
 *
 * A message consists of a start line, header fields, an empty line and a body, which ends after
 * Content-Length bytes, with the last chunk, or with the connection. For a response this also depends on the
 * request: a response to HEAD has no body. The parser evaluates Content-Length and Transfer-Encoding, of
 * responses also Content-Type and Upgrade, and searches other fields only for the end of their line. Lines
 * may end with a bare "\n", which servers accept.
 *
 * The head is parsed line by line, eight bytes at a time; a line that is split between windows is parsed
 * byte by byte, with the same result. */

#include "parser.h"

enum http_state {
        HTTP_START,
        HTTP_BLANK,             /* before the "\n" of an empty line in front of a request */
        HTTP_METHOD,
        HTTP_PATH,              /* in the part of the target that is the name of the request, if names are
                                 * needed */
        HTTP_TARGET,            /* until the end of the line, which ends with the version */
        HTTP_STATUS,            /* "HTTP/1.1 200" */
        HTTP_LINE,              /* at the beginning of a line of the head */
        HTTP_REST,              /* until the end of such a line */
        HTTP_EMPTY,             /* before the "\n" of the empty line that ends the head */
        HTTP_HEAD,              /* after the empty line; never between two windows */
        HTTP_NAME,              /* in the first eight letters of a field's name */
        HTTP_CONTENT,           /* after "Content-" */
        HTTP_TRANSFER,          /* after "Transfer" */
        HTTP_LENGTH,            /* in the value of Content-Length */
        HTTP_ENCODING,          /* of Transfer-Encoding */
        HTTP_TYPE,              /* of Content-Type */
        HTTP_UPGRADE,           /* of Upgrade */
        HTTP_BODY,              /* in a body of known length */
        HTTP_SIZE,              /* in the size of a chunk */
        HTTP_EXTENSION,         /* in a chunk extension, until the end of the line */
        HTTP_CHUNK,             /* in the bytes of a chunk */
        HTTP_AFTER,             /* before the "\n" after a chunk */
        HTTP_TRAILER,           /* at the beginning of a line after the last chunk */
        HTTP_TRAILER_REST,      /* until the end of such a line */
        HTTP_TRAILER_EMPTY,     /* before the "\n" of the empty line that ends the message */
        HTTP_CLOSE,             /* in a body that ends with the connection */
};

/* Use of struct parser: word and word_left have the letters of a word, or of the end of a line, and their
 * number. number (the lower half) and left have the remaining length, or the name so far (HTTP_PATH). index
 * is the class of the status of a response, 1 to 5; of a request, the number of directories of its path that
 * were reported with PARSED_NAMED. */
enum http_flag {
        HTTP_CHUNKED    = 1 << 0,
        HTTP_SIZED      = 1 << 1,       /* the length is known; of a chunk: its size has a digit */
        HTTP_CONNECT    = 1 << 2,       /* of a request: CONNECT */
        HTTP_ENCODED    = 1 << 2,       /* of a response: encoded such that it ends with the connection */
        HTTP_H2C        = 1 << 3,       /* of a response: HTTP/2 follows */
        HTTP_TUNNEL     = 1 << 4,       /* of a response: to CONNECT, or with status 101 */
        HTTP_BARE       = 1 << 7,       /* of a request: HEAD; of a response: no body */
};

/* Maximum length of a body: a larger number is invalid */
#define HTTP_LENGTH_MAX (1ULL << 60)

/* Maximum number of bytes to skip at once. One byte is parsed between two skips. */
#define HTTP_SKIP_MAX (1ULL << 30)

#define HTTP_METHOD_MAX 32U

#define HTTP_LOWER 0x2020202020202020ULL

static inline __attribute__((always_inline)) __u32 http_lower(__u32 byte) {
        return byte >= 'A' && byte <= 'Z' ? byte - 'A' + 'a' : byte;
}

/* Detects a request by its method: letters, and characters used in names of methods. The parser then checks
 * that the line ends with a version of HTTP. A first chunk that ends early is accepted if it matches so far.
 * "PRI *" is the preface of HTTP/2. Empty lines before a request are ignored, as servers do. */
static inline __attribute__((always_inline)) int http_detect(__u64 bytes, __u32 length) {
        int small = 0, connect, options;

        for (int i = 0; i < 2; i++)
                if ((bytes & 0xffff) == 0x0a0d && length > 2) {
                        bytes >>= 16;
                        length = (length < 8 ? length : 8) - 2;
                }
        connect = (bytes & 0xffffffffffffffULL) == __builtin_bswap64(WORD_OF("CONNECT", 7) << 8);
        options = (bytes & 0xffffffffffffffULL) == __builtin_bswap64(WORD_OF("OPTIONS", 7) << 8);

        for (__u32 i = 0; i < 8; i++) {
                __u32 c = bytes >> 8 * i & 0xff, next = i < 7 ? bytes >> 8 * (i + 1) & 0xff : 0;

                if (i >= length)
                        return i > 0 && !small;
                if ((c >= 'A' && c <= 'Z') || (i > 0 && (c == '-' || c == '_')))
                        continue;
                if (i > 0 && c >= 'a' && c <= 'z') {
                        small = 1;
                        continue;
                }
                if (c != ' ' || i < 3)
                        return 0;
                if (i + 1 >= length || i == 7)
                        return !small;
                return next == '/' || next == 'h' || next == 'H' || connect || options;
        }
        return !small;
}

static inline __attribute__((always_inline)) __u64 http_length(const struct parser *p) {
        return (__u64) p->left << 32 | p->number;
}

static inline __attribute__((always_inline)) void http_set_length(struct parser *p, __u64 n) {
        p->left = n >> 32;
        p->number = n;
}

/* The remaining bytes of a body can be skipped, except for the last one. */
static inline __attribute__((always_inline)) void http_body(struct parser *p) {
        __u64 n = http_length(p), skip = n - 1 < HTTP_SKIP_MAX ? n - 1 : HTTP_SKIP_MAX;

        p->skip = skip;
        http_set_length(p, n - skip);
        p->state = HTTP_BODY;
}

static inline __attribute__((always_inline)) void http_chunk(struct parser *p) {
        __u64 n = http_length(p), skip = n < HTTP_SKIP_MAX ? n : HTTP_SKIP_MAX;

        p->skip = skip;
        http_set_length(p, n - skip);
        p->state = n > skip ? HTTP_CHUNK : HTTP_AFTER;
}

static inline __attribute__((always_inline)) void http_size(struct parser *p) {
        http_set_length(p, 0);
        p->flags &= ~HTTP_SIZED;
        p->state = HTTP_SIZE;
}

/* The line with the size of a chunk has ended. */
static inline __attribute__((always_inline)) void http_sized(struct parser *p) {
        if (http_length(p) == 0)
                p->state = HTTP_TRAILER;
        else
                http_chunk(p);
}

static inline __attribute__((always_inline)) __u32 http_end(struct parser *p, __u32 meaning) {
        p->state = HTTP_START;
        p->flags = 0;
        return PARSED_END | meaning;
}

/* The head of a request is complete. ahead: number of bytes available after it. */
static inline __attribute__((always_inline)) __u32 http_request_head_end(struct parser *p, __u32 ahead) {
        __u32 meaning = 0;

        if (!(p->flags & PARSER_PENDING))
                meaning = (p->flags & HTTP_BARE ? PARSED_BARE : 0) |
                          (p->flags & HTTP_CONNECT ? PARSED_TUNNEL : 0);

        if (p->flags & HTTP_CHUNKED)
                http_size(p);
        else if (!(p->flags & HTTP_SIZED) || http_length(p) == 0)
                return http_end(p, meaning);
        else {
                int all = http_length(p) <= ahead;

                http_body(p);
                if (all && meaning == 0)
                        return 0;
        }

        if (p->flags & PARSER_PENDING)
                return 0;
        p->flags |= PARSER_PENDING;
        return PARSED_PENDING | meaning;
}

static inline __attribute__((always_inline)) __u32 http_response_head_end(struct parser *p) {
        if (p->index == 1 && p->flags & HTTP_TUNNEL)
                return http_end(p, p->flags & HTTP_H2C ? PARSED_UPGRADE : PARSED_TUNNEL);
        if (p->flags & PARSER_UNSOLICITED)
                return http_end(p, PARSED_NOTHING);
        if (p->flags & HTTP_TUNNEL && p->index == 2)
                return http_end(p, PARSED_TUNNEL);
        if (p->flags & HTTP_BARE)
                return http_end(p, 0);

        if (p->flags & HTTP_CHUNKED)
                http_size(p);
        else if (p->flags & HTTP_ENCODED || !(p->flags & HTTP_SIZED)) {
                p->skip = HTTP_SKIP_MAX;
                p->state = HTTP_CLOSE;
        } else if (http_length(p) == 0)
                return http_end(p, 0);
        else
                http_body(p);
        return p->flags & PARSER_STREAM ? PARSED_STREAM : 0;
}

/* Called in state HTTP_HEAD, after the empty line. A subprogram, for the sake of the verifier's limit of the
 * call depth. */
PARSER_FUNCTION __u32 http_head_end(struct parser *p, __u32 how, __u32 ahead) {
        if (!p)
                return PARSED_LOST;
        return how & PROTOCOL_RESPONSES ? http_response_head_end(p) : http_request_head_end(p, ahead);
}

static inline __attribute__((always_inline)) void http_target(struct parser *p, __u32 how) {
        p->word = 0;
        p->state = HTTP_TARGET;
        if (how & PROTOCOL_NAMES) {
                http_set_length(p, NAME_BEGIN);
                p->index = 0;
                p->state = HTTP_PATH;
        }
}

static inline __attribute__((always_inline)) __u32 http_method_end(struct parser *p, __u32 how) {
        if (p->word_left == 4 && p->word == WORD_OF("HEAD", 4))
                p->flags |= HTTP_BARE;
        if (p->word_left == 7 && p->word == WORD_OF("CONNECT", 7))
                p->flags |= HTTP_CONNECT;
        http_target(p, how);
        return 0;
}

/* The first line of a request ends; p->word has the last bytes before the "\n". */
static inline __attribute__((always_inline)) __u32 http_target_end(struct parser *p) {
        __u64 word = (p->word & 0xff) == '\r' ? p->word >> 8 : p->word & 0xffffffffffffffULL;

        /* "TTP/1.x": there is no space for the "H" of seven bytes and a "\r" */
        if ((word & 0xffffffffffffffULL) >> 8 != WORD_OF("TTP/1.", 6) || (word & 0xff) < '0' ||
            (word & 0xff) > '9')
                return PARSED_LOST;
        http_set_length(p, 0);
        p->state = HTTP_LINE;
        return 0;
}

/* The name is the path as written by the client, without the query string. */
static inline __attribute__((always_inline)) __u32 http_path_byte(struct parser *p, __u32 byte) {
        if (byte == '\n')
                return http_target_end(p);
        p->word = p->word << 8 | byte;
        if (byte == ' ' || byte == '?') {
                p->state = HTTP_TARGET;
                return PARSED_NAMED;
        }
        http_set_length(p, name_add(http_length(p), byte));
        if (byte != '/' || p->index >= NAME_DIRECTORIES)
                return 0;
        p->index++;
        return PARSED_NAMED;
}

/* how: flags about the request (PROTOCOL_BARE, PROTOCOL_TUNNEL). */
static inline __attribute__((always_inline)) __u32 http_status(struct parser *p, __u32 code, __u32 how) {
        if (code < 100)
                return PARSED_LOST;
        p->index = code / 100;
        if (code == 101)
                p->flags |= HTTP_TUNNEL; /* final response, or a switch to HTTP/2, which has the final one */
        if (code >= 200) {
                p->flags &= ~PARSER_UNSOLICITED;
                if (code == 204 || code == 304 || how & PROTOCOL_BARE)
                        p->flags |= HTTP_BARE;
                if (how & PROTOCOL_TUNNEL)
                        p->flags |= HTTP_TUNNEL;
        }
        p->number = 0;
        p->state = HTTP_REST;
        return 0;
}

static inline __attribute__((always_inline)) void http_value(struct parser *p, __u32 state) {
        p->word = 0;
        p->word_left = 0;
        p->state = state;
}

static inline __attribute__((always_inline)) __u32 http_length_begin(struct parser *p) {
        if (p->flags & HTTP_SIZED)
                return PARSED_LOST; /* a second Content-Length */
        http_set_length(p, 0);
        http_value(p, HTTP_LENGTH);
        return 0;
}

/* The last encoding decides. */
static inline __attribute__((always_inline)) __u32 http_encoding_end(struct parser *p, __u32 how) {
        p->state = HTTP_LINE;
        if (p->word_left == 0 || (p->word_left == 8 && p->word == WORD_OF("identity", 8)))
                return 0;
        if (p->word_left == 7 && p->word == WORD_OF("chunked", 7)) {
                p->flags |= HTTP_CHUNKED;
                if (how & PROTOCOL_RESPONSES)
                        p->flags &= ~HTTP_ENCODED;
                return 0;
        }
        if (!(how & PROTOCOL_RESPONSES))
                return PARSED_LOST;
        p->flags = (p->flags & ~HTTP_CHUNKED) | HTTP_ENCODED;
        return 0;
}

static inline __attribute__((always_inline)) int http_is_token(__u32 byte) {
        return byte > ' ' && byte < 0x7f && byte != ':' && byte != '"' && byte != '(' && byte != ')' &&
               byte != ',' && byte != '/' && byte != '{' && byte != '}' && byte != '@';
}

PARSER_FUNCTION __u32 http_byte(struct parser *p, __u32 byte, __u32 how) {
        __u64 n;

        if (!p)
                return PARSED_LOST;

        switch (p->state) {

        case HTTP_START:
                p->length_at = 0;
                p->word = 0;
                p->number = 0;
                p->left = 0;
                p->index = 0;
                p->word_left = 0;
                if (how & PROTOCOL_RESPONSES) {
                        p->flags = PARSER_UNSOLICITED; /* until it is complete */
                        p->word = byte;
                        p->word_left = 1;
                        p->state = HTTP_STATUS;
                        return 0;
                }
                p->flags = 0;
                if (byte == '\n')
                        return PARSED_END | PARSED_NOTHING;
                if (byte == '\r') {
                        p->state = HTTP_BLANK;
                        return 0;
                }
                p->state = HTTP_METHOD;
                /* fall through: to its first letter */
                __attribute__((fallthrough));

        case HTTP_METHOD:
                if (byte == ' ' && p->word_left > 0)
                        return http_method_end(p, how);
                if (!http_is_token(byte) || p->word_left >= HTTP_METHOD_MAX)
                        return PARSED_LOST;
                p->word = p->word << 8 | byte;
                p->word_left++;
                return 0;

        case HTTP_BLANK:
                if (byte != '\n')
                        return PARSED_LOST;
                return http_end(p, PARSED_NOTHING);

        case HTTP_PATH:
                return http_path_byte(p, byte);

        case HTTP_TARGET:
                if (byte == '\n')
                        return http_target_end(p);
                p->word = p->word << 8 | byte;
                return 0;

        case HTTP_STATUS:
                if (p->word_left >= 9) {
                        if (byte < '0' || byte > '9')
                                return PARSED_LOST;
                        p->number = p->number * 10 + (byte - '0');
                        return ++p->word_left == 12 ? http_status(p, p->number, how) : 0;
                }
                p->word_left++;
                if (p->word_left == 9)
                        return byte == ' ' ? 0 : PARSED_LOST;
                p->word = p->word << 8 | byte;
                if (p->word_left == 8 && (p->word >> 8 != WORD_OF("HTTP/1.", 7) || byte < '0' || byte > '9'))
                        return PARSED_LOST;
                return 0;

        case HTTP_LINE:
                if (byte == '\r') {
                        p->state = HTTP_EMPTY;
                        return 0;
                }
                if (byte == '\n') {
                        p->state = HTTP_HEAD;
                        return 0;
                }
                p->word = http_lower(byte);
                p->word_left = 1;
                /* The continuation of a folded line is ignored */
                p->state = byte == ' ' || byte == '\t' ? HTTP_REST : HTTP_NAME;
                return 0;

        case HTTP_EMPTY:
                if (byte != '\n')
                        return PARSED_LOST;
                p->state = HTTP_HEAD;
                return 0;

        case HTTP_REST:
                if (byte == '\n')
                        p->state = HTTP_LINE;
                return 0;

        case HTTP_NAME:
                if (byte == '\n') {
                        p->state = HTTP_LINE;
                        return 0;
                }
                p->word = p->word << 8 | http_lower(byte);
                if (++p->word_left < 8)
                        return 0;
                if (p->word == WORD_OF("content-", 8))
                        p->state = HTTP_CONTENT;
                else if (p->word == WORD_OF("transfer", 8))
                        p->state = HTTP_TRANSFER;
                else if (p->word == WORD_OF("upgrade:", 8) && how & PROTOCOL_RESPONSES)
                        http_value(p, HTTP_UPGRADE);
                else
                        p->state = HTTP_REST;
                return 0;

        case HTTP_CONTENT:
        case HTTP_TRANSFER:
                if (byte == '\n') {
                        p->state = HTTP_LINE;
                        return 0;
                }
                p->word = p->word << 8 | http_lower(byte);
                p->word_left++;
                if (p->state == HTTP_CONTENT && p->word_left == 13 && how & PROTOCOL_RESPONSES &&
                    (p->word & 0xffffffffffULL) == WORD_OF("type:", 5))
                        http_value(p, HTTP_TYPE);
                else if (p->state == HTTP_CONTENT && p->word_left == 15) {
                        if ((p->word & 0xffffffffffffffULL) == WORD_OF("length:", 7))
                                return http_length_begin(p);
                        p->state = HTTP_REST;
                } else if (p->word_left == 16 && p->word != WORD_OF("-encodin", 8))
                        p->state = HTTP_REST;
                else if (p->word_left == 18) {
                        if ((p->word & 0xffff) == WORD_OF("g:", 2))
                                http_value(p, HTTP_ENCODING);
                        else
                                p->state = HTTP_REST;
                }
                return 0;

        case HTTP_LENGTH:
                if (byte >= '0' && byte <= '9') {
                        n = http_length(p) * 10 + (byte - '0');
                        if (p->word_left == 2 || n > HTTP_LENGTH_MAX)
                                return PARSED_LOST;
                        http_set_length(p, n);
                        p->word_left = 1;
                        p->flags |= HTTP_SIZED;
                        return 0;
                }
                if (byte == ' ' || byte == '\t' || byte == '\r') {
                        if (p->word_left > 0)
                                p->word_left = 2; /* the number has ended */
                        return 0;
                }
                if (byte != '\n' || p->word_left == 0)
                        return PARSED_LOST;
                p->state = HTTP_LINE;
                return 0;

        case HTTP_ENCODING:
                if (byte == '\n')
                        return http_encoding_end(p, how);
                if (byte == ' ' || byte == '\t' || byte == '\r')
                        return 0;
                if (byte == ',') {
                        p->word = 0;
                        p->word_left = 0;
                        return 0;
                }
                p->word = p->word << 8 | http_lower(byte);
                if (p->word_left < 255)
                        p->word_left++;
                return 0;

        case HTTP_TYPE:
        case HTTP_UPGRADE:
                if (byte == '\n') {
                        p->state = HTTP_LINE;
                        return 0;
                }
                if (p->word_left == 0 && (byte == ' ' || byte == '\t'))
                        return 0;
                p->word = p->word << 8 | http_lower(byte);
                p->word_left++;
                if (p->state == HTTP_UPGRADE) {
                        if (p->word_left < 3)
                                return 0;
                        if (p->word == WORD_OF("h2c", 3))
                                p->flags |= HTTP_H2C;
                        p->state = HTTP_REST;
                        return 0;
                }
                /* "text/event-stream", "multipart/x-mixed-replace" */
                if (p->word_left == 8 && p->word != WORD_OF("text/eve", 8) &&
                    p->word != WORD_OF("multipar", 8))
                        p->state = HTTP_REST;
                if (p->word_left < 16)
                        return 0;
                if (p->word == WORD_OF("nt-strea", 8) || p->word == WORD_OF("t/x-mixe", 8))
                        p->flags |= PARSER_STREAM;
                p->state = HTTP_REST;
                return 0;

        case HTTP_BODY:
                n = http_length(p) - 1;
                if (n == 0)
                        return http_end(p, 0);
                http_set_length(p, n);
                http_body(p);
                return 0;

        case HTTP_SIZE:
                n = byte >= '0' && byte <= '9' ? byte - '0' : http_lower(byte) >= 'a' &&
                    http_lower(byte) <= 'f' ?
                        http_lower(byte) - 'a' + 10 : 16;
                if (n < 16) {
                        n |= http_length(p) << 4;
                        if (n > HTTP_LENGTH_MAX)
                                return PARSED_LOST;
                        http_set_length(p, n);
                        p->flags |= HTTP_SIZED;
                        return 0;
                }
                if (!(p->flags & HTTP_SIZED))
                        return PARSED_LOST;
                if (byte == '\n') {
                        http_sized(p);
                        return 0;
                }
                if (byte != '\r' && byte != ';' && byte != ' ' && byte != '\t')
                        return PARSED_LOST;
                p->state = HTTP_EXTENSION;
                return 0;

        case HTTP_EXTENSION:
                if (byte == '\n')
                        http_sized(p);
                return 0;

        case HTTP_CHUNK:
                http_set_length(p, http_length(p) - 1);
                if (http_length(p) == 0)
                        p->state = HTTP_AFTER;
                else
                        http_chunk(p);
                return 0;

        case HTTP_AFTER:
                if (byte == '\n')
                        http_size(p);
                return byte == '\n' || byte == '\r' ? 0 : PARSED_LOST;

        case HTTP_TRAILER:
                if (byte == '\n')
                        return http_end(p, 0);
                p->state = byte == '\r' ? HTTP_TRAILER_EMPTY : HTTP_TRAILER_REST;
                return 0;

        case HTTP_TRAILER_REST:
                if (byte == '\n')
                        p->state = HTTP_TRAILER;
                return 0;

        case HTTP_TRAILER_EMPTY:
                return byte == '\n' ? http_end(p, 0) : PARSED_LOST;

        case HTTP_CLOSE:
                p->skip = HTTP_SKIP_MAX;
                return 0;
        }
        return PARSED_LOST;
}

#define HTTP_BYTES(byte) (0x0101010101010101ULL * (byte))

/* The highest bit of each byte that is a "\n". */
static inline __attribute__((always_inline)) __u64 http_line_feeds(__u64 word) {
        __u64 x = word ^ HTTP_BYTES('\n');

        return ~(((x & HTTP_BYTES(0x7f)) + HTTP_BYTES(0x7f)) | x) & HTTP_BYTES(0x80);
}

/* Advances to the "\n" that ends the line, or to the end of the window. Keeps the last bytes in p->word.
 * Returns the new position times two, plus 1 if it is at a "\n". */
PARSER_FUNCTION __u32 http_line_end(struct parser *p, const struct window *w, __u32 from, __u32 end) {
        __u32 at = from, n = 0;
        __u64 word, feeds = 0;

        if (!p || !w)
                return 0;

        while (at + 8 <= end && can_loop) {
                word = window_word(w, at);
                feeds = http_line_feeds(word);
                if (feeds != 0)
                        break;
                p->word = word;
                at += 8;
        }
        if (at >= end)
                return at << 1;

        /* The last bytes of the window, followed by remains of earlier data */
        word = window_word(w, at);
        if (feeds == 0)
                feeds = http_line_feeds(word);
        if (feeds == 0)
                n = 8;
        else {
                if (!(feeds >> 32)) {
                        feeds <<= 32;
                        n += 4;
                }
                if (!(feeds >> 48)) {
                        feeds <<= 16;
                        n += 2;
                }
                if (!(feeds >> 56))
                        n += 1;
        }
        if (n > end - at)
                n = end - at;
        if (n > 0 && n < 8)
                p->word = p->word << 8 * n | word >> 8 * (8 - n);
        at += n;
        return at << 1 | (at < end);
}

/* First four letters, in lower case, of the name of a field that is evaluated, as returned by
 * window_word_low(). */
#define HTTP_FIELD(letters) ((__u32) __builtin_bswap32(WORD_OF(letters, 4)))

/* Skips lines that are not evaluated, up to the beginning of one that may be, or the end of the window.
 * Returns the new position. */
PARSER_FUNCTION __u32 http_lines(struct parser *p, const struct window *w, __u32 from, __u32 end) {
        __u32 at = from, state, first, field;
        __u64 word, feeds;

        if (!p || !w)
                return from;

        state = p->state;
        while (at < end && can_loop) {
                word = window_word_low(w, at);
                if (state == HTTP_LINE) {
                        first = word & 0xff;
                        field = (__u32) word | (__u32) HTTP_LOWER;
                        if (first == '\r' || first == '\n' || at + 4 > end || field == HTTP_FIELD("cont") ||
                            field == HTTP_FIELD("tran") || field == HTTP_FIELD("upgr"))
                                break;
                        state = HTTP_REST;
                }
                feeds = http_line_feeds(word);
                if (feeds == 0) {
                        at += 8;
                        continue;
                }
                /* Keeps the lowest bit of each byte up to the first "\n": their sum is the number of these
                 * bytes */
                feeds = ((feeds & -feeds) - 1) & HTTP_BYTES(1);
                at += feeds * HTTP_BYTES(1) >> 56;
                /* Beyond the end of the window there are remains of earlier data */
                if (at <= end)
                        state = HTTP_LINE;
        }
        p->state = state;
        return at < end ? at : end;
}

/* Parses a path up to the next name or the end of the window. */
PARSER_FUNCTION __u32 http_path(struct parser *p, const struct window *w, __u32 from, __u32 end) {
        __u32 at = from, meaning = 0;

        if (!p || !w)
                return PARSED_LOST;
        while (at < end && meaning == 0 && p->state == HTTP_PATH && can_loop)
                meaning = http_path_byte(p, window_byte(w, at++));
        return PARSED(meaning, at - from, 0);
}

/* Whether a head ends with these four bytes, the last one least significant. */
static inline __attribute__((always_inline)) int http_ends_head(__u32 bytes) {
        return (bytes & 0xffff) == WORD_OF("\n\n", 2) || (bytes & 0xffffff) == WORD_OF("\n\r\n", 3);
}

#define HTTP_STATUS_LENGTH 12U

/* Status code of a response by its first bytes, first one most significant; 0: not HTTP/1.x. */
static inline __attribute__((always_inline)) __u32 http_begins_with(__u64 word, __u32 more) {
        __u32 a = (more >> 16 & 0xff) - '0', b = (more >> 8 & 0xff) - '0', c = (more & 0xff) - '0';

        if (word >> 8 != WORD_OF("HTTP/1.", 7) || (__u32) (word & 0xff) - '0' > 9 || more >> 24 != ' ' ||
            a > 9 || b > 9 || c > 9)
                return 0;
        return a * 100 + b * 10 + c;
}

/* Parses the beginning of the first line of a message, if it is one of the common ones. Returns its length;
 * 0: something else. */
static inline __attribute__((always_inline)) __u32 http_begin_fast(struct parser *p, const struct window *w,
                                                                   __u32 at, __u32 how, __u32 *ret_meaning) {
        __u64 word = window_word(w, at);
        __u32 code, length;

        if (how & PROTOCOL_RESPONSES) {
                code = http_begins_with(word, window_word(w, at + 8) >> 32);
                if (code == 0)
                        return 0;
                p->left = 0;
                p->length_at = 0;
                p->flags = PARSER_UNSOLICITED;
                *ret_meaning = http_status(p, code, how);
                return HTTP_STATUS_LENGTH;
        }

        if (word >> 32 == WORD_OF("GET ", 4) || word >> 32 == WORD_OF("PUT ", 4))
                length = 4;
        else if (word >> 24 == WORD_OF("POST ", 5) || word >> 24 == WORD_OF("HEAD ", 5))
                length = 5;
        else
                return 0;
        http_set_length(p, 0);
        p->flags = word >> 32 == WORD_OF("HEAD", 4) ? HTTP_BARE : 0;
        http_target(p, how);
        return length;
}

/* Parses a number of up to five digits that ends the line. word: eight bytes, first one most significant.
 * Returns the number of digits; 0: something else. */
static inline __attribute__((always_inline)) __u32 http_number_fast(__u64 word, __u32 *ret) {
        __u32 number = 0, digits = 0;

        for (; digits < 5; digits++) {
                __u32 digit = (__u32) (word >> 56) - '0';

                if (digit > 9)
                        break;
                number = number * 10 + digit;
                word <<= 8;
        }
        *ret = number;
        return word >> 48 == WORD_OF("\r\n", 2) ? digits : 0;
}

/* Parses a line "Content-Length:" with such a number. Returns the length of the line; 0: something else. */
static inline __attribute__((always_inline)) __u32 http_length_fast(struct parser *p, const struct window *w,
                                                                    __u32 at) {
        __u64 word = window_word(w, at + 15);
        __u32 length = 15, number, digits;

        if (word >> 56 == ' ') {
                word <<= 8;
                length++;
        }
        digits = http_number_fast(word, &number);
        if (digits == 0)
                return 0;
        http_set_length(p, number);
        p->flags |= HTTP_SIZED;
        return length + digits + 2;
}

/* Number of bytes that http_line_fast() examines. */
#define HTTP_FAST_MAX 24U

/* Parses the beginning of a line of the head: sets the state by the name of the field. May take nothing. */
PARSER_FUNCTION __u32 http_line_fast(struct parser *p, const struct window *w, __u32 at, __u32 how) {
        __u64 word, more;
        __u32 length;

        if (!p || !w)
                return PARSED_LOST;
        word = window_word(w, at);
        if ((word | (HTTP_LOWER & ~0xffULL)) == WORD_OF("content-", 8)) {
                more = window_word(w, at + 8);
                if ((more >> 8 | HTTP_LOWER >> 16 << 8) == WORD_OF("length:", 7)) {
                        if (!(p->flags & HTTP_SIZED)) {
                                p->length_at = at;
                                length = http_length_fast(p, w, at);
                                if (length > 0)
                                        return PARSED(0, length, 0);
                        }
                        return PARSED(http_length_begin(p), 15, 0);
                }
                if ((more >> 24 | HTTP_LOWER >> 32 << 8) == WORD_OF("type:", 5) &&
                    how & PROTOCOL_RESPONSES) {
                        more = window_word(w, at + 14);
                        if (window_byte(w, at + 13) == ' ' &&
                            (more | (HTTP_LOWER & ~0xff000000ULL)) != WORD_OF("text/eve", 8) &&
                            (more | HTTP_LOWER) != WORD_OF("multipar", 8)) {
                                p->state = HTTP_REST;
                                return PARSED(0, 13, 0);
                        }
                        http_value(p, HTTP_TYPE);
                        return PARSED(0, 13, 0);
                }
                p->state = HTTP_CONTENT;
                p->word = 0;
                p->word_left = 8;
                return PARSED(0, 8, 0);
        }
        if ((word | HTTP_LOWER) == WORD_OF("transfer", 8)) {
                p->state = HTTP_TRANSFER;
                p->word = 0;
                p->word_left = 8;
                return PARSED(0, 8, 0);
        }
        if ((word | (HTTP_LOWER & ~0xffULL)) == WORD_OF("upgrade:", 8) && how & PROTOCOL_RESPONSES) {
                http_value(p, HTTP_UPGRADE);
                return PARSED(0, 8, 0);
        }
        p->state = HTTP_REST;
        return 0;
}

/* Maximum number of evaluated fields in one step: few heads have more. */
#define HTTP_FIELDS 6

PARSER_FUNCTION __u32 http_step(struct parser *p, const struct window *w, __u32 from, __u32 end, __u32 how) {
        __u32 at = from, meaning = 0, r;

        if (!p || !w || from >= end || end > WINDOW_SIZE)
                return PARSED_LOST;

        if (p->state == HTTP_START && end - from >= HTTP_FAST_MAX)
                at += http_begin_fast(p, w, at, how, &meaning);
        if (p->state == HTTP_PATH) {
                r = http_path(p, w, at, end);
                return PARSED(PARSED_MEANING(r), at + PARSED_TAKEN(r) - from, 0);
        }

        if (meaning == 0 && p->state == HTTP_TARGET) {
                r = http_line_end(p, w, at, end);
                at = r >> 1;
                if (!(r & 1))
                        return PARSED(0, at - from, 0);
                at++;
                meaning = http_target_end(p);
        }

        for (int i = 0; i < HTTP_FIELDS && meaning == 0 && (p->state == HTTP_LINE || p->state == HTTP_REST);
             i++) {
                at = http_lines(p, w, at, end);
                if (p->state == HTTP_LINE && at + 2 <= end &&
                    window_word(w, at) >> 48 == WORD_OF("\r\n", 2)) {
                        at += 2;
                        p->state = HTTP_HEAD;
                        goto head;
                }
                if (p->state != HTTP_LINE || at + HTTP_FAST_MAX > end || window_byte(w, at) == '\r' ||
                    window_byte(w, at) == '\n')
                        break;
                r = http_line_fast(p, w, at, how);
                at += PARSED_TAKEN(r);
                meaning = PARSED_MEANING(r);
        }
        if (meaning != 0)
                return PARSED(meaning, at - from, 0);

        if (at < end && (p->state == HTTP_EXTENSION || p->state == HTTP_TRAILER_REST)) {
                r = http_line_end(p, w, at, end);
                at = r >> 1;
                if (!(r & 1))
                        return PARSED(0, at - from, 0);
        }
        if (at >= end)
                return PARSED(0, at - from, 0);

        meaning = http_byte(p, window_byte(w, at++), how);
head:
        if (p->state == HTTP_HEAD)
                meaning = http_head_end(p, how, end - at);
        return PARSED(meaning, window_skip(p, at, end) - from, 0);
}
