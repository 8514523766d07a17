/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Maps of custom probes of a unit, as a part of the figures of its ancestors. i: number of the probe. */

#include "custom-window.h"
#include "manager.h"

/* For a unit with a map. */
CustomSource unit_get_custom_source(const Unit *u, unsigned i);

/* Adds what the map of inner has counted so far to what is subtracted from figures of u, or with times -1
 * removes it. */
void unit_add_custom(Unit *u, const Unit *inner, unsigned i, int times);

/* Maps are added to or removed from the sources of a unit, as unit_open_network(). */
void unit_open_custom(Unit *u, const Unit *inner);
void unit_close_custom(Unit *u, const Unit *inner);

/* Removes the maps of a unit. */
void unit_forget_custom(Unit *u);
