/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Holds of a unit, and their combined probes and exclusions. */

#include "manager.h"

bool hold_is(const Hold *h, HoldType type, const void *lease_key, uid_t owner_uid);
void unit_apply_excludes(Unit *u);
void hold_free(Hold *h);
Hold* unit_find_hold(Unit *u, HoldType type, const void *lease_key, uid_t owner_uid);
/* The hold of [X-QoS]; NULL: none, or u is NULL. */
Hold* unit_find_file_hold(const Unit *u);
unsigned manager_count_units(Manager *m, uid_t uid);
/* Whether root has one of the holds. */
bool unit_is_held_by_root(const Unit *u);
