/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Distribution over time as a heatmap: time on the x axis, durations on the y axis. */

#include <systemd/sd-json.h>

#include "terminal.h"

/* Prints a reply to History(), which has buckets of the metric. plain: ASCII only. now: CLOCK_REALTIME ns.
 * Returns -EBADMSG or -ENOMEM. */
int heatmap_print(const Style *style, bool plain, sd_json_variant *reply, const char *metric, uint64_t now,
                  bool legend);
