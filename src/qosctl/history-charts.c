/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <math.h>

#include "history-charts.h"
#include "state-label.h"
#include "value.h"

#define SERVER "requests.server."

int history_charts_init(sd_json_variant *reply, HistoryCharts *ret) {
        *ret = (HistoryCharts) { .reply = reply };
        return history_time_make(reply, &ret->time);
}

void history_charts_done(HistoryCharts *c) {
        for (size_t i = 0; i < c->n; i++)
                for (size_t k = 0; k < c->list[i].chart.n_series; k++)
                        free(c->list[i].series[k].values);
        c->n = 0;
        history_time_done(&c->time);
}

/* NULL: there are too many. */
static HistoryChart* add_chart(HistoryCharts *c, SvgChart chart) {
        HistoryChart *h;

        if (c->n >= CHARTS_MAX)
                return NULL;
        h = &c->list[c->n++];
        h->chart = chart;
        h->chart.begin = c->time.begin;
        h->chart.step = c->time.step;
        h->chart.slots = c->time.slots;
        h->chart.observed = c->time.observed;
        return h;
}

/* Takes the values; NULL: out of memory. */
static int add_series(HistoryChart *chart, const char *name, double *values) {
        size_t n;

        if (!values)
                return -ENOMEM;
        if (!chart || chart->chart.n_series >= CHART_SERIES_MAX) {
                free(values);
                return -E2BIG;
        }
        n = chart->chart.n_series;
        /* The last color is for what is of little interest */
        chart->series[n] = (SvgSeries) { name, (unsigned) (n % (SVG_COLORS - 1)), values };
        chart->chart.n_series++;
        return 0;
}

static const char* title_of(const char *unit) {
        return streq_ptr(unit, "ns")    ? "Duration" :
               streq_ptr(unit, "share") ? "Share" :
               streq_ptr(unit, "1/s")   ? "Per second" :
               streq_ptr(unit, "bytes") ? "Bytes" :
                                          "Number";
}

int history_charts_add_metric(HistoryCharts *c, const char *metric, const char *unit) {
        HistoryChart *chart = NULL;

        if (isempty(unit))
                return -EINVAL;
        if (streq(unit, "1") && (strstr(metric, ".shares.") || endswith(metric, ".share")))
                unit = "share";
        for (size_t i = 0; i < c->n && !chart; i++)
                if (streq_ptr(c->list[i].chart.unit, unit))
                        chart = &c->list[i];
        if (!chart)
                chart = add_chart(c, (SvgChart) { .title = title_of(unit), .unit = unit });
        return add_series(chart, startswith(metric, SERVER) ?: metric,
                          history_get_series(c->reply, &c->time, metric));
}

int history_charts_of_requests(sd_json_variant *reply, HistoryCharts *ret) {
        static const char *const latencies[][2] = {
                { "p50",  SERVER "latency.p50"  },
                { "p90",  SERVER "latency.p90"  },
                { "p99",  SERVER "latency.p99"  },
                { "max",  SERVER "latency.max"  },
        };
        HistoryChart *chart;
        int r;

        r = history_charts_init(reply, ret);
        if (r < 0)
                return r;

        chart = add_chart(ret, (SvgChart) { .title = "Requests and errors", .unit = "1/s" });
        r = add_series(chart, "requests", history_get_series(reply, &ret->time, SERVER "rate"));
        if (r >= 0)
                r = add_series(chart, "errors", history_get_errors(reply, &ret->time));

        chart = add_chart(ret, (SvgChart) { .title = "Latency", .unit = "ns", .logarithmic = true });
        for (size_t i = 0; i < ELEMENTSOF(latencies) && r >= 0; i++)
                r = add_series(chart, latencies[i][0],
                               history_get_series(reply, &ret->time, latencies[i][1]));

        chart = add_chart(ret, (SvgChart) { .title = "Requests in flight", .unit = "1" });
        if (r >= 0)
                r = add_series(chart, "in flight",
                               history_get_series(reply, &ret->time, SERVER "inFlight"));
        if (r < 0)
                history_charts_done(ret);
        return r;
}

int history_charts_add_threads(HistoryCharts *c) {
        static const char *const states[][2] = {
                { "running",   "contention.threads.running"   },
                { "runQueue",  "contention.threads.runQueue"  },
                { "throttled", "contention.threads.throttled" },
                { "lock",      "contention.threads.lock"      },
                { "disk",      "contention.threads.disk"      },
                { "memory",    "contention.threads.memory"    },
                { "stopped",   "contention.threads.stopped"   },
                { "other",     "contention.threads.other"     },
        };
        HistoryChart *chart;
        bool some = false;
        int r = 0;

        chart = add_chart(c, (SvgChart) {
                .title = "Threads that run or wait for a resource, on average",
                .unit = "1",
                .stacked = true,
        });
        if (!chart)
                return -E2BIG;
        for (size_t i = 0; i < ELEMENTSOF(states) && r >= 0; i++) {
                double *values = history_get_series(c->reply, &c->time, states[i][1]);

                for (size_t k = 0; values && k < c->time.slots; k++)
                        some |= !isnan(values[k]);
                r = add_series(chart, thread_state_label(states[i][0]), values);
        }
        if (r >= 0 && some)
                return 0;
        /* Without the probe "cpu" */
        for (size_t k = 0; k < chart->chart.n_series; k++)
                free(chart->series[k].values);
        c->n--;
        return r;
}

void history_charts_print(FILE *f, const HistoryCharts *c) {
        const char *unit = strempty(value_string(c->reply, "unit"));

        svg_begin(f, unit, (unsigned) c->n * SVG_CHART_HEIGHT + 26, /* alone= */ true);
        (void) fputs("<text class=\"t\" x=\"8\" y=\"18\">", f);
        svg_print_text(f, unit);
        (void) fputs("</text>\n", f);
        for (size_t i = 0; i < c->n; i++) {
                SvgChart chart = c->list[i].chart;

                chart.series = c->list[i].series;
                svg_print_chart(f, &chart, 26 + (unsigned) i * SVG_CHART_HEIGHT);
        }
        svg_end(f);
}
