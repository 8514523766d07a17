/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Why the kernel has discarded packets of a unit. */

#include "network-window.h"

typedef struct Unit Unit;

/* Reasons by number of packets in descending order, then all others. ret: DROP_REASONS_MAX elements. Returns
 * their number; 0: none, or not known. */
size_t drop_reasons_fill(const Unit *u, const NetworkReading *reading, DropReason *ret);
