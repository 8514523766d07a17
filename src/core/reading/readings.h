/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* State of readings that is not that of a unit. */

#include "gauges.h"
#include "history-collector.h"
#include "mount-names.h"

typedef struct Readings {
        GaugeReadings gauges;
        HistoryCollector history;
        MountNames mount_names;
        unsigned n_queries;             /* of units that are not attached, waiting for PID 1 */
} Readings;
