/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <sys/socket.h>

#include "connect.h"
#include "connection.h"
#include "util.h"

/* Default timeout of calls, which never wait for interactive authentication. */
#define TIMEOUT_USEC (30 * USEC_PER_SEC)

int error_from_reply(const char *id, sd_json_variant *parameters, char buffer[static ERROR_MAX]) {
        static const struct {
                const char *id;
                int error;
        } table[] = {
                { INTERFACE ".NoSuchUnit",                        -ENOENT      },
                { INTERFACE ".InvalidUnitName",                   -EINVAL      },
                { INTERFACE ".NotAttached",                       -ENXIO       },
                { INTERFACE ".NotMarked",                         -ENXIO       },
                { INTERFACE ".NoControlGroup",                    -EOPNOTSUPP  },
                { INTERFACE ".NoSuchProbe",                       -EINVAL      },
                { INTERFACE ".ProbeUnavailable",                  -EOPNOTSUPP  },
                { INTERFACE ".ProbeNotPermitted",                 -EACCES      },
                { INTERFACE ".ViewUnavailable",                   -EOPNOTSUPP  },
                { INTERFACE ".TooManyUnits",                      -EUSERS      },
                { INTERFACE ".TooManyLeases",                     -EUSERS      },
                { INTERFACE ".TooManyMarks",                      -EUSERS      },
                { INTERFACE ".TooManyViews",                      -EUSERS      },
                { INTERFACE ".TooManyThresholds",                 -EUSERS      },
                { INTERFACE ".InvalidThreshold",                  -EINVAL      },
                { INTERFACE ".NoSuchThreshold",                   -ENXIO       },
                { INTERFACE ".ThresholdExists",                   -EEXIST      },
                { INTERFACE ".DuplicateUnit",                     -EINVAL      },
                { INTERFACE ".ServiceManagerFailed",              -EHOSTUNREACH},
                { SD_VARLINK_ERROR_PERMISSION_DENIED,             -EACCES       },
                { SD_VARLINK_ERROR_INTERACTIVE_AUTHENTICATION_REQUIRED, -EACCES },
                { SD_VARLINK_ERROR_INVALID_PARAMETER,             -EINVAL       },
                { SD_VARLINK_ERROR_METHOD_NOT_FOUND,              -EOPNOTSUPP   },
                { SD_VARLINK_ERROR_DISCONNECTED,                  -ECONNRESET   },
                { SD_VARLINK_ERROR_TIMEOUT,                       -ETIMEDOUT    },
        };
        sd_json_variant *message = sd_json_variant_by_key(parameters, "message"),
                *number = sd_json_variant_by_key(parameters, "errno"),
                *parameter = sd_json_variant_by_key(parameters, "parameter");

        if (sd_json_variant_is_string(message))
                (void) snprintf(buffer, ERROR_MAX, "%s", sd_json_variant_string(message));
        else if (sd_json_variant_is_string(parameter))
                (void) snprintf(buffer, ERROR_MAX, "%s: %s", id, sd_json_variant_string(parameter));
        else
                (void) snprintf(buffer, ERROR_MAX, "%s", id);

        for (size_t i = 0; i < ELEMENTSOF(table); i++)
                if (streq(id, table[i].id))
                        return table[i].error;
        if (sd_json_variant_is_integer(number) && sd_json_variant_integer(number) > 0 &&
            sd_json_variant_integer(number) < 4096)
                return -(int) sd_json_variant_integer(number);
        return -EBADMSG;
}

/* ---- connection --------------------------------------------------------------------------------------- */

int connection_open(const char *address, uint64_t timeout_usec, sd_varlink **ret) {
        _cleanup_close_ int fd = -EBADF;
        int r;

        if (address && *address != '/')
                return sd_varlink_connect_address(ret, address);

        if (!address && geteuid() == 0)
                fd = unix_connect(ADDRESS_ROOT, timeout_usec);
        if (fd < 0)
                fd = unix_connect(address ?: ADDRESS, timeout_usec);
        if (fd < 0)
                return fd == -EAGAIN ? -ETIMEDOUT : fd;
        r = sd_varlink_connect_fd(ret, fd);
        if (r >= 0)
                (void) TAKE_FD(fd);
        return r;
}

int qosd_connect(const char *address, qosd **ret) {
        _cleanup_(qosd_unrefp) qosd *q = NULL;
        int r;

        if (!ret)
                return -EINVAL;
        q = new0(qosd, 1);
        if (!q)
                return -ENOMEM;
        q->n_ref = 1;

        r = connection_open(address, CONNECT_USEC, &q->link);
        if (r >= 0)
                r = sd_varlink_set_relative_timeout(q->link, TIMEOUT_USEC);
        /* Maps for views are passed as descriptors */
        if (r >= 0)
                r = sd_varlink_set_allow_fd_passing_input(q->link, true);
        if (r < 0)
                return r;

        *ret = TAKE_PTR(q);
        return 0;
}

static void connection_done(qosd *q) {
        sd_varlink_close_unref(q->link);
}

DEFINE_REF_UNREF(qosd, connection_done)

int qosd_set_timeout(qosd *q, uint64_t nsec) {
        /* At least a microsecond, the resolution of sd-varlink */
        return q && nsec > 0 ?
               sd_varlink_set_relative_timeout(q->link, MAX(nsec / NSEC_PER_USEC, UINT64_C(1))) : -EINVAL;
}

const char *qosd_get_error(qosd *q) {
        return q->error;
}

bool connection_is_up(qosd *q) {
        ssize_t n;
        char c;
        int fd;

        fd = sd_varlink_get_fd(q->link);
        if (fd < 0)
                return false;
        n = recv(fd, &c, 1, MSG_PEEK|MSG_DONTWAIT);
        return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

int connection_call(qosd *q, const char *method, sd_json_variant *parameters, sd_json_variant **ret) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *p = parameters;
        sd_json_variant *reply = NULL;
        const char *id = NULL;
        int r;

        q->error[0] = 0;
        r = sd_varlink_call(q->link, method, p, &reply, &id);
        if (r == -ETIME) {
                /* A late reply would be mistaken for the reply to the next call */
                (void) sd_varlink_close(q->link);
                r = -ETIMEDOUT;
        }
        if (r < 0) {
                (void) snprintf(q->error, sizeof(q->error), "%s: %s", method, strerror(-r));
                return r;
        }
        if (id)
                return error_from_reply(id, reply, q->error);
        if (ret)
                *ret = reply;
        return 0;
}

static int strv_to_json(const char *const *l, size_t n, sd_json_variant **ret) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *array = NULL;
        int r;

        r = sd_json_variant_new_array(&array, NULL, 0);
        for (size_t i = 0; i < n && r >= 0; i++)
                r = l[i] ? sd_json_variant_append_arrayb(&array, SD_JSON_BUILD_STRING(l[i])) : -EINVAL;
        if (r >= 0)
                *ret = TAKE_PTR(array);
        return r;
}

int qosd_attach(qosd *q, const char *unit, const char *const *probes) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *array = NULL;
        sd_json_variant *v = NULL;
        size_t n = 0;
        int r;

        if (!q || !unit)
                return -EINVAL;
        while (probes && probes[n])
                n++;
        r = strv_to_json(probes, n, &array);
        if (r >= 0)
                r = sd_json_buildo(&v,
                                   SD_JSON_BUILD_PAIR_STRING("unit", unit),
                                   SD_JSON_BUILD_PAIR_CONDITION(n > 0, "probes",
                                                                SD_JSON_BUILD_VARIANT(array)),
                                   SD_JSON_BUILD_PAIR_BOOLEAN("lease", true));
        return r < 0 ? r : connection_call(q, INTERFACE ".Attach", v, NULL);
}

int qosd_detach(qosd *q, const char *unit) {
        sd_json_variant *v = NULL;
        int r;

        if (!q || !unit)
                return -EINVAL;
        r = sd_json_buildo(&v, SD_JSON_BUILD_PAIR_STRING("unit", unit),
                           SD_JSON_BUILD_PAIR_BOOLEAN("lease", true));
        return r < 0 ? r : connection_call(q, INTERFACE ".Detach", v, NULL);
}

static int change_threshold(qosd *q, const char *method, const char *unit, const char *key,
                            const char *value) {
        sd_json_variant *v = NULL;
        int r;

        if (!q || !unit || !value)
                return -EINVAL;
        r = sd_json_buildo(&v,
                           SD_JSON_BUILD_PAIR_STRING("unit", unit),
                           SD_JSON_BUILD_PAIR_STRING(key, value),
                           SD_JSON_BUILD_PAIR_BOOLEAN("lease", true));
        return r < 0 ? r : connection_call(q, method, v, NULL);
}

int qosd_set_threshold(qosd *q, const char *unit, const char *threshold) {
        return change_threshold(q, INTERFACE ".SetThreshold", unit, "threshold", threshold);
}

int qosd_clear_threshold(qosd *q, const char *unit, const char *name) {
        return change_threshold(q, INTERFACE ".ClearThreshold", unit, "name", name);
}

/* ---- snapshots ---------------------------------------------------------------------------------------- */

struct qosd_snapshot {
        unsigned n_ref;
        sd_json_variant *v;
};

static void snapshot_done(qosd_snapshot *s) {
        sd_json_variant_unref(s->v);
}

DEFINE_REF_UNREF(qosd_snapshot, snapshot_done)

static int snapshot_new(sd_json_variant *v, qosd_snapshot **ret) {
        qosd_snapshot *s;

        if (!sd_json_variant_is_object(v))
                return -EBADMSG;
        s = new0(qosd_snapshot, 1);
        if (!s)
                return -ENOMEM;
        s->n_ref = 1;
        s->v = sd_json_variant_ref(v);
        *ret = s;
        return 0;
}

int qosd_read(qosd *q, const char *const *units, size_t n, uint64_t window, qosd_snapshot **ret) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *array = NULL;
        sd_json_variant *v = NULL, *reply, *snapshots;
        int r;

        if (!q || (n > 0 && (!units || !ret)))
                return -EINVAL;
        r = strv_to_json(units, n, &array);
        if (r >= 0)
                r = sd_json_buildo(&v,
                                   SD_JSON_BUILD_PAIR_VARIANT("units", array),
                                   SD_JSON_BUILD_PAIR_CONDITION(window != QOSD_WINDOW_DEFAULT, "window",
                                                                SD_JSON_BUILD_UNSIGNED(window)));
        if (r >= 0)
                r = connection_call(q, INTERFACE ".GetMany", v, &reply);
        if (r < 0)
                return r;

        snapshots = sd_json_variant_by_key(reply, "snapshots");
        if (!sd_json_variant_is_array(snapshots) || sd_json_variant_elements(snapshots) != n)
                return -EBADMSG;
        for (size_t i = 0; i < n; i++) {
                r = snapshot_new(sd_json_variant_by_index(snapshots, i), ret + i);
                if (r < 0) {
                        while (i-- > 0)
                                ret[i] = qosd_snapshot_unref(ret[i]);
                        return r;
                }
        }
        return 0;
}

int qosd_mark(qosd *q, const char *unit) {
        sd_json_variant *v = NULL;
        int r;

        if (!q || !unit)
                return -EINVAL;
        r = sd_json_buildo(&v, SD_JSON_BUILD_PAIR_STRING("unit", unit));
        return r < 0 ? r : connection_call(q, INTERFACE ".Mark", v, NULL);
}

int qosd_since(qosd *q, const char *unit, qosd_snapshot **ret) {
        sd_json_variant *v = NULL, *reply;
        int r;

        if (!q || !unit || !ret)
                return -EINVAL;
        r = sd_json_buildo(&v, SD_JSON_BUILD_PAIR_STRING("unit", unit),
                           SD_JSON_BUILD_PAIR_BOOLEAN("sinceMark", true));
        if (r >= 0)
                r = connection_call(q, INTERFACE ".Get", v, &reply);
        return r < 0 ? r : snapshot_new(reply, ret);
}

static uint64_t snapshot_get_unsigned(qosd_snapshot *s, const char *key) {
        sd_json_variant *v = sd_json_variant_by_key(s->v, key);

        return sd_json_variant_is_unsigned(v) ? sd_json_variant_unsigned(v) : 0;
}

const char *qosd_snapshot_get_unit(qosd_snapshot *s) {
        sd_json_variant *v = sd_json_variant_by_key(s->v, "unit");

        return sd_json_variant_is_string(v) ? sd_json_variant_string(v) : NULL;
}

uint64_t qosd_snapshot_get_seq(qosd_snapshot *s) {
        return snapshot_get_unsigned(s, "seq");
}

uint64_t qosd_snapshot_get_timestamp(qosd_snapshot *s) {
        return snapshot_get_unsigned(s, "timestamp") * NSEC_PER_USEC;
}

uint64_t qosd_snapshot_get_covered(qosd_snapshot *s) {
        return snapshot_get_unsigned(s, "covered");
}

/* Finds a metric by its name, which is its path in the snapshot. */
static int snapshot_find(qosd_snapshot *s, const char *metric, sd_json_variant **ret) {
        _cleanup_free_ char *path = NULL;
        char *rest, *part;
        sd_json_variant *v;

        if (!s || !metric)
                return -EINVAL;
        v = s->v;
        rest = path = strdup(metric);
        if (!path)
                return -ENOMEM;
        while (v && (part = strsep(&rest, ".")))
                v = sd_json_variant_is_object(v) ? sd_json_variant_by_key(v, part) : NULL;
        if (!v)
                return -ENODATA;
        *ret = v;
        return 0;
}

int qosd_snapshot_get_integer(qosd_snapshot *s, const char *metric, uint64_t *ret) {
        sd_json_variant *v;
        int r;

        r = snapshot_find(s, metric, &v);
        if (r < 0)
                return r;
        if (!sd_json_variant_is_unsigned(v))
                return -EDOM;
        *ret = sd_json_variant_unsigned(v);
        return 0;
}

int qosd_snapshot_get_real(qosd_snapshot *s, const char *metric, double *ret) {
        sd_json_variant *v;
        int r;

        r = snapshot_find(s, metric, &v);
        if (r < 0)
                return r;
        if (!sd_json_variant_is_number(v))
                return -EDOM;
        *ret = sd_json_variant_real(v);
        return 0;
}

int qosd_snapshot_get_string(qosd_snapshot *s, const char *metric, const char **ret) {
        sd_json_variant *v;
        int r;

        r = snapshot_find(s, metric, &v);
        if (r < 0)
                return r;
        if (!sd_json_variant_is_string(v))
                return -EDOM;
        *ret = sd_json_variant_string(v);
        return 0;
}
