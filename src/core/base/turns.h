/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Which client the daemon serves next: clients of both buses take turns, so that none of them, no user, and
 * no person with many user ids, keeps root or others waiting.
 *
 *   - A turn is some hundred microseconds of work. Clients of one user take turns among themselves, and so
 *     do users.
 *   - The CPU time of a turn is charged to the user, which gets the next one after a multiple of it; and
 *     to all users other than root together, in the same way: user ids cost nothing, a user namespace has
 *     65536 of them. The multiples of the turns of one reply follow its last turn, up to a limit.
 *   - Root does not wait for others. */

#include <sys/types.h>

#include <systemd/sd-event.h>

#include "util.h"

/* Limit of the time of one turn. Longer than most calls take, so that these need one turn. */
#define TURN_NSEC (500 * NSEC_PER_USEC)

/* Limit of clients of one user other than root with unread replies in memory, up to some MiB each. At the
 * limit calls of other clients of the user wait. */
#define UNREAD_CONNECTIONS_MAX 8U

/* The same for all users other than root together. */
#define UNREAD_OTHERS_MAX 256U

/* Priority of event sources for root's messages: they are read once the current handler has returned. Their
 * processing has the priority of all others. */
#define PRIORITY_ROOT (SD_EVENT_PRIORITY_NORMAL - 1)

/* For connections that are not accepted yet: the user is not known. */
#define TURN_UID_UNKNOWN ((uid_t) -1)

typedef struct TurnQueue TurnQueue;
typedef struct Turn Turn;

/* Clients whose turns are limited together. */
typedef struct TurnUser {
        uid_t uid;
        unsigned n_turns;               /* clients that may have one */
        /* Kept by the varlink server */
        unsigned n_connections;
        unsigned n_streams;             /* of readings */
        bool reads_many;                /* a connection reads many units, or threads */
        uint64_t names_not_before;      /* when names may be searched again, CLOCK_MONOTONIC ns */

        unsigned n_unread;              /* clients that have replies which they do not take */
        uint64_t not_before;            /* CLOCK_MONOTONIC ns */
        const Turn *reply;              /* the client whose reply is unfinished, or NULL */
        uint64_t reply_nsec;            /* CPU time of it without a pause yet */
        Turn *first, *last;             /* clients with something to do, in the order of their turns */
        struct TurnUser *next;
} TurnUser;

/* Embedded in the struct of a client. */
struct Turn {
        TurnQueue *queue;               /* NULL: not initialised */
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
/* When there are no more clients. */
TurnQueue* turn_queue_free(TurnQueue *q);

/* handler: called when it is the client's turn. It may end the client. */
int turn_init(Turn *t, TurnQueue *q, uid_t uid, void (*handler)(void *userdata), void *userdata);
void turn_done(Turn *t);

/* Gives the client its next turn, if none is due already. */
int turn_request(Turn *t);
void turn_cancel(Turn *t);
bool turn_is_requested(const Turn *t);

/* Whether the user, and all others together, have no pause now. */
bool turn_may_begin(const Turn *t);

/* At the end of each turn: whether it has left a reply unfinished. */
void turn_set_reply(Turn *t, bool unfinished);

/* For work of a client outside of its turns, which began at cpu_begin of CLOCK_THREAD_CPUTIME_ID. */
void turn_charge(Turn *t, uint64_t cpu_begin);
/* The same for a user that may have no client. */
void turn_queue_charge(TurnQueue *q, uid_t uid, uint64_t nsec);

/* Whether the client has unread replies in memory. */
void turn_set_unread(Turn *t, bool unread);

/* NULL: the user is unknown. */
TurnUser* turn_queue_find_user(TurnQueue *q, uid_t uid);
