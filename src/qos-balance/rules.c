/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "rules.h"

/* Slack below which batch units are throttled, and above which they are released, with hysteresis in
 * between. */
#define SLACK_TAKE 0.05
#define SLACK_GIVE 0.20

/* Time until the effect of throttling, and of a release, is visible in the windows of 300 ms and 1 s, which
 * begin up to a step earlier. */
#define TAKE_AGAIN_USEC (400 * USEC_PER_MSEC)
#define GIVE_AGAIN_USEC (1200 * USEC_PER_MSEC)

/* Time after which a level that has met the target is considered good, until it misses the target. */
#define GOOD_USEC (3 * USEC_PER_SEC)

/* Time between releases that were too large, below which the back-off is doubled, and above which it is
 * halved. Each of them misses the target for a second or two: once in two minutes this is one percent of the
 * time. */
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

/* To be called if the current level is too high. */
static void rules_fail(Rules *r, uint64_t now) {
        /* Consecutive decreases are part of the same failure */
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
        /* A recent increase is reverted at once. A level that was good before is too high only if the load
         * has changed: it is halved if the target is missed over both windows, and earlier decreases have
         * taken effect */
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
        /* Levels that were too high before are retried after the back-off, lower ones at once */
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
