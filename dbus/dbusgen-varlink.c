/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Generates the varlink types of a snapshot, and tables for writing its records as JSON. Names, order and
 * types of the fields are those of the metrics, which metric-types.xml groups into objects. */

#include <stdio.h>
#include <stdlib.h>

#include "dbusgen.h"

typedef struct Metric {
        const char *name;
        xmlNode *property;
} Metric;

/* Limit of metrics, several times their number */
#define METRICS_MAX 1024

static Metric metrics[METRICS_MAX];
static size_t n_metrics;

/* The elements of metric-types.xml */
static xmlNode *types;

static void metrics_load(char **paths, int n_paths) {
        for (int i = 0; i < n_paths; i++) {
                xmlNode *interface = interface_load(paths[i]);

                for (xmlNode *n = xmlFirstElementChild(interface); n; n = xmlNextElementSibling(n)) {
                        const char *name;

                        name = node_is(n, "property") ? annotation_or_null(n, ANNOTATION_METRIC) : NULL;
                        if (!name)
                                continue;
                        if (n_metrics >= METRICS_MAX)
                                fail(n, "More than %d metrics", METRICS_MAX);
                        metrics[n_metrics++] = (Metric) { .name = name, .property = n };
                }
        }
}

/* Returns the next element after n (NULL: the first one) with this name and, unless key is NULL, this value
 * of the attribute key. NULL: none. */
static xmlNode* find_next(xmlNode *n, const char *element, const char *key, const char *value) {
        for (n = n ? xmlNextElementSibling(n) : xmlFirstElementChild(types); n; n = xmlNextElementSibling(n))
                if (node_is(n, element) && (!key || streq(attribute(n, key), value)))
                        return n;

        return NULL;
}

#define FOREACH_ELEMENT(n, element) \
        for (xmlNode *n = find_next(NULL, element, NULL, NULL); n; n = find_next(n, element, NULL, NULL))

static xmlNode* find_object(xmlNode *by, const char *path) {
        xmlNode *object;

        object = find_next(NULL, "object", "path", path);
        if (!object)
                fail(by, "No <object path=\"%s\"> in %s", path, (const char*) types->doc->URL);

        return object;
}

static Metric* find_metric(xmlNode *by, const char *name) {
        for (Metric *m = metrics; m < metrics + n_metrics; m++)
                if (streq(m->name, name))
                        return m;

        fail(by, "There is no metric '%s'", name);
}

/* Returns the description of a member, of the type itself or of one that it extends. NULL: none. */
static xmlNode* find_member(const char *type, const char *key) {
        while (type) {
                xmlNode *t = find_next(NULL, "type", "name", type);

                if (!t)
                        return NULL;
                for (xmlNode *m = xmlFirstElementChild(t); m; m = xmlNextElementSibling(m))
                        if (streq(attribute(m, "name"), key))
                                return m;
                type = attribute_or_null(t, "extends");
        }

        return NULL;
}

static bool type_is_shared(const char *type) {
        return find_next(find_next(NULL, "object", "type", type), "object", "type", type);
}

/* ---- printing ----------------------------------------------------------------------------------------- */

static void print_comment(const char *s) {
        fputs(",\n                SD_VARLINK_FIELD_COMMENT(", stdout);
        print_string(s);
        fputs("),\n                ", stdout);
}

static void print_field(const char *key, const char *type, const char *flags) {
        printf("SD_VARLINK_DEFINE_FIELD(%s, SD_VARLINK_%s, %s)", key, type, flags);
}

static void print_field_by_type(const char *key, const char *type, const char *flags) {
        printf("SD_VARLINK_DEFINE_FIELD_BY_TYPE(%s, %s, %s)", key, type, flags);
}

/* Prints the description with the unit, which names of fields do not have. The unit is inserted before a
 * semicolon, which is followed by text about absent values. */
static void print_metric_comment(xmlNode *property) {
        const char *doc = description(property), *unit = annotation(property, ANNOTATION_UNIT), *suffix = "";
        char *text;

        if (streq(unit, "ns"))
                suffix = ", in nanoseconds";
        else if (streq(unit, "bytes") && !strstr(doc, "ytes"))
                suffix = ", in bytes";

        if (asprintf(&text, "%.*s%s%s", (int) strcspn(doc, ";"), doc, suffix, doc + strcspn(doc, ";")) < 0)
                fail(property, "Out of memory");
        print_comment(text);
}

static void print_metric_field(const char *key, xmlNode *property, bool required) {
        const char *type = attribute(property, "type"), *flags = required ? "0" : "SD_VARLINK_NULLABLE";

        if (streq(type, "t"))
                print_field(key, "INT", flags);
        else if (streq(type, "d"))
                print_field(key, "FLOAT", flags);
        else if (streq(type, "s"))
                print_field_by_type(key, "Quality", flags);
        else
                fail(property, "A metric of type '%s' has no type in varlink", type);
}

static void print_leaf(const char *type, const char *key, xmlNode *property) {
        xmlNode *member = find_member(type, key);
        const char *required = member ? attribute_or_null(member, "required") : NULL;

        if (member)
                print_comment(attribute(member, "doc"));
        else if (type_is_shared(type))
                fail(find_next(NULL, "object", "type", type),
                     "The type '%s' has several objects, and no description of '%s'", type, key);
        else
                print_metric_comment(property);

        print_metric_field(key, property, required && streq(required, "true"));
}

static void print_object_field(const char *key, xmlNode *object, const char *flags) {
        print_comment(attribute(object, "doc"));
        print_field_by_type(key, attribute(object, "type"), flags);
}

/* ---- objects ------------------------------------------------------------------------------------------ */

/* Calls leaf() for each metric that is a member of the object, and on_object() for each object that is one,
 * unless they are NULL. Returns keys and types of all members, which are the same for objects of one type.
 * Metrics of an object are contiguous. */
static char* object_walk(xmlNode *object,
                         void (*leaf)(const char *type, const char *key, xmlNode *property),
                         void (*on_object)(const char *key, xmlNode *object)) {
        const char *path = attribute(object, "path"), *type = attribute(object, "type");
        size_t length = strlen(path), size = 0;
        char *signature = NULL;
        FILE *f;

        f = open_memstream(&signature, &size);
        if (!f)
                fail(object, "Out of memory");

        for (size_t i = 0; i < n_metrics; i++) {
                const char *key = metrics[i].name + length + 1, *dot;
                char inner[NAME_SIZE];
                xmlNode *o;

                if (strncmp(metrics[i].name, path, length) != 0 || metrics[i].name[length] != '.')
                        continue;

                dot = strchr(key, '.');
                if (!dot) {
                        fprintf(f, " %s:%s", key, attribute(metrics[i].property, "type"));
                        if (leaf)
                                leaf(type, key, metrics[i].property);
                        continue;
                }

                /* Once for each object */
                snprintf(inner, sizeof(inner), "%.*s", (int) (dot - metrics[i].name), metrics[i].name);
                if (i > 0 && strncmp(metrics[i - 1].name, inner, strlen(inner)) == 0 &&
                    metrics[i - 1].name[strlen(inner)] == '.')
                        continue;
                o = find_object(metrics[i].property, inner);
                fprintf(f, " %s:%s", strrchr(inner, '.') + 1, attribute(o, "type"));
                if (on_object)
                        on_object(strrchr(inner, '.') + 1, o);
        }

        if (fclose(f) != 0)
                fail(object, "Out of memory");
        if (!*signature)
                fail(object, "There are no metrics in '%s'", path);

        return signature;
}

static void print_inner_object(const char *key, xmlNode *object) {
        print_object_field(key, object, "SD_VARLINK_NULLABLE");
}

static void print_type_once(xmlNode *object);
static void print_record_once(xmlNode *by, const char *name);

static void print_inner_type(const char *key, xmlNode *object) {
        (void) key;
        print_type_once(object);
}

/* Whether an array of records is a member of the object. Arrays follow the metrics. */
static bool array_is_in(xmlNode *array, const char *object_path) {
        const char *path = attribute(array, "path");
        size_t length = strlen(object_path);

        return strncmp(path, object_path, length) == 0 && path[length] == '.' &&
                !strchr(path + length + 1, '.');
}

/* Prints a type after those that it refers to. */
static void print_type_once(xmlNode *object) {
        const char *type = attribute(object, "type");
        xmlNode *first = find_next(NULL, "object", "type", type);

        if (first->_private)
                return;
        first->_private = first;

        object_walk(first, NULL, print_inner_type);
        FOREACH_ELEMENT(a, "array")
                if (array_is_in(a, attribute(first, "path")))
                        print_record_once(a, attribute(a, "type"));

        printf("SD_VARLINK_DEFINE_STRUCT_TYPE(\n                %s", type);
        object_walk(first, print_leaf, print_inner_object);
        FOREACH_ELEMENT(a, "array")
                if (array_is_in(a, attribute(first, "path")))
                        print_object_field(strrchr(attribute(a, "path"), '.') + 1, a,
                                           "SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE");
        puts(");\n");
}

static void verify_objects(void) {
        FOREACH_ELEMENT(o, "object") {
                const char *type = attribute(o, "type");
                xmlNode *first = find_next(NULL, "object", "type", type);
                char *a = object_walk(first, NULL, NULL), *b = object_walk(o, NULL, NULL);

                if (!streq(a, b))
                        fail(o, "'%s' and '%s' are both of the type '%s', with%s and%s",
                             attribute(first, "path"), attribute(o, "path"), type, a, b);
        }
}

/* ---- records and enumerations ------------------------------------------------------------------------- */

/* Whether org.qosd1.Field of a metric is a member of a field. */
static bool field_is_in(const Metric *m, const char *field) {
        const char *of = annotation(m->property, ANNOTATION_FIELD);
        size_t length = strlen(field);

        return strncmp(of, field, length) == 0 && of[length] == '.';
}

static void print_struct_fields(xmlNode *n, const char *field) {
        bool some = false;

        for (Metric *m = metrics; m < metrics + n_metrics; m++) {
                if (!field_is_in(m, field))
                        continue;
                some = true;
                print_metric_comment(m->property);
                print_metric_field(strrchr(m->name, '.') + 1, m->property, /* required= */ false);
        }
        if (!some)
                fail(n, "There are no metrics in '%s'", field);
}

static void print_record_field(xmlNode *n) {
        const char *name, *doc = attribute_or_null(n, "doc"), *key;

        if (node_is(n, "metrics")) {
                print_struct_fields(n, attribute(n, "field"));
                return;
        }

        name = attribute(n, "name");
        if (node_is(n, "field")) {
                const char *type = attribute(n, "type");

                print_comment(attribute(n, "doc"));
                if (!streq(type, "s") && !streq(type, "b") && !streq(type, "d") && !streq(type, "t"))
                        fail(n, "Expected one of the types b, d, s and t, not '%s'", type);
                print_field(name, *type == 's' ? "STRING" : *type == 'b' ? "BOOL" :
                                  *type == 't' ? "INT" : "FLOAT", "SD_VARLINK_NULLABLE");
                return;
        }

        key = strrchr(name, '.');
        if (!key)
                fail(n, "'%s' is no name of a metric", name);
        key++;

        if (node_is(n, "metric")) {
                xmlNode *property = find_metric(n, name)->property;

                if (doc)
                        print_comment(doc);
                else
                        print_metric_comment(property);
                print_metric_field(key, property, /* required= */ false);
        } else if (node_is(n, "object")) {
                xmlNode *object = find_object(n, name);

                print_comment(doc ?: attribute(object, "doc"));
                print_field_by_type(key, attribute(object, "type"), "SD_VARLINK_NULLABLE");
        } else
                fail(n, "<%s> in a <record>, expected <field>, <metric>, <metrics> or <object>",
                     (const char*) n->name);
}

static void print_record_once(xmlNode *by, const char *name) {
        xmlNode *record = find_next(NULL, "record", "name", name);

        if (!record)
                fail(by, "There is no <record name=\"%s\">", name);
        if (record->_private)
                return;
        record->_private = record;

        for (xmlNode *n = xmlFirstElementChild(record); n; n = xmlNextElementSibling(n))
                if (node_is(n, "object"))
                        print_type_once(find_object(n, attribute(n, "name")));

        printf("SD_VARLINK_DEFINE_STRUCT_TYPE(\n                %s", name);
        for (xmlNode *n = xmlFirstElementChild(record); n; n = xmlNextElementSibling(n))
                print_record_field(n);
        puts(");\n");
}

static void print_value(const char *type, const char *key, xmlNode *property) {
        xmlNode *member = find_member(type, key);

        print_comment(member ? attribute(member, "doc") : description(property));
        printf("SD_VARLINK_DEFINE_ENUM_VALUE(%s)", key);
}

void print_varlink(const char *types_path, char **paths, int n_paths) {
        metrics_load(paths, n_paths);
        types = document_load(types_path);
        verify_objects();

        puts("/* Generated by dbusgen from metric-types.xml and the interfaces that show a reading. */\n"
             "#pragma once\n");

        FOREACH_ELEMENT(o, "object")
                print_type_once(o);
        FOREACH_ELEMENT(e, "enum") {
                printf("SD_VARLINK_DEFINE_ENUM_TYPE(\n                %s", attribute(e, "name"));
                object_walk(find_object(e, attribute(e, "of")), print_value, NULL);
                puts(");\n");
        }
}

/* ---- tables of records -------------------------------------------------------------------------------- */

/* field: member of the struct of the record; NULL: the one of the metric */
static void print_record_metric(xmlNode *record, xmlNode *n, const Metric *m, const char *field) {
        const char *of = attribute(record, "of"), *type = attribute(m->property, "type");
        size_t length = strlen(of);

        if (strncmp(m->name, of, length) != 0 || m->name[length] != '.')
                fail(n, "The metric '%s' is not in '%s'", m->name, of);
        if (!field) {
                field = annotation(m->property, ANNOTATION_FIELD);
                if (strncmp(field, of, length) != 0 || field[length] != '.')
                        fail(n, "The field '%s' is not in '%s'", field, of);
                field += length + 1;
        }
        printf("        { .name = \"%s\", .offset = FIELD_OFFSET(%s, %s, %s), .type = %s },\n",
               m->name + length + 1, attribute(record, "struct"), field, field_type(m->property),
               streq(type, "t") ? "METRIC_INTEGER" : streq(type, "d") ? "METRIC_REAL" : "METRIC_QUALITY");
}

static bool word_is_in(const char *words, const char *word, size_t length) {
        for (const char *p = words; p && *p; p += strspn(p, " ")) {
                size_t n = strcspn(p, " ");

                if (n == length && strncmp(p, word, n) == 0)
                        return true;
                p += n;
        }

        return false;
}

/* Prints the metrics of an object, or of those of its members that the record has. */
static void print_record_object(xmlNode *record, xmlNode *n) {
        const char *path = attribute(n, "name"), *field = attribute_or_null(n, "field"),
                   *members = attribute_or_null(n, "members");
        size_t length = strlen(path);
        bool some = false;

        for (const Metric *m = metrics; m < metrics + n_metrics; m++) {
                const char *key = m->name + length + 1;
                char inner[NAME_SIZE];

                if (strncmp(m->name, path, length) != 0 || m->name[length] != '.' ||
                    (members && !word_is_in(members, key, strcspn(key, "."))))
                        continue;
                some = true;
                if (field)
                        snprintf(inner, sizeof(inner), "%s.%s", field,
                                 strrchr(annotation(m->property, ANNOTATION_FIELD), '.') + 1);
                print_record_metric(record, n, m, field ? inner : NULL);
        }
        if (!some)
                fail(n, "There are no metrics in '%s'", path);
}

static void print_record_table(xmlNode *record) {
        const char *name = attribute(record, "name");

        printf("static const Metric %s_metrics[] = {\n", snake_case(record, name));
        for (xmlNode *n = xmlFirstElementChild(record); n; n = xmlNextElementSibling(n))
                if (node_is(n, "metric"))
                        print_record_metric(record, n, find_metric(n, attribute(n, "name")),
                                            attribute_or_null(n, "field"));
                else if (node_is(n, "object"))
                        print_record_object(record, n);
                else if (node_is(n, "metrics"))
                        for (const Metric *m = metrics; m < metrics + n_metrics; m++)
                                if (field_is_in(m, attribute(n, "field")))
                                        print_record_metric(record, n, m, NULL);
        puts("};\n");
}

void print_records(const char *types_path, char **paths, int n_paths) {
        metrics_load(paths, n_paths);
        types = document_load(types_path);

        puts("/* Generated by dbusgen from metric-types.xml and the interfaces that show a reading. */\n"
             "#pragma once\n");
        print_field_offset();

        FOREACH_ELEMENT(r, "record")
                print_record_table(r);
}
