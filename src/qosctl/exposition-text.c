/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* OpenMetrics 1.0, and the text format 0.0.4 of Prometheus. */

#include <math.h>

#include "exposition-writer.h"

static void print_escaped(FILE *f, const char *s, bool quotes) {
        for (; *s; s++)
                if (*s == '\n')
                        (void) fputs("\\n", f);
                else {
                        if (*s == '\\' || (*s == '"' && quotes))
                                (void) putc('\\', f);
                        (void) putc(*s, f);
                }
}

/* Integers are exact, also those of nanoseconds as seconds. */
static void print_integer(FILE *f, uint64_t n, bool nsec) {
        if (nsec)
                (void) fprintf(f, "%llu.%09llu", (unsigned long long) (n / NSEC_PER_SEC),
                               (unsigned long long) (n % NSEC_PER_SEC));
        else
                (void) fprintf(f, "%llu", (unsigned long long) n);
}

/* The samples of a family have this behind its name. OpenMetrics leaves it out in the name of the family. */
static const char* suffix(FamilyType type) {
        return type == FAMILY_COUNTER ? "_total" : type == FAMILY_INFO ? "_info" : "";
}

static int text_begin(Output *o) {
        static const char *const types[_FAMILY_TYPE_MAX] = {
                [FAMILY_COUNTER]   = "counter",
                [FAMILY_GAUGE]     = "gauge",
                [FAMILY_INFO]      = "info",
                [FAMILY_HISTOGRAM] = "histogram",
        };
        bool openmetrics = o->format == EXPOSITION_OPENMETRICS;
        const char *end = openmetrics ? "" : suffix(o->family->type);
        FamilyType type = o->family->type;

        /* Prometheus' own format has no type for it */
        if (type == FAMILY_INFO && !openmetrics)
                type = FAMILY_GAUGE;
        (void) fprintf(o->file, "# HELP %s%s ", o->family->name, end);
        print_escaped(o->file, o->family->help ?: "", openmetrics);
        (void) fprintf(o->file, "\n# TYPE %s%s %s\n", o->family->name, end, types[type]);
        if (openmetrics && o->family->unit)
                (void) fprintf(o->file, "# UNIT %s %s\n", o->family->name, o->family->unit);
        return 0;
}

/* The labels between the braces, which all samples of a histogram begin with. NULL: out of memory. */
static char* format_labels(const Sample *sample) {
        char *text = NULL;
        size_t size;
        FILE *f;

        f = open_memstream(&text, &size);
        if (!f)
                return NULL;
        for (size_t i = 0; i < sample->n_labels; i++) {
                (void) fprintf(f, "%s%s=\"", i > 0 ? "," : "", sample->labels[i].name);
                print_escaped(f, sample->labels[i].value ?: "", /* quotes= */ true);
                (void) putc('"', f);
        }
        if (fclose(f) != 0) {
                free(text);
                return NULL;
        }
        return text;
}

/* le: the bound of a bucket, or NULL. */
static void print_name(Output *o, const char *end, const char *labels, const char *le) {
        (void) fputs(o->family->name, o->file);
        (void) fputs(end, o->file);
        if (!isempty(labels) || le) {
                (void) putc('{', o->file);
                (void) fputs(labels, o->file);
                if (le) {
                        (void) fputs(isempty(labels) ? "le=\"" : ",le=\"", o->file);
                        (void) fputs(le, o->file);
                        (void) putc('"', o->file);
                }
                (void) putc('}', o->file);
        }
        (void) putc(' ', o->file);
}

static void print_sample(Output *o, const char *end, const char *labels, const char *le, uint64_t n, bool nsec) {
        print_name(o, end, labels, le);
        print_integer(o->file, n, nsec);
        (void) putc('\n', o->file);
}

/* A bucket for each power of two, which adds buckets of ours without cutting one. */
static void print_histogram(Output *o, const char *labels, const SparseHistogram *h) {
        uint64_t n = h->zero;
        size_t i = 0;

        for (int e = SPARSE_MIN_EXPONENT; e <= SPARSE_MAX_EXPONENT; e++) {
                double bound = ldexp(1, e);
                char le[32];

                for (; i < h->n && h->buckets[i].index <= e * (1 << h->schema); i++)
                        n += h->buckets[i].n;
                /* As OpenMetrics writes numbers */
                (void) snprintf(le, sizeof(le), "%.17g%s", bound, bound >= 1 ? ".0" : "");
                print_sample(o, "_bucket", labels, le, n, /* nsec= */ false);
        }
        print_sample(o, "_bucket", labels, "+Inf", h->count, /* nsec= */ false);
        print_sample(o, "_sum", labels, NULL, h->sum, /* nsec= */ true);
        print_sample(o, "_count", labels, NULL, h->count, /* nsec= */ false);
}

static int text_add(Output *o, const Sample *sample) {
        const char *end = suffix(o->family->type);
        _cleanup_free_ char *labels = NULL;

        labels = format_labels(sample);
        if (!labels)
                return -ENOMEM;
        switch (sample->kind) {
        case SAMPLE_HISTOGRAM:
                print_histogram(o, labels, sample->histogram);
                break;
        case SAMPLE_REAL:
                print_name(o, end, labels, NULL);
                (void) fprintf(o->file, "%.15g\n", sample->real);
                break;
        case SAMPLE_INTEGER:
        case SAMPLE_NSEC:
                print_sample(o, end, labels, NULL, sample->n, sample->kind == SAMPLE_NSEC);
                break;
        }
        if (o->format == EXPOSITION_OPENMETRICS && sample->created > 0)
                print_sample(o, "_created", labels, NULL, sample->created, /* nsec= */ true);
        return 0;
}

static int text_end(Output *o) {
        return 0;
}

const Writer text_writer = {
        .begin = text_begin,
        .add = text_add,
        .end = text_end,
};
