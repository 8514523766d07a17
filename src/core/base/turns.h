/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The order in which clients are served. Clients of D-Bus and varlink take turns, so that neither a client,
 * nor a user, nor a person with many user ids keeps root or others waiting.
 *
 *   - A turn is some hundred microseconds of work. Clients of one user take turns among themselves, and so
 *     do users.
 *   - After a turn the user pauses for a multiple of its CPU time. So do all users other than root
 *     together, as user ids are free: a user namespace has 65536 of them. The pauses of a reply that takes
 *     several turns follow the last one, up to a limit.
 *   - Root does not wait for others. */

#include <sys/types.h>

#include <systemd/sd-event.h>

#include "util.h"

/* Limit of the time of one turn. Most calls take less, and need one turn. */
#define TURN_NSEC (500 * NSEC_PER_USEC)

/* Limit of clients of one user other than root with unread replies in memory, up to some MiB each. At the
 * limit, calls of other clients of the user wait. */
#define UNREAD_CONNECTIONS_MAX 8U

/* The same for all users other than root together. */
#define UNREAD_OTHERS_MAX 256U

/* Priority of event sources for root's messages: they are read once the current handler has returned. Their
 * processing has the priority of all others. */
#define PRIORITY_ROOT (SD_EVENT_PRIORITY_NORMAL - 1)

/* User of connections that are not accepted yet. */
#define TURN_UID_UNKNOWN ((uid_t) -1)

typedef struct TurnQueue TurnQueue;
typedef struct Turn Turn;

/* Clients whose turns are limited together. */
typedef struct TurnUser {
        uid_t uid;
        unsigned n_turns;               /* clients */
        /* Maintained by the varlink server */
        unsigned n_connections;
        unsigned n_streams;             /* monitoring calls */
        bool reads_many;                /* a connection is reading many units, or threads */
        uint64_t names_not_before;      /* when names may be searched again, CLOCK_MONOTONIC ns */

        unsigned n_unread;              /* clients with unread replies in memory */
        uint64_t not_before;            /* CLOCK_MONOTONIC ns */
        const Turn *reply;              /* client with an unfinished reply; NULL: none */
        uint64_t reply_nsec;            /* CPU time of that reply that is not followed by a pause yet */
        Turn *first, *last;             /* queued clients, in the order of their turns */
        struct TurnUser *next;
} TurnUser;

/* Embedded in the struct of a client. */
struct Turn {
        TurnQueue *queue;               /* NULL: not initialized */
        TurnUser *user;                 /* NULL: root */
        sd_event_source *source;        /* root's next turn */
        void (*handler)(void *userdata);
        void *userdata;
        Turn *next;
        bool queued;
        bool unread;                    /* counted in n_unread */
};

int turn_queue_new(sd_event *event, TurnQueue **ret);
/* Whether a user other than root waits for a turn. */
bool turn_queue_is_busy(const TurnQueue *q);
/* To be called when there are no more clients. */
TurnQueue* turn_queue_free(TurnQueue *q);

/* handler: called when it is the client's turn. It may free the client. */
int turn_init(Turn *t, TurnQueue *q, uid_t uid, void (*handler)(void *userdata), void *userdata);
void turn_done(Turn *t);

/* Queues the client for a turn, unless it is queued already. */
int turn_request(Turn *t);
void turn_cancel(Turn *t);
bool turn_is_requested(const Turn *t);

/* Whether neither the user nor all users together are in a pause. */
bool turn_may_begin(const Turn *t);

/* To be called at the end of each turn. unfinished: the reply needs more turns. */
void turn_set_reply(Turn *t, bool unfinished);

/* Charges work for a client outside of its turns. cpu_begin: CLOCK_THREAD_CPUTIME_ID ns at its start. */
void turn_charge(Turn *t, uint64_t cpu_begin);
/* Charges a user, which may have no client. */
void turn_queue_charge(TurnQueue *q, uid_t uid, uint64_t nsec);

/* Sets whether the client has unread replies in memory. */
void turn_set_unread(Turn *t, bool unread);

/* NULL: the user is unknown. */
TurnUser* turn_queue_find_user(TurnQueue *q, uid_t uid);
