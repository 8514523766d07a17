/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* A distribution over time as a picture: time from left to right, durations from top to bottom. */

#include <systemd/sd-json.h>

#include "terminal.h"

/* reply: of History, with the buckets of the metric. plain: nothing but ASCII, for pipes. now: CLOCK_REALTIME, ns. */
int heatmap_print(FILE *f, const Style *style, bool plain, sd_json_variant *reply, const char *metric, uint64_t now, bool legend);
