/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Content negotiation by the headers of a request (RFC 9110, 12.5). */

#include "exposition.h"

/* Returns the format with the highest quality in an Accept header, or the one with the more specific entry
 * if the qualities are equal. Without a header (NULL), or if no format is acceptable, it is the text format
 * of Prometheus, as with the client libraries of Prometheus. */
Exposition negotiate_format(const char *accept);

/* Whether an Accept-Encoding header (NULL: none) accepts gzip. */
bool negotiate_gzip(const char *accept_encoding);
