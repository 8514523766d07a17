/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* DNS over TCP (RFC 7766): each message is preceded by its length. A client may send queries without waiting
 * for responses, which come in any order, with the ID of their query (pipeline_match()).
 *
 * As in datagrams, DNS is recognized by the fields of the header that have a limited range of values,
 * whatever the port. */

#include "parser.h"

/* Number of bytes examined: length, ID, flags, number of queries */
#define DNS_HEAD 8U
#define DNS_LENGTH_SIZE 2U      /* of the length, which some servers read separately */

/* Minimum length of messages: the header, and in queries a name of one byte, type and class */
#define DNS_RESPONSE_MIN 12U
#define DNS_QUERY_MIN 17U
/* Maximum length of the first query of a connection. A higher limit would make other data look like a query
 * more often. */
#define DNS_QUERY_MAX 4096U

enum dns_state {
        DNS_START,
        DNS_HEADER,
        DNS_LAST,               /* before the last byte of the message */
};

static inline __attribute__((always_inline)) __u32 dns_length(__u64 head) {
        return head >> 48;
}

static inline __attribute__((always_inline)) __u32 dns_id(__u64 head) {
        return head >> 32 & 0xffff;
}

/* head: first byte most significant. See datagram_is_dns(). */
static inline __attribute__((always_inline)) int dns_is_message(__u64 head, int response) {
        __u32 first = head >> 24 & 0xff, second = head >> 16 & 0xff, queries = head & 0xffff,
                opcode = first >> 3 & 0xf;

        if (first >> 7 != (__u32) response || (opcode != 0 && opcode != 4 && opcode != 5) || second & 0x40)
                return 0;
        if (response)
                return dns_length(head) >= DNS_RESPONSE_MIN && queries <= 1;
        return dns_length(head) >= DNS_QUERY_MIN && !(first & 0x02) && !(second & 0x8f) && queries == 1;
}

/* bytes: first one least significant. */
static inline __attribute__((always_inline)) int dns_detect(__u64 bytes, __u32 length) {
        __u64 head = __builtin_bswap64(bytes);

        return length >= DNS_HEAD && dns_is_message(head, 0) && dns_length(head) <= DNS_QUERY_MAX;
}

/* A response has PARSER_UNSOLICITED until its header is complete. */
PARSER_FUNCTION __u32 dns_step(struct parser *p, const struct window *w, __u32 from, __u32 end,
                               __u32 responses) {
        __u32 n = 1, nothing;

        if (!p || !w || from >= end || end > WINDOW_SIZE)
                return PARSED_LOST;

        if (p->state == DNS_LAST) {
                nothing = p->flags & PARSER_UNSOLICITED ? PARSED_NOTHING : 0;
                p->state = DNS_START;
                p->flags = 0;
                return PARSED(PARSED_END | nothing, 1U, 0);
        }
        if (p->state == DNS_START) {
                p->state = DNS_HEADER;
                p->flags = responses ? PARSER_UNSOLICITED : 0;
                p->number = 0;
                p->word = 0;
        }
        if (p->number == 0 && end - from >= DNS_HEAD) {
                n = DNS_HEAD;
                p->word = window_word(w, from);
        } else
                p->word = p->word << 8 | window_byte(w, from);
        p->number += n;
        if (p->number < DNS_HEAD)
                return PARSED(0, n, 0);
        if (!dns_is_message(p->word, responses != 0))
                return PARSED_LOST;
        p->state = DNS_LAST;
        p->flags = 0;
        p->skip = dns_length(p->word) - (DNS_HEAD - DNS_LENGTH_SIZE) - 1;
        return PARSED(0, window_skip(p, from + n, end) - from, 0);
}
