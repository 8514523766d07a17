/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <math.h>

#include "contention-probe.h"
#include "hierarchy.h"
#include "measured.h"
#include "network-probe.h"
#include "observer.h"
#include "probe.h"
#include "storage-probe.h"
#include "unit-histogram.h"
#include "unit-map.h"
#include "unit-peers.h"
#include "unit-snapshot.h"
#include "window.h"

static int histogram_fill(const Snapshot *s, uint64_t covered, int schema, const uint64_t *bins,
                          uint64_t sum, Histogram *ret) {
        unsigned n = window_bins_number(schema);
        Histogram h = {
                .seq = s->seq,
                .timestamp = s->timestamp,
                .window = s->window,
                .covered = covered,
                .schema = schema,
                .sum = sum,
                .buckets = new0(HistogramBucket, n),
        };

        if (!h.buckets)
                return -ENOMEM;

        for (unsigned i = 0; i < n; i++) {
                HistogramBucket *b = h.buckets + h.n_buckets;

                if (bins[i] == 0)
                        continue;
                window_bins_get_bounds(schema, i, &b->lower, &b->upper);
                b->count = bins[i];
                h.count += bins[i];
                h.n_buckets++;
        }

        *ret = h;
        return 0;
}

const OtherDistribution contention_distributions[QOS_CONTENTION_DISTRIBUTIONS] = {
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

const OtherDistribution storage_distributions[QOS_STORAGE_TIMED] = {
        [QOS_STORAGE_READ]  = { "storage.reads.latency",
                                offsetof(Metrics, storage.timed[QOS_STORAGE_READ].latency)  },
        [QOS_STORAGE_WRITE] = { "storage.writes.latency",
                                offsetof(Metrics, storage.timed[QOS_STORAGE_WRITE].latency) },
        [QOS_STORAGE_SYNC]  = { "storage.syncs.latency",
                                offsetof(Metrics, storage.timed[QOS_STORAGE_SYNC].latency)  },
        [QOS_STORAGE_OPEN]  = { "storage.opens.latency",
                                offsetof(Metrics, storage.timed[QOS_STORAGE_OPEN].latency)  },
};

const OtherDistribution network_distributions[QOS_NETWORK_DISTRIBUTIONS] = {
        [QOS_NETWORK_DURATION]  = { "network.duration", offsetof(Metrics, network.duration) },
        [QOS_NETWORK_RTT]       = { "network.rtt", offsetof(Metrics, network.rtt) },
        [QOS_NETWORK_PORTS]     = { "network.connecting.ports",
                                    offsetof(Metrics, network.connecting.ports) },
        [QOS_NETWORK_HANDSHAKE] = { "network.connecting.handshake",
                                    offsetof(Metrics, network.connecting.handshake) },
        [QOS_NETWORK_RECEIVING_DRIVER]  = { "network.receiving.driver",
                                            offsetof(Metrics, network.receiving.driver) },
        [QOS_NETWORK_RECEIVING_IP]      = { "network.receiving.ip",
                                            offsetof(Metrics, network.receiving.ip) },
        [QOS_NETWORK_RECEIVING_BACKLOG] = { "network.receiving.backlog",
                                            offsetof(Metrics, network.receiving.backlog) },
        [QOS_NETWORK_RECEIVING_SOCKET]  = { "network.receiving.socket",
                                            offsetof(Metrics, network.receiving.socket) },
        [QOS_NETWORK_RECEIVING_TOTAL]   = { "network.receiving.total",
                                            offsetof(Metrics, network.receiving.total) },
        [QOS_NETWORK_TRANSMITTING_IP]     = { "network.transmitting.ip",
                                              offsetof(Metrics, network.transmitting.ip) },
        [QOS_NETWORK_TRANSMITTING_TOTAL]  = { "network.transmitting.total",
                                              offsetof(Metrics, network.transmitting.total) },
        [QOS_NETWORK_TRANSMITTING_PACING] = { "network.transmitting.pacing",
                                              offsetof(Metrics, network.transmitting.pacing) },
        [QOS_NETWORK_RTT_KERNEL] = { "network.rttKernel", offsetof(Metrics, network.rtt_kernel) },
        [QOS_NETWORK_RTT_WIRE]   = { "network.rttWire", offsetof(Metrics, network.rtt_wire) },
};

/* A distribution that other maps than that of requests have. */
typedef struct OtherMap {
        const OtherDistribution *table;
        unsigned n;
        int (*fill)(const Unit *u, unsigned d, uint64_t now, const Snapshot *s, Histogram *ret);
} OtherMap;

static int contention_fill_histogram(const Unit *u, unsigned d, uint64_t now, const Snapshot *s,
                                     Histogram *ret) {
        ContentionSource buffer[UNITS_MAX_LIMIT];
        ContentionReading reading;
        ContentionSources maps;

        if (!unit_get_contention_sources(u, buffer, &maps) ||
            contention_read_some(&maps, now, s->window, /* cells= */ true, &reading) < 0)
                return -ENODATA;
        return histogram_fill(s, reading.covered, HISTOGRAM_COARSE_SCHEMA,
                              reading.counts.cells + d * HISTOGRAM_COARSE_BINS, reading.counts.sums[d], ret);
}

static int storage_fill_histogram(const Unit *u, unsigned d, uint64_t now, const Snapshot *s,
                                  Histogram *ret) {
        StorageSource buffer[UNITS_MAX_LIMIT];
        StorageReading reading;
        StorageSources maps;

        if (!unit_get_storage_sources(u, buffer, &maps) ||
            storage_read(&maps, now, s->window, &reading, NULL) < 0)
                return -ENODATA;
        return histogram_fill(s, reading.covered, HISTOGRAM_COARSE_SCHEMA,
                              reading.counts.bins + d * HISTOGRAM_COARSE_BINS,
                              reading.counts.sums[QOS_STORAGE_NSEC + d], ret);
}

static int network_fill_histogram(const Unit *u, unsigned d, uint64_t now, const Snapshot *s,
                                  Histogram *ret) {
        NetworkSource buffer[UNITS_MAX_LIMIT];
        NetworkReading reading;
        NetworkSources maps;

        if (!unit_get_network_sources(u, buffer, &maps) ||
            network_read(&maps, now, s->window, &reading, NULL) < 0)
                return -ENODATA;
        return histogram_fill(s, reading.covered, QOS_NETWORK_SCHEMA(d),
                              reading.counts.bins + QOS_NETWORK_FIRST_BIN(d),
                              reading.counts.sums[QOS_NETWORK_NSEC + d], ret);
}

static const OtherMap other_maps[] = {
        { contention_distributions, ELEMENTSOF(contention_distributions), contention_fill_histogram },
        { storage_distributions,    ELEMENTSOF(storage_distributions),    storage_fill_histogram    },
        { network_distributions,    ELEMENTSOF(network_distributions),    network_fill_histogram    },
};

/* -ENOENT: there is none of this name; -ENODATA: it is not measured. */
static int unit_get_other_histogram(Unit *u, const char *metric, uint64_t window, uint64_t now,
                                    Histogram *ret) {
        const Distribution *known;
        Snapshot snapshot;

        for (size_t i = 0; i < ELEMENTSOF(other_maps); i++)
                for (unsigned d = 0; d < other_maps[i].n; d++) {
                        const OtherDistribution *other = other_maps[i].table + d;

                        if (!streq(metric, other->name))
                                continue;
                        unit_get_snapshot(u, window, &snapshot);
                        known = (const Distribution*) ((const char*) &snapshot.metrics + other->offset);
                        if (known->count == ABSENT)
                                return -ENODATA;
                        return other_maps[i].fill(u, d, now, &snapshot, ret);
                }
        return -ENOENT;
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

        /* Provides seq, and whether metrics are valid */
        snapshot_read(u, NULL, window, &snapshot, &rows, NULL);

        if (of_rows) {
                WindowRow value;
                Row row;

                rows_sum(u, &rows, &selector, &value, &row);
                if (!row.measured || row.count == ABSENT)
                        return -ENODATA;
                return histogram_fill(&snapshot, rows.covered, HISTOGRAM_COARSE_SCHEMA, value.cells,
                                      value.sums[QOS_ENTRY_SUM_LATENCY], ret);
        }

        if (!u->view ||
            !is_measured(manager_get_measured(u->manager), server_distributions[d].needs) ||
            snapshot.metrics.requests.quality == QUALITY_OVERLAPPING)
                return -ENODATA;
        unit_get_sources(u, buffer, &sources);
        if (window_read(&sources, now, window, &reading) < 0)
                return -ENODATA;

        return histogram_fill(&snapshot, reading.covered,
                              QOS_DISTRIBUTION_IS_FINE(d) ? HISTOGRAM_FINE_SCHEMA : HISTOGRAM_COARSE_SCHEMA,
                              reading.cells + QOS_DISTRIBUTION_FIRST_COUNTER(d), reading.sums[d], ret);
}
