/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "check.h"
#include "rising-bins.h"

#define BINS 12U
#define SAMPLES 400U

static uint64_t sum(const uint64_t *bins) {
        uint64_t n = 0;

        for (unsigned i = 0; i < BINS; i++)
                n += bins[i];
        return n;
}

static void export(uint64_t *before, const uint64_t *bins, uint64_t *ret) {
        uint64_t last[BINS];

        memcpy(last, before, sizeof(last));
        memcpy(ret, bins, sizeof(last));
        bins_raise(before, ret, BINS);
        for (unsigned i = 0; i < BINS; i++)
                check(ret[i] >= last[i]);
        check(memcmp(ret, before, sizeof(last)) == 0);
}

static void test_one_response(void) {
        uint64_t before[BINS] = {}, bins[BINS] = {}, out[BINS];

        bins[2] = 5;
        bins[3] = 1;
        export(before, bins, out);
        check(memcmp(out, bins, sizeof(bins)) == 0);

        /* It goes on: nothing is exported of that, for one more would be a sample too many */
        bins[3]--;
        bins[7]++;
        export(before, bins, out);
        check(out[3] == 1 && out[7] == 0 && sum(out) == 6);
        bins[7]--;
        bins[9]++;
        export(before, bins, out);
        check(out[3] == 1 && out[7] == 0 && out[9] == 0 && sum(out) == 6);

        /* A sample in the bin that it has left takes its place there */
        bins[3]++;
        export(before, bins, out);
        check(memcmp(out, bins, sizeof(bins)) == 0);
}

/* Responses begin, go on and end in any order, and are exported in between. */
static void test_any(void) {
        unsigned at[SAMPLES], n = 0;
        uint64_t before[BINS] = {}, bins[BINS] = {}, out[BINS];

        for (unsigned k = 0; k < 40000; k++) {
                unsigned what = (unsigned) rand() % 8;

                if (what == 0 && n < SAMPLES) {
                        at[n] = (unsigned) rand() % BINS;
                        bins[at[n++]]++;
                } else if (what < 5 && n > 0) {
                        unsigned i = (unsigned) rand() % n;

                        bins[at[i]]--;
                        at[i] += (unsigned) rand() % (BINS - at[i]);
                        bins[at[i]]++;
                } else if (what == 5) {
                        export(before, bins, out);
                        check(sum(out) == n);
                        /* A sample is exported with its duration or a shorter one */
                        for (unsigned i = 0; i < BINS; i++) {
                                uint64_t real = 0, exported = 0;

                                for (unsigned j = i; j < BINS; j++) {
                                        real += bins[j];
                                        exported += out[j];
                                }
                                check(exported <= real);
                        }
                }
        }

        /* When each bin has got as many again, the export is exact */
        for (unsigned i = 0; i < BINS; i++)
                bins[i] += SAMPLES;
        export(before, bins, out);
        check(memcmp(out, bins, sizeof(bins)) == 0);
}

/* A reading amid a move has the sample twice; the next one has not. */
static void test_torn(void) {
        uint64_t before[BINS] = {}, bins[BINS] = { [1] = 1 }, out[BINS];

        export(before, bins, out);
        bins[4] = 1;
        export(before, bins, out);
        check(sum(out) == 2);
        bins[1] = 0;
        export(before, bins, out);
        check(sum(out) == 2);
        bins[1] = 1;
        export(before, bins, out);
        check(sum(out) == 2 && memcmp(out, bins, sizeof(bins)) == 0);
}

int main(void) {
        srand(1);
        test_one_response();
        test_any();
        test_torn();
        return 0;
}
