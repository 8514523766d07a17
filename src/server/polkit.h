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

/* Queries the authorization of the sender of a D-Bus message, which is this user's; interactive if the
 * message allows that. -EBUSY, here and below: too many queries wait for a reply, or too many of this
 * user. */
int polkit_query_bus(sd_bus *bus, sd_bus_message *caller, uid_t uid, const char *action,
                     polkit_handler_t handler, void *userdata, PolkitQuery **ret);

/* Queries that of the peer of a varlink connection, by pidfd (refused without one). */
int polkit_query_varlink(sd_bus *bus, sd_varlink *link, const char *action, bool interactive,
                         polkit_handler_t handler, void *userdata, PolkitQuery **ret);

/* Forgets the query: the handler will not run (the caller went away). */
PolkitQuery* polkit_query_free(PolkitQuery *q);
