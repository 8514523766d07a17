/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Connections of which the kernel has skipped runs of programs (bpf/protocols/read-position.h): each single
 * run of a sequence of events is omitted in turn, and each pair. Programs for packets are never skipped;
 * those for reads are. */

#include "util-http2.h"
#include "util-pipeline.h"

#include "read-position.h"

#define IN UINT32_C(0xffffff00)
#define OUT UINT32_C(0xfffffff0)
#define STREAM_MAX 16384

typedef enum Speaks { PLAIN, TALK, MUX, SEALED } Speaks;

/* Events in order: requests arrive and are read piece by piece, responses are sent. */
typedef struct Event {
        enum { COMES = 1, READS, LEAVES, LEAVES_PART, PASSES } what;
        const char *data;
        size_t size;
} Event;

#define COMES(s) { COMES, s, sizeof(s) - 1 }
#define READS(n) { READS, NULL, n }
#define LEAVES(s) { LEAVES, s, sizeof(s) - 1 }
#define LEAVES_PART(s) { LEAVES_PART, s, sizeof(s) - 1 }
#define EXCHANGES(request, response) COMES(request), READS(sizeof(request) - 1), LEAVES(response)

typedef struct Connection {
        struct exchange x;
        struct pipeline t;
        struct h2_conn *h;
        struct tls s;
        Speaks speaks;
        uint32_t arrived, copied, written, left;
        char in[STREAM_MAX];
        uint64_t now;
        unsigned runs, skipped[2]; /* number of the run among those that can be skipped, from 1 */
        unsigned begun, parsed, unanswered, overlaps, drops, failed;
        int in_flight;
} Connection;

static void account(Connection *c, const struct exchange_effect *e) {
        c->overlaps += e->overlap;
        c->in_flight += e->in_flight;
}

static bool runs(Connection *c) {
        c->runs++;
        return c->runs != c->skipped[0] && c->runs != c->skipped[1];
}

static void on_stream(struct h2_piece *piece, void *userdata) {
        Connection *c = userdata;

        c->begun += !!(piece->event & H2_BEGUN);
        c->parsed += !!(piece->event & H2_BEGUN);
        c->failed += piece->event & H2_BEGUN && piece->stream.status == 5;
}

static uint64_t word_at(const Connection *c, uint32_t n) {
        uint64_t word = 0;

        memcpy(&word, c->in + c->copied, n < 8 ? n : 8);
        return word;
}

static bool is_framed(const Connection *c, uint32_t n) {
        uint32_t at = 0, size;

        while (at < n) {
                uint64_t header;

                if (n - at < H2_HEADER_SIZE)
                        return false;
                memcpy(&header, c->in + c->copied + at, sizeof(header));
                size = h2_frame_size(__builtin_bswap64(header), (uint8_t) c->in[c->copied + at + 8]);
                if (size == 0 || size > n - at)
                        return false;
                at += size;
        }
        return true;
}

/* As requests_content. */
static void content(Connection *c, uint32_t n) {
        uint32_t position = IN + c->copied, unsent = c->written - c->left;
        struct arrival_times times = { .came_at = exchange_came_at_once(&c->x, position + n) };
        struct exchange_effect e = {};

        if (c->speaks == TALK) {
                struct parsed_chunk piece = {};

                if (!(c->x.flags & EXCHANGE_PARSED)) {
                        uint32_t protocol = protocol_detect(word_at(c, n), n);

                        if (c->x.state == EXCHANGE_PENDING || protocol == PROTOCOL_PLAIN)
                                return;
                        pipeline_begin(&c->t, protocol, position, c->x.state == EXCHANGE_RESPONDING);
                        c->x.flags |= EXCHANGE_PARSED;
                } else if (exchange_distance(position, c->t.in_pos) > 0 ||
                           (c->t.missed && !pipeline_resumes(&c->t, position, word_at(c, n), n, unsent)))
                        return;
                exchange_get_marks(&c->x, &times.marks);
                pipeline_feed_requests(&c->t, &piece, c->in + c->copied, n, &times, position);
                check(!piece.lost);
                c->t.in_pos = position + n;
                e.in_flight = pipeline_extra(&c->t);
                account(c, &e);
        } else if (c->speaks == MUX) {
                struct h2_piece piece = {};

                if (c->x.flags & EXCHANGE_H2 && h2_is_time_to_doubt(c->h, c->now))
                        c->drops += h2_doubt(c->h, h2_get_more(c->h), c->now);
                if (!(c->x.flags & EXCHANGE_H2)) {
                        bool late = !h2_detect(word_at(c, n), n);

                        if (late && !h2_detect_late(word_at(c, n), n))
                                return;
                        h2_begin(c->h, position, late);
                        h2_clear(c->h, h2_get_more(c->h));
                        c->x.flags |= EXCHANGE_H2;
                } else if (exchange_distance(position, c->h->in_pos) > 0 ||
                           (c->h->in.synced != H2_SYNCED &&
                            !h2_resumes(c->h, position, word_at(c, n), n, unsent, is_framed(c, n))))
                        return;
                h2_piece_begin(&piece, c->now);
                h2_feed(c->h, &piece, (const uint8_t*) c->in + c->copied, n, position, &times, on_stream, c);
                check(!piece.lost);
                c->h->in_pos = position + n;
                e.in_flight = h2_extra(c->h);
                account(c, &e);
        } else if (c->speaks == SEALED) {
                uint32_t seen = 0;

                if (!(c->x.flags & EXCHANGE_TLS)) {
                        if (c->x.state == EXCHANGE_PENDING || !tls_detect(word_at(c, n), n))
                                return;
                        c->s = (struct tls) { .in_pos = position,
                                              .phase = (uint8_t) c->in[c->copied] == TLS_APPLICATION ?
                                                       TLS_ESTABLISHED : TLS_HELLO };
                        c->x.state = c->x.state == EXCHANGE_PENDING ? EXCHANGE_IDLE : c->x.state;
                        c->x.flags |= EXCHANGE_TLS;
                } else if (exchange_distance(position, c->s.in_pos) > 0 ||
                           (c->s.missed &&
                            (c->x.state == EXCHANGE_PENDING ||
                             !tls_resumes(&c->s, position, word_at(c, n), n, unsent))))
                        return;
                for (uint32_t at = 0; at < n; ) {
                        uint64_t word = 0;
                        uint32_t r;

                        memcpy(&word, c->in + c->copied + at, n - at < 8 ? n - at : 8);
                        r = tls_step(&c->s, 0, word, n - at);
                        seen |= r;
                        at += TLS_STEP_TAKEN(r);
                }
                check(!(seen & TLS_STEP_LOST));
                c->s.in_pos = position + n;
                if (seen & TLS_STEP_APPLICATION)
                        c->s.has_request = 1;
        }
}

static void apply(Connection *c, uint32_t unsent) {
        struct exchange_effect e = {};

        read_apply(&c->x, &(struct read_parsers) {
                                   c->x.flags & EXCHANGE_PARSED ? &c->t : NULL,
                                   c->x.flags & EXCHANGE_H2 ? c->h : NULL,
                                   c->x.flags & EXCHANGE_TLS ? &c->s : NULL },
                   c->now, IN + c->copied, unsent, &e);
        account(c, &e);
}

/* As requests_egress. */
static void departs(Connection *c, const char *data, size_t size, bool complete) {
        struct exchange_effect e = {};
        uint32_t bytes;

        if (exchange_distance(IN + c->copied, c->x.read_end) > 0)
                apply(c, 0);
        if (!(c->x.flags & (EXCHANGE_PARSED | EXCHANGE_TLS | EXCHANGE_H2)) &&
            c->x.state == EXCHANGE_PENDING) {
                uint64_t word = 0;

                memcpy(&word, data, size < 6 ? size : 6);
                if (tls_is_server_hello(word)) {
                        c->s = (struct tls) { .in_pos = IN + c->copied, .missed = 1 };
                        c->x.state = EXCHANGE_IDLE;
                        c->x.flags |= EXCHANGE_TLS;
                }
        }
        bytes = exchange_leave(&c->x, OUT + c->left + (uint32_t) size, OUT + c->left);
        c->left += size;
        check(bytes == size);

        if (c->x.flags & EXCHANGE_PARSED) {
                struct parsed_chunk piece = {};
                uint32_t n;

                if (pipeline_is_whole(&c->t, pipeline_is_single(&c->t, &c->x, bytes, complete)))
                        piece.begun = 1;
                else if (!pipeline_is_more(&c->t)) {
                        pipeline_feed_responses(&c->t, &piece, data, size);
                        check(!piece.lost);
                }
                n = pipeline_take_responses(&c->t, &piece, complete);
                c->begun += n;
                c->parsed += n;
                c->failed += piece.failed;
                if (n > 0) {
                        c->t.flags |= PIPELINE_RESPONDED;
                        c->x.first_at = c->x.first_out_at = c->x.last_out_at = c->now;
                }
                pipeline_commit(&c->t, &c->x, c->now, complete, &e);
        } else if (c->x.flags & EXCHANGE_H2) {
                struct h2_piece piece = {};

                h2_piece_begin(&piece, c->now);
                if (c->h->out.synced != H2_LOST)
                        h2_feed(c->h, &piece, (const uint8_t*) data, size, 0, NULL, on_stream, c);
                else if (complete)
                        c->h->out.synced = H2_EDGE;
                check(!piece.lost && piece.dropped == 0);
                h2_settle(c->h, &c->x, c->now, &e);
        } else {
                bool application = true;

                if (c->x.flags & EXCHANGE_TLS) {
                        application = false;
                        for (uint32_t at = 0; at < size; ) {
                                uint64_t word = 0;
                                uint32_t r;

                                memcpy(&word, data + at, size - at < 8 ? size - at : 8);
                                r = tls_step(&c->s, 1, word, (uint32_t) (size - at));
                                application = application || r & TLS_STEP_APPLICATION;
                                at += TLS_STEP_TAKEN(r);
                        }
                }
                if (application)
                        exchange_depart(&c->x, c->now, bytes, complete, &e);
                c->begun += e.begun;
                c->parsed += e.begun && c->x.flags & EXCHANGE_TLS;
        }
        account(c, &e);
}

/* As requests_state, when the client closes the connection at the end. */
static void ends(Connection *c) {
        bool missed = (c->x.flags & EXCHANGE_PARSED && c->t.missed) ||
                      (c->x.flags & EXCHANGE_H2 && c->h->in.synced != H2_SYNCED);
        struct exchange_effect e = {};
        uint32_t pending;

        if (exchange_distance(IN + c->copied, c->x.read_end) > 0)
                apply(c, 0);
        pending = c->x.flags & EXCHANGE_PARSED ? pipeline_outstanding(&c->t) : c->x.flags & EXCHANGE_H2 ?
                c->h->open : c->x.state == EXCHANGE_PENDING;
        if (c->x.flags & EXCHANGE_H2 && pending == 0)
                exchange_shut(&c->x, &e);
        if (c->x.flags & EXCHANGE_TLS)
                tls_end(&c->x, &c->s, 1, 0, &e);
        exchange_end(&c->x, 1, pending, 0, &e);
        account(c, &e);
        if (missed)
                c->drops += (unsigned) e.unanswered;
        else
                c->unanswered += (unsigned) e.unanswered;
}

static void play(Connection *c, Speaks speaks, const Event *story, size_t n, unsigned skip,
                 unsigned skip_too) {
        struct h2_conn *h = c->h;

        *c = (Connection) { .h = h, .speaks = speaks, .skipped = { skip, skip_too } };
        if (h)
                memset(h, 0, sizeof(*h));
        exchange_begin(&c->x, IN, IN, OUT);
        c->x.flags |= EXCHANGE_FRESH;

        for (size_t i = 0; i < n; i++) {
                const Event *e = story + i;
                struct exchange_effect effect = {};

                c->now += 10;
                switch (e->what) {
                case COMES:
                        check(c->arrived + e->size <= sizeof(c->in));
                        memcpy(c->in + c->arrived, e->data, e->size);
                        exchange_arrive(&c->x, c->now,
                                        &(struct exchange_segment) {
                                                IN + c->arrived, IN + c->arrived + (uint32_t) e->size,
                                                IN + c->arrived, IN + c->arrived + 65536 }, &effect);
                        c->arrived += e->size;
                        account(c, &effect);
                        break;
                case READS:
                        if (runs(c))
                                content(c, (uint32_t) e->size);
                        c->copied += e->size;
                        check(c->copied <= c->arrived);
                        if (runs(c))
                                apply(c, c->written - c->left);
                        break;
                case PASSES:
                        c->now += H2_DOUBT_NSEC;
                        break;
                case LEAVES:
                case LEAVES_PART:
                        c->written += e->size;
                        departs(c, e->data, e->size, e->what == LEAVES);
                        break;
                }
        }
        check(c->copied == c->arrived);
        ends(c);
}

/* expected: requests; failed: responses with an error among them; spared: limit of requests that become
 * plain exchanges if one run is skipped. */
static void tell(const char *name, Speaks speaks, const Event *story, size_t n, unsigned expected,
                 unsigned failed, unsigned spared, bool pipelined) {
        static Connection c;
        unsigned all;

        if (speaks == MUX && !c.h)
                c.h = h2_storage_new();
        play(&c, speaks, story, n, 0, 0);
        if (c.begun != expected || c.failed != failed)
                fprintf(stderr, "%s: %u, failed %u\n", name, c.begun, c.failed);
        check(c.begun == expected && c.failed == failed && c.unanswered == 0 && c.in_flight == 0 &&
              c.overlaps == 0);
        all = c.runs;

        for (unsigned i = 1; i <= all; i++)
                for (unsigned k = i; k <= all; k++) {
                        play(&c, speaks, story, n, i, k);
                        /* With an unknown protocol, concurrent requests are one */
                        if (pipelined && i == 1 && k > 1 && c.begun < expected)
                                continue;
                        if (c.begun != expected || c.unanswered != 0 || c.in_flight != 0 || c.drops != 0)
                                fprintf(stderr, "%s without runs %u and %u: begun %u, no response %u, "
                                                "drops %u, in flight %d\n", name, i, k, c.begun,
                                        c.unanswered, c.drops, c.in_flight);
                        check(c.begun == expected && c.unanswered == 0 && c.drops == 0 && c.in_flight == 0 &&
                              c.overlaps == 0);
                        if (i == k && c.parsed + spared < expected && speaks != PLAIN)
                                fprintf(stderr, "%s without run %u: %u of %u by their protocol\n", name, i,
                                        c.parsed, expected);
                        check(i != k || c.parsed + spared >= expected || speaks == PLAIN);
                        check(i != k || c.failed == failed || c.parsed < expected);
                }
}

#define TELL(name, speaks, expected, failed, spared, ...)                                       \
        do {                                                                                    \
                static const Event story[] = { __VA_ARGS__ };                                   \
                tell(name, speaks, story, ELEMENTSOF(story), expected, failed, spared, \
                     !!strstr(name, "pipelined")); \
        } while (0)

static void test_plain(void) {
        TELL("plain", PLAIN, 3, 0, 0, EXCHANGES("one", "1"), EXCHANGES("two", "2"), EXCHANGES("three", "3"));
        TELL("plain in pieces", PLAIN, 2, 0, 0,
             COMES("on"), READS(2), COMES("e"), READS(1), LEAVES_PART("1"), LEAVES("."),
             EXCHANGES("two", "2"));
}

#define GET "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
#define OK "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
#define FAILED "HTTP/1.1 500 Sorry\r\nContent-Length: 2\r\n\r\nno"

static void test_http(void) {
        /* The first request of a connection is a plain exchange if its read was skipped: the protocol is
         * unknown */
        TELL("keep-alive", TALK, 5, 1, 1, EXCHANGES(GET, OK), EXCHANGES(GET, OK), EXCHANGES(GET, FAILED),
             EXCHANGES(GET, OK), EXCHANGES(GET, OK));
        TELL("bodies", TALK, 3, 0, 1,
             EXCHANGES(GET, OK),
             COMES("POST / HTTP/1.1\r\nContent-Length: 12\r\n\r\n"), READS(39), COMES("GET "), READS(4),
             COMES("/ HT"), READS(4), COMES("TP/1"), READS(4), LEAVES(OK), EXCHANGES(GET, OK));
        TELL("a head in pieces", TALK, 3, 0, 1,
             EXCHANGES(GET, OK), COMES("GET / HT"), READS(8), COMES("TP/1.1\r\n"), READS(8), COMES("\r\n"),
             READS(2), LEAVES(OK), EXCHANGES(GET, OK));
        TELL("HEAD", TALK, 4, 0, 1,
             EXCHANGES(GET, OK), EXCHANGES("HEAD / HTTP/1.1\r\n\r\n",
                                           "HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\n"),
                                           EXCHANGES(GET, OK), EXCHANGES(GET, OK));
        TELL("pipelined", TALK, 6, 1, 1,
             EXCHANGES(GET, OK), EXCHANGES(GET GET GET, OK FAILED OK), EXCHANGES(GET, OK),
             EXCHANGES(GET, OK));
        TELL("responses in pieces", TALK, 3, 0, 1,
             EXCHANGES(GET, OK), COMES(GET), READS(sizeof(GET) - 1), LEAVES(
                     "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"), LEAVES_PART("ok"), LEAVES("ok"),
             EXCHANGES(GET, OK));
}

#define PING "*1\r\n$4\r\nPING\r\n"
#define PONG "+PONG\r\n"

static void test_redis(void) {
        TELL("redis", TALK, 4, 0, 1, EXCHANGES(PING, PONG), EXCHANGES(PING, PONG), EXCHANGES(
                "*2\r\n$3\r\nGET\r\n$1\r\nx\r\n", "$2\r\nxx\r\n"), EXCHANGES(PING, PONG));
        TELL("redis, pipelined", TALK, 5, 0, 1, EXCHANGES(PING, PONG),
             EXCHANGES(PING PING PING, PONG PONG PONG), EXCHANGES(PING, PONG));
        TELL("redis in pieces", TALK, 3, 0, 1,
             EXCHANGES(PING, PONG), COMES("*2\r\n$3\r\nGET\r\n$"), READS(14), COMES("9\r\nabc"), READS(6),
             COMES("defghi\r\n"), READS(8), LEAVES_PART("$2\r\n"), LEAVES("xx\r\n"), EXCHANGES(PING, PONG));
}

/* A request without a response whose read was skipped is in flight until the next response, and does not
 * count. */
static void test_memcached(void) {
#define SET_QUIET "set a 0 0 1 noreply\r\nx\r\n"
#define FOUND "VALUE a 0 1\r\nx\r\nEND\r\n"
        TELL("memcached", TALK, 4, 0, 1,
             EXCHANGES("get a\r\n", FOUND), COMES(SET_QUIET), READS(sizeof(SET_QUIET) - 1),
             EXCHANGES("get a\r\n", FOUND), EXCHANGES("get b\r\n", "END\r\n"),
             EXCHANGES("get a\r\n", FOUND));
}

#define PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"
#define SETTINGS "\0\0\0\4\0\0\0\0\0"
#define HEADERS(id) "\0\0\1\1\5\0\0\0" id "\x82"
#define POSTS(id) "\0\0\1\1\4\0\0\0" id "\x83"
#define DATA(id) "\0\0\5\0\1\0\0\0" id "hello"
#define RESPONDS(id) "\0\0\1\1\5\0\0\0" id "\x88"
#define FAILS(id) "\0\0\1\1\5\0\0\0" id "\x8e"
#define GREETS COMES(PREFACE), READS(sizeof(PREFACE) - 1), LEAVES(SETTINGS)

static void test_http2(void) {
        static const Event story[] = {
                GREETS, EXCHANGES(HEADERS("\1"), RESPONDS("\1")), EXCHANGES(HEADERS("\3"), RESPONDS("\3")),
                        EXCHANGES(HEADERS("\5"), FAILS("\5")),
                EXCHANGES(POSTS("\7") DATA("\7"), RESPONDS("\7")),
                EXCHANGES(HEADERS("\11") HEADERS("\13") HEADERS("\15"),
                          RESPONDS("\13") RESPONDS("\15") RESPONDS("\11")),
                COMES(POSTS("\17")), READS(10), COMES(DATA("\17")), READS(11), READS(3),
                LEAVES(RESPONDS("\17")), EXCHANGES(HEADERS("\21"), RESPONDS("\21")),
        };
        Connection c = { .h = h2_storage_new() };
        unsigned all;

        check(c.h);
        play(&c, MUX, story, ELEMENTSOF(story), 0, 0);
        check(c.begun == 9 && c.failed == 1 && c.in_flight == 0 && c.unanswered == 0);
        all = c.runs;
        /* The protocol is unknown if the preface was skipped */
        for (unsigned i = 2; i <= all; i++)
                for (unsigned k = i; k <= all; k++) {
                        play(&c, MUX, story, ELEMENTSOF(story), i, k);
                        if (c.begun != 9)
                                fprintf(stderr, "HTTP/2 without runs %u and %u: %u\n", i, k, c.begun);
                        check(c.begun == 9 && c.failed == 1 && c.parsed == 9 && c.in_flight == 0 &&
                              c.unanswered == 0 && c.overlaps == 0);
                }
        free(c.h);
}

/* While a request stays open (a long poll), later ones are parsed again nevertheless. The first request and
 * its end are seen. */
static void test_http2_open(void) {
#define RESETS(id) "\0\0\4\3\0\0\0\0" id "\0\0\0\10"
        static const Event story[] = {
                GREETS, COMES(HEADERS("\1")), READS(10), EXCHANGES(HEADERS("\3"), RESPONDS("\3")),
                        EXCHANGES(POSTS("\5") DATA("\5"), FAILS("\5")),
                EXCHANGES(HEADERS("\7") HEADERS("\11"), RESPONDS("\11") RESPONDS("\7")),
                COMES(POSTS("\13")), READS(10), COMES(DATA("\13")), READS(11), READS(3),
                LEAVES(RESPONDS("\13")),
                EXCHANGES(HEADERS("\15"), RESPONDS("\15")), EXCHANGES(HEADERS("\17"), RESPONDS("\17")),
                LEAVES(RESPONDS("\1")),
        };
        Connection c = { .h = h2_storage_new() };
        unsigned all;

        check(c.h);
        play(&c, MUX, story, ELEMENTSOF(story), 0, 0);
        check(c.begun == 8 && c.failed == 1 && c.in_flight == 0 && c.unanswered == 0);
        all = c.runs;
        /* The end of the connection ends the last request */
        for (unsigned i = 2; i <= all - 4; i++)
                for (unsigned k = i; k <= all - 4; k++) {
                        play(&c, MUX, story, ELEMENTSOF(story), i, k);
                        if (c.begun != 8 || c.h->in.synced != H2_SYNCED)
                                fprintf(stderr, "HTTP/2 with an open request without runs %u and %u: %u\n",
                                        i, k, c.begun);
                        check(c.begun == 8 && c.failed == 1 && c.in_flight == 0 && c.unanswered == 0 &&
                              c.drops == 0 && c.overlaps == 0);
                        check(c.h->in.synced == H2_SYNCED);
                }
        free(c.h);
}

/* If the end of a request was missed, it is in flight for a minute, and again if there is a response. */
static void test_http2_doubted(void) {
#define WAITS { PASSES, NULL, 0 }
        for (unsigned responded = 0; responded < 2; responded++) {
                const Event story[] = {
                        GREETS, COMES(HEADERS("\1")), READS(10), COMES(RESETS("\1")), READS(13),
                        EXCHANGES(HEADERS("\3"), RESPONDS("\3")), COMES(HEADERS("\5")), READS(10), WAITS,
                        EXCHANGES(HEADERS("\7"), RESPONDS("\7")), LEAVES_PART(RESPONDS("\5")),
                        responded ? (Event) LEAVES(RESPONDS("\1")) : (Event) LEAVES(
                                "\0\0\4\10\0\0\0\0\0\0\0\1\0"),
                };
                Connection c = { .h = h2_storage_new() };

                check(c.h);
                play(&c, MUX, story, ELEMENTSOF(story), 0, 0);
                check(c.begun == 3 && c.in_flight == 0 && c.unanswered == 0 && c.drops == 0);
                /* The third read */
                play(&c, MUX, story, ELEMENTSOF(story), 5, 5);
                check(c.begun == 3 + responded && c.in_flight == 0 && c.unanswered == 0 && c.drops == 1 &&
                      c.h->open == 0);
                if (!responded) {
                        struct h2_piece piece;

                        h2_piece_begin(&piece, c.now);
                        h2_feed(c.h, &piece, (const uint8_t*) "\0\0\1\1\4\0\0\0\1\x88", 10, 0, NULL,
                                on_stream, &c);
                        check(c.begun == 4 && c.h->open == 1);
                        h2_feed(c.h, &piece, (const uint8_t*) DATA("\1"), 14, 0, NULL, on_stream, &c);
                        check(c.h->open == 0 && piece.dropped == 0);
                }
                free(c.h);
        }
}

/* The rest of a request is not parsed as frames, even if it looks like them. */
static void test_http2_not_resumed(void) {
        struct h2_conn *h = h2_storage_new();
        Connection c = { .h = h };
        static const struct {
                const char *bytes;
                uint32_t size;
                bool framed;
        } pieces[] = {
                { HEADERS("\3"), 10, true },
                { POSTS("\3") DATA("\3"), 24, true },
                { HEADERS("\3") "\0\0", 12, false },
                { DATA("\3"), 13, false },
                { "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 18, false },        /* zeroes */
                /* a server's stream */
                { HEADERS("\2"), 10, false },
                { "\0\0\10\6\0\0\0\0\1" "12345678", 17, false },                     /* PING on a stream */
                { "hello, world", 12, false },
        };

        check(h);
        h2_begin(h, 100, 0);
        check(h2_open(h, h2_get_more(h), 1, 1));
        for (size_t i = 0; i < ELEMENTSOF(pieces); i++) {
                bool framed;

                memcpy(c.in, pieces[i].bytes, pieces[i].size);
                framed = is_framed(&c, pieces[i].size);
                check(framed == pieces[i].framed);
                h2_miss(h, h->in_pos + 1000, 2);
                check(!!h2_resumes(h, h->in_pos, word_at(&c, 8), 8, 0, framed) == framed);
                h->in.have = 0;
                h->in.left = 0;
        }
        free(h);
}

#define RECORD "\x17\3\3\0\x40" "0123456789012345678901234567890123456789012345678901234567890123"
#define ALERT "\x17\3\3\0\x13" "0123456789012345678"

static void test_tls(void) {
        TELL("TLS", SEALED, 4, 0, 1, EXCHANGES(RECORD, RECORD), EXCHANGES(RECORD, RECORD),
             EXCHANGES(RECORD, RECORD), EXCHANGES(RECORD, RECORD));
        TELL("TLS in pieces", SEALED, 3, 0, 1,
             EXCHANGES(RECORD, RECORD), COMES(RECORD), READS(5), READS(64), LEAVES_PART(RECORD),
             LEAVES(RECORD), EXCHANGES(RECORD, RECORD));
}

#define SECRET "012345678901234567890123456789012345"
#define CLIENT_HELLO "\x16\3\1\0\x2f" "\1\0\0\x2b\3\3" SECRET "01234"
#define SERVER_HELLO "\x16\3\3\0\x2a" "\2\0\0\x26\3\3" SECRET
#define SERVER_SEALED "\x17\3\3\0\x24" SECRET
#define CHANGES "\x14\3\3\0\1" "\1"
#define FINISHED "\x17\3\3\0\x35" SECRET "01234567890123456"
#define KEYS "\x16\3\3\0\x25" "\x10\0\0\x21\x20" "01234567890123456789012345678901"
#define FINISHED_OLD "\x16\3\3\0\x28" SECRET "0123"
#define READS_RECORD(record) READS(5), READS(sizeof(record) - 1 - 5)

/* No part of a handshake is a request, whichever of its records was skipped. */
static void test_tls_handshake(void) {
        TELL("TLS 1.3", SEALED, 3, 0, 1,
             COMES(CLIENT_HELLO), READS_RECORD(CLIENT_HELLO), LEAVES(SERVER_HELLO CHANGES SERVER_SEALED),
             COMES(CHANGES FINISHED), READS_RECORD(CHANGES), READS_RECORD(FINISHED), LEAVES(SERVER_SEALED),
             COMES(RECORD), READS_RECORD(RECORD), LEAVES(RECORD), COMES(RECORD), READS_RECORD(RECORD),
             LEAVES(RECORD), COMES(RECORD), READS_RECORD(RECORD), LEAVES(RECORD));
        TELL("TLS 1.2", SEALED, 3, 0, 1,
             COMES(CLIENT_HELLO), READS_RECORD(CLIENT_HELLO), LEAVES(SERVER_HELLO),
             COMES(KEYS CHANGES FINISHED_OLD), READS_RECORD(KEYS), READS_RECORD(CHANGES),
             READS_RECORD(FINISHED_OLD), LEAVES(CHANGES FINISHED_OLD),
             COMES(RECORD), READS_RECORD(RECORD), LEAVES(RECORD), COMES(RECORD), READS_RECORD(RECORD),
             LEAVES(RECORD), COMES(RECORD), READS_RECORD(RECORD), LEAVES(RECORD));
}

/* It was read, and has no response, also if the read was skipped. */
static void test_unanswered(void) {
        static const Event story[] = { EXCHANGES("one", "1"), COMES("two"), READS(3) };
        Connection c = {};

        for (unsigned i = 0; i <= 4; i++) {
                play(&c, PLAIN, story, ELEMENTSOF(story), i, i);
                check(c.begun == 1 && c.unanswered == 1 && c.in_flight == 0);
        }
}

/* A body that was spliced, which the parser has not seen: its end is known, and its request is complete. */
static void test_body_not_seen(void) {
#define POST "POST / HTTP/1.1\r\nContent-Length: 12\r\n\r\n"
        static const Event unanswered[] = {
                EXCHANGES(GET, OK), COMES(POST), READS(sizeof(POST) - 1), COMES("GET / HTTP/1"), READS(12),
        }, in_parts[] = {
                EXCHANGES(GET, OK), COMES(POST), READS(sizeof(POST) - 1), COMES("GET / HTTP/1"), READS(5),
                        READS(7),
        }, followed[] = {
                EXCHANGES(GET, OK), COMES(POST), READS(sizeof(POST) - 1), COMES("GET / HTTP/1"), READS(12),
                        LEAVES(FAILED),
                COMES(GET GET), READS(2 * sizeof(GET) - 2), LEAVES(OK FAILED),
        };
        static Connection c;

        /* The fifth run would see the body */
        play(&c, TALK, unanswered, ELEMENTSOF(unanswered), 5, 5);
        check(c.t.missed == PIPELINE_FOLLOWED && c.begun == 1 && c.unanswered == 1 && c.drops == 0 &&
              c.in_flight == 0);
        play(&c, TALK, in_parts, ELEMENTSOF(in_parts), 5, 7);
        check(c.t.missed == PIPELINE_FOLLOWED && c.begun == 1 && c.unanswered == 1 && c.drops == 0 &&
              c.in_flight == 0);
        play(&c, TALK, followed, ELEMENTSOF(followed), 5, 5);
        check(c.t.missed == PIPELINE_FOLLOWED && c.begun == 4 && c.parsed == 4 && c.failed == 2 &&
              c.unanswered == 0 && c.drops == 0 && c.in_flight == 0);

        /* A further byte is not part of the body */
        for (uint32_t more = 0; more < 2; more++) {
                struct arrival_times times = { .came_at = 1 };
                struct pipeline t = { .protocol = PROTOCOL_HTTP1 };
                struct parsed_chunk piece = {};

                pipeline_feed_requests(&t, &piece, POST, sizeof(POST) - 1, &times, 0);
                t.in_pos = sizeof(POST) - 1;
                pipeline_lose_sync(&t, t.in_pos + 12 + more, 2, 2, 0);
                check(t.missed == (more ? PIPELINE_MISSED : PIPELINE_FOLLOWED) && t.pending == 1 &&
                      t.in.state == 0);
        }
}

/* The rest of a request whose beginning was skipped is not a request. */
static void test_not_resumed(void) {
        struct pipeline t = { .protocol = PROTOCOL_HTTP1 };
        static const char get[8] = "GET / HT", body[8] = "body bod";
        uint64_t word;

        t.in_pos = 100;
        pipeline_lose_sync(&t, 200, 1, 2, 0);
        check(t.pending == 1 && t.missed == PIPELINE_MISSED);
        memcpy(&word, get, 8);
        check(!pipeline_resumes(&t, 200, word, 8, 0)); /* it has no response */
        t.pending = t.n_groups = 0;
        check(!pipeline_resumes(&t, 200, word, 8, 1)); /* not all of it has been sent */
        check(!pipeline_resumes(&t, 201, word, 8, 0)); /* another run was skipped */
        memcpy(&word, body, 8);
        check(!pipeline_resumes(&t, 200, word, 8, 0));
        memcpy(&word, get, 8);
        check(pipeline_resumes(&t, 200, word, 8, 0) && !t.missed);
}

/* Peeking at data counts as its read until the data is taken, which counts then. The request in service
 * is not read again when the application peeks at later data. */
static void test_peeked(void) {
        static const char two[] = "GET /a HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\n";
        struct arrival_times times = { .came_at = 10 };
        const uint32_t one = (sizeof(two) - 1) / 2;
        struct pipeline t = { .protocol = PROTOCOL_HTTP1, .in_pos = IN };
        struct exchange_effect e = {};
        struct parsed_chunk piece = {};
        struct exchange x = {};

        exchange_begin(&x, IN, IN, OUT);
        exchange_arrive(&x, 10, &(struct exchange_segment) { IN, IN + 64, IN, IN + 65536 }, &e);
        read_apply(&x, &(struct read_parsers) {}, 20, IN + 64, 0, &e);
        read_again(&x, NULL, 50, IN + 32);
        check(x.read_at == 20); /* a part of it */
        read_again(&x, NULL, 60, IN + 64);
        check(x.read_at == 60 && x.last_at == 10);
        exchange_depart(&x, 70, 100, 1, &e);
        read_again(&x, NULL, 80, IN + 64);
        check(x.read_at == 60); /* it has a response */

        x = (struct exchange) {};
        exchange_begin(&x, IN, IN, OUT);
        x.flags |= EXCHANGE_PARSED;
        exchange_arrive(&x, 10, &(struct exchange_segment) { IN, IN + sizeof(two) - 1, IN, IN + 65536 }, &e);
        pipeline_feed_requests(&t, &piece, two, one, &times, IN);
        t.in_pos = IN + one;
        read_apply(&x, &(struct read_parsers) { .pipeline = &t }, 20, IN + one, 0, &e);
        check(t.pending == 1 && pipeline_newest(&t)->read_at == 20);
        read_again(&x, &t, 30, IN + one);
        check(pipeline_newest(&t)->read_at == 30);

        /* The first byte of the second request, twice */
        pipeline_feed_requests(&t, &piece, two + one, 1, &times, IN + one);
        t.in_pos = IN + one + 1;
        read_apply(&x, &(struct read_parsers) { .pipeline = &t }, 40, IN + one + 1, 0, &e);
        read_again(&x, &t, 50, IN + one + 1);
        check(t.pending == 1 && pipeline_newest(&t)->read_at == 30);
}

int main(void) {
        test_plain();
        test_http();
        test_redis();
        test_memcached();
        test_http2();
        test_http2_open();
        test_http2_doubted();
        test_http2_not_resumed();
        test_tls();
        test_tls_handshake();
        test_unanswered();
        test_body_not_seen();
        test_not_resumed();
        test_peeked();
        return 0;
}
