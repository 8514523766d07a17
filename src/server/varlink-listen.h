/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Listening sockets. The library would accept one connection per iteration of the event loop, in order of
 * arrival, so that a thousand connects of a user would precede those of root.
 *
 * Hence root has a socket with a backlog of its own, from which connections are accepted immediately. The
 * socket of all other users takes turns like a client (turns.h). */

#include "turns.h"

typedef struct VarlinkListener VarlinkListener;

/* turns: NULL: socket of root. accepted: called with each new connection, which it owns. fd: owned by the
 * listener, also on failure. */
int varlink_listener_new(sd_event *event, TurnQueue *turns, int fd,
                         void (*accepted)(int fd, void *userdata), void *userdata, VarlinkListener **ret);
VarlinkListener* varlink_listener_free(VarlinkListener *l);

/* Creates a listening socket, for when none was passed by the service manager. */
int varlink_listen_at(const char *path, mode_t mode);
