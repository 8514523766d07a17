/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* monitor */

#include <fcntl.h>
#include <inttypes.h>
#include <sys/wait.h>

#include "client.h"
#include "format.h"
#include "qosctl.h"
#include "snapshot-view.h"
#include "state-label.h"
#include "table.h"
#include "thresholds.h"
#include "unit-names.h"
#include "value.h"

typedef struct Monitoring {
        uint64_t seq;                   /* number of the last event */
        bool resumes;                   /* whether to continue after that event */
        Table *table;                   /* rows of snapshots; NULL: events are printed */
        bool begun;                     /* whether the header was printed */
        bool done;
        int error;
        char *failure;                  /* error reply and its parameters */
        sd_json_variant *parameters;
} Monitoring;

static void monitoring_done(Monitoring *m) {
        free(m->failure);
        (void) sd_json_variant_unref(m->parameters);
        *m = (Monitoring) { .seq = m->seq, .resumes = m->resumes };
}

static void print_crossing(sd_json_variant *v, uint64_t at) {
        const char *state = value_string(v, "state"), *rule = value_string(v, "threshold");
        sd_json_variant *shares = value_find(v, "shares");
        _cleanup_free_ char *unit = NULL, *clean = NULL;
        const Style *style = terminal_style();
        char time[FORMAT_MAX], value[THRESHOLD_TEXT_MAX];

        unit = text_clean(strempty(value_string(v, "unit")), style->utf8);
        clean = text_clean(strempty(rule), style->utf8);
        (void) printf("%s %s %s%s%s %s", format_time(time, at, now_nsec(CLOCK_REALTIME)), strempty(unit),
                      color_on(style, threshold_color(state)), strempty(state), color_off(style),
                      threshold_value_text(v, "value", value));
        for (size_t i = 0; shares && i < sd_json_variant_elements(shares); i++) {
                sd_json_variant *change = sd_json_variant_by_index(shares, i);
                _cleanup_free_ char *name = text_clean(strempty(value_string(change, "state")), style->utf8);
                double share, usual;

                if (value_real(change, "share", &share) && value_real(change, "usual", &usual))
                        (void) printf(", %s %.0f%% (usually %.0f%%)", thread_state_label(strempty(name)),
                                      share * 100, usual * 100);
        }
        (void) printf(" (%s)\n", strempty(clean));
}

static int print_reply(sd_json_variant *parameters, Monitoring *m) {
        sd_json_variant *thresholds = value_find(parameters, "thresholds"),
                        *event = value_find(parameters, "event");
        uint64_t n = 0;

        if (arg_json != JSON_OFF)
                return json_print(parameters);

        if (value_unsigned(parameters, "missedEvents", &n))
                (void) log_failure(0, "%" PRIu64 " state change%s missed.", n, n == 1 ? "" : "s");
        for (size_t i = 0; thresholds && i < sd_json_variant_elements(thresholds); i++) {
                sd_json_variant *v = sd_json_variant_by_index(thresholds, i);

                if (value_time(v, "since", &n))
                        print_crossing(v, n);
        }
        if (event && value_time(event, "timestamp", &n))
                print_crossing(event, n);
        /* Do not buffer in pipes */
        return fflush(stdout) < 0 ? -errno : 0;
}

/* Sets an environment variable of the command to a field of the event, or unsets it if the field is
 * absent. */
static int export_field(sd_json_variant *event, const char *field, const char *variable) {
        sd_json_variant *v = value_find(event, field);
        _cleanup_free_ char *text = NULL;
        int r;

        if (!v)
                return unsetenv(variable) < 0 ? -errno : 0;
        if (sd_json_variant_is_string(v))
                return setenv(variable, sd_json_variant_string(v), 1) < 0 ? -errno : 0;
        r = sd_json_variant_format(v, 0, &text);
        if (r < 0)
                return r;
        return setenv(variable, text, 1) < 0 ? -errno : 0;
}

/* Runs the command with the event in its environment, under the names of the fields in the journal. Waits
 * for its end, so that events are handled in order: qosd queues events meanwhile, and reports how many were
 * missed. */
static int run_command(sd_json_variant *event) {
        static const struct {
                const char *field, *variable;
        } table[] = {
                { "unit",      "QOS_UNIT"      },
                { "name",      "QOS_THRESHOLD" },
                { "threshold", "QOS_RULE"      },
                { "metric",    "QOS_METRIC"    },
                { "state",     "QOS_STATE"     },
                { "previous",  "QOS_PREVIOUS"  },
                { "value",     "QOS_VALUE"     },
                { "limit",     "QOS_LIMIT"     },
                { "timestamp", "QOS_TIMESTAMP" },
        };
        int r = 0, status;
        pid_t pid;

        for (size_t i = 0; i < ELEMENTSOF(table) && r >= 0; i++)
                r = export_field(event, table[i].field, table[i].variable);
        if (r < 0)
                return log_failure(r, "Failed to set up the environment of the command: %m");

        pid = fork();
        if (pid < 0)
                return log_failure(-errno, "Failed to run the command: %m");
        if (pid == 0) {
                int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

                if (null >= 0)
                        (void) dup2(null, STDIN_FILENO);
                (void) execl("/bin/sh", "sh", "-c", arg_exec, NULL);
                _exit(127);
        }
        while (waitpid(pid, &status, 0) < 0)
                if (errno != EINTR)
                        return log_failure(-errno, "Failed to wait for the command: %m");

        /* Failures do not end the monitor */
        if (WIFSIGNALED(status))
                (void) log_failure(0, "The command for %s of '%s' was killed by signal %i.",
                                   strempty(value_string(event, "name")),
                                   strempty(value_string(event, "unit")), WTERMSIG(status));
        else if (WEXITSTATUS(status) != 0)
                (void) log_failure(0, "The command for %s of '%s' failed with exit status %i.",
                                   strempty(value_string(event, "name")),
                                   strempty(value_string(event, "unit")), WEXITSTATUS(status));
        return 0;
}

/* Adds a snapshot as a row. */
static int add_reading(sd_json_variant *parameters, Monitoring *m) {
        sd_json_variant *snapshot = value_find(parameters, "snapshot");
        /* Missing quantiles are not replaced by those of longer windows, as each row is about its own
         * interval */
        Reading r = { .item = parameters,
                      .snapshot = snapshot,
                      .unit = strempty(value_string(snapshot, "unit")) };
        char time[FORMAT_MAX];
        uint64_t n;

        if (arg_json != JSON_OFF)
                return json_print(parameters);

        if (value_unsigned(parameters, "skipped", &n))
                (void) log_failure(0, "%" PRIu64 " sample%s skipped (slow reader).", n, n == 1 ? "" : "s");
        if (value_time(snapshot, "timestamp", &n)) {
                table_add(m->table, COLOR_GREY, "%s", format_time(time, n, now_nsec(CLOCK_REALTIME)));
                reading_add_row(&r, m->table);
        }
        return 0;
}

/* Prints the collected rows. */
static int print_readings(Monitoring *m) {
        if (table_rows(m->table) == 0)
                return 0;
        if (table_print(m->table, stdout, terminal_style(), !m->begun && arg_legend, 0) < 0)
                return log_out_of_memory();
        m->begun = true;
        table_clear(m->table);
        /* Do not buffer in pipes */
        return fflush(stdout) < 0 ? -errno : 0;
}

static int on_monitor(sd_varlink *link, sd_json_variant *parameters, const char *error,
                      sd_varlink_reply_flags_t flags, void *userdata) {
        Monitoring *m = ASSERT_PTR(userdata);

        m->done = error || !(flags & SD_VARLINK_REPLY_CONTINUES);
        if (error) {
                m->failure = strdup(error);
                m->parameters = sd_json_variant_ref(parameters);
                m->error = m->failure ? 0 : -ENOMEM;
        } else {
                if (value_unsigned(parameters, "event.seq", &m->seq) ||
                    (!m->resumes && value_unsigned(parameters, "seq", &m->seq)))
                        m->resumes = true;
                m->error = m->table ? add_reading(parameters, m) : print_reply(parameters, m);
                if (m->error >= 0 && arg_exec && value_find(parameters, "event"))
                        m->error = run_command(value_find(parameters, "event"));
        }
        m->done = m->done || m->error < 0;
        return 0;
}

/* Makes the call, and handles replies until it ends. Returns a negative errno if the connection was lost or
 * a reply could not be handled. */
static int monitor_once(Client *c, const Names *names, Monitoring *m) {
        _cleanup_json_ sd_json_variant *parameters = NULL;
        int r;

        r = sd_json_buildo(&parameters,
                           SD_JSON_BUILD_PAIR_CONDITION(m->resumes, "since", SD_JSON_BUILD_UNSIGNED(m->seq)),
                           SD_JSON_BUILD_PAIR_CONDITION(!!m->table, "interval",
                                                        SD_JSON_BUILD_UNSIGNED(arg_interval)),
                           SD_JSON_BUILD_PAIR_CONDITION(arg_window != WINDOW_UNSET, "window",
                                                        SD_JSON_BUILD_UNSIGNED(arg_window)));
        for (size_t i = 0; i < names->n && r >= 0; i++) {
                _cleanup_json_ sd_json_variant *units = sd_json_variant_ref(
                        sd_json_variant_by_key(parameters, "units"));

                r = sd_json_variant_append_arrayb(&units, SD_JSON_BUILD_STRING(names->items[i]));
                if (r >= 0)
                        r = sd_json_variant_set_field(&parameters, "units", units);
        }
        if (r < 0)
                return r;

        (void) sd_varlink_set_userdata(c->link, m);
        (void) sd_varlink_set_relative_timeout(c->link, UINT64_MAX);
        r = sd_varlink_bind_reply(c->link, on_monitor);
        if (r >= 0)
                r = sd_varlink_observe(c->link, m->table ? QOS_METHOD("Subscribe") : QOS_METHOD("Monitor"),
                                       parameters);
        while (r >= 0 && !m->done) {
                r = sd_varlink_process(c->link);
                if (r == 0 && m->table)
                        r = print_readings(m);
                if (r == 0)
                        r = sd_varlink_wait(c->link, UINT64_MAX);
        }
        if (r >= 0 && m->table)
                r = print_readings(m);
        return r < 0 ? r : m->error;
}

/* Reports that there is no threshold yet, as nothing would be printed then. */
static int hint_no_thresholds(Client *c, const Names *names) {
        for (size_t i = 0; i < MAX(names->n, (size_t) 1); i++) {
                _cleanup_replies_ Replies replies = REPLIES_INIT;
                const char *unit = i < names->n ? names->items[i] : NULL;
                int r;

                r = thresholds_list(c, unit, &replies);
                if (r < 0)
                        return r;
                /* The call that follows reports errors */
                if (r > 0 || (replies.n > 0 && value_find(replies.items[0], "threshold")))
                        return 0;
        }
        (void) log_failure(0, "No thresholds are set, waiting for some. To set one: qosctl set-threshold "
                              "UNIT RULE");
        return 0;
}

int verb_monitor(int argc, char **argv) {
        _cleanup_free_ Column *columns = NULL;
        _cleanup_(table_freep) Table *table = NULL;
        _cleanup_(monitoring_done) Monitoring m = {};
        _cleanup_names_ Names names = NAMES_INIT;
        _cleanup_client_ Client *c = NULL;
        Replies failed;
        int r;

        if (arg_interval == 0 && arg_window != WINDOW_UNSET) {
                (void) log_failure(-EINVAL, "--window= requires --interval=: each threshold has a window of "
                                            "its own.");
                return STATUS_USAGE;
        }

        if (arg_exec && arg_interval > 0) {
                (void) log_failure(-EINVAL, "--exec= cannot be combined with --interval=: samples are no "
                                            "state changes.");
                return STATUS_USAGE;
        }

        r = client_connect(&c);
        if (r < 0)
                return r;
        r = argc > 0 ? names_expand_attached(c, argc, argv, &names) : STATUS_OK;
        if (r != STATUS_OK)
                return r;

        if (arg_interval > 0) {
                columns = new0(Column, 1 + n_unit_columns);
                if (!columns)
                        return log_out_of_memory();
                columns[0] = (Column) { "TIME" };
                memcpy(columns + 1, unit_columns, n_unit_columns * sizeof(Column));
                m.table = table = table_new(columns, 1 + n_unit_columns);
                if (!table)
                        return log_out_of_memory();
        } else if (arg_json == JSON_OFF) {
                r = hint_no_thresholds(c, &names);
                if (r < 0)
                        return client_fail(r, NULL, "list thresholds");
                (void) sd_varlink_bind_reply(c->link, NULL); /* set by thresholds_list() */
        }

        /* Resume if the monitor was disconnected as a slow reader */
        do {
                monitoring_done(&m);
                m.table = table;
                r = monitor_once(c, &names, &m);
        } while (r >= 0 && streq_ptr(m.failure, QOS_METHOD("TooSlow")));

        failed = (Replies) { .error = m.failure, .parameters = m.parameters };
        if (r >= 0 && m.failure && streq(m.failure, SD_VARLINK_ERROR_DISCONNECTED))
                r = -ECONNRESET;
        return client_fail(r < 0 ? r : 1, &failed, arg_interval > 0 ? "read samples" : "monitor thresholds");
}
