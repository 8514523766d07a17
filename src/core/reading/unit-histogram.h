/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Distributions in contention, storage and network maps. */

#include "snapshot.h"

typedef struct OtherDistribution {
        const char *name;
        size_t offset;          /* in struct Metrics */
} OtherDistribution;

extern const OtherDistribution contention_distributions[QOS_CONTENTION_DISTRIBUTIONS];
extern const OtherDistribution storage_distributions[QOS_STORAGE_TIMED];
extern const OtherDistribution network_distributions[QOS_NETWORK_DISTRIBUTIONS];
