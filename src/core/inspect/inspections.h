/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* State of inspections in the manager. */

#include "child-queue.h"
#include "evidence.h"

typedef struct Inspections {
        ChildQueue *children;           /* that look up names of futexes */
        SendCounts sends;
} Inspections;
