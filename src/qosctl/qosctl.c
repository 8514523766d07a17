/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <getopt.h>
#include <locale.h>

#include "client.h"
#include "complete.h"
#include "config-build.h"
#include "hosts.h"
#include "qosctl.h"
#include "terminal.h"
#include "unit-names.h"
#include "user-units.h"
#include "verbs.h"

/* Returns the option or verb that --user cannot be combined with; NULL: none. */
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
        const Verb *verb = &verb_table[0];
        const char *excluded;
        int n;

        /* Only as first argument, as the others are of the command line to complete */
        if (argc > 1 && streq(argv[1], "--complete"))
                return complete(verb_table, verb_number, argc - 2, argv + 2);

        n = options_parse(argc, argv);
        if (n < 0)
                return n == -EINVAL ? STATUS_USAGE : n;
        if (arg_help)
                return help_print();
        if (arg_version) {
                (void) printf("qosctl %s\n", QOSD_VERSION);
                return STATUS_OK;
        }

        argc -= optind;
        argv += optind;
        if (argc > 0) {
                verb = verb_find(argv[0]);
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
        if (!options_check(verb))
                return STATUS_USAGE;

        for (int i = 0; i < (verb->takes & NAMED_UNITS ? argc : verb->takes & ONE_UNIT ? 1 : 0); i++)
                /* Paths may contain glob characters */
                if (is_glob(argv[i]) && argv[i][0] != '/') {
                        (void) log_failure(-EINVAL, "'%s' requires %s, got '%s'.", verb->name,
                                           verb->takes & NAMED_UNITS ? "unit names without patterns" :
                                                                       "a unit name without a pattern",
                                           argv[i]);
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
                        (void) log_failure(-EOPNOTSUPP,
                                           "'%s' operates on one host, but --host= has several.",
                                           verb->name);
                        return STATUS_USAGE;
                }
                return verb->run_hosts(argc, argv);
        }
        arg_host = arg_hosts ? arg_hosts[0] : NULL;
        return verb->run(argc, argv);
}

int main(int argc, char **argv) {
        int r;

        /* Not LC_NUMERIC, as programs parse numbers in the output */
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
