/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "varlink-io.systemd.Metrics.h"

static SD_VARLINK_DEFINE_ENUM_TYPE(
                MetricFamilyType,
                SD_VARLINK_FIELD_COMMENT("A value that never falls"),
                SD_VARLINK_DEFINE_ENUM_VALUE(counter),
                SD_VARLINK_FIELD_COMMENT("A value that rises and falls"),
                SD_VARLINK_DEFINE_ENUM_VALUE(gauge),
                SD_VARLINK_FIELD_COMMENT("A string"),
                SD_VARLINK_DEFINE_ENUM_VALUE(string));

static SD_VARLINK_DEFINE_ERROR(NoSuchMetric);

/* The value is a number. It is declared as an object, as in systemd 260, because earlier versions have no
 * type for arbitrary values. */
static SD_VARLINK_DEFINE_METHOD_FULL(
                List,
                SD_VARLINK_REQUIRES_MORE,
                SD_VARLINK_FIELD_COMMENT("The name of the metric family"),
                SD_VARLINK_DEFINE_OUTPUT(name, SD_VARLINK_STRING, 0),
                SD_VARLINK_FIELD_COMMENT("The value"),
                SD_VARLINK_DEFINE_OUTPUT(value, SD_VARLINK_OBJECT, 0),
                SD_VARLINK_FIELD_COMMENT("The unit"),
                SD_VARLINK_DEFINE_OUTPUT(object, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                SD_VARLINK_FIELD_COMMENT("Distinguishes metrics of one family and unit"),
                SD_VARLINK_DEFINE_OUTPUT(fields, SD_VARLINK_OBJECT, SD_VARLINK_NULLABLE));

static SD_VARLINK_DEFINE_METHOD_FULL(
                Describe,
                SD_VARLINK_REQUIRES_MORE,
                SD_VARLINK_FIELD_COMMENT("The name of the metric family"),
                SD_VARLINK_DEFINE_OUTPUT(name, SD_VARLINK_STRING, 0),
                SD_VARLINK_FIELD_COMMENT("Its description"),
                SD_VARLINK_DEFINE_OUTPUT(description, SD_VARLINK_STRING, 0),
                SD_VARLINK_FIELD_COMMENT("Its type"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(type, MetricFamilyType, 0));

SD_VARLINK_DEFINE_INTERFACE(
                io_systemd_Metrics,
                "io.systemd.Metrics",
                SD_VARLINK_INTERFACE_COMMENT("Metrics of a component of the system"),
                SD_VARLINK_SYMBOL_COMMENT("How a metric behaves over time"),
                &vl_type_MetricFamilyType,
                SD_VARLINK_SYMBOL_COMMENT("Lists all metrics, one with each reply"),
                &vl_method_List,
                SD_VARLINK_SYMBOL_COMMENT("Describes all families of metrics, one with each reply"),
                &vl_method_Describe,
                SD_VARLINK_SYMBOL_COMMENT("There is no metric"),
                &vl_error_NoSuchMetric);
