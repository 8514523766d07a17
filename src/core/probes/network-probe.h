/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Network maps of units, and the probe "network". */

#include <systemd/sd-json.h>

#include "network-window.h"

typedef struct Manager Manager;
typedef struct Unit Unit;

/* Of a unit. */
typedef struct UnitNetwork {
        const union qos_network_element *map; /* mapped read-only; NULL: none */
        uint64_t since;                 /* CLOCK_MONOTONIC ns of its creation */
        uint64_t watched_since;         /* CLOCK_MONOTONIC ns since when the unit is observed with the probe;
                                         * may be later than the creation */
        NetworkCounts *base;            /* see NetworkSources.before; NULL: nothing */
} UnitNetwork;

/* To be called when probes or control groups of units have changed: creates and destroys network maps, loads
 * and unloads programs. */
void network_update(Manager *m);

/* Network maps of the unit and its descendants; false: it is not observed with the probe. buffer:
 * UNITS_MAX_LIMIT elements. */
bool unit_get_network_sources(const Unit *u, NetworkSource *buffer, NetworkSources *ret);

/* Moves the network map of a retained unit that is attached again. */
void unit_adopt_network(Unit *u, Unit *retained);

/* Adopts the network map of the previous run. since: of the saved unit, 0: it had none; base: NULL or as
 * saved. If it is missing or invalid, a new one is created later. */
void unit_restore_network(Unit *u, uint64_t since, uint64_t watched_since, sd_json_variant *base);

/* Serialization for the state file. */
int network_base_to_json(const NetworkCounts *base, sd_json_variant **ret);
