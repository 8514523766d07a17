/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Presentation of thresholds. */

#include <systemd/sd-json.h>

#include "client.h"
#include "terminal.h"

Color threshold_color(const char *state);

/* Returns the value as text in the kind of unit that the rule uses, "31.3ms"; "-" if it is absent. */
#define THRESHOLD_TEXT_MAX 64U
const char* threshold_value_text(sd_json_variant *threshold, const char *key,
                                 char buf[static THRESHOLD_TEXT_MAX]);

/* Calls ListThresholds(). unit: NULL for all. Returns the same as client_call_more(). */
int thresholds_list(Client *c, const char *unit, Replies *ret);
