/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Shared by the rules of a diagnosis: adding findings, and formatting numbers. */

#include "diagnosis.h"
#include "util.h"

/* diagnosis-findings.c */
bool diagnosis_has(const Diagnosis *d, FindingKind kind);

/* Fields of Finding, except for texts and names. */
typedef struct FindingCause {
        FindingKind kind;
        Certainty certainty;
        enum qos_state state;
        double share;
        double time;
        const char *rule;               /* a constant */
} FindingCause;

/* Adds a finding of a kind without a finding yet. */
_printf_(3, 4) Finding* diagnosis_add(Diagnosis *d, const FindingCause *cause, const char *format, ...);

/* Adds a cause that was examined and excluded. share: see Excluded.share. No effect if the kind has a
 * finding. */
_printf_(4, 5) void diagnosis_exclude(Diagnosis *d, FindingKind kind, double share, const char *format, ...);

/* Copies at most DIAGNOSIS_NAME_MAX - 1 bytes. */
void diagnosis_copy_name(char ret[static DIAGNOSIS_NAME_MAX], const char *name);

/* Names the lock, and the thread that released it, in the text of a finding. */
void finding_name_lock(Finding *f, const DiagnosisNamed *lock);
/* Names the unit, device, lock or peer that the evidence has for a finding of this kind. */
void finding_name(Finding *f, const DiagnosisEvidence *e);

#define NUMBER_MAX 24U

/* Formats a duration in ns: "14.3us", three significant digits; "12min 3s" from a minute on. */
char* diagnosis_format_span(char buf[static NUMBER_MAX], double nsec);
/* Formats a rate per second: "0.40", "108", "15.1k". */
char* diagnosis_format_rate(char buf[static NUMBER_MAX], double rate);
/* Formats a share: "51%", "<1%". */
char* diagnosis_format_share(char buf[static NUMBER_MAX], double share);

#define SPAN(nsec) diagnosis_format_span((char[NUMBER_MAX]) {}, (nsec))
#define RATE(rate) diagnosis_format_rate((char[NUMBER_MAX]) {}, (rate))
#define PERCENT(share) diagnosis_format_share((char[NUMBER_MAX]) {}, (share))

#define LIMIT_MAX (NUMBER_MAX + sizeof(", limit "))

/* Formats the limit that the share or the time of a wait is below; empty if it is below neither. */
char* diagnosis_format_limit(char ret[static LIMIT_MAX], double share, double share_min, double time,
                             double time_min);

#define LIMIT(share, share_min, time, time_min) \
        diagnosis_format_limit((char[LIMIT_MAX]) {}, (share), (share_min), (time), (time_min))

/* ---- constants of several rules ----------------------------------------------------------------------- */

/* Minimum share of the time of a request for a bottleneck: without a smaller one the unit would be about as
 * slow. */
#define SHARE_MIN 0.2
/* Share of the time of a request from which on a cause is certain. */
#define SHARE_MOST 0.5
/* Shorter waits are normal for a disk, and for a peer on the local network. Used without a baseline. */
#define WAIT_MIN_NSEC (1.0 * NSEC_PER_MSEC)
/* Factor from which on a time is worse than the baseline: means of steady servers vary by tenths between
 * intervals. */
#define WORSE 1.5
/* Minimum of waits that are avoidable altogether: the time of some tens of requests to a fast server. */
#define STALL_MIN_NSEC (0.1 * NSEC_PER_MSEC)
/* Minimum average number of threads waiting for a CPU. Timers of an idle server on a busy machine make some
 * hundredths. */
#define THREADS_MIN 0.1
/* Share of CPU time that counts as all of it: interrupts and other processes take the rest. */
#define CPUS_MOST 0.8
/* Idle CPU time above which a CPU counts as idle. */
#define IDLE_MIN 0.2

/* ---- diagnosis-parts.c: how the time of a request is made up ------------------------------------------ */

typedef enum Part {
        PART_RUNNING,
        PART_RUN_QUEUE,
        PART_THROTTLED,
        PART_DISK,
        PART_LOCK,
        PART_MEMORY,
        PART_PEERS,             /* waits for responses of other units */
        _PART_MAX,
} Part;

/* The finding that a part of the time causes, and its limits. */
typedef struct PartRule {
        enum qos_state state;
        FindingKind kind;
        bool in_service;        /* part of the service time only, not of the queue */
        double floor;           /* minimum time per request for a finding, ns, unless it has grown */
        double threads;         /* minimum average number of threads in the state */
        const char *rule;       /* see Finding.rule */
} PartRule;

extern const PartRule part_table[_PART_MAX];

/* Label of the wait that a finding is about: "disk wait". */
extern const char *const wait_labels[_FINDING_KIND_MAX];

typedef struct Parts {
        double spent[_PART_MAX];        /* ns of threads, or of peers, per request, including background
                                         * work */
        double least[_PART_MAX];        /* minimum share in the time in which a request is read and served,
                                         * ns */
        double most[_PART_MAX];         /* maximum share in the time to first byte, ns */
        double unexplained;             /* ns of the time to first byte that no part explains */
} Parts;

/* Divides the time of a request into parts, within bounds, as the request that a thread works for is
 * unknown. The service time contains of each part at least what
 * exceeds the time left by the other parts, whatever went on in the background. The time in which
 * requests wait to be read is the service time of those before them, so it divides in the same way. Where
 * each request has a thread of its own, that thread's waits for locks and CPUs are known, and other
 * threads belong to no request. exact: use these, as in the figures that are compared with them. */
bool parts_read(const DiagnosisFigures *f, bool exact, Parts *ret);

/* Whether exact times are known, also for the baseline, if any; otherwise they are not used. */
bool parts_are_exact(const DiagnosisEvidence *e);

/* Upper limit of the time for which a request may have slept, or waited for a child, in ns. */
double figures_sleep_time(const DiagnosisFigures *f);

/* Whether the unit itself uses the CPUs that its threads wait for. */
bool part_is_own(const DiagnosisEvidence *e, Part p);

/* Whether enough threads wait in the state of a part to be those of requests, each of which waits for that
 * time, in ns. */
bool part_has_threads(const DiagnosisEvidence *e, Part p, double time);

/* Whether waits for CPUs are short while CPUs are idle: these are the times that CPUs take to wake up. */
bool part_is_waking(const DiagnosisEvidence *e, Part p);

/* The kind of finding for waits in the state of a part. ret_lock: the kernel lock that threads wait for,
 * unchanged if there is none. */
FindingKind part_find_kind(const DiagnosisEvidence *e, Part p, const DiagnosisNamed **ret_lock);

/* ---- rules, by file ----------------------------------------------------------------------------------- */

/* diagnosis-network.c: responses delayed by TCP, and requests that arrive slowly. */
void diagnose_network(const DiagnosisEvidence *e, Diagnosis *d);

/* diagnosis-flows.c: loss, and what limits sending, of all connections. */
void diagnose_flows(const DiagnosisEvidence *e, Diagnosis *d);

/* diagnosis-failure.c: errors, dropped connections, a unit that is down, restarting or stopped, and requests
 * that do not arrive. False: the unit cannot run, and no other rules apply. */
bool diagnose_failures(const DiagnosisEvidence *e, Diagnosis *d);

/* Requests have waited for half of the interval or more without a response. */
static inline bool requests_are_stuck(const DiagnosisFigures *f) {
        return f->waiting > 0 && f->oldest_waiting >= f->covered / 2;
}

/* Requests read before the attach may wait for a response. */
static inline bool requests_may_be_stuck(const DiagnosisEvidence *e) {
        return e->awaiting >= 0.5;
}

/* Requests wait, or fail, and a peer with at least this many requests in flight sends no responses. */
void diagnose_silent_peer(const DiagnosisEvidence *e, double least, Diagnosis *d);

/* The unit is slow for no other reason, and aborts requests to a peer. */
void diagnose_slow_without_response(const DiagnosisEvidence *e, Diagnosis *d);

/* diagnosis-limit.c */

/* Requests wait for a single thread that waits for a CPU longer than it runs. */
void diagnose_starved_thread(const DiagnosisEvidence *e, const Parts *parts, Diagnosis *d);

/* Requests wait in the queue, and no finding explains it. To be called after the rules for waits. */
void diagnose_limit(const DiagnosisEvidence *e, const Parts *parts, Diagnosis *d);

/* diagnosis-threads.c */

/* Requests without queue and service times, as over UDP: of their time to first byte, only waits for peers
 * are known. */
void diagnose_slow_peers(const DiagnosisEvidence *e, Diagnosis *d);

/* Without responses, or without service times, only thread states are known. Without requests, waits are
 * compared with the time in which threads are not idle. */
void diagnose_threads(const DiagnosisEvidence *e, bool stuck, Diagnosis *d);

/* Requests wait, and the application runs without a response, or does not accept connections. */
void diagnose_inattention(const DiagnosisEvidence *e, Diagnosis *d);

/* Connections have been in the accept queue for longer than the interval, and no finding explains it. */
void diagnose_unaccepted(const DiagnosisEvidence *e, Diagnosis *d);

/* Whether requests without a response may wait by intent, as those of long polls and consumers: no earlier
 * response is known, and threads only wait for events, as in an event loop. Threads that run, or wait for a
 * lock, a child process or a timer, may be stuck. */
bool waiting_is_intended(const DiagnosisEvidence *e);

/* diagnosis-summary.c: the verdict in one line, and the next command of each finding. */
void diagnosis_summarize(const DiagnosisEvidence *e, Diagnosis *d);
