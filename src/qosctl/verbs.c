/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The commands of qosctl, and their help. */

#include "verbs.h"
#include "format.h"
#include "parse.h"
#include "qosctl.h"
#include "terminal.h"

#define OPTION_MASK(option) (1U << OPTION_##option)

static int verb_help(int argc, char **argv);

/* In the order of the help. */
const Verb verb_table[] = {
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
        { "network", "UNIT...", "Show what TCP counts of units",
                GROUP_UNIT, 1, -1, CANDIDATES_ATTACHED, CANDIDATES_ATTACHED,
                OPTION_MASK(WINDOW),
                verb_network },
        { "connections", "UNIT...", "Show TCP connections of units",
                GROUP_UNIT, 1, -1, CANDIDATES_ATTACHED, CANDIDATES_ATTACHED,
                OPTION_MASK(SORT),
                verb_connections },
        { "path", "UNIT HOST", "Show the latency of the network to another host",
                GROUP_UNIT, 2, 2, CANDIDATES_ATTACHED, CANDIDATES_NONE,
                OPTION_MASK(FOR) | ONE_UNIT,
                verb_path },
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
                OPTION_MASK(SINCE) | OPTION_MASK(SVG),
                verb_history },
        { "heatmap", "UNIT [METRIC]", "Show the distribution of a duration over time",
                GROUP_UNIT, 1, 2, CANDIDATES_ATTACHED, CANDIDATES_RECORDED,
                OPTION_MASK(SINCE) | OPTION_MASK(SVG),
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
        { "report", "UNIT", "Write a report of a unit as a page of HTML",
                GROUP_UNIT, 1, 1, CANDIDATES_ATTACHED, CANDIDATES_NONE,
                OPTION_MASK(SINCE) | OPTION_MASK(FOR) | OPTION_MASK(REPORT),
                verb_report },
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
        { "check-probe", "FILE...", "Check custom probes",
                GROUP_SERVICE, 1, -1, CANDIDATES_FILES, CANDIDATES_FILES,
                0,
                verb_check_probe },
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
const size_t verb_number = ELEMENTSOF(verb_table);

/* Prints the usage, and beside it the lines of the text. */
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

int help_print(void) {
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
        for (size_t i = 0; i < verb_number; i++) {
                if (i == 0 || verb_table[i].group != verb_table[i - 1].group)
                        print_heading(groups[verb_table[i].group]);
                r = print_verb(&verb_table[i]);
                if (r < 0)
                        return r;
        }
        print_heading("Options");
        for (size_t i = 0; i < option_number; i++)
                print_help(option_table[i].usage, option_table[i].text);
        (void) puts("\nSee the qosctl(1) man page for details.");
        return 0;
}

/* Prints the help of a verb, with the options that only some verbs accept. */
static void help_verb(const Verb *v) {
        const Style *s = terminal_style();
        bool some = false;

        (void) printf("qosctl [OPTIONS...] %s%s%s\n\n%s%s.%s\n", v->name, isempty(v->arguments) ? "" : " ",
                      v->arguments, color_on(s, COLOR_BOLD), v->description, color_off(s));
        for (size_t i = 0; i < option_number; i++) {
                if (!verb_takes(v, &option_table[i]))
                        continue;
                if (!some)
                        print_heading("Options");
                some = true;
                print_help(option_table[i].usage, option_table[i].text);
        }
        (void) puts("\nSee 'qosctl help' for options of all commands, and the qosctl(1) man page for "
                    "details.");
}

/* Returns the command with this prefix, or the most similar one, or NULL. */
static const char* verb_suggest(const char *name) {
        size_t best = text_distance_of_typo(name) + 1;
        const char *found = NULL;

        for (size_t i = 0; i < verb_number; i++)
                if (strlen(name) >= 2 && startswith(verb_table[i].name, name))
                        return verb_table[i].name;
        for (size_t i = 0; i < verb_number; i++) {
                size_t distance = text_distance(name, verb_table[i].name);

                if (distance < best) {
                        best = distance;
                        found = verb_table[i].name;
                }
        }
        return found;
}

const Verb* verb_find(const char *name) {
        const char *suggested;

        for (size_t i = 0; i < verb_number; i++)
                if (streq(verb_table[i].name, name))
                        return &verb_table[i];
        suggested = verb_suggest(name);
        if (suggested)
                (void) log_failure(-EINVAL, "Unknown command '%s', did you mean '%s'?", name, suggested);
        else
                (void) log_failure(-EINVAL, "Unknown command '%s', see 'qosctl help'.", name);
        return NULL;
}

static int verb_help(int argc, char **argv) {
        const Verb *v;

        if (argc == 0)
                return help_print();
        v = verb_find(argv[0]);
        if (!v)
                return STATUS_USAGE;
        help_verb(v);
        return STATUS_OK;
}
