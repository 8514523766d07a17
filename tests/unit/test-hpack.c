/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The coding of heads of HTTP/2 (bpf/protocols/hpack.h). */

#include "check.h"
#include "hpack.h"
#include "util.h"

static void take(struct hpack *p, const void *block, size_t n, size_t piece_size) {
        const uint8_t *b = block;

        for (size_t at = 0; at < n; )
                if (p->state == HPACK_SKIP)
                        at += hpack_skip(p, (uint32_t) MIN(piece_size, n - at));
                else
                        hpack_byte(p, b[at++]);
}

/* RFC 7541, appendix C.5 and C.6: three responses, plain and Huffman-coded. The table has 256 bytes
 * there. */
static void test_rfc(void) {
        static const char plain[] =
                "\x48\x03\x33\x30\x32\x58\x07\x70\x72\x69\x76\x61\x74\x65\x61\x1d\x4d\x6f\x6e\x2c\x20\x32"
                "\x31\x20\x4f\x63\x74\x20\x32\x30\x31\x33"
                "\x20\x32\x30\x3a\x31\x33\x3a\x32\x31\x20\x47\x4d\x54\x6e\x17\x68\x74\x74\x70\x73\x3a\x2f"
                "\x2f\x77\x77\x77\x2e\x65\x78\x61\x6d\x70"
                "\x6c\x65\x2e\x63\x6f\x6d";
        static const char coded[] =
                "\x48\x82\x64\x02\x58\x85\xae\xc3\x77\x1a\x4b\x61\x96\xd0\x7a\xbe\x94\x10\x54\xd4\x44\xa8"
                "\x20\x05\x95\x04\x0b\x81\x66\xe0\x82\xa6"
                "\x2d\x1b\xff\x6e\x91\x9d\x29\xad\x17\x18\x63\xc7\x8f\x0b\x97\xc8\xe9\xae\x82\xae\x43\xd3";
        static const struct {
                const char *first;
                size_t n_first;
                const char *second;
                size_t n_second;
        } table[] = {
                { plain, sizeof(plain) - 1, "\x48\x03\x33\x30\x37\xc1\xc0\xbf", 8 },
                { coded, sizeof(coded) - 1, "\x48\x83\x64\x0e\xff\xc1\xc0\xbf", 8 },
        };

        for (size_t i = 0; i < ELEMENTSOF(table); i++) {
                struct hpack p = {};

                hpack_begin(&p);
                take(&p, table[i].first, table[i].n_first, 3);
                check(p.status == 3 && !p.unknown && p.state == HPACK_FIELD && p.inserted == 4);
                hpack_begin(&p);
                take(&p, table[i].second, table[i].n_second, 3);
                check(p.status == 3 && !p.unknown && p.state == HPACK_FIELD && p.inserted == 5);
                hpack_begin(&p);
                take(&p, "\x88\xc1\x61", 3, 3);
                check(p.status == 2 && !p.unknown && p.state == HPACK_LENGTH);
        }
}

#define BLOCK(text) text, sizeof(text) - 1

static void test_fields(void) {
        static const struct {
                const char *block;
                size_t n;
                uint8_t status, grpc, content, unknown;
        } table[] = {
                { BLOCK("\x88"), 2, 0, 0, 0 },
                { BLOCK("\x89\x8b"), 3, 0, 0, 0 },
                { BLOCK("\x08\x03""503"), 5, 0, 0, 0 },
                { BLOCK("\x18\x83\x6c\x0c\xff"), 5, 0, 0, 0 },          /* 503, never indexed */
                { BLOCK("\x00\x07:status\x03""404"), 4, 0, 0, 0 },
                { BLOCK("\x00\x85\xb8\x84\x8d\x36\xa3\x82\x10\x01"), 2, 0, 0, 0 },
                { BLOCK("\x08\x03""abc"), 0, 0, 0, 0 },
                { BLOCK("\x08\x01""2"), 0, 0, 0, 0 },
                { BLOCK("\x88\x00\x0bgrpc-status\x01""0"), 2, 1, 0, 0 },
                { BLOCK("\x00\x0bgrpc-status\x02""14"), 0, 15, 0, 0 },
                { BLOCK("\x00\x88\x9a\xca\xc8\xb2\x12\x34\xda\x8f\x81\x07"), 0, 1, 0, 0 },
                /* 13: 00001 011001 */
                { BLOCK("\x00\x88\x9a\xca\xc8\xb2\x12\x34\xda\x8f\x82\x0b\x3f"), 0, 14, 0, 0 },
                { BLOCK("\x00\x0bgrpc-status\x00"), 0, HPACK_GRPC_UNKNOWN + 1, 0, 0 },
                { BLOCK("\x00\x0bgrpc-status\x03""100"), 0, HPACK_GRPC_UNKNOWN + 1, 0, 0 },
                { BLOCK("\x00\x0cgrpc-message\x02hi"), 0, 0, 0, 0 },
                { BLOCK("\x0f\x10\x10""application/grpc"), 0, 0, HPACK_CONTENT_GRPC, 0 },
                { BLOCK("\x0f\x10\x16""application/grpc+proto"), 0, 0, HPACK_CONTENT_GRPC, 0 },
                { BLOCK("\x0f\x10\x14""application/grpc-web"), 0, 0, HPACK_CONTENT_OTHER, 0 },
                { BLOCK("\x0f\x10\x8b\x1d\x75\xd0\x62\x0d\x26\x3d\x4c\x4d\x65\x64"), 0, 0,
                  HPACK_CONTENT_GRPC, 0 },
                { BLOCK("\x0f\x10\x90\x1d\x75\xd0\x62\x0d\x26\x3d\x4c\x4d\x65\x64\xff\x75\xd8\x74\x9f"), 0,
                  0, HPACK_CONTENT_GRPC, 0 },
                { BLOCK("\x00\x89\x21\xea\x49\x6a\x4a\xc9\xf5\x59\x7f\x09text/html"), 0, 0,
                  HPACK_CONTENT_OTHER, 0 },
                { BLOCK("\x00\x0c""content-type\x11text/event-stream"), 0, 0, HPACK_CONTENT_EVENTS, 0 },
                { BLOCK("\x0f\x10\x8c\x49\x7c\xa5\x82\xf7\x2d\x49\x59\x09\xb0\xa3\xa7"), 0, 0,
                  HPACK_CONTENT_EVENTS, 0 },
                { BLOCK("\x20\x3f\xe1\x1f\x88"), 2, 0, 0, 0 },          /* updates of the size */
                { BLOCK("\xbe"), 0, 0, 0, 1 },
                { BLOCK("\x7f\x00\x01x\x88"), 2, 0, 0, 1 },             /* the name is unknown */
                { BLOCK("\x80"), 0, 0, 0, 1 },                          /* invalid index */
                { BLOCK("\xff\xff\xff\xff\xff\xff\x01"), 0, 0, 0, 1 },  /* invalid number */
                { BLOCK("\x00\x7f\x80\x80\x80\x80\x80"), 0, 0, 0, 1 },
        };

        for (size_t i = 0; i < ELEMENTSOF(table); i++)
                for (size_t piece = 1; piece <= 4; piece++) {
                        struct hpack p = {};

                        hpack_begin(&p);
                        take(&p, table[i].block, table[i].n, piece);
                        check(p.status == table[i].status && p.grpc == table[i].grpc &&
                              p.content == table[i].content &&
                              p.unknown == table[i].unknown);
                        check(p.lost || p.state == HPACK_FIELD);

                        /* Once the position is lost, it stays lost */
                        hpack_begin(&p);
                        check(p.unknown == p.lost);
                }
}

/* Entries are found by the number of later insertions, up to the limit. */
static void test_table(void) {
        struct hpack p = {};
        uint8_t block[] = { 0x48, 3, '5', '0', '0', 0x40, 1, 'a', 1, 'b' };

        hpack_begin(&p);
        take(&p, block, 5, 1);                                          /* :status 500 */
        for (unsigned k = 0; k < HPACK_ENTRIES + 5; k++) {
                uint8_t back[3] = { 0xbe + k };

                if (k >= 0x41) {
                        back[0] = 0xff;
                        back[1] = (62 + k - 127) & 0x7f;
                        back[1] |= 62 + k - 127 > 127 ? 0x80 : 0;
                        back[2] = 1;
                }
                hpack_begin(&p);
                take(&p, back, k < 0x41 ? 1 : back[1] & 0x80 ? 3 : 2, 1);
                check(p.state == HPACK_FIELD);
                check(p.status == (k < HPACK_ENTRIES ? 5 : 0) && p.unknown == (k >= HPACK_ENTRIES));
                take(&p, block + 5, 5, 1);                              /* a further insertion */
        }

        /* By its name only, with another value */
        hpack_begin(&p);
        take(&p, block, 5, 1);
        take(&p, "\x7e\x03""404", 5, 1);
        check(p.status == 4);
        hpack_begin(&p);
        take(&p, "\xbf", 1, 1);
        check(p.status == 5);
}

int main(void) {
        test_rfc();
        test_fields();
        test_table();
        return EXIT_SUCCESS;
}
