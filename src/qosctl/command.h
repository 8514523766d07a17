/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* How the table of verbs and the explanations of options are written. */

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

/* How an option is explained. */
typedef struct OptionHelp {
        const char *usage;                      /* "-a --all", "   --for=SPAN", "-P METRIC" */
        int option;                             /* -1: of all verbs */
        const char *text;                       /* lines */
        const char *values;                     /* all values or examples, separated by blanks; ":files", ":hosts",
                                                 * ":metrics": any of these; NULL: none */
} OptionHelp;

static inline bool verb_takes(const Verb *v, const OptionHelp *o) {
        return o->option >= 0 && (v->takes & (1U << o->option));
}
