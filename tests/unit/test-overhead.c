/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Which runs of programs are measured, and what they count for. */

#include "check.h"
#include "overhead.h"
#include "util.h"

static void test_period(void) {
        __u32 turn = 0;
        unsigned n = 0;

        for (unsigned i = 1; i <= 10 * OVERHEAD_SAMPLE_PERIOD; i++)
                if (overhead_sample(&turn)) {
                        n++;
                        check(i == n * OVERHEAD_SAMPLE_PERIOD);
                }
        check(n == 10);
}

/* However many programs an exchange passes, each is measured as often as the others. */
static void test_programs(void) {
        for (unsigned programs = 2; programs < 12; programs++) {
                unsigned measured[12] = {};
                __u32 turn = 0;

                for (unsigned i = 0; i < OVERHEAD_SAMPLE_PERIOD * programs * 3; i++)
                        measured[i % programs] += overhead_sample(&turn);
                for (unsigned i = 0; i < programs; i++)
                        check(measured[i] == 3);
        }
}

/* Threads that end after some runs are measured as often as one that makes all of these, whatever numbers
 * they have. */
static void test_spread(void) {
        static const unsigned steps[] = { 1, 2, 8, 61, 64 };

        for (size_t s = 0; s < ELEMENTSOF(steps); s++) {
                unsigned n = 0, threads = 20000, runs = 3;

                for (unsigned i = 0; i < threads; i++) {
                        __u32 turn = overhead_first_sample(1000 + i * steps[s]);

                        check(turn < OVERHEAD_SAMPLE_PERIOD);
                        for (unsigned run = 0; run < runs; run++)
                                n += overhead_sample(&turn);
                }
                check(n > threads * runs / OVERHEAD_SAMPLE_PERIOD * 9 / 10 &&
                        n < threads * runs / OVERHEAD_SAMPLE_PERIOD * 11 / 10);
        }
}

static void test_nsec(void) {
        check(overhead_nsec(1000, 1000) == 0);
        check(overhead_nsec(1000, 1250) == 250);
        check(overhead_nsec(1000, 1000 + OVERHEAD_NSEC_MAX) == OVERHEAD_NSEC_MAX);
        check(overhead_nsec(1000, 1001 + OVERHEAD_NSEC_MAX) == 0);
        check(overhead_nsec(1000, 900) == 0);
}

int main(void) {
        test_period();
        test_programs();
        test_spread();
        test_nsec();
        return EXIT_SUCCESS;
}
