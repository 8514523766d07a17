/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <limits.h>
#include <unistd.h>

#include "contention-probe.h"
#include "gauges.h"
#include "hierarchy.h"
#include "unit-map.h"
#include "unit-reading.h"

#define REQUIRES_IN_FLIGHT REQUIRES_CLOCK, PROGRAM_UNIX_OPEN, PROGRAM_UDP_OPEN

void unit_reading_begin(Unit *u, uint64_t now, unsigned refresh, UnitReading *ret) {
        Manager *m = u->manager;
        bool missing;

        /* Do not clear the buffers, which are large */
        ret->unit = u;
        ret->now = now;
        ret->programs = probe_get_programs(m->probe);
        ret->sources = (WindowSources) {};
        ret->writeback = false;
        if (!u->view)
                return;

        unit_get_sources(u, ret->source_buffer, &ret->sources);
        missing = refresh & READING_MISSING && gauges_are_missing(m, &ret->sources);
        if (refresh & READING_LISTENERS)
                listeners_refresh(m, now, missing);
        if (refresh & READING_IN_FLIGHT)
                gauges_refresh(m, now, missing);
}

/* Sum over all maps. Clamped, as concurrent updates may be seen in the wrong order. */
static uint64_t gauge(const WindowSources *w, size_t offset) {
        int64_t n = 0;

        for (size_t i = 0; i < w->n; i++)
                n += __atomic_load_n((const int64_t*) ((const char*) w->sources[i].map + offset),
                                     __ATOMIC_RELAXED);
        return n > 0 ? (uint64_t) n : 0;
}

#define GAUGE(w, member) gauge(w, offsetof(struct qos_unit_map, member))

/* Of the requests without any response byte; ret_oldest_at is lowered. */
static uint64_t waiting_count(const struct qos_waiting *w, uint64_t *ret_oldest_at) {
        uint64_t n = 0;

        for (unsigned bin = 0; bin < QOS_WAITING_BINS; bin++)
                n += w->ages[bin];
        if (n > 0)
                *ret_oldest_at = MIN(*ret_oldest_at, (uint64_t) w->oldest_at);
        return n;
}

void unit_reading_get_gauges(UnitReading *r) {
        /* maps without valid session have no listeners, or no requests in flight */
        uint64_t queue = 0, queue_max = 0, counted = 0, waiting = 0, oldest_at = UINT64_MAX,
                oldest_waiting_at = UINT64_MAX;
        bool unknown = false; /* whether a map has requests that all arrived since the iterator ran */
        const GaugeReadings *from = &r->unit->manager->gauges;
        ReadingGauges *g = &r->gauges;

        *g = (ReadingGauges) {
                .open = ABSENT,
                .accept_queue = ABSENT,
                .accept_queue_max = ABSENT,
                .in_flight = ABSENT,
                .oldest_in_flight = ABSENT,
                .waiting = ABSENT,
                .oldest_waiting = ABSENT,
        };

        for (size_t i = 0; i < r->sources.n; i++) {
                const struct qos_unit_map *map = r->sources.sources[i].map;

                if (map->listeners_session == from->listeners_session) {
                        queue += map->accept_queue;
                        queue_max += map->accept_queue_max;
                }
                if (__atomic_load_n(&map->in_flight, __ATOMIC_RELAXED) > 0) {
                        if (map->oldest_session == from->oldest_session &&
                            from->oldest_session != 0) {
                                oldest_at = MIN(oldest_at, (uint64_t) map->oldest_at);
                                waiting += waiting_count(&map->waiting, &oldest_waiting_at);
                        } else
                                unknown = true;
                }

                /* Requests in flight counted by iterators */
                for (enum qos_gauge k = 0; k < QOS_GAUGES; k++)
                        if (from->sessions[k] != 0 && map->gauges[k].session == from->sessions[k]) {
                                counted += map->gauges[k].in_flight;
                                if (map->gauges[k].in_flight > 0) {
                                        g->not_tcp = true;
                                        oldest_at = MIN(oldest_at, (uint64_t) map->gauges[k].oldest_at);
                                }
                                waiting += waiting_count(&map->gauges[k].waiting, &oldest_waiting_at);
                        }
        }

        if (programs_attached(r->programs, PROGRAMS(PROGRAM_STATE)))
                g->open = GAUGE(&r->sources, open);
        if (from->listeners_session != 0 && programs_attached(r->programs, PROGRAMS(REQUIRES_LISTENERS))) {
                g->accept_queue = queue;
                g->accept_queue_max = queue_max;
        }

        if (!programs_attached(r->programs, PROGRAMS(REQUIRES_IN_FLIGHT)))
                return;
        g->in_flight = GAUGE(&r->sources, in_flight) + counted;
        if (g->in_flight > 0 && oldest_at != UINT64_MAX)
                g->oldest_in_flight = r->now > oldest_at ? r->now - oldest_at : 0;
        /* Requests that have arrived since the iterator ran are younger than all others */
        if (waiting > 0 || !unknown)
                g->waiting = MIN(waiting, g->in_flight);
        if (waiting > 0)
                g->oldest_waiting = r->now > oldest_waiting_at ? r->now - oldest_waiting_at : 0;
}

/* Whether writeback is attributed: the io controller is enabled for the unit itself, not only for an
 * ancestor. */
static bool unit_has_io_controller(const Unit *u) {
        char path[PATH_MAX];

        if (!u->control_group)
                return false;
        return snprintf(path, sizeof(path), "/sys/fs/cgroup%s/io.stat",
                        u->control_group) < (int) sizeof(path) && access(path, F_OK) >= 0;
}

bool unit_reading_get_contention(UnitReading *r, bool cells) {
        Unit *u = r->unit;

        if (!u->view || !unit_get_contention_sources(u, r->contention_buffer, &r->contention))
                return false;
        if (cells && u->contention.probes & PROBE_MEMORY)
                faults_refresh(u->manager, r->now);
        r->writeback = cells && u->contention.probes & PROBE_BLOCK && unit_has_io_controller(u);
        return true;
}

void unit_reading_get_rows(const UnitReading *r, uint64_t window, uint64_t covered, RowsReading *ret) {
        bool measurable = programs_attached(r->programs, PROGRAMS(REQUIRES_ARRIVALS));

        rows_read(&r->sources, measurable ? r->unit->manager->gauges.sessions : NULL, r->now, window,
                  covered, ret);
}
