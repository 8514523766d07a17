/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* The protocols whose messages come one after the other, each with its parser (parser.h).
 *
 * Pure: compiled for BPF, for the unit tests and for the fuzzers. */

#include "http1.h"
#include "memcached.h"
#include "resp.h"

/* By the first bytes of a connection's first question. length: how many there are, at most 8 are in bytes,
 * in their order from the lowest bits up. */
PARSER_FUNCTION __u32 protocol_detect(__u64 bytes, __u32 length) {
        if (resp_detect(bytes, length))
                return PROTOCOL_REDIS;
        if (http_detect(bytes, length))
                return PROTOCOL_HTTP1;
        if (memcached_detect(bytes, length))
                return PROTOCOL_MEMCACHED;
        return PROTOCOL_PLAIN;
}

/* Each of both takes some bytes at … end of the window, at least one, and stops behind a message's end at
 * the latest. */
static inline __attribute__((always_inline)) __u32 protocol_question_step(__u32 how, struct parser *p,
                                                                          const struct window *w, __u32 at,
                                                                          __u32 end) {
        switch (how & 0xff) {

        case PROTOCOL_HTTP1:
                return http_step(p, w, at, end, how);

        case PROTOCOL_REDIS:
                return resp_question_step(p, w, at, end, how);

        case PROTOCOL_MEMCACHED:
                return memcached_question_step(p, w, at, end);
        }
        return PARSED_LOST;
}

static inline __attribute__((always_inline)) __u32 protocol_answer_step(__u32 how, struct parser *p,
                                                                        const struct window *w, __u32 at,
                                                                        __u32 end) {
        switch (how & 0xff) {

        case PROTOCOL_HTTP1:
                return http_step(p, w, at, end, how | PROTOCOL_ANSWERS);

        case PROTOCOL_REDIS:
                return resp_answer_step(p, w, at, end, how);

        case PROTOCOL_MEMCACHED:
                return memcached_answer_step(p, w, at, end, how);
        }
        return PARSED_LOST;
}

/* Where an answer ends must be looked for in each? Otherwise one that leaves as a whole is believed to be
 * one, and what leaves behind it to be its rest. */
static inline __attribute__((always_inline)) int protocol_is_framed(__u32 protocol) {
        return protocol == PROTOCOL_HTTP1 || protocol == PROTOCOL_MEMCACHED;
}

/* May a question be another protocol's, until it is answered? */
static inline __attribute__((always_inline)) int protocol_is_guessed(__u32 protocol) {
        return protocol == PROTOCOL_MEMCACHED;
}

/* Behind PARSED_NAMED: the name, and which kind it is of (enum name_kind). A question may have several, one
 * after the other. */
static inline __attribute__((always_inline)) __u64 protocol_name(__u32 protocol, const struct parser *p,
                                                                 __u32 *ret_kind) {
        if (protocol == PROTOCOL_HTTP1) {
                *ret_kind = p->state == HTTP_PATH ? NAME_DIRECTORY : NAME_PATH;
                return http_length(p);
        }
        *ret_kind = NAME_COMMAND;
        return name_of_command(p->word, p->number);
}

/* What kind an answer is is said in its first line: the class of its status (HTTP). 0: nothing is. */
static inline __attribute__((always_inline)) __u32 protocol_status_class(__u32 protocol,
                                                                         const struct parser *p) {
        return protocol == PROTOCOL_HTTP1 ? p->index : 0;
}

/* Is the next byte one of a body, whatever it is? */
static inline __attribute__((always_inline)) int protocol_is_blind(__u32 protocol, const struct parser *p) {
        return protocol == PROTOCOL_HTTP1 &&
               (p->state == HTTP_BODY || p->state == HTTP_CHUNK || p->state == HTTP_CLOSE);
}

/* Are the next n bytes the rest of the body, whatever they are, and so the end of the message? */
static inline __attribute__((always_inline)) int protocol_is_rest(__u32 protocol, const struct parser *p,
                                                                  __u32 n) {
        return protocol == PROTOCOL_HTTP1 && p->state == HTTP_BODY && n == p->skip + http_length(p);
}

/* Does the end of the connection end this answer, and not break it? */
static inline __attribute__((always_inline)) int protocol_ends_with_stream(__u32 protocol,
                                                                           const struct parser *p) {
        return protocol == PROTOCOL_HTTP1 && p->state == HTTP_CLOSE;
}

/* The bytes at … end of a window. Stops early behind a message that is more than a question, or an answer.
 * answers: it is the direction in which these go. */
static inline __attribute__((always_inline)) __u32 protocol_take(__u32 how, int answers, struct parser *p,
                                                                 const struct window *w, __u32 from,
                                                                 __u32 end) {
        __u32 at = from, meaning = 0, messages = 0, r;

        if (!p || !w)
                return PARSED_LOST;

        while (at < end && can_loop) {
                r = answers ? protocol_answer_step(how, p, w, at, end) :
                    protocol_question_step(how, p, w, at, end);
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

PARSER_FUNCTION __u32 protocol_take_questions(__u32 how, struct parser *p, const struct window *w,
                                              __u32 from, __u32 end) {
        return protocol_take(how, 0, p, w, from, end);
}

PARSER_FUNCTION __u32 protocol_take_answers(__u32 how, struct parser *p, const struct window *w, __u32 from,
                                            __u32 end) {
        return protocol_take(how, 1, p, w, from, end);
}
