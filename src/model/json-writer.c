/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <float.h>
#include <math.h>
#include <stdio.h>

#include "json-writer.h"
#include "util.h"

static void writer_fail(JsonWriter *w, int error) {
        if (w->error >= 0)
                w->error = error;
}

static void level_clear(JsonLevel *l) {
        for (size_t i = 0; i < l->n; i++)
                sd_json_variant_unref(l->variants[i]);
        l->n = 0;
}

/* ---- variants ----------------------------------------------------------------------------------------- */

/* Consumes value. */
static void level_append(JsonWriter *w, JsonLevel *l, sd_json_variant *value) {
        if (l->n >= l->allocated) {
                size_t n = MAX(2 * l->allocated, (size_t) 64);
                sd_json_variant **variants = reallocarray(l->variants, n, sizeof(sd_json_variant*));

                if (!variants) {
                        sd_json_variant_unref(value);
                        writer_fail(w, -ENOMEM);
                        return;
                }
                l->variants = variants;
                l->allocated = n;
        }
        l->variants[l->n++] = value;
}

/* Consumes value. */
static void writer_append(JsonWriter *w, const char *key, size_t key_length, sd_json_variant *value) {
        JsonLevel *l = w->levels + w->depth;
        sd_json_variant *k;
        int r;

        l->some = true;
        if (!l->array) {
                r = sd_json_variant_new_stringn(&k, key, key_length);
                if (r < 0) {
                        sd_json_variant_unref(value);
                        writer_fail(w, r);
                        return;
                }
                level_append(w, l, k);
        }
        level_append(w, l, value);
}

static void writer_append_new(JsonWriter *w, const char *key, int r, sd_json_variant *value) {
        if (r < 0)
                writer_fail(w, r);
        else
                writer_append(w, key, key ? strlen(key) : 0, value);
}

/* ---- text --------------------------------------------------------------------------------------------- */

/* Extends the text by n characters, and returns these. NULL: failed. */
static char* text_extend(JsonWriter *w, size_t n) {
        if (w->error < 0)
                return NULL;
        if (w->size + n > w->allocated) {
                size_t needed = MAX(w->size + n, (size_t) 8192), allocated = MAX(2 * w->allocated, needed);
                char *data = realloc(w->data, allocated);

                if (!data) {
                        writer_fail(w, -ENOMEM);
                        return NULL;
                }
                w->data = data;
                w->allocated = allocated;
        }
        w->size += n;
        return w->data + w->size - n;
}

static void text_add(JsonWriter *w, const char *s, size_t n) {
        char *p = text_extend(w, n);

        if (p)
                memcpy(p, s, n);
}

/* Allocates once per value, as a listing has some hundred values per unit. */
static void text_add_value(JsonWriter *w, const char *key, size_t key_length, const char *value, size_t n) {
        JsonLevel *l = w->levels + w->depth;
        char *p;

        p = text_extend(w, l->some + (l->array ? 0 : key_length + strlen("\"\":")) + n);
        if (!p)
                return;
        if (l->some)
                *p++ = ',';
        l->some = true;
        if (!l->array) {
                *p++ = '"';
                /* Only members of arrays have no key.
                 * NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker) */
                p = mempcpy(p, key, key_length);
                *p++ = '"';
                *p++ = ':';
        }
        memcpy(p, value, n);
}

static void text_add_member(JsonWriter *w, const char *key, const char *value, size_t n) {
        text_add_value(w, key, key ? strlen(key) : 0, value, n);
}

/* Whether the string needs no escapes in JSON. */
static bool string_is_plain(const char *s) {
        for (; *s; s++)
                if (*s < ' ' || *s > '~' || *s == '"' || *s == '\\')
                        return false;
        return true;
}

/* ---- either ------------------------------------------------------------------------------------------- */

void json_writer_begin(JsonWriter *w, bool text) {
        *w = (JsonWriter) { .text = text };
        if (text)
                text_add(w, "{", 1);
}

void json_writer_done(JsonWriter *w) {
        for (unsigned i = 0; i < JSON_WRITER_DEPTH_MAX; i++) {
                level_clear(w->levels + i);
                free(w->levels[i].variants);
        }
        free(w->data);
}

static void writer_open(JsonWriter *w, const char *key, size_t key_length, bool array) {
        size_t start = w->size;
        JsonLevel *l;

        assert(w->depth + 1 < JSON_WRITER_DEPTH_MAX);

        if (w->text) {
                bool some = w->levels[w->depth].some;

                text_add_value(w, key, key_length, array ? "[" : "{", 1);
                w->levels[w->depth].some = some; /* set when closed, as it may be empty */
        }
        l = w->levels + ++w->depth;
        l->key = key;
        l->key_length = key_length;
        l->array = array;
        l->some = false;
        l->start = start;
}

void json_writer_open_object(JsonWriter *w, const char *key, size_t key_length) {
        writer_open(w, key, key_length, false);
}

void json_writer_open_array(JsonWriter *w, const char *key) {
        writer_open(w, key, strlen(key), true);
}

void json_writer_close(JsonWriter *w) {
        JsonLevel *l = w->levels + w->depth;
        sd_json_variant *v;
        int r;

        assert(w->depth > 0);

        w->depth--;
        if (w->text) {
                text_add(w, l->array ? "]" : "}", 1);
                w->levels[w->depth].some = true;
                return;
        }
        r = l->array ? sd_json_variant_new_array(&v, l->variants, l->n) :
            sd_json_variant_new_object(&v, l->variants, l->n);
        level_clear(l);
        if (r < 0)
                writer_fail(w, r);
        else
                writer_append(w, l->key, l->key_length, v);
}

void json_writer_close_some(JsonWriter *w) {
        JsonLevel *l = w->levels + w->depth;

        if (l->some) {
                json_writer_close(w);
                return;
        }
        assert(w->depth > 0);
        w->depth--;
        w->size = MIN(w->size, l->start);
}

void json_writer_add_unsigned(JsonWriter *w, const char *key, uint64_t value) {
        char digits[20];
        size_t i = sizeof(digits);
        sd_json_variant *v = NULL;
        int r;

        if (!w->text) {
                r = sd_json_variant_new_unsigned(&v, value);
                writer_append_new(w, key, r, v);
                return;
        }
        do
                digits[--i] = (char) ('0' + value % 10);
        while ((value /= 10) > 0);
        text_add_member(w, key, digits + i, sizeof(digits) - i);
}

void json_writer_add_integer(JsonWriter *w, const char *key, int64_t value) {
        sd_json_variant *v = NULL;
        char digits[24];
        int r;

        if (value >= 0) {
                json_writer_add_unsigned(w, key, (uint64_t) value);
                return;
        }
        if (!w->text) {
                r = sd_json_variant_new_integer(&v, value);
                writer_append_new(w, key, r, v);
                return;
        }
        r = snprintf(digits, sizeof(digits), "%" PRIi64, value);
        text_add_member(w, key, digits, (size_t) r);
}

void json_writer_add_real(JsonWriter *w, const char *key, double value) {
        static char zero[64];
        static int zero_length;
        sd_json_variant *v = NULL;
        char buffer[64];
        int r;

        if (!w->text) {
                r = sd_json_variant_new_real(&v, value);
                writer_append_new(w, key, r, v);
                return;
        }
        if (!isfinite(value)) { /* as the library does */
                text_add_member(w, key, "null", strlen("null"));
                return;
        }
        if (fpclassify(value) == FP_ZERO) { /* fast path: most values */
                if (zero_length == 0)
                        zero_length = snprintf(zero, sizeof(zero), "%.*e", DECIMAL_DIG, 0.0);
                text_add_member(w, key, zero, (size_t) zero_length);
                return;
        }
        r = snprintf(buffer, sizeof(buffer), "%.*e", DECIMAL_DIG, value);
        text_add_member(w, key, buffer, (size_t) r);
}

void json_writer_add_boolean(JsonWriter *w, const char *key, bool value) {
        sd_json_variant *v = NULL;
        int r;

        if (w->text)
                text_add_member(w, key, value ? "true" : "false", value ? strlen("true") : strlen("false"));
        else {
                r = sd_json_variant_new_boolean(&v, value);
                writer_append_new(w, key, r, v);
        }
}

void json_writer_add_string(JsonWriter *w, const char *key, const char *value) {
        sd_json_variant *v = NULL;
        int r;

        if (w->text && string_is_plain(value)) {
                text_add_member(w, key, "\"", 1);
                text_add(w, value, strlen(value));
                text_add(w, "\"", 1);
                return;
        }
        r = sd_json_variant_new_string(&v, value);
        if (r < 0)
                writer_fail(w, r);
        else
                json_writer_add_variant(w, key, v);
        sd_json_variant_unref(v);
}

void json_writer_add_variant(JsonWriter *w, const char *key, sd_json_variant *value) {
        _cleanup_free_ char *text = NULL;
        int r;

        if (!w->text) {
                writer_append_new(w, key, 0, sd_json_variant_ref(value));
                return;
        }
        r = sd_json_variant_format(value, 0, &text);
        if (r < 0)
                writer_fail(w, r);
        else
                text_add_member(w, key, text, strlen(text));
}

int json_writer_finish_variant(JsonWriter *w, sd_json_variant **ret) {
        assert(!w->text);
        assert(w->depth == 0);

        return w->error < 0 ? w->error : sd_json_variant_new_object(ret, w->levels[0].variants,
                                                                    w->levels[0].n);
}

int json_writer_finish_text(JsonWriter *w, char **ret) {
        assert(w->text);
        assert(w->depth == 0);

        text_add(w, "}", 2); /* with the NUL */
        if (w->error < 0)
                return w->error;
        *ret = TAKE_PTR(w->data);
        return 0;
}
