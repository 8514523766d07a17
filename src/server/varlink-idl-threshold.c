/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Symbols about thresholds. */

#include "varlink-idl.h"

SD_VARLINK_DEFINE_ENUM_TYPE(
                ThresholdState,
                FIELD_COMMENT("The metric has no value: no or too few requests, or it cannot be measured"),
                SD_VARLINK_DEFINE_ENUM_VALUE(unknown),
                FIELD_COMMENT("Within its limit"),
                SD_VARLINK_DEFINE_ENUM_VALUE(ok),
                FIELD_COMMENT("Beyond its limit"),
                SD_VARLINK_DEFINE_ENUM_VALUE(violated));

SD_VARLINK_DEFINE_ENUM_TYPE(
                ThresholdSource,
                FIELD_COMMENT("Until it is cleared, or its unit is no longer observed"),
                SD_VARLINK_DEFINE_ENUM_VALUE(administrator),
                FIELD_COMMENT("Until the connection that created it ends"),
                SD_VARLINK_DEFINE_ENUM_VALUE(lease),
                FIELD_COMMENT("For as long as it stands in a unit file"),
                SD_VARLINK_DEFINE_ENUM_VALUE(unitFile));

#define DEFINE_THRESHOLD(DEFINE, DEFINE_BY_TYPE) \
        FIELD_COMMENT("The name of the unit"), \
        DEFINE(unit, SD_VARLINK_STRING, 0), \
        FIELD_COMMENT("The name of the threshold"), \
        DEFINE(name, SD_VARLINK_STRING, 0), \
        FIELD_COMMENT("The whole of it, as SetThreshold() takes it, with all that may be left out"), \
        DEFINE(threshold, SD_VARLINK_STRING, 0), \
        FIELD_COMMENT("The metric. Of a peer, and of an endpoint with a path, \"...\" stands for it, here " \
                      "and above, unless the caller is root or the user whose control group the unit is"), \
        DEFINE(metric, SD_VARLINK_STRING, 0), \
        FIELD_COMMENT("The state"), \
        DEFINE_BY_TYPE(state, ThresholdState, 0), \
        FIELD_COMMENT("What the metric must not be beyond, in its unit"), \
        DEFINE(limit, SD_VARLINK_FLOAT, 0), \
        FIELD_COMMENT("The value of the metric; left out if there is none"), \
        DEFINE(value, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE), \
        FIELD_COMMENT("How far it is from the limit, as a part of the limit, negative beyond it"), \
        DEFINE(slack, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE), \
        FIELD_COMMENT("The number of requests that it was taken from"), \
        DEFINE(samples, SD_VARLINK_INT, SD_VARLINK_NULLABLE)

SD_VARLINK_DEFINE_STRUCT_TYPE(
                Threshold,
                DEFINE_THRESHOLD(SD_VARLINK_DEFINE_FIELD, SD_VARLINK_DEFINE_FIELD_BY_TYPE),
                FIELD_COMMENT("Where it comes from"),
                SD_VARLINK_DEFINE_FIELD_BY_TYPE(source, ThresholdSource, 0),
                FIELD_COMMENT("The file and the line it stands in"),
                SD_VARLINK_DEFINE_FIELD(origin, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Since when the state is what it is, in microseconds since 1970 UTC"),
                SD_VARLINK_DEFINE_FIELD(since, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Of an objective (an upper limit for a quantile of the latency or the time to "
                              "first byte), in replies to ListThresholds(): good requests since it was set"),
                SD_VARLINK_DEFINE_FIELD(good, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("The same, all requests"),
                SD_VARLINK_DEFINE_FIELD(total, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("The same: the part of requests in the last 60 s that are not good, relative "
                              "to the part that the quantile allows, 0.01 for p99"),
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
                FIELD_COMMENT("A state of threads, as in contention.shares"),
                SD_VARLINK_DEFINE_FIELD(state, SD_VARLINK_STRING, 0),
                FIELD_COMMENT(
                        "Its share of the time of the unit's threads, over the window of the threshold"),
                SD_VARLINK_DEFINE_FIELD(share, SD_VARLINK_FLOAT, 0),
                FIELD_COMMENT(
                        "The same over the last 5 min, or since the attach if the window is that long"),
                SD_VARLINK_DEFINE_FIELD(usual, SD_VARLINK_FLOAT, 0));

SD_VARLINK_DEFINE_STRUCT_TYPE(
                ThresholdEvent,
                DEFINE_THRESHOLD(SD_VARLINK_DEFINE_FIELD, SD_VARLINK_DEFINE_FIELD_BY_TYPE),
                FIELD_COMMENT("The state before"),
                SD_VARLINK_DEFINE_FIELD_BY_TYPE(previous, ThresholdState, 0),
                FIELD_COMMENT("Counts the events of all units; goes on when qosd is restarted, and at a "
                              "higher number when it was stopped"),
                SD_VARLINK_DEFINE_FIELD(seq, SD_VARLINK_INT, 0),
                FIELD_COMMENT("When it happened, in microseconds since 1970 UTC"),
                SD_VARLINK_DEFINE_FIELD(timestamp, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Changes of thresholds of the same user that were dropped before this one, "
                              "as there were too many; absent if there are none"),
                SD_VARLINK_DEFINE_FIELD(suppressed, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Up to three shares of the time of the unit's threads that have changed most, "
                              "by a percent of it at least; left out if there are none, or the unit is not "
                              "observed with the probe \"cpu\""),
                SD_VARLINK_DEFINE_FIELD_BY_TYPE(shares, ShareChange, SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE));

SD_VARLINK_DEFINE_METHOD(
                SetThreshold,
                DEFINE_INPUT_UNIT,
                FIELD_COMMENT("The threshold: \"NAME: METRIC > LIMIT over WINDOW for DURATION, clear LIMIT "
                              "for DURATION, cooldown DURATION, good success\". All behind the first limit "
                              "may be left out; for a metric that is to be large \"<\". One of this name "
                              "that the caller has set before is replaced"),
                SD_VARLINK_DEFINE_INPUT(threshold, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("Whether it goes with this connection. Default: no"),
                SD_VARLINK_DEFINE_INPUT(lease, SD_VARLINK_BOOL, SD_VARLINK_NULLABLE),
                DEFINE_INPUT_POLKIT,
                FIELD_COMMENT("The name of the unit"),
                SD_VARLINK_DEFINE_OUTPUT(unit, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("The threshold, with all that was left out"),
                SD_VARLINK_DEFINE_OUTPUT(threshold, SD_VARLINK_STRING, 0));

SD_VARLINK_DEFINE_METHOD(
                ClearThreshold,
                DEFINE_INPUT_UNIT,
                FIELD_COMMENT("The name of the threshold"),
                SD_VARLINK_DEFINE_INPUT(name, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("Whether it is one that goes with this connection. Default: no"),
                SD_VARLINK_DEFINE_INPUT(lease, SD_VARLINK_BOOL, SD_VARLINK_NULLABLE),
                DEFINE_INPUT_POLKIT);

SD_VARLINK_DEFINE_METHOD_FULL(
                ListThresholds,
                SD_VARLINK_REQUIRES_MORE,
                FIELD_COMMENT("Only those of this unit. Default: of all"),
                SD_VARLINK_DEFINE_INPUT(unit, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("A threshold, as it is now"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(threshold, Threshold, 0));

SD_VARLINK_DEFINE_METHOD_FULL(
                Monitor,
                SD_VARLINK_SUPPORTS_MORE,
                FIELD_COMMENT("The units. Default, also if empty: all that are attached, or will be"),
                SD_VARLINK_DEFINE_INPUT(units, SD_VARLINK_STRING, SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE),
                FIELD_COMMENT("The number of the last event that is known: those after it are sent first. "
                              "Default, also if there was no such event yet, or it was one of a qosd before "
                              "this one: the first reply has all thresholds as they are"),
                SD_VARLINK_DEFINE_INPUT(since, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("In the first reply: the number of the newest event"),
                SD_VARLINK_DEFINE_OUTPUT(seq, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("In the first reply, if not all requested events are available, or none "
                              "were requested: the thresholds as they are, after the event of that number"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(thresholds, Threshold,
                                                 SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE),
                FIELD_COMMENT("In the first reply: how many of the requested events are no longer "
                              "available; they may have been about other units"),
                SD_VARLINK_DEFINE_OUTPUT(missedEvents, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("In all others: a threshold whose state has changed; unknown, too, of one "
                              "that is no longer set"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(event, ThresholdEvent, SD_VARLINK_NULLABLE));

SD_VARLINK_DEFINE_METHOD(
                Wait,
                DEFINE_INPUT_UNIT,
                FIELD_COMMENT("What is waited for: a threshold without its name, as in "
                              "\"requests.server.firstByte.p99 < 20ms over 10s for 5s\""),
                SD_VARLINK_DEFINE_INPUT(condition, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("The name of the unit"),
                SD_VARLINK_DEFINE_OUTPUT(unit, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("The value of the metric, as it is now"),
                SD_VARLINK_DEFINE_OUTPUT(value, SD_VARLINK_FLOAT, 0));
