/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* What a datagram is, by its first bytes (bpf/protocols/datagram.h). */

#include "util.h"

#include "check.h"
#include "datagram.h"

#define classify(length, ...) datagram_classify((const __u8[DATAGRAM_HEAD]) { __VA_ARGS__ }, length)

static void test_dns(void) {
        /* dig, with EDNS; without; a notification; an update of many parts */
        check(classify(52, 0x12, 0x34, 0x01, 0x20, 0, 1, 0, 0, 0, 0, 0, 1) == DATAGRAM_DNS_QUERY);
        check(classify(17, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) == DATAGRAM_DNS_QUERY);
        check(classify(60, 0, 1, 0x24, 0, 0, 1, 0, 1, 0, 0, 0, 0) == DATAGRAM_DNS_QUERY);
        check(classify(600, 0, 1, 0x28, 0, 0, 1, 0, 0, 0, 9, 0, 1) == DATAGRAM_DNS_QUERY);

        /* Its responses, also one that is nothing but a header */
        check(classify(68, 0x12, 0x34, 0x81, 0xa0, 0, 1, 0, 1, 0, 0, 0, 1) == DATAGRAM_DNS_RESPONSE);
        check(classify(60, 0x12, 0x34, 0x83, 0x83, 0, 1, 0, 0, 0, 1, 0, 0) == DATAGRAM_DNS_RESPONSE);
        check(classify(12, 0x12, 0x34, 0x81, 0x01, 0, 0, 0, 0, 0, 0, 0, 0) == DATAGRAM_DNS_RESPONSE);

        /* Too short; a QDCOUNT of two; a result in a query; the bit that must be zero; operations that do
         * not exist */
        check(classify(16, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0) == DATAGRAM_PLAIN);
        check(classify(11, 0, 0, 0x81, 0, 0, 0, 0, 0, 0, 0, 0) == DATAGRAM_PLAIN);
        check(classify(40, 0, 0, 1, 0, 0, 2, 0, 0, 0, 0, 0, 0) == DATAGRAM_PLAIN);
        check(classify(40, 0, 0, 1, 3, 0, 1, 0, 0, 0, 0, 0, 0) == DATAGRAM_PLAIN);
        check(classify(40, 0, 0, 1, 0x40, 0, 1, 0, 0, 0, 0, 0, 0) == DATAGRAM_PLAIN);
        check(classify(40, 0, 0, 0x18, 0, 0, 1, 0, 0, 0, 0, 0, 0) == DATAGRAM_PLAIN);
        check(classify(40, 0, 0, 0xf8, 0, 0, 1, 0, 0, 0, 0, 0, 0) == DATAGRAM_PLAIN);

        /* NTP, memcached, syslog, text, nothing */
        check(classify(48, 0x23, 2, 6, 0xe9, 0, 0, 1, 0, 0, 0, 0, 1) == DATAGRAM_PLAIN);
        check(classify(13, 0, 1, 0, 0, 0, 1, 0, 0, 'g', 'e', 't', ' ') == DATAGRAM_PLAIN);
        check(classify(30, '<', '1', '3', '>', 'O', 'c', 't', ' ', '1', '1', ' ', '2') == DATAGRAM_PLAIN);
        check(classify(0, 0) == DATAGRAM_PLAIN);
}

static void test_quic(void) {
        check(classify(1200, 0xc3, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6) == DATAGRAM_QUIC);
        check(classify(1350, 0xd0, 0x6b, 0x33, 0x43, 0xcf, 8) == DATAGRAM_QUIC);
        check(classify(60, 0xe0, 0xff, 0, 0, 0x1d, 8) == DATAGRAM_QUIC);
        /* A short header, a version that nobody speaks, a text */
        check(classify(1200, 0x43, 0, 0, 0, 1, 8) == DATAGRAM_PLAIN);
        check(classify(1200, 0xc3, 0, 0, 0, 2, 8) == DATAGRAM_PLAIN);
        check(classify(1200, 'x', 'x', 'x', 'x', 'x', 'x') == DATAGRAM_PLAIN);
}

int main(void) {
        test_dns();
        test_quic();
        return EXIT_SUCCESS;
}
