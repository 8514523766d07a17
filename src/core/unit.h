/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* One observed unit: who it is, who holds it, and its readings. */

#include <sys/types.h>

#include <systemd/sd-bus.h>
#include <systemd/sd-event.h>
#include <systemd/sd-id128.h>

#include "error.h"
#include "exclude.h"
#include "lifecycle.h"
#include "probe-name.h"
#include "selector.h"
#include "snapshot.h"

typedef struct Manager Manager;
typedef struct Unit Unit;
typedef struct Hold Hold;
struct qos_address;
typedef struct History History;
typedef struct Metric Metric;
typedef struct Threshold Threshold;
typedef struct CounterOffset CounterOffset;
typedef struct WindowMark WindowMark;
struct qos_unit_map;
struct qos_contention_map;
struct qos_contention_cpu;
typedef struct ContentionCounts ContentionCounts;
typedef struct Usage Usage;
typedef struct ServiceManagerCall ServiceManagerCall;

/* Starts of a unit that are left out of its baseline. A loop of restarts has more, and then requests fail as
 * well. */
#define UNIT_STARTS_KEPT 16U

typedef enum HoldType {
        HOLD_ADMINISTRATOR,     /* "qosctl attach": until detach, an expiry, or the next boot */
        HOLD_FILE,              /* [X-QoS] in the unit's files: as long as it stands there */
        HOLD_LEASE,             /* lives as long as the connection (varlink) or bus name (D-Bus) of who
                                 * asked */
        _HOLD_TYPE_MAX,
} HoldType;

const char* hold_type_to_string(HoldType t);    /* "administrator", "unitFile", "lease" */

struct Hold {
        Unit *unit;
        HoldType type;
        ProbeMask probes;
        ExcludeList excludes;
        uid_t uid;                      /* who asked */
        uid_t owner_uid;                /* … and may for no other reason than that the control group is his
                                         * own; 0: the administrator, or whom polkit takes for one */
        char *owner;                    /* for people: "varlink 1234 (qosctl)", ":1.42"; NULL for the
                                         * administrator's */
        uint64_t expires;               /* CLOCK_BOOTTIME usec, or USEC_INFINITY */
        sd_event_source *expiry;
        void *lease_key;                /* identifies the connection a lease belongs to */
        bool seen;                      /* by the newest look at unit files (xqos-loader.c) */
        bool named;                     /* … as the unit's own, not only as those of a template or of all
                                         * that begin so, by the newest that has ended … */
        bool seen_named;                /* … and by the newest */
        Hold *next;
};

struct Unit {
        Manager *manager;
        unsigned index;                 /* of the slot, 0 … units_max - 1 */
        uint32_t generation;            /* distinguishes users of the same slot over time */

        char *name;                     /* "nginx.service", or the control group's path if it was attached by
                                         * path */
        char *aliases;                  /* PID 1's names for it, space separated; NULL: not known (yet) */
        char *control_group;            /* as PID 1 shows it, "/system.slice/nginx.service"; expected one
                                         * while it is not running */
        char *instances;                /* a socket that stands for its instances: how the paths of their
                                         * groups begin; or NULL */
        char *socket_groups;            /* of the sockets that start it alone, space separated; or NULL */
        struct qos_address *listen;     /* where PID 1 listens for it (TCP) */
        size_t n_listen;
        sd_id128_t invocation_id;       /* null if unknown */
        char *active_state;             /* PID 1's word: "active", "inactive", "failed"... never NULL */
        Lifecycle lifecycle;            /* as PID 1 has reported it last */
        uint64_t started_at[UNIT_STARTS_KEPT]; /* CLOCK_MONOTONIC ns of the newest starts that were seen, in
                                                * a ring; 0: none */
        unsigned n_started;             /* starts that were seen */

        uint64_t attached_since;        /* CLOCK_REALTIME, ns */
        uint64_t attached_since_monotonic; /* CLOCK_MONOTONIC, ns */

        Hold *holds;
        ProbeMask probes;               /* the union over the holds */
        uid_t last_uid;                 /* of the hold that went last */

        const struct qos_unit_map *view;    /* the mmapped slot; NULL when the probe could not be loaded */
        uint64_t map_created;            /* when that was made, CLOCK_MONOTONIC ns: the unit may have been
                                          * attached before, in another */
        CounterOffset *base;               /* see window.h; NULL: none */
        const struct qos_contention_map *contention; /* its book of contention, mmapped; NULL: it is not
                                                      * watched so (contention-probe.h) */
        const struct qos_contention_cpu *contention_cpus; /* … of each CPU */
        uint64_t contention_since;      /* when that was made, CLOCK_MONOTONIC ns … */
        uint64_t watched_since;         /* … and when the unit came to be watched: it may have been before,
                                         * and detached */
        ProbeMask contention_probes;    /* what it is watched with in there, by its own holds or those of
                                         * units around it */
        ContentionCounts *contention_base; /* see ContentionSources.before; NULL: nothing */
        ContentionCounts *machine_base; /* what the book of the machine had when the unit came to be watched
                                         * with "block"; NULL: none */
        uint64_t machine_base_at;       /* when that was, CLOCK_MONOTONIC ns */
        uint64_t shares_since;          /* windows that begin before that have more of the unit than of the
                                         * machine */
        Usage *usage;                   /* what its control group's files say; NULL: they are not read */
        bool given;                     /* its map, to some program to read */
        uid_t given_uid;                /* … of that user, root if of several; so that the same one is not
                                         * counted twice */
        uint64_t retained_since;             /* of one that is detached, CLOCK_MONOTONIC ns (hierarchy.h) */

        uint64_t seq;
        Snapshot cached;                /* the last reading, so that equal seq means equal content */
        uint64_t cached_at;             /* CLOCK_MONOTONIC, ns; 0: none */
        uint64_t cached_signature;      /* of the counters, and where the window began */
        uint64_t cached_boundary;

        /* threshold-monitor.h; those that are looked at most often first */
        Threshold *thresholds;
        /* before that no other than these are due, CLOCK_MONOTONIC ns */
        uint64_t threshold_monitor_slow_at;

        History *history;               /* history.h */
        struct {
                uint64_t index;
                uint64_t signature;
        } collected[8];                 /* steps that went there, by index; one more than the kernel keeps */

        uint64_t violated_since, violated_until; /* see unit_note_violation(); 0: never */

        bool history_unsaved;           /* the last attempt failed, which was said */
        bool state_unsaved;             /* … to note that it is attached */
        bool unshown;                   /* a reading could not be shown, which was said */

        /* See openssl.h */
        bool watched;                   /* its processes' use of OpenSSL's library is */
        bool has_openssl;               /* one of them had it when they were looked at */
        int library_limit;              /* … and why not all of theirs are watched, see
                                         * probe_add_libraries() */
        bool wanted;                    /* one is to be looked for, when it is time */
        uint64_t looked_at;             /* when that was done, CLOCK_MONOTONIC ns … */
        uint64_t rescan_delay;       /* … and how long to wait at least */

        char *degraded;                 /* see unit_get_degraded_reason() */
        ServiceManagerCall *refresh;    /* PID 1 is being asked about it; NULL: it is not */
        bool refresh_again;             /* … and something has changed since */
};

void unit_free(Unit *u);

/* Takes a reading over the window (WINDOW_TOTAL or window_is_valid()). Never fails: what cannot be had is
 * absent. While nothing happened to the unit the last reading is given again, with its seq. */
void unit_get_snapshot(Unit *u, uint64_t window_nsec, Snapshot *ret);

/* The same at a moment that is given, so that readings of several units have the same one; always a new
 * one. */
typedef struct Moment {
        uint64_t monotonic, realtime;   /* ns */
} Moment;

void unit_get_snapshot_at(Unit *u, const Moment *at, uint64_t window_nsec, Snapshot *ret);

/* Which distributions are measured, by the names of their metrics ("requests.server.latency"):
 * QOS_DISTRIBUTIONS of them, NULL for one that is not. */
void unit_get_measured(Unit *u, const char **ret);

/* Of the latency and of the time to first byte: how many requests in the window were answered, and how many
 * of them not beyond the limit. False: the metric is none of these, or not measured. */
bool unit_count_within(Unit *u, const Metric *metric, uint64_t window, double limit, uint64_t *ret_good,
                       uint64_t *ret_total);

/* The same with, for each selector, what it chooses, all of it together; not measured if it chooses
 * nothing. */
void unit_get_selected(Unit *u, uint64_t window_nsec, const Selector *selectors, size_t n, Snapshot *ret,
                       Row *ret_rows);

/* Remembers the present moment, of a unit with a view, and what the probes of contention have cost by
 * then. */
void unit_mark(Unit *u, WindowMark *ret, uint64_t *ret_cost);
/* Takes a reading of what happened since. */
void unit_get_snapshot_since(Unit *u, const WindowMark *mark, uint64_t cost, Snapshot *ret);

/* The attached unit, by name, that listens where the row's peer is, on this machine; NULL: none is known. */
const char* unit_find_listening(const Unit *u, const Row *row);

/* The buckets behind a distribution metric ("requests.server.latency", "requests.server[:443].latency"). */
typedef struct HistogramBucket {
        uint64_t lower, upper;          /* ns, (lower, upper]; upper UINT64_MAX: overflow */
        uint64_t count;
} HistogramBucket;

typedef struct Histogram {
        uint64_t seq, timestamp, window, covered;
        int schema;                     /* OpenTelemetry / Prometheus exponential scale, 5 or 3 */
        uint64_t count, sum;
        HistogramBucket *buckets;       /* those that are not empty, ascending */
        size_t n_buckets;
} Histogram;

void histogram_done(Histogram *h);
#define _cleanup_histogram_ _cleanup_(histogram_done)

/* -ENOENT with NoSuchMetric for a name that is no distribution, -ENODATA when it is not measured now. */
int unit_get_histogram(Unit *u, const char *metric, uint64_t window_nsec, Histogram *ret, QosError *e);

/* Of a device by its number, block_device(). */
void device_get_name(uint32_t device, char ret[static DEVICE_NAME_MAX]);

/* Reads the files of its control group, unless that was just done. */
void unit_collect_usage(Unit *u);

/* Takes over what the kernel knows of the steps that have passed. */
int unit_collect_history(Unit *u);

/* A threshold is violated, by what there was from then until then (CLOCK_MONOTONIC ns): for the steps of the
 * history. */
void unit_note_violation(Unit *u, uint64_t from, uint64_t until);

/* Probes that a unit is observed with but that do not work, "requests: reason"; NULL if all is well. */
const char* unit_degraded_reason(Unit *u);
