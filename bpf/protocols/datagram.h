/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* Classifies datagrams by their first bytes. Pure: compiled for BPF and for the unit tests. */

#include <linux/types.h>

enum datagram_kind {
        DATAGRAM_PLAIN,
        DATAGRAM_DNS_QUERY,     /* has an ID, unique among the queries in flight */
        DATAGRAM_DNS_RESPONSE,  /* has the ID of its query */
        DATAGRAM_QUIC,          /* beginning of a connection, whose streams are not visible */
};

/* Number of bytes examined: a DNS header. */
#define DATAGRAM_HEAD 12

/* A query has at least a name of one byte, a type and a class. */
#define DATAGRAM_DNS_QUERY_MIN (DATAGRAM_HEAD + 5)

static inline __attribute__((always_inline)) __u32 datagram_word(const __u8 *head, __u32 at) {
        return (__u32) head[at] << 8 | head[at + 1];
}

/* By the fields of the header that have a limited range of values, whatever the port. */
static inline __attribute__((always_inline)) int datagram_is_dns(const __u8 *head, __u32 length,
                                                                 int response) {
        __u32 opcode = head[2] >> 3 & 0xf;

        /* QR; opcode of a standard query, notification or update; the bit that must be zero */
        if (head[2] >> 7 != response || (opcode != 0 && opcode != 4 && opcode != 5) || head[3] & 0x40)
                return 0;
        if (response)
                /* Some servers respond to an invalid query with the header alone */
                return length >= DATAGRAM_HEAD && datagram_word(head, 4) <= 1;

        /* A query is not truncated, has no response code, exactly one entry in its first section, and few in
         * the others: a serial number, a cookie, a key. Updates have any number of those */
        return length >= DATAGRAM_DNS_QUERY_MIN && !(head[2] & 0x02) && !(head[3] & 0x8f) &&
               datagram_word(head, 4) == 1 &&
                (opcode == 5 || (datagram_word(head, 6) <= 1 && datagram_word(head, 8) <= 1 &&
                                 datagram_word(head, 10) <= 2));
}

/* A long header (RFC 8999) of an existing version: 1, 2, or a draft. Other versions are as likely as any
 * four bytes. */
static inline __attribute__((always_inline)) int datagram_is_quic(const __u8 *head, __u32 length) {
        __u32 version = datagram_word(head, 1) << 16 | datagram_word(head, 3);

        return length >= DATAGRAM_HEAD && (head[0] & 0xc0) == 0xc0 &&
                (version == 1 || version == 0x6b3343cf || version >> 8 == 0xff0000);
}

/* head: DATAGRAM_HEAD bytes, zero-padded. length: of the datagram. */
static inline __attribute__((always_inline)) enum datagram_kind datagram_classify(const __u8 *head,
                                                                                  __u32 length) {
        if (datagram_is_quic(head, length))
                return DATAGRAM_QUIC;
        if (datagram_is_dns(head, length, 0))
                return DATAGRAM_DNS_QUERY;
        if (datagram_is_dns(head, length, 1))
                return DATAGRAM_DNS_RESPONSE;
        return DATAGRAM_PLAIN;
}
