/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The map of a unit mapped into this process, read by the code of the daemon. */

#include <sys/mman.h>

#include "connection.h"
#include "util.h"
#include "window.h"

/* Interval of checks whether qosd is still running, as it has to mark the map as retired: rare enough not to
 * matter, and frequent enough for windows of a second. */
#define REFRESH_NSEC (100 * NSEC_PER_MSEC)

struct qosd_view {
        unsigned n_ref;
        qosd *connection;
        const struct qos_unit_map *map;
        uint64_t since;
        unsigned minimum_samples;
        unsigned measured;              /* bitmask of enum qos_distribution */
        uint64_t refreshed_at;          /* CLOCK_MONOTONIC ns of the last check */
        bool gone;
        qosd_distribution distribution;
        bool valid;                     /* the last qosd_view_read() has succeeded */
        WindowReading reading;
};

_Static_assert((int) QOSD_LATENCY == QOS_LATENCY && (int) QOSD_FIRST_BYTE == QOS_FIRST_BYTE &&
               (int) QOSD_RECEIVE == QOS_RECEIVE &&
               (int) QOSD_QUEUE == QOS_QUEUE && (int) QOSD_SERVICE == QOS_SERVICE &&
               (int) QOSD_ANSWER == QOS_ANSWER &&
               (int) _QOSD_DISTRIBUTION_MAX == QOS_DISTRIBUTIONS, "they have the same numbers");

static const char *const distribution_names[QOS_DISTRIBUTIONS] = {
        [QOS_LATENCY]    = "requests.server.latency",
        [QOS_FIRST_BYTE] = "requests.server.firstByte",
        [QOS_RECEIVE]    = "requests.server.receive",
        [QOS_QUEUE]      = "requests.server.queue",
        [QOS_SERVICE]    = "requests.server.service",
        [QOS_ANSWER]     = "requests.server.answer",
};

static void view_done(qosd_view *v) {
        if (v->map)
                (void) munmap((void*) v->map, sizeof(struct qos_unit_map));
        qosd_unref(v->connection);
}

DEFINE_REF_UNREF(qosd_view, view_done)

static int reply_get(sd_json_variant *reply, const char *key, uint64_t *ret) {
        sd_json_variant *v = sd_json_variant_by_key(reply, key);

        if (!sd_json_variant_is_unsigned(v))
                return -EBADMSG;
        *ret = sd_json_variant_unsigned(v);
        return 0;
}

int qosd_view_open(qosd *q, const char *unit, qosd_view **ret) {
        _cleanup_(qosd_view_unrefp) qosd_view *v = NULL;
        sd_json_variant *parameters = NULL, *reply, *measured;
        uint64_t index, layout, minimum_samples;
        _cleanup_close_ int fd = -EBADF;
        void *map;
        int r;

        if (!q || !unit || !ret)
                return -EINVAL;
        v = new0(qosd_view, 1);
        if (!v)
                return -ENOMEM;
        v->n_ref = 1;

        r = sd_json_buildo(&parameters, SD_JSON_BUILD_PAIR_STRING("unit", unit));
        if (r >= 0)
                r = connection_call(q, INTERFACE ".GetView", parameters, &reply);
        if (r >= 0)
                r = reply_get(reply, "map", &index);
        if (r < 0)
                return r;
        r = fd = sd_varlink_take_fd(q->link, index);
        if (r >= 0)
                r = reply_get(reply, "layout", &layout);
        if (r >= 0)
                r = reply_get(reply, "since", &v->since);
        if (r >= 0)
                r = reply_get(reply, "minimumSamples", &minimum_samples);
        if (r < 0)
                return r;
        if (layout != QOS_LAYOUT) {
                (void) snprintf(q->error, sizeof(q->error),
                                "qosd has another version of the map's layout than this libqosd");
                return -EPROTO;
        }
        v->minimum_samples = minimum_samples;

        measured = sd_json_variant_by_key(reply, "measured");
        for (size_t i = 0; sd_json_variant_is_array(measured) && i < sd_json_variant_elements(measured);
             i++) {
                sd_json_variant *name = sd_json_variant_by_index(measured, i);

                for (enum qos_distribution d = 0; d < QOS_DISTRIBUTIONS; d++)
                        if (sd_json_variant_is_string(name) &&
                            streq(sd_json_variant_string(name), distribution_names[d]))
                                v->measured |= 1U << d;
        }

        map = mmap(NULL, sizeof(struct qos_unit_map), PROT_READ, MAP_SHARED, fd, 0);
        if (map == MAP_FAILED)
                return -errno;
        v->map = map;
        v->connection = qosd_ref(q);
        v->refreshed_at = now_nsec(CLOCK_MONOTONIC);
        *ret = TAKE_PTR(v);
        return 0;
}

int qosd_view_read(qosd_view *v, qosd_distribution d, uint64_t window) {
        uint64_t now = now_nsec(CLOCK_MONOTONIC);
        WindowSource source;
        int r;

        if (!v || (int) d < 0 || d >= _QOSD_DISTRIBUTION_MAX || !window_is_valid(window))
                return -EINVAL;

        v->valid = false;
        if (now >= v->refreshed_at + REFRESH_NSEC) {
                v->refreshed_at = now;
                v->gone = v->gone || !connection_is_up(v->connection);
        }
        if (v->gone)
                return -ENOTCONN;
        if (!(v->measured & 1U << d))
                return -ENODATA;

        source = (WindowSource) { .map = v->map, .since = v->since };
        r = window_read_distribution(&source, now, window, (enum qos_distribution) d, &v->reading);
        if (r < 0)
                return r;

        /* Checked afterwards, as data is valid if it was read before this was set */
        if (__atomic_load_n(&v->map->retired, __ATOMIC_ACQUIRE))
                return -ESTALE;
        if (window_reading_is_overlapping(&v->reading))
                return -ENODATA;
        v->distribution = d;
        v->valid = true;
        return 0;
}

uint64_t qosd_view_get_count(qosd_view *v) {
        return v->valid ? window_get_count(&v->reading, (enum qos_distribution) v->distribution) : 0;
}

uint64_t qosd_view_get_covered(qosd_view *v) {
        return v->valid ? v->reading.covered : 0;
}

static int view_get(qosd_view *v, size_t offset, uint64_t *ret) {
        Distribution distribution;
        uint64_t value;

        if (!v->valid)
                return -ENODATA;
        window_get_distribution(&v->reading, (enum qos_distribution) v->distribution, v->minimum_samples,
                                &distribution);
        value = *(const uint64_t*) ((const char*) &distribution + offset);
        if (value == ABSENT)
                return -ENODATA;
        *ret = value;
        return 0;
}

int qosd_view_get_mean(qosd_view *v, uint64_t *ret) {
        return view_get(v, offsetof(Distribution, mean), ret);
}

int qosd_view_get_max(qosd_view *v, uint64_t *ret) {
        return view_get(v, offsetof(Distribution, max), ret);
}

int qosd_view_get_quantile(qosd_view *v, double q, uint64_t *ret) {
        uint64_t value, samples;

        if (!(q >= 0 && q <= 1))
                return -EINVAL;
        if (!v->valid)
                return -ENODATA;
        value = window_get_quantile(&v->reading, (enum qos_distribution) v->distribution, q,
                                    v->minimum_samples, 0, &samples);
        if (value == ABSENT)
                return -ENODATA;
        *ret = value;
        return 0;
}

int qosd_view_get_bucket(qosd_view *v, size_t i, uint64_t *ret_lower, uint64_t *ret_upper,
                         uint64_t *ret_count) {
        enum qos_distribution d = (enum qos_distribution) v->distribution;

        if (!v->valid || i >= QOS_DISTRIBUTION_BINS(d))
                return 0;
        if (ret_lower || ret_upper) {
                uint64_t lower, upper;

                window_get_bounds(d, i, &lower, &upper);
                if (ret_lower)
                        *ret_lower = lower;
                if (ret_upper)
                        *ret_upper = upper;
        }
        if (ret_count)
                *ret_count = v->reading.cells[QOS_DISTRIBUTION_FIRST_COUNTER(d) + i];
        return 1;
}
