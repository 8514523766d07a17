/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <assert.h>
#include <string.h>

#include "snapshot.h"

const Quantile quantile_table[QUANTILES] = {
        { "p50",  0.5,   offsetof(Distribution, p50)  },
        { "p90",  0.9,   offsetof(Distribution, p90)  },
        { "p95",  0.95,  offsetof(Distribution, p95)  },
        { "p99",  0.99,  offsetof(Distribution, p99)  },
        { "p999", 0.999, offsetof(Distribution, p999) },
};

/* Sets all bits, so that fields added later are absent, too. */
void distribution_set_absent(Distribution *d) {
        static_assert(ABSENT == UINT64_MAX && sizeof(Distribution) % sizeof(uint64_t) == 0,
                      "a member is not 64 bits wide");

        memset(d, 0xff, sizeof(*d));
}

const char* quality_to_string(Quality q) {
        static const char *const table[_QUALITY_MAX] = {
                [QUALITY_EXACT]       = "exact",
                [QUALITY_EXCHANGES]   = "exchanges",
                [QUALITY_PARTIAL]     = "partial",
                [QUALITY_OVERLAPPING] = "overlapping",
        };

        return table[q];
}
