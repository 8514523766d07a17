/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Distributions of a unit as they were exported last: those whose samples move while a response goes on. */

#include "unit-snapshot.h"

typedef struct ExportedBins ExportedBins;

/* See bins_raise(). Allocates *e with the first call. After a restart of the daemon there is nothing to
 * compare with. */
int exported_bins_raise(ExportedBins **e, uint64_t attached_since, TotalReading *total);
