/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Generates code and documentation from the interfaces (org.qosd1.*.xml):
 *
 *     dbusgen interface TYPES IN   an interface, of a file with elements for distributions and states
 *     dbusgen vtable XML           the sd-bus vtable of the interface
 *     dbusgen metrics XML...       the metric table, for src/model/metric.c
 *     dbusgen varlink TYPES XML... the varlink types of a snapshot, for src/server/varlink-idl-snapshot.c
 *     dbusgen records TYPES XML... the metrics of its records, for src/model/snapshot-json.c
 *     dbusgen man PAGE XML...      a manual page: replaces the line @INTERFACE@ by the members of the
 *                                  interface
 *
 * A missing handler or a field of another type becomes a compile error, a member without description an
 * error here. */

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "dbusgen.h"

static const char *file_name;

void fail(const xmlNode *n, const char *format, ...) {
        va_list ap;

        fprintf(stderr, "%s:%ld: ", n && n->doc->URL ? (const char*) n->doc->URL : file_name,
                n ? xmlGetLineNo((xmlNode*) n) : 1L);
        va_start(ap, format);
        vfprintf(stderr, format, ap);
        va_end(ap);
        fputc('\n', stderr);
        exit(EXIT_FAILURE);
}

const char* attribute_or_null(xmlNode *n, const char *name) {
        return (const char*) xmlGetProp(n, (const xmlChar*) name);
}

const char* attribute(xmlNode *n, const char *name) {
        const char *s;

        s = attribute_or_null(n, name);
        if (!s || !*s)
                fail(n, "<%s> has no %s=", (const char*) n->name, name);

        return s;
}

const char* annotation_or_null(xmlNode *n, const char *name) {
        for (xmlNode *a = xmlFirstElementChild(n); a; a = xmlNextElementSibling(a))
                if (node_is(a, "annotation") && streq(attribute(a, "name"), name)) {
                        const char *s;

                        s = attribute_or_null(a, "value");
                        if (!s)
                                fail(a, "The annotation %s has no value=", name);
                        return s;
                }

        return NULL;
}

const char* annotation(xmlNode *n, const char *name) {
        const char *s;

        s = annotation_or_null(n, name);
        if (!s)
                fail(n, "<%s name=\"%s\"> has no annotation %s", (const char*) n->name, attribute(n, "name"),
                     name);

        return s;
}

const char* description(xmlNode *n) {
        const char *s;

        s = annotation(n, ANNOTATION_DOC);
        if (!*s)
                fail(n, "<%s name=\"%s\"> has an empty description", (const char*) n->name,
                     attribute(n, "name"));

        return s;
}

xmlNode* document_load(const char *path) {
        xmlDoc *doc;

        file_name = path;

        doc = xmlReadFile(path, NULL, XML_PARSE_NONET|XML_PARSE_NOBLANKS);
        if (!doc)
                exit(EXIT_FAILURE); /* libxml2 has printed the reason */

        return xmlDocGetRootElement(doc);
}

xmlNode* interface_load(const char *path) {
        xmlNode *interface = NULL, *root = document_load(path);

        for (xmlNode *n = xmlFirstElementChild(root); n; n = xmlNextElementSibling(n)) {
                if (!node_is(n, "interface") || interface)
                        fail(n, "Expected exactly one <interface> in <node>");
                interface = n;
        }
        if (!interface)
                fail(NULL, "No <interface> in <node>");

        for (xmlNode *n = xmlFirstElementChild(interface); n; n = xmlNextElementSibling(n)) {
                if (node_is(n, "annotation"))
                        continue;
                if (!node_is(n, "method") && !node_is(n, "signal") && !node_is(n, "property"))
                        fail(n, "<%s> is no member of an interface", (const char*) n->name);
                (void) description(n);
                for (xmlNode *o = xmlNextElementSibling(n); o; o = xmlNextElementSibling(o))
                        if (!node_is(o, "annotation") && streq(attribute(o, "name"), attribute(n, "name")))
                                fail(o, "'%s' is there twice", attribute(o, "name"));
        }

        return interface;
}

/* Last component of the interface name, "Requests". */
static const char* interface_word(xmlNode *interface) {
        const char *name = attribute(interface, "name"), *dot;

        dot = strrchr(name, '.');
        if (!dot || !dot[1])
                fail(interface, "'%s' is no name of an interface", name);

        return dot + 1;
}

/* "NUnits" → "n_units", "InvocationID" → "invocation_id" */
const char* snake_case(const xmlNode *n, const char *name) {
        static char buffer[NAME_SIZE];
        size_t k = 0;

        for (const char *p = name; *p; p++) {
                if (!isalnum((unsigned char) *p) || k + 3 > sizeof(buffer))
                        fail(n, "'%s' is no name, or too long", name);
                if (isupper((unsigned char) *p) && p > name &&
                    (!isupper((unsigned char) p[-1]) || islower((unsigned char) p[1])))
                        buffer[k++] = '_';
                buffer[k++] = (char) tolower((unsigned char) *p);
        }
        buffer[k] = 0;

        return buffer;
}

/* ---- vtable ------------------------------------------------------------------------------------------- */

static bool argument_is_in(xmlNode *a) {
        const char *s;

        s = attribute(a, "direction");
        if (!streq(s, "in") && !streq(s, "out"))
                fail(a, "direction=\"%s\" is neither in nor out", s);

        return streq(s, "in");
}

/* direction: 'i' (in), 'o' (out), or 0 for the arguments of a signal. */
static void print_arguments(xmlNode *n, char direction, const char *macro, const char *empty) {
        unsigned k = 0;

        for (xmlNode *a = xmlFirstElementChild(n); a; a = xmlNextElementSibling(a)) {
                if (node_is(a, "annotation"))
                        continue;
                if (!node_is(a, "arg"))
                        fail(a, "<%s> in <%s>", (const char*) a->name, (const char*) n->name);
                (void) description(a);
                if (direction && argument_is_in(a) != (direction == 'i'))
                        continue;
                printf("%s\"%s\", %s", k++ == 0 ? macro : ", ", attribute(a, "type"), attribute(a, "name"));
        }

        fputs(k == 0 ? empty : ")", stdout);
}

static void print_flag(bool *any, const char *flag) {
        printf("%s%s", *any ? "|" : "", flag);
        *any = true;
}

static void print_method(xmlNode *interface, xmlNode *n) {
        const char *name = attribute(n, "name"), *privileged;
        char word[NAME_SIZE];

        snprintf(word, sizeof(word), "%s", snake_case(interface, interface_word(interface)));
        printf("        SD_BUS_METHOD_WITH_ARGS(\"%s\",\n                ", name);
        print_arguments(n, 'i', "SD_BUS_ARGS(", "SD_BUS_NO_ARGS");
        fputs(",\n                ", stdout);
        print_arguments(n, 'o', "SD_BUS_RESULT(", "SD_BUS_NO_RESULT");
        privileged = annotation_or_null(n, ANNOTATION_PRIVILEGED);
        printf(",\n                %s_method_%s, %s),\n", word, snake_case(n, name),
               privileged && streq(privileged, "true") ? "0" : "SD_BUS_VTABLE_UNPRIVILEGED");
}

static void print_property_flags(xmlNode *n) {
        const char *emits;
        bool any = false;

        emits = annotation_or_null(n, ANNOTATION_EMITS);
        if (!emits) /* the annotation of the interface is the default */
                emits = annotation_or_null(n->parent, ANNOTATION_EMITS);
        if (!emits || streq(emits, "true"))
                print_flag(&any, "SD_BUS_VTABLE_PROPERTY_EMITS_CHANGE");
        else if (streq(emits, "const"))
                print_flag(&any, "SD_BUS_VTABLE_PROPERTY_CONST");
        else if (streq(emits, "invalidates"))
                print_flag(&any, "SD_BUS_VTABLE_PROPERTY_EMITS_INVALIDATION");
        else if (!streq(emits, "false"))
                fail(n, "EmitsChangedSignal is \"%s\", expected true, invalidates, const or false", emits);
        if (!any)
                fputc('0', stdout);
}

const char* field_type(xmlNode *n) {
        const char *type = attribute(n, "type");

        if (streq(type, "t"))
                return "uint64_t";
        if (streq(type, "d"))
                return "double";
        if (streq(type, "s"))
                return annotation_or_null(n, ANNOTATION_METRIC) ? "Quality" :
                       annotation_or_null(n, ANNOTATION_STRUCT) ? "const char*" : "char*";

        fail(n,
             "A property of type '%s' cannot show a field: teach field_type(), or take the annotation away",
             type);
}

/* Whether the field is a time in ns, which the property has in us for the precision of JavaScript
 * numbers. */
static bool is_timestamp(xmlNode *n) {
        const char *unit = annotation_or_null(n, ANNOTATION_UNIT);

        return unit && streq(unit, "us");
}

static void print_property(xmlNode *interface, xmlNode *n) {
        const char *name = attribute(n, "name"), *field, *of;
        char word[NAME_SIZE];

        if (!streq(attribute(n, "access"), "read"))
                fail(n, "Only access=\"read\" is done");

        snprintf(word, sizeof(word), "%s", snake_case(interface, interface_word(interface)));
        printf("        SD_BUS_PROPERTY(\"%s\", \"%s\", ", name, attribute(n, "type"));

        field = annotation_or_null(n, ANNOTATION_FIELD);
        if (field) {
                of = annotation_or_null(n, ANNOTATION_STRUCT) ?: annotation(interface, ANNOTATION_STRUCT);
                printf("%s, FIELD_OFFSET(%s, %s%s, %s), ",
                       streq(field_type(n), "Quality") ? "property_get_quality" :
                       is_timestamp(n) ? "property_get_timestamp" : "NULL",
                       of, annotation_or_null(n, ANNOTATION_METRIC) ? "metrics." : "", field, field_type(n));
        } else
                printf("%s_property_get_%s, 0, ", word, snake_case(n, name));

        print_property_flags(n);
        fputs("),\n", stdout);
}

static void print_prototypes(xmlNode *interface) {
        char word[NAME_SIZE];
        bool quality = false;

        snprintf(word, sizeof(word), "%s", snake_case(interface, interface_word(interface)));

        for (xmlNode *n = xmlFirstElementChild(interface); n; n = xmlNextElementSibling(n)) {
                if (node_is(n, "method"))
                        printf("static int %s_method_%s(sd_bus_message *m, void *userdata, sd_bus_error "
                               "*error);\n",
                               word, snake_case(n, attribute(n, "name")));
                if (!node_is(n, "property"))
                        continue;
                if (!annotation_or_null(n, ANNOTATION_FIELD))
                        printf("static int %s_property_get_%s(sd_bus *bus, const char *path, const char "
                               "*interface,\n"
                               "                const char *property, sd_bus_message *reply, void "
                               "*userdata, sd_bus_error *error);\n",
                               word, snake_case(n, attribute(n, "name")));
                else if ((streq(field_type(n), "Quality") && !quality) || is_timestamp(n)) {
                        quality = quality || !is_timestamp(n);
                        printf("static int property_get_%s(sd_bus *bus, const char *path, const char "
                               "*interface,\n"
                               "                const char *property, sd_bus_message *reply, void "
                               "*userdata, sd_bus_error *error);\n",
                               is_timestamp(n) ? "timestamp" : "quality");
                }
        }
}

void print_field_offset(void) {
        puts("#ifndef FIELD_OFFSET\n"
             "#define FIELD_OFFSET(s, field, type) \\\n"
             "        (offsetof(s, field) + 0 * sizeof(char[__builtin_types_compatible_p(__typeof__(((s*) "
             "0)->field), type) ? 1 : -1]))\n"
             "#endif\n");
}

/* Prints a further vtable for properties of another struct than that of the interface, as sd-bus calls the
 * find function for each vtable. */
static void print_vtable_of_properties(xmlNode *interface) {
        bool begun = false;

        for (xmlNode *n = xmlFirstElementChild(interface); n; n = xmlNextElementSibling(n)) {
                if (!node_is(n, "property") || !annotation_or_null(n, ANNOTATION_STRUCT))
                        continue;
                if (!begun)
                        printf("\nstatic const sd_bus_vtable %s_shown_vtable[] = {\n"
                               "        SD_BUS_VTABLE_START(0),\n",
                               snake_case(interface, interface_word(interface)));
                begun = true;
                print_property(interface, n);
        }
        if (begun)
                puts("        SD_BUS_VTABLE_END\n};");
}

static void print_vtable(xmlNode *interface) {
        const char *name = attribute(interface, "name");

        printf("/* Generated from %s.xml by dbusgen. */\n#pragma once\n\n", name);
        print_field_offset();
        print_prototypes(interface);
        printf("\n#define %s_INTERFACE \"%s\"\n\n", interface_word(interface), name);
        printf("static const sd_bus_vtable %s_vtable[] = {\n        SD_BUS_VTABLE_START(0),\n",
               snake_case(interface, interface_word(interface)));

        for (xmlNode *n = xmlFirstElementChild(interface); n; n = xmlNextElementSibling(n))
                if (node_is(n, "method"))
                        print_method(interface, n);
                else if (node_is(n, "signal")) {
                        printf("        SD_BUS_SIGNAL_WITH_ARGS(\"%s\",\n                ",
                               attribute(n, "name"));
                        print_arguments(n, 0, "SD_BUS_ARGS(", "SD_BUS_NO_ARGS");
                        fputs(", 0),\n", stdout);
                } else if (node_is(n, "property") && !annotation_or_null(n, ANNOTATION_STRUCT))
                        print_property(interface, n);

        puts("        SD_BUS_VTABLE_END\n};");
        print_vtable_of_properties(interface);
}

/* ---- metric table ------------------------------------------------------------------------------------- */

void print_string(const char *s) {
        putchar('"');
        for (; *s; s++) {
                if (*s == '"' || *s == '\\')
                        putchar('\\');
                if (*s == '\n')
                        fputs("\\n", stdout);
                else
                        putchar(*s);
        }
        putchar('"');
}

void format_property_name(const xmlNode *n, const char *metric, char ret[static NAME_SIZE]) {
        /* Acronyms in names of metrics */
        static const char *const acronyms[] = {
                "Cpu", "Dns", "Grpc", "Http", "Io", "Oom", "Tcp", "Tls", "Udp",
        };
        bool upper = true;
        size_t k = 0;

        for (const char *p = metric; *p; p++) {
                if (!isalnum((unsigned char) *p) && *p != '.')
                        fail(n, "'%s' is no name of a metric", metric);
                /* Space for the suffix of the unit is needed */
                if (k + 8 > NAME_SIZE)
                        fail(n, "'%s' is too long", metric);
                if (*p != '.')
                        ret[k++] = upper ? (char) toupper((unsigned char) *p) : *p;
                upper = *p == '.';
        }
        ret[k] = 0;

        for (size_t i = 0; i < sizeof(acronyms) / sizeof(acronyms[0]); i++) {
                size_t l = strlen(acronyms[i]);

                for (char *p = ret; (p = strstr(p, acronyms[i])); p += l)
                        for (size_t j = 1; j < l && !islower((unsigned char) p[l]); j++)
                                p[j] = (char) toupper((unsigned char) p[j]);
        }
}

/* Verifies that the name of a property matches its metric: "requests.server.latency.p99" is
 * "ServerLatencyP99NSec" in org.qosd1.Requests. */
static void verify_property_name(xmlNode *interface, xmlNode *n, const char *metric, const char *unit) {
        const char *word = interface_word(interface), *property = attribute(n, "name");
        char expected[NAME_SIZE], prefix[NAME_SIZE];

        snprintf(prefix, sizeof(prefix), "%s.", snake_case(interface, word));
        if (strncmp(metric, prefix, strlen(prefix)) != 0)
                fail(n, "The metric '%s' of %s does not begin with \"%s\"", metric,
                     attribute(interface, "name"), prefix);

        format_property_name(n, metric + strlen(prefix), expected);
        if (streq(unit, "ns"))
                strcat(expected, "NSec");
        else if (streq(unit, "bytes") && !strstr(expected, "Bytes"))
                strcat(expected, "Bytes");

        if (!streq(property, expected))
                fail(n, "The property of the metric '%s' in %s is %s, not %s", metric,
                     *unit ? unit : "words", expected, property);
}

static void print_metric(xmlNode *interface, xmlNode *n, const char *probe) {
        const char *metric, *unit, *kind, *essential, *type = attribute(n, "type");
        static const char *const units[] = { "ns", "bytes", "1/s", "1", "" };
        bool known = false;

        metric = annotation(n, ANNOTATION_METRIC);
        unit = annotation(n, ANNOTATION_UNIT);
        kind = annotation(n, ANNOTATION_KIND);
        essential = annotation_or_null(n, ANNOTATION_ESSENTIAL);

        for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
                known = known || streq(unit, units[i]);
        if (!known)
                fail(n, "The unit \"%s\" is none of ns, bytes, 1/s, 1 and nothing", unit);
        if (!streq(kind, "counter") && !streq(kind, "gauge"))
                fail(n, "The kind \"%s\" is neither counter nor gauge", kind);
        if (streq(kind, "counter") && !streq(type, "t"))
                fail(n, "A counter must have the type 't', not '%s'", type);
        if (essential && !streq(essential, "true"))
                fail(n, "%s is \"%s\", expected \"true\", or no such annotation", ANNOTATION_ESSENTIAL,
                     essential);
        verify_property_name(interface, n, metric, unit);

        printf("        {\n                .name = \"%s\", .property = \"%s\",\n", metric,
               attribute(n, "name"));
        printf("                .interface = \"%s\", .probe = \"%s\",\n", attribute(interface, "name"),
               probe);
        printf("                .offset = FIELD_OFFSET(Metrics, %s, %s),\n", annotation(n, ANNOTATION_FIELD),
               field_type(n));
        printf("                .type = %s, .kind = %s, .unit = \"%s\",\n",
               streq(type, "t") ? "METRIC_INTEGER" : streq(type, "d") ? "METRIC_REAL" : "METRIC_QUALITY",
               streq(kind, "counter") ? "METRIC_COUNTER" : "METRIC_GAUGE", unit);
        if (essential)
                puts("                .essential = true,");
        fputs("                .description = ", stdout);
        print_string(description(n));
        puts(",\n        },");
}

static void print_interface_metrics(xmlNode *interface) {
        const char *probe = annotation(interface, ANNOTATION_PROBE);

        for (xmlNode *n = xmlFirstElementChild(interface); n; n = xmlNextElementSibling(n)) {
                if (!node_is(n, "property"))
                        continue;

                for (xmlNode *o = xmlNextElementSibling(n); o; o = xmlNextElementSibling(o)) {
                        const char *a = annotation_or_null(n, ANNOTATION_METRIC),
                                *b = annotation_or_null(o, ANNOTATION_METRIC);

                        if (a && b && streq(a, b))
                                fail(o, "The metric '%s' is there twice", b);
                        if (streq(annotation(n, ANNOTATION_FIELD), annotation(o, ANNOTATION_FIELD)))
                                fail(o, "The field '%s' is shown twice", annotation(o, ANNOTATION_FIELD));
                }

                if (annotation_or_null(n, ANNOTATION_METRIC))
                        print_metric(interface, n, annotation_or_null(n, ANNOTATION_PROBE) ?: probe);
        }
}

static void print_metrics(char **paths, int n_paths) {
        printf("/* Generated by dbusgen from the interfaces that show a reading. */\n#pragma once\n\n");
        print_field_offset();
        puts("const Metric metric_table[] = {");
        for (int i = 0; i < n_paths; i++)
                print_interface_metrics(interface_load(paths[i]));
        puts("};\n\nconst size_t metric_table_size = sizeof(metric_table) / sizeof(metric_table[0]);");
}

/* ---- manual page -------------------------------------------------------------------------------------- */

static void print_roff(const char *s) {
        /* Escape control characters at the beginning of a line, and hyphens */
        if (*s == '.' || *s == '\'')
                fputs("\\&", stdout);
        for (; *s; s++)
                switch (*s) {
                case '\\':
                        fputs("\\e", stdout);
                        break;
                case '-':
                        fputs("\\-", stdout);
                        break;
                case '"':
                        fputs("\\(dq", stdout);
                        break;
                default:
                        putchar(*s);
                }
}

static void print_man_arguments(xmlNode *n, bool want_in) {
        bool first = true;

        for (xmlNode *a = xmlFirstElementChild(n); a; a = xmlNextElementSibling(a)) {
                if (!node_is(a, "arg") || (node_is(n, "method") && argument_is_in(a) != want_in))
                        continue;
                printf("%s%s\\ \\fI%s\\fR", first ? "" : ", ", attribute(a, "type"), attribute(a, "name"));
                first = false;
        }
}

static void print_man_method(xmlNode *n) {
        printf(".TP\n\\fB%s\\fR(", attribute(n, "name"));
        print_man_arguments(n, true);
        fputs(")", stdout);
        if (node_is(n, "method"))
                for (xmlNode *a = xmlFirstElementChild(n); a; a = xmlNextElementSibling(a))
                        if (node_is(a, "arg") && !argument_is_in(a)) {
                                fputs(" \\(-> ", stdout);
                                print_man_arguments(n, false);
                                break;
                        }
        putchar('\n');
        print_roff(description(n));
        putchar('\n');

        for (xmlNode *a = xmlFirstElementChild(n); a; a = xmlNextElementSibling(a)) {
                if (!node_is(a, "arg"))
                        continue;
                printf(".br\n\\fI%s\\fR: ", attribute(a, "name"));
                print_roff(description(a));
                fputs(".\n", stdout);
        }
}

static void print_man_property(xmlNode *n) {
        const char *metric, *emits;

        printf(".TP\n\\fB%s\\fR (%s", attribute(n, "name"), attribute(n, "type"));
        emits = annotation_or_null(n, ANNOTATION_EMITS);
        if (emits && streq(emits, "const"))
                fputs(", constant", stdout);
        else if (emits && streq(emits, "false"))
                fputs(", no signal", stdout);
        metric = annotation_or_null(n, ANNOTATION_METRIC);
        if (metric)
                printf(", %s", annotation(n, ANNOTATION_KIND));
        fputs(")\n", stdout);
        print_roff(description(n));
        puts(".");
        if (metric) {
                fputs(".br\nMetric: ", stdout);
                print_roff(metric);
                putchar('\n');
        }
}

static void print_man_interface(xmlNode *interface) {
        static const struct {
                const char *element;
                const char *title;
        } kinds[] = {
                { "method",   "Methods"    },
                { "signal",   "Signals"    },
                { "property", "Properties" },
        };

        print_roff(description(interface));
        putchar('\n');

        for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
                bool titled = false;

                for (xmlNode *n = xmlFirstElementChild(interface); n; n = xmlNextElementSibling(n)) {
                        if (!node_is(n, kinds[k].element))
                                continue;
                        if (!titled)
                                printf(".SS %s\n", kinds[k].title);
                        titled = true;
                        if (node_is(n, "property"))
                                print_man_property(n);
                        else
                                print_man_method(n);
                }
        }
}

static int print_man(const char *page, char **paths, int n_paths) {
        char *line = NULL;
        size_t size = 0;
        ssize_t l;
        int shown = 0;
        FILE *f;

        f = fopen(page, "re");
        if (!f) {
                perror(page);
                return EXIT_FAILURE;
        }

        while ((l = getline(&line, &size, f)) >= 0) {
                xmlNode *interface = NULL;

                for (int i = 0; i < n_paths && line[0] == '@'; i++) {
                        xmlNode *candidate = interface_load(paths[i]);
                        const char *name = attribute(candidate, "name");

                        if ((size_t) l == strlen(name) + 3 && strncmp(line + 1, name, strlen(name)) == 0)
                                interface = candidate;
                        if (interface)
                                break;
                }

                if (interface) {
                        print_man_interface(interface);
                        shown++;
                } else
                        fputs(line, stdout);
        }
        free(line);
        fclose(f);

        if (shown != n_paths) {
                fprintf(stderr, "%s: shows %d of %d interfaces\n", page, shown, n_paths);
                return EXIT_FAILURE;
        }

        return EXIT_SUCCESS;
}

int main(int argc, char **argv) {
        if (argc == 3 && streq(argv[1], "vtable"))
                print_vtable(interface_load(argv[2]));
        else if (argc >= 3 && streq(argv[1], "metrics"))
                print_metrics(argv + 2, argc - 2);
        else if (argc >= 4 && streq(argv[1], "varlink"))
                print_varlink(argv[2], argv + 3, argc - 3);
        else if (argc >= 4 && streq(argv[1], "records"))
                print_records(argv[2], argv + 3, argc - 3);
        else if (argc == 4 && streq(argv[1], "interface")) {
                if (print_interface(argv[2], argv[3]) != EXIT_SUCCESS)
                        return EXIT_FAILURE;
        } else if (argc >= 4 && streq(argv[1], "man")) {
                if (print_man(argv[2], argv + 3, argc - 3) != EXIT_SUCCESS)
                        return EXIT_FAILURE;
        } else {
                fprintf(stderr, "Usage: dbusgen interface TYPES IN | vtable XML | metrics XML... | "
                        "varlink TYPES XML... | man PAGE XML...\n");
                return EXIT_FAILURE;
        }

        if (fflush(stdout) != 0 || ferror(stdout)) {
                perror("Failed to write");
                return EXIT_FAILURE;
        }

        return EXIT_SUCCESS;
}
