/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Parser of the section [X-QoS] in unit files and drop-ins, ignored by the service manager: probes,
 * exclusions and thresholds of a unit. Pure, except for logging: invalid lines are reported with file and
 * line, and ignored. */

#include "exclude.h"
#include "probe-name.h"

/* As many as a unit may have, see threshold-monitor.h. */
#define XQOS_THRESHOLDS_MAX 32U

typedef struct XqosThreshold {
        char *line;                     /* value of Threshold= */
        char *name;
        char *origin;                   /* "/etc/systemd/system/nginx.service.d/qos.conf:3" */
} XqosThreshold;

/* Zeroed: empty. */
typedef struct XqosSection {
        ProbeMask probes;               /* 0: not set */
        ExcludeList excludes;
        XqosThreshold thresholds[XQOS_THRESHOLDS_MAX];
        size_t n_thresholds;
        unsigned n_ignored;             /* lines, or words of them, that are invalid */
} XqosSection;

void xqos_section_done(XqosSection *d);
#define _cleanup_xqos_section_ _cleanup_(xqos_section_done)

/* Adds the settings of a file, in the order of the service manager. An empty value resets a list; a
 * threshold replaces the one with the same name. Fails with -ENOMEM only. */
int xqos_section_read(XqosSection *d, const char *path, const char *text, size_t size);

/* Whether there are no settings: the unit is not to be observed. */
bool xqos_section_is_empty(const XqosSection *d);
