/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Which units have a book of contention, and what threads are in it. */

#include "contention-window.h"
#include "manager.h"

/* The probes whose figures are in the book of contention. */
#define PROBES_CONTENTION (PROBE_CPU | PROBE_BLOCK | PROBE_MEMORY)

/* What units are watched with has changed, or which control groups are whose: makes and closes books, loads
 * and unloads the programs, looks for threads. */
void contention_update(Manager *m);

/* Before the programs are unloaded for good. */
void contention_stop(Manager *m);

/* Its own book and those of the units in it; false: it is not watched. buffer: of UNITS_MAX_LIMIT. */
bool unit_get_contention_sources(const Unit *u, ContentionSource *buffer, ContentionSources *ret);

/* A book becomes part of a unit's figures, or no longer is: what it has counted before is not the unit's,
 * and what it had counted by now is. */
void unit_open_contention(Unit *u, const Unit *inner);
void unit_close_contention(Unit *u, const Unit *inner);

/* The unit takes over the book of one that was detached and is in other units' figures still. */
void unit_adopt_contention(Unit *u, Unit *closed);

/* For a restart of qosd. */
int contention_base_to_json(const ContentionCounts *base, sd_json_variant **ret);
int contention_base_from_json(sd_json_variant *v, ContentionCounts *ret);
