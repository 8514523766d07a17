/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Symbols about the daemon: its metrics, programs and limits. */

#include "varlink-idl.h"

SD_VARLINK_DEFINE_ENUM_TYPE(
                MetricKind,
                FIELD_COMMENT("Current value, or value over the window"),
                SD_VARLINK_DEFINE_ENUM_VALUE(gauge),
                FIELD_COMMENT("Number of events or bytes in the window; also in the totals"),
                SD_VARLINK_DEFINE_ENUM_VALUE(counter));

SD_VARLINK_DEFINE_ENUM_TYPE(
                ProgramState,
                FIELD_COMMENT("Not loaded, as nothing needs it"),
                SD_VARLINK_DEFINE_ENUM_VALUE(idle),
                FIELD_COMMENT("Loaded and running"),
                SD_VARLINK_DEFINE_ENUM_VALUE(attached),
                FIELD_COMMENT("Needed, but not available"),
                SD_VARLINK_DEFINE_ENUM_VALUE(unavailable));

SD_VARLINK_DEFINE_METHOD_FULL(
                ListMetrics,
                SD_VARLINK_REQUIRES_MORE,
                FIELD_COMMENT("Name of the metric: its path in a reading"),
                SD_VARLINK_DEFINE_OUTPUT(name, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("Kind of the metric"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(kind, MetricKind, 0),
                FIELD_COMMENT("Unit: \"ns\", \"bytes\", \"1/s\", \"1\" for a plain number, empty for a "
                              "string"),
                SD_VARLINK_DEFINE_OUTPUT(unit, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("Probe that measures it"),
                SD_VARLINK_DEFINE_OUTPUT(probe, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("Whether it is exported to Prometheus by default"),
                SD_VARLINK_DEFINE_OUTPUT(essential, SD_VARLINK_BOOL, 0),
                FIELD_COMMENT("Description of the metric"),
                SD_VARLINK_DEFINE_OUTPUT(description, SD_VARLINK_STRING, 0));

SD_VARLINK_DEFINE_METHOD_FULL(
                Probes,
                SD_VARLINK_REQUIRES_MORE,
                FIELD_COMMENT("Name of the BPF program"),
                SD_VARLINK_DEFINE_OUTPUT(program, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("Probe that it is part of"),
                SD_VARLINK_DEFINE_OUTPUT(probe, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("Hook in the kernel"),
                SD_VARLINK_DEFINE_OUTPUT(hook, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("Metrics that are missing without it"),
                SD_VARLINK_DEFINE_OUTPUT(provides, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("State of the program"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(state, ProgramState, 0),
                FIELD_COMMENT("Reason why it is unavailable, condition that it waits for, or replacement "
                              "that is used"),
                SD_VARLINK_DEFINE_OUTPUT(reason, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Number of runs, while the kernel counted them: in samples while custom "
                              "probes are loaded, always with the sysctl kernel.bpf_stats_enabled"),
                SD_VARLINK_DEFINE_OUTPUT(runs, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Total time of these runs, in nanoseconds"),
                SD_VARLINK_DEFINE_OUTPUT(runTime, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Mean time of these runs, in nanoseconds"),
                SD_VARLINK_DEFINE_OUTPUT(runTimeMean, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Number of runs that the kernel skipped, as the program was running on that "
                              "CPU already"),
                SD_VARLINK_DEFINE_OUTPUT(recursionMisses, SD_VARLINK_INT, SD_VARLINK_NULLABLE));

SD_VARLINK_DEFINE_STRUCT_TYPE(
                LostElements,
                FIELD_COMMENT("Name of the map"),
                SD_VARLINK_DEFINE_FIELD(map, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("Number of elements that could not be allocated, for want of memory or "
                              "because the map was full"),
                SD_VARLINK_DEFINE_FIELD(count, SD_VARLINK_INT, 0));

SD_VARLINK_DEFINE_METHOD(
                GetStatus,
                FIELD_COMMENT("Version of qosd"),
                SD_VARLINK_DEFINE_OUTPUT(version, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("Number of attached units"),
                SD_VARLINK_DEFINE_OUTPUT(units, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Limit of attached units (UnitsMax=)"),
                SD_VARLINK_DEFINE_OUTPUT(unitsMax, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Minimum number of samples beyond a quantile (MinimumSamples=)"),
                SD_VARLINK_DEFINE_OUTPUT(minimumSamples, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Time at which the unit files were read that the current [X-QoS] settings are "
                              "from, in nanoseconds of CLOCK_MONOTONIC; absent if none were read"),
                SD_VARLINK_DEFINE_OUTPUT(unitFilesLoaded, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Whether the kernel measures the run time of BPF programs all the time "
                              "(sysctl kernel.bpf_stats_enabled)"),
                SD_VARLINK_DEFINE_OUTPUT(statisticsEnabled, SD_VARLINK_BOOL, 0),
                FIELD_COMMENT("Memory of all BPF maps of qosd, in bytes"),
                SD_VARLINK_DEFINE_OUTPUT(mapMemory, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Memory of the map that each attached unit has, in bytes"),
                SD_VARLINK_DEFINE_OUTPUT(mapMemoryPerUnit, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Memory per open connection of attached units, in bytes; connections of "
                              "HTTP/2, and those parsed by the probe \"tls\", take more"),
                SD_VARLINK_DEFINE_OUTPUT(memoryPerSocket, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Events of all units that could not be recorded, since the first attach, "
                              "without runs of programs that the kernel has skipped (see recursionMisses)"),
                SD_VARLINK_DEFINE_OUTPUT(drops, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Of these, elements of BPF maps that could not be allocated, by map; absent "
                              "if there are none"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(lostElements, LostElements,
                                                 SD_VARLINK_NULLABLE | SD_VARLINK_ARRAY));
