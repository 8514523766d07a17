/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What the parts of dbusgen share. All of it ends the process with a message on invalid input. Nothing is
 * freed: the process is short-lived. */

#include <stdbool.h>
#include <string.h>

#include <libxml/parser.h>
#include <libxml/tree.h>

#define ANNOTATION_DOC "org.gtk.GDBus.DocString"
#define ANNOTATION_EMITS "org.freedesktop.DBus.Property.EmitsChangedSignal"
#define ANNOTATION_PRIVILEGED "org.freedesktop.systemd1.Privileged"
#define ANNOTATION_STRUCT "org.qosd1.Struct"
#define ANNOTATION_PROBE "org.qosd1.Probe"
#define ANNOTATION_METRIC "org.qosd1.Metric"
#define ANNOTATION_FIELD "org.qosd1.Field"
#define ANNOTATION_UNIT "org.qosd1.Unit"
#define ANNOTATION_KIND "org.qosd1.Kind"
#define ANNOTATION_ESSENTIAL "org.qosd1.Essential"

#define NAME_SIZE 256

static inline bool streq(const char *a, const char *b) {
        return strcmp(a, b) == 0;
}

static inline bool node_is(const xmlNode *n, const char *name) {
        return streq((const char*) n->name, name);
}

/* n: the element at fault, or NULL for the file that was loaded last */
void __attribute__((noreturn, format(printf, 2, 3))) fail(const xmlNode *n, const char *format, ...);

/* An attribute, which must not be empty, or NULL if there is none. */
const char* attribute(xmlNode *n, const char *name);
const char* attribute_or_null(xmlNode *n, const char *name);

/* The value of an annotation, or NULL if there is none. */
const char* annotation(xmlNode *n, const char *name);
const char* annotation_or_null(xmlNode *n, const char *name);

/* The description, which must not be empty. */
const char* description(xmlNode *n);

/* Root element of a file. */
xmlNode* document_load(const char *path);

/* The one interface of a file, of valid members with descriptions. */
xmlNode* interface_load(const char *path);

/* "server.protocols.tcp" as the name of a property, "ServerProtocolsTCP": acronyms are in capitals, as on
 * the bus of the service manager. n: see fail(). */
void format_property_name(const xmlNode *n, const char *metric, char ret[static NAME_SIZE]);

/* "InvocationID" as "invocation_id", valid until the next call. n: see fail(). */
const char* snake_case(const xmlNode *n, const char *name);

/* C type of the field for a property of this D-Bus type. */
const char* field_type(xmlNode *n);

/* Prints a string literal of C. */
void print_string(const char *s);

/* Prints FIELD_OFFSET(), an offset that fails to compile if the types of field and property differ. */
void print_field_offset(void);

int print_interface(const char *types_path, const char *path);
void print_varlink(const char *types_path, char **paths, int n_paths);
void print_records(const char *types_path, char **paths, int n_paths);
