/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The varlink server: org.qosd.QoS. */

#include "manager.h"

typedef struct VarlinkServer VarlinkServer;

/* Listens on the socket passed by the service manager, otherwise on /run/qosd/org.qosd.QoS. */
int varlink_server_new(Manager *m, VarlinkServer **ret);
VarlinkServer* varlink_server_free(VarlinkServer *v);

/* For tests: serves a connected socket. */
int varlink_server_add_connection(VarlinkServer *v, int fd);
/* As varlink_server_new(), without listening. */
int varlink_server_new_peer(Manager *m, VarlinkServer **ret);
