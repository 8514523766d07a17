/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <limits.h>
#include <unistd.h>

#include "contention-probe.h"
#include "gauges.h"
#include "hierarchy.h"
#include "measured.h"
#include "network-probe.h"
#include "probe.h"
#include "storage-probe.h"
#include "unit-reading.h"

void unit_reading_begin(Unit *u, uint64_t now, unsigned refresh, UnitReading *ret) {
        Manager *m = u->manager;
        bool missing;

        /* Do not clear the buffers, which are large */
        ret->unit = u;
        ret->context = (ReadingContext) {
                .now = now,
                .measured = manager_get_measured(m),
                .probes = u->contention.probes,
                .minimum_samples = m->config.minimum_samples,
        };
        ret->sources = (WindowSources) {};
        if (!u->view)
                return;

        unit_get_sources(u, ret->source_buffer, &ret->sources);
        missing = refresh & READING_MISSING && gauges_are_missing(m, &ret->sources);
        if (refresh & READING_LISTENERS)
                listeners_refresh(m, now, missing);
        if (refresh & READING_IN_FLIGHT)
                gauges_refresh(m, now, missing);
}

void unit_reading_get_gauges(UnitReading *r) {
        reading_get_gauges(&r->context, &r->sources, &r->unit->manager->readings.gauges.sessions);
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
                faults_refresh(u->manager, r->context.now);
        r->context.writeback = cells && u->contention.probes & PROBE_BLOCK && unit_has_io_controller(u);
        return true;
}

bool unit_reading_get_storage(UnitReading *r) {
        Unit *u = r->unit;

        if (!u->view || !unit_get_storage_sources(u, r->storage_buffer, &r->storage))
                return false;
        storage_calls_refresh(u->manager, r->context.now);
        r->storage.session = u->manager->readings.gauges.storage_session;
        return true;
}

bool unit_reading_get_network(UnitReading *r) {
        Unit *u = r->unit;

        if (!u->view || !unit_get_network_sources(u, r->network_buffer, &r->network))
                return false;
        flows_refresh(u->manager, r->context.now);
        return true;
}

void unit_reading_get_rows(const UnitReading *r, uint64_t window, uint64_t covered, RowsReading *ret) {
        const uint64_t *sessions = is_measured(r->context.measured, MEASURED_ARRIVALS) ?
                r->unit->manager->readings.gauges.sessions.gauges : NULL;

        rows_read(&r->sources, sessions, r->context.now, window, covered, ret);
}
