/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <math.h>

#include "endpoint-totals.h"
#include "exported-bins.h"
#include "hierarchy.h"
#include "objective.h"
#include "probe.h"
#include "unit-custom.h"
#include "unit-histogram.h"
#include "unit-totals.h"

static void totals_add(UnitTotals *t, const char *metric, size_t offset, int schema, const uint64_t *bins,
                       uint64_t sum) {
        const Distribution *known = (const Distribution*) ((const char*) &t->snapshot.totals + offset);

        if (known->count == ABSENT)
                return;
        t->distributions[t->n_distributions++] = (TotalDistribution) {
                .metric = metric,
                .schema = schema,
                .bins = bins,
                .n_bins = window_bins_number(schema),
                .sum = sum,
        };
}

/* Sets the rows, without values that relate to a window. */
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

        for (Threshold *i = threshold_next(u, NULL); i; i = threshold_next(u, i))
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
        t->cost_network = u->network.map ? total->network.counts.sums[QOS_NETWORK_COST] : ABSENT;

        for (enum qos_distribution d = 0; d < QOS_DISTRIBUTIONS; d++)
                totals_add(t, server_distributions[d].name,
                           offsetof(Metrics, requests.server) + server_distributions[d].offset,
                           QOS_DISTRIBUTION_IS_FINE(d) ? HISTOGRAM_FINE_SCHEMA : HISTOGRAM_COARSE_SCHEMA,
                           total->requests.cells + QOS_DISTRIBUTION_FIRST_COUNTER(d),
                           total->requests.sums[d]);
        totals_add(t, "requests.client.latency", offsetof(Metrics, requests.client.latency),
                   HISTOGRAM_COARSE_SCHEMA, total->client.cells, total->client.sums[QOS_ENTRY_SUM_LATENCY]);
        for (unsigned d = 0; d < QOS_CONTENTION_DISTRIBUTIONS; d++)
                totals_add(t, contention_distributions[d].name, contention_distributions[d].offset,
                           HISTOGRAM_COARSE_SCHEMA,
                           total->contention.counts.cells + d * HISTOGRAM_COARSE_BINS,
                           total->contention.counts.sums[d]);
        for (unsigned call = 0; call < QOS_STORAGE_TIMED; call++)
                totals_add(t, storage_distributions[call].name, storage_distributions[call].offset,
                           HISTOGRAM_COARSE_SCHEMA,
                           total->storage.counts.bins + call * HISTOGRAM_COARSE_BINS,
                           total->storage.counts.sums[QOS_STORAGE_NSEC + call]);
        for (unsigned d = 0; d < QOS_NETWORK_DISTRIBUTIONS; d++)
                totals_add(t, network_distributions[d].name, network_distributions[d].offset,
                           QOS_NETWORK_SCHEMA(d),
                           total->network.counts.bins + QOS_NETWORK_FIRST_BIN(d),
                           total->network.counts.sums[QOS_NETWORK_NSEC + d]);

        /* The distributions that objectives use are measured together */
        if (t->snapshot.totals.requests.server.latency.count != ABSENT)
                for (Threshold *i = threshold_next(u, NULL); i; i = threshold_next(u, i))
                        t->n_objectives += threshold_count_totals(i, &total->requests, &rows,
                                                                  t->objectives + t->n_objectives);
        if (tables) {
                r = totals_set_tables(u, &rows, t);
                if (r < 0)
                        return r;
        }
        r = unit_export_custom(u, &t->custom);
        if (r < 0)
                return r;

        *ret = TAKE_PTR(t);
        return 0;
}

UnitTotals* unit_totals_free(UnitTotals *t) {
        if (t)
                (void) sd_json_variant_unref(t->custom);
        free(t);
        return NULL;
}
