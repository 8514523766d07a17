/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Symbols about the daemon: its metrics, programs and limits. */

#include "varlink-idl.h"

SD_VARLINK_DEFINE_ENUM_TYPE(
                MetricKind,
                FIELD_COMMENT("A level, or a value over the window"),
                SD_VARLINK_DEFINE_ENUM_VALUE(gauge),
                FIELD_COMMENT("Events or bytes within the window; also to be found in the totals"),
                SD_VARLINK_DEFINE_ENUM_VALUE(counter));

SD_VARLINK_DEFINE_ENUM_TYPE(
                ProgramState,
                FIELD_COMMENT("Not loaded, as nothing needs it"),
                SD_VARLINK_DEFINE_ENUM_VALUE(idle),
                FIELD_COMMENT("Loaded and running"),
                SD_VARLINK_DEFINE_ENUM_VALUE(attached),
                FIELD_COMMENT("Needed, but it cannot be had"),
                SD_VARLINK_DEFINE_ENUM_VALUE(unavailable));

SD_VARLINK_DEFINE_METHOD_FULL(
                ListMetrics,
                SD_VARLINK_REQUIRES_MORE,
                FIELD_COMMENT("The name: the path of the metric in a reading"),
                SD_VARLINK_DEFINE_OUTPUT(name, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("How it behaves over time"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(kind, MetricKind, 0),
                FIELD_COMMENT("What it is counted in: \"ns\", \"bytes\", \"1/s\", \"1\" for a mere number, "
                              "nothing for a word"),
                SD_VARLINK_DEFINE_OUTPUT(unit, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("The probe that measures it"),
                SD_VARLINK_DEFINE_OUTPUT(probe, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("Whether it is exported to Prometheus by default"),
                SD_VARLINK_DEFINE_OUTPUT(essential, SD_VARLINK_BOOL, 0),
                FIELD_COMMENT("The kind of event"),
                SD_VARLINK_DEFINE_OUTPUT(description, SD_VARLINK_STRING, 0));

SD_VARLINK_DEFINE_METHOD_FULL(
                Probes,
                SD_VARLINK_REQUIRES_MORE,
                FIELD_COMMENT("The name of the BPF program"),
                SD_VARLINK_DEFINE_OUTPUT(program, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("The probe it is part of"),
                SD_VARLINK_DEFINE_OUTPUT(probe, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("Where in the kernel it runs"),
                SD_VARLINK_DEFINE_OUTPUT(hook, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("What there would not be without it"),
                SD_VARLINK_DEFINE_OUTPUT(provides, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("What became of it"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(state, ProgramState, 0),
                FIELD_COMMENT("Why it is unavailable, what it waits for, or what is used instead"),
                SD_VARLINK_DEFINE_OUTPUT(reason, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("How often it ran, while the kernel measured that (sysctl "
                              "kernel.bpf_stats_enabled)"),
                SD_VARLINK_DEFINE_OUTPUT(runs, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("How long these runs took altogether, in nanoseconds"),
                SD_VARLINK_DEFINE_OUTPUT(runTime, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("How long one of them took on average, in nanoseconds"),
                SD_VARLINK_DEFINE_OUTPUT(runTimeMean, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("How often it could not run, as it was running on that CPU already"),
                SD_VARLINK_DEFINE_OUTPUT(recursionMisses, SD_VARLINK_INT, SD_VARLINK_NULLABLE));

SD_VARLINK_DEFINE_STRUCT_TYPE(
                LostElements,
                FIELD_COMMENT("The name of the map"),
                SD_VARLINK_DEFINE_FIELD(map, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("How many elements could not be made, as there was no memory for them, or the "
                              "map was full"),
                SD_VARLINK_DEFINE_FIELD(count, SD_VARLINK_INT, 0));

SD_VARLINK_DEFINE_METHOD(
                GetStatus,
                FIELD_COMMENT("The version of qosd"),
                SD_VARLINK_DEFINE_OUTPUT(version, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("How many units are attached"),
                SD_VARLINK_DEFINE_OUTPUT(units, SD_VARLINK_INT, 0),
                FIELD_COMMENT("How many may be (UnitsMax=)"),
                SD_VARLINK_DEFINE_OUTPUT(unitsMax, SD_VARLINK_INT, 0),
                FIELD_COMMENT(
                        "How many samples must lie beyond a quantile for it to be shown (MinimumSamples=)"),
                SD_VARLINK_DEFINE_OUTPUT(minimumSamples, SD_VARLINK_INT, 0),
                FIELD_COMMENT("When the unit files were looked at whose [X-QoS] is in force by now "
                              "(CLOCK_MONOTONIC, in nanoseconds); left out if they never were"),
                SD_VARLINK_DEFINE_OUTPUT(unitFilesLoaded, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Whether the kernel measures the run time of BPF programs now (sysctl "
                              "kernel.bpf_stats_enabled)"),
                SD_VARLINK_DEFINE_OUTPUT(statisticsEnabled, SD_VARLINK_BOOL, 0),
                FIELD_COMMENT("Memory of all BPF maps of qosd, in bytes"),
                SD_VARLINK_DEFINE_OUTPUT(mapMemory, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Memory of the map that each attached unit has, in bytes"),
                SD_VARLINK_DEFINE_OUTPUT(mapMemoryPerUnit, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Memory for each open connection of attached units, in bytes; those that "
                              "speak HTTP/2, and those that are looked into by the probe \"tls\", have "
                              "more"),
                SD_VARLINK_DEFINE_OUTPUT(memoryPerSocket, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Events that could not be recorded, of all units together, since the first "
                              "attach. Runs of programs that the kernel has skipped are not among them (see "
                              "recursionMisses)"),
                SD_VARLINK_DEFINE_OUTPUT(drops, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Of these, elements of BPF maps that could not be made, by map; left out if "
                              "there are none"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(lostElements, LostElements,
                                                 SD_VARLINK_NULLABLE | SD_VARLINK_ARRAY));
