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
#include "metric.h"
#include "observer.h"
#include "probe.h"
#include "service-manager.h"
#include "threshold-monitor.h"
#include "unit-map.h"
#include "unit-peers.h"
#include "unit-reading.h"
#include "unit-snapshot.h"
#include "window.h"

/* How long an unchanged snapshot is reused: rates decrease with time. */
#define SNAPSHOT_AGE_NSEC NSEC_PER_SEC

#define REQUIRES_CONTENT REQUIRES_EXCHANGES, PROGRAM_CONTENT
#define REQUIRES_UNIX PROGRAM_UNIX, PROGRAM_CONTENT
#define REQUIRES_UDP PROGRAM_INGRESS, PROGRAM_EGRESS, PROGRAM_BIND4, PROGRAM_BIND6, PROGRAM_FIND_UDP
#define REQUIRES_ENDS REQUIRES_EXCHANGES, PROGRAM_STATE

/* ---- requests ----------------------------------------------------------------------------------------- */

static void client_set_absent(ClientRole *c) {
        memset(c, 0xff, sizeof(*c)); /* most are integers */
        c->rate = c->unparsed.share = NAN;
        c->quality = QUALITY_ABSENT;
}

static void gauges_fill(const ReadingGauges *g, Server *s) {
        s->connections.open = g->open;
        s->connections.accept_queue = g->accept_queue;
        s->connections.accept_queue_max = g->accept_queue_max;
        s->in_flight = g->in_flight;
        s->oldest_in_flight = g->oldest_in_flight;
        s->waiting = g->waiting;
        s->oldest_waiting = g->oldest_waiting;
}

void counters_fill(const UnitReading *r, const WindowReading *reading, Metrics *ret) {
        Bitmap programs = r->programs;
        Server *s = &ret->requests.server;
        const struct {
                enum qos_counter cell;
                const Program *needs;
                uint64_t *value;
        } counters[] = {
                { QOS_COUNTER_COUNT,          PROGRAMS(REQUIRES_EXCHANGES),
                        &s->count                    },
                { QOS_COUNTER_HTTP1,          PROGRAMS(REQUIRES_CONTENT),
                        &s->protocol_http1           },
                { QOS_COUNTER_REDIS,          PROGRAMS(REQUIRES_CONTENT),
                        &s->protocol_redis           },
                { QOS_COUNTER_MEMCACHED,      PROGRAMS(REQUIRES_CONTENT),
                        &s->protocol_memcached       },
                { QOS_COUNTER_HTTP2,          PROGRAMS(REQUIRES_CONTENT),
                        &s->protocol_http2           },
                { QOS_COUNTER_GRPC,           PROGRAMS(REQUIRES_CONTENT),
                        &s->protocol_grpc            },
                { QOS_COUNTER_TLS,            PROGRAMS(REQUIRES_CONTENT),
                        &s->protocol_tls             },
                { QOS_COUNTER_UNIX,           PROGRAMS(REQUIRES_UNIX),
                        &s->protocol_unix            },
                { QOS_COUNTER_UDP,            PROGRAMS(REQUIRES_UDP),
                        &s->protocol_udp             },
                { QOS_COUNTER_WAITS,          PROGRAMS(REQUIRES_CONTENT),
                        &s->blocking                 },
                { QOS_COUNTER_STREAMS,        PROGRAMS(REQUIRES_CONTENT),
                        &s->streams                  },
                { QOS_COUNTER_EXCLUDED,       PROGRAMS(REQUIRES_EXCHANGES),
                        &s->excluded                 },
                { QOS_COUNTER_STATUS_4XX,     PROGRAMS(REQUIRES_CONTENT),
                        &s->status4xx                },
                { QOS_COUNTER_STATUS_5XX,     PROGRAMS(REQUIRES_CONTENT),
                        &s->errors_status5xx         },
                { QOS_COUNTER_STATUS_UNKNOWN, PROGRAMS(REQUIRES_CONTENT),
                        &s->status_unknown           },
                { QOS_COUNTER_ERRORS_GRPC,    PROGRAMS(REQUIRES_CONTENT),
                        &s->errors_grpc              },
                { QOS_COUNTER_ERRORS_REPLIES, PROGRAMS(REQUIRES_CONTENT),
                        &s->errors_replies           },
                { QOS_COUNTER_ERRORS_RESET,   PROGRAMS(REQUIRES_ENDS),
                        &s->errors_reset             },
                { QOS_COUNTER_ERRORS_TIMEOUT, PROGRAMS(REQUIRES_ENDS),
                        &s->errors_timeout           },
                { QOS_COUNTER_CLIENT_ABORTS,  PROGRAMS(REQUIRES_ENDS),
                        &s->client_aborts            },
                { QOS_COUNTER_UNPARSED,       PROGRAMS(REQUIRES_EXCHANGES),
                        &s->unparsed.connections     },
                { QOS_COUNTER_ACCEPTED,       PROGRAMS(REQUIRES_LISTENERS, PROGRAM_STATE),
                  &s->connections.accepted     },
                { QOS_COUNTER_LISTEN_DROPS,   PROGRAMS(REQUIRES_LISTENERS, PROGRAM_LISTENERS),
                  &s->connections.listen_drops },
                { QOS_COUNTER_RETRANSMITS,    PROGRAMS(PROGRAM_RETRANSMIT),
                        &s->connections.retransmits  },
        };

        for (size_t i = 0; i < ELEMENTSOF(counters); i++)
                *counters[i].value = programs_attached(programs, counters[i].needs) ?
                                     reading->cells[counters[i].cell] : ABSENT;
        /* Connections found when first read from lack the bytes before */
        s->bytes_in = programs_attached(programs, PROGRAMS(PROGRAM_INGRESS, PROGRAM_FIND_SOCKETS)) ?
                                        window_get_bytes_in(reading) : ABSENT;
        s->bytes_out = programs_attached(programs, PROGRAMS(PROGRAM_EGRESS)) ?
                       window_get_bytes_out(reading) : ABSENT;
        s->unparsed.bytes = programs_attached(programs, PROGRAMS(REQUIRES_EXCHANGES)) ?
                            reading->sums[QOS_SUM_UNPARSED_IN] +
                            reading->sums[QOS_SUM_UNPARSED_OUT] : ABSENT;
        s->unparsed.share = NAN;
}

const ServerDistribution server_distributions[QOS_DISTRIBUTIONS] = {
        [QOS_LATENCY]    = { "requests.server.latency", PROGRAMS(REQUIRES_ARRIVALS),
                             offsetof(Server, latency) },
        [QOS_FIRST_BYTE] = { "requests.server.firstByte", PROGRAMS(REQUIRES_ARRIVALS),
                             offsetof(Server, first_byte) },
        [QOS_RECEIVE]    = { "requests.server.receive", PROGRAMS(REQUIRES_ARRIVALS),
                             offsetof(Server, receive) },
        [QOS_QUEUE]      = { "requests.server.queue", PROGRAMS(REQUIRES_ARRIVALS),
                             offsetof(Server, queue) },
        [QOS_SERVICE]    = { "requests.server.service", PROGRAMS(REQUIRES_EXCHANGES),
                             offsetof(Server, service) },
        [QOS_ANSWER]     = { "requests.server.answer", PROGRAMS(REQUIRES_EXCHANGES),
                             offsetof(Server, answer) },
};

/* Thread states during requests. */
static void service_fill(const WindowReading *reading, Bitmap programs, Server *s) {
        const uint64_t *sums = reading->sums + QOS_SUM_STATES;
        uint64_t attributed = reading->sums[QOS_SUM_ATTRIBUTED];
        double all = 0;

        /* Clocks differ by microseconds; and requests are attributed slightly later than counted */
        for (unsigned i = QOS_STATE_RUNNING; i < QOS_STATES; i++)
                all += MAX((int64_t) sums[i], INT64_C(0));
        if (s->count > 0)
                s->service_states.attributed = (double) MIN(attributed, s->count) / s->count;
        for (unsigned i = QOS_STATE_RUNNING; i < QOS_STATES; i++)
                s->service_states.shares[i] = attributed > 0 &&
                                              all > 0 ? MAX((int64_t) sums[i], INT64_C(0)) / all : NAN;
        if (programs_attached(programs, PROGRAMS(PROGRAM_CPU_WAKING)) && attributed > 0 && all > 0)
                s->service_states.blocked_by_requests = fmin((double) sums[QOS_STATE_BLOCKED_BY_REQUESTS] /
                                                             all, 1);
}

void metrics_fill(const UnitReading *r, const WindowReading *reading, unsigned distributions, Metrics *ret) {
        Bitmap programs = r->programs;
        Server *s = &ret->requests.server;
        unsigned minimum = r->unit->manager->config.minimum_samples;
        bool overlapping;

        counters_fill(r, reading, ret);
        window_classify(reading->cells[QOS_COUNTER_OVERLAPS], window_is_incomplete(reading),
                &ret->requests);
        overlapping = ret->requests.quality == QUALITY_OVERLAPPING;

        for (enum qos_distribution d = 0; d < QOS_DISTRIBUTIONS; d++) {
                Distribution *value = (Distribution*) ((char*) s + server_distributions[d].offset);

                if (distributions & 1U << d && programs_attached(programs, server_distributions[d].needs) &&
                    !overlapping)
                        window_get_distribution(reading, d, minimum, value);
                else
                        distribution_set_absent(value);
        }

        s->service_states.attributed = s->service_states.blocked_by_requests = NAN;
        for (unsigned i = QOS_STATE_RUNNING; i < QOS_STATES; i++)
                s->service_states.shares[i] = NAN;
        if (r->unit->contention.probes & PROBE_CPU &&
            programs_attached(programs, PROGRAMS(REQUIRES_STATES, REQUIRES_EXCHANGES)) && !overlapping)
                service_fill(reading, programs, s);

        s->rate = s->count == ABSENT || reading->covered == 0 ? NAN :
                  s->count * (double) NSEC_PER_SEC / reading->covered;

        gauges_fill(&r->gauges, s);
        client_set_absent(&ret->requests.client); /* set by rows_get_client(), if needed */
}

#define REQUIRES_RECLAIM PROGRAM_RECLAIM_BEGIN, PROGRAM_RECLAIM_END, PROGRAM_LIMIT_BEGIN, \
                         PROGRAM_LIMIT_END

/* ---- contention --------------------------------------------------------------------------------------- */

void contention_set_absent(Metrics *ret) {
        for (const Metric *metric = metric_table; metric < metric_table + metric_table_size; metric++)
                if (metric->offset >= offsetof(Metrics, contention) &&
                    metric->offset < offsetof(Metrics, contention) + sizeof(Contention))
                        metric_set_absent(metric, ret);
}

void states_fill(const ContentionReading *reading, Bitmap programs, unsigned minimum, bool cells,
                 Contention *c) {
        if (!programs_attached(programs, PROGRAMS(REQUIRES_STATES)))
                return;

        c->thread_time = c->switches_voluntary = 0;
        for (unsigned i = QOS_STATE_RUNNING; i < QOS_STATES; i++) {
                c->time[i] = reading->counts.times[i];
                c->thread_time += c->time[i];
                c->threads[i] = reading->covered > 0 ? (double) c->time[i] / reading->covered : NAN;
        }
        for (unsigned i = QOS_STATE_RUNNING; i < QOS_STATES; i++)
                c->shares[i] = c->thread_time > 0 ? (double) c->time[i] / c->thread_time : NAN;
        for (unsigned i = QOS_STATE_LOCK; i < QOS_STATES; i++) {
                c->waits[i] = reading->counts.counters[QOS_CONTENTION_CPU_WAITS + i];
                c->switches_voluntary += c->waits[i];
        }
        c->switches_involuntary = reading->counts.counters[QOS_CONTENTION_CPU_INVOLUNTARY];
        c->migrations = reading->counts.counters[QOS_CONTENTION_CPU_MIGRATIONS];
        c->wake_ups = reading->counts.counters[QOS_CONTENTION_CPU_WAKE_UPS];
        if (programs_attached(programs, PROGRAMS(PROGRAM_CPU_WAKING)))
                c->futex_wakes = reading->counts.counters[QOS_CONTENTION_CPU_FUTEX_WAKES];
        if (cells)
                contention_get_distribution(reading, QOS_RUN_QUEUE_LATENCY, minimum, &c->run_queue_latency);
}

/* The serving clock requires that both ends of a request are seen as they happen, as on TCP. */
bool clock_is_whole(const UnitReading *r, const WindowReading *reading) {
        return reading->cells[QOS_COUNTER_UNIX] == 0 && reading->cells[QOS_COUNTER_UDP] == 0 &&
                !r->gauges.not_tcp;
}

static void serving_fill(const ContentionReading *reading, Bitmap programs, Contention *c) {
        if (!programs_attached(programs, PROGRAMS(REQUIRES_STATES, REQUIRES_CLOCK)))
                return;

        /* Whether descendants have served concurrently is unknown */
        if (reading->n_serving <= 1 && reading->covered > 0)
                c->serving.share = (double) reading->counts.served / reading->covered;
        c->serving.thread_time = 0;
        for (unsigned i = QOS_STATE_RUNNING; i < QOS_STATES; i++)
                c->serving.thread_time += reading->counts.serving[i];
        for (unsigned i = QOS_STATE_RUNNING; i < QOS_STATES; i++)
                c->serving.shares[i] = c->serving.thread_time > 0 ? (double) reading->counts.serving[i] /
                                       c->serving.thread_time : NAN;
}

static void block_fill(const ContentionReading *reading, Bitmap programs, unsigned minimum, bool writeback,
                       Block *b) {
        if (!programs_attached(programs, PROGRAMS(REQUIRES_BLOCK)))
                return;

        b->counts = (BlockCounts) {};
        for (unsigned row = 0; row < QOS_BLOCK_ROWS; row++)
                contention_add_block(reading, row, &b->counts);
        b->sectors = (b->counts.bytes[QOS_BLOCK_READS] + b->counts.bytes[QOS_BLOCK_WRITES] +
                      b->counts.bytes[QOS_BLOCK_DISCARDS]) / 512;
        if (writeback)
                b->writeback_bytes = reading->counts.sums[QOS_BLOCK_WRITEBACK_BYTES];
        contention_get_distribution(reading, QOS_BLOCK_READ_QUEUE, minimum, &b->read_queue);
        contention_get_distribution(reading, QOS_BLOCK_READ_DEVICE, minimum, &b->read_device);
        contention_get_distribution(reading, QOS_BLOCK_WRITE_QUEUE, minimum, &b->write_queue);
        contention_get_distribution(reading, QOS_BLOCK_WRITE_DEVICE, minimum, &b->write_device);
}

static void memory_fill(const ContentionReading *reading, Bitmap programs, Memory *m) {
        const ContentionCounts *counts = &reading->counts;

        if (programs_attached(programs, PROGRAMS(REQUIRES_FAULTS))) {
                m->minor_faults = counts->cells[QOS_MEMORY_MINOR_FAULTS];
                m->major_faults = counts->cells[QOS_MEMORY_MAJOR_FAULTS];
        }
        if (programs_attached(programs, PROGRAMS(PROGRAM_FAULT_BEGIN, PROGRAM_FAULT_END))) {
                m->minor_fault_time = counts->sums[QOS_MEMORY_MINOR_NSEC];
                m->major_fault_time = counts->sums[QOS_MEMORY_MAJOR_NSEC];
        }
        if (programs_attached(programs, PROGRAMS(REQUIRES_RECLAIM))) {
                m->reclaims = counts->cells[QOS_MEMORY_RECLAIMS];
                m->reclaim_time = counts->sums[QOS_MEMORY_RECLAIM_NSEC];
        }
        if (programs_attached(programs, PROGRAMS(PROGRAM_THROTTLE))) {
                m->dirty_throttles = counts->cells[QOS_MEMORY_THROTTLES];
                m->dirty_throttle_time = counts->sums[QOS_MEMORY_THROTTLE_NSEC];
        }
        if (programs_attached(programs, PROGRAMS(PROGRAM_OOM)))
                m->oom_kills = counts->cells[QOS_MEMORY_OOM_KILLS];
}

static uint64_t usec_to_nsec(uint64_t usec) {
        return usec == ABSENT ? ABSENT : usec * NSEC_PER_USEC;
}

static void usage_fill(const Unit *u, uint64_t window, Contention *c) {
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

void contention_fill_read(const UnitReading *r, const ContentionReading *reading, uint64_t window,
                          bool cells, bool clock, Contention *c) {
        const Unit *u = r->unit;
        Bitmap programs = r->programs;
        unsigned minimum = u->manager->config.minimum_samples;

        c->covered = reading->covered;
        if (u->contention.probes & PROBE_CPU)
                states_fill(reading, programs, minimum, cells, c);
        if (clock && u->contention.probes & PROBE_CPU)
                serving_fill(reading, programs, c);
        if (cells && u->contention.probes & PROBE_BLOCK)
                block_fill(reading, programs, minimum, r->writeback, &c->block);
        if (cells && u->contention.probes & PROBE_MEMORY)
                memory_fill(reading, programs, &c->memory);
        usage_fill(u, window, c);
}

/* ---- overhead ----------------------------------------------------------------------------------------- */

uint64_t contention_get_cost(const ContentionReading *reading) {
        return reading->counts.counters[QOS_CONTENTION_CPU_COST] + reading->counts.sums[QOS_COST_NSEC];
}

/* In CPUs. Contention maps exist since the attach or later, and cover no more than the window of
 * requests. */
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

static int device_compare(const void *a, const void *b) {
        const BlockDevice *x = a, *y = b;
        uint64_t p = x->counts.queue_time + x->counts.device_time, q = y->counts.queue_time +
                y->counts.device_time;

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
                if (d->counts.queue_time + d->counts.device_time + device_get_bytes(&d->counts) == 0)
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

        return x->in_flight == y->in_flight &&
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
} ReadingWindow;

static void reading_window_fill(const UnitReading *r, const ReadingWindow *w, bool contention,
                                Metrics *ret) {
        metrics_fill(r, &w->requests, WINDOW_ALL_DISTRIBUTIONS, ret);
        rows_get_client(r->unit, w->rows, &ret->requests.client);
        contention_set_absent(ret);
        if (contention)
                contention_fill_read(r, &w->contention, w->window, /* cells= */ true,
                                     clock_is_whole(r, &w->requests), &ret->contention);
}

/* Whether nothing has happened since the last snapshot, and nothing is in flight that ages. */
static bool cache_is_valid(const UnitCache *cache, const Snapshot *s, uint64_t signature, uint64_t boundary,
                           uint64_t now) {
        return cache->at != 0 && cache->snapshot.window == s->window && cache->signature == signature &&
                cache->boundary == boundary && now < cache->at + SNAPSHOT_AGE_NSEC &&
                s->metrics.requests.server.in_flight == 0 &&
                gauges_equal(&s->metrics, &cache->snapshot.metrics);
}

void snapshot_read(Unit *u, const Moment *at, uint64_t window, Snapshot *ret, RowsReading *ret_rows,
                   TotalReading *ret_total) {
        uint64_t now = at ? at->monotonic : now_nsec(CLOCK_MONOTONIC);
        RowsReading rows_total;
        ReadingWindow part, total;
        bool contention;
        UnitReading reading;
        Snapshot s = {
                .window = window,
                .timestamp = at ? at->realtime : now_nsec(CLOCK_REALTIME),
                .cost_share = NAN,
                .drops = 0, /* without data, nothing is lost */
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
        contention = unit_reading_get_contention(&reading, /* cells= */ true) &&
                contention_read(&reading.contention, now, window, &part.contention, &total.contention) >= 0;

        s.covered = part.requests.covered;
        s.drops = total.requests.cells[QOS_COUNTER_DROPS] +
                total.requests.cells[QOS_COUNTER_DROPS_CONTENTION];
        reading_window_fill(&reading, &part, contention, &s.metrics);
        reading_window_fill(&reading, &total, contention, &s.totals);
        rows_fill(u, part.rows, &s);
        if (contention) {
                s.cost_share = cost_get_share(&part.requests, contention_get_cost(&part.contention));
                devices_fill(u, &part.contention, now, window, &s);
                total.requests.signature ^= total.contention.signature;
        } else if (!u->contention.map)
                s.cost_share = cost_get_share(&part.requests, 0);

        if (ret_total) {
                const Selector peers = { .client = true };
                Row row;

                ret_total->requests = total.requests;
                ret_total->contention = contention ? total.contention : (ContentionReading) {};
                rows_sum(u, total.rows, &peers, &ret_total->client, &row);
                if (total.rows->peers_known)
                        ret_total->client = total.rows->peers;
        }

        /* With its seq */
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

/* Run time of contention programs so far; ABSENT: not readable. */
static uint64_t unit_get_contention_cost(Unit *u, uint64_t now) {
        ContentionSource buffer[UNITS_MAX_LIMIT];
        ContentionReading reading;
        ContentionSources sources;

        if (!unit_get_contention_sources(u, buffer, &sources))
                return 0;
        return contention_read_some(&sources, now, WINDOW_TOTAL, /* cells= */ true, &reading) < 0 ? ABSENT :
               contention_get_cost(&reading);
}

void unit_mark(Unit *u, WindowMark *ret, uint64_t *ret_cost) {
        uint64_t now = now_nsec(CLOCK_MONOTONIC);
        WindowSource buffer[UNITS_MAX_LIMIT];
        WindowSources sources;

        assert(u->view);

        missed_refresh(u->manager, now);
        unit_get_sources(u, buffer, &sources);
        window_mark(&sources, now, ret);
        *ret_cost = unit_get_contention_cost(u, now);
}

void unit_get_snapshot_since(Unit *u, const WindowMark *mark, uint64_t cost, Snapshot *ret) {
        uint64_t now = now_nsec(CLOCK_MONOTONIC), overhead_now;
        WindowReading since, total;
        UnitReading reading;

        assert(u->view); /* not removed while the unit is attached */

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
        metrics_fill(&reading, &since, WINDOW_ALL_DISTRIBUTIONS, &ret->metrics);
        metrics_fill(&reading, &total, WINDOW_ALL_DISTRIBUTIONS, &ret->totals);
        contention_set_absent(&ret->metrics);
        contention_set_absent(&ret->totals);
        overhead_now = unit_get_contention_cost(u, now);
        if (cost != ABSENT && overhead_now != ABSENT)
                /* Maps may have been destroyed or created since */
                ret->cost_share = cost_get_share(&since, overhead_now >= cost
                        ? overhead_now - cost : overhead_now);
}

void unit_get_measured(Unit *u, const char **ret) {
        Bitmap programs = probe_get_programs(u->manager->probe);

        for (enum qos_distribution d = 0; d < QOS_DISTRIBUTIONS; d++)
                ret[d] = u->view && programs_attached(programs, server_distributions[d].needs) ?
                         server_distributions[d].name : NULL;
}

int unit_get_degraded_reason(const Unit *u, char **ret) {
        const struct {
                ProbeMask probe;
                const char *name;
                const Program *needs;   /* required for any useful metrics */
        } table[] = {
                { PROBE_CPU,    "cpu",    PROGRAMS(REQUIRES_STATES) },
                { PROBE_BLOCK,  "block",  PROGRAMS(REQUIRES_BLOCK)  },
                { PROBE_MEMORY, "memory", PROGRAMS(REQUIRES_FAULTS) },
        };
        Bitmap programs = probe_get_programs(u->manager->probe);
        unsigned missing = 0;
        char *reason = NULL;
        int r = 0;

        /* Programs that not all kernels support do not degrade the unit. Nor do gauge corrections: these are
         * needed only after a skipped run, which is part of the unit's drops */
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
                if (u->contention.probes & table[i].probe && !programs_attached(programs, table[i].needs))
                        r = asprintf(&reason, "%s: programs not available, see 'qosctl probes'",
                                     table[i].name);
        if (r < 0)
                return -ENOMEM;

        *ret = reason;
        return 0;
}
