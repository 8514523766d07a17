/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Endpoints and peers as metrics and as text. Pure. */

#include "metric.h"
#include "snapshot.h"

/* The figures of an endpoint or a peer as metrics; those that it has not are absent. */
void row_get_metrics(const Row *row, Metrics *ret);

/* The figures of one peer, or of all of them together, as those of the unit's client role. */
void row_get_client_role(const Row *row, ClientRole *ret);

/* "127.0.0.1:80", "[::1]:80", "*:80" */
#define ADDRESS_STRING_MAX 109  /* of a Unix socket's path */
const char* row_format_address(const Row *row, char buffer[static ADDRESS_STRING_MAX]);
