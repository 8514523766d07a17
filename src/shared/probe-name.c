/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "probe-name.h"

static const char *const probe_table[] = { "requests", "tls",     "cpu",    "block",
                                           "memory",   "storage", "network" };

ProbeMask probe_mask_from_name(const char *s) {
        for (size_t i = 0; i < ELEMENTSOF(probe_table); i++)
                if (streq(s, probe_table[i]))
                        return 1U << i;
        return 0;
}

const char* probe_mask_name(unsigned i) {
        return i < ELEMENTSOF(probe_table) ? probe_table[i] : NULL;
}

int probe_mask_parse(char **words, ProbeMask *ret, QosError *e) {
        ProbeMask mask = 0;

        for (char **i = words; i && *i; i++) {
                ProbeMask probe = probe_mask_from_name(*i);

                if (probe == 0)
                        return qos_error_set(e, QOS_ERROR_NO_SUCH_PROBE, *i,
                                             "there is no probe '%s', expected " PROBES_EXPECTED,
                                             excerpt(*i, (char[EXCERPT_MAX + 1]) {}));
                mask |= probe;
        }

        *ret = mask;
        return 0;
}
