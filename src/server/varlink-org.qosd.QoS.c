/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "varlink-idl.h"
#include "varlink-org.qosd.QoS.h"

static SD_VARLINK_DEFINE_ENUM_TYPE(
                HoldType,
                FIELD_COMMENT("Until it is detached, until the end of its duration, or until the next boot"),
                SD_VARLINK_DEFINE_ENUM_VALUE(administrator),
                FIELD_COMMENT("As long as the unit files have a section [X-QoS]"),
                SD_VARLINK_DEFINE_ENUM_VALUE(unitFile),
                FIELD_COMMENT("As long as qosd.conf has Observe=auto and the unit exists"),
                SD_VARLINK_DEFINE_ENUM_VALUE(configuration),
                FIELD_COMMENT("Until the end of the connection that created it"),
                SD_VARLINK_DEFINE_ENUM_VALUE(lease));

static SD_VARLINK_DEFINE_STRUCT_TYPE(
                Hold,
                FIELD_COMMENT("Type of the hold, which determines its lifetime"),
                SD_VARLINK_DEFINE_FIELD_BY_TYPE(type, HoldType, 0),
                FIELD_COMMENT("Required probes"),
                SD_VARLINK_DEFINE_FIELD(probes, SD_VARLINK_STRING, SD_VARLINK_ARRAY),
                FIELD_COMMENT("Exclusions, see Attach()"),
                SD_VARLINK_DEFINE_FIELD(exclude, SD_VARLINK_STRING, SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE),
                FIELD_COMMENT("UID of the user that created it"),
                SD_VARLINK_DEFINE_FIELD(uid, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Description of the owner"),
                SD_VARLINK_DEFINE_FIELD(owner, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Time until it ends by itself, in nanoseconds; absent without a limit"),
                SD_VARLINK_DEFINE_FIELD(remaining, SD_VARLINK_INT, SD_VARLINK_NULLABLE));

static SD_VARLINK_DEFINE_STRUCT_TYPE(
                Cost,
                FIELD_COMMENT("Run time of qosd's BPF programs for this unit in the window, estimated from "
                              "a sample of the runs, as a share of one CPU"),
                SD_VARLINK_DEFINE_FIELD(share, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE));

/* Fields of the reply of Get(), and of the type Snapshot */
#define DEFINE_SNAPSHOT(DEFINE, DEFINE_BY_TYPE) \
        FIELD_COMMENT("Name of the unit, or path of the control group if it was attached by its path"), \
        DEFINE(unit, SD_VARLINK_STRING, 0), \
        FIELD_COMMENT("Control group that the unit has, or will have once it runs"), \
        DEFINE(controlGroup, SD_VARLINK_STRING, SD_VARLINK_NULLABLE), \
        FIELD_COMMENT("Invocation ID of the current run of the unit"), \
        DEFINE(invocationId, SD_VARLINK_STRING, SD_VARLINK_NULLABLE), \
        FIELD_COMMENT("ActiveState of the unit: \"active\", \"inactive\", \"failed\" and so on"), \
        DEFINE(activeState, SD_VARLINK_STRING, 0), \
        FIELD_COMMENT("SubState of the unit: \"running\", \"auto-restart\" and so on"), \
        DEFINE(subState, SD_VARLINK_STRING, SD_VARLINK_NULLABLE), \
        FIELD_COMMENT("Result of its last run: \"success\", \"exit-code\", \"signal\" and so on"), \
        DEFINE(result, SD_VARLINK_STRING, SD_VARLINK_NULLABLE), \
        FIELD_COMMENT("Automatic restarts since the unit was started"), \
        DEFINE(restarts, SD_VARLINK_INT, SD_VARLINK_NULLABLE), \
        FIELD_COMMENT("Last exit of the main process: \"exit status 1\", \"signal SEGV, core dumped\""), \
        DEFINE(lastExit, SD_VARLINK_STRING, SD_VARLINK_NULLABLE), \
        FIELD_COMMENT("FreezerState of the unit: \"running\", \"frozen\" and so on"), \
        DEFINE(freezerState, SD_VARLINK_STRING, SD_VARLINK_NULLABLE), \
        FIELD_COMMENT("Time of the attach, in microseconds since 1970 UTC"), \
        DEFINE(attachedSince, SD_VARLINK_INT, 0), \
        FIELD_COMMENT("Number of the reading; readings of a unit with equal numbers are equal"), \
        DEFINE(seq, SD_VARLINK_INT, 0), \
        FIELD_COMMENT("Time of the reading, in microseconds since 1970 UTC"), \
        DEFINE(timestamp, SD_VARLINK_INT, 0), \
        FIELD_COMMENT("Length of the window, which ends at the timestamp, in nanoseconds; absent for " \
                      "metrics since the attach or since a mark"), \
        DEFINE(window, SD_VARLINK_INT, SD_VARLINK_NULLABLE), \
        FIELD_COMMENT("Part of the window in which the unit was attached, in nanoseconds"), \
        DEFINE(covered, SD_VARLINK_INT, 0), \
        FIELD_COMMENT("Metrics of the probe \"requests\". A metric that was not measured, or would be " \
                      "misleading, is absent, here and in all other objects"), \
        DEFINE_BY_TYPE(requests, Requests, SD_VARLINK_NULLABLE), \
        FIELD_COMMENT("Metrics of the probes \"cpu\", \"block\" and \"memory\""), \
        DEFINE_BY_TYPE(contention, Contention, SD_VARLINK_NULLABLE), \
        FIELD_COMMENT("Metrics of the probe \"storage\""), \
        DEFINE_BY_TYPE(storage, Storage, SD_VARLINK_NULLABLE), \
        FIELD_COMMENT("Metrics of the probe \"network\""), \
        DEFINE_BY_TYPE(network, Network, SD_VARLINK_NULLABLE), \
        FIELD_COMMENT("Counters since the attach, by name of the metric"), \
        DEFINE(totals, SD_VARLINK_INT, SD_VARLINK_MAP|SD_VARLINK_NULLABLE), \
        FIELD_COMMENT("Cost of the observation; absent if it was not measured"), \
        DEFINE_BY_TYPE(cost, Cost, SD_VARLINK_NULLABLE), \
        FIELD_COMMENT("Events of this unit that could not be recorded, since the attach"), \
        DEFINE(drops, SD_VARLINK_INT, 0)

static SD_VARLINK_DEFINE_STRUCT_TYPE(
                Snapshot,
                DEFINE_SNAPSHOT(SD_VARLINK_DEFINE_FIELD, SD_VARLINK_DEFINE_FIELD_BY_TYPE),
                FIELD_COMMENT("In the reply to GetMany: metrics of custom probes as in that to Get, without "
                              "entries"),
                SD_VARLINK_DEFINE_FIELD(custom, SD_VARLINK_OBJECT, SD_VARLINK_NULLABLE));

static SD_VARLINK_DEFINE_STRUCT_TYPE(
                Bucket,
                FIELD_COMMENT("Lower bound, exclusive, in nanoseconds"),
                SD_VARLINK_DEFINE_FIELD(lower, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Upper bound, inclusive, in nanoseconds; absent for the last bucket, which is "
                              "unbounded"),
                SD_VARLINK_DEFINE_FIELD(upper, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Number of durations in the bucket"),
                SD_VARLINK_DEFINE_FIELD(count, SD_VARLINK_INT, 0));

static SD_VARLINK_DEFINE_STRUCT_TYPE(
                ExportedHistogram,
                FIELD_COMMENT("Name of the distribution"),
                SD_VARLINK_DEFINE_FIELD(metric, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("Schema of the buckets, see Histogram()"),
                SD_VARLINK_DEFINE_FIELD(schema, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Sum of all durations, in nanoseconds"),
                SD_VARLINK_DEFINE_FIELD(sum, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Indexes of the buckets that are not empty, in ascending order, as in native "
                              "histograms of Prometheus in seconds: bucket i has the durations longer than "
                              "2^((i-1)/2^schema) s and no longer than 2^(i/2^schema) s; the one that ends "
                              "at 2^-22 s (238 ns) has all shorter ones as well, the one that begins at 2^6 "
                              "s (64 s) all longer ones"),
                SD_VARLINK_DEFINE_FIELD(indexes, SD_VARLINK_INT, SD_VARLINK_ARRAY),
                FIELD_COMMENT("Number of durations in each of these buckets"),
                SD_VARLINK_DEFINE_FIELD(counts, SD_VARLINK_INT, SD_VARLINK_ARRAY),
                FIELD_COMMENT("Number of durations: the sum of these counts"),
                SD_VARLINK_DEFINE_FIELD(count, SD_VARLINK_INT, 0));

static SD_VARLINK_DEFINE_STRUCT_TYPE(
                ExportedCustom,
                FIELD_COMMENT("Name of the custom probe"),
                SD_VARLINK_DEFINE_FIELD(probe, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("Name of the metric"),
                SD_VARLINK_DEFINE_FIELD(metric, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("counter, gauge or histogram"),
                SD_VARLINK_DEFINE_FIELD(type, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("1, bytes or ns"),
                SD_VARLINK_DEFINE_FIELD(unit, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("What is measured"),
                SD_VARLINK_DEFINE_FIELD(description, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("Values of the labels of this entry, by name; absent if the metric has no "
                              "labels"),
                SD_VARLINK_DEFINE_FIELD(labels, SD_VARLINK_STRING, SD_VARLINK_MAP|SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Whether this is the sum of all that have no entry of their own; absent if "
                              "not"),
                SD_VARLINK_DEFINE_FIELD(rest, SD_VARLINK_BOOL, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Value of a counter since the unit has been observed with the probe, or of a "
                              "gauge"),
                SD_VARLINK_DEFINE_FIELD(value, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Buckets of a histogram since then, as those of an ExportedHistogram"),
                SD_VARLINK_DEFINE_FIELD(schema, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                SD_VARLINK_DEFINE_FIELD(sum, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                SD_VARLINK_DEFINE_FIELD(indexes, SD_VARLINK_INT, SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE),
                SD_VARLINK_DEFINE_FIELD(counts, SD_VARLINK_INT, SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE),
                SD_VARLINK_DEFINE_FIELD(count, SD_VARLINK_INT, SD_VARLINK_NULLABLE));

static SD_VARLINK_DEFINE_STRUCT_TYPE(
                ExportedObjective,
                FIELD_COMMENT("Name of the threshold"),
                SD_VARLINK_DEFINE_FIELD(threshold, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("Share of requests that has to be within the limit: 0.99 for p99"),
                SD_VARLINK_DEFINE_FIELD(target, SD_VARLINK_FLOAT, 0),
                FIELD_COMMENT("Good requests since the threshold was set"),
                SD_VARLINK_DEFINE_FIELD(good, SD_VARLINK_INT, 0),
                FIELD_COMMENT("All requests since the threshold was set"),
                SD_VARLINK_DEFINE_FIELD(total, SD_VARLINK_INT, 0));

static SD_VARLINK_DEFINE_STRUCT_TYPE(
                ExportedUnit,
                FIELD_COMMENT("Name of the unit, or path of the control group if it was attached by its "
                              "path"),
                SD_VARLINK_DEFINE_FIELD(name, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("Slice of the control group; absent while the unit has none"),
                SD_VARLINK_DEFINE_FIELD(slice, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("ActiveState of the unit"),
                SD_VARLINK_DEFINE_FIELD(activeState, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("Time at which all counters began, in microseconds since 1970 UTC; if it "
                              "differs from an earlier export, they have begun anew. Restarts of the unit "
                              "and of qosd do not change it, but contention.pressure, contention.quota, "
                              "swapIns and refaults, which the kernel counts for control groups, begin anew "
                              "with qosd"),
                SD_VARLINK_DEFINE_FIELD(attachedSince, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Number of the reading; readings of a unit with equal numbers are equal"),
                SD_VARLINK_DEFINE_FIELD(seq, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Time of the reading, in microseconds since 1970 UTC"),
                SD_VARLINK_DEFINE_FIELD(timestamp, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Counters since the attach, by name of the metric"),
                SD_VARLINK_DEFINE_FIELD(totals, SD_VARLINK_INT, SD_VARLINK_MAP|SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Gauges at that time, by name of the metric: requests in flight and waiting, "
                              "ages of the oldest, connections"),
                SD_VARLINK_DEFINE_FIELD(gauges, SD_VARLINK_INT, SD_VARLINK_MAP|SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Distributions of the same reading"),
                SD_VARLINK_DEFINE_FIELD_BY_TYPE(histograms, ExportedHistogram, SD_VARLINK_ARRAY),
                FIELD_COMMENT("Thresholds on quantiles of requests, of the same reading; absent if there "
                              "are none"),
                SD_VARLINK_DEFINE_FIELD_BY_TYPE(objectives, ExportedObjective,
                                                SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Run time of qosd's programs for the unit, in nanoseconds, independent of "
                              "seq: of \"requests\" since the attach, of \"contention\" since the unit has "
                              "been observed with one of the probes cpu, block and memory, of \"storage\" "
                              "and \"network\" since it has been observed with that probe"),
                SD_VARLINK_DEFINE_FIELD(cost, SD_VARLINK_INT, SD_VARLINK_MAP|SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Events of this unit that could not be recorded, since the attach"),
                SD_VARLINK_DEFINE_FIELD(drops, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Entries of metrics of custom probes, of a reading of their own; absent if "
                              "the unit is observed with none"),
                SD_VARLINK_DEFINE_FIELD_BY_TYPE(custom, ExportedCustom,
                                                SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE),
                FIELD_COMMENT("With \"tables\": counters since the attach, and requests in flight, of each "
                              "endpoint that is neither a Unix socket nor excluded; absent if they are not "
                              "known. Counters do not fall between exports with the same attachedSince, "
                              "unless qosd was restarted"),
                SD_VARLINK_DEFINE_FIELD_BY_TYPE(endpoints, Endpoint, SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE),
                FIELD_COMMENT("With \"tables\": counters of each device that the unit has used"),
                SD_VARLINK_DEFINE_FIELD_BY_TYPE(devices, BlockDevice, SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE),
                FIELD_COMMENT("With \"tables\": counters of each file system that the unit has used"),
                SD_VARLINK_DEFINE_FIELD_BY_TYPE(mounts, Mount, SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE),
                FIELD_COMMENT("With \"tables\": number of discarded packets by reason"),
                SD_VARLINK_DEFINE_FIELD_BY_TYPE(dropReasons, DropReason,
                                                SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE));

static SD_VARLINK_DEFINE_STRUCT_TYPE(
                ExportedProgram,
                FIELD_COMMENT("Name of the BPF program, see Probes()"),
                SD_VARLINK_DEFINE_FIELD(program, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("Whether it is attached"),
                SD_VARLINK_DEFINE_FIELD(attached, SD_VARLINK_BOOL, 0),
                FIELD_COMMENT("Reason why it is not attached, or not everywhere"),
                SD_VARLINK_DEFINE_FIELD(reason, SD_VARLINK_STRING, SD_VARLINK_NULLABLE));

static SD_VARLINK_DEFINE_STRUCT_TYPE(
                StepHistogram,
                FIELD_COMMENT("Name of the distribution"),
                SD_VARLINK_DEFINE_FIELD(metric, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("Schema of the buckets, see Histogram(): 3, or less to save memory, down to "
                              "-2"),
                SD_VARLINK_DEFINE_FIELD(schema, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Number of durations"),
                SD_VARLINK_DEFINE_FIELD(count, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Sum of the durations, in nanoseconds"),
                SD_VARLINK_DEFINE_FIELD(sum, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Index of the first bucket. Bucket i has the durations longer than "
                              "2^((i-1)/2^schema) s and no longer than 2^(i/2^schema) s; the one that ends "
                              "at 2^-22 s (238 ns; in schema -2 at 2^-20 s) has all shorter ones as well, "
                              "the one that begins at 2^6 s (64 s; in schema -2 at 2^4 s) all longer ones. "
                              "Native histograms of Prometheus in seconds have the same indexes, "
                              "exponential ones of OpenTelemetry i - 1"),
                SD_VARLINK_DEFINE_FIELD(offset, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Number of durations in the first bucket and in each that follows; all other "
                              "buckets are empty"),
                SD_VARLINK_DEFINE_FIELD(counts, SD_VARLINK_INT, SD_VARLINK_ARRAY));

static SD_VARLINK_DEFINE_STRUCT_TYPE(
                HistoryStep,
                FIELD_COMMENT("Begin of the step, in microseconds since 1970 UTC"),
                SD_VARLINK_DEFINE_FIELD(timestamp, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Part of the step in which the unit was observed, in nanoseconds"),
                SD_VARLINK_DEFINE_FIELD(covered, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Counters, rates and distributions of the step, and gauges at its end. A "
                              "distribution that is not absent has a count"),
                SD_VARLINK_DEFINE_FIELD_BY_TYPE(requests, Requests, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("The same of contention, as far as the history has it; its distributions have "
                              "count and mean"),
                SD_VARLINK_DEFINE_FIELD_BY_TYPE(contention, Contention, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Reads, writes, syncs and opens of files, as far as there is a history of "
                              "them; of their latency count and mean"),
                SD_VARLINK_DEFINE_FIELD_BY_TYPE(storage, Storage, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("What TCP counts on connections, as far as there is a history of it: "
                              "counters, round-trip times without their maximum; of other distributions "
                              "count and mean"),
                SD_VARLINK_DEFINE_FIELD_BY_TYPE(network, Network, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Buckets of the requested distributions that were measured"),
                SD_VARLINK_DEFINE_FIELD_BY_TYPE(histograms, StepHistogram,
                                                SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Requested metrics of file systems and custom probes by name, those that the "
                              "step has"),
                SD_VARLINK_DEFINE_FIELD(values, SD_VARLINK_OBJECT, SD_VARLINK_NULLABLE));

static SD_VARLINK_DEFINE_METHOD(
                Attach,
                DEFINE_INPUT_UNIT,
                FIELD_COMMENT("Probes to observe the unit with: \"requests\", \"tls\", \"cpu\", \"block\", "
                              "\"memory\", \"storage\" and \"network\". Default: the configured probes"),
                SD_VARLINK_DEFINE_INPUT(probes, SD_VARLINK_STRING, SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Requests to exclude from the metrics of the unit: \"port:9100\" for requests "
                              "to this port, on any address; \"http:/healthz\" for requests to this path, "
                              "as the client writes it and without the query; \"http:/static/*\" for all "
                              "paths with this beginning, at most three directories deep; \"redis:BRPOP\" "
                              "for this command. The exclusions of all holds of a unit apply; those of a "
                              "user that may attach it only as the owner of its control group apply only "
                              "while the unit has no other hold. Default: none"),
                SD_VARLINK_DEFINE_INPUT(exclude, SD_VARLINK_STRING, SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Whether to observe the unit until this connection ends, instead of until it "
                              "is detached. Default: no"),
                SD_VARLINK_DEFINE_INPUT(lease, SD_VARLINK_BOOL, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Time after which the hold ends by itself, in nanoseconds; not for leases"),
                SD_VARLINK_DEFINE_INPUT(duration, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                DEFINE_INPUT_POLKIT,
                FIELD_COMMENT("Name of the unit, which differs from the requested one if that is an alias "
                              "or lacks the suffix"),
                SD_VARLINK_DEFINE_OUTPUT(unit, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("Metrics that cannot be measured, and the reason"),
                SD_VARLINK_DEFINE_OUTPUT(degraded, SD_VARLINK_STRING, SD_VARLINK_NULLABLE));

static SD_VARLINK_DEFINE_METHOD(
                Detach,
                DEFINE_INPUT_UNIT,
                FIELD_COMMENT("Whether to end the lease of this connection instead. Default: no"),
                SD_VARLINK_DEFINE_INPUT(lease, SD_VARLINK_BOOL, SD_VARLINK_NULLABLE),
                DEFINE_INPUT_POLKIT);

static SD_VARLINK_DEFINE_METHOD_FULL(
                List,
                SD_VARLINK_SUPPORTS_MORE,
                FIELD_COMMENT("Unit to show. Default: all attached units"),
                SD_VARLINK_DEFINE_INPUT(unit, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                DEFINE_INPUT_WINDOW,
                FIELD_COMMENT("Whether the unit is attached"),
                SD_VARLINK_DEFINE_OUTPUT(attached, SD_VARLINK_BOOL, 0),
                FIELD_COMMENT("Holds of the unit"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(holds, Hold, SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Metrics that cannot be measured, and the reason"),
                SD_VARLINK_DEFINE_OUTPUT(degraded, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Nearest attached ancestor; its metrics include those of the unit"),
                SD_VARLINK_DEFINE_OUTPUT(parentUnit, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Attached descendants, at any depth"),
                SD_VARLINK_DEFINE_OUTPUT(descendantUnits, SD_VARLINK_STRING,
                                         SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Thresholds of the unit"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(thresholds, Threshold,
                                                 SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Reading of the unit"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(snapshot, Snapshot, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Name of the unit, or path of a control group"),
                SD_VARLINK_DEFINE_OUTPUT(unit, SD_VARLINK_STRING, 0));

static SD_VARLINK_DEFINE_METHOD_FULL(
                Export,
                SD_VARLINK_REQUIRES_MORE,
                FIELD_COMMENT("Unit to show. Default: all attached units"),
                SD_VARLINK_DEFINE_INPUT(unit, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("With endpoints, devices, file systems and reasons of discarded packets. "
                              "Default: no"),
                SD_VARLINK_DEFINE_INPUT(tables, SD_VARLINK_BOOL, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Exported unit; absent in the last reply"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(unit, ExportedUnit, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("In the last reply: number of units in the replies before"),
                SD_VARLINK_DEFINE_OUTPUT(units, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("In the last reply to an export of all units: the BPF programs that they "
                              "need"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(programs, ExportedProgram,
                                                 SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE));

static SD_VARLINK_DEFINE_METHOD(
        Get, DEFINE_INPUT_UNIT, DEFINE_INPUT_WINDOW,
        FIELD_COMMENT("Whether to show metrics since Mark() was called for the unit on this "
                      "connection, instead of over a window. Default: no"),
        SD_VARLINK_DEFINE_INPUT(sinceMark, SD_VARLINK_BOOL, SD_VARLINK_NULLABLE),
        FIELD_COMMENT("Names of metrics to return in \"values\": those of ListMetrics(), and those "
                      "of an endpoint (\"requests.server[127.0.0.1:80].count\", "
                      "\"requests.server[:80].latency.p99\" for all with this port together), of a "
                      "peer (\"requests.client[127.0.0.1:6379].rate\", "
                      "\"requests.client[redis-server.service].rate\"), or of a file system "
                      "(\"storage.mounts[/srv].reads.count\", "
                      "\"storage.mounts[8:1].syncs.latency.p99\"). Endpoints and peers have count, "
                      "rate, errors, clientAborts or aborts, inFlight, latency, bytesIn and "
                      "bytesOut. Metrics of peers, of file systems and of endpoints with a path are "
                      "for root and for the user that owns the control group"),
        SD_VARLINK_DEFINE_INPUT(metrics, SD_VARLINK_STRING, SD_VARLINK_ARRAY | SD_VARLINK_NULLABLE),
        DEFINE_SNAPSHOT(SD_VARLINK_DEFINE_OUTPUT, SD_VARLINK_DEFINE_OUTPUT_BY_TYPE),
        FIELD_COMMENT("Requested metrics, by the requested names. Metrics that were not measured, "
                      "or are of an endpoint, peer or file system that does not exist, are absent"),
        SD_VARLINK_DEFINE_OUTPUT(values, SD_VARLINK_OBJECT, SD_VARLINK_NULLABLE),
        FIELD_COMMENT("Metrics of custom probes, an object for each probe and in it one for each metric: "
                      "a counter has count and rate, a gauge value, a histogram count, rate, sum, mean "
                      "and quantiles, as far as there are samples; a metric with labels the sum of all "
                      "entries, and these in entries: labels, or rest for all that have no entry of "
                      "their own, and the same fields"),
        SD_VARLINK_DEFINE_OUTPUT(custom, SD_VARLINK_OBJECT, SD_VARLINK_NULLABLE),
        FIELD_COMMENT("Share of a CPU that each custom probe has taken for the unit in the last sample, by "
                      "name of the probe: an estimate, by the number of values that it has recorded for "
                      "each unit; absent if nothing was measured"),
        SD_VARLINK_DEFINE_OUTPUT(customCost, SD_VARLINK_FLOAT, SD_VARLINK_MAP | SD_VARLINK_NULLABLE));

static SD_VARLINK_DEFINE_METHOD(
                GetMany,
                FIELD_COMMENT("Units, at most 256, without duplicates"),
                SD_VARLINK_DEFINE_INPUT(units, SD_VARLINK_STRING, SD_VARLINK_ARRAY),
                DEFINE_INPUT_WINDOW,
                FIELD_COMMENT("Time of all readings, in microseconds since 1970 UTC"),
                SD_VARLINK_DEFINE_OUTPUT(timestamp, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Readings in the order of the units, without those of units that cannot be "
                              "read, for which the daemon logs the reason"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(snapshots, Snapshot, SD_VARLINK_ARRAY));

static SD_VARLINK_DEFINE_METHOD(
                GetView,
                DEFINE_INPUT_UNIT,
                FIELD_COMMENT("Name of the unit"),
                SD_VARLINK_DEFINE_OUTPUT(unit, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("Index of the map among the file descriptors of the reply"),
                SD_VARLINK_DEFINE_OUTPUT(map, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Version of the layout of the map; a program that was built for another "
                              "version cannot read it"),
                SD_VARLINK_DEFINE_OUTPUT(layout, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Time of the attach, in nanoseconds of CLOCK_MONOTONIC"),
                SD_VARLINK_DEFINE_OUTPUT(since, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Minimum number of samples beyond a quantile (MinimumSamples=)"),
                SD_VARLINK_DEFINE_OUTPUT(minimumSamples, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Names of the distributions that are measured"),
                SD_VARLINK_DEFINE_OUTPUT(measured, SD_VARLINK_STRING, SD_VARLINK_ARRAY));

static SD_VARLINK_DEFINE_METHOD(
                Mark,
                DEFINE_INPUT_UNIT,
                FIELD_COMMENT("Name of the unit, or path of the control group if it was attached by its "
                              "path"),
                SD_VARLINK_DEFINE_OUTPUT(unit, SD_VARLINK_STRING, 0));

static SD_VARLINK_DEFINE_METHOD(
                Histogram,
                DEFINE_INPUT_UNIT,
                FIELD_COMMENT("Name of a distribution, such as \"requests.server.latency\"; for endpoints "
                              "and peers see Get()"),
                SD_VARLINK_DEFINE_INPUT(metric, SD_VARLINK_STRING, 0),
                DEFINE_INPUT_WINDOW,
                FIELD_COMMENT("Name of the unit, or path of the control group if it was attached by its "
                              "path"),
                SD_VARLINK_DEFINE_OUTPUT(unit, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("Name of the distribution"),
                SD_VARLINK_DEFINE_OUTPUT(metric, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("Number of the reading"),
                SD_VARLINK_DEFINE_OUTPUT(seq, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Time of the reading, in microseconds since 1970 UTC"),
                SD_VARLINK_DEFINE_OUTPUT(timestamp, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Length of the window, which ends at the timestamp, in nanoseconds; absent "
                              "for the distribution since the attach"),
                SD_VARLINK_DEFINE_OUTPUT(window, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Part of the window in which the unit was attached, in nanoseconds"),
                SD_VARLINK_DEFINE_OUTPUT(covered, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Schema of the buckets, as of native histograms of Prometheus in seconds, and "
                              "the scale of exponential ones of OpenTelemetry. Bounds are in nanoseconds, "
                              "rounded down: the first bucket ends at 2^-22 s (238 ns), the last one begins "
                              "at 2^6 s (64 s)"),
                SD_VARLINK_DEFINE_OUTPUT(schema, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Number of durations"),
                SD_VARLINK_DEFINE_OUTPUT(count, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Sum of the durations, in nanoseconds"),
                SD_VARLINK_DEFINE_OUTPUT(sum, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Buckets that are not empty, in ascending order"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(buckets, Bucket, SD_VARLINK_ARRAY));

static SD_VARLINK_DEFINE_METHOD(
                History,
                DEFINE_INPUT_UNIT,
                FIELD_COMMENT("Names of metrics, of distributions such as \"requests.server.latency\", "
                              "which are returned with their buckets, or, for root and for the user that "
                              "owns the control group, of a file system "
                              "(\"storage.mounts[/srv].reads.latency.p99\"), or of a custom probe or an "
                              "entry of its metric (\"custom.started.programs.rate\", "
                              "\"custom.malloc.calls[large].count\"): at most 64 of these. Default, "
                              "also if empty: all other metrics of the whole unit"),
                SD_VARLINK_DEFINE_INPUT(metrics, SD_VARLINK_STRING, SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Time after which the returned steps end, in microseconds since 1970 UTC. "
                              "Default: an hour ago"),
                SD_VARLINK_DEFINE_INPUT(since, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Length of the steps, in nanoseconds: 10 s, which are kept for an hour, or 5 "
                              "min, which are kept for a day. Default: 10 s if these go back far enough, "
                              "else 5 min"),
                SD_VARLINK_DEFINE_INPUT(step, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Name of the unit, or path of the control group if it was attached by its "
                              "path"),
                SD_VARLINK_DEFINE_OUTPUT(unit, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("Length of the steps, in nanoseconds"),
                SD_VARLINK_DEFINE_OUTPUT(step, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Steps in ascending order, without those in which the unit was not observed"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(steps, HistoryStep, SD_VARLINK_ARRAY));

static SD_VARLINK_DEFINE_METHOD_FULL(
                Subscribe,
                SD_VARLINK_REQUIRES_MORE,
                FIELD_COMMENT("Units. Default, also if empty: all attached units, including those that are "
                              "attached later"),
                SD_VARLINK_DEFINE_INPUT(units, SD_VARLINK_STRING, SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE),
                DEFINE_INPUT_WINDOW,
                FIELD_COMMENT("Time between two readings, in nanoseconds. Default: 1 s"),
                SD_VARLINK_DEFINE_INPUT(interval, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Reading of a unit"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(snapshot, Snapshot, 0),
                FIELD_COMMENT("Number of readings that were skipped before this one, as the client had not "
                              "read the earlier ones"),
                SD_VARLINK_DEFINE_OUTPUT(skipped, SD_VARLINK_INT, SD_VARLINK_NULLABLE));

#define DEFINE_ERROR(name, argument, type, text) \
        SD_VARLINK_DEFINE_ERROR( \
                name, \
                FIELD_COMMENT(text), \
                SD_VARLINK_DEFINE_FIELD(argument, type, 0), \
                FIELD_COMMENT("Description of the error"), \
                SD_VARLINK_DEFINE_FIELD(message, SD_VARLINK_STRING, 0))

static DEFINE_ERROR(NoSuchUnit, unit, SD_VARLINK_STRING, "Unit as requested");
static DEFINE_ERROR(InvalidUnitName, unit, SD_VARLINK_STRING, "Name as requested");
static DEFINE_ERROR(NotAttached, unit, SD_VARLINK_STRING, "Unit");
static DEFINE_ERROR(NoControlGroup, unit, SD_VARLINK_STRING, "Unit");
static DEFINE_ERROR(NoSuchProbe, probe, SD_VARLINK_STRING, "Probe as requested");
static DEFINE_ERROR(ProbeUnavailable, probe, SD_VARLINK_STRING, "Probe");
static DEFINE_ERROR(ProbeNotPermitted, probe, SD_VARLINK_STRING, "Probe");
static DEFINE_ERROR(TooManyUnits, limit, SD_VARLINK_INT, "The limit");
static DEFINE_ERROR(TooManyLeases, limit, SD_VARLINK_INT, "The limit");
static DEFINE_ERROR(NoSuchMetric, metric, SD_VARLINK_STRING, "Metric as requested");
static DEFINE_ERROR(NoHistory, metric, SD_VARLINK_STRING, "Metric");
static DEFINE_ERROR(NotMarked, unit, SD_VARLINK_STRING, "Unit");
static DEFINE_ERROR(TooManyMarks, limit, SD_VARLINK_INT, "The limit");
static DEFINE_ERROR(TooManyDiagnoses, limit, SD_VARLINK_INT, "The limit");
static DEFINE_ERROR(TooManyStreams, limit, SD_VARLINK_INT, "The limit");
static DEFINE_ERROR(InvalidExclude, exclude, SD_VARLINK_STRING,
                    "Exclusion as requested");
static DEFINE_ERROR(ViewUnavailable, unit, SD_VARLINK_STRING, "Unit");
static DEFINE_ERROR(TooManyViews, limit, SD_VARLINK_INT, "The limit");
static DEFINE_ERROR(TooManyExcludes, limit, SD_VARLINK_INT, "The limit");
static DEFINE_ERROR(InvalidThreshold, threshold, SD_VARLINK_STRING,
                    "Threshold or condition as requested");
static DEFINE_ERROR(NoSuchThreshold, threshold, SD_VARLINK_STRING, "Name as requested");
static DEFINE_ERROR(ThresholdExists, threshold, SD_VARLINK_STRING, "Name of the threshold");
static DEFINE_ERROR(TooManyThresholds, limit, SD_VARLINK_INT, "The limit");
static DEFINE_ERROR(TooSlow, seq, SD_VARLINK_INT,
                    "Number of the last event that was sent, for a further call with \"since\"");
static DEFINE_ERROR(NotMeasured, metric, SD_VARLINK_STRING, "Metric");
static DEFINE_ERROR(DuplicateUnit, unit, SD_VARLINK_STRING, "Unit");
static DEFINE_ERROR(ServiceManagerFailed, unit, SD_VARLINK_STRING, "Unit");
static SD_VARLINK_DEFINE_ERROR(NoEntries);

SD_VARLINK_DEFINE_INTERFACE(
                org_qosd_QoS,
                "org.qosd.QoS",
                SD_VARLINK_INTERFACE_COMMENT(
                        "How well systemd units serve their requests, measured in the kernel"),
                SYMBOL_COMMENT("Quality of the metrics of requests"),
                &vl_type_Quality,
                SYMBOL_COMMENT("Type of a hold"),
                &vl_type_HoldType,
                SYMBOL_COMMENT("State of a BPF program"),
                &vl_type_ProgramState,
                SYMBOL_COMMENT("Kind of a metric"),
                &vl_type_MetricKind,
                SYMBOL_COMMENT("State of a threshold"),
                &vl_type_ThresholdState,
                SYMBOL_COMMENT("Source of a threshold, which determines its lifetime"),
                &vl_type_ThresholdSource,
                SYMBOL_COMMENT("Reason to observe a unit, which is attached as long as it has any"),
                &vl_type_Hold,
                SYMBOL_COMMENT("Distribution of durations"),
                &vl_type_Distribution,
                SYMBOL_COMMENT("Failed requests in the window, by kind"),
                &vl_type_Errors,
                SYMBOL_COMMENT("Requests by protocol"),
                &vl_type_Protocols,
                SYMBOL_COMMENT("Connections to a unit"),
                &vl_type_Connections,
                SYMBOL_COMMENT("Requests that have waited by intent, for an event or for a timeout"),
                &vl_type_Intended,
                SYMBOL_COMMENT("Connections on which requests cannot be distinguished: they are in no count "
                               "and no distribution"),
                &vl_type_Unparsed,
                SYMBOL_COMMENT("Requests to one endpoint of a unit"),
                &vl_type_Endpoint,
                SYMBOL_COMMENT("Failed requests of a unit to peers, by kind"),
                &vl_type_PeerErrors,
                SYMBOL_COMMENT("Requests of a unit to one peer"),
                &vl_type_Peer,
                SYMBOL_COMMENT("Requests of a unit to peers"),
                &vl_type_Client,
                SYMBOL_COMMENT("Shares of time, or numbers of threads, by thread state"),
                &vl_type_StateShares,
                SYMBOL_COMMENT("Distribution of service times, and their division by thread state"),
                &vl_type_Service,
                SYMBOL_COMMENT("Requests to a unit"),
                &vl_type_Server,
                SYMBOL_COMMENT("Metrics of the probe \"requests\""),
                &vl_type_Requests,
                SYMBOL_COMMENT("Time of the threads of a unit while requests are in flight, by thread "
                               "state"),
                &vl_type_Serving,
                SYMBOL_COMMENT("Times by thread state"),
                &vl_type_StateTimes,
                SYMBOL_COMMENT("Number of waits by thread state"),
                &vl_type_StateWaits,
                SYMBOL_COMMENT("State of a thread"),
                &vl_type_ThreadState,
                SYMBOL_COMMENT("Times and events of a thread since it was first seen in the unit"),
                &vl_type_Thread,
                SYMBOL_COMMENT("Times and events of several threads"),
                &vl_type_ThreadsRest,
                SYMBOL_COMMENT("Kind of a wait target"),
                &vl_type_ResourceKind,
                SYMBOL_COMMENT("Thread that has ended waits of other threads"),
                &vl_type_Waker,
                SYMBOL_COMMENT("Waits for one target in one thread state, since the unit has been observed "
                               "with the probe \"cpu\""),
                &vl_type_Resource,
                SYMBOL_COMMENT("Context switches of the threads of a unit"),
                &vl_type_ContextSwitches,
                SYMBOL_COMMENT("Completed requests of a unit to one block device, in the window"),
                &vl_type_BlockDevice,
                SYMBOL_COMMENT("Completed requests of a unit to block devices, in the window. A loop device "
                               "and the disk below it each have requests of their own"),
                &vl_type_Block,
                SYMBOL_COMMENT("Page faults, reclaim and throttling of the threads of a unit, in the "
                               "window"),
                &vl_type_Memory,
                SYMBOL_COMMENT("Time in which threads were stalled by one resource"),
                &vl_type_PressureOfKind,
                SYMBOL_COMMENT("Time in which threads were stalled, by resource"),
                &vl_type_Pressure,
                SYMBOL_COMMENT("CPU quota of the control group, in the window"),
                &vl_type_Quota,
                SYMBOL_COMMENT("Time of the threads of a unit by state, as measured by the probe \"cpu\", "
                               "and use of block devices and memory. Each thread is in exactly one state at "
                               "any time"),
                &vl_type_Contention,
                SYMBOL_COMMENT("Calls that read or write files, in the window"),
                &vl_type_StorageReads,
                SYMBOL_COMMENT("Calls that wait until a file is stored, in the window"),
                &vl_type_StorageSyncs,
                SYMBOL_COMMENT("Calls that open files, in the window"),
                &vl_type_StorageOpens,
                SYMBOL_COMMENT("Calls on names and attributes of files, in the window"),
                &vl_type_StorageChanges,
                SYMBOL_COMMENT("Calls of a unit on one file system"),
                &vl_type_Mount,
                SYMBOL_COMMENT("Calls on files of any kind, sockets and pipes included, in the window"),
                &vl_type_StorageCalls,
                SYMBOL_COMMENT("Pages of files in the page cache, in the window"),
                &vl_type_StorageCache,
                SYMBOL_COMMENT("Page faults on mapped files, in the window"),
                &vl_type_StorageMapped,
                SYMBOL_COMMENT("Bytes to and from block devices for each byte of the calls, in the window"),
                &vl_type_StorageSubmittedReads,
                &vl_type_StorageSubmitted,
                &vl_type_StorageFuse,
                &vl_type_StorageAmplification,
                SYMBOL_COMMENT("Calls of the threads of a unit on files. A call counts when it returns"),
                &vl_type_Storage,
                SYMBOL_COMMENT("Packets of a unit that the kernel has discarded for one reason, in the "
                               "window"),
                &vl_type_DropReason,
                SYMBOL_COMMENT("Connections that a unit opens, in the window"),
                &vl_type_NetworkConnecting,
                SYMBOL_COMMENT("The way of arriving segments, with data and in sequence, in the window"),
                &vl_type_NetworkReceiving,
                SYMBOL_COMMENT("The way of segments that a unit sends, in the window"),
                &vl_type_NetworkTransmitting,
                SYMBOL_COMMENT("What limits sending on TCP connections"),
                &vl_type_NetworkLimits,
                SYMBOL_COMMENT("What TCP counts on the connections of a unit, as a server and as a client"),
                &vl_type_Network,
                SYMBOL_COMMENT("Cost of the observation"),
                &vl_type_Cost,
                SYMBOL_COMMENT("Reading of one unit: all metrics over one window, at one time"),
                &vl_type_Snapshot,
                SYMBOL_COMMENT("Bucket of a histogram"),
                &vl_type_Bucket,
                SYMBOL_COMMENT("Distribution since the attach"),
                &vl_type_ExportedHistogram,
                SYMBOL_COMMENT("Threshold on a quantile as an objective: requests within the limit, and the "
                               "share that is wanted"),
                &vl_type_ExportedObjective,
                SYMBOL_COMMENT("An entry of a metric of a custom probe"),
                &vl_type_ExportedCustom,
                SYMBOL_COMMENT("Counters and distributions of a unit since the attach, and gauges, from one "
                               "reading"),
                &vl_type_ExportedUnit,
                SYMBOL_COMMENT("BPF program that the attached units need"),
                &vl_type_ExportedProgram,
                SYMBOL_COMMENT("Distribution in a step of the history"),
                &vl_type_StepHistogram,
                SYMBOL_COMMENT("Step of the history, of 10 s or 5 min"),
                &vl_type_HistoryStep,
                SYMBOL_COMMENT("Result of a diagnosis"),
                &vl_type_Verdict,
                SYMBOL_COMMENT("Kind of a failure or bottleneck"),
                &vl_type_FindingKind,
                SYMBOL_COMMENT("Certainty of a finding"),
                &vl_type_Certainty,
                SYMBOL_COMMENT("Failure or bottleneck of a unit"),
                &vl_type_Finding,
                SYMBOL_COMMENT("Cause that was examined and excluded"),
                &vl_type_ExcludedFinding,
                SYMBOL_COMMENT("Figures of a unit and of the machine in an interval. Those that are not "
                               "known are absent"),
                &vl_type_DiagnosisFigures,
                SYMBOL_COMMENT("Part of the history that a baseline is taken from: of the time in which no "
                               "threshold is known to have been violated, the half with the lowest latency"),
                &vl_type_BaselinePeriod,
                SYMBOL_COMMENT("User of CPUs that the threads of the unit waited for"),
                &vl_type_CpuCompetitor,
                SYMBOL_COMMENT("Peer to which the unit sent requests"),
                &vl_type_Dependency,
                SYMBOL_COMMENT("Device that the unit used"),
                &vl_type_Device,
                SYMBOL_COMMENT("Lock that the threads of the unit waited for"),
                &vl_type_ContendedLock,
                SYMBOL_COMMENT("Limit for a metric of a unit"),
                &vl_type_Threshold,
                SYMBOL_COMMENT("Change of the share of a thread state in the time of threads"),
                &vl_type_ShareChange,
                SYMBOL_COMMENT("Change of the state of a threshold"),
                &vl_type_ThresholdEvent,
                SYMBOL_COMMENT("Elements of a BPF map that could not be allocated"),
                &vl_type_LostElements,
                SYMBOL_COMMENT("Attaches a unit, which need not run yet. A further call of the same user "
                               "replaces the earlier hold. The reply is sent when all programs are in "
                               "place, so that the next request of the unit is measured"),
                &vl_method_Attach,
                SYMBOL_COMMENT("Ends the hold of the caller; for root, and for users that polkit "
                               "authorizes, also those of users that own the control group. The unit stays "
                               "attached while it has other holds"),
                &vl_method_Detach,
                SYMBOL_COMMENT("Lists the attached units, one per reply. For a single unit \"more\" is not "
                               "required"),
                &vl_method_List,
                SYMBOL_COMMENT("Exports the attached units, one per reply, for systems that store metrics: "
                               "counters and distributions since the attach, and gauges. Rates, means, "
                               "shares and quantiles follow from these"),
                &vl_method_Export,
                SYMBOL_COMMENT("Reads the metrics of an attached unit"),
                &vl_method_Get,
                SYMBOL_COMMENT("Reads the metrics of several units, all at the same time"),
                &vl_method_GetMany,
                SYMBOL_COMMENT("Passes a read-only descriptor of the map with the counters of the unit's "
                               "requests, for libqosd. The map contains addresses of peers; therefore it is "
                               "for root and for the user that owns the control group. When it becomes "
                               "invalid (the unit is detached, or a unit within it is attached), a flag in "
                               "the map is set, but only while the connection is open"),
                &vl_method_GetView,
                SYMBOL_COMMENT("Sets the mark for Get() with sinceMark, in place of an earlier one. It is "
                               "dropped with the connection, or with the last hold of the unit"),
                &vl_method_Mark,
                SYMBOL_COMMENT("Returns the buckets of a distribution"),
                &vl_method_Histogram,
                SYMBOL_COMMENT("Lists the threads of a unit with their states, and their times since they "
                               "were first seen in the unit. For root, the user that owns the control "
                               "group, and users that polkit authorizes (org.qosd1.inspect)"),
                &vl_method_Threads,
                SYMBOL_COMMENT("Lists the wait targets of the threads of a unit, and the threads that ended "
                               "the waits. For the same users as Threads()"),
                &vl_method_Resources,
                SYMBOL_COMMENT("Side of a unit on a connection"),
                &vl_type_ConnectionRole,
                SYMBOL_COMMENT("What limits sending on a connection"),
                &vl_type_ConnectionLimit,
                SYMBOL_COMMENT("TCP connection of a unit. Counts are since the connection began"),
                &vl_type_TcpConnection,
                SYMBOL_COMMENT("Sums of several TCP connections"),
                &vl_type_TcpConnectionsRest,
                SYMBOL_COMMENT("Lists the TCP connections of a unit with the probe \"network\". For the "
                               "same users as Threads()"),
                &vl_method_ListConnections,
                SYMBOL_COMMENT("Kind of a call on files"),
                &vl_type_StorageOperation,
                SYMBOL_COMMENT("Returns when certain bytes of TCP connections left and arrived, of a unit "
                               "with the probe \"network\": two hosts have the same ones, the newest 4096 "
                               "of all units. For the same users as Threads()"),
                &vl_method_ListSegments,
                SYMBOL_COMMENT("Slow call on files"),
                &vl_type_SlowOperation,
                SYMBOL_COMMENT("Lists the latest calls on files that took SlowOperation= of qosd.conf(5) or "
                               "longer, of a unit with the probe \"storage\". For the same users as "
                               "Threads()"),
                &vl_method_SlowOperations,
                SYMBOL_COMMENT("Returns the history of an attached unit, which begins with the attach and "
                               "ends when the unit is detached"),
                &vl_method_History,
                SYMBOL_COMMENT("Begins the interval of a diagnosis, which Diagnose() ends. The reply is "
                               "sent when the unit is attached and the interval has begun. A further call, "
                               "the end of the connection, and 10 min without Diagnose() cancel the "
                               "interval. For the users that may call Diagnose()"),
                &vl_method_BeginDiagnosis,
                SYMBOL_COMMENT("Observes a unit for the window, and replies with its failures and "
                               "bottlenecks. A unit that is not attached is attached for that time. For "
                               "root, for the user that owns the control group, and for users that may see "
                               "peers and, unless the unit is attached with all probes, attach it"),
                &vl_method_Diagnose,
                SYMBOL_COMMENT("Reads the metrics of the units at once, and then at each multiple of the "
                               "interval. For a client that does not read the replies, readings are "
                               "skipped, and then the connection is closed"),
                &vl_method_Subscribe,
                SYMBOL_COMMENT("Sets a threshold of an attached unit. Changes of its state are reported by "
                               "Monitor(), by the signal on D-Bus, and in the journal"),
                &vl_method_SetThreshold,
                SYMBOL_COMMENT("Removes a threshold. If its state is not unknown, the change to unknown is "
                               "an event as any other"),
                &vl_method_ClearThreshold,
                SYMBOL_COMMENT("Lists thresholds, one per reply"),
                &vl_method_ListThresholds,
                SYMBOL_COMMENT("Returns the thresholds, and then each change of a state. A client that does "
                               "not read the replies gets the error TooSlow, and no further events. Without "
                               "\"more\" and \"since\": the current thresholds"),
                &vl_method_Monitor,
                SYMBOL_COMMENT("Replies when the condition holds"),
                &vl_method_Wait,
                SYMBOL_COMMENT("Lists the metrics, one per reply"),
                &vl_method_ListMetrics,
                SYMBOL_COMMENT("Lists the BPF programs, one per reply"),
                &vl_method_Probes,
                SYMBOL_COMMENT("Returns the status of the daemon"),
                &vl_method_GetStatus,
                SYMBOL_COMMENT("There is no unit of that name"),
                &vl_error_NoSuchUnit,
                SYMBOL_COMMENT("The name is not valid for a unit, or the path for a control group"),
                &vl_error_InvalidUnitName,
                SYMBOL_COMMENT("The unit is not attached, or not by the caller"),
                &vl_error_NotAttached,
                SYMBOL_COMMENT("Units of that type have no processes"),
                &vl_error_NoControlGroup,
                SYMBOL_COMMENT("There is no probe of that name"),
                &vl_error_NoSuchProbe,
                SYMBOL_COMMENT("The probe does not work on this system"),
                &vl_error_ProbeUnavailable,
                SYMBOL_COMMENT("The probe slows down every process of the machine: it needs authorization, "
                               "also from the owner of the control group"),
                &vl_error_ProbeNotPermitted,
                SYMBOL_COMMENT("The limit of attached units, or of those of this user, is reached"),
                &vl_error_TooManyUnits,
                SYMBOL_COMMENT("The limit of leases of this user is reached"),
                &vl_error_TooManyLeases,
                SYMBOL_COMMENT("There is no metric of that name, or it is not a distribution"),
                &vl_error_NoSuchMetric,
                SYMBOL_COMMENT("The history does not have that metric"),
                &vl_error_NoHistory,
                SYMBOL_COMMENT("Mark() was not called for the unit on this connection"),
                &vl_error_NotMarked,
                SYMBOL_COMMENT("The limit of marks of this connection is reached"),
                &vl_error_TooManyMarks,
                SYMBOL_COMMENT("The limit of diagnoses at a time is reached"),
                &vl_error_TooManyDiagnoses,
                SYMBOL_COMMENT("The limit of streams of readings of this user is reached"),
                &vl_error_TooManyStreams,
                SYMBOL_COMMENT("The exclusion is not valid, expected \"port:\" and a number, \"http:\" and "
                               "a path, or \"redis:\" and a command"),
                &vl_error_InvalidExclude,
                SYMBOL_COMMENT("No single map has all requests of the unit"),
                &vl_error_ViewUnavailable,
                SYMBOL_COMMENT("The limit of maps of this user is reached"),
                &vl_error_TooManyViews,
                SYMBOL_COMMENT("The limit of exclusions for this unit, of all its holds together, is "
                               "reached"),
                &vl_error_TooManyExcludes,
                SYMBOL_COMMENT("The threshold or condition is not valid"),
                &vl_error_InvalidThreshold,
                SYMBOL_COMMENT("The unit has no threshold of that name"),
                &vl_error_NoSuchThreshold,
                SYMBOL_COMMENT("The unit has a threshold of that name that the caller may not change"),
                &vl_error_ThresholdExists,
                SYMBOL_COMMENT("The limit of thresholds of this unit, of this user, or of all units is "
                               "reached"),
                &vl_error_TooManyThresholds,
                SYMBOL_COMMENT("The client has not read events in time, no more are sent"),
                &vl_error_TooSlow,
                SYMBOL_COMMENT("The metric has no value now"),
                &vl_error_NotMeasured,
                SYMBOL_COMMENT("A unit is given more than once, possibly by an alias"),
                &vl_error_DuplicateUnit,
                SYMBOL_COMMENT("The service manager did not reply to a query about the unit"),
                &vl_error_ServiceManagerFailed,
                SYMBOL_COMMENT("There is nothing to list"),
                &vl_error_NoEntries);
