/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <ctype.h>

#include "exposition-writer.h"
#include "value.h"

bool exposition_is_supported(Exposition format) {
        return format != EXPOSITION_PROTOBUF || HAVE_PROTOBUF;
}

static int parse_limit(const char *s, unsigned min, unsigned max, unsigned *ret) {
        unsigned long n;
        char *end;

        errno = 0;
        n = strtoul(s, &end, 10);
        if (errno != 0 || !isdigit((unsigned char) *s) || *end != 0 || n > max || (n > 0 && n < min))
                return -EINVAL;
        *ret = (unsigned) n;
        return 0;
}

int exposition_parse_scope(const char *s, ExpositionScope *ret) {
        static const char *const names[_EXPOSITION_SCOPE_MAX] = {
                [EXPOSITION_REQUESTS]   = "requests",
                [EXPOSITION_PROBES]     = "probes",
                [EXPOSITION_EVERYTHING] = "everything",
        };

        for (ExpositionScope i = 0; i < _EXPOSITION_SCOPE_MAX; i++)
                if (streq(s, names[i])) {
                        *ret = i;
                        return 0;
                }
        return -EINVAL;
}

int exposition_parse_buckets(const char *s, unsigned *ret) {
        return parse_limit(s, EXPOSITION_BUCKETS_MIN, EXPOSITION_BUCKETS_MAX, ret);
}

int exposition_parse_series(const char *s, unsigned *ret) {
        return parse_limit(s, 1, EXPOSITION_SERIES_MAX, ret);
}

/* ---- output ------------------------------------------------------------ */

static Output output_new(FILE *file, Exposition format) {
        Output o = { .file = file, .format = format, .writer = &text_writer };

#if HAVE_PROTOBUF
        if (format == EXPOSITION_PROTOBUF)
                o.writer = &protobuf_writer;
#endif
        return o;
}

static int count_begin(Output *o) {
        return 0;
}

static int count_add(Output *o, const Sample *sample) {
        uint64_t *n = o->state;

        ++*n;
        return 0;
}

const Writer count_writer = {
        .begin = count_begin,
        .add = count_add,
        .end = count_begin,
};

/* Adds a sample, and begins its family with the first one. */
static int output_add(Output *o, const Family *family, const Sample *sample) {
        int r;

        if (o->family != family) {
                o->family = family;
                r = o->writer->begin(o);
                if (r < 0)
                        return r;
        }
        return o->writer->add(o, sample);
}

/* Ends the current family, if any. */
static int output_end(Output *o) {
        int r = 0;

        if (o->family)
                r = o->writer->end(o);
        if (r >= 0)
                o->family = NULL;
        return r;
}

static void output_done(Output *o) {
        if (o->family && o->writer->abort)
                o->writer->abort(o);
        o->family = NULL;
}

#define _cleanup_output_ _cleanup_(output_done)

/* ---- metrics of units --------------------------------------------------------------------------------- */

/* "requests.server.bytesIn" in bytes is "qosd_requests_server_in_bytes", "requests.server.count" is
 * "qosd_requests_server". */
static char* family_name(const char *metric, const char *suffix) {
        char *name, *p;

        /* Each letter may be preceded by an underscore */
        name = malloc(strlen("qosd_") + 2 * strlen(metric) + strlen("_seconds") + 1);
        if (!name)
                return NULL;

        p = stpcpy(name, "qosd");
        for (const char *word = metric; *word; ) {
                size_t l = 1;

                word += *word == '.';
                if (!*word)
                        break;
                while (word[l] && word[l] != '.' && !isupper((unsigned char) word[l]))
                        l++;
                if (!(suffix && l == strlen(suffix) && strncasecmp(word, suffix, l) == 0) &&
                    !(streq(word, "count") && p > name + strlen("qosd"))) {
                        *p++ = '_';
                        *p++ = (char) tolower((unsigned char) *word);
                        p = mempcpy(p, word + 1, l - 1);
                }
                word += l;
        }
        if (suffix) {
                *p++ = '_';
                p = stpcpy(p, suffix);
        }
        *p = 0;
        return name;
}

/* A unit of the replies, with the fields that are needed for each metric. */
typedef struct ExportedUnit {
        sd_json_variant *unit;          /* object in the reply */
        const char *name;               /* name of the unit, owned by the reply */
        uint64_t attached_since;        /* CLOCK_REALTIME ns; 0: unknown */
        sd_json_variant *histograms;    /* owned by the reply; NULL: none */
        sd_json_variant *totals;        /* sorted copy, for lookups; NULL: none */
        sd_json_variant *gauges;
        uint64_t overflow;              /* durations beyond the last bound in the current distribution */
} ExportedUnit;

typedef struct ExportedUnits {
        ExportedUnit *items;
        size_t n;
        size_t n_tables; /* number of units, from the first on, that are written with endpoints and
                          * devices */
} ExportedUnits;

static void exported_units_done(ExportedUnits *units) {
        for (size_t i = 0; i < units->n; i++) {
                (void) sd_json_variant_unref(units->items[i].totals);
                (void) sd_json_variant_unref(units->items[i].gauges);
        }
        free(units->items);
}

#define _cleanup_exported_units_ _cleanup_(exported_units_done)

static int sorted_values(sd_json_variant *unit, const char *name, sd_json_variant **ret) {
        *ret = sd_json_variant_ref(value_find(unit, name));
        return *ret ? sd_json_variant_sort(ret) : 0;
}

static int exported_units_new(const Replies *replies, ExportedUnits *ret) {
        int r;

        ret->items = new0(ExportedUnit, replies->n);
        if (!ret->items)
                return -ENOMEM;
        for (size_t i = 0; i < replies->n; i++) {
                sd_json_variant *unit = value_find(replies->items[i], "unit");
                ExportedUnit *u = &ret->items[ret->n];

                if (!unit)
                        continue;
                ret->n++;
                u->unit = unit;
                u->name = value_string(unit, "name");
                (void) value_time(unit, "attachedSince", &u->attached_since);
                u->histograms = value_find(unit, "histograms");
                r = sorted_values(u->unit, "totals", &u->totals);
                if (r >= 0)
                        r = sorted_values(u->unit, "gauges", &u->gauges);
                if (r < 0)
                        return r;
        }
        return 0;
}

/* A sample of a unit with no other label. */
static Sample unit_sample(const ExportedUnit *u) {
        return (Sample) { .labels = { { "unit", u->name } }, .n_labels = 1 };
}

/* Returns since when a metric of the unit is counted. 0, unknown, for other probes than "requests", which
 * may have been added later. */
static uint64_t created(const char *metric, const ExportedUnit *u) {
        return startswith(metric, "requests.") ? u->attached_since : 0;
}

/* Writes the number of durations beyond the last bound, which a native histogram has in the next bucket. */
static int write_overflow(Output *o, const char *metric, const char *name, const ExportedUnits *units) {
        Family f = { .help = "Durations of more than 64 s in the distribution", .type = FAMILY_COUNTER };
        _cleanup_free_ char *family = NULL;
        int r;

        if (asprintf(&family, "%s_overflow", name) < 0) {
                family = NULL;
                return -ENOMEM;
        }
        f.name = family;
        for (size_t i = 0; i < units->n; i++) {
                Sample s = unit_sample(&units->items[i]);

                s.n = units->items[i].overflow;
                if (s.n == 0)
                        continue;
                s.created = created(metric, &units->items[i]);
                r = output_add(o, &f, &s);
                if (r < 0)
                        return r;
        }
        return output_end(o);
}

/* Derives the description of a distribution from the one of its count, "Number of samples of the time from
 * ...". */
static char* distribution_help(const char *of_count) {
        const char *rest = startswith(strempty(of_count), "Number of samples of ");
        char *help = strdup(rest ?: strempty(of_count));

        if (help && rest)
                help[0] = (char) toupper((unsigned char) help[0]);
        return help;
}

/* Returns 0 if no unit has the distribution. help: description of its count */
static int write_distribution(Output *o, const char *metric, const char *help, unsigned buckets_max,
                              const ExportedUnits *units) {
        _cleanup_free_ char *name = family_name(metric, "seconds"), *text = distribution_help(help);
        Family f = { .name = name, .unit = "seconds", .help = text, .type = FAMILY_HISTOGRAM };
        int r;

        if (!name || !text)
                return -ENOMEM;
        for (size_t i = 0; i < units->n; i++) {
                _cleanup_sparse_histogram_ SparseHistogram h = {};
                ExportedUnit *u = &units->items[i];
                sd_json_variant *v = sparse_histogram_find(u->histograms, metric);
                Sample s = unit_sample(u);

                u->overflow = 0;
                if (!v)
                        continue;
                r = sparse_histogram_parse(v, &h);
                if (r < 0)
                        return r;
                if (h.n > 0 && h.buckets[h.n - 1].index > SPARSE_MAX_EXPONENT * (1 << h.schema))
                        u->overflow = h.buckets[h.n - 1].n;
                sparse_histogram_limit(&h, buckets_max);
                s.kind = SAMPLE_HISTOGRAM;
                s.histogram = &h;
                s.created = created(metric, u);
                r = output_add(o, &f, &s);
                if (r < 0)
                        return r;
        }
        if (!o->family)
                return 0;
        r = output_end(o);
        if (r >= 0)
                r = write_overflow(o, metric, name, units);
        return r < 0 ? r : 1;
}

static int write_values(Output *o, const char *metric, const char *unit, bool counter, const char *help,
                        const ExportedUnits *units) {
        const char *suffix = streq_ptr(unit, "ns") ? "seconds" : streq_ptr(unit, "bytes") ? "bytes" : NULL;
        _cleanup_free_ char *name = family_name(metric, suffix);
        Family f = { .name = name, .unit = suffix, .help = help };
        int r;

        if (!name)
                return -ENOMEM;
        f.type = counter ? FAMILY_COUNTER : FAMILY_GAUGE;
        for (size_t i = 0; i < units->n; i++) {
                const ExportedUnit *u = &units->items[i];
                sd_json_variant *values = counter ? u->totals : u->gauges,
                                *v = values ? sd_json_variant_by_key(values, metric) : NULL;
                Sample s;

                if (!v || !sd_json_variant_is_unsigned(v))
                        continue;
                s = unit_sample(u);
                s.n = sd_json_variant_unsigned(v);
                s.kind = streq_ptr(unit, "ns") ? SAMPLE_NSEC : SAMPLE_INTEGER;
                s.created = counter ? created(metric, u) : 0;
                r = output_add(o, &f, &s);
                if (r < 0)
                        return r;
        }
        return output_end(o);
}

/* Writes a metric of the catalogue for all units. */
static int write_metric(Output *o, sd_json_variant *metric, unsigned buckets_max,
                        const ExportedUnits *units) {
        const char *name = value_string(metric, "name"), *help = value_string(metric, "description");
        int r;

        if (!name)
                return -EBADMSG;

        /* The entry of its count represents a distribution */
        if (endswith(name, ".count")) {
                _cleanup_free_ char *distribution = strndup(name, strlen(name) - strlen(".count"));

                r = distribution ? write_distribution(o, distribution, help, buckets_max, units) : -ENOMEM;
                if (r != 0)
                        return r;
        }
        return write_values(o, name, value_string(metric, "unit"),
                            streq_ptr(value_string(metric, "kind"), "counter"), help, units);
}

static int write_drops(Output *o, const ExportedUnits *units) {
        static const Family f = {
                .name = "qosd_drops",
                .help = "Events of the unit that could not be recorded",
                .type = FAMILY_COUNTER,
        };
        int r;

        for (size_t i = 0; i < units->n; i++) {
                const ExportedUnit *u = &units->items[i];
                Sample s = unit_sample(u);

                if (!value_unsigned(u->unit, "drops", &s.n))
                        continue;
                s.created = created("requests.drops", u);
                r = output_add(o, &f, &s);
                if (r < 0)
                        return r;
        }
        return output_end(o);
}

static int write_cost(Output *o, ExpositionScope scope, const ExportedUnits *units) {
        static const struct {
                const char *path, *probe;
        } costs[] = {
                { "cost.requests",   "requests"   },
                { "cost.contention", "contention" },
                { "cost.storage",    "storage"    },
                { "cost.network",    "network"    },
        };
        static const Family f = {
                .name = "qosd_cost_seconds",
                .unit = "seconds",
                .help = "Run time of qosd's BPF programs for the unit",
                .type = FAMILY_COUNTER,
        };
        int r;

        for (size_t i = 0; i < units->n; i++)
                for (size_t k = 0; k < (scope == EXPOSITION_REQUESTS ? 1 : ELEMENTSOF(costs)); k++) {
                        const ExportedUnit *u = &units->items[i];
                        Sample s = {
                                .labels = { { "unit",  u->name },
                                            { "probe", costs[k].probe } },
                                .n_labels = 2,
                                .kind = SAMPLE_NSEC,
                        };

                        if (!value_unsigned(u->unit, costs[k].path, &s.n))
                                continue;
                        if (k == 0)
                                s.created = created("requests.cost", u);
                        r = output_add(o, &f, &s);
                        if (r < 0)
                                return r;
                }
        return output_end(o);
}

/* Writes slice and state of the units as labels, for joins. */
static int write_info(Output *o, const ExportedUnits *units) {
        static const Family f = {
                .name = "qosd_unit",
                .help = "The slice and the state of the unit",
                .type = FAMILY_INFO,
        };
        int r;

        for (size_t i = 0; i < units->n; i++) {
                const ExportedUnit *u = &units->items[i];
                Sample s = {
                        .labels = { { "unit",  u->name },
                                    { "slice", value_string(u->unit, "slice") },
                                    { "state", value_string(u->unit, "activeState") } },
                        .n_labels = 3,
                        .n = 1,
                };

                r = output_add(o, &f, &s);
                if (r < 0)
                        return r;
        }
        return output_end(o);
}

/* Writes the BPF programs that units need. */
static int write_programs(Output *o, const Replies *exports) {
        static const Family f = {
                .name = "qosd_program_attached",
                .help = "Whether a BPF program that a unit needs is attached, and why not",
                .type = FAMILY_GAUGE,
        };
        int r;

        for (size_t i = 0; i < exports->n; i++) {
                sd_json_variant *programs = value_find(exports->items[i], "programs");

                for (size_t k = 0; programs && k < sd_json_variant_elements(programs); k++) {
                        sd_json_variant *p = sd_json_variant_by_index(programs, k);
                        bool attached = value_boolean(p, "attached");
                        Sample s = {
                                .labels = { { "program", value_string(p, "program") },
                                            { "reason",  attached ? NULL : value_string(p, "reason") } },
                                .n_labels = 2,
                                .n = attached,
                        };

                        if (!value_string(p, "program"))
                                continue;
                        r = output_add(o, &f, &s);
                        if (r < 0)
                                return r;
                }
        }
        return output_end(o);
}

/* Writes thresholds on quantiles, for alerts on the burn rate of error budgets. */
static int write_objectives(Output *o, const ExportedUnits *units) {
        static const struct {
                const char *key;
                Family family;
        } families[] = {
                { "good",   { .name = "qosd_objective_good", .type = FAMILY_COUNTER,
                              .help = "Good requests since the threshold was set" } },
                { "total",  { .name = "qosd_objective_requests", .type = FAMILY_COUNTER,
                              .help = "Requests since the threshold was set" } },
                { "target", { .name = "qosd_objective_target_ratio", .type = FAMILY_GAUGE,
                              .help = "Share of requests that has to be good" } },
        };
        int r;

        for (size_t k = 0; k < ELEMENTSOF(families); k++) {
                bool counter = families[k].family.type == FAMILY_COUNTER;

                for (size_t i = 0; i < units->n; i++) {
                        const ExportedUnit *u = &units->items[i];
                        sd_json_variant *objectives = value_find(u->unit, "objectives");

                        for (size_t j = 0; objectives && j < sd_json_variant_elements(objectives); j++) {
                                sd_json_variant *objective = sd_json_variant_by_index(objectives, j);
                                Sample s = {
                                        .labels = { { "unit",      u->name },
                                                    { "threshold", value_string(objective, "threshold") } },
                                        .n_labels = 2,
                                        .kind = counter ? SAMPLE_INTEGER : SAMPLE_REAL,
                                };

                                if (counter ? !value_unsigned(objective, families[k].key, &s.n)
                                            : !value_real(objective, families[k].key, &s.real))
                                        continue;
                                r = output_add(o, &families[k].family, &s);
                                if (r < 0)
                                        return r;
                        }
                }
                r = output_end(o);
                if (r < 0)
                        return r;
        }
        return 0;
}

/* A metric of each endpoint, device or file system. */
typedef struct TableFigure {
        const char *table, *name;       /* array in the reply, and field of its elements for the label */
        const char *label;
        const char *path;               /* path in an element */
        const char *metric, *unit;      /* name and unit, as in the catalogue */
        bool counter;
        const char *help;
} TableFigure;

#define ENDPOINT(path, metric, unit, counter, help) \
        { "endpoints", "listen", "endpoint", path, "requests.server.endpoint." metric, unit, counter, help }
#define DEVICE(path, metric, unit, help) \
        { "devices", "device", "device", path, "contention.block.device." metric, unit, true, help }

#define MOUNT(path, metric, unit, help) \
        { "mounts", "mount", "mount", path, "storage.mount." metric, unit, true, help }

#define DROP_REASON(path, metric, help) \
        { "dropReasons", "reason", "reason", path, "network.dropReason." metric, NULL, true, help }

static const TableFigure table_figures[] = {
        ENDPOINT("count", "count", NULL, true, "Requests to the endpoint with a first response byte"),
        ENDPOINT("errors.reset", "errors.reset", NULL, true,
                 "Requests to the endpoint whose connection the server reset"),
        ENDPOINT("errors.timeout", "errors.timeout", NULL, true,
                 "Requests to the endpoint whose connection timed out"),
        ENDPOINT("clientAborts", "clientAborts", NULL, true,
                 "Connections to the endpoint that the client ended with a request in flight"),
        ENDPOINT("bytesIn", "bytesIn", "bytes", true, "Bytes of requests to the endpoint"),
        ENDPOINT("bytesOut", "bytesOut", "bytes", true, "Bytes of responses of the endpoint"),
        ENDPOINT("inFlight", "inFlight", NULL, false, "Requests to the endpoint in flight"),
        DEVICE("reads", "reads", NULL, "Requests to read from the device that are done"),
        DEVICE("writes", "writes", NULL, "Requests to write to the device that are done"),
        DEVICE("flushes", "flushes", NULL, "Flushes of the device that are done"),
        DEVICE("discards", "discards", NULL, "Requests to discard that are done"),
        DEVICE("readBytes", "readBytes", "bytes", "Bytes read from the device"),
        DEVICE("writeBytes", "writeBytes", "bytes", "Bytes written to the device"),
        DEVICE("discardBytes", "discardBytes", "bytes", "Bytes discarded on the device"),
        DEVICE("queueTime", "queueTime", "ns", "Time that requests waited for the device to take them"),
        DEVICE("deviceTime", "deviceTime", "ns", "Time that the device took for requests"),
        MOUNT("reads.count", "reads.count", NULL, "Calls that read from files of the file system"),
        MOUNT("reads.errors", "reads.errors", NULL, "Part of these that failed"),
        MOUNT("reads.bytes", "reads.bytes", "bytes", "Bytes read by these"),
        MOUNT("writes.count", "writes.count", NULL, "Calls that write to files of the file system"),
        MOUNT("writes.errors", "writes.errors", NULL, "Part of these that failed"),
        MOUNT("writes.bytes", "writes.bytes", "bytes", "Bytes written by these"),
        MOUNT("syncs.count", "syncs.count", NULL, "Calls that wait until a file of it is stored"),
        MOUNT("syncs.errors", "syncs.errors", NULL, "Part of these that failed"),
        MOUNT("opens.count", "opens.count", NULL, "Calls that open files of the file system"),
        MOUNT("changes.count", "changes.count", NULL,
              "Calls that truncate or allocate files, or change attributes"),
        DROP_REASON("count", "count", "Packets that the kernel has discarded, by reason"),
};

/* Writes a metric of endpoints, devices or file systems, the rest of them as "others". */
static int write_table_figure(Output *o, const TableFigure *figure, const ExportedUnits *units) {
        const char *suffix = streq_ptr(figure->unit, "ns") ? "seconds" : figure->unit;
        _cleanup_free_ char *name = family_name(figure->metric, suffix);
        Family f = { .name = name, .unit = suffix, .help = figure->help };
        int r;

        if (!name)
                return -ENOMEM;
        f.type = figure->counter ? FAMILY_COUNTER : FAMILY_GAUGE;
        for (size_t i = 0; i < units->n_tables; i++) {
                const ExportedUnit *u = &units->items[i];
                sd_json_variant *table = value_find(u->unit, figure->table);

                for (size_t k = 0; table && k < sd_json_variant_elements(table); k++) {
                        sd_json_variant *row = sd_json_variant_by_index(table, k);
                        /* The path of a file system in another mount namespace is unknown */
                        const char *entry = value_boolean(row, "rest") ? "others" :
                                            value_string(row, figure->name) ?: value_string(row, "device");
                        Sample s = unit_sample(u);

                        if (!entry || !value_unsigned(row, figure->path, &s.n))
                                continue;
                        s.labels[s.n_labels++] = (Label) { figure->label, entry };
                        s.kind = streq_ptr(figure->unit, "ns") ? SAMPLE_NSEC : SAMPLE_INTEGER;
                        s.created = figure->counter ? created(figure->metric, u) : 0;
                        r = output_add(o, &f, &s);
                        if (r < 0)
                                return r;
                }
        }
        return output_end(o);
}

static int write_tables(Output *o, const ExportedUnits *units) {
        for (size_t k = 0; k < ELEMENTSOF(table_figures); k++) {
                int r;

                r = write_table_figure(o, &table_figures[k], units);
                if (r < 0)
                        return r;
        }
        return 0;
}

/* ---- custom probes ------------------------------------------------------------------------------------ */

/* Limit of metrics of all custom probes, as many as the daemon may have. */
#define CUSTOM_METRICS_MAX 256U

static bool custom_is_same(sd_json_variant *a, sd_json_variant *b) {
        return streq_ptr(value_string(a, "probe"), value_string(b, "probe")) &&
                streq_ptr(value_string(a, "metric"), value_string(b, "metric"));
}

/* Calls handler for each entry of a metric of custom probes; NULL: of all metrics. */
static int foreach_custom(const ExportedUnits *units, sd_json_variant *metric,
                          int (*handler)(const ExportedUnit *u, sd_json_variant *entry, void *userdata),
                          void *userdata) {
        for (size_t i = 0; i < units->n; i++) {
                sd_json_variant *custom = value_find(units->items[i].unit, "custom");

                for (size_t k = 0; custom && k < sd_json_variant_elements(custom); k++) {
                        sd_json_variant *entry = sd_json_variant_by_index(custom, k);
                        int r = 0;

                        if (!metric || custom_is_same(metric, entry))
                                r = handler(units->items + i, entry, userdata);
                        if (r < 0)
                                return r;
                }
        }
        return 0;
}

typedef struct CustomMetrics {
        sd_json_variant *first[CUSTOM_METRICS_MAX];     /* an entry of each metric */
        size_t n;
} CustomMetrics;

static int collect_custom(const ExportedUnit *u, sd_json_variant *entry, void *userdata) {
        CustomMetrics *all = userdata;

        if (!value_string(entry, "probe") || !value_string(entry, "metric"))
                return -EBADMSG;
        for (size_t i = 0; i < all->n; i++)
                if (custom_is_same(all->first[i], entry))
                        return 0;
        if (all->n < CUSTOM_METRICS_MAX)
                all->first[all->n++] = entry;
        return 0;
}

typedef struct CustomFamily {
        Output *output;
        Family family;
        unsigned buckets_max;
} CustomFamily;

static void sample_set_labels(Sample *s, sd_json_variant *entry) {
        sd_json_variant *labels = value_find(entry, "labels");

        if (value_boolean(entry, "rest"))
                s->labels[s->n_labels++] = (Label) { "rest", "true" };
        for (size_t i = 0; labels && i + 1 < sd_json_variant_elements(labels) && s->n_labels < LABELS_MAX;
             i += 2)
                s->labels[s->n_labels++] = (Label) {
                        sd_json_variant_string(sd_json_variant_by_index(labels, i)),
                        sd_json_variant_string(sd_json_variant_by_index(labels, i + 1)),
                };
}

static int write_custom_entry(const ExportedUnit *u, sd_json_variant *entry, void *userdata) {
        _cleanup_sparse_histogram_ SparseHistogram h = {};
        CustomFamily *f = userdata;
        Sample s = unit_sample(u);
        int r;

        sample_set_labels(&s, entry);
        if (f->family.type == FAMILY_HISTOGRAM) {
                r = sparse_histogram_parse(entry, &h);
                if (r < 0)
                        return r;
                sparse_histogram_limit(&h, f->buckets_max);
                s.kind = SAMPLE_HISTOGRAM;
                s.histogram = &h;
        } else if (!value_unsigned(entry, "value", &s.n))
                return 0;
        else
                s.kind = streq_ptr(value_string(entry, "unit"), "ns") ? SAMPLE_NSEC : SAMPLE_INTEGER;
        return output_add(f->output, &f->family, &s);
}

/* Names of probes and metrics are letters and digits, of which different ones may differ by case alone:
 * they are not divided into words. */
static int write_custom_metric(Output *o, sd_json_variant *metric, unsigned buckets_max,
                               const ExportedUnits *units) {
        const char *unit = value_string(metric, "unit"), *type = value_string(metric, "type"),
                   *suffix = streq_ptr(unit, "ns") ? "seconds" : streq_ptr(unit, "bytes") ? "bytes" : NULL;
        _cleanup_free_ char *name = NULL;
        CustomFamily f = { .output = o, .buckets_max = buckets_max };
        int r;

        if (asprintf(&name, "qosd_custom_%s_%s%s%s", value_string(metric, "probe"),
                     value_string(metric, "metric"), suffix ? "_" : "", strempty(suffix)) < 0) {
                name = NULL;
                return -ENOMEM;
        }
        f.family = (Family) { .name = name, .unit = suffix, .help = value_string(metric, "description") };
        f.family.type = streq_ptr(type, "histogram") ? FAMILY_HISTOGRAM :
                        streq_ptr(type, "counter") ? FAMILY_COUNTER : FAMILY_GAUGE;
        r = foreach_custom(units, metric, write_custom_entry, &f);
        return r < 0 ? r : output_end(o);
}

static int write_custom(Output *o, unsigned buckets_max, const ExportedUnits *units) {
        CustomMetrics all = {};
        int r;

        r = foreach_custom(units, NULL, collect_custom, &all);
        for (size_t i = 0; i < all.n && r >= 0; i++)
                r = write_custom_metric(o, all.first[i], buckets_max, units);
        return r;
}

static int write_units(Output *o, const ExpositionOptions *options, const Replies *catalogue,
                       const ExportedUnits *units) {
        int r;

        r = write_info(o, units);
        for (size_t i = 0; r >= 0 && i < catalogue->n; i++)
                if (options->scope != EXPOSITION_REQUESTS ||
                    value_boolean(catalogue->items[i], "essential"))
                        r = write_metric(o, catalogue->items[i], options->buckets_max, units);
        if (r >= 0)
                r = write_drops(o, units);
        if (r >= 0)
                r = write_cost(o, options->scope, units);
        if (r >= 0)
                r = write_objectives(o, units);
        if (r >= 0 && options->scope != EXPOSITION_REQUESTS)
                r = write_custom(o, options->buckets_max, units);
        return r < 0 ? r : write_tables(o, units);
}

static size_t elements(sd_json_variant *v) {
        return v ? sd_json_variant_elements(v) : 0;
}

/* Returns an upper bound of the number of series, without formatting them. Distributions may have a second
 * one, the overflow. */
static uint64_t bound_series(const ExportedUnits *units) {
        uint64_t n = 0;

        for (size_t i = 0; i < units->n; i++) {
                const ExportedUnit *u = &units->items[i];

                n += 4 + elements(u->totals) / 2 + elements(u->gauges) / 2 + 2 * elements(u->histograms) +
                     3 * elements(value_find(u->unit, "objectives")) +
                     elements(value_find(u->unit, "custom"));
                if (i < units->n_tables)
                        n += ELEMENTSOF(table_figures) * (elements(value_find(u->unit, "endpoints")) +
                                                          elements(value_find(u->unit, "devices")) +
                                                          elements(value_find(u->unit, "mounts")) +
                                                          elements(value_find(u->unit, "dropReasons")));
        }
        return n;
}

static int count_series(const ExpositionOptions *options, const Replies *catalogue, ExportedUnit *unit,
                        bool tables, uint64_t *ret) {
        const ExportedUnits one = { .items = unit, .n = 1, .n_tables = tables };
        _cleanup_output_ Output o = { .writer = &count_writer, .state = ret };

        *ret = 0;
        return write_units(&o, options, catalogue, &one);
}

/* Drops as many units as necessary for the limit of series: first the endpoints and devices of the last
 * units, then the last units themselves. A histogram counts as one series. */
static int limit_series(const ExpositionOptions *options, const Replies *catalogue, ExportedUnits *units,
                        uint64_t *ret_dropped) {
        uint64_t sum = 0, kept = 0, all = 0, *tables;
        size_t n = 0;
        int r = 0;

        *ret_dropped = 0;
        if (options->series_max == 0 || bound_series(units) <= options->series_max)
                return 0;
        tables = new0(uint64_t, units->n + 1);
        if (!tables)
                return -ENOMEM;
        for (size_t i = 0; r >= 0 && i < units->n; i++) {
                uint64_t with = 0, without = 0;

                r = count_series(options, catalogue, &units->items[i], i < units->n_tables, &with);
                if (r >= 0)
                        r = count_series(options, catalogue, &units->items[i], false, &without);
                all += with;
                sum += without;
                tables[i] = with - without;
                if (sum <= options->series_max) {
                        kept = sum;
                        n = i + 1;
                }
        }
        if (r >= 0) {
                size_t n_tables = 0;

                for (; n == units->n && n_tables < units->n_tables &&
                       kept + tables[n_tables] <= options->series_max; n_tables++)
                        kept += tables[n_tables];
                units->n = n;
                units->n_tables = n_tables;
                *ret_dropped = all - kept;
        }
        free(tables);
        return r;
}

/* Applies scope and limit to the units. ret refers to exported. */
static int exported_units_limit(const ExpositionOptions *options, const Replies *catalogue,
                                const ExportedUnits *exported, ExportedUnits *ret, uint64_t *ret_dropped) {
        *ret = *exported;
        if (options->scope == EXPOSITION_EVERYTHING)
                ret->n_tables = ret->n;
        return limit_series(options, catalogue, ret, ret_dropped);
}

int exposition_visit(const Writer *writer, void *state, const ExpositionOptions *options,
                     const Replies *catalogue, const Replies *exports, uint64_t *ret_dropped) {
        _cleanup_output_ Output o = { .writer = writer, .state = state };
        _cleanup_exported_units_ ExportedUnits exported = {};
        ExportedUnits kept;
        int r;

        r = exported_units_new(exports, &exported);
        if (r >= 0)
                r = exported_units_limit(options, catalogue, &exported, &kept, ret_dropped);
        return r < 0 ? r : write_units(&o, options, catalogue, &kept);
}

int exposition_write(FILE *file, const ExpositionOptions *options, const Replies *catalogue,
                     const Replies *exports) {
        _cleanup_output_ Output o = output_new(file, options->format);
        _cleanup_exported_units_ ExportedUnits exported = {};
        ExportedUnits kept;
        uint64_t dropped;
        int r;

        r = exported_units_new(exports, &exported);
        if (r < 0)
                return r;
        r = exported_units_limit(options, catalogue, &exported, &kept, &dropped);
        if (r >= 0 && options->series_max > 0)
                r = exposition_write_gauge(file, options->format, "qosd_series_dropped", NULL,
                                           "Series of units that are left out, to stay within a limit",
                                           dropped);
        if (r >= 0)
                r = write_units(&o, options, catalogue, &kept);
        return r < 0 ? r : write_programs(&o, exports);
}

int exposition_write_gauge(FILE *file, Exposition format, const char *name, const char *unit,
                           const char *help, uint64_t n) {
        _cleanup_output_ Output o = output_new(file, format);
        const Family f = { .name = name, .unit = unit, .help = help, .type = FAMILY_GAUGE };
        const Sample s = { .n = n, .kind = streq_ptr(unit, "seconds") ? SAMPLE_NSEC : SAMPLE_INTEGER };
        int r;

        r = output_add(&o, &f, &s);
        return r < 0 ? r : output_end(&o);
}

void exposition_end(FILE *file, Exposition format) {
        if (format == EXPOSITION_OPENMETRICS || format == EXPOSITION_OPENMETRICS2)
                (void) fputs("# EOF\n", file);
}
