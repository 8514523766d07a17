/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Collects the figures of a diagnosis: those of the unit from the window of the interval, those of the
 * machine around it from readings at both ends. */

#include "baseline.h"
#include "diagnosis.h"
#include "inspect-waits.h"
#include "unit.h"

/* Limits of control groups below that of a unit, and of processes and threads in them, that are read:
 * each takes some microseconds in which the daemon serves no client. */
#define DIAGNOSE_GROUPS_MAX 512U
#define DIAGNOSE_TASKS_MAX 128U

/* Counts of what written data waits for. */
typedef struct SendCounts {
        uint64_t n;                     /* number of calls of probe_count_sends() */
        uint64_t next;                  /* CLOCK_MONOTONIC ns before which there is no other one */
} SendCounts;

/* The counters of the machine, and of the unit in PID 1, at a moment. */
typedef struct HostSample HostSample;

/* resources, threads: those of the unit, read just before; empty: not known. Consumed. */
int machine_reading_new(Unit *u, ResourcesReading *resources, ThreadsReading *threads, HostSample **ret);
HostSample* machine_reading_free(HostSample *r);

/* begin, end: the samples from both ends of the interval, which is as long as the window. The strings of ret
 * belong to the unit. */
int evidence_collect(Unit *u, const HostSample *begin, const HostSample *end, uint64_t window,
                     DiagnosisEvidence *ret);

/* The figures of a snapshot alone, without those of the machine and without names. */
void evidence_from_snapshot(const Snapshot *s, DiagnosisEvidence *ret);

/* Diagnosis from a snapshot and the baseline of the history alone, without names. "qosctl diagnose" also
 * reads the machine, and observes an interval. Takes some tenths of a millisecond, for the history. */
void unit_diagnose_snapshot(Unit *u, const Snapshot *s, Diagnosis *ret);

/* The baseline by the history of the unit before that moment (CLOCK_MONOTONIC ns). rate: requests/s now.
 * -ENODATA: the history is too short. */
int unit_get_normal(Unit *u, uint64_t before, double rate, Baseline *ret);
