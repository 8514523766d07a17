/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The state machine of a connection (bpf/protocols/exchange.h) in the client role, event by event: positions
 * of sent data begin at OUT, of received data at IN. */

#include "util-exchange.h"

static void request(struct exchange *x, Totals *t, uint64_t now, uint32_t from, uint32_t to) {
        struct exchange_effect e = {};
        uint32_t bytes = exchange_leave(x, OUT + to, OUT + from);

        if (bytes > 0)
                exchange_request(x, now, &e);
        t->bytes_out += bytes;
        account(t, &e);
}

static void hear(struct exchange *x, Totals *t, uint64_t now, uint32_t to, uint32_t rcv_nxt) {
        struct exchange_effect e = {};

        exchange_receive_response(x, now, IN + to, IN + rcv_nxt, IN + rcv_nxt + WINDOW, &e);
        t->bytes_in += e.bytes;
        account(t, &e);
}

/* The same in the client role, and without any response before. */
static void test_one_way_requested(void) {
        const uint64_t second = UINT64_C(1000000000);
        struct exchange x = exchange_new(), y = exchange_new(), z = exchange_new();
        struct exchange_effect e = {};
        Totals t = {}, lines = {};

        /* Lines without an end */
        for (unsigned i = 0; i < 120; i++) {
                arrive(&z, &lines, second + i * second / 10, i * 10, i * 10 + 10, i * 10 + 10);
                reads(&z, &lines, second + i * second / 10, i * 10 + 10);
                check(exchange_is_ignored(&z, second + i * second / 10) == (i > 100));
        }

        for (unsigned i = 0; i < 10; i++) {
                exchange_request_again(&x, second + i * 2 * second, &e);
                check(e.in_flight == (i < 6));
        }
        check(exchange_receive_response(&x, 22 * second, IN + 5, IN, IN + WINDOW, &e) == 0 && !e.begun);
        exchange_request_again(&x, 23 * second, &e);
        check(exchange_receive_response(&x, 23 * second + 7, IN + 10, IN + 5, IN + 5 + WINDOW, &e) == 1);
        check(e.begun && x.first_at == 23 * second);
        check(e.in_flight == 0);

        check(!exchange_is_ignored(&y, 100 * second));
        arrive(&y, &t, second, 0, 10, 10);
        check(!exchange_is_ignored(&y, 100 * second));
        reads(&y, &t, second, 10);
        check(!exchange_is_ignored(&y, 10 * second) && exchange_is_ignored(&y, 12 * second));
        y.flags |= EXCHANGE_ONE_WAY; /* as set by the sender of the request */
        depart(&y, &t, 12 * second, 0, 5, 5);
        check(t.begun == 1 && !(y.flags & EXCHANGE_ONE_WAY) && !exchange_is_ignored(&y, 100 * second));
        arrive(&y, &t, 13 * second, 10, 20, 20);
        reads(&y, &t, 13 * second, 20);
        check(!exchange_is_ignored(&y, 100 * second) && t.in_flight == 1);
}

/* Requests that can be distinguished: each is in flight, and all of them count with the first byte of a
 * response. */
static void test_ask_more(void) {
        struct exchange x = {};
        int in_flight = 0;

        for (uint32_t n = 0; n < 5; n++) {
                struct exchange_effect e = {};
                uint64_t now = 1000 * (n + 1);

                exchange_request(&x, now, &e);
                check(in_flight + e.in_flight == 1);
                exchange_request_more(&x, now, n, &e);
                check(in_flight + e.in_flight == (n > 1 ? (int) n : 1));
                exchange_request(&x, now + 1, &e);
                exchange_request_more(&x, now + 1, 2, &e);
                in_flight += e.in_flight;
                check(in_flight == (int) n + 2);

                e = (struct exchange_effect) {};
                check(n + 2 == exchange_receive_response(&x, now + 10, IN + n * 10 + 10, IN + n * 10,
                                                         IN + WINDOW, &e));
                in_flight += e.in_flight;
                check(e.begun && in_flight == 0 && x.pending == 0);
        }

        /* Data that begins to be sent after a response is another one; the end of the connection ends all */
        for (uint32_t n = 0; n < 3; n++) {
                struct exchange_effect e = {};

                exchange_request_more(&x, 10000, n, &e);
                check(e.in_flight == (n > 1 ? (int) n : 1) && x.state == EXCHANGE_PENDING);
                exchange_request_none(&x, &e);
                exchange_end(&x, 1, 1, 0, &e);
                check(e.in_flight == 0 && e.unanswered == 1);
                x = (struct exchange) {};
        }

        /* Each of the requests counted by a parser has no response */
        for (uint32_t n = 0; n < 4; n++) {
                struct exchange_effect e = {};

                exchange_open(&x, 10000, &e);
                exchange_end(&x, 1, n, 0, &e);
                check(e.in_flight == 0 && e.unanswered == (n > 0 ? n : 1));
                x = (struct exchange) {};
        }
}

/* If the parser fails at some point, requests parsed before count, and none after. */
static void test_ask_unparsed(void) {
        for (uint32_t pending = 0; pending < 4; pending++) {
                struct exchange x = {};
                struct exchange_effect e = {};
                uint32_t in = 20;
                Totals t = {};

                request(&x, &t, 1000, 0, 10);
                hear(&x, &t, 1010, 10, 0);
                check(t.begun == 1 && t.overlaps == 0);

                exchange_request_more(&x, 2000, pending, &e);
                for (unsigned k = 0; k < 2; k++)
                        exchange_set_unparsed(&x, &e);
                check(e.unparsed == 1 && e.in_flight == (pending > 1 ? (int) pending : 1));
                e = (struct exchange_effect) {};
                check(exchange_receive_response(&x, 2010, IN + 20, IN + 10, IN + WINDOW, &e) ==
                      (pending > 1 ? pending : 1));
                check(e.begun == (pending > 0) && e.overlap == (pending == 0) && e.bytes == 10);
                check(e.in_flight == -(pending > 1 ? (int) pending : 1));
                for (unsigned k = 1; k < 10; k++) {
                        request(&x, &t, 3000 * k, 10 * k, 10 * k + 10);
                        hear(&x, &t, 3000 * k + 10, in + 10, in);
                        hear(&x, &t, 3000 * k + 11, in + 20, in);
                        in += 20;
                        check(t.begun == 1 && t.grown == 0 && t.in_flight == 0 && t.overlaps == k);
                }
        }
}

/* Several requests are open, and their responses are distinguished when they are read: in flight until then,
 * one by one. */
static void test_pipe(void) {
        struct exchange_effect e = {};
        struct exchange_marks marks;
        struct exchange x = {};
        int in_flight;

        exchange_request(&x, 1000, &e);
        exchange_request_more(&x, 1000, 1, &e);
        exchange_request(&x, 1020, &e);
        exchange_request_more(&x, 1020, 2, &e);
        exchange_pipe(&x, IN);
        check(e.in_flight == 3 && x.flags & EXCHANGE_PIPED && x.read_end == IN);
        in_flight = e.in_flight;

        e = (struct exchange_effect) {};
        check(exchange_receive_response(&x, 1100, IN + 10, IN, IN + WINDOW, &e) == 0);
        check(exchange_receive_response(&x, 1120, IN + 25, IN + 10, IN + WINDOW, &e) == 0);
        check(e.in_flight == 0 && !e.begun && !e.grown && x.n_marks == 2);
        exchange_get_marks(&x, &marks);
        check(exchange_when(&marks, IN + 10, 1) == 1100 && exchange_when(&marks, IN + 11, 0) == 1120);
        /* No client waits for more than a second without a response: it is not a stream of messages without
         * responses */
        exchange_request_again(&x, 1020 + EXCHANGE_PATIENCE_NSEC + 1, &e);
        check(e.in_flight == 0 && !(x.flags & EXCHANGE_ONE_WAY));

        exchange_piped(&x, 1, &e);
        check(in_flight + e.in_flight == 2 && x.pending == 2);
        check(!exchange_pipe_read(&x, IN + 10, 1, 0, &e) && x.n_marks == 1 && x.state == EXCHANGE_PENDING);
        exchange_piped(&x, 2, &e);
        check(in_flight + e.in_flight == 0 && x.pending == 0);
        /* Amid a response, a further request with a response */
        check(!exchange_pipe_read(&x, IN + 25, 0, 0, &e) && x.n_marks == 0);
        exchange_request(&x, 1200, &e);
        exchange_request_more(&x, 1200, 1, &e);
        check(in_flight + e.in_flight == 1);
        check(exchange_receive_response(&x, 1300, IN + 50, IN + 25, IN + WINDOW, &e) == 0);
        exchange_piped(&x, 1, &e);
        check(exchange_pipe_read(&x, IN + 50, 1, 0, &e) && in_flight + e.in_flight == 0);
        check(x.state == EXCHANGE_IDLE && !(x.flags & EXCHANGE_PIPED));
        /* Data sent without a request belongs to none; the next request is an ordinary one */
        e = (struct exchange_effect) {};
        check(exchange_receive_response(&x, 1310, IN + 60, IN + 50, IN + WINDOW, &e) == 0 && !e.grown);
        exchange_request(&x, 1400, &e);
        check(x.first_at == 1400);
        check(exchange_receive_response(&x, 1500, IN + 70, IN + 60, IN + WINDOW, &e) == 1);
        check(e.begun && e.in_flight == 0);

        /* The position is lost; the end of the connection */
        for (int lost = 0; lost <= 1; lost++) {
                x = (struct exchange) {};
                e = (struct exchange_effect) {};
                exchange_request(&x, 1000, &e);
                exchange_request_more(&x, 1000, 5, &e);
                exchange_pipe(&x, IN);
                check(e.in_flight == 5);
                (void) exchange_receive_response(&x, 1100, IN + 10, IN, IN + WINDOW, &e);
                if (lost)
                        check(exchange_pipe_read(&x, IN + 10, 0, 1, &e) && x.state == EXCHANGE_IDLE);
                else {
                        exchange_request_none(&x, &e);
                        exchange_end(&x, 1, 1, 0, &e);
                        check(e.unanswered == 1);
                }
                check(e.in_flight == 0);
        }
        /* Too late: a response has begun to arrive */
        x = (struct exchange) {};
        exchange_request(&x, 1000, &e);
        (void) exchange_receive_response(&x, 1100, IN + 10, IN, IN + WINDOW, &e);
        exchange_pipe(&x, IN);
        check(!(x.flags & EXCHANGE_PIPED));
}

/* Requests and responses in segments: one each, open until the first byte of the response. */
static void test_ask(void) {
        struct exchange x = {};
        Totals t = {};

        for (uint32_t i = 0; i < 1000; i++) {
                uint64_t now = 1000 * (i + 1);

                request(&x, &t, now, 100 * i, 100 * i + 40);
                check(t.in_flight == 1 && x.open_at == now && x.first_at == now);
                request(&x, &t, now + 10, 100 * i + 40, 100 * (i + 1));
                check(t.in_flight == 1 && x.first_at == now);
                /* Both retransmitted, and acknowledged */
                request(&x, &t, now + 50, 100 * i + 40, 100 * (i + 1));
                hear(&x, &t, now + 60, 30 * i, 30 * i);
                check(t.begun == i && t.in_flight == 1);

                hear(&x, &t, now + 100, 30 * i + 10, 30 * i);
                check(t.begun == i + 1 && t.in_flight == 0 && x.first_at == now &&
                      x.last_out_at == now + 100);
                hear(&x, &t, now + 110, 30 * i + 20, 30 * i + 10);
                /* Retransmitted */
                hear(&x, &t, now + 120, 30 * i + 20, 30 * i + 10);
                hear(&x, &t, now + 130, 30 * (i + 1), 30 * i + 20);
                check(t.grown == 2 * (i + 1) && x.last_out_at == now + 130);
        }
        check(t.begun == 1000 && t.unanswered == 0 && t.overlaps == 0);
        check(t.bytes_in == 30000 && t.bytes_out == 100000);
}

/* Greetings, notifications, and responses with pauses. */
static void test_hear_unsolicited(void) {
        struct exchange x = {};
        Totals t = {};

        hear(&x, &t, 10, 50, 0);
        hear(&x, &t, 20, 80, 50);
        check(t.begun == 0 && t.grown == 0 && t.in_flight == 0 && t.bytes_in == 80);

        request(&x, &t, 100, 0, 10);
        hear(&x, &t, 200, 90, 80);
        hear(&x, &t, 200 + EXCHANGE_SILENCE_NSEC - 1, 100, 90);
        check(t.begun == 1 && t.grown == 1);
        hear(&x, &t, 200 + 3 * EXCHANGE_SILENCE_NSEC, 110, 100);
        hear(&x, &t, 201 + 3 * EXCHANGE_SILENCE_NSEC, 120, 110);
        check(t.begun == 1 && t.grown == 1 && t.in_flight == 0 && t.bytes_in == 120);

        request(&x, &t, 300 + 3 * EXCHANGE_SILENCE_NSEC, 10, 20);
        hear(&x, &t, 400 + 3 * EXCHANGE_SILENCE_NSEC, 130, 120);
        check(t.begun == 2 && t.in_flight == 0);

        /* Forged: far beyond the window */
        request(&x, &t, 500 + 3 * EXCHANGE_SILENCE_NSEC, 20, 30);
        hear(&x, &t, 600 + 3 * EXCHANGE_SILENCE_NSEC, 130 + 10 * WINDOW, 130);
        check(t.begun == 2 && t.in_flight == 1 && t.bytes_in == 130);
}

/* The connection ends with an open request, or without. */
static void test_ask_ends(void) {
        struct exchange x = {}, y = {};
        Totals t = {}, s = {};

        request(&x, &t, 10, 0, 10);
        hear(&x, &t, 20, 10, 0);
        end(&x, &t, true, 0);
        check(t.unanswered == 0 && t.in_flight == 0);

        request(&y, &s, 10, 0, 10);
        end(&y, &s, true, 0);
        check(s.unanswered == 1 && s.in_flight == 0);
        end(&y, &s, true, 0);
        check(s.unanswered == 1 && s.in_flight == 0);

        /* Data to and from a peer that has closed its end is ignored */
        request(&y, &s, 30, 10, 20);
        hear(&y, &s, 40, 10, 0);
        check(s.begun == 0 && s.in_flight == 0 && s.unanswered == 1 && s.bytes_in == 10 &&
              s.bytes_out == 20);
}

int main(void) {
        test_ask();
        test_one_way_requested();
        test_ask_more();
        test_ask_unparsed();
        test_pipe();
        test_hear_unsolicited();
        test_ask_ends();
}
