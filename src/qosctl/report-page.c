/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <inttypes.h>
#include <math.h>

#include "config-build.h"
#include "format.h"
#include "report-page.h"
#include "state-label.h"
#include "value.h"

#define SERVER "requests.server."

/* ---- elements ----------------------------------------------------------------------------------------- */

static void print_element(FILE *f, const char *element, const char *text) {
        (void) fprintf(f, "<%s>", element);
        svg_print_text(f, text);
        (void) fprintf(f, "</%.*s>\n", (int) strcspn(element, " "), element);
}

static void _printf_(3, 4) print_formatted(FILE *f, const char *element, const char *format, ...) {
        _cleanup_free_ char *text = NULL;
        va_list ap;
        int r;

        va_start(ap, format);
        r = vasprintf(&text, format, ap);
        va_end(ap);
        if (r < 0)
                text = NULL;
        print_element(f, element, strempty(text));
}

static size_t elements(sd_json_variant *v) {
        return v && (sd_json_variant_is_array(v) || sd_json_variant_is_object(v)) ?
                       sd_json_variant_elements(v) :
                       0;
}

/* A cell with a value as it is written in tables; "-": absent. */
static void print_value(FILE *f, sd_json_variant *v, const char *path, const char *unit) {
        char buf[FORMAT_MAX];
        uint64_t n;
        double d;

        if (streq(unit, "ns") && value_unsigned(v, path, &n))
                print_element(f, "td class=n", format_duration(buf, n));
        else if (streq(unit, "bytes") && value_unsigned(v, path, &n))
                print_element(f, "td class=n", format_bytes(buf, n));
        else if (streq(unit, "1/s") && value_real(v, path, &d))
                print_element(f, "td class=n", format_rate(buf, d));
        else if (streq(unit, "share") && value_real(v, path, &d))
                print_element(f, "td class=n", format_percent(buf, d));
        else if (streq(unit, "1") && value_unsigned(v, path, &n))
                print_element(f, "td class=n", format_count(buf, n));
        else
                (void) fputs("<td class=n>-</td>\n", f);
}

static void print_head(FILE *f, const char *const columns[], size_t n) {
        (void) fputs("<table><thead><tr>", f);
        for (size_t i = 0; i < n; i++)
                print_formatted(f, i == 0 ? "th" : "th class=n", "%s", columns[i]);
        (void) fputs("</tr></thead><tbody>\n", f);
}

static void print_foot(FILE *f) {
        (void) fputs("</tbody></table>\n", f);
}

/* ---- summary ------------------------------------------------------------------------------------------ */

typedef struct Sums {
        uint64_t count, errors, observed, maximum;
} Sums;

static Sums sums_of(sd_json_variant *history) {
        sd_json_variant *steps = value_find(history, "steps");
        Sums sums = {};

        for (size_t i = 0; i < elements(steps); i++) {
                sd_json_variant *s = sd_json_variant_by_index(steps, i), *errors;
                uint64_t n;

                if (value_unsigned(s, SERVER "count", &n))
                        sums.count += n;
                if (value_unsigned(s, "covered", &n))
                        sums.observed += n;
                if (value_unsigned(s, SERVER "latency.max", &n))
                        sums.maximum = MAX(sums.maximum, n);
                errors = value_find(s, SERVER "errors");
                for (size_t k = 1; k < elements(errors); k += 2) {
                        sd_json_variant *e = sd_json_variant_by_index(errors, k);

                        sums.errors += sd_json_variant_is_unsigned(e) ? sd_json_variant_unsigned(e) : 0;
                }
        }
        return sums;
}

static void print_summary(FILE *f, const Report *r) {
        char a[FORMAT_MAX], b[FORMAT_MAX], c[FORMAT_MAX], d[FORMAT_MAX], e[FORMAT_MAX];
        const char *verdict = value_string(r->diagnosis, "verdict");
        Sums sums = sums_of(r->history);
        uint64_t p50, p99;

        (void) fputs("<section><h2>Summary</h2>\n", f);
        if (r->diagnosis) {
                print_formatted(f, streq_ptr(verdict, "found") ? "p class=bad" : "p class=lead", "%s: %s",
                                r->unit, strempty(value_string(r->diagnosis, "summary")));
                print_element(f, "p", strempty(value_string(r->diagnosis, "text")));
        }
        if (sums.observed == 0)
                (void) fputs("<p>Nothing is recorded of this period.</p>\n", f);
        else if (sums.count == 0)
                print_formatted(f, "p", "No requests in %s of this period that were observed, %" PRIu64
                                " failed.", format_span(a, sums.observed), sums.errors);
        else
                print_formatted(f, "p",
                                "%s requests in %s of this period that were observed (%s); %s failed (%s). "
                                "The slowest response took %s.",
                                format_count(a, sums.count), format_span(b, sums.observed),
                                format_rate(c, (double) sums.count * (double) NSEC_PER_SEC /
                                               (double) sums.observed),
                                format_count(d, sums.errors),
                                format_percent(e, (double) sums.errors /
                                                  (double) (sums.count + sums.errors)),
                                format_duration((char[FORMAT_MAX]) {}, sums.maximum));
        if (value_unsigned(r->snapshots[REPORT_WINDOWS - 1], SERVER "latency.p50", &p50) &&
            value_unsigned(r->snapshots[REPORT_WINDOWS - 1], SERVER "latency.p99", &p99))
                print_formatted(f, "p",
                                "Since the attach, half of the responses took up to %s, and 99 %% up to %s.",
                                format_duration(a, p50), format_duration(b, p99));
        (void) fputs("</section>\n", f);
}

/* ---- figures ------------------------------------------------------------------------------------------ */

static const struct {
        const char *label, *path, *unit;
} figures[] = {
        { "Requests",               SERVER "count",               "1"     },
        { "Rate",                   SERVER "rate",                "1/s"   },
        { "Connections reset",      SERVER "errors.reset",        "1"     },
        { "Timeouts",               SERVER "errors.timeout",      "1"     },
        { "HTTP status 5xx",        SERVER "errors.status5xx",    "1"     },
        { "gRPC errors",            SERVER "errors.grpc",         "1"     },
        { "Error replies",          SERVER "errors.replies",      "1"     },
        { "HTTP status 4xx",        SERVER "status4xx",           "1"     },
        { "Aborted by clients",     SERVER "clientAborts",        "1"     },
        { "Latency, mean",          SERVER "latency.mean",        "ns"    },
        { "Latency, p50",           SERVER "latency.p50",         "ns"    },
        { "Latency, p90",           SERVER "latency.p90",         "ns"    },
        { "Latency, p99",           SERVER "latency.p99",         "ns"    },
        { "Latency, p99.9",         SERVER "latency.p999",        "ns"    },
        { "Latency, max",           SERVER "latency.max",         "ns"    },
        { "Time to first byte, p99", SERVER "firstByte.p99",      "ns"    },
        { "Bytes in",               SERVER "bytesIn",             "bytes" },
        { "Bytes out",              SERVER "bytesOut",            "bytes" },
        { "Connections accepted",   SERVER "connections.accepted", "1"    },
        { "Connections dropped",    SERVER "connections.listenDrops", "1" },
        { "Requests to peers",      "requests.client.count",      "1"     },
        { "Their latency, p99",     "requests.client.latency.p99", "ns"   },
        { "CPU time of qosd's programs", "cost.share",            "share" },
};

static void print_figures(FILE *f, const Report *r) {
        static const char *const columns[] = { "", "last 10s", "last 5min", "since the attach" };

        (void) fputs("<section><h2>Figures</h2>\n", f);
        print_head(f, columns, ELEMENTSOF(columns));
        for (size_t i = 0; i < ELEMENTSOF(figures); i++) {
                bool some = false;

                for (size_t k = 0; k < REPORT_WINDOWS; k++)
                        some |= !!value_find(r->snapshots[k], figures[i].path);
                if (!some)
                        continue;
                (void) fputs("<tr>", f);
                print_element(f, "td", figures[i].label);
                for (size_t k = 0; k < REPORT_WINDOWS; k++)
                        print_value(f, r->snapshots[k], figures[i].path, figures[i].unit);
                (void) fputs("</tr>\n", f);
        }
        print_foot(f);
        (void) fputs("</section>\n", f);
}

/* Parts of a whole as a bar with a legend. */
typedef struct Part {
        const char *name;
        double value;
        const char *text;       /* NULL: only the share */
} Part;

static void print_bar(FILE *f, const char *title, const Part *parts, size_t n) {
        double whole = 0, x = 0;

        for (size_t i = 0; i < n; i++)
                whole += parts[i].value;
        if (whole <= 0)
                return;
        print_element(f, "h3", title);
        (void) fprintf(f, "<svg class=\"qos\" role=\"img\" viewBox=\"0 0 %u 26\"><title>", SVG_WIDTH);
        svg_print_text(f, title);
        (void) fputs("</title>\n", f);
        for (size_t i = 0; i < n; i++) {
                double width = parts[i].value / whole * SVG_WIDTH;

                (void) fprintf(f, "<rect class=\"a%zu\" x=\"%.1f\" width=\"%.1f\" height=\"26\"/>\n",
                               MIN(i, (size_t) SVG_COLORS - 1), x, width);
                x += width;
        }
        (void) fputs("</svg><p class=k>\n", f);
        for (size_t i = 0; i < n; i++) {
                char buf[FORMAT_MAX];

                (void) fprintf(f, "<span><svg class=\"qos\" viewBox=\"0 0 10 10\"><rect class=\"a%zu\" "
                               "width=\"10\" height=\"10\"/></svg> ",
                               MIN(i, (size_t) SVG_COLORS - 1));
                svg_print_text(f, parts[i].name);
                (void) fputc(' ', f);
                if (parts[i].text)
                        svg_print_text(f, parts[i].text);
                (void) fprintf(f, " (%s)</span>\n",
                               format_percent(buf, parts[i].value / whole));
        }
        (void) fputs("</p>\n", f);
}

static void print_phases(FILE *f, sd_json_variant *snapshot) {
        static const char *const phases[][2] = {
                { "receive", SERVER "receive.mean" },
                { "queue",   SERVER "queue.mean"   },
                { "service", SERVER "service.mean" },
                { "send",    SERVER "answer.mean"  },
        };
        char texts[ELEMENTSOF(phases)][FORMAT_MAX];
        Part parts[ELEMENTSOF(phases)];
        uint64_t n;

        for (size_t i = 0; i < ELEMENTSOF(phases); i++) {
                if (!value_unsigned(snapshot, phases[i][1], &n))
                        return;
                parts[i] = (Part) { phases[i][0], (double) n, format_duration(texts[i], n) };
        }
        print_bar(f, "Phases of a request, mean", parts, ELEMENTSOF(parts));
}

static void print_states(FILE *f, sd_json_variant *snapshot, const char *title, const char *path) {
        sd_json_variant *shares = value_find(snapshot, path);
        Part parts[32];
        size_t n = 0;

        for (size_t i = 0; i + 1 < elements(shares) && n < ELEMENTSOF(parts); i += 2) {
                const char *state = sd_json_variant_string(sd_json_variant_by_index(shares, i));
                double share;

                if (value_real(shares, state, &share) && share >= 0.0005)
                        parts[n++] = (Part) { thread_state_label(state), share, NULL };
        }
        print_bar(f, title, parts, n);
}

static void print_time(FILE *f, const Report *r) {
        sd_json_variant *s = r->snapshots[REPORT_WINDOWS - 1];

        (void) fputs("<section><h2>Where the time goes</h2><p>Since the attach.</p>\n", f);
        print_phases(f, s);
        print_states(f, s, "The thread that responds, during the service of a request",
                     SERVER "service.shares");
        print_states(f, s, "All threads", "contention.shares");
        (void) fputs("</section>\n", f);
}

/* ---- charts ------------------------------------------------------------------------------------------- */

static int print_charts(FILE *f, const Report *r) {
        _cleanup_(history_charts_done) HistoryCharts charts = {};
        _cleanup_(heatmap_done) Heatmap heatmap = {};
        int k;

        k = history_charts_of_requests(r->history, &charts);
        if (k == -ENODATA || k == -ERANGE) {
                print_formatted(f, "p", "%s", k == -ENODATA ?
                                "No complete step of the history is recorded for this period." :
                                "The clock was set in this period.");
                return 0;
        }
        if (k >= 0)
                k = history_charts_add_threads(&charts);
        if (k >= 0)
                k = heatmap_make(value_find(r->buckets, "steps"), SERVER "latency", charts.time.step,
                                 charts.time.slots, &heatmap);
        if (k < 0)
                return k;
        for (size_t i = 0; i < charts.n; i++) {
                SvgChart chart = charts.list[i].chart;

                chart.series = charts.list[i].series;
                svg_begin(f, chart.title, SVG_CHART_HEIGHT, /* alone= */ false);
                svg_print_chart(f, &chart, 0);
                svg_end(f);
        }
        if (heatmap.rows > 0) {
                svg_begin(f, "Latency, share of requests", SVG_HEATMAP_HEIGHT, /* alone= */ false);
                svg_print_heatmap(f, &heatmap, "Latency, share of requests", 0);
                svg_end(f);
        }
        return 0;
}

/* ---- diagnosis and thresholds ------------------------------------------------------------------------- */

static void print_diagnosis(FILE *f, const Report *r) {
        sd_json_variant *findings = value_find(r->diagnosis, "findings"),
                        *excluded = value_find(r->diagnosis, "excluded");

        (void) fputs("<section><h2>Diagnosis</h2>\n", f);
        if (!r->diagnosis)
                print_formatted(f, "p", "There is none: %s.", strempty(r->diagnosis_error));
        else if (elements(findings) == 0)
                print_element(f, "p", strempty(value_string(r->diagnosis, "summary")));
        for (size_t i = 0; i < elements(findings); i++) {
                sd_json_variant *v = sd_json_variant_by_index(findings, i);

                print_formatted(f, "h3", "%s (%s)", strempty(value_string(v, "kind")),
                                strempty(value_string(v, "certainty")));
                print_element(f, "p", strempty(value_string(v, "text")));
                print_element(f, "p class=s", strempty(value_string(v, "rule")));
                if (value_string(v, "next")) {
                        (void) fputs("<p>Next: ", f);
                        print_element(f, "code", value_string(v, "next"));
                        (void) fputs("</p>\n", f);
                }
        }
        if (elements(excluded) > 0)
                (void) fputs("<h3>Examined, and below the limits of their rules</h3><ul>\n", f);
        for (size_t i = 0; i < elements(excluded); i++) {
                sd_json_variant *v = sd_json_variant_by_index(excluded, i);

                print_formatted(f, "li", "%s: %s", strempty(value_string(v, "kind")),
                                strempty(value_string(v, "text")));
        }
        (void) fputs(elements(excluded) > 0 ? "</ul></section>\n" : "</section>\n", f);
}

static void print_thresholds(FILE *f, const Report *r) {
        static const char *const columns[] = { "Threshold", "State", "Value", "Burn rate 1h" },
                                *const changes[] = { "Time", "State", "" };

        (void) fputs("<section><h2>Thresholds</h2>\n", f);
        if (elements(r->thresholds) == 0)
                (void) fputs("<p>The unit has none.</p>\n", f);
        else {
                print_head(f, columns, ELEMENTSOF(columns));
                for (size_t i = 0; i < elements(r->thresholds); i++) {
                        sd_json_variant *t = value_find(sd_json_variant_by_index(r->thresholds, i),
                                                        "threshold");
                        const char *metric = strempty(value_string(t, "metric")),
                                   *state = strempty(value_string(t, "state"));
                        double value;
                        char buf[FORMAT_MAX];

                        (void) fputs("<tr>", f);
                        print_element(f, "td", strempty(value_string(t, "threshold")));
                        print_element(f, streq(state, "violated") ? "td class=bad" : "td", state);
                        if (!value_real(t, "value", &value))
                                (void) fputs("<td class=n>-</td>", f);
                        else if (value >= 0 && (strstr(metric, "atency") || strstr(metric, "firstByte")))
                                print_element(f, "td class=n", format_duration(buf, (uint64_t) value));
                        else
                                print_formatted(f, "td class=n", "%.4g", value);
                        if (value_real(t, "burnRate1h", &value))
                                print_formatted(f, "td class=n", "%.2f", value);
                        else
                                (void) fputs("<td class=n>-</td>", f);
                        (void) fputs("</tr>\n", f);
                }
                print_foot(f);
        }
        if (r->crossings && elements(r->crossings) == 0)
                (void) fputs("<p>No change of a state in this period is in the part of the journal that "
                             "could be read.</p>\n", f);
        if (elements(r->crossings) > 0) {
                (void) fputs("<h3>Changes</h3>\n", f);
                print_head(f, changes, ELEMENTSOF(changes));
                for (size_t i = 0; i < elements(r->crossings); i++) {
                        sd_json_variant *c = sd_json_variant_by_index(r->crossings, i);
                        uint64_t at = 0;
                        char buf[FORMAT_MAX];

                        (void) value_time(c, "timestamp", &at);
                        (void) fputs("<tr>", f);
                        print_element(f, "td", format_timestamp(buf, at));
                        print_element(f, "td", strempty(value_string(c, "state")));
                        print_element(f, "td", strempty(value_string(c, "text")));
                        (void) fputs("</tr>\n", f);
                }
                print_foot(f);
        }
        (void) fputs("</section>\n", f);
}

/* ---- endpoints and peers ------------------------------------------------------------------------------ */

static void print_rows(FILE *f, sd_json_variant *rows, const char *title, const char *name) {
        const char *const columns[] = { title, "Unit", "Requests", "Errors", "p50", "p99", "In", "Out" };

        if (elements(rows) == 0)
                return;
        print_head(f, columns, ELEMENTSOF(columns));
        for (size_t i = 0; i < elements(rows); i++) {
                sd_json_variant *v = sd_json_variant_by_index(rows, i), *errors = value_find(v, "errors");
                uint64_t n = 0;
                char buf[FORMAT_MAX];

                for (size_t k = 1; k < elements(errors); k += 2) {
                        sd_json_variant *e = sd_json_variant_by_index(errors, k);

                        n += sd_json_variant_is_unsigned(e) ? sd_json_variant_unsigned(e) : 0;
                }
                (void) fputs("<tr>", f);
                print_element(f, "td",
                              value_boolean(v, "rest") ? "others" : strempty(value_string(v, name)));
                print_element(f, "td", strempty(value_string(v, "unit")));
                print_value(f, v, "count", "1");
                print_element(f, "td class=n", errors ? format_count(buf, n) : "-");
                print_value(f, v, "latency.p50", "ns");
                print_value(f, v, "latency.p99", "ns");
                print_value(f, v, "bytesIn", "bytes");
                print_value(f, v, "bytesOut", "bytes");
                (void) fputs("</tr>\n", f);
        }
        print_foot(f);
}

static void print_addresses(FILE *f, const Report *r) {
        sd_json_variant *s = r->snapshots[REPORT_WINDOWS - 1],
                        *endpoints = value_find(s, SERVER "endpoints"),
                        *peers = value_find(s, "requests.client.peers");

        if (elements(endpoints) + elements(peers) == 0)
                return;
        (void) fputs("<section><h2>Endpoints and peers</h2><p>Since the attach.</p>\n", f);
        print_rows(f, endpoints, "Endpoint", "listen");
        print_rows(f, peers, "Peer", "peer");
        (void) fputs("</section>\n", f);
}

/* ---- page --------------------------------------------------------------------------------------------- */

static int print_raw(FILE *f, const Report *r) {
        _cleanup_free_ char *text = NULL;
        sd_json_variant *v = NULL;
        int k;

        k = sd_json_buildo(&v,
                SD_JSON_BUILD_PAIR_CONDITION(!!r->status, "status", SD_JSON_BUILD_VARIANT(r->status)),
                SD_JSON_BUILD_PAIR_CONDITION(!!r->snapshots[0], "window10s",
                                             SD_JSON_BUILD_VARIANT(r->snapshots[0])),
                SD_JSON_BUILD_PAIR_CONDITION(!!r->snapshots[1], "window5min",
                                             SD_JSON_BUILD_VARIANT(r->snapshots[1])),
                SD_JSON_BUILD_PAIR_CONDITION(!!r->snapshots[2], "total",
                                             SD_JSON_BUILD_VARIANT(r->snapshots[2])),
                SD_JSON_BUILD_PAIR_CONDITION(!!r->diagnosis, "diagnosis",
                                             SD_JSON_BUILD_VARIANT(r->diagnosis)),
                SD_JSON_BUILD_PAIR_CONDITION(!!r->thresholds, "thresholds",
                                             SD_JSON_BUILD_VARIANT(r->thresholds)),
                SD_JSON_BUILD_PAIR_CONDITION(!!r->crossings, "changes", SD_JSON_BUILD_VARIANT(r->crossings)),
                SD_JSON_BUILD_PAIR_VARIANT("history", r->history),
                SD_JSON_BUILD_PAIR_VARIANT("latency", r->buckets));
        if (k >= 0)
                k = sd_json_variant_format(v, 0, &text);
        (void) sd_json_variant_unref(v);
        if (k < 0)
                return k;
        (void) fputs("<details><summary>Raw data (JSON)</summary><pre id=raw>", f);
        svg_print_text(f, text);
        (void) fputs("</pre></details>\n", f);
        return 0;
}

static void print_style(FILE *f) {
        (void) fputs("<style>:root{color-scheme:light dark}"
                     "body{font:15px/1.45 system-ui,sans-serif;max-width:940px;margin:2em auto;"
                     "padding:0 1em;overflow-wrap:anywhere}"
                     "h1{font-size:1.5em;margin-bottom:0}h2{font-size:1.2em;margin:1.6em 0 .4em}"
                     "h3{font-size:1em;margin:1em 0 .3em}p{margin:.4em 0}.lead{font-weight:600}"
                     ".bad{font-weight:600;color:#c02020}.s{opacity:.75}"
                     "table{border-collapse:collapse;margin:.5em 0;display:block;overflow-x:auto}"
                     "td,th{padding:.15em .7em .15em 0;text-align:left;border-bottom:1px solid #8884;"
                     "min-width:4em;overflow-wrap:normal}"
                     ".n{text-align:right;white-space:nowrap}svg{width:100%;height:auto}"
                     "div{overflow-x:auto}div svg{min-width:640px}"
                     ".k span{margin-right:1.2em;white-space:nowrap}.k svg{width:.8em}"
                     "pre{white-space:pre-wrap;font-size:12px}"
                     "@media print{details{display:none}section,svg{break-inside:avoid}}", f);
        svg_print_style(f);
        (void) fputs("</style>\n", f);
}

int report_print(FILE *f, const Report *r) {
        char since[FORMAT_MAX], until[FORMAT_MAX], now[FORMAT_MAX];
        int k;

        (void) fputs("<!DOCTYPE html>\n<html lang=en><head><meta charset=utf-8>"
                     "<meta http-equiv=Content-Security-Policy "
                     "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
                     "<meta name=viewport content=\"width=device-width, initial-scale=1\">\n", f);
        print_formatted(f, "title", "%s: quality of service", r->unit);
        print_style(f);
        (void) fputs("</head><body>\n", f);
        print_element(f, "h1", r->unit);
        print_formatted(f, "p class=s", "%s%s%s to %s", strempty(r->host), r->host ? ", " : "",
                        format_timestamp(since, r->since), format_timestamp(until, r->until));
        if (r->redacted)
                (void) fputs("<p class=s>Names of hosts, peers, endpoints, files and other units are "
                             "replaced by numbers.</p>\n", f);

        print_summary(f, r);
        (void) fputs("<section><h2>Over time</h2><div>\n", f);
        k = print_charts(f, r);
        if (k < 0)
                return k;
        (void) fputs("</div></section>\n", f);
        print_diagnosis(f, r);
        print_thresholds(f, r);
        print_figures(f, r);
        print_time(f, r);
        print_addresses(f, r);
        print_formatted(f, "p class=s", "Written at %s by qosctl %s, from qosd %s.",
                        format_timestamp(now, r->now), QOSD_VERSION,
                        strempty(value_string(r->status, "version")));
        k = print_raw(f, r);
        if (k < 0)
                return k;
        (void) fputs("</body></html>\n", f);
        return ferror(f) ? -EIO : 0;
}
