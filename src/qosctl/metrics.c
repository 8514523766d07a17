/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* What units have counted, in the text formats of Prometheus. */

#include <ctype.h>
#include <math.h>

#include "client.h"
#include "format.h"
#include "qosctl.h"
#include "terminal.h"
#include "unit-names.h"
#include "value.h"

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

static void print_escaped(const char *s, bool quotes) {
        for (; *s; s++)
                if (*s == '\n')
                        (void) fputs("\\n", stdout);
                else {
                        if (*s == '\\' || (*s == '"' && quotes))
                                (void) putchar('\\');
                        (void) putchar(*s);
                }
}

/* Integers are exact, also those of nanoseconds as seconds. */
static void print_number(uint64_t n, bool nsec) {
        if (nsec)
                (void) printf("%llu.%09llu", (unsigned long long) (n / NSEC_PER_SEC), (unsigned long long) (n % NSEC_PER_SEC));
        else
                (void) printf("%llu", (unsigned long long) n);
}

static void family_begin(Family *f, const char *help) {
        const char *end = arg_exposition == EXPOSITION_PROMETHEUS && streq(f->type, "counter") ? "_total" : "";

        if (f->told)
                return;
        f->told = true;
        (void) printf("# HELP %s%s ", f->name, end);
        print_escaped(help ?: "", arg_exposition == EXPOSITION_OPENMETRICS);
        (void) printf("\n# TYPE %s%s %s\n", f->name, end, f->type);
        if (arg_exposition == EXPOSITION_OPENMETRICS && f->suffix)
                (void) printf("# UNIT %s %s\n", f->name, f->suffix);
}

/* le: a power of two seconds, or INFINITY for the sum of all; NAN: no bucket. */
static void print_sample(const Family *f, const char *suffix, sd_json_variant *unit, double le, uint64_t n, bool nsec) {
        (void) printf("%s%s{unit=\"", f->name, suffix);
        print_escaped(value_string(unit, "name") ?: "", /* quotes= */ true);
        (void) putchar('"');
        if (isinf(le))
                (void) fputs(",le=\"+Inf\"", stdout);
        else if (!isnan(le)) /* as OpenMetrics writes numbers */
                (void) printf(",le=\"%.17g%s\"", le, le >= 1 ? ".0" : "");
        (void) fputs("} ", stdout);
        print_number(n, nsec);
        (void) putchar('\n');
}

/* From when on it is counted. What other probes than "requests" count begins with these. */
static void print_created(const Family *f, sd_json_variant *unit) {
        uint64_t since;

        if (arg_exposition == EXPOSITION_OPENMETRICS && startswith(f->metric, "requests.") &&
            value_unsigned(unit, "attachedSince", &since))
                print_sample(f, "_created", unit, NAN, since, /* nsec= */ true);
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
static int print_histogram(const Family *f, sd_json_variant *unit, sd_json_variant *h) {
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
                print_sample(f, "_bucket", unit, ldexp(1, e), n, /* nsec= */ false);
        }
        print_sample(f, "_bucket", unit, INFINITY, count, /* nsec= */ false);
        print_sample(f, "_sum", unit, NAN, sum, /* nsec= */ true);
        print_sample(f, "_count", unit, NAN, count, /* nsec= */ false);
        print_created(f, unit);
        return 0;
}

/* Returns 0 if no unit has the distribution. */
static int print_distribution(const char *metric, const char *help, const Replies *units) {
        _cleanup_free_ char *name = family_name(metric, "seconds");
        Family f = { .metric = metric, .name = name, .suffix = "seconds", .type = "histogram" };
        int r;

        if (!name)
                return -ENOMEM;
        for (size_t i = 0; i < units->n; i++) {
                sd_json_variant *u = value_find(units->items[i], "unit"), *h = find_histogram(u, metric);

                if (!h)
                        continue;
                family_begin(&f, help);
                r = print_histogram(&f, u, h);
                if (r < 0)
                        return r;
        }
        return f.told;
}

static int print_values(const char *metric, const char *unit, bool counter, const char *help, const Replies *units) {
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
                family_begin(&f, help);
                print_sample(&f, counter ? "_total" : "", u, NAN, n, streq_ptr(unit, "ns"));
                if (counter)
                        print_created(&f, u);
        }
        return 0;
}

/* One metric of the catalogue, of all units. */
static int print_metric(sd_json_variant *metric, const Replies *units) {
        const char *name = value_string(metric, "name"), *help = value_string(metric, "description");
        int r;

        if (!name)
                return -EBADMSG;

        /* The count of a distribution stands for the distribution */
        if (endswith(name, ".count")) {
                _cleanup_free_ char *distribution = strndup(name, strlen(name) - strlen(".count"));

                r = distribution ? print_distribution(distribution, help, units) : -ENOMEM;
                if (r != 0)
                        return r;
        }
        return print_values(name, value_string(metric, "unit"), streq_ptr(value_string(metric, "kind"), "counter"), help, units);
}

static void print_drops(const Replies *units) {
        Family f = { .metric = "requests.drops", .name = "qosd_drops", .type = "counter" };
        uint64_t n;

        for (size_t i = 0; i < units->n; i++) {
                sd_json_variant *u = value_find(units->items[i], "unit");

                if (!value_unsigned(u, "drops", &n))
                        continue;
                family_begin(&f, "Events of the unit that could not be recorded");
                print_sample(&f, "_total", u, NAN, n, /* nsec= */ false);
                print_created(&f, u);
        }
}

static void print_label(const char *name, const char *value, char end) {
        (void) printf("%s=\"", name);
        print_escaped(value ?: "", /* quotes= */ true);
        (void) printf("\"%c", end);
}

/* What changes of a unit without being a number, to be joined with the others. */
static void print_info(const Replies *units) {
        bool info = arg_exposition == EXPOSITION_OPENMETRICS;
        Family f = { .metric = "", .name = info ? "qosd_unit" : "qosd_unit_info", .type = info ? "info" : "gauge" };

        for (size_t i = 0; i < units->n; i++) {
                sd_json_variant *u = value_find(units->items[i], "unit");

                family_begin(&f, "The slice and the state of the unit");
                (void) fputs("qosd_unit_info{", stdout);
                print_label("unit", value_string(u, "name"), ',');
                print_label("slice", value_string(u, "slice"), ',');
                print_label("state", value_string(u, "activeState"), '}');
                (void) fputs(" 1\n", stdout);
        }
}

/* Programs that units need, of qosd as a whole. */
static void print_programs(const Replies *programs) {
        Family f = { .metric = "", .name = "qosd_program_attached", .type = "gauge" };

        for (size_t i = 0; i < programs->n; i++) {
                sd_json_variant *p = programs->items[i];
                const char *state = value_string(p, "state");

                if (!value_string(p, "program") || streq_ptr(state, "idle"))
                        continue;
                family_begin(&f, "Whether a BPF program that a unit needs is attached, and why not");
                (void) fputs("qosd_program_attached{", stdout);
                print_label("program", value_string(p, "program"), ',');
                print_label("reason", streq_ptr(state, "attached") ? NULL : value_string(p, "reason"), '}');
                (void) printf(" %i\n", streq_ptr(state, "attached"));
        }
}

/* Thresholds on quantiles, for alerts on how fast the error budget is used up. */
static void print_objectives(const Replies *units) {
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
                                sd_json_variant *o = sd_json_variant_by_index(objectives, j);
                                bool counter = streq(f.type, "counter");
                                double target = 0;
                                uint64_t n = 0;

                                if (counter ? !value_unsigned(o, families[k].key, &n) : !value_real(o, families[k].key, &target))
                                        continue;
                                family_begin(&f, families[k].help);
                                (void) printf("%s%s{unit=\"", f.name, counter ? "_total" : "");
                                print_escaped(value_string(u, "name") ?: "", /* quotes= */ true);
                                (void) fputs("\",threshold=\"", stdout);
                                print_escaped(value_string(o, "threshold") ?: "", /* quotes= */ true);
                                (void) fputs("\"} ", stdout);
                                if (counter)
                                        print_number(n, /* nsec= */ false);
                                else
                                        (void) printf("%.15g", target);
                                (void) putchar('\n');
                        }
                }
        }
}

/* Adds the units, without the last reply, which has none. */
static int export_units(Client *c, const char *unit, Replies *ret) {
        _cleanup_replies_ Replies replies = REPLIES_INIT;
        int r;

        r = client_call_morebo(c, QOS_METHOD("Export"), &replies,
                               SD_JSON_BUILD_PAIR_CONDITION(!!unit, "unit", SD_JSON_BUILD_STRING(unit)));
        if (r != 0)
                return unit ? unit_read_fail(r, &replies, unit) : client_fail(r, &replies, "export units");
        for (size_t i = 0; i < replies.n; i++)
                if (value_find(replies.items[i], "unit")) {
                        r = replies_add(ret, replies.items[i], NULL);
                        if (r < 0)
                                return log_out_of_memory();
                }
        return STATUS_OK;
}

int verb_metrics(int argc, char **argv) {
        _cleanup_replies_ Replies catalogue = REPLIES_INIT, units = REPLIES_INIT, programs = REPLIES_INIT;
        _cleanup_names_ Names names = NAMES_INIT;
        _cleanup_client_ Client *c = NULL;
        int r, status = STATUS_OK;

        r = client_connect(&c);
        if (r < 0)
                return r;

        if (argc > 0) {
                status = names_expand_attached(c, argc, argv, &names);
                if (status < 0)
                        return status;
                for (size_t i = 0; i < names.n; i++) {
                        r = export_units(c, names.items[i], &units);
                        if (r < 0)
                                return r;
                        status = status_combine(status, r);
                }
        } else {
                r = export_units(c, NULL, &units);
                if (r != STATUS_OK)
                        return r;
        }

        if (arg_json != JSON_OFF) {
                for (size_t i = 0; i < units.n; i++) {
                        r = json_print(value_find(units.items[i], "unit"));
                        if (r < 0)
                                return r;
                }
                return status;
        }

        r = client_call_more(c, QOS_METHOD("ListMetrics"), 0, NULL, &catalogue);
        if (r != 0)
                return client_fail(r, &catalogue, "list metrics");
        /* They are no unit's */
        if (argc == 0) {
                r = client_call_more(c, QOS_METHOD("Probes"), 0, NULL, &programs);
                if (r != 0)
                        return client_fail(r, &programs, "list the probes");
        }
        print_info(&units);
        for (size_t i = 0; i < catalogue.n; i++) {
                r = print_metric(catalogue.items[i], &units);
                if (r == -EBADMSG)
                        return log_failure(r, "Failed to read metrics: qosd sent an invalid reply.");
                if (r < 0)
                        return log_out_of_memory();
        }
        print_drops(&units);
        print_objectives(&units);
        print_programs(&programs);
        if (arg_exposition == EXPOSITION_OPENMETRICS)
                (void) printf("# EOF\n");

        return status;
}
