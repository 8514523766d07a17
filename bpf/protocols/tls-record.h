/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* TLS without decryption: the headers of the records show where the handshake ends, and which records are
 * not part of a request or a response. Nothing else is known: an encrypted connection is one of unparsed
 * exchanges.
 *
 * In TLS 1.2 the type of a record is in the clear. TLS 1.3 encrypts the end of the handshake and
 * close_notify as well, but not their lengths: the Finished is as long as a digest.
 *
 * Conclusions from the length of a record are guesses: padding, another cipher, or an unknown extension
 * change the length. Guesses decide what is counted as a request, and whether requests may overlap, but
 * never cause an error to be counted: a connection that ends with a request without a response is an error
 * only where requests are identified without guessing (tls.certain, tls_end()).
 *
 * Pure: compiled for BPF and for the unit tests. */

#include "exchange.h"
#include "parser.h"

enum tls_type {
        TLS_CHANGE_CIPHER = 20,
        TLS_ALERT,
        TLS_HANDSHAKE,
        TLS_APPLICATION,
};

#define TLS_HEADER_SIZE 5U
#define TLS_RECORD_MAX (16384U + 2048U)

/* Minimum length of a ClientHello: header of four bytes, version, 32 random bytes, and empty lists */
#define TLS_CLIENT_HELLO_MIN 43U

/* Lengths of records encrypted by TLS 1.3, including the byte of the content type and the tag of 16 bytes (8
 * with one rare cipher): Finished, with four bytes and a digest of 32 or 48; an alert, with two bytes. */
#define TLS_IS_FINISHED(length) ((length) == 53 || (length) == 69 || (length) == 45)
#define TLS_IS_FINISHED_OF_TAG_16(length) ((length) == 53 || (length) == 69)
#define TLS_IS_ALERT(length) ((length) == 19)
/* EndOfEarlyData: a handshake message without a body. */
#define TLS_IS_END_OF_EARLY_DATA(length) ((length) == 4 + 17)

/* Up to TLS 1.2 a Finished has 12 bytes instead of the digest, and those of the cipher, 16 (ChaCha20) to 80
 * (AES-CBC with SHA-384). A longer record is a second ClientHello, after a HelloRetryRequest of a TLS 1.3
 * server that accepts none of the keys of the client: with a key and a session ID it has more than 140. */
#define TLS_ENCRYPTED_FINISHED_MIN 32U
#define TLS_ENCRYPTED_FINISHED_MAX 128U

/* The first encrypted record of a TLS 1.3 server has its EncryptedExtensions: a header of four bytes, the
 * length in two, and the extensions. One of them names the protocol if the client has offered some (ALPN):
 * "h2" takes nine bytes, "http/1.1" fifteen, "postgresql" seventeen. All others have an even length: the
 * acknowledged server_name, four bytes, and the preferred curves of the server, of which OpenSSL has eight
 * or ten (22 or 26 bytes). With the content type and the tag, an odd length of the record thus means that no
 * protocol is named; of the even lengths, the ones below are those of HTTP/1.1 and PostgreSQL. All others
 * are treated as HTTP/2: with other lists of curves they may be either, and no metric is better than a wrong
 * one. If the record also has the certificate (BoringSSL), nothing is known. */
#define TLS_EXTENSIONS_LENGTH_MAX 128U
#define TLS_IS_HTTP1(length)                                                                            \
        ((length) == 38 || (length) == 42 || (length) == 60 || (length) == 64 || (length) == 68)
#define TLS_IS_POSTGRESQL(length) ((length) == 40 || (length) == 44)
#define TLS_IS_HTTP2(length)                                                                            \
        ((length) <= TLS_EXTENSIONS_LENGTH_MAX && !((length) & 1) && !TLS_IS_HTTP1(length) && \
         !TLS_IS_POSTGRESQL(length))

/* Minimum length of an EncryptedExtensions record that names "h2": header, length of the extensions, nine
 * bytes, content type and a tag of 16 bytes. Padding only makes records longer, so a shorter one excludes
 * HTTP/2 without guessing. */
#define TLS_EXTENSIONS_HTTP2_MIN (4U + 2 + 9 + 1 + 16)

/* Records of a client with HTTP/2 frames that are not a request and have no response: of nine bytes
 * (acknowledged SETTINGS) or thirteen (WINDOW_UPDATE, RST_STREAM), plus the bytes added by TLS 1.3 (17) or
 * TLS 1.2 (16 or 24). */
#define TLS_IS_HTTP2_CONTROL(length)                                                                    \
        ((length) == 26 || (length) == 30 || (length) == 25 || (length) == 29 || (length) == 33 || \
         (length) == 37)

/* Farewells of five to seven bytes, as in exchange_is_farewell(), encrypted by TLS 1.2 (16 or 24 bytes more)
 * or 1.3 (17 more; one of two bytes is as long as an alert there). Only used to suppress errors. */
#define TLS_IS_ENCRYPTED_FAREWELL(length)                                                                  \
        (((length) >= 5 + 16 && (length) <= 7 + 17) || ((length) >= 5 + 24 && (length) <= 7 + 24))

/* COM_STMT_CLOSE of MySQL, which has nine bytes and no response, encrypted by the same. Drivers send it
 * before they close the connection, too. Only used to suppress errors. */
#define TLS_IS_ENCRYPTED_REMARK(length) ((length) == 9 + 16 || (length) == 9 + 17 || (length) == 9 + 24)

/* Certificate, CertificateVerify and Finished: if a client sends more records, its Finished has an unknown
 * length. Some clients send all three in one record of any length (BoringSSL): it was the last one if the
 * server sends another encrypted record after its own Finished (tickets). If the server sends none, the
 * first request is treated as part of the handshake. */
#define TLS_FINISHED_RECORDS 4

enum tls_phase {
        TLS_HELLO,              /* only ClientHello of the client was parsed */
        TLS_CHANGED,            /* ChangeCipherSpec of the client: its further records are encrypted */
        TLS_ESTABLISHED,
};

/* Why a TLS connection has failed. */
enum tls_failure {
        TLS_FAILED_SERVER  = 1 << 0,    /* the server has sent a fatal alert */
        TLS_FAILED_CLIENT  = 1 << 1,    /* the client has sent an alert before the end of the handshake */
        TLS_FAILED_RECORD  = 1 << 2,    /* the client has sent data that is not a record */
        TLS_FAILED_COUNTED = 1 << 3,    /* the failed request is counted */
};

enum tls_greeting {
        TLS_GREETED_CLIENT = 1 << 0,    /* the handshake was seen from ClientHello on */
        TLS_GREETED_SERVER = 1 << 1,    /* the server has sent a handshake message */
};

/* A client that resumes a TLS 1.3 session may send its first request after ClientHello (0-RTT), before the
 * rest of the handshake. If the server refuses, the client repeats it after the handshake: both are one
 * request, as there was no response. */
enum tls_early {
        TLS_EARLY_OFFERED  = 1 << 0,    /* encrypted records of the client are early data, up to
                                         * EndOfEarlyData */
        TLS_EARLY_ENDED    = 1 << 1,    /* early data has ended */
        TLS_EARLY_FINISHED = 1 << 2,    /* the server has sent its Finished: a response may follow */
        TLS_EARLY_RESPONSE = 1 << 3,    /* a response has followed, possibly before the Finished of the
                                         * client */
        TLS_EARLY_REFUSED  = 1 << 4,    /* refused: session tickets that precede the repeated request are not
                                         * a response */
};

/* One direction. */
struct tls_side {
        __u64 header;           /* bytes of the header parsed so far, first one most significant */
        __u32 left;             /* remaining bytes of the record */
        __u8 have;              /* number of bytes in header */
        __u8 application;       /* the record is part of a request or a response */
};

struct tls {
        struct tls_side in;
        struct tls_side out;
        __u32 in_pos;           /* sequence number up to which data of the client was parsed */
        __u8 phase;             /* enum tls_phase */
        __u8 sealed;            /* number of encrypted records of the client in the TLS 1.3 handshake */
        __u8 has_request;       /* part of a request was parsed since the last read */
        __u8 out_lost;          /* 1: records being sent cannot be parsed, all are treated as responses */
        __u8 extended;          /* 1: the server has sent an encrypted record */
        __u8 http2;             /* 1: HTTP/2, the number of requests in an exchange is unknown */
        __u8 tries;             /* failed attempts to parse the plaintext */
        __u8 pending;           /* 1: records of requests were read since the last response began */
        __u8 farewell;          /* 1: all of these records may be a farewell */
        __u8 plain;             /* 1: not HTTP/2, without guessing */
        __u8 certain;           /* 1: records with requests of the client are identified without guessing */
        __u8 greeted;           /* enum tls_greeting */
        __u8 failed;            /* enum tls_failure */
        __u8 missed;            /* 1: bytes were read unseen, and the beginning of the next record is
                                 * unknown (tls_resumes()) */
        __u8 early;             /* enum tls_early */
};

/* Detects TLS by the first bytes of a request, like protocol_detect(): a ClientHello, or a record of an
 * existing connection. */
PARSER_FUNCTION int tls_detect(__u64 bytes, __u32 length) {
        __u32 type = bytes & 0xff, major = bytes >> 8 & 0xff, minor = bytes >> 16 & 0xff;

        return length >= 3 && (type == TLS_HANDSHAKE || type == TLS_APPLICATION) && major == 3 && minor <= 4;
}

EXCHANGE_INLINE void tls_add_request(struct tls *t, __u32 length) {
        t->farewell = (!t->pending || t->farewell) &&
                      (TLS_IS_ENCRYPTED_FAREWELL(length) || TLS_IS_ENCRYPTED_REMARK(length));
        t->pending = 1;
}

EXCHANGE_INLINE void tls_refuse_early(struct tls *t) {
        t->early = t->early != 0 ? TLS_EARLY_REFUSED : 0;
}

/* An encrypted record in the TLS 1.3 handshake of a connection with early data. Returns whether it is part
 * of the early data, its end, or part of the response to it, instead of another handshake message. */
PARSER_FUNCTION int tls_begin_early(struct tls *t, int out, __u32 length) {
        if (!t)
                return 0;
        if (out) {
                /* The first one has the server's extensions */
                t->out.application = t->early & TLS_EARLY_FINISHED && !TLS_IS_ALERT(length);
                if (t->out.application)
                        t->early |= TLS_EARLY_RESPONSE;
                else if (t->extended && TLS_IS_FINISHED(length))
                        t->early |= TLS_EARLY_FINISHED;
                /* An alert after a response is mostly close_notify: the server may send it without waiting
                 * for the Finished of the client */
                return t->out.application || (TLS_IS_ALERT(length) && t->early & TLS_EARLY_RESPONSE);
        }
        /* If early data was refused, the client sends its Finished at once */
        if (t->early & TLS_EARLY_ENDED || TLS_IS_ALERT(length) || TLS_IS_FINISHED(length))
                return 0;
        if (TLS_IS_END_OF_EARLY_DATA(length))
                t->early |= TLS_EARLY_ENDED;
        else {
                t->in.application = 1;
                tls_add_request(t, length);
        }
        return 1;
}

/* The header of a record is complete. Returns 0 if this is not TLS, or the position is lost. */
EXCHANGE_INLINE int tls_begin_record(struct tls *t, struct tls_side *side, int out) {
        __u32 type = side->header >> 32 & 0xff, major = side->header >> 24 & 0xff,
                length = side->header & 0xffff;

        side->have = 0;
        side->header = 0;
        side->left = length;
        side->application = 0;
        if (major != 3 || length == 0 || length > TLS_RECORD_MAX)
                return 0;

        switch (type) {

        case TLS_CHANGE_CIPHER:
                if (!out && t->phase == TLS_HELLO)
                        t->phase = TLS_CHANGED;
                return 1;

        case TLS_ALERT:
                if (!out && t->phase != TLS_ESTABLISHED)
                        t->failed |= TLS_FAILED_CLIENT;
                return 1;

        case TLS_HANDSHAKE:
                if (out)
                        t->greeted |= TLS_GREETED_SERVER;
                else if (t->greeted & TLS_GREETED_SERVER)
                        tls_refuse_early(t); /* a second ClientHello offers no early data */
                if (!out && t->phase == TLS_CHANGED) {
                        t->phase = length > TLS_ENCRYPTED_FINISHED_MAX ? TLS_HELLO : TLS_ESTABLISHED;
                        /* Up to TLS 1.2 record types are in the clear, and so is the protocol that the
                         * server has chosen */
                        t->certain = t->phase == TLS_ESTABLISHED && !t->http2;
                }
                return 1;

        case TLS_APPLICATION:
                if (t->phase == TLS_ESTABLISHED) {
                        side->application = !TLS_IS_ALERT(length) &&
                                            (out ? !(t->early & TLS_EARLY_REFUSED) :
                                             !t->http2 || !TLS_IS_HTTP2_CONTROL(length));
                        if (!out && side->application) {
                                t->early = 0;
                                tls_add_request(t, length);
                        }
                } else if (t->early & TLS_EARLY_OFFERED && tls_begin_early(t, out, length)) {
                        return 1;
                } else if (TLS_IS_ALERT(length)) {
                        /* An alert in the TLS 1.3 handshake: no other message is as short */
                        t->failed |= out ? TLS_FAILED_SERVER : TLS_FAILED_CLIENT;
                } else if (!out && (TLS_IS_FINISHED(length) || ++t->sealed >= TLS_FINISHED_RECORDS)) {
                        t->phase = TLS_ESTABLISHED;
                        /* A client that pads its records pads this one, too. If it is not padded, alerts
                         * have their usual length */
                        t->certain = t->plain && !t->early && TLS_IS_FINISHED_OF_TAG_16(length);
                        if (!(t->early & (TLS_EARLY_ENDED | TLS_EARLY_RESPONSE)))
                                tls_refuse_early(t);
                } else if (out && !t->extended) {
                        t->extended = 1;
                        t->http2 = TLS_IS_HTTP2(length) && !t->plain;
                        if (length < TLS_EXTENSIONS_HTTP2_MIN)
                                t->plain = 1;
                } else if (out && t->sealed > 0)
                        t->phase = TLS_ESTABLISHED;
                return 1;
        }

        return 0;
}

/* The application has read up to this position, partly unseen because the kernel has skipped a run. */
EXCHANGE_INLINE void tls_miss(struct tls *t, __u32 position) {
        const struct tls_side fresh = {};
        __u32 n = position - t->in_pos;

        t->in_pos = position;
        /* Within a record: nothing is lost */
        if (!t->missed && n <= t->in.left) {
                t->in.left -= n;
                t->has_request |= t->in.application;
                return;
        }
        t->in = fresh;
        t->missed = 1;
        t->certain = 0;
        if (t->phase == TLS_ESTABLISHED)
                t->has_request = 1;
        else if (TLS_IS_FINISHED(n) || TLS_IS_FINISHED(n - TLS_HEADER_SIZE) ||
                 (t->phase == TLS_CHANGED && n >= TLS_ENCRYPTED_FINISHED_MIN &&
                  n <= TLS_ENCRYPTED_FINISHED_MAX))
                t->phase = TLS_ESTABLISHED; /* Finished was missed */
}

/* Whether records are parsed again from this position on, like pipeline_resumes(). bytes: data at this
 * position. */
EXCHANGE_INLINE int tls_resumes(struct tls *t, __u32 position, __u64 bytes, __u32 length, __u32 unsent) {
        __u32 type = bytes & 0xff, body = (bytes >> 24 & 0xff) << 8 | (bytes >> 32 & 0xff);

        if (position != t->in_pos || unsent > 0 || length < TLS_HEADER_SIZE || type < TLS_CHANGE_CIPHER ||
            type > TLS_APPLICATION ||
            (bytes >> 8 & 0xff) != 3 || body == 0 || body > TLS_RECORD_MAX)
                return 0;
        t->missed = 0;
        /* The end of the handshake was missed. Up to TLS 1.2 the type of records is not encrypted, and a
         * short handshake record is the Finished or the record before */
        if ((type == TLS_APPLICATION && !TLS_IS_FINISHED(body)) ||
            (type == TLS_HANDSHAKE && body <= TLS_ENCRYPTED_FINISHED_MAX))
                t->phase = TLS_ESTABLISHED;
        return 1;
}

/* Whether data is a ClientHello, or only the header of its record, which libraries read first. */
EXCHANGE_INLINE int tls_is_greeting(__u64 bytes, __u32 length) {
        __u32 body = (bytes >> 24 & 0xff) << 8 | (bytes >> 32 & 0xff);

        return length >= TLS_HEADER_SIZE && (bytes & 0xff) == TLS_HANDSHAKE && tls_detect(bytes, length) &&
                body >= TLS_CLIENT_HELLO_MIN && body <= TLS_RECORD_MAX &&
                (length == TLS_HEADER_SIZE || (bytes >> 40 & 0xff) == 1);
}

/* Whether a segment of a server begins with a ServerHello: then the client has sent TLS, seen or not. bytes:
 * first one least significant. */
EXCHANGE_INLINE int tls_is_server_hello(__u64 bytes) {
        return (bytes & 0xff) == TLS_HANDSHAKE && (bytes >> 8 & 0xff) == 3 && (bytes >> 16 & 0xff) <= 4 &&
               (bytes >> 40 & 0xff) == 2;
}

/* Whether data is an unencrypted fatal alert. Servers write its seven bytes at once. length: number of
 * bytes. */
#define TLS_ALERT_FATAL 2U
#define TLS_ALERT_LENGTH 2U
EXCHANGE_INLINE int tls_is_fatal_alert(__u64 bytes, __u32 length) {
        return length > TLS_HEADER_SIZE && (bytes & 0xff) == TLS_ALERT && (bytes >> 8 & 0xff) == 3 &&
               (bytes >> 16 & 0xff) <= 4 && (bytes >> 24 & 0xff) == 0 &&
               (bytes >> 32 & 0xff) == TLS_ALERT_LENGTH && (bytes >> 40 & 0xff) == TLS_ALERT_FATAL;
}

/* Whether a segment of a client is an alert, which ends the connection without a response. bytes: first one
 * least significant. */
#define TLS_FAREWELL_MAX 64U
EXCHANGE_INLINE int tls_is_farewell(__u64 bytes, __u32 length) {
        __u32 type = bytes & 0xff, major = bytes >> 8 & 0xff, body = (bytes >> 24 & 0xff) << 8 |
                (bytes >> 32 & 0xff);

        return major == 3 && length == TLS_HEADER_SIZE + body &&
                (type == TLS_ALERT || (type == TLS_APPLICATION && TLS_IS_ALERT(body)));
}

/* Whether a segment of a client is ChangeCipherSpec and Finished, by its lengths: a server need not send
 * anything between that and the first request. first, second: headers of both records, first byte least
 * significant. length: of the segment. */
#define TLS_CHANGE_CIPHER_SIZE (TLS_HEADER_SIZE + 1)
#define TLS_FINISHED_SIZE_MAX (TLS_CHANGE_CIPHER_SIZE + TLS_HEADER_SIZE + TLS_ENCRYPTED_FINISHED_MAX)
EXCHANGE_INLINE int tls_is_finished(__u64 first, __u64 second, __u32 length) {
        __u32 type = second & 0xff, body = (second >> 24 & 0xff) << 8 | (second >> 32 & 0xff);

        if ((first & 0xffff) != (TLS_CHANGE_CIPHER | 3 << 8) || (second >> 8 & 0xff) != 3 ||
            length != TLS_CHANGE_CIPHER_SIZE + TLS_HEADER_SIZE + body)
                return 0;
        if (type == TLS_APPLICATION)
                return TLS_IS_FINISHED(body);
        return type == TLS_HANDSHAKE && body >= TLS_ENCRYPTED_FINISHED_MIN &&
               body <= TLS_ENCRYPTED_FINISHED_MAX;
}

/* Kind of a segment of a server that consists of an alert. bytes: as for tls_is_fatal_alert(). */
enum tls_alert {
        TLS_NO_ALERT,
        TLS_ALERT_WARNS,        /* not encrypted, and not fatal */
        TLS_ALERT_SEALED,       /* encrypted: the end of the connection, fatal or orderly */
        TLS_ALERT_FAILS,        /* not encrypted, and fatal */
};

EXCHANGE_INLINE enum tls_alert tls_alert_of_server(__u64 bytes, __u32 length) {
        if (!tls_is_farewell(bytes, length))
                return TLS_NO_ALERT;
        if (length != TLS_HEADER_SIZE + TLS_ALERT_LENGTH)
                return TLS_ALERT_SEALED;
        return tls_is_fatal_alert(bytes, length) ? TLS_ALERT_FAILS : TLS_ALERT_WARNS;
}

/* ClientHello is in the clear in all versions, with the protocols that the client offers (ALPN). Its
 * extensions follow the header, 38 bytes, session ID, cipher suites and compression methods, each preceded
 * by its length (one, two and one byte), and the length of all extensions. A client that does not offer
 * HTTP/2 does not use it. */
#define TLS_OFFER_SESSION (TLS_HEADER_SIZE + 38U)
#define TLS_OFFER_STEPS_MAX 64  /* extensions, about twenty in browsers, and protocols, two in browsers */

#define TLS_EXTENSION_ALPN 16U
#define TLS_EXTENSION_EARLY_DATA 42U
#define TLS_EXTENSION_ENCRYPTED_HELLO 0xfe0dU   /* another ClientHello, which may offer something else */

struct tls_offer {
        __u32 at;               /* position of the next extension or protocol */
        __u32 end;              /* end of the extensions */
        __u32 names_end;        /* end of the list of protocols, while in it */
        __u32 http2;            /* 1: HTTP/2 is offered, or may be */
        __u32 early;            /* TLS_EARLY_OFFERED: early data follows */
};

/* Parses an extension, or a protocol. bytes: four bytes at o->at, first one most significant, zero-padded.
 * Returns 1 at the end. */
PARSER_FUNCTION int tls_offer_step(struct tls_offer *o, __u32 bytes) {
        __u32 type = bytes >> 16, length = bytes & 0xffff;

        if (!o)
                return 1;
        if (o->at < o->names_end) {
                o->http2 |= bytes >> 8 == 0x026832; /* "h2", with its length */
                o->at += 1 + (bytes >> 24);
        } else if (type == TLS_EXTENSION_ALPN) {
                o->names_end = o->at + 4 + length;
                o->at += 4 + 2; /* skips the length of the list */
        } else {
                o->http2 |= type == TLS_EXTENSION_ENCRYPTED_HELLO;
                o->early |= (type == TLS_EXTENSION_EARLY_DATA) * TLS_EARLY_OFFERED;
                o->at += 4 + length;
        }
        return o->at >= o->end;
}

/* Up to TLS 1.2 ServerHello has the selected protocol in the clear. Its extensions follow the header, 38
 * bytes, the session ID preceded by its length, three bytes, and the length of all extensions. */
#define TLS_HELLO_SESSION (TLS_HEADER_SIZE + 38U)
#define TLS_HELLO_EXTENSIONS(session) (TLS_HELLO_SESSION + 1 + (session) + 3 + 2)
#define TLS_EXTENSIONS_MAX 16   /* servers have five or six */

/* First eight bytes of the extension that selects HTTP/2, first one most significant: type, length, length
 * of the list, length of its only name, and the "h" of "h2". */
#define TLS_EXTENSION_HTTP2 0x0010000500030268ULL
#define TLS_EXTENSION_LENGTH(bytes) ((__u32) ((bytes) >> 32 & 0xffff))

/* Result of a step. */
#define TLS_STEP_APPLICATION (1U << 24) /* part of a request or a response was parsed */
#define TLS_STEP_LOST (1U << 25)
#define TLS_STEP_TAKEN(r) ((r) & 0xffffffU)

/* Parses some of the available bytes. bytes: the first 8 of them at most, first one least significant.
 * there: their number. Returns the number of bytes taken, below 2^24, and TLS_STEP_*. */
PARSER_FUNCTION __u32 tls_step(struct tls *t, int out, __u64 bytes, __u32 there) {
        struct tls_side *side;
        __u32 n = 0;

        if (!t)
                return TLS_STEP_LOST;
        side = out ? &t->out : &t->in;

        if (side->left > 0) {
                n = side->left < there ? side->left : there;
                side->left -= n;
                return n | (side->application ? TLS_STEP_APPLICATION : 0);
        }

        if (out && side->have == 0 && tls_is_fatal_alert(bytes, there))
                t->failed |= TLS_FAILED_SERVER;
        for (int i = 0; i < (int) TLS_HEADER_SIZE; i++) {
                if (side->have >= TLS_HEADER_SIZE || n >= there)
                        break;
                side->header = side->header << 8 | (bytes & 0xff);
                bytes >>= 8;
                side->have++;
                n++;
        }
        if (side->have < TLS_HEADER_SIZE)
                return n;
        if (!tls_begin_record(t, side, out))
                return n | TLS_STEP_LOST;
        return n | (side->application ? TLS_STEP_APPLICATION : 0);
}

/* Maximum amount of unread data at the end of a connection that is not considered a request: mostly
 * close_notify of the client, possibly after messages of its protocol that end the session. It covers three
 * of these without padding: an alert of two bytes has 85 with its header and the bytes of the cipher
 * (AES-CBC with SHA-384: 80), messages of two to nine bytes have 88 or less. */
#define TLS_FAREWELL_SIZE (3U * 88)

/* The connection ends. unsent: as for exchange_end(). Data that is not certain to be a request is no longer
 * in flight, and not an error. */
EXCHANGE_INLINE void tls_end(struct exchange *x, const struct tls *t, int gone, __u32 unsent,
                             struct exchange_effect *effect) {
        if (unsent > 0 && (t->certain || !gone))
                return;
        if (!t->certain ||
            (x->state == EXCHANGE_PENDING ? t->farewell : x->in_end - x->read_end <= TLS_FAREWELL_SIZE))
                exchange_shut(x, effect);
}

/* The application has read data that is not a record. Returns whether the connection is TLS nevertheless. */
EXCHANGE_INLINE int tls_breaks_off(struct tls *t) {
        if (!(t->greeted & TLS_GREETED_SERVER)) {
                t->greeted = 0;
                return 0;
        }
        t->failed |= TLS_FAILED_RECORD;
        return 1;
}

/* Called after exchange_end(). The connection counts as one failed request if the handshake is incomplete,
 * or the server has sent a fatal alert, or the client data that is not a record, unless a request was in
 * flight. A client that has sent an encrypted record in TLS 1.3 may have sent its Finished. */
EXCHANGE_INLINE void tls_fail(struct tls *t, struct exchange_effect *effect) {
        int incomplete = t->greeted & TLS_GREETED_CLIENT && !t->missed && t->phase != TLS_ESTABLISHED &&
                         !(t->early & TLS_EARLY_RESPONSE) &&
                         (t->sealed == 0 || t->failed & TLS_FAILED_CLIENT);

        if (t->failed & TLS_FAILED_COUNTED ||
            !(incomplete || t->failed & (TLS_FAILED_SERVER | TLS_FAILED_RECORD)))
                return;
        t->failed |= TLS_FAILED_COUNTED;
        if (effect->unanswered == 0)
                effect->unanswered = 1;
}
