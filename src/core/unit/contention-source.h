/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The contention map of a unit, as a part of the figures of its ancestors. */

#include "contention-window.h"
#include "manager.h"

/* For a unit with a contention map. */
ContentionSource unit_get_contention_source(const Unit *u);

/* A contention map is added to or removed from the sources of a unit: what it counted before being added is
 * not the unit's, and what it has counted by its removal remains. */
void unit_open_contention(Unit *u, const Unit *inner);
void unit_close_contention(Unit *u, const Unit *inner);
