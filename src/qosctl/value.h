/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Access to values in replies of qosd. Values that are absent or of unexpected type are not found. */

#include <systemd/sd-json.h>

#include "util.h"

/* Gets a value by path: "requests.server.latency.p99" descends three objects. Keys may contain dots, as
 * those in "totals". NULL: not found. */
sd_json_variant* value_find(sd_json_variant *v, const char *path);

const char* value_string(sd_json_variant *v, const char *path);
bool value_unsigned(sd_json_variant *v, const char *path, uint64_t *ret);
/* Gets a time, in microseconds in replies, as nanoseconds since 1970. */
bool value_time(sd_json_variant *v, const char *path, uint64_t *ret);
/* Growth of a number since an earlier reply (may be NULL); 0 if not found. */
uint64_t value_since(sd_json_variant *before, sd_json_variant *v, const char *path);
bool value_real(sd_json_variant *v, const char *path, double *ret);
bool value_boolean(sd_json_variant *v, const char *path);
/* Whether an array of strings (may be NULL) has this one. */
bool value_contains(sd_json_variant *array, const char *s);

/* Calls each for all values that are not objects, depth first, with their paths. Stops at the first negative
 * return value. */
int value_walk(sd_json_variant *v, int (*each)(const char *path, sd_json_variant *value, void *userdata),
               void *userdata);

/* Formats a value for scripts: without quotes, in full precision. */
char* value_to_text(sd_json_variant *v);
