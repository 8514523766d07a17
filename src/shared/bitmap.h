/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Sets of small numbers. */

#include <stdbool.h>
#include <stdint.h>

/* Sets contain numbers below this: slots of units, and programs. */
#define BITMAP_CAPACITY 256U

typedef struct Bitmap {
        uint64_t words[BITMAP_CAPACITY / 64];
} Bitmap;

static inline void bitmap_add(Bitmap *b, unsigned n) {
        b->words[n / 64] |= UINT64_C(1) << n % 64;
}

static inline void bitmap_remove(Bitmap *b, unsigned n) {
        b->words[n / 64] &= ~(UINT64_C(1) << n % 64);
}

static inline bool bitmap_contains(const Bitmap *b, unsigned n) {
        return b->words[n / 64] >> n % 64 & 1;
}

/* Smallest number in the set that is not less than n; BITMAP_CAPACITY: none. */
static inline unsigned bitmap_next(const Bitmap *b, unsigned n) {
        for (; n < BITMAP_CAPACITY; n = (n / 64 + 1) * 64) {
                uint64_t bits = b->words[n / 64] >> n % 64;

                if (bits != 0)
                        return n + (unsigned) __builtin_ctzll(bits);
        }
        return BITMAP_CAPACITY;
}
