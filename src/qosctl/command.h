/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* How the tables of verbs and of options are written. */

#include "util.h"

typedef enum VerbGroup {
        GROUP_UNIT,
        GROUP_THRESHOLD,
        GROUP_SERVICE,
        _GROUP_MAX,
} VerbGroup;

/* What shells offer for arguments of a verb. */
typedef enum Candidates {
        CANDIDATES_NONE,
        CANDIDATES_ATTACHED,            /* attached units */
        CANDIDATES_UNITS,               /* units of this host that may serve requests */
        CANDIDATES_UNITS_FILES,         /* these, or files */
        CANDIDATES_METRICS,
        CANDIDATES_DISTRIBUTIONS,       /* metrics with a histogram */
        CANDIDATES_RECORDED,            /* those with a histogram in the history */
        CANDIDATES_THRESHOLDS,          /* of the unit that is the first argument */
        CANDIDATES_VERBS,
        CANDIDATES_COMMAND,             /* a program and its arguments */
} Candidates;

typedef struct Verb {
        const char *name;
        const char *arguments, *description;    /* for the help */
        VerbGroup group;
        int min_arguments, max_arguments;       /* -1: any number */
        Candidates first, others;               /* for the first argument, and for those behind it */
        unsigned takes;
        int (*run)(int argc, char **argv);
        int (*run_hosts)(int argc, char **argv);        /* on several hosts; NULL: not supported */
} Verb;

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
        OPTION_SVG,
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

typedef struct Option {
        const char *usage;                      /* "-a --all", "   --for=SPAN", "-P METRIC" */
        int option;                             /* -1: of all verbs */
        const char *text;                       /* explanation; lines */
        const char *values;                     /* all values or examples, separated by blanks; ":files",
                                                 * ":hosts", ":metrics": any of these; NULL: none */
        bool *set, *clear;                      /* flags; NULL: none */
        int (*parse)(const char *value);        /* logs errors; NULL: has no value */
} Option;

extern const Option option_table[];
extern const size_t option_number;

static inline bool verb_takes(const Verb *v, const Option *o) {
        return o->option >= 0 && (v->takes & (1U << o->option));
}

/* With "--"; NULL: has none. */
const char* option_long(const Option *o, size_t *ret_length);
bool option_has_value(const Option *o);

/* Up to the first argument that is none, or --help or --version. Errors are logged; -EINVAL: of the command
 * line. */
int options_parse(int argc, char **argv);

/* Whether the verb accepts all options that were given; logs the first one that it does not. */
bool options_check(const Verb *v);
