/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The state machine of a connection (bpf/protocols/exchange.h), event by event. */

#include "util-exchange.h"

/* A connection on which the server sends events, to which the client reacts: the next event is no response
 * to that. One that is not set off by something else is. */
static void test_push(void) {
        uint64_t now = 2000;
        struct exchange x = exchange_new();
        uint32_t in = 10, out = 5;
        Totals t = {};

        arrive(&x, &t, 1000, 0, in, 0);
        reads(&x, &t, 1001, in);
        check(!exchange_may_push(&x, 0));
        depart(&x, &t, now, 0, out, out);
        now += EXCHANGE_SILENCE_NSEC;
        depart(&x, &t, now, out, out + 5, out + 5);
        out += 5;
        check(t.begun == 1 && t.in_flight == 0);

        for (unsigned i = 0; i < 100; i++, in += 10, out += 5) {
                struct exchange_effect e = {};

                arrive(&x, &t, now + 100, in, in + 10, in);
                reads(&x, &t, now + 200, in + 10);
                check(exchange_may_push(&x, 0));
                now += i % 2 ? 300 : 2 * EXCHANGE_SILENCE_NSEC;
                exchange_push(&x, exchange_leave(&x, OUT + out + 5, OUT + out), &e);
                account(&t, &e);
                check(e.bytes == 5 && t.begun == 1 && t.grown == 0 && t.in_flight == 0);
        }

        /* The next one has come before that */
        arrive(&x, &t, now + 1, in, in + 10, in);
        reads(&x, &t, now + 2, in + 10);
        arrive(&x, &t, now + 3, in + 10, in + 20, in + 10);
        for (unsigned i = 0; i < 2; i++) {
                struct exchange_effect e = {};

                exchange_push(&x, exchange_leave(&x, OUT + out + 5, OUT + out), &e);
                account(&t, &e);
                out += 5;
                check(t.in_flight == 1 && x.open_at == now + 3);
        }
        reads(&x, &t, now + 4, in + 20);
        depart(&x, &t, now + 5, out, out + 5, out + 5);
        check(t.begun == 2 && t.in_flight == 0 && t.overlaps == 0);

        /* Right behind a response */
        check(exchange_may_push(&x, 0));
        for (unsigned i = 0; i < 2; i++) {
                struct exchange_effect e = {};

                exchange_push(&x, exchange_leave(&x, OUT + out + 10, OUT + out), &e);
                account(&t, &e);
        }
        check(t.begun == 2 && t.grown == 0 && t.in_flight == 0);
}

/* A client has waited by intent for the first data. What sets off the next data shows whether the server
 * sends events. */
static void test_awaited(void) {
        for (int reacts = 0; reacts < 2; reacts++) {
                struct exchange_effect e = {};
                struct exchange x = exchange_new();
                Totals t = {};

                arrive(&x, &t, 1000, 0, 10, 0);
                reads(&x, &t, 1001, 10);
                check(!exchange_may_push(&x, 0) && exchange_may_push(&x, 1) && !exchange_is_reaction(&x));
                check(exchange_is_pushed(&x, 1, 0) == EXCHANGE_PUSH_NONE);
                check(exchange_is_pushed(&x, 1, 1) == EXCHANGE_PUSH_FIRST);
                exchange_push(&x, exchange_leave(&x, OUT + 5, OUT), &e);
                account(&t, &e);
                check(t.begun == 0 && t.in_flight == 0);

                arrive(&x, &t, 2000, 10, 20, 10);
                reads(&x, &t, 2001, 20);
                check(exchange_may_push(&x, 0) && exchange_is_reaction(&x));
                check(exchange_is_pushed(&x, reacts, 0) ==
                      (reacts ? EXCHANGE_PUSH_EVENT : EXCHANGE_PUSH_NONE));
                check(exchange_is_reaction(&x) == reacts);

                /* It stays so, also after a response of its own */
                check(exchange_may_push(&x, 0) == reacts);
                exchange_is_pushed(&x, 0, 0);
                check(exchange_may_push(&x, 0) == reacts);
        }
}

static void test_keep_alive(void) {
        struct exchange x = exchange_new();
        Totals t = {};

        for (uint32_t i = 0; i < 1000; i++) {
                uint64_t now = 1000 * (i + 1);

                arrive(&x, &t, now, 100 * i, 100 * (i + 1), 100 * i);
                check(t.in_flight == 1 && x.open_at == now);
                reads(&x, &t, now + 5, 100 * (i + 1));
                depart(&x, &t, now + 20, 10 * i, 10 * (i + 1), 10 * (i + 1));
                check(t.in_flight == 0);
                check(x.first_at == now && x.last_at == now && x.read_at == now + 5 &&
                      x.first_out_at == now + 20);
        }
        check(t.begun == 1000 && t.grown == 0 && t.overlaps == 0);
        check(t.bytes_in == 100000 && t.bytes_out == 10000);
}

/* A request and a response of many segments, read in pieces. */
static void test_segments(void) {
        struct exchange x = exchange_new();
        Totals t = {};

        for (uint32_t i = 0; i < 50; i++) {
                arrive(&x, &t, 100 + i, 1000 * i, 1000 * (i + 1), 1000 * i);
                if (i % 3 == 0)
                        reads(&x, &t, 100 + i, 1000 * (i + 1));
        }
        reads(&x, &t, 200, 50000);
        check(x.first_at == 100 && x.last_at == 149 && x.read_at == 200);

        for (uint32_t i = 0; i < 50; i++) {
                depart(&x, &t, 300 + i, 1000 * i, 1000 * (i + 1), 50000);
                check(t.in_flight == (i < 49));
        }
        check(t.begun == 1 && t.grown == 49 && t.overlaps == 0);
        check(x.first_out_at == 300 && x.last_out_at == 349);
}

/* Retransmissions in both directions are not counted twice. */
static void test_retransmissions(void) {
        struct exchange x = exchange_new();
        Totals t = {};

        arrive(&x, &t, 10, 0, 100, 0);
        arrive(&x, &t, 11, 0, 100, 100);
        reads(&x, &t, 20, 100);
        arrive(&x, &t, 21, 0, 100, 100);
        depart(&x, &t, 30, 0, 50, 50);
        depart(&x, &t, 31, 50, 50, 50);
        arrive(&x, &t, 32, 0, 100, 100);        /* the acknowledgement was lost */
        arrive(&x, &t, 33, 99, 100, 100);       /* keep-alive probe with a byte of old data */
        depart(&x, &t, 34, 0, 50, 50);
        check(t.begun == 1 && t.grown == 0 && t.in_flight == 0 && t.overlaps == 0);
        check(t.bytes_in == 100 && t.bytes_out == 50);
}

/* The first of two segments is lost and arrives late: the request is complete only then. */
static void test_hole(void) {
        struct exchange x = exchange_new();
        Totals t = {};

        arrive(&x, &t, 5, 0, 10, 0);
        reads(&x, &t, 6, 10);
        depart(&x, &t, 7, 0, 1, 1);

        arrive(&x, &t, 10, 110, 210, 10);
        arrive(&x, &t, 200, 10, 110, 10);
        reads(&x, &t, 210, 210);
        depart(&x, &t, 220, 1, 2, 2);
        check(x.first_at == 10 && x.last_at == 200 && x.read_at == 210);
        check(t.begun == 2 && t.overlaps == 0 && t.bytes_in == 210);
}

/* Bytes that are peeked at, or not read, are no request; bytes beyond the window are not of the
 * connection. */
static void test_unread(void) {
        struct exchange x = exchange_new();
        Totals t = {};

        arrive(&x, &t, 10, 0, 100, 0);
        reads(&x, &t, 11, 0);
        depart(&x, &t, 12, 0, 10, 10);          /* sends a greeting without having read */
        check(t.begun == 0 && t.in_flight == 1);

        arrive(&x, &t, 13, 100 + 4 * WINDOW, 200 + 4 * WINDOW, 100);
        check(t.bytes_in == 100);

        reads(&x, &t, 14, 100);
        depart(&x, &t, 15, 10, 20, 20);
        check(t.begun == 1 && t.in_flight == 0 && x.first_at == 10);
}

static void test_server_speaks_first(void) {
        struct exchange x = exchange_new();
        Totals t = {};

        depart(&x, &t, 1, 0, 100, 100);
        check(t.begun == 0 && t.in_flight == 0);
        arrive(&x, &t, 2, 0, 10, 0);
        reads(&x, &t, 3, 10);
        depart(&x, &t, 4, 100, 110, 110);
        check(t.begun == 1 && t.in_flight == 0);
}

/* If the next request arrives while a response is being sent, the connection is unparsed from then on. */
static void test_pipelining(void) {
        struct exchange x = exchange_new();
        Totals t = {};

        arrive(&x, &t, 10, 0, 100, 0);
        reads(&x, &t, 11, 100);
        arrive(&x, &t, 12, 100, 200, 100);
        depart(&x, &t, 20, 0, 10, 10);
        check(t.overlaps == 0 && t.in_flight == 1 && x.open_at == 12);
        reads(&x, &t, 21, 200);
        depart(&x, &t, 30, 10, 20, 20);
        check(t.begun == 1 && t.overlaps == 1 && t.unparsed == 1 && t.in_flight == 0);
        check(x.first_at == 12 && x.read_at == 21);
        for (uint32_t i = 1; i < 10; i++) {
                arrive(&x, &t, 100 * i, 100 * i + 100, 100 * i + 200, 100 * i + 100);
                reads(&x, &t, 100 * i + 1, 100 * i + 200);
                depart(&x, &t, 100 * i + 2, 10 * i + 10, 10 * i + 20, 10 * i + 20);
                check(t.begun == 1 && t.overlaps == i + 1 && t.unparsed == 1 && t.in_flight == 0);
        }
}

/* One of a hundred requests may: the connection is still counted. */
static void test_seldom_pipelined(void) {
        struct exchange x = exchange_new();
        uint32_t in = 0, out = 0;
        Totals t = {};

        for (uint32_t i = 1; i <= 2000; i++) {
                uint64_t now = 1000 * i;

                arrive(&x, &t, now, in, in + 10, in);
                reads(&x, &t, now + 1, in + 10);
                in += 10;
                if (i % 200 == 0) {
                        arrive(&x, &t, now + 2, in, in + 10, in);
                        in += 10;
                }
                depart(&x, &t, now + 3, out, out + 5, out + 5);
                out += 5;
                if (i % 200 == 0) {
                        reads(&x, &t, now + 4, in);
                        depart(&x, &t, now + 5, out, out + 5, out + 5);
                        out += 5;
                }
        }
        check(t.begun == 2010 && t.overlaps == 10 && t.unparsed == 0 && t.in_flight == 0);
}

static void test_ends(void) {
        /* A response, and a close by either side: nothing is open */
        {
                struct exchange x = exchange_new();
                Totals t = {};

                arrive(&x, &t, 1, 0, 10, 0);
                reads(&x, &t, 2, 10);
                depart(&x, &t, 3, 0, 10, 10);
                end(&x, &t, false, 0);
                end(&x, &t, true, 0);
                check(t.unanswered == 0 && t.in_flight == 0 && t.begun == 1);
        }

        /* The unit closes the connection after it has read */
        {
                struct exchange x = exchange_new();
                Totals t = {};

                arrive(&x, &t, 1, 0, 10, 0);
                reads(&x, &t, 2, 10);
                end(&x, &t, false, 0);
                check(t.unanswered == 1 && t.in_flight == 0);
                end(&x, &t, true, 0);
                check(t.unanswered == 1);
        }

        /* It has written the response, and closed the connection before any of it was sent */
        {
                struct exchange x = exchange_new();
                Totals t = {};

                arrive(&x, &t, 1, 0, 10, 0);
                reads(&x, &t, 2, 10);
                end(&x, &t, false, 100);
                check(t.unanswered == 0 && t.in_flight == 1);
                depart(&x, &t, 3, 0, 100, 100);
                end(&x, &t, true, 0);
                check(t.unanswered == 0 && t.in_flight == 0 && t.begun == 1);
        }

        /* A reset while the request is unread */
        {
                struct exchange x = exchange_new();
                Totals t = {};

                arrive(&x, &t, 1, 0, 10, 0);
                end(&x, &t, true, 0);
                check(t.unanswered == 1 && t.in_flight == 0 && t.begun == 0);
        }
}

/* A slow reader: the response is in flight while written bytes are unsent, and again when more are
 * written. */
static void test_slow_response(void) {
        struct exchange x = exchange_new();
        Totals t = {};

        arrive(&x, &t, 1, 0, 10, 0);
        reads(&x, &t, 2, 10);
        depart(&x, &t, 3, 0, 10, 1000);
        check(t.in_flight == 1);
        depart(&x, &t, 4, 10, 1000, 1000);
        check(t.in_flight == 0);
        depart(&x, &t, 9, 1000, 1010, 2000);
        check(t.in_flight == 1 && x.open_at == 1);
        depart(&x, &t, 10, 1010, 2000, 2000);
        check(t.in_flight == 0 && t.begun == 1 && t.grown == 3 && x.last_out_at == 10);
}

/* With any order of events the gauge is 0 or 1, and 0 at the end, and no request is counted twice. */
static void test_random(void) {
        unsigned seed = 1;

        for (unsigned round = 0; round < 20000; round++) {
                uint32_t in = 0, copied = 0, out = 0, written = 0;
                struct exchange x = exchange_new();
                unsigned changes = 0;
                Totals t = {};

                for (unsigned i = 0; i < 40; i++)
                        switch (rand_r(&seed) % 5) {
                        case 0:
                                arrive(&x, &t, i + 1, in, in + 1 + rand_r(&seed) % 3000, copied);
                                in = x.in_end - IN;
                                break;
                        case 1:
                                if (in > 0)
                                        arrive(&x, &t, i + 1, rand_r(&seed) % in, in, copied);
                                break;
                        case 2:
                                if (copied < in) {
                                        copied += 1 + rand_r(&seed) % (in - copied);
                                        reads(&x, &t, i + 1, copied);
                                        changes++;
                                }
                                break;
                        case 3:
                                written += 1 + rand_r(&seed) % 3000;
                                break;
                        case 4:
                                if (out < written) {
                                        uint32_t from = out;

                                        out += 1 + rand_r(&seed) % (written - out);
                                        depart(&x, &t, i + 1, from, out, written);
                                }
                                break;
                        }

                check(t.begun <= changes);
                check(t.bytes_in == in && t.bytes_out == out);
                end(&x, &t, true, 0);
                check(t.in_flight == 0);
        }
}

/* Connections older than the attach: the first events have the positions, and the count of requests is
 * exact. */
static void test_unknown(void) {
        struct exchange x = {};
        Totals t = {};

        depart(&x, &t, 1, 500, 600, 600);
        arrive(&x, &t, 2, 700, 800, 700);
        reads(&x, &t, 3, 800);
        depart(&x, &t, 4, 600, 610, 610);
        check(t.begun == 1 && t.bytes_in == 100 && t.bytes_out == 110 && t.in_flight == 0 &&
              x.first_at == 2);
}

/* Events on a connection that once had a response: a response may pause, but not for that long. */
static void test_silence(void) {
        struct exchange x = exchange_new();
        Totals t = {};

        arrive(&x, &t, 10, 0, 64, 0);
        reads(&x, &t, 20, 64);
        depart(&x, &t, 30, 0, 100, 100);
        check(t.begun == 1 && t.in_flight == 0);
        depart(&x, &t, 30 + EXCHANGE_SILENCE_NSEC - 1, 100, 200, 200);
        check(t.grown == 1);

        for (unsigned i = 0; i < 5; i++)
                depart(&x, &t, (i + 2) * 2 * EXCHANGE_SILENCE_NSEC, 200 + i * 100, 300 + i * 100,
                       300 + i * 100);
        /* A response whose bytes are unsent for a while does not begin another one */
        depart(&x, &t, 20 * EXCHANGE_SILENCE_NSEC, 700, 800, 900);
        depart(&x, &t, 20 * EXCHANGE_SILENCE_NSEC + 1, 800, 900, 900);
        check(t.begun == 1 && t.grown == 1 && t.in_flight == 0 && t.overlaps == 0 && t.bytes_out == 900);

        /* The next request counts. A response that the client reads slowly is one, however long it takes */
        arrive(&x, &t, 21 * EXCHANGE_SILENCE_NSEC, 64, 128, 64);
        reads(&x, &t, 21 * EXCHANGE_SILENCE_NSEC, 128);
        depart(&x, &t, 21 * EXCHANGE_SILENCE_NSEC, 900, 1000, 2000);
        check(t.begun == 2 && t.in_flight == 1);
        depart(&x, &t, 25 * EXCHANGE_SILENCE_NSEC, 1000, 2000, 2000);
        check(t.grown == 2 && t.in_flight == 0);
}

/* Messages without a response, of PostgreSQL's replication and MySQL's prepared statements, are no requests,
 * unless a request is open or arrives with them. */
static void test_remarks(void) {
        static const uint8_t standby[] = { 'd', 0, 0, 0, 38, 'r', 1, 2 },
                hot[] = { 'd', 0, 0, 0, 29, 'h', 3, 4 },
                closes[] = { 5, 0, 0, 0, 0x19, 1, 0, 0 }, cancels[] = { 0, 0, 0, 16, 4, 0xd2, 0x16, 0x2e };
        struct exchange x = {};
        struct exchange_effect e = {};
        uint64_t bytes = 0;
        uint32_t at = 0;
        Totals t = {};

        memcpy(&bytes, standby, sizeof(bytes));
        check(exchange_is_remark(bytes, 39) && !exchange_is_remark(bytes, 30) &&
              !exchange_is_remark(bytes, 38));
        memcpy(&bytes, hot, sizeof(bytes));
        check(exchange_is_remark(bytes, 30) && !exchange_is_remark(bytes, 39) && !exchange_is_remark(0, 39));
        memcpy(&bytes, closes, sizeof(bytes));
        check(exchange_is_remark(bytes, 9) && !exchange_is_remark(bytes, 10) &&
              !exchange_is_remark(bytes + (1ULL << 32), 9));
        memcpy(&bytes, cancels, sizeof(bytes));
        check(exchange_is_farewell(bytes, 16) && !exchange_is_last_farewell(bytes, 16) &&
              !exchange_is_remark(bytes, 16));
        check(!exchange_is_farewell(bytes, 17) && !exchange_is_farewell(bytes + 1, 16));
        for (uint32_t n = 0; n < 64; n++)
                check(exchange_look(n) == (n <= 8 ? n : n == 9 || n == 12 || n == 16 || n == 28 || n == 30 ||
                                           n == 39 ? 8 : 0));

        exchange_begin(&x, IN, IN, OUT);
        for (unsigned i = 0; i < 10; i++, at += 39) {
                e = (struct exchange_effect) {};
                check(exchange_is_idle(&x));
                exchange_arrive_unsolicited(&x, 10 + i, &(struct exchange_segment) { IN + at, IN + at + 39,
                                                                                 IN + at, IN + at + WINDOW },
                                        &e);
                check(e.in_flight == 0 && e.bytes == 39);
                reads(&x, &t, 10 + i, at + 39);
                depart(&x, &t, 10 + i, i * 100, i * 100 + 100, i * 100 + 100);
                check(t.begun == 0 && t.in_flight == 0);
        }

        /* A request behind it, read at the same time */
        e = (struct exchange_effect) {};
        exchange_arrive_unsolicited(&x, 50, &(struct exchange_segment) { IN + at, IN + at + 39, IN + at,
                                                                       IN + at + WINDOW }, &e);
        arrive(&x, &t, 60, at + 39, at + 64, at + 39);
        check(t.in_flight == 1 && !exchange_is_idle(&x));
        reads(&x, &t, 70, at + 64);
        check(x.state == EXCHANGE_PENDING && x.first_at == 60 && !exchange_is_idle(&x));
        depart(&x, &t, 80, 1000, 1100, 1100);
        check(t.begun == 1 && t.in_flight == 0 && t.overlaps == 0 && exchange_is_idle(&x));

        /* Behind its response, a part of which was unsent: that part goes on, and is not of the request */
        depart(&x, &t, 90, 1100, 1200, 1300);
        check(t.grown == 1 && t.in_flight == 1);
        /* The message before the request, retransmitted, has no effect */
        e = (struct exchange_effect) {};
        exchange_arrive_unsolicited(&x, 95, &(struct exchange_segment) { IN + at, IN + at + 39, IN + at + 64,
                                                                       IN + at + WINDOW }, &e);
        check(e.bytes == 0 && e.in_flight == 0 && x.state == EXCHANGE_RESPONDING);
        at += 64;
        e = (struct exchange_effect) {};
        exchange_arrive_unsolicited(&x, 100, &(struct exchange_segment) { IN + at, IN + at + 39, IN + at,
                                                                       IN + at + WINDOW }, &e);
        check(e.in_flight == -1);
        t.in_flight += e.in_flight;
        depart(&x, &t, 110, 1200, 1300, 1300);
        check(t.grown == 1 && t.in_flight == 0 && t.begun == 1);
}

/* Lines of a log: after ten seconds no client waits for a response, and data sent later is none, unless it
 * follows at once. */
static void test_one_way(void) {
        const uint64_t second = UINT64_C(1000000000);
        struct exchange x = exchange_new();
        uint64_t now = second;
        Totals t = {};

        x.first_out_at = 1; /* it has sent data before */
        for (unsigned i = 0; i < 20; i++, now += 2 * second) {
                arrive(&x, &t, now, 10 * i, 10 * i + 10, 10 * i + 10);
                check(t.in_flight == 1);
                reads(&x, &t, now + 10, 10 * i + 10);
                check(t.in_flight == (i < 5));
        }
        depart(&x, &t, now, 0, 5, 5);
        check(t.begun == 0 && t.grown == 0 && t.in_flight == 0);

        arrive(&x, &t, now, 200, 210, 210);
        reads(&x, &t, now + 10, 210);
        depart(&x, &t, now + 20, 5, 10, 10);
        check(t.begun == 1 && t.in_flight == 0 && x.first_at == now);

        /* Slow, but one request: its parts arrive at intervals, all of them in time */
        for (unsigned i = 0; i < 5; i++) {
                now += 2 * second;
                arrive(&x, &t, now, 210 + 10 * i, 220 + 10 * i, 220 + 10 * i);
                reads(&x, &t, now + 10, 220 + 10 * i);
                check(t.in_flight == 1);
        }
        now += 5 * second;
        depart(&x, &t, now, 10, 15, 15);
        check(t.begun == 2 && t.in_flight == 0 && x.first_at == now - 13 * second);
        /* Long, and without a pause */
        for (unsigned i = 0; i < 100; i++) {
                now += second / 2;
                arrive(&x, &t, now, 260 + i, 261 + i, 261 + i);
                reads(&x, &t, now + 10, 261 + i);
                check(t.in_flight == 1);
        }
        end(&x, &t, true, 0);
        check(t.unanswered == 1 && t.in_flight == 0 && t.overlaps == 0);
}

/* The same without pauses: messages, each read before the next one arrives. */
static void test_messages(void) {
        const uint64_t second = UINT64_C(1000000000), gaps[] = { second / 100, second / 2 };
        const uint32_t lengths[] = { 20, 20, 1000, 8000, 8000 };

        for (unsigned k = 0; k < 10; k++) {
                uint64_t gap = gaps[k % 2], now = second, before;
                /* Large parts, at any interval, may be an upload with a late response */
                bool pushed = k / 2 != 1, is_stream = pushed && lengths[k / 2] <= EXCHANGE_MESSAGE_MAX;
                struct exchange x = exchange_new();
                uint32_t at = 0;
                Totals t = {};

                /* It has a response at first, like others */
                arrive(&x, &t, now, 0, 10, 10);
                reads(&x, &t, now + 10, 10);
                depart(&x, &t, now + 20, 0, 10, 10);
                at = 10;

                for (unsigned i = 0; now < 13 * second; i++) {
                        now += gap;
                        before = x.tail_at;
                        arrive(&x, &t, now, at, at + lengths[k / 2], at + lengths[k / 2]);
                        exchange_note_part(&x, now, before, lengths[k / 2], pushed);
                        check(t.in_flight == 1); /* until it is read */
                        at += lengths[k / 2];
                        reads(&x, &t, now + 10, at);
                        check(t.in_flight == !(is_stream && now >= 11 * second + gap));
                }
                if (is_stream) {
                        /* Data sent at once is the response to the newest one */
                        depart(&x, &t, now + 20, 10, 20, 20);
                        check(t.begun == 2 && x.first_at == now);
                        /* The next one is a request again, until more is known */
                        now += gap;
                        arrive(&x, &t, now, at, at + 10, at + 10);
                        reads(&x, &t, now + 10, at + 10);
                        check(t.in_flight == 1);
                }
                end(&x, &t, true, 0);
                check(t.unanswered == 1 && t.in_flight == 0 && t.overlaps == 0);
        }

        /* A client that closes the connection amid a stream has aborted nothing */
        {
                struct exchange x = exchange_new();
                Totals t = {};

                for (unsigned i = 0; i < 120; i++) {
                        arrive(&x, &t, second + i * second / 10, i * 10, i * 10 + 10, i * 10 + 10);
                        exchange_note_part(&x, second + i * second / 10, 0, 10, 1);
                        reads(&x, &t, second + i * second / 10 + 5, i * 10 + 10);
                }
                /* The server stops reading */
                arrive(&x, &t, 14 * second, 1200, 1210, 1210);
                exchange_note_part(&x, 14 * second, 13 * second, 10, 1);
                check(t.in_flight == 1 && x.open_at == 14 * second);
                reads(&x, &t, 15 * second, 1210);
                check(t.in_flight == 0);
                end(&x, &t, true, 0);
                check(t.unanswered == 0);
        }

        /* Many parts at once, then silence: the client waits */
        {
                struct exchange x = exchange_new();
                Totals t = {};

                for (unsigned i = 0; i < 50; i++) {
                        arrive(&x, &t, second + i, i * 10, i * 10 + 10, i * 10 + 10);
                        exchange_note_part(&x, second + i, second, 10, 1);
                        reads(&x, &t, second + i, i * 10 + 10);
                }
                check(t.in_flight == 1 && x.messages >= EXCHANGE_MESSAGES && !(x.flags & EXCHANGE_ONE_WAY));
                end(&x, &t, true, 0);
                check(t.unanswered == 1);
        }

        /* The client role */
        for (unsigned k = 0; k < 2; k++) {
                struct exchange_effect e = {};
                struct exchange x = exchange_new();

                for (unsigned i = 0; i < 120; i++) {
                        exchange_note_part(&x, second + i * second / 10, x.read_at, k == 0 ? 100 : 60000,
                                           k == 0 || i % 2);
                        exchange_request_again(&x, second + i * second / 10, &e);
                        check(e.in_flight == !(k == 0 && i > 100));
                }
                check(exchange_receive_response(&x, 14 * second, IN + 5, IN, IN + WINDOW, &e) == (k == 1));
        }
}

/* Data sent after messages at intervals of a second or more is a response to the newest one; after parts at
 * shorter intervals it is one to the whole request. */
static void test_published(void) {
        const uint64_t second = UINT64_C(1000000000), gaps[] = { second / 4, second / 20 };

        for (unsigned k = 0; k < ELEMENTSOF(gaps); k++) {
                struct exchange x = exchange_new();
                uint64_t now = second, before;
                Totals t = {};

                for (unsigned i = 0; i < 10; i++) {
                        now += gaps[k];
                        before = x.tail_at;
                        arrive(&x, &t, now, i * 10, i * 10 + 10, i * 10 + 10);
                        exchange_note_part(&x, now, before, 10, 1);
                        reads(&x, &t, now + 10, i * 10 + 10);
                }
                depart(&x, &t, now + 20, 0, 10, 10);
                check(t.begun == 1 && x.first_at == (k == 0 ? now : second + gaps[k]));
        }
}

/* The response to a subscription does not include the messages that follow it, at any rate. */
static void test_subscribed(void) {
        const uint64_t second = UINT64_C(1000000000);
        const uint64_t gaps[] = { second / 100, second / 10, second * 9 / 10 };

        for (unsigned k = 0; k < ELEMENTSOF(gaps); k++) {
                struct exchange x = exchange_new();
                uint64_t now = second, begun;
                uint32_t at = 10;
                Totals t = {};

                arrive(&x, &t, now, 0, 10, 10);
                reads(&x, &t, now + 10, 10);
                begun = now + 20;
                depart(&x, &t, begun, 0, 10, 10);
                for (; now < 60 * second; at += 100) {
                        now += gaps[k];
                        depart(&x, &t, now, at, at + 100, at + 100);
                }
                check(t.begun == 1 && t.in_flight == 0 && x.last_out_at < begun + second);

                /* A response that takes as long and is larger, or that the client reads slowly */
                for (unsigned large = 0; large < 2; large++) {
                        now += gaps[k];
                        arrive(&x, &t, now, 10 + large * 10, 20 + large * 10, 20 + large * 10);
                        reads(&x, &t, now + 10, 20 + large * 10);
                        begun = now;
                        for (unsigned i = 0; i < 500; i++) {
                                uint32_t n = large ? 2000 : 100;

                                now += gaps[k];
                                depart(&x, &t, now, at, at + n, large || i == 499 ? at + n : at + 2 * n);
                                at += n;
                        }
                        check(t.begun == 2 + large && x.last_out_at == now);
                }
        }
}

/* Both ends send at any time: after the end nothing is open, whichever closes, in both roles. */
static void test_session(void) {
        for (unsigned session = 0; session < 2; session++) {
                struct exchange x = exchange_new(), y = exchange_new();
                struct exchange_effect e = {};
                Totals t = {};

                x.flags |= session ? EXCHANGE_SESSION : 0;
                y.flags |= session ? EXCHANGE_SESSION : 0;
                arrive(&x, &t, 100, 0, 36, 36);
                reads(&x, &t, 110, 36);
                check(t.in_flight == 1);
                end(&x, &t, false, 0);
                check(t.unanswered == !session && t.in_flight == 0);

                exchange_request(&y, 100, &e);
                exchange_end(&y, 1, 1, 0, &e);
                check(e.unanswered == !session && e.in_flight == 0);
        }
        check(exchange_is_ssh(0x2d485353) && !exchange_is_ssh(0x2d485352));
        check(exchange_is_farewell(0x0007000001, 5) && !exchange_is_farewell(0x0107000001, 5) &&
              !exchange_is_farewell(0x0007000001, 6));
}

/* A possible farewell is no request without a response if the connection ends; with a response, or with data
 * after it, it is an ordinary one. */
static void test_farewell(void) {
        static const struct {
                bool marked, follows, responded;
                unsigned unanswered;
        } table[] = { { true, false, false, 0 }, { false, false, false, 1 }, { true, true, false, 1 },
                      { true, false, true, 0 } };

        check(exchange_is_farewell(0x0400000058, 5) && exchange_is_farewell(0x0100000001, 5));
        check(exchange_is_farewell(0x0a0d74697571, 6) && exchange_is_farewell(0x0a0d54495551, 6) &&
              !exchange_is_farewell(0x0a0d74697571, 7) && !exchange_is_farewell(0x0a0d74697570, 6));
        check(exchange_is_farewell(0x00420301020530, 7) && exchange_is_farewell(0x0042ff0002020630, 8));
        check(!exchange_is_farewell(0x00420301020530, 8) && !exchange_is_farewell(0x00600301020530, 7) &&
              !exchange_is_farewell(0x0042ff00020206, 7));
        check(exchange_is_last_farewell(0x00e0, 2) && exchange_is_last_farewell(0x0401e0, 3) &&
              exchange_is_last_farewell(0x000402e0, 4));
        check(exchange_is_farewell(0x00e0, 2) && !exchange_is_last_farewell(0x00c0, 2) &&
              !exchange_is_last_farewell(0x010402e0, 4));
        check(!exchange_is_last_farewell(0x0400000058, 5) && !exchange_is_farewell(0x00e0, 3));
        check(exchange_is_farewell(0x0100000002000005, 12) &&
              !exchange_is_farewell(0x0100000002000006, 12) &&
              !exchange_is_farewell(0x0100000002000005, 13));
        check(exchange_is_farewell(0x0200010013956025, 28) && !exchange_is_farewell(0x0000000013956025, 28));
        check(!exchange_is_farewell(0x0400000058, 4) && !exchange_is_farewell(0x0400000051, 5) &&
              !exchange_is_farewell(0, 5));

        for (size_t i = 0; i < ELEMENTSOF(table); i++)
                for (int gone = 0; gone < 2; gone++) {
                        struct exchange x = exchange_new();
                        Totals t = {};

                        arrive(&x, &t, 10, 0, 5, 0);
                        if (table[i].marked)
                                x.flags |= EXCHANGE_FAREWELL;
                        reads(&x, &t, 11, 5);
                        if (table[i].follows) {
                                arrive(&x, &t, 12, 5, 10, 5);
                                reads(&x, &t, 13, 10);
                        }
                        if (table[i].responded)
                                depart(&x, &t, 14, 0, 10, 10);
                        end(&x, &t, gone, 0);
                        check(t.unanswered == table[i].unanswered && t.begun == table[i].responded &&
                              t.in_flight == 0);
                }
}

/* The last bytes of a piece of FastCGI that are left unread belong to its request, whether they are read
 * later or not. */
static void test_rest(void) {
        static const struct {
                uint32_t size, read;
                bool other;             /* another request arrives before the response */
                int in_flight;          /* after the response */
        } table[] = {
                { 100, 92, false, 0 }, { 100, 99, false, 0 }, { 100, 91, false, 1 }, { 100, 100, false, 0 },
                        { 100, 92, true, 1 },
        };

        check(exchange_is_fastcgi(0x0000080001000101, 8) && !exchange_is_fastcgi(0x0000080001000401, 8) &&
              !exchange_is_fastcgi(0x0000080001000101, 5) && !exchange_is_fastcgi(0x0000100001000101, 8));

        for (size_t i = 0; i < ELEMENTSOF(table); i++)
                for (int reads_on = 0; reads_on < 2; reads_on++) {
                        struct exchange x = exchange_new();
                        Totals t = {};
                        uint32_t last = table[i].size;

                        x.flags |= EXCHANGE_FASTCGI;
                        arrive(&x, &t, 10, 0, last, 0);
                        reads(&x, &t, 11, 8);
                        reads(&x, &t, 12, table[i].read);
                        if (table[i].other) {
                                arrive(&x, &t, 13, last, last + 100, last);
                                last += 100;
                        }
                        depart(&x, &t, 14, 0, 10, 10);
                        check(t.begun == 1 && t.overlaps == 0 && t.in_flight == table[i].in_flight);
                        if (table[i].in_flight > 0)
                                continue;
                        if (reads_on) {
                                reads(&x, &t, 15, last);
                                depart(&x, &t, 16, 10, 20, 20);
                                /* PHP reads it between the parts of a long response */
                                check(t.begun == 1 && t.overlaps == 0 && t.in_flight == 0);
                        }

                        /* The next request, with the rest of this one before it */
                        arrive(&x, &t, 20, last, last + 100, last);
                        check(t.in_flight == 1);
                        reads(&x, &t, 21, last + 100);
                        check(x.first_at == 20);
                        depart(&x, &t, 22, 20, 30, 30);
                        check(t.begun == 2 && t.overlaps == 0 && t.in_flight == 0);
                        end(&x, &t, true, 0);
                        check(t.unanswered == 0);
                }

        /* In other protocols it may be a request */
        {
                struct exchange x = exchange_new();
                Totals t = {};

                arrive(&x, &t, 10, 0, 16, 0);
                reads(&x, &t, 11, 8);
                depart(&x, &t, 12, 0, 10, 10);
                reads(&x, &t, 13, 16);
                depart(&x, &t, 14, 10, 20, 20);
                check(t.begun == 1 && t.overlaps == 1 && t.unparsed == 1 && t.in_flight == 0);
        }
}

/* The unit responds before it has read all of a request. Data read later, without a response until the
 * connection ends, was a part of it; if data is sent or arrives after it, it is uncertain. */
static void test_left(void) {
        enum { NOTHING, NEXT, ANSWER };

        for (int what = NOTHING; what <= ANSWER; what++)
                for (int unread = 0; unread < 2; unread++)
                        for (int gone = 0; gone < 2; gone++) {
                                struct exchange x = exchange_new();
                                Totals t = {};

                                arrive(&x, &t, 10, 0, 100, 0);
                                reads(&x, &t, 11, 100);
                                arrive(&x, &t, 12, 100, 1100, 100);
                                depart(&x, &t, 13, 0, 10, 10);
                                check(t.begun == 1 && t.overlaps == 0 && t.in_flight == 1);
                                arrive(&x, &t, 14, 1100, 2100, 1100);
                                if (!unread)
                                        reads(&x, &t, 15, 2100);
                                check(t.in_flight == 1);
                                if (unread && what != NOTHING)
                                        continue;

                                if (what == NEXT) {
                                        arrive(&x, &t, 20, 2100, 2200, 2100);
                                        reads(&x, &t, 21, 2200);
                                        check(x.first_at == 20);
                                }
                                if (what != NOTHING) {
                                        depart(&x, &t, 22, 10, 20, 20);
                                        check(t.begun == 1 && t.overlaps == 1 && t.unparsed == 1 &&
                                              t.in_flight == 0);
                                }
                                end(&x, &t, gone, 0);
                                check(t.unanswered == 0 && t.in_flight == 0);
                        }
}

/* Without a known read, each request has unknown times, in any number of segments. */
static void test_no_reads(void) {
        struct exchange x = exchange_new();
        Totals t = {};

        x.flags |= EXCHANGE_DONE | EXCHANGE_UNREAD;
        depart(&x, &t, 5, 0, 5, 5);
        check(t.overlaps == 0);
        for (uint32_t i = 0; i < 10; i++) {
                arrive(&x, &t, 10 * i + 10, 100 * i, 100 * i + 50, 100 * i);
                arrive(&x, &t, 10 * i + 11, 100 * i + 50, 100 * i + 100, 100 * i + 50);
                depart(&x, &t, 10 * i + 12, 20 * i + 5, 20 * i + 15, 20 * i + 25);
                depart(&x, &t, 10 * i + 13, 20 * i + 15, 20 * i + 25, 20 * i + 25);
                check(t.overlaps == i + 1 && t.begun == 0 && t.grown == 0 && t.in_flight == 0);
        }
        end(&x, &t, true, 0);
        check(t.unanswered == 0 && t.bytes_in == 1000 && t.bytes_out == 205);
}

int main(void) {
        test_seldom_pipelined();
        test_no_reads();
        test_left();
        test_rest();
        test_farewell();
        test_one_way();
        test_messages();
        test_published();
        test_subscribed();
        test_session();
        test_remarks();
        test_unknown();
        test_silence();
        test_push();
        test_awaited();
        test_keep_alive();
        test_segments();
        test_retransmissions();
        test_hole();
        test_unread();
        test_server_speaks_first();
        test_pipelining();
        test_ends();
        test_slow_response();
        test_random();
}
