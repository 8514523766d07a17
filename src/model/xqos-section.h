/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Parser of the section [X-QoS] in unit files and drop-ins, ignored by the service manager: probes,
 * exclusions and thresholds of a unit, and the units that these start. Pure, except for logging: invalid
 * lines are reported with file and line, and ignored. */

#include "exclude.h"
#include "probe-name.h"

/* As THRESHOLDS_PER_UNIT_MAX. */
#define XQOS_THRESHOLDS_MAX 32U

/* Limit of units in OnViolated=, and in OnCleared=, so that a state change causes a few jobs only. */
#define XQOS_STARTS_MAX 8U

/* Events for which thresholds of a unit file may start units. */
typedef enum XqosEvent {
        XQOS_VIOLATED,                  /* a threshold is violated */
        XQOS_CLEARED,                   /* no threshold is violated any more */
        _XQOS_EVENT_MAX,
} XqosEvent;

const char* xqos_event_to_string(XqosEvent e);                  /* "violated", "cleared" */
XqosEvent xqos_event_from_string(const char *s);                /* _XQOS_EVENT_MAX: unknown name */

typedef struct XqosThreshold {
        char *line;                     /* value of Threshold= */
        char *name;
        char *origin;                   /* "/etc/systemd/system/nginx.service.d/qos.conf:3" */
} XqosThreshold;

/* Zeroed: empty. */
typedef struct XqosSection {
        ProbeMask probes;               /* 0: not set */
        bool never;                     /* Observe=no: not even by Observe=auto of qosd.conf */
        ExcludeList excludes;
        XqosThreshold thresholds[XQOS_THRESHOLDS_MAX];
        size_t n_thresholds;
        char *starts[_XQOS_EVENT_MAX][XQOS_STARTS_MAX]; /* for unit_name_expand() */
        size_t n_starts[_XQOS_EVENT_MAX];
        unsigned n_ignored;             /* number of invalid lines, or words of them */
} XqosSection;

void xqos_section_done(XqosSection *s);
#define _cleanup_xqos_section_ _cleanup_(xqos_section_done)

/* Adds the settings of a file, in the order of the service manager. An empty value resets a list; a
 * threshold replaces the one with the same name. Fails with -ENOMEM only. */
int xqos_section_read(XqosSection *s, const char *path, const char *text, size_t size);

/* Whether the unit is not to be observed: there are no settings, except for units to start. */
bool xqos_section_is_empty(const XqosSection *s);
