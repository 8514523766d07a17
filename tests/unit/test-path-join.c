/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Segments of two hosts whose clocks differ (path-join.c), against the delays that they were made with. */

#include "check.h"
#include "network-map.h"
#include "path.h"
#include "util.h"

#define SAMPLES 300U

typedef struct Hosts {
        Segment here[3 * SAMPLES], there[3 * SAMPLES];
        size_t n_here, n_there;
} Hosts;

static void add(Segment *segments, size_t *n, unsigned kind, unsigned local, unsigned peer,
                uint32_t position, int64_t at) {
        segments[(*n)++] = (Segment) { kind, (uint16_t) local, (uint16_t) peer, position, at };
}

/* Delays of 10 ms there and 2 ms back, and up to 1 ms more; the other clock is ahead. */
static void make(Hosts *h, int64_t ahead) {
        *h = (Hosts) {};
        for (unsigned i = 0; i < SAMPLES; i++) {
                int64_t at = (int64_t) i * 1000000, more = (int64_t) (i * 7919 % 1000) * 1000;
                uint32_t position = UINT32_C(0xfffff000) + i * QOS_STAMP_SPACING;

                add(h->here, &h->n_here, QOS_STAMP_LEAVES, 1000, 80, position, at);
                add(h->there, &h->n_there, QOS_STAMP_ARRIVES, 80, 1000, position,
                    at + ahead + 10000000 + more);
                /* The same positions in the other direction */
                add(h->there, &h->n_there, QOS_STAMP_LEAVES, 80, 1000, position, at + ahead);
                add(h->here, &h->n_here, QOS_STAMP_ARRIVES, 1000, 80, position, at + 2000000 + more);
        }
}

static void test_bounds(void) {
        static const int64_t offsets[] = { 0, INT64_C(3000000000), INT64_C(-3000000000), 5000000 };

        for (size_t i = 0; i < ELEMENTSOF(offsets); i++) {
                int64_t lowest, highest, a, b;
                Way there, back;
                Hosts h;

                make(&h, offsets[i]);
                check(way_join(h.here, h.n_here, h.there, h.n_there, &there) == 0);
                check(way_join(h.there, h.n_there, h.here, h.n_here, &back) == 0);
                check(there.n == SAMPLES && back.n == SAMPLES);
                check(ways_get_offset(&there, &back, &lowest, &highest));
                check(lowest <= offsets[i] && offsets[i] <= highest);
                check(highest - lowest == 12000000);
                a = way_quantile(&there, 0.5);
                b = way_quantile(&back, 0.5);
                check(a + b >= 12900000 && a + b <= 13100000);
                check(a - highest <= 10500000 && 10500000 <= a - lowest);
                way_done(&there);
                way_done(&back);
        }
}

/* What was retransmitted, what the other side has not recorded, and other connections. */
static void test_left_out(void) {
        Segment here[8], there[8];
        size_t n = 0, m = 0;
        Way w;

        add(here, &n, QOS_STAMP_LEAVES, 1, 2, 1024, 10);
        add(here, &n, QOS_STAMP_LEAVES, 1, 2, 2048, 20);
        add(here, &n, QOS_STAMP_LEAVES, 1, 2, 3072, 30);
        add(here, &n, QOS_STAMP_RETRANSMITTED, 1, 2, 2048, 40);
        add(here, &n, QOS_STAMP_ARRIVES, 1, 2, 4096, 50);
        add(here, &n, QOS_STAMP_LEAVES, 1, 2, 5120, 60);
        add(here, &n, QOS_STAMP_LEAVES, 1, 2, 5120, 90);
        add(there, &m, QOS_STAMP_ARRIVES, 2, 1, 5120, 95);
        add(there, &m, QOS_STAMP_ARRIVES, 2, 1, 1024, 15);
        add(there, &m, QOS_STAMP_ARRIVES, 2, 1, 2048, 45);
        add(there, &m, QOS_STAMP_ARRIVES, 2, 1, 4096, 55);
        add(there, &m, QOS_STAMP_ARRIVES, 2, 3, 3072, 65);
        add(there, &m, QOS_STAMP_ARRIVES, 1, 2, 1024, 75);
        check(way_join(here, n, there, m, &w) == 0);
        check(w.n == 1 && w.differences[0] == 5);
        way_done(&w);
        check(way_join(here, 0, there, m, &w) == 0 && w.n == 0);
        way_done(&w);
}

/* A clock was set in between: there is no offset by which no delay is negative. */
static void test_step(void) {
        int64_t differences[2][2] = { { -10, 5 }, { -5, 7 } }, lowest, highest;
        Way there = { differences[0], 2 }, back = { differences[1], 2 };

        check(!ways_get_offset(&there, &back, &lowest, &highest));
}

int main(void) {
        test_bounds();
        test_left_out();
        test_step();
        return 0;
}
