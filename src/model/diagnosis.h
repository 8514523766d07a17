/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Derives findings, that is failures and bottlenecks of a unit, from figures of an interval and a baseline.
 * Pure: no I/O, no clock. evidence.c collects the figures. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "contention-map.h"
#include "lifecycle.h"
#include "unit-map.h"

/* Figures that can be saved as a baseline. Durations are means per request in ns, counts are per second.
 * NaN: unknown. Their names are in diagnosis-names.c. */
typedef struct DiagnosisFigures {
        double covered;                 /* ns of the interval */
        double rate;                    /* requests with a response */
        double status4xx;               /* HTTP responses that report an error of the client */
        double status5xx;               /* HTTP responses that report a failure of the unit */
        double grpc_errors;             /* gRPC calls with a status that reports a failure of the unit */
        double error_replies;           /* responses of Redis and memcached that report an error */
        double resets;                  /* connections that the unit ended with a request pending */
        double timeouts;                /* connections that timed out with a request pending */
        double client_aborts;           /* connections that clients ended with a request pending */
        double first_byte, receive, queue, service, answer;
        double bytes_in, bytes_out;     /* per request */
        double in_flight, oldest;       /* requests, and age in ns, at the end of the interval */
        double waiting, oldest_waiting; /* of these, requests without any response byte */
        double serving;                 /* share of the interval in which a request was in flight */
        double retransmits;
        double sends[QOS_SEND_WAITS];   /* average number of connections with waiting send data, by cause */
        double send_rtt;                /* ns until their clients acknowledge data */
        double listen_drops;            /* connection attempts dropped at the listeners */
        double threads[QOS_STATES];     /* average number; QOS_STATE_NONE is unused */
        double client_rate;             /* requests to peers */
        double client_latency;          /* ns per request to a peer */
        double peer_errors;             /* connections that peers refused or ended, or that timed out, with a
                                         * request pending */
        double peer_status5xx;          /* HTTP/1 responses of peers that report a server error */
        double peer_error_replies;      /* responses of Redis and memcached peers that report an error */
        double blocked_by_requests;                    /* parks and polls of a request's thread, ended by the
                                                        * thread of another request, ns */
        double service_run_queue;       /* run-queue wait in the service time of a request, ns */
        double service_lock;            /* lock wait in the service time of a request, ns; known where nearly
                                         * all requests have a thread of their own */
        double run_queue_wait;          /* ns from ready to running, mean */
        double run_queue_own;           /* average number of threads waiting for a CPU used by the unit
                                         * itself, as far as its user is known */
        double run_queue_others;        /* average number of threads waiting for a CPU used by others */
        double cpus;                    /* CPUs allowed */
        double idle_cpus;               /* average number of idle CPUs, of those allowed */
        double busiest_process;         /* CPUs used by the busiest process */
        double busiest_thread;          /* CPUs used by the busiest thread */
        double throttled;               /* share of the periods of the CPU quota in which it was exhausted */
        double reads;                   /* pages read from devices */
        double major_faults, refaults, oom_kills;
} DiagnosisFigures;

typedef struct DiagnosisFigure {
        const char *name;
        size_t offset;
} DiagnosisFigure;

extern const DiagnosisFigure diagnosis_figures[];
extern const size_t diagnosis_n_figures;

static inline double* diagnosis_figure(const DiagnosisFigures *f, const DiagnosisFigure *figure) {
        return (double*) ((char*) f + figure->offset);
}

void diagnosis_figures_set_absent(DiagnosisFigures *f);

#define DIAGNOSIS_NAME_MAX 256U

/* Limit of a list of causes, by weight: more than three are too even to be named. */
#define DIAGNOSIS_NAMED_MAX 3U

/* Name of a thread, up to 15 bytes, and its TID. */
#define DIAGNOSIS_HOLDER_MAX 40U

typedef struct DiagnosisNamed {
        char name[DIAGNOSIS_NAME_MAX];
        char unit[DIAGNOSIS_NAME_MAX];  /* unit of a peer or CPU user on this machine; main other user of a
                                         * device; or "" */
        char holder[DIAGNOSIS_HOLDER_MAX]; /* thread that released a lock most often; or "" */
        char mount[DIAGNOSIS_NAME_MAX]; /* file system of the file or directory that a lock belongs to; or
                                         * "" */
        double value;                   /* CPU user, lock: average number of waiting threads; peer: ns per
                                         * request; device: the unit's share of all bytes */
        double rate;                    /* requests to the peer or device, or waits for the lock, per
                                         * second */
        double errors;                  /* of a peer, per second: see DiagnosisFigures.peer_errors */
        double status5xx, error_replies; /* of a peer, per second; included in rate, unlike errors */
        double aborts;                  /* of a peer, per second: connections that the unit closed during a
                                         * request or handshake */
        double in_flight;               /* of a peer: requests without a response at the end of the
                                         * interval */
} DiagnosisNamed;

/* A file system that threads have waited for. */
typedef struct DiagnosisMount {
        char point[DIAGNOSIS_NAME_MAX]; /* mount point, or device number; "": unknown */
        char remote[DIAGNOSIS_NAME_MAX]; /* "server:/path" of a network file system; or "" */
        double threads;                 /* average number of waiting threads */
} DiagnosisMount;

/* Limit of stopped processes that are listed. */
#define DIAGNOSIS_STOPPED_MAX 4U

/* State of the unit in the interval. */
typedef struct DiagnosisRun {
        const char *active_state;       /* at the end, "active", "inactive"...; NULL: unknown, or not a unit
                                         * of the service manager */
        Lifecycle lifecycle;            /* at the end */
        bool frozen;                    /* whether the control group is frozen, by the service manager or
                                         * others */
        uint64_t restarts;              /* automatic restarts in the interval; ABSENT: unknown */
        uint64_t now;                   /* CLOCK_REALTIME ns at the end */
        size_t n_processes;             /* of the unit; 0: unknown */
        size_t n_stopped;               /* of these, with all threads stopped by a signal or a tracer */
        int stopped[DIAGNOSIS_STOPPED_MAX]; /* PIDs of the first of these */
} DiagnosisRun;

/* The kernel's names have less than 30 characters. */
#define DIAGNOSIS_REASON_MAX 40U

/* What TCP counts of all connections of the unit; per second. */
typedef struct DiagnosisFlows {
        double covered;                 /* ns; 0: not measured */
        double bytes_sent, bytes_received, bytes_retransmitted;
        double retransmits, timeouts;
        double drops;                   /* packets that this machine discards */
        char reason[DIAGNOSIS_REASON_MAX]; /* of most of them; or "" */
        double by_peer_window, by_send_buffer, by_network; /* shares of the time of connections in which
                                         * this limits sending; NaN: no connections */
        double rtt;                     /* mean round-trip time, ns; NaN: unknown */
} DiagnosisFlows;

typedef struct DiagnosisEvidence {
        DiagnosisFigures now;
        DiagnosisFlows flows;
        const char *unit;               /* name; NULL: commands cannot be suggested */
        DiagnosisRun run;
        double n_sends;                 /* number of samples of DiagnosisFigures.sends */
        double awaiting;                /* average number of connections older than the attach, without data
                                         * since, on which the client was the last to send */
        double accept_queue;            /* connections not accepted yet at the end; NaN: unknown */
        double handshakes;              /* connections established in the interval; NaN: unknown */
        double accept_queue_max;        /* sum of the backlog limits of all listeners; NaN: unknown */
        const DiagnosisFigures *normal; /* baseline; NULL: unknown */
        double usual;                   /* of a baseline from the history: see Baseline.usual; 0: the
                                         * baseline was provided by the client */
        double busy;                    /* of a baseline from the history: see Baseline.busy */
        DiagnosisNamed users[DIAGNOSIS_NAMED_MAX];
        size_t n_users;
        DiagnosisNamed peers[DIAGNOSIS_NAMED_MAX];
        size_t n_peers;
        double peers_covered;           /* ns in which these were observed, up to the end of the interval */
        DiagnosisNamed devices[DIAGNOSIS_NAMED_MAX];
        size_t n_devices;
        DiagnosisMount mount;           /* file system with most disk waits */
        DiagnosisNamed locks[DIAGNOSIS_NAMED_MAX];
        size_t n_locks;
        DiagnosisNamed blocked[DIAGNOSIS_NAMED_MAX]; /* waits of requests ended by threads with another
                                                      * request; value and rate as of locks */
        size_t n_blocked;
        enum qos_state blocked_state;   /* QOS_STATE_PARK or QOS_STATE_POLL, of blocked[0] */
        DiagnosisNamed kernel[QOS_STATES]; /* kernel locks, by the state of the waiting threads: sum of
                                            * values; name and holder of the one with most waits */
        int busiest_pid;                /* 0: unknown */
        char busiest_thread[DIAGNOSIS_HOLDER_MAX]; /* "" */
        double busiest_thread_ready;    /* CPUs that this thread waited for while ready */
} DiagnosisEvidence;

typedef enum FindingKind {
        FINDING_CPU,                    /* others use the CPUs */
        FINDING_QUOTA,
        FINDING_DISK,
        FINDING_LOCK,
        FINDING_DEPENDENCY,
        FINDING_MEMORY,
        FINDING_NETWORK,                /* clients, or the network path to them */
        FINDING_NAGLE,                  /* parts of a response wait for acknowledgements */
        FINDING_SEND_BUFFER,            /* smaller than the data in flight */
        FINDING_RECEIVE_WINDOW,         /* clients do not read */
        FINDING_LIMIT,                  /* the application's own */
        FINDING_WORKLOAD,
        /* Failures, which precede all others */
        FINDING_DOWN,                   /* the unit does not run */
        FINDING_RESTARTS,
        FINDING_STOPPED,                /* frozen, or processes stopped by a signal */
        FINDING_DROPPED,                /* connections, at the accept queue */
        FINDING_ERRORS,                 /* in its responses */
        FINDING_IDLE,                   /* no requests arrive, unlike usually */
        _FINDING_KIND_MAX,
} FindingKind;

typedef enum Certainty {
        CERTAINTY_POSSIBLE,             /* something else is as likely */
        CERTAINTY_LIKELY,
        CERTAINTY_CERTAIN,
        _CERTAINTY_MAX,
} Certainty;

typedef enum Verdict {
        VERDICT_NOTHING,                /* neither a failure nor a bottleneck */
        VERDICT_FOUND,
        VERDICT_UNKNOWN,
        _VERDICT_MAX,
} Verdict;

const char* finding_kind_to_string(FindingKind k);      /* "cpu" */
const char* certainty_to_string(Certainty c);           /* "likely" */
const char* verdict_to_string(Verdict v);               /* "nothing", "found", "unknown" */

/* Factor from which on there are more requests than normal. Clients vary by a quarter. */
#define DIAGNOSIS_MORE_REQUESTS 1.3

#define DIAGNOSIS_TEXT_MAX 512U

typedef struct Finding {
        FindingKind kind;
        Certainty certainty;
        enum qos_state state;           /* state of the affected threads; QOS_STATE_NONE: none in
                                         * particular */
        double share;                   /* share of the time of a request that this explains; without
                                         * requests, of the time of threads that are not idle; NaN: not about
                                         * time */
        double time;                    /* ns per request that share is; NaN: unknown */
        char resource[DIAGNOSIS_NAME_MAX]; /* cause: a unit, a device, an address, a thread; or "" */
        char unit[DIAGNOSIS_NAME_MAX];  /* unit of the cause; or "" */
        char mount[DIAGNOSIS_NAME_MAX]; /* file system; or "" */
        char text[DIAGNOSIS_TEXT_MAX];  /* a sentence */
        char next[DIAGNOSIS_TEXT_MAX];  /* command that fixes it or shows more; or "" */
        const char *rule;               /* sentence that describes the rule */
} Finding;

typedef struct Excluded {
        FindingKind kind;
        double share;                   /* as Finding.share; NaN: not about time */
        char text[DIAGNOSIS_TEXT_MAX];
} Excluded;

typedef struct Diagnosis {
        Verdict verdict;
        char summary[DIAGNOSIS_TEXT_MAX]; /* verdict in one line, without the name of the unit */
        char text[DIAGNOSIS_TEXT_MAX];  /* sentence on the rate and times of requests, or the state of the
                                         * unit */
        Finding findings[_FINDING_KIND_MAX]; /* at most one of each kind: failures first, then by share */
        size_t n_findings;
        Excluded excluded[_FINDING_KIND_MAX]; /* causes that were examined and excluded */
        size_t n_excluded;
} Diagnosis;

void diagnosis_make(const DiagnosisEvidence *e, Diagnosis *ret);
