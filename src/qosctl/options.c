/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <getopt.h>
#include <stdlib.h>
#include <time.h>

#include "format.h"
#include "hosts.h"
#include "parse.h"
#include "qosctl.h"
#include "terminal.h"
#include "verbs.h"

/* Limit of items in a list option. */
#define LIST_MAX 1024U

/* Bounds of intervals: windows do not advance more often than every 100 ms. */
#define REPEAT_MIN (100 * NSEC_PER_MSEC)
#define REPEAT_MAX (24 * 3600 * NSEC_PER_SEC)

/* ---- values ------------------------------------------------------------------------------------------- */

/* Appends words that are separated by commas or blanks to a NULL-terminated list. */
static int list_extend(char ***list, const char *words) {
        size_t n = 0;

        while (*list && (*list)[n])
                n++;

        for (words += strspn(words, ", \t"); *words; words += strspn(words, ", \t")) {
                size_t l = strcspn(words, ", \t");
                char **p;

                if (n >= LIST_MAX)
                        return -E2BIG;
                p = reallocarray(*list, n + 2, sizeof(char*));
                if (!p)
                        return -ENOMEM;
                *list = p;
                p[n] = strndup(words, l);
                if (!p[n])
                        return -ENOMEM;
                p[++n] = NULL;
                words += l;
        }

        return n > 0 ? 0 : -EINVAL;
}

/* expected: expected values, for the error message */
static int parse_list(const char *value, char ***list, const char *what, const char *expected) {
        int r;

        r = list_extend(list, value);
        if (r == -ENOMEM)
                return log_out_of_memory();
        if (r < 0)
                return log_failure(-EINVAL, "Invalid %s '%s', %s.", what, value, expected);
        return 0;
}

static int parse_hosts(const char *value) {
        int r;

        r = hosts_parse(value);
        return r < 0 && r != -ENOMEM ? -EINVAL : r;
}

static int parse_window_option(const char *value) {
        if (parse_window(value, &arg_window) < 0)
                return log_failure(-EINVAL, "Invalid window '%s', expected a time span such as 10s, 60s or "
                                   "5min, or 'total'.", value);
        arg_window_text = value;
        return 0;
}

static int parse_past(const char *value, uint64_t *ret) {
        int r;

        r = parse_since(value, now_nsec(CLOCK_REALTIME), ret);
        if (r == -ERANGE)
                return log_failure(-EINVAL, "Time '%s' is in the future, expected a time in the past.",
                                   value);
        if (r < 0)
                return log_failure(-EINVAL, "Invalid time '%s', expected a time span (10min, 2h) or a point "
                                   "in time (09:00, today, '2025-11-21 09:00').", value);
        return 0;
}

static int parse_since_option(const char *value) {
        return parse_past(value, &arg_since);
}

static int parse_until_option(const char *value) {
        return parse_past(value, &arg_until);
}

static int parse_probes(const char *value) {
        return parse_list(value, &arg_probes, "list of probes", "expected names separated by commas");
}

static int parse_excludes(const char *value) {
        return parse_list(value, &arg_excludes, "list of exclusions",
                          "expected port:N, http:/PATH or redis:COMMAND separated by commas");
}

static int parse_metric(const char *value) {
        return parse_list(value, &arg_metrics, "metric", "see 'qosctl list-metrics'");
}

static int parse_for(const char *value) {
        if (parse_span(value, &arg_for) < 0 || arg_for == 0)
                return log_failure(-EINVAL, "Invalid time '%s', expected a time span such as 10min or 1h "
                                   "30min.", value);
        arg_for_text = value;
        return 0;
}

static int parse_text(const char *value, const char **text, const char *what, const char *option) {
        if (isempty(value))
                return log_failure(-EINVAL, "Expected a %s for --%s=.", what, option);
        *text = value;
        return 0;
}

static int parse_save(const char *value) {
        return parse_text(value, &arg_save, "file name", "save");
}

static int parse_against(const char *value) {
        return parse_text(value, &arg_against, "file name", "against");
}

static int parse_output(const char *value) {
        return parse_text(value, &arg_output, "file name", "output");
}

static int parse_exec(const char *value) {
        return parse_text(value, &arg_exec, "command", "exec");
}

static int parse_sort(const char *value) {
        static const char *const keys[] = { "queued", "retransmits", "rtt", "bytes", "age" };

        for (size_t i = 0; i < ELEMENTSOF(keys); i++)
                if (streq(value, keys[i])) {
                        arg_sort = keys[i];
                        return 0;
                }
        return log_failure(-EINVAL, "Invalid sort key '%s', expected 'queued', 'retransmits', 'rtt', "
                                    "'bytes' or 'age'.", value);
}

static int parse_timeout(const char *value) {
        if (parse_span(value, &arg_timeout) < 0 || arg_timeout == 0)
                return log_failure(-EINVAL, "Invalid time '%s', expected a time span such as 30s or 10min.",
                                   value);
        return 0;
}

static int parse_repeat(const char *value, const char *what, uint64_t *ret) {
        if (parse_span(value, ret) < 0 || *ret < REPEAT_MIN || *ret > REPEAT_MAX)
                return log_failure(-EINVAL, "Invalid %s '%s', expected a time span from 100ms to 1d.", what,
                                   value);
        return 0;
}

static int parse_interval(const char *value) {
        arg_interval_text = value;
        return parse_repeat(value, "interval", &arg_interval);
}

static int parse_delay(const char *value) {
        return parse_repeat(value, "delay", &arg_delay);
}

static int parse_iterations(const char *value) {
        char *end;

        errno = 0;
        arg_iterations = strtoull(value, &end, 10);
        if (errno != 0 || end == value || *end || arg_iterations == 0 || strchr(value, '-'))
                return log_failure(-EINVAL, "Invalid number of iterations '%s', expected a positive "
                                   "integer.", value);
        return 0;
}

static int parse_format(const char *value) {
        static const char *const names[] = {
                [EXPOSITION_OPENMETRICS]  = "openmetrics",
                [EXPOSITION_OPENMETRICS2] = "openmetrics2",
                [EXPOSITION_PROMETHEUS]   = "prometheus",
                [EXPOSITION_PROTOBUF]     = "protobuf",
        };

        for (size_t i = 0; i < ELEMENTSOF(names); i++) {
                if (!streq(value, names[i]))
                        continue;
                if (!exposition_is_supported(i))
                        return log_failure(-EOPNOTSUPP, "Format '%s' is not supported: qosctl was built "
                                           "without protobuf-c.", value);
                arg_exposition = i;
                return 0;
        }
        return log_failure(-EINVAL, "Invalid format '%s', expected openmetrics, openmetrics2, prometheus or "
                           "protobuf.", value);
}

static int parse_buckets(const char *value) {
        int r;

        r = exposition_parse_buckets(value, &arg_buckets_max);
        if (r < 0)
                return log_failure(r, "Invalid number of buckets '%s', expected 0 or %u to %u.", value,
                                   EXPOSITION_BUCKETS_MIN, EXPOSITION_BUCKETS_MAX);
        return 0;
}

static int parse_export(const char *value) {
        int r;

        r = exposition_parse_scope(value, &arg_scope);
        if (r < 0)
                return log_failure(r, "Invalid value '%s' for --export=, expected " EXPOSITION_SCOPES ".",
                                   value);
        return 0;
}

static int parse_series(const char *value) {
        int r;

        r = exposition_parse_series(value, &arg_series_max);
        if (r < 0)
                return log_failure(r, "Invalid number of series '%s', expected 0 to %u.", value,
                                   EXPOSITION_SERIES_MAX);
        return 0;
}

static int parse_json(const char *value) {
        static const char *const names[] = {
                [JSON_OFF]    = "off",
                [JSON_SHORT]  = "short",
                [JSON_PRETTY] = "pretty",
        };

        for (size_t i = 0; i < ELEMENTSOF(names); i++)
                if (streq(value, names[i])) {
                        arg_json = i;
                        return 0;
                }
        return log_failure(-EINVAL, "Invalid output format '%s', expected short, pretty or off.", value);
}

static int parse_json_short(const char *value) {
        arg_json = terminal_is_tty() ? JSON_PRETTY : JSON_SHORT;
        return 0;
}

/* ---- options ------------------------------------------------------------------------------------------ */

/* In the order of the help. */
const Option option_table[] = {
        { "-h --help", -1,
          "Show this help",
          .set = &arg_help },
        { "   --version", -1,
          "Show the version",
          .set = &arg_version },
        { "-H --host=[USER@]HOST,...", -1,
          "Operate on remote host, over ssh; list, status,\n"
          "histogram, diagnose: also on several",
          ":hosts",
          .parse = parse_hosts },
        { "   --user", -1,
          "Units of your own service manager",
          .set = &arg_user },
        { "   --window=SPAN", OPTION_WINDOW,
          "Time window: up to 10s, 60s, 5min, or total",
          "100ms 500ms 1s 10s 60s 5min total",
          .parse = parse_window_option },
        { "   --since=TIME", OPTION_SINCE,
          "With history, heatmap, report: start time (default:\n"
          "an hour ago)",
          "5min 10min 1h 6h today yesterday",
          .parse = parse_since_option },
        { "   --until=TIME", OPTION_SINCE,
          "With history, heatmap, report: end time (default:\n"
          "now)",
          "5min 10min 1h 6h today yesterday",
          .parse = parse_until_option },
        { "   --svg", OPTION_SVG,
          "With history, heatmap: draw a picture in SVG",
          .set = &arg_svg },
        { "-o --output=FILE", OPTION_REPORT,
          "With report: write to FILE",
          ":files",
          .parse = parse_output },
        { "   --redact", OPTION_REPORT,
          "With report: replace names of peers, endpoints,\n"
          "files and other units",
          .set = &arg_redact },
        { "-a --all", OPTION_ALL,
          "With list: include units with listening sockets\n"
          "With detach: all units",
          .set = &arg_all },
        { "   --listening", OPTION_LISTENING,
          "With attach: all units of this host that listen on\n"
          "TCP, after showing them and what they take",
          .set = &arg_listening },
        { "   --yes", OPTION_LISTENING,
          "With attach --listening: do not prompt",
          .set = &arg_yes },
        { "   --now", OPTION_NOW,
          "With enable: wait until units are observed",
          .set = &arg_now },
        { "   --probes=PROBE,...", OPTION_PROBES,
          "With attach, enable: select probes: requests,\n"
          "tls, cpu, block, memory, storage, network",
          "requests tls cpu block memory storage network",
          .parse = parse_probes },
        { "   --exclude=WHAT,...", OPTION_EXCLUDE,
          "With attach, enable: exclude requests by port:N,\n"
          "http:/PATH, redis:COMMAND",
          "port: http:/ redis:",
          .parse = parse_excludes },
        { "   --sort=KEY", OPTION_SORT,
          "With connections: those with most queued bytes\n"
          "(default), retransmits, rtt, bytes, age first",
          "queued retransmits rtt bytes age",
          .parse = parse_sort },
        { "   --for=SPAN", OPTION_FOR,
          "With attach: detach after SPAN\n"
          "With threads, resources: sample for SPAN\n"
          "With diagnose, report, path: observe for SPAN\n"
          "(default: 10s)\n"
          "With why: observe each unit for SPAN (default: 5s)",
          "1s 2s 5s 10s 1min 10min 1h 1d",
          .parse = parse_for },
        { "   --save=FILE", OPTION_NORMAL,
          "With diagnose: save the metrics as a baseline",
          ":files",
          .parse = parse_save },
        { "   --against=FILE", OPTION_NORMAL,
          "With diagnose: compare with a saved baseline",
          ":files",
          .parse = parse_against },
        { "   --interval=SPAN", OPTION_INTERVAL,
          "With monitor: show a sample every SPAN",
          "100ms 1s 5s",
          .parse = parse_interval },
        { "   --exec=COMMAND", OPTION_EXEC,
          "With monitor: run COMMAND at each state change",
          .parse = parse_exec },
        { "   --timeout=SPAN", OPTION_TIMEOUT,
          "With wait: fail after SPAN",
          "10s 30s 1min 10min",
          .parse = parse_timeout },
        { "   --format=FORMAT", OPTION_FORMAT,
          "With metrics: openmetrics (default), openmetrics2,\n"
          "prometheus, protobuf",
          "openmetrics openmetrics2 prometheus protobuf",
          .parse = parse_format },
        { "   --buckets-max=N", OPTION_BUCKETS,
          "With metrics: limit the buckets of a native\n"
          "histogram (default: 160), 0 for no limit",
          .parse = parse_buckets },
        { "   --export=WHAT", OPTION_SERIES,
          "With metrics: requests, for the essential ones,\n"
          "or probes (default), for those of all their\n"
          "probes, or everything, also for those of\n"
          "endpoints, devices, mounts and reasons of drops",
          "requests probes everything",
          .parse = parse_export },
        { "   --series-max=N", OPTION_SERIES,
          "With metrics: limit the series of all units, a\n"
          "histogram being one, 0 for no limit (default)",
          .parse = parse_series },
        { "   --verbose", OPTION_VERBOSE,
          "With metrics: show the number of series and the\n"
          "schemas of histograms on standard error",
          .set = &arg_verbose },
        { "-P METRIC", OPTION_METRICS,
          "With show: show only this metric",
          ":metrics",
          .parse = parse_metric },
        { "   --value", OPTION_METRICS,
          "With show: print only values",
          .set = &arg_value },
        { "-b --batch", OPTION_REPEAT,
          "With top: print tables without clearing the screen",
          .set = &arg_batch },
        { "-n --iterations=N", OPTION_REPEAT,
          "With top: exit after N tables",
          .parse = parse_iterations },
        { "-d --delay=SPAN", OPTION_REPEAT,
          "With top: interval between tables (default: 1s)",
          "100ms 1s 5s",
          .parse = parse_delay },
        { "   --json=short|pretty|off", -1,
          "Generate JSON output",
          "short pretty off",
          .parse = parse_json },
        { "-j", -1,
          "--json=pretty on a terminal, else --json=short",
          .parse = parse_json_short },
        { "   --no-pager", -1,
          "Do not pipe output into a pager",
          .set = &arg_no_pager },
        { "   --no-legend", -1,
          "Do not print headers and footers",
          .clear = &arg_legend },
        { "   --no-ask-password", -1,
          "Do not prompt for passwords",
          .clear = &arg_ask_password },
};

const size_t option_number = ELEMENTSOF(option_table);

/* By option: entry that was given last, for error messages of options_check(). */
static const Option *given[_OPTION_MAX];

const char* option_long(const Option *o, size_t *ret_length) {
        const char *name = strstr(o->usage, "--");

        if (name)
                *ret_length = strcspn(name, "=");
        return name;
}

bool option_has_value(const Option *o) {
        return strchr(o->usage, '=') || (o->usage[0] == '-' && o->usage[2] == ' ' && o->usage[3] != '-');
}

static int option_take(const Option *o, const char *value) {
        if (o->option >= 0)
                given[o->option] = o;
        if (o->set)
                *o->set = true;
        if (o->clear)
                *o->clear = false;
        return o->parse ? o->parse(value) : 0;
}

/* Values of long options for getopt_long() are indexes in option_table plus this offset, beyond all
 * letters. */
#define OPTION_VALUE 0x100

/* Buffer size for a long name without "--". */
#define OPTION_NAME_MAX 32U

/* letters: buffer of two characters for each option, and one for the terminating NUL */
static void options_describe(struct option *ret_long, char *letters, char names[][OPTION_NAME_MAX]) {
        for (size_t i = 0; i < ELEMENTSOF(option_table); i++) {
                const Option *o = option_table + i;
                bool value = option_has_value(o);
                const char *name;
                size_t l;

                if (o->usage[0] == '-') {
                        *letters++ = o->usage[1];
                        if (value)
                                *letters++ = ':';
                }
                name = option_long(o, &l);
                if (!name)
                        continue;
                (void) snprintf(names[i], OPTION_NAME_MAX, "%.*s", (int) l - 2, name + 2);
                *ret_long++ = (struct option) { names[i], value ? required_argument : no_argument, NULL,
                                                OPTION_VALUE + (int) i };
        }
        *ret_long = (struct option) {};
        *letters = 0;
}

static const Option* option_find(int c) {
        if (c >= OPTION_VALUE)
                return option_table + (c - OPTION_VALUE);
        for (size_t i = 0; i < ELEMENTSOF(option_table); i++)
                if (option_table[i].usage[0] == '-' && option_table[i].usage[1] == c)
                        return option_table + i;
        return NULL;
}

int options_parse(int argc, char **argv) {
        char names[ELEMENTSOF(option_table)][OPTION_NAME_MAX], letters[2 * ELEMENTSOF(option_table) + 1];
        struct option options[ELEMENTSOF(option_table) + 1];
        int c, r;

        options_describe(options, letters, names);
        while ((c = getopt_long(argc, argv, letters, options, NULL)) >= 0) {
                const Option *o = option_find(c);

                if (!o) {
                        /* getopt_long() has printed a message */
                        for (int i = 1; i < argc; i++)
                                if (streq(argv[i], "measure"))
                                        (void) log_failure(0, "Options of the command that is measured have "
                                                           "to follow '--': qosctl measure UNIT -- "
                                                           "COMMAND...");
                        return -EINVAL;
                }
                r = option_take(o, optarg);
                if (r < 0)
                        return r;
                if (arg_help || arg_version)
                        return 0;
        }
        return 0;
}

bool options_check(const Verb *v) {
        for (size_t i = 0; i < _OPTION_MAX; i++)
                if (given[i] && !(v->takes & (1U << i))) {
                        const char *name;
                        size_t l = 0;

                        name = option_long(given[i], &l);
                        if (name)
                                l += name[l] == '=';
                        else {
                                name = given[i]->usage;
                                l = 2;
                        }
                        (void) log_failure(-EINVAL, "Option %.*s is not supported by '%s'.", (int) l, name,
                                           v->name);
                        return false;
                }
        return true;
}
