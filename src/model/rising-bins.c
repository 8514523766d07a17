/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "rising-bins.h"

void bins_raise(uint64_t *before, uint64_t *bins, size_t n) {
        uint64_t excess = 0;

        for (size_t i = 0; i < n; i++) {
                if (bins[i] < before[i]) {
                        excess += before[i] - bins[i];
                        bins[i] = before[i];
                } else {
                        uint64_t withheld = MIN(bins[i] - before[i], excess);

                        bins[i] -= withheld;
                        excess -= withheld;
                }
                before[i] = bins[i];
        }
}
