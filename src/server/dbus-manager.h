/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The D-Bus server: org.qosd1, its objects and signals, and LogControl1. */

#include "manager.h"

typedef struct BusServer BusServer;

/* Exports the objects on the system bus and requests the name, whenever the bus is connected. Failures are
 * logged and ignored. */
int bus_server_new(Manager *m, BusServer **ret);
BusServer* bus_server_free(BusServer *b);

/* For tests: exports the objects on a peer-to-peer connection, without requesting a name. */
int bus_server_new_peer(Manager *m, sd_bus *bus, BusServer **ret);
