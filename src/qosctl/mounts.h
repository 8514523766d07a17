/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <systemd/sd-json.h>

#include "table.h"

/* Table of storage.mounts of a snapshot, over that many ns. */
int mounts_print(sd_json_variant *mounts, uint64_t covered);

/* Adds a cell with the state that has the largest of these shares; NULL: they are not known. */
void mounts_add_state(Table *t, sd_json_variant *shares);
