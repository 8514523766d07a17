/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The typed errors of the outside. One code, three faces: varlink "org.qosd.QoS.NoSuchUnit", D-Bus
 * "org.qosd1.Error.NoSuchUnit", and a sentence for people. */

#include "util.h"

typedef enum QosErrorCode {
        QOS_ERROR_NONE,
        QOS_ERROR_NO_SUCH_UNIT,         /* argument: the name as the client wrote it */
        QOS_ERROR_INVALID_UNIT_NAME,    /* argument: the name */
        QOS_ERROR_NOT_ATTACHED,         /* argument: unit */
        QOS_ERROR_NO_CONTROL_GROUP,     /* argument: unit; a target, device, timer..., or an empty shell of
                                         * other units */
        QOS_ERROR_NO_SUCH_PROBE,        /* argument: probe */
        QOS_ERROR_PROBE_UNAVAILABLE,    /* argument: probe; detail: why */
        QOS_ERROR_PROBE_NOT_PERMITTED,  /* argument: probe; the caller owns the control group, and may
                                         * nothing else */
        QOS_ERROR_TOO_MANY_UNITS,       /* argument: the limit, decimal */
        QOS_ERROR_TOO_MANY_LEASES,      /* argument: the limit, decimal */
        QOS_ERROR_NO_SUCH_METRIC,       /* argument: metric */
        QOS_ERROR_NO_HISTORY,           /* argument: metric */
        QOS_ERROR_NOT_MARKED,           /* argument: unit */
        QOS_ERROR_TOO_MANY_MARKS,       /* argument: the limit, decimal */
        QOS_ERROR_TOO_MANY_DIAGNOSES,   /* argument: the limit, decimal */
        QOS_ERROR_TOO_MANY_STREAMS,     /* argument: the limit, decimal */
        QOS_ERROR_INVALID_EXCLUDE,      /* argument: what was to be left out, as the client wrote it */
        QOS_ERROR_TOO_MANY_EXCLUDES,    /* argument: the limit, decimal */
        QOS_ERROR_INVALID_THRESHOLD,    /* argument: the threshold, or the condition, as the client wrote
                                         * it */
        QOS_ERROR_NO_SUCH_THRESHOLD,    /* argument: its name */
        QOS_ERROR_THRESHOLD_EXISTS,     /* argument: its name; by somebody else */
        QOS_ERROR_TOO_MANY_THRESHOLDS,  /* argument: the limit, decimal */
        QOS_ERROR_VIEW_UNAVAILABLE,     /* argument: unit; detail: why its map is given to nobody */
        QOS_ERROR_TOO_MANY_VIEWS,       /* argument: the limit, decimal */
        QOS_ERROR_DUPLICATE_UNIT,       /* argument: unit */
        QOS_ERROR_SERVICE_MANAGER_FAILED,   /* argument: unit; the service manager did not answer; detail:
                                             * what it said */
        _QOS_ERROR_MAX,
} QosErrorCode;

typedef struct QosError {
        QosErrorCode code;
        char *argument;
        char *message;          /* a whole sentence without the final stop, names the input and what was
                                 * expected */
} QosError;

#define QOS_ERROR_INIT (QosError) {}

void qos_error_done(QosError *e);
#define _cleanup_qos_error_ _cleanup_(qos_error_done)

/* Fills e (if not NULL) and returns the negative errno that goes with the code, so that
 * "return qos_error_set(e, QOS_ERROR_NO_SUCH_UNIT, name, "...", ...)" works. */
int qos_error_set(QosError *e, QosErrorCode code, const char *argument, const char *format, ...) _printf_(4,
                5);

const char* qos_error_name(QosErrorCode code);  /* "NoSuchUnit" */
const char* qos_error_field(QosErrorCode code); /* the name of argument in varlink's error parameters:
                                                 * "unit", "probe", "limit", "metric" */
