/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The parser of HTTP/1.x (bpf/protocols/http1.h): requests, their responses, and where these end. */

#include "util-pipeline.h"

#define HEAD "HTTP/1.1 200 OK\r\nServer: x\r\n"

static struct pipeline http(void) {
        struct pipeline t = {};

        pipeline_begin(&t, PROTOCOL_HTTP1, 0, 0);
        return t;
}

/* In pieces of this size. Returns whether it is understood. */
static bool request(struct pipeline *p, const char *s, size_t piece_size) {
        struct arrival_times times = { .came_at = 1 };
        struct parsed_chunk piece = {};
        size_t length = strlen(s);

        for (size_t i = 0, n; i < length && !piece.lost; i += n) {
                n = MIN(piece_size, length - i);
                times.came_at++;
                pipeline_feed_requests(p, &piece, s + i, n, &times, (uint32_t) i);
                pipeline_read(p, times.came_at);
        }
        return !piece.lost;
}

/* The same; all pieces as one. Returns the number of requests with a response. */
static uint32_t respond(struct pipeline *p, const char *s, size_t piece_size, struct parsed_chunk *ret) {
        size_t length = strlen(s);
        uint32_t responded = 0;

        *ret = (struct parsed_chunk) {};
        for (size_t i = 0, n; i < length && !ret->lost && !ret->tunnel; i += n) {
                struct parsed_chunk piece = {};

                n = MIN(piece_size, length - i);
                pipeline_feed_responses(p, &piece, s + i, n);
                responded += pipeline_take_responses(p, &piece, false);
                ret->lost = piece.lost;
                ret->tunnel = piece.tunnel;
                ret->streams += piece.streams;
                ret->status4xx += piece.status4xx;
                ret->failed += piece.failed;
        }
        return responded;
}

static uint32_t detect(const char *s) {
        uint64_t bytes = 0;
        size_t n = strlen(s);

        memcpy(&bytes, s, MIN(n, sizeof(bytes)));
        return protocol_detect(bytes, n);
}

static void test_detect(void) {
        static const char *const yes[] = { "GET / HTTP/1.1", "HEAD /x", "POST /", "PUT /a", "DELETE /",
                                           "OPTIONS *", "OPTIONS /",
                                           "PATCH /", "CONNECT a:1", "TRACE /", "PROPFIND /", "M-SEARCH *",
                                           "GET http://a/",
                                           "GET HTTP://a/", "Get /", "UNSUBSCRIBE /", "G", "GE", "GET",
                                           "GET ", "MKCOL", "OPTIONS", "\r\nGET / HTTP/1.1", "\r\n\r\nGET /",
        };
        static const char *const no[] = { "", "PRI * HTTP/2.0", "PING\r\n", "HELO mx", "USER me", "AUTH x y",
                                          "\r\n", "\r\n\r\n", "\r\nEHLO mx",
                                          "g", "PROXY TCP4 1", "\x16\x03\x01", " GET /", "GE /", "GET\t/",
                                          "5 /abc", "EHLO\r\n",
                                          "SSH-2.0-OpenSSH",
        };

        for (size_t i = 0; i < ELEMENTSOF(yes); i++)
                check(detect(yes[i]) == PROTOCOL_HTTP1);
        for (size_t i = 0; i < ELEMENTSOF(no); i++)
                check(detect(no[i]) == PROTOCOL_PLAIN);
        check(detect("*1\r\n$4\r\n") == PROTOCOL_REDIS);
        check(detect("get x\r\n") == PROTOCOL_MEMCACHED);
}

/* However they are cut. */
static void test_requests(void) {
        static const struct {
                const char *data;
                uint32_t n;
                uint64_t bare;
        } table[] = {
                { "GET / HTTP/1.1\r\nHost: a\r\n\r\n", 1, 0 },
                { "GET / HTTP/1.0\r\n\r\n", 1, 0 },
                { "GET / HTTP/1.1\nHost: a\n\n", 1, 0 },
                { "\r\n\nGET / HTTP/1.1\r\n\r\n\r\nGET / HTTP/1.1\r\n\r\n", 2, 0 },
                { "HEAD / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\nHEAD / HTTP/1.1\r\nA: b\r\n\r\n", 3, 5 },
                { "HEADER / HTTP/1.1\r\n\r\n", 1, 0 },
                { "head / HTTP/1.1\r\n\r\n", 1, 0 },
                { "POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nabcdePOST / HTTP/1.1\r\ncontent-length:0\r\n"
                  "\r\n", 2, 0 },
                { "POST / HTTP/1.1\r\nCONTENT-LENGTH:\t29  \r\n\r\nGET / HTTP/1.1\r\nHost: abc\r\n\r\n", 1,
                  0 },
                { "POST / HTTP/1.1\r\nX-Content-Length: 9\r\nContent-Lengthy: 9\r\nContent-Lengt: 9\r\n\r\n",
                  1, 0 },
                { "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0A;x=\"\r\ny\"\r\n"
                  "0\r\n\r\n", 1, 0 },
                { "POST / HTTP/1.1\r\ntransfer-encoding:gzip,Chunked\r\nContent-Length: 3\r\n\r\n3\r\n\r\n\n"
                  "\r\n0\r\n\r\n", 1, 0 },
                { "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n00\r\nA: b\r\nContent-Length: 3\r\n"
                  "\r\nGET / HTTP/1.1\r\n\r\n", 2, 0 },
                { "POST / HTTP/1.1\r\nTransfer-Encodings: chunked\r\nTransferXEncoding: y\r\n"
                  "Transfer-Encodinh: z\r\n\r\n", 1, 0 },
                { "POST / HTTP/1.1\r\nTransfer-Encoding: identity\r\nContent-Length: 1\r\n\r\nx", 1, 0 },
                { "GET / HTTP/1.1\r\nA: b\r\n c\r\n\tContent-Length: 5\r\n\r\n", 1, 0 },
                { "GET / HTTP/1.1\r\nA\r\n:\r\nContent\r\nTransfer\r\n\r\n", 1, 0 },
                { "CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n", 1, 0 },
                { "OPTIONS * HTTP/1.1\r\n\r\nM-SEARCH * HTTP/1.1\r\n\r\n", 2, 0 },
                { "HEAD / HTTP/1.1\r\nContent-Length: 5\r\n\r\nabcdeGET / HTTP/1.1\r\n\r\n", 2, 1 },
                /* Not all of it has arrived, but it can have a response */
                { "POST / HTTP/1.1\r\nContent-Length: 500\r\nExpect: 100-continue\r\n\r\n", 1, 0 },
                { "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 1, 0 },
                { "POST / HTTP/1.1\r\nContent-Length: 500\r\nA: b\r\n", 0, 0 },
        };
        static const char *const lost[] = {
                "GET /\r\n\r\n", "GET / HTTP/2.0\r\n\r\n", "GET / RTSP/1.0\r\n\r\n",
                        "GET / HTTP/1.\r\n\r\n", "GET: x\r\n",
                "GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n", "GET / HTTP/1.1\r\nContent-Length: \r\n\r\n",
                "GET / HTTP/1.1\r\nContent-Length: 5, 5\r\n\r\n",
                "GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
                "GET / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
                "GET / HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n",
                "POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
                "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
                "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n", "\rGET / HTTP/1.1\r\n",
                "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
                "THIS-METHOD-IS-LONGER-THAN-ANY-THAT-IS-KNOWN / HTTP/1.1\r\n\r\n",
        };

        for (size_t i = 0; i < ELEMENTSOF(table); i++)
                for (size_t size = 1; size <= strlen(table[i].data); size++) {
                        struct pipeline t = http();

                        check(request(&t, table[i].data, size));
                        check(t.pending == table[i].n);
                        check(t.bare[0] == table[i].bare);
                }
        for (size_t i = 0; i < ELEMENTSOF(lost); i++)
                for (size_t size = 1; size <= strlen(lost[i]); size++) {
                        struct pipeline t = http();

                        check(!request(&t, lost[i], size));
                }
}

static void test_responses(void) {
        static const struct {
                const char *request, *response;
                uint32_t n, status4xx, status5xx, streams;
                bool unfinished;
        } table[] = {
                { "GET", HEAD "Content-Length: 5\r\n\r\nabcde", 1, 0, 0, 0, false },
                { "GET", HEAD "Content-Length: 5\r\n\r\nabcd", 1, 0, 0, 0, true },
                { "GET", HEAD "Content-Length: 0\r\n\r\n", 1, 0, 0, 0, false },
                { "GET", HEAD "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nA: b\r\n\r\n", 1, 0, 0, 0,
                  false },
                { "GET", HEAD "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n", 1, 0, 0, 0, true },
                { "GET", HEAD "\r\nuntil it closes", 1, 0, 0, 0, true },
                { "GET", HEAD "Transfer-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabcdef", 1, 0, 0, 0,
                  true },
                { "GET", "HTTP/1.0 404 No\n\nno", 1, 1, 0, 0, true },
                { "GET", "HTTP/1.1 204 No\r\nContent-Length: 5\r\n\r\n", 1, 0, 0, 0, false },
                { "GET", "HTTP/1.1 304 No\r\nTransfer-Encoding: chunked\r\n\r\n", 1, 0, 0, 0, false },
                { "HEAD", HEAD "Content-Length: 5\r\n\r\n", 1, 0, 0, 0, false },
                { "HEAD", HEAD "Transfer-Encoding: chunked\r\n\r\n", 1, 0, 0, 0, false },
                { "HEAD", "HTTP/1.1 503 No\r\n\r\n", 1, 0, 1, 0, false },
                { "GET", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" HEAD
                  "Content-Length: 0\r\n\r\n", 1, 0, 0, 0, false },
                { "GET", "HTTP/1.1 100 Continue\r\n\r\n", 0, 0, 0, 0, false },
                { "GET", "HTTP/1.1 429\r\nContent-Length: 0\r\n\r\n", 1, 1, 0, 0, false },
                { "GET", HEAD "Content-Type: text/event-stream\r\n\r\ndata: x\n\n", 1, 0, 0, 1, true },
                { "GET", HEAD
                  "content-type:TEXT/Event-Stream;charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n"
                  "a\r\n", 1, 0, 0, 1, true },
                { "GET", HEAD "Content-Type: multipart/x-mixed-replace; boundary=a\r\n\r\n", 1, 0, 0, 1,
                  true },
                { "GET", HEAD "Content-Type: text/eventual\r\nContent-Length: 0\r\n\r\n", 1, 0, 0, 0,
                  false },
                { "GET", HEAD "Content-Type: text/html\r\nContent-Length: 0\r\n\r\n", 1, 0, 0, 0, false },
                { "HEAD", HEAD "Content-Type: text/event-stream\r\n\r\n", 1, 0, 0, 0, false },
                { "CONNECT", "HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n", 1, 1, 0, 0, false },
        };

        for (size_t i = 0; i < ELEMENTSOF(table); i++)
                for (size_t size = 1; size <= strlen(table[i].response); size++) {
                        struct pipeline t = http();
                        struct parsed_chunk piece;
                        char head[100];

                        (void) snprintf(head, sizeof(head), "%s / HTTP/1.1\r\n\r\n",
                                        table[i].request);
                        check(request(&t, head, 100));
                        check(respond(&t, table[i].response, size, &piece) == table[i].n);
                        check(!piece.lost && !piece.tunnel);
                        check(piece.status4xx == table[i].status4xx &&
                              piece.failed == table[i].status5xx);
                        check(piece.streams == table[i].streams);
                        check(t.pending == 1 - table[i].n);
                        /* A stream is in flight no longer */
                        check(!!(t.flags & PIPELINE_RESPONDING) == (table[i].unfinished &&
                                                                    table[i].streams == 0));
                        check(pipeline_is_streaming(&t) == (table[i].streams > 0));
                        check((t.out.state != 0) == table[i].unfinished);
                }
}

static void test_tunnel(void) {
        struct exchange_effect e = {};
        struct parsed_chunk piece;
        struct exchange x = { .flags = EXCHANGE_PARSED | EXCHANGE_IN_KNOWN | EXCHANGE_OUT_KNOWN,
                              .open_at = 5 };
        struct pipeline t;

        for (size_t size = 1; size < 100; size++) {
                t = http();
                check(request(&t, "CONNECT a:443 HTTP/1.1\r\n\r\n", 100));
                check(respond(&t, "HTTP/1.1 200 OK\r\nA: b\r\n\r\n\x16\x03\x01", size, &piece) == 1);
                check(piece.tunnel && !piece.lost);

                t = http();
                check(request(&t, "GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n", 100));
                check(respond(&t, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\nHTTP/1.1 "
                                 "500 x\r\n", size, &piece) == 1);
                check(piece.tunnel == 1 && !piece.lost && piece.failed == 0);

                /* The response is on stream 1 */
                t = http();
                check(request(&t, "GET / HTTP/1.1\r\nUpgrade: h2c\r\n\r\n", 100));
                check(respond(&t, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n", size,
                             &piece) == 0);
                check(piece.tunnel == 2 && !piece.lost && t.pending == 1);
        }
        t = http();
        check(request(&t, "GET / HTTP/1.1\r\n\r\n", 100));

        /* Nothing counts any more, in neither direction */
        pipeline_end(&t, &x, &e);
        check(e.in_flight == -1 && x.open_at == 0);
        e = (struct exchange_effect) {};
        exchange_arrive(&x, 10, &(struct exchange_segment) { 0, 100, 0, 65536 }, &e);
        exchange_read(&x, 11, 100, 0, &e);
        exchange_depart(&x, 12, 100, 1, &e);
        exchange_end(&x, 1, 0, 0, &e);
        check(e.in_flight == 0 && !e.begun && !e.grown && !e.overlap && e.unanswered == 0);

        /* Only the last request can have it */
        t = http();
        check(request(&t, "CONNECT a:443 HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n", 100));
        check(respond(&t, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 100, &piece) == 1);
        check(!piece.tunnel);
}

/* Kinds of requests and responses in any order, all sizes of pieces: each response is that to its
 * request. */
static void test_pipeline(void) {
        static const char *const requests[] = {
                "GET /a HTTP/1.1\r\nHost: a.example\r\nAccept: */*\r\n\r\n",
                "HEAD /b HTTP/1.1\r\nHost: a.example\r\n\r\n",
                "POST /c HTTP/1.1\r\nContent-Length: 11\r\n\r\nGET / HTTP/",
                "POST /d HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n7\r\nHTTP/1.\r\n0\r\n\r\n",
        }, *const responses[] = {
                HEAD "Content-Length: 10\r\n\r\nHTTP/1.1 5",
                HEAD "Transfer-Encoding: chunked\r\n\r\n8\r\nHTTP/1.1\r\n0\r\n\r\n",
                "HTTP/1.1 503 No\r\nRetry-After: 5\r\nContent-Type: text/html\r\nContent-Length: 3\r\n\r\n"
                "no\n",
                "HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n",
                "HTTP/1.1 304 Not Modified\r\nContent-Length: 30\r\n\r\n",
        };
        static char q[65536], a[65536];

        for (unsigned seed = 1; seed <= 400; seed++) {
                unsigned s = seed, n = 1 + (unsigned) rand_r(&s) % 60;
                uint32_t status4xx = 0, status5xx = 0;
                struct parsed_chunk piece;
                struct pipeline t = http();

                q[0] = a[0] = 0;
                for (unsigned i = 0; i < n; i++) {
                        unsigned kind = (unsigned) rand_r(&s) % ELEMENTSOF(requests),
                                how = (unsigned) rand_r(&s) % ELEMENTSOF(responses);

                        (void) stpcpy(q + strlen(q), requests[kind]);
                        if (rand_r(&s) % 5 == 0)
                                (void) stpcpy(a + strlen(a), "HTTP/1.1 102 Processing\r\n\r\n");
                        if (kind == 1)
                                (void) strncat(a, responses[how],
                                               (size_t) (strstr(responses[how], "\r\n\r\n") +
                                                         4 - responses[how]));
                        else
                                (void) stpcpy(a + strlen(a), responses[how]);
                        status4xx += how == 3;
                        status5xx += how == 2;
                }
                check(request(&t, q, 1 + (size_t) rand_r(&s) % 700));
                check(t.pending == n && t.in.state == 0);
                check(respond(&t, a, 1 + (size_t) rand_r(&s) % 700, &piece) == n);
                check(!piece.lost && piece.status4xx == status4xx && piece.failed == status5xx);
                check(t.pending == 0 && t.out.state == 0 && !(t.flags & PIPELINE_RESPONDING));
        }
}

/* Bytes behind the head move the times of a request, until the response. */
static void test_body_in_pieces(void) {
        struct arrival_times times = { .came_at = 10 };
        struct exchange_effect e = {};
        struct parsed_chunk piece = {};
        struct exchange x = {};
        struct pipeline t = http();
        struct pipeline_batch g;

        pipeline_feed_requests(&t, &piece,
                                "POST / HTTP/1.1\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\n", 62,
                                &times, 0);
        pipeline_read(&t, 11);
        pipeline_commit(&t, &x, 11, 1, &e);
        check(t.pending == 1 && e.in_flight == 1 && !(x.flags & EXCHANGE_LATE));
        check(respond(&t, "HTTP/1.1 100 Continue\r\n\r\n", 100, &piece) == 0);
        piece = (struct parsed_chunk) {};
        times.came_at = 20;
        pipeline_feed_requests(&t, &piece, "abcde", 5, &times, 62);
        pipeline_read(&t, 21);
        times.came_at = 30;
        pipeline_feed_requests(&t, &piece, "abcdeGET / HTTP/1.1\r\n\r\n", 23, &times, 67);
        pipeline_read(&t, 31);
        check(!piece.lost && t.pending == 2);
        check(pipeline_complete(&t, 1, &g) == 1 && g.first_at == 10 && g.last_at == 30 && g.read_at == 31);
        check(pipeline_complete(&t, 1, &g) == 1 && g.first_at == 30 && g.last_at == 30 && g.read_at == 31);

        /* After the response: what still arrives is not in flight, and the next request is one */
        pipeline_feed_requests(&t, &piece, "PUT / HTTP/1.1\r\nContent-Length: 10\r\n\r\n", 38, &times, 100);
        pipeline_read(&t, 41);
        check(respond(&t, "HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n", 100, &piece) == 1);
        pipeline_commit(&t, &x, 42, 1, &e);
        check(e.in_flight == 0 && x.flags & EXCHANGE_LATE);
        exchange_arrive(&x, 43, &(struct exchange_segment) { 138, 148, 138, 65536 }, &e);
        check(e.in_flight == 0 && x.n_marks == 1);
        piece = (struct parsed_chunk) {};
        pipeline_feed_requests(&t, &piece, "abcdefghijGET / HTTP/1.1\r\n\r\n", 28, &times, 138);
        check(t.pending == 1 && !piece.lost);
        pipeline_commit(&t, &x, 44, 1, &e);
        check(e.in_flight == 1 && !(x.flags & EXCHANGE_LATE));
}

/* The unit responds to a part of a request, or without one. */
static void test_early(void) {
        struct parsed_chunk piece;
        struct pipeline t = http();

        check(request(&t, "GET /a-line-without-end", 100));
        check(t.pending == 0);
        check(respond(&t, "HTTP/1.1 414 Too Long\r\nContent-Length: 3\r\n\r\nno\n", 100, &piece) == 1);
        check(piece.status4xx == 1 && pipeline_is_late(&t));
        check(request(&t, " HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n", 100));
        check(t.pending == 1);

        t = http();
        for (size_t size = 1; size < 60; size++) {
                check(respond(&t, "HTTP/1.0 408 Request Timeout\r\nContent-Length: 3\r\n\r\nabc", size,
                             &piece) == 0);
                check(piece.status4xx == 0 && !(t.flags & PIPELINE_RESPONDING) && t.pending == 0);
        }
}

/* The end of the connection ends the response, once all has left. */
static void test_until_close(void) {
        struct exchange_effect e = {};
        struct exchange x = {};
        struct parsed_chunk piece;
        struct pipeline t = http();

        check(request(&t, "GET / HTTP/1.0\r\n\r\n", 100));
        pipeline_commit(&t, &x, 5, 1, &e);
        check(respond(&t, "HTTP/1.0 200 OK\r\n\r\nabc", 100, &piece) == 1);
        pipeline_commit(&t, &x, 6, 1, &e);
        check(e.in_flight == 1 && t.flags & PIPELINE_RESPONDING);
        pipeline_half_close(&t, &x, 7, 10, &e);
        exchange_end(&x, 0, t.pending, 10, &e);
        check(e.in_flight == 1 && e.unanswered == 0 && pipeline_is_more(&t));
        pipeline_commit(&t, &x, 8, 1, &e);
        exchange_end(&x, 1, t.pending, 0, &e);
        check(e.in_flight == 0 && e.unanswered == 0);

        /* One whose length is known is broken by it */
        t = http();
        x = (struct exchange) {};
        check(request(&t, "GET / HTTP/1.0\r\n\r\n", 100));
        check(respond(&t, "HTTP/1.0 200 OK\r\nContent-Length: 10\r\n\r\nabc", 100, &piece) == 1);
        pipeline_commit(&t, &x, 6, 1, &e);
        pipeline_half_close(&t, &x, 7, 0, &e);
        exchange_end(&x, 0, t.pending, 0, &e);
        exchange_end(&x, 1, t.pending, 0, &e);
        check(e.in_flight == 0 && e.unanswered == 1);
}

/* Bodies of any length are skipped. */
static void test_long_bodies(void) {
        struct parsed_chunk piece;
        struct pipeline t = http();

        check(request(&t, "PUT / HTTP/1.1\r\nContent-Length: 5368709120\r\n\r\n", 1000));
        for (uint64_t left = UINT64_C(5) << 30; left > 0; ) {
                static char zeros[1 << 16];
                struct arrival_times times = { .came_at = 1 };
                /* What is skipped is not looked at: as if much had passed */
                uint64_t n = MIN((uint64_t) t.in.skip, left - 1);

                if (n > 0) {
                        t.in.skip -= n;
                        left -= n;
                        continue;
                }
                piece = (struct parsed_chunk) {};
                pipeline_feed_requests(&t, &piece, zeros, 1, &times, 1000);
                check(!piece.lost);
                left--;
        }
        check(t.in.state == 0 && t.pending == 1);
        check(request(&t, "GET / HTTP/1.1\r\n\r\n", 1000) && t.pending == 2);
}

/* Whole pipelines of HEAD, with responses as they arrive: none is taken for the body of the one before. */
static void test_many_heads(void) {
        static const char response[] = HEAD "Content-Length: 5\r\n\r\n";
        struct parsed_chunk piece;
        struct pipeline t = http();
        bool is_head[3000];
        unsigned seed = 1, n = 0, responded = 0;

        for (unsigned round = 0; round < 200; round++) {
                for (unsigned i = (unsigned) rand_r(&seed) % 300; i > 0 && n < ELEMENTSOF(is_head) &&
                     t.pending < PIPELINE_BODYLESS_MAX; i--) {
                        is_head[n] = rand_r(&seed) % 3 > 0;
                        check(request(&t, is_head[n] ? "HEAD / HTTP/1.1\r\n\r\n" : "GET / HTTP/1.1\r\n\r\n",
                                  100));
                        n++;
                }
                for (unsigned i = (unsigned) rand_r(&seed) % 300; i > 0 && responded < n; i--, responded++) {
                        char both[sizeof(response) + 5];

                        (void) snprintf(both, sizeof(both), "%s%s", response,
                                        is_head[responded] ? "" : "abcde");
                        check(respond(&t, both, strlen(both), &piece) == 1 && !piece.lost);
                        check(t.out.state == 0);
                }
                check(t.pending == n - responded);
        }
        check(n > 2 * PIPELINE_BODYLESS_MAX);

        /* More of them than can be distinguished: the parser gives up */
        t = http();
        for (unsigned i = 0; i < PIPELINE_BODYLESS_MAX; i++)
                check(request(&t, "HEAD / HTTP/1.1\r\n\r\n", 100));
        for (unsigned i = 0; i < 100; i++)
                check(request(&t, "GET / HTTP/1.1\r\n\r\n", 100));
        check(!request(&t, "HEAD / HTTP/1.1\r\n\r\n", 100));
        check(respond(&t, response, strlen(response), &piece) == 1 && t.n_bare == PIPELINE_BODYLESS_MAX - 1);
        pipeline_reset(&t);
        check(t.n_bare == 0 && !pipeline_is_bare(&t, 0));
}

/* Behind requests, bytes that are none to the parser: the server's responses show what they were to the
 * server. */
static void test_misunderstood(void) {
        static const char *const junk[] = { "G@T / HTTP/1.1\r\n\r\n", "\x01\x02\x03",
                                           "GET / HTTP/9.9\r\n\r\n" };
        static const char response[] = HEAD "Content-Length: 5\r\n\r\nabcde",
                refusal[] = "HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\nno";

        for (size_t i = 0; i < ELEMENTSOF(junk); i++)
                for (unsigned before = 0; before < 3; before++) {
                        struct parsed_chunk piece;
                        struct pipeline t = http();
                        uint64_t word = 0;

                        for (unsigned k = 0; k < before; k++)
                                check(request(&t, "GET / HTTP/1.1\r\n\r\n", 100));
                        t.flags |= PIPELINE_UNDERSTOOD;
                        check(!request(&t, junk[i], 100));
                        pipeline_misunderstand(&t, 1000, 7, 0);
                        pipeline_read(&t, 8);
                        check(t.missed && t.in_pos == 1000);

                        memcpy(&word, "GET / HT", sizeof(word));
                        check(!pipeline_resumes(&t, 1000, word, 8, 0));
                        for (unsigned k = 0; k < before; k++)
                                check(respond(&t, response, 100, &piece) == 1 && !piece.lost &&
                                      piece.status4xx == 0);
                        check(respond(&t, refusal, 100, &piece) == 1 && !piece.lost &&
                              piece.status4xx == 1);
                        check(t.pending == 0 && t.out.state == 0);

                        /* A server that goes on after that */
                        check(pipeline_resumes(&t, 1000, word, 8, 0) && !t.missed && !t.not_understood);
                        check(request(&t, "GET / HTTP/1.1\r\n\r\n", 100) && t.pending == 1);
                        check(respond(&t, response, 100, &piece) == 1 && t.pending == 0);
                }
}

/* Paths that are left out: without the query, as they are written, however they are cut. */
static void test_excluded(void) {
        static const char *const words[] = { "http:/healthz", "http:/static/*", "http:/a/b/c/*", "http:/",
                                             "http:/x?" };
        static const struct {
                const char *target;
                bool excluded;
        } table[] = {
                { "/healthz", true }, { "/healthz?a=/b", true }, { "/healthz/", false },
                        { "/healthz2", false }, { "/health", false },
                { "/Healthz", false }, { "/%68ealthz", false }, { "//healthz", false }, { "/", true },
                        { "/?", true }, { "/index", false },
                { "/static/", true }, { "/static/a/b/c/d/e.css?f", true }, { "/static", false },
                        { "/static?/", false },
                { "/a/b/c/", true }, { "/a/b/c/d/e", true }, { "/a/b/c", false }, { "/a/b/", false },
                        { "http://h/healthz", false },
                { "*", false }, { "/x", false },
                { "/long/long/long/long/long/long/long/long/long/long/long/long/long/long/long/long/long/"
                  "long/long/long/long/long/long"
                  "/long/long/long/long/long/long/long/long/long/long/long/long/long/long/long/long/long/"
                  "long/long/long/long/long/long", false },
                { "/static/long/long/long/long/long/long/long/long/long/long/long/long/long/long/long/long/"
                  "long/long/long/long/long/long"
                  "/long/long/long/long/long/long/long/long/long/long/long/long/long/long/long/long/long/"
                  "long/long/long/long/long/long", true },
        };

        pipeline_excludes = (ExcludeList) {};
        for (size_t i = 0; i < ELEMENTSOF(words) - 1; i++)
                check(exclude_list_add(&pipeline_excludes, words[i]) == 0);
        check(exclude_list_add(&pipeline_excludes, words[4]) == -EINVAL);

        for (size_t i = 0; i < ELEMENTSOF(table); i++)
                for (size_t method = 0; method < 3; method++) {
                        static const char *const methods[] = { "GET", "HEAD", "PROPFIND" };
                        char s[1024];
                        size_t n;

                        n = (size_t) snprintf(s, sizeof(s), "%s %s HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"
                                              "GET /healthz HTTP/1.0\n\nPUT /other HTTP/1.1\r\n\r\n",
                                              methods[method], table[i].target);
                        for (size_t cut = 0; cut <= n; cut++) {
                                struct arrival_times times = { .came_at = 1, .how = PROTOCOL_NAMES };
                                struct parsed_chunk piece = {};
                                struct pipeline t = http();

                                pipeline_feed_requests(&t, &piece, s, cut, &times, 0);
                                pipeline_feed_requests(&t, &piece, s + cut, n - cut, &times, 0);
                                check(!piece.lost && t.pending == 3);
                                check(t.excluded[0] == (table[i].excluded | 2U));
                                check(pipeline_outstanding(&t) == 2U - table[i].excluded);

                                /* Nobody wants to know */
                                t = http();
                                times.how = 0;
                                pipeline_feed_requests(&t, &piece, s, cut, &times, 0);
                                pipeline_feed_requests(&t, &piece, s + cut, n - cut, &times, 0);
                                check(!piece.lost && t.pending == 3 && t.excluded[0] == 0);
                        }
                }
}

/* Their responses have no status either, and are no streams. */
static void test_excluded_responses(void) {
        static const char requests[] =
                "GET /healthz HTTP/1.1\r\n\r\nGET /a HTTP/1.1\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n"
                                        "GET /b HTTP/1.1\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n";
        static const char responses[] = "HTTP/1.1 503 no\r\nContent-Length: 2\r\n\r\nno"
                                      "HTTP/1.1 503 no\r\nContent-Length: 2\r\n\r\nno"
                                      "HTTP/1.1 404 no\r\nContent-Length: 0\r\n\r\n"
                                      "HTTP/1.1 404 no\r\nContent-Length: 0\r\n\r\n"
                                      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nabc";

        pipeline_excludes = (ExcludeList) {};
        check(exclude_list_add(&pipeline_excludes, "http:/healthz") == 0);
        for (size_t size = 1; size < sizeof(responses); size++) {
                struct arrival_times times = { .came_at = 1, .how = PROTOCOL_NAMES };
                struct parsed_chunk piece = {};
                struct pipeline t = http();

                pipeline_feed_requests(&t, &piece, requests, strlen(requests), &times, 0);
                pipeline_read(&t, 2);
                check(t.pending == 5 && pipeline_outstanding(&t) == 2);
                check(respond(&t, responses, size, &piece) == 5 && !piece.lost);
                check(piece.failed == 1 && piece.status4xx == 1 && piece.streams == 0);
                check(t.flags & PIPELINE_EXCLUDED);
        }
}

/* The end of a head, byte by byte as it arrives. */
static void test_end_of_head(void) {
        static const struct {
                const char *text;
                size_t length;
        } heads[] = {
                { "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", 25 },
                { "HTTP/1.1 103 Early Hints\r\nLink: \r\nLink: x\r\n\r\n", 45 },
                { "HTTP/1.1 100 Continue\n\nHTTP", 23 },
                { "HTTP/1.1 100 Continue\r\n\nHTTP", 24 },
                { "HTTP/1.1 100 Continue\n\r\nHTTP", 24 },
                { "HTTP/1.1 100 Continue\r\n\r", 0 },
                { "\n", 0 },
        };

        for (size_t i = 0; i < ELEMENTSOF(heads); i++) {
                size_t n = 0, length = 0;
                uint32_t last = 0;

                for (const char *p = heads[i].text; *p && length == 0; p++) {
                        last = last << 8 | (uint8_t) *p;
                        n++;
                        if (http_ends_head(last))
                                length = n;
                }
                check(length == heads[i].length);
        }
}

/* The line with the length decides whether the rest of the data is the body, and nothing but it. */
static void test_shape(void) {
        static const struct {
                const char *line;       /* padded with what follows it */
                uint32_t bytes, head, digits;
        } lines[] = {
                { "\nContent-Length: 5\r\n\r\n..", 45, 40, 1 },
                { "\ncontent-length: 5\r\nX: y", 45, 40, 1 },
                { "\nCONTENT-LENGTH: 99999\r\n", 100199, 200, 5 },
                { "\nContent-Length: 0\r\n\r\n..", 40, 40, 1 },
                { "\nContent-Length: 99\r\n\r\n.", 99, 0, 2 }, /* nothing but a body */
                { "\nContent-Length: 99\r\n\r\n.", 98, 0, 2 },
                { "\nContent-Length: 123456\r", 200000, 0, 0 },
                { "\nContent-Length: \r\n\r\n...", 40, 0, 0 },
                { "\nContent-Length: 5 \r\n...", 45, 0, 0 },
                { "\nContent-Length: 5\n\n.....", 45, 0, 0 },
                { "\nContent-Length:5\r\n\r\n...", 45, 0, 0 },
                { "-Content-Length: 5\r\n\r\n..", 45, 0, 0 },
                { "\nContent-Lengths: 5\r\n\r\n.", 45, 0, 0 },
                { "\nContent-Length; 5\r\n\r\n..", 45, 0, 0 },
        };
        static const struct {
                const char *first;
                bool fits;
        } responses[] = {
                { "HTTP/1.1 200 OK\r\n", true }, { "HTTP/1.0 302 Found", true },
                { "HTTP/1.1 206 Part", true },
                { "HTTP/1.1 204 No Content", false }, { "HTTP/1.1 304 Not Modified", false },
                { "HTTP/1.1 100 Continue", false }, { "HTTP/1.1 404 Not Found", false },
                { "HTTP/1.1 503 Service", false }, { "HTTP/2.0 200 OK\r\n", false },
        };

        for (size_t i = 0; i < ELEMENTSOF(lines); i++) {
                __u64 words[3];
                uint32_t digits;

                assert(strlen(lines[i].line) >= sizeof(words));
                memcpy(words, lines[i].line, sizeof(words));
                for (size_t k = 0; k < ELEMENTSOF(words); k++)
                        words[k] = be64toh(words[k]);
                check(http_shape_head(words, lines[i].bytes, &digits) == lines[i].head);
                check(digits == lines[i].digits);
        }
        for (size_t i = 0; i < ELEMENTSOF(responses); i++) {
                __u64 words[2];

                memcpy(words, responses[i].first, sizeof(words));
                check(http_shape_fits((const __u64[]) { be64toh(words[0]), be64toh(words[1]) }) ==
                      responses[i].fits);
        }
}

int main(void) {
        test_detect();
        test_end_of_head();
        test_shape();
        test_requests();
        test_responses();
        test_tunnel();
        test_pipeline();
        test_body_in_pieces();
        test_early();
        test_until_close();
        test_long_bodies();
        test_many_heads();
        test_misunderstood();
        test_excluded();
        test_excluded_responses();
        return EXIT_SUCCESS;
}
