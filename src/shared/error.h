/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Errors of the public interfaces. Each code is a varlink error, such as "org.qosd.QoS.NoSuchUnit", and a
 * D-Bus error, such as "org.qosd1.Error.NoSuchUnit". */

#include "util.h"

typedef enum QosErrorCode {
        QOS_ERROR_NONE,
        QOS_ERROR_NO_SUCH_UNIT,         /* argument: the name as passed by the client */
        QOS_ERROR_INVALID_UNIT_NAME,    /* argument: the name */
        QOS_ERROR_NOT_ATTACHED,         /* argument: unit */
        QOS_ERROR_NO_CONTROL_GROUP,     /* argument: unit; it has no control group of its own (target,
                                         * device, timer...), or one without processes of its own */
        QOS_ERROR_NO_SUCH_PROBE,        /* argument: probe */
        QOS_ERROR_PROBE_UNAVAILABLE,    /* argument: probe; detail: the reason */
        QOS_ERROR_PROBE_NOT_PERMITTED,  /* argument: probe; the caller is the owner of the control group,
                                         * without further authorization */
        QOS_ERROR_TOO_MANY_UNITS,       /* argument: the limit, decimal */
        QOS_ERROR_TOO_MANY_LEASES,      /* argument: the limit, decimal */
        QOS_ERROR_NO_SUCH_METRIC,       /* argument: metric */
        QOS_ERROR_NO_HISTORY,           /* argument: metric */
        QOS_ERROR_NOT_MARKED,           /* argument: unit */
        QOS_ERROR_TOO_MANY_MARKS,       /* argument: the limit, decimal */
        QOS_ERROR_TOO_MANY_DIAGNOSES,   /* argument: the limit, decimal */
        QOS_ERROR_TOO_MANY_STREAMS,     /* argument: the limit, decimal */
        QOS_ERROR_INVALID_EXCLUDE,      /* argument: the exclusion as passed by the client */
        QOS_ERROR_TOO_MANY_EXCLUDES,    /* argument: the limit, decimal */
        QOS_ERROR_INVALID_THRESHOLD,    /* argument: the threshold, or the condition, as passed by the
                                         * client */
        QOS_ERROR_NO_SUCH_THRESHOLD,    /* argument: name */
        QOS_ERROR_THRESHOLD_EXISTS,     /* argument: name; owned by another user */
        QOS_ERROR_TOO_MANY_THRESHOLDS,  /* argument: the limit, decimal */
        QOS_ERROR_VIEW_UNAVAILABLE,     /* argument: unit; detail: why its map is not exported */
        QOS_ERROR_TOO_MANY_VIEWS,       /* argument: the limit, decimal */
        QOS_ERROR_DUPLICATE_UNIT,       /* argument: unit */
        QOS_ERROR_SERVICE_MANAGER_FAILED,   /* argument: unit; detail: the error of the service manager */
        _QOS_ERROR_MAX,
} QosErrorCode;

typedef struct QosError {
        QosErrorCode code;
        char *argument;
        char *message;          /* sentence without the final full stop that names the input and the
                                 * expectation */
} QosError;

#define QOS_ERROR_INIT (QosError) {}

void qos_error_done(QosError *e);
#define _cleanup_qos_error_ _cleanup_(qos_error_done)

/* Fills in e unless it is NULL. Returns the negative errno of the code, so that callers can return it
 * directly. */
int qos_error_set(QosError *e, QosErrorCode code, const char *argument, const char *format, ...) _printf_(4,
                                                                                                          5);

const char* qos_error_name(QosErrorCode code);  /* "NoSuchUnit" */
const char* qos_error_field(QosErrorCode code); /* name of argument in the parameters of the varlink error:
                                                 * "unit", "probe", "limit", "metric" */
