/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The quantiles of all distributions. To add one, add a line to QUANTILE_LIST, and one to
 * metrics/metric-types.xml. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Quantiles of all distributions, in ascending order: name of the field, label in texts, quantile. */
#define QUANTILE_LIST(X)                                                                                \
        X(p50, "p50", 0.5)                                                                              \
        X(p75, "p75", 0.75)                                                                             \
        X(p90, "p90", 0.9)                                                                              \
        X(p95, "p95", 0.95)                                                                             \
        X(p99, "p99", 0.99)                                                                             \
        X(p999, "p99.9", 0.999)

/* Distribution of a duration. count and max are set if the distribution is measured; mean if count is not 0;
 * a quantile q if count * min(q, 1-q) >= 5. */
typedef struct Distribution {
        uint64_t count;
        uint64_t mean;
#define QUANTILE_FIELD(name, label, q) uint64_t name;
        QUANTILE_LIST(QUANTILE_FIELD)
#undef QUANTILE_FIELD
        uint64_t max;
} Distribution;

typedef struct Quantile {
        const char *name;               /* name of the field, and last part of the metric's name: "p999" */
        const char *label;              /* in texts: "p99.9" */
        double q;
        size_t offset;                  /* in Distribution */
} Quantile;

#define QUANTILE_COUNT(name, label, q) + 1
#define QUANTILES (0 QUANTILE_LIST(QUANTILE_COUNT))
extern const Quantile quantile_table[QUANTILES];

/* Whether n samples have at least minimum_samples on either side of the quantile q. */
bool quantile_is_known(uint64_t n, double q, uint64_t minimum_samples);
/* Returns the minimum n for which quantile_is_known(). */
uint64_t quantile_get_samples_needed(double q, uint64_t minimum_samples);

void distribution_set_absent(Distribution *d);

static inline uint64_t distribution_get_quantile(const Distribution *d, const Quantile *quantile) {
        return *(const uint64_t*) ((const char*) d + quantile->offset);
}
