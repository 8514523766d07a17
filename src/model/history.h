/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* History of a unit: steps of 10 s for the last hour, merged into steps of 5 min for the last day. Steps in
 * which the unit was not observed are missing. Pure: no I/O, no clock. */

#include "custom-window.h"
#include "metric.h"
#include "storage-mounts.h"
#include "util.h"
#include "window.h"

typedef enum HistoryLevel {
        HISTORY_FINE,
        HISTORY_COARSE,
        _HISTORY_LEVEL_MAX,
} HistoryLevel;

#define HISTORY_FINE_NSEC WINDOW_STEP_NSEC
#define HISTORY_COARSE_NSEC (30 * HISTORY_FINE_NSEC)
#define HISTORY_FINE_STEPS 360U
#define HISTORY_COARSE_STEPS 288U

/* Memory limit of the history of a unit, and of its file. Beyond it precision is reduced, see
 * history_put(). */
#define HISTORY_SIZE_MAX (64U * 1024U)

/* Limit of metrics with a value per step. test-history fails if metrics/ defines more. */
#define HISTORY_VALUES_MAX 64U

#define HISTORY_DISTRIBUTIONS 2U

/* The first distributions of connections, of which the history has the mean: those of the layers in the
 * kernel are left out, to save memory. */
#define HISTORY_NETWORK_MEANS ((unsigned) QOS_NETWORK_PORTS + 1U)

/* Additive amounts of a step, from which means, rates and shares are calculated. An amount covers the
 * nanoseconds in the preceding *_COVERED, and is unknown if these are 0. Stored in two bytes with 8
 * significant bits, an error of half a percent: comparisons with the past are about differences of more than
 * 10 %. */
typedef enum HistoryAmount {
        HISTORY_PHASED,                 /* requests with known phases */
        HISTORY_RECEIVE,                /* sum of receive times in ns */
        HISTORY_QUEUE,
        HISTORY_SERVICE,
        HISTORY_ANSWER,
        HISTORY_CLIENT_COVERED,         /* ns covered by the last 10 s window before the end, the only data
                                         * on peers */
        HISTORY_CLIENT,
        HISTORY_CLIENT_TIME,
        HISTORY_QUOTA_COVERED,          /* ns covered by the last 60 s window before the end */
        HISTORY_QUOTA_PERIODS,
        HISTORY_QUOTA_THROTTLED,
        HISTORY_CPU_COVERED,
        HISTORY_FIRST_STATE,            /* ns of threads in QOS_STATE_RUNNING, then the other states */
        /* number of run queue waits */
        HISTORY_RUN_QUEUES = HISTORY_FIRST_STATE + QOS_STATES - QOS_STATE_RUNNING,
        HISTORY_RUN_QUEUE_TIME,
        HISTORY_BLOCK_COVERED,
        HISTORY_BLOCK_OPERATIONS,       /* by enum qos_block_counter */
        HISTORY_BLOCK_BYTES = HISTORY_BLOCK_OPERATIONS + QOS_BLOCK_COUNTERS,
        /* ns of reads queued and in the device, then of writes */
        HISTORY_BLOCK_TIMES = HISTORY_BLOCK_BYTES + QOS_BLOCK_COUNTERS,
        HISTORY_MEMORY_COVERED = HISTORY_BLOCK_TIMES + 4,
        HISTORY_MAJOR_FAULTS,
        HISTORY_MAJOR_FAULT_TIME,
        HISTORY_RECLAIM_TIME,
        HISTORY_DIRTY_THROTTLE_TIME,
        HISTORY_OOM_KILLS,
        HISTORY_STORAGE_COVERED,
        HISTORY_STORAGE_CALLS,          /* by enum qos_storage_call, timed calls only */
        HISTORY_STORAGE_ERRORS = HISTORY_STORAGE_CALLS + QOS_STORAGE_TIMED,
        HISTORY_STORAGE_TIMES = HISTORY_STORAGE_ERRORS + QOS_STORAGE_TIMED, /* ns */
        HISTORY_STORAGE_BYTES = HISTORY_STORAGE_TIMES + QOS_STORAGE_TIMED, /* read, written */
        HISTORY_NETWORK_COVERED = HISTORY_STORAGE_BYTES + QOS_STORAGE_WRITE + 1,
        HISTORY_NETWORK_FLOWS,          /* by enum qos_flow_counter */
        HISTORY_NETWORK_RECOVERIES = HISTORY_NETWORK_FLOWS + QOS_FLOW_COUNTERS,
        HISTORY_NETWORK_SYN_RETRANSMITS,
        HISTORY_NETWORK_PORTS_EXHAUSTED,
        HISTORY_NETWORK_DROPS,
        HISTORY_NETWORK_COUNTS,         /* number of samples, by enum qos_network_distribution */
        HISTORY_NETWORK_TIMES = HISTORY_NETWORK_COUNTS + HISTORY_NETWORK_MEANS, /* their sum in ns */
        HISTORY_NETWORK_RTT_BINS = HISTORY_NETWORK_TIMES + HISTORY_NETWORK_MEANS, /* in the schema of the
                                         * other distributions */
        _HISTORY_AMOUNT_MAX = HISTORY_NETWORK_RTT_BINS + QOS_NETWORK_ROUGH_BINS,
} HistoryAmount;

/* File systems in a step, those with the most time: one takes some 60 bytes. */
#define HISTORY_MOUNTS_MAX 4U

/* Metrics of custom probes in a step, the first ones: a counter takes some 15 bytes. */
#define HISTORY_CUSTOM_MAX 8U

/* Entries of a metric with labels in a step, those with the most: one of a counter takes some 10 bytes. */
#define HISTORY_ENTRIES_MAX 4U

/* An entry of a metric of a custom probe in a step. */
typedef struct HistoryEntry {
        uint64_t identity;              /* hash of "PROBE.METRIC[VALUE,VALUE]" */
        uint64_t cells[QOS_CUSTOM_CELLS(QOS_CUSTOM_HISTOGRAM, 1)];
} HistoryEntry;

/* A metric of a custom probe in a step, the sum of its entries, and some of these. */
typedef struct HistoryCustom {
        uint64_t identity;              /* hash of "PROBE.METRIC" */
        uint64_t covered;               /* ns in which the unit was observed with the probe */
        uint32_t type;                  /* enum qos_custom_type */
        bool labeled;                   /* the bins are octaves */
        bool complete;                  /* entries that are not there are empty */
        uint64_t cells[CUSTOM_SUM_CELLS]; /* of a gauge at the end of the step */
        unsigned n_entries;
        HistoryEntry entries[HISTORY_ENTRIES_MAX]; /* in no order; those from n_entries on are not set */
} HistoryCustom;

/* A file system in a step. */
typedef struct HistoryMount {
        uint64_t identity;              /* see struct qos_mount: of another one with its device number it
                                         * differs */
        MountCounts value;
} HistoryMount;

typedef struct HistoryStep {
        uint64_t index;                 /* CLOCK_MONOTONIC ns of its beginning / length of a step */
        uint64_t timestamp;             /* CLOCK_REALTIME ns of its beginning; stored in ms */
        uint64_t covered;               /* ns in which the unit was observed */
        uint64_t overlaps;              /* requests that arrived during another one */
        uint64_t values[HISTORY_VALUES_MAX]; /* counters in the step, gauges at its end; or ABSENT */
        bool measured[HISTORY_DISTRIBUTIONS];
        WindowBins distributions[HISTORY_DISTRIBUTIONS]; /* all of one schema */
        uint64_t amounts[_HISTORY_AMOUNT_MAX];
        bool violated;                  /* a threshold was violated during the step */
        bool missed;                    /* window_is_incomplete() */
        unsigned n_mounts, n_custom;
        HistoryMount mounts[HISTORY_MOUNTS_MAX]; /* in no order; those from n_mounts on are not set */
        HistoryCustom custom[HISTORY_CUSTOM_MAX]; /* as with mounts */
} HistoryStep;

typedef struct History History;

int history_new(History **ret);
History* history_free(History *h);
static inline void history_freep(History **h) {
        (void) history_free(*h);
}
#define _cleanup_history_ _cleanup_(history_freep)

uint64_t history_level_nsec(HistoryLevel level);

/* Whether the history has values of the metric, or can derive them. */
bool history_has_metric(const Metric *metric);
/* Index of a distribution such as "requests.server.latency", or negative. */
int history_find_distribution(const char *name);
const char* history_distribution_name(unsigned i);
enum qos_distribution history_distribution(unsigned i);

/* Sets counters and gauges from a snapshot. All other fields are set by the caller. */
void history_step_set_metrics(HistoryStep *s, const Metrics *metrics);
/* All metrics of a step, by the rules for snapshots; unknown ones are absent. */
void history_step_get_metrics(const HistoryStep *s, unsigned minimum_samples, Metrics *ret);
/* Sets the file systems: the first ones that have calls. */
void history_step_set_mounts(HistoryStep *s, const MountsReading *mounts);
/* Metrics of the calls on a file system; all are absent if the step does not have it. */
void history_step_get_mount(const HistoryStep *s, uint64_t identity, unsigned minimum_samples,
                            Metrics *ret);
/* Adds the metrics of a probe, as long as there is space. */
void history_step_add_custom(HistoryStep *s, const CustomReading *reading, const CustomManifest *m,
                             custom_device_t device_name);
/* Value of a field of "PROBE.METRIC" or "PROBE.METRIC[VALUE,VALUE]", of this length; NaN: the step does not
 * have it. */
double history_step_get_custom(const HistoryStep *s, const char *path, size_t length, CustomField field,
                               unsigned minimum_samples);
/* Whether the distribution is valid, that is, requests do not overlap. */
bool history_step_has_distribution(const HistoryStep *s, unsigned i);

/* Adds a step of 10 s, or replaces it, as recent steps may still change. If the history gets too large,
 * steps lose the entries of custom metrics, then the largest ones lose precision (bins are merged, down to
 * schema 1), then steps lose their file systems, metrics of custom probes and amounts, one after the other,
 * then more precision, down to schema -2. Finally the oldest steps are dropped. 10 s steps that are part of
 * a 5 min step lose such things first, then 5 min steps, then the rest, oldest first. */
int history_put(History *h, const HistoryStep *step);
/* Advances to the newest complete 10 s step: older ones are merged into steps of 5 min once final, and
 * dropped at their age limit. */
int history_roll(History *h, uint64_t newest);

/* Calls each for all steps, oldest first, including the incomplete current step of 5 min. Stops at the first
 * negative return value. */
int history_foreach(const History *h, HistoryLevel level, int (*each)(const HistoryStep *s, void *userdata),
                    void *userdata);

/* Serialization for files. generation: identifies the unit. -EBADMSG: invalid data. -ESTALE: written by
 * another version, with other values or step lengths. */
int history_serialize(const History *h, uint32_t generation, void **ret, size_t *ret_size);
int history_deserialize(const void *data, size_t size, uint32_t generation, History **ret);
