/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Replaces names in replies of qosd, each by the same placeholder everywhere. */

#include <systemd/sd-json.h>

#include "util.h"

typedef struct Redaction {
        char **names;           /* in the order of their placeholders */
        size_t n;
        const char *const *kept; /* names that are not replaced, NULL terminated; not owned */
} Redaction;

void redaction_done(Redaction *r);
#define _cleanup_redaction_ _cleanup_(redaction_done)

/* Replaces addresses, paths, units and what is quoted in all strings of the object, and the values of fields
 * that are names. */
int redact_json(Redaction *r, sd_json_variant **v);

/* Replaces them in a text. Pure, but for the placeholders. */
int redact_text(Redaction *r, const char *text, char **ret);
