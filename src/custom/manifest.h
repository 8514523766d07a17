/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Reads the manifest of a custom probe, see qosd.probe(5), which may be hostile: no network, no DTD, no
 * entities of its own. Pure. */

#include <systemd/sd-json.h>

#include "custom-names.h"
#include "util.h"

/* Limit of the depth of elements. A manifest has four levels; libxml2 recurses. */
#define MANIFEST_DEPTH_MAX 16

/* Limits of the elements of a manifest. Each metric takes memory in each unit that is observed with the
 * probe. */
#define MANIFEST_METRICS_MAX 32U
#define MANIFEST_LABELS_MAX 3U
#define MANIFEST_VALUES_MAX 256U        /* named values of a label */
#define MANIFEST_PROGRAMS_MAX 32U

/* Limits of the length of texts: names are parts of names of metrics. */
#define MANIFEST_NAME_MAX 32U
#define MANIFEST_TEXT_MAX 256U

typedef struct ManifestError {
        unsigned line;          /* 0: unknown */
        char *message;
} ManifestError;

void manifest_error_done(ManifestError *e);

/* Whether it is the name of a probe, a metric or a label: a lower-case letter, then letters and digits. */
bool manifest_name_is_valid(const char *s);

/* Whether the name of a file is that of a manifest. Returns the name of the probe, or NULL. */
char* manifest_get_name(const char *path);

/* Returns the manifest as an object with fields of known types. -EINVAL: it is invalid, with ret_error. */
int manifest_parse(const char *text, size_t size, ManifestError *ret_error, sd_json_variant **ret);
