/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <inttypes.h>

#include "format.h"
#include "value.h"

/* Limit of nesting; snapshots have up to 5 levels. */
#define DEPTH_MAX 16U

sd_json_variant* value_find(sd_json_variant *v, const char *path) {
        sd_json_variant *w;

        if (!sd_json_variant_is_object(v))
                return NULL;

        w = sd_json_variant_by_key(v, path);
        if (w)
                return w;

        for (const char *dot = strchr(path, '.'); dot; dot = strchr(dot + 1, '.')) {
                _cleanup_free_ char *key = strndup(path, (size_t) (dot - path));

                w = key ? sd_json_variant_by_key(v, key) : NULL;
                w = w ? value_find(w, dot + 1) : NULL;
                if (w)
                        return w;
        }

        return NULL;
}

const char* value_string(sd_json_variant *v, const char *path) {
        v = value_find(v, path);
        return v && sd_json_variant_is_string(v) ? sd_json_variant_string(v) : NULL;
}

bool value_unsigned(sd_json_variant *v, const char *path, uint64_t *ret) {
        v = value_find(v, path);
        if (!v || !sd_json_variant_is_unsigned(v))
                return false;

        *ret = sd_json_variant_unsigned(v);
        return true;
}

bool value_time(sd_json_variant *v, const char *path, uint64_t *ret) {
        uint64_t usec;

        if (!value_unsigned(v, path, &usec) || usec > UINT64_MAX / NSEC_PER_USEC)
                return false;

        *ret = usec * NSEC_PER_USEC;
        return true;
}

uint64_t value_since(sd_json_variant *before, sd_json_variant *v, const char *path) {
        uint64_t a = 0, b = 0;

        (void) value_unsigned(v, path, &b);
        (void) value_unsigned(before, path, &a);
        return b > a ? b - a : 0;
}

bool value_real(sd_json_variant *v, const char *path, double *ret) {
        v = value_find(v, path);
        if (!v || !sd_json_variant_is_number(v))
                return false;

        *ret = sd_json_variant_real(v);
        return true;
}

bool value_boolean(sd_json_variant *v, const char *path) {
        v = value_find(v, path);
        return v && sd_json_variant_is_boolean(v) && sd_json_variant_boolean(v);
}

static int walk(sd_json_variant *v, const char *path, unsigned depth,
                int (*each)(const char *path, sd_json_variant *value, void *userdata), void *userdata) {

        if (depth > DEPTH_MAX)
                return -ELOOP;
        if (!sd_json_variant_is_object(v))
                return each(path, v, userdata);

        /* Keys and values alternate */
        for (size_t i = 0; i + 1 < sd_json_variant_elements(v); i += 2) {
                const char *key = sd_json_variant_string(sd_json_variant_by_index(v, i));
                _cleanup_free_ char *p = NULL;
                int r;

                if (asprintf(&p, "%s%s%s", path, *path ? "." : "", key) < 0) {
                        p = NULL;
                        return -ENOMEM;
                }
                r = walk(sd_json_variant_by_index(v, i + 1), p, depth + 1, each, userdata);
                if (r < 0)
                        return r;
        }

        return 0;
}

int value_walk(sd_json_variant *v, int (*each)(const char *path, sd_json_variant *value, void *userdata),
               void *userdata) {
        return walk(v, "", 0, each, userdata);
}

bool value_contains(sd_json_variant *array, const char *s) {
        for (size_t i = 0; array && i < sd_json_variant_elements(array); i++)
                if (streq_ptr(sd_json_variant_string(sd_json_variant_by_index(array, i)), s))
                        return true;
        return false;
}

char* value_to_text(sd_json_variant *v) {
        char buf[FORMAT_MAX], *s = NULL;

        if (sd_json_variant_is_string(v))
                return strdup(sd_json_variant_string(v));
        if (sd_json_variant_is_unsigned(v))
                return asprintf(&s, "%" PRIu64, sd_json_variant_unsigned(v)) < 0 ? NULL : s;
        /* sd-json would print 17 digits and an exponent */
        if (sd_json_variant_is_number(v) && !sd_json_variant_is_integer(v))
                return strdup(format_real(buf, sd_json_variant_real(v)));
        return sd_json_variant_format(v, 0, &s) < 0 ? NULL : s;
}
