/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Which requests have waited by intent: the code of the programs (bpf/core/intent.h). */

#include "check.h"
#include "util.h"
#include "intent.h"

#define MSEC UINT64_C(1000000)
#define SEC (1000 * MSEC)

static struct intent_run run_at(uint32_t thread, uint32_t waits, uint64_t at) {
        return (struct intent_run) { .thread = thread, .waits = waits, .begun_at = at };
}

/* What is known of a request that thread 1 reads at 10 s, and responds to at "now". Another one is read
 * before that at "other", by "thread", which has waited "waits" times since the first read; a third one at
 * "third". */
static enum intent intent_when(uint64_t third, uint32_t thread, uint32_t waits, uint64_t other, uint64_t now,
                               uint32_t waits_now) {
        struct intent_run r = {}, at = run_at(1, 0, 10 * SEC);
        __u64 unit_at = 0;

        intent_read(&r, &at, &unit_at);
        if (third != 0) {
                at = run_at(1, 1, third);
                intent_read(&r, &at, &unit_at);
        }
        if (other != 0) {
                at = run_at(thread, waits, other);
                intent_read(&r, &at, &unit_at);
        }
        at = run_at(1, waits_now, now);
        return intent_of_run(&r, &at, 10 * SEC);
}

static void test_run(void) {
        uint64_t now = 12 * SEC, just = now - MSEC;

        /* The event loop has read another request, and responds in the same run */
        check(intent_when(0, 1, 7, just, now, 7) == INTENT_SHOWN);
        /* It had read one more shortly before */
        check(intent_when(just - 5 * MSEC, 1, 7, just, now, 7) == INTENT_LIKELY);
        check(intent_when(just - 3 * MSEC, 1, 7, just, now, 7) == INTENT_NONE);
        check(intent_when(just - 25 * MSEC, 1, 7, just, now, 7) == INTENT_SHOWN);
        /* It has waited since, for a timer or something else */
        check(intent_when(0, 1, 7, just, now, 8) == INTENT_NONE);
        /* Another thread has read it */
        check(intent_when(0, 2, 7, just, now, 7) == INTENT_NONE);
        /* It was read long before the response: processing, or a late event */
        check(intent_when(0, 1, 7, 11 * SEC, now, 7) == INTENT_NONE);
        /* There was no other request */
        check(intent_when(0, 0, 0, 0, now, 0) == INTENT_NONE);
        check(intent_when(0, 0, 0, 0, now, 7) == INTENT_NONE);
}

/* An event loop that reads from several connections until it waits again. */
static void test_forwarded(void) {
        struct intent_run r = {}, at = run_at(1, 7, 10 * SEC);
        __u64 unit_at = 0;

        intent_read(&r, &at, &unit_at);
        at = run_at(1, 7, 10 * SEC + MSEC);
        /* Nothing has been read since the request itself */
        check(!intent_is_forwarded(&r, &at, 10 * SEC));
        intent_read(&r, &at, &unit_at);
        at = run_at(1, 7, 10 * SEC + 2 * MSEC);
        check(intent_is_forwarded(&r, &at, 10 * SEC) && !intent_is_forwarded(&r, &at, 10 * SEC + MSEC));
        /* It has waited, or is another thread */
        at = run_at(1, 8, 10 * SEC + 2 * MSEC);
        check(!intent_is_forwarded(&r, &at, 10 * SEC));
        at = run_at(2, 7, 10 * SEC + 2 * MSEC);
        check(!intent_is_forwarded(&r, &at, 10 * SEC));
}

/* What sets off data sent at "now", to what was read at 10 s: another read at "other". */
static enum intent_cause cause_when(int pushed, uint64_t other, uint64_t now) {
        struct intent_run r = {}, at = run_at(1, 0, intent_mark(10 * SEC, 0));
        __u64 unit_at = 0;

        intent_read(&r, &at, &unit_at);
        at = run_at(1, 7, intent_mark(other, pushed));
        intent_read(&r, &at, &unit_at);
        at = run_at(1, 7, now);
        return intent_cause(&r, &at, intent_mark(10 * SEC, 0));
}

static void test_cause(void) {
        check(intent_mark(11, 0) == 10 && intent_mark(11, 1) == 11 && intent_mark(10, 3) == 11);
        check(cause_when(0, 12 * SEC, 12 * SEC + MSEC) == INTENT_AWAITED);
        /* A reaction to an event: it is the response to a request of another client */
        check(cause_when(1, 12 * SEC, 12 * SEC + MSEC) == INTENT_FORWARDED);
        check(cause_when(0, 10 * SEC + 98 * MSEC, 10 * SEC + 99 * MSEC) == INTENT_FORWARDED);
        check(cause_when(0, 11 * SEC, 12 * SEC) == INTENT_FORWARDED);
        check(cause_when(0, 10 * SEC, 12 * SEC) == INTENT_OWN);
}

static void test_park(void) {
        struct intent_park p = {};

        check(!intent_is_parked(&p, 10 * SEC, 12 * SEC));
        intent_park(&p, 10 * SEC + MSEC, 12 * SEC - MSEC);
        check(intent_is_parked(&p, 10 * SEC, 12 * SEC));
        /* Processing takes longer than a seventh of it */
        check(!intent_is_parked(&p, 10 * SEC, 12 * SEC + 400 * MSEC));
        /* A later request of the same thread */
        check(!intent_is_parked(&p, 12 * SEC, 13 * SEC));
        /* Woken for an event of another one, and parked again */
        intent_park(&p, 12 * SEC + MSEC, 14 * SEC);
        check(intent_is_parked(&p, 10 * SEC, 14 * SEC));
        check(intent_is_parked(&p, 12 * SEC, 14 * SEC));
        /* Another wait in between */
        intent_park(&p, 15 * SEC, 16 * SEC);
        check(!intent_is_parked(&p, 10 * SEC, 16 * SEC));

        /* The request that ends a wait for an event is new, one that ends a wait for a lock is not */
        check(intent_is_news(12 * SEC - MSEC, 10 * SEC, 12 * SEC));
        check(!intent_is_news(9 * SEC, 10 * SEC, 12 * SEC));
        check(!intent_is_news(11 * SEC, 10 * SEC, 12 * SEC));
}

/* The history of a unit decides on possible coincidences, and on requests that wait. */
static void test_history(void) {
        struct qos_intended i = {};
        uint64_t now = 100 * SEC;

        check(!intent_is_usual(&i, now - SEC, now));
        check(!intent_learn(&i, INTENT_LIKELY, false, now - SEC, now));
        check(!intent_learn(&i, INTENT_LIKELY, false, now - SEC, now));
        check(!intent_is_usual(&i, now - SEC, now));
        check(intent_learn(&i, INTENT_LIKELY, false, now - SEC, now));
        check(intent_is_usual(&i, now - SEC, now));

        /* Up to twice the longest */
        check(intent_is_usual(&i, now - 2 * SEC, now));
        check(!intent_is_usual(&i, now - 2 * SEC - 1, now));
        check(!intent_is_usual(&i, now - 99 * MSEC, now));
        /* On the same connection no proof is needed */
        check(intent_learn(&i, INTENT_NONE, true, now - 2 * SEC, now));
        check(!intent_learn(&i, INTENT_NONE, true, now - 3 * SEC, now));
        check(!intent_is_usual(&i, now - SEC, now));

        /* One proof is sufficient */
        i = (struct qos_intended) {};
        check(intent_learn(&i, INTENT_SHOWN, false, now - 30 * SEC, now));
        check(intent_is_usual(&i, now, now + 60 * SEC));
        for (unsigned k = 0; k < 5; k++)
                check(!intent_learn(&i, INTENT_NONE, false, now - SEC, now));
        check(intent_is_usual(&i, now - SEC, now));
        check(!intent_learn(&i, INTENT_NONE, false, now - SEC, now));
        check(!intent_is_usual(&i, now - SEC, now));

        /* Forgotten after a while */
        check(intent_learn(&i, INTENT_SHOWN, false, now - SEC, now));
        check(intent_is_usual(&i, now + 600 * SEC, now + 602 * SEC));
        check(!intent_is_usual(&i, now + 660 * SEC, now + 661 * SEC));
}

int main(void) {
        test_run();
        test_forwarded();
        test_cause();
        test_park();
        test_history();
        return EXIT_SUCCESS;
}
