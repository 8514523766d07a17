/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Parsers of values in qosd.conf and thresholds. Pure. */

#include "util.h"

/* "10s", "1min 30s", "1.5ms"; without unit in seconds, as in systemd. -EINVAL; -ERANGE: not representable to
 * the nanosecond. */
int parse_time(const char *s, uint64_t *ret_nsec);

/* An unsigned decimal number such as "0.5" or "20". Unlike strtod(), does not accept exponents, hexadecimal
 * numbers, infinity and NaN. */
int parse_decimal(const char *s, const char **ret_end, double *ret);

/* Whether the text is UTF-8 without control characters other than tabs, as required by D-Bus, varlink and
 * JSON. */
bool text_is_valid(const char *s, size_t n);

/* Replaces invalid bytes by "?". Names of files, sockets and threads may have any bytes, or be truncated
 * within a character. */
void utf8_sanitize(char *s);

/* How many letters to insert, remove, replace or swap with the next one make one of the other; SIZE_MAX: b
 * is longer than TEXT_DISTANCE_MAX. */
#define TEXT_DISTANCE_MAX 128U
size_t text_distance(const char *a, const char *b);

/* The largest distance of a name that was probably meant: up to two letters, and no more than a third. */
size_t text_distance_of_typo(const char *name);
