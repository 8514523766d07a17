/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* Exponential histograms of durations on the grid of native histograms of Prometheus, and of exponential
 * ones of OpenTelemetry, in seconds.
 *
 * Schema 5: 32 buckets per power of two. Bucket i has the durations in (2^((i - 1)/32), 2^(i/32)] seconds. A
 * bucket is 2.19 % wide, hence the error of its middle is at most 1.09 %. Schema 3 has 8 buckets per power
 * of two, each the union of four of schema 5.
 *
 * The range is 2^-22 s (238 ns; below that the clock dominates) to 2^6 s (64 s). Bin k is bucket k - 704:
 * bin 0 ends at 2^-22 s and has all shorter durations, too; bin 896 ends at 2^6 s; the last bin has all
 * longer ones. In schema 3 bin k is bucket k - 176. Compiled for BPF and for user space. */

#include <linux/types.h>

/* Bounds of the range in seconds, as exponents of two */
#define HISTOGRAM_MIN_EXPONENT (-22)
#define HISTOGRAM_MAX_EXPONENT 6
#define HISTOGRAM_OCTAVES (HISTOGRAM_MAX_EXPONENT - HISTOGRAM_MIN_EXPONENT)

/* The same bounds in ns, rounded down to the last whole number within the bucket */
#define HISTOGRAM_MIN_NSEC 238ULL
#define HISTOGRAM_MAX_NSEC 64000000000ULL

#define HISTOGRAM_FINE_SCHEMA 5
#define HISTOGRAM_FINE_BINS (HISTOGRAM_OCTAVES * 32 + 2)
#define HISTOGRAM_COARSE_SCHEMA 3
#define HISTOGRAM_COARSE_BINS (HISTOGRAM_OCTAVES * 8 + 2)

/* 2^(HISTOGRAM_MAX_EXPONENT + s/32) s in ns, rounded down: the bounds of the octave above the range. Shifted
 * right by n, they are the bounds n octaves below. For a whole number x of ns, x << n exceeds a value of the
 * table exactly if x exceeds the unrounded bound n octaves below. */
static const __u64 histogram_bounds[33] = {
        64000000000ULL, 65401417513ULL, 66833522075ULL, 68296985643ULL, 69792494890ULL, 71320751526ULL,
        72882472624ULL, 74478390961ULL, 76109255360ULL, 77775831038ULL, 79478899972ULL, 81219261260ULL,
        82997731497ULL, 84815145162ULL, 86672355003ULL, 88570232445ULL, 90509667991ULL, 92491571646ULL,
        94516873340ULL, 96586523365ULL, 98701492826ULL, 100862774086ULL, 103071381244ULL, 105328350601ULL,
        107634741152ULL, 109991635079ULL, 112400138263ULL, 114861380800ULL, 117376517530ULL, 119946728583ULL,
        122573219929ULL, 125257223947ULL, 128000000000ULL,
};

/* Number of bounds below each 64th of an octave. A bucket is wider than a 64th, so at most one bound lies
 * within one, and a single comparison is enough. */
static const __u8 histogram_guess[64] = {
        0, 1, 2, 3, 3, 4, 5, 5, 6, 7, 7, 8, 8, 9, 10, 10, 11, 11, 12, 13, 13, 14, 14, 15, 15, 16, 16, 17, 17,
        18, 18, 19, 19, 20, 20, 21, 21, 22, 22, 22, 23, 23, 24, 24, 25, 25, 26, 26, 26, 27, 27, 28, 28, 28,
        29, 29, 30, 30, 30, 31, 31, 31, 32, 32,
};

/* Bounds an index for the verifier. After a comparison in C, the compiler may use another copy of the value,
 * reloaded from the stack, whose bounds the verifier does not know; the asm applies to the value itself. */
#ifdef __bpf__
#define BPF_BOUND(index, size)                                                                       \
        __asm__ volatile("if %0 < %1 goto +1\n\t%0 = 0" : "+r"(index) : "i"(size))
#else
#define BPF_BOUND(index, size) ((void) ((index) < (size) ? 0 : ((index) = 0)))
#endif

/* Hides a value from the compiler, so that arithmetic on masks is not turned back into branches: the
 * verifier walks both sides of each branch, with all states that differ. */
#ifdef __bpf__
#define BPF_OPAQUE(x) __asm__ volatile("" : "+r"(x))
#else
#define BPF_OPAQUE(x) ((void) (x))
#endif

/* Loop condition, always true. The verifier walks one or two iterations of a may_goto loop, as opposed to
 * every iteration of a loop with a constant bound. Costs a counter on the stack at run time. Since Linux
 * 6.9. */
#ifdef __bpf__
#define can_loop                                                                                      \
        ({                                                                                            \
                __label__ l_break, l_continue;                                                        \
                int go_on = 1;                                                                        \
                __asm__ volatile goto("may_goto %l[l_break]" :::: l_break);                           \
                goto l_continue;                                                                      \
        l_break:                                                                                      \
                go_on = 0;                                                                            \
        l_continue:;                                                                                  \
                go_on;                                                                                \
        })
#else
#define can_loop 1
#endif

/* ~0 if x is 0, else 0. */
static inline __attribute__((always_inline)) __u64 histogram_if_zero(__u64 x) {
        __u64 negative = -x;

        BPF_OPAQUE(negative);
        return ((x | negative) >> 63) - 1;
}

/* ~0 if a < b, else 0; both have to be below 2^63. */
static inline __attribute__((always_inline)) __u64 histogram_if_less(__u64 a, __u64 b) {
        __u64 difference = a - b;

        BPF_OPAQUE(difference);
        return -(difference >> 63);
}

static inline __attribute__((always_inline)) __u64 histogram_choose(__u64 mask, __u64 yes, __u64 no) {
        return (yes & mask) | (no & ~mask);
}

/* A global function in BPF, verified once instead of at each call site. Weak: every object has a copy, the
 * linker keeps the first. */
#ifdef __bpf__
#define BPF_SUBPROG __attribute__((noinline, weak))
/* The verifier assumes nothing about the arguments of a global function. */
#define BPF_REQUIRE(pointer) do { if (!(pointer)) return 0; } while (0)
#else
#define BPF_SUBPROG static inline
#define BPF_REQUIRE(pointer)
#endif

/* 2^50 / 10^9, rounded up. */
#define HISTOGRAM_UNITS_PER_NSEC 1125900ULL

/* The schema 5 bin of a duration, 0 … HISTOGRAM_FINE_BINS - 1. */
BPF_SUBPROG __u32 histogram_fine_bin(__u64 nsec) {
        __u64 bits, n;
        __u32 octaves;

        if (nsec <= HISTOGRAM_MIN_NSEC)
                return 0;
        if (nsec > HISTOGRAM_MAX_NSEC)
                return HISTOGRAM_FINE_BINS - 1;

        /* The duration in units of 2^-57 s, below 2^64, and up to 8.3e-8 of it too large. No bound is that
         * close above a multiple of a 64th of an octave. A duration that is rounded up to the next octave
         * has n = 0 there, which stands for the last bucket of its own octave. */
        bits = nsec * HISTOGRAM_UNITS_PER_NSEC << 7;

        /* Shifts the most significant bit to the top, by bisection: BPF has no instruction for it. From
         * 2^-22 s on there are at most 28 zeros. */
        octaves = 0;
        if (!(bits >> 48)) {
                bits <<= 16;
                octaves += 16;
        }
        if (!(bits >> 56)) {
                bits <<= 8;
                octaves += 8;
        }
        if (!(bits >> 60)) {
                bits <<= 4;
                octaves += 4;
        }
        if (!(bits >> 62)) {
                bits <<= 2;
                octaves += 2;
        }
        if (!(bits >> 63)) {
                bits <<= 1;
                octaves += 1;
        }
        bits <<= 1;

        n = histogram_guess[bits >> 58];
        BPF_BOUND(n, 33); /* the verifier does not know the contents of the table */
        if (nsec << octaves > histogram_bounds[n])
                n++;

        return (HISTOGRAM_OCTAVES - octaves) * 32 + n;
}

/* Converts a schema 5 bin to a lower schema, of which one bin is 2^steps of schema 5. The last bin remains
 * the last one. */
static inline __attribute__((always_inline)) __u32 histogram_merged_bin(__u32 fine_bin, __u32 steps) {
        return (fine_bin + (1U << steps) - 1) >> steps;
}

/* Converts a schema 5 bin to schema 3. */
static inline __attribute__((always_inline)) __u32 histogram_coarse_bin(__u32 fine_bin) {
        if (fine_bin >= HISTOGRAM_FINE_BINS - 1)
                return HISTOGRAM_COARSE_BINS - 1;
        return (fine_bin + 3) / 4;
}

/* Upper bound of a schema 5 bin other than the last one in ns, rounded down. */
static inline __u64 histogram_fine_bound(__u32 bin) {
        return histogram_bounds[bin % 32] >> (HISTOGRAM_OCTAVES - bin / 32);
}
