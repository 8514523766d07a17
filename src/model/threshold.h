/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* A threshold: what is written of it, and what becomes of it while its metric changes. Pure: the clock and
 * the readings are given. */

#include "error.h"
#include "metric.h"
#include "selector.h"

/* It is the name of a file, and a word in messages. */
#define THRESHOLD_NAME_MAX 64U

/* As much as is read of a line: a rule with all its parts is a fourth of it. */
#define THRESHOLD_LINE_MAX 512U

/* What stands in brackets: an address, a path, or a unit that is not called by a name longer than most. */
#define THRESHOLD_SELECTOR_MAX 127U

/* The longest duration in a rule: what takes longer than a day is for who keeps metrics. */
#define THRESHOLD_DURATION_MAX_NSEC (24 * 3600 * NSEC_PER_SEC)

typedef enum ThresholdState {
        THRESHOLD_UNKNOWN,      /* the metric has no value, or has none for long enough */
        THRESHOLD_OK,
        THRESHOLD_VIOLATED,
        _THRESHOLD_STATE_MAX,
} ThresholdState;

const char* threshold_state_to_string(ThresholdState s);        /* "unknown", "ok", "violated" */
ThresholdState threshold_state_from_string(const char *s);      /* _THRESHOLD_STATE_MAX: there is no such
                                                                 * state */

/* "slow: requests.server.firstByte.p99 > 20ms over 10s for 2s, clear 15ms for 5s" */
typedef struct ThresholdRule {
        /* What is read ten times a second first, so that it lies together */
        uint64_t window_nsec;           /* over which the metric is read */
        const Metric *metric;
        double limit;                   /* in the unit of the metric */
        double clear;                   /* that ends a violation, on the good side of the limit or the limit
                                         * itself */
        uint64_t enter_nsec;            /* for so long beyond the limit: violated */
        uint64_t leave_nsec;            /* for so long not beyond what clears it: ok */
        uint64_t stay_nsec;             /* violated for so long at least */
        bool below;                     /* "<" */
        char selector[THRESHOLD_SELECTOR_MAX + 1]; /* of an endpoint or a peer, what is in the brackets;
                                                    * empty: of the whole unit */
        char name[THRESHOLD_NAME_MAX + 1];      /* empty: of a condition, which has none */
} ThresholdRule;

/* window_nsec: the default. The error (InvalidThreshold) has the whole line as its argument, and says what
 * was expected. */
int threshold_rule_parse(const char *line, uint64_t window_nsec, ThresholdRule *ret, QosError *e);
/* The same without a name. */
int threshold_rule_parse_condition(const char *s, uint64_t window_nsec, ThresholdRule *ret, QosError *e);

bool threshold_name_is_valid(const char *name);

/* The rule in full, as threshold_rule_parse() takes it, with all that was left out. What is read of it is
 * the same rule. Not named: for somebody who may not know peers and paths, with "..." in their place. */
int threshold_rule_format(const ThresholdRule *rule, bool named, char **ret);

/* The metric with its selector: "requests.server[:443].latency.p99". */
#define THRESHOLD_METRIC_MAX (SELECTOR_METRIC_MAX + THRESHOLD_SELECTOR_MAX + 3)
const char* threshold_rule_format_metric(const ThresholdRule *rule, bool named,
                                         char buffer[static THRESHOLD_METRIC_MAX]);

/* Of a rule that has one. Points into the rule. */
void threshold_rule_get_selector(const ThresholdRule *rule, Selector *ret);
/* Whether everybody may know what it is about: as in snapshots, of endpoints not the paths, and of peers
 * nothing. */
bool threshold_rule_is_for_all(const ThresholdRule *rule);

/* A value of the metric, or a limit, for people: "31.25ms", "1200/s"; four digits of it. */
#define THRESHOLD_VALUE_MAX 40U
const char* threshold_rule_format_value(const Metric *metric, double value,
                                        char buffer[static THRESHOLD_VALUE_MAX]);

/* How often the metric is worth a look: sub-windows of windows up to a second are 100 ms, those of longer
 * ones a second or more, in which what is new comes to the end of the window all the same. */
uint64_t threshold_rule_get_period(const ThresholdRule *rule);
#define THRESHOLD_PERIOD_MIN_NSEC (100 * NSEC_PER_MSEC)
#define THRESHOLD_PERIOD_MAX_NSEC NSEC_PER_SEC

/* What becomes of it. All zeroes: unknown, and never looked at. */
typedef struct ThresholdMachine {
        ThresholdState state;
        ThresholdState next;            /* what it is about to become by its values … */
        uint64_t next_since;            /* … from then on, CLOCK_MONOTONIC ns; 0: nothing */
        uint64_t unknown_since;         /* there is no value from then on, the same; 0: there is one */
        uint64_t looked_at;             /* the same; 0: never */
        uint64_t violated_since;        /* the same; 0: not known */
} ThresholdMachine;

/* The metric has this value now (CLOCK_MONOTONIC ns; NaN: none). True if that changed the state. */
bool threshold_machine_step(const ThresholdRule *rule, ThresholdMachine *m, uint64_t now, double value);

/* Whether the value is beyond the limit. */
bool threshold_rule_is_beyond(const ThresholdRule *rule, double value);

/* How far the value is from the limit, as a part of it, negative beyond it; NaN: cannot be told. */
double threshold_rule_get_slack(const ThresholdRule *rule, double value);

/* What is read of a quantile: "requests.server.firstByte.p99" is 0.99 of "requests.server.firstByte". 1 for
 * the largest. */
bool threshold_rule_get_quantile(const Metric *metric, const char **ret_distribution, size_t *ret_length,
                                 double *ret_q);
