/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The section [X-QoS] of unit files and their drop-ins, which the service manager leaves alone: how a unit is to be observed, and what
 * it must not be beyond. Pure, but for what it logs: bad lines are named with file and line, the rest stays in force. */

#include "exclude.h"
#include "unit.h"

/* As many as a unit may have, see threshold-monitor.h. */
#define DECLARED_THRESHOLDS_MAX 32U

typedef struct DeclaredThreshold {
        char *line;                     /* as it is written, without "Threshold=" */
        char *name;
        char *origin;                   /* "/etc/systemd/system/nginx.service.d/qos.conf:3" */
} DeclaredThreshold;

/* All zeroes: nothing. */
typedef struct Declaration {
        ProbeMask probes;               /* 0: not said */
        ExcludeList excludes;
        DeclaredThreshold thresholds[DECLARED_THRESHOLDS_MAX];
        size_t n_thresholds;
} Declaration;

void declaration_done(Declaration *d);
#define _cleanup_declaration_ _cleanup_(declaration_done)

/* Adds what a file has, in the order in which the service manager reads them. An empty value forgets what was there; a threshold
 * replaces the one of its name. Fails only when memory runs out. */
int declaration_read(Declaration *d, const char *path, const char *text, size_t size);

/* Whether the unit is to be observed. */
bool declaration_is_empty(const Declaration *d);
