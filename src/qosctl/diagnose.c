/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* diagnose */

#include <fcntl.h>

#include "client.h"
#include "diagnose.h"
#include "format.h"
#include "hosts.h"
#include "progress.h"
#include "qosctl.h"
#include "state-label.h"
#include "table.h"
#include "terminal.h"
#include "unit-names.h"
#include "value.h"

/* Version of the files of --save=, to be incremented when the name or the meaning of a figure changes. */
#define BASELINE_VERSION 2U

#define DIAGNOSE_NSEC (10 * NSEC_PER_SEC)

/* Renames figures of a file of version 1. */
static int figures_rename(sd_json_variant *v, sd_json_variant **ret) {
        static const char *const table[][2] = {
                { "asked",   "clientRate"        },
                { "askTime", "clientLatency"     },
                { "busiest", "busiestProcess"    },
                { "held",    "blockedByRequests" },
        };
        _cleanup_json_ sd_json_variant *figures = sd_json_variant_ref(v);
        int r;

        for (size_t i = 0; i < ELEMENTSOF(table); i++) {
                sd_json_variant *value = value_find(v, table[i][0]);

                if (!value)
                        continue;
                r = sd_json_variant_set_field(&figures, table[i][1], value);
                if (r >= 0)
                        r = sd_json_variant_filter(&figures, (char*[]) { (char*) table[i][0], NULL });
                if (r < 0)
                        return r;
        }
        *ret = TAKE_PTR(figures);
        return 0;
}

/* Reads the file of --against=. ret_unit: unit that it was saved of, valid as long as ret_file. */
static int baseline_read(const char *path, sd_json_variant **ret_file, sd_json_variant **ret_figures,
                         const char **ret_unit) {
        _cleanup_json_ sd_json_variant *file = NULL, *figures = NULL;
        unsigned line = 0, column = 0;
        uint64_t version;
        int r;

        r = sd_json_parse_file(NULL, path, 0, &file, &line, &column);
        if (r == -ENODATA)
                return log_failure(r, "'%s' is empty.", path);
        if (r < 0)
                return line > 0 ? log_failure(r,
                                              "'%s' is not a file that 'qosctl diagnose --save=' has "
                                              "written: no JSON in line %u, column %u.",
                                              path, line, column) :
                                  log_failure(r, "Failed to read '%s': %m", path);
        if (!value_unsigned(file, "version", &version))
                return log_failure(-EINVAL,
                                   "'%s' is not a file that 'qosctl diagnose --save=' has written: it has "
                                   "no version.",
                                   path);
        if (version < 1 || version > BASELINE_VERSION)
                return log_failure(-EINVAL, "'%s' has version %llu, expected at most %u. Save it again.",
                                   path, (unsigned long long) version, BASELINE_VERSION);
        figures = sd_json_variant_ref(value_find(file, "figures"));
        if (!figures || !sd_json_variant_is_object(figures))
                return log_failure(-EINVAL,
                                   "'%s' is not a file that 'qosctl diagnose --save=' has written: it has "
                                   "no figures.",
                                   path);
        if (version == 1) {
                _cleanup_json_ sd_json_variant *old = TAKE_PTR(figures);

                r = figures_rename(old, &figures);
                if (r < 0)
                        return log_out_of_memory();
        }

        *ret_figures = TAKE_PTR(figures);
        *ret_unit = value_string(file, "unit") ?: "?";
        *ret_file = TAKE_PTR(file);
        return 0;
}

static int baseline_write(const char *path, sd_json_variant *reply) {
        _cleanup_json_ sd_json_variant *v = NULL;
        _cleanup_fclose_ FILE *f = NULL;
        sd_json_variant *figures = value_find(reply, "figures");
        uint64_t timestamp = 0;
        int r;

        (void) value_unsigned(reply, "timestamp", &timestamp);
        r = sd_json_buildo(&v, SD_JSON_BUILD_PAIR_UNSIGNED("version", BASELINE_VERSION),
                           SD_JSON_BUILD_PAIR_STRING("unit", strempty(value_string(reply, "unit"))),
                           SD_JSON_BUILD_PAIR_UNSIGNED("timestamp", timestamp),
                           SD_JSON_BUILD_PAIR_CONDITION(!!figures, "figures",
                                                        SD_JSON_BUILD_VARIANT(figures)));
        if (r < 0)
                return log_out_of_memory();

        f = fopen(path, "we");
        if (!f)
                return log_failure(errno, "Failed to write '%s': %m", path);
        r = sd_json_variant_dump(v, SD_JSON_FORMAT_PRETTY|SD_JSON_FORMAT_NEWLINE, f, NULL);
        if (r >= 0 && fflush(f) != 0)
                r = -errno;
        return r < 0 ? log_failure(r, "Failed to write '%s': %m", path) : 0;
}

static size_t array_size(sd_json_variant *v) {
        return v && sd_json_variant_is_array(v) ? sd_json_variant_elements(v) : 0;
}

void finding_print(sd_json_variant *f, bool follow) {
        const Style *style = terminal_style();
        const char *next = value_string(f, "next");

        print_wrapped("    ", strempty(value_string(f, "text")), "", "");
        if (next && (follow || !startswith(next, "qosctl why ")))
                print_wrapped("    Next: ", next, color_on(style, COLOR_GREY), color_off(style));
}

static void print_findings(sd_json_variant *findings) {
        const Style *style = terminal_style();

        for (size_t i = 0; i < array_size(findings); i++) {
                sd_json_variant *f = sd_json_variant_by_index(findings, i);

                (void) printf("\n%s%s%s (%s)\n", color_on(style, COLOR_BOLD),
                              strempty(value_string(f, "kind")), color_off(style),
                              strempty(value_string(f, "certainty")));
                finding_print(f, true);
        }
}

/* Minimum share of an excluded cause with a line of its own. */
#define EXCLUDED_SHARE_MIN 0.1

/* Prints excluded causes: those with a significant share one per line, the others by name. */
static void print_excluded(sd_json_variant *excluded) {
        char rest[256] = "";
        bool first = true;

        for (size_t i = 0; i < array_size(excluded); i++) {
                sd_json_variant *e = sd_json_variant_by_index(excluded, i);
                const char *kind = strempty(value_string(e, "kind"));
                char label[64];
                double share;

                /* Causes without a share are no waits, and have a text */
                if (value_real(e, "share", &share) && share < EXCLUDED_SHARE_MIN) {
                        (void) snprintf(rest + strlen(rest), sizeof(rest) - strlen(rest), "%s%s",
                                        *rest ? ", " : "", kind);
                        continue;
                }
                if (first)
                        (void) printf("\nBelow the limits of their rules:\n");
                first = false;
                (void) snprintf(label, sizeof(label), "    %-10s ", kind);
                print_wrapped(label, strempty(value_string(e, "text")), "", "");
        }
        if (*rest) {
                (void) printf("\n");
                print_wrapped("No significant wait for: ", rest, "", "");
        }
}

static void print_threads(sd_json_variant *figures) {
        sd_json_variant *threads = value_find(figures, "threads");
        char text[512] = "";
        double n, cpus, idle;

        if (threads && sd_json_variant_is_object(threads)) {
                for (size_t i = 0; i + 1 < sd_json_variant_elements(threads); i += 2) {
                        const char *state = sd_json_variant_string(sd_json_variant_by_index(threads, i));

                        if (value_real(threads, state, &n) && n >= 0.005)
                                (void) snprintf(text + strlen(text), sizeof(text) - strlen(text),
                                                "%s%s %.2f", *text ? ", " : "", thread_state_label(state),
                                                n);
                }
                if (*text) {
                        (void) printf("\n");
                        print_wrapped("Threads, on average: ", text, "", "");
                }
        }
        if (value_real(figures, "cpus", &cpus) && value_real(figures, "idleCpus", &idle))
                (void) printf("CPUs allowed: %.0f (idle: %.2f)\n", cpus, idle);
}

/* Prints age and length of the history that serves as baseline. */
static void print_baseline_source(sd_json_variant *from, uint64_t now) {
        char age[FORMAT_MAX], covered[FORMAT_MAX], since[FORMAT_MAX], until[FORMAT_MAX], text[512];
        uint64_t begin, end, length;

        if (!value_time(from, "since", &begin) || !value_time(from, "until", &end) ||
            !value_unsigned(from, "covered", &length))
                return;
        (void) snprintf(text, sizeof(text),
                        "%s between %s and %s (%s ago): the faster half, without failures and violated "
                        "thresholds",
                        format_span(covered, length), format_time(since, begin, now),
                        format_time(until, end, now), format_span(age, now - MIN(now, end)));
        print_wrapped("Compared with its history, ", text, "", "");
}

/* host: name to print with several hosts; NULL: only one host */
static void print_diagnosis(sd_json_variant *reply, const char *baseline_of, const char *host) {
        const char *verdict = value_string(reply, "verdict"), *unit = value_string(reply, "unit");
        const Style *style = terminal_style();
        _cleanup_free_ char *name = NULL, *label = NULL;
        Color color;

        name = text_clean(unit ?: "?", style->utf8);
        color = streq_ptr(verdict, "nothing") ? COLOR_GREEN :
                streq_ptr(verdict, "found")   ? COLOR_RED :
                                                COLOR_YELLOW;
        if (asprintf(&label, "%s%s%s: ", strempty(host), host ? ": " : "", strempty(name)) < 0)
                label = NULL;
        print_wrapped(strempty(label), strempty(value_string(reply, "summary")), color_on(style, color),
                      color_off(style));
        print_wrapped("", strempty(value_string(reply, "text")), "", "");
        if (baseline_of && !streq_ptr(baseline_of, unit))
                print_wrapped("The baseline was saved of another unit: ", baseline_of, "", "");
        if (value_find(reply, "baselineSource"))
                print_baseline_source(value_find(reply, "baselineSource"), now_nsec(CLOCK_REALTIME));
        print_findings(value_find(reply, "findings"));
        print_excluded(value_find(reply, "excluded"));
        print_threads(value_find(reply, "figures"));
}

int unit_diagnose(Client *c, const char *unit, const DiagnoseOptions *options, bool *ret_interrupted,
                  Replies *ret) {
        _cleanup_replies_ Replies begun = REPLIES_INIT, lease = REPLIES_INIT;
        int r;

        polkit_agent_open();
        (void) sd_varlink_set_relative_timeout(c->link, UINT64_MAX);
        progress_begin(0, /* interruptible= */ false, "Attaching %s", unit);
        r = client_callbo(c, QOS_METHOD("BeginDiagnosis"), &begun,
                          SD_JSON_BUILD_PAIR_STRING("unit", unit),
                          SD_JSON_BUILD_PAIR_BOOLEAN("allowInteractiveAuthentication", arg_ask_password));
        /* Optional: on failure the unit is detached at the end of the diagnosis */
        if (r == 0 && options->keep)
                (void) client_callbo(c, QOS_METHOD("Attach"), &lease,
                                     SD_JSON_BUILD_PAIR_STRING("unit", unit),
                                     SD_JSON_BUILD_PAIR_BOOLEAN("lease", true),
                                     SD_JSON_BUILD_PAIR_BOOLEAN("allowInteractiveAuthentication",
                                                                arg_ask_password));
        progress_end();
        polkit_agent_close();
        if (r != 0) {
                *ret = begun;
                begun = REPLIES_INIT;
                return r;
        }

        unit = value_string(begun.items[0], "unit") ?: unit;
        progress_begin(options->interval, /* interruptible= */ true, "Observing %s", unit);
        *ret_interrupted = progress_sleep(c, unit) < options->interval;
        r = client_callbo(c, QOS_METHOD("Diagnose"), ret,
                          SD_JSON_BUILD_PAIR_STRING("unit", unit),
                          SD_JSON_BUILD_PAIR_BOOLEAN("sinceBegin", true),
                          SD_JSON_BUILD_PAIR_CONDITION(!!options->baseline, "baseline",
                                                       SD_JSON_BUILD_VARIANT(options->baseline)));
        progress_end();
        return r;
}

int diagnose_check_interval(void) {
        /* Windows of qosd for which there are readings of the machine */
        if (arg_for > 0 && arg_for != 60 * NSEC_PER_SEC && arg_for != 300 * NSEC_PER_SEC &&
            (arg_for % NSEC_PER_SEC != 0 || arg_for > 10 * NSEC_PER_SEC)) {
                (void) log_failure(-EINVAL,
                                   "Invalid --for=%s, expected 1s to 10s in whole seconds, 60s or 5min.",
                                   arg_for_text);
                return STATUS_USAGE;
        }
        return STATUS_OK;
}

uint64_t diagnose_get_interval(void) {
        return arg_for > 0 ? arg_for : DIAGNOSE_NSEC;
}

static int verdict_to_status(sd_json_variant *reply) {
        return streq_ptr(value_string(reply, "verdict"), "unknown") ? STATUS_FAILED : STATUS_OK;
}

int verb_diagnose(int argc, char **argv) {
        _cleanup_json_ sd_json_variant *file = NULL, *baseline = NULL;
        _cleanup_replies_ Replies reply = REPLIES_INIT;
        _cleanup_client_ Client *c = NULL;
        const char *baseline_of = NULL;
        bool interrupted;
        int r;

        r = diagnose_check_interval();
        if (r != STATUS_OK)
                return r;
        if (arg_against) {
                r = baseline_read(arg_against, &file, &baseline, &baseline_of);
                if (r < 0)
                        return r;
        }

        r = client_connect(&c);
        if (r < 0)
                return r;
        r = unit_diagnose(c, argv[0],
                          &(DiagnoseOptions) { .interval = diagnose_get_interval(), .baseline = baseline },
                          &interrupted, &reply);
        if (r != 0)
                return unit_fail(r, &reply, "diagnose", argv[0]);

        if (arg_save) {
                r = baseline_write(arg_save, reply.items[0]);
                if (r < 0)
                        return r;
        }

        if (arg_json != JSON_OFF) {
                r = json_print(reply.items[0]);
                if (r < 0)
                        return r;
        } else {
                pager_open();
                print_diagnosis(reply.items[0], baseline_of, NULL);
        }
        return verdict_to_status(reply.items[0]);
}

/* ---- several hosts ----------------------------------------------------------------------------------- */

static int collect_diagnosis(int argc, char **argv, Replies *ret) {
        _cleanup_client_ Client *c = NULL;
        bool interrupted;
        int r;

        r = client_connect(&c);
        if (r < 0)
                return r;
        r = unit_diagnose(c, argv[0], &(DiagnoseOptions) { .interval = diagnose_get_interval() },
                          &interrupted, ret);
        return r != 0 ? client_fail(r, ret, "diagnose '%s'", argv[0]) : verdict_to_status(ret->items[0]);
}

int verb_diagnose_hosts(int argc, char **argv) {
        bool first = true;
        int r, status;
        Host *hosts;
        size_t n;

        r = diagnose_check_interval();
        if (r != STATUS_OK)
                return r;
        if (arg_save || arg_against) {
                (void) log_failure(-EOPNOTSUPP,
                                   "A baseline is that of one host, %s cannot be combined with several "
                                   "hosts in --host=.",
                                   arg_save ? "--save=" : "--against=");
                return STATUS_USAGE;
        }

        status = hosts_collect(collect_diagnosis, argc, argv, diagnose_get_interval(), &hosts, &n);
        if (status < 0)
                return status;

        r = 0;
        for (const Host *h = hosts; h < hosts + n && r >= 0; h++)
                for (size_t i = 0; i < h->replies.n && r >= 0; i++) {
                        _cleanup_json_ sd_json_variant *v = sd_json_variant_ref(h->replies.items[i]);

                        if (arg_json != JSON_OFF) {
                                r = host_add_name(h, &v);
                                if (r >= 0)
                                        r = json_print(v);
                                continue;
                        }
                        pager_open();
                        if (!first)
                                (void) printf("\n");
                        first = false;
                        print_diagnosis(v, NULL, h->name);
                }

        hosts_done(hosts, n);
        return status_combine(status, r);
}
