/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Changes of the states of thresholds, from the journal of this host. */

#include <systemd/sd-json.h>

#include "util.h"

/* More are left out, the oldest first. */
#define CROSSINGS_MAX 200U

/* Reads those of a unit between two times (ns since 1970), oldest first: an array of objects with timestamp
 * (us), name, state, and text as the journal has it. Entries that the user may not read are missing. */
int crossings_read(const char *unit, uint64_t since, uint64_t until, sd_json_variant **ret);
