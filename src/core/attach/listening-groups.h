/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Control groups with listening TCP sockets, from sock_diag(7), in the network namespace in which the
 * descriptor was created: the service manager passes one of the host's, as the daemon has a namespace of its
 * own. */

#include <stdint.h>

#include <systemd/sd-event.h>

typedef struct ListeningGroups ListeningGroups;

typedef struct ListeningHandlers {
        /* Called for each socket, before end */
        void (*group)(uint64_t id, void *userdata);
        /* error: negative if the list is incomplete */
        void (*end)(int error, void *userdata);
} ListeningHandlers;

/* The descriptor remains owned by the caller. */
int listening_groups_new(sd_event *event, int fd, const ListeningHandlers *handlers, void *userdata,
                         ListeningGroups **ret);
ListeningGroups* listening_groups_free(ListeningGroups *l);

/* Starts reading, one message of at most 32 KiB at a time. Cancels a reading in progress. */
int listening_groups_read(ListeningGroups *l);
