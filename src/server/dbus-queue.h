/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Calls of all clients of the system bus arrive on one connection, in one order. They are read at once, and
 * wait here in a queue for each sender: those of root are made when they arrive, those of others when the
 * sender has a turn (turns.h), and those of senders that have left are dropped.
 *
 * The bus is queried for the user of each new sender. Its reply may arrive after all calls that others have
 * sent: only the calls of that sender wait for it. */

#include <systemd/sd-bus.h>
#include <systemd/sd-event.h>

#include "dbus-unit.h"

#define DBUS_NAME "org.freedesktop.DBus"
#define DBUS_PATH "/org/freedesktop/DBus"

typedef struct BusQueue BusQueue;

int bus_queue_new(Manager *m, DBusUnits *objects, sd_bus *bus, BusQueue **ret);
BusQueue* bus_queue_free(BusQueue *q);

/* The connection on which the calls are made: it needs the same objects. */
sd_bus* bus_queue_get_bus(BusQueue *q);

/* The unit is going to be freed. */
void bus_queue_forget_unit(BusQueue *q, const Unit *u);

/* The user of the sender of a call that is being made. -ENXIO: it is unknown. */
int bus_queue_get_user(BusQueue *q, sd_bus_message *m, uid_t *ret);
