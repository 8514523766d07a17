/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <stdarg.h>

#include "error.h"

static const struct {
        const char *name;
        const char *field;
        int error;
} error_table[_QOS_ERROR_MAX] = {
        [QOS_ERROR_NO_SUCH_UNIT]           = { "NoSuchUnit",           "unit",      -ENOENT       },
        [QOS_ERROR_INVALID_UNIT_NAME]      = { "InvalidUnitName",      "unit",      -EINVAL       },
        [QOS_ERROR_NOT_ATTACHED]           = { "NotAttached",          "unit",      -ENXIO        },
        [QOS_ERROR_NO_CONTROL_GROUP]       = { "NoControlGroup",       "unit",      -EOPNOTSUPP   },
        [QOS_ERROR_NO_SUCH_PROBE]          = { "NoSuchProbe",          "probe",     -EINVAL       },
        [QOS_ERROR_PROBE_UNAVAILABLE]      = { "ProbeUnavailable",     "probe",     -EOPNOTSUPP   },
        [QOS_ERROR_PROBE_NOT_PERMITTED]    = { "ProbeNotPermitted",    "probe",     -EACCES       },
        [QOS_ERROR_TOO_MANY_UNITS]         = { "TooManyUnits",         "limit",     -ENOSPC       },
        [QOS_ERROR_TOO_MANY_LEASES]        = { "TooManyLeases",        "limit",     -EUSERS       },
        [QOS_ERROR_NO_SUCH_METRIC]         = { "NoSuchMetric",         "metric",    -ENOENT       },
        [QOS_ERROR_NO_HISTORY]             = { "NoHistory",            "metric",    -EOPNOTSUPP   },
        [QOS_ERROR_NOT_MARKED]             = { "NotMarked",            "unit",      -ENXIO        },
        [QOS_ERROR_TOO_MANY_MARKS]         = { "TooManyMarks",         "limit",     -EUSERS       },
        [QOS_ERROR_TOO_MANY_DIAGNOSES]     = { "TooManyDiagnoses",     "limit",     -EUSERS       },
        [QOS_ERROR_TOO_MANY_STREAMS]       = { "TooManyStreams",       "limit",     -EUSERS       },
        [QOS_ERROR_INVALID_EXCLUDE]        = { "InvalidExclude",       "exclude",   -EINVAL       },
        [QOS_ERROR_TOO_MANY_EXCLUDES]      = { "TooManyExcludes",      "limit",     -E2BIG        },
        [QOS_ERROR_INVALID_THRESHOLD]      = { "InvalidThreshold",     "threshold", -EINVAL       },
        [QOS_ERROR_NO_SUCH_THRESHOLD]      = { "NoSuchThreshold",      "threshold", -ENOENT       },
        [QOS_ERROR_THRESHOLD_EXISTS]       = { "ThresholdExists",      "threshold", -EEXIST       },
        [QOS_ERROR_TOO_MANY_THRESHOLDS]    = { "TooManyThresholds",    "limit",     -EUSERS       },
        [QOS_ERROR_VIEW_UNAVAILABLE]       = { "ViewUnavailable",      "unit",      -EOPNOTSUPP   },
        [QOS_ERROR_TOO_MANY_VIEWS]         = { "TooManyViews",         "limit",     -EUSERS       },
        [QOS_ERROR_DUPLICATE_UNIT]         = { "DuplicateUnit",        "unit",      -EINVAL       },
        [QOS_ERROR_SERVICE_MANAGER_FAILED] = { "ServiceManagerFailed", "unit",      -EHOSTUNREACH },
};

const char* qos_error_name(QosErrorCode code) {
        assert(code > QOS_ERROR_NONE && code < _QOS_ERROR_MAX);
        return error_table[code].name;
}

const char* qos_error_field(QosErrorCode code) {
        assert(code > QOS_ERROR_NONE && code < _QOS_ERROR_MAX);
        return error_table[code].field;
}

void qos_error_done(QosError *e) {
        free(e->argument);
        free(e->message);
        *e = QOS_ERROR_INIT;
}

int qos_error_set(QosError *e, QosErrorCode code, const char *argument, const char *format, ...) {
        _cleanup_free_ char *a = NULL, *m = NULL;
        va_list ap;
        int r;

        assert(code > QOS_ERROR_NONE && code < _QOS_ERROR_MAX);

        if (!e)
                return error_table[code].error;

        a = strdup(argument);
        if (!a)
                return -ENOMEM;

        va_start(ap, format);
        r = vasprintf(&m, format, ap);
        va_end(ap);
        if (r < 0) {
                m = NULL;
                return -ENOMEM;
        }

        qos_error_done(e);
        *e = (QosError) {
                .code = code,
                .argument = TAKE_PTR(a),
                .message = TAKE_PTR(m),
        };
        return error_table[code].error;
}
