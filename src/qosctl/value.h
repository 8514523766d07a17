/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Reading values out of what qosd sends. What is absent, or of another type than expected, is not there. */

#include <systemd/sd-json.h>

#include "util.h"

/* A metric's name is its path: "requests.server.latency.p99" goes down three objects. Keys may contain dots
 * themselves, as those in "totals" do. NULL if it is not there. */
sd_json_variant* value_find(sd_json_variant *v, const char *path);

const char* value_string(sd_json_variant *v, const char *path);
bool value_unsigned(sd_json_variant *v, const char *path, uint64_t *ret);
/* What a number has grown by since an earlier reading, of which there may be none; 0 if it is not there. */
uint64_t value_since(sd_json_variant *before, sd_json_variant *v, const char *path);
bool value_real(sd_json_variant *v, const char *path, double *ret);
bool value_boolean(sd_json_variant *v, const char *path);

/* Calls for each value that is no object, depth first, with its path. Stops at the first negative return. */
int value_walk(sd_json_variant *v, int (*each)(const char *path, sd_json_variant *value, void *userdata), void *userdata);

/* As scripts read it: no quotes, full precision. */
char* value_to_text(sd_json_variant *v);
