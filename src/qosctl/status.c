/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <inttypes.h>
#include <pwd.h>

#include "format.h"
#include "histogram-view.h"
#include "qosctl.h"
#include "status-internal.h"
#include "thresholds.h"
#include "unit-names.h"
#include "value.h"

/* Maximum number of rows of the histogram, enough to show a bimodal distribution. */
#define HISTOGRAM_ROWS 12U

/* Adds untrusted text in a color. */
static void print_text(Color color, const char *s) {
        const Style *style = terminal_style();
        _cleanup_free_ char *clean = text_clean(s, style->utf8);

        line_add("%s%s%s", color_on(style, color), strempty(clean),
                 color == COLOR_NONE ? "" : color_off(style));
}

/* Adds an item such as "3 reset". zero: also if the value is 0. Returns whether an item was added. */
static bool print_item(const Reading *r, const char *metric, const char *separator, const char *what,
                       Color color, bool zero) {
        const Style *style = terminal_style();
        char buf[FORMAT_MAX];
        uint64_t n;

        if (!reading_unsigned(r, metric, &n) || (n == 0 && !zero))
                return false;

        line_add("%s%s%s %s%s", separator, n > 0 ? color_on(style, color) : "", format_count(buf, n), what,
                 n > 0 && color != COLOR_NONE ? color_off(style) : "");
        return true;
}

/* Adds further properties of the service manager, unless they are the usual ones. */
static void print_lifecycle(sd_json_variant *snapshot, const char *state) {
        const char *sub = value_string(snapshot, "subState"), *result = value_string(snapshot, "result"),
                   *ended = value_string(snapshot, "lastExit"),
                   *freezer = value_string(snapshot, "freezerState");
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
                (void) snprintf(text, sizeof(text), "restarted %" PRIu64 " %s", restarts,
                                restarts == 1 ? "time" : "times");
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
        bool configuration = streq(type, "configuration"), file = configuration || streq(type, "unitFile");
        sd_json_variant *excludes = value_find(hold, "exclude");
        uint64_t uid, remaining;
        char buf[FORMAT_MAX];

        print_text(COLOR_NONE, configuration ? "Observe=auto in" : file ? "unit file" : type);
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

/* Limit of descendants that are listed by name. */
#define DESCENDANTS_MAX 8U

static void print_thresholds(const Reading *r) {
        sd_json_variant *thresholds = value_find(r->item, "thresholds");
        const Style *style = terminal_style();
        char value[THRESHOLD_TEXT_MAX];

        for (size_t i = 0; thresholds && i < sd_json_variant_elements(thresholds); i++) {
                sd_json_variant *v = sd_json_variant_by_index(thresholds, i);
                const char *state = value_string(v, "state");

                print_key(i == 0 ? "Thresholds" : "");
                line_add("%s%-8s%s ", color_on(style, threshold_color(state)), strempty(state),
                         color_off(style));
                line_add("%s (", threshold_value_text(v, "value", value));
                print_text(COLOR_NONE, strempty(value_string(v, "threshold")));
                line_add(")");
                line_end();
        }
}

static void print_attachment(const Reading *r) {
        sd_json_variant *holds = value_find(r->item, "holds");
        const char *group = value_string(r->snapshot, "controlGroup"),
                   *degraded = value_string(r->item, "degraded");
        const char *parent = value_string(r->item, "parentUnit");
        sd_json_variant *descendants = value_find(r->item, "descendantUnits");
        const Style *style = terminal_style();
        char at[FORMAT_MAX], ago[FORMAT_MAX];
        uint64_t since, now, drops;
        double share;

        if (value_time(r->snapshot, "attachedSince", &since)) {
                print_key("Attached");
                line_add("since %s", format_timestamp(at, since));
                if (value_time(r->snapshot, "timestamp", &now) && now > since)
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
                print_text(COLOR_NONE,
                           strempty(sd_json_variant_string(sd_json_variant_by_index(descendants, i))));
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

static void print_intended(const Reading *r) {
        uint64_t n = 0, waiting = 0, latency;
        char a[FORMAT_MAX];

        (void) reading_unsigned(r, SERVER "intended.count", &n);
        (void) reading_unsigned(r, SERVER "intended.inFlight", &waiting);
        if (n == 0 && waiting == 0)
                return;
        print_key("Intended");
        line_add("%s waited by intent", format_count(a, n));
        if (reading_unsigned(r, SERVER "intended.latency", &latency))
                line_add(", mean %s", format_duration(a, latency));
        if (waiting > 0)
                line_add("; %s in flight", format_count(a, waiting));
        line_add("; not included in latency");
        line_end();
}

/* Prints the requests over TLS that are counted by TLS records although the probe "tls" is attached, as it
 * cannot observe their library. */
static void print_sealed(const Reading *r) {
        sd_json_variant *holds = value_find(r->item, "holds");
        char buf[FORMAT_MAX];
        uint64_t n;

        if (!reading_unsigned(r, SERVER "protocols.tls", &n) || n == 0)
                return;
        for (size_t i = 0; holds && i < sd_json_variant_elements(holds); i++)
                if (value_contains(value_find(sd_json_variant_by_index(holds, i), "probes"), "tls")) {
                        print_line("",
                                   "%s over TLS not parsed: the probe tls sees OpenSSL on sockets, neither "
                                   "in buffers of a program (memory BIO) nor other libraries",
                                   format_count(buf, n));
                        return;
                }
}

static void print_errors(const Reading *r) {
        const Style *style = terminal_style();
        char buf[FORMAT_MAX];
        double rate;
        uint64_t n;
        bool some;

        if (!reading_errors(r, &n, &rate))
                return;
        print_key("Errors");
        line_add("%s%s%s", n > 0 ? color_on(style, COLOR_RED) : "", format_rate(buf, rate),
                 n > 0 ? color_off(style) : "");
        some = print_item(r, SERVER "errors.reset", " (", "reset", COLOR_NONE, false);
        some |= print_item(r, SERVER "errors.timeout", some ? ", " : " (", "timed out", COLOR_NONE, false);
        some |= print_item(r, SERVER "errors.status5xx", some ? ", " : " (", "5xx", COLOR_NONE, false);
        some |= print_item(r, SERVER "errors.grpc", some ? ", " : " (", "gRPC errors", COLOR_NONE, false);
        some |= print_item(r, SERVER "errors.replies", some ? ", " : " (", "error replies", COLOR_NONE,
                           false);
        line_add("%s", some ? ")" : "");
        some = print_item(r, SERVER "clientAborts", "; ", "aborted by clients", COLOR_NONE, true);
        (void) print_item(r, SERVER "status4xx", some ? ", " : "; ", "4xx", COLOR_NONE, false);
        line_end();
}

static void print_connections(const Reading *r) {
        const Style *style = terminal_style();
        uint64_t n, max = 0;
        bool some, full;

        if (!value_find(r->snapshot, SERVER "connections"))
                return;
        print_key("Connections");
        some = print_item(r, SERVER "connections.open", "", "open", COLOR_NONE, true);
        some |= print_item(r, SERVER "connections.accepted", some ? ", " : "", "new", COLOR_NONE, true);
        (void) print_item(r, SERVER "connections.retransmits", some ? ", " : "", "retransmitted segments",
                          COLOR_YELLOW, true);
        line_end();
        if (!reading_unsigned(r, SERVER "connections.acceptQueue", &n))
                return;
        full = reading_unsigned(r, SERVER "connections.acceptQueueMax", &max) && max > 0 && n >= max;
        print_key("Accept queue");
        line_add("%s%" PRIu64, full ? color_on(style, COLOR_RED) : "", n);
        if (max > 0)
                line_add("/%" PRIu64, max);
        line_add("%s", full ? color_off(style) : "");
        (void) print_item(r, SERVER "connections.listenDrops", ", ", "dropped", COLOR_RED, true);
        line_end();
}

void reading_print_requests(const Reading *r) {
        const char *quality = value_string(r->snapshot, "requests.quality");
        const Style *style = terminal_style();
        uint64_t n = 0, in, out, in_flight, waiting, covered = 0;
        char a[FORMAT_MAX], b[FORMAT_MAX], over[FORMAT_MAX];
        double rate;

        /* The time that was covered, which may differ from the window, as windows begin at a step or at the
         * attach */
        (void) reading_unsigned(r, "covered", &covered);

        print_key("Requests");
        if (streq_ptr(quality, "overlapping"))
                line_add("%snot measurable: requests overlap (pipelined or multiplexed)%s",
                         color_on(style, COLOR_YELLOW), color_off(style));
        else if (reading_unsigned(r, SERVER "count", &n) && reading_real(r, SERVER "rate", &rate))
                line_add("%s%s%s (%s in %s)", color_on(style, COLOR_BOLD), format_rate(a, rate),
                         color_off(style), format_count(b, n), format_duration(over, covered));
        else
                line_add("not measured");
        line_end();
        /* Not for windows without requests */
        if (streq_ptr(quality, "exchanges") && n > 0)
                print_line("", "protocol not parsed, one response per request assumed");
        print_sealed(r);
        print_unparsed(r, "requests.server.unparsed", quality);

        if (reading_unsigned(r, SERVER "excluded", &n) && n > 0)
                print_line("Excluded", "%s, not included in other metrics", format_count(a, n));

        print_intended(r);
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

        print_errors(r);

        if (covered > 0 && reading_unsigned(r, SERVER "bytesIn", &in) &&
            reading_unsigned(r, SERVER "bytesOut", &out)) {
                double s = (double) covered / (double) NSEC_PER_SEC;

                print_line("Traffic", "%s/s in, %s/s out", format_bytes(a, (uint64_t) ((double) in / s)),
                           format_bytes(b, (uint64_t) ((double) out / s)));
        }

        print_connections(r);
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
                   errors > 0 ? color_on(style, COLOR_RED) : "", format_count(b, errors),
                   errors > 0 ? color_off(style) : "");
}

static int print_histogram(Reading *r, Client *c) {
        _cleanup_replies_ Replies replies = REPLIES_INIT;
        uint64_t n, value, window = WINDOW_UNSET;
        char buf[FORMAT_MAX];
        int k;

        /* Over the window of P90, which has enough samples for the shape, or else over the requested one */
        if (!reading_quantile(r, SERVER "latency", "p90", &value, &window) &&
            (!reading_unsigned(r, SERVER "latency.count", &n) || n == 0))
                return 0;
        if (window == WINDOW_UNSET)
                window = arg_window;

        k = client_callbo(c, QOS_METHOD("Histogram"), &replies, SD_JSON_BUILD_PAIR_STRING("unit", r->unit),
                          SD_JSON_BUILD_PAIR_STRING("metric", SERVER "latency"),
                          SD_JSON_BUILD_PAIR_CONDITION(window != WINDOW_UNSET, "window",
                                                       SD_JSON_BUILD_UNSIGNED(window)));
        if (k < 0)
                return client_fail(k, &replies, "read the latency histogram of '%s'", r->unit);
        /* Detached meanwhile, or no samples any more */
        if (k > 0 || !value_unsigned(replies.items[0], "count", &n) || n == 0)
                return 0;

        line_end();
        if (value_unsigned(replies.items[0], "window", &window))
                print_line("Histogram", "request latency, last %s", format_window(buf, window));
        else
                print_line("Histogram", "request latency, since attached");

        k = histogram_print(stdout, terminal_style(), replies.items[0], HISTOGRAM_ROWS, 0,
                            terminal_is_narrow() ? 0 : KEY_WIDTH - 9);
        return k < 0 ? client_fail(k, &replies, "draw the latency histogram of '%s'", r->unit) : 0;
}

static int print_not_attached(const char *unit) {
        const Style *style = terminal_style();

        line_add("%s%s%s ", color_on(style, COLOR_GREY), style->utf8 ? "\xe2\x97\x8b" : "o",
                 color_off(style));
        print_text(COLOR_BOLD, unit);
        line_end();
        print_key("Attached");
        line_add("no (to attach: qosctl attach ");
        print_text(COLOR_NONE, unit);
        line_add(")");
        line_end();
        return STATUS_NOT_ATTACHED;
}

/* Custom metrics are not in the reply to List. */
static int print_custom(const Reading *r, Client *c) {
        sd_json_variant *holds = value_find(r->item, "holds");
        _cleanup_replies_ Replies replies = REPLIES_INIT;
        bool any = false;
        int k;

        for (size_t i = 0; holds && i < sd_json_variant_elements(holds); i++) {
                sd_json_variant *probes = value_find(sd_json_variant_by_index(holds, i), "probes");

                for (size_t n = 0; probes && n < sd_json_variant_elements(probes); n++)
                        any = any || startswith(strempty(sd_json_variant_string(
                                                        sd_json_variant_by_index(probes, n))), "custom:");
        }
        if (!any)
                return 0;
        k = client_callbo(c, QOS_METHOD("Get"), &replies, SD_JSON_BUILD_PAIR_STRING("unit", r->unit),
                          SD_JSON_BUILD_PAIR_CONDITION(arg_window != WINDOW_UNSET, "window",
                                                       SD_JSON_BUILD_UNSIGNED(arg_window)));
        if (k != 0)
                return unit_read_fail(k, &replies, r->unit);
        return value_find(replies.items[0], "custom") ?
               reading_print_custom(value_find(replies.items[0], "custom"),
                                    value_find(replies.items[0], "customCost")) : 0;
}

static int status_unit(Client *c, const char *unit, bool first) {
        _cleanup_(reading_done) Reading reading = {};
        _cleanup_replies_ Replies replies = REPLIES_INIT;
        int r;

        if (arg_json != JSON_OFF) {
                r = client_callbo(c, QOS_METHOD("Get"), &replies, SD_JSON_BUILD_PAIR_STRING("unit", unit),
                                  SD_JSON_BUILD_PAIR_CONDITION(arg_window != WINDOW_UNSET, "window",
                                                               SD_JSON_BUILD_UNSIGNED(arg_window)));
                return r != 0 ? unit_read_fail(r, &replies, unit) : json_print(replies.items[0]);
        }

        r = client_call_morebo(c, QOS_METHOD("List"), &replies, SD_JSON_BUILD_PAIR_STRING("unit", unit),
                               SD_JSON_BUILD_PAIR_CONDITION(arg_window != WINDOW_UNSET, "window",
                                                            SD_JSON_BUILD_UNSIGNED(arg_window)));
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
                r = reading_print_contention(&reading);
        if (r >= 0)
                r = reading_print_storage(&reading);
        if (r >= 0)
                r = reading_print_network(&reading);
        if (r >= 0)
                r = print_custom(&reading, c);
        if (r >= 0)
                r = reading_print_endpoints(&reading);
        if (r >= 0)
                r = reading_print_peers(&reading);
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
