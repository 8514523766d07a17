/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <systemd/sd-json.h>

#include "table.h"

/* Prints the table of storage.mounts of a snapshot. covered: time that the counters are of, in ns. Returns a
 * negative errno, which is logged. */
int mounts_print(sd_json_variant *mounts, uint64_t covered);

/* Adds a cell with the state with the largest share. shares: NULL if unknown. */
void mounts_add_state(Table *t, sd_json_variant *shares);
