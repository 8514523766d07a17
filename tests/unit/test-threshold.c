/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Parsing, formatting and the state machine of thresholds. */

#include <math.h>

#include "check.h"
#include "parse.h"
#include "threshold.h"

#define FIRST_BYTE "requests.server.firstByte.p99"
#define RATE "requests.server.rate"
#define ZEROES "00000000000000000000000000000000000000000000000000"
#define SEC NSEC_PER_SEC
#define MSEC NSEC_PER_MSEC

static ThresholdRule parsed(const char *line) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        ThresholdRule rule;

        if (threshold_rule_parse(line, 10 * SEC, &rule, &e) < 0) {
                fprintf(stderr, "%s: %s\n", line, strempty(e.message));
                exit(EXIT_FAILURE);
        }
        return rule;
}

static void test_good(void) {
        static const struct {
                const char *line, *whole;
        } table[] = {
                { "slow: " FIRST_BYTE " > 20ms over 10s for 2s, clear 15ms for 5s",
                  "slow: " FIRST_BYTE " > 20ms over 10s for 2s, clear 15ms for 5s" },
                { "slow: " FIRST_BYTE " above 20ms over 10s for 2s",
                  "slow: " FIRST_BYTE " > 20ms over 10s for 2s, clear 20ms for 2s" },
                { "idle: " RATE "   below   100 over 1s",
                  "idle: " RATE " < 100 over 1s for 0s, clear 100 for 0s" },
                { "slow:" FIRST_BYTE ">20ms",
                  "slow: " FIRST_BYTE " > 20ms over 10s for 0s, clear 20ms for 0s" },
                { "  a-b_9 :  " FIRST_BYTE "  >  1min 1.5s  ",
                  "a-b_9: " FIRST_BYTE " > 61500ms over 10s for 0s, clear 61500ms for 0s" },
                { "x: " FIRST_BYTE " > 1us over 500ms for 1h",
                  "x: " FIRST_BYTE " > 1us over 500ms for 3600s, clear 1us for 3600s" },
                { "x: " FIRST_BYTE " > 1ms over 5min for 2s , clear 500us",
                  "x: " FIRST_BYTE " > 1ms over 300s for 2s, clear 500us for 2s" },
                { "x: " FIRST_BYTE " > 1ms for 2s, clear 1ms for 0, cooldown 1min",
                  "x: " FIRST_BYTE " > 1ms over 10s for 2s, clear 1ms for 0s, cooldown 60s" },
                { "x: " FIRST_BYTE " > 1ms, good success, cooldown 1s",
                  "x: " FIRST_BYTE " > 1ms over 10s for 0s, clear 1ms for 0s, cooldown 1s, good success" },
                { "x: " FIRST_BYTE " > 1ms,cooldown 1s,clear 3ns",
                  "x: " FIRST_BYTE " > 1ms over 10s for 0s, clear 3ns for 0s, cooldown 1s" },
                { "idle: " RATE " < 100/s over 1s, clear 150",
                  "idle: " RATE " < 100 over 1s for 0s, clear 150 for 0s" },
                { "x: " RATE " < 0.125",
                  "x: " RATE " < 0.125 over 10s for 0s, clear 0.125 for 0s" },
                { "x: custom.started.programs.rate > 5 over 1s",
                  "x: custom.started.programs.rate > 5 over 1s for 0s, clear 5 for 0s" },
                { "x: custom.runqueue.wait.p99 > 2ms over 60s",
                  "x: custom.runqueue.wait.p99 > 2ms over 60s for 0s, clear 2ms for 0s" },
                { "x: requests.server.bytesOut > 1.5M over 1s",
                  "x: requests.server.bytesOut > 1536K over 1s for 0s, clear 1536K for 0s" },
                { "x: requests.server.bytesOut > 536870912 over 1s, clear 1000",
                  "x: requests.server.bytesOut > 512M over 1s for 0s, clear 1000B for 0s" },
                { "x: requests.server.bytesOut > 8192T, clear 0.1K",
                  "x: requests.server.bytesOut > 8192T over 10s for 0s, clear 102.4B for 0s" },
                { "x: requests.server.bytesOut > 1T, clear 0",
                  "x: requests.server.bytesOut > 1T over 10s for 0s, clear 0B for 0s" },
                { "x: requests.server.errors.status5xx > 0 over 60s",
                  "x: requests.server.errors.status5xx > 0 over 60s for 0s, clear 0 for 0s" },
                { "x: requests.server.inFlight >= 8 over 1s",
                  "x: requests.server.inFlight >= 8 over 1s for 0s, clear 8 for 0s" },
                { "x: " RATE "<=5, clear 6",
                  "x: " RATE " <= 5 over 10s for 0s, clear 6 for 0s" },
                { "x: requests.client.latency.p90 > 1ms over 2s",
                  "x: requests.client.latency.p90 > 1ms over 2s for 0s, clear 1ms for 0s" },
                { "x: requests.server[:443].latency.p99 > 2ms over 2s",
                  "x: requests.server[:443].latency.p99 > 2ms over 2s for 0s, clear 2ms for 0s" },
                { "x: requests.server[[::1]:80].rate<5",
                  "x: requests.server[[::1]:80].rate < 5 over 10s for 0s, clear 5 for 0s" },
                { "x: requests.server[/run/a b, over > ].sock].errors.reset > 0 over 5s",
                  "x: requests.server[/run/a b, over > ].sock].errors.reset > 0 over 5s for 0s, clear 0 for "
                  "0s" },
                { "x: storage.mounts[/a\\040b].reads.latency.p99 > 20ms",
                  "x: storage.mounts[/a\\040b].reads.latency.p99 > 20ms over 10s for 0s, clear 20ms for "
                  "0s" },
                { "x: requests.client[redis-server.service].latency.max > 1s",
                  "x: requests.client[redis-server.service].latency.max > 1s over 10s for 0s, clear 1s for "
                  "0s" },
                { "x:\t" RATE "\t>\t5\tover\t2s",
                  "x: " RATE " > 5 over 2s for 0s, clear 5 for 0s" },
        };

        for (size_t i = 0; i < ELEMENTSOF(table); i++) {
                _cleanup_free_ char *whole = NULL, *again = NULL;
                ThresholdRule rule = parsed(table[i].line);

                check(threshold_rule_format(&rule, true, &whole) == 0);
                if (!streq(whole, table[i].whole)) {
                        fprintf(stderr, "'%s' became '%s'\n", table[i].line, whole);
                        exit(EXIT_FAILURE);
                }
                rule = parsed(whole);
                check(threshold_rule_format(&rule, true, &again) == 0 && streq(whole, again));
        }
}

/* Private parts are not in broadcast events. */
static void test_conceal(void) {
        static const struct {
                const char *metric, *shown;
        } table[] = {
                { RATE,
                  RATE                               },
                { "requests.server[:443].latency.p99",
                  "requests.server[:443].latency.p99" },
                { "requests.server[127.0.0.1:443].rate",
                  "requests.server[127.0.0.1:443].rate" },
                { "requests.server[/run/secret.sock].rate",
                  "requests.server[...].rate"        },
                { "requests.server[@secret].rate",
                  "requests.server[...].rate"        },
                { "storage.mounts[/srv].reads.latency.p99",
                  "storage.mounts[...].reads.latency.p99" },
                { "requests.client[:6379].latency.p99",
                  "requests.client[...].latency.p99" },
                { "requests.client[[::1]:6379].latency.p99",
                  "requests.client[...].latency.p99" },
                { "requests.client[redis-server.service].latency.p99",
                  "requests.client[...].latency.p99" },
                { "requests.client[/user.slice/secret.service].rate",
                  "requests.client[...].rate"        },
        };

        for (size_t i = 0; i < ELEMENTSOF(table); i++) {
                _cleanup_free_ char *line = NULL, *whole = NULL, *open = NULL;
                char metric[THRESHOLD_METRIC_MAX];
                ThresholdRule rule;

                check(asprintf(&line, "x: %s > 5%s", table[i].metric, endswith(table[i].metric, ".rate") ?
                               "" : "ms") > 0);
                rule = parsed(line);
                check(streq(threshold_rule_format_metric(&rule, false, metric), table[i].shown));
                check(threshold_rule_format(&rule, false, &whole) == 0 && strstr(whole, table[i].shown) &&
                      !strstr(whole, "secret"));
                check(streq(threshold_rule_format_metric(&rule, true, metric), table[i].metric));
                check(threshold_rule_format(&rule, true, &open) == 0 && strstr(open, table[i].metric));
        }
}

/* Otherwise a restart of qosd would mistake the rule of a file for another one. */
static void test_read_again(void) {
        static const struct {
                const char *before, *point, *after;
        } around[] = {
                { "contention.shares.lock > ",              ".", "%" },
                { "contention.shares.lock > 0.00000",       "",  ""  },
                { "requests.server.bytesOut > ",            ".", "K" },
                { "requests.server.bytesOut > ",            ".", "T" },
                { RATE " > ",                               ".", ""  },
        };

        for (size_t i = 0; i < ELEMENTSOF(around); i++)
                for (unsigned n = 1; n < 1000; n++) {
                        _cleanup_free_ char *line = NULL, *whole = NULL;
                        ThresholdRule rule, again;

                        check(asprintf(&line, "x: %s%u%s%u%s", around[i].before, n / 10, around[i].point,
                                       n % 10, around[i].after) > 0);
                        rule = parsed(line);
                        check(threshold_rule_format(&rule, true, &whole) == 0);
                        again = parsed(whole);
                        if (rule.limit < again.limit || rule.limit > again.limit ||
                            rule.clear < again.clear || rule.clear > again.clear) {
                                fprintf(stderr, "'%s' is not '%s'\n", line, whole);
                                exit(EXIT_FAILURE);
                        }
                        check(rule.limit > 0);
                }
}

static void test_bad(void) {
        static const struct {
                const char *line, *message;
        } table[] = {
                { "", "expected a name and a colon" },
                { FIRST_BYTE " > 20ms", "expected a name and a colon" },
                { ": " FIRST_BYTE " > 20ms", "expected a name of letters" },
                { "a b: " FIRST_BYTE " > 20ms", "got 'a b'" },
                { "../x: " FIRST_BYTE " > 20ms", "got '../x'" },
                { "-x: " FIRST_BYTE " > 20ms", "got '-x'" },
                { "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa: " FIRST_BYTE " > 20ms",
                  "at most 64" },
                { "x:", "expected a metric" },
                { "x: > 20ms", "expected a metric" },
                { "x: custom > 1", "there is no metric 'custom'" },
                { "x: custom.started.rate > 1", "'custom.started.rate' is no metric of a custom probe" },
                { "x: custom.started.Programs.rate > 1", "is no metric of a custom probe" },
                { "x: custom.started.programs.p101 > 1", "is no metric of a custom probe" },
                { "x: custom.started.programs[1].rate > 1", "is no metric of a custom probe" },
                { "x: custom.started.programs.rate > 5ms", "expected a rate" },
                { "x: requests.server.firstByte > 20ms",
                  "'requests.server.firstByte' is a distribution, expected one of its quantiles, like "
                  "'requests.server.firstByte.p99'" },
                { "x: requests.server[:443].latency > 20ms",
                  "'requests.server[:443].latency' is a distribution" },
                { "x: requests.server.latncy.p99 > 20ms",
                  "'requests.server.latncy.p99', did you mean 'requests.server.latency.p99'?" },
                { "x: requests.server > 20ms", "there is no metric 'requests.server'" },
                { "x: requests.server[:443].latency.p99 > 2ms over 1s",
                  "'requests.server[:443].latency.p99' is known over windows of 2s to 10s" },
                { "x: requests.server[:443].firstByte.p99 > 2ms",
                  "'requests.server.firstByte.p99' is known of the whole unit alone, not of an endpoint" },
                { "x: requests.client[:443].peers > 2", "there is no metric 'requests.client[:443].peers'" },
                { "x: requests.server[443].rate > 2", "does not say which part of the unit" },
                { "x: requests.server[:443].nonsense > 2",
                  "there is no metric 'requests.server[:443].nonsense'" },
                { "x: contention[:443].shares.lock > 2", "does not say which part of the unit" },
                { "x: "
                  "requests.server[/"
                  "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
                  "aaaaaaaaaaaaaaaa"
                  "aaaaaaaaaaaaaaaaaaaaaaa].rate > 2",
                  "is longer in its brackets than 127 bytes" },
                { "x: requests.quality > 3", "is a word" },
                { "x: " FIRST_BYTE,
                  "expected '>', '<', '>=', '<=', 'above' or 'below' behind '" FIRST_BYTE "', got ''" },
                { "x: " FIRST_BYTE " aboveboard 20ms", "got 'aboveboard 20ms'" },
                { "x: " FIRST_BYTE " above", "expected a time like '20ms'" },
                { "x: " FIRST_BYTE " above > 20ms", "got '> 20ms'" },
                { "x: " FIRST_BYTE " = 20ms", "got '= 20ms'" },
                { "x: " FIRST_BYTE " >", "expected a time like '20ms' for '" FIRST_BYTE "', got ''" },
                { "x: " FIRST_BYTE " > 20", "got '20'" },
                { "x: " FIRST_BYTE " > -20ms", "got '-20ms'" },
                { "x: " FIRST_BYTE " > 20 parsecs", "got '20 parsecs'" },
                { "x: " FIRST_BYTE " > 20%", "got '20%'" },
                { "x: " RATE " = 5", "got '= 5'" },
                { "x: " RATE " > = 5", "got '= 5'" },
                { "x: " RATE " => 5", "got '=> 5'" },
                { "x: " RATE " >= 5, clear 6", "must not be beyond" },
                { "x: " FIRST_BYTE " > inf", "got 'inf'" },
                { "x: " FIRST_BYTE " > 99999999999999999999h", "expected a time like" },
                { "x: " RATE " > 5ms", "expected a rate" },
                { "x: " RATE " > 0x10", "expected a rate" },
                { "x: " RATE " > 1e3", "expected a rate" },
                { "x: requests.server.bytesOut > 5 parsecs", "expected a size" },
                { "x: requests.server.count > 5%", "expected a number like '20'" },
                { "x: requests.server.count > 9007199254740994",
                  "expected at most 9007199254740992 for 'requests.server.count', got '9007199254740994'" },
                { "x: requests.server.bytesOut > 8193T", "expected at most 9007199254740992" },
                { "x: " RATE " > 1, clear 1" ZEROES ZEROES, "expected at most 9007199254740992" },
                { "x: requests.server.bytesOut > 1" ZEROES ZEROES ZEROES ZEROES ZEROES ZEROES "T",
                  "expected at most 9007199254740992" },
                { "x: " FIRST_BYTE " > 20ms over", "expected a window" },
                { "x: " FIRST_BYTE " > 20ms over 11s", "got '11s'" },
                { "x: " FIRST_BYTE " > 20ms over 0", "got '0'" },
                { "x: " FIRST_BYTE " > 20ms over total", "got 'total'" },
                { "x: " FIRST_BYTE " > 20ms over 10", "got '10'" },
                { "x: " FIRST_BYTE " > 20ms for", "after 'for', got ''" },
                { "x: " FIRST_BYTE " > 20ms for good", "got 'good'" },
                { "x: " FIRST_BYTE " > 20ms for 25h", "up to 24h" },
                { "x: " FIRST_BYTE " > 20ms for 2s over 10s",
                  "expected 'over', 'for', ', clear' or the end, got 'over 10s'" },
                { "x: " FIRST_BYTE " > 20ms clear 15ms", "got 'clear 15ms'" },
                { "x: " FIRST_BYTE " > 20ms,", "expected 'clear', 'cooldown' or 'good'" },
                { "x: " FIRST_BYTE " > 20ms, clear", "expected a time" },
                { "x: " FIRST_BYTE " > 20ms, clear 21ms", "must not be beyond" },
                { "x: " RATE " < 100, clear 99", "must not be beyond" },
                { "x: " FIRST_BYTE " > 20ms, clear 15ms, clear 14ms", "once each" },
                { "x: " FIRST_BYTE " > 20ms, clear 15ms over 1s", "got 'over 1s'" },
                { "x: " FIRST_BYTE " > 20ms, cooldown 1s, cooldown 1s", "once each" },
                { "x: " FIRST_BYTE " > 20ms, cooldown x", "after 'cooldown', got 'x'" },
                { "x: " FIRST_BYTE " > 20ms, good all", "'success' after 'good', got 'all'" },
                { "x: " FIRST_BYTE " > 20ms, good success, good success", "once each" },
                { "x: " FIRST_BYTE " < 20ms, good success", "'good' is for upper limits" },
                { "x: " RATE " > 20, good success", "'good' is for upper limits" },
                { "x: requests.server.latency.max > 20ms, good success", "'good' is for upper limits" },
                { "x: requests.server[:80].latency.p99 > 20ms, good success", "the whole unit alone" },
                { "x: " FIRST_BYTE " > 20ms or 3", "got '20ms or 3'" },
                { "x: requests.client.latency.p90 > 1ms over 1s", "windows of 2s to 10s" },
                { "x: requests.client.latency.p90 > 1ms over 60s", "windows of 2s to 10s" },
        };
        char longest[THRESHOLD_LINE_MAX + 1];
        ThresholdRule rule;

        for (size_t i = 0; i < ELEMENTSOF(table); i++) {
                _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;

                if (threshold_rule_parse(table[i].line, 10 * SEC, &rule, &e) != -EINVAL) {
                        fprintf(stderr, "'%s' is accepted\n", table[i].line);
                        exit(EXIT_FAILURE);
                }
                check(e.code == QOS_ERROR_INVALID_THRESHOLD && streq(e.argument, table[i].line));
                if (!strstr(e.message, table[i].message)) {
                        fprintf(stderr, "'%s': '%s' instead of '%s'\n", table[i].line, e.message,
                                table[i].message);
                        exit(EXIT_FAILURE);
                }
                check(threshold_rule_parse(table[i].line, 10 * SEC, &rule, NULL) == -EINVAL);
        }

        memset(longest, 'x', sizeof(longest) - 1);
        longest[sizeof(longest) - 1] = 0;
        check(threshold_rule_parse(longest, 10 * SEC, &rule, NULL) == -EINVAL);
}

static void test_condition(void) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        ThresholdRule rule;

        check(threshold_rule_parse_condition(RATE " > 5 over 2s", 10 * SEC, &rule, &e) == 0);
        check(isempty(rule.name) && rule.window_nsec == 2 * SEC);
        check(threshold_rule_parse_condition("x: " RATE " > 5 over 2s", 10 * SEC, &rule, &e) == -EINVAL);
}

typedef struct Look {
        uint64_t after;         /* the last one, ms */
        double value;
        ThresholdState state;   /* then */
} Look;

/* Each change of state is an event, and there are no other events. */
static void walk(const char *line, const Look *looks, size_t n) {
        ThresholdRule rule = parsed(line);
        ThresholdMachine m = {};
        uint64_t now = 1000 * SEC;

        for (size_t i = 0; i < n; i++) {
                ThresholdState before = m.state;
                bool changed;

                now += looks[i].after * MSEC;
                changed = threshold_machine_step(&rule, &m, now, looks[i].value);
                check(changed == (before != m.state));
                if (m.state != looks[i].state) {
                        fprintf(stderr, "%s, look %zu: %s instead of %s\n", line, i,
                                threshold_state_to_string(m.state),
                                threshold_state_to_string(looks[i].state));
                        exit(EXIT_FAILURE);
                }
        }
}
#define WALK(line, ...) walk(line, (const Look[]) { __VA_ARGS__ }, \
                             ELEMENTSOF(((const Look[]) { __VA_ARGS__ })))

#define UNKNOWN THRESHOLD_UNKNOWN
#define OK THRESHOLD_OK
#define VIOLATED THRESHOLD_VIOLATED

static void test_machine(void) {
        /* Without durations: immediately in both directions. The limit itself does not exceed */
        WALK("x: " RATE " > 10 over 1s",
             { 0, NAN, UNKNOWN }, { 100, 5, OK }, { 100, 10, OK }, { 100, 10.1, VIOLATED }, { 100, 10, OK },
                     { 100, NAN, UNKNOWN },
             { 100, 11, VIOLATED }, { 100, NAN, UNKNOWN }, { 100, NAN, UNKNOWN }, { 100, 0, OK });
        WALK("x: " RATE " < 10 over 1s",
             { 0, 10, OK }, { 100, 9.9, VIOLATED }, { 100, 0, VIOLATED }, { 100, 10, OK });

        /* The limit itself violates, and the clear limit does not clear */
        WALK("x: " RATE " >= 10 over 1s",
             { 0, 9.9, OK }, { 100, 10, VIOLATED }, { 100, 10, VIOLATED }, { 100, 9.9, OK });
        WALK("x: " RATE " <= 10 over 1s, clear 12",
             { 0, 10.1, OK }, { 100, 10, VIOLATED }, { 100, 12, VIOLATED }, { 100, 12.1, OK });
        WALK("x: " RATE " >= 10 over 1s, clear 8",
             { 0, 10, VIOLATED }, { 100, 8, VIOLATED }, { 100, 7.9, OK });

        /* Durations of both directions, and values between the limits */
        WALK("x: " RATE " > 20 over 10s for 2s, clear 15 for 5s",
             { 0, 30, UNKNOWN }, { 1000, 30, UNKNOWN }, { 1000, 30, VIOLATED },
             { 1000, 18, VIOLATED }, { 1000, 15, VIOLATED }, { 1000, 15, VIOLATED }, { 1000, 16, VIOLATED },
             { 1000, 15, VIOLATED }, { 1000, 1, VIOLATED }, { 1000, 1, VIOLATED }, { 1000, 1, VIOLATED },
                     { 1000, 1, VIOLATED }, { 1000, 1, OK },
             { 1000, 18, OK }, { 1000, 21, OK }, { 1000, 19, OK }, { 1000, 21, OK }, { 1000, 21, OK },
                     { 1000, 21, VIOLATED });

        /* No value has no effect for the longer of both durations */
        WALK("x: " RATE " > 20 over 10s for 2s, clear 15 for 3s",
             { 0, 1, UNKNOWN }, { 1000, 1, UNKNOWN }, { 1000, 1, UNKNOWN }, { 1000, 1, OK },
             { 1000, NAN, OK }, { 1000, NAN, OK }, { 1000, 1, OK }, { 1000, NAN, OK }, { 1000, NAN, OK },
                     { 1000, NAN, OK },
             { 1000, NAN, UNKNOWN }, { 1000, NAN, UNKNOWN });

        /* Changing back and forth does not invalidate the others */
        WALK("x: " RATE " > 20 over 10s for 3s, clear 15 for 4s",
             { 0, NAN, UNKNOWN }, { 1000, 30, UNKNOWN }, { 1000, NAN, UNKNOWN }, { 1000, 30, UNKNOWN },
                     { 1000, NAN, UNKNOWN }, { 1000, 30, VIOLATED },
             { 1000, NAN, VIOLATED }, { 1000, 1, VIOLATED }, { 1000, NAN, VIOLATED }, { 1000, 1, VIOLATED },
                     { 1000, NAN, VIOLATED }, { 1000, 1, OK },
             { 1000, NAN, OK }, { 1000, 30, OK }, { 1000, NAN, OK }, { 1000, 1, OK }, { 1000, NAN, OK },
                     { 1000, 30, OK }, { 1000, NAN, OK },
             { 1000, 30, OK }, { 1000, 30, VIOLATED });
        /* unless it lasts: then they are reset */
        WALK("x: " RATE " > 20 over 10s for 2s",
             { 0, 30, UNKNOWN }, { 1000, NAN, UNKNOWN }, { 1000, NAN, UNKNOWN }, { 1000, NAN, UNKNOWN },
                     { 1000, 30, UNKNOWN }, { 1000, NAN, UNKNOWN },
             { 1000, 30, VIOLATED });

        /* A gap between evaluations: pending changes begin anew, the state is kept */
        WALK("x: " RATE " > 20 over 10s for 2s",
             { 0, 30, UNKNOWN }, { 1000, 30, UNKNOWN }, { 600000, 30, UNKNOWN }, { 1000, 30, UNKNOWN },
                     { 1000, 30, VIOLATED },
             { 600000, 30, VIOLATED }, { 600000, 1, VIOLATED }, { 600000, 1, VIOLATED },
                     { 1000, 1, VIOLATED }, { 1000, 1, OK });
        /* A short delay has no effect */
        WALK("x: " RATE " > 20 over 10s for 2s", { 0, 30, UNKNOWN }, { 2900, 30, VIOLATED });

        /* Violated for at least this long; unknown values may precede */
        WALK("x: " RATE " > 20 over 1s, cooldown 1s",
             { 0, 30, VIOLATED }, { 100, 1, VIOLATED }, { 200, 1, VIOLATED }, { 200, 1, VIOLATED },
                     { 200, 1, VIOLATED }, { 200, 1, VIOLATED },
             { 100, 1, OK }, { 100, 30, VIOLATED }, { 100, NAN, UNKNOWN });
}

/* A restart of qosd restores the state only. */
static void test_restored(void) {
        ThresholdRule rule = parsed("x: " RATE " > 20 over 1s for 1s");
        ThresholdMachine m = { .state = THRESHOLD_VIOLATED };

        check(!threshold_machine_step(&rule, &m, 5 * SEC, 30) && m.state == THRESHOLD_VIOLATED);
        m = (ThresholdMachine) { .state = THRESHOLD_OK };
        check(!threshold_machine_step(&rule, &m, 5 * SEC, 30) && m.state == THRESHOLD_OK);
        check(!threshold_machine_step(&rule, &m, 5 * SEC + 100 * MSEC, 1) && m.state == THRESHOLD_OK);
}

/* Overlapping requests hide a value, and do not end a violation. */
static void test_held(void) {
        ThresholdRule rule = parsed("x: " RATE " > 20 over 1s");
        ThresholdMachine m = {};

        check(threshold_machine_step(&rule, &m, 5 * SEC, 30) && m.state == THRESHOLD_VIOLATED);
        for (uint64_t now = 5 * SEC; now < 100 * SEC; now += 100 * MSEC)
                check(threshold_machine_hold(&m, now) && m.state == THRESHOLD_VIOLATED);
        check(threshold_machine_step(&rule, &m, 100 * SEC, 1) && m.state == THRESHOLD_OK);
        check(!threshold_machine_hold(&m, 100 * SEC + 100 * MSEC));
        check(threshold_machine_step(&rule, &m, 100 * SEC + 100 * MSEC, NAN) &&
              m.state == THRESHOLD_UNKNOWN);
        check(!threshold_machine_hold(&m, 100 * SEC + 200 * MSEC));
}

static void test_slack(void) {
        ThresholdRule over = parsed("x: " RATE " > 20"), below = parsed("x: " RATE " < 20"),
                none = parsed("x: " RATE " > 0");

        check(fabs(threshold_rule_get_slack(&over, 15) - 0.25) < 1e-9);
        check(fabs(threshold_rule_get_slack(&over, 30) + 0.5) < 1e-9);
        check(fabs(threshold_rule_get_slack(&below, 15) + 0.25) < 1e-9);
        check(fabs(threshold_rule_get_slack(&below, 30) - 0.5) < 1e-9);
        check(isnan(threshold_rule_get_slack(&none, 5)) && isnan(threshold_rule_get_slack(&over, NAN)));
}

static void test_values(void) {
        static const struct {
                const char *metric;
                double value;
                const char *text;
        } table[] = {
                { FIRST_BYTE, 0, "0ns" }, { FIRST_BYTE, 999, "999ns" }, { FIRST_BYTE, 20e6, "20ms" },
                        { FIRST_BYTE, 31254321, "31.25ms" },
                { FIRST_BYTE, 3.6e12, "3600s" }, { RATE, 1200, "1200/s" }, { RATE, 1234567.8, "1234568/s" },
                        { "requests.server.count", 0, "0" },
                { "requests.server.bytesOut", 1536, "1.5K" }, { "requests.server.bytesOut", 12, "12B" },
        };

        for (size_t i = 0; i < ELEMENTSOF(table); i++)
                check(streq(threshold_rule_format_value(metric_find(table[i].metric), table[i].value,
                                                        (char[THRESHOLD_VALUE_MAX]) {}), table[i].text));
}

static void test_period(void) {
        check(threshold_rule_get_period(&(ThresholdRule) { .window_nsec = 100 * MSEC }) == 100 * MSEC);
        check(threshold_rule_get_period(&(ThresholdRule) { .window_nsec = SEC }) == 100 * MSEC);
        check(threshold_rule_get_period(&(ThresholdRule) { .window_nsec = 2 * SEC }) == SEC);
        check(threshold_rule_get_period(&(ThresholdRule) { .window_nsec = 300 * SEC }) == SEC);
}

static void test_quantile(void) {
        const char *d;
        size_t l;
        double q;

        check(threshold_rule_get_quantile(metric_find(FIRST_BYTE), &d, &l, &q) && l == strlen(
                "requests.server.firstByte") && fabs(q - 0.99) < 1e-9);
        check(threshold_rule_get_quantile(metric_find("requests.server.latency.p999"), &d, &l, &q) &&
              fabs(q - 0.999) < 1e-9);
        check(threshold_rule_get_quantile(metric_find("requests.server.latency.max"), &d, &l, &q) &&
              fabs(q - 1) < 1e-9);
        check(!threshold_rule_get_quantile(metric_find("requests.server.latency.mean"), &d, &l, &q));
        check(!threshold_rule_get_quantile(metric_find(RATE), &d, &l, &q));
}

static void test_states(void) {
        for (ThresholdState s = 0; s < _THRESHOLD_STATE_MAX; s++)
                check(threshold_state_from_string(threshold_state_to_string(s)) == s);
        check(threshold_state_from_string("fine") == _THRESHOLD_STATE_MAX);
}

static void test_objective(void) {
        static const struct {
                const char *metric;
                double target;          /* 0: no objective */
        } table[] = {
                { FIRST_BYTE " > 20ms", 0.99 }, { "requests.server.latency.p50 >= 1ms", 0.5 },
                { "requests.server[:443].latency.p999 > 1ms", 0.999 }, { FIRST_BYTE " < 20ms", 0 },
                { "requests.server.latency.max > 1s", 0 }, { "requests.server.queue.p99 > 1s", 0 },
                { "requests.client.latency.p99 > 1s", 0 }, { RATE " > 5", 0 },
        };

        for (size_t i = 0; i < ELEMENTSOF(table); i++) {
                ThresholdRule rule;
                double target = 0;

                check(threshold_rule_parse_condition(table[i].metric, 10 * SEC, &rule, NULL) >= 0);
                check(threshold_rule_is_objective(&rule, &target) == (table[i].target > 0));
                check(table[i].target <= 0 || fabs(target - table[i].target) < 1e-9);
        }
}

static void test_time(void) {
        static const struct {
                const char *s;
                uint64_t nsec;
        } good[] = {
                { "10s", 10 * SEC }, { "1min 30s", 90 * SEC }, { "1min30s", 90 * SEC }, { "1.5ms", 1500000 },
                        { "0.000000001s", 1 },
                { "20", 20 * SEC }, { " 2 h ", 7200 * SEC }, { "0.3s", 300 * MSEC }, { "104days", 0 },
        };
        static const char *const bad[] = { "", " ", "s", ".5s", "1.s", "1..5s", "-1s", "1e3s", "1s,",
                                           "1 2 y", "0x1s", "nan", "3000h" };
        uint64_t nsec;

        for (size_t i = 0; i < ELEMENTSOF(good); i++)
                check(good[i].nsec == 0 ? parse_time(good[i].s, &nsec) == -EINVAL :
                      parse_time(good[i].s, &nsec) == 0 && nsec == good[i].nsec);
        for (size_t i = 0; i < ELEMENTSOF(bad); i++)
                check(parse_time(bad[i], &nsec) < 0);
}

int main(void) {
        test_good();
        test_conceal();
        test_read_again();
        test_bad();
        test_condition();
        test_machine();
        test_restored();
        test_held();
        test_slack();
        test_values();
        test_period();
        test_quantile();
        test_states();
        test_objective();
        test_time();
        return EXIT_SUCCESS;
}
