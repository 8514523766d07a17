/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* OpenMetrics 1.0 and 2.0, and the text format 0.0.4 of Prometheus. */

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

/* The samples of a family have this behind its name. OpenMetrics 1.0 leaves it out in the name of the family. */
static const char* suffix(FamilyType type) {
        return type == FAMILY_COUNTER ? "_total" : type == FAMILY_INFO ? "_info" : "";
}

static void print_metadata(Output *o, const char *what) {
        (void) fprintf(o->file, "# %s %s%s ", what, o->family->name,
                       o->format == EXPOSITION_OPENMETRICS ? "" : suffix(o->family->type));
}

static void print_help(Output *o) {
        print_metadata(o, "HELP");
        print_escaped(o->file, strempty(o->family->help), o->format != EXPOSITION_PROMETHEUS);
        (void) putc('\n', o->file);
}

static int text_begin(Output *o) {
        static const char *const types[_FAMILY_TYPE_MAX] = {
                [FAMILY_COUNTER]   = "counter",
                [FAMILY_GAUGE]     = "gauge",
                [FAMILY_INFO]      = "info",
                [FAMILY_HISTOGRAM] = "histogram",
        };
        FamilyType type = o->family->type;

        /* Prometheus' own format has no type for it */
        if (type == FAMILY_INFO && o->format == EXPOSITION_PROMETHEUS)
                type = FAMILY_GAUGE;
        if (o->format != EXPOSITION_OPENMETRICS2)
                print_help(o);
        print_metadata(o, "TYPE");
        (void) fprintf(o->file, "%s\n", types[type]);
        if (o->format != EXPOSITION_PROMETHEUS && o->family->unit) {
                print_metadata(o, "UNIT");
                (void) fprintf(o->file, "%s\n", o->family->unit);
        }
        if (o->format == EXPOSITION_OPENMETRICS2)
                print_help(o);
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

/* The bound of a bucket, as OpenMetrics writes numbers. All histograms have the same ones, and to format each
 * of them again takes 7 ms of a scrape of 64 units. */
static const char* bound_string(int exponent) {
        static char strings[SPARSE_MAX_EXPONENT - SPARSE_MIN_EXPONENT + 1][32];
        char *s = strings[exponent - SPARSE_MIN_EXPONENT];
        double bound = ldexp(1, exponent);

        if (!*s)
                (void) snprintf(s, sizeof(strings[0]), "%.17g%s", bound, bound >= 1 ? ".0" : "");
        return s;
}

/* A bucket for each power of two, which adds buckets of ours without cutting one. */
static void print_histogram(Output *o, const char *labels, const SparseHistogram *h) {
        for (int e = SPARSE_MIN_EXPONENT; e <= SPARSE_MAX_EXPONENT; e++)
                print_sample(o, "_bucket", labels, bound_string(e), sparse_histogram_count_to(h, e),
                             /* nsec= */ false);
        print_sample(o, "_bucket", labels, "+Inf", h->count, /* nsec= */ false);
        print_sample(o, "_sum", labels, NULL, h->sum, /* nsec= */ true);
        print_sample(o, "_count", labels, NULL, h->count, /* nsec= */ false);
}

/* Each gap between buckets begins a span: the number of empty ones, and that of those that follow. */
static void print_spans(FILE *f, const SparseHistogram *h) {
        int next = 0;

        for (size_t i = 0, end; i < h->n; i = end) {
                for (end = i + 1; end < h->n && h->buckets[end].index == h->buckets[end - 1].index + 1; )
                        end++;
                (void) fprintf(f, "%s%d:%zu", i > 0 ? "," : "", h->buckets[i].index - next, end - i);
                next = h->buckets[end - 1].index + 1;
        }
}

/* A histogram as one value, with native buckets and those of the other text formats. */
static void print_composite(Output *o, const char *labels, const SparseHistogram *h) {
        print_name(o, "", labels, NULL);
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
        for (int e = SPARSE_MIN_EXPONENT; e <= SPARSE_MAX_EXPONENT; e++)
                (void) fprintf(o->file, "%s:%" PRIu64 ",", bound_string(e),
                               sparse_histogram_count_to(h, e));
        (void) fprintf(o->file, "+Inf:%" PRIu64 "]}", h->count);
}

static int text_add(Output *o, const Sample *sample) {
        const char *end = suffix(o->family->type);
        _cleanup_free_ char *labels = NULL;

        labels = format_labels(sample);
        if (!labels)
                return -ENOMEM;
        switch (sample->kind) {
        case SAMPLE_HISTOGRAM:
                if (o->format == EXPOSITION_OPENMETRICS2)
                        print_composite(o, labels, sample->histogram);
                else
                        print_histogram(o, labels, sample->histogram);
                break;
        case SAMPLE_REAL:
                print_name(o, end, labels, NULL);
                (void) fprintf(o->file, "%.15g", sample->real);
                break;
        case SAMPLE_INTEGER:
        case SAMPLE_NSEC:
                print_name(o, end, labels, NULL);
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
