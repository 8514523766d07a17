/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* GetManagedObjects(): sd-bus makes its reply in one go, some hundred microseconds for each unit, in which
 * nothing else is done. Here it is made in turns.
 *
 * The units are those of the first turn. One that is detached meanwhile is not in the reply, as the signal
 * InterfacesRemoved was sent before it; one that is attached meanwhile has its InterfacesAdded. */

#include "dbus-unit.h"

typedef struct ObjectsReply ObjectsReply;

/* Whether it is a call that the functions below reply to. */
bool objects_reply_is_for(sd_bus_message *call);

int objects_reply_new(DBusUnits *objects, Manager *m, sd_bus_message *call, ObjectsReply **ret);
ObjectsReply* objects_reply_free(ObjectsReply *r);

/* Adds objects until this time of CLOCK_MONOTONIC in ns, and sends the reply after the last one. 1: there
 * are more; a failure is sent, too. */
int objects_reply_continue(ObjectsReply *r, uint64_t end);

/* The unit is going to be freed. */
void objects_reply_forget(ObjectsReply *r, const Unit *u);
