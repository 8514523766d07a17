/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Symbols of the interface org.qosd.QoS, by file. Types of snapshots are generated from metrics/. */

#include <systemd/sd-varlink-idl.h>

#define FIELD_COMMENT(text) SD_VARLINK_FIELD_COMMENT(text)
#define SYMBOL_COMMENT(text) SD_VARLINK_SYMBOL_COMMENT(text)

#define DEFINE_INPUT_UNIT \
        FIELD_COMMENT("Name of the unit, with \".service\" added if it has no suffix, or path of a " \
                      "control group"), \
        SD_VARLINK_DEFINE_INPUT(unit, SD_VARLINK_STRING, 0)

#define DEFINE_INPUT_WINDOW \
        FIELD_COMMENT("Length of the window, in nanoseconds: a multiple of 100 ms up to 1 s, of 1 s up to " \
                      "10 s, 60 s or 5 min; 0 for metrics since the attach. Default: the configured " \
                      "window"), \
        SD_VARLINK_DEFINE_INPUT(window, SD_VARLINK_INT, SD_VARLINK_NULLABLE)

#define DEFINE_INPUT_POLKIT \
        FIELD_COMMENT("Whether the user may be prompted for authorization while the call waits. Default: " \
                      "no"), \
        SD_VARLINK_DEFINE_INPUT(allowInteractiveAuthentication, SD_VARLINK_BOOL, SD_VARLINK_NULLABLE)

/* varlink-idl-snapshot.c */
extern const sd_varlink_symbol
        vl_type_Quality,
        vl_type_Errors,
        vl_type_Distribution,
        vl_type_StateShares,
        vl_type_Service,
        vl_type_Protocols,
        vl_type_Intended,
        vl_type_Unparsed,
        vl_type_Connections,
        vl_type_Endpoint,
        vl_type_Server,
        vl_type_PeerErrors,
        vl_type_Peer,
        vl_type_Client,
        vl_type_Requests,
        vl_type_StateTimes,
        vl_type_StateWaits,
        vl_type_ContextSwitches,
        vl_type_Serving,
        vl_type_BlockDevice,
        vl_type_Block,
        vl_type_Memory,
        vl_type_PressureOfKind,
        vl_type_Pressure,
        vl_type_Quota,
        vl_type_Contention,
        vl_type_StorageReads,
        vl_type_StorageSyncs,
        vl_type_StorageOpens,
        vl_type_StorageChanges,
        vl_type_StorageCalls,
        vl_type_StorageCache,
        vl_type_StorageMapped,
        vl_type_StorageSubmittedReads,
        vl_type_StorageSubmitted,
        vl_type_StorageFuse,
        vl_type_StorageAmplification,
        vl_type_Mount,
        vl_type_Storage,
        vl_type_DropReason,
        vl_type_NetworkConnecting,
        vl_type_NetworkReceiving,
        vl_type_NetworkTransmitting,
        vl_type_NetworkLimits,
        vl_type_Network,
        vl_type_ThreadState;

/* varlink-idl-diagnosis.c */
extern const sd_varlink_symbol
        vl_type_Verdict,
        vl_type_FindingKind,
        vl_type_Certainty,
        vl_type_Finding,
        vl_type_ExcludedFinding,
        vl_type_DiagnosisFigures,
        vl_type_BaselinePeriod,
        vl_type_CpuCompetitor,
        vl_type_Dependency,
        vl_type_Device,
        vl_type_ContendedLock,
        vl_method_BeginDiagnosis,
        vl_method_Diagnose;

/* varlink-idl-threshold.c */
extern const sd_varlink_symbol
        vl_type_ThresholdState,
        vl_type_ThresholdSource,
        vl_type_Threshold,
        vl_type_ShareChange,
        vl_type_ThresholdEvent,
        vl_method_SetThreshold,
        vl_method_ClearThreshold,
        vl_method_ListThresholds,
        vl_method_Monitor,
        vl_method_Wait;

/* varlink-idl-inspect.c */
extern const sd_varlink_symbol
        vl_type_ResourceKind,
        vl_type_Thread,
        vl_type_ThreadsRest,
        vl_type_Waker,
        vl_type_Resource,
        vl_method_Threads,
        vl_method_Resources,
        vl_type_ConnectionRole,
        vl_type_ConnectionLimit,
        vl_type_TcpConnection,
        vl_type_TcpConnectionsRest,
        vl_method_ListConnections,
        vl_type_StorageOperation,
        vl_type_SlowOperation,
        vl_method_ListSegments,
        vl_method_SlowOperations;

/* varlink-idl-status.c */
extern const sd_varlink_symbol
        vl_type_MetricKind,
        vl_type_ProgramState,
        vl_method_ListMetrics,
        vl_method_Probes,
        vl_type_LostElements,
        vl_method_GetStatus;
