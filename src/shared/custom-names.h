/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Finds custom probes by their files, and makes their names known (probe-name.h). */

#include "probe-name.h"

/* Directories of their files, the first one has precedence. NULL terminated. */
extern const char *const custom_directories[];

/* Limit of the size of a manifest: 32 metrics with a hundred named values each fit. */
#define CUSTOM_MANIFEST_SIZE_MAX (64U * 1024U)

/* Limit of the size of an object file. That of qosd itself, with all of its programs and debug information,
 * has 2 MiB. */
#define CUSTOM_OBJECT_SIZE_MAX (4U << 20)

/* used: bits that keep their names, also if the files are gone. */
void custom_names_scan(ProbeMask used);
