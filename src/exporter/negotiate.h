/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What a scraper takes, from the headers of its request (RFC 9110, 12.5). */

#include "exposition.h"

/* The format with the highest quality of an Accept header, the more specific one if two are equal. The text
 * format of Prometheus without a header (NULL), and where nothing that is offered is acceptable, as client
 * libraries of Prometheus do. */
Exposition negotiate_format(const char *accept);

/* Whether an Accept-Encoding header (NULL: none) takes gzip. */
bool negotiate_gzip(const char *accept_encoding);
