/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Metrics of custom probes on D-Bus. */

#include <systemd/sd-bus.h>

#include "unit.h"

/* Adds them to a dictionary a{sv}, by name: "custom.PROBE.METRIC.FIELD". */
int append_custom_metrics(sd_bus_message *reply, const Unit *u, uint64_t window);
