/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What a unit waits for, from unit to unit: a tree of diagnoses, of which each step is a peer that the unit
 * above waits for. Pure; why.c observes the units. */

#include <systemd/sd-json.h>

#include "util.h"

/* Steps below the unit that was named. Requests that pass through more services than this are rare, and
 * each step takes an interval. */
#define CHAIN_DEPTH_MAX 8U
/* Units that are observed. With branches there may be many, and each takes an interval. */
#define CHAIN_UNITS_MAX 16U

/* Why a step was not observed. */
typedef enum ChainEnd {
        CHAIN_END_NONE,
        CHAIN_END_CYCLE,                /* the unit is above */
        CHAIN_END_SEEN,                 /* the unit is elsewhere in the tree */
        CHAIN_END_DEPTH,
        CHAIN_END_UNITS,
        CHAIN_END_NO_UNIT,              /* no unit of this host listens there */
        CHAIN_END_OTHER_HOST,
        CHAIN_END_FAILED,               /* it could not be observed: access, or it vanished */
        CHAIN_END_INTERRUPTED,
        _CHAIN_END_MAX,
} ChainEnd;

typedef struct ChainStep ChainStep;
struct ChainStep {
        char *unit;                     /* NULL: not known */
        char *address;                  /* of the peer; NULL: of the first step */
        double share;                   /* of the time to first byte of the unit above, 0 ... 1; NaN: it is
                                         * no matter of time, as the peer fails */
        double whole;                   /* the same of the first unit */
        sd_json_variant *diagnosis;     /* reply to Diagnose(); NULL: not observed */
        ChainEnd end;
        char *message;                  /* of CHAIN_END_FAILED; NULL: none */
        ChainStep *above;               /* NULL: the first */
        ChainStep **steps;              /* those that take most first */
        size_t n_steps;
};

ChainStep* chain_new(const char *unit);
ChainStep* chain_free(ChainStep *s);
static inline void chain_freep(ChainStep **s) {
        (void) chain_free(*s);
}
#define _cleanup_chain_ _cleanup_(chain_freep)

/* Adds the peers that the diagnosed unit waits for, with the names of their units as far as qosd knows them,
 * or that fail. -ENOMEM */
int chain_add_steps(ChainStep *s);

/* Whether a step with a unit is to be observed, or why not. */
ChainEnd chain_check(const ChainStep *s);

const char* chain_end_to_string(ChainEnd e);    /* "otherHost" */

/* Follows the steps with most of the time of the first unit. Returns the last one, never NULL.
 * ret_finding: its first finding, or NULL. */
const ChainStep* chain_find_cause(const ChainStep *first, sd_json_variant **ret_finding);

/* The tree for --json=. */
int chain_to_json(const ChainStep *s, sd_json_variant **ret);
