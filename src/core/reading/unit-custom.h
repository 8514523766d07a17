/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Metrics of custom probes of a unit. */

#include "custom-metric.h"
#include "history.h"
#include "manager.h"

/* A window as an object of probes; NULL: the unit is observed with none. entries: with those of metrics that
 * have labels. */
int unit_custom_to_json(const Unit *u, uint64_t window, bool entries, sd_json_variant **ret);

/* CPUs that the probes have taken for the unit, by their names; NULL: that was not measured. */
int unit_custom_cost_to_json(const Unit *u, sd_json_variant **ret);

/* Value of "PROBE.METRIC" (custom-metric.h); NaN: there is none. */
double unit_get_custom_value(const Unit *u, const char *path, CustomField field, uint64_t now,
                             uint64_t window);

/* Adds what the maps have of a step that is over. */
void unit_fill_custom(const Unit *u, HistoryStep *s);

/* Totals of all custom probes as an array of ExportedCustom; NULL: the unit is observed with none. */
int unit_export_custom(const Unit *u, sd_json_variant **ret);
