/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Limits of thresholds and their events. */

#include "util.h"

/* Per unit. An evaluation is a comparison, and per distinct window one reading per second, or ten. */
#define THRESHOLDS_PER_UNIT_MAX 32U

/* All units: eight for each. */
#define THRESHOLDS_MAX 2048U

/* Per user other than root, including pending conditions. */
#define THRESHOLDS_PER_UID_MAX 128U

/* Events per user other than root and period: all thresholds may change once. Further changes are
 * suppressed, and the resulting state is reported later. */
#define CROSSINGS_PER_UID_MAX THRESHOLDS_PER_UID_MAX
#define CROSSINGS_NSEC (10 * NSEC_PER_SEC)

/* Events kept for clients that reconnect, half a KiB each. */
#define THRESHOLD_EVENTS_MAX 1024U
