/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* D-Bus objects of the attached units: org.qosd1.Unit and org.qosd1.Requests. */

#include "manager.h"

#define BUS_PATH "/org/qosd1"
#define BUS_UNIT_PATH BUS_PATH "/unit"
#define BUS_UNIT_INTERFACES "org.qosd1.Unit", "org.qosd1.Requests"

/* Element of the reply of ListThresholds(). */
#define BUS_THRESHOLD_SIGNATURE "a{sv}"

typedef struct DBusUnits DBusUnits;

/* bus: for signals. */
int unit_objects_new(Manager *m, sd_bus *bus, DBusUnits **ret);
/* Exports the objects on a bus. */
int unit_objects_add_to(DBusUnits *o, sd_bus *bus);
DBusUnits* unit_objects_free(DBusUnits *o);

/* While there are subscribers, the last values sent are stored for each unit, so that signals only have
 * values that have changed. */
void unit_objects_set_subscribed(DBusUnits *o, bool subscribed);

int unit_objects_emit_reading(DBusUnits *o, Unit *u);
int unit_objects_emit_unit(DBusUnits *o, Unit *u);
/* Emitted regardless of subscribers. */
int unit_objects_emit_crossed(DBusUnits *o, Unit *u, const ThresholdEvent *e);
int threshold_event_append(const ThresholdEvent *e, sd_bus_message *m);

/* Adds a unit's object, with all interfaces and properties, to the reply of GetManagedObjects(). */
int unit_objects_append(DBusUnits *o, Unit *u, sd_bus_message *m);

/* Adds the overview of the last reading, which is of this unit, to the signal Overview. */
int unit_objects_append_overview(DBusUnits *o, Unit *u, sd_bus_message *m);

/* Adds a unit's thresholds to the reply of ListThresholds(). */
int unit_append_thresholds(const Unit *u, sd_bus_message *m);

/* To be called before the unit is freed. */
void unit_objects_forget(DBusUnits *o, Unit *u);

int unit_get_bus_path(Unit *u, char **ret);
int append_probes(sd_bus_message *m, ProbeMask probes);
