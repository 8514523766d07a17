/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The network map of a unit, as a part of the figures of its ancestors. */

#include "manager.h"
#include "network-window.h"

/* For a unit with a network map. */
NetworkSource unit_get_network_source(const Unit *u);

/* A network map is added to or removed from the sources of a unit: what it counted before being added is not
 * the unit's, and what it has counted by its removal remains. */
void unit_open_network(Unit *u, const Unit *inner);
void unit_close_network(Unit *u, const Unit *inner);
