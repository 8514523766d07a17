/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Connection to the system bus, for PID 1 and for clients. */

#include <systemd/sd-bus.h>
#include <systemd/sd-event.h>

typedef struct Manager Manager;

typedef struct SystemBus {
        sd_bus *bus;                    /* NULL while disconnected */
        sd_event_source *reconnect;     /* timer for the next attempt, while disconnected */
} SystemBus;

/* Connects to the system bus, and reconnects when disconnected. */
int manager_connect_bus(Manager *m);
/* For tests: uses this bus as system bus. */
int manager_set_bus(Manager *m, sd_bus *bus);
void system_bus_done(SystemBus *b);
