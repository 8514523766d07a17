/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The objects of the attached units on D-Bus: org.qosd1.Unit and org.qosd1.Requests. */

#include "manager.h"

#define BUS_PATH "/org/qosd1"
#define BUS_UNIT_PATH BUS_PATH "/unit"
#define BUS_UNIT_INTERFACES "org.qosd1.Unit", "org.qosd1.Requests"

/* Elements of the reply of ListThresholds(). */
#define BUS_THRESHOLD_SIGNATURE "a{sv}"

typedef struct DBusUnits DBusUnits;

/* bus: where signals are sent. */
int unit_objects_new(Manager *m, sd_bus *bus, DBusUnits **ret);
/* Shows them on this bus. */
int unit_objects_add_to(DBusUnits *o, sd_bus *bus);
DBusUnits* unit_objects_free(DBusUnits *o);

/* While there are subscribers, the values sent of each unit are kept, so that signals have only values
 * that differ. */
void unit_objects_set_subscribed(DBusUnits *o, bool subscribed);

int unit_objects_emit_reading(DBusUnits *o, Unit *u);
int unit_objects_emit_unit(DBusUnits *o, Unit *u);
/* Always, also without subscribers. */
int unit_objects_emit_crossed(DBusUnits *o, Unit *u, const ThresholdEvent *e);

/* Adds a unit's object, with all interfaces and properties, to the reply of GetManagedObjects(). */
int unit_objects_append(DBusUnits *o, Unit *u, sd_bus_message *m);

/* Adds a unit's thresholds to the reply of ListThresholds(). */
int unit_append_thresholds(const Unit *u, sd_bus_message *m);

/* The unit is going to be freed. */
void unit_objects_forget(DBusUnits *o, Unit *u);

int unit_get_bus_path(Unit *u, char **ret);
int append_probes(sd_bus_message *m, ProbeMask probes);
