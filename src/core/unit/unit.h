/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* An observed unit: identity, holds and snapshots. */

#include <sys/types.h>

#include <systemd/sd-bus.h>
#include <systemd/sd-event.h>
#include <systemd/sd-id128.h>

#include "contention-probe.h"
#include "error.h"
#include "exclude.h"
#include "history-collector.h"
#include "lifecycle.h"
#include "openssl.h"
#include "probe-name.h"
#include "selector.h"
#include "snapshot.h"
#include "custom-probe.h"
#include "network-probe.h"
#include "storage-probe.h"
#include "xqos-section.h"

typedef struct Manager Manager;
typedef struct Unit Unit;
typedef struct Hold Hold;
struct qos_address;
typedef struct Metric Metric;
typedef struct Threshold Threshold;
typedef struct CounterOffset CounterOffset;
typedef struct WindowMark WindowMark;
struct qos_unit_map;
typedef struct ServiceManagerCall ServiceManagerCall;

/* Latest starts of a unit, which its baseline excludes. A restart loop has more, but then requests fail as
 * well. */
#define UNIT_STARTS_KEPT 16U

typedef enum HoldType {
        HOLD_ADMINISTRATOR,     /* "qosctl attach": until detach, expiry or reboot */
        HOLD_FILE,              /* [X-QoS] in unit files, as long as the section exists */
        HOLD_CONFIGURATION,     /* Observe=auto in qosd.conf, as long as that is set and the unit exists */
        HOLD_LEASE,             /* until the connection (varlink) or bus name (D-Bus) of the client ends */
        _HOLD_TYPE_MAX,
} HoldType;

const char* hold_type_to_string(HoldType t);    /* "administrator", "unitFile", "configuration", "lease" */

struct Hold {
        Unit *unit;
        HoldType type;
        ProbeMask probes;
        ExcludeList excludes;
        uid_t uid;                      /* of the client */
        uid_t owner_uid;                /* if authorized by ownership of the control group only; 0:
                                         * administrator, or authorized by polkit */
        char *owner;                    /* for messages: "varlink 1234 (qosctl)", ":1.42", or the path of the
                                         * unit file or of qosd.conf; NULL for the administrator's */
        uint64_t expires;               /* CLOCK_BOOTTIME us, or USEC_INFINITY */
        sd_event_source *expiry;
        void *lease_key;                /* identifies the connection of a lease */
        bool seen;                      /* found by the latest scan of unit files (xqos-loader.c) */
        bool named;                     /* found in files of the unit itself, not of a template or prefix, by
                                         * the last completed scan */
        bool seen_named;                /* same, by the current scan */
        bool starts[_XQOS_EVENT_MAX];   /* of a unit file: it names units to start */
        Hold *next;
};

/* The last snapshot. Snapshots of equal seq have equal contents. */
typedef struct UnitCache {
        uint64_t seq;
        Snapshot snapshot;
        uint64_t at;                    /* CLOCK_MONOTONIC ns; 0: none */
        uint64_t signature;             /* of the counters and the beginning of the window */
        uint64_t boundary;
} UnitCache;

/* Whether a unit needs requests_unix, see read-check.h. */
typedef enum UnixUse {
        UNIX_USE_NEW,                   /* unknown since the attach */
        UNIX_USE_UNKNOWN,               /* unknown since a later start */
        UNIX_USE_NONE,                  /* it does not, as far as known */
        UNIX_USE_SOME,                  /* it does, until it is detached */
} UnixUse;

struct Unit {
        Manager *manager;
        unsigned index;                 /* slot, 0 … units_max - 1 */
        uint32_t generation;            /* distinguishes successive units in the slot */

        char *name;                     /* "nginx.service", or a path if attached by control group path */
        char *aliases;                  /* names known to PID 1, space separated; NULL: unknown */
        char *control_group;            /* "/system.slice/nginx.service", as in properties of PID 1; of an
                                         * inactive unit the expected one */
        char *instances;                /* of a socket with Accept=yes: common prefix of the control group
                                         * paths of its instances; or NULL */
        char *socket_groups;            /* control groups of sockets that activate this unit only, space
                                         * separated; or NULL */
        struct qos_address *listen;     /* TCP addresses of its sockets at PID 1 */
        size_t n_listen;
        sd_id128_t invocation_id;       /* null if unknown */
        char *active_state;             /* "active", "inactive", "failed"... never NULL */
        Lifecycle lifecycle;            /* last one reported by PID 1 */
        uint64_t started_at[UNIT_STARTS_KEPT]; /* CLOCK_MONOTONIC ns of the latest starts, ring; 0: none */
        unsigned n_started;             /* number of starts seen */

        uint64_t attached_since;        /* CLOCK_REALTIME, ns */
        uint64_t attached_since_monotonic; /* CLOCK_MONOTONIC, ns */

        Hold *holds;
        ProbeMask probes;               /* union over all holds */
        uid_t last_uid;                 /* of the hold dropped last */

        const struct qos_unit_map *view;    /* its map, mapped read-only; NULL: no programs loaded */
        uint64_t map_created;            /* CLOCK_MONOTONIC ns of its creation; may precede the attach */
        CounterOffset *base;               /* see window.h; NULL: none */
        UnitContention contention;
        UnitStorage storage;
        UnitNetwork network;
        UnitCustom custom[CUSTOM_PROBES_MAX];
        struct ExportedBins *exported_bins; /* NULL: never exported */
        struct EndpointTotals *endpoint_totals; /* of the last export with endpoints; NULL: none so far */
        bool exported;                  /* the map was exported */
        uid_t exported_uid;             /* user of the exports, root if several; shared maps are counted
                                         * once */
        uint64_t retained_since;             /* CLOCK_MONOTONIC ns of the detach, for retained units
                                              * (hierarchy.h) */

        UnitCache cache;

        /* see threshold-monitor.h; sorted by period */
        Threshold *thresholds;
        /* CLOCK_MONOTONIC ns of the next evaluation of longer periods */
        uint64_t threshold_monitor_slow_at;

        UnitHistory history;

        bool state_unsaved;             /* saving the state has failed, and was logged */
        bool unshown;                   /* a snapshot could not be serialized, and it was logged */

        UnitOpenSSL openssl;
        uint64_t reads_checked_since;   /* CLOCK_MONOTONIC ns, see read-check.h; 0: not yet */
        UnixUse unix_use;

        ServiceManagerCall *refresh;    /* pending query of properties; NULL: none */
        bool refresh_again;             /* changed again during the query */
};

void unit_free(Unit *u);

/* Takes a snapshot over a window (WINDOW_TOTAL or window_is_valid()). Never fails: unknown values are
 * absent. If nothing has happened, the last snapshot is returned, with the same seq. */
void unit_get_snapshot(Unit *u, uint64_t window_nsec, Snapshot *ret);

/* As unit_get_snapshot(), but always a new snapshot, at a time that several units have in common. */
typedef struct Moment {
        uint64_t monotonic, realtime;   /* ns */
} Moment;

void unit_get_snapshot_at(Unit *u, const Moment *at, uint64_t window_nsec, Snapshot *ret);

/* Names of measured distributions ("requests.server.latency"): QOS_DISTRIBUTIONS elements, NULL for those
 * not measured. */
void unit_get_measured(Unit *u, const char **ret);

/* As unit_get_snapshot(), with the sum of the selected rows for each selector; not measured if a selector
 * matches none. */
void unit_get_selected(Unit *u, uint64_t window_nsec, const Selector *selectors, size_t n, Snapshot *ret,
                       Row *ret_rows);

/* Sets a mark at the current moment, for units with a map. ret_cost: overhead of contention so far. */
void unit_mark(Unit *u, WindowMark *ret, uint64_t *ret_cost);
/* Takes a snapshot of what happened since a mark. */
void unit_get_snapshot_since(Unit *u, const WindowMark *mark, uint64_t cost, Snapshot *ret);

/* Name of the attached unit that listens at the peer's address on this machine; NULL: unknown. */
const char* unit_find_listening(const Unit *u, const Row *row);

/* Strings are owned by the unit, and valid until it changes. */
void unit_get_identity(const Unit *u, UnitIdentity *ret);

/* -ENOENT with NoSuchMetric if the name is not a distribution, -ENODATA if it is not measured. */
int unit_get_histogram(Unit *u, const char *metric, uint64_t window_nsec, Histogram *ret, QosError *e);

/* Name of a device by number, see block_device(). */
void device_get_name(uint32_t device, char ret[static DEVICE_NAME_MAX]);

/* Reads the statistics of its control group, unless recently done. */
void unit_collect_usage(Unit *u);

/* Passes the unit's probes on to the programs. */
void unit_update_probe_config(Unit *u);

/* Collects completed steps from the kernel. */
int unit_collect_history(Unit *u);

/* Marks steps of the history whose data violated a threshold. Interval in CLOCK_MONOTONIC ns. */
void unit_note_violation(Unit *u, uint64_t from, uint64_t until);

/* Requested probes that are not available, "requests: reason"; NULL if there are none. */
int unit_get_degraded_reason(const Unit *u, char **ret);
