/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Parsers of values, and text functions. Pure. */

#include "util.h"

/* Parses "10s", "1min 30s", "1.5ms"; without unit in seconds, as in systemd. -EINVAL; -ERANGE: not
 * representable to the nanosecond. */
int parse_time(const char *s, uint64_t *ret_nsec);

/* Parses an unsigned decimal number such as "0.5" or "20". Unlike strtod(), does not accept exponents,
 * hexadecimal numbers, infinity and NaN. */
int parse_decimal(const char *s, const char **ret_end, double *ret);

/* Whether the text is UTF-8 without control characters other than tabs, as required by D-Bus, varlink and
 * JSON. */
bool text_is_valid(const char *s, size_t n);

/* Replaces invalid bytes by "?". Names of files, sockets and threads may have any bytes, or be truncated
 * within a character. */
void utf8_sanitize(char *s);

/* Damerau-Levenshtein distance: number of letters to insert, remove, replace or swap with the next one;
 * SIZE_MAX: b is longer than TEXT_DISTANCE_MAX. */
#define TEXT_DISTANCE_MAX 128U
size_t text_distance(const char *a, const char *b);

/* Maximum distance of the intended name from a mistyped one: two letters, but no more than a third. */
size_t text_distance_of_typo(const char *name);
