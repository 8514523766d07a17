/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "exposition-report.h"
#include "exposition-writer.h"
#include "table.h"
#include "value.h"

typedef struct ReportUnit {
        const char *name;               /* owned by the reply */
        uint64_t series[_EXPOSITION_SCOPE_MAX], exported;
} ReportUnit;

/* State of the writer. Within a family, units are in the order of the replies. */
typedef struct Report {
        ReportUnit *units;
        size_t n, next;
        Table *histograms;
} Report;

static void report_done(Report *report) {
        free(report->units);
        (void) table_free(report->histograms);
}

#define _cleanup_report_ _cleanup_(report_done)

static int report_begin(Output *o) {
        Report *report = o->state;

        report->next = 0;
        return 0;
}

static int report_add(Output *o, const Sample *sample) {
        const char *name = strempty(sample->labels[0].value);
        Report *report = o->state;
        Table *t = report->histograms;

        while (report->next < report->n && !streq(report->units[report->next].name, name))
                report->next++;
        if (report->next < report->n)
                report->units[report->next].exported++;

        if (sample->kind != SAMPLE_HISTOGRAM)
                return 0;
        table_add(t, COLOR_NONE, "%s", name);
        table_add(t, COLOR_NONE, "%s", o->family->name);
        table_add(t, COLOR_NONE, "%d", sample->histogram->schema);
        table_add(t, COLOR_NONE, "%zu", sample->histogram->n);
        table_add(t, COLOR_NONE, "%d", sample->histogram->finest);
        return 0;
}

static int report_end(Output *o) {
        return 0;
}

static const Writer report_writer = {
        .begin = report_begin,
        .add = report_add,
        .end = report_end,
};

/* Counts the series of each unit in each scope, without limits. */
static int count_series(const Replies *catalogue, const Replies *exports, Report *report) {
        report->units = new0(ReportUnit, exports->n);
        if (!report->units)
                return -ENOMEM;
        for (size_t i = 0; i < exports->n; i++) {
                const Replies one = { .items = exports->items + i, .n = 1 };
                ReportUnit *u = &report->units[report->n];

                if (!value_find(exports->items[i], "unit"))
                        continue;
                u->name = strempty(value_string(exports->items[i], "unit.name"));
                for (ExpositionScope scope = 0; scope < _EXPOSITION_SCOPE_MAX; scope++) {
                        const ExpositionOptions options = { .scope = scope };
                        uint64_t dropped;
                        int r;

                        r = exposition_visit(&count_writer, &u->series[scope], &options, catalogue, &one,
                                             &dropped);
                        if (r < 0)
                                return r;
                }
                report->n++;
        }
        return 0;
}

int exposition_report(FILE *file, bool legend, const ExpositionOptions *options, const Replies *catalogue,
                      const Replies *exports) {
        /* Without width and colors of the terminal, which are those of standard output */
        static const Style style = {};
        static const Column unit_columns[] = {
                { "UNIT" },
                { "REQUESTS",   .right = true },
                { "PROBES",     .right = true },
                { "EVERYTHING", .right = true },
                { "EXPORTED",   .right = true },
        };
        static const Column histogram_columns[] = {
                { "UNIT" },
                { "HISTOGRAM" },
                { "SCHEMA",  .right = true },
                { "BUCKETS", .right = true },
                { "FINEST",  .right = true },
        };
        _cleanup_(table_freep) Table *t = NULL;
        _cleanup_report_ Report report = {};
        uint64_t exported = 0, dropped;
        int r;

        t = table_new(unit_columns, ELEMENTSOF(unit_columns));
        report.histograms = table_new(histogram_columns, ELEMENTSOF(histogram_columns));
        if (!t || !report.histograms)
                return -ENOMEM;
        r = count_series(catalogue, exports, &report);
        if (r >= 0)
                r = exposition_visit(&report_writer, &report, options, catalogue, exports, &dropped);
        if (r < 0)
                return r;

        for (size_t i = 0; i < report.n; i++) {
                const ReportUnit *u = &report.units[i];

                table_add(t, COLOR_NONE, "%s", u->name);
                for (ExpositionScope scope = 0; scope < _EXPOSITION_SCOPE_MAX; scope++)
                        table_add(t, COLOR_NONE, "%" PRIu64, u->series[scope]);
                table_add(t, COLOR_NONE, "%" PRIu64, u->exported);
                exported += u->exported;
        }
        r = table_print(t, file, &style, legend, 0);
        if (r >= 0 && table_rows(report.histograms) > 0) {
                (void) putc('\n', file);
                r = table_print(report.histograms, file, &style, legend, 0);
        }
        if (r >= 0 && legend)
                (void) fprintf(file, "%s%" PRIu64 " series of units exported, %" PRIu64 " dropped.\n",
                               report.n > 0 ? "\n" : "", exported, dropped);
        return r;
}
