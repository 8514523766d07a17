/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Any contents of a unit file: accepted settings are within the limits, and each threshold is valid. */

#include "check.h"
#include "fuzz.h"
#include "log.h"
#include "threshold.h"
#include "unit-file.h"
#include "xqos-section.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        _cleanup_xqos_section_ XqosSection d = {};

        log_set_max_level(LOG_CRIT);

        /* Twice, as a unit file and a drop-in */
        for (unsigned i = 0; i < 2; i++) {
                check(xqos_section_read(&d, "/x.conf", (const char*) data, size) >= 0);
                check((d.probes & ~_PROBE_ALL) == 0 && d.excludes.n <= EXCLUDES_MAX &&
                      d.n_thresholds <= XQOS_THRESHOLDS_MAX);
                for (size_t k = 0; k < d.n_thresholds; k++) {
                        ThresholdRule rule;

                        check(threshold_rule_parse(d.thresholds[k].line, WINDOW_DEFAULT_NSEC, &rule,
                                NULL) >= 0);
                        check(streq(rule.name, d.thresholds[k].name));
                        for (size_t j = 0; j < k; j++)
                                check(!streq(d.thresholds[j].name, rule.name));
                }
                if (!xqos_section_is_empty(&d))
                        check(text_has_xqos_section((const char*) data, size));
        }
        return 0;
}
