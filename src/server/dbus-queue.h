/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Calls of all clients of the system bus arrive on one connection, in one order. They are read immediately,
 * and queued by sender: calls of root are dispatched on arrival, others when the sender has a turn
 * (turns.h). Calls of senders that have left the bus are dropped.
 *
 * The bus is queried for the user of each new sender. As the reply may arrive after calls of many others,
 * only calls of that sender wait for it. */

#include <systemd/sd-bus.h>
#include <systemd/sd-event.h>

#include "dbus-unit.h"

#define DBUS_NAME "org.freedesktop.DBus"
#define DBUS_PATH "/org/freedesktop/DBus"

typedef struct BusQueue BusQueue;

int bus_queue_new(Manager *m, DBusUnits *objects, sd_bus *bus, BusQueue **ret);
BusQueue* bus_queue_free(BusQueue *q);

/* The internal connection that dispatches calls. It has to have the same objects. */
sd_bus* bus_queue_get_bus(BusQueue *q);

/* To be called before the unit is freed. */
void bus_queue_forget_unit(BusQueue *q, const Unit *u);

/* The user of the sender of a call that is being dispatched. -ENXIO: unknown. */
int bus_queue_get_user(BusQueue *q, sd_bus_message *m, uid_t *ret);
