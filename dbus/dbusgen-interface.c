/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Generates interfaces: replaces <distribution> and <states> by properties for the members of the types
 * Distribution and States in metric-types.xml. */

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "dbusgen.h"

static xmlNode *types;

static xmlNode* find_type(const xmlNode *by, const char *name) {
        for (xmlNode *n = xmlFirstElementChild(types); n; n = xmlNextElementSibling(n))
                if (node_is(n, "type") && streq(attribute(n, "name"), name))
                        return n;

        fail(by, "No <type name=\"%s\"> in %s", name, (const char*) types->doc->URL);
}

static void print_escaped(const char *s) {
        for (; *s; s++)
                switch (*s) {
                case '&':
                        fputs("&amp;", stdout);
                        break;
                case '<':
                        fputs("&lt;", stdout);
                        break;
                case '"':
                        fputs("&quot;", stdout);
                        break;
                default:
                        putchar(*s);
                }
}

static void print_annotation(const char *name, const char *value) {
        printf("      <annotation name=\"%s\" value=\"", name);
        print_escaped(value);
        puts("\"/>");
}

/* Prints the name of the property of a metric: "requests.server.latency.p99" with unit "ns" is
 * "ServerLatencyP99NSec". */
static void print_property_name(const char *metric, const char *unit) {
        char name[NAME_SIZE];

        format_property_name(NULL, strchr(metric, '.') + 1, name);
        printf("    <property name=\"%s%s", name, streq(unit, "ns") ? "NSec" : "");
}

typedef struct Property {
        char metric[NAME_SIZE], field[NAME_SIZE];
        const char *type, *unit, *kind, *probe, *essential;
        char doc[4 * NAME_SIZE];
} Property;

static void print_property(const Property *p) {
        print_property_name(p->metric, p->unit);
        printf("\" type=\"%s\" access=\"read\">\n", p->type);
        print_annotation(ANNOTATION_METRIC, p->metric);
        print_annotation(ANNOTATION_FIELD, p->field);
        if (p->probe)
                print_annotation(ANNOTATION_PROBE, p->probe);
        print_annotation(ANNOTATION_UNIT, p->unit);
        print_annotation(ANNOTATION_KIND, p->kind);
        if (p->essential)
                print_annotation(ANNOTATION_ESSENTIAL, p->essential);
        print_annotation(ANNOTATION_DOC, p->doc);
        puts("    </property>");
}

static void __attribute__((format(printf, 4, 5)))
format(const xmlNode *n, char *buffer, size_t size, const char *text, ...) {
        va_list ap;
        int k;

        va_start(ap, text);
        k = vsnprintf(buffer, size, text, ap);
        va_end(ap);
        if (k < 0 || (size_t) k >= size)
                fail(n, "<%s> is too long", (const char*) n->name);
}

/* The attribute count is the kind of the member count, a gauge if another metric counts the same. */
static void print_distribution(xmlNode *n) {
        const char *metric = attribute(n, "metric"), *field = attribute(n, "field");
        xmlNode *type = find_type(n, "Distribution");

        for (xmlNode *m = xmlFirstElementChild(type); m; m = xmlNextElementSibling(m)) {
                const char *key = attribute(m, "name"), *of = attribute(m, "of"), *gap = strchr(of, '*');
                Property p = {
                        .type = "t",
                        .unit = streq(key, "count") ? "1" : "ns",
                        .kind = streq(key, "count") ? attribute(n, "count") : "gauge",
                        .probe = attribute_or_null(n, "probe"),
                        .essential = attribute_or_null(n, "essential"),
                };

                if (!gap)
                        fail(m, "of=\"%s\" has no *, where the description of the distribution goes", of);
                format(n, p.metric, sizeof(p.metric), "%s.%s", metric, key);
                format(n, p.field, sizeof(p.field), "%s.%s", field, key);
                format(n, p.doc, sizeof(p.doc), "%.*s%s%s", (int) (gap - of), of, attribute(n, "doc"),
                       gap + 1);
                print_property(&p);
        }
}

/* The attribute first is the first state that the metric has. */
static void print_states(xmlNode *n) {
        const char *metric = attribute(n, "metric"), *field = attribute(n, "field"),
                *first = attribute(n, "first");
        bool begun = false;

        for (xmlNode *m = xmlFirstElementChild(find_type(n, "States")); m; m = xmlNextElementSibling(m)) {
                const char *key = attribute(m, "name"), *doc = attribute(m, "doc");
                char state[NAME_SIZE];
                size_t k = 0;
                Property p = {
                        .type = attribute(n, "type"),
                        .unit = attribute(n, "unit"),
                        .kind = attribute(n, "kind"),
                        .probe = attribute_or_null(n, "probe"),
                };

                begun = begun || streq(key, first);
                if (!begun)
                        continue;

                for (const char *c = key; *c && k + 3 < sizeof(state); c++) {
                        if (isupper((unsigned char) *c))
                                state[k++] = '_';
                        state[k++] = (char) toupper((unsigned char) *c);
                }
                state[k] = 0;
                format(n, p.metric, sizeof(p.metric), "%s.%s", metric, key);
                format(n, p.field, sizeof(p.field), "%s[QOS_STATE_%s]", field, state);
                format(n, p.doc, sizeof(p.doc), "%s: %c%s", attribute(n, "doc"),
                       tolower((unsigned char) *doc), doc + 1);
                print_property(&p);
        }
        if (!begun)
                fail(n, "There is no state '%s'", first);
}

int print_interface(const char *types_path, const char *path) {
        char *line = NULL;
        size_t size = 0;
        ssize_t l;
        FILE *f;

        types = document_load(types_path);
        f = fopen(path, "re");
        if (!f) {
                perror(path);
                return EXIT_FAILURE;
        }

        /* Elements to replace are on lines of their own. All other lines are copied */
        while ((l = getline(&line, &size, f)) >= 0) {
                const char *begin = line + strspn(line, " ");
                bool distribution = strncmp(begin, "<distribution ", 14) == 0;
                xmlDoc *doc;

                if (!distribution && strncmp(begin, "<states ", 8) != 0) {
                        fputs(line, stdout);
                        continue;
                }
                doc = xmlReadMemory(begin, (int) (line + l - begin), path, NULL, XML_PARSE_NONET);
                if (!doc)
                        exit(EXIT_FAILURE); /* libxml2 has printed the reason */
                if (distribution)
                        print_distribution(xmlDocGetRootElement(doc));
                else
                        print_states(xmlDocGetRootElement(doc));
        }
        free(line);
        fclose(f);
        return EXIT_SUCCESS;
}
