/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Frames of HTTP/2, and what heads say (bpf/protocols/http2.h); the coding of heads is in test-hpack.c. */

#include "read-position.h"

#include "util-http2.h"

/* ---- on the wire -------------------------------------------------------------------------------------- */

typedef struct Wire {
        uint8_t bytes[1 << 16];
        size_t n;
} Wire;

static void put(Wire *w, const void *data, size_t n) {
        check(w->n + n <= sizeof(w->bytes));
        memcpy(w->bytes + w->n, data, n);
        w->n += n;
}

static void put_frame(Wire *w, unsigned type, unsigned flags, uint32_t stream, const void *payload,
                      size_t n) {
        uint8_t header[9] = { n >> 16, n >> 8, n, type, flags, stream >> 24, stream >> 16, stream >> 8,
                              stream };

        put(w, header, sizeof(header));
        if (n > 0)
                put(w, payload, n);
}

static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

#define TEXT(w, type, flags, stream, text) put_frame(w, type, flags, stream, text, sizeof(text) - 1)
#define END H2_END_STREAM
#define HEAD H2_END_HEADERS

/* ---- results ------------------------------------------------------------------------------------------ */

typedef struct Seen {
        unsigned n, begun;
        struct h2_stream streams[600];
        bool streaming[600];
        unsigned dropped, unseen;
        bool lost;
} Seen;

static void on_event(struct h2_piece *piece, void *userdata) {
        Seen *seen = userdata;

        check(piece->event & (H2_BEGUN | H2_ENDED));
        check(piece->stream.flags & H2_STREAM_BEGUN);
        seen->begun += !!(piece->event & H2_BEGUN);
        if (!(piece->event & H2_ENDED))
                return;
        check(seen->n < ELEMENTSOF(seen->streams));
        seen->streams[seen->n] = piece->stream;
        seen->streams[seen->n].flags &= ~H2_STREAM_BEGUN;
        if (!(piece->stream.flags & H2_STREAM_GRPC))
                seen->streams[seen->n].flags &= ~H2_STREAM_OPEN; /* has no field of others */
        seen->streaming[seen->n++] = piece->event & H2_STREAMING;
}

static void feed(struct h2_conn *h, Seen *seen, const Wire *w, size_t piece_size, uint64_t now,
                 bool requests) {
        struct arrival_times times = { .came_at = now };

        for (size_t i = 0, n; i < w->n && !seen->lost; i += n) {
                struct h2_piece piece = { .now = now + 5 };

                n = MIN(piece_size, w->n - i);
                h2_feed(h, &piece, w->bytes + i, n, (uint32_t) i, requests ? &times : NULL, on_event, seen);
                seen->dropped += piece.dropped;
                seen->unseen += piece.unseen;
                seen->lost = piece.lost;
        }
}

static struct h2_conn* begin(void) {
        struct h2_conn *h = h2_storage_new();
        Seen seen = {};
        Wire w = {};

        check(h);
        h2_begin(h, 0, false);
        put_frame(&w, H2_SETTINGS, 0, 0, NULL, 0);
        feed(h, &seen, &w, SIZE_MAX, 1, false);
        check(h->settled && !seen.lost);
        return h;
}

/* A server that responds to the preface in another protocol does not speak HTTP/2: the preface and the
 * frames behind it were one request. */
static void test_other(void) {
        struct h2_conn *h = h2_storage_new();
        struct exchange_effect effect = {};
        struct exchange x = {};
        Seen seen = {};
        Wire w = {};

        check(h);
        h2_begin(h, 0, false);
        put(&w, "HTTP/1.1 400 Bad Request\r\n", 26);
        feed(h, &seen, &w, 5, 1, false);
        check(seen.lost && !h->settled);
        read_apply(&x, &(struct read_parsers) { .h2 = h }, 5, 24, 0, &effect);
        h->extra = 2;
        h->open = 3;
        h2_refuse(h, &x, &effect);
        check(effect.in_flight == -2 && h->open == 0 && !effect.unparsed && !effect.overlap);
        check(x.read_at == 5);
        exchange_depart(&x, 7, 26, 1, &effect);
        check(effect.begun && x.first_out_at == 7);
        free(h);
}

static const size_t sizes[] = { 1, 2, 3, 5, 8, 9, 10, 17, 100, 256, 257, SIZE_MAX };

static void test_detect(void) {
        uint64_t bytes;

        memcpy(&bytes, preface, sizeof(bytes));
        check(h2_detect(bytes, 24));
        check(h2_detect(bytes & 0xffffff, 3) && h2_detect(bytes & 0xffffffffffffff, 7) &&
              !h2_detect(bytes & 0xffff, 2));
        check(!h2_detect(bytes ^ 1, 24) && !h2_detect(bytes ^ UINT64_C(1) << 56, 8) &&
              !h2_detect((bytes ^ 0x10000) & 0xffffff, 3));
        check(protocol_detect(bytes, 24) == PROTOCOL_PLAIN);

        /* Amid a connection: HEADERS, DATA, SETTINGS, and bytes that resemble them */
        static const struct {
                uint8_t bytes[8];
                bool is;
        } table[] = {
                { { 0, 0, 40, 1, 5, 0, 0, 0 },  true  },
                { { 0, 0, 0, 1, 5, 0, 0, 0 },   false },
                { { 0, 64, 0, 0, 1, 0, 1, 2 },  true  },
                { { 0, 64, 0, 0, 1, 128, 1, 2 }, false },
                { { 0, 0, 12, 4, 0, 0, 0, 0 },  true  },
                { { 0, 0, 13, 4, 0, 0, 0, 0 },  false },
                { { 0, 0, 8, 6, 1, 0, 0, 0 },   true  },
                { { 0, 0, 4, 8, 0, 0, 0, 0 },   true  },
                { { 0, 0, 5, 8, 0, 0, 0, 0 },   false },
                { "GET / HT",                   false },
                { "*1\r\n$4\r\n",               false },
                { { 0x16, 3, 1, 2, 0, 1, 0, 1 }, false },
        };
        for (size_t i = 0; i < ELEMENTSOF(table); i++) {
                memcpy(&bytes, table[i].bytes, sizeof(bytes));
                check(!!h2_detect_late(bytes, 8) == table[i].is);
        }
}

/* Two requests, with responses in reverse order, in pieces of all sizes. */
static void test_streams(void) {
        for (size_t i = 0; i < ELEMENTSOF(sizes); i++) {
                struct h2_conn *h = begin();
                Wire in = {}, out = {};
                Seen seen = {};

                put(&in, preface, 24);
                put_frame(&in, H2_SETTINGS, 0, 0, NULL, 0);
                TEXT(&in, H2_HEADERS, END | HEAD, 1, "\x82\x86\x84");
                TEXT(&in, H2_HEADERS, 0, 3, "\x83\x86");
                TEXT(&in, H2_CONTINUATION, HEAD, 3, "\x84");
                TEXT(&in, H2_DATA, 0, 3, "some");
                put_frame(&in, H2_PING, 0, 0, "12345678", 8);
                TEXT(&in, H2_DATA, END, 3, "more");
                TEXT(&in, 0x42, 0xff, 0x12345, "what nobody knows");
                feed(h, &seen, &in, sizes[i], 1000, true);
                check(!seen.lost && seen.n == 0 && h->open == 2 && h2_extra(h) == 1);

                put_frame(&out, H2_SETTINGS, 0, 0, "\0\3\0\0\0\x64", 6);
                put_frame(&out, H2_SETTINGS, H2_ACK, 0, NULL, 0);
                TEXT(&out, H2_HEADERS, HEAD, 3, "\x88");              /* 200 */
                TEXT(&out, H2_HEADERS, END | HEAD, 1, "\x8e");        /* 500 */
                put_frame(&out, H2_DATA, 0, 3, in.bytes, 200);
                put_frame(&out, H2_DATA, END, 3, in.bytes, 0);
                feed(h, &seen, &out, sizes[i], 2000, false);
                check(!seen.lost && seen.n == 2 && seen.dropped == 0 && seen.unseen == 0 && h->open == 0 &&
                      h2_extra(h) == -1);
                check(seen.begun == 2);
                check(seen.streams[0].id == 1 && seen.streams[0].status == 5 && seen.streams[0].flags == 0);
                check(seen.streams[1].id == 3 && seen.streams[1].status == 2 && seen.streams[1].flags == 0);
                for (unsigned k = 0; k < 2; k++)
                        check(seen.streams[k].first_at == 1000 && seen.streams[k].last_at == 1000 &&
                              seen.streams[k].read_at == 1005 && seen.streams[k].first_out_at == 2005);
                free(h);
        }
}

/* Arrival times of the bytes of a request, by position in the stream. */
static void test_times(void) {
        const struct h2_stream *s;
        struct arrival_times times =
                { .marks = { .n = 3, .end = { 24 + 9 + 4, 24 + 9 + 10, 24 + 9 + 10 + 9 + 5 },
                             .at = { 10, 20, 30 }, .tail_at = 40 } };
        struct h2_piece piece = { .now = 50 };
        struct h2_conn *h = begin();
        Seen seen = {};
        Wire in = {};

        put(&in, preface, 24);
        TEXT(&in, H2_HEADERS, HEAD, 1, "0123456789");
        TEXT(&in, H2_DATA, END, 1, "01234");
        h2_feed(h, &piece, in.bytes, in.n, 0, &times, on_event, &seen);
        check(h->open == 1);
        s = h2_stream(h, h2_get_more(h), 1);
        check(s && s->first_at == 10 && s->last_at == 40 && s->read_at == 50);
        free(h);
}

static void test_ends(void) {
        for (size_t i = 0; i < ELEMENTSOF(sizes); i++) {
                struct h2_conn *h = begin();
                Wire in = {}, out = {}, more = {}, last = {};
                const struct h2_stream *s;
                Seen seen = {};

                put(&in, preface, 24);
                for (uint32_t id = 1; id <= 13; id += 2)
                        TEXT(&in, H2_HEADERS, END | HEAD, id, "\x82");
                TEXT(&in, H2_RST_STREAM, 0, 1, "\0\0\0\x8");
                TEXT(&in, H2_RST_STREAM, 0, 1, "\0\0\0\x8");
                feed(h, &seen, &in, sizes[i], 1000, true);
                check(seen.dropped == 1 && seen.n == 0 && h->open == 6);

                TEXT(&out, H2_RST_STREAM, 0, 3, "\0\0\0\x7");
                TEXT(&out, H2_HEADERS, HEAD, 5, "\x88");
                TEXT(&out, H2_HEADERS, HEAD, 7, "\x88");
                TEXT(&out, H2_RST_STREAM, 0, 5, "\0\0\0\x2");
                TEXT(&out, H2_PUSH_PROMISE, HEAD, 7, "\0\0\0\x2\x88");
                TEXT(&out, H2_HEADERS, END | HEAD, 2, "\x88");
                TEXT(&out, H2_GOAWAY, 0, 0, "\0\0\0\xb\0\0\0\0bye");
                feed(h, &seen, &out, sizes[i], 2000, false);
                /* Streams 3 and 5 of the server, of which 5 has begun; 13 is refused */
                check(seen.dropped == 4 && seen.n == 1 && seen.streams[0].id == 5 && h->open == 3);

                TEXT(&more, H2_HEADERS, END | HEAD, 15, "\x82");      /* behind GOAWAY */
                TEXT(&more, H2_RST_STREAM, 0, 7, "\0\0\0\x8");
                TEXT(&more, H2_DATA, END, 5, "late");
                feed(h, &seen, &more, sizes[i], 3000, true);
                check(seen.dropped == 5 && seen.n == 2 && seen.streams[1].id == 7 && h->open == 2 &&
                      seen.unseen == 0);

                TEXT(&last, H2_HEADERS, HEAD, 9, "\x08\x03""103");    /* an interim response */
                feed(h, &seen, &last, sizes[i], 4000, false);
                s = h2_stream(h, h2_get_more(h), 9);
                check(s && s->first_out_at == 0 && s->status == 0);
                last.n = 0;
                TEXT(&last, H2_HEADERS, END | HEAD, 9, "\x8d");
                feed(h, &seen, &last, sizes[i], 5000, false);
                check(seen.n == 3 && seen.streams[2].status == 4 && seen.streams[2].first_out_at == 5005 &&
                      h->open == 1);
                free(h);
        }
}

/* Padding and priority before and after a block. */
static void test_padding(void) {
        for (size_t i = 0; i < ELEMENTSOF(sizes); i++) {
                struct h2_conn *h = begin();
                Wire in = {}, out = {};
                Seen seen = {};

                put(&in, preface, 24);
                for (uint32_t id = 1; id <= 7; id += 2)
                        TEXT(&in, H2_HEADERS, END | HEAD, id, "\x82");
                feed(h, &seen, &in, sizes[i], 1, true);

                TEXT(&out, H2_HEADERS, HEAD | END | H2_PADDED, 1, "\3\x8e\0\0\0");
                TEXT(&out, H2_HEADERS, HEAD | END | H2_PADDED | H2_HAS_PRIORITY, 3,
                     "\3\x80\0\0\1\x10\x8d\0\0\0");
                TEXT(&out, H2_HEADERS, END | H2_HAS_PRIORITY, 5, "\x80\0\0\1\x10");
                TEXT(&out, H2_CONTINUATION, 0, 5, "");
                TEXT(&out, H2_CONTINUATION, HEAD, 5, "\x88");
                /* exceeds the length: invalid, but the position is not lost */
                TEXT(&out, H2_HEADERS, HEAD | END | H2_PADDED, 7, "\xff\x8e");
                feed(h, &seen, &out, sizes[i], 2, false);
                check(seen.n == 4 && !seen.lost && h->open == 0);
                check(seen.streams[0].status == 5 && seen.streams[1].status == 4 &&
                      seen.streams[2].status == 2);
                free(h);
        }
}

/* More streams than the limit. */
static void test_full(void) {
        struct h2_conn *h = begin();
        Wire in = {}, out = {};
        Seen seen = {};

        put(&in, preface, 24);
        for (uint32_t i = 0; i < 300; i++)
                TEXT(&in, H2_HEADERS, END | HEAD, 2 * i + 1, "\x82");
        feed(h, &seen, &in, SIZE_MAX, 1, true);
        check(h->open == H2_STREAMS && seen.unseen == 300 - H2_STREAMS);
        for (uint32_t i = 0; i < 300; i++)
                TEXT(&out, H2_HEADERS, END | HEAD, 2 * i + 1, "\x88");
        feed(h, &seen, &out, SIZE_MAX, 2, false);
        check(h->open == 0 && seen.n == H2_STREAMS);
        free(h);
}

/* Numbers of streams up to 2^31, and old streams that stay while new ones are opened and closed. */
static void test_numbers(void) {
        struct h2_conn *h = begin();
        Seen seen = {};
        Wire w = {};

        put(&w, preface, 24);
        TEXT(&w, H2_HEADERS, END | HEAD, 1, "\x82");
        TEXT(&w, H2_HEADERS, END | HEAD, 3, "\x82");
        feed(h, &seen, &w, SIZE_MAX, 1, true);
        for (uint32_t id = 5; id < 0x7fffff00; id += 0x1000002) {
                w.n = 0;
                TEXT(&w, H2_HEADERS, END | HEAD, id, "\x82");
                feed(h, &seen, &w, SIZE_MAX, 1, true);
                check(h->open == 3);
                w.n = 0;
                TEXT(&w, H2_HEADERS, END | HEAD, id, "\x88");
                feed(h, &seen, &w, SIZE_MAX, 1, false);
                check(h->open == 2 && seen.streams[seen.n - 1].id == id);
        }
        check(seen.unseen == 0);
        free(h);
}

/* Streams that stay open leave places for all others. */
static void test_held(void) {
        static const uint32_t numbers[] = { 1, 12, 90, 128 };

        for (size_t n = 0; n < ELEMENTSOF(numbers); n++) {
                struct h2_conn *h = begin();
                uint32_t id = 1;
                Seen seen = {};
                Wire w = {};

                put(&w, preface, 24);
                for (; id < 2 * numbers[n]; id += 2)
                        TEXT(&w, H2_HEADERS, END | HEAD, id, "\x82");
                feed(h, &seen, &w, SIZE_MAX, 1, true);
                for (unsigned i = 0; i < 2 * H2_STREAMS; i++, id += 2) {
                        w.n = 0;
                        TEXT(&w, H2_HEADERS, END | HEAD, id, "\x82");
                        feed(h, &seen, &w, SIZE_MAX, 1, true);
                        w.n = 0;
                        TEXT(&w, H2_HEADERS, END | HEAD, id, "\x88");
                        feed(h, &seen, &w, SIZE_MAX, 1, false);
                }
                check(h->open == numbers[n] && seen.n == 2 * H2_STREAMS && seen.unseen == 0);
                free(h);
        }
}

/* A connection older than the attach: responses are known from the beginning of one on. */
static void test_late(void) {
        struct h2_conn *h = h2_storage_new();
        Wire in = {}, out = {}, noise = {};
        Seen seen = {};

        check(h);
        h2_begin(h, 0, true);
        TEXT(&in, H2_HEADERS, END | HEAD, 101, "\x82");
        feed(h, &seen, &in, SIZE_MAX, 1, true);
        check(h->open == 0 && seen.unseen == 1);

        h->out.synced = H2_EDGE; /* as in the programs, when nothing is unsent */
        TEXT(&out, H2_DATA, END, 99, "rest");
        feed(h, &seen, &out, SIZE_MAX, 2, false);
        check(h->out.synced == H2_SYNCED && seen.n == 0 && !seen.lost);

        in.n = out.n = 0;
        for (uint32_t id = 103; id <= 109; id += 2)
                TEXT(&in, H2_HEADERS, END | HEAD, id, "\x82");
        feed(h, &seen, &in, SIZE_MAX, 3, true);
        check(h->open == 4 && seen.unseen == 1);

        TEXT(&out, H2_HEADERS, END | HEAD, 103, "\xbe");                /* inserted before */
        /* the status is known, the content type is not */
        TEXT(&out, H2_HEADERS, END | HEAD, 105, "\x88\xbf");
        TEXT(&out, H2_HEADERS, END | HEAD, 107, "\x88\x0f\x10\1x\xbf"); /* is known */
        /* 62 is the content type, 63 the status, further ones are unknown */
        TEXT(&out, H2_HEADERS, END | HEAD, 109, "\x48\x03""503\x5f\0\xbf");
        feed(h, &seen, &out, SIZE_MAX, 4, false);
        check(seen.n == 4);
        check(seen.streams[0].flags == H2_STREAM_UNKNOWN && seen.streams[0].status == 0);
        check(seen.streams[1].flags == H2_STREAM_UNKNOWN);
        check(seen.streams[2].flags == 0 && seen.streams[2].status == 2);
        check(seen.streams[3].flags == 0 && seen.streams[3].status == 5);

        /* A call with an unknown field in the head, and a status */
        in.n = out.n = 0;
        for (uint32_t id = 111; id <= 115; id += 2)
                TEXT(&in, H2_HEADERS, END | HEAD, id, "\x82");
        feed(h, &seen, &in, SIZE_MAX, 5, true);
        TEXT(&out, H2_HEADERS, HEAD, 111, "\x88\x0f\x10\x10""application/grpc\xff\x20");
        TEXT(&out, H2_HEADERS, END | HEAD, 111, "\x00\x0bgrpc-status\x02""13");
        TEXT(&out, H2_HEADERS, HEAD, 113, "\x88\x0f\x10\x10""application/grpc");
        TEXT(&out, H2_HEADERS, END | HEAD, 113, "\xff\x20");
        TEXT(&out, H2_HEADERS, END | HEAD, 115, "\x88\x0f\x10\x10"
             "application/grpc\x00\x0bgrpc-status\x01z");
        feed(h, &seen, &out, SIZE_MAX, 6, false);
        check(seen.n == 7);
        check(seen.streams[4].flags == H2_STREAM_GRPC && h2_is_failed_call(&seen.streams[4]) &&
              !h2_is_unknown_call(&seen.streams[4]));
        check(!h2_is_failed_call(&seen.streams[5]) && h2_is_unknown_call(&seen.streams[5]));
        check(seen.streams[6].grpc == HPACK_GRPC_UNKNOWN + 1);

        /* No frames */
        put(&noise, "GET / HTTP/1.1\r\n", 16);
        feed(h, &seen, &noise, SIZE_MAX, 5, true);
        check(seen.lost);
        free(h);
}

/* ---- heads ------------------------------------------------------------------------------------------- */

/* gRPC: a call that succeeds, one that fails, one that fails at once, and one that ends without a status. */
static void test_grpc(void) {
        for (size_t i = 0; i < ELEMENTSOF(sizes); i++) {
                struct h2_conn *h = begin();
                Wire in = {}, out = {};
                Seen seen = {};

                put(&in, preface, 24);
                for (uint32_t id = 1; id <= 9; id += 2)
                        TEXT(&in, H2_HEADERS, END | HEAD, id, "\x83");
                feed(h, &seen, &in, sizes[i], 1, true);

                TEXT(&out, H2_HEADERS, HEAD, 1, "\x88\x5f\x10""application/grpc");
                TEXT(&out, H2_HEADERS, HEAD, 3, "\x88\xbe");
                TEXT(&out, H2_DATA, 0, 1, "\0\0\0\0\2ok");
                TEXT(&out, H2_HEADERS, END | HEAD, 1, "\x40\x0bgrpc-status\x01""0");
                TEXT(&out, H2_HEADERS, END | HEAD, 3, "\x7e\x02""14");
                TEXT(&out, H2_HEADERS, END | HEAD, 5, "\x88\xc0\xbe");  /* 62: 14, 63: 0, 64: the content */
                TEXT(&out, H2_HEADERS, HEAD, 7, "\x88\xc0");
                TEXT(&out, H2_DATA, END, 7, "");
                TEXT(&out, H2_HEADERS, END | HEAD, 9, "\x88\xc0\xbf");
                feed(h, &seen, &out, sizes[i], 2, false);

                check(seen.begun == 5 && seen.n == 5 && h->open == 0 && !seen.lost);
                for (unsigned k = 0; k < seen.n; k++)
                        check(seen.streams[k].flags == H2_STREAM_GRPC && seen.streams[k].status == 2);
                check(!h2_is_failed_call(&seen.streams[0]) && h2_is_failed_call(&seen.streams[1]) &&
                      h2_is_failed_call(&seen.streams[2]) &&
                      h2_is_failed_call(&seen.streams[3]) && !h2_is_failed_call(&seen.streams[4]));
                free(h);
        }
}

/* ---- paths of requests ---- */

static uint64_t name_of(const char *path) {
        uint64_t name = NAME_BEGIN;

        for (; *path; path++)
                name = name_add(name, (uint8_t) *path);
        return name;
}

static bool stream_is_excluded(struct h2_conn *h, uint32_t id) {
        const struct h2_stream *s = h2_stream(h, h2_get_more(h), id);

        check(s);
        return s->flags & H2_STREAM_EXCLUDED;
}

static const char *excluded_path, *excluded_directory;
static unsigned names_seen;

static bool is_excluded(const struct hpack_path *path) {
        bool excluded = excluded_path && path->name == name_of(excluded_path);

        check(path->known && path->n_directories <= NAME_DIRECTORIES);
        names_seen++;
        for (unsigned i = 0; i < path->n_directories; i++)
                excluded = excluded ||
                           (excluded_directory && path->directories[i] == name_of(excluded_directory));
        return excluded;
}

/* How the path is encoded, the exclusions, and whether it is excluded; encodings in the order of the
 * connection. */
static void expect_path(const char *before, size_t n_before, const char *block, size_t n, const char *path,
                        const char *directory, bool excluded, unsigned seen) {
        for (size_t i = 0; i < ELEMENTSOF(sizes); i++) {
                struct h2_conn *h = begin();
                Seen s = {};
                Wire in = {};

                h2_excludes = is_excluded;
                excluded_path = path;
                excluded_directory = directory;
                h->names = 1;
                put(&in, preface, 24);
                put_frame(&in, H2_HEADERS, END | HEAD, 1, before, n_before);
                put_frame(&in, H2_HEADERS, END | HEAD, 3, block, n);
                names_seen = 0;
                feed(h, &s, &in, sizes[i], 1, true);
                check(!s.lost && names_seen == seen);
                check(stream_is_excluded(h, 3) == excluded);
                check(h->open == 2U - excluded - stream_is_excluded(h, 1));
                free(h);
        }
}

#define PATH(block, path, directory, excluded, seen) expect_path("\x82", 1, block, sizeof(block) - 1, path, \
                                                                 directory, excluded, seen)
#define PATH_BEHIND(before, block, path, directory, excluded, seen) \
        expect_path(before, sizeof(before) - 1, block, sizeof(block) - 1, path, directory, excluded, seen)

#define CODED_HEALTHZ "\x86\x62\x72\x8e\x84\xcf\xef"
#define CODED_CHECK \
        "\x95\x62\x6b\x2b\x22\xf3\x94\x74\x26\x75\xfb\x85\x7c\x65\x1d\x09\x9d\x8b\xd3\x94\x9d\x7f"
/* All characters of a path, except "?" */
#define PRINTABLE \
        "!\"#$%&'()*+,-./0123456789:;<=>@ABCDEFGHIJKLMNOPQRSTUVWXYZ[]^_`abcdefghijklmnopqrstuvwxyz{|}~"
#define CODED_PRINTABLE \
"\xd9\xfe\x3f\x9f\xfa\xff\xca\xbf\x1f\xeb\xfa\xfe\xfe\x7f\xdf\xd2\xcb\xb0\x00\x89\x96\x9b\x71\xd7\x9f\xb9" \
        "\xf7\xff\xf2\x0f\xfb\xff\xd4\x37\x6f\x5f\xc1\x87\x16\x3c\x99\x73\x67\xd1\xa7\x56\xbd\x9b\x77\x6f" \
        "\xe1\xc7\x97\xe7\x3f" \
        "\xdf\xfd\xff\xf3\xff\xc8\xbf\xfe\x8e\x32\x48\x59\x66\x9c\xdd\x3a\xd1\x4d\x47\xaf\xb5\x88\x4d\xbd" \
        "\xfc\x79\xf5\xef\xff" \
        "\xf7\xfc\xff\xf7\xff\xbf"

static void test_paths(void) {
        /* As a literal: its name by index or literal, both plain or Huffman-coded, to be inserted or not */
        PATH("\x82\x04\x08/healthz", "/healthz", NULL, true, 1);
        PATH("\x82\x04" CODED_HEALTHZ, "/healthz", NULL, true, 1);
        PATH("\x82\x44" CODED_HEALTHZ "\x86", "/healthz", NULL, true, 1);
        PATH("\x82\x15\x08/healthz", "/healthz", NULL, true, 1);
        PATH("\x00\x05:path\x08/healthz", "/healthz", NULL, true, 1);
        PATH("\x40\x84\xb9\x58\xd3\x3f" CODED_HEALTHZ, "/healthz", NULL, true, 1);
        PATH("\x00\x04:pat\x08/healthz", "/healthz", NULL, false, 0);
        PATH("\x00\x06:paths\x08/healthz", "/healthz", NULL, false, 0);
        PATH("\x04\x95\x62\x6b\x2b\x22\xf3\x94\x74\x26\x75\xfb\x85\x7c\x65\x1d\x09\x9d\x8b\xd3\x94\x9d\x7f",
             "/grpc.health.v1.Health/Check", NULL, true, 1);
        /* Those in the static table */
        PATH("\x84", "/", NULL, true, 1);
        PATH("\x85", "/index.html", NULL, true, 1);
        PATH("\x85", "/index.htm", "/", true, 1);
        PATH("\x84", "/healthz", NULL, false, 1);
        PATH("\x82", "/", "/", false, 0);
        /* Similar values */
        PATH("\x04\x09/healthzz", "/healthz", NULL, false, 1);
        PATH("\x04\x07/health", "/healthz", NULL, false, 1);
        PATH("\x04\x09/healthz/", "/healthz", "/healthzz/", false, 1);
        /* Other fields, and values that are no path */
        PATH("\x82\x41\x08/healthz\x84", "/healthz", NULL, false, 1);
        PATH("\x04\x00", "/healthz", "/", false, 1);
        /* Queries; directories up to the limit */
        PATH("\x04\x0d/healthz?long", "/healthz", NULL, true, 1);
        PATH("\x04\x08/a/b/c/d", NULL, "/a/b/c/", true, 1);
        PATH("\x04\x8d\x60\x6c\x46\xc1\x18\x91\x82\xff\x9d\xa0\xff\xfe\x1f", "/a/b/c/d/e", NULL, true, 1);
        PATH("\x04\x8d\x60\x6c\x46\xc1\x18\x91\x82\xff\x9d\xa0\xff\xfe\x1f", NULL, "/a/b/c/", true, 1);
        PATH("\x04\x8d\x60\x6c\x46\xc1\x18\x91\x82\xff\x9d\xa0\xff\xfe\x1f", NULL, "/a/b/c/d/", false, 1);
        /* Each character; one that is invalid in a rule */
        PATH("\x04" CODED_PRINTABLE, PRINTABLE, NULL, true, 1);
        PATH("\x04\x85\x60\x7f\xff\xc2\x3f", "/a", "/", false, 0);
        /* From the dynamic table, behind other fields; also the name */
        PATH_BEHIND("\x44" CODED_CHECK "\x40\x03""foo\x03""bar", "\x82\xbf", "/grpc.health.v1.Health/Check",
                    NULL, true, 2);
        PATH_BEHIND("\x44\x02/x" "\x7e\x08/healthz", "\xbe", "/healthz", NULL, true, 2);
        PATH_BEHIND("\x44\x02/x" "\x7e\x08/healthz", "\xbf", "/healthz", NULL, false, 2);
        PATH_BEHIND("\x44\x02/x", "\xbf", "/x", NULL, false, 1);
        PATH_BEHIND("\x44\x04/a\\b", "\xbe", "/a\\b", NULL, true, 2);
        PATH_BEHIND("\x44\x85\x60\x7f\xff\xc2\x3f", "\xbe", "/a", "/", false, 0);
        /* The block is truncated in a field: from there on the table is unknown */
        PATH_BEHIND("\x44\x08/healt", "\x84", "/", NULL, false, 0);
        expect_path("\x82", 1, "\x04", 1, "/", "/", false, 0);
}

/* More paths than are remembered: those inserted first are unknown. */
static void test_many_paths(void) {
        struct h2_conn *h = begin();
        uint32_t id = 1;
        Seen s = {};
        Wire in = {};

        h2_excludes = is_excluded;
        excluded_path = NULL;
        excluded_directory = "/";
        h->names = 1;
        put(&in, preface, 24);
        for (unsigned i = 0; i < HPACK_PATHS + 5; i++, id += 2) {
                uint8_t block[4] = { 0x44, 0x02, '/', (uint8_t) ('a' + i) };

                put_frame(&in, H2_HEADERS, END | HEAD, id, block, sizeof(block));
        }
        for (unsigned i = 0; i < HPACK_PATHS + 5; i++, id += 2) {
                uint8_t block = 0x80 | (HPACK_STATIC + 1 + i);

                put_frame(&in, H2_HEADERS, END | HEAD, id, &block, 1);
        }
        names_seen = 0;
        feed(h, &s, &in, SIZE_MAX, 1, true);
        check(!s.lost && names_seen == 2 * HPACK_PATHS + 5 && h->open == 5);
        free(h);
}

/* Without memory for the second half of the table of streams, and for paths. */
static void test_no_memory(void) {
        struct h2_conn *h = begin();
        Wire in = {}, out = {};
        Seen seen = {};

        h->more = H2_MORE_LOST;
        h2_excludes = is_excluded;
        h->names = 1;
        put(&in, preface, 24);
        for (uint32_t i = 0; i < 300; i++)
                TEXT(&in, H2_HEADERS, END | HEAD, 2 * i + 1, "\x84");
        names_seen = 0;
        feed(h, &seen, &in, SIZE_MAX, 1, true);
        check(h->open == H2_STREAMS / 2 && seen.unseen == 300 - H2_STREAMS / 2 && names_seen == 0);
        for (uint32_t i = 0; i < 300; i++)
                TEXT(&out, H2_HEADERS, END | HEAD, 2 * i + 1, "\x88");
        feed(h, &seen, &out, SIZE_MAX, 2, false);
        check(h->open == 0 && h->taken == 0 && seen.n == H2_STREAMS / 2);
        free(h);
}

/* In several frames, with padding and priorities, and with trailers. Excluded requests are not open, not
 * aborted, and in no metric. */
static void test_left_out(void) {
        for (size_t i = 0; i < ELEMENTSOF(sizes); i++) {
                struct h2_conn *h = begin();
                Wire in = {}, out = {}, last = {};
                Seen seen = {};

                h2_excludes = is_excluded;
                excluded_path = "/healthz";
                excluded_directory = NULL;
                h->names = 1;
                put(&in, preface, 24);
                TEXT(&in, H2_HEADERS, 0, 1, "\x82\x44\x08/he");
                TEXT(&in, H2_CONTINUATION, 0, 1, "");
                TEXT(&in, H2_CONTINUATION, 0, 1, "al");
                TEXT(&in, H2_CONTINUATION, HEAD, 1, "thz\x86");
                TEXT(&in, H2_DATA, 0, 1, "some");
                TEXT(&in, H2_HEADERS, END | HEAD, 1, "\x40\x03""foo\x03""bar"); /* a trailer */
                TEXT(&in, H2_HEADERS, END | HEAD | H2_PADDED | H2_HAS_PRIORITY, 3,
                     "\3\x80\0\0\1\x10\xbf\0\0\0");
                TEXT(&in, H2_HEADERS, END | HEAD | H2_PADDED, 5, "\2\x82\x84\0\0");
                TEXT(&in, H2_HEADERS, END | HEAD, 7, "\xbf");
                TEXT(&in, H2_HEADERS, END | HEAD, 9, "\xbf");
                feed(h, &seen, &in, sizes[i], 1000, true);
                check(!seen.lost && seen.n == 0 && h->open == 1 && h2_extra(h) == 0);

                TEXT(&out, H2_HEADERS, END | HEAD, 1, "\x8e");
                TEXT(&out, H2_HEADERS, HEAD, 3, "\x88");
                TEXT(&out, H2_HEADERS, END | HEAD, 5, "\x88");
                TEXT(&out, H2_RST_STREAM, 0, 3, "\0\0\0\x2");
                TEXT(&out, H2_RST_STREAM, 0, 7, "\0\0\0\x2");
                TEXT(&out, H2_GOAWAY, 0, 0, "\0\0\0\x7\0\0\0\0");
                feed(h, &seen, &out, sizes[i], 2000, false);
                check(seen.n == 3 && seen.dropped == 0 && h->open == 0);
                for (unsigned k = 0; k < 3; k++)
                        check(!!(seen.streams[k].flags & H2_STREAM_EXCLUDED) == (seen.streams[k].id != 5));

                /* Exclusions are removed and added again: paths inserted in between are unknown */
                h->last_id = 9;
                h->names = 0;
                TEXT(&last, H2_HEADERS, END | HEAD, 11, "\x44\x08/healthz");
                feed(h, &seen, &last, sizes[i], 3000, true);
                h->names = 1;
                last.n = 0;
                TEXT(&last, H2_HEADERS, END | HEAD, 13, "\xbe");
                TEXT(&last, H2_HEADERS, END | HEAD, 15, "\x44\x08/healthz");
                TEXT(&last, H2_HEADERS, END | HEAD, 17, "\xbf");
                TEXT(&last, H2_HEADERS, END | HEAD, 19, "\xbe");
                feed(h, &seen, &last, sizes[i], 4000, true);
                check(!seen.lost && h->open == 3 && stream_is_excluded(h, 15) && stream_is_excluded(h, 19));
                free(h);
        }
}

/* Server-sent events: the head is the response, later data belongs to none. */
static void test_events(void) {
        struct h2_conn *h = begin();
        Wire in = {}, out = {};
        Seen seen = {};

        put(&in, preface, 24);
        TEXT(&in, H2_HEADERS, END | HEAD, 1, "\x82");
        feed(h, &seen, &in, SIZE_MAX, 1, true);
        TEXT(&out, H2_HEADERS, HEAD, 1, "\x88\x0f\x10\x11text/event-stream");
        TEXT(&out, H2_DATA, 0, 1, "data: 1\n\n");
        TEXT(&out, H2_DATA, END, 1, "data: 2\n\n");
        feed(h, &seen, &out, SIZE_MAX, 2, false);
        check(seen.begun == 1 && seen.n == 1 && seen.streaming[0] && h->open == 0);
        free(h);
}

/* Gauge: open requests, and arrived bytes that may be a request. */
static void test_gauge(void) {
        struct exchange_effect effect = {};
        struct exchange x = { .n_marks = 1, .mark_at = { 7 } };
        struct h2_conn *h = begin();

        h2_settle(h, &x, 9, &effect);
        check(effect.in_flight == 1 && x.open_at == 7);
        x.n_marks = 0;
        check(h2_open(h, NULL, 1, 7) && h2_open(h, NULL, 3, 8) && h2_open(h, NULL, 5, 8));
        h2_settle(h, &x, 9, &effect);
        check(effect.in_flight == 3);
        h2_give_up(h, &x, &effect);
        h2_clear(h, h2_get_more(h));
        effect.in_flight += h2_extra(h);
        check(effect.in_flight == 0 && effect.overlap && effect.unparsed && h->open == 0);
        free(h);
}

/* The server ends the connection with an error: one failed request, unless streams end with it. */
static void test_error(void) {
        for (size_t i = 0; i < ELEMENTSOF(sizes); i++)
                for (unsigned open = 0; open < 2; open++)
                        for (unsigned error = 0; error < 2; error++) {
                                struct h2_conn *h = begin();
                                Wire in = {}, out = {}, last = {};
                                Seen seen = {};

                                put(&in, preface, 24);
                                TEXT(&in, H2_HEADERS, END | HEAD, 1, "\x82");
                                feed(h, &seen, &in, sizes[i], 1000, true);
                                /* SETTINGS was sent before the preface was read */
                                if (!open && i % 2) {
                                        TEXT(&out, H2_GOAWAY, 0, 0, "\0\0\0\0\0\0\0\x1");
                                        feed(h, &seen, &out, sizes[i], 2000, false);
                                        check(!seen.lost && h->open == 0 && seen.dropped == 1);
                                        free(h);
                                        continue;
                                }
                                TEXT(&out, H2_SETTINGS, 0, 0, "");
                                TEXT(&out, H2_HEADERS, open ? HEAD : END | HEAD, 1, "\x88");
                                feed(h, &seen, &out, sizes[i], 2000, false);
                                check(h->open == open && seen.dropped == 0);
                                if (error)
                                        TEXT(&last, H2_GOAWAY, 0, 0, "\0\0\0\x1\0\0\0\x6too large");
                                else
                                        TEXT(&last, H2_GOAWAY, 0, 0, "\0\0\0\x1\0\0\0\0too long");
                                feed(h, &seen, &last, sizes[i], 3000, false);
                                check(!seen.lost && h->open == open && seen.dropped == (error && !open));
                                free(h);
                        }
}

int main(int argc, char *argv[]) {
        test_error();
        test_detect();
        test_other();
        test_streams();
        test_times();
        test_ends();
        test_padding();
        test_full();
        test_no_memory();
        test_numbers();
        test_held();
        test_late();
        test_grpc();
        test_paths();
        test_many_paths();
        test_left_out();
        test_events();
        test_gauge();
        return EXIT_SUCCESS;
}
