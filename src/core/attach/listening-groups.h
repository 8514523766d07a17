/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The control groups in which TCP sockets listen, as sock_diag(7) lists them, in the network namespace in
 * which the descriptor was made: the service manager passes one of the host's, the daemon has its own. */

#include <stdint.h>

#include <systemd/sd-event.h>

typedef struct ListeningGroups ListeningGroups;

typedef struct ListeningHandlers {
        /* For each socket, until end */
        void (*group)(uint64_t id, void *userdata);
        /* error: negative if not all sockets were read */
        void (*end)(int error, void *userdata);
} ListeningHandlers;

/* The descriptor stays the caller's. */
int listening_groups_new(sd_event *event, int fd, const ListeningHandlers *handlers, void *userdata,
                         ListeningGroups **ret);
ListeningGroups* listening_groups_free(ListeningGroups *l);

/* Begins to read, a message of at most 32 KiB at a time. What was being read is given up. */
int listening_groups_read(ListeningGroups *l);
