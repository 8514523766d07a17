/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "manager.h"
#include "probe.h"
#include "unit-drops.h"

static int drop_reason_compare(const void *a, const void *b) {
        const DropReason *x = a, *y = b;

        if (isempty(x->name) != isempty(y->name))
                return isempty(x->name) ? 1 : -1;
        return y->count < x->count ? -1 : y->count > x->count;
}

size_t drop_reasons_fill(const Unit *u, const NetworkReading *reading, DropReason *ret) {
        const uint64_t *counts = reading->counts.sums + QOS_NETWORK_DROPS;
        const char *names[QOS_DROP_ROWS - 1];
        size_t n = 0;

        if (sums_add(counts, QOS_DROP_ROWS) == 0 || probe_get_drop_names(u->manager->probe, names) < 0)
                return 0;
        for (unsigned row = 0; row < QOS_DROP_ROWS; row++)
                if (counts[row] > 0) {
                        ret[n] = (DropReason) { .count = counts[row] };
                        if (row < QOS_DROP_ROWS - 1)
                                (void) snprintf(ret[n].name, sizeof(ret[n].name), "%s", names[row]);
                        n++;
                }
        qsort(ret, n, sizeof(DropReason), drop_reason_compare);
        return n;
}
