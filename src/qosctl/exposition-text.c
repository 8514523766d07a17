/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* OpenMetrics 1.0 and 2.0, and the text format 0.0.4 of Prometheus. */

#include <math.h>

#include "exposition-writer.h"

/* Buffer size for a number of 64 bits with decimal point and terminating NUL. */
#define NUMBER_MAX 22U
/* Decimals of seconds with a resolution of nanoseconds. */
#define FRACTION_DIGITS 9U

/* Writes up to twice as many bytes as s has, and a terminating NUL, to which it returns a pointer. */
static char* escape(char *p, const char *s, bool quotes) {
        for (; *s; s++)
                if (*s == '\n')
                        p = stpcpy(p, "\\n");
                else {
                        if (*s == '\\' || (*s == '"' && quotes))
                                *p++ = '\\';
                        *p++ = *s;
                }
        *p = 0;
        return p;
}

/* Writes an integer, or nanoseconds as seconds, exactly. Nearly all of a scrape are numbers, for which
 * fprintf() would take most of the time. */
static void print_integer(FILE *f, uint64_t n, bool nsec) {
        char text[NUMBER_MAX], *p = text + sizeof(text);
        unsigned digits = 0;

        *--p = 0;
        do {
                if (nsec && digits == FRACTION_DIGITS)
                        *--p = '.';
                *--p = (char) ('0' + n % 10);
                n /= 10;
                digits++;
        } while (n > 0 || (nsec && digits <= FRACTION_DIGITS));
        (void) fputs(p, f);
}

/* Suffix of the names of samples. In OpenMetrics 1.0 the name of the family is without it. */
static const char* suffix(FamilyType type) {
        return type == FAMILY_COUNTER ? "_total" : type == FAMILY_INFO ? "_info" : "";
}

static void print_metadata(Output *o, const char *what) {
        (void) fprintf(o->file, "# %s %s%s ", what, o->family->name,
                       o->format == EXPOSITION_OPENMETRICS ? "" : suffix(o->family->type));
}

static int print_help(Output *o) {
        const char *help = strempty(o->family->help);
        _cleanup_free_ char *text = malloc(2 * strlen(help) + 1);

        if (!text)
                return -ENOMEM;
        (void) escape(text, help, /* quotes= */ o->format != EXPOSITION_PROMETHEUS);
        print_metadata(o, "HELP");
        (void) fprintf(o->file, "%s\n", text);
        return 0;
}

static int text_begin(Output *o) {
        static const char *const types[_FAMILY_TYPE_MAX] = {
                [FAMILY_COUNTER]   = "counter",
                [FAMILY_GAUGE]     = "gauge",
                [FAMILY_INFO]      = "info",
                [FAMILY_HISTOGRAM] = "histogram",
        };
        FamilyType type = o->family->type;
        int r = 0;

        /* Prometheus' own format has no type info */
        if (type == FAMILY_INFO && o->format == EXPOSITION_PROMETHEUS)
                type = FAMILY_GAUGE;
        if (o->format != EXPOSITION_OPENMETRICS2)
                r = print_help(o);
        print_metadata(o, "TYPE");
        (void) fprintf(o->file, "%s\n", types[type]);
        if (o->format != EXPOSITION_PROMETHEUS && o->family->unit) {
                print_metadata(o, "UNIT");
                (void) fprintf(o->file, "%s\n", o->family->unit);
        }
        if (o->format == EXPOSITION_OPENMETRICS2)
                r = print_help(o);
        return r;
}

/* Formats the labels between the braces. All samples of a histogram begin with them. NULL: out of memory. */
static char* format_labels(const Sample *sample) {
        size_t size = 1;
        char *text, *p;

        for (size_t i = 0; i < sample->n_labels; i++)
                size += strlen(sample->labels[i].name) + 2 * strlen(strempty(sample->labels[i].value)) +
                        strlen(",=\"\"");
        text = p = malloc(size);
        if (!text)
                return NULL;
        *p = 0;
        for (size_t i = 0; i < sample->n_labels; i++) {
                p = stpcpy(p, i > 0 ? "," : "");
                p = stpcpy(p, sample->labels[i].name);
                p = stpcpy(p, "=\"");
                p = escape(p, strempty(sample->labels[i].value), /* quotes= */ true);
                p = stpcpy(p, "\"");
        }
        return text;
}

static void print_name(Output *o, const char *end, const char *labels) {
        (void) fputs(o->family->name, o->file);
        (void) fputs(end, o->file);
        if (!isempty(labels)) {
                (void) putc('{', o->file);
                (void) fputs(labels, o->file);
                (void) putc('}', o->file);
        }
        (void) putc(' ', o->file);
}

static void print_sample(Output *o, const char *end, const char *labels, uint64_t n, bool nsec) {
        print_name(o, end, labels);
        print_integer(o->file, n, nsec);
        (void) putc('\n', o->file);
}

/* Formats the bound of a bucket in the canonical form of OpenMetrics. The strings are cached, as all
 * histograms have the same ones: formatting them each time takes 7 ms of a scrape of 64 units. */
static const char* bound_string(int exponent) {
        static char strings[SPARSE_MAX_EXPONENT - SPARSE_MIN_EXPONENT + 1][32];
        char *s = strings[exponent - SPARSE_MIN_EXPONENT];
        double bound = ldexp(1, exponent);

        if (!*s)
                (void) snprintf(s, sizeof(strings[0]), "%.17g%s", bound, bound >= 1 ? ".0" : "");
        return s;
}

static void print_bucket(Output *o, const char *prefix, const char *bound, uint64_t n) {
        (void) fputs(prefix, o->file);
        (void) fputs(bound, o->file);
        (void) fputs("\"} ", o->file);
        print_integer(o->file, n, /* nsec= */ false);
        (void) putc('\n', o->file);
}

/* Writes a bucket for each power of two, as all schemas have these bounds. */
static int print_histogram(Output *o, const char *labels, const SparseHistogram *h) {
        _cleanup_free_ char *prefix = NULL;
        uint64_t counts[SPARSE_OCTAVES];

        if (asprintf(&prefix, "%s_bucket{%s%sle=\"", o->family->name, labels,
                     isempty(labels) ? "" : ",") < 0) {
                prefix = NULL;
                return -ENOMEM;
        }
        sparse_histogram_accumulate(h, counts);
        for (size_t i = 0; i < SPARSE_OCTAVES; i++)
                print_bucket(o, prefix, bound_string(SPARSE_MIN_EXPONENT + (int) i), counts[i]);
        print_bucket(o, prefix, "+Inf", h->count);
        print_sample(o, "_sum", labels, h->sum, /* nsec= */ true);
        print_sample(o, "_count", labels, h->count, /* nsec= */ false);
        return 0;
}

/* Writes spans of adjacent buckets: number of empty buckets before the span, and its length. */
static void print_spans(FILE *f, const SparseHistogram *h) {
        int next = 0;

        for (size_t i = 0, end; i < h->n; i = end) {
                for (end = i + 1; end < h->n && h->buckets[end].index == h->buckets[end - 1].index + 1; )
                        end++;
                (void) fprintf(f, "%s%d:%zu", i > 0 ? "," : "", h->buckets[i].index - next, end - i);
                next = h->buckets[end - 1].index + 1;
        }
}

/* Writes a histogram as one value, with native buckets and classic ones. */
static void print_composite(Output *o, const char *labels, const SparseHistogram *h) {
        uint64_t counts[SPARSE_OCTAVES];

        print_name(o, "", labels);
        (void) fprintf(o->file, "{count:%" PRIu64 ",sum:", h->count);
        print_integer(o->file, h->sum, /* nsec= */ true);
        (void) fprintf(o->file, ",schema:%d,zero_threshold:%s,zero_count:%" PRIu64, h->schema,
                       bound_string(SPARSE_MIN_EXPONENT), h->zero);
        if (h->n > 0) {
                (void) fputs(",positive_spans:[", o->file);
                print_spans(o->file, h);
                (void) fputs("],positive_buckets:[", o->file);
                for (size_t i = 0; i < h->n; i++)
                        (void) fprintf(o->file, "%s%" PRIu64, i > 0 ? "," : "", h->buckets[i].n);
                (void) putc(']', o->file);
        }
        (void) fputs(",bucket:[", o->file);
        sparse_histogram_accumulate(h, counts);
        for (size_t i = 0; i < SPARSE_OCTAVES; i++)
                (void) fprintf(o->file, "%s:%" PRIu64 ",", bound_string(SPARSE_MIN_EXPONENT + (int) i),
                               counts[i]);
        (void) fprintf(o->file, "+Inf:%" PRIu64 "]}", h->count);
}

static int text_add(Output *o, const Sample *sample) {
        const char *end = suffix(o->family->type);
        _cleanup_free_ char *labels = NULL;
        int r = 0;

        labels = format_labels(sample);
        if (!labels)
                return -ENOMEM;
        switch (sample->kind) {
        case SAMPLE_HISTOGRAM:
                if (o->format == EXPOSITION_OPENMETRICS2)
                        print_composite(o, labels, sample->histogram);
                else
                        r = print_histogram(o, labels, sample->histogram);
                break;
        case SAMPLE_REAL:
                print_name(o, end, labels);
                (void) fprintf(o->file, "%.15g", sample->real);
                break;
        case SAMPLE_INTEGER:
        case SAMPLE_NSEC:
                print_name(o, end, labels);
                print_integer(o->file, sample->n, sample->kind == SAMPLE_NSEC);
                break;
        }
        if (o->format == EXPOSITION_OPENMETRICS2 && sample->created > 0) {
                (void) fputs(" st@", o->file);
                print_integer(o->file, sample->created, /* nsec= */ true);
        }
        if (o->format == EXPOSITION_OPENMETRICS2 || sample->kind != SAMPLE_HISTOGRAM)
                (void) putc('\n', o->file);
        if (o->format == EXPOSITION_OPENMETRICS && sample->created > 0)
                print_sample(o, "_created", labels, sample->created, /* nsec= */ true);
        return r;
}

static int text_end(Output *o) {
        return 0;
}

const Writer text_writer = {
        .begin = text_begin,
        .add = text_add,
        .end = text_end,
};
