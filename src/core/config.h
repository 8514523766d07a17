/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* /etc/qosd.conf and the drop-ins in qosd.conf.d/ below /etc, /run and /usr/lib, as systemd reads its own: a
 * file in /etc hides one of the same name in /run, that one in /usr/lib; main file first, then drop-ins by
 * name. */

#include "unit.h"

typedef struct Config {
        unsigned units_max;                     /* UnitsMax=, 1 … 256, default 256 */
        ProbeMask default_probes;               /* DefaultProbes=, default "requests cpu" */
        uint64_t default_window_nsec;           /* DefaultWindow=, default 10s */
        unsigned connections_per_uid_max;       /* ConnectionsPerUserMax=, varlink, default 128 (root: no
                                                 * limit of ours) */
        unsigned leases_per_uid_max;            /* LeasesPerUserMax=, default 64 */
        unsigned units_per_uid_max;             /* UnitsPerUserMax=: units that one non-root uid keeps
                                                 * attached, default 32 */
        uint64_t interval_min_usec;             /* IntervalMinSec=: shortest interval of a stream, default
                                                 * 100ms */
        unsigned minimum_samples;               /* MinimumSamples=: n * min(q, 1-q) for a quantile to be
                                                 * shown, default 5, at least 5 */
} Config;

void config_set_defaults(Config *c);

/* Parses everything anew into ret. Bad lines are logged (file, line, reason) and ignored, the rest stays in
 * force. root: a directory prefix for tests, normally "". Fails only when memory runs out. */
int config_load(const char *root, Config *ret);
