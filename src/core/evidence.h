/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What diagnosis.c is told: what an interval had of the unit, and of the machine around it. What the machine
 * has is read at both ends; what the unit has is in its window. */

#include "baseline.h"
#include "diagnosis.h"
#include "unit.h"

/* Groups in that of a unit, and processes and threads in all of these, that are looked at: each is a few
 * microseconds in which qosd does nothing else. */
#define DIAGNOSE_GROUPS_MAX 512U
#define DIAGNOSE_TASKS_MAX 128U

/* What the machine has counted up to a moment. */
typedef struct HostSample HostSample;

int machine_reading_new(Unit *u, bool names, HostSample **ret);
HostSample* machine_reading_free(HostSample *r);

/* begin: of an interval as long as the window. */
int evidence_collect(Unit *u, HostSample *begin, bool names, uint64_t window, DiagnosisEvidence *ret);

/* What a reading says by itself, with nothing of the machine, and without names. */
void evidence_from_snapshot(const Snapshot *s, DiagnosisEvidence *ret);

/* What is normal for it by its history, before that moment; -ENODATA: that says too little. rate: of
 * requests now. */
int unit_get_normal(Unit *u, uint64_t before, double rate, Baseline *ret);
