/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Limits of thresholds and their events. */

#include "util.h"

/* Limit for each unit. An evaluation takes a comparison and, for each distinct window, one to ten readings
 * per second. */
#define THRESHOLDS_PER_UNIT_MAX 32U

/* Limit of thresholds of all units together, eight for each on average. */
#define THRESHOLDS_MAX 2048U

/* Limit for each user other than root, including conditions that clients wait for. */
#define THRESHOLDS_PER_UID_MAX 128U

/* Limit of events for each user other than root in a period, so that each threshold may change once. Further
 * changes are suppressed, and the resulting state is reported later. */
#define CROSSINGS_PER_UID_MAX THRESHOLDS_PER_UID_MAX
#define CROSSINGS_NSEC (10 * NSEC_PER_SEC)

/* Number of events that are kept for clients that reconnect, half a KiB each. */
#define THRESHOLD_EVENTS_MAX 1024U
