/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "varlink-idl.h"
#include "varlink-org.qosd.QoS.h"

static SD_VARLINK_DEFINE_ENUM_TYPE(
                HoldType,
                FIELD_COMMENT("Until it is detached, its time is over, or the next boot"),
                SD_VARLINK_DEFINE_ENUM_VALUE(administrator),
                FIELD_COMMENT("For as long as a section [X-QoS] stands in its unit files"),
                SD_VARLINK_DEFINE_ENUM_VALUE(unitFile),
                FIELD_COMMENT("For as long as qosd.conf has Observe=auto, and the unit exists"),
                SD_VARLINK_DEFINE_ENUM_VALUE(configuration),
                FIELD_COMMENT("Until the connection that created it ends"),
                SD_VARLINK_DEFINE_ENUM_VALUE(lease));

static SD_VARLINK_DEFINE_STRUCT_TYPE(
                Hold,
                FIELD_COMMENT("How long it lasts"),
                SD_VARLINK_DEFINE_FIELD_BY_TYPE(type, HoldType, 0),
                FIELD_COMMENT("The probes that it requires"),
                SD_VARLINK_DEFINE_FIELD(probes, SD_VARLINK_STRING, SD_VARLINK_ARRAY),
                FIELD_COMMENT("What it leaves out of the figures, see Attach()"),
                SD_VARLINK_DEFINE_FIELD(exclude, SD_VARLINK_STRING, SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE),
                FIELD_COMMENT("The user that created it"),
                SD_VARLINK_DEFINE_FIELD(uid, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Its owner, in words"),
                SD_VARLINK_DEFINE_FIELD(owner, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Nanoseconds until it ends by itself"),
                SD_VARLINK_DEFINE_FIELD(remaining, SD_VARLINK_INT, SD_VARLINK_NULLABLE));

static SD_VARLINK_DEFINE_STRUCT_TYPE(
                Cost,
                FIELD_COMMENT("Run time of qosd's BPF programs for this unit over the window, by the runs "
                              "that are measured, as a share of one CPU"),
                SD_VARLINK_DEFINE_FIELD(share, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE));

/* The reply of Get(); those of List() and Subscribe() have the same fields */
#define DEFINE_SNAPSHOT(DEFINE, DEFINE_BY_TYPE) \
        FIELD_COMMENT("The name of the unit, or the path of the control group if it was attached by that"), \
        DEFINE(unit, SD_VARLINK_STRING, 0), \
        FIELD_COMMENT("The control group it has, or will have when it runs"), \
        DEFINE(controlGroup, SD_VARLINK_STRING, SD_VARLINK_NULLABLE), \
        FIELD_COMMENT("Identifies the present run of the unit"), \
        DEFINE(invocationId, SD_VARLINK_STRING, SD_VARLINK_NULLABLE), \
        FIELD_COMMENT("The service manager's word for its state: \"active\", \"inactive\", \"failed\" and " \
                      "so on"), \
        DEFINE(activeState, SD_VARLINK_STRING, 0), \
        FIELD_COMMENT("The same in the words of its type: \"running\", \"auto-restart\" and so on"), \
        DEFINE(subState, SD_VARLINK_STRING, SD_VARLINK_NULLABLE), \
        FIELD_COMMENT("Why it ended last: \"success\", \"exit-code\", \"signal\" and so on"), \
        DEFINE(result, SD_VARLINK_STRING, SD_VARLINK_NULLABLE), \
        FIELD_COMMENT("Automatic restarts since it was started"), \
        DEFINE(restarts, SD_VARLINK_INT, SD_VARLINK_NULLABLE), \
        FIELD_COMMENT("How its main process ended last: \"exit status 1\", \"signal SEGV, core dumped\""), \
        DEFINE(lastExit, SD_VARLINK_STRING, SD_VARLINK_NULLABLE), \
        FIELD_COMMENT("Whether the service manager has frozen it: \"running\", \"frozen\" and so on"), \
        DEFINE(freezerState, SD_VARLINK_STRING, SD_VARLINK_NULLABLE), \
        FIELD_COMMENT("When it was attached, in microseconds since 1970 UTC"), \
        DEFINE(attachedSince, SD_VARLINK_INT, 0), \
        FIELD_COMMENT("Counts the readings of this unit: readings with equal numbers are equal"), \
        DEFINE(seq, SD_VARLINK_INT, 0), \
        FIELD_COMMENT("When the reading was taken, in microseconds since 1970 UTC"), \
        DEFINE(timestamp, SD_VARLINK_INT, 0), \
        FIELD_COMMENT("The window in nanoseconds, which ends with the timestamp; left out for everything " \
                      "since the attach, or since a mark"), \
        DEFINE(window, SD_VARLINK_INT, SD_VARLINK_NULLABLE), \
        FIELD_COMMENT("How much of the window the unit was attached for, in nanoseconds"), \
        DEFINE(covered, SD_VARLINK_INT, 0), \
        FIELD_COMMENT("What the probe \"requests\" has measured. All that was not measured or would " \
                      "mislead is left out, in here and in the rest"), \
        DEFINE_BY_TYPE(requests, Requests, SD_VARLINK_NULLABLE), \
        FIELD_COMMENT("What the probes \"cpu\", \"block\" and \"memory\" have measured"), \
        DEFINE_BY_TYPE(contention, Contention, SD_VARLINK_NULLABLE), \
        FIELD_COMMENT("What the probe \"storage\" has measured"), \
        DEFINE_BY_TYPE(storage, Storage, SD_VARLINK_NULLABLE), \
        FIELD_COMMENT("All counters since the attach, by the name of the metric"), \
        DEFINE(totals, SD_VARLINK_INT, SD_VARLINK_MAP|SD_VARLINK_NULLABLE), \
        FIELD_COMMENT("What observing the unit costs; left out where nothing of it is measured"), \
        DEFINE_BY_TYPE(cost, Cost, SD_VARLINK_NULLABLE), \
        FIELD_COMMENT("Events of this unit that could not be recorded, since the attach"), \
        DEFINE(drops, SD_VARLINK_INT, 0)

static SD_VARLINK_DEFINE_STRUCT_TYPE(
                Snapshot,
                DEFINE_SNAPSHOT(SD_VARLINK_DEFINE_FIELD, SD_VARLINK_DEFINE_FIELD_BY_TYPE));

static SD_VARLINK_DEFINE_STRUCT_TYPE(
                Bucket,
                FIELD_COMMENT("Durations in the bucket are longer than this, in nanoseconds"),
                SD_VARLINK_DEFINE_FIELD(lower, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Durations in the bucket are no longer than this, in nanoseconds; left out "
                              "for the last bucket, which has no end"),
                SD_VARLINK_DEFINE_FIELD(upper, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("How many durations are in it"),
                SD_VARLINK_DEFINE_FIELD(count, SD_VARLINK_INT, 0));

static SD_VARLINK_DEFINE_STRUCT_TYPE(
                ExportedHistogram,
                FIELD_COMMENT("The distribution"),
                SD_VARLINK_DEFINE_FIELD(metric, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("The schema of the buckets, see Histogram()"),
                SD_VARLINK_DEFINE_FIELD(schema, SD_VARLINK_INT, 0),
                FIELD_COMMENT("The sum of all durations, in nanoseconds"),
                SD_VARLINK_DEFINE_FIELD(sum, SD_VARLINK_INT, 0),
                FIELD_COMMENT("The buckets that are not empty, from short to long, by their index in a "
                              "native histogram of Prometheus in seconds: bucket i has the durations longer "
                              "than 2^((i-1)/2^schema) s and no longer than 2^(i/2^schema) s; the one that "
                              "ends at 2^-22 s (238 ns) also all that are shorter, the one that begins at "
                              "2^6 s (64 s) all that are longer"),
                SD_VARLINK_DEFINE_FIELD(indexes, SD_VARLINK_INT, SD_VARLINK_ARRAY),
                FIELD_COMMENT("How many durations are in each of these buckets"),
                SD_VARLINK_DEFINE_FIELD(counts, SD_VARLINK_INT, SD_VARLINK_ARRAY),
                FIELD_COMMENT("How many durations were measured: the sum of these counts"),
                SD_VARLINK_DEFINE_FIELD(count, SD_VARLINK_INT, 0));

static SD_VARLINK_DEFINE_STRUCT_TYPE(
                ExportedObjective,
                FIELD_COMMENT("The name of the threshold"),
                SD_VARLINK_DEFINE_FIELD(threshold, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("The share of requests that has to be within its limit: 0.99 for a p99"),
                SD_VARLINK_DEFINE_FIELD(target, SD_VARLINK_FLOAT, 0),
                FIELD_COMMENT("Good requests since the threshold was set"),
                SD_VARLINK_DEFINE_FIELD(good, SD_VARLINK_INT, 0),
                FIELD_COMMENT("All of them"),
                SD_VARLINK_DEFINE_FIELD(total, SD_VARLINK_INT, 0));

static SD_VARLINK_DEFINE_STRUCT_TYPE(
                ExportedUnit,
                FIELD_COMMENT("The name of the unit, or the path of the control group if it was attached by "
                              "that"),
                SD_VARLINK_DEFINE_FIELD(name, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("The slice that its control group is in; left out while it has none"),
                SD_VARLINK_DEFINE_FIELD(slice, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Its state, as systemd has it"),
                SD_VARLINK_DEFINE_FIELD(activeState, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("When all of it began to be counted, in microseconds since 1970 UTC: another "
                              "time than in an export before means that it began anew. Restarts of the unit "
                              "and of qosd do not, but for what the kernel counts for control groups: "
                              "contention.pressure, contention.quota, swapIns and refaults begin anew with "
                              "qosd"),
                SD_VARLINK_DEFINE_FIELD(attachedSince, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Number of the reading; equal numbers for a unit mean equal contents"),
                SD_VARLINK_DEFINE_FIELD(seq, SD_VARLINK_INT, 0),
                FIELD_COMMENT("When the reading was taken, in microseconds since 1970 UTC"),
                SD_VARLINK_DEFINE_FIELD(timestamp, SD_VARLINK_INT, 0),
                FIELD_COMMENT("All counters since the attach, by the name of the metric"),
                SD_VARLINK_DEFINE_FIELD(totals, SD_VARLINK_INT, SD_VARLINK_MAP|SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Levels at that moment, by the name of the metric: requests in flight and "
                              "waiting, the age of the oldest, connections"),
                SD_VARLINK_DEFINE_FIELD(gauges, SD_VARLINK_INT, SD_VARLINK_MAP|SD_VARLINK_NULLABLE),
                FIELD_COMMENT("The distributions that are measured, of the same reading"),
                SD_VARLINK_DEFINE_FIELD_BY_TYPE(histograms, ExportedHistogram, SD_VARLINK_ARRAY),
                FIELD_COMMENT("The unit's thresholds on quantiles of requests, of the same reading; left "
                              "out if there are none"),
                SD_VARLINK_DEFINE_FIELD_BY_TYPE(objectives, ExportedObjective,
                                                SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Run time of qosd's programs for the unit since the attach, in nanoseconds, "
                              "independent of seq: of \"requests\", of \"contention\" since it is "
                              "observed with one of the probes cpu, block and memory, and of "
                              "\"storage\" since it is observed with that"),
                SD_VARLINK_DEFINE_FIELD(cost, SD_VARLINK_INT, SD_VARLINK_MAP|SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Events of this unit that could not be recorded, since the attach"),
                SD_VARLINK_DEFINE_FIELD(drops, SD_VARLINK_INT, 0),
                FIELD_COMMENT("With \"tables\": counters since the attach, and requests in flight, of each "
                              "endpoint that is no Unix socket and not excluded; left out if they are not "
                              "known. None is less than in an export before with the same attachedSince, "
                              "unless qosd was restarted"),
                SD_VARLINK_DEFINE_FIELD_BY_TYPE(endpoints, Endpoint, SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE),
                FIELD_COMMENT("With \"tables\": counters of each device that the unit has used"),
                SD_VARLINK_DEFINE_FIELD_BY_TYPE(devices, BlockDevice, SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE),
                FIELD_COMMENT("With \"tables\": counters of each file system that the unit has used"),
                SD_VARLINK_DEFINE_FIELD_BY_TYPE(mounts, Mount, SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE));

static SD_VARLINK_DEFINE_STRUCT_TYPE(
                ExportedProgram,
                FIELD_COMMENT("The name of the BPF program, see Probes()"),
                SD_VARLINK_DEFINE_FIELD(program, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("Whether it is attached"),
                SD_VARLINK_DEFINE_FIELD(attached, SD_VARLINK_BOOL, 0),
                FIELD_COMMENT("Why it is not, or not everywhere"),
                SD_VARLINK_DEFINE_FIELD(reason, SD_VARLINK_STRING, SD_VARLINK_NULLABLE));

static SD_VARLINK_DEFINE_STRUCT_TYPE(
                StepHistogram,
                FIELD_COMMENT("The distribution"),
                SD_VARLINK_DEFINE_FIELD(metric, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("The schema of the buckets, see Histogram(). The less space there is, the "
                              "coarser: 3 at most, -2 at least"),
                SD_VARLINK_DEFINE_FIELD(schema, SD_VARLINK_INT, 0),
                FIELD_COMMENT("How many durations were measured"),
                SD_VARLINK_DEFINE_FIELD(count, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Their sum, in nanoseconds"),
                SD_VARLINK_DEFINE_FIELD(sum, SD_VARLINK_INT, 0),
                FIELD_COMMENT("The number of the first bucket. Bucket i has the durations longer than "
                              "2^((i-1)/2^schema) s and no longer than 2^(i/2^schema) s; the one that "
                              "ends at 2^-22 s (238 ns; in schema -2 at 2^-20 s) also all that are shorter, "
                              "the one that begins at 2^6 s (64 s; in schema -2 at 2^4 s) all that are "
                              "longer. i is the index of native histograms of "
                              "Prometheus in seconds, of exponential ones of OpenTelemetry i - 1"),
                SD_VARLINK_DEFINE_FIELD(offset, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("How many durations are in the first bucket, the next one, and so on; the "
                              "buckets before and behind these are empty"),
                SD_VARLINK_DEFINE_FIELD(counts, SD_VARLINK_INT, SD_VARLINK_ARRAY));

static SD_VARLINK_DEFINE_STRUCT_TYPE(
                HistoryStep,
                FIELD_COMMENT("When it began, in microseconds since 1970 UTC"),
                SD_VARLINK_DEFINE_FIELD(timestamp, SD_VARLINK_INT, 0),
                FIELD_COMMENT("How much of it the unit was observed for, in nanoseconds"),
                SD_VARLINK_DEFINE_FIELD(covered, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Counters, rates and distributions in the step, gauges at its end. Of a "
                              "distribution the count is there with any other figure of it"),
                SD_VARLINK_DEFINE_FIELD_BY_TYPE(requests, Requests, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("The same of contention, as far as there is a history of it; of its "
                              "distributions count and mean"),
                SD_VARLINK_DEFINE_FIELD_BY_TYPE(contention, Contention, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("The buckets of the requested distributions that were measured"),
                SD_VARLINK_DEFINE_FIELD_BY_TYPE(histograms, StepHistogram,
                                                SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE));

static SD_VARLINK_DEFINE_METHOD(
                Attach,
                DEFINE_INPUT_UNIT,
                FIELD_COMMENT("The probes to observe it with, \"requests\", \"tls\", \"cpu\", \"block\" and "
                              "\"memory\". Default: the configured ones"),
                SD_VARLINK_DEFINE_INPUT(probes, SD_VARLINK_STRING, SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE),
                FIELD_COMMENT("What to exclude from the figures of the unit: \"port:9100\" for the "
                              "requests to this port, on any address; \"http:/healthz\" for those to this "
                              "path, as the client writes it and without the query, \"http:/static/*\" "
                              "for those to all paths that begin so, three directories deep at most; "
                              "\"redis:BRPOP\" for this command. The exclusions of all holds of a unit "
                              "apply; those of a user that may attach it only as the owner of its control "
                              "group apply only while the unit has no other hold. Default: nothing"),
                SD_VARLINK_DEFINE_INPUT(exclude, SD_VARLINK_STRING, SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Observe it for as long as this connection is open, instead of until it is "
                              "detached. Default: no"),
                SD_VARLINK_DEFINE_INPUT(lease, SD_VARLINK_BOOL, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Detach it by itself after this many nanoseconds; not for leases"),
                SD_VARLINK_DEFINE_INPUT(duration, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                DEFINE_INPUT_POLKIT,
                FIELD_COMMENT("The name of the unit, which differs from the requested one if that was an "
                              "alias or lacked the suffix"),
                SD_VARLINK_DEFINE_OUTPUT(unit, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("What cannot be measured, and why"),
                SD_VARLINK_DEFINE_OUTPUT(degraded, SD_VARLINK_STRING, SD_VARLINK_NULLABLE));

static SD_VARLINK_DEFINE_METHOD(
                Detach,
                DEFINE_INPUT_UNIT,
                FIELD_COMMENT("Give up the lease of this connection instead. Default: no"),
                SD_VARLINK_DEFINE_INPUT(lease, SD_VARLINK_BOOL, SD_VARLINK_NULLABLE),
                DEFINE_INPUT_POLKIT);

static SD_VARLINK_DEFINE_METHOD_FULL(
                List,
                SD_VARLINK_SUPPORTS_MORE,
                FIELD_COMMENT("Only this unit"),
                SD_VARLINK_DEFINE_INPUT(unit, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                DEFINE_INPUT_WINDOW,
                FIELD_COMMENT("Whether the unit is observed"),
                SD_VARLINK_DEFINE_OUTPUT(attached, SD_VARLINK_BOOL, 0),
                FIELD_COMMENT("Why it is observed"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(holds, Hold, SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE),
                FIELD_COMMENT("What cannot be measured, and why"),
                SD_VARLINK_DEFINE_OUTPUT(degraded, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("The nearest attached ancestor, whose figures include its own"),
                SD_VARLINK_DEFINE_OUTPUT(parentUnit, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("The attached units below it, at any depth"),
                SD_VARLINK_DEFINE_OUTPUT(descendantUnits, SD_VARLINK_STRING,
                                         SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Its thresholds"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(thresholds, Threshold,
                                                 SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE),
                FIELD_COMMENT("A reading of it"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(snapshot, Snapshot, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("The name of the unit, or the path of a control group"),
                SD_VARLINK_DEFINE_OUTPUT(unit, SD_VARLINK_STRING, 0));

static SD_VARLINK_DEFINE_METHOD_FULL(
                Export,
                SD_VARLINK_REQUIRES_MORE,
                FIELD_COMMENT("Only this unit"),
                SD_VARLINK_DEFINE_INPUT(unit, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("With endpoints, devices and file systems. Default: no"),
                SD_VARLINK_DEFINE_INPUT(tables, SD_VARLINK_BOOL, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("A unit, in all replies but the last"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(unit, ExportedUnit, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("In the last reply: how many units there were before it"),
                SD_VARLINK_DEFINE_OUTPUT(units, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("In the last reply to an export of all units: the BPF programs that they "
                              "need"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(programs, ExportedProgram,
                                                 SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE));

static SD_VARLINK_DEFINE_METHOD(
                Get,
                DEFINE_INPUT_UNIT,
                DEFINE_INPUT_WINDOW,
                FIELD_COMMENT("Show what happened since Mark() was called for the unit on this connection, "
                              "instead of a window. Default: no"),
                SD_VARLINK_DEFINE_INPUT(sinceMark, SD_VARLINK_BOOL, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Metrics to show by themselves, too: those that ListMetrics() has, and such "
                              "of an endpoint (\"requests.server[127.0.0.1:80].count\", "
                              "\"requests.server[:80].latency.p99\" for all at this port together) or of a "
                              "peer (\"requests.client[127.0.0.1:6379].rate\", "
                              "\"requests.client[redis-server.service].rate\"), which have count, rate, "
                              "errors, clientAborts or aborts, inFlight, latency, bytesIn and bytesOut; "
                              "or of a file system (\"storage.mounts[/srv].reads.count\", "
                              "\"storage.mounts[8:1].syncs.latency.p99\"). Those of peers, of file systems "
                              "and of endpoints with a path, are for root and for the user that owns the "
                              "control group"),
                SD_VARLINK_DEFINE_INPUT(metrics, SD_VARLINK_STRING, SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE),
                DEFINE_SNAPSHOT(SD_VARLINK_DEFINE_OUTPUT, SD_VARLINK_DEFINE_OUTPUT_BY_TYPE),
                FIELD_COMMENT("The requested metrics, by the name that was given for each. Metrics that "
                              "were not measured, or of an endpoint, peer or file system that does not "
                              "exist, are absent"),
                SD_VARLINK_DEFINE_OUTPUT(values, SD_VARLINK_OBJECT, SD_VARLINK_NULLABLE));

static SD_VARLINK_DEFINE_METHOD(
                GetMany,
                FIELD_COMMENT("The units, at most 256, each once"),
                SD_VARLINK_DEFINE_INPUT(units, SD_VARLINK_STRING, SD_VARLINK_ARRAY),
                DEFINE_INPUT_WINDOW,
                FIELD_COMMENT("When the readings were taken, all of them, in microseconds since 1970 UTC"),
                SD_VARLINK_DEFINE_OUTPUT(timestamp, SD_VARLINK_INT, 0),
                FIELD_COMMENT("The readings, in the order of the units; without those that cannot be shown, "
                              "which the log says why"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(snapshots, Snapshot, SD_VARLINK_ARRAY));

static SD_VARLINK_DEFINE_METHOD(
                GetView,
                DEFINE_INPUT_UNIT,
                FIELD_COMMENT("The name of the unit"),
                SD_VARLINK_DEFINE_OUTPUT(unit, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("Which of the descriptors that come with the reply is the map"),
                SD_VARLINK_DEFINE_OUTPUT(map, SD_VARLINK_INT, 0),
                FIELD_COMMENT("The layout of the map. A program that was built with another number than "
                              "this cannot read it"),
                SD_VARLINK_DEFINE_OUTPUT(layout, SD_VARLINK_INT, 0),
                FIELD_COMMENT("When the unit was attached, in nanoseconds of CLOCK_MONOTONIC"),
                SD_VARLINK_DEFINE_OUTPUT(since, SD_VARLINK_INT, 0),
                FIELD_COMMENT("How many samples must lie beyond a quantile, as in qosd.conf"),
                SD_VARLINK_DEFINE_OUTPUT(minimumSamples, SD_VARLINK_INT, 0),
                FIELD_COMMENT("The distributions that are measured, by the names of their metrics"),
                SD_VARLINK_DEFINE_OUTPUT(measured, SD_VARLINK_STRING, SD_VARLINK_ARRAY));

static SD_VARLINK_DEFINE_METHOD(
                Mark,
                DEFINE_INPUT_UNIT,
                FIELD_COMMENT(
                        "The name of the unit, or the path of the control group if it was attached by that"),
                SD_VARLINK_DEFINE_OUTPUT(unit, SD_VARLINK_STRING, 0));

static SD_VARLINK_DEFINE_METHOD(
                Histogram,
                DEFINE_INPUT_UNIT,
                FIELD_COMMENT("A distribution, for instance \"requests.server.latency\"; of an endpoint or "
                              "a peer see Get()"),
                SD_VARLINK_DEFINE_INPUT(metric, SD_VARLINK_STRING, 0),
                DEFINE_INPUT_WINDOW,
                FIELD_COMMENT(
                        "The name of the unit, or the path of the control group if it was attached by that"),
                SD_VARLINK_DEFINE_OUTPUT(unit, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("The distribution"),
                SD_VARLINK_DEFINE_OUTPUT(metric, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("The reading it is from"),
                SD_VARLINK_DEFINE_OUTPUT(seq, SD_VARLINK_INT, 0),
                FIELD_COMMENT("When the reading was taken, in microseconds since 1970 UTC"),
                SD_VARLINK_DEFINE_OUTPUT(timestamp, SD_VARLINK_INT, 0),
                FIELD_COMMENT("The window in nanoseconds, which ends with the timestamp; left out for "
                              "everything since the attach"),
                SD_VARLINK_DEFINE_OUTPUT(window, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("How much of the window the unit was attached for, in nanoseconds"),
                SD_VARLINK_DEFINE_OUTPUT(covered, SD_VARLINK_INT, 0),
                FIELD_COMMENT("The grid the buckets lie on: the scale of exponential histograms in "
                              "OpenTelemetry, the schema of native ones in Prometheus, in seconds. Bounds "
                              "are in nanoseconds, rounded down: the first bucket ends at 2^-22 s (238 ns), "
                              "the last begins at 2^6 s (64 s)"),
                SD_VARLINK_DEFINE_OUTPUT(schema, SD_VARLINK_INT, 0),
                FIELD_COMMENT("How many durations were measured"),
                SD_VARLINK_DEFINE_OUTPUT(count, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Their sum, in nanoseconds"),
                SD_VARLINK_DEFINE_OUTPUT(sum, SD_VARLINK_INT, 0),
                FIELD_COMMENT("The buckets that are not empty, from short to long"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(buckets, Bucket, SD_VARLINK_ARRAY));

static SD_VARLINK_DEFINE_METHOD(
                History,
                DEFINE_INPUT_UNIT,
                FIELD_COMMENT("Metrics, or distributions like \"requests.server.latency\" to show with "
                              "their buckets. Default, also if empty: all metrics"),
                SD_VARLINK_DEFINE_INPUT(metrics, SD_VARLINK_STRING, SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Only steps that end later than this, in microseconds since 1970 UTC. "
                              "Default: an hour ago"),
                SD_VARLINK_DEFINE_INPUT(since, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("The length of the steps in nanoseconds: 10 s, which are kept for an hour, or "
                              "5 min, which are kept for a day. Default: 10 s if that goes back far enough"),
                SD_VARLINK_DEFINE_INPUT(step, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT(
                        "The name of the unit, or the path of the control group if it was attached by that"),
                SD_VARLINK_DEFINE_OUTPUT(unit, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("The length of the steps, in nanoseconds"),
                SD_VARLINK_DEFINE_OUTPUT(step, SD_VARLINK_INT, 0),
                FIELD_COMMENT(
                        "The steps, from old to new. Those in which the unit was not observed are left out"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(steps, HistoryStep, SD_VARLINK_ARRAY));

static SD_VARLINK_DEFINE_METHOD_FULL(
                Subscribe,
                SD_VARLINK_REQUIRES_MORE,
                FIELD_COMMENT("The units. Default, also if empty: all that are attached, or will be"),
                SD_VARLINK_DEFINE_INPUT(units, SD_VARLINK_STRING, SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE),
                DEFINE_INPUT_WINDOW,
                FIELD_COMMENT("The time between two readings, in nanoseconds. Default: one second"),
                SD_VARLINK_DEFINE_INPUT(interval, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("A reading"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(snapshot, Snapshot, 0),
                FIELD_COMMENT("How many readings were left out before this one, as the earlier ones had not "
                              "been fetched"),
                SD_VARLINK_DEFINE_OUTPUT(skipped, SD_VARLINK_INT, SD_VARLINK_NULLABLE));

#define DEFINE_ERROR(name, argument, type, text) \
        SD_VARLINK_DEFINE_ERROR( \
                name, \
                FIELD_COMMENT(text), \
                SD_VARLINK_DEFINE_FIELD(argument, type, 0), \
                FIELD_COMMENT("The same in a sentence"), \
                SD_VARLINK_DEFINE_FIELD(message, SD_VARLINK_STRING, 0))

static DEFINE_ERROR(NoSuchUnit, unit, SD_VARLINK_STRING, "The unit as given");
static DEFINE_ERROR(InvalidUnitName, unit, SD_VARLINK_STRING, "The name as given");
static DEFINE_ERROR(NotAttached, unit, SD_VARLINK_STRING, "The unit");
static DEFINE_ERROR(NoControlGroup, unit, SD_VARLINK_STRING, "The unit");
static DEFINE_ERROR(NoSuchProbe, probe, SD_VARLINK_STRING, "The probe as given");
static DEFINE_ERROR(ProbeUnavailable, probe, SD_VARLINK_STRING, "The probe");
static DEFINE_ERROR(ProbeNotPermitted, probe, SD_VARLINK_STRING, "The probe");
static DEFINE_ERROR(TooManyUnits, limit, SD_VARLINK_INT, "How many there may be");
static DEFINE_ERROR(TooManyLeases, limit, SD_VARLINK_INT, "How many there may be");
static DEFINE_ERROR(NoSuchMetric, metric, SD_VARLINK_STRING, "The metric as given");
static DEFINE_ERROR(NoHistory, metric, SD_VARLINK_STRING, "The metric");
static DEFINE_ERROR(NotMarked, unit, SD_VARLINK_STRING, "The unit");
static DEFINE_ERROR(TooManyMarks, limit, SD_VARLINK_INT, "How many there may be");
static DEFINE_ERROR(TooManyDiagnoses, limit, SD_VARLINK_INT, "How many there may be");
static DEFINE_ERROR(TooManyStreams, limit, SD_VARLINK_INT, "How many there may be");
static DEFINE_ERROR(InvalidExclude, exclude, SD_VARLINK_STRING,
                    "The exclusion as given");
static DEFINE_ERROR(ViewUnavailable, unit, SD_VARLINK_STRING, "The unit");
static DEFINE_ERROR(TooManyViews, limit, SD_VARLINK_INT, "How many there may be");
static DEFINE_ERROR(TooManyExcludes, limit, SD_VARLINK_INT, "How many there may be");
static DEFINE_ERROR(InvalidThreshold, threshold, SD_VARLINK_STRING,
                    "The threshold or the condition as it was written");
static DEFINE_ERROR(NoSuchThreshold, threshold, SD_VARLINK_STRING, "The name as given");
static DEFINE_ERROR(ThresholdExists, threshold, SD_VARLINK_STRING, "The name of the threshold");
static DEFINE_ERROR(TooManyThresholds, limit, SD_VARLINK_INT, "How many there may be");
static DEFINE_ERROR(TooSlow, seq, SD_VARLINK_INT,
                    "The number of the last event that was sent, to go on from there");
static DEFINE_ERROR(NotMeasured, metric, SD_VARLINK_STRING, "The metric");
static DEFINE_ERROR(DuplicateUnit, unit, SD_VARLINK_STRING, "The unit");
static DEFINE_ERROR(ServiceManagerFailed, unit, SD_VARLINK_STRING, "The unit");
static SD_VARLINK_DEFINE_ERROR(NoEntries);

SD_VARLINK_DEFINE_INTERFACE(
                org_qosd_QoS,
                "org.qosd.QoS",
                SD_VARLINK_INTERFACE_COMMENT(
                        "How well systemd units serve their requests, measured in the kernel"),
                SYMBOL_COMMENT("What is known of the figures"),
                &vl_type_Quality,
                SYMBOL_COMMENT("How long a unit is observed"),
                &vl_type_HoldType,
                SYMBOL_COMMENT("What became of a BPF program"),
                &vl_type_ProgramState,
                SYMBOL_COMMENT("How a metric behaves over time"),
                &vl_type_MetricKind,
                SYMBOL_COMMENT("What a threshold says of its unit"),
                &vl_type_ThresholdState,
                SYMBOL_COMMENT("How long a threshold lasts"),
                &vl_type_ThresholdSource,
                SYMBOL_COMMENT("A reason to observe a unit; it is observed until the last one is gone"),
                &vl_type_Hold,
                SYMBOL_COMMENT("A distribution of durations"),
                &vl_type_Distribution,
                SYMBOL_COMMENT("Failed requests in the window, by kind"),
                &vl_type_Errors,
                SYMBOL_COMMENT("Requests by protocol"),
                &vl_type_Protocols,
                SYMBOL_COMMENT("The connections to a unit"),
                &vl_type_Connections,
                SYMBOL_COMMENT("Connections to a unit on which requests overlap, in a protocol that no "
                               "parser knows: their requests are in no count and no distribution"),
                &vl_type_Intended,
                &vl_type_Unparsed,
                SYMBOL_COMMENT("The figures of the requests to one address of a unit"),
                &vl_type_Endpoint,
                SYMBOL_COMMENT("Requests of a unit to others that failed"),
                &vl_type_PeerErrors,
                SYMBOL_COMMENT("What a peer has of the requests that a unit makes"),
                &vl_type_Peer,
                SYMBOL_COMMENT("The requests that a unit makes of others"),
                &vl_type_Client,
                SYMBOL_COMMENT("By the state of threads: shares of their time, or how many they were"),
                &vl_type_StateShares,
                SYMBOL_COMMENT("A distribution of service times, and where they went"),
                &vl_type_Service,
                SYMBOL_COMMENT("A unit in the server role"),
                &vl_type_Server,
                SYMBOL_COMMENT("What the probe \"requests\" measures"),
                &vl_type_Requests,
                SYMBOL_COMMENT("Where the time of a unit's threads went while requests were in flight"),
                &vl_type_Serving,
                SYMBOL_COMMENT("By the state of threads: times"),
                &vl_type_StateTimes,
                SYMBOL_COMMENT("By the state that a thread came to: how often"),
                &vl_type_StateWaits,
                SYMBOL_COMMENT("What a thread does"),
                &vl_type_ThreadState,
                SYMBOL_COMMENT("What a thread did, since it was first seen in the unit"),
                &vl_type_Thread,
                SYMBOL_COMMENT("What several threads did"),
                &vl_type_ThreadsRest,
                SYMBOL_COMMENT("What threads wait for"),
                &vl_type_ResourceKind,
                SYMBOL_COMMENT("A thread that ends waits of others"),
                &vl_type_Waker,
                SYMBOL_COMMENT("Something that threads wait for, in one state, since the unit is watched "
                               "with the probe \"cpu\""),
                &vl_type_Resource,
                SYMBOL_COMMENT("How often threads left the CPU"),
                &vl_type_ContextSwitches,
                SYMBOL_COMMENT("What a unit has one block device do, in the window"),
                &vl_type_BlockDevice,
                SYMBOL_COMMENT("What a unit has block devices do, in the window: requests that are done. A "
                               "device that lies on another, as a loop device does on a disk, is one by "
                               "itself"),
                &vl_type_Block,
                SYMBOL_COMMENT("What the threads of a unit wait for memory, in the window"),
                &vl_type_Memory,
                SYMBOL_COMMENT("Time in which threads were held up for want of something"),
                &vl_type_PressureOfKind,
                SYMBOL_COMMENT("Time in which threads were held up, by what they waited for"),
                &vl_type_Pressure,
                SYMBOL_COMMENT("The CPU quota of a control group, in the window"),
                &vl_type_Quota,
                SYMBOL_COMMENT("Where the time of a unit's threads goes, and what it has of the machine. "
                               "Each thread is in exactly one state at any time, as the probe \"cpu\" "
                               "measures"),
                &vl_type_Contention,
                SYMBOL_COMMENT("Calls that read or write files, in the window"),
                &vl_type_StorageReads,
                SYMBOL_COMMENT("Calls that wait until a file is stored, in the window"),
                &vl_type_StorageSyncs,
                SYMBOL_COMMENT("Calls that open files, in the window"),
                &vl_type_StorageOpens,
                SYMBOL_COMMENT("Calls on names and attributes of files, in the window"),
                &vl_type_StorageChanges,
                SYMBOL_COMMENT("What a unit requests of one file system"),
                &vl_type_Mount,
                SYMBOL_COMMENT("Calls on files of any kind, sockets and pipes included, in the window"),
                &vl_type_StorageCalls,
                SYMBOL_COMMENT("Pages of files in the page cache, in the window"),
                &vl_type_StorageCache,
                SYMBOL_COMMENT("Page faults on mapped files, in the window"),
                &vl_type_StorageMapped,
                SYMBOL_COMMENT("Bytes to and from block devices for each byte of the calls, in the window"),
                &vl_type_StorageAmplification,
                SYMBOL_COMMENT("What the threads of a unit request of file systems. A call counts when it "
                               "returns"),
                &vl_type_Storage,
                SYMBOL_COMMENT("What observing costs"),
                &vl_type_Cost,
                SYMBOL_COMMENT("A reading: all that is known of one unit over one window, at one moment"),
                &vl_type_Snapshot,
                SYMBOL_COMMENT("A part of a histogram"),
                &vl_type_Bucket,
                SYMBOL_COMMENT("A distribution of all requests or waits since the attach"),
                &vl_type_ExportedHistogram,
                SYMBOL_COMMENT("A threshold as an objective: how many requests it allows to be beyond its "
                               "limit, and how many were"),
                &vl_type_ExportedObjective,
                SYMBOL_COMMENT("What a unit has counted since the attach, all of one reading, and its "
                               "levels"),
                &vl_type_ExportedUnit,
                SYMBOL_COMMENT("A BPF program that the attached units need"),
                &vl_type_ExportedProgram,
                SYMBOL_COMMENT("A distribution in a step of the history"),
                &vl_type_StepHistogram,
                SYMBOL_COMMENT("A step of the history: what happened in ten seconds, or five minutes"),
                &vl_type_HistoryStep,
                SYMBOL_COMMENT("How a unit does"),
                &vl_type_Verdict,
                SYMBOL_COMMENT("What may hold a unit back"),
                &vl_type_FindingKind,
                SYMBOL_COMMENT("How sure it is"),
                &vl_type_Certainty,
                SYMBOL_COMMENT("What holds a unit back"),
                &vl_type_Finding,
                SYMBOL_COMMENT("What was looked at, and does not"),
                &vl_type_ExcludedFinding,
                SYMBOL_COMMENT("What an interval had of a unit and of the machine, on average. What is not "
                               "known is left out"),
                &vl_type_DiagnosisFigures,
                SYMBOL_COMMENT("The part of a unit's history that figures are of: of the time in which no "
                               "threshold is known to have been violated, the half with the lowest latency"),
                &vl_type_BaselinePeriod,
                SYMBOL_COMMENT("Another that had the CPUs that threads waited for"),
                &vl_type_CpuCompetitor,
                SYMBOL_COMMENT("A peer to which the unit sent requests"),
                &vl_type_Dependency,
                SYMBOL_COMMENT("A device that the unit used"),
                &vl_type_Device,
                SYMBOL_COMMENT("A lock that the unit's threads waited for"),
                &vl_type_ContendedLock,
                SYMBOL_COMMENT("What a metric of a unit must not be beyond"),
                &vl_type_Threshold,
                SYMBOL_COMMENT("A share of the time of threads that is not what it mostly is"),
                &vl_type_ShareChange,
                SYMBOL_COMMENT("The state of a threshold has changed"),
                &vl_type_ThresholdEvent,
                SYMBOL_COMMENT("Elements of a BPF map that could not be made"),
                &vl_type_LostElements,
                SYMBOL_COMMENT("Begins to observe a unit, also one that does not run yet. A further call "
                               "of the same user replaces the earlier one"),
                &vl_method_Attach,
                SYMBOL_COMMENT("Ends what Attach() began, and for root, and users that polkit authorizes, "
                               "also the holds of users that own the control group; the unit stays "
                               "observed while it has other holds"),
                &vl_method_Detach,
                SYMBOL_COMMENT("Shows the attached units, one with each reply. Of one unit without "
                               "\"more\", too"),
                &vl_method_List,
                SYMBOL_COMMENT("Exports the attached units, one with each reply, for systems that store "
                               "metrics: what rises from the attach on, and levels. Rates, means, shares "
                               "and quantiles follow from these"),
                &vl_method_Export,
                SYMBOL_COMMENT("Takes a reading of one attached unit"),
                &vl_method_Get,
                SYMBOL_COMMENT("Takes a reading of each of the units, all at the same moment"),
                &vl_method_GetMany,
                SYMBOL_COMMENT("Passes the memory with the counters of the unit's requests, read-only: "
                               "libqosd reads it. It has addresses of peers in it, so that it is for root "
                               "and for the user that owns the unit's control group. When it is no longer "
                               "valid (the unit is detached, or another one in it is attached) a word in "
                               "it says so, but only while the connection lasts"),
                &vl_method_GetView,
                SYMBOL_COMMENT("Remembers the present moment, for Get() with sinceMark; once more forgets "
                               "the one before. Marks go with the connection, or the unit's last hold"),
                &vl_method_Mark,
                SYMBOL_COMMENT("Shows how the durations are distributed that a metric is made from"),
                &vl_method_Histogram,
                SYMBOL_COMMENT("Shows the state of each thread of a unit, and its times since it was "
                               "first seen there. For root, the user that owns the control group, and "
                               "users that polkit authorizes (org.qosd1.inspect)"),
                &vl_method_Threads,
                SYMBOL_COMMENT("Shows what the threads of a unit wait for, and which threads wake them, "
                               "since the unit has been observed. For the same users"),
                &vl_method_Resources,
                SYMBOL_COMMENT("Kind of a call on files"),
                &vl_type_StorageOperation,
                SYMBOL_COMMENT("A call on files that took long"),
                &vl_type_SlowOperation,
                SYMBOL_COMMENT("Shows the latest calls on files that took at least as long as "
                               "SlowOperation= says, of a unit with the probe \"storage\". For the same "
                               "users"),
                &vl_method_SlowOperations,
                SYMBOL_COMMENT("Shows what one attached unit did over time. The history begins with the "
                               "attach, and ends with it"),
                &vl_method_History,
                SYMBOL_COMMENT("Begins the interval of a diagnosis, which the client ends with Diagnose() "
                               "when it likes. The reply comes when the unit is attached and the interval "
                               "has begun. A further call, the end of the connection, and 10 min without "
                               "Diagnose() cancel it. For the users that may call Diagnose()"),
                &vl_method_BeginDiagnosis,
                SYMBOL_COMMENT("Finds what limits a unit: observes it for as long as the window, and "
                               "replies then. A unit that is not attached is attached for that time. For "
                               "root, for the user that owns the control group, and for users that may "
                               "see peers and, where the unit is not attached with all of them, attach it"),
                &vl_method_Diagnose,
                SYMBOL_COMMENT("Takes a reading of each of the units at once, and then at each multiple "
                               "of the interval. A client that does not read the replies misses some, and "
                               "then loses the connection"),
                &vl_method_Subscribe,
                SYMBOL_COMMENT("Sets a threshold of an attached unit. Each change of its state is an event, "
                               "for Monitor(), the signal of D-Bus, and the journal"),
                &vl_method_SetThreshold,
                SYMBOL_COMMENT("Takes a threshold away. If its state is not unknown, that it becomes so is "
                               "an event, as any other change"),
                &vl_method_ClearThreshold,
                SYMBOL_COMMENT("Shows thresholds, one with each reply"),
                &vl_method_ListThresholds,
                SYMBOL_COMMENT("Shows the thresholds, and then each change of a state when it happens. A "
                               "client that does not read the replies gets the error TooSlow, and no more. "
                               "Without \"more\" and \"since\": the thresholds as they are"),
                &vl_method_Monitor,
                SYMBOL_COMMENT("Replies when the condition holds"),
                &vl_method_Wait,
                SYMBOL_COMMENT("Shows what there is to measure, one metric with each reply"),
                &vl_method_ListMetrics,
                SYMBOL_COMMENT("Shows the BPF programs, one with each reply"),
                &vl_method_Probes,
                SYMBOL_COMMENT("Shows what qosd itself is up to"),
                &vl_method_GetStatus,
                SYMBOL_COMMENT("The service manager knows no unit of that name"),
                &vl_error_NoSuchUnit,
                SYMBOL_COMMENT("No unit can have that name, no control group that path"),
                &vl_error_InvalidUnitName,
                SYMBOL_COMMENT("The unit is not attached, or not by the caller"),
                &vl_error_NotAttached,
                SYMBOL_COMMENT("The unit is of a kind that never has processes of its own"),
                &vl_error_NoControlGroup,
                SYMBOL_COMMENT("There is no probe of that name"),
                &vl_error_NoSuchProbe,
                SYMBOL_COMMENT("The probe does not work on this system"),
                &vl_error_ProbeUnavailable,
                SYMBOL_COMMENT("The probe slows down every process of the machine: it needs authorization, "
                               "also from the owner of the control group"),
                &vl_error_ProbeNotPermitted,
                SYMBOL_COMMENT("As many units are attached as may be, or as this user may attach"),
                &vl_error_TooManyUnits,
                SYMBOL_COMMENT("This user has as many leases as may be"),
                &vl_error_TooManyLeases,
                SYMBOL_COMMENT("There is no metric of that name, or it is no distribution"),
                &vl_error_NoSuchMetric,
                SYMBOL_COMMENT("There is such a metric, but no history of it"),
                &vl_error_NoHistory,
                SYMBOL_COMMENT("Mark() was not called for the unit on this connection"),
                &vl_error_NotMarked,
                SYMBOL_COMMENT("This connection has marks in as many units as it may"),
                &vl_error_TooManyMarks,
                SYMBOL_COMMENT("As many diagnoses are under way as may be at a time"),
                &vl_error_TooManyDiagnoses,
                SYMBOL_COMMENT("The user has as many streams of readings as a user may"),
                &vl_error_TooManyStreams,
                SYMBOL_COMMENT("What cannot be left out, expected \"port:\" and a number, \"http:\" and a "
                               "path, or \"redis:\" and a command"),
                &vl_error_InvalidExclude,
                SYMBOL_COMMENT("There is no map that has all of the unit's figures"),
                &vl_error_ViewUnavailable,
                SYMBOL_COMMENT("This user was given as many maps as may be"),
                &vl_error_TooManyViews,
                SYMBOL_COMMENT("The limit of exclusions for this unit, of all its holds together, is "
                               "reached"),
                &vl_error_TooManyExcludes,
                SYMBOL_COMMENT("That is no threshold, or no condition"),
                &vl_error_InvalidThreshold,
                SYMBOL_COMMENT("The unit has no threshold of that name"),
                &vl_error_NoSuchThreshold,
                SYMBOL_COMMENT("The unit has a threshold of that name, which is not the caller's to change"),
                &vl_error_ThresholdExists,
                SYMBOL_COMMENT("There are as many thresholds as may be, of this unit, of this user, or of "
                               "all together"),
                &vl_error_TooManyThresholds,
                SYMBOL_COMMENT("Events were not fetched, no more are sent"),
                &vl_error_TooSlow,
                SYMBOL_COMMENT("There is no reading of that metric now"),
                &vl_error_NotMeasured,
                SYMBOL_COMMENT("The unit was named more than once, perhaps by an alias"),
                &vl_error_DuplicateUnit,
                SYMBOL_COMMENT("The service manager did not reply to a query about the unit"),
                &vl_error_ServiceManagerFailed,
                SYMBOL_COMMENT("There is nothing to list"),
                &vl_error_NoEntries);
