/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Verbs and options of the command line. */

#include "util.h"

typedef enum VerbGroup {
        GROUP_UNIT,
        GROUP_THRESHOLD,
        GROUP_SERVICE,
        _GROUP_MAX,
} VerbGroup;

/* Candidates for the completion of arguments. */
typedef enum Candidates {
        CANDIDATES_NONE,
        CANDIDATES_ATTACHED,            /* attached units */
        CANDIDATES_UNITS,               /* units of this host that may serve requests */
        CANDIDATES_UNITS_FILES,         /* units of this host, or files */
        CANDIDATES_FILES,
        CANDIDATES_METRICS,
        CANDIDATES_DISTRIBUTIONS,       /* metrics that are distributions */
        CANDIDATES_RECORDED,            /* distributions with buckets in the history */
        CANDIDATES_THRESHOLDS,          /* of the unit that is the first argument */
        CANDIDATES_VERBS,
        CANDIDATES_COMMAND,             /* command line of a program */
} Candidates;

typedef struct Verb {
        const char *name;
        const char *arguments, *description;    /* for the help */
        VerbGroup group;
        int min_arguments, max_arguments;       /* -1: any number */
        Candidates first, others;               /* of the first argument, and of the further ones */
        unsigned takes;
        int (*run)(int argc, char **argv);
        int (*run_hosts)(int argc, char **argv);        /* with several hosts in --host=; NULL: not
                                                         * supported */
} Verb;

/* Options that only some verbs accept. Options that verbs accept together have one value. */
enum {
        OPTION_ALL,
        OPTION_PROBES,
        OPTION_EXCLUDE,
        OPTION_FOR,
        OPTION_WINDOW,
        OPTION_METRICS,
        OPTION_REPEAT,
        OPTION_SINCE,
        OPTION_SVG,
        OPTION_REPORT,
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
        OPTION_SORT,
        _OPTION_MAX,
};

/* Flags in addition to options. Verbs that take one unit or that change files refuse patterns, which may
 * match unintended units. */
#define ONE_UNIT (1U << _OPTION_MAX)
#define NAMED_UNITS (2U << _OPTION_MAX)

extern const Verb verb_table[];
extern const size_t verb_number;

/* Returns NULL and logs an error for an unknown command. */
const Verb* verb_find(const char *name);

/* Prints the help of all commands and options. */
int help_print(void);

typedef struct Option {
        const char *usage;                      /* "-a --all", "   --for=SPAN", "-P METRIC" */
        int option;                             /* -1: of all verbs */
        const char *text;                       /* explanation, may have several lines */
        const char *values;                     /* values for completion, separated by blanks; or ":files",
                                                 * ":hosts" or ":metrics"; NULL: none */
        bool *set, *clear;                      /* flags to set and to clear; NULL: none */
        int (*parse)(const char *value);        /* logs errors; NULL: has no value */
} Option;

extern const Option option_table[];
extern const size_t option_number;

static inline bool verb_takes(const Verb *v, const Option *o) {
        return o->option >= 0 && (v->takes & (1U << o->option));
}

/* Returns the long name with "--", which is not terminated; NULL: none. */
const char* option_long(const Option *o, size_t *ret_length);
bool option_has_value(const Option *o);

/* Parses options up to the first argument, or to --help or --version. Errors are logged; -EINVAL: the
 * command line is invalid. */
int options_parse(int argc, char **argv);

/* Returns whether the verb accepts all options that were given. Logs the first one that it does not. */
bool options_check(const Verb *v);
