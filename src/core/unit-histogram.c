/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <math.h>

#include "contention-probe.h"
#include "endpoint-totals.h"
#include "exported-bins.h"
#include "hierarchy.h"
#include "objective.h"
#include "observer.h"
#include "probe.h"
#include "storage-probe.h"
#include "unit-map.h"
#include "unit-peers.h"
#include "unit-snapshot.h"
#include "window.h"

static int histogram_fill(const Snapshot *s, uint64_t covered, enum qos_distribution d, const uint64_t *bins,
                          uint64_t sum, Histogram *ret) {
        Histogram h = {
                .seq = s->seq,
                .timestamp = s->timestamp,
                .window = s->window,
                .covered = covered,
                .schema = QOS_DISTRIBUTION_IS_FINE(d) ? HISTOGRAM_FINE_SCHEMA : HISTOGRAM_COARSE_SCHEMA,
                .sum = sum,
                .buckets = new0(HistogramBucket, QOS_DISTRIBUTION_BINS(d)),
        };

        if (!h.buckets)
                return -ENOMEM;

        for (unsigned i = 0; i < QOS_DISTRIBUTION_BINS(d); i++) {
                HistogramBucket *b = h.buckets + h.n_buckets;

                if (bins[i] == 0)
                        continue;
                window_get_bounds(d, i, &b->lower, &b->upper);
                b->count = bins[i];
                h.count += bins[i];
                h.n_buckets++;
        }

        *ret = h;
        return 0;
}

static const struct {
        const char *name;
        size_t offset;
} contention_distributions[QOS_CONTENTION_DISTRIBUTIONS] = {
        [QOS_RUN_QUEUE_LATENCY]  = { "contention.runQueueLatency",
                                     offsetof(Metrics, contention.run_queue_latency)  },
        [QOS_BLOCK_READ_QUEUE]   = { "contention.block.readQueue",
                                     offsetof(Metrics, contention.block.read_queue)   },
        [QOS_BLOCK_READ_DEVICE]  = { "contention.block.readDevice",
                                     offsetof(Metrics, contention.block.read_device)  },
        [QOS_BLOCK_WRITE_QUEUE]  = { "contention.block.writeQueue",
                                     offsetof(Metrics, contention.block.write_queue)  },
        [QOS_BLOCK_WRITE_DEVICE] = { "contention.block.writeDevice",
                                     offsetof(Metrics, contention.block.write_device) },
};

static const struct {
        const char *name;
        size_t offset;
} storage_distributions[QOS_STORAGE_TIMED] = {
        [QOS_STORAGE_READ]  = { "storage.reads.latency",
                                offsetof(Metrics, storage.timed[QOS_STORAGE_READ].latency)  },
        [QOS_STORAGE_WRITE] = { "storage.writes.latency",
                                offsetof(Metrics, storage.timed[QOS_STORAGE_WRITE].latency) },
        [QOS_STORAGE_SYNC]  = { "storage.syncs.latency",
                                offsetof(Metrics, storage.timed[QOS_STORAGE_SYNC].latency)  },
        [QOS_STORAGE_OPEN]  = { "storage.opens.latency",
                                offsetof(Metrics, storage.timed[QOS_STORAGE_OPEN].latency)  },
};

/* Of a distribution in contention or storage maps. -ENOENT: there is none of this name; -ENODATA: it is not
 * measured. */
static int unit_get_other_histogram(Unit *u, const char *metric, uint64_t window, uint64_t now,
                                    Histogram *ret) {
        ContentionSource waits_buffer[UNITS_MAX_LIMIT];
        StorageSource calls_buffer[UNITS_MAX_LIMIT];
        ContentionReading waits_reading;
        ContentionSources waits_maps;
        StorageReading calls_reading;
        StorageSources calls_maps;
        unsigned waits, calls;
        const Distribution *known;
        Snapshot snapshot;

        for (waits = 0; waits < QOS_CONTENTION_DISTRIBUTIONS; waits++)
                if (streq(metric, contention_distributions[waits].name))
                        break;
        for (calls = 0; calls < QOS_STORAGE_TIMED; calls++)
                if (streq(metric, storage_distributions[calls].name))
                        break;
        if (waits == QOS_CONTENTION_DISTRIBUTIONS && calls == QOS_STORAGE_TIMED)
                return -ENOENT;

        unit_get_snapshot(u, window, &snapshot);
        known = (const Distribution*) ((const char*) &snapshot.metrics +
                                       (calls < QOS_STORAGE_TIMED ? storage_distributions[calls].offset :
                                        contention_distributions[waits].offset));
        if (known->count == ABSENT)
                return -ENODATA;
        if (calls < QOS_STORAGE_TIMED) {
                if (!unit_get_storage_sources(u, calls_buffer, &calls_maps) ||
                    storage_read(&calls_maps, now, window, &calls_reading, NULL) < 0)
                        return -ENODATA;
                return histogram_fill(&snapshot, calls_reading.covered, QOS_QUEUE,
                                      calls_reading.counts.bins + calls * HISTOGRAM_COARSE_BINS,
                                      calls_reading.counts.sums[QOS_STORAGE_NSEC + calls], ret);
        }
        if (!unit_get_contention_sources(u, waits_buffer, &waits_maps) ||
            contention_read_some(&waits_maps, now, window, /* cells= */ true, &waits_reading) < 0)
                return -ENODATA;
        return histogram_fill(&snapshot, waits_reading.covered, QOS_QUEUE,
                              waits_reading.counts.cells + waits * HISTOGRAM_COARSE_BINS,
                              waits_reading.counts.sums[waits], ret);
}

int unit_get_histogram(Unit *u, const char *metric, uint64_t window, Histogram *ret, QosError *e) {
        uint64_t now = now_nsec(CLOCK_MONOTONIC);
        char name[SELECTOR_METRIC_MAX];
        WindowSource buffer[UNITS_MAX_LIMIT];
        WindowReading reading;
        WindowSources sources;
        RowsReading rows;
        Snapshot snapshot;
        Selector selector;
        unsigned d;
        bool of_rows;
        int r;

        assert(window_is_valid(window));

        r = selector_parse(metric, &selector, name);
        if (r == -EINVAL)
                return qos_error_set(e, QOS_ERROR_NO_SUCH_METRIC, metric,
                                     "'%.200s' does not say which part of the unit, expected in brackets "
                                     SELECTOR_EXPECTED, metric);
        for (d = 0; r >= 0 && d < QOS_DISTRIBUTIONS; d++)
                if (streq(name, server_distributions[d].name))
                        break;
        if (r >= 0 && d == QOS_DISTRIBUTIONS && selector.type == SELECTOR_NONE) {
                r = unit_get_other_histogram(u, metric, window, now, ret);
                if (r != -ENOENT)
                        return r;
                r = 0;
        }

        /* Metrics that endpoints and peers have; the client role is the sum of its peers */
        of_rows = r >= 0 && streq(name, "requests.client.latency");
        if (of_rows)
                selector.client = true;
        else if (r >= 0 && selector.type != SELECTOR_NONE)
                of_rows = !selector.client && d == QOS_LATENCY;
        if (r < 0 || (!of_rows && (d >= QOS_DISTRIBUTIONS || selector.type != SELECTOR_NONE)))
                return qos_error_set(e, QOS_ERROR_NO_SUCH_METRIC, metric,
                                     "'%.200s' is not a distribution, expected one like "
                                     "'requests.server.latency'", metric);

        /* For seq, and for whether metrics are valid */
        snapshot_read(u, NULL, window, &snapshot, &rows, NULL);

        if (of_rows) {
                WindowRow value;
                Row row;

                rows_sum(u, &rows, &selector, &value, &row);
                if (!row.measured || row.count == ABSENT)
                        return -ENODATA;
                /* Any distribution with coarse bins */
                return histogram_fill(&snapshot, rows.covered, QOS_QUEUE, value.cells,
                                      value.sums[QOS_ENTRY_SUM_LATENCY], ret);
        }

        if (!u->view ||
            !is_measured(manager_get_measured(u->manager), server_distributions[d].needs) ||
            snapshot.metrics.requests.quality == QUALITY_OVERLAPPING)
                return -ENODATA;
        unit_get_sources(u, buffer, &sources);
        if (window_read(&sources, now, window, &reading) < 0)
                return -ENODATA;

        return histogram_fill(&snapshot, reading.covered, d,
                              reading.cells + QOS_DISTRIBUTION_FIRST_COUNTER(d), reading.sums[d], ret);
}

static void totals_add(UnitTotals *t, const char *metric, size_t offset, enum qos_distribution form,
                       const uint64_t *bins, uint64_t sum) {
        const Distribution *known = (const Distribution*) ((const char*) &t->snapshot.totals + offset);

        if (known->count == ABSENT)
                return;
        t->distributions[t->n_distributions++] = (TotalDistribution) {
                .metric = metric,
                .schema = QOS_DISTRIBUTION_IS_FINE(form) ? HISTOGRAM_FINE_SCHEMA : HISTOGRAM_COARSE_SCHEMA,
                .bins = bins,
                .n_bins = QOS_DISTRIBUTION_BINS(form),
                .sum = sum,
        };
}

/* The rows, without what is over a window. */
static int totals_set_tables(Unit *u, RowsReading *rows, UnitTotals *t) {
        WindowSource buffer[UNITS_MAX_LIMIT];
        Snapshot *s = &t->snapshot;
        WindowSources sources;
        int r;

        t->tables = true;
        for (size_t i = 0; i < s->n_devices; i++)
                s->devices[i].share = NAN;
        for (size_t i = 0; i < s->n_mounts; i++)
                for (unsigned call = 0; call < QOS_MOUNT_TIMED; call++)
                        distribution_set_absent(&s->mounts[i].timed[call].latency);
        if (!rows->measured || rows->folded) {
                s->n_rows = 0;
                return 0;
        }
        unit_get_sources(u, buffer, &sources);
        r = endpoint_totals_raise(&u->endpoint_totals, u->attached_since, &sources, rows);
        if (r < 0)
                return r;
        rows_fill(u, rows, s);
        for (size_t i = 0; i < s->n_rows; i++) {
                s->rows[i].rate = NAN;
                distribution_set_absent(&s->rows[i].latency);
        }
        return 0;
}

int unit_get_totals(Unit *u, bool tables, UnitTotals **ret) {
        _cleanup_free_ UnitTotals *t = NULL;
        TotalReading *total;
        size_t n = 0;
        RowsReading rows;
        int r;

        for (Threshold *a = threshold_next(u, NULL); a; a = threshold_next(u, a))
                n++;
        t = calloc(1, sizeof(UnitTotals) + sizeof(TotalReading) + n * sizeof(TotalObjective));
        if (!t)
                return -ENOMEM;
        total = (TotalReading*) (t + 1);
        t->objectives = (TotalObjective*) (total + 1);

        snapshot_read(u, NULL, WINDOW_TOTAL, &t->snapshot, &rows, total);
        r = exported_bins_raise(&u->exported_bins, u->attached_since, total);
        if (r < 0)
                return r;
        t->cost_requests = u->view ? total->requests.sums[QOS_SUM_COST] : ABSENT;
        t->cost_contention = u->contention.map ? contention_get_cost(&total->contention) : ABSENT;
        t->cost_storage = u->storage.map ? total->storage.counts.sums[QOS_STORAGE_COST] : ABSENT;

        for (enum qos_distribution d = 0; d < QOS_DISTRIBUTIONS; d++)
                totals_add(t, server_distributions[d].name,
                           offsetof(Metrics, requests.server) + server_distributions[d].offset, d,
                           total->requests.cells + QOS_DISTRIBUTION_FIRST_COUNTER(d),
                           total->requests.sums[d]);
        /* All others have coarse bins */
        totals_add(t, "requests.client.latency", offsetof(Metrics, requests.client.latency), QOS_QUEUE,
                   total->client.cells, total->client.sums[QOS_ENTRY_SUM_LATENCY]);
        for (unsigned d = 0; d < QOS_CONTENTION_DISTRIBUTIONS; d++)
                totals_add(t, contention_distributions[d].name, contention_distributions[d].offset,
                           QOS_QUEUE, total->contention.counts.cells + d * HISTOGRAM_COARSE_BINS,
                           total->contention.counts.sums[d]);
        for (unsigned call = 0; call < QOS_STORAGE_TIMED; call++)
                totals_add(t, storage_distributions[call].name, storage_distributions[call].offset,
                           QOS_QUEUE, total->storage.counts.bins + call * HISTOGRAM_COARSE_BINS,
                           total->storage.counts.sums[QOS_STORAGE_NSEC + call]);

        /* Both distributions of objectives are measured, or none */
        if (t->snapshot.totals.requests.server.latency.count != ABSENT)
                for (Threshold *a = threshold_next(u, NULL); a; a = threshold_next(u, a))
                        t->n_objectives += threshold_count_totals(a, &total->requests, &rows,
                                                                  t->objectives + t->n_objectives);
        if (tables) {
                r = totals_set_tables(u, &rows, t);
                if (r < 0)
                        return r;
        }

        *ret = TAKE_PTR(t);
        return 0;
}
