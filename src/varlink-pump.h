/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Moves the messages of one connection, in place of sd_varlink_attach_event(). That lets each client make us keep
 * 16 MiB of an unfinished message, and 16 MiB of replies that it does not read; and when the event loop ends it waits,
 * for as long as it takes, until all of them have read their replies. Here
 *
 *   - a message that is longer than VARLINK_MESSAGE_MAX ends the connection before it is all read;
 *   - no message is handled while the replies to the one before have not left;
 *   - who does not read these for UNREAD_USEC is cut off;
 *   - who cannot read any more is not served;
 *   - each connection with something to do makes one step, then all others have their turn;
 *   - the end of the event loop waits for nobody. */

#include <systemd/sd-event.h>
#include <systemd/sd-varlink.h>

#include "util.h"

/* Longer than any sensible call: Subscribe() with the names of 256 units. */
#define VARLINK_MESSAGE_MAX (128U * 1024U)

/* How long a client may leave all unread that there is for it. */
#define UNREAD_USEC (15 * USEC_PER_SEC)

typedef struct VarlinkPump VarlinkPump;

/* For a connection of a server; it is taken away from the library's own event sources. */
int varlink_pump_new(sd_event *event, sd_varlink *link, VarlinkPump **ret);

/* Writes as much of what there is to be written as the socket takes, now and not when the loop comes to it. May end the connection. Not
 * from within a method of it. */
void varlink_pump_flush(VarlinkPump *p);

/* To be called when the connection ends, at the latest. */
VarlinkPump* varlink_pump_free(VarlinkPump *p);
