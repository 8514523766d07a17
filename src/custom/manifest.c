/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <linux/perf_event.h>
#include <stdarg.h>

#include <libxml/parser.h>
#include <libxml/SAX2.h>
#include <libxml/tree.h>

#include "manifest.h"
#include "parse.h"

#define ATTRIBUTES 8U

typedef struct Attribute {
        const char *name;
        bool optional;
} Attribute;

/* An element, with its attributes by their place in the description. */
typedef struct Element {
        xmlNode *node;
        const char *values[ATTRIBUTES];     /* NULL: not given */
} Element;

typedef struct Description {
        const char *name;
        Attribute attributes[ATTRIBUTES + 1];
} Description;

/* A value that is not optional, after reader_open(). */
static const char* get(const Element *e, size_t i) {
        return ASSERT_PTR(e->values[i]);
}

typedef struct Value {
        const char *name;
        uint64_t value;
} Value;

typedef struct Reader {
        ManifestError *error;
        xmlDoc *document;
        bool has_doctype, too_deep;
        sd_json_variant *metrics, *programs;
        size_t n_metrics, n_programs;
} Reader;

enum { PROBE_DESCRIPTION, PROBE_SHA256 };
static const Description probe_description = {
        "probe", { { "description" }, { "X-SHA256", .optional = true } },
};

enum { METRIC_NAME, METRIC_TYPE, METRIC_UNIT, METRIC_DESCRIPTION };
static const Description metric_description = {
        "metric", { { "name" }, { "type" }, { "unit", .optional = true }, { "description" } },
};

enum { LABEL_NAME, LABEL_DECODER };
static const Description label_description = { "label", { { "name" }, { "decoder" } } };

enum { VALUE_KEY, VALUE_NAME };
static const Description value_description = { "value", { { "key" }, { "name" } } };

enum { PERF_PROGRAM, PERF_TYPE, PERF_CONFIG, PERF_FREQUENCY };
static const Description perf_description = {
        "perf-event", { { "program" }, { "type" }, { "config" }, { "frequency" } },
};

enum { UPROBE_PROGRAM, UPROBE_PATH, UPROBE_SYMBOL };
static const Description uprobe_description = { "uprobe", { { "program" }, { "path" }, { "symbol" } } };
static const Description uretprobe_description = { "uretprobe",
                                                   { { "program" }, { "path" }, { "symbol" } } };

enum { USDT_PROGRAM, USDT_PATH, USDT_PROVIDER, USDT_NAME };
static const Description usdt_description = {
        "usdt", { { "program" }, { "path" }, { "provider" }, { "name" } },
};

static const char *const metric_types[] = { "counter", "gauge", "histogram", NULL };
static const char *const metric_units[] = { "1", "bytes", "ns", NULL };
static const char *const decoders[] = {
        "uint", "map", "errno", "device", "address", "string", "interface", "symbol", "syscall", NULL
};

static const Value hardware_events[] = {
        { "cycles",           PERF_COUNT_HW_CPU_CYCLES },
        { "instructions",     PERF_COUNT_HW_INSTRUCTIONS },
        { "cache-references", PERF_COUNT_HW_CACHE_REFERENCES },
        { "cache-misses",     PERF_COUNT_HW_CACHE_MISSES },
        { "branches",         PERF_COUNT_HW_BRANCH_INSTRUCTIONS },
        { "branch-misses",    PERF_COUNT_HW_BRANCH_MISSES },
        {},
};

static const Value software_events[] = {
        { "cpu-clock",        PERF_COUNT_SW_CPU_CLOCK },
        { "task-clock",       PERF_COUNT_SW_TASK_CLOCK },
        { "page-faults",      PERF_COUNT_SW_PAGE_FAULTS },
        { "minor-faults",     PERF_COUNT_SW_PAGE_FAULTS_MIN },
        { "major-faults",     PERF_COUNT_SW_PAGE_FAULTS_MAJ },
        { "context-switches", PERF_COUNT_SW_CONTEXT_SWITCHES },
        { "cpu-migrations",   PERF_COUNT_SW_CPU_MIGRATIONS },
        {},
};

/* A CPU that is interrupted more often does little else. */
#define FREQUENCY_MAX 10000U

void manifest_error_done(ManifestError *e) {
        free(e->message);
        e->message = NULL;
}

static int _printf_(3, 4) reader_fail(Reader *r, const xmlNode *n, const char *format, ...) {
        va_list ap;

        r->error->line = n ? (unsigned) xmlGetLineNo(n) : 0;
        va_start(ap, format);
        if (vasprintf(&r->error->message, format, ap) < 0)
                r->error->message = NULL;
        va_end(ap);
        return r->error->message ? -EINVAL : -ENOMEM;
}

bool manifest_name_is_valid(const char *s) {
        if (*s < 'a' || *s > 'z' || strlen(s) > MANIFEST_NAME_MAX)
                return false;
        for (; *s; s++)
                if (!((*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || (*s >= '0' && *s <= '9')))
                        return false;
        return true;
}

char* manifest_get_name(const char *path) {
        const char *file = strrchr(path, '/') ? strrchr(path, '/') + 1 : path, *end = endswith(file, ".xml");
        char *name;

        if (!end)
                return NULL;
        name = strndup(file, (size_t) (end - file));
        if (name && !manifest_name_is_valid(name)) {
                free(name);
                return NULL;
        }
        return name;
}

static bool strv_contains(const char *const *l, const char *s) {
        for (; *l; l++)
                if (streq(*l, s))
                        return true;
        return false;
}

static bool parse_uint(const char *s, int base, uint64_t max, uint64_t *ret) {
        const char *digits = base == 16 ? startswith(s, "0x") : s;
        unsigned long long n;
        char *end;

        if (isempty(digits) || strspn(digits, base == 16 ? "0123456789abcdefABCDEF" : "0123456789") !=
            strlen(digits))
                return false;
        errno = 0;
        n = strtoull(digits, &end, base);
        if (errno != 0 || *end || n > max)
                return false;
        *ret = n;
        return true;
}

/* ---- elements ----------------------------------------------------------------------------------------- */

static int reader_set_attribute(Reader *r, const Description *d, const xmlAttr *a, Element *e) {
        const xmlNode *text = a->children;
        const char *value;

        for (size_t i = 0; d->attributes[i].name; i++) {
                if (a->ns || !streq((const char*) a->name, d->attributes[i].name))
                        continue;
                /* References to entities are the only other children of an attribute */
                if (text && (text->next || text->type != XML_TEXT_NODE))
                        return reader_fail(r, e->node,
                                           "Attribute '%s' of <%s> has a reference to an entity.", a->name,
                                           d->name);
                value = text ? (const char*) text->content : "";
                if (*value == 0 || strlen(value) > MANIFEST_TEXT_MAX || !text_is_valid(value, strlen(value)))
                        return reader_fail(r, e->node, "Attribute '%s' of <%s> is invalid, expected 1 to %u "
                                                       "bytes of text without control characters.",
                                           a->name, d->name, MANIFEST_TEXT_MAX);
                e->values[i] = value;
                return 0;
        }
        return reader_fail(r, e->node, "<%s> has an unknown attribute '%.*s'.", d->name, EXCERPT_MAX,
                           a->name);
}

/* Reads the attributes of an element, whose name is known. */
static int reader_open(Reader *r, const Description *d, xmlNode *n, Element *ret) {
        int k;

        *ret = (Element) { .node = n };
        if (n->ns || n->nsDef)
                return reader_fail(r, n, "<%s> has a namespace.", d->name);
        for (const xmlAttr *a = n->properties; a; a = a->next) {
                k = reader_set_attribute(r, d, a, ret);
                if (k < 0)
                        return k;
        }
        for (size_t i = 0; d->attributes[i].name; i++)
                if (!ret->values[i] && !d->attributes[i].optional)
                        return reader_fail(r, n, "<%s> has no attribute '%s'.", d->name,
                                           d->attributes[i].name);
        return 0;
}

/* Returns the next element within another one in *n; NULL: there is none. */
static int reader_next(Reader *r, const char *parent, xmlNode **n) {
        for (; *n && (*n)->type != XML_ELEMENT_NODE; *n = (*n)->next)
                if (((*n)->type != XML_TEXT_NODE || !xmlIsBlankNode(*n)) && (*n)->type != XML_COMMENT_NODE &&
                    (*n)->type != XML_PI_NODE)
                        return reader_fail(r, *n, "<%s> contains text, expected elements only.", parent);
        return 0;
}

static int reader_fail_element(Reader *r, const xmlNode *n, const char *parent, const char *expected) {
        return reader_fail(r, n, "<%s> contains <%.*s>, expected %s.", parent, EXCERPT_MAX, n->name,
                           expected);
}

static bool element_is(const xmlNode *n, const char *name) {
        return streq((const char*) n->name, name);
}

static int reader_check_empty(Reader *r, const Description *d, const Element *e) {
        xmlNode *n = e->node->children;
        int k;

        k = reader_next(r, d->name, &n);
        if (k < 0)
                return k;
        return n ? reader_fail_element(r, n, d->name, "no elements") : 0;
}

static int reader_check_name(Reader *r, const Element *e, const char *what, const char *name) {
        if (manifest_name_is_valid(name))
                return 0;
        return reader_fail(r, e->node,
                           "'%.*s' is not a valid name of a %s, expected a lower-case letter, and up "
                           "to %u letters and digits.",
                           EXCERPT_MAX, name, what, MANIFEST_NAME_MAX - 1);
}

static int reader_check_choice(Reader *r, const Element *e, const Description *d, size_t i,
                               const char *const *choices) {
        char expected[128] = "";

        if (strv_contains(choices, get(e, i)))
                return 0;
        for (const char *const *c = choices; *c; c++) {
                (void) strncat(expected, *c, sizeof(expected) - strlen(expected) - 1);
                if (c[1])
                        (void) strncat(expected, ", ", sizeof(expected) - strlen(expected) - 1);
        }
        return reader_fail(r, e->node, "Attribute '%s' of <%s> is '%.*s', expected one of: %s.",
                           d->attributes[i].name, d->name, EXCERPT_MAX, get(e, i), expected);
}

/* Whether an object of the array has this text in the field. */
static bool array_contains(sd_json_variant *array, const char *field, const char *text) {
        for (size_t i = 0; array && i < sd_json_variant_elements(array); i++) {
                sd_json_variant *v = sd_json_variant_by_key(sd_json_variant_by_index(array, i), field);

                if (streq_ptr(sd_json_variant_string(v), text))
                        return true;
        }
        return false;
}

static void json_unrefp(sd_json_variant **v) {
        (void) sd_json_variant_unref(*v);
}

/* ---- metrics ------------------------------------------------------------------------------------------ */

static int reader_read_value(Reader *r, xmlNode *n, uint64_t seen[static MANIFEST_VALUES_MAX], size_t n_seen,
                             sd_json_variant **values) {
        uint64_t key;
        Element e;
        int k;

        if (!element_is(n, value_description.name))
                return reader_fail_element(r, n, "label", "<value>");
        if (n_seen >= MANIFEST_VALUES_MAX)
                return reader_fail(r, n, "<label> has more than %u values.", MANIFEST_VALUES_MAX);
        k = reader_open(r, &value_description, n, &e);
        if (k >= 0)
                k = reader_check_empty(r, &value_description, &e);
        if (k < 0)
                return k;
        if (!parse_uint(get(&e, VALUE_KEY), 10, UINT64_MAX, &key))
                return reader_fail(r, n,
                                   "Attribute 'key' of <value> is '%.*s', expected an unsigned integer.",
                                   EXCERPT_MAX, get(&e, VALUE_KEY));
        for (size_t i = 0; i < n_seen; i++)
                if (seen[i] == key)
                        return reader_fail(r, n, "<label> has two values with the key '%s'.",
                                           get(&e, VALUE_KEY));
        seen[n_seen] = key;
        return sd_json_variant_append_arraybo(values, SD_JSON_BUILD_PAIR_UNSIGNED("key", key),
                                              SD_JSON_BUILD_PAIR_STRING("name", get(&e, VALUE_NAME)));
}

/* Labels that exports have themselves. */
static const char *const reserved_labels[] = { "unit", "le", "rest", NULL };

static int reader_read_label(Reader *r, xmlNode *n, sd_json_variant **labels) {
        _cleanup_(json_unrefp) sd_json_variant *values = NULL;
        uint64_t seen[MANIFEST_VALUES_MAX] = {};
        size_t n_seen = 0;
        bool map;
        Element e;
        int k;

        if (!element_is(n, label_description.name))
                return reader_fail_element(r, n, "metric", "<label>");
        if (*labels && sd_json_variant_elements(*labels) >= MANIFEST_LABELS_MAX)
                return reader_fail(r, n, "<metric> has more than %u labels.", MANIFEST_LABELS_MAX);
        k = reader_open(r, &label_description, n, &e);
        if (k >= 0)
                k = reader_check_name(r, &e, "label", get(&e, LABEL_NAME));
        if (k >= 0)
                k = reader_check_choice(r, &e, &label_description, LABEL_DECODER, decoders);
        if (k < 0)
                return k;
        if (array_contains(*labels, "name", get(&e, LABEL_NAME)))
                return reader_fail(r, n, "<metric> has two labels '%s'.", get(&e, LABEL_NAME));

        if (strv_contains(reserved_labels, get(&e, LABEL_NAME)))
                return reader_fail(r, n, "The name of a label is '%s', which is reserved.",
                                   get(&e, LABEL_NAME));
        map = streq(get(&e, LABEL_DECODER), "map");
        for (xmlNode *c = n->children; c && k >= 0; c = c ? c->next : NULL) {
                k = reader_next(r, "label", &c);
                if (k < 0 || !c)
                        break;
                if (!map)
                        return reader_fail(r, c,
                                           "<label> with the decoder '%s' contains elements, expected "
                                           "them with the decoder 'map' only.",
                                           get(&e, LABEL_DECODER));
                k = reader_read_value(r, c, seen, n_seen++, &values);
        }
        if (k < 0)
                return k;
        if (map && n_seen == 0)
                return reader_fail(r, n, "<label> with the decoder 'map' has no <value>.");

        return sd_json_variant_append_arraybo(
                labels, SD_JSON_BUILD_PAIR_STRING("name", get(&e, LABEL_NAME)),
                SD_JSON_BUILD_PAIR_STRING("decoder", get(&e, LABEL_DECODER)),
                SD_JSON_BUILD_PAIR_CONDITION(map, "values", SD_JSON_BUILD_VARIANT(values)));
}

static int reader_read_metric(Reader *r, xmlNode *n) {
        _cleanup_(json_unrefp) sd_json_variant *labels = NULL;
        const char *unit;
        Element e;
        int k;

        if (r->n_metrics++ >= MANIFEST_METRICS_MAX)
                return reader_fail(r, n, "<probe> has more than %u metrics.", MANIFEST_METRICS_MAX);
        k = reader_open(r, &metric_description, n, &e);
        if (k >= 0)
                k = reader_check_name(r, &e, "metric", get(&e, METRIC_NAME));
        if (k >= 0)
                k = reader_check_choice(r, &e, &metric_description, METRIC_TYPE, metric_types);
        if (k >= 0 && e.values[METRIC_UNIT])
                k = reader_check_choice(r, &e, &metric_description, METRIC_UNIT, metric_units);
        if (k < 0)
                return k;
        if (array_contains(r->metrics, "name", get(&e, METRIC_NAME)))
                return reader_fail(r, n, "<probe> has two metrics '%s'.", get(&e, METRIC_NAME));
        unit = e.values[METRIC_UNIT] ?: streq(get(&e, METRIC_TYPE), "histogram") ? "ns" : "1";
        if (streq(get(&e, METRIC_TYPE), "histogram") && !streq(unit, "ns"))
                return reader_fail(
                        r, n, "Attribute 'unit' of <metric> is '%s', expected 'ns' for a histogram.", unit);

        for (xmlNode *c = n->children; c && k >= 0; c = c ? c->next : NULL) {
                k = reader_next(r, "metric", &c);
                if (k < 0 || !c)
                        break;
                k = reader_read_label(r, c, &labels);
        }
        if (k < 0)
                return k;

        return sd_json_variant_append_arraybo(&r->metrics,
                        SD_JSON_BUILD_PAIR_STRING("name", get(&e, METRIC_NAME)),
                        SD_JSON_BUILD_PAIR_STRING("type", get(&e, METRIC_TYPE)),
                        SD_JSON_BUILD_PAIR_STRING("unit", unit),
                        SD_JSON_BUILD_PAIR_STRING("description", get(&e, METRIC_DESCRIPTION)),
                        SD_JSON_BUILD_PAIR_CONDITION(!!labels, "labels", SD_JSON_BUILD_VARIANT(labels)));
}

/* ---- programs ----------------------------------------------------------------------------------------- */

/* Programs are functions in C. */
static bool symbol_is_valid(const char *s) {
        return strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.@$") == strlen(s);
}

static int reader_check_path(Reader *r, const Element *e, const char *path) {
        if (*path == '/' && !strstr(path, "/../") && !endswith(path, "/..") && !endswith(path, "/"))
                return 0;
        return reader_fail(r, e->node,
                           "Path '%.*s' is invalid, expected an absolute path of a file without '..'.",
                           EXCERPT_MAX, path);
}

static int reader_check_symbol(Reader *r, const Element *e, const char *symbol) {
        if (symbol_is_valid(symbol))
                return 0;
        return reader_fail(r, e->node,
                           "Symbol '%.*s' is invalid, expected letters, digits, '_', '.', '@' and "
                           "'$'.",
                           EXCERPT_MAX, symbol);
}

static int reader_read_perf(Reader *r, xmlNode *n, sd_json_variant **ret) {
        static const char *const types[] = { "hardware", "software", "raw", NULL };
        const Value *events, *event;
        uint64_t type, config, frequency;
        Element e;
        int k;

        k = reader_open(r, &perf_description, n, &e);
        if (k >= 0)
                k = reader_check_choice(r, &e, &perf_description, PERF_TYPE, types);
        if (k >= 0)
                k = reader_check_empty(r, &perf_description, &e);
        if (k < 0)
                return k;
        if (streq(get(&e, PERF_TYPE), "raw")) {
                type = PERF_TYPE_RAW;
                if (!parse_uint(get(&e, PERF_CONFIG), 16, UINT64_MAX, &config))
                        return reader_fail(r, n, "Attribute 'config' of <perf-event> is '%.*s', expected a "
                                                 "hexadecimal number as '0x1a'.", EXCERPT_MAX,
                                           get(&e, PERF_CONFIG));
        } else {
                type = streq(get(&e, PERF_TYPE), "hardware") ? PERF_TYPE_HARDWARE : PERF_TYPE_SOFTWARE;
                events = type == PERF_TYPE_HARDWARE ? hardware_events : software_events;
                for (event = events; event->name && !streq(event->name, get(&e, PERF_CONFIG)); event++)
                        ;
                if (!event->name)
                        return reader_fail(r, n,
                                           "Attribute 'config' of <perf-event> is '%.*s', expected a %s "
                                           "event as '%s'.",
                                           EXCERPT_MAX, get(&e, PERF_CONFIG), get(&e, PERF_TYPE),
                                           events[0].name);
                config = event->value;
        }
        if (!parse_uint(get(&e, PERF_FREQUENCY), 10, FREQUENCY_MAX, &frequency) || frequency == 0)
                return reader_fail(r, n,
                                   "Attribute 'frequency' of <perf-event> is '%.*s', expected 1 to %u.",
                                   EXCERPT_MAX, get(&e, PERF_FREQUENCY), FREQUENCY_MAX);

        return sd_json_buildo(ret, SD_JSON_BUILD_PAIR_STRING("program", get(&e, PERF_PROGRAM)),
                              SD_JSON_BUILD_PAIR_STRING("type", perf_description.name),
                              SD_JSON_BUILD_PAIR_UNSIGNED("perfType", type),
                              SD_JSON_BUILD_PAIR_UNSIGNED("perfConfig", config),
                              SD_JSON_BUILD_PAIR_UNSIGNED("frequency", frequency));
}

static int reader_read_uprobe(Reader *r, const Description *d, xmlNode *n, sd_json_variant **ret) {
        Element e;
        int k;

        k = reader_open(r, d, n, &e);
        if (k >= 0)
                k = reader_check_path(r, &e, get(&e, UPROBE_PATH));
        if (k >= 0)
                k = reader_check_symbol(r, &e, get(&e, UPROBE_SYMBOL));
        if (k >= 0)
                k = reader_check_empty(r, d, &e);
        if (k < 0)
                return k;
        return sd_json_buildo(ret, SD_JSON_BUILD_PAIR_STRING("program", get(&e, UPROBE_PROGRAM)),
                              SD_JSON_BUILD_PAIR_STRING("type", d->name),
                              SD_JSON_BUILD_PAIR_STRING("path", get(&e, UPROBE_PATH)),
                              SD_JSON_BUILD_PAIR_STRING("symbol", get(&e, UPROBE_SYMBOL)));
}

static int reader_read_usdt(Reader *r, xmlNode *n, sd_json_variant **ret) {
        Element e;
        int k;

        k = reader_open(r, &usdt_description, n, &e);
        if (k >= 0)
                k = reader_check_path(r, &e, get(&e, USDT_PATH));
        if (k >= 0)
                k = reader_check_symbol(r, &e, get(&e, USDT_PROVIDER));
        if (k >= 0)
                k = reader_check_symbol(r, &e, get(&e, USDT_NAME));
        if (k >= 0)
                k = reader_check_empty(r, &usdt_description, &e);
        if (k < 0)
                return k;
        return sd_json_buildo(ret, SD_JSON_BUILD_PAIR_STRING("program", get(&e, USDT_PROGRAM)),
                              SD_JSON_BUILD_PAIR_STRING("type", usdt_description.name),
                              SD_JSON_BUILD_PAIR_STRING("path", get(&e, USDT_PATH)),
                              SD_JSON_BUILD_PAIR_STRING("provider", get(&e, USDT_PROVIDER)),
                              SD_JSON_BUILD_PAIR_STRING("name", get(&e, USDT_NAME)));
}

static int reader_read_program(Reader *r, xmlNode *n) {
        _cleanup_(json_unrefp) sd_json_variant *program = NULL;
        const char *name;
        int k;

        if (element_is(n, perf_description.name))
                k = reader_read_perf(r, n, &program);
        else if (element_is(n, uprobe_description.name))
                k = reader_read_uprobe(r, &uprobe_description, n, &program);
        else if (element_is(n, uretprobe_description.name))
                k = reader_read_uprobe(r, &uretprobe_description, n, &program);
        else if (element_is(n, usdt_description.name))
                k = reader_read_usdt(r, n, &program);
        else
                return reader_fail_element(r, n, "probe",
                                           "<metric>, <perf-event>, <uprobe>, <uretprobe> or <usdt>");
        if (k < 0)
                return k;
        if (r->n_programs++ >= MANIFEST_PROGRAMS_MAX)
                return reader_fail(r, n, "<probe> has more than %u programs.", MANIFEST_PROGRAMS_MAX);
        name = sd_json_variant_string(sd_json_variant_by_key(program, "program"));
        if (!symbol_is_valid(name))
                return reader_fail(r, n, "'%.*s' is not a valid name of a program.", EXCERPT_MAX, name);
        if (array_contains(r->programs, "program", name))
                return reader_fail(r, n, "<probe> has two elements for the program '%.*s'.", EXCERPT_MAX,
                                   name);
        return sd_json_variant_append_array(&r->programs, program);
}

/* ---- document ----------------------------------------------------------------------------------------- */

static int reader_read_probe(Reader *r, sd_json_variant **ret) {
        xmlNode *root = xmlDocGetRootElement(r->document);
        const char *sha256;
        Element e;
        int k;

        if (!root || !element_is(root, probe_description.name))
                return reader_fail(r, root, "The root element is not <probe>.");
        k = reader_open(r, &probe_description, root, &e);
        if (k < 0)
                return k;
        sha256 = e.values[PROBE_SHA256];
        if (sha256 && (strlen(sha256) != 64 || strspn(sha256, "0123456789abcdef") != 64))
                return reader_fail(r, root,
                                   "Attribute 'X-SHA256' of <probe> is invalid, expected 64 lower-case "
                                   "hexadecimal digits.");

        for (xmlNode *c = root->children; c && k >= 0; c = c ? c->next : NULL) {
                k = reader_next(r, "probe", &c);
                if (k < 0 || !c)
                        break;
                k = element_is(c, metric_description.name) ? reader_read_metric(r, c) :
                                                             reader_read_program(r, c);
        }
        if (k < 0)
                return k;
        if (r->n_metrics == 0)
                return reader_fail(r, root, "<probe> has no <metric>.");

        return sd_json_buildo(ret, SD_JSON_BUILD_PAIR_STRING("description", get(&e, PROBE_DESCRIPTION)),
                              SD_JSON_BUILD_PAIR_CONDITION(!!sha256, "sha256", SD_JSON_BUILD_STRING(sha256)),
                              SD_JSON_BUILD_PAIR_VARIANT("metrics", r->metrics),
                              SD_JSON_BUILD_PAIR_CONDITION(!!r->programs, "programs",
                                                           SD_JSON_BUILD_VARIANT(r->programs)));
}

/* A document type may declare entities, which grow without bounds, and refer to files. */
static void on_doctype(void *context, const xmlChar *name, const xmlChar *external, const xmlChar *system) {
        xmlParserCtxt *parser = context;

        ((Reader*) parser->_private)->has_doctype = true;
        xmlStopParser(parser);
}

static void on_element(void *context, const xmlChar *name, const xmlChar *prefix, const xmlChar *uri,
                       int n_namespaces, const xmlChar **namespaces, int n_attributes, int n_defaulted,
                       const xmlChar **attributes) {
        xmlParserCtxt *parser = context;

        if (parser->nameNr >= MANIFEST_DEPTH_MAX) {
                ((Reader*) parser->_private)->too_deep = true;
                xmlStopParser(parser);
                return;
        }
        xmlSAX2StartElementNs(context, name, prefix, uri, n_namespaces, namespaces, n_attributes,
                              n_defaulted, attributes);
}

static int reader_parse(Reader *r, const char *text, size_t size) {
        xmlParserCtxt *parser;
        const xmlError *error;
        int k = 0;

        parser = xmlNewParserCtxt();
        if (!parser)
                return -ENOMEM;
        parser->_private = r;
        parser->sax->internalSubset = on_doctype;
        parser->sax->startElementNs = on_element;
        r->document = xmlCtxtReadMemory(parser, text, (int) size, NULL, "UTF-8",
                                        XML_PARSE_NONET | XML_PARSE_NOERROR | XML_PARSE_NOWARNING |
                                        XML_PARSE_BIG_LINES);
        error = xmlCtxtGetLastError(parser);
        if (r->has_doctype || r->too_deep) {
                k = reader_fail(r, NULL,
                                r->has_doctype ? "The manifest has a document type, which is not allowed." :
                                                 "Elements are nested deeper than %d.",
                                MANIFEST_DEPTH_MAX);
                r->error->line = parser->input ? (unsigned) parser->input->line : 0;
        } else if (!r->document || error) {
                const char *message = error && error->message ? error->message : "out of memory";

                k = reader_fail(r, NULL, "%.*s.", (int) strcspn(message, "\n"), message);
                r->error->line = error && error->line > 0 ? (unsigned) error->line : 0;
        }
        xmlFreeParserCtxt(parser);
        return k;
}

int manifest_parse(const char *text, size_t size, ManifestError *ret_error, sd_json_variant **ret) {
        Reader reader = { .error = ret_error };
        int r;

        *ret_error = (ManifestError) {};
        *ret = NULL;
        if (size > CUSTOM_MANIFEST_SIZE_MAX)
                r = reader_fail(&reader, NULL, "The manifest is larger than %u KiB.",
                                CUSTOM_MANIFEST_SIZE_MAX / 1024);
        else if (size == 0)
                r = reader_fail(&reader, NULL, "The manifest is empty.");
        else
                r = reader_parse(&reader, text, size);
        if (r >= 0)
                r = reader_read_probe(&reader, ret);
        (void) sd_json_variant_unref(reader.metrics);
        (void) sd_json_variant_unref(reader.programs);
        xmlFreeDoc(reader.document);
        return r;
}
