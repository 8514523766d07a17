/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Asynchronous queries of polkit, for callers on D-Bus and varlink. */

#include <stdbool.h>

#include <systemd/sd-bus.h>
#include <systemd/sd-varlink.h>

typedef struct PolkitQuery PolkitQuery;

/* result: > 0: authorized; 0: denied; POLKIT_NEEDS_INTERACTION: denied without interactive authentication;
 * otherwise negative: polkit could not be queried, which callers treat as denied. */
#define POLKIT_NEEDS_INTERACTION (-EAGAIN)
typedef void (*polkit_handler_t)(int result, void *userdata);

typedef struct PolkitRequest {
        sd_bus *bus;
        const char *action;
        bool interactive;               /* the user may be prompted */
        polkit_handler_t handler;
        void *userdata;
} PolkitRequest;

/* Queries the authorization of the sender of a D-Bus message. uid: user of the sender. -EBUSY, here and
 * below: too many queries are pending, or too many of the user. */
int polkit_query_bus(const PolkitRequest *request, sd_bus_message *caller, uid_t uid, PolkitQuery **ret);

/* Queries the authorization of the peer of a varlink connection, by pidfd, without which it fails. */
int polkit_query_varlink(const PolkitRequest *request, sd_varlink *link, PolkitQuery **ret);

/* Cancels the query: the handler will not be called. */
PolkitQuery* polkit_query_free(PolkitQuery *q);
