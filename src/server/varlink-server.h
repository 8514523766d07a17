/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The varlink side: org.qosd.QoS. */

#include "manager.h"

typedef struct VarlinkServer VarlinkServer;

/* Listens on the socket the service manager passed, else on /run/qosd/org.qosd.QoS. */
int varlink_server_new(Manager *m, VarlinkServer **ret);
VarlinkServer* varlink_server_free(VarlinkServer *v);

/* For tests: serve on an already connected socket, as the given event loop runs. */
int varlink_server_add_connection(VarlinkServer *v, int fd);
/* As varlink_server_new() but listens nowhere. */
int varlink_server_new_peer(Manager *m, VarlinkServer **ret);
