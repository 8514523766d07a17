/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* When something is taken from the batch units, and when it is given back: the rules of PARTIES (Chen,
 * Delimitrou, Martinez, ASPLOS 2019). Pure: the clock and the figures are given. */

#include "util.h"

typedef struct Rules {
        unsigned level, max;            /* all that the batch units have, and that there is … */
        unsigned step;                  /* … of which so much is given back at a time */
        unsigned good;                  /* that was enough for the target, when more was given */
        unsigned bad;                   /* that was too much; above max: none is known */
        uint64_t acted_at;              /* when the level was changed, CLOCK_MONOTONIC us, as the others … */
        uint64_t given_at;              /* … to a higher one … */
        uint64_t failed_at;             /* … and when one was too much; 0: never */
        uint64_t back_off;
} Rules;

typedef enum Action {
        ACTION_KEEP,
        ACTION_TAKE,
        ACTION_GIVE,
} Action;

/* Of the back-off, see rules.c. */
#define BACK_OFF_MIN_USEC (2 * USEC_PER_SEC)
#define BACK_OFF_MAX_USEC (128 * USEC_PER_SEC)

/* All is given. */
void rules_init(Rules *r, unsigned max, unsigned step);

/* The slack is the part of the target that is left, now and over more than a moment: below zero where it is
 * missed. */
Action rules_decide(Rules *r, uint64_t now, double slack_now, double slack_long);

/* Without figures: all is given, and nothing is known. */
void rules_reset(Rules *r, uint64_t now);
