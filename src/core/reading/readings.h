/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* State of readings in the manager. */

#include "gauges.h"
#include "history-collector.h"
#include "mount-names.h"

typedef struct Readings {
        GaugeReadings gauges;
        HistoryCollector history;
        MountNames mount_names;
        unsigned n_queries;             /* queries of unattached units that wait for PID 1 */
} Readings;
