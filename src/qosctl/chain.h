/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* A tree of diagnoses of units that wait for each other: each step is a peer of the unit above it. The
 * functions are pure; why.c observes the units. */

#include <systemd/sd-json.h>

#include "util.h"

/* Limit of steps below the requested unit: requests rarely pass through more services, and each step takes
 * an interval. */
#define CHAIN_DEPTH_MAX 8U
/* Limit of observed units, as each takes an interval. */
#define CHAIN_UNITS_MAX 16U

/* Why a step was not observed. */
typedef enum ChainEnd {
        CHAIN_END_NONE,
        CHAIN_END_CYCLE,                /* the unit is an ancestor of the step */
        CHAIN_END_SEEN,                 /* the unit is elsewhere in the tree */
        CHAIN_END_DEPTH,
        CHAIN_END_UNITS,
        CHAIN_END_NO_UNIT,              /* no unit of this host listens at the address */
        CHAIN_END_OTHER_HOST,
        CHAIN_END_FAILED,               /* observing failed, for example without permission */
        CHAIN_END_INTERRUPTED,
        _CHAIN_END_MAX,
} ChainEnd;

typedef struct ChainStep ChainStep;
struct ChainStep {
        char *unit;                     /* NULL: unknown */
        char *address;                  /* address of the peer; NULL: first step */
        double share;                   /* share in the time to first byte of the unit above, 0 ... 1; NaN:
                                         * the peer fails */
        double whole;                   /* share in that of the first unit */
        sd_json_variant *diagnosis;     /* reply to Diagnose(); NULL: not observed */
        ChainEnd end;
        char *message;                  /* error of CHAIN_END_FAILED; NULL: none */
        ChainStep *above;               /* NULL: first step */
        ChainStep **steps;              /* in descending order of share */
        size_t n_steps;
};

ChainStep* chain_new(const char *unit);
ChainStep* chain_free(ChainStep *s);
static inline void chain_freep(ChainStep **s) {
        (void) chain_free(*s);
}
#define _cleanup_chain_ _cleanup_(chain_freep)

/* Adds the peers that the diagnosed unit waits for or that fail, with their units if qosd knows these.
 * Returns -ENOMEM. */
int chain_add_steps(ChainStep *s);

/* Returns CHAIN_END_NONE if the unit of the step is to be observed, or why not. */
ChainEnd chain_check(const ChainStep *s);

const char* chain_end_to_string(ChainEnd e);    /* "otherHost" */

/* Follows the steps with the highest shares. Returns the last one, never NULL. ret_finding: the finding that
 * is the cause, or NULL. */
const ChainStep* chain_find_cause(const ChainStep *first, sd_json_variant **ret_finding);

/* The tree for --json=. */
int chain_to_json(const ChainStep *s, sd_json_variant **ret);
