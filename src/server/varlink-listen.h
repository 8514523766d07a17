/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* A listening socket. The library accepts one connection for each iteration of the event loop, with the
 * priority of all I/O, so that a thousand connects of a user would come before those of root.
 *
 * Therefore root has a socket of its own, and with it a backlog in the kernel, from which connections are
 * accepted at once. The socket of all users takes turns like a client (turns.h). */

#include "turns.h"

typedef struct VarlinkListener VarlinkListener;

/* turns: NULL for the socket of root. accepted: gets a new connection, and owns it. fd: is owned by the
 * listener, also on failure. */
int varlink_listener_new(sd_event *event, TurnQueue *turns, int fd,
                         void (*accepted)(int fd, void *userdata), void *userdata, VarlinkListener **ret);
VarlinkListener* varlink_listener_free(VarlinkListener *l);

/* A socket where none was passed by the service manager. */
int varlink_listen_at(const char *path, mode_t mode);
