/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Values as people write them, in qosd.conf and in thresholds. Pure. */

#include "util.h"

/* "10s", "1min 30s", "1.5ms"; a number without unit is seconds, as in systemd. -EINVAL; -ERANGE: longer than
 * can be told. */
int parse_time(const char *s, uint64_t *ret_nsec);

/* "0.5", "20", without a sign, and where it ends; not as strtod(), which knows more than people write. */
int parse_decimal(const char *s, const char **ret_end, double *ret);

/* Whether it is UTF-8 without control characters but tabs: what both buses, and JSON, take. */
bool text_is_valid(const char *s, size_t n);

/* Makes it so: "?" for each byte that is not. Names of files, sockets and threads may be any bytes, and
 * whoever cuts text off may do so in the midst of a letter. */
void utf8_sanitize(char *s);
