/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* libqosd: how well systemd units serve their requests, for programs that act on it. See libqosd(3).
 *
 * All functions return a negative errno on failure, and 0 or more otherwise, unless it is said below. All
 * times are nanoseconds. An object is for one thread at a time, a view together with the connection that it
 * came by.
 *
 * Errors that all functions have which ask qosd:
 *
 *   -ENOTCONN, -ECONNRESET, -EPIPE   qosd is gone, or was started anew. What was leased and marked over this
 *                                    connection went with it
 *   -ECONNREFUSED, -ENOENT           (qosd_connect()) qosd is not there
 *   -ENXIO                           the unit is not attached
 *   -ENOENT                          there is no such unit
 *   -EACCES                          not for this user
 *   -EINVAL                          what was passed makes no sense: a name of a unit, a window, a threshold
 *   -EUSERS                          qosd has a limit, which this user has reached
 *   -EOPNOTSUPP                      the unit, or the system, cannot be measured so
 *   -ETIMEDOUT                       qosd does not answer
 *
 * qosd_get_error() has a sentence about the last one. */

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

/* Windows end now. There are those of 100 ms … 1 s in steps of 100 ms, of 1 s … 10 s in steps of 1 s, of 60
 * s, of 300 s, and: */
#define QOSD_WINDOW_TOTAL UINT64_C(0)                   /* since the unit was attached */
#define QOSD_WINDOW_DEFAULT UINT64_MAX                  /* DefaultWindow= in qosd.conf; not for views */
#define QOSD_WINDOW_1S UINT64_C(1000000000)
#define QOSD_WINDOW_10S UINT64_C(10000000000)
#define QOSD_WINDOW_60S UINT64_C(60000000000)
#define QOSD_WINDOW_300S UINT64_C(300000000000)

/* ---- the connection ----------------------------------------------------------------------------------- */

/* Connects to the qosd of this system. address: where its varlink socket is; NULL for the usual one. */
int qosd_connect(const char *address, qosd **ret);
qosd *qosd_ref(qosd *q);
qosd *qosd_unref(qosd *q);              /* ends the leases and marks that were taken over it; returns NULL */

/* How long later calls wait for qosd, in nanoseconds. A call that waits longer is -ETIMEDOUT, and the
 * connection is of no more use. */
int qosd_set_timeout(qosd *q, uint64_t nsec);

/* What was wrong with the last call, in words; never NULL, valid until the next call. */
const char *qosd_get_error(qosd *q);

/* Observes a unit (or a control group, by its path) for as long as the connection lasts. probes: as in
 * qosctl(1), with NULL at the end; NULL for the default. */
int qosd_attach(qosd *q, const char *unit, const char *const *probes);
/* Ends the lease. The unit is observed further if others hold it. */
int qosd_detach(qosd *q, const char *unit);

/* Sets a threshold, as in qosctl(1): "slow: requests.server.firstByte.p99 > 20ms over 10s for 2s". It goes
 * with the connection. */
int qosd_set_threshold(qosd *q, const char *unit, const char *threshold);
int qosd_clear_threshold(qosd *q, const char *unit, const char *name);

/* ---- readings ----------------------------------------------------------------------------------------- */

/* Takes a reading of each of the n units, all at the same moment. ret has room for n; none is set on
 * failure. At most 256. */
int qosd_read(qosd *q, const char *const *units, size_t n, uint64_t window, qosd_snapshot **ret);

/* Remembers the present moment of a unit; once more forgets the one before. A connection has room for
 * four. */
int qosd_mark(qosd *q, const char *unit);
/* Takes a reading of exactly what happened since. -ENXIO: there is no mark. */
int qosd_since(qosd *q, const char *unit, qosd_snapshot **ret);

qosd_snapshot *qosd_snapshot_ref(qosd_snapshot *s);
qosd_snapshot *qosd_snapshot_unref(qosd_snapshot *s);

const char *qosd_snapshot_get_unit(qosd_snapshot *s);
uint64_t qosd_snapshot_get_seq(qosd_snapshot *s);       /* equal numbers of a unit: equal readings */
uint64_t qosd_snapshot_get_timestamp(qosd_snapshot *s); /* since 1970 UTC */
uint64_t qosd_snapshot_get_covered(qosd_snapshot *s);   /* of the window: the time in which the unit was
                                                         * attached */

/* A metric by its name, as "qosctl list-metrics" has it: "requests.server.firstByte.p99". -ENODATA: it was
 * not measured, or would mislead (too few samples for a quantile); then it is not 0 but unknown, also if
 * there is no metric of that name. -EDOM: it is no integer, or no number. */
int qosd_snapshot_get_integer(qosd_snapshot *s, const char *metric, uint64_t *ret);
int qosd_snapshot_get_real(qosd_snapshot *s, const char *metric, double *ret);          /* integers, too */
/* valid as long as s is */
int qosd_snapshot_get_string(qosd_snapshot *s, const char *metric, const char **ret);

/* ---- the shared view ---------------------------------------------------------------------------------- */

/* A window on the kernel's own memory, which the figures of a unit are in. Reading takes no call of anybody
 * and no lock, and costs qosd nothing. For root, and for the user whose control group the unit is, as
 * addresses of peers are in there, too.
 *
 * -EOPNOTSUPP: what the unit has is in several places, since other attached units lie in it, or did: use
 * qosd_read(). -EPROTO: this libqosd was built for another qosd. */
int qosd_view_open(qosd *q, const char *unit, qosd_view **ret);
qosd_view *qosd_view_ref(qosd_view *v);
qosd_view *qosd_view_unref(qosd_view *v);

typedef enum qosd_distribution {
        QOSD_LATENCY,           /* of a request: from its first byte at the IP layer to the last byte of its
                                 * answer leaving it */
        QOSD_FIRST_BYTE,        /* … to the first byte of its answer */
        QOSD_RECEIVE,           /* from its first byte to its last */
        QOSD_QUEUE,             /* … until the unit has read it */
        QOSD_SERVICE,           /* … until the first byte of the answer leaves */
        QOSD_ANSWER,            /* … until the last one does */
        _QOSD_DISTRIBUTION_MAX,
} qosd_distribution;

/* Reads one distribution of the server's requests over a window into the view, where the functions below
 * find it. What waits and was not answered yet is in none.
 *
 * -ESTALE: this is no longer all that the unit has, since it was detached, or a unit in it was attached;
 * open another view. -ENOTCONN: qosd is gone, or was started anew, and nobody would say so; connect again.
 * It is looked for ten times a second at most. -ENODATA: not measured, or requests overlap so that durations
 * mean nothing. -EAGAIN: the unit was faster than the reader again and again; try once more. */
int qosd_view_read(qosd_view *v, qosd_distribution d, uint64_t window);

/* What the last qosd_view_read() has read, all of one moment: the count is the sum of the buckets. */
uint64_t qosd_view_get_count(qosd_view *v);
uint64_t qosd_view_get_covered(qosd_view *v);
/* -ENODATA: there are no samples, or too few of them beyond the quantile. -EINVAL: q is not between 0 and
 * 1. */
int qosd_view_get_mean(qosd_view *v, uint64_t *ret);
int qosd_view_get_max(qosd_view *v, uint64_t *ret);
int qosd_view_get_quantile(qosd_view *v, double q, uint64_t *ret);
/* The buckets from 0 on, empty ones included, (lower, upper]; upper is UINT64_MAX in the last. 0: there is
 * none of that number. Any of ret_* may be NULL. */
int qosd_view_get_bucket(qosd_view *v, size_t i, uint64_t *ret_lower, uint64_t *ret_upper,
                         uint64_t *ret_count);

/* ---- thresholds --------------------------------------------------------------------------------------- */

typedef enum qosd_state {
        QOSD_UNKNOWN,           /* nothing to measure, or too little */
        QOSD_OK,
        QOSD_VIOLATED,
        _QOSD_STATE_MAX,
} qosd_state;

/* e is valid during the call alone. NULL: qosd was not there, or was started anew, and missed (0: it is not
 * known how many) events are missed; events with the states as they are now follow. */
typedef void (*qosd_event_handler_t)(qosd_monitor *m, qosd_event *e, uint64_t missed, void *userdata);

/* Calls handler from the event loop: first for each threshold as it is, then whenever one's state changes.
 * units: NULL at the end; NULL for all units. It has a connection of its own. If that ends, it connects
 * again by itself, and goes on where it was. */
int qosd_monitor_new(const char *address, sd_event *event, const char *const *units,
                     qosd_event_handler_t handler, void *userdata, qosd_monitor **ret);
qosd_monitor *qosd_monitor_ref(qosd_monitor *m);
qosd_monitor *qosd_monitor_unref(qosd_monitor *m);

const char *qosd_event_get_unit(qosd_event *e);
const char *qosd_event_get_name(qosd_event *e);         /* of the threshold */
const char *qosd_event_get_metric(qosd_event *e);
qosd_state qosd_event_get_state(qosd_event *e);
bool qosd_event_is_initial(qosd_event *e);              /* it is so, and did not just become so */
uint64_t qosd_event_get_seq(qosd_event *e);             /* 0: initial */
/* -ENODATA: not known. */
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
