/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "util.h"

/* Each is told something up to ten times a second. */
#define BATCH_MAX 256U

/* The longest target, an hour: who takes that long is not helped by tenths of seconds. */
#define TARGET_MAX_NSEC (3600 * NSEC_PER_SEC)

typedef enum Means {
        MEANS_FREEZE,
        MEANS_QUOTA,            /* where there is the cpu controller */
} Means;

/* What qos-balance is told. All strings are those of the command line. */
typedef struct Arguments {
        const char *unit;
        uint64_t target;        /* ns */
        double quantile;
        Means means;
        bool verbose, release, help;
        char **batch;
        unsigned n_batch;
} Arguments;

/* Says what is wrong on the standard error, and returns -EINVAL then. Takes argv in another order. */
int arguments_parse(int argc, char **argv, Arguments *ret);

/* Whether a unit of this name (PID 1's, not an alias) may be held back for the other one; if not says
 * why. */
bool may_be_held_back(const char *name, const char *unit);
