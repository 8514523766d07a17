/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Common functions of dbusgen. All of them exit with a message on invalid input. Memory is not freed, as the
 * process is short-lived. */

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

/* Prints an error and exits. n: invalid element, or NULL for the file that was loaded last. */
void __attribute__((noreturn, format(printf, 2, 3))) fail(const xmlNode *n, const char *format, ...);

/* Return an attribute. attribute() fails if it is missing or empty, attribute_or_null() returns NULL if it
 * is missing. */
const char* attribute(xmlNode *n, const char *name);
const char* attribute_or_null(xmlNode *n, const char *name);

/* Return the value of an annotation, in the same way. */
const char* annotation(xmlNode *n, const char *name);
const char* annotation_or_null(xmlNode *n, const char *name);

/* Returns the description, which must not be empty. */
const char* description(xmlNode *n);

/* Parses a file, and returns its root element. */
xmlNode* document_load(const char *path);

/* Parses a file with one interface, and validates that all members have descriptions. */
xmlNode* interface_load(const char *path);

/* Converts "server.protocols.tcp" to the name of a property, "ServerProtocolsTCP", with acronyms in capitals
 * as in the interfaces of systemd. n: see fail(). */
void format_property_name(const xmlNode *n, const char *metric, char ret[static NAME_SIZE]);

/* Converts "InvocationID" to "invocation_id", valid until the next call. n: see fail(). */
const char* snake_case(const xmlNode *n, const char *name);

/* Returns the C type of the field for the D-Bus type of a property. */
const char* field_type(xmlNode *n);

/* Prints a C string literal. */
void print_string(const char *s);

/* Prints FIELD_OFFSET(), an offset that fails to compile if the types of field and property differ. */
void print_field_offset(void);

int print_interface(const char *types_path, const char *path);
void print_varlink(const char *types_path, char **paths, int n_paths);
void print_records(const char *types_path, char **paths, int n_paths);
