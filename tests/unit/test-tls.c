/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Records of TLS (bpf/tls.h): handshakes as they go over the wire, cut in every place. */

#include "check.h"
#include "util.h"

#include "tls.h"

typedef struct Record {
        bool out;
        uint8_t type;
        uint16_t length;
        bool application;       /* what shall become of it */
} Record;

#define SAYS(type, length) { false, type, length, false }
#define HEARS(type, length) { true, type, length, false }
#define ASKS(length) { false, TLS_APPLICATION, length, true }
#define ANSWERS(length) { true, TLS_APPLICATION, length, true }

static const Record tls13[] = {
        SAYS(TLS_HANDSHAKE, 512), HEARS(TLS_HANDSHAKE, 122), HEARS(TLS_CHANGE_CIPHER, 1), HEARS(TLS_APPLICATION, 2048),
        HEARS(TLS_APPLICATION, 53), SAYS(TLS_CHANGE_CIPHER, 1), SAYS(TLS_APPLICATION, 53), ASKS(200), ANSWERS(16401), ANSWERS(77),
        ASKS(53), ANSWERS(53), SAYS(TLS_APPLICATION, 19), HEARS(TLS_APPLICATION, 19),
}, tls13_certificate[] = {
        SAYS(TLS_HANDSHAKE, 512), HEARS(TLS_HANDSHAKE, 122), HEARS(TLS_APPLICATION, 2048), SAYS(TLS_CHANGE_CIPHER, 1),
        SAYS(TLS_APPLICATION, 1200), SAYS(TLS_APPLICATION, 281), SAYS(TLS_APPLICATION, 69), ASKS(200), ANSWERS(300),
}, tls12[] = {
        SAYS(TLS_HANDSHAKE, 512), HEARS(TLS_HANDSHAKE, 3000), SAYS(TLS_HANDSHAKE, 37), SAYS(TLS_CHANGE_CIPHER, 1), SAYS(TLS_HANDSHAKE, 40),
        HEARS(TLS_HANDSHAKE, 202), HEARS(TLS_CHANGE_CIPHER, 1), HEARS(TLS_HANDSHAKE, 40), ASKS(53), ANSWERS(100), ASKS(1),
        SAYS(TLS_ALERT, 26), HEARS(TLS_ALERT, 26),
}, again[] = { /* the client is asked to greet again */
        SAYS(TLS_HANDSHAKE, 1528), HEARS(TLS_HANDSHAKE, 88), HEARS(TLS_CHANGE_CIPHER, 1), SAYS(TLS_CHANGE_CIPHER, 1), SAYS(TLS_HANDSHAKE, 146),
        HEARS(TLS_HANDSHAKE, 122), HEARS(TLS_APPLICATION, 2048), SAYS(TLS_APPLICATION, 69), ASKS(200), ANSWERS(300),
}, packed[] = { /* a certificate, its proof and Finished in one record */
        SAYS(TLS_HANDSHAKE, 512), HEARS(TLS_HANDSHAKE, 122), HEARS(TLS_CHANGE_CIPHER, 1), HEARS(TLS_APPLICATION, 32), HEARS(TLS_APPLICATION, 2048),
        SAYS(TLS_CHANGE_CIPHER, 1), SAYS(TLS_APPLICATION, 1540), HEARS(TLS_APPLICATION, 255), ASKS(200), ANSWERS(300), ASKS(53), ANSWERS(300),
}, unusual[] = { /* a Finished of a length that is not known */
        SAYS(TLS_HANDSHAKE, 512), SAYS(TLS_CHANGE_CIPHER, 1), SAYS(TLS_APPLICATION, 90), SAYS(TLS_APPLICATION, 91), SAYS(TLS_APPLICATION, 92),
        SAYS(TLS_APPLICATION, 93), ASKS(94),
};

/* Takes the bytes of a record, at most piece at a time, and says what there was in them. */
static unsigned take(struct tls *t, const Record *r, size_t piece) {
        uint8_t bytes[5 + TLS_RECORD_MAX] = { r->type, 3, 3, r->length >> 8, r->length & 0xff };
        size_t at = 0, n = 5 + r->length;
        unsigned seen = 0;

        while (at < n) {
                size_t end = MIN(at + piece, n);

                while (at < end) {
                        uint64_t word = 0;
                        uint32_t step;

                        for (size_t i = 0; i < 8 && at + i < end; i++)
                                word |= (uint64_t) bytes[at + i] << (8 * i);
                        step = tls_step(t, r->out, word, end - at);
                        check(TLS_STEP_TAKEN(step) > 0 && TLS_STEP_TAKEN(step) <= end - at);
                        at += TLS_STEP_TAKEN(step);
                        seen |= step & (TLS_STEP_APPLICATION | TLS_STEP_LOST);
                }
        }
        return seen;
}

static void play(const Record *records, size_t n) {
        static const size_t pieces[] = { 1, 2, 3, 5, 6, 7, 100, 1448, 65536 };

        for (size_t p = 0; p < ELEMENTSOF(pieces); p++) {
                struct tls t = {};

                for (size_t i = 0; i < n; i++)
                        check(take(&t, records + i, pieces[p]) == (records[i].application ? TLS_STEP_APPLICATION : 0));
        }
}

static void test_detect(void) {
        check(tls_detect(0x00010316, 4) && tls_detect(0x00030317, 4));
        check(!tls_detect(0x00030314, 4) && !tls_detect(0x00030216, 4) && !tls_detect(0x0316, 2) && !tls_detect(0x20544547, 4));
}

static uint64_t header_of(unsigned type, unsigned version, unsigned length) {
        return type | (uint64_t) version << 8 | (uint64_t) (length >> 8) << 24 | (uint64_t) (length & 0xff) << 32;
}

/* Alone in its segment, sealed or not. */
static void test_farewell(void) {
        check(tls_is_farewell(header_of(TLS_ALERT, 0x0303, 26), 31) && tls_is_farewell(header_of(TLS_ALERT, 0x0103, 2), 7));
        check(tls_is_farewell(header_of(TLS_APPLICATION, 0x0303, 19), 24));
        check(!tls_is_farewell(header_of(TLS_APPLICATION, 0x0303, 20), 25) && !tls_is_farewell(header_of(TLS_APPLICATION, 0x0303, 19), 25));
        check(!tls_is_farewell(header_of(TLS_HANDSHAKE, 0x0303, 26), 31) && !tls_is_farewell(header_of(TLS_ALERT, 0x0304, 26), 31));
        check(!tls_is_farewell(0, 31) && !tls_is_farewell(0, 0));
}

/* In the middle of another protocol, all of it or its header alone. */
static void test_greeting(void) {
        uint64_t header = header_of(TLS_HANDSHAKE, 0x0103, 512);

        check(tls_is_greeting(header, 5) && tls_is_greeting(header | 1ULL << 40, 8) && tls_is_greeting(header | 1ULL << 40, 517));
        check(!tls_is_greeting(header, 4) && !tls_is_greeting(header | 2ULL << 40, 8) && !tls_is_greeting(header, 8));
        check(!tls_is_greeting(header_of(TLS_APPLICATION, 0x0303, 512), 5) && !tls_is_greeting(header_of(TLS_HANDSHAKE, 0x0103, 42), 5));
        check(!tls_is_greeting(header_of(TLS_HANDSHAKE, 0x0103, 20000), 5));
}

static void test_lost(void) {
        const Record wrong_type = SAYS(99, 10), empty = SAYS(TLS_HANDSHAKE, 0), large = SAYS(TLS_HANDSHAKE, 18433);
        const Record *const all[] = { &wrong_type, &empty, &large };

        for (size_t i = 0; i < ELEMENTSOF(all); i++) {
                uint64_t header = all[i]->type | 0x0303 << 8 | (uint64_t) (all[i]->length >> 8) << 24 | (uint64_t) (all[i]->length & 0xff) << 32;
                struct tls t = {};

                check(tls_step(&t, 0, header, 100) == (TLS_STEP_LOST | 5));
        }
}

/* What is spoken, by the length of what a server of TLS 1.3 says first under its seal. */
static void test_http2(void) {
        static const struct {
                uint16_t length;
                bool http2;
        } table[] = { { 32, true }, { 36, true }, { 54, true }, { 58, true }, { 38, false }, { 42, false }, { 60, false }, { 64, false },
                      { 40, false }, { 44, false }, { 23, false }, { 27, false }, { 45, false }, { 2048, false }, { 2049, false } };

        for (size_t i = 0; i < ELEMENTSOF(table); i++) {
                const Record records[] = {
                        SAYS(TLS_HANDSHAKE, 512), HEARS(TLS_HANDSHAKE, 122), HEARS(TLS_CHANGE_CIPHER, 1), HEARS(TLS_APPLICATION, table[i].length),
                        HEARS(TLS_APPLICATION, 32), SAYS(TLS_APPLICATION, 53), ASKS(200), ANSWERS(32),
                };
                struct tls t = {};

                for (size_t k = 0; k < ELEMENTSOF(records); k++)
                        (void) take(&t, records + k, 7);
                check(t.http2 == table[i].http2);
        }
}

/* What only keeps a connection of HTTP/2 going asks nothing; each other record of the client is as many questions as it has room for. */
static void test_http2_control(void) {
        const Record greeting[] = {
                SAYS(TLS_HANDSHAKE, 512), HEARS(TLS_HANDSHAKE, 122), HEARS(TLS_CHANGE_CIPHER, 1), HEARS(TLS_APPLICATION, 32),
                SAYS(TLS_APPLICATION, 53),
        };
        const Record settings_acknowledged = SAYS(TLS_APPLICATION, 9 + 17), window = SAYS(TLS_APPLICATION, 13 + 24), request = ASKS(31),
                goaway = ASKS(17 + 17);

        for (int http2 = 0; http2 < 2; http2++) {
                struct tls t = {};

                for (size_t k = 0; k < ELEMENTSOF(greeting); k++)
                        (void) take(&t, greeting + k, 7);
                t.http2 = http2;
                check(take(&t, &settings_acknowledged, 100) == (http2 ? 0 : TLS_STEP_APPLICATION));
                check(take(&t, &window, 100) == (http2 ? 0 : TLS_STEP_APPLICATION));
                check(t.questions == (http2 ? 0 : 2));
                check(take(&t, &request, 6) == TLS_STEP_APPLICATION);
                check(t.questions == (http2 ? 2 : 3));
                for (int k = 0; k < 1000; k++)
                        check(take(&t, &request, 6) == TLS_STEP_APPLICATION);
                check(t.questions == TLS_HTTP2_QUESTIONS_MAX);

                /* It says good-bye */
                t.questions = 0;
                check(take(&t, &goaway, 100) == TLS_STEP_APPLICATION && t.farewell == http2);
        }
}

int main(int argc, char **argv) {
        play(tls13, ELEMENTSOF(tls13));
        play(tls13_certificate, ELEMENTSOF(tls13_certificate));
        play(tls12, ELEMENTSOF(tls12));
        play(again, ELEMENTSOF(again));
        play(packed, ELEMENTSOF(packed));
        play(unusual, ELEMENTSOF(unusual));
        test_detect();
        test_farewell();
        test_greeting();
        test_lost();
        test_http2();
        test_http2_control();
        return EXIT_SUCCESS;
}
