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

/* Longer than any sensible call: Subscribe() with the names of 256 units. */
#define VARLINK_MESSAGE_MAX (128U * 1024U)

/* The library reads all available data, and keeps its buffer until the connection ends: a client that has
 * once sent much at a time, in one message or in many, takes memory from then on. Up to this size it is
 * not counted: most clients send one message at a time. */
#define RECEIVED_SMALL (16U * 1024U)

/* Limit of the counted bytes of all users other than root together, as they may have thousands of
 * connections. A client that would exceed it is disconnected. */
#define RECEIVED_OTHERS_MAX (64U * 1024U * 1024U)

/* Limit of the time in which a client reads none of its replies. */
#define SLOW_READER_USEC (15 * USEC_PER_SEC)

/* Interval of log messages about clients that are refused. */
#define REFUSED_USEC (60 * USEC_PER_SEC)

typedef struct VarlinkIo VarlinkIo;

/* The connections of a server. */
typedef struct VarlinkIoSet {
        sd_event *event;
        TurnQueue *turns;
        VarlinkIo *touched;             /* those with output that was made outside of their turns */
        size_t received;                /* sum of what clients of users other than root have sent at once */
        unsigned n_refused;             /* clients that were disconnected for it and not logged yet */
        uint64_t refused_at;            /* time of the last log message, CLOCK_MONOTONIC usec; 0: none */
} VarlinkIoSet;

/* Called when it is the connection's turn. A negative value ends the connection. */
typedef int (*varlink_turn_handler_t)(void *userdata);

/* For a connection of a server; it is taken away from the library's own event sources. */
int varlink_io_new(VarlinkIoSet *set, sd_varlink *link, uid_t uid, varlink_turn_handler_t handler,
                   void *userdata, VarlinkIo **ret);

/* State of the user; NULL: root. */
TurnUser* varlink_io_get_user(const VarlinkIo *p);

/* Has the handler called at the connection's next turn, or the first one when all replies have been written.
 * False: that is still to come since the last time. */
bool varlink_io_want_turn(VarlinkIo *p, bool when_written);

/* Text that is kept once, for all connections that it is sent to. */
typedef struct VarlinkText VarlinkText;

VarlinkText* varlink_text_new(const char *s);
VarlinkText* varlink_text_unref(VarlinkText *t);

/* Sends a message that begins with one text and ends with another, which is copied. For replies that are
 * followed by more: the library does not learn of them, and must have nothing to write when they are sent.
 * What it is given later is written after them. */
int varlink_io_send(VarlinkIo *p, VarlinkText *begin, const char *end);

/* To be called when the link was given a reply from elsewhere than a method or a turn of the connection. */
void varlink_io_touch(VarlinkIo *p);

/* Writes as much of that, of all connections, as their sockets take, now and not when the loop comes to it.
 * May end connections. */
void varlink_io_flush_touched(VarlinkIoSet *set);

/* To be called when the connection ends, at the latest. */
VarlinkIo* varlink_io_free(VarlinkIo *p);
