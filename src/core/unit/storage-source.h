/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The storage map of a unit, as a part of the figures of its ancestors. */

#include "manager.h"
#include "storage-window.h"

/* For a unit with a storage map. */
StorageSource unit_get_storage_source(const Unit *u);

/* A storage map is added to or removed from the sources of a unit: what it counted before being added is not
 * the unit's, and what it has counted by its removal remains. */
void unit_open_storage(Unit *u, const Unit *inner);
void unit_close_storage(Unit *u, const Unit *inner);
