/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Parser of TLS records (bpf/protocols/tls-record.h): handshakes as on the wire, split at every position. */

#include "check.h"
#include "util.h"

#include "tls-record.h"

typedef struct Record {
        bool out;
        uint8_t type;
        uint16_t length;
        bool application;       /* expected classification */
} Record;

#define SAYS(type, length) { false, type, length, false }
#define HEARS(type, length) { true, type, length, false }
#define REQUEST(length) { false, TLS_APPLICATION, length, true }
#define RESPONSE(length) { true, TLS_APPLICATION, length, true }

static const Record tls13[] = {
        SAYS(TLS_HANDSHAKE, 512), HEARS(TLS_HANDSHAKE, 122), HEARS(TLS_CHANGE_CIPHER, 1),
                HEARS(TLS_APPLICATION, 2048),
        HEARS(TLS_APPLICATION, 53), SAYS(TLS_CHANGE_CIPHER, 1), SAYS(TLS_APPLICATION, 53), REQUEST(200),
        RESPONSE(16401), RESPONSE(TLS_RECORD_MAX), RESPONSE(77), REQUEST(53), RESPONSE(53),
        SAYS(TLS_APPLICATION, 19),
        HEARS(TLS_APPLICATION, 19),
}, tls13_certificate[] = {
        SAYS(TLS_HANDSHAKE, 512), HEARS(TLS_HANDSHAKE, 122), HEARS(TLS_APPLICATION, 2048),
                SAYS(TLS_CHANGE_CIPHER, 1),
        SAYS(TLS_APPLICATION, 1200), SAYS(TLS_APPLICATION, 281), SAYS(TLS_APPLICATION, 69), REQUEST(200),
        RESPONSE(300),
}, tls12[] = {
        SAYS(TLS_HANDSHAKE, 512), HEARS(TLS_HANDSHAKE, 3000), SAYS(TLS_HANDSHAKE, 37),
                SAYS(TLS_CHANGE_CIPHER, 1), SAYS(TLS_HANDSHAKE, 40),
        HEARS(TLS_HANDSHAKE, 202), HEARS(TLS_CHANGE_CIPHER, 1), HEARS(TLS_HANDSHAKE, 40), REQUEST(53),
        RESPONSE(100), REQUEST(1), SAYS(TLS_ALERT, 26), HEARS(TLS_ALERT, 26),
}, again[] = { /* HelloRetryRequest: the client sends a second ClientHello */
        SAYS(TLS_HANDSHAKE, 1528), HEARS(TLS_HANDSHAKE, 88), HEARS(TLS_CHANGE_CIPHER, 1),
                SAYS(TLS_CHANGE_CIPHER, 1), SAYS(TLS_HANDSHAKE, 146),
        HEARS(TLS_HANDSHAKE, 122), HEARS(TLS_APPLICATION, 2048), SAYS(TLS_APPLICATION, 69), REQUEST(200),
        RESPONSE(300),
}, packed[] = { /* certificate, CertificateVerify and Finished of the client in one record */
        SAYS(TLS_HANDSHAKE, 512), HEARS(TLS_HANDSHAKE, 122), HEARS(TLS_CHANGE_CIPHER, 1),
                HEARS(TLS_APPLICATION, 32), HEARS(TLS_APPLICATION, 2048),
        SAYS(TLS_CHANGE_CIPHER, 1), SAYS(TLS_APPLICATION, 1540), HEARS(TLS_APPLICATION, 255), REQUEST(200),
        RESPONSE(300), REQUEST(53), RESPONSE(300),
}, unusual[] = { /* Finished of an unknown length */
        SAYS(TLS_HANDSHAKE, 512), SAYS(TLS_CHANGE_CIPHER, 1), SAYS(TLS_APPLICATION, 90),
                SAYS(TLS_APPLICATION, 91), SAYS(TLS_APPLICATION, 92),
        SAYS(TLS_APPLICATION, 93), REQUEST(94),
};

/* Behind a ClientHello that offers early data. */
static const Record early13[] = {
        SAYS(TLS_HANDSHAKE, 512), SAYS(TLS_CHANGE_CIPHER, 1), REQUEST(200), REQUEST(70),
                HEARS(TLS_HANDSHAKE, 128), HEARS(TLS_CHANGE_CIPHER, 1),
        HEARS(TLS_APPLICATION, 53), HEARS(TLS_APPLICATION, 69), RESPONSE(300), RESPONSE(53),
                SAYS(TLS_APPLICATION, 21), SAYS(TLS_APPLICATION, 69),
        REQUEST(21), RESPONSE(255), REQUEST(69), SAYS(TLS_APPLICATION, 19),
}, refused_early13[] = {
        SAYS(TLS_HANDSHAKE, 512), SAYS(TLS_CHANGE_CIPHER, 1), REQUEST(200), HEARS(TLS_HANDSHAKE, 128),
        HEARS(TLS_APPLICATION, 30), HEARS(TLS_APPLICATION, 53), SAYS(TLS_APPLICATION, 53),
        HEARS(TLS_APPLICATION, 255), REQUEST(200), HEARS(TLS_APPLICATION, 19), RESPONSE(300),
}, again_early13[] = {
        SAYS(TLS_HANDSHAKE, 512), SAYS(TLS_CHANGE_CIPHER, 1), REQUEST(200), HEARS(TLS_HANDSHAKE, 88),
        SAYS(TLS_HANDSHAKE, 146), HEARS(TLS_HANDSHAKE, 122), HEARS(TLS_APPLICATION, 2048),
        SAYS(TLS_APPLICATION, 200), SAYS(TLS_APPLICATION, 69), HEARS(TLS_APPLICATION, 255), REQUEST(200),
        RESPONSE(300),
}, alert_early13[] = {
        SAYS(TLS_HANDSHAKE, 512), SAYS(TLS_CHANGE_CIPHER, 1), REQUEST(200), HEARS(TLS_HANDSHAKE, 128),
        HEARS(TLS_APPLICATION, 19),
};

/* Parses a record in pieces of this size. Returns the union of the steps' results. */
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

static void play(const Record *records, size_t n, uint8_t early) {
        static const size_t pieces[] = { 1, 2, 3, 5, 6, 7, 100, 1448, 65536 };

        for (size_t p = 0; p < ELEMENTSOF(pieces); p++) {
                struct tls t = { .early = early };

                for (size_t i = 0; i < n; i++)
                        check(take(&t, records + i, pieces[p]) == (records[i].application ?
                                                                   TLS_STEP_APPLICATION : 0));
        }
}

static void test_detect(void) {
        check(tls_detect(0x00010316, 4) && tls_detect(0x00030317, 4));
        check(!tls_detect(0x00030314, 4) && !tls_detect(0x00030216, 4) && !tls_detect(0x0316, 2) &&
              !tls_detect(0x20544547, 4));
}

static uint64_t header_of(unsigned type, unsigned version, unsigned length) {
        return type | (uint64_t) version << 8 | (uint64_t) (length >> 8) << 24 |
               (uint64_t) (length & 0xff) << 32;
}

/* Records alone in a segment, encrypted or not. */
static void test_farewell(void) {
        check(tls_is_farewell(header_of(TLS_ALERT, 0x0303, 26), 31) &&
              tls_is_farewell(header_of(TLS_ALERT, 0x0103, 2), 7));
        check(tls_is_farewell(header_of(TLS_APPLICATION, 0x0303, 19), 24));
        check(!tls_is_farewell(header_of(TLS_APPLICATION, 0x0303, 20), 25) &&
              !tls_is_farewell(header_of(TLS_APPLICATION, 0x0303, 19), 25));
        check(!tls_is_farewell(header_of(TLS_HANDSHAKE, 0x0303, 26), 31) &&
              !tls_is_farewell(header_of(TLS_ALERT, 0x0304, 26), 31));
        check(!tls_is_farewell(0, 31) && !tls_is_farewell(0, 0));
}

/* Records that a server sends alone in a segment. */
static void test_alert_of_server(void) {
        for (unsigned level = 0; level < 4; level++)
                check(tls_alert_of_server(header_of(TLS_ALERT, 0x0303, 2) | (uint64_t) level << 40, 7) ==
                      (level == 2 ? TLS_ALERT_FAILS : TLS_ALERT_WARNS));
        check(tls_alert_of_server(header_of(TLS_ALERT, 0x0303, 26), 31) == TLS_ALERT_SEALED);
        check(tls_alert_of_server(header_of(TLS_APPLICATION, 0x0303, 19), 24) == TLS_ALERT_SEALED);
        check(tls_alert_of_server(header_of(TLS_APPLICATION, 0x0303, 19), 48) == TLS_NO_ALERT);
        check(tls_alert_of_server(header_of(TLS_HANDSHAKE, 0x0303, 2), 7) == TLS_NO_ALERT);
        check(tls_alert_of_server(0x0a0d4b4f2b, 5) == TLS_NO_ALERT);
        check(tls_alert_of_server(0, 0) == TLS_NO_ALERT);
}

/* The end of a client's handshake, alone in a segment. */
static void test_is_finished(void) {
        const uint64_t changed = header_of(TLS_CHANGE_CIPHER, 0x0303, 1);

        check(tls_is_finished(changed, header_of(TLS_APPLICATION, 0x0303, 53), 64));
        check(tls_is_finished(changed, header_of(TLS_APPLICATION, 0x0303, 69), 80));
        check(tls_is_finished(changed, header_of(TLS_HANDSHAKE, 0x0303, 40), 51));
        /* A request of that size, data behind it, other messages of the handshake, and other protocols */
        check(!tls_is_finished(header_of(TLS_APPLICATION, 0x0303, 53), 0, 58));
        check(!tls_is_finished(changed, header_of(TLS_APPLICATION, 0x0303, 54), 65));
        check(!tls_is_finished(changed, header_of(TLS_APPLICATION, 0x0303, 69), 180));
        check(!tls_is_finished(header_of(TLS_HANDSHAKE, 0x0303, 40), 0, 45));
        check(!tls_is_finished(changed, header_of(TLS_HANDSHAKE, 0x0303, 512), 523));
        check(!tls_is_finished(changed, 0, 6) && !tls_is_finished(0, 0, 64) && !tls_is_finished(0, 0, 0));
}

/* Amid another protocol: the whole record, or its header alone. */
static void test_greeting(void) {
        uint64_t header = header_of(TLS_HANDSHAKE, 0x0103, 512);

        check(tls_is_greeting(header, 5) && tls_is_greeting(header | 1ULL << 40, 8) &&
              tls_is_greeting(header | 1ULL << 40, 517));
        check(!tls_is_greeting(header, 4) && !tls_is_greeting(header | 2ULL << 40, 8) &&
              !tls_is_greeting(header, 8));
        check(!tls_is_greeting(header_of(TLS_APPLICATION, 0x0303, 512), 5) &&
              !tls_is_greeting(header_of(TLS_HANDSHAKE, 0x0103, 42), 5));
        check(!tls_is_greeting(header_of(TLS_HANDSHAKE, 0x0103, 20000), 5));
}

static void test_lost(void) {
        const Record wrong_type = SAYS(99, 10), empty = SAYS(TLS_HANDSHAKE, 0),
                large = SAYS(TLS_HANDSHAKE, 18433), largest = SAYS(TLS_HANDSHAKE, 18432);
        const Record *const all[] = { &wrong_type, &empty, &large, &largest };

        for (size_t i = 0; i < ELEMENTSOF(all); i++) {
                uint64_t header = all[i]->type | 0x0303 << 8 | (uint64_t) (all[i]->length >> 8) << 24 |
                                  (uint64_t) (all[i]->length & 0xff) << 32;
                struct tls t = {};

                check(tls_step(&t, 0, header, 100) == (all[i] == &largest ? 5 : TLS_STEP_LOST | 5));
        }
}

/* The application protocol, by the length of the first encrypted record of a TLS 1.3 server. */
static void test_http2(void) {
        static const struct {
                uint16_t length;
                bool http2;
        } table[] = { { 32, true }, { 36, true }, { 54, true }, { 58, true }, { 38, false }, { 42, false },
                      { 60, false }, { 64, false },
                      { 40, false }, { 44, false }, { 23, false }, { 27, false }, { 45, false },
                              { 2048, false }, { 2049, false } };

        for (size_t i = 0; i < ELEMENTSOF(table); i++) {
                const Record records[] = {
                        SAYS(TLS_HANDSHAKE, 512), HEARS(TLS_HANDSHAKE, 122), HEARS(TLS_CHANGE_CIPHER, 1),
                                HEARS(TLS_APPLICATION, table[i].length),
                        HEARS(TLS_APPLICATION, 32), SAYS(TLS_APPLICATION, 53), REQUEST(200), RESPONSE(32),
                };
                struct tls t = {};

                for (size_t k = 0; k < ELEMENTSOF(records); k++)
                        (void) take(&t, records + k, 7);
                check(t.http2 == table[i].http2);
        }
}

/* Frames that keep a connection of HTTP/2 alive are no request. */
static void test_http2_control(void) {
        const Record greeting[] = {
                SAYS(TLS_HANDSHAKE, 512), HEARS(TLS_HANDSHAKE, 122), HEARS(TLS_CHANGE_CIPHER, 1),
                        HEARS(TLS_APPLICATION, 32),
                SAYS(TLS_APPLICATION, 53),
        };
        const Record settings_acknowledged = SAYS(TLS_APPLICATION, 9 + 17),
                window = SAYS(TLS_APPLICATION, 13 + 24), request = REQUEST(31);

        for (int http2 = 0; http2 < 2; http2++) {
                struct tls t = {};

                for (size_t k = 0; k < ELEMENTSOF(greeting); k++)
                        (void) take(&t, greeting + k, 7);
                t.http2 = http2;
                check(take(&t, &settings_acknowledged, 100) == (http2 ? 0 : TLS_STEP_APPLICATION));
                check(take(&t, &window, 100) == (http2 ? 0 : TLS_STEP_APPLICATION));
                check(t.pending == !http2);
                check(take(&t, &request, 6) == TLS_STEP_APPLICATION);
                check(t.pending);
        }
}

/* Extensions of a ClientHello, preceded by their length. */
static struct tls_offer offer(const char *bytes, size_t n) {
        struct tls_offer o = { .at = 2, .end = n };

        for (unsigned i = 0; i < TLS_OFFER_STEPS_MAX; i++) {
                uint32_t word = 0;

                for (size_t k = 0; k < 4; k++)
                        word = word << 8 | (o.at + k < n ? (uint8_t) bytes[o.at + k] : 0);
                if (tls_offer_step(&o, word))
                        break;
        }
        return o;
}

static bool offers_http2(const char *bytes, size_t n) {
        struct tls_offer o = offer(bytes, n);

        return o.http2 || o.at != o.end;
}

#define OFFER(bytes) offers_http2(bytes, sizeof(bytes) - 1)

static void test_offer(void) {
        char many[2 + 4 * 2 * TLS_OFFER_STEPS_MAX] = {};

        /* No ALPN; an empty one; the protocol as the only name, the last of two, the first of two, and in an
         * extension that is not the last */
        check(!OFFER("\0\5" "\0\xb\0\1\0"));
        check(!OFFER("\0\x14" "\0\x17\0\0" "\0\x10\0\xb\0\x9\x8http/1.1" "\0\x2d\0\0"));
        check(OFFER("\0\x9" "\0\x10\0\5\0\3\2h2"));
        check(OFFER("\0\x16" "\0\x17\0\0" "\0\x10\0\xe\0\xc\x8http/1.1\2h2"));
        check(OFFER("\0\x16" "\0\x10\0\xe\0\xc\2h2\x8http/1.1" "\0\x2d\0\0"));
        check(!OFFER("\0\xe" "\0\x10\0\6\0\4\3h2c" "\0\x2d\0\0"));
        /* Encrypted ClientHello; a truncated one; more extensions than the limit */
        check(OFFER("\0\6" "\xfe\xd\0\2xx"));
        check(OFFER("\0\6" "\0\x17\0\3xx"));
        check(offers_http2(many, sizeof(many)));
        /* Early data, behind HTTP/2 or not; the list of protocols has no extensions */
        check(offer("\0\4" "\0\x2a\0\0", 6).early == TLS_EARLY_OFFERED);
        check(offer("\0\xd" "\0\x10\0\5\0\3\2h2" "\0\x2a\0\0", 15).early == TLS_EARLY_OFFERED);
        check(offer("\0\xc" "\0\x10\0\x8\0\6\5\0\x2a\0\0x", 14).early == 0);
}

static const Record handshake12[] = {
        SAYS(TLS_HANDSHAKE, 512), HEARS(TLS_HANDSHAKE, 3000), SAYS(TLS_HANDSHAKE, 37),
                SAYS(TLS_CHANGE_CIPHER, 1), SAYS(TLS_HANDSHAKE, 40),
}, handshake13[] = { /* too short to contain ALPN */
        SAYS(TLS_HANDSHAKE, 512), HEARS(TLS_HANDSHAKE, 122), HEARS(TLS_APPLICATION, 27),
                HEARS(TLS_APPLICATION, 2048), SAYS(TLS_CHANGE_CIPHER, 1),
        SAYS(TLS_APPLICATION, 69),
}, named13[] = {
        SAYS(TLS_HANDSHAKE, 512), HEARS(TLS_HANDSHAKE, 122), HEARS(TLS_APPLICATION, 38),
                HEARS(TLS_APPLICATION, 2048), SAYS(TLS_CHANGE_CIPHER, 1),
        SAYS(TLS_APPLICATION, 69),
}, padded13[] = { /* four records each of which may be the client's Finished */
        SAYS(TLS_HANDSHAKE, 512), HEARS(TLS_HANDSHAKE, 122), HEARS(TLS_APPLICATION, 27),
                SAYS(TLS_CHANGE_CIPHER, 1), SAYS(TLS_APPLICATION, 256),
        SAYS(TLS_APPLICATION, 256), SAYS(TLS_APPLICATION, 256), SAYS(TLS_APPLICATION, 256),
};

/* Whether it is an error that the client sends records of these lengths after the handshake and closes the
 * connection. */
static bool is_error(const Record *handshake, size_t n, bool plain, bool http2, const uint16_t *said,
                     size_t n_said) {
        struct exchange_effect effect = {};
        struct tls t = { .plain = plain, .http2 = http2 }; /* as sent unencrypted in ServerHello */
        struct exchange x = {};

        for (size_t i = 0; i < n; i++)
                (void) take(&t, handshake + i, 100);
        for (size_t i = 0; i < n_said; i++)
                if (take(&t, &(Record) SAYS(TLS_APPLICATION, said[i]), 100) == TLS_STEP_APPLICATION) {
                        x.state = EXCHANGE_PENDING;
                        exchange_open(&x, 1, &effect);
                }
        tls_end(&x, &t, 1, 0, &effect);
        exchange_end(&x, 1, x.state == EXCHANGE_PENDING, 0, &effect);
        check(effect.in_flight == 0);
        return effect.unanswered > 0;
}

#define IS_ERROR(handshake, plain, http2, ...)                                                          \
        is_error(handshake, ELEMENTSOF(handshake), plain, http2, (const uint16_t[]) { __VA_ARGS__ }, \
                 ELEMENTSOF(((const uint16_t[]) { __VA_ARGS__ })))

/* A close is an error only after data that is certainly a request, whatever the length of its records. */
static void test_end(void) {
        check(IS_ERROR(handshake12, false, false, 200) && IS_ERROR(handshake13, false, false, 200));
        check(!IS_ERROR(handshake12, false, true, 200));
        /* Alerts, Terminate of PostgreSQL, COM_STMT_CLOSE and COM_QUIT of MySQL */
        check(!IS_ERROR(handshake13, false, false, 19) && !IS_ERROR(handshake13, false, false, 5 + 17) &&
              !IS_ERROR(handshake12, false, false, 5 + 24));
        check(!IS_ERROR(handshake13, false, false, 9 + 17, 9 + 17, 5 + 17) &&
              !IS_ERROR(handshake12, false, false, 9 + 24, 5 + 24));
        check(IS_ERROR(handshake13, false, false, 200, 5 + 17) &&
              IS_ERROR(handshake13, false, false, 9 + 17, 200, 5 + 17));
        /* GOAWAY with "shutdown", and any other record */
        for (uint16_t length = 17; length < 300; length++)
                check(!IS_ERROR(named13, false, false, length) && !IS_ERROR(padded13, true, false, length));
        check(IS_ERROR(named13, true, false, 200) && !IS_ERROR(padded13, true, false, 200));
}

/* Whether a connection that ends after these records is a failed request, which is reported once. */
static bool is_failed(const Record *records, size_t n, bool missed) {
        struct tls t = { .greeted = TLS_GREETED_CLIENT, .missed = missed };
        struct exchange_effect effect = {}, second = {}, open = { .unanswered = 3 };
        struct tls other;

        for (size_t i = 0; i < n; i++)
                if (take(&t, records + i, 100) & TLS_STEP_LOST)
                        check(tls_breaks_off(&t));
        other = t;
        tls_fail(&t, &effect);
        tls_fail(&t, &second);
        check(effect.unanswered <= 1 && second.unanswered == 0);
        /* In addition to a request in flight it is not reported */
        tls_fail(&other, &open);
        check(open.unanswered == 3);
        return effect.unanswered > 0;
}

/* It responds, and sends close_notify. */
static const Record closed_early13[] = {
        SAYS(TLS_HANDSHAKE, 512), SAYS(TLS_CHANGE_CIPHER, 1), REQUEST(200),
                HEARS(TLS_HANDSHAKE, 128), HEARS(TLS_CHANGE_CIPHER, 1),
        HEARS(TLS_APPLICATION, 53), HEARS(TLS_APPLICATION, 69), RESPONSE(300), HEARS(TLS_APPLICATION, 19),
};

/* A server may close the connection behind the response to early data, before the client's Finished. */
static void test_early_end(void) {
        for (size_t n = 1; n <= ELEMENTSOF(early13); n++) {
                struct tls t = { .greeted = TLS_GREETED_CLIENT, .early = TLS_EARLY_OFFERED };
                struct exchange_effect effect = {};

                for (size_t i = 0; i < n; i++)
                        (void) take(&t, early13 + i, 100);
                tls_fail(&t, &effect);
                check(effect.unanswered == (n < 9));
        }
        for (size_t n = 1; n <= ELEMENTSOF(closed_early13); n++) {
                struct tls t = { .greeted = TLS_GREETED_CLIENT, .early = TLS_EARLY_OFFERED };
                struct exchange_effect effect = {};

                for (size_t i = 0; i < n; i++)
                        (void) take(&t, closed_early13 + i, 100);
                tls_fail(&t, &effect);
                check(effect.unanswered == (n < 8));
        }
}

#define IS_FAILED(missed, ...)                             \
        is_failed((const Record[]) { __VA_ARGS__ },        \
                  sizeof((const Record[]) { __VA_ARGS__ }) / sizeof(Record), missed)

static void test_fail(void) {
        const struct {
                const Record *records;
                size_t n;
        } table[] = {
                { tls12,             ELEMENTSOF(tls12) },
                { tls13,             ELEMENTSOF(tls13) },
                { tls13_certificate, ELEMENTSOF(tls13_certificate) },
                { packed,            ELEMENTSOF(packed) },
                { unusual,           ELEMENTSOF(unusual) },
        };

        /* Complete handshakes, and those that may be complete */
        for (size_t i = 0; i < ELEMENTSOF(table); i++)
                check(!is_failed(table[i].records, table[i].n, false));
        check(!is_failed(packed, 7, false) && !is_failed(unusual, 3, false));

        /* Closed by either side, with an alert or without */
        check(IS_FAILED(false, SAYS(TLS_HANDSHAKE, 512)) && !IS_FAILED(true, SAYS(TLS_HANDSHAKE, 512)));
        check(IS_FAILED(false, SAYS(TLS_HANDSHAKE, 512), HEARS(TLS_HANDSHAKE, 88),
                        HEARS(TLS_HANDSHAKE, 2048)));
        check(IS_FAILED(false, SAYS(TLS_HANDSHAKE, 512), HEARS(TLS_HANDSHAKE, 88), SAYS(TLS_ALERT, 2)));
        check(IS_FAILED(false, SAYS(TLS_HANDSHAKE, 512), HEARS(TLS_HANDSHAKE, 122),
                        HEARS(TLS_CHANGE_CIPHER, 1), HEARS(TLS_APPLICATION, 32), SAYS(TLS_CHANGE_CIPHER, 1),
                        SAYS(TLS_APPLICATION, 19)));
        check(IS_FAILED(true, SAYS(TLS_HANDSHAKE, 512), HEARS(TLS_HANDSHAKE, 122),
                        HEARS(TLS_APPLICATION, 19)));
        /* Data that is no record, after ServerHello or later */
        check(IS_FAILED(false, SAYS(TLS_HANDSHAKE, 512), HEARS(TLS_HANDSHAKE, 122), SAYS(99, 10)));
        check(IS_FAILED(true, SAYS(TLS_HANDSHAKE, 512), HEARS(TLS_HANDSHAKE, 122),
                        SAYS(TLS_APPLICATION, 53), REQUEST(200), RESPONSE(300), SAYS(99, 10)));

        /* An alert of a server alone; a warning is not fatal */
        for (unsigned level = 0; level < 4; level++) {
                uint64_t alert = header_of(TLS_ALERT, 0x0303, 2) | (uint64_t) level << 40 | 40ULL << 48;
                struct exchange_effect effect = {};
                struct tls t = {};

                check(tls_is_fatal_alert(alert, 7) == (level == 2) && !tls_is_fatal_alert(alert, 5));
                check(!tls_is_fatal_alert(alert + 1, 7) && !tls_is_fatal_alert(alert + (1ULL << 32), 7));
                check(tls_step(&t, 1, alert, 7) == TLS_HEADER_SIZE);
                tls_fail(&t, &effect);
                check(effect.unanswered == (level == 2));
        }
}

/* Bytes that were received and not read. */
static void test_end_unread(void) {
        static const struct {
                bool certain;
                int gone;
                uint32_t unread, unsent;
                bool open;
        } table[] = {
                { true,  0, 24,                    0, false }, { true,  1, 24,                    0, false },
                { true,  1, TLS_FAREWELL_SIZE,     0, false }, { true,  1, TLS_FAREWELL_SIZE + 1, 0, true  },
                { true,  0, 24,                    9, true  }, { false, 0, 24,                    9, true  },
                { false, 1, TLS_FAREWELL_SIZE + 1, 9, false }, { false, 0, TLS_FAREWELL_SIZE + 1, 0, false },
        };

        for (size_t i = 0; i < ELEMENTSOF(table); i++) {
                struct exchange x = { .state = EXCHANGE_RESPONDING, .in_end = table[i].unread - 100,
                                      .read_end = (uint32_t) -100 };
                const struct tls t = { .certain = table[i].certain };
                struct exchange_effect effect = {};

                exchange_open(&x, 1, &effect);
                tls_end(&x, &t, table[i].gone, table[i].unsent, &effect);
                check((x.open_at != 0) == table[i].open);
                check(effect.in_flight == table[i].open);
        }
}

int main(int argc, char **argv) {
        play(tls13, ELEMENTSOF(tls13), 0);
        play(tls13_certificate, ELEMENTSOF(tls13_certificate), 0);
        play(tls12, ELEMENTSOF(tls12), 0);
        play(again, ELEMENTSOF(again), 0);
        play(packed, ELEMENTSOF(packed), 0);
        play(unusual, ELEMENTSOF(unusual), 0);
        test_early_end();
        play(early13, ELEMENTSOF(early13), TLS_EARLY_OFFERED);
        play(refused_early13, ELEMENTSOF(refused_early13), TLS_EARLY_OFFERED);
        play(again_early13, ELEMENTSOF(again_early13), TLS_EARLY_OFFERED);
        play(closed_early13, ELEMENTSOF(closed_early13), TLS_EARLY_OFFERED);
        play(alert_early13, ELEMENTSOF(alert_early13), TLS_EARLY_OFFERED);
        test_detect();
        test_farewell();
        test_alert_of_server();
        test_is_finished();
        test_greeting();
        test_lost();
        test_http2();
        test_http2_control();
        test_offer();
        test_end();
        test_end_unread();
        test_fail();
        return EXIT_SUCCESS;
}
