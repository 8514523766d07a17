/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Calculates metrics from a reading of a unit: counters of a window, and gauges. Pure. */

#include "contention-window.h"
#include "metric.h"
#include "network-window.h"
#include "probe-name.h"
#include "snapshot.h"
#include "storage-window.h"
#include "window.h"

/* Groups of metrics that are measured by the same programs, and absent unless all of these are attached. */
typedef enum Measured {
        MEASURED_EXCHANGES,
        MEASURED_ARRIVALS,
        MEASURED_CONTENT,               /* protocols are parsed */
        MEASURED_UNIX,
        MEASURED_UDP,
        MEASURED_ENDS,                  /* of connections */
        MEASURED_BYTES_IN,
        MEASURED_BYTES_OUT,
        MEASURED_OPEN,
        MEASURED_ACCEPTED,
        MEASURED_ACCEPT_QUEUES,
        MEASURED_LISTEN_DROPS,
        MEASURED_RETRANSMITS,
        MEASURED_IN_FLIGHT,
        MEASURED_CLOCK,                 /* of the time with requests in flight */
        MEASURED_STATES,                /* of threads */
        MEASURED_WAKERS,
        MEASURED_BLOCK,
        MEASURED_FAULTS,
        MEASURED_FAULT_TIMES,
        MEASURED_RECLAIM,
        MEASURED_DIRTY_THROTTLES,
        MEASURED_OOM,
        MEASURED_STORAGE_COUNTED,       /* calls as the kernel counts them */
        MEASURED_STORAGE_CACHE,         /* lookups in the page cache, and pages read into it */
        MEASURED_STORAGE_DIRTIED,
        MEASURED_STORAGE_MAPPED,        /* faults on mapped files */
        MEASURED_STORAGE_UNSEEN,
        MEASURED_STORAGE_SUBMITTED,
        MEASURED_STORAGE_FUSE,
        MEASURED_STORAGE_CALLS,         /* the first of enum qos_storage_call */
        _MEASURED_STORAGE_LAST = MEASURED_STORAGE_CALLS + QOS_STORAGE_CALLS - 1,
        MEASURED_FLOWS,                 /* what TCP counts of connections */
        MEASURED_RECOVERIES,
        MEASURED_RTT,
        MEASURED_RECEIVING_TCP,         /* the way of segments to TCP */
        MEASURED_RECEIVING_SOCKET,      /* from there to the application */
        MEASURED_RECEIVING_TOTAL,
        MEASURED_DROPS,
        MEASURED_TRANSMITTING_IP,       /* the way of segments to the queue of the device */
        MEASURED_TRANSMITTING_TOTAL,    /* and to the driver */
        MEASURED_RTT_PARTS,
        _MEASURED_MAX,
} Measured;

_Static_assert(_MEASURED_MAX <= 64, "a bit of a word for each");

/* Current gauges. ABSENT: unknown, or not measured. */
typedef struct ReadingGauges {
        uint64_t open, accept_queue, accept_queue_max;
        uint64_t in_flight, oldest_in_flight, waiting, oldest_waiting, intended; /* see Server */
        bool not_tcp;                   /* some requests in flight are not on TCP */
} ReadingGauges;

/* Session numbers of the last runs of iterators; 0: failed. A map with another number was not visited. */
typedef struct ReadingSessions {
        uint64_t listeners;
        uint64_t oldest;
        uint64_t gauges[QOS_GAUGES];
} ReadingSessions;

/* Common to all windows of a reading. */
typedef struct ReadingContext {
        uint64_t now;                   /* CLOCK_MONOTONIC ns */
        uint64_t measured;              /* bits of Measured */
        ProbeMask probes;               /* those with a contention map */
        unsigned minimum_samples;       /* see window_get_distribution() */
        bool writeback;                 /* writeback is attributed to the unit */
        ReadingGauges gauges;
} ReadingContext;

static inline bool is_measured(uint64_t measured, Measured m) {
        return measured >> m & 1;
}

/* Distributions of the server role. */
typedef struct ServerDistribution {
        const char *name;
        Measured needs;
        size_t offset;                  /* in struct Server */
} ServerDistribution;

extern const ServerDistribution server_distributions[QOS_DISTRIBUTIONS];

/* Sets the gauges. To be called after the windows were read, so that requests that end meanwhile are in
 * either. */
void reading_get_gauges(ReadingContext *c, const WindowSources *sources, const ReadingSessions *sessions);

/* Raw counters only, regardless of validity. */
void counters_fill(const ReadingContext *c, const WindowReading *reading, Metrics *ret);
/* All metrics but contention, storage, network and the client role, including gauges. distributions: bitmask
 * of those read; others are absent. */
void metrics_fill(const ReadingContext *c, const WindowReading *reading, unsigned distributions,
                  Metrics *ret);

/* Whether the clock of the time with requests in flight is valid: all requests were on TCP. */
bool clock_is_whole(const ReadingContext *c, const WindowReading *reading);

void contention_set_absent(Metrics *ret);
/* Thread states only. cells: see contention_metrics_fill(). */
void states_fill(const ReadingContext *c, const ContentionReading *reading, bool cells, Contention *ret);
/* Contention metrics without statistics of the control group. cells: cells were read; clock: see
 * clock_is_whole(); otherwise values derived from these are absent. */
void contention_metrics_fill(const ReadingContext *c, const ContentionReading *reading, bool cells,
                             bool clock, Contention *ret);

void storage_set_absent(Metrics *ret);
void storage_metrics_fill(const ReadingContext *c, const StorageReading *reading, Storage *ret);

void network_set_absent(Metrics *ret);
void network_metrics_fill(const ReadingContext *c, const NetworkReading *reading, Network *ret);

/* Requires metrics of calls and of block I/O. */
void amplification_fill(const Block *block, uint64_t block_covered, Storage *storage);

/* Run time of the programs, ns. */
uint64_t contention_get_cost(const ContentionReading *reading);
