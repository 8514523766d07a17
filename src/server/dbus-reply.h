/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Replies with something of each unit, which take some dozen milliseconds if they are made in one go, in
 * which nothing else is done: GetManagedObjects(), for which sd-bus takes some hundred microseconds a unit,
 * and ListThresholds() of all units. Here they are made in turns.
 *
 * The units are those of the first turn. One that is detached meanwhile is not in the reply, as the signal
 * InterfacesRemoved was sent before it; one that is attached meanwhile has its InterfacesAdded. */

#include "dbus-unit.h"

typedef struct UnitsReply UnitsReply;

/* Whether it is a call that the functions below reply to. */
bool units_reply_is_for(sd_bus_message *call);

int units_reply_new(DBusUnits *objects, Manager *m, sd_bus_message *call, UnitsReply **ret);
UnitsReply* units_reply_free(UnitsReply *r);

/* Adds units until this time of CLOCK_MONOTONIC in ns, and sends the reply after the last one. 1: there are
 * more; a failure is sent, too. */
int units_reply_continue(UnitsReply *r, uint64_t end);

/* The unit is going to be freed. */
void units_reply_forget(UnitsReply *r, const Unit *u);
