/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Moves the messages of one connection, in place of sd_varlink_attach_event(). With the latter each client
 * can make the daemon keep 16 MiB of an incomplete message and 16 MiB of unread replies, and the end of the
 * event loop waits without a limit until all replies are read. Here
 *
 *   - a message that is longer than VARLINK_MESSAGE_MAX ends the connection before it is all read, and so
 *     does one that exceeds RECEIVED_OTHERS_MAX;
 *   - no message is handled while the replies to the one before have not left;
 *   - a client that does not read these for SLOW_READER_USEC is disconnected;
 *   - a client that cannot read any more is not served;
 *   - connections with something to do take turns (turns.h). Root's come first, and wait for nothing;
 *   - an idle connection has no cost when others are active;
 *   - the end of the event loop does not wait for clients. */

#include <systemd/sd-event.h>
#include <systemd/sd-varlink.h>

#include "turns.h"
#include "util.h"

/* Limit of the length of a message. The longest call is Subscribe() with the names of 256 units. */
#define VARLINK_MESSAGE_MAX (128U * 1024U)

/* The library reads all available data, and never shrinks its buffer: a client that has once sent much at a
 * time takes memory until it disconnects. Up to this size it is not counted, as most clients send one
 * message at a time. */
#define RECEIVED_SMALL (16U * 1024U)

/* Limit of the counted bytes of all users other than root together, as they may have thousands of
 * connections. A client that would exceed it is disconnected. */
#define RECEIVED_OTHERS_MAX (64U * 1024U * 1024U)

/* Time without reading replies after which a client is disconnected. */
#define SLOW_READER_USEC (15 * USEC_PER_SEC)

/* Interval of log messages about refused clients. */
#define REFUSED_USEC (60 * USEC_PER_SEC)

typedef struct VarlinkIo VarlinkIo;

/* The connections of a server. */
typedef struct VarlinkIoSet {
        sd_event *event;
        TurnQueue *turns;
        VarlinkIo *touched;             /* with output from outside of their turns */
        size_t received;                /* counted bytes of all users other than root */
        unsigned n_refused;             /* clients disconnected for it, not logged yet */
        uint64_t refused_at;            /* time of the last log message, CLOCK_MONOTONIC usec; 0: none */
} VarlinkIoSet;

/* Called when it is the connection's turn. A negative value ends the connection. */
typedef int (*varlink_turn_handler_t)(void *userdata);

/* Takes over the I/O of a connection of a server from the library's event sources. */
int varlink_io_new(VarlinkIoSet *set, sd_varlink *link, uid_t uid, varlink_turn_handler_t handler,
                   void *userdata, VarlinkIo **ret);

/* State of the user; NULL: root. */
TurnUser* varlink_io_get_user(const VarlinkIo *p);

/* Schedules a call of the handler in the connection's next turn, or in the first one after all replies were
 * written. False: it is scheduled already. */
bool varlink_io_want_turn(VarlinkIo *p, bool when_written);

/* Text that is shared by all connections that it is sent to. */
typedef struct VarlinkText VarlinkText;

VarlinkText* varlink_text_new(const char *s);
VarlinkText* varlink_text_unref(VarlinkText *t);

/* Sends a message consisting of two texts, the second of which is copied. For replies that are followed by
 * others: bypasses the library, which must not have output pending. Its later output is written
 * afterwards. */
int varlink_io_send(VarlinkIo *p, VarlinkText *begin, const char *end);

/* To be called after a reply outside of methods and turns of the connection. */
void varlink_io_touch(VarlinkIo *p);

/* Writes such replies of all connections immediately, as far as sockets take them. May free connections. */
void varlink_io_flush_touched(VarlinkIoSet *set);

/* To be called at the end of the connection, at the latest. */
VarlinkIo* varlink_io_free(VarlinkIo *p);
