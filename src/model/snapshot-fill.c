/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <math.h>

#include "snapshot-fill.h"

/* ---- gauges ------------------------------------------------------------------------------------------- */

/* Sum over all maps. Clamped, as concurrent updates may be seen in the wrong order. */
static uint64_t gauge(const WindowSources *w, size_t offset) {
        int64_t n = 0;

        for (size_t i = 0; i < w->n; i++)
                n += __atomic_load_n((const int64_t*) ((const char*) w->sources[i].map + offset),
                                     __ATOMIC_RELAXED);
        return n > 0 ? (uint64_t) n : 0;
}

#define GAUGE(w, member) gauge(w, offsetof(struct qos_unit_map, member))

/* Number of requests without any response byte. *ret_oldest_at: lowered to the time of the oldest one. */
static uint64_t waiting_count(const struct qos_waiting *w, uint64_t *ret_oldest_at) {
        uint64_t n = 0;

        for (unsigned bin = 0; bin < QOS_WAITING_BINS; bin++)
                n += w->ages[bin];
        if (n > 0)
                *ret_oldest_at = MIN(*ret_oldest_at, (uint64_t) w->oldest_at);
        return n;
}

void reading_get_gauges(ReadingContext *c, const WindowSources *sources, const ReadingSessions *from) {
        /* Maps without a valid session have no listeners, or no requests in flight */
        uint64_t queue = 0, queue_max = 0, counted = 0, waiting = 0, intended = 0, oldest_at = UINT64_MAX,
                oldest_waiting_at = UINT64_MAX;
        bool unknown = false; /* a map only has requests that have arrived since the iterator ran */
        ReadingGauges *g = &c->gauges;

        *g = (ReadingGauges) {
                .open = ABSENT,
                .accept_queue = ABSENT,
                .accept_queue_max = ABSENT,
                .in_flight = ABSENT,
                .oldest_in_flight = ABSENT,
                .waiting = ABSENT,
                .oldest_waiting = ABSENT,
                .intended = ABSENT,
        };

        for (size_t i = 0; i < sources->n; i++) {
                const struct qos_unit_map *map = sources->sources[i].map;

                if (map->listeners_session == from->listeners) {
                        queue += map->accept_queue;
                        queue_max += map->accept_queue_max;
                }
                if (__atomic_load_n(&map->in_flight, __ATOMIC_RELAXED) > 0) {
                        if (map->oldest_session == from->oldest && from->oldest != 0) {
                                oldest_at = MIN(oldest_at, (uint64_t) map->oldest_at);
                                intended += map->intending;
                                waiting += waiting_count(&map->waiting, &oldest_waiting_at);
                        } else
                                unknown = true;
                }

                /* Requests in flight counted by iterators */
                for (enum qos_gauge k = 0; k < QOS_GAUGES; k++)
                        if (from->gauges[k] != 0 && map->gauges[k].session == from->gauges[k]) {
                                counted += map->gauges[k].in_flight;
                                if (map->gauges[k].in_flight > 0) {
                                        g->not_tcp = true;
                                        oldest_at = MIN(oldest_at, (uint64_t) map->gauges[k].oldest_at);
                                }
                                waiting += waiting_count(&map->gauges[k].waiting, &oldest_waiting_at);
                        }
        }

        if (is_measured(c->measured, MEASURED_OPEN))
                g->open = GAUGE(sources, open);
        if (from->listeners != 0 && is_measured(c->measured, MEASURED_ACCEPT_QUEUES)) {
                g->accept_queue = queue;
                g->accept_queue_max = queue_max;
        }

        if (!is_measured(c->measured, MEASURED_IN_FLIGHT))
                return;
        g->in_flight = GAUGE(sources, in_flight) + counted;
        if (g->in_flight > 0 && oldest_at != UINT64_MAX)
                g->oldest_in_flight = c->now > oldest_at ? c->now - oldest_at : 0;
        /* Requests that have arrived since the iterator ran are younger than all others */
        if (waiting > 0 || !unknown)
                g->waiting = MIN(waiting, g->in_flight);
        if (intended > 0 || !unknown)
                g->intended = MIN(intended, g->in_flight);
        if (waiting > 0)
                g->oldest_waiting = c->now > oldest_waiting_at ? c->now - oldest_waiting_at : 0;
}

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
        s->intended.in_flight = g->intended;
}

/* Counters of a window that are metrics themselves. */
static const struct {
        enum qos_counter cell;
        Measured needs;
        size_t offset;          /* in struct Server */
} server_counters[] = {
        { QOS_COUNTER_COUNT,          MEASURED_EXCHANGES,    offsetof(Server, count) },
        { QOS_COUNTER_TLS,            MEASURED_CONTENT,      offsetof(Server, protocol_tls) },
        { QOS_COUNTER_UNIX,           MEASURED_UNIX,         offsetof(Server, protocol_unix) },
        { QOS_COUNTER_UDP,            MEASURED_UDP,          offsetof(Server, protocol_udp) },
        { QOS_COUNTER_WAITS,          MEASURED_CONTENT,      offsetof(Server, blocking) },
        { QOS_COUNTER_INTENDED,       MEASURED_CONTENT,      offsetof(Server, intended.count) },
        { QOS_COUNTER_STREAMS,        MEASURED_CONTENT,      offsetof(Server, streams) },
        { QOS_COUNTER_EXCLUDED,       MEASURED_EXCHANGES,    offsetof(Server, excluded) },
        { QOS_COUNTER_STATUS_4XX,     MEASURED_CONTENT,      offsetof(Server, status4xx) },
        { QOS_COUNTER_STATUS_5XX,     MEASURED_CONTENT,      offsetof(Server, errors_status5xx) },
        { QOS_COUNTER_STATUS_UNKNOWN, MEASURED_CONTENT,      offsetof(Server, status_unknown) },
        { QOS_COUNTER_ERRORS_GRPC,    MEASURED_CONTENT,      offsetof(Server, errors_grpc) },
        { QOS_COUNTER_ERRORS_REPLIES, MEASURED_CONTENT,      offsetof(Server, errors_replies) },
        { QOS_COUNTER_ERRORS_RESET,   MEASURED_ENDS,         offsetof(Server, errors_reset) },
        { QOS_COUNTER_ERRORS_TIMEOUT, MEASURED_ENDS,         offsetof(Server, errors_timeout) },
        { QOS_COUNTER_CLIENT_ABORTS,  MEASURED_ENDS,         offsetof(Server, client_aborts) },
        { QOS_COUNTER_UNPARSED,       MEASURED_EXCHANGES,    offsetof(Server, unparsed.connections) },
        { QOS_COUNTER_ACCEPTED,       MEASURED_ACCEPTED,     offsetof(Server, connections.accepted) },
        { QOS_COUNTER_LISTEN_DROPS,   MEASURED_LISTEN_DROPS, offsetof(Server, connections.listen_drops) },
        { QOS_COUNTER_RETRANSMITS,    MEASURED_RETRANSMITS,  offsetof(Server, connections.retransmits) },
};

void counters_fill(const ReadingContext *c, const WindowReading *reading, Metrics *ret) {
        Server *s = &ret->requests.server;

        for (size_t i = 0; i < ELEMENTSOF(server_counters); i++)
                *(uint64_t*) ((char*) s + server_counters[i].offset) =
                        is_measured(c->measured, server_counters[i].needs) ?
                        reading->cells[server_counters[i].cell] : ABSENT;
        for (size_t i = 0; i < PARSED_PROTOCOLS; i++)
                s->parsed[i] = is_measured(c->measured, MEASURED_CONTENT) ?
                               reading->cells[QOS_COUNTER_HTTP1 + i] : ABSENT;
        s->bytes_in = is_measured(c->measured, MEASURED_BYTES_IN) ? window_get_bytes_in(reading) : ABSENT;
        s->bytes_out = is_measured(c->measured, MEASURED_BYTES_OUT) ? window_get_bytes_out(reading) : ABSENT;
        s->unparsed.bytes = is_measured(c->measured, MEASURED_EXCHANGES) ?
                            reading->sums[QOS_SUM_UNPARSED_IN] +
                            reading->sums[QOS_SUM_UNPARSED_OUT] : ABSENT;
        s->unparsed.share = NAN;
        s->intended.latency = s->intended.count == ABSENT || s->intended.count == 0 ? ABSENT :
                              reading->sums[QOS_SUM_INTENDED] / s->intended.count;
}

const ServerDistribution server_distributions[QOS_DISTRIBUTIONS] = {
        [QOS_LATENCY]    = { "requests.server.latency", MEASURED_ARRIVALS, offsetof(Server, latency) },
        [QOS_FIRST_BYTE] = { "requests.server.firstByte", MEASURED_ARRIVALS, offsetof(Server, first_byte) },
        [QOS_RECEIVE]    = { "requests.server.receive", MEASURED_ARRIVALS, offsetof(Server, receive) },
        [QOS_QUEUE]      = { "requests.server.queue", MEASURED_ARRIVALS, offsetof(Server, queue) },
        [QOS_SERVICE]    = { "requests.server.service", MEASURED_EXCHANGES, offsetof(Server, service) },
        [QOS_ANSWER]     = { "requests.server.answer", MEASURED_EXCHANGES, offsetof(Server, answer) },
};

/* Thread states during requests. */
static void service_fill(const ReadingContext *c, const WindowReading *reading, Server *s) {
        const uint64_t *sums = reading->sums + QOS_SUM_STATES;
        uint64_t attributed = reading->sums[QOS_SUM_ATTRIBUTED];
        double all = 0;

        /* Times may be negative, as clocks differ by microseconds, and requests are attributed slightly
         * later than counted */
        for (unsigned i = QOS_STATE_RUNNING; i < QOS_STATES; i++)
                all += MAX((int64_t) sums[i], INT64_C(0));
        if (s->count > 0)
                s->service_states.attributed = (double) MIN(attributed, s->count) / s->count;
        for (unsigned i = QOS_STATE_RUNNING; i < QOS_STATES; i++)
                s->service_states.shares[i] = attributed > 0 &&
                                              all > 0 ? MAX((int64_t) sums[i], INT64_C(0)) / all : NAN;
        if (is_measured(c->measured, MEASURED_WAKERS) && attributed > 0 && all > 0)
                s->service_states.blocked_by_requests = fmin((double) sums[QOS_STATE_BLOCKED_BY_REQUESTS] /
                                                             all, 1);
}

void metrics_fill(const ReadingContext *c, const WindowReading *reading, unsigned distributions,
                  Metrics *ret) {
        Server *s = &ret->requests.server;
        bool overlapping;

        counters_fill(c, reading, ret);
        window_classify(reading->cells[QOS_COUNTER_OVERLAPS], window_is_incomplete(reading), &ret->requests);
        overlapping = ret->requests.quality == QUALITY_OVERLAPPING;

        for (enum qos_distribution d = 0; d < QOS_DISTRIBUTIONS; d++) {
                Distribution *value = (Distribution*) ((char*) s + server_distributions[d].offset);

                if (distributions & 1U << d && is_measured(c->measured, server_distributions[d].needs) &&
                    !overlapping)
                        window_get_distribution(reading, d, c->minimum_samples, value);
                else
                        distribution_set_absent(value);
        }

        s->service_states.attributed = s->service_states.blocked_by_requests = NAN;
        for (unsigned i = QOS_STATE_RUNNING; i < QOS_STATES; i++)
                s->service_states.shares[i] = NAN;
        if (c->probes & PROBE_CPU &&
            is_measured(c->measured, MEASURED_STATES) && is_measured(c->measured, MEASURED_EXCHANGES) &&
            !overlapping)
                service_fill(c, reading, s);

        s->rate = s->count == ABSENT || reading->covered == 0 ? NAN :
                  s->count * (double) NSEC_PER_SEC / reading->covered;

        gauges_fill(&c->gauges, s);
        client_set_absent(&ret->requests.client); /* set by rows_get_client(), if needed */
}

/* ---- contention --------------------------------------------------------------------------------------- */

/* Sets the metrics of a member of struct Metrics to absent. */
static void metrics_set_part_absent(Metrics *ret, size_t offset, size_t size) {
        for (const Metric *metric = metric_table; metric < metric_table + metric_table_size; metric++)
                if (metric->offset >= offset && metric->offset < offset + size)
                        metric_set_absent(metric, ret);
}

void contention_set_absent(Metrics *ret) {
        metrics_set_part_absent(ret, offsetof(Metrics, contention), sizeof(Contention));
}

void states_fill(const ReadingContext *c, const ContentionReading *reading, bool cells, Contention *ret) {
        if (!is_measured(c->measured, MEASURED_STATES))
                return;

        ret->thread_time = ret->switches_voluntary = 0;
        for (unsigned i = QOS_STATE_RUNNING; i < QOS_STATES; i++) {
                ret->time[i] = reading->counts.times[i];
                ret->thread_time += ret->time[i];
                ret->threads[i] = reading->covered > 0 ? (double) ret->time[i] / reading->covered : NAN;
        }
        for (unsigned i = QOS_STATE_RUNNING; i < QOS_STATES; i++)
                ret->shares[i] = ret->thread_time > 0 ? (double) ret->time[i] / ret->thread_time : NAN;
        for (unsigned i = QOS_STATE_LOCK; i < QOS_STATES; i++) {
                ret->waits[i] = reading->counts.counters[QOS_CONTENTION_CPU_WAITS + i];
                ret->switches_voluntary += ret->waits[i];
        }
        ret->switches_involuntary = reading->counts.counters[QOS_CONTENTION_CPU_INVOLUNTARY];
        ret->migrations = reading->counts.counters[QOS_CONTENTION_CPU_MIGRATIONS];
        ret->wake_ups = reading->counts.counters[QOS_CONTENTION_CPU_WAKE_UPS];
        if (is_measured(c->measured, MEASURED_WAKERS))
                ret->futex_wakes = reading->counts.counters[QOS_CONTENTION_CPU_FUTEX_WAKES];
        if (cells)
                contention_get_distribution(reading, QOS_RUN_QUEUE_LATENCY, c->minimum_samples,
                                            &ret->run_queue_latency);
}

/* The serving clock requires that beginning and end of a request are observed immediately, as on TCP. */
bool clock_is_whole(const ReadingContext *c, const WindowReading *reading) {
        return reading->cells[QOS_COUNTER_UNIX] == 0 && reading->cells[QOS_COUNTER_UDP] == 0 &&
                !c->gauges.not_tcp;
}

static void serving_fill(const ReadingContext *c, const ContentionReading *reading, Contention *ret) {
        if (!is_measured(c->measured, MEASURED_STATES) || !is_measured(c->measured, MEASURED_CLOCK))
                return;

        /* Unknown for several maps, which may have served concurrently */
        if (reading->n_serving <= 1 && reading->covered > 0)
                ret->serving.share = (double) reading->counts.served / reading->covered;
        ret->serving.thread_time = 0;
        for (unsigned i = QOS_STATE_RUNNING; i < QOS_STATES; i++)
                ret->serving.thread_time += reading->counts.serving[i];
        for (unsigned i = QOS_STATE_RUNNING; i < QOS_STATES; i++)
                ret->serving.shares[i] = ret->serving.thread_time > 0 ? (double) reading->counts.serving[i] /
                                       ret->serving.thread_time : NAN;
}

static void block_fill(const ReadingContext *c, const ContentionReading *reading, Block *b) {
        if (!is_measured(c->measured, MEASURED_BLOCK))
                return;

        b->counts = (BlockCounts) {};
        for (unsigned row = 0; row < QOS_BLOCK_ROWS; row++)
                contention_add_block(reading, row, &b->counts);
        b->sectors = (b->counts.bytes[QOS_BLOCK_READS] + b->counts.bytes[QOS_BLOCK_WRITES] +
                      b->counts.bytes[QOS_BLOCK_DISCARDS]) / 512;
        if (c->writeback)
                b->writeback_bytes = reading->counts.sums[QOS_BLOCK_WRITEBACK_BYTES];
        contention_get_distribution(reading, QOS_BLOCK_READ_QUEUE, c->minimum_samples, &b->read_queue);
        contention_get_distribution(reading, QOS_BLOCK_READ_DEVICE, c->minimum_samples, &b->read_device);
        contention_get_distribution(reading, QOS_BLOCK_WRITE_QUEUE, c->minimum_samples, &b->write_queue);
        contention_get_distribution(reading, QOS_BLOCK_WRITE_DEVICE, c->minimum_samples, &b->write_device);
}

static void memory_fill(const ReadingContext *c, const ContentionReading *reading, Memory *m) {
        const ContentionCounts *counts = &reading->counts;

        if (is_measured(c->measured, MEASURED_FAULTS)) {
                m->minor_faults = counts->cells[QOS_MEMORY_MINOR_FAULTS];
                m->major_faults = counts->cells[QOS_MEMORY_MAJOR_FAULTS];
        }
        if (is_measured(c->measured, MEASURED_FAULT_TIMES)) {
                m->minor_fault_time = counts->sums[QOS_MEMORY_MINOR_NSEC];
                m->major_fault_time = counts->sums[QOS_MEMORY_MAJOR_NSEC];
        }
        if (is_measured(c->measured, MEASURED_RECLAIM)) {
                m->reclaims = counts->cells[QOS_MEMORY_RECLAIMS];
                m->reclaim_time = counts->sums[QOS_MEMORY_RECLAIM_NSEC];
        }
        if (is_measured(c->measured, MEASURED_DIRTY_THROTTLES)) {
                m->dirty_throttles = counts->cells[QOS_MEMORY_THROTTLES];
                m->dirty_throttle_time = counts->sums[QOS_MEMORY_THROTTLE_NSEC];
        }
        if (is_measured(c->measured, MEASURED_OOM))
                m->oom_kills = counts->cells[QOS_MEMORY_OOM_KILLS];
}

void contention_metrics_fill(const ReadingContext *c, const ContentionReading *reading, bool cells,
                             bool clock, Contention *ret) {
        ret->covered = reading->covered;
        if (c->probes & PROBE_CPU)
                states_fill(c, reading, cells, ret);
        if (clock && c->probes & PROBE_CPU)
                serving_fill(c, reading, ret);
        if (cells && c->probes & PROBE_BLOCK)
                block_fill(c, reading, &ret->block);
        if (cells && c->probes & PROBE_MEMORY)
                memory_fill(c, reading, &ret->memory);
}

uint64_t contention_get_cost(const ContentionReading *reading) {
        return reading->counts.counters[QOS_CONTENTION_CPU_COST] + reading->counts.sums[QOS_COST_NSEC];
}

/* ---- storage ------------------------------------------------------------------------------------------ */

void storage_set_absent(Metrics *ret) {
        metrics_set_part_absent(ret, offsetof(Metrics, storage), sizeof(Storage));
}

void storage_metrics_fill(const ReadingContext *c, const StorageReading *reading, Storage *ret) {
        const uint64_t *sums = reading->counts.sums;

        ret->covered = reading->covered;
        if (is_measured(c->measured, MEASURED_STORAGE_CALLS + QOS_STORAGE_READ)) {
                ret->in_flight = reading->in_flight;
                if (reading->in_flight > 0)
                        ret->oldest_in_flight = c->now - MIN(c->now, reading->oldest_at);
        }
        for (enum qos_storage_call call = 0; call < QOS_STORAGE_CALLS; call++) {
                bool timed = call < QOS_STORAGE_TIMED;

                if (!is_measured(c->measured, MEASURED_STORAGE_CALLS + call))
                        continue;
                *(timed ? &ret->timed[call].calls : &ret->calls[call - QOS_STORAGE_TIMED]) = (StorageCalls) {
                        .count = sums[QOS_STORAGE_COUNT + call],
                        .errors = sums[QOS_STORAGE_ERRORS + call],
                };
                if (timed)
                        storage_get_latency(reading, call, c->minimum_samples, &ret->timed[call].latency);
                if (call <= QOS_STORAGE_WRITE)
                        ret->bytes[call] = sums[QOS_STORAGE_BYTES_READ + call];
                if (call < QOS_STORAGE_DIVIDED)
                        storage_get_shares(reading, call, ret->shares[call]);
        }
        for (enum qos_storage_call call = 0; call <= QOS_STORAGE_WRITE; call++) {
                if (!is_measured(c->measured, MEASURED_STORAGE_SUBMITTED))
                        break;
                ret->submitted[call].calls = (StorageCalls) {
                        .count = sums[QOS_STORAGE_COUNT + call],
                        .errors = sums[QOS_STORAGE_ERRORS + call],
                };
                ret->submitted[call].bytes = sums[QOS_STORAGE_BYTES_READ + call];
                ret->submitted[call].time = sums[QOS_STORAGE_NSEC + call];
        }
        if (is_measured(c->measured, MEASURED_STORAGE_FUSE)) {
                ret->fuse.requests = sums[QOS_STORAGE_COUNT + QOS_STORAGE_FUSE];
                ret->fuse.time = sums[QOS_STORAGE_NSEC + QOS_STORAGE_FUSE];
        }
        if (is_measured(c->measured, MEASURED_STORAGE_UNSEEN))
                ret->unseen = sums[QOS_STORAGE_UNSEEN];
        if (is_measured(c->measured, MEASURED_STORAGE_CACHE)) {
                uint64_t looked_up = sums[QOS_STORAGE_PAGES_LOOKED_UP],
                         added = sums[QOS_STORAGE_PAGES_ADDED];

                ret->cache.looked_up = looked_up;
                ret->cache.read_in = added - MIN(added, sums[QOS_STORAGE_PAGES_CREATED]);
                ret->cache.read_ahead = MIN(ret->cache.read_in, sums[QOS_STORAGE_PAGES_AHEAD]);
                if (looked_up > 0)
                        ret->cache.hit_ratio = (double) (looked_up - MIN(looked_up, ret->cache.read_in)) /
                                               (double) looked_up;
        }
        if (is_measured(c->measured, MEASURED_STORAGE_DIRTIED))
                ret->cache.dirtied = sums[QOS_STORAGE_PAGES_DIRTIED];
        if (is_measured(c->measured, MEASURED_STORAGE_MAPPED)) {
                ret->mapped.faults = sums[QOS_STORAGE_FAULTS];
                ret->mapped.major_faults = sums[QOS_STORAGE_FAULTS_MAJOR];
        }
        if (!is_measured(c->measured, MEASURED_STORAGE_COUNTED))
                return;
        ret->counted.reads = sums[QOS_STORAGE_CALLS_READ];
        ret->counted.writes = sums[QOS_STORAGE_CALLS_WRITE];
        ret->counted.read_bytes = sums[QOS_STORAGE_CALLS_BYTES_READ];
        ret->counted.write_bytes = sums[QOS_STORAGE_CALLS_BYTES_WRITTEN];
}

/* ---- network ------------------------------------------------------------------------------------------ */

void network_set_absent(Metrics *ret) {
        metrics_set_part_absent(ret, offsetof(Metrics, network), sizeof(Network));
}

static void receiving_fill(const ReadingContext *c, const NetworkReading *reading, Network *ret) {
        unsigned n = c->minimum_samples;

        if (is_measured(c->measured, MEASURED_RECEIVING_TCP)) {
                network_get_distribution(reading, QOS_NETWORK_RECEIVING_DRIVER, n, &ret->receiving.driver);
                network_get_distribution(reading, QOS_NETWORK_RECEIVING_IP, n, &ret->receiving.ip);
                network_get_distribution(reading, QOS_NETWORK_RECEIVING_BACKLOG, n, &ret->receiving.backlog);
                ret->receiving.unstamped = reading->counts.sums[QOS_NETWORK_UNSTAMPED];
        }
        if (is_measured(c->measured, MEASURED_RECEIVING_SOCKET))
                network_get_distribution(reading, QOS_NETWORK_RECEIVING_SOCKET, n, &ret->receiving.socket);
        if (is_measured(c->measured, MEASURED_RECEIVING_TOTAL))
                network_get_distribution(reading, QOS_NETWORK_RECEIVING_TOTAL, n, &ret->receiving.total);
}

static void transmitting_fill(const ReadingContext *c, const NetworkReading *reading, Network *ret) {
        const uint64_t *nsec = reading->counts.sums + QOS_NETWORK_NSEC;
        Distribution *ip = &ret->transmitting.ip, *total = &ret->transmitting.total;
        unsigned n = c->minimum_samples;
        bool queue = is_measured(c->measured, MEASURED_TRANSMITTING_IP),
             xmit = is_measured(c->measured, MEASURED_TRANSMITTING_TOTAL);

        if (queue) {
                network_get_distribution(reading, QOS_NETWORK_TRANSMITTING_IP, n, ip);
                network_get_distribution(reading, QOS_NETWORK_TRANSMITTING_PACING, n,
                                         &ret->transmitting.pacing);
        }
        if (xmit)
                network_get_distribution(reading, QOS_NETWORK_TRANSMITTING_TOTAL, n, total);
        if (!queue || !xmit || ip->count == 0 || total->count == 0)
                return;
        /* At a boundary of the window, segments may be between both */
        ret->transmitting.qdisc = nsec[QOS_NETWORK_TRANSMITTING_TOTAL] / total->count;
        ret->transmitting.qdisc -= MIN(ret->transmitting.qdisc,
                                       nsec[QOS_NETWORK_TRANSMITTING_IP] / ip->count);
}

void network_metrics_fill(const ReadingContext *c, const NetworkReading *reading, Network *ret) {
        const uint64_t *sums = reading->counts.sums, *flows = sums + QOS_NETWORK_FLOWS;
        double alive, limited;

        ret->covered = reading->covered;
        if (is_measured(c->measured, MEASURED_RECOVERIES))
                ret->recoveries = sums[QOS_NETWORK_RECOVERIES];
        if (is_measured(c->measured, MEASURED_RTT))
                network_get_distribution(reading, QOS_NETWORK_RTT, c->minimum_samples, &ret->rtt);
        receiving_fill(c, reading, ret);
        if (is_measured(c->measured, MEASURED_RTT))
                network_get_distribution(reading, QOS_NETWORK_PORTS, c->minimum_samples,
                                         &ret->connecting.ports);
        if (is_measured(c->measured, MEASURED_DROPS))
                ret->drops = sums_add(sums + QOS_NETWORK_DROPS, QOS_DROP_ROWS);
        transmitting_fill(c, reading, ret);
        if (is_measured(c->measured, MEASURED_RTT_PARTS)) {
                network_get_distribution(reading, QOS_NETWORK_RTT_KERNEL, c->minimum_samples,
                                         &ret->rtt_kernel);
                network_get_distribution(reading, QOS_NETWORK_RTT_WIRE, c->minimum_samples, &ret->rtt_wire);
        }
        if (!is_measured(c->measured, MEASURED_FLOWS))
                return;
        for (unsigned i = 0; i < QOS_FLOW_TICKS; i++)
                ret->flows[i] = flows[i];
        network_get_distribution(reading, QOS_NETWORK_DURATION, c->minimum_samples, &ret->duration);
        network_get_distribution(reading, QOS_NETWORK_HANDSHAKE, c->minimum_samples,
                                 &ret->connecting.handshake);
        ret->connecting.syn_retransmits = sums[QOS_NETWORK_SYN_RETRANSMITS];
        ret->connecting.ports_exhausted = sums[QOS_NETWORK_PORTS_EXHAUSTED];

        /* What TCP counts may be a jiffy more than the time between two readings of it */
        limited = (double) (flows[QOS_FLOW_TICKS_BUSY] + flows[QOS_FLOW_TICKS_PEER_WINDOW] +
                            flows[QOS_FLOW_TICKS_SEND_BUFFER]);
        alive = fmax((double) flows[QOS_FLOW_TICKS], limited);
        if (alive <= 0)
                return;
        ret->limited_by.network = (double) flows[QOS_FLOW_TICKS_BUSY] / alive;
        ret->limited_by.peer_window = (double) flows[QOS_FLOW_TICKS_PEER_WINDOW] / alive;
        ret->limited_by.send_buffer = (double) flows[QOS_FLOW_TICKS_SEND_BUFFER] / alive;
        ret->limited_by.application = (alive - limited) / alive;
}

/* Fraction of a window by which the times covered by two probes may differ. */
#define COVERED_SLACK 100

void amplification_fill(const Block *block, uint64_t block_covered, Storage *storage) {
        uint64_t covered = MAX(block_covered, storage->covered);

        /* The probes were attached at different times */
        if (covered - MIN(block_covered, storage->covered) > covered / COVERED_SLACK)
                return;
        for (unsigned call = 0; call <= QOS_STORAGE_WRITE; call++) {
                uint64_t device = block->counts.bytes[call == QOS_STORAGE_READ ? QOS_BLOCK_READS :
                                                      QOS_BLOCK_WRITES];

                if (device != ABSENT && storage->bytes[call] != ABSENT && storage->bytes[call] > 0)
                        storage->amplification[call] = (double) device / (double) storage->bytes[call];
        }
}
