/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Builds a JSON object, as a variant, or as the text that sd_json_variant_format() would return, which takes
 * a tenth of the time.
 *
 * Errors are returned at the end; later additions have no effect. Keys are not copied, and have to be plain
 * ASCII without quotation marks and backslashes. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <systemd/sd-json.h>

/* Limit of nested objects and arrays, including the outermost one. The deepest metric has six. */
#define JSON_WRITER_DEPTH_MAX 10U

typedef struct JsonLevel {
        const char *key;
        size_t key_length;
        bool array;
        bool some;                      /* has an element */
        size_t start;                   /* length of the text before it */
        sd_json_variant **variants;     /* keys and values of an object */
        size_t n, allocated;
} JsonLevel;

typedef struct JsonWriter {
        bool text;
        int error;
        JsonLevel levels[JSON_WRITER_DEPTH_MAX];
        unsigned depth;
        char *data;
        size_t size, allocated;
} JsonWriter;

void json_writer_begin(JsonWriter *w, bool text);
void json_writer_done(JsonWriter *w);
#define _cleanup_json_writer_ _cleanup_(json_writer_done)

/* key: NULL in an array */
void json_writer_open_object(JsonWriter *w, const char *key, size_t key_length);
void json_writer_open_array(JsonWriter *w, const char *key);
void json_writer_close(JsonWriter *w);
/* Closes the object or array, and removes it if it is empty. */
void json_writer_close_some(JsonWriter *w);

void json_writer_add_unsigned(JsonWriter *w, const char *key, uint64_t value);
void json_writer_add_integer(JsonWriter *w, const char *key, int64_t value);
void json_writer_add_real(JsonWriter *w, const char *key, double value);
void json_writer_add_boolean(JsonWriter *w, const char *key, bool value);
/* Fails with -EINVAL if the value is not UTF-8. */
void json_writer_add_string(JsonWriter *w, const char *key, const char *value);
void json_writer_add_variant(JsonWriter *w, const char *key, sd_json_variant *value);

/* Closes the outermost object and returns it, or the first error. */
int json_writer_finish_variant(JsonWriter *w, sd_json_variant **ret);
int json_writer_finish_text(JsonWriter *w, char **ret);
