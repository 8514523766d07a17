/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* What holds a unit back, in words, and what that is told from. */

#include <fcntl.h>

#include "client.h"
#include "format.h"
#include "qosctl.h"
#include "table.h"
#include "terminal.h"
#include "unit-names.h"
#include "value.h"

/* The version of the files that --save= writes: it grows when the name or the meaning of a figure changes. */
#define BASELINE_VERSION 2U

#define DIAGNOSE_NSEC (10 * NSEC_PER_SEC)

/* Figures of a file of version 1 under the names of today. */
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

/* The figures of --against=, and the unit that they are of, which the file owns. */
static int baseline_read(const char *path, sd_json_variant **ret_file, sd_json_variant **ret_figures, const char **ret_unit) {
        _cleanup_json_ sd_json_variant *file = NULL, *figures = NULL;
        unsigned line = 0, column = 0;
        uint64_t version;
        int r;

        r = sd_json_parse_file(NULL, path, 0, &file, &line, &column);
        if (r == -ENODATA)
                return log_failure(r, "'%s' is empty.", path);
        if (r < 0)
                return line > 0 ? log_failure(r, "'%s' is not a file that 'qosctl diagnose --save=' has written: no JSON in line %u, column %u.", path, line, column) :
                                  log_failure(r, "Failed to read '%s': %m", path);
        if (!value_unsigned(file, "version", &version))
                return log_failure(-EINVAL, "'%s' is not a file that 'qosctl diagnose --save=' has written: it has no version.", path);
        if (version < 1 || version > BASELINE_VERSION)
                return log_failure(-EINVAL, "'%s' has version %llu, expected at most %u. Save it again.", path, (unsigned long long) version, BASELINE_VERSION);
        figures = sd_json_variant_ref(value_find(file, "figures"));
        if (!figures || !sd_json_variant_is_object(figures))
                return log_failure(-EINVAL, "'%s' is not a file that 'qosctl diagnose --save=' has written: it has no figures.", path);
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
        r = sd_json_buildo(&v,
                           SD_JSON_BUILD_PAIR_UNSIGNED("version", BASELINE_VERSION),
                           SD_JSON_BUILD_PAIR_STRING("unit", strempty(value_string(reply, "unit"))),
                           SD_JSON_BUILD_PAIR_UNSIGNED("timestamp", timestamp),
                           SD_JSON_BUILD_PAIR_CONDITION(!!figures, "figures", SD_JSON_BUILD_VARIANT(figures)));
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

/* Words behind a label, in as many lines as it takes: the pager cuts those that are longer than the terminal is wide. */
static void print_wrapped(const char *label, const char *words, const char *on, const char *off) {
        const Style *style = terminal_style();
        size_t indent = text_width(label), width = style->width > indent ? style->width - indent : SIZE_MAX;
        _cleanup_free_ char *clean = text_clean(words, style->utf8);

        for (const char *text = strempty(clean); *text; text += strspn(text, " ")) {
                size_t n = text_wrap(text, width);

                (void) printf("%*s%s%s%.*s%s\n", *label ? 0 : (int) indent, "", label, on, (int) n, text, off);
                text += n;
                label = "";
        }
}

static size_t array_size(sd_json_variant *v) {
        return v && sd_json_variant_is_array(v) ? sd_json_variant_elements(v) : 0;
}

static void print_findings(sd_json_variant *reply) {
        const Style *style = terminal_style();
        const char *grey = color_on(style, COLOR_GREY), *bold = color_on(style, COLOR_BOLD), *off = color_off(style);
        sd_json_variant *findings = value_find(reply, "findings"), *excluded = value_find(reply, "excluded");

        for (size_t i = 0; i < array_size(findings); i++) {
                sd_json_variant *f = sd_json_variant_by_index(findings, i);
                const char *kind = value_string(f, "kind"), *certainty = value_string(f, "certainty");

                (void) printf("\n%s%s%s (%s)\n", bold, strempty(kind), off, strempty(certainty));
                print_wrapped("    ", strempty(value_string(f, "text")), "", "");
                print_wrapped("    ", strempty(value_string(f, "rule")), grey, off);
        }

        for (size_t i = 0; i < array_size(excluded); i++) {
                sd_json_variant *f = sd_json_variant_by_index(excluded, i);
                char label[64];

                if (i == 0)
                        (void) printf("\nRuled out:\n");
                (void) snprintf(label, sizeof(label), "    %-10s ", strempty(value_string(f, "kind")));
                print_wrapped(label, strempty(value_string(f, "text")), "", "");
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
                                (void) snprintf(text + strlen(text), sizeof(text) - strlen(text), " %s %.2f", state, n);
                }
                (void) printf("\n");
                print_wrapped("Threads, on average:", text, "", "");
        }
        if (value_real(figures, "cpus", &cpus) && value_real(figures, "idleCpus", &idle))
                (void) printf(cpus < 1.5 ? "It may use %.0f CPU, of which %.2f was idle.\n" : "It may use %.0f CPUs, of which %.2f were idle.\n", cpus, idle);
}

/* How old it is, and how much of it there is, so that who reads it knows what it is worth. */
static void print_normal(sd_json_variant *from, uint64_t now) {
        char age[FORMAT_MAX], covered[FORMAT_MAX], since[FORMAT_MAX], until[FORMAT_MAX], text[512];
        uint64_t begin, end, length;

        if (!value_unsigned(from, "since", &begin) || !value_unsigned(from, "until", &end) || !value_unsigned(from, "covered", &length))
                return;
        (void) snprintf(text, sizeof(text), "What is normal is from its history: %s between %s and %s (%s ago), in which it answered soonest and no threshold was violated.",
                        format_span(covered, length), format_time(since, begin, now), format_time(until, end, now), format_span(age, now - MIN(now, end)));
        print_wrapped("", text, "", "");
}

static void print_diagnosis(sd_json_variant *reply, const char *baseline_of) {
        const char *verdict = value_string(reply, "verdict"), *unit = value_string(reply, "unit");
        const Style *style = terminal_style();
        _cleanup_free_ char *name = NULL;
        bool found, nothing;

        name = text_clean(unit ?: "?", style->utf8);
        found = streq_ptr(verdict, "found");
        nothing = streq_ptr(verdict, "nothing");
        (void) printf("%s%s%s: %s%s%s\n", color_on(style, COLOR_BOLD), strempty(name), color_off(style),
                      color_on(style, nothing ? COLOR_GREEN : COLOR_RED),
                      nothing ? "nothing wrong was found." : found ? "it is held back." : "what holds it back cannot be told.", color_off(style));
        print_wrapped("", strempty(value_string(reply, "text")), "", "");
        if (baseline_of && !streq_ptr(baseline_of, unit))
                print_wrapped("What is normal was kept of another unit: ", baseline_of, "", "");
        if (value_find(reply, "baselineSource"))
                print_normal(value_find(reply, "baselineSource"), now_nsec(CLOCK_REALTIME));
        print_findings(reply);
        print_threads(value_find(reply, "figures"));
}

int verb_diagnose(int argc, char **argv) {
        _cleanup_json_ sd_json_variant *file = NULL, *baseline = NULL;
        _cleanup_replies_ Replies reply = REPLIES_INIT;
        _cleanup_client_ Client *c = NULL;
        const char *baseline_of = NULL;
        int r;

        /* Those windows of qosd in which the machine can be looked at */
        if (arg_for > 0 && arg_for != 60 * NSEC_PER_SEC && arg_for != 300 * NSEC_PER_SEC && (arg_for % NSEC_PER_SEC != 0 || arg_for > 10 * NSEC_PER_SEC)) {
                (void) log_failure(-EINVAL, "Invalid --for=%s, expected 1s to 10s in whole seconds, 60s or 5min.", arg_for_text);
                return STATUS_USAGE;
        }
        if (arg_against) {
                r = baseline_read(arg_against, &file, &baseline, &baseline_of);
                if (r < 0)
                        return r;
        }

        r = client_connect(&c);
        if (r < 0)
                return r;

        polkit_agent_open();
        (void) sd_varlink_set_relative_timeout(c->link, UINT64_MAX);
        r = client_callbo(c, QOS_METHOD("Diagnose"), &reply,
                          SD_JSON_BUILD_PAIR_STRING("unit", argv[0]),
                          SD_JSON_BUILD_PAIR_UNSIGNED("window", arg_for > 0 ? arg_for : DIAGNOSE_NSEC),
                          SD_JSON_BUILD_PAIR_CONDITION(!!baseline, "baseline", SD_JSON_BUILD_VARIANT(baseline)),
                          SD_JSON_BUILD_PAIR_BOOLEAN("allowInteractiveAuthentication", arg_ask_password));
        polkit_agent_close();
        if (r != 0)
                return client_fail(r, &reply, "diagnose '%s'", argv[0]);

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
                print_diagnosis(reply.items[0], baseline_of);
        }
        return streq_ptr(value_string(reply.items[0], "verdict"), "unknown") ? STATUS_FAILED : STATUS_OK;
}
