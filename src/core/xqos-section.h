/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The section [X-QoS] of unit files and their drop-ins, which the service manager leaves alone: how a unit
 * is to be observed, and what it must not be beyond. Pure, but for what it logs: bad lines are named with
 * file and line, the rest stays in force. */

#include "exclude.h"
#include "unit.h"

/* As many as a unit may have, see threshold-monitor.h. */
#define XQOS_THRESHOLDS_MAX 32U

typedef struct XqosThreshold {
        char *line;                     /* as it is written, without "Threshold=" */
        char *name;
        char *origin;                   /* "/etc/systemd/system/nginx.service.d/qos.conf:3" */
} XqosThreshold;

/* All zeroes: nothing. */
typedef struct XqosSection {
        ProbeMask probes;               /* 0: not said */
        ExcludeList excludes;
        XqosThreshold thresholds[XQOS_THRESHOLDS_MAX];
        size_t n_thresholds;
} XqosSection;

void xqos_section_done(XqosSection *d);
#define _cleanup_xqos_section_ _cleanup_(xqos_section_done)

/* Adds what a file has, in the order in which the service manager reads them. An empty value forgets what
 * was there; a threshold replaces the one of its name. Fails only when memory runs out. */
int xqos_section_read(XqosSection *d, const char *path, const char *text, size_t size);

/* Whether the unit is to be observed. */
bool xqos_section_is_empty(const XqosSection *d);
