/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Builds one JSON object, as a variant, or as the text that sd_json_variant_format() would make of that: the
 * text takes a tenth of the time.
 *
 * Errors are kept until the end: what is added after one has no effect. Keys are not copied, and are plain
 * ASCII without quotation marks and backslashes. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <systemd/sd-json.h>

/* Objects and arrays in each other, the outermost one included. The deepest metric has six. */
#define JSON_WRITER_DEPTH_MAX 10U

typedef struct JsonLevel {
        const char *key;
        size_t key_length;
        bool array;
        bool some;                      /* it has an element */
        size_t start;                   /* of the text: what was there before it */
        sd_json_variant **variants;     /* of an object: keys and values */
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
/* As if it had never been opened if nothing is in it. */
void json_writer_close_some(JsonWriter *w);

void json_writer_add_unsigned(JsonWriter *w, const char *key, uint64_t value);
void json_writer_add_integer(JsonWriter *w, const char *key, int64_t value);
void json_writer_add_real(JsonWriter *w, const char *key, double value);
void json_writer_add_boolean(JsonWriter *w, const char *key, bool value);
/* -EINVAL: it is not UTF-8 */
void json_writer_add_string(JsonWriter *w, const char *key, const char *value);
void json_writer_add_variant(JsonWriter *w, const char *key, sd_json_variant *value);

/* The whole object. */
int json_writer_finish_variant(JsonWriter *w, sd_json_variant **ret);
int json_writer_finish_text(JsonWriter *w, char **ret);
