/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Steps of a unit's history. */

#include "cgroup-stat.h"
#include "contention-probe.h"
#include "contention-step.h"
#include "gauges.h"
#include "hierarchy.h"
#include "history.h"
#include "manager.h"
#include "measured.h"
#include "network-probe.h"
#include "network-step.h"
#include "observer.h"
#include "probe.h"
#include "service-manager.h"
#include "storage-probe.h"
#include "storage-step.h"
#include "unit-custom.h"
#include "unit-map.h"
#include "unit-snapshot.h"
#include "window.h"

/* A single interval is sufficient: it only concerns steps that are not collected yet, and steps between two
 * close violations are not known to be good either. */
void unit_note_violation(Unit *u, uint64_t from, uint64_t until) {
        if (from > u->history.violated_until + WINDOW_STEPS * WINDOW_STEP_NSEC)
                u->history.violated_since = from;
        u->history.violated_since = MIN(u->history.violated_since, from);
        u->history.violated_until = MAX(u->history.violated_until, until);
}

/* Fills in contention of a step. newest: includes values that are only known for the present. */
static void step_fill_contention(Unit *u, uint64_t now, bool newest, HistoryStep *s) {
        uint64_t measured = manager_get_measured(u->manager);
        uint64_t *a = s->amounts;
        ContentionSource buffer[UNITS_MAX_LIMIT];
        ContentionReading reading;
        ContentionSources sources;
        UsageSum usage;

        if (u->contention.usage && newest &&
            usage_get(u->contention.usage, 60 * NSEC_PER_SEC, &usage) >= 0 &&
            usage.values[USAGE_QUOTA_PERIODS] != ABSENT) {
                a[HISTORY_QUOTA_COVERED] = usage.at;
                a[HISTORY_QUOTA_PERIODS] = usage.values[USAGE_QUOTA_PERIODS];
                a[HISTORY_QUOTA_THROTTLED] = usage.values[USAGE_QUOTA_THROTTLED_PERIODS];
        }

        if (!unit_get_contention_sources(u, buffer, &sources) ||
            contention_read_step(&sources, s->index, now, &reading) < 0)
                return;
        if (u->contention.probes & PROBE_CPU && is_measured(measured, MEASURED_STATES)) {
                a[HISTORY_CPU_COVERED] = reading.covered;
                for (unsigned i = QOS_STATE_RUNNING; i < QOS_STATES; i++)
                        a[HISTORY_FIRST_STATE + i - QOS_STATE_RUNNING] = reading.counts.times[i];
                for (unsigned i = 0; i < HISTOGRAM_COARSE_BINS; i++)
                        a[HISTORY_RUN_QUEUES] += reading.counts.cells[QOS_RUN_QUEUE_LATENCY *
                                                                      HISTOGRAM_COARSE_BINS + i];
                a[HISTORY_RUN_QUEUE_TIME] = reading.counts.sums[QOS_RUN_QUEUE_LATENCY];
        }
        if (u->contention.probes & PROBE_BLOCK && is_measured(measured, MEASURED_BLOCK)) {
                BlockCounts counts = {};

                for (unsigned row = 0; row < QOS_BLOCK_ROWS; row++)
                        contention_add_block(&reading, row, &counts);
                a[HISTORY_BLOCK_COVERED] = reading.covered;
                memcpy(a + HISTORY_BLOCK_OPERATIONS, counts.operations, sizeof(counts.operations));
                memcpy(a + HISTORY_BLOCK_BYTES, counts.bytes, sizeof(counts.bytes));
                for (unsigned i = 0; i < 4; i++)
                        a[HISTORY_BLOCK_TIMES + i] = reading.counts.sums[QOS_BLOCK_READ_QUEUE + i];
        }
        if (u->contention.probes & PROBE_MEMORY && is_measured(measured, MEASURED_FAULTS)) {
                a[HISTORY_MEMORY_COVERED] = reading.covered;
                a[HISTORY_MAJOR_FAULTS] = reading.counts.cells[QOS_MEMORY_MAJOR_FAULTS];
                a[HISTORY_MAJOR_FAULT_TIME] = reading.counts.sums[QOS_MEMORY_MAJOR_NSEC];
                a[HISTORY_RECLAIM_TIME] = reading.counts.sums[QOS_MEMORY_RECLAIM_NSEC];
                a[HISTORY_DIRTY_THROTTLE_TIME] = reading.counts.sums[QOS_MEMORY_THROTTLE_NSEC];
                a[HISTORY_OOM_KILLS] = reading.counts.cells[QOS_MEMORY_OOM_KILLS];
        }
}

static void step_fill_storage(Unit *u, HistoryStep *s) {
        uint64_t *a = s->amounts;
        StorageSource buffer[UNITS_MAX_LIMIT];
        StorageSources sources;
        StorageReading reading;

        if (!is_measured(manager_get_measured(u->manager), MEASURED_STORAGE_CALLS + QOS_STORAGE_READ) ||
            !unit_get_storage_sources(u, buffer, &sources) ||
            storage_read_step(&sources, s->index, &reading) < 0)
                return;
        a[HISTORY_STORAGE_COVERED] = reading.covered;
        for (unsigned call = 0; call < QOS_STORAGE_TIMED; call++) {
                a[HISTORY_STORAGE_CALLS + call] = reading.counts.sums[QOS_STORAGE_COUNT + call];
                a[HISTORY_STORAGE_ERRORS + call] = reading.counts.sums[QOS_STORAGE_ERRORS + call];
                a[HISTORY_STORAGE_TIMES + call] = reading.counts.sums[QOS_STORAGE_NSEC + call];
        }
        for (unsigned call = 0; call <= QOS_STORAGE_WRITE; call++)
                a[HISTORY_STORAGE_BYTES + call] = reading.counts.sums[QOS_STORAGE_BYTES_READ + call];
}

static void step_fill_network(Unit *u, HistoryStep *s) {
        static const Measured required[] = {
                MEASURED_FLOWS, MEASURED_RECOVERIES, MEASURED_RTT, MEASURED_DROPS,
        };
        NetworkSource buffer[UNITS_MAX_LIMIT];
        NetworkSources sources;
        NetworkReading reading;

        for (size_t i = 0; i < ELEMENTSOF(required); i++)
                if (!is_measured(manager_get_measured(u->manager), required[i]))
                        return;
        if (unit_get_network_sources(u, buffer, &sources) &&
            network_read_step(&sources, s->index, &reading) >= 0)
                history_step_set_network(s, &reading);
}

/* The programs keep the values of rows at the beginning of the newest step only. */
static void step_fill_mounts(Unit *u, HistoryStep *s) {
        StorageSource buffer[UNITS_MAX_LIMIT];
        StorageSources sources;
        MountsReading mounts;

        if (is_measured(manager_get_measured(u->manager), MEASURED_STORAGE_CALLS + QOS_STORAGE_READ) &&
            unit_get_storage_sources(u, buffer, &sources) &&
            mounts_read_step(&sources, s->index, &mounts) >= 0)
                history_step_set_mounts(s, &mounts);
}

static void step_fill_requests(Unit *u, const WindowReading *reading, bool newest, HistoryStep *s) {
        uint64_t *a = s->amounts;
        Snapshot snapshot;

        if (is_measured(manager_get_measured(u->manager), MEASURED_ARRIVALS)) {
                a[HISTORY_PHASED] = window_get_count(reading, QOS_FIRST_BYTE);
                a[HISTORY_RECEIVE] = reading->sums[QOS_RECEIVE];
                a[HISTORY_QUEUE] = reading->sums[QOS_QUEUE];
                a[HISTORY_SERVICE] = reading->sums[QOS_SERVICE];
                a[HISTORY_ANSWER] = reading->sums[QOS_ANSWER];
        }

        if (!newest)
                return;
        unit_get_snapshot(u, WINDOW_STEP_NSEC, &snapshot);
        if (snapshot.covered > 0 && snapshot.metrics.requests.client.count != ABSENT) {
                const ClientRole *client = &snapshot.metrics.requests.client;

                a[HISTORY_CLIENT_COVERED] = snapshot.covered;
                a[HISTORY_CLIENT] = client->count;
                a[HISTORY_CLIENT_TIME] = client->latency.mean == ABSENT ? 0 :
                                         client->latency.mean * client->count;
        }
}

int unit_collect_history(Unit *u) {
        uint64_t now = now_nsec(CLOCK_MONOTONIC), realtime = now_nsec(CLOCK_REALTIME),
                current = now / WINDOW_STEP_NSEC, first;
        UnitReading reading;
        int r;

        if (!u->view || current == 0)
                return 0;
        missed_refresh(u->manager, now);
        unit_reading_begin(u, now, /* refresh= */ 0, &reading);
        unit_reading_get_gauges(&reading);

        /* Includes steps already collected, see window_read_step() */
        first = current - MIN(current, (uint64_t) WINDOW_STEPS);
        first = MAX(first, u->attached_since_monotonic / WINDOW_STEP_NSEC);
        for (uint64_t n = first; n < current; n++) {
                HistoryStep step = { .index = n };
                WindowReading counters;
                WindowGauges gauges;
                Metrics metrics;
                uint64_t signature;
                bool violated;
                size_t place;

                _Static_assert(ELEMENTSOF(u->history.collected) > WINDOW_STEPS, "each step has its place");

                r = window_read_step(&reading.sources, n, &counters, &gauges);
                if (r < 0)
                        continue; /* keep the previous values, if any */

                /* Most steps are unchanged since the last collection */
                violated = u->history.violated_until > n * WINDOW_STEP_NSEC &&
                           u->history.violated_since < (n + 1) * WINDOW_STEP_NSEC;
                signature = counters.signature ^ gauges.in_flight << 32 ^ gauges.open ^
                            (uint64_t) violated << 63;
                place = n % ELEMENTSOF(u->history.collected);
                if (u->history.collected[place].index == n &&
                    u->history.collected[place].signature == signature)
                        continue;

                step.timestamp = realtime - MIN(realtime, now - n * WINDOW_STEP_NSEC);
                step.covered = counters.covered;

                /* Raw counters: validity is determined when steps are shown, possibly merged */
                step.overlaps = counters.cells[QOS_COUNTER_OVERLAPS];
                step.missed = window_is_incomplete(&counters);
                metrics_fill(&reading.context, &counters, WINDOW_ALL_DISTRIBUTIONS, &metrics);
                counters_fill(&reading.context, &counters, &metrics);
                if (metrics.requests.server.in_flight != ABSENT)
                        metrics.requests.server.in_flight = gauges.in_flight;
                if (metrics.requests.server.connections.open != ABSENT)
                        metrics.requests.server.connections.open = gauges.open;
                history_step_set_metrics(&step, &metrics);

                for (unsigned i = 0; i < HISTORY_DISTRIBUTIONS; i++) {
                        window_get_bins(&counters, history_distribution(i), &step.distributions[i]);
                        step.measured[i] = is_measured(reading.context.measured, MEASURED_ARRIVALS);
                }

                step_fill_requests(u, &counters, n + 1 == current, &step);
                step_fill_contention(u, now, n + 1 == current, &step);
                step_fill_storage(u, &step);
                step_fill_network(u, &step);
                if (n + 1 == current)
                        step_fill_mounts(u, &step);
                unit_fill_custom(u, &step);
                step.violated = violated;

                r = history_put(u->history.steps, &step);
                if (r < 0)
                        return r;
                u->history.collected[place].index = n;
                u->history.collected[place].signature = signature;
        }

        return history_roll(u->history.steps, current - 1);
}
