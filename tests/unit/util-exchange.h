/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The events of a connection, and the sum of their effects. Times have an arbitrary unit, positions begin
 * just below the wrap of sequence numbers. */

#include "check.h"
#include "util.h"

#include "exchange.h"

#define IN UINT32_C(0xffffff80)
#define OUT UINT32_C(0xfffffff0)
#define WINDOW 65536

typedef struct Totals {
        unsigned begun, grown, overlaps, unparsed, unanswered;
        int in_flight;
        uint64_t bytes_in, bytes_out;
} Totals;

static inline void account(Totals *t, const struct exchange_effect *e) {
        t->begun += e->begun;
        t->grown += e->grown;
        t->overlaps += e->overlap;
        t->unparsed += e->unparsed;
        t->unanswered += e->unanswered;
        t->in_flight += e->in_flight;
        check(t->in_flight == 0 || t->in_flight == 1);
}

static inline void arrive(struct exchange *x, Totals *t, uint64_t now, uint32_t from, uint32_t to,
                          uint32_t rcv_nxt) {
        struct exchange_effect e = {};

        exchange_arrive(x, now, &(struct exchange_segment) { IN + from, IN + to, IN + rcv_nxt,
                                                             IN + rcv_nxt + WINDOW }, &e);
        t->bytes_in += e.bytes;
        account(t, &e);
}

static inline void reads(struct exchange *x, Totals *t, uint64_t now, uint32_t to) {
        struct exchange_effect e = {};

        exchange_read(x, now, IN + to, 0, &e);
        account(t, &e);
}

static inline void depart(struct exchange *x, Totals *t, uint64_t now, uint32_t from, uint32_t to,
                          uint32_t written) {
        struct exchange_effect e = {};
        uint32_t bytes;

        bytes = exchange_leave(x, OUT + to, OUT + from);

        if (bytes > 0)
                exchange_depart(x, now, bytes, to >= written, &e);
        t->bytes_out += e.bytes;
        account(t, &e);
}

static inline void end(struct exchange *x, Totals *t, bool gone, uint32_t unsent) {
        struct exchange_effect e = {};

        exchange_end(x, gone, x->state == EXCHANGE_PENDING, unsent, &e);
        account(t, &e);
}

static inline struct exchange exchange_new(void) {
        struct exchange x = {};

        exchange_begin(&x, IN, IN, OUT);
        return x;
}
