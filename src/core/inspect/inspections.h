/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* State of inspections that is not that of a unit. */

#include "child-queue.h"
#include "evidence.h"

typedef struct Inspections {
        ChildQueue *children;           /* names of futexes are looked up in */
        SendCounts sends;
} Inspections;
