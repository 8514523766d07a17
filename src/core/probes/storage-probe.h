/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Storage maps of units, and the probe "storage". */

#include <systemd/sd-json.h>

#include "storage-window.h"

typedef struct Manager Manager;
typedef struct Unit Unit;

/* Of a unit. */
typedef struct UnitStorage {
        const union qos_storage_element *map; /* mapped read-only; NULL: none */
        uint64_t since;                 /* CLOCK_MONOTONIC ns of its creation */
        uint64_t watched_since;         /* CLOCK_MONOTONIC ns since when the unit is observed with the probe;
                                         * may be later than the creation */
        StorageCounts *base;            /* see StorageSources.before; NULL: nothing */
} UnitStorage;

/* To be called when probes or control groups of units have changed: creates and destroys storage maps, loads
 * and unloads programs. */
void storage_update(Manager *m);

/* Storage maps of the unit and its descendants; false: it is not observed with the probe. buffer:
 * UNITS_MAX_LIMIT elements. */
bool unit_get_storage_sources(const Unit *u, StorageSource *buffer, StorageSources *ret);

/* Moves the storage map of a retained unit that is attached again. */
void unit_adopt_storage(Unit *u, Unit *retained);

/* Adopts the storage map of the previous run. since: of the saved unit, 0: it had none; base: NULL or as
 * saved. If it is missing or invalid, a new one is created later. */
void unit_restore_storage(Unit *u, uint64_t since, uint64_t watched_since, sd_json_variant *base);

/* Serialization for the state file. */
int storage_base_to_json(const StorageCounts *base, sd_json_variant **ret);
