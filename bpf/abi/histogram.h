/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* The exponential grid of OpenTelemetry and of Prometheus' native histograms, for durations in nanoseconds.
 *
 * Schema 5: 32 buckets per power of two, bounds 2^(k/32), (lower, upper]: a bucket is 2.19 % wide, so its
 * middle is off by at most 1.09 %. Schema 3 has 8 per power of two, each made of four of schema 5.
 *
 * From 2^8 ns (256 ns: below that the clock itself is the measurement) to 2^36 ns (68.7 s). Bin 0 takes what
 * is not larger than 256 ns, the last one what is larger than 68.7 s. Compiled for BPF and for user
 * space. */

#include <linux/types.h>

#define HISTOGRAM_MIN_EXPONENT 8
#define HISTOGRAM_MAX_EXPONENT 36
#define HISTOGRAM_OCTAVES (HISTOGRAM_MAX_EXPONENT - HISTOGRAM_MIN_EXPONENT)

#define HISTOGRAM_FINE_SCHEMA 5
#define HISTOGRAM_FINE_BINS (HISTOGRAM_OCTAVES * 32 + 2)
#define HISTOGRAM_COARSE_SCHEMA 3
#define HISTOGRAM_COARSE_BINS (HISTOGRAM_OCTAVES * 8 + 2)

/* (2^(s/32) - 1) * 2^64, rounded down: where the buckets of one octave begin, as the bits behind the leading
 * one. A value of at most 37 bits is larger than a bound exactly if its bits are. */
static const __u64 histogram_bounds[33] = {
        0x0000000000000000ULL, 0x059b0d31585743aeULL, 0x0b5586cf9890f629ULL, 0x11301d0125b50a4eULL,
        0x172b83c7d517adcdULL, 0x1d4873168b9aa780ULL, 0x2387a6e75623866cULL, 0x29e9df51fdee12c2ULL,
        0x306fe0a31b7152deULL, 0x371a7373aa9caa71ULL, 0x3dea64c12342235bULL, 0x44e086061892d031ULL,
        0x4bfdad5362a271d4ULL, 0x5342b569d4f81df0ULL, 0x5ab07dd48542958cULL, 0x6247eb03a5584b1fULL,
        0x6a09e667f3bcc908ULL, 0x71f75e8ec5f73dd2ULL, 0x7a11473eb0186d7dULL, 0x82589994cce128acULL,
        0x8ace5422aa0db5baULL, 0x93737b0cdc5e4f45ULL, 0x9c49182a3f0901c7ULL, 0xa5503b23e255c8b4ULL,
        0xae89f995ad3ad5e8ULL, 0xb7f76f2fb5e46eaaULL, 0xc199bdd85529c222ULL, 0xcb720dcef9069150ULL,
        0xd5818dcfba48725dULL, 0xdfc97337b9b5eb96ULL, 0xea4afa2a490d9858ULL, 0xf50765b6e4540674ULL,
        0xffffffffffffffffULL,
};

/* How many of the bounds lie below each 64th of an octave. Buckets are wider than a 64th, so at most one
 * bound lies within one, and a single comparison decides. */
static const __u8 histogram_guess[64] = {
        0, 1, 2, 3, 3, 4, 5, 5, 6, 7, 7, 8, 8, 9, 10, 10, 11, 11, 12, 13, 13, 14, 14, 15, 15, 16, 16, 17, 17,
                18, 18, 19,
        19, 20, 20, 21, 21, 22, 22, 22, 23, 23, 24, 24, 25, 25, 26, 26, 26, 27, 27, 28, 28, 28, 29, 29, 30,
        30, 30, 31, 31, 31, 32, 32,
};

/* An index that the verifier believes. A comparison in C may be made with one copy of the value and the
 * access with another, reloaded from the stack, that has no bounds in the verifier's eyes; this bounds the
 * value itself. */
#ifdef __bpf__
#define BPF_BOUND(index, size)                                                                       \
        __asm__ volatile("if %0 < %1 goto +1\n\t%0 = 0" : "+r"(index) : "i"(size))
#else
#define BPF_BOUND(index, size) ((void) ((index) < (size) ? 0 : ((index) = 0)))
#endif

/* Choices without a branch: the verifier walks both ways of each branch, and remembers what was chosen in
 * either as long as that makes a difference. What the compiler does not see through it does not turn into
 * branches again. */
#ifdef __bpf__
#define BPF_OPAQUE(x) __asm__ volatile("" : "+r"(x))
#else
#define BPF_OPAQUE(x) ((void) (x))
#endif

/* The condition of a loop that ends by itself: true. The verifier walks a round or two of such a loop, where
 * it walks each of a loop with a constant bound; what it costs to run is a counter on the stack. Since Linux
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

/* All bits, if it is 0, else none. */
static inline __attribute__((always_inline)) __u64 histogram_if_zero(__u64 x) {
        __u64 negative = -x;

        BPF_OPAQUE(negative);
        return ((x | negative) >> 63) - 1;
}

/* The same if a < b; both are below 2^63. */
static inline __attribute__((always_inline)) __u64 histogram_if_less(__u64 a, __u64 b) {
        __u64 difference = a - b;

        BPF_OPAQUE(difference);
        return -(difference >> 63);
}

static inline __attribute__((always_inline)) __u64 histogram_choose(__u64 mask, __u64 yes, __u64 no) {
        return (yes & mask) | (no & ~mask);
}

/* In BPF a function of its own, which the verifier walks once and not at each of the places that call it.
 * Weak: each file of programs has one, the linked object the first. */
#ifdef __bpf__
#define BPF_SUBPROG __attribute__((noinline, weak))
#define BPF_REQUIRE(pointer) do { if (!(pointer)) return 0; } while (0) /* the verifier knows nothing of who
                                                                         * calls */
#else
#define BPF_SUBPROG static inline
#define BPF_REQUIRE(pointer)
#endif

/* The bin of schema 5 for a duration, 0 … HISTOGRAM_FINE_BINS - 1. */
BPF_SUBPROG __u32 histogram_fine_bin(__u64 nsec) {
        __u64 bits, n;
        __u32 exponent;

        if (nsec <= 1ULL << HISTOGRAM_MIN_EXPONENT)
                return 0;
        if (nsec > 1ULL << HISTOGRAM_MAX_EXPONENT)
                return HISTOGRAM_FINE_BINS - 1;

        /* The position of the leading one, by halving: BPF has no instruction for it */
        bits = nsec;
        exponent = 63;
        if (!(bits >> 32)) {
                bits <<= 32;
                exponent -= 32;
        }
        if (!(bits >> 48)) {
                bits <<= 16;
                exponent -= 16;
        }
        if (!(bits >> 56)) {
                bits <<= 8;
                exponent -= 8;
        }
        if (!(bits >> 60)) {
                bits <<= 4;
                exponent -= 4;
        }
        if (!(bits >> 62)) {
                bits <<= 2;
                exponent -= 2;
        }
        if (!(bits >> 63)) {
                bits <<= 1;
                exponent -= 1;
        }
        bits <<= 1;

        n = histogram_guess[bits >> 58];
        BPF_BOUND(n, 33); /* what the table holds is not known to the verifier */
        if (bits > histogram_bounds[n])
                n++;

        return (exponent - HISTOGRAM_MIN_EXPONENT) * 32 + n;
}

/* From the bin of schema 5 to that of schema 3. */
static inline __attribute__((always_inline)) __u32 histogram_coarse_bin(__u32 fine_bin) {
        if (fine_bin >= HISTOGRAM_FINE_BINS - 1)
                return HISTOGRAM_COARSE_BINS - 1;
        return (fine_bin + 3) / 4;
}
