/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "rules.h"

/* Below the one something is taken, above the other it is given back: between both nothing is done, or it
 * would go to and fro. */
#define SLACK_TAKE 0.05
#define SLACK_GIVE 0.20

/* What was taken shows after that, what was given back after this: the windows are 300 ms and a second, and
 * reach back one step further. */
#define TAKE_AGAIN_USEC (400 * USEC_PER_MSEC)
#define GIVE_AGAIN_USEC (1200 * USEC_PER_MSEC)

/* A level that has kept the target for so long is good for it, until it is not. */
#define GOOD_USEC (3 * USEC_PER_SEC)

/* Each attempt to give back too much is a second or two in which the target is missed. One in two minutes is
 * a percent: where they come more often, it is waited twice as long before the next one, where they do not,
 * half as long. */
#define RARE_USEC (120 * USEC_PER_SEC)

void rules_init(Rules *r, unsigned max, unsigned step) {
        *r = (Rules) {
                .level = max,
                .max = max,
                .step = step,
                .good = max,
                .bad = max + 1,
                .back_off = BACK_OFF_MIN_USEC,
        };
}

void rules_reset(Rules *r, uint64_t now) {
        rules_init(r, r->max, r->step);
        r->acted_at = now;
}

/* The level is too much. */
static void rules_fail(Rules *r, uint64_t now) {
        /* It may be so of several levels one after the other: that is one and the same failure */
        if (r->failed_at != 0 && r->given_at > r->failed_at)
                r->back_off = now < r->failed_at + r->back_off + RARE_USEC ?
                              MIN(2 * r->back_off, BACK_OFF_MAX_USEC) :
                              MAX(r->back_off / 2, BACK_OFF_MIN_USEC);
        r->failed_at = now;
        r->bad = r->level;
}

static Action rules_take(Rules *r, uint64_t now, bool missed) {
        bool tried = r->level > r->good;

        if (r->level == 0)
                return ACTION_KEEP;
        /* What was given last is taken back at the first sign. What has been good for long is no longer
         * because the load is another one: of that half is taken, when it is sure, and what was taken last
         * had time to show */
        if (!tried && (!missed || now < r->acted_at + TAKE_AGAIN_USEC))
                return ACTION_KEEP;

        rules_fail(r, now);
        r->level = r->good = tried ? r->good : r->level / 2;
        r->acted_at = now;
        return ACTION_TAKE;
}

static Action rules_give(Rules *r, uint64_t now) {
        unsigned next = MIN(r->level + r->step, r->max);

        if (r->level == r->max || now < r->acted_at + GIVE_AGAIN_USEC ||
            (r->failed_at != 0 && now < r->failed_at + BACK_OFF_MIN_USEC))
                return ACTION_KEEP;
        /* What was too much will most likely be again. What is below it is not waited for as long */
        if (next >= r->bad && now < r->failed_at + r->back_off)
                return ACTION_KEEP;

        r->good = r->level;
        r->level = next;
        r->acted_at = r->given_at = now;
        return ACTION_GIVE;
}

Action rules_decide(Rules *r, uint64_t now, double slack_now, double slack_long) {
        if (slack_now < SLACK_TAKE)
                return rules_take(r, now, slack_long < SLACK_TAKE);

        if (now >= r->acted_at + GOOD_USEC) {
                r->good = r->level;
                if (r->level >= r->bad)
                        r->bad = r->max + 1;
        }
        if (slack_now > SLACK_GIVE && slack_long > SLACK_GIVE)
                return rules_give(r, now);
        return ACTION_KEEP;
}
