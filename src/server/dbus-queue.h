/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Calls of all clients on the system bus come on one connection, in one order. They are taken off it at
 * once, and wait here, for each sender apart: those of root are made when they come, those of others when
 * the sender has a turn (turns.h), and those of senders that have left are dropped.
 *
 * The bus is queried for the user of each new sender. Its reply may stand behind all that others have sent:
 * nothing waits for it but the calls of that sender. */

#include <systemd/sd-bus.h>
#include <systemd/sd-event.h>

#include "turns.h"

#define DBUS_NAME "org.freedesktop.DBus"
#define DBUS_PATH "/org/freedesktop/DBus"

typedef struct BusQueue BusQueue;

int bus_queue_new(sd_event *event, TurnQueue *turns, sd_bus *bus, BusQueue **ret);
BusQueue* bus_queue_free(BusQueue *q);

/* On which the calls are made: it needs the same objects. */
sd_bus* bus_queue_get_bus(BusQueue *q);

/* Of the sender of a call that is being made. */
int bus_queue_get_user(BusQueue *q, sd_bus_message *m, uid_t *ret);
