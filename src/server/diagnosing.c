/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "diagnosing.h"

/* Multiple of the time of a search for names for which the user gets no names afterwards. Searches for users
 * other than root are made one at a time. */
#define NAMES_PAUSE 4U

bool names_may_be_read(const TurnUser *user, uint64_t now) {
        return !user || now >= user->names_not_before;
}

void names_were_read(TurnUser *user, uint64_t nsec) {
        if (user)
                user->names_not_before = now_nsec(CLOCK_MONOTONIC) + nsec * NAMES_PAUSE;
}

Diagnosing* diagnosing_free(Manager *m, Diagnosing *d) {
        if (!d)
                return NULL;

        sd_event_source_disable_unref(d->timer);
        host_sample_free(d->begin);
        waits_query_free(d->query);
        resources_reading_done(&d->resources);
        threads_reading_done(&d->threads);
        manager_release_lease(m, d);
        free(d->unit);
        free(d);
        return NULL;
}

void diagnosing_restart(Diagnosing *d) {
        if (d->state == DIAGNOSING_WAITS)
                return;
        if (d->state == DIAGNOSING_NAMES)
                d->on_names(0, d->userdata);
        d->query = waits_query_free(d->query);
        resources_reading_done(&d->resources);
        threads_reading_done(&d->threads);
        d->state = DIAGNOSING_RESOURCES;
}

ProbeMask diagnosing_get_probes(bool all) {
        return all ? DIAGNOSE_PROBES : DIAGNOSE_PROBES & ~PROBES_MACHINE_WIDE;
}

int diagnosing_step(Diagnosing *d, Unit *u, TurnUser *user) {
        bool resources = d->state == DIAGNOSING_RESOURCES;
        int r;

        if (d->query)
                r = waits_query_step(d->query, u);
        else {
                r = resources ? resources_query_new(u, &d->query) : threads_query_new(u, &d->query);
                if (r >= 0)
                        return 1;
        }
        if (r > 0)
                return 1;

        if (r == 0 && resources) {
                if (d->begin && names_may_be_read(user, now_nsec(CLOCK_MONOTONIC)) &&
                    resources_query_find_names(d->query, u, !user, d->on_names, d->userdata) > 0) {
                        d->state = DIAGNOSING_NAMES;
                        return 0;
                }
                resources_query_take(d->query, &d->resources);
        } else if (r == 0)
                threads_query_take(d->query, &d->threads);
        d->query = waits_query_free(d->query);
        d->state = resources ? DIAGNOSING_THREADS : DIAGNOSING_WAITS;
        return resources;
}

int diagnosing_conclude(const Diagnosing *d, Unit *u, const HostSample *end, uint64_t window,
                        Conclusion *ret) {
        int r;

        r = evidence_collect(u, d->begin, end, window, &ret->evidence);
        if (r < 0)
                return r;
        ret->by_history = !d->has_normal &&
                unit_get_baseline(u, d->begun_at, ret->evidence.now.rate, &ret->normal) >= 0;
        if (ret->by_history) {
                ret->evidence.usual = ret->normal.usual;
                ret->evidence.busy = ret->normal.busy;
        }
        ret->evidence.normal = d->has_normal ? &d->normal : ret->by_history ? &ret->normal.figures : NULL;
        diagnosis_make(&ret->evidence, &ret->diagnosis);
        return 0;
}
