/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Symbols about thresholds. */

#include "varlink-idl.h"

SD_VARLINK_DEFINE_ENUM_TYPE(
                ThresholdState,
                FIELD_COMMENT("The metric has no value: no or too few requests, or it cannot be measured"),
                SD_VARLINK_DEFINE_ENUM_VALUE(unknown),
                FIELD_COMMENT("The metric is within its limit"),
                SD_VARLINK_DEFINE_ENUM_VALUE(ok),
                FIELD_COMMENT("The metric is beyond its limit"),
                SD_VARLINK_DEFINE_ENUM_VALUE(violated));

SD_VARLINK_DEFINE_ENUM_TYPE(
                ThresholdSource,
                FIELD_COMMENT("Until it is cleared, or its unit is detached"),
                SD_VARLINK_DEFINE_ENUM_VALUE(administrator),
                FIELD_COMMENT("Until the end of the connection that created it"),
                SD_VARLINK_DEFINE_ENUM_VALUE(lease),
                FIELD_COMMENT("As long as a unit file has it"),
                SD_VARLINK_DEFINE_ENUM_VALUE(unitFile));

#define DEFINE_THRESHOLD(DEFINE, DEFINE_BY_TYPE) \
        FIELD_COMMENT("Name of the unit"), \
        DEFINE(unit, SD_VARLINK_STRING, 0), \
        FIELD_COMMENT("Name of the threshold"), \
        DEFINE(name, SD_VARLINK_STRING, 0), \
        FIELD_COMMENT("Rule of the threshold, in the syntax of SetThreshold(), including defaults"), \
        DEFINE(threshold, SD_VARLINK_STRING, 0), \
        FIELD_COMMENT("Name of the metric. A peer, and an endpoint with a path, is replaced by \"...\" in " \
                      "it and in the rule, unless the caller is root or the user that owns the control " \
                      "group"), \
        DEFINE(metric, SD_VARLINK_STRING, 0), \
        FIELD_COMMENT("State of the threshold"), \
        DEFINE_BY_TYPE(state, ThresholdState, 0), \
        FIELD_COMMENT("Limit, in the unit of the metric"), \
        DEFINE(limit, SD_VARLINK_FLOAT, 0), \
        FIELD_COMMENT("Value of the metric; absent if it has none"), \
        DEFINE(value, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE), \
        FIELD_COMMENT("Distance of the value from the limit, as a share of the limit; negative beyond it"), \
        DEFINE(slack, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE), \
        FIELD_COMMENT("Number of requests that the value is taken from"), \
        DEFINE(samples, SD_VARLINK_INT, SD_VARLINK_NULLABLE)

SD_VARLINK_DEFINE_STRUCT_TYPE(
                Threshold,
                DEFINE_THRESHOLD(SD_VARLINK_DEFINE_FIELD, SD_VARLINK_DEFINE_FIELD_BY_TYPE),
                FIELD_COMMENT("Source of the threshold"),
                SD_VARLINK_DEFINE_FIELD_BY_TYPE(source, ThresholdSource, 0),
                FIELD_COMMENT("File and line of the threshold"),
                SD_VARLINK_DEFINE_FIELD(origin, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Time of the last change of the state, in microseconds since 1970 UTC"),
                SD_VARLINK_DEFINE_FIELD(since, SD_VARLINK_INT, 0),
                FIELD_COMMENT("For objectives (upper limits for a quantile of the latency or the time to "
                              "first byte), in replies to ListThresholds(): good requests since the "
                              "threshold was set"),
                SD_VARLINK_DEFINE_FIELD(good, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("For objectives: all requests since the threshold was set"),
                SD_VARLINK_DEFINE_FIELD(total, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("For objectives: share of requests in the last 60 s that are not good, "
                              "relative to the share that the quantile allows, 0.01 for p99"),
                SD_VARLINK_DEFINE_FIELD(burnRate60s, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("The same in the last 5 min"),
                SD_VARLINK_DEFINE_FIELD(burnRate5min, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("The same in the last 30 min, but not before qosd was started"),
                SD_VARLINK_DEFINE_FIELD(burnRate30min, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("The same in the last hour, but not before qosd was started"),
                SD_VARLINK_DEFINE_FIELD(burnRate1h, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("The same in the last 6 h, but not before qosd was started"),
                SD_VARLINK_DEFINE_FIELD(burnRate6h, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE));

SD_VARLINK_DEFINE_STRUCT_TYPE(
                ShareChange,
                FIELD_COMMENT("Thread state, as in contention.shares"),
                SD_VARLINK_DEFINE_FIELD(state, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("Share of the state in the time of the unit's threads, over the window of the "
                              "threshold"),
                SD_VARLINK_DEFINE_FIELD(share, SD_VARLINK_FLOAT, 0),
                FIELD_COMMENT(
                        "The same over the last 5 min, or since the attach if the window is that long"),
                SD_VARLINK_DEFINE_FIELD(usual, SD_VARLINK_FLOAT, 0));

SD_VARLINK_DEFINE_STRUCT_TYPE(
                ThresholdEvent,
                DEFINE_THRESHOLD(SD_VARLINK_DEFINE_FIELD, SD_VARLINK_DEFINE_FIELD_BY_TYPE),
                FIELD_COMMENT("Previous state"),
                SD_VARLINK_DEFINE_FIELD_BY_TYPE(previous, ThresholdState, 0),
                FIELD_COMMENT("Number of the event, of all units together; continues when qosd is "
                              "restarted, with a gap if it was stopped"),
                SD_VARLINK_DEFINE_FIELD(seq, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Time of the event, in microseconds since 1970 UTC"),
                SD_VARLINK_DEFINE_FIELD(timestamp, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Changes of thresholds of the same user that were dropped before this one, "
                              "as there were too many; absent if there are none"),
                SD_VARLINK_DEFINE_FIELD(suppressed, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Up to three thread states with the largest changes of their share in the "
                              "time of the unit's threads, of at least 0.01; absent if there are none, or "
                              "if the unit is not observed with the probe \"cpu\""),
                SD_VARLINK_DEFINE_FIELD_BY_TYPE(shares, ShareChange, SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE));

SD_VARLINK_DEFINE_METHOD(
                SetThreshold,
                DEFINE_INPUT_UNIT,
                FIELD_COMMENT("Rule of the threshold: \"NAME: METRIC > LIMIT over WINDOW for DURATION, "
                              "clear LIMIT for DURATION, cooldown DURATION, good success\". All after the "
                              "first limit is optional; a lower limit is written with \"<\". An earlier "
                              "threshold of the caller with this name is replaced"),
                SD_VARLINK_DEFINE_INPUT(threshold, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("Whether the threshold ends with this connection. Default: no"),
                SD_VARLINK_DEFINE_INPUT(lease, SD_VARLINK_BOOL, SD_VARLINK_NULLABLE),
                DEFINE_INPUT_POLKIT,
                FIELD_COMMENT("Name of the unit"),
                SD_VARLINK_DEFINE_OUTPUT(unit, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("Rule of the threshold, including defaults"),
                SD_VARLINK_DEFINE_OUTPUT(threshold, SD_VARLINK_STRING, 0));

SD_VARLINK_DEFINE_METHOD(
                ClearThreshold,
                DEFINE_INPUT_UNIT,
                FIELD_COMMENT("Name of the threshold"),
                SD_VARLINK_DEFINE_INPUT(name, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("Whether it is a threshold that ends with this connection. Default: no"),
                SD_VARLINK_DEFINE_INPUT(lease, SD_VARLINK_BOOL, SD_VARLINK_NULLABLE),
                DEFINE_INPUT_POLKIT);

SD_VARLINK_DEFINE_METHOD_FULL(
                ListThresholds,
                SD_VARLINK_REQUIRES_MORE,
                FIELD_COMMENT("Unit to show thresholds of. Default: all units"),
                SD_VARLINK_DEFINE_INPUT(unit, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Current state of a threshold"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(threshold, Threshold, 0));

SD_VARLINK_DEFINE_METHOD_FULL(
                Monitor,
                SD_VARLINK_SUPPORTS_MORE,
                FIELD_COMMENT("Units. Default, also if empty: all attached units, including those that are "
                              "attached later"),
                SD_VARLINK_DEFINE_INPUT(units, SD_VARLINK_STRING, SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Number of the last event that the client knows: later ones are sent first. "
                              "Default, also if there was no such event yet, or it was one of an earlier "
                              "qosd: the first reply has all thresholds in their current state"),
                SD_VARLINK_DEFINE_INPUT(since, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("In the first reply: number of the newest event"),
                SD_VARLINK_DEFINE_OUTPUT(seq, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("In the first reply, if not all requested events are available, or none were "
                              "requested: thresholds in their current state, after the event of that "
                              "number"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(thresholds, Threshold,
                                                 SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE),
                FIELD_COMMENT("In the first reply: number of requested events that are no longer available, "
                              "possibly of other units"),
                SD_VARLINK_DEFINE_OUTPUT(missedEvents, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("In all other replies: change of the state of a threshold, to unknown if it "
                              "is removed"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(event, ThresholdEvent, SD_VARLINK_NULLABLE));

SD_VARLINK_DEFINE_METHOD(
                Wait,
                DEFINE_INPUT_UNIT,
                FIELD_COMMENT("Condition to wait for: a threshold without a name, as in "
                              "\"requests.server.firstByte.p99 < 20ms over 10s for 5s\""),
                SD_VARLINK_DEFINE_INPUT(condition, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("Name of the unit"),
                SD_VARLINK_DEFINE_OUTPUT(unit, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("Current value of the metric"),
                SD_VARLINK_DEFINE_OUTPUT(value, SD_VARLINK_FLOAT, 0));
