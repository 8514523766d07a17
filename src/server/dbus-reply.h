/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Replies about all units, which would block the event loop for some dozen milliseconds, and are built in
 * turns: GetManagedObjects(), for which sd-bus takes some hundred microseconds per unit, and
 * ListThresholds() of all units.
 *
 * The units are those of the first turn. A unit that is detached meanwhile is omitted, as InterfacesRemoved
 * precedes the reply; one that is attached meanwhile has InterfacesAdded. */

#include "dbus-unit.h"

typedef struct UnitsReply UnitsReply;

/* Whether the functions below reply to this call. */
bool units_reply_is_for(sd_bus_message *call);

int units_reply_new(DBusUnits *objects, Manager *m, sd_bus_message *call, UnitsReply **ret);
UnitsReply* units_reply_free(UnitsReply *r);

/* Adds units until a time (CLOCK_MONOTONIC ns), and sends the reply after the last one. Returns 1 if there
 * are more. Failures are sent as well. */
int units_reply_continue(UnitsReply *r, uint64_t end);

/* To be called before the unit is freed. */
void units_reply_forget(UnitsReply *r, const Unit *u);
