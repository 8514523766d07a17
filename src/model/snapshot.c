/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "snapshot.h"

const char* quality_to_string(Quality q) {
        static const char *const table[_QUALITY_MAX] = {
                [QUALITY_EXACT]       = "exact",
                [QUALITY_EXCHANGES]   = "exchanges",
                [QUALITY_OVERLAPPING] = "overlapping",
        };

        return table[q];
}
