/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "contention-source.h"
#include "log.h"

ContentionSource unit_get_contention_source(const Unit *u) {
        return (ContentionSource) {
                .map = u->contention.map,
                .contention_cpus = u->contention.cpus,
                .since = u->contention.since,
                .slot = u->index,
                .requests = u->view,
        };
}

static int unit_add_contention(Unit *u, const Unit *inner, int times) {
        ContentionSource source;

        if (!u->contention.map || !inner->contention.map)
                return 0;
        if (!u->contention.base) {
                u->contention.base = new0(ContentionCounts, 1);
                if (!u->contention.base)
                        return -ENOMEM;
        }
        source = unit_get_contention_source(inner);
        return contention_counts_add(u->contention.base, &source, now_nsec(CLOCK_MONOTONIC), times);
}

static void unit_add_contention_or_warn(Unit *u, const Unit *inner, int times) {
        int r;

        r = unit_add_contention(u, inner, times);
        if (r < 0)
                log_unit_warning_errno(u->name, r,
                                       "Totals of '%s' are inexact, failed to read the contention map "
                                       "of '%s': %m",
                                       u->name, inner->name);
}

void unit_open_contention(Unit *u, const Unit *inner) {
        unit_add_contention_or_warn(u, inner, 1);
}

void unit_close_contention(Unit *u, const Unit *inner) {
        unit_add_contention_or_warn(u, inner, -1);
}
