/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* qosd.conf and its drop-ins, see conf-file.h. */

#include "conf-file.h"
#include "unit.h"

typedef struct Config {
        unsigned units_max;                     /* UnitsMax=, 1 … 256, default 256 */
        bool observe_auto;                      /* Observe=, "auto" or "no", default no */
        char observe_file[CONF_PATH_MAX];       /* path of the file that sets Observe= */
        ProbeMask default_probes;               /* DefaultProbes=, default "requests cpu" */
        uint64_t default_window_nsec;           /* DefaultWindow=, default 10s */
        unsigned connections_per_uid_max;       /* ConnectionsPerUserMax=, varlink, default 128 (root:
                                                 * unlimited) */
        unsigned leases_per_uid_max;            /* LeasesPerUserMax=, default 64 */
        unsigned units_per_uid_max;             /* UnitsPerUserMax=: units kept attached by a user other than
                                                 * root, default 32 */
        uint64_t interval_min_usec;             /* IntervalMinSec=: shortest interval of a stream, default
                                                 * 100ms */
        unsigned minimum_samples;               /* MinimumSamples=: minimum of n * min(q, 1-q) for a quantile
                                                 * to be shown, default 5, at least 5 */
        uint64_t slow_operation_nsec;           /* SlowOperation=: duration from which on a call on a file is
                                                 * recorded as slow, default 10ms; 0: none */
        bool receive_timestamps;                /* ReceiveTimestamps=: have the kernel stamp packets when
                                                 * they arrive while a unit has the probe "network", default
                                                 * yes */
        unsigned custom_cost_max;               /* CustomCostMax=: percentage of a CPU above which a custom
                                                 * probe is unloaded, default 5; 0: never */
} Config;

void config_set_defaults(Config *c);

/* Parses all files into ret. Invalid lines are logged (file, line, reason) and ignored. root: directory
 * prefix for tests, normally "". Fails with -ENOMEM only. */
int config_load(const char *root, Config *ret);
