/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* JSON of thresholds and holds, as in the varlink interface. */

#include "snapshot-json.h"
#include "threshold-monitor.h"
#include "unit.h"

/* peers: whether the client may see these, and paths; budgets: with what takes readings. */
int threshold_to_json(const Threshold *a, bool peers, bool budgets, sd_json_variant **ret);
int threshold_event_to_json(const ThresholdEvent *e, bool peers, sd_json_variant **ret);

/* As "holds". now: CLOCK_BOOTTIME, in usec */
void holds_write(const Unit *u, uint64_t now, JsonWriter *w);
