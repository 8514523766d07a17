/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Last exported state of those distributions of a unit whose samples move between bins while a response is
 * sent. */

#include "unit-snapshot.h"

typedef struct ExportedBins ExportedBins;

/* See bins_raise(). Allocates *e in the first call. */
int exported_bins_raise(ExportedBins **e, uint64_t attached_since, TotalReading *total);
