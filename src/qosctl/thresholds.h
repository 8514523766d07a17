/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* How thresholds are shown. */

#include <systemd/sd-json.h>

#include "client.h"
#include "terminal.h"

Color threshold_color(const char *state);

/* "31.3ms", "-" if there is none, in the unit in which the threshold is written. */
#define THRESHOLD_TEXT_MAX 64U
const char* threshold_value_text(sd_json_variant *threshold, const char *key,
                                 char buf[static THRESHOLD_TEXT_MAX]);

/* unit: NULL for all */
int thresholds_list(Client *c, const char *unit, Replies *ret);
