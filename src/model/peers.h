/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Endpoints and peers as metrics and as text. Pure. */

#include "metric.h"
#include "snapshot.h"

/* Metrics of an endpoint or a peer; others are absent. */
void row_get_metrics(const Row *row, Metrics *ret);

/* Metrics of one peer, or of the sum of all peers, as client role of the unit. */
void row_get_client_role(const Row *row, ClientRole *ret);

/* Formats "127.0.0.1:80", "[::1]:80", "*:80" or a path. */
#define ADDRESS_STRING_MAX 109  /* sun_path and NUL */
const char* row_format_address(const Row *row, char buffer[static ADDRESS_STRING_MAX]);
