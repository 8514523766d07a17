/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Finds custom probes by their files, and makes their names known (probe-name.h). */

#include "probe-name.h"

/* Directories of their files, the first one has precedence. NULL terminated. */
extern const char *const custom_directories[];

/* used: bits that keep their names, also if the files are gone. */
void custom_names_scan(ProbeMask used);
