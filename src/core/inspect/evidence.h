/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Collects the evidence for a diagnosis: metrics of the unit over a window as long as the interval, and
 * readings of the machine at both ends of the interval. */

#include "baseline.h"
#include "diagnosis.h"
#include "inspect-waits.h"
#include "unit.h"

/* Limits of control groups below that of a unit, and of processes and threads in them, that are read. Each
 * takes some microseconds, during which no client is served. */
#define DIAGNOSE_GROUPS_MAX 512U
#define DIAGNOSE_TASKS_MAX 128U

/* Sampling of what sent data waits for, shared by all diagnoses. */
typedef struct SendCounts {
        uint64_t n;                     /* number of calls of probe_count_sends() */
        uint64_t next;                  /* CLOCK_MONOTONIC ns of the earliest next call */
} SendCounts;

/* Counters of the machine, and of the unit in PID 1, at a moment. */
typedef struct HostSample HostSample;

/* resources, threads: of the unit, read just before; empty: unknown. Both are consumed. */
int host_sample_new(Unit *u, ResourcesReading *resources, ThreadsReading *threads, HostSample **ret);
HostSample* host_sample_free(HostSample *r);

/* begin, end: samples at both ends of the interval, which is as long as the window. Strings of ret are owned
 * by the unit. */
int evidence_collect(Unit *u, const HostSample *begin, const HostSample *end, uint64_t window,
                     DiagnosisEvidence *ret);

/* Fills in the metrics of a snapshot only, without those of the machine and without names. */
void evidence_from_snapshot(const Snapshot *s, DiagnosisEvidence *ret);

/* Diagnosis from a snapshot and the baseline only, without names. "qosctl diagnose" reads the machine as
 * well, over an interval. Takes some tenths of a millisecond, for the history. */
void unit_diagnose_snapshot(Unit *u, const Snapshot *s, Diagnosis *ret);

/* Baseline from the unit's history before a moment (CLOCK_MONOTONIC ns). rate: current requests per second.
 * -ENODATA: the history is too short. */
int unit_get_baseline(Unit *u, uint64_t before, double rate, Baseline *ret);
