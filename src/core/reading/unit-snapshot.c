/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Creates snapshots from maps of the kernel. */

#include <limits.h>
#include <math.h>
#include <unistd.h>

#include "cgroup-stat.h"
#include "contention-probe.h"
#include "gauges.h"
#include "hierarchy.h"
#include "manager.h"
#include "measured.h"
#include "metric.h"
#include "network-probe.h"
#include "observer.h"
#include "probe.h"
#include "service-manager.h"
#include "storage-probe.h"
#include "unit-map.h"
#include "unit-drops.h"
#include "unit-mounts.h"
#include "unit-peers.h"
#include "unit-reading.h"
#include "unit-snapshot.h"
#include "window.h"

/* Maximum age of a snapshot that is reused if nothing has happened, as rates decrease with time. */
#define SNAPSHOT_AGE_NSEC NSEC_PER_SEC

/* ---- statistics of the control group ------------------------------------------------------------------ */

static uint64_t usec_to_nsec(uint64_t usec) {
        return usec == ABSENT ? ABSENT : usec * NSEC_PER_USEC;
}

void usage_fill(const Unit *u, uint64_t window, Contention *c) {
        const struct {
                UsageCounter counter;
                double *share;
                uint64_t *time;
        } pressures[] = {
                { USAGE_CPU_SOME,    &c->pressure.cpu.some,    &c->pressure.cpu.some_time    },
                { USAGE_CPU_FULL,    &c->pressure.cpu.full,    &c->pressure.cpu.full_time    },
                { USAGE_MEMORY_SOME, &c->pressure.memory.some, &c->pressure.memory.some_time },
                { USAGE_MEMORY_FULL, &c->pressure.memory.full, &c->pressure.memory.full_time },
                { USAGE_IO_SOME,     &c->pressure.io.some,     &c->pressure.io.some_time     },
                { USAGE_IO_FULL,     &c->pressure.io.full,     &c->pressure.io.full_time     },
        };
        static const uint64_t averages[USAGE_AVERAGES] = { 10 * NSEC_PER_SEC, 60 * NSEC_PER_SEC,
                                                           300 * NSEC_PER_SEC };
        UsageSum sum;
        bool known;

        if (!u->contention.usage)
                return;
        known = usage_get(u->contention.usage, window, &sum) >= 0;

        for (size_t i = 0; i < ELEMENTSOF(pressures); i++) {
                uint64_t usec = known ? sum.values[pressures[i].counter] : ABSENT;

                *pressures[i].time = usec_to_nsec(usec);
                if (usec != ABSENT && sum.at > 0)
                        *pressures[i].share = MIN(1.0, (double) usec * NSEC_PER_USEC / sum.at);
                /* If there is no reading from the beginning of the window, use the kernel's average, which
                 * is exponentially weighted */
                for (unsigned k = 0; !known && k < USAGE_AVERAGES; k++)
                        if (window == averages[k])
                                *pressures[i].share =
                                        u->contention.usage->last.averages[pressures[i].counter][k];
        }
        if (!known)
                return;
        c->quota.periods = sum.values[USAGE_QUOTA_PERIODS];
        c->quota.throttled_periods = sum.values[USAGE_QUOTA_THROTTLED_PERIODS];
        c->quota.throttled_time = usec_to_nsec(sum.values[USAGE_QUOTA_THROTTLED_TIME]);
        c->memory.swap_ins = sum.values[USAGE_SWAP_INS];
        c->memory.refaults = sum.values[USAGE_REFAULTS];
}

/* ---- overhead ----------------------------------------------------------------------------------------- */

/* Overhead as a number of CPUs. Contention maps are created at the attach or later, and cover no more time
 * than the reading of requests. */
static double cost_get_share(const WindowReading *reading, uint64_t contention) {
        return reading->covered > 0 ? (double) (reading->sums[QOS_SUM_COST] + contention) /
               reading->covered : NAN;
}

/* ---- devices ------------------------------------------------------------------------------------------ */

static uint64_t device_get_bytes(const BlockCounts *counts) {
        return counts->bytes[QOS_BLOCK_READS] + counts->bytes[QOS_BLOCK_WRITES] +
               counts->bytes[QOS_BLOCK_DISCARDS];
}

void device_get_name(uint32_t device, char ret[static DEVICE_NAME_MAX]) {
        char path[64], target[PATH_MAX];
        const char *name;
        ssize_t n;

        (void) snprintf(path, sizeof(path), "/sys/dev/block/%u:%u", device >> 20, device & ((1U << 20) - 1));
        n = readlink(path, target, sizeof(target) - 1);
        if (n > 0) {
                target[n] = 0;
                name = strrchr(target, '/');
                (void) snprintf(ret, DEVICE_NAME_MAX, "%.31s", name ? name + 1 : target);
        } else /* removed */
                (void) snprintf(ret, DEVICE_NAME_MAX, "%u:%u", device >> 20, device & ((1U << 20) - 1));
}

static uint64_t device_get_time(const BlockCounts *counts) {
        return counts->sums[QOS_BLOCK_QUEUE_NSEC] + counts->sums[QOS_BLOCK_DEVICE_NSEC];
}

static int device_compare(const void *a, const void *b) {
        const BlockDevice *x = a, *y = b;
        uint64_t p = device_get_time(&x->counts), q = device_get_time(&y->counts);

        return q < p ? -1 : q > p;
}

static void devices_fill(Unit *u, const ContentionReading *reading, uint64_t now, uint64_t window,
                         Snapshot *s) {
        Manager *m = u->manager;
        const ContentionSource source = { .map = m->contention.machine,
                                          .since = m->contention.machine_since };
        const ContentionSources sources = { .sources = &source, .n = 1,
                                            .since = u->contention.machine_base_at,
                                            .before = u->contention.machine_base };
        struct qos_block_devices devices;
        ContentionReading machine;
        bool shared;

        if (s->metrics.contention.block.sectors == ABSENT || probe_get_devices(m->probe, &devices) < 0)
                return;

        shared = m->contention.machine && u->contention.machine_base &&
                reading->boundary >= u->contention.shares_since &&
                contention_read_some(&sources, now, window, /* cells= */ true, &machine) >= 0;

        for (unsigned row = 0; row < QOS_BLOCK_ROWS; row++) {
                BlockDevice *d = s->devices + s->n_devices;
                BlockCounts all = {};

                *d = (BlockDevice) { .share = NAN };
                contention_add_block(reading, row, &d->counts);
                if (device_get_time(&d->counts) + device_get_bytes(&d->counts) == 0)
                        continue;
                if (row > 0) {
                        device_get_name(devices.devices[row - 1], d->name);
                        if (shared) {
                                contention_add_block(&machine, row, &all);
                                if (device_get_bytes(&all) > 0)
                                        d->share = MIN(1.0, (double) device_get_bytes(&d->counts) /
                                                       device_get_bytes(&all));
                        }
                }
                s->n_devices++;
        }
        qsort(s->devices, s->n_devices, sizeof(BlockDevice), device_compare);
}

static bool gauges_equal(const Metrics *a, const Metrics *b) {
        const Server *x = &a->requests.server, *y = &b->requests.server;

        return x->in_flight == y->in_flight && a->storage.in_flight == b->storage.in_flight &&
                x->connections.open == y->connections.open &&
                x->connections.accept_queue == y->connections.accept_queue &&
                x->connections.accept_queue_max == y->connections.accept_queue_max;
}

/* A window of a snapshot, or its totals. */
typedef struct ReadingWindow {
        uint64_t window;
        WindowReading requests;
        RowsReading *rows;
        ContentionReading contention;
        StorageReading storage;
        MountsReading mounts;
        NetworkReading network;
} ReadingWindow;

/* What was read besides requests. */
typedef struct ReadingParts {
        bool contention, storage, network;
} ReadingParts;

static void reading_window_fill(const UnitReading *r, const ReadingWindow *w, const ReadingParts *parts,
                                Metrics *ret) {
        metrics_fill(&r->context, &w->requests, WINDOW_ALL_DISTRIBUTIONS, ret);
        rows_get_client(r->unit, w->rows, &ret->requests.client);
        storage_set_absent(ret);
        if (parts->storage)
                storage_metrics_fill(&r->context, &w->storage, &ret->storage);
        network_set_absent(ret);
        if (parts->network)
                network_metrics_fill(&r->context, &w->network, &ret->network);
        contention_set_absent(ret);
        if (!parts->contention)
                return;
        contention_metrics_fill(&r->context, &w->contention, /* cells= */ true,
                        clock_is_whole(&r->context, &w->requests), &ret->contention);
        usage_fill(r->unit, w->window, &ret->contention);
        if (parts->storage)
                amplification_fill(&ret->contention.block, ret->contention.covered, &ret->storage);
}

/* Whether nothing has happened since the last snapshot, and nothing is in flight that ages. */
static bool cache_is_valid(const UnitCache *cache, const Snapshot *s, uint64_t signature, uint64_t boundary,
                           uint64_t now) {
        return cache->at != 0 && cache->snapshot.window == s->window && cache->signature == signature &&
                cache->boundary == boundary && now < cache->at + SNAPSHOT_AGE_NSEC &&
                s->metrics.requests.server.in_flight == 0 &&
                (s->metrics.storage.in_flight == ABSENT || s->metrics.storage.in_flight == 0) &&
                gauges_equal(&s->metrics, &cache->snapshot.metrics);
}

void snapshot_read(Unit *u, const Moment *at, uint64_t window, Snapshot *ret, RowsReading *ret_rows,
                   TotalReading *ret_total) {
        uint64_t now = at ? at->monotonic : now_nsec(CLOCK_MONOTONIC);
        RowsReading rows_total;
        ReadingWindow part, total;
        ReadingParts have;
        UnitReading reading;
        Snapshot s = {
                .window = window,
                .timestamp = at ? at->realtime : now_nsec(CLOCK_REALTIME),
                .cost_share = NAN,
                .drops = 0, /* not absent: without programs nothing is dropped */
        };

        assert(window_is_valid(window));

        unit_reading_begin(u, now, READING_LISTENERS|READING_IN_FLIGHT|READING_MISSING, &reading);
        part.window = window;
        part.rows = ret_rows;
        total.window = WINDOW_TOTAL;
        total.rows = &rows_total;

        if (!u->view ||
            window_read_some(&reading.sources, now, window, WINDOW_ALL_DISTRIBUTIONS, &part.requests) < 0 ||
            window_read(&reading.sources, now, WINDOW_TOTAL, &total.requests) < 0) {
                metrics_set_absent(&s.metrics);
                metrics_set_absent(&s.totals);
                s.covered = 0;
                s.seq = ++u->cache.seq;
                *ret = u->cache.snapshot = s;
                ret_rows->n = 0;
                ret_rows->measured = false;
                return;
        }

        unit_reading_get_gauges(&reading);
        unit_reading_get_rows(&reading, window, part.requests.covered, part.rows);
        unit_reading_get_rows(&reading, WINDOW_TOTAL, total.requests.covered, total.rows);
        total.requests.signature = rows_get_signature(total.rows, total.requests.signature);
        unit_collect_usage(u);
        have.contention = unit_reading_get_contention(&reading, /* cells= */ true) &&
                contention_read(&reading.contention, now, window, &part.contention, &total.contention) >= 0;
        have.storage = unit_reading_get_storage(&reading) &&
                unit_reading_read_storage(&reading, window, &part.storage, &total.storage,
                                          &part.mounts) >= 0;
        have.network = unit_reading_get_network(&reading) &&
                network_read(&reading.network, now, window, &part.network, &total.network) >= 0;

        s.covered = part.requests.covered;
        s.drops = total.requests.cells[QOS_COUNTER_DROPS] +
                total.requests.cells[QOS_COUNTER_DROPS_CONTENTION];
        reading_window_fill(&reading, &part, &have, &s.metrics);
        reading_window_fill(&reading, &total, &have, &s.totals);
        rows_fill(u, part.rows, &s);
        if ((have.contention || !u->contention.map) && (have.storage || !u->storage.map) &&
            (have.network || !u->network.map))
                s.cost_share = cost_get_share(
                                &part.requests,
                                (have.contention ? contention_get_cost(&part.contention) : 0) +
                                (have.storage ? part.storage.counts.sums[QOS_STORAGE_COST] : 0) +
                                (have.network ? part.network.counts.sums[QOS_NETWORK_COST] : 0));
        if (have.network) {
                s.n_drop_reasons = drop_reasons_fill(u, &part.network, s.drop_reasons);
                total.requests.signature ^= total.network.signature;
        }
        if (have.storage) {
                s.n_mounts = mounts_fill(&reading, &part.mounts, s.mounts);
                total.requests.signature ^= total.storage.signature;
        }
        if (have.contention) {
                devices_fill(u, &part.contention, now, window, &s);
                total.requests.signature ^= total.contention.signature;
        }

        if (ret_total) {
                const Selector peers = { .client = true };
                Row row;

                ret_total->requests = total.requests;
                ret_total->contention = have.contention ? total.contention : (ContentionReading) {};
                ret_total->storage = have.storage ? total.storage : (StorageReading) {};
                ret_total->network = have.network ? total.network : (NetworkReading) {};
                rows_sum(u, total.rows, &peers, &ret_total->client, &row);
                if (total.rows->peers_known)
                        ret_total->client = total.rows->peers;
        }

        /* Includes seq */
        if (!at && cache_is_valid(&u->cache, &s, total.requests.signature, part.requests.boundary, now)) {
                *ret = u->cache.snapshot;
                return;
        }

        s.seq = ++u->cache.seq;
        u->cache.snapshot = s;
        u->cache.at = now;
        u->cache.signature = total.requests.signature;
        u->cache.boundary = part.requests.boundary;
        *ret = s;
}

void unit_get_snapshot(Unit *u, uint64_t window, Snapshot *ret) {
        RowsReading rows;

        snapshot_read(u, NULL, window, ret, &rows, NULL);
}

void unit_get_snapshot_at(Unit *u, const Moment *at, uint64_t window, Snapshot *ret) {
        RowsReading rows;

        snapshot_read(u, at, window, ret, &rows, NULL);
}

void unit_get_selected(Unit *u, uint64_t window, const Selector *selectors, size_t n, Snapshot *ret,
                       Row *ret_rows) {
        RowsReading rows;

        snapshot_read(u, NULL, window, ret, &rows, NULL);
        for (size_t i = 0; i < n; i++) {
                WindowRow value;

                rows_sum(u, &rows, selectors + i, &value, ret_rows + i);
        }
}

/* Run time so far of the programs of all probes but "requests"; ABSENT: not readable. */
static uint64_t unit_get_probes_cost(Unit *u, uint64_t now) {
        ContentionSource buffer[UNITS_MAX_LIMIT];
        StorageSource storage_buffer[UNITS_MAX_LIMIT];
        ContentionReading reading;
        ContentionSources sources;
        StorageSources storage;
        StorageReading calls;
        NetworkSource network_buffer[UNITS_MAX_LIMIT];
        NetworkReading network_reading;
        NetworkSources network;
        uint64_t cost = 0;

        if (unit_get_contention_sources(u, buffer, &sources)) {
                if (contention_read_some(&sources, now, WINDOW_TOTAL, /* cells= */ true, &reading) < 0)
                        return ABSENT;
                cost += contention_get_cost(&reading);
        }
        if (unit_get_storage_sources(u, storage_buffer, &storage)) {
                if (storage_read(&storage, now, WINDOW_TOTAL, &calls, NULL) < 0)
                        return ABSENT;
                cost += calls.counts.sums[QOS_STORAGE_COST];
        }
        if (unit_get_network_sources(u, network_buffer, &network)) {
                if (network_read(&network, now, WINDOW_TOTAL, &network_reading, NULL) < 0)
                        return ABSENT;
                cost += network_reading.counts.sums[QOS_NETWORK_COST];
        }
        return cost;
}

void unit_mark(Unit *u, WindowMark *ret, uint64_t *ret_cost) {
        uint64_t now = now_nsec(CLOCK_MONOTONIC);
        WindowSource buffer[UNITS_MAX_LIMIT];
        WindowSources sources;

        assert(u->view);

        missed_refresh(u->manager, now);
        unit_get_sources(u, buffer, &sources);
        window_mark(&sources, now, ret);
        *ret_cost = unit_get_probes_cost(u, now);
}

void unit_get_snapshot_since(Unit *u, const WindowMark *mark, uint64_t cost, Snapshot *ret) {
        uint64_t now = now_nsec(CLOCK_MONOTONIC), overhead_now;
        WindowReading since, total;
        UnitReading reading;

        assert(u->view); /* maps remain while the unit is attached */

        *ret = (Snapshot) {
                .seq = ++u->cache.seq,
                .window = WINDOW_TOTAL,
                .timestamp = now_nsec(CLOCK_REALTIME),
                .cost_share = NAN,
        };

        unit_reading_begin(u, now, READING_LISTENERS|READING_IN_FLIGHT|READING_MISSING, &reading);
        window_read_since(&reading.sources, now, mark, &since);
        (void) window_read(&reading.sources, now, WINDOW_TOTAL, &total); /* cannot fail */
        unit_reading_get_gauges(&reading);
        ret->covered = since.covered;
        ret->drops = total.cells[QOS_COUNTER_DROPS] + total.cells[QOS_COUNTER_DROPS_CONTENTION];
        metrics_fill(&reading.context, &since, WINDOW_ALL_DISTRIBUTIONS, &ret->metrics);
        metrics_fill(&reading.context, &total, WINDOW_ALL_DISTRIBUTIONS, &ret->totals);
        contention_set_absent(&ret->metrics);
        contention_set_absent(&ret->totals);
        storage_set_absent(&ret->metrics);
        storage_set_absent(&ret->totals);
        network_set_absent(&ret->metrics);
        network_set_absent(&ret->totals);
        overhead_now = unit_get_probes_cost(u, now);
        if (cost != ABSENT && overhead_now != ABSENT)
                /* Maps may have been destroyed or created since */
                ret->cost_share = cost_get_share(&since, overhead_now >= cost
                        ? overhead_now - cost : overhead_now);
}

void unit_get_measured(Unit *u, const char **ret) {
        uint64_t measured = manager_get_measured(u->manager);

        for (enum qos_distribution d = 0; d < QOS_DISTRIBUTIONS; d++)
                ret[d] = u->view && is_measured(measured, server_distributions[d].needs) ?
                         server_distributions[d].name : NULL;
}

int unit_get_degraded_reason(const Unit *u, char **ret) {
        const struct {
                ProbeMask probe;
                const char *name;
                Measured needs;         /* required for any useful metrics */
        } table[] = {
                { PROBE_CPU,    "cpu",    MEASURED_STATES },
                { PROBE_BLOCK,  "block",  MEASURED_BLOCK  },
                { PROBE_MEMORY, "memory", MEASURED_FAULTS },
        };
        Bitmap programs = probe_get_programs(u->manager->probe);
        uint64_t measured = manager_get_measured(u->manager);
        unsigned missing = 0;
        char *reason = NULL;
        int r = 0;

        /* Programs that not all kernels support do not degrade the unit. Nor do gauge corrections, which are
         * only needed after skipped runs, and these are counted as drops */
        for (unsigned i = 0; i < _PROGRAM_REQUESTS_MAX; i++)
                if (i != PROGRAM_UNIX_CLOSE && i != PROGRAM_GAUGES && !bitmap_contains(&programs, i))
                        missing++;

        if (!u->view)
                r = asprintf(&reason, "requests: %s",
                             probe_get_failure(u->manager->probe) ?: "no map for the unit");
        else if (missing > 0)
                r = asprintf(&reason, "requests: %u of %u programs not available, see 'qosctl probes'",
                             missing, _PROGRAM_REQUESTS_MAX);
        else if (u->openssl.watched && probe_group_failure(u->manager->probe, PROBE_TLS))
                r = asprintf(&reason, "tls: programs not available, see 'qosctl probes'");
        else if (u->openssl.watched && u->openssl.limit < 0)
                r = asprintf(&reason, "tls: not all OpenSSL libraries of it are watched: %s",
                             probe_library_limit_reason(u->openssl.limit));
        else if (u->openssl.watched && !u->openssl.found && streq(u->active_state, "active"))
                r = asprintf(&reason, "tls: no process of it has OpenSSL's library, waiting for one");
        for (size_t i = 0; i < ELEMENTSOF(table) && r == 0; i++)
                if (u->contention.probes & table[i].probe && !is_measured(measured, table[i].needs))
                        r = asprintf(&reason, "%s: programs not available, see 'qosctl probes'",
                                     table[i].name);
        if (r < 0)
                return -ENOMEM;

        *ret = reason;
        return 0;
}
