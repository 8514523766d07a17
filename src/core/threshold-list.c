/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The thresholds of a unit. */

#include "threshold-internal.h"

Threshold* threshold_next(const Unit *u, const Threshold *a) {
        Threshold *i = a ? a->next : u->thresholds;

        while (i && i->source == THRESHOLD_SOURCE_CONDITION)
                i = i->next;
        return i;
}

void threshold_free(Threshold *a) {
        ThresholdMonitor *thresholds = a->unit->manager->thresholds;

        for (Threshold **p = &a->unit->thresholds; *p; p = &(*p)->next)
                if (*p == a) {
                        *p = a->next;
                        break;
                }
        if (thresholds)
                thresholds->n--;
        free(a->history);
        free(a->origin);
        free(a);
}
