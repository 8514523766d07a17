/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* From the figures of an interval, and a baseline to compare them with, to findings: failures of a unit, and
 * its bottlenecks. Arithmetic alone, no I/O and no clock; evidence.c collects the figures. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "contention-map.h"
#include "lifecycle.h"
#include "unit-map.h"

/* The figures that can be kept as a baseline. Durations are means in ns of a request, counts are per second.
 * NaN: not known. Their names are in diagnosis-names.c. */
typedef struct DiagnosisFigures {
        double covered;                 /* ns of the interval */
        double rate;                    /* requests with a response */
        double status4xx;               /* HTTP responses that report an error of the client */
        double status5xx;               /* HTTP responses that report a failure of the unit */
        double grpc_errors;             /* gRPC calls whose status does */
        double error_replies;           /* responses of Redis and memcached that report an error */
        double resets;                  /* connections that the unit ended with a request pending */
        double timeouts;                /* connections that timed out with a request pending */
        double client_aborts;           /* connections that clients ended with a request pending */
        double first_byte, receive, queue, service, answer;
        double bytes_in, bytes_out;     /* of a request */
        double in_flight, oldest;       /* requests, and ns, at the end */
        double waiting, oldest_waiting; /* the same of those without any response byte */
        double serving;                 /* share of the interval in which a request was in flight */
        double retransmits;
        double sends[QOS_SEND_WAITS];   /* connections whose written data waits, average number by cause */
        double send_rtt;                /* ns until clients of these acknowledge data */
        double listen_drops;            /* connection attempts dropped at the listeners */
        double threads[QOS_STATES];     /* average number; that of QOS_STATE_NONE is not used */
        double client_rate;             /* requests of the unit to peers */
        double client_latency;          /* ns, of one of these */
        double peer_errors;             /* connections that peers refused or ended, or that timed out, with a
                                         * request pending */
        double peer_status5xx;          /* HTTP/1 responses of peers that report a failure of theirs */
        double peer_error_replies;      /* responses of Redis and memcached peers that report an error */
        double blocked_by_requests;                    /* ns that the thread of a request waited in park
                                                        * and poll, until woken by the thread of another
                                                        * request */
        double service_run_queue;       /* run-queue wait in the service time of a request, ns */
        double service_lock;            /* lock wait in the service time of a request, ns; known where nearly
                                         * all requests have a thread of their own */
        double run_queue_wait;          /* ns from ready to running, mean */
        double run_queue_own;           /* average number of threads waiting for a CPU used by the unit
                                         * itself, as far as the user is known */
        double run_queue_others;        /* average number of threads waiting for a CPU used by others */
        double cpus;                    /* CPUs allowed */
        double idle_cpus;               /* average number of idle CPUs, of those allowed */
        double busiest_process;         /* CPUs used by the busiest process */
        double busiest_thread;          /* CPUs used by the busiest thread */
        double throttled;               /* share of the periods of its CPU quota in which that was used up */
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

/* Entries of a list of causes, by weight: more than three share the blame too evenly to be named. */
#define DIAGNOSIS_NAMED_MAX 3U

/* A thread's name, of 15 bytes, and its number. */
#define DIAGNOSIS_HOLDER_MAX 40U

typedef struct DiagnosisNamed {
        char name[DIAGNOSIS_NAME_MAX];
        char unit[DIAGNOSIS_NAME_MAX];  /* of a peer or CPU user on this machine; the main other user of a
                                         * device; or "" */
        char holder[DIAGNOSIS_HOLDER_MAX]; /* of a lock: the thread that released it most often; or "" */
        char mount[DIAGNOSIS_NAME_MAX]; /* of a lock of a file or directory: its file system; or "" */
        double value;                   /* CPU user, lock: average number of threads waiting; peer: ns per
                                         * request; device: share of its bytes that are the unit's */
        double rate;                    /* requests to the peer, or the device, or waits for the lock, per
                                         * second */
        double errors;                  /* of a peer, per second: see DiagnosisFigures.peer_errors */
        double status5xx, error_replies; /* of a peer, per second; those are in the rate, errors are not */
        double aborts;                  /* of a peer, per second: connections that the unit closed with a
                                         * request in flight, or before they were established */
        double in_flight;               /* of a peer: requests without a response, at the end */
} DiagnosisNamed;

/* A file system that threads have waited for. */
typedef struct DiagnosisMount {
        char point[DIAGNOSIS_NAME_MAX]; /* where it is mounted, or its device number; "": none is known */
        char remote[DIAGNOSIS_NAME_MAX]; /* "server:/path" if it is on another machine; or "" */
        double threads;                 /* average number waiting */
} DiagnosisMount;

/* More stopped processes are not named one by one. */
#define DIAGNOSIS_STOPPED_MAX 4U

/* How the unit ran in the interval. */
typedef struct DiagnosisRun {
        const char *active_state;       /* at the end, "active", "inactive"...; NULL: not known, as of a
                                         * control group that is no unit */
        Lifecycle lifecycle;            /* at the end */
        bool frozen;                    /* the control group is, by the service manager or by others */
        uint64_t restarts;              /* automatic ones in the interval; ABSENT: not known */
        uint64_t now;                   /* CLOCK_REALTIME ns at the end */
        size_t n_processes;             /* of the unit; 0: not known */
        size_t n_stopped;               /* those of which all threads are stopped by a signal or a tracer */
        int stopped[DIAGNOSIS_STOPPED_MAX]; /* PIDs of the first of these */
} DiagnosisRun;

typedef struct DiagnosisEvidence {
        DiagnosisFigures now;
        const char *unit;               /* its name; NULL: no command can be given */
        DiagnosisRun run;
        double n_sends;                 /* how often DiagnosisFigures.sends was counted */
        double accept_queue;            /* connections not accepted yet at the end; NaN: not known */
        double handshakes;              /* connections that have come in the interval; NaN: not known */
        double accept_queue_max;        /* the backlog limits of all listeners together; NaN: not known */
        const DiagnosisFigures *normal; /* NULL: not known */
        double usual;                   /* of a baseline from the history, ns to the first byte that are not
                                         * exceeded in three quarters of the time; 0: the baseline is the
                                         * client's */
        double busy;                    /* of a baseline from the history: share of the time with requests */
        DiagnosisNamed users[DIAGNOSIS_NAMED_MAX];
        size_t n_users;
        DiagnosisNamed peers[DIAGNOSIS_NAMED_MAX];
        size_t n_peers;
        double peers_covered;           /* ns in which these were observed, the last of the interval */
        DiagnosisNamed devices[DIAGNOSIS_NAMED_MAX];
        size_t n_devices;
        DiagnosisMount mount;           /* with most waits of state disk */
        DiagnosisNamed locks[DIAGNOSIS_NAMED_MAX];
        size_t n_locks;
        DiagnosisNamed blocked[DIAGNOSIS_NAMED_MAX]; /* waits of requests that threads with another request
                                                      * ended; value and rate as of locks */
        size_t n_blocked;
        enum qos_state blocked_state;   /* QOS_STATE_PARK or QOS_STATE_POLL, of the first of these */
        DiagnosisNamed kernel[QOS_STATES]; /* locks of the kernel, by the state of the waiting threads:
                                            * value of all, name and holder of the one with most waits */
        int busiest_pid;                /* 0: not known */
        char busiest_thread[DIAGNOSIS_HOLDER_MAX]; /* "" */
        double busiest_thread_ready;    /* CPUs that this one could have used besides, as it was ready */
} DiagnosisEvidence;

typedef enum FindingKind {
        FINDING_CPU,                    /* others use the CPUs */
        FINDING_QUOTA,
        FINDING_DISK,
        FINDING_LOCK,
        FINDING_DEPENDENCY,
        FINDING_MEMORY,
        FINDING_NETWORK,                /* clients, or the way to them */
        FINDING_NAGLE,                  /* parts of a response wait for acknowledgements */
        FINDING_SEND_BUFFER,            /* smaller than what is on the way */
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
        CERTAINTY_POSSIBLE,             /* it may be this as well as something else */
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

/* More requests than normal: a quarter is what clients vary by. */
#define DIAGNOSIS_MORE_REQUESTS 1.3

#define DIAGNOSIS_TEXT_MAX 512U

typedef struct Finding {
        FindingKind kind;
        Certainty certainty;
        enum qos_state state;           /* in which threads are then; QOS_STATE_NONE: none in particular */
        double share;                   /* of the time of a request that this explains, in units without
                                         * requests of the time of threads that are not idle; NaN: it is no
                                         * matter of time */
        double time;                    /* ns that share is of a request; NaN: not known */
        char resource[DIAGNOSIS_NAME_MAX]; /* the cause: a unit, a device, an address, a thread; or "" */
        char unit[DIAGNOSIS_NAME_MAX];  /* the unit behind it; or "" */
        char mount[DIAGNOSIS_NAME_MAX]; /* the file system; or "" */
        char text[DIAGNOSIS_TEXT_MAX];  /* a sentence */
        char next[DIAGNOSIS_TEXT_MAX];  /* a command that mends it or shows more; or "" */
        const char *rule;               /* by which it was found, a sentence */
} Finding;

typedef struct Excluded {
        FindingKind kind;
        double share;                   /* as Finding.share; NaN: it is no matter of time */
        char text[DIAGNOSIS_TEXT_MAX];
} Excluded;

typedef struct Diagnosis {
        Verdict verdict;
        char summary[DIAGNOSIS_TEXT_MAX]; /* the verdict in a line, without the name of the unit */
        char text[DIAGNOSIS_TEXT_MAX];  /* rate and times of requests, or how the unit runs; a sentence */
        Finding findings[_FINDING_KIND_MAX]; /* one of each kind at most: failures, then those that explain
                                              * most */
        size_t n_findings;
        Excluded excluded[_FINDING_KIND_MAX]; /* causes that were examined and excluded */
        size_t n_excluded;
} Diagnosis;

void diagnosis_make(const DiagnosisEvidence *e, Diagnosis *ret);
