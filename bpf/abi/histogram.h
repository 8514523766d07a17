/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* Exponential histograms as in OpenTelemetry and Prometheus, for durations in nanoseconds.
 *
 * Schema 5: 32 buckets per power of two with bounds 2^(k/32), (lower, upper]. A bucket is 2.19 % wide, hence
 * the error of its middle is at most 1.09 %. Schema 3 has 8 buckets per power of two, each the union of four
 * of schema 5.
 *
 * The range is 2^8 ns (256 ns; below that the clock dominates) to 2^36 ns (68.7 s). Bin 0 has everything up
 * to 256 ns, the last bin everything above 68.7 s. Compiled for BPF and for user space. */

#include <linux/types.h>

#define HISTOGRAM_MIN_EXPONENT 8
#define HISTOGRAM_MAX_EXPONENT 36
#define HISTOGRAM_OCTAVES (HISTOGRAM_MAX_EXPONENT - HISTOGRAM_MIN_EXPONENT)

#define HISTOGRAM_FINE_SCHEMA 5
#define HISTOGRAM_FINE_BINS (HISTOGRAM_OCTAVES * 32 + 2)
#define HISTOGRAM_COARSE_SCHEMA 3
#define HISTOGRAM_COARSE_BINS (HISTOGRAM_OCTAVES * 8 + 2)

/* (2^(s/32) - 1) * 2^64, rounded down: lower bounds of the buckets of one octave, as the bits behind the
 * leading one. For values of at most 37 bits comparing these bits is exact. */
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

/* Number of bounds below each 64th of an octave. A bucket is wider than a 64th, so at most one bound lies
 * within one, and a single comparison is enough. */
static const __u8 histogram_guess[64] = {
        0, 1, 2, 3, 3, 4, 5, 5, 6, 7, 7, 8, 8, 9, 10, 10, 11, 11, 12, 13, 13, 14, 14, 15, 15, 16, 16, 17, 17,
                18, 18, 19,
        19, 20, 20, 21, 21, 22, 22, 22, 23, 23, 24, 24, 25, 25, 26, 26, 26, 27, 27, 28, 28, 28, 29, 29, 30,
        30, 30, 31, 31, 31, 32, 32,
};

/* Bounds an index for the verifier. The compiler may compare one copy of a value and use another, reloaded
 * from the stack, of which the verifier knows no bounds; the asm applies to the value itself. */
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
/* the verifier assumes nothing of the arguments of a global function */
#define BPF_REQUIRE(pointer) do { if (!(pointer)) return 0; } while (0)
#else
#define BPF_SUBPROG static inline
#define BPF_REQUIRE(pointer)
#endif

/* The schema 5 bin of a duration, 0 … HISTOGRAM_FINE_BINS - 1. */
BPF_SUBPROG __u32 histogram_fine_bin(__u64 nsec) {
        __u64 bits, n;
        __u32 exponent;

        if (nsec <= 1ULL << HISTOGRAM_MIN_EXPONENT)
                return 0;
        if (nsec > 1ULL << HISTOGRAM_MAX_EXPONENT)
                return HISTOGRAM_FINE_BINS - 1;

        /* Index of the most significant bit by bisection: BPF has no instruction for it */
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
        BPF_BOUND(n, 33); /* the verifier does not know the contents of the table */
        if (bits > histogram_bounds[n])
                n++;

        return (exponent - HISTOGRAM_MIN_EXPONENT) * 32 + n;
}

/* Converts a schema 5 bin to schema 3. */
static inline __attribute__((always_inline)) __u32 histogram_coarse_bin(__u32 fine_bin) {
        if (fine_bin >= HISTOGRAM_FINE_BINS - 1)
                return HISTOGRAM_COARSE_BINS - 1;
        return (fine_bin + 3) / 4;
}
