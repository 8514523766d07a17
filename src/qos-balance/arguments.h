/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "util.h"

/* Limit of batch units. The service manager gets up to ten calls per second for each. */
#define BATCH_MAX 256U

/* Limit of the target. Control in tenths of seconds is not useful for longer ones. */
#define TARGET_MAX_NSEC (3600 * NSEC_PER_SEC)

typedef enum Means {
        MEANS_FREEZE,
        MEANS_QUOTA,            /* requires the cpu controller */
} Means;

/* Parsed command line. Strings point into argv. */
typedef struct Arguments {
        const char *unit;
        uint64_t target;        /* ns */
        double quantile;
        Means means;
        bool verbose, release, help;
        char **batch;
        unsigned n_batch;
} Arguments;

/* Returns -EINVAL for invalid arguments, after a message on standard error. Reorders argv. */
int arguments_parse(int argc, char **argv, Arguments *ret);

/* Whether a unit may be throttled in favour of the other one. name: canonical name, not an alias. Prints the
 * reason if not. */
bool may_be_held_back(const char *name, const char *unit);
