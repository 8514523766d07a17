/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <assert.h>
#include <math.h>
#include <string.h>

#include "quantiles.h"
#include "util.h"

const Quantile quantile_table[QUANTILES] = {
#define QUANTILE_ROW(name, label, q) { #name, label, q, offsetof(Distribution, name) },
        QUANTILE_LIST(QUANTILE_ROW)
};

/* + 1e-9 as 0.1 * 50 may be slightly less than 5 */
bool quantile_is_known(uint64_t n, double q, uint64_t minimum_samples) {
        return n * fmin(q, 1 - q) + 1e-9 >= minimum_samples;
}

/* - 1e-6 as 5 / 0.1 may be slightly more than 50 */
uint64_t quantile_get_samples_needed(double q, uint64_t minimum_samples) {
        return (uint64_t) ceil(minimum_samples / fmin(q, 1 - q) - 1e-6);
}

/* Sets all bits, which includes fields that are added later. */
void distribution_set_absent(Distribution *d) {
        static_assert(ABSENT == UINT64_MAX && sizeof(Distribution) % sizeof(uint64_t) == 0,
                      "a member is not 64 bits wide");

        memset(d, 0xff, sizeof(*d));
}
