/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Any text as a threshold: if accepted, it is within the limits and can be formatted and parsed again,
 * otherwise there is a message. */

#include <math.h>

#include "check.h"
#include "fuzz.h"
#include "threshold.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        _cleanup_free_ char *line = NULL, *whole = NULL, *again = NULL;
        ThresholdRule rule, other;
        int r;

        line = strndup((const char*) data, size);
        check(line);

        r = threshold_rule_parse_condition(line, WINDOW_DEFAULT_NSEC, &rule, &e);
        check(r >= 0 ? isempty(rule.name) : r == -EINVAL && e.code == QOS_ERROR_INVALID_THRESHOLD);

        r = threshold_rule_parse(line, WINDOW_DEFAULT_NSEC, &rule, &e);
        if (r < 0) {
                check(r == -EINVAL && e.code == QOS_ERROR_INVALID_THRESHOLD && streq(e.argument, line) &&
                      !isempty(e.message));
                return 0;
        }

        check(threshold_name_is_valid(rule.name) && rule.metric && rule.metric->type != METRIC_QUALITY);
        check(rule.limit >= 0 && rule.limit <= 0x1p53 && rule.clear >= 0 && rule.clear <= 0x1p53);
        check(rule.below ? rule.clear >= rule.limit : rule.clear <= rule.limit);
        check(window_is_valid(rule.window_nsec) && rule.window_nsec != WINDOW_TOTAL);
        check(rule.enter_nsec <= THRESHOLD_DURATION_MAX_NSEC &&
              rule.leave_nsec <= THRESHOLD_DURATION_MAX_NSEC &&
              rule.stay_nsec <= THRESHOLD_DURATION_MAX_NSEC);

        check(threshold_rule_format(&rule, true, &whole) >= 0);
        check(threshold_rule_parse(whole, WINDOW_DEFAULT_NSEC, &other, NULL) >= 0);
        check(!(rule.limit < other.limit) && !(rule.limit > other.limit) && !(rule.clear < other.clear) &&
              !(rule.clear > other.clear));
        check(streq(rule.name, other.name) && rule.metric == other.metric &&
              streq(rule.selector, other.selector) && rule.below == other.below &&
              rule.window_nsec == other.window_nsec && rule.enter_nsec == other.enter_nsec &&
              rule.leave_nsec == other.leave_nsec &&
              rule.stay_nsec == other.stay_nsec);
        return 0;
}
