/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Asynchronous queries to polkit, for callers on D-Bus and on varlink. */

#include <stdbool.h>

#include <systemd/sd-bus.h>
#include <systemd/sd-varlink.h>

typedef struct PolkitQuery PolkitQuery;

/* result: > 0 yes, 0 no (interaction could not help), -EINTERACTIVE-like: see below, other negative:
 * polkit could not be reached (treated as no by callers, with the reason logged once). */
#define POLKIT_NEEDS_INTERACTION (-EAGAIN)
typedef void (*polkit_handler_t)(int result, void *userdata);

typedef struct PolkitRequest {
        sd_bus *bus;
        const char *action;
        bool interactive;               /* the user may be prompted */
        polkit_handler_t handler;
        void *userdata;
} PolkitRequest;

/* Queries the authorization of the sender of a D-Bus message, which is this user's. -EBUSY, here and below:
 * too many queries wait for a reply, or too many of this user. */
int polkit_query_bus(const PolkitRequest *request, sd_bus_message *caller, uid_t uid, PolkitQuery **ret);

/* Queries that of the peer of a varlink connection, by pidfd (refused without one). */
int polkit_query_varlink(const PolkitRequest *request, sd_varlink *link, PolkitQuery **ret);

/* Forgets the query: the handler will not run (the caller went away). */
PolkitQuery* polkit_query_free(PolkitQuery *q);
