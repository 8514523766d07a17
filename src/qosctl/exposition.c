/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <ctype.h>
#include <math.h>

#include "exposition.h"
#include "value.h"

typedef struct Output {
        FILE *file;
        Exposition format;
} Output;

/* Powers of two seconds between which Export() has buckets: the bounds of those that are printed. */
#define MIN_EXPONENT (-22)
#define MAX_EXPONENT 6
/* Schemas in which all of these are bounds. */
#define SCHEMA_MAX 8

/* All samples of one name, which have to stand together. */
typedef struct Family {
        const char *metric;             /* as in the catalogue */
        const char *name;
        const char *suffix;             /* "seconds", "bytes", or NULL */
        const char *type;
        bool told;                      /* what it is has been printed */
} Family;

/* "requests.server.bytesIn" in bytes is "qosd_requests_server_in_bytes", "requests.server.count" is
 * "qosd_requests_server". */
static char* family_name(const char *metric, const char *suffix) {
        char *name, *p;

        /* Each letter may get a line in front of it */
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

static void print_escaped(const Output *o, const char *s, bool quotes) {
        for (; *s; s++)
                if (*s == '\n')
                        (void) fputs("\\n", o->file);
                else {
                        if (*s == '\\' || (*s == '"' && quotes))
                                (void) putc('\\', o->file);
                        (void) putc(*s, o->file);
                }
}

/* Integers are exact, also those of nanoseconds as seconds. */
static void print_number(const Output *o, uint64_t n, bool nsec) {
        if (nsec)
                (void) fprintf(o->file, "%llu.%09llu", (unsigned long long) (n / NSEC_PER_SEC),
                               (unsigned long long) (n % NSEC_PER_SEC));
        else
                (void) fprintf(o->file, "%llu", (unsigned long long) n);
}

static void family_begin(const Output *o, Family *f, const char *help) {
        const char *end = o->format == EXPOSITION_PROMETHEUS && streq(f->type, "counter") ? "_total" : "";

        if (f->told)
                return;
        f->told = true;
        (void) fprintf(o->file, "# HELP %s%s ", f->name, end);
        print_escaped(o, help ?: "", o->format == EXPOSITION_OPENMETRICS);
        (void) fprintf(o->file, "\n# TYPE %s%s %s\n", f->name, end, f->type);
        if (o->format == EXPOSITION_OPENMETRICS && f->suffix)
                (void) fprintf(o->file, "# UNIT %s %s\n", f->name, f->suffix);
}

/* le: a power of two seconds, or INFINITY for the sum of all; NAN: no bucket. */
static void print_sample(const Output *o, const Family *f, const char *suffix, sd_json_variant *unit, double le,
                         uint64_t n, bool nsec) {
        (void) fprintf(o->file, "%s%s{unit=\"", f->name, suffix);
        print_escaped(o, value_string(unit, "name") ?: "", /* quotes= */ true);
        (void) putc('"', o->file);
        if (isinf(le))
                (void) fputs(",le=\"+Inf\"", o->file);
        else if (!isnan(le)) /* as OpenMetrics writes numbers */
                (void) fprintf(o->file, ",le=\"%.17g%s\"", le, le >= 1 ? ".0" : "");
        (void) fputs("} ", o->file);
        print_number(o, n, nsec);
        (void) putc('\n', o->file);
}

/* From when on it is counted. What other probes than "requests" count begins with these. */
static void print_created(const Output *o, const Family *f, sd_json_variant *unit) {
        uint64_t since;

        if (o->format == EXPOSITION_OPENMETRICS && startswith(f->metric, "requests.") &&
            value_unsigned(unit, "attachedSince", &since))
                print_sample(o, f, "_created", unit, NAN, since, /* nsec= */ true);
}

static sd_json_variant* find_histogram(sd_json_variant *unit, const char *metric) {
        sd_json_variant *histograms = value_find(unit, "histograms");

        for (size_t i = 0; histograms && i < sd_json_variant_elements(histograms); i++) {
                sd_json_variant *h = sd_json_variant_by_index(histograms, i);

                if (streq_ptr(value_string(h, "metric"), metric))
                        return h;
        }
        return NULL;
}

/* A bucket for each power of two, which adds buckets of ours without cutting one. */
static int print_histogram(const Output *o, const Family *f, sd_json_variant *unit, sd_json_variant *h) {
        sd_json_variant *indexes = value_find(h, "indexes"), *counts = value_find(h, "counts");
        uint64_t schema, sum, count, n = 0;
        size_t next = 0;

        if (!indexes || !counts || !value_unsigned(h, "schema", &schema) || schema > SCHEMA_MAX || !value_unsigned(h, "sum", &sum) ||
            !value_unsigned(h, "count", &count) || sd_json_variant_elements(indexes) != sd_json_variant_elements(counts))
                return -EBADMSG;

        for (int e = MIN_EXPONENT; e <= MAX_EXPONENT; e++) {
                for (; next < sd_json_variant_elements(indexes); next++) {
                        if (sd_json_variant_integer(sd_json_variant_by_index(indexes, next)) > (int64_t) e * (1 << schema))
                                break;
                        n += sd_json_variant_unsigned(sd_json_variant_by_index(counts, next));
                }
                print_sample(o, f, "_bucket", unit, ldexp(1, e), n, /* nsec= */ false);
        }
        print_sample(o, f, "_bucket", unit, INFINITY, count, /* nsec= */ false);
        print_sample(o, f, "_sum", unit, NAN, sum, /* nsec= */ true);
        print_sample(o, f, "_count", unit, NAN, count, /* nsec= */ false);
        print_created(o, f, unit);
        return 0;
}

/* Returns 0 if no unit has the distribution. */
static int print_distribution(const Output *o, const char *metric, const char *help, const Replies *units) {
        _cleanup_free_ char *name = family_name(metric, "seconds");
        Family f = { .metric = metric, .name = name, .suffix = "seconds", .type = "histogram" };
        int r;

        if (!name)
                return -ENOMEM;
        for (size_t i = 0; i < units->n; i++) {
                sd_json_variant *u = value_find(units->items[i], "unit"), *h = find_histogram(u, metric);

                if (!h)
                        continue;
                family_begin(o, &f, help);
                r = print_histogram(o, &f, u, h);
                if (r < 0)
                        return r;
        }
        return f.told;
}

static int print_values(const Output *o, const char *metric, const char *unit, bool counter, const char *help,
                        const Replies *units) {
        const char *suffix = streq_ptr(unit, "ns") ? "seconds" : streq_ptr(unit, "bytes") ? "bytes" : NULL;
        _cleanup_free_ char *name = family_name(metric, suffix);
        Family f = { .metric = metric, .name = name, .suffix = suffix, .type = counter ? "counter" : "gauge" };
        uint64_t n;

        if (!name)
                return -ENOMEM;
        for (size_t i = 0; i < units->n; i++) {
                sd_json_variant *u = value_find(units->items[i], "unit"), *values = value_find(u, counter ? "totals" : "gauges");

                if (!values || !value_unsigned(values, metric, &n))
                        continue;
                family_begin(o, &f, help);
                print_sample(o, &f, counter ? "_total" : "", u, NAN, n, streq_ptr(unit, "ns"));
                if (counter)
                        print_created(o, &f, u);
        }
        return 0;
}

/* One metric of the catalogue, of all units. */
static int print_metric(const Output *o, sd_json_variant *metric, const Replies *units) {
        const char *name = value_string(metric, "name"), *help = value_string(metric, "description");
        int r;

        if (!name)
                return -EBADMSG;

        /* The count of a distribution stands for the distribution */
        if (endswith(name, ".count")) {
                _cleanup_free_ char *distribution = strndup(name, strlen(name) - strlen(".count"));

                r = distribution ? print_distribution(o, distribution, help, units) : -ENOMEM;
                if (r != 0)
                        return r;
        }
        return print_values(o, name, value_string(metric, "unit"), streq_ptr(value_string(metric, "kind"), "counter"),
                            help, units);
}

static void print_drops(const Output *o, const Replies *units) {
        Family f = { .metric = "requests.drops", .name = "qosd_drops", .type = "counter" };
        uint64_t n;

        for (size_t i = 0; i < units->n; i++) {
                sd_json_variant *u = value_find(units->items[i], "unit");

                if (!value_unsigned(u, "drops", &n))
                        continue;
                family_begin(o, &f, "Events of the unit that could not be recorded");
                print_sample(o, &f, "_total", u, NAN, n, /* nsec= */ false);
                print_created(o, &f, u);
        }
}

static void print_label(const Output *o, const char *name, const char *value, char end) {
        (void) fprintf(o->file, "%s=\"", name);
        print_escaped(o, value ?: "", /* quotes= */ true);
        (void) fprintf(o->file, "\"%c", end);
}

/* What changes of a unit without being a number, to be joined with the others. */
static void print_info(const Output *o, const Replies *units) {
        bool info = o->format == EXPOSITION_OPENMETRICS;
        Family f = { .metric = "", .name = info ? "qosd_unit" : "qosd_unit_info", .type = info ? "info" : "gauge" };

        for (size_t i = 0; i < units->n; i++) {
                sd_json_variant *u = value_find(units->items[i], "unit");

                family_begin(o, &f, "The slice and the state of the unit");
                (void) fputs("qosd_unit_info{", o->file);
                print_label(o, "unit", value_string(u, "name"), ',');
                print_label(o, "slice", value_string(u, "slice"), ',');
                print_label(o, "state", value_string(u, "activeState"), '}');
                (void) fputs(" 1\n", o->file);
        }
}

/* Programs that units need, of qosd as a whole. */
static void print_programs(const Output *o, const Replies *programs) {
        Family f = { .metric = "", .name = "qosd_program_attached", .type = "gauge" };

        for (size_t i = 0; i < programs->n; i++) {
                sd_json_variant *p = programs->items[i];
                const char *state = value_string(p, "state");

                if (!value_string(p, "program") || streq_ptr(state, "idle"))
                        continue;
                family_begin(o, &f, "Whether a BPF program that a unit needs is attached, and why not");
                (void) fputs("qosd_program_attached{", o->file);
                print_label(o, "program", value_string(p, "program"), ',');
                print_label(o, "reason", streq_ptr(state, "attached") ? NULL : value_string(p, "reason"), '}');
                (void) fprintf(o->file, " %i\n", streq_ptr(state, "attached"));
        }
}

/* Thresholds on quantiles, for alerts on how fast the error budget is used up. */
static void print_objectives(const Output *o, const Replies *units) {
        static const struct {
                const char *key, *help;
                Family family;
        } families[] = {
                { "good",   "Requests within the limit of the threshold",
                  { .metric = "", .name = "qosd_objective_good",         .type = "counter" } },
                { "total",  "Requests since the threshold was set",
                  { .metric = "", .name = "qosd_objective_requests",     .type = "counter" } },
                { "target", "Share of requests that has to be within the limit of the threshold",
                  { .metric = "", .name = "qosd_objective_target_ratio", .type = "gauge"   } },
        };

        for (size_t k = 0; k < ELEMENTSOF(families); k++) {
                Family f = families[k].family;

                for (size_t i = 0; i < units->n; i++) {
                        sd_json_variant *u = value_find(units->items[i], "unit"), *objectives = value_find(u, "objectives");

                        for (size_t j = 0; objectives && j < sd_json_variant_elements(objectives); j++) {
                                sd_json_variant *objective = sd_json_variant_by_index(objectives, j);
                                bool counter = streq(f.type, "counter");
                                double target = 0;
                                uint64_t n = 0;

                                if (counter ? !value_unsigned(objective, families[k].key, &n)
                                            : !value_real(objective, families[k].key, &target))
                                        continue;
                                family_begin(o, &f, families[k].help);
                                (void) fprintf(o->file, "%s%s{unit=\"", f.name, counter ? "_total" : "");
                                print_escaped(o, value_string(u, "name") ?: "", /* quotes= */ true);
                                (void) fputs("\",threshold=\"", o->file);
                                print_escaped(o, value_string(objective, "threshold") ?: "", /* quotes= */ true);
                                (void) fputs("\"} ", o->file);
                                if (counter)
                                        print_number(o, n, /* nsec= */ false);
                                else
                                        (void) fprintf(o->file, "%.15g", target);
                                (void) putc('\n', o->file);
                        }
                }
        }
}

int exposition_write(FILE *file, Exposition format, const Replies *catalogue, const Replies *units,
                     const Replies *programs) {
        const Output *o = &(const Output) { .file = file, .format = format };
        int r;

        print_info(o, units);
        for (size_t i = 0; i < catalogue->n; i++) {
                r = print_metric(o, catalogue->items[i], units);
                if (r < 0)
                        return r;
        }
        print_drops(o, units);
        print_objectives(o, units);
        print_programs(o, programs);
        return 0;
}
