/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* set-threshold, clear-threshold, list-thresholds, is-ok, wait */

#include <inttypes.h>
#include <math.h>

#include "client.h"
#include "format.h"
#include "progress.h"
#include "qosctl.h"
#include "table.h"
#include "thresholds.h"
#include "unit-names.h"
#include "value.h"

Color threshold_color(const char *state) {
        return streq_ptr(state, "violated") ? COLOR_RED : streq_ptr(state, "ok") ? COLOR_GREEN : COLOR_GREY;
}

/* The unit is the one of the limit in the rule, as qosd may have metrics that this version does not know. */
const char* threshold_value_text(sd_json_variant *threshold, const char *key,
                                 char buf[static THRESHOLD_TEXT_MAX]) {
        const char *whole = value_string(threshold, "threshold"),
                   *metric = value_string(threshold, "metric"), *s;
        char text[FORMAT_MAX];
        double value;

        if (!value_real(threshold, key, &value) || !isfinite(value) || value < 0)
                return "-";

        s = whole && metric ? strstr(whole, metric) : NULL;
        s = s ? s + strlen(metric) : NULL;
        s = s ? s + strspn(s, " <>=0123456789.") : "";
        if (strchr("nums", *s) && *s && value < (double) UINT64_MAX)
                return strcpy(buf, format_duration(text, (uint64_t) value));
        if (strchr("BKMGT", *s) && *s && value < (double) UINT64_MAX)
                return strcpy(buf, format_bytes(text, (uint64_t) value));
        if (value >= 1000 && value < 1e15)
                return strcpy(buf, format_count(text, (uint64_t) value));
        /* As many digits as in messages of qosd */
        (void) snprintf(buf, THRESHOLD_TEXT_MAX, "%.4g", value);
        return buf;
}

/* Joins the arguments with blanks, so that rules need not be quoted. NULL: out of memory. */
static char* join_words(int argc, char **argv) {
        char *text = NULL;
        size_t size;
        FILE *f;

        f = open_memstream(&text, &size);
        if (!f)
                return NULL;
        for (int i = 0; i < argc; i++)
                (void) fprintf(f, "%s%s", i > 0 ? " " : "", argv[i]);
        if (fclose(f) != 0) {
                free(text);
                return NULL;
        }
        return text;
}

int verb_set_threshold(int argc, char **argv) {
        _cleanup_replies_ Replies replies = REPLIES_INIT;
        _cleanup_client_ Client *c = NULL;
        _cleanup_free_ char *rule = NULL;
        int r;

        if (argc < 2) {
                (void) log_failure(-EINVAL,
                                   "Expected a threshold after the unit, as in \"qosctl set-threshold %s "
                                   "'slow: requests.server.firstByte.p99 > 20ms'\".",
                                   argv[0]);
                return STATUS_USAGE;
        }
        rule = join_words(argc - 1, argv + 1);
        if (!rule)
                return log_out_of_memory();

        r = client_connect_to_change(&c);
        if (r < 0)
                return r;
        r = client_callbo(c, QOS_METHOD("SetThreshold"), &replies,
                          SD_JSON_BUILD_PAIR_STRING("unit", argv[0]),
                          SD_JSON_BUILD_PAIR_STRING("threshold", rule),
                          SD_JSON_BUILD_PAIR_BOOLEAN("allowInteractiveAuthentication", arg_ask_password));
        if (r > 0 && streq(replies.error, QOS_METHOD("InvalidThreshold"))) {
                (void) client_fail(r, &replies, "set a threshold of '%s'", argv[0]);
                return STATUS_USAGE;
        }
        return r != 0 ? unit_fail(r, &replies, "set a threshold of", argv[0]) : json_print(replies.items[0]);
}

int verb_clear_threshold(int argc, char **argv) {
        _cleanup_client_ Client *c = NULL;
        int r, status = STATUS_OK;

        if (argc < 2) {
                (void) log_failure(-EINVAL,
                                   "Expected names of thresholds after the unit, see 'qosctl "
                                   "list-thresholds %s'.",
                                   argv[0]);
                return STATUS_USAGE;
        }

        r = client_connect_to_change(&c);
        if (r < 0)
                return r;
        for (int i = 1; i < argc; i++) {
                _cleanup_replies_ Replies replies = REPLIES_INIT;

                r = client_callbo(c, QOS_METHOD("ClearThreshold"), &replies,
                                  SD_JSON_BUILD_PAIR_STRING("unit", argv[0]),
                                  SD_JSON_BUILD_PAIR_STRING("name", argv[i]),
                                  SD_JSON_BUILD_PAIR_BOOLEAN("allowInteractiveAuthentication",
                                                             arg_ask_password));
                status = status_combine(status, r != 0 ? client_fail(r, &replies, "clear '%s' of '%s'",
                                                                     argv[i], argv[0]) :
                                                         json_print(replies.items[0]));
        }
        return status;
}

int thresholds_list(Client *c, const char *unit, Replies *ret) {
        return client_call_morebo(c, QOS_METHOD("ListThresholds"), ret,
                                  SD_JSON_BUILD_PAIR_CONDITION(!!unit, "unit", SD_JSON_BUILD_STRING(unit)));
}

static void add_thresholds(Table *t, const Replies *replies) {
        char buf[THRESHOLD_TEXT_MAX];
        static const char *const burn_rates[] = {
                "burnRate60s", "burnRate5min", "burnRate30min", "burnRate1h", "burnRate6h",
        };
        uint64_t good, total;
        double burn;

        for (size_t i = 0; i < replies->n; i++) {
                sd_json_variant *v = value_find(replies->items[i], "threshold");
                const char *state = value_string(v, "state"),
                           *source = value_string(v, "origin") ?: value_string(v, "source");
                const char *whole = value_string(v, "threshold"), *rule = whole ? strchr(whole, ':') : NULL;

                table_add(t, COLOR_NONE, "%s", strempty(value_string(v, "unit")));
                table_add(t, COLOR_BOLD, "%s", strempty(value_string(v, "name")));
                table_add(t, threshold_color(state), "%s", strempty(state));
                table_add(t, COLOR_NONE, "%s", threshold_value_text(v, "value", buf));
                if (value_unsigned(v, "good", &good) && value_unsigned(v, "total", &total) && total > 0)
                        table_add(t, COLOR_NONE, "%.3f%%", 100. * (double) good / (double) total);
                else
                        table_add_absent(t);
                for (size_t k = 0; k < ELEMENTSOF(burn_rates); k++)
                        if (value_real(v, burn_rates[k], &burn))
                                table_add(t, burn > 1 ? COLOR_RED : COLOR_NONE, "%.2f", burn);
                        else
                                table_add_absent(t);
                table_add(t, COLOR_GREY, "%s", strempty(source));
                table_add(t, COLOR_NONE, "%s", rule ? rule + 1 + strspn(rule + 1, " ") : "");
        }
}

int verb_list_thresholds(int argc, char **argv) {
        static const Column columns[] = {
                { "UNIT",      .minimum = 16                             },
                { "NAME",      .minimum = 8                              },
                { "STATE"                                                },
                { "VALUE",     .right = true                             },
                { "GOOD",      .right = true,                 .rank = 3  },
                { "BURN 60s",  .right = true,                 .rank = 5  },
                { "BURN 5min", .right = true,                 .rank = 4  },
                { "30min",     .right = true,                 .rank = 5  },
                { "1h",        .right = true,                 .rank = 4  },
                { "6h",        .right = true,                 .rank = 5  },
                { "FROM",      .minimum = 13,                 .rank = 1  },
                { "THRESHOLD", .minimum = 24, .wrap = true               },
        };
        _cleanup_(table_freep) Table *t = NULL;
        _cleanup_client_ Client *c = NULL;
        _cleanup_names_ Names names = NAMES_INIT;
        int r, status = STATUS_OK;

        r = client_connect(&c);
        if (r < 0)
                return r;
        t = table_new(columns, ELEMENTSOF(columns));
        if (!t)
                return log_out_of_memory();

        if (argc > 0) {
                status = names_expand_attached(c, argc, argv, &names);
                if (status < 0)
                        return status;
        }
        for (size_t i = 0; i < (argc > 0 ? names.n : 1); i++) {
                _cleanup_replies_ Replies replies = REPLIES_INIT;
                const char *unit = argc > 0 ? names.items[i] : NULL;

                r = thresholds_list(c, unit, &replies);
                if (r != 0) {
                        status = status_combine(status, unit ? unit_read_fail(r, &replies, unit) :
                                                               client_fail(r, &replies, "list thresholds"));
                        continue;
                }
                if (arg_json == JSON_OFF)
                        add_thresholds(t, &replies);
                for (size_t k = 0; k < replies.n && arg_json != JSON_OFF; k++) {
                        r = json_print(value_find(replies.items[k], "threshold"));
                        if (r < 0)
                                return r;
                }
        }
        if (arg_json != JSON_OFF)
                return status;

        pager_open();
        if (table_rows(t) > 0) {
                r = table_print(t, stdout, terminal_style(), arg_legend, 0);
                if (r < 0)
                        return log_out_of_memory();
        }
        if (arg_legend && status == STATUS_OK)
                (void) printf("%s%zu threshold%s.\n", table_rows(t) > 0 ? "\n" : "", table_rows(t),
                              table_rows(t) == 1 ? "" : "s");
        return status;
}

/* Returns the worst state of the thresholds. NULL: there is none. */
static const char* combined_state(const Replies *replies) {
        const char *combined = NULL;

        for (size_t i = 0; i < replies->n; i++) {
                const char *state = value_string(replies->items[i], "threshold.state");

                if (streq_ptr(state, "violated"))
                        return "violated";
                if (!combined || !streq_ptr(state, "ok"))
                        combined = streq_ptr(state, "ok") ? "ok" : "unknown";
        }
        return combined;
}

static int print_state(const char *unit, const char *state) {
        _cleanup_json_ sd_json_variant *v = NULL;

        if (arg_json == JSON_OFF) {
                (void) printf("%s\n", state);
                return 0;
        }
        if (sd_json_buildo(&v, SD_JSON_BUILD_PAIR_STRING("unit", unit),
                           SD_JSON_BUILD_PAIR_STRING("state", state)) < 0)
                return log_out_of_memory();
        return json_print(v);
}

static int print_states(int argc, char **argv, bool *ret_violated) {
        _cleanup_client_ Client *c = NULL;
        _cleanup_names_ Names names = NAMES_INIT;
        int r, status;

        *ret_violated = false;

        r = client_connect(&c);
        if (r < 0)
                return r;
        status = names_expand_attached(c, argc, argv, &names);
        if (status < 0)
                return status;

        for (size_t i = 0; i < names.n; i++) {
                _cleanup_replies_ Replies replies = REPLIES_INIT, listed = REPLIES_INIT;
                const char *state, *unit;

                r = thresholds_list(c, names.items[i], &replies);
                if (r != 0) {
                        status = status_combine(status, unit_read_fail(r, &replies, names.items[i]));
                        continue;
                }
                state = combined_state(&replies);
                unit = value_string(replies.n > 0 ? replies.items[0] : NULL, "threshold.unit");
                if (!unit && arg_json != JSON_OFF) {
                        /* Without thresholds the reply does not have the canonical name of the unit */
                        r = client_call_morebo(c, QOS_METHOD("List"), &listed,
                                               SD_JSON_BUILD_PAIR_STRING("unit", names.items[i]));
                        if (r != 0) {
                                status = status_combine(status, unit_read_fail(r, &listed, names.items[i]));
                                continue;
                        }
                        unit = value_string(listed.n > 0 ? listed.items[0] : NULL, "unit");
                }
                if (!state && arg_json == JSON_OFF)
                        (void) log_failure(0, "'%s' has no thresholds.", names.items[i]);
                r = print_state(unit ?: names.items[i], state ?: "unknown");
                if (r < 0)
                        return r;
                *ret_violated = *ret_violated || streq_ptr(state, "violated");
                if (!streq_ptr(state, "ok") && !streq_ptr(state, "violated"))
                        status = status_combine(status, STATUS_NOT_ATTACHED);
        }
        return status;
}

int verb_is_ok(int argc, char **argv) {
        bool violated;
        int r;

        r = print_states(argc, argv, &violated);
        if (violated)
                return STATUS_FAILED;
        /* STATUS_FAILED is for violations only, so that scripts can distinguish them from other failures */
        return r < 0 || r == STATUS_FAILED ? STATUS_NOT_ATTACHED : r;
}

int verb_wait(int argc, char **argv) {
        _cleanup_replies_ Replies replies = REPLIES_INIT;
        _cleanup_free_ char *condition = NULL;
        _cleanup_client_ Client *c = NULL;
        int r;

        if (argc < 2) {
                (void) log_failure(-EINVAL,
                                   "Expected a condition after the unit, as in \"qosctl wait %s "
                                   "'requests.server.firstByte.p99 < 20ms'\".",
                                   argv[0]);
                return STATUS_USAGE;
        }
        condition = join_words(argc - 1, argv + 1);
        if (!condition)
                return log_out_of_memory();

        r = client_connect(&c);
        if (r < 0)
                return r;
        (void) sd_varlink_set_relative_timeout(c->link, arg_timeout == 0 ? UINT64_MAX :
                                                                           (arg_timeout + NSEC_PER_USEC -
                                                                            1) / NSEC_PER_USEC);
        progress_begin(arg_timeout, /* interruptible= */ false, "Waiting for '%s' of %s", condition,
                       argv[0]);
        r = client_callbo(c, QOS_METHOD("Wait"), &replies,
                          SD_JSON_BUILD_PAIR_STRING("unit", argv[0]),
                          SD_JSON_BUILD_PAIR_STRING("condition", condition));
        progress_end();
        if (r == -ETIMEDOUT || r == -ETIME) {
                (void) log_failure(r, "Timed out waiting for '%s' of '%s'.", condition, argv[0]);
                return STATUS_FAILED;
        }
        if (r > 0 && streq(replies.error, QOS_METHOD("InvalidThreshold"))) {
                (void) client_fail(r, &replies, "wait for '%s'", argv[0]);
                return STATUS_USAGE;
        }
        return r != 0 ? unit_read_fail(r, &replies, argv[0]) : json_print(replies.items[0]);
}
