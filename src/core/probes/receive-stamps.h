/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Has the kernel stamp packets when they arrive, which it does while any socket requests it, and informs the
 * programs when the clock of these stamps is set. */

#include <errno.h>
#include <stdbool.h>

#include <systemd/sd-event.h>

typedef struct Manager Manager;

/* State of the manager. */
typedef struct ReceiveStamps {
        int fd;                         /* socket that requests stamps; -EBADF: none */
        int timer_fd;                   /* expires when the clock is set; -EBADF: not watched */
        sd_event_source *clock_set;
        bool wanted;                    /* a unit has the probe "network" */
} ReceiveStamps;

#define RECEIVE_STAMPS_INIT { .fd = -EBADF, .timer_fd = -EBADF }

/* To be called when units with the probe "network" come or go, and when the configuration has changed.
 * wanted: there is one. */
void receive_stamps_update(Manager *m, bool wanted);
