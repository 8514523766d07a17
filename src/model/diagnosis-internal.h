/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Shared by the rules of a diagnosis: adding findings, and formatting numbers. */

#include "diagnosis.h"
#include "util.h"

/* diagnosis-findings.c */
bool diagnosis_has(const Diagnosis *d, FindingKind kind);

/* What is found, and by which rule; see Finding. */
typedef struct FindingCause {
        FindingKind kind;
        Certainty certainty;
        enum qos_state state;
        double share;
        double time;
        const char *rule;               /* a constant */
} FindingCause;

/* Adds a finding of a kind that has none yet. */
_printf_(3, 4) Finding* diagnosis_add(Diagnosis *d, const FindingCause *cause, const char *format, ...);

/* Adds a cause that was examined and excluded. share: see Excluded.share. No effect if the kind has a
 * finding. */
_printf_(4, 5) void diagnosis_exclude(Diagnosis *d, FindingKind kind, double share, const char *format, ...);

/* Copies at most DIAGNOSIS_NAME_MAX - 1 bytes. */
void diagnosis_copy_name(char ret[static DIAGNOSIS_NAME_MAX], const char *name);

#define NUMBER_MAX 24U

/* "14.3us", three significant digits; "12min 3s" from a minute on. */
char* diagnosis_format_span(char buf[static NUMBER_MAX], double nsec);
/* Formats a rate per second: "0.40", "108", "15.1k". */
char* diagnosis_format_rate(char buf[static NUMBER_MAX], double rate);
/* "51%", "<1%". */
char* diagnosis_format_share(char buf[static NUMBER_MAX], double share);

#define SPAN(nsec) diagnosis_format_span((char[NUMBER_MAX]) {}, (nsec))
#define RATE(rate) diagnosis_format_rate((char[NUMBER_MAX]) {}, (rate))
#define PERCENT(share) diagnosis_format_share((char[NUMBER_MAX]) {}, (share))

#define LIMIT_MAX (NUMBER_MAX + sizeof(", limit "))

/* The limit of its share or its time that a wait is below; empty if it is below neither. */
char* diagnosis_format_limit(char ret[static LIMIT_MAX], double share, double share_min, double time,
                             double time_min);

#define LIMIT(share, share_min, time, time_min) \
        diagnosis_format_limit((char[LIMIT_MAX]) {}, (share), (share_min), (time), (time_min))

/* ---- constants of several rules ----------------------------------------------------------------------- */

/* A cause of less than a fifth of the time of a request is no bottleneck: without it the unit would be
 * about as slow. */
#define SHARE_MIN 0.2
/* A cause of half of the time is certain, whatever else there is. */
#define SHARE_MOST 0.5
/* Shorter waits are normal for a disk and a peer on the local network. A known baseline replaces this. */
#define WAIT_MIN_NSEC (1.0 * NSEC_PER_MSEC)
/* Times are worse than the baseline from this factor on: means of steady servers vary by tenths from one
 * interval to the next. */
#define WORSE 1.5

/* diagnosis-network.c: responses that TCP holds up, and requests that arrive slowly. */
void diagnose_network(const DiagnosisEvidence *e, Diagnosis *d);

/* diagnosis-failure.c: errors, dropped connections, a unit that is down, restarting or stopped, and requests
 * that do not arrive. Returns whether anything is left to look at: false if the unit cannot run. */
bool diagnose_failures(const DiagnosisEvidence *e, Diagnosis *d);

/* Requests have waited for half of the interval or more without a response. */
static inline bool requests_are_stuck(const DiagnosisFigures *f) {
        return f->waiting > 0 && f->oldest_waiting >= f->covered / 2;
}

/* A peer that responds to nothing, with so many requests in flight or more. Requests wait, or fail. */
void diagnose_silent_peer(const DiagnosisEvidence *e, double least, Diagnosis *d);

/* The unit is slow, for no other reason, and gives up requests to a peer. */
void diagnose_slow_without_response(const DiagnosisEvidence *e, Diagnosis *d);

/* diagnosis-summary.c: the verdict in one line, and the next command of each finding. */
void diagnosis_summarize(const DiagnosisEvidence *e, Diagnosis *d);
