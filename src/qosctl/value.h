/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Access to values in replies of qosd. Values of an unexpected type count as absent. */

#include <systemd/sd-json.h>

#include "util.h"

/* Finds a value by its path, "requests.server.latency.p99". Keys may contain dots, as in "totals". NULL:
 * absent. */
sd_json_variant* value_find(sd_json_variant *v, const char *path);

const char* value_string(sd_json_variant *v, const char *path);
bool value_unsigned(sd_json_variant *v, const char *path, uint64_t *ret);
/* Returns a time, which replies have in us, in ns since 1970. */
bool value_time(sd_json_variant *v, const char *path, uint64_t *ret);
/* Returns the growth of a number since an earlier reply (may be NULL); 0 if absent. */
uint64_t value_since(sd_json_variant *before, sd_json_variant *v, const char *path);
bool value_real(sd_json_variant *v, const char *path, double *ret);
bool value_boolean(sd_json_variant *v, const char *path);
/* Whether an array of strings (may be NULL) contains s. */
bool value_contains(sd_json_variant *array, const char *s);

/* Calls each for all values that are not objects, depth first, with their paths. Stops at the first negative
 * return value. */
int value_walk(sd_json_variant *v, int (*each)(const char *path, sd_json_variant *value, void *userdata),
               void *userdata);

/* Formats a value for scripts: without quotes, with full precision. The caller frees it; NULL: out of
 * memory. */
char* value_to_text(sd_json_variant *v);
