/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Sets of numbers, against an array of flags. */

#include <stdlib.h>

#include "bitmap.h"
#include "check.h"

static void check_equal(const Bitmap *b, const bool *flags) {
        unsigned next = bitmap_next(b, 0);

        for (unsigned i = 0; i < BITMAP_CAPACITY; i++) {
                check(bitmap_contains(b, i) == flags[i]);
                if (!flags[i])
                        continue;
                check(next == i);
                check(bitmap_next(b, i) == i);
                next = bitmap_next(b, i + 1);
        }
        check(next == BITMAP_CAPACITY);
}

int main(void) {
        bool flags[BITMAP_CAPACITY] = {};
        unsigned seed = 1;
        Bitmap b = {};

        check_equal(&b, flags);

        /* Each number alone: at both ends of all words, too */
        for (unsigned i = 0; i < BITMAP_CAPACITY; i++) {
                bitmap_add(&b, i);
                flags[i] = true;
                check_equal(&b, flags);
                bitmap_remove(&b, i);
                flags[i] = false;
        }

        for (unsigned i = 0; i < 10000; i++) {
                unsigned n = (unsigned) rand_r(&seed) % BITMAP_CAPACITY;

                flags[n] = rand_r(&seed) & 1;
                if (flags[n])
                        bitmap_add(&b, n);
                else
                        bitmap_remove(&b, n);
                check_equal(&b, flags);
        }
        return 0;
}
