/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* libqosd: quality of service of systemd units, for programs that react to it. See libqosd(3).
 *
 * Functions return a negative errno on failure, and 0 or more on success, unless noted otherwise. Times are
 * in nanoseconds. Objects are not thread-safe, and a view shares the state of its connection.
 *
 * Errors of all functions that call qosd:
 *
 *   -ENOTCONN, -ECONNRESET, -EPIPE   qosd has stopped or restarted. The leases and marks of this connection
 *                                    are lost
 *   -ECONNREFUSED, -ENOENT           (qosd_connect()) qosd is not running
 *   -ENXIO                           the unit is not attached
 *   -ENOENT                          no such unit
 *   -EACCES                          not authorized
 *   -EINVAL                          invalid argument: unit name, window, threshold
 *   -EUSERS                          a limit of qosd is reached
 *   -EOPNOTSUPP                      not supported for the unit, or on this system
 *   -ETIMEDOUT                       no reply from qosd
 *
 * qosd_get_error() returns a message about the last one. */

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <systemd/sd-event.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct qosd qosd;
typedef struct qosd_snapshot qosd_snapshot;
typedef struct qosd_view qosd_view;
typedef struct qosd_monitor qosd_monitor;
typedef struct qosd_event qosd_event;

/* Windows end now. Valid are 100 ms … 1 s in steps of 100 ms, 1 s … 10 s in steps of 1 s, 60 s, 300 s, and
 * the following. */
#define QOSD_WINDOW_TOTAL UINT64_C(0)                   /* since the unit was attached */
#define QOSD_WINDOW_DEFAULT UINT64_MAX                  /* DefaultWindow= in qosd.conf; not for views */
#define QOSD_WINDOW_1S UINT64_C(1000000000)
#define QOSD_WINDOW_10S UINT64_C(10000000000)
#define QOSD_WINDOW_60S UINT64_C(60000000000)
#define QOSD_WINDOW_300S UINT64_C(300000000000)

/* ---- connection --------------------------------------------------------------------------------------- */

/* Connects to the local qosd. address: varlink socket; NULL for the default. */
int qosd_connect(const char *address, qosd **ret);
qosd *qosd_ref(qosd *q);
qosd *qosd_unref(qosd *q);              /* when freed, drops the leases and marks taken on it; returns
                                         * NULL */

/* Sets the timeout of later calls, in nanoseconds. After a call has failed with -ETIMEDOUT, the connection
 * is unusable. */
int qosd_set_timeout(qosd *q, uint64_t nsec);

/* Error message of the last call; never NULL, valid until the next call. */
const char *qosd_get_error(qosd *q);

/* Observes a unit (or a control group, by path) for the lifetime of the connection. probes: as in qosctl(1),
 * NULL terminated; NULL for the default. */
int qosd_attach(qosd *q, const char *unit, const char *const *probes);
/* Drops the lease. The unit remains observed if it has other holds. */
int qosd_detach(qosd *q, const char *unit);

/* Sets a threshold, as in qosctl(1): "slow: requests.server.firstByte.p99 > 20ms over 10s for 2s". It is
 * removed with the connection. */
int qosd_set_threshold(qosd *q, const char *unit, const char *threshold);
int qosd_clear_threshold(qosd *q, const char *unit, const char *name);

/* ---- snapshots ---------------------------------------------------------------------------------------- */

/* Takes snapshots of n units at the same moment, at most 256. ret has to have space for n elements; none is
 * set on failure. */
int qosd_read(qosd *q, const char *const *units, size_t n, uint64_t window, qosd_snapshot **ret);

/* Sets a mark of the unit at the current moment, replacing a previous one. At most four units per
 * connection. */
int qosd_mark(qosd *q, const char *unit);
/* Takes a snapshot of what happened since the mark. -ENXIO: no mark. */
int qosd_since(qosd *q, const char *unit, qosd_snapshot **ret);

qosd_snapshot *qosd_snapshot_ref(qosd_snapshot *s);
qosd_snapshot *qosd_snapshot_unref(qosd_snapshot *s);

const char *qosd_snapshot_get_unit(qosd_snapshot *s);
uint64_t qosd_snapshot_get_seq(qosd_snapshot *s);       /* equal numbers for a unit: equal contents */
uint64_t qosd_snapshot_get_timestamp(qosd_snapshot *s); /* since 1970 UTC */
uint64_t qosd_snapshot_get_covered(qosd_snapshot *s);   /* part of the window in which the unit was
                                                         * attached */

/* Gets a metric by name, as listed by "qosctl list-metrics": "requests.server.firstByte.p99". -ENODATA:
 * unknown, not 0: not measured, too few samples for a quantile, or no such metric. -EDOM: the metric is not
 * an integer, or not a number. */
int qosd_snapshot_get_integer(qosd_snapshot *s, const char *metric, uint64_t *ret);
/* As qosd_snapshot_get_integer(), also for integers. */
int qosd_snapshot_get_real(qosd_snapshot *s, const char *metric, double *ret);
/* As qosd_snapshot_get_integer(). The string is owned by s. */
int qosd_snapshot_get_string(qosd_snapshot *s, const char *metric, const char **ret);

/* ---- shared memory views ------------------------------------------------------------------------------ */

/* Maps the kernel memory that has the metrics of a unit. Reading needs no system call and no lock, and has
 * no cost for qosd. Requires root, or ownership of the unit's control group, as the memory includes
 * addresses of peers.
 *
 * -EOPNOTSUPP: the metrics are in several maps, because units within it are or were attached: use
 * qosd_read(). -EPROTO: this libqosd does not match the running qosd. */
int qosd_view_open(qosd *q, const char *unit, qosd_view **ret);
qosd_view *qosd_view_ref(qosd_view *v);
qosd_view *qosd_view_unref(qosd_view *v);

typedef enum qosd_distribution {
        QOSD_LATENCY,           /* of a request: first byte received by the IP layer to last byte of the
                                 * response sent by it */
        QOSD_FIRST_BYTE,        /* first byte received to first byte of the response sent */
        QOSD_RECEIVE,           /* first byte received to last byte received */
        QOSD_QUEUE,             /* last byte received to read by the unit */
        QOSD_SERVICE,           /* read by the unit to first byte of the response sent */
        QOSD_ANSWER,            /* first to last byte of the response sent */
        _QOSD_DISTRIBUTION_MAX,
} qosd_distribution;

/* Reads one distribution of the server's requests over a window into the view, to be accessed by the
 * functions below. Requests in flight are not included.
 *
 * -ESTALE: the map is no longer complete, since the unit was detached, or a unit within it attached; open
 * another view. -ENOTCONN: qosd has stopped or restarted, and cannot invalidate the view any more;
 * reconnect. Checked at most ten times a second. -ENODATA: not measured, or durations are meaningless
 * because requests overlap. -EAGAIN: overtaken by writers in all attempts; try again. */
int qosd_view_read(qosd_view *v, qosd_distribution d, uint64_t window);

/* Results of the last qosd_view_read(), consistent: the count is the sum of the buckets. */
uint64_t qosd_view_get_count(qosd_view *v);
uint64_t qosd_view_get_covered(qosd_view *v);
/* -ENODATA: no samples, or too few of them above the quantile. -EINVAL: q is not between 0 and 1. */
int qosd_view_get_mean(qosd_view *v, uint64_t *ret);
int qosd_view_get_max(qosd_view *v, uint64_t *ret);
int qosd_view_get_quantile(qosd_view *v, double q, uint64_t *ret);
/* Buckets by index from 0, including empty ones, with bounds (lower, upper] in ns, rounded down; the last
 * upper is UINT64_MAX. Bucket i of QOSD_LATENCY and QOSD_FIRST_BYTE is bucket i - 704 of schema 5 of a
 * native histogram of Prometheus in seconds, of the others bucket i - 176 of schema 3: the first ends at
 * 2^-22 s, the last begins at 2^6 s. Returns 0 if there is no such bucket. ret_* may be NULL. */
int qosd_view_get_bucket(qosd_view *v, size_t i, uint64_t *ret_lower, uint64_t *ret_upper,
                         uint64_t *ret_count);

/* ---- thresholds --------------------------------------------------------------------------------------- */

typedef enum qosd_state {
        QOSD_UNKNOWN,           /* no value */
        QOSD_OK,
        QOSD_VIOLATED,
        _QOSD_STATE_MAX,
} qosd_state;

/* e: valid during the call only. NULL: the connection was lost, and with it missed events (0: unknown
 * number); events with the current states follow. */
typedef void (*qosd_event_handler_t)(qosd_monitor *m, qosd_event *e, uint64_t missed, void *userdata);

/* Calls handler from the event loop: first with the current state of each threshold, then on each state
 * change. units: NULL terminated; NULL for all units. The monitor has a connection of its own, and
 * reconnects and resumes automatically. */
int qosd_monitor_new(const char *address, sd_event *event, const char *const *units,
                     qosd_event_handler_t handler, void *userdata, qosd_monitor **ret);
qosd_monitor *qosd_monitor_ref(qosd_monitor *m);
qosd_monitor *qosd_monitor_unref(qosd_monitor *m);

const char *qosd_event_get_unit(qosd_event *e);
const char *qosd_event_get_name(qosd_event *e);         /* of the threshold */
const char *qosd_event_get_metric(qosd_event *e);
qosd_state qosd_event_get_state(qosd_event *e);
bool qosd_event_is_initial(qosd_event *e);              /* current state, not a state change */
uint64_t qosd_event_get_seq(qosd_event *e);             /* 0: initial event */
/* -ENODATA: unknown. */
int qosd_event_get_value(qosd_event *e, double *ret);
int qosd_event_get_limit(qosd_event *e, double *ret);
int qosd_event_get_slack(qosd_event *e, double *ret);   /* (limit - value) / limit */

/* ---- cleanup functions -------------------------------------------------------------------------------- */

#define _QOSD_DEFINE_UNREFP(name)                                               \
        static inline void name##_unrefp(name **p) {                            \
                if (*p)                                                         \
                        name##_unref(*p);                                       \
        }

_QOSD_DEFINE_UNREFP(qosd)
_QOSD_DEFINE_UNREFP(qosd_snapshot)
_QOSD_DEFINE_UNREFP(qosd_view)
_QOSD_DEFINE_UNREFP(qosd_monitor)

#ifdef __cplusplus
}
#endif
