/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Thresholds: the rule, and the state machine over values of its metric. Pure: clock and values are
 * arguments. */

#include "error.h"
#include "metric.h"
#include "selector.h"

/* Names are used as file names and in messages. */
#define THRESHOLD_NAME_MAX 64U

/* Limit of the length of a line. A complete rule takes a fourth of it. */
#define THRESHOLD_LINE_MAX 512U

/* Limit of the length of an address, a path or a unit name in brackets. */
#define THRESHOLD_SELECTOR_MAX 127U

/* Limit of durations in a rule: longer periods are left to metrics databases. */
#define THRESHOLD_DURATION_MAX_NSEC (24 * 3600 * NSEC_PER_SEC)

typedef enum ThresholdState {
        THRESHOLD_UNKNOWN,      /* the metric has no value */
        THRESHOLD_OK,
        THRESHOLD_VIOLATED,
        _THRESHOLD_STATE_MAX,
} ThresholdState;

const char* threshold_state_to_string(ThresholdState s);        /* "unknown", "ok", "violated" */
ThresholdState threshold_state_from_string(const char *s);      /* _THRESHOLD_STATE_MAX: unknown name */

/* Requests within the limit of an objective that are good. */
typedef enum ThresholdGood {
        GOOD_RESPONSE,          /* all */
        GOOD_SUCCESS,           /* "good=success": requests without an error (5xx, of gRPC, an error
                                 * reply) */
} ThresholdGood;

/* "slow: requests.server.firstByte.p99 > 20ms over 10s for 2s, clear 15ms for 5s" */
typedef struct ThresholdRule {
        /* The first fields are read ten times a second, and share a cache line */
        uint64_t window_nsec;           /* window of the metric */
        const Metric *metric;
        double limit;                   /* in the unit of the metric */
        double clear;                   /* value that ends a violation: the limit, or one on its good side */
        uint64_t enter_nsec;            /* time above the limit before the state becomes violated */
        uint64_t leave_nsec;            /* time beyond the clear value before it becomes ok */
        uint64_t stay_nsec;             /* minimum duration of a violation */
        bool below;                     /* "<": violated by values below the limit */
        bool inclusive;                 /* ">=", "<=": violated by the limit itself, and not cleared by
                                         * .clear itself */
        ThresholdGood good;             /* for objectives */
        char selector[THRESHOLD_SELECTOR_MAX + 1]; /* without brackets; empty: the whole unit */
        char name[THRESHOLD_NAME_MAX + 1];      /* empty: a condition */
} ThresholdRule;

/* Parses a rule. window_nsec: default window. The error, InvalidThreshold, has the line as argument, and
 * names what was expected. */
int threshold_rule_parse(const char *line, uint64_t window_nsec, ThresholdRule *ret, QosError *e);
/* As threshold_rule_parse(), for a rule without name. */
int threshold_rule_parse_condition(const char *s, uint64_t window_nsec, ThresholdRule *ret, QosError *e);

bool threshold_name_is_valid(const char *name);

/* The canonical rule with all defaults, which threshold_rule_parse() parses to an equal rule. named: false
 * replaces peers and paths by "...", for clients without authorization. */
int threshold_rule_format(const ThresholdRule *rule, bool named, char **ret);

/* Name of the metric with selector: "requests.server[:443].latency.p99". */
#define THRESHOLD_METRIC_MAX (SELECTOR_METRIC_MAX + THRESHOLD_SELECTOR_MAX + 3)
const char* threshold_rule_format_metric(const ThresholdRule *rule, bool named,
                                         char buffer[static THRESHOLD_METRIC_MAX]);

/* For rules with a selector. Points into the rule. */
void threshold_rule_get_selector(const ThresholdRule *rule, Selector *ret);
/* Whether the rule reveals nothing that requires authorization: neither peers nor paths of endpoints. */
bool threshold_rule_is_for_all(const ThresholdRule *rule);

/* Formats a value of the metric, or a limit, for messages: "31.25ms", "1200/s"; four significant digits. */
#define THRESHOLD_VALUE_MAX 40U
const char* threshold_rule_format_value(const Metric *metric, double value,
                                        char buffer[static THRESHOLD_VALUE_MAX]);

/* Evaluation period: the length of sub-windows for windows up to 1 s; 1 s for longer ones, which include the
 * current sub-window anyway. */
uint64_t threshold_rule_get_period(const ThresholdRule *rule);
#define THRESHOLD_PERIOD_MIN_NSEC (100 * NSEC_PER_MSEC)
#define THRESHOLD_PERIOD_MAX_NSEC NSEC_PER_SEC

/* State machine. Zeroed: unknown, never evaluated. */
typedef struct ThresholdMachine {
        ThresholdState state;
        ThresholdState next;            /* state that values have implied since next_since */
        uint64_t next_since;            /* CLOCK_MONOTONIC ns; 0: no change is pending */
        uint64_t unknown_since;         /* CLOCK_MONOTONIC ns of the first evaluation without value; 0: there
                                         * is a value */
        uint64_t looked_at;             /* CLOCK_MONOTONIC ns of the last evaluation; 0: never */
        uint64_t violated_since;        /* CLOCK_MONOTONIC ns; 0: unknown */
} ThresholdMachine;

/* To be called if there is no value because requests overlap: a violated threshold remains violated. False:
 * it is not violated, and threshold_machine_step() is to be called. */
bool threshold_machine_hold(ThresholdMachine *m, uint64_t now);

/* Processes a value; NaN: none. now: CLOCK_MONOTONIC ns. Returns true if the state has changed. */
bool threshold_machine_step(const ThresholdRule *rule, ThresholdMachine *m, uint64_t now, double value);

/* Largest value within the limit, for a rule with an upper limit. */
double threshold_rule_get_good_limit(const ThresholdRule *rule);
/* Whether the value exceeds the limit, in the direction of the rule. */
bool threshold_rule_is_beyond(const ThresholdRule *rule, double value);

/* Whether the rule is an upper limit for a quantile of latency or time to first byte, of all requests or
 * those to an endpoint. ret_target: the quantile, as the share of requests that has to be good. */
bool threshold_rule_is_objective(const ThresholdRule *rule, double *ret_target);

/* Distance of the value to the limit, relative to the limit, negative if exceeded; NaN: undefined. */
double threshold_rule_get_slack(const ThresholdRule *rule, double value);

/* Splits a metric into distribution and quantile: "requests.server.firstByte.p99" is quantile 0.99 of
 * "requests.server.firstByte"; max is 1. */
bool threshold_rule_get_quantile(const Metric *metric, const char **ret_distribution, size_t *ret_length,
                                 double *ret_q);
