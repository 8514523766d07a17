/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The control law for throttling and releasing batch units, after PARTIES (Chen, Delimitrou, Martinez,
 * ASPLOS 2019). Pure: clock and metrics are arguments. */

#include "util.h"

typedef struct Rules {
        unsigned level, max;            /* current share of the batch units, and its maximum */
        unsigned step;                  /* increment of a release */
        unsigned good;                  /* highest level known to meet the target */
        unsigned bad;                   /* lowest level known to miss the target; above max: none */
        uint64_t acted_at;              /* CLOCK_MONOTONIC us of the last change of level */
        uint64_t given_at;              /* CLOCK_MONOTONIC us of the last increase */
        uint64_t failed_at;             /* CLOCK_MONOTONIC us of the last increase that was too large; 0:
                                         * never */
        uint64_t back_off;
} Rules;

typedef enum Action {
        ACTION_KEEP,
        ACTION_TAKE,
        ACTION_GIVE,
} Action;

/* Bounds of the back-off, see rules.c. */
#define BACK_OFF_MIN_USEC (2 * USEC_PER_SEC)
#define BACK_OFF_MAX_USEC (128 * USEC_PER_SEC)

/* Begins at the maximum level. */
void rules_init(Rules *r, unsigned max, unsigned step);

/* Adapts the level. slack_now, slack_long: relative distance to the target over a short and a longer window,
 * negative if the target is missed. now: CLOCK_MONOTONIC us. */
Action rules_decide(Rules *r, uint64_t now, double slack_now, double slack_long);

/* To be called if there are no metrics: returns to the maximum level, and forgets earlier results. */
void rules_reset(Rules *r, uint64_t now);
