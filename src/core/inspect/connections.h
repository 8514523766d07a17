/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* TCP connections of a unit, read on request. */

#include <systemd/sd-json.h>

#include "unit.h"

/* Connections in a reply: half a MiB of JSON. */
#define FLOWS_LISTED_MAX 1000U

/* By what they are sorted, in descending order. */
typedef enum ConnectionSort {
        CONNECTION_BY_QUEUED,           /* bytes in flight and unsent, the default */
        CONNECTION_BY_RETRANSMITS,
        CONNECTION_BY_RTT,
        CONNECTION_BY_BYTES,            /* sent and received */
        CONNECTION_BY_AGE,
        _CONNECTION_SORT_MAX,
} ConnectionSort;

#define CONNECTION_SORTS_EXPECTED "'queued', 'retransmits', 'rtt', 'bytes' or 'age'"

/* -EINVAL: there is no such key. */
int connection_sort_from_string(const char *s, ConnectionSort *ret);

/* A reading under way, in steps of well below a millisecond, as WaitsQuery. */
typedef struct ConnectionsQuery ConnectionsQuery;

/* -ENODATA: the unit is not observed with "network", or its connections cannot be listed. */
int connections_query_new(Unit *u, ConnectionSort sort, ConnectionsQuery **ret);
ConnectionsQuery* connections_query_free(ConnectionsQuery *q);
/* 0: it is complete. */
int connections_query_step(ConnectionsQuery *q, Unit *u);
/* Once it is complete; some connections at a time, 1: there are more. */
int connections_query_to_json(ConnectionsQuery *q, sd_json_variant **ret);
