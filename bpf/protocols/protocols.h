/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* Sequential protocols and their parsers (parser.h).
 *
 * Pure: compiled for BPF, for the unit tests and for the fuzzers. */

#include "dns.h"
#include "http1.h"
#include "memcached.h"
#include "resp.h"

/* Detects the protocol by the first bytes of the first request. length: number of bytes, of which up to 8
 * are in bytes, first one least significant. */
PARSER_FUNCTION __u32 protocol_detect(__u64 bytes, __u32 length) {
        if (resp_detect(bytes, length))
                return PROTOCOL_REDIS;
        if (http_detect(bytes, length))
                return PROTOCOL_HTTP1;
        if (memcached_detect(bytes, length))
                return PROTOCOL_MEMCACHED;
        if (dns_detect(bytes, length))
                return PROTOCOL_DNS;
        return PROTOCOL_PLAIN;
}

/* The step functions take at least one byte from at to end of the window. They take none and return
 * PARSED_NOTHING if more data follows the window (PROTOCOL_MORE), which is to be moved to at. They stop
 * after the end of a message at the latest, or of PARSED_MESSAGES() plain ones that are alike, and one
 * more. */
static inline __attribute__((always_inline)) __u32 protocol_request_step(__u32 how, struct parser *p,
                                                                         const struct window *w, __u32 at,
                                                                         __u32 end) {
        switch (how & 0xff) {

        case PROTOCOL_HTTP1:
                return http_step(p, w, at, end, how);

        case PROTOCOL_REDIS:
                return resp_request_step(p, w, at, end, how);

        case PROTOCOL_MEMCACHED:
                return memcached_request_step(p, w, at, end);

        case PROTOCOL_DNS:
                return dns_step(p, w, at, end, 0);
        }
        return PARSED_LOST;
}

static inline __attribute__((always_inline)) __u32 protocol_response_step(__u32 how, struct parser *p,
                                                                          const struct window *w, __u32 at,
                                                                          __u32 end) {
        switch (how & 0xff) {

        case PROTOCOL_HTTP1:
                return http_step(p, w, at, end, how | PROTOCOL_RESPONSES);

        case PROTOCOL_REDIS:
                return resp_response_step(p, w, at, end, how);

        case PROTOCOL_MEMCACHED:
                return memcached_response_step(p, w, at, end, how);

        case PROTOCOL_DNS:
                return dns_step(p, w, at, end, 1);
        }
        return PARSED_LOST;
}

/* A single branch, for the sake of the verifier. */
#define PROTOCOL_IS_ONE_OF(protocol, a, b, c) ((1U << (a) | 1U << (b) | 1U << (c)) >> ((protocol) & 31) & 1)

/* Whether each response has to be parsed to find its end. Otherwise a response that is sent as a whole is
 * considered complete, and data that follows the rest of it. */
static inline __attribute__((always_inline)) int protocol_is_framed(__u32 protocol) {
        return PROTOCOL_IS_ONE_OF(protocol, PROTOCOL_HTTP1, PROTOCOL_MEMCACHED, PROTOCOL_DNS);
}

/* Whether a request may turn out to be of another protocol by its response. */
static inline __attribute__((always_inline)) int protocol_is_guessed(__u32 protocol) {
        return PROTOCOL_IS_ONE_OF(protocol, PROTOCOL_MEMCACHED, PROTOCOL_DNS, PROTOCOL_DNS);
}

/* After PARSED_NAMED: the name, and its kind (enum name_kind). A request may have several, one after
 * another. */
static inline __attribute__((always_inline)) __u64 protocol_name(__u32 protocol, const struct parser *p,
                                                                 __u32 *ret_kind) {
        if (protocol == PROTOCOL_HTTP1) {
                *ret_kind = p->state == HTTP_PATH ? NAME_DIRECTORY : NAME_PATH;
                return http_length(p);
        }
        *ret_kind = NAME_COMMAND;
        return name_of_command(p->word, p->number);
}

/* Class of the status in the first line of a response (HTTP). 0: none. */
static inline __attribute__((always_inline)) __u32 protocol_status_class(__u32 protocol,
                                                                         const struct parser *p) {
        return protocol == PROTOCOL_HTTP1 ? p->index : 0;
}

/* Failures that a response reports. */
enum failure {
        FAILURE_NONE,
        FAILURE_STATUS5XX,      /* HTTP status 5xx */
        FAILURE_REPLY,          /* error reply of Redis or memcached */
};

/* The failure reported by a response that is not parsed, of any of the protocols, which differ in the first
 * bytes. bytes: the first eight bytes, zero-padded; behind: eight bytes from the sixth on, or 0. First one
 * most significant. */
static inline __attribute__((always_inline)) enum failure response_get_failure(__u64 bytes, __u64 behind) {
        if (bytes >> 24 == WORD_OF("HTTP/", 5))
                return behind >> 56 == '1' && (behind >> 24 & 0xffff) == WORD_OF(" 5", 2) ?
                       FAILURE_STATUS5XX : FAILURE_NONE;
        return resp_is_error(bytes) || memcached_is_failure(bytes) ? FAILURE_REPLY : FAILURE_NONE;
}

/* Whether the next byte is part of a body. */
static inline __attribute__((always_inline)) int protocol_is_blind(__u32 protocol, const struct parser *p) {
        return protocol == PROTOCOL_HTTP1 &&
               (p->state == HTTP_BODY || p->state == HTTP_CHUNK || p->state == HTTP_CLOSE);
}

/* Whether the next n bytes are the rest of the body and end the message. */
static inline __attribute__((always_inline)) int protocol_is_rest(__u32 protocol, const struct parser *p,
                                                                  __u32 n) {
        return protocol == PROTOCOL_HTTP1 && p->state == HTTP_BODY && n == p->skip + http_length(p);
}

/* Whether the end of the connection completes this response, instead of breaking it. */
static inline __attribute__((always_inline)) int protocol_ends_with_stream(__u32 protocol,
                                                                           const struct parser *p) {
        return protocol == PROTOCOL_HTTP1 && p->state == HTTP_CLOSE;
}

/* Parses the bytes of a window from a position to end. Stops after a message that is more than a plain
 * request or response. responses: direction of responses. */
static inline __attribute__((always_inline)) __u32 protocol_take(__u32 how, int responses, struct parser *p,
                                                                 const struct window *w, __u32 from,
                                                                 __u32 end) {
        __u32 at = from, sum = 0, meaning = 0, r; /* sum: bytes taken, and messages */

        if (!p || !w)
                return PARSED_LOST;

        while (at < end && can_loop) {
                r = responses ? protocol_response_step(how, p, w, at, end) :
                    protocol_request_step(how, p, w, at, end);
                meaning = PARSED_MEANING(r);
                sum += r - meaning;
                if (meaning == PARSED_END) {
                        sum += PARSED(0, 0, 1);
                        meaning = 0;
                        if (how & PROTOCOL_SINGLE)
                                break;
                        if (!responses && (how & ~PROTOCOL_MORE) == PROTOCOL_REDIS && p->flags == 0) {
                                r = PARSED_TAKEN(r);
                                sum += resp_take_alike(w, at, end, r, resp_get_shape(w, at, r));
                        }
                }
                if (meaning != 0)
                        break;
                at = from + PARSED_TAKEN(sum);
        }

        return sum | meaning;
}

PARSER_FUNCTION __u32 protocol_take_requests(__u32 how, struct parser *p, const struct window *w,
                                             __u32 from, __u32 end) {
        return protocol_take(how, 0, p, w, from, end);
}

PARSER_FUNCTION __u32 protocol_take_responses(__u32 how, struct parser *p, const struct window *w,
                                              __u32 from, __u32 end) {
        return protocol_take(how, 1, p, w, from, end);
}
