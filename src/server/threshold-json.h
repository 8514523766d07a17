/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* JSON of thresholds, as in the varlink interface. */

#include "threshold-monitor.h"

/* peers: the client may see peers and paths; budgets: includes error budgets, which take readings. */
int threshold_to_json(const Threshold *t, bool peers, bool budgets, sd_json_variant **ret);
int threshold_event_to_json(const ThresholdEvent *e, bool peers, sd_json_variant **ret);
