/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <getopt.h>
#include <locale.h>
#include <time.h>

#include "client.h"
#include "command.h"
#include "complete.h"
#include "config-build.h"
#include "format.h"
#include "hosts.h"
#include "parse.h"
#include "qosctl.h"
#include "terminal.h"
#include "unit-names.h"
#include "user-units.h"

/* Limit of items in a list option. */
#define LIST_MAX 1024U

/* Bounds of the interval: windows do not advance faster. */
#define REPEAT_MIN (100 * NSEC_PER_MSEC)
#define REPEAT_MAX (24 * 3600 * NSEC_PER_SEC)

/* Options that only some verbs accept; options always accepted together are one. */
enum {
        OPTION_ALL,
        OPTION_PROBES,
        OPTION_EXCLUDE,
        OPTION_FOR,
        OPTION_WINDOW,
        OPTION_METRICS,
        OPTION_REPEAT,
        OPTION_SINCE,
        OPTION_TIMEOUT,
        OPTION_NOW,
        OPTION_LISTENING,
        OPTION_NORMAL,
        OPTION_INTERVAL,
        OPTION_EXEC,
        OPTION_FORMAT,
        OPTION_BUCKETS,
        OPTION_SERIES,
        OPTION_VERBOSE,
        _OPTION_MAX,
};

#define OPTION_MASK(option) (1U << OPTION_##option)

/* Flags besides options: a pattern must not match other units than intended. */
#define ONE_UNIT (1U << _OPTION_MAX)
#define NAMED_UNITS (2U << _OPTION_MAX)

/* As written on the command line, for error messages. */
static const char *given[_OPTION_MAX];

static int verb_help(int argc, char **argv);

/* In the order of the help. */
static const Verb verbs[] = {
        { "list", "[PATTERN...]", "List attached units (the default)",
                GROUP_UNIT, 0, -1, CANDIDATES_ATTACHED, CANDIDATES_ATTACHED,
                OPTION_MASK(ALL) | OPTION_MASK(WINDOW),
                verb_list, verb_list_hosts },
        { "attach", "UNIT...|--listening", "Start observing units",
                GROUP_UNIT, 0, -1, CANDIDATES_UNITS, CANDIDATES_UNITS,
                OPTION_MASK(LISTENING) | OPTION_MASK(PROBES) | OPTION_MASK(EXCLUDE) | OPTION_MASK(FOR),
                verb_attach },
        { "detach", "UNIT...|--all", "Stop observing units",
                GROUP_UNIT, 0, -1, CANDIDATES_ATTACHED, CANDIDATES_ATTACHED,
                OPTION_MASK(ALL),
                verb_detach },
        { "enable", "UNIT...", "Start observing units at boot",
                GROUP_UNIT, 1, -1, CANDIDATES_UNITS, CANDIDATES_UNITS,
                OPTION_MASK(PROBES) | OPTION_MASK(EXCLUDE) | OPTION_MASK(NOW) | NAMED_UNITS,
                verb_enable },
        { "disable", "UNIT...", "Do not start observing units at boot",
                GROUP_UNIT, 1, -1, CANDIDATES_UNITS, CANDIDATES_UNITS,
                NAMED_UNITS,
                verb_disable },
        { "verify", "UNIT|FILE...", "Check settings of qosd in unit files",
                GROUP_UNIT, 1, -1, CANDIDATES_UNITS_FILES, CANDIDATES_UNITS_FILES,
                0,
                verb_verify },
        { "status", "UNIT...", "Show metrics of units in human-readable form",
                GROUP_UNIT, 1, -1, CANDIDATES_ATTACHED, CANDIDATES_ATTACHED,
                OPTION_MASK(WINDOW),
                verb_status, verb_status_hosts },
        { "show", "UNIT...", "Show metrics of units in machine-readable form",
                GROUP_UNIT, 1, -1, CANDIDATES_ATTACHED, CANDIDATES_ATTACHED,
                OPTION_MASK(WINDOW) | OPTION_MASK(METRICS),
                verb_show },
        { "threads", "UNIT...", "Show how threads of units spend their time",
                GROUP_UNIT, 1, -1, CANDIDATES_ATTACHED, CANDIDATES_ATTACHED,
                OPTION_MASK(FOR),
                verb_threads },
        { "resources", "UNIT...", "Show resource usage and what threads wait for",
                GROUP_UNIT, 1, -1, CANDIDATES_ATTACHED, CANDIDATES_ATTACHED,
                OPTION_MASK(WINDOW) | OPTION_MASK(FOR),
                verb_resources },
        { "mounts", "UNIT...", "Show what units request of each file system",
                GROUP_UNIT, 1, -1, CANDIDATES_ATTACHED, CANDIDATES_ATTACHED,
                OPTION_MASK(WINDOW),
                verb_mounts },
        { "top", "[UNIT...]", "Show metrics of units continuously",
                GROUP_UNIT, 0, -1, CANDIDATES_UNITS, CANDIDATES_UNITS,
                OPTION_MASK(WINDOW) | OPTION_MASK(REPEAT),
                verb_top },
        { "histogram", "UNIT [METRIC]", "Show the distribution of a duration",
                GROUP_UNIT, 1, 2, CANDIDATES_ATTACHED, CANDIDATES_DISTRIBUTIONS,
                OPTION_MASK(WINDOW),
                verb_histogram, verb_histogram_hosts },
        { "history", "UNIT [METRIC...]", "Show metrics over time",
                GROUP_UNIT, 1, -1, CANDIDATES_ATTACHED, CANDIDATES_METRICS,
                OPTION_MASK(SINCE),
                verb_history },
        { "heatmap", "UNIT [METRIC]", "Show the distribution of a duration over time",
                GROUP_UNIT, 1, 2, CANDIDATES_ATTACHED, CANDIDATES_RECORDED,
                OPTION_MASK(SINCE),
                verb_heatmap },
        { "measure", "UNIT -- COMMAND", "Show metrics of a unit while COMMAND runs",
                GROUP_UNIT, 1, -1, CANDIDATES_UNITS, CANDIDATES_COMMAND,
                ONE_UNIT,
                verb_measure },
        { "diagnose", "UNIT", "Find the bottleneck of a unit",
                GROUP_UNIT, 1, 1, CANDIDATES_UNITS, CANDIDATES_NONE,
                OPTION_MASK(FOR) | OPTION_MASK(NORMAL) | ONE_UNIT,
                verb_diagnose, verb_diagnose_hosts },
        { "why", "UNIT", "Follow what a unit waits for, from unit to unit",
                GROUP_UNIT, 1, 1, CANDIDATES_UNITS, CANDIDATES_NONE,
                OPTION_MASK(FOR) | ONE_UNIT,
                verb_why },
        { "set-threshold", "UNIT RULE", "Set an alert threshold for a unit",
                GROUP_THRESHOLD, 1, -1, CANDIDATES_ATTACHED, CANDIDATES_NONE,
                ONE_UNIT,
                verb_set_threshold },
        { "clear-threshold", "UNIT NAME...", "Remove thresholds",
                GROUP_THRESHOLD, 1, -1, CANDIDATES_ATTACHED, CANDIDATES_THRESHOLDS,
                ONE_UNIT,
                verb_clear_threshold },
        { "list-thresholds", "[UNIT...]", "List thresholds and their states",
                GROUP_THRESHOLD, 0, -1, CANDIDATES_ATTACHED, CANDIDATES_ATTACHED,
                0,
                verb_list_thresholds },
        { "monitor", "[UNIT...]", "Show state changes of thresholds, or samples",
                GROUP_THRESHOLD, 0, -1, CANDIDATES_ATTACHED, CANDIDATES_ATTACHED,
                OPTION_MASK(INTERVAL) | OPTION_MASK(WINDOW) | OPTION_MASK(EXEC),
                verb_monitor },
        { "wait", "UNIT CONDITION", "Wait until a condition is met",
                GROUP_THRESHOLD, 1, -1, CANDIDATES_ATTACHED, CANDIDATES_NONE,
                OPTION_MASK(TIMEOUT) | ONE_UNIT,
                verb_wait },
        { "is-ok", "UNIT...", "Check that all thresholds are met",
                GROUP_THRESHOLD, 1, -1, CANDIDATES_ATTACHED, CANDIDATES_ATTACHED,
                0,
                verb_is_ok },
        { "probes", "", "Show the BPF programs and their overhead",
                GROUP_SERVICE, 0, 0, CANDIDATES_NONE, CANDIDATES_NONE,
                0,
                verb_probes },
        { "metrics", "[UNIT...]", "Print counters and histograms for Prometheus",
                GROUP_SERVICE, 0, -1, CANDIDATES_ATTACHED, CANDIDATES_ATTACHED,
                OPTION_MASK(FORMAT) | OPTION_MASK(BUCKETS) | OPTION_MASK(SERIES) | OPTION_MASK(VERBOSE),
                verb_metrics },
        { "list-metrics", "", "List available metrics",
                GROUP_SERVICE, 0, 0, CANDIDATES_NONE, CANDIDATES_NONE,
                0,
                verb_list_metrics },
        { "help", "[COMMAND]", "Show this help, or that of a command",
                GROUP_SERVICE, 0, 1, CANDIDATES_VERBS, CANDIDATES_NONE,
                0,
                verb_help },
};

/* Of all verbs, and of some. */
static const OptionHelp option_help[] = {
        { "-h --help", -1,
          "Show this help" },
        { "   --version", -1,
          "Show the version" },
        { "-H --host=[USER@]HOST,...", -1,
          "Operate on remote host, over ssh; list, status,\n"
          "histogram, diagnose: also on several",
          ":hosts" },
        { "   --user", -1,
          "Units of your own service manager" },
        { "   --window=SPAN", OPTION_WINDOW,
          "Time window: up to 10s, 60s, 5min, or total",
          "100ms 500ms 1s 10s 60s 5min total" },
        { "   --since=TIME", OPTION_SINCE,
          "With history, heatmap: start time (default: 1h)",
          "5min 10min 1h 6h today yesterday" },
        { "-a --all", OPTION_ALL,
          "With list: include units with listening sockets\n"
          "With detach: all units" },
        { "   --listening", OPTION_LISTENING,
          "With attach: all units of this host that listen on\n"
          "TCP, after showing them and what they take" },
        { "   --yes", OPTION_LISTENING,
          "With attach --listening: do not prompt" },
        { "   --now", OPTION_NOW,
          "With enable: wait until units are observed" },
        { "   --probes=PROBE,...", OPTION_PROBES,
          "With attach, enable: select probes: requests,\n"
          "tls, cpu, block, memory, storage",
          "requests tls cpu block memory storage" },
        { "   --exclude=WHAT,...", OPTION_EXCLUDE,
          "With attach, enable: exclude requests by port:N,\n"
          "http:/PATH, redis:COMMAND",
          "port: http:/ redis:" },
        { "   --for=SPAN", OPTION_FOR,
          "With attach: detach after SPAN\n"
          "With threads, resources: sample for SPAN\n"
          "With diagnose: observe for SPAN (default: 10s)\n"
          "With why: observe each unit for SPAN (default: 5s)",
          "1s 2s 5s 10s 1min 10min 1h 1d" },
        { "   --save=FILE", OPTION_NORMAL,
          "With diagnose: save the metrics as a baseline",
          ":files" },
        { "   --against=FILE", OPTION_NORMAL,
          "With diagnose: compare with a saved baseline",
          ":files" },
        { "   --interval=SPAN", OPTION_INTERVAL,
          "With monitor: show a sample every SPAN",
          "100ms 1s 5s" },
        { "   --exec=COMMAND", OPTION_EXEC,
          "With monitor: run COMMAND at each state change" },
        { "   --timeout=SPAN", OPTION_TIMEOUT,
          "With wait: fail after SPAN",
          "10s 30s 1min 10min" },
        { "   --format=FORMAT", OPTION_FORMAT,
          "With metrics: openmetrics (default), openmetrics2,\n"
          "prometheus, protobuf",
          "openmetrics openmetrics2 prometheus protobuf" },
        { "   --buckets-max=N", OPTION_BUCKETS,
          "With metrics: limit the buckets of a native\n"
          "histogram (default: 160), 0 for no limit" },
        { "   --export=WHAT", OPTION_SERIES,
          "With metrics: requests, for the essential ones,\n"
          "or probes (default), for those of all their\n"
          "probes, or everything, also for those of\n"
          "endpoints, devices and mounts",
          "requests probes everything" },
        { "   --series-max=N", OPTION_SERIES,
          "With metrics: limit the series of all units, a\n"
          "histogram being one, 0 for no limit (default)" },
        { "   --verbose", OPTION_VERBOSE,
          "With metrics: show the number of series and the\n"
          "schemas of histograms on standard error" },
        { "-P METRIC", OPTION_METRICS,
          "With show: show only this metric",
          ":metrics" },
        { "   --value", OPTION_METRICS,
          "With show: print only values" },
        { "-b --batch", OPTION_REPEAT,
          "With top: print tables without clearing the screen" },
        { "-n --iterations=N", OPTION_REPEAT,
          "With top: exit after N tables" },
        { "-d --delay=SPAN", OPTION_REPEAT,
          "With top: interval between tables (default: 1s)",
          "100ms 1s 5s" },
        { "   --json=short|pretty|off", -1,
          "Generate JSON output",
          "short pretty off" },
        { "-j", -1,
          "--json=pretty on a terminal, else --json=short" },
        { "   --no-pager", -1,
          "Do not pipe output into a pager" },
        { "   --no-legend", -1,
          "Do not print headers and footers" },
        { "   --no-ask-password", -1,
          "Do not prompt for passwords" },
};

/* Each line of the text in a line of its own, the first one behind the usage. */
static void print_help(const char *usage, const char *text) {
        for (const char *end; *text; text = end + (*end == '\n')) {
                end = strchrnul(text, '\n');
                (void) printf("  %-26s %.*s\n", usage, (int) (end - text), text);
                usage = "";
        }
}

static void print_heading(const char *heading) {
        const Style *s = terminal_style();

        (void) printf("\n%s%s:%s\n", color_on(s, COLOR_UNDERLINE), heading, color_off(s));
}

static int print_verb(const Verb *v) {
        _cleanup_free_ char *usage = NULL;

        if (asprintf(&usage, "%s%s%s", v->name, isempty(v->arguments) ? "" : " ", v->arguments) < 0) {
                usage = NULL;
                return log_out_of_memory();
        }
        print_help(usage, v->description);
        return 0;
}

static int help(void) {
        static const char *const groups[_GROUP_MAX] = {
                [GROUP_UNIT]      = "Unit Commands",
                [GROUP_THRESHOLD] = "Threshold Commands",
                [GROUP_SERVICE]   = "Service Commands",
        };
        const Style *s = terminal_style();
        int r;

        pager_open();
        (void) printf("qosctl [OPTIONS...] COMMAND ...\n"
                      "\n%sShow how well systemd units serve their requests.%s\n",
                      color_on(s, COLOR_BOLD), color_off(s));
        for (size_t i = 0; i < ELEMENTSOF(verbs); i++) {
                if (i == 0 || verbs[i].group != verbs[i - 1].group)
                        print_heading(groups[verbs[i].group]);
                r = print_verb(&verbs[i]);
                if (r < 0)
                        return r;
        }
        print_heading("Options");
        for (size_t i = 0; i < ELEMENTSOF(option_help); i++)
                print_help(option_help[i].usage, option_help[i].text);
        (void) puts("\nSee the qosctl(1) man page for details.");
        return 0;
}

/* One verb, with the options that not all verbs accept. */
static void help_verb(const Verb *v) {
        const Style *s = terminal_style();
        bool some = false;

        (void) printf("qosctl [OPTIONS...] %s%s%s\n\n%s%s.%s\n", v->name, isempty(v->arguments) ? "" : " ",
                      v->arguments, color_on(s, COLOR_BOLD), v->description, color_off(s));
        for (size_t i = 0; i < ELEMENTSOF(option_help); i++) {
                if (!verb_takes(v, &option_help[i]))
                        continue;
                if (!some)
                        print_heading("Options");
                some = true;
                print_help(option_help[i].usage, option_help[i].text);
        }
        (void) puts("\nSee 'qosctl help' for options of all commands, and the qosctl(1) man page for details.");
}

/* The command that was probably meant: one that begins in this way, or is no more than a typo away; or NULL. */
static const char* suggest_verb(const char *name) {
        size_t best = text_distance_of_typo(name) + 1;
        const char *found = NULL;

        for (size_t i = 0; i < ELEMENTSOF(verbs); i++)
                if (strlen(name) >= 2 && startswith(verbs[i].name, name))
                        return verbs[i].name;
        for (size_t i = 0; i < ELEMENTSOF(verbs); i++) {
                size_t distance = text_distance(name, verbs[i].name);

                if (distance < best) {
                        best = distance;
                        found = verbs[i].name;
                }
        }
        return found;
}

/* Logs what is unknown. */
static const Verb* find_verb(const char *name) {
        const char *suggested;

        for (size_t i = 0; i < ELEMENTSOF(verbs); i++)
                if (streq(verbs[i].name, name))
                        return &verbs[i];
        suggested = suggest_verb(name);
        if (suggested)
                (void) log_failure(-EINVAL, "Unknown command '%s', did you mean '%s'?", name, suggested);
        else
                (void) log_failure(-EINVAL, "Unknown command '%s', see 'qosctl help'.", name);
        return NULL;
}

static int verb_help(int argc, char **argv) {
        const Verb *v;

        if (argc == 0)
                return help();
        v = find_verb(argv[0]);
        if (!v)
                return STATUS_USAGE;
        help_verb(v);
        return STATUS_OK;
}

/* Appends comma or blank separated words to a NULL terminated list. */
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

enum {
        ARG_VERSION = 0x100,
        ARG_WINDOW,
        ARG_SINCE,
        ARG_PROBES,
        ARG_EXCLUDE,
        ARG_FOR,
        ARG_SAVE,
        ARG_AGAINST,
        ARG_TIMEOUT,
        ARG_INTERVAL,
        ARG_EXEC,
        ARG_FORMAT,
        ARG_BUCKETS,
        ARG_EXPORT,
        ARG_SERIES,
        ARG_VERBOSE,
        ARG_NOW,
        ARG_LISTENING,
        ARG_YES,
        ARG_VALUE,
        ARG_JSON,
        ARG_NO_PAGER,
        ARG_NO_LEGEND,
        ARG_NO_ASK_PASSWORD,
        ARG_USER,
};

static int parse_argv(int argc, char **argv) {
        static const struct option options[] = {
                { "help",            no_argument,       NULL, 'h'                 },
                { "version",         no_argument,       NULL, ARG_VERSION         },
                { "host",            required_argument, NULL, 'H'                 },
                { "user",            no_argument,       NULL, ARG_USER            },
                { "window",          required_argument, NULL, ARG_WINDOW          },
                { "since",           required_argument, NULL, ARG_SINCE           },
                { "all",             no_argument,       NULL, 'a'                 },
                { "probes",          required_argument, NULL, ARG_PROBES          },
                { "exclude",         required_argument, NULL, ARG_EXCLUDE         },
                { "for",             required_argument, NULL, ARG_FOR             },
                { "save",            required_argument, NULL, ARG_SAVE            },
                { "against",         required_argument, NULL, ARG_AGAINST         },
                { "timeout",         required_argument, NULL, ARG_TIMEOUT         },
                { "interval",        required_argument, NULL, ARG_INTERVAL        },
                { "exec",            required_argument, NULL, ARG_EXEC            },
                { "format",          required_argument, NULL, ARG_FORMAT          },
                { "buckets-max",     required_argument, NULL, ARG_BUCKETS         },
                { "export",          required_argument, NULL, ARG_EXPORT          },
                { "series-max",      required_argument, NULL, ARG_SERIES          },
                { "verbose",         no_argument,       NULL, ARG_VERBOSE         },
                { "now",             no_argument,       NULL, ARG_NOW             },
                { "listening",       no_argument,       NULL, ARG_LISTENING       },
                { "yes",             no_argument,       NULL, ARG_YES             },
                { "value",           no_argument,       NULL, ARG_VALUE           },
                { "batch",           no_argument,       NULL, 'b'                 },
                { "iterations",      required_argument, NULL, 'n'                 },
                { "delay",           required_argument, NULL, 'd'                 },
                { "json",            required_argument, NULL, ARG_JSON            },
                { "no-pager",        no_argument,       NULL, ARG_NO_PAGER        },
                { "no-legend",       no_argument,       NULL, ARG_NO_LEGEND       },
                { "no-ask-password", no_argument,       NULL, ARG_NO_ASK_PASSWORD },
                {}
        };
        char *end;
        int c, r;

        while ((c = getopt_long(argc, argv, "hH:abn:d:P:j", options, NULL)) >= 0)
                switch (c) {

                case 'h':
                        return help();

                case ARG_VERSION:
                        (void) printf("qosctl %s\n", QOSD_VERSION);
                        return 0;

                case 'H':
                        r = hosts_parse(optarg);
                        if (r < 0)
                                return r == -ENOMEM ? r : -EINVAL;
                        break;

                case ARG_WINDOW:
                        r = parse_window(optarg, &arg_window);
                        if (r < 0)
                                return log_failure(-EINVAL, "Invalid window '%s', expected a time span such as 10s, 60s or 5min, or 'total'.", optarg);
                        arg_window_text = optarg;
                        given[OPTION_WINDOW] = "--window=";
                        break;

                case ARG_SINCE:
                        r = parse_since(optarg, now_nsec(CLOCK_REALTIME), &arg_since);
                        if (r == -ERANGE)
                                return log_failure(-EINVAL, "Time '%s' is in the future, expected a time in the past.", optarg);
                        if (r < 0)
                                return log_failure(-EINVAL, "Invalid time '%s', expected a time span (10min, 2h) or a point in time (09:00, today, '2025-11-21 09:00').", optarg);
                        given[OPTION_SINCE] = "--since=";
                        break;

                case 'a':
                        arg_all = true;
                        given[OPTION_ALL] = "--all";
                        break;

                case ARG_PROBES:
                        r = list_extend(&arg_probes, optarg);
                        if (r == -ENOMEM)
                                return log_out_of_memory();
                        if (r < 0)
                                return log_failure(-EINVAL, "Invalid list of probes '%s', expected names separated by commas.", optarg);
                        given[OPTION_PROBES] = "--probes=";
                        break;

                case ARG_EXCLUDE:
                        r = list_extend(&arg_excludes, optarg);
                        if (r == -ENOMEM)
                                return log_out_of_memory();
                        if (r < 0)
                                return log_failure(-EINVAL, "Invalid list of exclusions '%s', expected port:N, http:/PATH or redis:COMMAND separated by commas.", optarg);
                        given[OPTION_EXCLUDE] = "--exclude=";
                        break;

                case ARG_FOR:
                        r = parse_span(optarg, &arg_for);
                        if (r < 0 || arg_for == 0)
                                return log_failure(-EINVAL, "Invalid time '%s', expected a time span such as 10min or 1h 30min.", optarg);
                        arg_for_text = optarg;
                        given[OPTION_FOR] = "--for=";
                        break;

                case ARG_SAVE:
                        if (isempty(optarg))
                                return log_failure(-EINVAL, "Expected a file name for --save=.");
                        arg_save = optarg;
                        given[OPTION_NORMAL] = "--save=";
                        break;

                case ARG_AGAINST:
                        if (isempty(optarg))
                                return log_failure(-EINVAL, "Expected a file name for --against=.");
                        arg_against = optarg;
                        given[OPTION_NORMAL] = "--against=";
                        break;

                case ARG_TIMEOUT:
                        r = parse_span(optarg, &arg_timeout);
                        if (r < 0 || arg_timeout == 0)
                                return log_failure(-EINVAL, "Invalid time '%s', expected a time span such as 30s or 10min.", optarg);
                        given[OPTION_TIMEOUT] = "--timeout=";
                        break;

                case ARG_INTERVAL:
                        r = parse_span(optarg, &arg_interval);
                        if (r < 0 || arg_interval < REPEAT_MIN || arg_interval > REPEAT_MAX)
                                return log_failure(-EINVAL, "Invalid interval '%s', expected a time span from 100ms to 1d.", optarg);
                        arg_interval_text = optarg;
                        given[OPTION_INTERVAL] = "--interval=";
                        break;

                case ARG_EXEC:
                        if (isempty(optarg))
                                return log_failure(-EINVAL, "Expected a command for --exec=.");
                        arg_exec = optarg;
                        given[OPTION_EXEC] = "--exec=";
                        break;

                case ARG_FORMAT:
                        if (streq(optarg, "openmetrics"))
                                arg_exposition = EXPOSITION_OPENMETRICS;
                        else if (streq(optarg, "openmetrics2"))
                                arg_exposition = EXPOSITION_OPENMETRICS2;
                        else if (streq(optarg, "prometheus"))
                                arg_exposition = EXPOSITION_PROMETHEUS;
                        else if (streq(optarg, "protobuf"))
                                arg_exposition = EXPOSITION_PROTOBUF;
                        else
                                return log_failure(-EINVAL, "Invalid format '%s', expected openmetrics, openmetrics2, prometheus or protobuf.", optarg);
                        if (!exposition_is_supported(arg_exposition))
                                return log_failure(-EOPNOTSUPP, "Format '%s' is not supported: qosctl was built without protobuf-c.", optarg);
                        given[OPTION_FORMAT] = "--format=";
                        break;

                case ARG_BUCKETS:
                        r = exposition_parse_buckets(optarg, &arg_buckets_max);
                        if (r < 0)
                                return log_failure(r, "Invalid number of buckets '%s', expected 0 or %u to %u.", optarg,
                                                   EXPOSITION_BUCKETS_MIN, EXPOSITION_BUCKETS_MAX);
                        given[OPTION_BUCKETS] = "--buckets-max=";
                        break;

                case ARG_EXPORT:
                        r = exposition_parse_scope(optarg, &arg_scope);
                        if (r < 0)
                                return log_failure(r, "Invalid value '%s' for --export=, expected " EXPOSITION_SCOPES ".", optarg);
                        given[OPTION_SERIES] = "--export=";
                        break;

                case ARG_SERIES:
                        r = exposition_parse_series(optarg, &arg_series_max);
                        if (r < 0)
                                return log_failure(r, "Invalid number of series '%s', expected 0 to %u.", optarg,
                                                   EXPOSITION_SERIES_MAX);
                        given[OPTION_SERIES] = "--series-max=";
                        break;

                case ARG_VERBOSE:
                        arg_verbose = true;
                        given[OPTION_VERBOSE] = "--verbose";
                        break;

                case ARG_LISTENING:
                        arg_listening = true;
                        given[OPTION_LISTENING] = "--listening";
                        break;

                case ARG_YES:
                        arg_yes = true;
                        given[OPTION_LISTENING] = "--yes";
                        break;

                case ARG_NOW:
                        arg_now = true;
                        given[OPTION_NOW] = "--now";
                        break;

                case 'P':
                        r = list_extend(&arg_metrics, optarg);
                        if (r == -ENOMEM)
                                return log_out_of_memory();
                        if (r < 0)
                                return log_failure(-EINVAL, "Invalid metric '%s', see 'qosctl list-metrics'.", optarg);
                        given[OPTION_METRICS] = "-P";
                        break;

                case ARG_VALUE:
                        arg_value = true;
                        given[OPTION_METRICS] = "--value";
                        break;

                case 'b':
                        arg_batch = true;
                        given[OPTION_REPEAT] = "--batch";
                        break;

                case 'n':
                        errno = 0;
                        arg_iterations = strtoull(optarg, &end, 10);
                        if (errno != 0 || end == optarg || *end || arg_iterations == 0 || strchr(optarg, '-'))
                                return log_failure(-EINVAL, "Invalid number of iterations '%s', expected a positive integer.", optarg);
                        given[OPTION_REPEAT] = "--iterations=";
                        break;

                case 'd':
                        r = parse_span(optarg, &arg_delay);
                        if (r < 0 || arg_delay < REPEAT_MIN || arg_delay > REPEAT_MAX)
                                return log_failure(-EINVAL, "Invalid delay '%s', expected a time span from 100ms to 1d.", optarg);
                        given[OPTION_REPEAT] = "--delay=";
                        break;

                case ARG_JSON:
                        if (streq(optarg, "short"))
                                arg_json = JSON_SHORT;
                        else if (streq(optarg, "pretty"))
                                arg_json = JSON_PRETTY;
                        else if (streq(optarg, "off"))
                                arg_json = JSON_OFF;
                        else
                                return log_failure(-EINVAL, "Invalid output format '%s', expected short, pretty or off.", optarg);
                        break;

                case 'j':
                        arg_json = terminal_is_tty() ? JSON_PRETTY : JSON_SHORT;
                        break;

                case ARG_USER:
                        arg_user = true;
                        break;

                case ARG_NO_PAGER:
                        arg_no_pager = true;
                        break;

                case ARG_NO_LEGEND:
                        arg_legend = false;
                        break;

                case ARG_NO_ASK_PASSWORD:
                        arg_ask_password = false;
                        break;

                default:
                        /* getopt_long() has printed a message */
                        for (int i = 1; i < argc; i++)
                                if (streq(argv[i], "measure"))
                                        (void) log_failure(0, "Options of the command that is measured have to follow '--': qosctl measure UNIT -- COMMAND...");
                        return -EINVAL;
                }

        return 1;
}

/* Why --user cannot be with what else there is; NULL: it can. */
static const char* user_excludes(const Verb *verb) {
        if (arg_hosts)
                return "--host=";
        if (arg_listening)
                return "--listening";
        if (verb->takes & NAMED_UNITS || verb->first == CANDIDATES_UNITS_FILES)
                return verb->name;
        return NULL;
}

static int run(int argc, char **argv) {
        _cleanup_(strv_freep) char **resolved = NULL;
        const Verb *verb = &verbs[0];
        const char *excluded;
        int n;

        /* Before all options: those that follow are of the line to be completed */
        if (argc > 1 && streq(argv[1], "--complete"))
                return complete(verbs, ELEMENTSOF(verbs), option_help, ELEMENTSOF(option_help), argc - 2, argv + 2);

        n = parse_argv(argc, argv);
        if (n < 0)
                return n == -EINVAL ? STATUS_USAGE : n;
        if (n == 0)
                return STATUS_OK;

        argc -= optind;
        argv += optind;
        if (argc > 0) {
                verb = find_verb(argv[0]);
                if (!verb)
                        return STATUS_USAGE;
                argc--;
                argv++;
        }

        if (argc < verb->min_arguments) {
                (void) log_failure(-EINVAL, "Too few arguments: '%s' requires a unit.", verb->name);
                return STATUS_USAGE;
        }
        if (verb->max_arguments >= 0 && argc > verb->max_arguments) {
                (void) log_failure(-EINVAL, "Too many arguments: '%s'.", argv[verb->max_arguments]);
                return STATUS_USAGE;
        }
        for (size_t i = 0; i < _OPTION_MAX; i++)
                if (given[i] && !(verb->takes & (1U << i))) {
                        (void) log_failure(-EINVAL, "Option %s is not supported by '%s'.", given[i], verb->name);
                        return STATUS_USAGE;
                }

        for (int i = 0; i < (verb->takes & NAMED_UNITS ? argc : verb->takes & ONE_UNIT ? 1 : 0); i++)
                /* Paths may contain glob characters */
                if (is_glob(argv[i]) && argv[i][0] != '/') {
                        (void) log_failure(-EINVAL, "'%s' requires %s, got '%s'.", verb->name,
                                        verb->takes & NAMED_UNITS ? "unit names without patterns" : "a unit name without a pattern", argv[i]);
                        return STATUS_USAGE;
                }

        if (arg_user) {
                excluded = user_excludes(verb);
                if (excluded) {
                        (void) log_failure(-EINVAL, "Option --user cannot be combined with '%s'.", excluded);
                        return STATUS_USAGE;
                }
                n = user_units_resolve(verb, argc, argv, &resolved);
                if (n != STATUS_OK)
                        return n;
                argv = resolved;
                for (argc = 0; argv[argc]; argc++)
                        ;
        }

        if (arg_hosts && arg_hosts[1]) {
                if (!verb->run_hosts) {
                        (void) log_failure(-EOPNOTSUPP, "'%s' operates on one host, but --host= has several.", verb->name);
                        return STATUS_USAGE;
                }
                return verb->run_hosts(argc, argv);
        }
        arg_host = arg_hosts ? arg_hosts[0] : NULL;
        return verb->run(argc, argv);
}

int main(int argc, char **argv) {
        int r;

        /* Not LC_NUMERIC: numbers are also read by programs */
        (void) setlocale(LC_CTYPE, "");
        (void) setlocale(LC_TIME, "");

        r = run(argc, argv);

        polkit_agent_close();
        if (fflush(stdout) < 0 && errno != EPIPE) {
                (void) log_failure(errno, "Failed to write to standard output: %m");
                r = STATUS_FAILED;
        }
        pager_close();
        strv_free(arg_hosts);
        strv_free(arg_probes);
        strv_free(arg_excludes);
        strv_free(arg_metrics);
        return r < 0 ? STATUS_FAILED : r;
}
