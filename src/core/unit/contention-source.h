/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The contention map of a unit as a source of its ancestors. */

#include "contention-window.h"
#include "manager.h"

/* For a unit with a contention map. */
ContentionSource unit_get_contention_source(const Unit *u);

/* Adds the contention map of inner to the sources of u, or removes it: counts from before it was added are
 * excluded, counts up to its removal are kept. */
void unit_open_contention(Unit *u, const Unit *inner);
void unit_close_contention(Unit *u, const Unit *inner);
