/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Parsed connections (bpf/protocols/pipeline.h) and the parser of RESP, with streams split at every position
 * and at random. */

#include "util-pipeline.h"

static void request(struct pipeline *p, struct parsed_chunk *piece, const char *data, size_t size,
                    uint64_t at) {
        struct arrival_times times = { .came_at = at };

        pipeline_feed_requests(p, piece, data, size, &times, 0);
}

static uint32_t respond(struct pipeline *p, const char *data, size_t size, bool complete, bool *ret_lost) {
        struct parsed_chunk piece = {};

        pipeline_feed_responses(p, &piece, data, size);
        if (ret_lost)
                *ret_lost = piece.lost;
        return pipeline_take_responses(p, &piece, complete);
}

static struct pipeline redis(void) {
        return (struct pipeline) { .protocol = PROTOCOL_REDIS };
}

static uint32_t pending(const char *s) {
        struct parsed_chunk piece = {};
        struct pipeline t = redis();

        request(&t, &piece, s, strlen(s), 1);
        check(!piece.lost);
        check(t.in.state == 0);
        return t.pending;
}

static bool understood(const char *s) {
        struct parsed_chunk piece = {};
        struct pipeline t = redis();

        request(&t, &piece, s, strlen(s), 1);
        return !piece.lost;
}

static void test_detect(void) {
        check(protocol_detect('*' | '1' << 8 | '\r' << 16, 4) == PROTOCOL_REDIS);
        check(protocol_detect('*' | '3' << 8, 2) == PROTOCOL_REDIS);
        check(protocol_detect('*', 1) == PROTOCOL_PLAIN);
        check(protocol_detect('*' | '0' << 8, 2) == PROTOCOL_PLAIN);
        check(protocol_detect('*' | '*' << 8, 2) == PROTOCOL_PLAIN);
        check(protocol_detect('P' | 'I' << 8 | 'N' << 16 | (uint64_t) 'G' << 24, 6) == PROTOCOL_PLAIN);
        check(protocol_detect(0, 0) == PROTOCOL_PLAIN);
}

static void test_requests(void) {
        check(pending("*1\r\n$4\r\nPING\r\n") == 1);
        check(pending("*2\r\n$3\r\nGET\r\n$0\r\n\r\n") == 1);
        /* a value that looks like a command */
        check(pending("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$12\r\n*1\r\n$4\r\nPING\r\n") == 1);
        check(pending("PING\r\n") == 1);
        check(pending("PING\nPING\n") == 2);
        check(pending("SET k \"a b\"\r\nGET k\r\n") == 2);
        /* Commands of Redis without a reply */
        check(pending("\r\n") == 0);
        check(pending("\n\r\n*0\r\n*-1\r\nPING\r\n") == 1);
        check(pending("*1\r\n$5\r\nMULTI\r\n*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nEXEC\r\n") == 3);

        check(!understood("*1\r\nPING\r\n"));
        check(!understood("*x\r\n"));
        check(!understood("*\r\n"));
        check(!understood("*1\r\n$\r\n"));
        check(!understood("*1\r\n$-1\r\n"));
        check(!understood("*99999999999999999999\r\n"));
        check(!understood("*1\r\n$4\r\nPINGS\r\n")); /* longer than its length says */
}

/* One group for each kind: blocking commands, and those that change the direction of the connection. */
static void test_meanings(void) {
        static const struct {
                const char *request;
                bool waits, pushes;
        } table[] = {
                { "*3\r\n$5\r\nBLPOP\r\n$1\r\nk\r\n$1\r\n0\r\n",                      true,  false },
                { "*3\r\n$5\r\nblpop\r\n$1\r\nk\r\n$1\r\n0\r\n",                      true,  false },
                { "*4\r\n$10\r\nbrpoplpush\r\n$1\r\nk\r\n$1\r\nl\r\n$1\r\n0\r\n",     true,  false },
                { "BRPOP k 0\r\n",                                                    true,  false },
                { "BRPOPX k 0\r\n",                                                   false, false },
                { "*3\r\n$5\r\nRPUSH\r\n$1\r\nk\r\n$5\r\nblock\r\n",                  false, false },
                { "*4\r\n$5\r\nXREAD\r\n$7\r\nSTREAMS\r\n$1\r\ns\r\n$1\r\n$\r\n",     false, false },
                { "*6\r\n$5\r\nXREAD\r\n$5\r\nblock\r\n$1\r\n0\r\n$7\r\nSTREAMS\r\n$1\r\ns\r\n$1\r\n$\r\n",
                  true, false },
                { "*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\nc\r\n",                             false, true  },
                { "*2\r\n$10\r\nPSUBSCRIBE\r\n$1\r\nc\r\n",                           false, true  },
                { "*2\r\n$11\r\nUNSUBSCRIBE\r\n$1\r\nc\r\n",                          false, false },
                { "*1\r\n$7\r\nMONITOR\r\n",                                          false, true  },
                { "monitor\r\n",                                                      false, true  },
                { "*1\r\n$4\r\nWAIT\r\n",                                             true,  false },
                { "*1\r\n$5\r\nWAITS\r\n",                                            false, false },
        };

        for (size_t i = 0; i < ELEMENTSOF(table); i++) {
                struct parsed_chunk piece = {};
                struct pipeline t = redis();

                request(&t, &piece, table[i].request, strlen(table[i].request), 1);
                check(!piece.lost && t.pending == 1);
                check(!!t.groups[0].waits == table[i].waits);
                check(!!(t.flags & PIPELINE_SERVER_PUSH) == table[i].pushes);
        }
}

/* A replica: data after the reply are no replies, and no request follows, unless the reply is an error. */
static void test_replica(void) {
        static const struct {
                const char *responses;
                unsigned responded;
                bool tunnel;
        } table[] = {
                { "+FULLRESYNC 1234 14\r\n$EOF:xx\r\nREDIS0011", 1, true  },
                { "+CONTINUE\r\n",                                 1, true  },
                { "\n\n$10\r\nREDIS00112",                       1, true  },
                { "-NOMASTERLINK no\r\n",                          1, false },
        };
        static const char *const requests[] = { "*3\r\n$5\r\nPSYNC\r\n$1\r\n?\r\n$2\r\n-1\r\n",
                                                 "*1\r\n$4\r\nSYNC\r\n", "sync\r\n" };

        for (size_t q = 0; q < ELEMENTSOF(requests); q++)
                for (size_t i = 0; i < ELEMENTSOF(table); i++)
                        for (unsigned before = 0; before < 3; before++) {
                                struct parsed_chunk piece = {};
                                struct pipeline t = redis();
                                char responses[200] = "";

                                for (unsigned k = 0; k < before; k++) {
                                        request(&t, &piece, "*1\r\n$4\r\nPING\r\n", 14, 1);
                                        strcat(responses, "+PONG\r\n");
                                }
                                strcat(responses, table[i].responses);
                                request(&t, &piece, requests[q], strlen(requests[q]), 1);
                                check(!piece.lost && t.pending == before + 1 && t.flags & PIPELINE_TUNNEL);
                                check(pipeline_newest(&t)->waits && !!t.groups[0].waits == (before == 0));
                                pipeline_feed_responses(&t, &piece, responses, strlen(responses));
                                check(!piece.lost && piece.begun == before + table[i].responded &&
                                      !!piece.tunnel == table[i].tunnel);
                        }
}

/* Commands that turn off replies, to themselves or to others. */
static void test_quiet(void) {
        static const struct {
                const char *requests;
                unsigned pending;
        } table[] = {
#define SET "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n"
#define PING "*1\r\n$4\r\nPING\r\n"
#define REPLY(length, how) "*3\r\n$6\r\nclient\r\n$5\r\nREPLY\r\n$" #length "\r\n" how "\r\n"
                { SET REPLY(3, "OFF") SET PING "PING\r\n" SET, 1 },
                { SET REPLY(3, "off") SET REPLY(2, "ON") SET SET, 4 },
                { REPLY(2, "on") SET, 2 },
                { REPLY(4, "SKIP") SET SET, 1 },
                { REPLY(4, "skip") REPLY(4, "SKIP") PING PING SET, 2 },
                { REPLY(4, "SKIP") REPLY(2, "ON") SET, 2 },
                { REPLY(3, "OFF") REPLY(4, "SKIP") SET SET, 0 },
                { REPLY(3, "OFF") REPLY(3, "OFF") REPLY(2, "ON"), 1 },
                { REPLY(3, "ODD") SET, 2 },
                { "*3\r\n$6\r\nCLIENT\r\n$5\r\nREPLX\r\n$3\r\nOFF\r\n" SET, 2 },
                { "*2\r\n$6\r\nCLIENT\r\n$4\r\nLIST\r\n" SET, 2 },
                { "*4\r\n$3\r\nSET\r\n$6\r\nCLIENT\r\n$5\r\nREPLY\r\n$3\r\nOFF\r\n" SET, 2 },
                { REPLY(4, "SKIP") "*2\r\n$6\r\nCLIENT\r\n$2\r\nID\r\n" SET, 1 },
                /* A replica that reports its offset */
#define ACK "*3\r\n$8\r\nREPLCONF\r\n$3\r\nACK\r\n$2\r\n14\r\n"
                { ACK ACK SET ACK, 1 },
                { "*5\r\n$8\r\nreplconf\r\n$3\r\nack\r\n$2\r\n14\r\n$4\r\nFACK\r\n$2\r\n14\r\n" SET, 1 },
                { "*3\r\n$8\r\nREPLCONF\r\n$4\r\ncapa\r\n$3\r\neof\r\n" SET, 2 },
        };

        for (size_t i = 0; i < ELEMENTSOF(table); i++)
                for (size_t cut = 1; cut <= strlen(table[i].requests); cut++) {
                        struct parsed_chunk piece = {};
                        struct pipeline t = redis();

                        request(&t, &piece, table[i].requests, cut, 1);
                        request(&t, &piece, table[i].requests + cut, strlen(table[i].requests) - cut, 2);
                        check(!piece.lost && t.pending == table[i].pending);
                }
#undef SET
#undef PING
#undef REPLY
}

static void test_responses(void) {
        static const struct {
                const char *data;
                uint32_t n;
        } table[] = {
                { "+OK\r\n", 1 }, { "-ERR no\r\n", 1 }, { ":5\r\n", 1 }, { "$-1\r\n", 1 }, { "*-1\r\n", 1 },
                        { "_\r\n", 1 },
                { "$0\r\n\r\n", 1 }, { "$5\r\n+OK\r\n\r\n", 1 }, { "*0\r\n", 1 },
                        { "*2\r\n+a\r\n+b\r\n", 1 },
                { "*2\r\n*1\r\n$1\r\na\r\n*2\r\n:1\r\n*0\r\n", 1 }, { "%1\r\n+k\r\n:1\r\n", 1 },
                        { "~2\r\n:1\r\n:2\r\n", 1 },
                { "#t\r\n", 1 }, { ",1.5\r\n", 1 }, { "(123\r\n", 1 }, { "=5\r\ntxt:a\r\n", 1 },
                        { "!3\r\nERR\r\n", 1 },
                { "|1\r\n+k\r\n:1\r\n+OK\r\n", 1 }, /* an attribute belongs to the value behind it */
                { ">2\r\n+invalidate\r\n*0\r\n", 0 }, /* a push is no reply */
                { "+OK\r\n>1\r\n+x\r\n+OK\r\n", 2 },
                { "+OK\r\n+QUEUED\r\n*1\r\n+PONG\r\n", 3 },
        };

        for (size_t i = 0; i < ELEMENTSOF(table); i++)
                for (size_t cut = 0; cut <= strlen(table[i].data); cut++) {
                        struct pipeline t = redis();
                        bool lost;
                        uint32_t n;

                        t.pending = 10;
                        t.n_groups = 1;
                        t.groups[0].n = 10;
                        n = respond(&t, table[i].data, cut, false, &lost);
                        check(!lost);
                        n += respond(&t, table[i].data + cut, strlen(table[i].data) - cut, true, &lost);
                        check(!lost);
                        check(n == table[i].n);
                        check(t.pending == 10 - table[i].n);
                        check(!(t.flags & PIPELINE_RESPONDING));
                        check(t.out.state == 0);
                }
}

static uint32_t count_errors(struct pipeline *p, const char *data, size_t cut, uint32_t *ret_responded) {
        struct parsed_chunk first = {}, second = {};

        pipeline_feed_responses(p, &first, data, cut);
        check(!first.lost);
        *ret_responded = pipeline_take_responses(p, &first, false);
        pipeline_feed_responses(p, &second, data + cut, strlen(data) - cut);
        check(!second.lost);
        *ret_responded += pipeline_take_responses(p, &second, true);
        return first.failed + second.failed;
}

/* Error replies, split at every position: only those to a command, with an error at the top level, and no
 * redirections. */
static void test_errors(void) {
        static const struct {
                const char *data;
                uint32_t responded, errors;
        } table[] = {
                { "+OK\r\n:5\r\n$-1\r\n",                                       3, 0 },
                { "-ERR no\r\n",                                                1, 1 },
                { "+OK\r\n-WRONGTYPE Operation against a key\r\n:1\r\n",        3, 1 },
                { "-LOADING Redis\r\n-LOADING Redis\r\n-OOM x\r\n",             3, 3 },
                { "-MOVED 3999 127.0.0.1:6381\r\n-ASK 3999 127.0.0.1:6381\r\n", 2, 0 },
                { "-MOVEDX\r\n-MOVED\r\n-ASKING a\r\n-ask 3999 x\r\n",          4, 4 },
                { "-A\r\n-\r\n+MOVED 1 x\r\n",                                  3, 2 },
                { "!21\r\nSYNTAX invalid syntax\r\n",                           1, 1 },
                { "!10\r\nMOVED 1 xx\r\n+OK\r\n",                               2, 1 },
                { "*2\r\n-ERR in a transaction\r\n+OK\r\n",                     1, 0 },
                { "$7\r\n-ERR no\r\n+-ERR no\r\n",                              2, 0 },
                { ">2\r\n+invalidate\r\n-x\r\n-ERR no\r\n",                     1, 1 },
        };

        for (size_t i = 0; i < ELEMENTSOF(table); i++)
                for (size_t cut = 0; cut <= strlen(table[i].data); cut++) {
                        struct pipeline t = redis();
                        uint32_t responded;

                        t.pending = 10;
                        t.n_groups = 1;
                        t.groups[0].n = 10;
                        check(count_errors(&t, table[i].data, cut, &responded) == table[i].errors);
                        check(responded == table[i].responded);
                }
}

/* Errors in response to an excluded command, and on a connection without a request. */
static void test_errors_left_out(void) {
        static const char data[] = "+OK\r\n-ERR excluded\r\n-ERR no\r\n", refused[] = "-ERR max clients\r\n";

        for (size_t cut = 0; cut < sizeof(data); cut++) {
                struct pipeline t = redis();
                uint32_t responded;

                t.pending = 10;
                t.n_groups = 1;
                t.groups[0].n = 10;
                t.groups[0].excluded = t.excluding = 1;
                t.excluded[0] = 1 << 1;
                check(count_errors(&t, data, cut, &responded) == 1);
                check(responded == 3);
        }
        for (size_t cut = 0; cut < sizeof(refused); cut++) {
                struct pipeline t = redis();
                uint32_t responded;

                check(count_errors(&t, refused, cut, &responded) == 0);
        }
}

/* The beginning of a response that is not parsed, as all of it is sent at once. */
static void test_error_at_once(void) {
        static const struct {
                const char *data;
                bool error;
        } table[] = {
                { "-ERR no\r\n", true  }, { "-\r\n",          true  }, { "!3\r\nERR\r\n",     true  },
                { "+OK\r\n",     false }, { "$7\r\n-ERR no\r\n", false }, { "-MOVED 1 x\r\n",   false },
                { "-ASK 1 x\r\n", false }, { "-MOVED\r\n",     true  }, { "-ASKING\r\n",      true  },
                { ":-5\r\n",     false }, { "",               false },
        };

        for (size_t i = 0; i < ELEMENTSOF(table); i++) {
                uint8_t bytes[8] = {};
                uint64_t word = 0;

                memcpy(bytes, table[i].data, MIN(strlen(table[i].data), sizeof(bytes)));
                for (size_t k = 0; k < sizeof(bytes); k++)
                        word = word << 8 | bytes[k];
                check(!!resp_is_error(word) == table[i].error);
        }
}

static enum failure failure_at_once(const char *data, size_t size) {
        uint8_t bytes[13] = {};
        uint64_t word = 0, behind = 0;

        memcpy(bytes, data, MIN(size, sizeof(bytes)));
        for (size_t i = 0; i < sizeof(word); i++) {
                word = word << 8 | bytes[i];
                behind = behind << 8 | bytes[5 + i];
        }
        return response_get_failure(word, size >= sizeof(bytes) ? behind : 0);
}

/* The beginning of the response to a request of the unit, which is not parsed if that is the only one. */
static void test_failure_at_once(void) {
        static const struct {
                const char *data;
                enum failure failure;
        } table[] = {
                { "-ERR no\r\n",                          FAILURE_REPLY     },
                { "-ASK 1 x\r\n",                         FAILURE_NONE      },
                { "+HTTP/1.1 500 x\r\n",                  FAILURE_NONE      },
                { "$5\r\nERROR\r\n",                      FAILURE_NONE      },
                { "ERROR\r\n",                            FAILURE_REPLY     },
                { "ERROR unknown\r\n",                    FAILURE_REPLY     },
                { "CLIENT_ERROR bad data chunk\r\n",      FAILURE_REPLY     },
                { "SERVER_ERROR out of memory\r\n",       FAILURE_REPLY     },
                { "ERRORS\r\n",                           FAILURE_NONE      },
                { "VALUE k 0 5\r\nERROR\r\nEND\r\n",      FAILURE_NONE      },
                { "NOT_FOUND\r\n",                        FAILURE_NONE      },
                { "HTTP/1.1 500 Internal Server Error",   FAILURE_STATUS5XX },
                { "HTTP/1.0 503 ",                        FAILURE_STATUS5XX },
                { "HTTP/1.1 404 Not Found\r\n",           FAILURE_NONE      },
                { "HTTP/1.1 200 500\r\n",                 FAILURE_NONE      },
                { "HTTP/1.1 503",                         FAILURE_NONE      },
                { "",                                     FAILURE_NONE      },
        };

        for (size_t i = 0; i < ELEMENTSOF(table); i++)
                check(failure_at_once(table[i].data, strlen(table[i].data)) == table[i].failure);

        /* Statuses of memcached: success, "not found", "not stored" and authentication are no failures, nor
         * are responses to quiet requests */
        for (unsigned status = 0; status < 0x200; status++)
                for (unsigned opcode = 0; opcode < 2; opcode++) {
                        const char header[24] = { [0] = (char) 0x81, [1] = opcode == 0 ? 0x01 : 0x11,
                                                  [6] = (char) (status >> 8), [7] = (char) status };
                        bool fine = status <= 2 || status == 5 || status == 0x21;

                        check(failure_at_once(header, sizeof(header)) ==
                              (opcode == 0 && !fine ? FAILURE_REPLY : FAILURE_NONE));
                }
}

static size_t random_value(char *p, unsigned *seed, unsigned depth) {
        unsigned n = (unsigned) rand_r(seed) % 5;
        char *begin = p;

        switch (rand_r(seed) % (depth < 3 ? 6 : 4)) {
        case 0: return (size_t) sprintf(p, "+%u\r\n", n);
        case 1: return (size_t) sprintf(p, ":%u\r\n", n);
        case 2: return (size_t) sprintf(p, "$-1\r\n");
        case 3:
                n = (unsigned) rand_r(seed) % 200;
                p += sprintf(p, "$%u\r\n", n);
                for (unsigned i = 0; i < n; i++)
                        *p++ = "*$\r\n+-1a"[rand_r(seed) % 8];
                return (size_t) (p + sprintf(p, "\r\n") - begin);
        case 4:
                p += sprintf(p, "*%u\r\n", n);
                for (unsigned i = 0; i < n; i++)
                        p += random_value(p, seed, depth + 1);
                return (size_t) (p - begin);
        default:
                p += sprintf(p, "%%%u\r\n", n);
                for (unsigned i = 0; i < 2 * n; i++)
                        p += random_value(p, seed, depth + 1);
                return (size_t) (p - begin);
        }
}

static size_t random_command(char *p, unsigned *seed) {
        unsigned n = 1 + (unsigned) rand_r(seed) % 5;
        char *begin = p;

        check(p);
        if (rand_r(seed) % 10 == 0)
                return (size_t) sprintf(p, "GET some_key\r\n");

        p += sprintf(p, "*%u\r\n", n);
        for (unsigned i = 0; i < n; i++) {
                unsigned l = (unsigned) rand_r(seed) % 40;

                p += sprintf(p, "$%u\r\n", l);
                for (unsigned k = 0; k < l; k++)
                        *p++ = "*$\r\n12ab"[rand_r(seed) % 8];
                p += sprintf(p, "\r\n");
        }
        return (size_t) (p - begin);
}

/* Many pipelined requests and responses, in pieces of random size: each is counted once, in order, with its
 * time. */
static void test_streams(void) {
        static char requests[1 << 20], responses[1 << 22];

        for (unsigned seed = 1; seed <= 300; seed++) {
                unsigned s = seed, number = 1 + (unsigned) rand_r(&s) % 50;
                size_t q = 0, a = 0, qi = 0, ai = 0;
                struct parsed_chunk piece = {};
                struct pipeline t = redis();
                uint32_t responded = 0;
                uint64_t now = 1;

                for (unsigned i = 0; i < number; i++) {
                        q += random_command(requests + q, &s);
                        a += random_value(responses + a, &s, 0);
                }

                while (qi < q) {
                        size_t n = MIN(1 + (size_t) rand_r(&s) % 100, q - qi);

                        request(&t, &piece, requests + qi, n, now++);
                        pipeline_read(&t, now++);
                        check(!piece.lost);
                        qi += n;
                }
                check(t.pending == number);

                while (ai < a) {
                        size_t n = MIN(1 + (size_t) rand_r(&s) % 3000, a - ai);
                        bool lost;

                        ai += n;
                        responded += respond(&t, responses + ai - n, n, ai == a, &lost);
                        check(!lost);
                        check(t.pending + responded == number);
                }
                check(responded == number);
                check(t.pending == 0 && t.in.state == 0 && !(t.flags & PIPELINE_RESPONDING));
        }
}

/* Requests that look like the one before are taken at once: whatever they are, the result is that of a
 * parser that sees one byte at a time. */
static void test_alike(void) {
#define SET(key, value) "*3\r\n$3\r\nSET\r\n$4\r\n" key "\r\n$3\r\n" value "\r\n"
#define GET(key) "*2\r\n$3\r\nGET\r\n$16\r\n" key "\r\n"
#define CLIENT(what, how) "*3\r\n$6\r\nCLIENT\r\n$5\r\n" what "\r\n$3\r\n" how "\r\n"
        static const char *const table[] = {
                GET("key:000000000001") GET("key:000000000002") GET("key:000000000003"),
                GET("*2\r\n$3\r\nGET\r\n$1") GET("\r\n$3\r\nGET\r\n*2\r\n"),
                SET("key1", "abc") SET("key2", "\r\n$") SET("*3\r\n", "abc") SET("key4", "ab\n"),
                /* Another length, or name */
                SET("key1", "abc") "*3\r\n$3\r\nSET\r\n$4\r\nkey2\r\n$4\r\nabcd\r\n"
                        SET("key3", "abc"),
                SET("key1", "abc") "*3\r\n$3\r\nset\r\n$4\r\nkey2\r\n$3\r\nabc\r\n" SET("key3", "abc"),
                GET("key:000000000001") "*2\r\n$3\r\nDEL\r\n$16\r\nkey:000000000002\r\n",
                /* Longer than it says */
                GET("key:000000000001") "*2\r\n$3\r\nGET\r\n$16\r\nkey:0000000000022\r\n",
                SET("key1", "abc") "*3\r\n$3\r\nSET\r\n$4\r\nkey22\r\n$3\r\nab\r\n",
                SET("key1", "abc") "*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$4\r\nabcd\r\n" SET("key3", "abc"),
                SET("key1", "abc") "*3\r\n$3\r\nSET\r\n$4\r\nkey2\r\n$2\r\nabc\r\n" SET("key3", "abc"),
                /* Names with a meaning, and arguments */
                "*3\r\n$5\r\nBLPOP\r\n$1\r\nk\r\n$1\r\n0\r\n"
                        "*3\r\n$5\r\nBLPOP\r\n$1\r\nk\r\n$1\r\n0\r\n",
                CLIENT("PAUSE", "100") CLIENT("REPLY", "OFF") CLIENT("PAUSE", "100"),
                CLIENT("REPLY", "OFF") CLIENT("REPLY", "OFF") GET("key:000000000001")
                        GET("key:000000000002"),
                "*3\r\n$6\r\nCLIENT\r\n$5\r\nREPLY\r\n$4\r\nSKIP\r\n" GET("key:000000000001")
                        GET("key:000000000002"),
                "*2\r\n$8\r\nREPLCONF\r\n$3\r\nABC\r\n*2\r\n$8\r\nREPLCONF\r\n$3\r\nACK\r\n",
                "*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\nc\r\n*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\nd\r\n",
                "*3\r\n$5\r\nRPUSH\r\n$1\r\nk\r\n$1\r\n1\r\n*3\r\n$5\r\nRPUSH\r\n$1\r\nk\r\n$1\r\n2\r\n"
                        "*3\r\n$5\r\nBLPOP\r\n$1\r\nk\r\n$1\r\n0\r\n",
                "*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nPING\r\n",
                "*4\r\n$4\r\nMSET\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n"
                        "*4\r\n$4\r\nMSET\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n",
        };

        for (size_t i = 0; i < ELEMENTSOF(table); i++) {
                struct parsed_chunk all = {}, single = {};
                struct pipeline t = redis(), o = redis();
                size_t size = strlen(table[i]);

                request(&t, &all, table[i], size, 1);
                for (size_t k = 0; k < size && !single.lost; k++)
                        request(&o, &single, table[i] + k, 1, 1);
                check(all.lost == single.lost);
                check(all.lost || t.pending == o.pending);
                check(all.lost || (t.in.state == o.in.state && t.flags == o.flags));
        }
        check(pending(SET("key1", "abc") SET("key2", "abc") SET("key3", "abc")) == 3);
        check(pending(GET("key:000000000001") GET("key:000000000002") GET("key:000000000003")) == 3);

        /* Responses */
        for (unsigned n = 1; n < 60; n++) {
                char data[1024] = {};
                struct pipeline t = redis();
                bool lost;

                t.pending = 100;
                t.n_groups = 1;
                t.groups[0].n = 100;
                for (unsigned k = 0; k < n; k++)
                        strcat(data, "$3\r\nabc\r\n");
                check(respond(&t, data, strlen(data), true, &lost) == n && !lost);
                strcat(data, "+OK\r\n+OK\r\n$-1\r\n$-1\r\n$3\r\n\r\n$\r\n$3\r\n+OK\r\n");
                check(respond(&t, data, strlen(data), true, &lost) == MIN(n + 6, 100 - n) && !lost);
        }
}

/* Invalidations of keys (CLIENT TRACKING). */
static void test_push(void) {
        static const struct {
                const char *says;
                int push;
        } table[] = {
                { ">2\r\n$10\r\ninvalidate\r\n", 1 },
                { ">3\r\n$7\r\nmessage", 1 },
                { "$10\r\ninvalidate", 0 },
                { ">>\n\r12345678", 0 },
                { "*2\r\n$10\r\n", 0 },
        };

        for (size_t i = 0; i < ELEMENTSOF(table); i++) {
                uint64_t bytes = 0;

                memcpy(&bytes, table[i].says, sizeof(bytes));
                check(pipeline_is_push(bytes, PROTOCOL_REDIS) == table[i].push);
                check(!pipeline_is_push(bytes, PROTOCOL_HTTP1));
        }
}


/* Batches have the times of their requests, and the oldest one is always known. */
static void test_groups(void) {
        struct parsed_chunk piece = {};
        struct pipeline t = redis();
        struct pipeline_batch g;

        for (uint64_t at = 10; at < 10 + 5; at++) {
                for (unsigned i = 0; i < at; i++)
                        request(&t, &piece, "PING\r\n", 6, at);
                pipeline_read(&t, at + 100);
        }
        check(t.n_groups == 5 && t.pending == 10 + 11 + 12 + 13 + 14);
        for (uint64_t at = 10; at < 10 + 5; at++) {
                check(pipeline_oldest(&t) == at);
                check(pipeline_complete(&t, 3, &g) == 3 && g.first_at == at && g.read_at == at + 100);
                check(pipeline_complete(&t, 1000, &g) == at - 3 && g.n == at - 3 && g.last_at == at);
        }
        check(pipeline_complete(&t, 1, &g) == 0 && t.pending == 0);

        /* More than the limit: the count is still right */
        for (uint64_t at = 1; at <= 3 * PIPELINE_BATCHES; at++) {
                request(&t, &piece, "PING\r\n", 6, at);
                pipeline_read(&t, at);
        }
        check(t.pending == 3 * PIPELINE_BATCHES && t.n_groups == PIPELINE_BATCHES);
        for (unsigned n = 0; n < 3 * PIPELINE_BATCHES; n += g.n)
                check(pipeline_complete(&t, 1000, &g) > 0);
        check(t.pending == 0);
}

/* The gauge: one for each request, and zero at the end, in any order of events. */
static void test_in_flight(void) {
        struct exchange_effect e = {};
        struct parsed_chunk piece = {};
        struct pipeline t = redis();
        struct exchange x = {};
        __u64 first_at, last_at;

        exchange_arrive(&x, 5, &(struct exchange_segment) { 0, 12, 0, 65536 }, &e);
        check(e.in_flight == 1);
        request(&t, &piece, "PING\r\nPING\r\n", 12, 5);
        check(e.in_flight + pipeline_extra(&t) == 2);
        e.in_flight = 2;
        exchange_take(&x, 12, &first_at, &last_at);
        pipeline_read(&t, 6);
        pipeline_commit(&t, &x, 6, 1, &e);
        check(e.in_flight == 2 && x.open_at == 5);
        check(respond(&t, "+PO", 3, false, NULL) == 1);
        pipeline_commit(&t, &x, 7, 0, &e);
        check(e.in_flight == 2);
        check(respond(&t, "NG\r\n", 4, false, NULL) == 0);
        pipeline_commit(&t, &x, 8, 0, &e);
        check(e.in_flight == 1);
        check(respond(&t, "+PONG\r\n", 7, true, NULL) == 1);
        pipeline_commit(&t, &x, 9, 1, &e);
        check(e.in_flight == 0 && x.open_at == 0);

        /* Abandoned in between: as if it had never been parsed */
        exchange_arrive(&x, 15, &(struct exchange_segment) { 12, 30, 12, 65536 }, &e);
        request(&t, &piece, "PING\r\nPING\r\nPING\r\n", 18, 15);
        e.in_flight += pipeline_extra(&t);
        check(e.in_flight == 3);
        e.overlap = 0;
        pipeline_abandon(&t, &x, &e);
        check(e.in_flight == 1 && e.overlap == 0 && x.state == EXCHANGE_PENDING && x.first_at == 15);
}

/* A response that cannot be parsed: outstanding requests are dropped once nothing is unsent, and parsing
 * resumes with the next request. */
static void test_lost(void) {
        struct parsed_chunk piece = {};
        struct pipeline t = redis();
        bool lost;

        request(&t, &piece, "PING\r\nPING\r\nPING\r\n", 18, 1);
        check(respond(&t, "+PONG\r\nwhat?\r\n", 14, false, &lost) == 1 && lost);
        check(respond(&t, "nothing\r\n", 9, true, &lost) == 0 && lost && t.pending == 2);
        pipeline_leave_out(&t);
        check(t.pending == 0);
        request(&t, &piece, "PING\r\nPING\r\n", 12, 1);
        check(respond(&t, "+PONG\r\n+PONG\r\n", 14, true, &lost) == 2 && !lost);

        /* Responses without a request */
        check(respond(&t, "+PONG\r\n*1\r\n", 11, true, &lost) == 0 && !lost);
        check(!(t.flags & PIPELINE_RESPONDING));
}

static void exclude(const char *const *words, size_t n) {
        pipeline_excludes = (ExcludeList) {};
        for (size_t i = 0; i < n; i++)
                check(exclude_list_add(&pipeline_excludes, words[i]) == 0);
}

/* Excluded commands: by their whole name, in upper or lower case, split at every position. */
static void test_excluded_commands(void) {
        static const char *const words[] = { "redis:ping", "redis:BRPOP", "redis:ZREMRANGEBYRANK",
                                             "redis:ft.search" };
        static const struct {
                const char *data;
                uint64_t excluded;
                uint32_t n;
        } table[] = {
                { "*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nping\r\n*1\r\n$5\r\nPINGS\r\n*1\r\n$3\r\nPIN\r\n", 3, 4 },
                { "*2\r\n$3\r\nGET\r\n$4\r\nPING\r\n*1\r\n$4\r\nPiNg\r\n", 2, 2 },
                { "PING\r\nping x y\r\nGET PING\r\n", 3, 3 },
                { "*3\r\n$5\r\nbrpop\r\n$1\r\nk\r\n$1\r\n0\r\n*3\r\n$5\r\nBLPOP\r\n$1\r\nk\r\n$1\r\n0\r\n",
                  1, 2 },
                /* The first eight letters are equal */
                { "*1\r\n$15\r\nZREMRANGEBYRANK\r\n*1\r\n$14\r\nZREMRANGEBYLEX\r\n*1\r\n$16\r\n"
                  "ZREMRANGEBYSCORE\r\n", 1, 3 },
                { "*1\r\n$9\r\nft.search\r\n*1\r\n$9\r\nFTNSEARCH\r\n*1\r\n$0\r\n\r\n", 1, 3 },
                { "*2\r\n$5\r\nXREAD\r\n$5\r\nBRPOP\r\n*1\r\n$4\r\nPING\r\n", 2, 2 },
        };

        exclude(words, ELEMENTSOF(words));
        for (size_t i = 0; i < ELEMENTSOF(table); i++)
                for (size_t cut = 0; cut <= strlen(table[i].data); cut++) {
                        struct arrival_times times = { .came_at = 1, .how = PROTOCOL_NAMES };
                        struct parsed_chunk piece = {};
                        struct pipeline t = redis();

                        pipeline_feed_requests(&t, &piece, table[i].data, cut, &times, 0);
                        pipeline_feed_requests(&t, &piece, table[i].data + cut, strlen(table[i].data) - cut,
                                                &times, 0);
                        check(!piece.lost && t.pending == table[i].n);
                        check(t.excluded[0] == table[i].excluded && t.excluded[1] == 0);
                }
}

/* Many requests at a time, some of them excluded: each response is matched, and the gauge has the others
 * only. */
static void test_excluded_counts(void) {
        static const char *const words[] = { "redis:PING" };
        static const char ping[] = "*1\r\n$4\r\nPING\r\n", get[] = "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
        unsigned seed = 1;

        exclude(words, 1);
        for (unsigned round = 0; round < 2000; round++) {
                unsigned n = 1 + (unsigned) rand_r(&seed) % PIPELINE_EXCLUDED_MAX, pings = 0, excluded = 0,
                        responded = 0, last = 0;
                bool is_ping[PIPELINE_EXCLUDED_MAX];
                struct pipeline t = redis();
                struct pipeline_batch g = {};

                for (unsigned i = 0; i < n; i++) {
                        struct arrival_times times = { .came_at = 1 + i / 10, .how = PROTOCOL_NAMES };
                        struct parsed_chunk piece = {};

                        is_ping[i] = rand_r(&seed) % 3 == 0;
                        pings += is_ping[i];
                        if (is_ping[i])
                                pipeline_feed_requests(&t, &piece, ping, strlen(ping), &times, 0);
                        else
                                pipeline_feed_requests(&t, &piece, get, strlen(get), &times, 0);
                        pipeline_read(&t, 100);
                        check(!piece.lost);
                }
                check(t.pending == n && pipeline_outstanding(&t) == n - pings);

                while (t.pending > 0) {
                        uint32_t taken = pipeline_complete(&t, 1 + (unsigned) rand_r(&seed) % n, &g);

                        for (last = responded; responded < last + taken; responded++)
                                excluded += is_ping[responded];
                        check(g.n == taken && g.excluded <= taken);
                        pings -= g.excluded;
                        excluded -= g.excluded;
                        check(excluded == 0 && pipeline_outstanding(&t) == t.pending - pings);
                        check(!!(t.flags & PIPELINE_EXCLUDED) == is_ping[responded - 1]);
                }
                check(pings == 0 && responded == n && t.n_groups == 0);
        }

        /* More than can be distinguished, which is reported */
        {
                struct arrival_times times = { .came_at = 1, .how = PROTOCOL_NAMES };
                struct parsed_chunk piece = {};
                struct pipeline t = redis();

                for (unsigned i = 0; i < PIPELINE_EXCLUDED_MAX + 10; i++)
                        pipeline_feed_requests(&t, &piece, get, strlen(get), &times, 0);
                check(!piece.lost);
                pipeline_feed_requests(&t, &piece, ping, strlen(ping), &times, 0);
                check(piece.lost);
        }
}

/* In flight until its name is known, but not later; the next one is. */
static void test_excluded_in_flight(void) {
        static const char *const words[] = { "redis:BRPOP" };
        static const char brpop[] = "*3\r\n$5\r\nBRPOP\r\n$1\r\nk\r\n$1\r\n0\r\n", get[] =
                "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
        struct arrival_times times = { .came_at = 5, .how = PROTOCOL_NAMES };
        struct exchange_effect e = {};
        struct parsed_chunk piece = {};
        struct pipeline t = redis();
        struct exchange x = {};
        __u64 first_at, last_at;

        exclude(words, 1);
        exchange_arrive(&x, 5, &(struct exchange_segment) { 0, strlen(brpop), 0, 65536 }, &e);
        check(e.in_flight == 1);
        pipeline_feed_requests(&t, &piece, brpop, strlen(brpop) - 3, &times, 0);
        pipeline_commit(&t, &x, 6, 1, &e);
        exchange_take(&x, strlen(brpop), &first_at, &last_at);
        pipeline_feed_requests(&t, &piece, brpop + strlen(brpop) - 3, 3, &times, 0);
        pipeline_read(&t, 6);
        pipeline_commit(&t, &x, 6, 1, &e);
        check(t.pending == 1 && e.in_flight == 0 && x.open_at == 0 && pipeline_oldest(&t) == 0);

        times.came_at = 7;
        pipeline_feed_requests(&t, &piece, get, strlen(get), &times, 0);
        pipeline_commit(&t, &x, 8, 1, &e);
        check(t.pending == 2 && e.in_flight == 1 && x.open_at == 7);
        check(respond(&t, "*2\r\n$1\r\nk\r\n", 11, true, NULL) == 1);
        pipeline_commit(&t, &x, 9, 0, &e);
        check(e.in_flight == 1 && x.open_at == 7);
        check(respond(&t, "$1\r\nv\r\n$-1\r\n", 12, true, NULL) == 1);
        pipeline_commit(&t, &x, 9, 1, &e);
        check(e.in_flight == 0 && t.pending == 0);

        /* An excluded request is no error when its connection is closed */
        pipeline_feed_requests(&t, &piece, brpop, strlen(brpop), &times, 0);
        pipeline_commit(&t, &x, 10, 1, &e);
        e.unanswered = 0;
        exchange_end(&x, 1, pipeline_outstanding(&t), 0, &e);
        check(e.unanswered == 0 && e.in_flight == 0);
}

int main(void) {
        test_detect();
        test_requests();
        test_meanings();
        test_replica();
        test_quiet();
        test_responses();
        test_errors();
        test_errors_left_out();
        test_error_at_once();
        test_failure_at_once();
        test_streams();
        test_alike();
        test_push();
        test_groups();
        test_in_flight();
        test_lost();
        test_excluded_commands();
        test_excluded_counts();
        test_excluded_in_flight();
        return EXIT_SUCCESS;
}
