/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <inttypes.h>
#include <pwd.h>
#include <stdarg.h>

#include "format.h"
#include "histogram-view.h"
#include "qosctl.h"
#include "snapshot.h"
#include "snapshot-view.h"
#include "state-label.h"
#include "thresholds.h"
#include "unit-names.h"
#include "value.h"

#define SERVER "requests.server."
#define KEY_WIDTH 16
/* Enough to show a bimodal distribution, without filling the screen. */
#define HISTOGRAM_ROWS 12U

/* The line that is being composed, without a newline; NULL: none, or no memory. */
static char *line;

_printf_(1, 0) static void line_append(const char *format, va_list ap) {
        _cleanup_free_ char *more = NULL;
        char *whole;

        if (vasprintf(&more, format, ap) < 0) {
                more = NULL;
                return;
        }
        if (asprintf(&whole, "%s%s", strempty(line), more) < 0)
                return;
        free(line);
        line = whole;
}

/* Adds to the line. Nothing else may print before line_end(). */
_printf_(1, 2) static void line_add(const char *format, ...) {
        va_list ap;

        va_start(ap, format);
        line_append(format, ap);
        va_end(ap);
}

/* Prints the line. What is behind a key, or indented as if it were, continues there on a narrow terminal. */
static void line_end(void) {
        const char *text = strempty(line);
        size_t n = strspn(text, " ");
        char key[2 * KEY_WIDTH] = "";

        if (n <= KEY_WIDTH)
                n = strlen(text) > KEY_WIDTH + 2 && startswith(text + KEY_WIDTH, ": ") ? KEY_WIDTH + 2 : 0;
        if (n > 0 && n < sizeof(key)) {
                (void) snprintf(key, n + 1, "%s", text);
                print_colored(key, text + n);
        } else
                (void) printf("%s\n", text);
        free(line);
        line = NULL;
}

static void print_key(const char *key) {
        line_add("%*s%s", KEY_WIDTH, key, *key ? ": " : "  ");
}

_printf_(2, 3) static void print_line(const char *key, const char *format, ...) {
        va_list ap;

        print_key(key);
        va_start(ap, format);
        line_append(format, ap);
        va_end(ap);
        line_end();
}

/* Prints untrusted text in a color. */
static void print_text(Color color, const char *s) {
        const Style *style = terminal_style();
        _cleanup_free_ char *clean = text_clean(s, style->utf8);

        line_add("%s%s%s", color_on(style, color), strempty(clean), color == COLOR_NONE ? "" : color_off(style));
}

/* Prints a list item such as "3 reset"; returns whether there was one. */
static bool print_item(const Reading *r, const char *metric, const char *separator, const char *what, Color color, bool zero) {
        const Style *style = terminal_style();
        char buf[FORMAT_MAX];
        uint64_t n;

        if (!reading_unsigned(r, metric, &n) || (n == 0 && !zero))
                return false;

        line_add("%s%s%s %s%s", separator, n > 0 ? color_on(style, color) : "", format_count(buf, n), what,
                 n > 0 && color != COLOR_NONE ? color_off(style) : "");
        return true;
}

/* Behind the state: the rest of what the service manager reports, as far as it is no matter of course. */
static void print_lifecycle(sd_json_variant *snapshot, const char *state) {
        const char *sub = value_string(snapshot, "subState"), *result = value_string(snapshot, "result"),
                *ended = value_string(snapshot, "lastExit"), *freezer = value_string(snapshot, "freezerState");
        bool waiting = streq_ptr(state, "inactive") || streq_ptr(state, "failed");
        uint64_t restarts = 0;
        char text[48];

        if (sub && !streq_ptr(sub, "dead") && !streq_ptr(sub, "failed"))
                line_add(" (%s)", sub);
        if (result && !streq(result, "success"))
                line_add(", result %s", result);
        (void) value_unsigned(snapshot, "restarts", &restarts);
        if (restarts > 0) {
                line_add(", ");
                (void) snprintf(text, sizeof(text), "restarted %" PRIu64 " %s", restarts, restarts == 1 ? "time" : "times");
                print_text(COLOR_YELLOW, text);
        }
        if (ended && (restarts > 0 || waiting))
                line_add(", last exit: %s", ended);
        if (freezer && !streq(freezer, "running")) {
                line_add(", ");
                print_text(COLOR_RED, freezer);
        }
        if (waiting)
                line_add(" (waiting for the unit to start)");
}

static void print_heading(const Reading *r) {
        const Style *style = terminal_style();
        const char *state = value_string(r->snapshot, "activeState"), *dot;
        Color color = active_state_color(state);

        if (streq_ptr(state, "failed"))
                dot = style->utf8 ? "\xc3\x97" : "x";
        else if (streq_ptr(state, "inactive"))
                dot = style->utf8 ? "\xe2\x97\x8b" : "o";
        else
                dot = style->utf8 ? "\xe2\x97\x8f" : "*";

        line_add("%s%s%s ", color_on(style, color), dot, color_off(style));
        print_text(COLOR_BOLD, r->unit);
        line_end();

        print_key("Active");
        print_text(color == COLOR_GREY ? COLOR_NONE : color, state ?: "unknown");
        print_lifecycle(r->snapshot, state);
        line_end();
}

static void print_hold(sd_json_variant *hold) {
        const char *type = value_string(hold, "type") ?: "?", *owner = value_string(hold, "owner");
        bool file = streq(type, "unitFile");
        sd_json_variant *excludes = value_find(hold, "exclude");
        uint64_t uid, remaining;
        char buf[FORMAT_MAX];

        print_text(COLOR_NONE, file ? "unit file" : type);
        if (owner) {
                line_add(file ? " " : ", ");
                print_text(COLOR_NONE, owner);
        }

        if (!file && value_unsigned(hold, "uid", &uid)) {
                /* User names of other hosts are unknown */
                struct passwd *p = arg_host ? NULL : getpwuid((uid_t) uid);

                line_add(owner ? ", " : " (");
                if (p)
                        print_text(COLOR_NONE, p->pw_name);
                else
                        line_add("uid %" PRIu64, uid);
                line_add(owner ? "" : ")");
        }

        if (value_unsigned(hold, "remaining", &remaining))
                line_add(", %s left", format_span(buf, remaining));

        for (size_t i = 0; excludes && i < sd_json_variant_elements(excludes); i++) {
                line_add(i == 0 ? ", excluding " : " ");
                print_text(COLOR_NONE, sd_json_variant_string(sd_json_variant_by_index(excludes, i)) ?: "?");
        }
}

/* Number of contained units listed by name. */
#define DESCENDANTS_MAX 8U

static void print_thresholds(const Reading *r) {
        sd_json_variant *thresholds = value_find(r->item, "thresholds");
        const Style *style = terminal_style();
        char value[THRESHOLD_TEXT_MAX];

        for (size_t i = 0; thresholds && i < sd_json_variant_elements(thresholds); i++) {
                sd_json_variant *v = sd_json_variant_by_index(thresholds, i);
                const char *state = value_string(v, "state");

                print_key(i == 0 ? "Thresholds" : "");
                line_add("%s%-8s%s ", color_on(style, threshold_color(state)), strempty(state), color_off(style));
                line_add("%s (", threshold_value_text(v, "value", value));
                print_text(COLOR_NONE, strempty(value_string(v, "threshold")));
                line_add(")");
                line_end();
        }
}

static void print_attachment(const Reading *r) {
        sd_json_variant *holds = value_find(r->item, "holds");
        const char *group = value_string(r->snapshot, "controlGroup"), *degraded = value_string(r->item, "degraded");
        const char *parent = value_string(r->item, "parentUnit");
        sd_json_variant *descendants = value_find(r->item, "descendantUnits");
        const Style *style = terminal_style();
        char at[FORMAT_MAX], ago[FORMAT_MAX];
        uint64_t since, now, drops;
        double share;

        if (reading_unsigned(r, "attachedSince", &since)) {
                print_key("Attached");
                line_add("since %s", format_timestamp(at, since));
                if (reading_unsigned(r, "timestamp", &now) && now > since)
                        line_add("; %s ago", format_span(ago, now - since));
                line_end();
        }

        for (size_t i = 0; holds && i < sd_json_variant_elements(holds); i++) {
                print_key(i == 0 ? "Held by" : "");
                print_hold(sd_json_variant_by_index(holds, i));
                line_end();
        }

        if (group) {
                print_key("CGroup");
                print_text(COLOR_NONE, group);
                line_end();
        }

        if (parent) {
                print_key("Parent");
                print_text(COLOR_NONE, parent);
                line_end();
        }
        for (size_t i = 0; descendants && i < sd_json_variant_elements(descendants); i++) {
                if (i == 0)
                        print_key("Descendants");
                else
                        line_add(", ");
                if (i == DESCENDANTS_MAX) {
                        line_add("%zu more", sd_json_variant_elements(descendants) - i);
                        break;
                }
                print_text(COLOR_NONE, strempty(sd_json_variant_string(sd_json_variant_by_index(descendants, i))));
        }
        if (descendants) {
                line_add(" (merged)");
                line_end();
        }

        if (reading_real(r, "cost.share", &share))
                print_line("Overhead", "%s of a CPU", format_percent(ago, share));

        if (degraded) {
                print_key("Degraded");
                print_text(COLOR_YELLOW, degraded);
                line_end();
        }

        print_thresholds(r);

        if (reading_unsigned(r, "drops", &drops) && drops > 0)
                print_line("Drops", "%s%s events not counted%s", color_on(style, COLOR_RED),
                           format_count(ago, drops), color_off(style));
}

static int add_errors(const char *path, sd_json_variant *value, void *userdata) {
        if (startswith(path, SERVER "errors.") && sd_json_variant_is_unsigned(value))
                *(uint64_t*) userdata += sd_json_variant_unsigned(value);
        return 0;
}

static void print_unparsed(const Reading *r, const char *path, const char *quality) {
        sd_json_variant *unparsed = value_find(r->snapshot, path);
        bool partial = streq_ptr(quality, "partial");
        const Style *style = terminal_style();
        char buf[FORMAT_MAX];
        double share = 0;
        uint64_t n;

        /* Peers on Unix sockets have no bytes */
        (void) value_real(unparsed, "share", &share);
        if (value_unsigned(unparsed, "connections", &n) && (n > 0 || share > 0))
                print_line("Unparsed", "%s%.2g%% of the traffic%s, %s new connections: not included in other metrics",
                           partial ? color_on(style, COLOR_YELLOW) : "", share * 100,
                           partial ? color_off(style) : "", format_count(buf, n));
}

void reading_print_requests(const Reading *r) {
        const char *quality = value_string(r->snapshot, "requests.quality");
        const Style *style = terminal_style();
        uint64_t n = 0, in, out, in_flight, waiting, covered = 0;
        char a[FORMAT_MAX], b[FORMAT_MAX], over[FORMAT_MAX];
        bool some;
        double rate;

        /* Windows begin at a step or at the attach, so the covered time may differ */
        (void) reading_unsigned(r, "covered", &covered);

        print_key("Requests");
        if (streq_ptr(quality, "overlapping"))
                line_add("%snot measurable: requests overlap (pipelined or multiplexed)%s",
                         color_on(style, COLOR_YELLOW), color_off(style));
        else if (reading_unsigned(r, SERVER "count", &n) && reading_real(r, SERVER "rate", &rate))
                line_add("%s%s%s (%s in %s)", color_on(style, COLOR_BOLD), format_rate(a, rate), color_off(style),
                         format_count(b, n), format_duration(over, covered));
        else
                line_add("not measured");
        line_end();
        /* Of a window without requests nothing is assumed */
        if (streq_ptr(quality, "exchanges") && n > 0)
                print_line("", "protocol not parsed, one response per request assumed");
        print_unparsed(r, "requests.server.unparsed", quality);

        if (reading_unsigned(r, SERVER "excluded", &n) && n > 0)
                print_line("Excluded", "%s, not included in other metrics", format_count(a, n));

        if (reading_unsigned(r, SERVER "inFlight", &in_flight)) {
                print_key("In flight");
                line_add("%s", format_count(a, in_flight));
                if (reading_unsigned(r, SERVER "oldestInFlight", &n))
                        line_add(", oldest %s", format_duration(a, n));
                if (reading_unsigned(r, SERVER "waiting", &waiting) && waiting < in_flight) {
                        line_add("; %s without a response", format_count(a, waiting));
                        if (reading_unsigned(r, SERVER "oldestWaiting", &n))
                                line_add(", oldest %s", format_duration(a, n));
                }
                line_end();
        }

        if (reading_errors(r, &n, &rate)) {
                print_key("Errors");
                line_add("%s%s%s", n > 0 ? color_on(style, COLOR_RED) : "", format_rate(a, rate), n > 0 ? color_off(style) : "");
                some = print_item(r, SERVER "errors.reset", " (", "reset", COLOR_NONE, false);
                some = print_item(r, SERVER "errors.timeout", some ? ", " : " (", "timed out", COLOR_NONE, false) || some;
                some = print_item(r, SERVER "errors.status5xx", some ? ", " : " (", "5xx", COLOR_NONE, false) || some;
                some = print_item(r, SERVER "errors.grpc", some ? ", " : " (", "gRPC errors", COLOR_NONE, false) || some;
                some = print_item(r, SERVER "errors.replies", some ? ", " : " (", "error replies", COLOR_NONE, false) || some;
                line_add("%s", some ? ")" : "");
                some = print_item(r, SERVER "clientAborts", "; ", "aborted by clients", COLOR_NONE, true);
                (void) print_item(r, SERVER "status4xx", some ? ", " : "; ", "4xx", COLOR_NONE, false);
                line_end();
        }

        if (covered > 0 && reading_unsigned(r, SERVER "bytesIn", &in) && reading_unsigned(r, SERVER "bytesOut", &out)) {
                double s = (double) covered / (double) NSEC_PER_SEC;

                print_line("Traffic", "%s/s in, %s/s out", format_bytes(a, (uint64_t) ((double) in / s)),
                           format_bytes(b, (uint64_t) ((double) out / s)));
        }

        if (value_find(r->snapshot, SERVER "connections")) {
                print_key("Connections");
                some = print_item(r, SERVER "connections.open", "", "open", COLOR_NONE, true);
                some = print_item(r, SERVER "connections.accepted", some ? ", " : "", "new", COLOR_NONE, true) || some;
                (void) print_item(r, SERVER "connections.retransmits", some ? ", " : "", "retransmitted segments", COLOR_YELLOW, true);
                line_end();
                if (reading_unsigned(r, SERVER "connections.acceptQueue", &n)) {
                        uint64_t max = 0;
                        bool full;

                        full = reading_unsigned(r, SERVER "connections.acceptQueueMax", &max) && max > 0 && n >= max;
                        print_key("Accept queue");
                        line_add("%s%" PRIu64, full ? color_on(style, COLOR_RED) : "", n);
                        if (max > 0)
                                line_add("/%" PRIu64, max);
                        line_add("%s", full ? color_off(style) : "");
                        (void) print_item(r, SERVER "connections.listenDrops", ", ", "dropped", COLOR_RED, true);
                        line_end();
                }
        }

}

static void print_totals(const Reading *r) {
        sd_json_variant *totals = value_find(r->snapshot, "totals");
        const Style *style = terminal_style();
        char a[FORMAT_MAX], b[FORMAT_MAX];
        uint64_t n, errors = 0;

        if (!value_unsigned(totals, SERVER "count", &n))
                return;
        (void) value_walk(totals, add_errors, &errors);
        print_line("Total", "%s requests and %s%s errors%s since attached", format_count(a, n),
                   errors > 0 ? color_on(style, COLOR_RED) : "", format_count(b, errors), errors > 0 ? color_off(style) : "");
}

/* ---- endpoints and peers
 * ------------------------------------------------------------------------------------------ */

#define CLIENT "requests.client."

static uint64_t sum_errors(sd_json_variant *row) {
        static const char *const keys[] = { "errors.reset", "errors.timeout", "errors.status5xx", "errors.replies" };
        uint64_t sum = 0, n;

        for (size_t i = 0; i < ELEMENTSOF(keys); i++)
                if (value_unsigned(row, keys[i], &n))
                        sum += n;
        return sum;
}

static void add_row_rate(Table *t, sd_json_variant *row, Color color) {
        char buf[FORMAT_MAX];
        double rate;

        if (value_real(row, "rate", &rate))
                table_add(t, color, "%s", format_rate(buf, rate));
        else
                table_add_absent(t);
}

static void add_row_count(Table *t, sd_json_variant *row, const char *key, Color color) {
        char buf[FORMAT_MAX];
        uint64_t n;

        if (value_unsigned(row, key, &n))
                table_add(t, color, "%s", format_count(buf, n));
        else
                table_add_absent(t);
}

/* Errors, P50, P99, in flight. */
static void add_row_figures(Table *t, sd_json_variant *row, uint64_t covered, Color color) {
        static const char *const keys[] = { "latency.p50", "latency.p99" };
        uint64_t n = sum_errors(row);
        char buf[FORMAT_MAX];

        if (value_find(row, "errors") && covered > 0)
                table_add(t, n > 0 ? COLOR_RED : color, "%s", format_rate(buf, (double) n * (double) NSEC_PER_SEC / (double) covered));
        else
                table_add_absent(t);
        for (size_t i = 0; i < ELEMENTSOF(keys); i++)
                if (value_unsigned(row, keys[i], &n))
                        table_add(t, color, "%s", format_duration(buf, n));
                else
                        table_add_absent(t);
        add_row_count(t, row, "inFlight", color);
}

/* Whether endpoints and peers have metrics over this window. */
static bool rows_are_measured(sd_json_variant *rows) {
        for (size_t i = 0; i < sd_json_variant_elements(rows); i++)
                if (value_find(sd_json_variant_by_index(rows, i), "inFlight"))
                        return true;
        return false;
}

static void print_not_over_this_window(const char *key) {
        const Style *style = terminal_style();

        print_line(key, "%savailable only for windows from 2s to 10s and for --window=total%s", color_on(style, COLOR_GREY), color_off(style));
}

/* Tables have more columns below their key than behind it. */
static bool terminal_is_narrow(void) {
        const Style *style = terminal_style();

        return style->width > 0 && style->width < 60;
}

static unsigned table_indent(void) {
        return terminal_is_narrow() ? 4 : KEY_WIDTH + 2;
}

static int print_endpoints(const Reading *r) {
        static const Column columns[] = {
                { "LISTEN", .minimum = 16 },
                { "RATE",      .right = true            },
                { "COUNT",     .right = true, .rank = 3 },
                { "ERRORS",    .right = true            },
                { "P50",       .right = true, .rank = 2 },
                { "P99",       .right = true            },
                { "INFLIGHT",  .right = true, .rank = 1 },
        };
        sd_json_variant *rows = value_find(r->snapshot, SERVER "endpoints");
        _cleanup_(table_freep) Table *t = NULL;
        uint64_t covered = 0;
        size_t n = rows ? sd_json_variant_elements(rows) : 0;

        /* A single endpoint equals the unit */
        if (n == 0 || (n == 1 && !value_boolean(sd_json_variant_by_index(rows, 0), "excluded")))
                return 0;

        line_end();
        if (!rows_are_measured(rows)) {
                print_not_over_this_window("Endpoints");
                return 0;
        }

        (void) reading_unsigned(r, "covered", &covered);
        t = table_new(columns, ELEMENTSOF(columns));
        if (!t)
                return log_out_of_memory();
        for (size_t i = 0; i < n; i++) {
                sd_json_variant *row = sd_json_variant_by_index(rows, i);
                bool excluded = value_boolean(row, "excluded");
                Color color = excluded ? COLOR_GREY : COLOR_NONE;

                table_add(t, color, "%s%s", value_boolean(row, "rest") ? "others" : value_string(row, "listen") ?: "?",
                          excluded ? " (excluded)" : "");
                add_row_rate(t, row, color);
                add_row_count(t, row, "count", color);
                add_row_figures(t, row, covered, color);
        }

        print_line("Endpoints", "%zu", n);
        return table_print(t, stdout, terminal_style(), arg_legend, table_indent()) < 0
                ? log_out_of_memory() : 0;
}

static int print_peers(const Reading *r) {
        static const Column columns[] = {
                { "PEER", .minimum = 15 },
                { "UNIT", .minimum = 12, .rank = 1 },
                { "RATE",      .right = true            },
                { "ERRORS",    .right = true            },
                { "P50",       .right = true, .rank = 3 },
                { "P99",       .right = true            },
                { "INFLIGHT",  .right = true, .rank = 2 },
        };
        sd_json_variant *rows = value_find(r->snapshot, CLIENT "peers");
        char rate[FORMAT_MAX], count[FORMAT_MAX], over[FORMAT_MAX];
        _cleanup_(table_freep) Table *t = NULL;
        uint64_t covered = 0, total = 0, n;
        double per_second;

        (void) value_unsigned(value_find(r->snapshot, "totals"), CLIENT "bytesOut", &total);
        if (!rows && total == 0)
                return 0;

        line_end();
        if (rows && !rows_are_measured(rows)) {
                print_not_over_this_window("Outgoing");
                return 0;
        }

        (void) reading_unsigned(r, "covered", &covered);
        if (reading_real(r, CLIENT "rate", &per_second) && reading_unsigned(r, CLIENT "count", &n))
                print_line("Outgoing", "%s (%s in %s)", format_rate(rate, per_second), format_count(count, n), format_duration(over, covered));
        else
                print_line("Outgoing", "%s", reading_unsigned(r, CLIENT "inFlight", &n) ? "not measurable: requests overlap (pipelined or multiplexed)" :
                                         "not measured");
        print_unparsed(r, CLIENT "unparsed", value_string(r->snapshot, CLIENT "quality"));
        if (!rows) /* not authorized */
                return 0;

        t = table_new(columns, ELEMENTSOF(columns));
        if (!t)
                return log_out_of_memory();
        for (size_t i = 0; i < sd_json_variant_elements(rows); i++) {
                sd_json_variant *row = sd_json_variant_by_index(rows, i);
                const char *unit = value_string(row, "unit");

                table_add(t, COLOR_NONE, "%s", value_boolean(row, "rest") ? "others" : value_string(row, "peer") ?: "?");
                if (unit)
                        table_add(t, COLOR_NONE, "%s", unit);
                else
                        table_add_absent(t);
                add_row_rate(t, row, COLOR_NONE);
                add_row_figures(t, row, covered, COLOR_NONE);
        }
        return table_print(t, stdout, terminal_style(), arg_legend, table_indent()) < 0
                ? log_out_of_memory() : 0;
}

/* ---- phases
 * ----------------------------------------------------------------------------------------------------- */

static const struct {
        const char *name, *key;
        bool phase;             /* part of the latency */
} distributions[] = {
        { "Latency",    "latency",   false },
        { "First byte", "firstByte", false },
        { "Receive",    "receive",   true  },
        { "Queue",      "queue",     true  },
        { "Service",    "service",   true  },
        { "Send",       "answer",    true  },
};

/* Where the columns do not fit, those between median and p99 are omitted first. */
static unsigned column_get_rank(double q) {
        return q > 0.99 ? 1 : q <= 0.5 || q >= 0.99 ? 0 : q < 0.95 ? 2 : 4;
}

int reading_print_phases(Reading *r, Client *c) {
        Column columns[4 + QUANTILES] = { [0] = { "" } };
        char headers[QUANTILES][16], buf[FORMAT_MAX];
        sd_json_variant *from[QUANTILES] = {};
        _cleanup_(table_freep) Table *t = NULL;
        size_t n = 1, missing = SIZE_MAX;
        uint64_t value, window, asked = 0, seen = 0;
        double whole = 0;
        int k;

        /* No requests yet */
        if (!value_find(r->snapshot, SERVER "latency") ||
            (value_unsigned(value_find(r->snapshot, "totals"), SERVER "count", &value) && value == 0))
                return 0;
        (void) reading_unsigned(r, "window", &asked);
        (void) reading_real(r, SERVER "latency.mean", &whole);

        columns[n++] = (Column) { "MEAN", .right = true };
        for (size_t q = 0; q < QUANTILES; q++) {
                /* Without header, longer windows could not be marked as such */
                k = arg_legend ? reading_complete(r, c, SERVER "latency", quantile_table[q].name) : 0;
                if (k < 0)
                        return k;

                /* All values of a column are over one window: the shortest with enough samples for the
                 * latency */
                if (!reading_quantile(r, SERVER "latency", quantile_table[q].name, &value, &window)) {
                        window = asked;
                        missing = MIN(missing, q);
                }
                from[q] = r->snapshot;
                for (size_t w = 0; window != asked && w < READING_WIDER_MAX; w++)
                        if (reading_wider_window(w) == window)
                                from[q] = r->wider[w].snapshot;

                if (window == asked)
                        (void) snprintf(headers[q], sizeof(headers[q]), "P%s", quantile_table[q].label + 1);
                else
                        (void) snprintf(headers[q], sizeof(headers[q]), "P%s (%s)", quantile_table[q].label + 1,
                                        format_window(buf, window));
                columns[n++] = (Column) { headers[q], .right = true, .rank = column_get_rank(quantile_table[q].q) };
        }
        columns[n++] = (Column) { "MAX", .right = true };
        columns[n++] = (Column) { "SHARE", .right = true, .rank = 3 };
        assert(n == ELEMENTSOF(columns));

        t = table_new(columns, n);
        if (!t)
                return log_out_of_memory();

        for (size_t d = 0; d < ELEMENTSOF(distributions); d++) {
                char path[64];
                double mean;

                (void) snprintf(path, sizeof(path), SERVER "%s", distributions[d].key);
                if (!value_find(r->snapshot, path))
                        continue;

                table_add(t, distributions[d].phase ? COLOR_NONE : COLOR_BOLD, "%*s", terminal_is_narrow() ? 0 : KEY_WIDTH,
                          distributions[d].name);

                if (value_unsigned(value_find(r->snapshot, path), "mean", &value))
                        table_add(t, COLOR_NONE, "%s", format_duration(buf, value));
                else
                        table_add_absent(t);
                for (size_t q = 0; q < QUANTILES; q++)
                        if (value_unsigned(value_find(from[q], path), quantile_table[q].name, &value))
                                table_add(t, COLOR_NONE, "%s", format_duration(buf, value));
                        else
                                table_add_absent(t);
                if (value_unsigned(value_find(r->snapshot, path), "count", &value) && value > 0 &&
                    value_unsigned(value_find(r->snapshot, path), "max", &value))
                        table_add(t, COLOR_NONE, "%s", format_duration(buf, value));
                else
                        table_add_absent(t);

                if (distributions[d].phase && whole > 0 && value_real(value_find(r->snapshot, path), "mean", &mean))
                        table_add(t, COLOR_NONE, "%s", format_percent(buf, mean / whole));
                else
                        table_add(t, COLOR_NONE, " ");
        }

        line_end();
        k = table_print(t, stdout, terminal_style(), arg_legend, 0);
        if (k < 0)
                return log_out_of_memory();

        if (arg_legend && missing < QUANTILES) {
                const Style *style = terminal_style();

                /* Number of samples in the longest window read */
                if (arg_window != WINDOW_UNSET)
                        (void) reading_unsigned(r, SERVER "latency.count", &seen);
                else
                        (void) value_unsigned(value_find(r->snapshot, "totals"), SERVER "count", &seen);

                line_add("%*s%s", KEY_WIDTH + 1, "", color_on(style, COLOR_GREY));
                if (seen == 0)
                        line_add("-: no requests");
                else
                        line_add("-: too few requests, P%s requires %" PRIu64, quantile_table[missing].label + 1,
                                 quantile_get_samples_needed(quantile_table[missing].q, client_get_minimum_samples(c)));
                line_add("%s", color_off(style));
                line_end();
        }

        return 0;
}

/* ---- contention ------------------------------------------------------------------------------------------------------ */

#define CONTENTION "contention."
/* Width that leaves space for the figures on 80 columns; the second one with the column of requests. */
#define STATE_BAR_WIDTH 24U
#define STATE_BAR_WIDTH_SERVING 8U

/* States in the order of the catalogue. */
static const struct {
        const char *state;
        Color color;                    /* for states in which a runnable thread is delayed */
} state_table[] = {
        { "running",   COLOR_NONE   },
        { "runQueue",  COLOR_YELLOW },
        { "throttled", COLOR_RED    },
        { "lock",      COLOR_YELLOW },
        { "park",      COLOR_NONE   },
        { "disk",      COLOR_YELLOW },
        { "socket",    COLOR_NONE   },
        { "poll",      COLOR_NONE   },
        { "pipe",      COLOR_NONE   },
        { "sleep",     COLOR_NONE   },
        { "memory",    COLOR_RED    },
        { "child",     COLOR_NONE   },
        { "stopped",   COLOR_RED    },
        { "other",     COLOR_NONE   },
};

static bool print_rate(const Reading *r, const char *metric, double seconds, const char *separator, const char *what) {
        char buf[FORMAT_MAX];
        uint64_t n;

        if (!reading_unsigned(r, metric, &n))
                return false;
        line_add("%s%s %s", separator, format_rate(buf, (double) n / seconds), what);
        return true;
}

/* Share of a state that may be absent. */
static void add_state_share(const Reading *r, Table *t, const char *metric, const char *state) {
        char full[64], buf[FORMAT_MAX];
        double share;

        (void) snprintf(full, sizeof(full), "%s.%s", metric, state);
        if (reading_real(r, full, &share))
                table_add(t, COLOR_NONE, "%s", format_percent(buf, share));
        else
                table_add_absent(t);
}

static void print_top_wait(const Reading *r) {
        const char *state;
        bool of_service;
        double share;

        if (reading_worst_wait(r, &state, &share, &of_service))
                print_line("Top wait", "%s (%.0f%% of %s)", thread_state_label(state), share * 100,
                           of_service ? "service time" : "active thread time during requests");
}

static int print_contention(const Reading *r) {
        static const Column columns[] = {
                { "STATE" }, { "THREADS", .right = true }, { "SHARE", .right = true }, { "WAITS", .right = true }, { "", .rank = 1 },
        }, serving_columns[] = {
                { "STATE" }, { "THREADS", .right = true }, { "SHARE", .right = true }, { "SERVING", .right = true, .rank = 2 },
                { "SERVICE", .right = true, .rank = 1 }, { "WAITS", .right = true, .rank = 3 }, { "", .rank = 4 },
        };
        const Style *style = terminal_style();
        _cleanup_(table_freep) Table *t = NULL;
        uint64_t covered, thread_time, n;
        char a[FORMAT_MAX];
        double seconds;
        bool some, serving;
        int k;

        if (!reading_unsigned(r, CONTENTION "covered", &covered) || !reading_unsigned(r, CONTENTION "threadTime", &thread_time) || covered == 0)
                return 0;
        seconds = (double) covered / (double) NSEC_PER_SEC;

        line_end();
        print_line("Threads", "%.2f on average over %s", (double) thread_time / (double) covered, format_duration(a, covered));

        print_top_wait(r);
        serving = value_find(r->snapshot, CONTENTION "serving.shares") || value_find(r->snapshot, SERVER "service.shares");
        t = serving ? table_new(serving_columns, ELEMENTSOF(serving_columns)) : table_new(columns, ELEMENTSOF(columns));
        if (!t)
                return -ENOMEM;
        for (size_t i = 0; i < ELEMENTSOF(state_table); i++) {
                _cleanup_free_ char *bar = NULL;
                char metric[64];
                double share, threads;

                (void) snprintf(metric, sizeof(metric), CONTENTION "shares.%s", state_table[i].state);
                if (!reading_real(r, metric, &share) || share <= 0)
                        continue;
                (void) snprintf(metric, sizeof(metric), CONTENTION "threads.%s", state_table[i].state);
                if (!reading_real(r, metric, &threads))
                        continue;

                table_add(t, state_table[i].color, "%s", thread_state_label(state_table[i].state));
                table_add(t, COLOR_NONE, "%.2f", threads);
                table_add(t, COLOR_NONE, "%s", format_percent(a, share));
                if (serving) {
                        add_state_share(r, t, CONTENTION "serving.shares", state_table[i].state);
                        add_state_share(r, t, SERVER "service.shares", state_table[i].state);
                }
                (void) snprintf(metric, sizeof(metric), CONTENTION "waits.%s", state_table[i].state);
                if (reading_unsigned(r, metric, &n))
                        table_add(t, COLOR_NONE, "%s", format_rate(a, (double) n / seconds));
                else
                        table_add_absent(t);
                bar = text_bar(share, serving ? STATE_BAR_WIDTH_SERVING : STATE_BAR_WIDTH, style->utf8);
                if (!bar)
                        return -ENOMEM;
                table_add(t, state_table[i].color == COLOR_NONE ? COLOR_GREY : state_table[i].color, "%s", bar);
        }
        k = table_print(t, stdout, style, arg_legend, table_indent());
        if (k < 0)
                return k;

        if (reading_unsigned(r, CONTENTION "runQueueLatency.count", &n) && n > 0) {
                static const char *const shown[] = { "p50", "p99", "max" };

                some = false;
                print_key("Run-queue wait");
                for (size_t i = 0; i < ELEMENTSOF(shown); i++) {
                        char metric[64];

                        (void) snprintf(metric, sizeof(metric), CONTENTION "runQueueLatency.%s", shown[i]);
                        if (!reading_unsigned(r, metric, &n))
                                continue;
                        line_add("%s%s %s", some ? ", " : "", shown[i], format_duration(a, n));
                        some = true;
                }
                line_end();
        }
        print_key("Context switches");
        some = print_rate(r, CONTENTION "contextSwitches.voluntary", seconds, "", "voluntary");
        some = print_rate(r, CONTENTION "contextSwitches.involuntary", seconds, some ? ", " : "", "involuntary") || some;
        (void) print_rate(r, CONTENTION "migrations", seconds, some ? ", " : "", "migrations");
        line_end();
        return 0;
}

static int print_histogram(Reading *r, Client *c) {
        _cleanup_replies_ Replies replies = REPLIES_INIT;
        uint64_t n, value, window = WINDOW_UNSET;
        char buf[FORMAT_MAX];
        int k;

        /* Over the window of the P90, which has enough samples for the shape; otherwise over the requested
         * window */
        if (!reading_quantile(r, SERVER "latency", "p90", &value, &window) &&
            (!reading_unsigned(r, SERVER "latency.count", &n) || n == 0))
                return 0;
        if (window == WINDOW_UNSET)
                window = arg_window;

        k = client_callbo(c, QOS_METHOD("Histogram"), &replies,
                          SD_JSON_BUILD_PAIR_STRING("unit", r->unit),
                          SD_JSON_BUILD_PAIR_STRING("metric", SERVER "latency"),
                          SD_JSON_BUILD_PAIR_CONDITION(window != WINDOW_UNSET, "window", SD_JSON_BUILD_UNSIGNED(window)));
        if (k < 0)
                return client_fail(k, &replies, "read the latency histogram of '%s'", r->unit);
        /* Detached meanwhile, or without samples by now */
        if (k > 0 || !value_unsigned(replies.items[0], "count", &n) || n == 0)
                return 0;

        line_end();
        if (value_unsigned(replies.items[0], "window", &window))
                print_line("Histogram", "request latency, last %s", format_window(buf, window));
        else
                print_line("Histogram", "request latency, since attached");

        k = histogram_print(stdout, terminal_style(), replies.items[0], HISTOGRAM_ROWS, 0, terminal_is_narrow() ? 0 : KEY_WIDTH - 9);
        return k < 0 ? client_fail(k, &replies, "draw the latency histogram of '%s'", r->unit) : 0;
}

static int print_not_attached(const char *unit) {
        const Style *style = terminal_style();

        line_add("%s%s%s ", color_on(style, COLOR_GREY), style->utf8 ? "\xe2\x97\x8b" : "o", color_off(style));
        print_text(COLOR_BOLD, unit);
        line_end();
        print_key("Attached");
        line_add("no (to attach: qosctl attach ");
        print_text(COLOR_NONE, unit);
        line_add(")");
        line_end();
        return STATUS_NOT_ATTACHED;
}

static int status_unit(Client *c, const char *unit, bool first) {
        _cleanup_(reading_done) Reading reading = {};
        _cleanup_replies_ Replies replies = REPLIES_INIT;
        int r;

        if (arg_json != JSON_OFF) {
                r = client_callbo(c, QOS_METHOD("Get"), &replies,
                                  SD_JSON_BUILD_PAIR_STRING("unit", unit),
                                  SD_JSON_BUILD_PAIR_CONDITION(arg_window != WINDOW_UNSET, "window", SD_JSON_BUILD_UNSIGNED(arg_window)));
                return r != 0 ? unit_read_fail(r, &replies, unit) : json_print(replies.items[0]);
        }

        r = client_call_morebo(c, QOS_METHOD("List"), &replies,
                               SD_JSON_BUILD_PAIR_STRING("unit", unit),
                               SD_JSON_BUILD_PAIR_CONDITION(arg_window != WINDOW_UNSET, "window", SD_JSON_BUILD_UNSIGNED(arg_window)));
        if (r != 0 && !unit_is_detached(r, &replies))
                return unit_read_fail(r, &replies, unit);
        if (!first)
                line_end();
        if (r > 0)
                return print_not_attached(value_string(replies.parameters, "unit") ?: unit);
        if (replies.n != 1 || !value_find(replies.items[0], "snapshot"))
                return print_not_attached(unit);

        reading_set(&reading, replies.items[0]);
        print_heading(&reading);
        print_attachment(&reading);
        line_end();
        reading_print_requests(&reading);
        print_totals(&reading);
        r = reading_print_phases(&reading, c);
        if (r >= 0)
                r = print_contention(&reading);
        if (r >= 0)
                r = print_endpoints(&reading);
        if (r >= 0)
                r = print_peers(&reading);
        if (r >= 0)
                r = print_histogram(&reading, c);
        return r;
}

int verb_status(int argc, char **argv) {
        _cleanup_client_ Client *c = NULL;
        _cleanup_names_ Names names = NAMES_INIT;
        int r, status;

        r = client_connect(&c);
        if (r < 0)
                return r;

        status = names_expand_attached(c, argc, argv, &names);
        if (status < 0)
                return status;

        pager_open();
        for (size_t i = 0; i < names.n; i++)
                status = status_combine(status, status_unit(c, names.items[i], i == 0));

        return status;
}
