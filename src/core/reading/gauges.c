/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "gauges.h"
#include "manager.h"
#include "probe.h"

/* Maximum age of gauges of listeners and connections: iterating takes time in proportion to their number,
 * and display rates are lower. */
#define GAUGES_AGE_NSEC (20 * NSEC_PER_MSEC)

/* Interval of expiring UDP requests, which have a timeout of 10 s. */
#define UDP_EXPIRE_NSEC NSEC_PER_SEC

/* Interval of gauge corrections, for changes that no program has seen; at least as many times as long as one
 * takes. A difference has to be found twice to be corrected; what changes in between is left to later
 * ones. */
#define RECONCILE_NSEC (5 * NSEC_PER_SEC)
#define RECONCILE_PAUSES 1000U

bool gauges_are_missing(const Manager *m, const WindowSources *w) {
        const GaugeReadings *g = &m->readings.gauges;

        for (size_t i = 0; i < w->n; i++)
                if ((g->sessions.oldest == 0 ||
                     w->sources[i].map->oldest_session != g->sessions.oldest) &&
                    __atomic_load_n(&w->sources[i].map->in_flight, __ATOMIC_RELAXED) > 0)
                        return true;
        return false;
}

static bool manager_has_in_flight(const Manager *m) {
        FOREACH_MAP(u, m)
                if (__atomic_load_n(&u->view->in_flight, __ATOMIC_RELAXED) > 0)
                        return true;
        return false;
}

/* Whether a counter was ever incremented, even if it has wrapped to 0. */
static bool cell_is_used(const struct qos_unit_map *map, enum qos_counter cell) {
        return (__atomic_load_n(&map->cells[cell], __ATOMIC_RELAXED) |
                __atomic_load_n(&map->carry[cell], __ATOMIC_RELAXED)) != 0;
}

/* Requests over UDP are in flight only on sockets that have sent a counted response (udp.bpf.h). */
static bool manager_has_udp(const Manager *m) {
        FOREACH_MAP(u, m)
                if (cell_is_used(u->view, QOS_COUNTER_UDP) || cell_is_used(u->view, QOS_COUNTER_EXCLUDED))
                        return true;
        return false;
}

void listeners_refresh(Manager *m, uint64_t now, bool missing) {
        GaugeReadings *g = &m->readings.gauges;

        if (g->listeners_at != 0 && now < g->listeners_at + GAUGES_AGE_NSEC && !missing)
                return;

        g->listeners_at = now;
        if (probe_read_listeners(m->probe, &g->sessions.listeners) < 0)
                g->sessions.listeners = 0;
}

void missed_refresh(Manager *m, uint64_t now) {
        GaugeReadings *g = &m->readings.gauges;
        uint64_t took;

        probe_count_missed(m->probe);
        if (now < g->reconcile_at)
                return;
        probe_reconcile_gauges(m->probe);
        took = now_nsec(CLOCK_MONOTONIC) - now;
        g->reconcile_at = now + MAX(RECONCILE_NSEC, took * RECONCILE_PAUSES);
}

void gauges_refresh(Manager *m, uint64_t now, bool missing) {
        GaugeReadings *g = &m->readings.gauges;

        if (g->read_at != 0 && now < g->read_at + GAUGES_AGE_NSEC && !missing)
                return;

        g->read_at = now;
        manager_find_lost_groups(m, now);
        missed_refresh(m, now);
        /* Without requests in flight, there is no oldest one. The age of requests that arrive after this run
         * is unknown */
        if (!manager_has_in_flight(m) || probe_read_oldest(m->probe, &g->sessions.oldest) < 0)
                g->sessions.oldest = 0;
        if (now >= g->udp_expired_at + UDP_EXPIRE_NSEC) {
                g->udp_expired_at = now;
                (void) probe_expire_udp(m->probe);
        }
        /* Iterating the table of peers takes its full time even if it is empty */
        for (enum qos_gauge i = 0; i < QOS_GAUGES; i++)
                if ((i == QOS_GAUGE_UDP && !manager_has_udp(m)) ||
                    probe_read_gauge(m->probe, i, &g->sessions.gauges[i]) < 0)
                        g->sessions.gauges[i] = 0;
}

void faults_refresh(Manager *m, uint64_t now) {
        GaugeReadings *g = &m->readings.gauges;

        if (g->faults_at != 0 && now < g->faults_at + GAUGES_AGE_NSEC)
                return;
        g->faults_at = now;
        (void) probe_find_faults(m->probe);
}

void storage_calls_refresh(Manager *m, uint64_t now) {
        GaugeReadings *g = &m->readings.gauges;

        if (g->storage_at != 0 && now < g->storage_at + GAUGES_AGE_NSEC)
                return;
        g->storage_at = now;
        if (probe_find_storage_calls(m->probe, &g->storage_session) < 0)
                g->storage_session = 0;
}

void flows_refresh(Manager *m, uint64_t now) {
        GaugeReadings *g = &m->readings.gauges;

        if (g->flows_at != 0 && now < g->flows_at + GAUGES_AGE_NSEC)
                return;
        g->flows_at = now;
        (void) probe_find_flows(m->probe);
}
