/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "threshold-list.h"

const char* threshold_source_to_string(ThresholdSource s) {
        static const char *const table[_THRESHOLD_SOURCE_MAX] = {
                [THRESHOLD_SOURCE_ADMINISTRATOR] = "administrator",
                [THRESHOLD_SOURCE_LEASE]         = "lease",
                [THRESHOLD_SOURCE_FILE]          = "unitFile",
                [THRESHOLD_SOURCE_CONDITION]     = "condition",
        };

        return table[s];
}

Threshold* threshold_next(const Unit *u, const Threshold *t) {
        Threshold *i = t ? t->next : u->thresholds;

        while (i && i->source == THRESHOLD_SOURCE_CONDITION)
                i = i->next;
        return i;
}

void threshold_free(Threshold *t) {
        for (Threshold **p = &t->unit->thresholds; *p; p = &(*p)->next)
                if (*p == t) {
                        *p = t->next;
                        break;
                }
        free(t->history);
        free(t->origin);
        free(t);
}
