/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The parser of memcached's protocols (bpf/protocols/memcached.h): requests, which of them have a response,
 * and the responses. The reaction to each line is that of memcached 1.6.38. */

#include <stdarg.h>

#include "util-pipeline.h"

#define UNKNOWN UINT32_MAX

#define STREAM_MAX ((size_t) 1 << 22)

_printf_(3, 4) static void append(char *to, size_t *n, const char *format, ...) {
        va_list ap;
        int r;

        va_start(ap, format);
        r = vsnprintf(to + *n, STREAM_MAX - *n, format, ap);
        va_end(ap);
        check(r >= 0 && (size_t) r < STREAM_MAX - *n);
        *n += (size_t) r;
}

static struct pipeline memcached(void) {
        struct pipeline t = {};

        pipeline_begin(&t, PROTOCOL_MEMCACHED, 0, 0);
        return t;
}

static bool request(struct pipeline *p, const char *data, size_t size, uint64_t at) {
        struct arrival_times times = { .came_at = at };
        struct parsed_chunk piece = {};

        pipeline_feed_requests(p, &piece, data, size, &times, 0);
        pipeline_read(p, at);
        return !piece.lost;
}

/* Returns the number of requests with a response; UNKNOWN: not understood. */
static uint32_t respond(struct pipeline *p, const char *data, size_t size, struct parsed_chunk *ret) {
        struct parsed_chunk piece = {};
        uint32_t n;

        pipeline_feed_responses(p, &piece, data, size);
        n = pipeline_take_responses(p, &piece, false);
        if (ret)
                *ret = piece;
        return piece.lost ? UNKNOWN : n;
}

static uint32_t detect(const char *data, size_t size) {
        uint64_t bytes = 0;

        memcpy(&bytes, data, MIN(size, sizeof(bytes)));
        return protocol_detect(bytes, (uint32_t) size);
}

static void test_detect(void) {
        static const char *const yes[] = { "get k\r\n", "gets k\r\n", "gat 0 k\r\n", "gats 0 k\r\n",
                                           "set k 0 0 1\r\n", "add k 0 0 1\r\n",
                                           "replace k 0 0 1\r\n", "append k 0 0 1\r\n",
                                           "prepend k 0 0 1\r\n", "cas k 0 0 1 2\r\n",
                                           "incr k 1\r\n", "decr k 1\r\n", "touch k 0\r\n", "delete k\r\n",
                                           "mg k v\r\n", "ms k 1\r\n",
                                           "md k\r\n", "ma k\r\n", "mn\r\n",
        };
        static const char *const no[] = { "", "g", "get", "get\r\n", "GET k\r\n", "getk\r\n", "set",
                                          "sets k\r\n", "stats\r\n", "version\r\n",
                                          "quit\r\n", "delete 17\r\n", "delete ", "delete\r\n",
                                          "watch tube\r\n", "use tube\r\n", "reserve\r\n", "put 1 2 3 4\r\n",
                                          "EHLO a\r\n", "ehlo a\r\n", "USER me\r\n", "user me\r\n",
                                          "NICK x\r\n", "PING\r\n", "ping\r\n", "a1 LOGIN\r\n",
                                          "mn", "mnx\r\n", "m\r\n", "\r\n", " get k\r\n", "flush_all\r\n",
                                          "PUT / HTTP", "show stat\n", "SSH-2.0-x",
        };

        for (size_t i = 0; i < ELEMENTSOF(yes); i++)
                check(detect(yes[i], strlen(yes[i])) == PROTOCOL_MEMCACHED);
        for (size_t i = 0; i < ELEMENTSOF(no); i++)
                check(detect(no[i], strlen(no[i])) != PROTOCOL_MEMCACHED);
}

/* These are first lines of other protocols, too: the connection is not memcached's, and nothing is lost. */
static void test_others(void) {
        static const char *const lines[] = { "get\r\n", "set k v\r\n", "append k v\r\n", "add x\n",
                                             "set server a/b state ready\n", "incr k\r\n",
                                             "touch 17\r\n", "ms k x\r\n", "set k 0 0 1 2 3\r\n",
                                             "add k 0 0 -1\r\n", "foo\r\n", "\r\n", "mg\r\n",
                                             "delete 1 2 3 4\r\n", "cas k 0 0 1\r\n", "gat k\r\n",
        };

        for (size_t i = 0; i < ELEMENTSOF(lines); i++)
                for (size_t cut = 0; cut <= strlen(lines[i]); cut++) {
                        struct pipeline t = memcached();

                        check(!request(&t, lines[i], cut, 1) ||
                              !request(&t, lines[i] + cut, strlen(lines[i]) - cut, 1));
                        check(t.pending == 0 && !(t.flags & PIPELINE_UNDERSTOOD));
                }
}

/* Requests, their responses, and the numbers of both. */
static const struct {
        const char *requests, *responses;
        uint32_t pending, responded;
} table[] = {
#define S(q, a, n) { q, a, n, n }
        S("get k\r\n", "END\r\n", 1),
        S("get k\n", "END\r\n", 1),
        S("get k\r\nget k\r\nget k\r\n", "VALUE k 0 3\r\nabc\r\nEND\r\nEND\r\nVALUE k 7 0\r\n\r\nEND\r\n",
          3),
        S("get a b  c " "\r\n", "VALUE a 0 5\r\nEND\r\n\r\nVALUE c 0 9\r\nVALUE x 0\r\nEND\r\n", 1),
        S("gets k\r\n", "VALUE k 0 3 77\r\nabc\r\nEND\r\n", 1),
        S("gat 10 k\r\ngats 10 k l\r\n", "END\r\nVALUE l 0 1 5\r\nx\r\nEND\r\n", 2),
        S("get a_key_of_more_than_eight_letters another_key_of_more_than_eight_letters\r\n",
          "VALUE another_key_of_more_than_eight_letters 0 12\r\n"
          "hello, world\r\nEND\r\n", 1),
        S("set k 0 0 5\r\nhello\r\n", "STORED\r\n", 1),
        S("set k 0 0 0\r\n\r\nadd k 0 0 10\r\nget k\r\n\r\n\n\r\n", "STORED\r\nNOT_STORED\r\n", 2),
        S("replace k 0 0 1\r\nx\r\nappend k 0 0 1\r\nx\r\nprepend k 0 0 1\r\nx\r\n",
          "NOT_STORED\r\nSTORED\r\nSTORED\r\n", 3),
        S("cas k 0 0 1 12345\r\nx\r\n", "EXISTS\r\n", 1),
        S("incr k 5\r\ndecr k 5\r\n", "18446744073709551615\r\nNOT_FOUND\r\n", 2),
        S("delete k\r\ndelete k 0\r\ntouch k 0\r\n", "DELETED\r\nNOT_FOUND\r\nTOUCHED\r\n", 3),
        /* No response */
        S("set k 0 0 3 noreply\r\nabc\r\nset k 0 0 12 noreply\r\nget k\r\nget\r\n\r\nget k\r\n", "END\r\n",
          1),
        S("cas k 0 0 1 2 noreply\r\nx\r\nadd k 1 2 1 noreply \r\nx\r\nget k\r\n", "END\r\n", 1),
        S("delete k noreply\r\ndelete k 0 noreply\r\nincr k 1 noreply\r\ndecr k 1 noreply\r\ntouch k 0 "
          "noreply\r\nget k\r\n", "END\r\n", 1),
        S("get k\r\nflush_all noreply\r\nflush_all 0 noreply\r\nverbosity 0 noreply\r\ncache_memlimit 64 "
          "noreply\r\nslabs automove 1 noreply\r\n", "END\r\n", 1),
        S("get k\r\nset k 0 0 x noreply\r\nincr k noreply\r\n", "END\r\n", 1),
        S("get k\r\nquit\r\n", "END\r\n", 1),
        S("get k\r\nshutdown\r\n", "END\r\nERROR: shutdown not enabled\r\n", 1),
        /* Resembles it */
        S("get noreply\r\ndelete noreply\r\ndelete xnoreply\r\ntouch k 0 noreply1\r\nversion noreply\r\nset "
          "noreply 0 0 1\r\nx\r\nset k 0 0 1 anoreply\r\nx\r\n",
          "END\r\nNOT_FOUND\r\nNOT_FOUND\r\nNOT_FOUND\r\nVERSION 1.6.38\r\nSTORED\r\nSTORED\r\n", 7),
        /* Errors */
        S("get k\r\n\r\nget\r\nGET k\r\nbogus noreply\r\nset k 0 0 abc\r\nset k 0 0\r\nset k 0 0 "
          "3000000000\r\nset k 0 0 -1\r\n",
          "END\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\nCLIENT_ERROR bad command line format\r\nERROR\r\n"
          "CLIENT_ERROR bad command line format\r\nCLIENT_ERROR bad command line format\r\n", 9),
        S("set k 0 0 5\r\nabcdefg\r\nversion\r\n",
          "CLIENT_ERROR bad data chunk\r\nERROR\r\nVERSION 1.6.38\r\n", 3),
        S("get k\r\nset k 0 0 3 noreply extra\r\nabc\r\n", "END\r\nERROR\r\nERROR\r\n", 3),
        S("delete k\r\ndelete k 0 0 noreply\r\nincr k x\r\n",
          "NOT_FOUND\r\nERROR\r\nCLIENT_ERROR invalid numeric delta argument\r\n", 3),
        /* before the data has arrived */
        S("set k 0 0 2000\r\n", "SERVER_ERROR object too large for cache\r\n", 1),
        S("get k\r\nget k\r\n", "SERVER_ERROR out of memory writing get response\r\nEND\r\n", 2),
        /* Of administrators */
        S("get k\r\nstats\r\n", "END\r\nSTAT pid 1\r\nSTAT version 1.6.38\r\nEND\r\n", 2),
        S("get k\r\nstats reset\r\nstats detail on\r\nstats detail dump\r\nstats cachedump 1 1\r\nstats "
          "noreply\r\n",
          "END\r\nRESET\r\nOK\r\nPREFIX a get 1 hit 1 set 1 del 0\r\nEND\r\nITEM a [5 b; 0 s]\r\nEND\r\n"
          "ERROR\r\n", 6),
        S("get k\r\nflush_all\r\nflush_all 10\r\nversion\r\nverbosity 1\r\ncache_memlimit 64\r\n"
          "verbosity\r\nlru mode flat\r\nslabs automove 1\r\nrefresh_certs\r\n",
          "END\r\nOK\r\nOK\r\nVERSION 1.6.38\r\nOK\r\nOK\r\nERROR\r\nOK\r\nOK\r\nError TLS not enabled\r\n",
          10),
        S("get k\r\nlru_crawler metadump all\r\nlru_crawler mgdump all\r\n",
          "END\r\nkey=k exp=-1 la=1 cas=1 fetch=no\r\nkey=a_long_one exp=-1\r\nEND\r\nmg k\r\nmg l\r\n"
          "EN\r\n", 3),
        /* Meta commands */
        S("mg k v\r\nmg k\r\nmg l s t O123\r\n", "VA 3 s3\r\nabc\r\nHD\r\nEN\r\n", 3),
        S("ms k 5 T0\r\nmn\r\nx\r\nmd k\r\nma k\r\nma k v\r\nme k\r\nmn\r\n",
          "HD\r\nNF\r\nHD k1\r\nVA 2\r\n10\r\nME k exp=-1\r\nMN\r\n", 6),
        S("ms k 0\r\n\r\nms k x\r\nms k\r\nms k 3 MQ\r\nabc\r\n",
          "NS\r\nCLIENT_ERROR bad command line format\r\nCLIENT_ERROR bad command line format\r\n"
          "CLIENT_ERROR invalid mode for ms M token\r\n", 4),
        /* Quiet: all before "MN" belong to it */
        S("mg a v q\r\nmg b v q\r\nmg c q v\r\nmn\r\n", "MN\r\n", 1),
        S("mg a v q\r\nmg b v q\r\nmg c v q\r\nmn\r\n", "VA 2\r\nMN\r\nVA 4\r\nMN\r\n\r\nMN\r\n", 1),
        S("ms k 3 q\r\nabc\r\nmd k q\r\nma k q\r\nmn\r\nmg k\r\n", "NS\r\nNF\r\nMN\r\nEN\r\n", 2),
        S("mg a q\r\nmn\r\nmn\r\nmg b q\r\nmn\r\n", "HD\r\nMN\r\nMN\r\nHD\r\nMN\r\n", 3),
        S("mg q\r\nmg k sq\r\nms q 1\r\nq\r\nmn\r\n", "EN\r\nEN\r\nHD\r\nMN\r\n", 4),
        S("mg a v q\r\nmg b v\r\n", "VA 1\r\nx\r\nVA 1\r\ny\r\n", 1),
        S("get k\r\nms k x q\r\n", "END\r\nCLIENT_ERROR bad command line format\r\n", 2),
        { "get a\r\nget b\r\nset c 0 0 1\r\nx\r\n", "VALUE a 0 100\r\n", 3, 1 },
        { "get a\r\n", "END\r\nEND\r\n", 1, 1 },
        { "get a\r\nwatch\r\n", "END\r\nERROR\r\nEND\r\n", 2, 2 },
#undef S
};

/* The result does not depend on the pieces. */
static void test_text(void) {
        for (size_t i = 0; i < ELEMENTSOF(table); i++) {
                const char *q = table[i].requests, *a = table[i].responses;
                bool whole = !strstr(q, "2000\r\n");

                for (size_t cut = 0; cut <= strlen(q); cut++) {
                        struct pipeline t = memcached();

                        check(request(&t, q, cut, 1) && request(&t, q + cut, strlen(q) - cut, 2));
                        check(t.pending == table[i].pending - !whole && (t.in.state == 0) == whole);
                        check(respond(&t, a, strlen(a), NULL) == table[i].responded);
                        check(t.pending == table[i].pending - table[i].responded);
                }
                for (size_t cut = 0; cut <= strlen(a); cut++) {
                        struct pipeline t = memcached();

                        check(request(&t, q, strlen(q), 1));
                        check(respond(&t, a, cut, NULL) +
                              respond(&t, a + cut, strlen(a) - cut, NULL) == table[i].responded);
                        check(t.pending == table[i].pending - table[i].responded);
                }
                for (size_t size = 1; size < 9; size++) {
                        struct pipeline t = memcached();
                        uint32_t n = 0;

                        for (size_t k = 0; k < strlen(q); k += size)
                                check(request(&t, q + k, MIN(size, strlen(q) - k), 1));
                        for (size_t k = 0; k < strlen(a); k += size)
                                n += respond(&t, a + k, MIN(size, strlen(a) - k), NULL);
                        check(n == table[i].responded);
                }
        }
}

/* Responses that should have been suppressed: the position is lost, and found again after complete
 * responses. */
static void test_lost(void) {
        static const char *const bad[] = { "$1\r\nv\r\n", "-ERR unknown\r\n", "+OK\r\n",
                                           "HTTP/1.1 400 Bad Request\r\n", "250 ok\r\n", "OK 17\r\n---\r\n",
                                           "VALUE k 0\r\n", "VALUE k 0 x\r\nabc\r\n",
                                           "VALUE k 0 3\r\nabcdefgh\r\n", "VA\r\n", "hello\r\n", "12a\r\n",
                                           "\r\n",
                                           "123456789012345678901\r\n", "VALUE k 0 2\r\nab\r\nFOO\r\n",
        };

        for (size_t i = 0; i < ELEMENTSOF(bad); i++)
                for (size_t cut = 0; cut < strlen(bad[i]); cut++) {
                        struct pipeline t = memcached();
                        uint32_t before;

                        check(request(&t, "get a\r\nget b\r\n", 14, 1));
                        before = respond(&t, bad[i], cut, NULL);
                        check(before == UNKNOWN ||
                              respond(&t, bad[i] + cut, strlen(bad[i]) - cut, NULL) == UNKNOWN);
                        check(t.out.state == 0 && t.flags & PIPELINE_LOST_SYNC);
                        check(request(&t, "get c\r\n", 7, 1) && respond(&t, "END\r\n", 5, NULL) == 1);
                }
}

/* If the first response is not memcached's, neither is the connection; after one that is, the position is
 * lost. */
static void test_mistaken(void) {
        for (unsigned before = 0; before < 2; before++) {
                struct parsed_chunk piece = {};
                struct pipeline t = memcached();

                check(request(&t, "get a\r\nget b\r\n", 14, 1));
                if (before > 0) {
                        check(respond(&t, "END\r\n", 5, NULL) == 1);
                        t.flags |= PIPELINE_RESPONDED; /* as in the programs */
                }
                pipeline_feed_responses(&t, &piece, "$-1\r\n", 5);
                check(piece.lost && pipeline_has_lost_sync(&t, &piece, before == 0) == (before == 0));
        }
}

/* "watch": a log follows. */
static void test_watch(void) {
        static const char q[] = "get k\r\nwatch mutations\r\n", a[] =
                "END\r\nOK\r\nts=1.0 gid=1 type=item_store key=k\r\n";

        for (size_t cut = 0; cut < 9; cut++) {
                struct pipeline t = memcached();
                struct parsed_chunk piece = {};
                uint32_t n;

                check(request(&t, q, strlen(q), 1) && t.pending == 2 && t.flags & PIPELINE_TUNNEL);
                n = respond(&t, a, cut, &piece);
                check(!piece.tunnel);
                n += respond(&t, a + cut, strlen(a) - cut, &piece);
                check(n == 2 && piece.tunnel == 1);
        }
}

/* ---- binary ---- */

/* A header, and a body of this length. Returns the size. */
static size_t message(char *p, unsigned magic, unsigned opcode, unsigned key, unsigned extras,
                      unsigned body) {
        memset(p, 0, 24);
        p[0] = (char) magic;
        p[1] = (char) opcode;
        p[2] = (char) (key >> 8);
        p[3] = (char) key;
        p[4] = (char) extras;
        p[8] = (char) (body >> 24);
        p[9] = (char) (body >> 16);
        p[10] = (char) (body >> 8);
        p[11] = (char) body;
        /* Bytes that resemble a header, or a line */
        for (unsigned i = 0; i < body; i++)
                p[24 + i] = "\x80\x81\nEND\r"[i % 7];
        return 24 + body;
}

static void test_detect_binary(void) {
        static const struct {
                const char *bytes;
                bool yes;
        } first[] = {
                { "\x80\x00\x00\x01\x00\x00\x00\x00", true  }, /* GET */
                { "\x80\x01\x00\x01\x08\x00\x00\x00", true  }, /* SET */
                { "\x80\x0a\x00\x00\x00\x00\x00\x00", true  }, /* NOOP */
                { "\x80\x05\x00\x01\x14\x00\x00\x00", true  }, /* INCREMENT */
                { "\x80\x20\x00\x00\x00\x00\x00\x00", true  }, /* SASL */
                { "\x80\x01\x00\x01\x00\x00\x00\x00", false },
                { "\x80\x00\x00\x01\x08\x00\x00\x00", false },
                { "\x80\x00\x01\x00\x00\x00\x00\x00", false }, /* a key that is too long */
                { "\x80\x00\x00\x01\x00\x01\x00\x00", false },
                { "\x80\x00\x00\x28\x00\x00\x12\x34", false }, /* NFS */
                { "\x80\x2e\x01\x03\x01\x00\x15\x00", false }, /* TLS by the hello of SSL 2 */
                { "\x80\x50\x00\x00\x00\x00\x00\x00", false },
                { "\x81\x00\x00\x01\x00\x00\x00\x00", false },
        };

        for (size_t i = 0; i < ELEMENTSOF(first); i++) {
                check((detect(first[i].bytes, 8) == PROTOCOL_MEMCACHED) == first[i].yes);
                check(detect(first[i].bytes, 7) != PROTOCOL_MEMCACHED);
        }
}

static void test_binary(void) {
        static const struct {
                unsigned opcode, key, extras, body;
                bool responded;
                unsigned response_key, response_body; /* key 65535: several, the last one empty; body 65535:
                                                   * none */
        } commands[] = {
                { 0x00, 3, 0, 3,       true,  0,     9 },     /* GET */
                { 0x00, 3, 0, 3,       true,  0,     100004 }, /* of something large */
                { 0x0c, 3, 0, 3,       true,  3,     20 },    /* GETK */
                { 0x09, 3, 0, 3,       false, 0,     65535 }, /* GETQ, a miss */
                { 0x09, 3, 0, 3,       false, 0,     300 },   /* and a hit */
                { 0x0d, 3, 0, 3,       false, 3,     300 },   /* GETKQ */
                { 0x01, 3, 8, 100011,  true,  0,     0 },     /* SET */
                { 0x11, 3, 8, 30,      false, 0,     65535 }, /* SETQ */
                { 0x11, 3, 8, 30,      false, 0,     10 },    /* with an error */
                { 0x14, 3, 0, 3,       false, 0,     9 },     /* DELETEQ */
                { 0x0a, 0, 0, 0,       true,  0,     0 },     /* NOOP */
                { 0x0b, 0, 0, 0,       true,  0,     6 },     /* VERSION */
                { 0x10, 0, 0, 0,       true,  65535, 0 },     /* STAT */
                { 0x10, 5, 0, 5,       true,  0,     9 },     /* that does not exist */
                { 0x21, 5, 0, 20,      true,  0,     13 },    /* SASL */
                { 0x1e, 3, 4, 7,       false, 0,     65535 }, /* GATQ */
                { 0x77, 3, 0, 3,       true,  0,     15 },    /* unknown */
                { 0x07, 0, 0, 0,       true,  0,     0 },     /* QUIT */
                { 0x17, 0, 0, 0,       false, 0,     65535 }, /* QUITQ */
        };
        static char q[STREAM_MAX], a[STREAM_MAX];

        for (unsigned seed = 1; seed <= 300; seed++) {
                unsigned s = seed, number = 1 + (unsigned) rand_r(&s) % 30, pending = 0;
                size_t n_q = 0, n_a = 0, largest = seed % 3 == 0 ? 24 : seed % 3 == 1 ? 300 : 20000;
                struct pipeline t = memcached();
                uint32_t responded = 0;

                for (unsigned i = 0; i < number; i++) {
                        unsigned k = seed <= ELEMENTSOF(commands) ? seed - 1 :
                                     (unsigned) rand_r(&s) % ELEMENTSOF(commands);

                        n_q += message(q + n_q, 0x80, commands[k].opcode, commands[k].key,
                                       commands[k].extras, commands[k].body);
                        pending += commands[k].responded;
                        for (unsigned m = 0; commands[k].response_key == 65535 && m < 3; m++)
                                n_a += message(a + n_a, 0x81, commands[k].opcode, 3 + m, 0, 10 * m + 3 + m);
                        if (commands[k].response_body != 65535)
                                n_a += message(a + n_a, 0x81, commands[k].opcode,
                                               commands[k].response_key == 65535 ? 0 :
                                               commands[k].response_key,
                                               0, commands[k].response_body);
                }

                for (size_t i = 0, n; i < n_q; i += n) {
                        n = MIN(1 + (size_t) rand_r(&s) % largest, n_q - i);
                        check(request(&t, q + i, n, i + 1));
                }
                check(t.pending == pending && t.in.state == 0);
                for (size_t i = 0, n; i < n_a; i += n) {
                        uint32_t r;

                        n = MIN(1 + (size_t) rand_r(&s) % largest, n_a - i);
                        r = respond(&t, a + i, n, NULL);
                        check(r != UNKNOWN);
                        responded += r;
                        check(t.pending + responded == pending);
                }
                check(responded == pending && t.pending == 0 && t.out.state == 0 &&
                        !(t.flags & PIPELINE_RESPONDING));
        }
}

/* More than the limits. */
static void test_binary_lost(void) {
        static char q[64];

        for (size_t cut = 0; cut <= 24; cut++) {
                struct pipeline t = memcached();

                (void) message(q, 0x80, 0, 3, 0, 0);
                q[8] = (char) 0x80;
                check(!request(&t, q, cut, 1) || !request(&t, q + cut, 24 - cut, 1));

                t = memcached();
                check(request(&t, "get k\r\n", 7, 1));
                q[0] = (char) 0x81;
                check(respond(&t, q, cut, NULL) == UNKNOWN ||
                      respond(&t, q + cut, 24 - cut, NULL) == UNKNOWN);
        }
}

/* Many requests, in pieces of random size: each is counted once, in order, and quiet ones are not
 * counted. */
static void test_streams(void) {
        static char q[STREAM_MAX], a[STREAM_MAX];

        for (unsigned seed = 1; seed <= 300; seed++) {
                unsigned s = seed, number = 1 + (unsigned) rand_r(&s) % 50, pending = 0;
                size_t n_q = 0, n_a = 0, largest = seed % 2 ? 20 : 4000;
                struct pipeline t = memcached();
                uint32_t responded = 0;

                for (unsigned i = 0; i < number; i++) {
                        int value = rand_r(&s) % 5000, quiet = i > 0 && rand_r(&s) % 3 == 0;

                        switch (rand_r(&s) % 3) {

                        case 0:
                                append(q, &n_q, "get key%u key_that_is_longer_than_that\r\n", i);
                                for (int k = rand_r(&s) % 3; k > 0; k--)
                                        append(a, &n_a, "VALUE key%u 0 %i\r\n%0*i\r\n", i, value + 1,
                                               value + 1, 0);
                                append(a, &n_a, "END\r\n");
                                pending++;
                                break;

                        case 1:
                                append(q, &n_q, "set key%u 0 0 %i%s\r\n%0*i\r\n", i, value + 1,
                                       quiet ? " noreply" : "", value + 1, 0);
                                if (!quiet)
                                        append(a, &n_a, "STORED\r\n");
                                pending += !quiet;
                                break;

                        case 2:
                                append(q, &n_q, "delete key%u%s\r\n", i, quiet ? " noreply" : "");
                                if (!quiet)
                                        append(a, &n_a, "DELETED\r\n");
                                pending += !quiet;
                                break;
                        }
                }

                for (size_t i = 0, n; i < n_q; i += n) {
                        n = MIN(1 + (size_t) rand_r(&s) % largest, n_q - i);
                        check(request(&t, q + i, n, i + 1));
                }
                check(t.pending == pending && t.in.state == 0);
                for (size_t i = 0, n; i < n_a; i += n) {
                        uint32_t r;

                        n = MIN(1 + (size_t) rand_r(&s) % largest, n_a - i);
                        r = respond(&t, a + i, n, NULL);
                        check(r != UNKNOWN);
                        responded += r;
                }
                check(responded == pending && t.pending == 0 && t.out.state == 0 &&
                        !(t.flags & PIPELINE_RESPONDING));
        }
}

/* Requests without a response are not in flight once they were read, in any number. */
static void test_in_flight(void) {
        static const char q[] = "set k 0 0 3 noreply\r\nabc\r\ndelete k noreply\r\n";
        struct exchange_effect e = {};
        struct pipeline t = memcached();
        struct exchange x = {};
        __u64 first_at, last_at;

        exchange_arrive(&x, 5, &(struct exchange_segment) { 0, strlen(q), 0, 65536 }, &e);
        check(e.in_flight == 1);
        check(request(&t, q, strlen(q), 5));
        exchange_take(&x, strlen(q), &first_at, &last_at);
        pipeline_commit(&t, &x, 6, 1, &e);
        check(e.in_flight == 0 && x.open_at == 0 && t.pending == 0);
}

static uint32_t count_errors(const char *data, size_t size) {
        uint32_t errors = UNKNOWN;

        for (size_t cut = 0; cut <= size; cut++) {
                struct parsed_chunk first = {}, second = {};
                struct pipeline t = memcached();

                check(request(&t, "get k\r\nget k\r\nget k\r\n", 21, 1));
                check(respond(&t, data, cut, &first) != UNKNOWN);
                check(respond(&t, data + cut, size - cut, &second) != UNKNOWN);
                check(errors == UNKNOWN || errors == first.failed + second.failed);
                errors = first.failed + second.failed;
        }
        return errors;
}

/* Error replies, split at every position. "Not found" and "not stored" are no failures. */
static void test_errors(void) {
        static const struct {
                const char *data;
                uint32_t errors;
        } lines[] = {
                { "ERROR\r\nCLIENT_ERROR bad data chunk\r\nSERVER_ERROR out of memory\r\n", 3 },
                { "END\r\nERROR\r\nSTORED\r\n",                                             1 },
                { "NOT_FOUND\r\nNOT_STORED\r\nEXISTS\r\n",                                  0 },
                { "VALUE k 0 5\r\nERROR\r\nEND\r\nHD\r\n",                                  0 },
                { "VALUE k 0 1\r\nx\r\nSERVER_ERROR out of memory\r\nEND\r\n",              1 },
        };
        static const struct {
                uint8_t opcode, status;
                uint32_t errors;
        } headers[] = {
                { 0x00, 0x00, 0 }, { 0x00, 0x01, 0 }, { 0x01, 0x02, 0 }, { 0x01, 0x03, 1 },
                { 0x01, 0x04, 1 }, { 0x01, 0x05, 0 }, { 0x05, 0x06, 1 }, { 0x21, 0x20, 1 },
                { 0x21, 0x21, 0 }, { 0x00, 0x81, 1 }, { 0x01, 0x82, 1 }, { 0x11, 0x82, 0 },
        };

        for (size_t i = 0; i < ELEMENTSOF(lines); i++)
                check(count_errors(lines[i].data, strlen(lines[i].data)) == lines[i].errors);
        for (size_t i = 0; i < ELEMENTSOF(headers); i++) {
                const char header[24] = { [0] = (char) 0x81, [1] = (char) headers[i].opcode,
                                          [7] = (char) headers[i].status };

                check(count_errors(header, sizeof(header)) == headers[i].errors);
        }
}

int main(void) {
        test_detect();
        test_others();
        test_text();
        test_lost();
        test_mistaken();
        test_watch();
        test_detect_binary();
        test_binary();
        test_binary_lost();
        test_streams();
        test_in_flight();
        test_errors();
        return EXIT_SUCCESS;
}
