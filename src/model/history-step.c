/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Metrics of a single step. */

#include <math.h>

#include "history-internal.h"
#include "mounts.h"
#include "snapshot-fill.h"

static const struct {
        const char *name;
        enum qos_distribution distribution;
        size_t offset;
} distributions[HISTORY_DISTRIBUTIONS] = {
        { "requests.server.firstByte", QOS_FIRST_BYTE, offsetof(Metrics, requests.server.first_byte) },
        { "requests.server.latency",   QOS_LATENCY,    offsetof(Metrics, requests.server.latency)    },
};

/* Gauges with a known value at the end of a step. */
static const size_t gauges[] = {
        offsetof(Metrics, requests.server.in_flight),
        offsetof(Metrics, requests.server.connections.open),
};

static const uint64_t level_nsec[_HISTORY_LEVEL_MAX] = {
        [HISTORY_FINE]   = HISTORY_FINE_NSEC,
        [HISTORY_COARSE] = HISTORY_COARSE_NSEC,
};

uint64_t history_level_nsec(HistoryLevel level) {
        return level_nsec[level];
}

/* ---- amounts ------------------------------------------------------------------------------------------ */

/* Keeps amounts of the first reading of a step that later readings no longer have. */
void amounts_keep(uint64_t *amounts, const uint64_t *before) {
        static const struct {
                HistoryAmount covered, end;
        } groups[] = {
                { HISTORY_CLIENT_COVERED,  HISTORY_QUOTA_COVERED   },
                { HISTORY_QUOTA_COVERED,   HISTORY_CPU_COVERED     },
                { HISTORY_CPU_COVERED,     HISTORY_BLOCK_COVERED   },
                { HISTORY_BLOCK_COVERED,   HISTORY_MEMORY_COVERED  },
                { HISTORY_MEMORY_COVERED,  HISTORY_STORAGE_COVERED },
                { HISTORY_STORAGE_COVERED, HISTORY_NETWORK_COVERED },
                { HISTORY_NETWORK_COVERED, _HISTORY_AMOUNT_MAX     },
        };

        for (size_t i = 0; i < ELEMENTSOF(groups); i++)
                if (amounts[groups[i].covered] == 0)
                        memcpy(amounts + groups[i].covered, before + groups[i].covered,
                               (groups[i].end - groups[i].covered) * sizeof(*amounts));
}

static void mean_get(const HistoryStep *s, HistoryAmount count, HistoryAmount time, Distribution *ret) {
        ret->count = s->amounts[count];
        if (ret->count > 0)
                ret->mean = s->amounts[time] / ret->count;
}

/* Means of the phases of requests; unknown ones are unchanged. The distributions of the server are set
 * before. */
static void step_get_phases(const HistoryStep *s, Server *ret) {
        uint64_t responses;

        if (ret->first_byte.count == ABSENT || ret->latency.count == ABSENT ||
            (s->amounts[HISTORY_PHASED] == 0 && s->amounts[HISTORY_ANSWER] == 0))
                return;
        mean_get(s, HISTORY_PHASED, HISTORY_RECEIVE, &ret->receive);
        mean_get(s, HISTORY_PHASED, HISTORY_QUEUE, &ret->queue);
        mean_get(s, HISTORY_PHASED, HISTORY_SERVICE, &ret->service);

        /* Responses that have ended, in the part of the step of which the history still has amounts */
        responses = ret->first_byte.count == 0 ? ret->latency.count :
                    lround((double) ret->latency.count * s->amounts[HISTORY_PHASED] / ret->first_byte.count);
        ret->answer.count = responses;
        if (responses > 0)
                ret->answer.mean = s->amounts[HISTORY_ANSWER] / responses;
}

/* Unknown values are unchanged. */
static void step_get_contention(const HistoryStep *s, Contention *ret) {
        const uint64_t *a = s->amounts;
        double all = 0;

        if (a[HISTORY_CPU_COVERED] > 0) {
                for (unsigned i = QOS_STATE_RUNNING; i < QOS_STATES; i++)
                        all += a[HISTORY_FIRST_STATE + i - QOS_STATE_RUNNING];
                for (unsigned i = QOS_STATE_RUNNING; i < QOS_STATES; i++) {
                        double n = a[HISTORY_FIRST_STATE + i - QOS_STATE_RUNNING];

                        ret->threads[i] = n / a[HISTORY_CPU_COVERED];
                        if (all > 0)
                                ret->shares[i] = n / all;
                }
                mean_get(s, HISTORY_RUN_QUEUES, HISTORY_RUN_QUEUE_TIME, &ret->run_queue_latency);
        }
        if (a[HISTORY_BLOCK_COVERED] > 0) {
                for (unsigned i = 0; i < QOS_BLOCK_COUNTERS; i++) {
                        ret->block.counts.operations[i] = a[HISTORY_BLOCK_OPERATIONS + i];
                        ret->block.counts.bytes[i] = a[HISTORY_BLOCK_BYTES + i];
                }
                mean_get(s, HISTORY_BLOCK_OPERATIONS + QOS_BLOCK_READS, HISTORY_BLOCK_TIMES,
                         &ret->block.read_queue);
                mean_get(s, HISTORY_BLOCK_OPERATIONS + QOS_BLOCK_READS, HISTORY_BLOCK_TIMES + 1,
                         &ret->block.read_device);
                mean_get(s, HISTORY_BLOCK_OPERATIONS + QOS_BLOCK_WRITES, HISTORY_BLOCK_TIMES + 2,
                         &ret->block.write_queue);
                mean_get(s, HISTORY_BLOCK_OPERATIONS + QOS_BLOCK_WRITES, HISTORY_BLOCK_TIMES + 3,
                         &ret->block.write_device);
        }
        if (a[HISTORY_MEMORY_COVERED] > 0) {
                ret->memory.major_faults = a[HISTORY_MAJOR_FAULTS];
                ret->memory.major_fault_time = a[HISTORY_MAJOR_FAULT_TIME];
                ret->memory.reclaim_time = a[HISTORY_RECLAIM_TIME];
                ret->memory.dirty_throttle_time = a[HISTORY_DIRTY_THROTTLE_TIME];
                ret->memory.oom_kills = a[HISTORY_OOM_KILLS];
        }
}

static void step_get_storage(const HistoryStep *s, Storage *ret) {
        const uint64_t *a = s->amounts;

        if (a[HISTORY_STORAGE_COVERED] == 0)
                return;
        ret->covered = a[HISTORY_STORAGE_COVERED];
        for (unsigned call = 0; call < QOS_STORAGE_TIMED; call++) {
                StorageTimedCalls *calls = ret->timed + call;

                calls->calls = (StorageCalls) { a[HISTORY_STORAGE_CALLS + call],
                                                a[HISTORY_STORAGE_ERRORS + call] };
                mean_get(s, HISTORY_STORAGE_CALLS + call, HISTORY_STORAGE_TIMES + call, &calls->latency);
                if (call <= QOS_STORAGE_WRITE)
                        ret->bytes[call] = a[HISTORY_STORAGE_BYTES + call];
        }
}

/* Of connections, by the rules for snapshots. Round-trip times have bins; their maximum is not known. */
static void step_get_network(const HistoryStep *s, unsigned minimum_samples, Network *ret) {
        const ReadingContext context = {
                .measured = UINT64_C(1) << MEASURED_FLOWS | UINT64_C(1) << MEASURED_RECOVERIES |
                            UINT64_C(1) << MEASURED_DROPS,
                .minimum_samples = minimum_samples,
        };
        Distribution *const means[HISTORY_NETWORK_MEANS] = {
                [QOS_NETWORK_DURATION]  = &ret->duration,
                [QOS_NETWORK_HANDSHAKE] = &ret->connecting.handshake,
                [QOS_NETWORK_PORTS]     = &ret->connecting.ports,
        };
        const uint64_t *a = s->amounts;
        WindowBins rtt = {
                .schema = QOS_NETWORK_ROUGH_SCHEMA,
                .sum = a[HISTORY_NETWORK_TIMES + QOS_NETWORK_RTT],
        };
        NetworkReading reading = { .covered = a[HISTORY_NETWORK_COVERED] };

        if (a[HISTORY_NETWORK_COVERED] == 0)
                return;
        memcpy(reading.counts.sums + QOS_NETWORK_FLOWS, a + HISTORY_NETWORK_FLOWS,
               QOS_FLOW_COUNTERS * sizeof(*a));
        reading.counts.sums[QOS_NETWORK_RECOVERIES] = a[HISTORY_NETWORK_RECOVERIES];
        reading.counts.sums[QOS_NETWORK_SYN_RETRANSMITS] = a[HISTORY_NETWORK_SYN_RETRANSMITS];
        reading.counts.sums[QOS_NETWORK_PORTS_EXHAUSTED] = a[HISTORY_NETWORK_PORTS_EXHAUSTED];
        reading.counts.sums[QOS_NETWORK_DROPS] = a[HISTORY_NETWORK_DROPS];
        network_metrics_fill(&context, &reading, ret);
        for (unsigned d = 0; d < HISTORY_NETWORK_MEANS; d++)
                if (means[d]) {
                        distribution_set_absent(means[d]);
                        mean_get(s, HISTORY_NETWORK_COUNTS + d, HISTORY_NETWORK_TIMES + d, means[d]);
                }
        memcpy(rtt.count, a + HISTORY_NETWORK_RTT_BINS, QOS_NETWORK_ROUGH_BINS * sizeof(*a));
        window_bins_get_distribution(&rtt, minimum_samples, &ret->rtt);
        ret->rtt.max = ABSENT;
}

/* ---- file systems ------------------------------------------------------------------------------------- */

static bool mount_has_calls(const MountCounts *counts) {
        for (unsigned i = 0; i < QOS_MOUNT_CALLS; i++)
                if (counts->counts.count[i] > 0)
                        return true;
        return false;
}

void history_step_set_mounts(HistoryStep *s, const MountsReading *mounts) {
        s->n_mounts = 0;
        for (size_t i = 1; i < mounts->n && s->n_mounts < HISTORY_MOUNTS_MAX; i++)
                if (mount_has_calls(&mounts->rows[i].value))
                        s->mounts[s->n_mounts++] = (HistoryMount) {
                                .identity = mount_reading_get_identity(mounts->rows + i),
                                .value = mounts->rows[i].value,
                        };
}

void history_step_get_mount(const HistoryStep *s, uint64_t identity, unsigned minimum_samples,
                            Metrics *ret) {
        const ReadingContext context = {
                .measured = UINT64_MAX & ~(UINT64_C(1) << MEASURED_STORAGE_SUBMITTED),
                .minimum_samples = minimum_samples,
        };
        MountReading row = {};
        Mount mount;

        metrics_set_absent(ret);
        for (unsigned i = 0; i < s->n_mounts; i++)
                if (s->mounts[i].identity == identity) {
                        row.value = s->mounts[i].value;
                        mount_fill(&context, &row, &mount);
                        mount_get_metrics(&mount, ret);
                }
}

/* Keeps file systems of the first reading of a step: later ones do not have them any more. */
void mounts_keep(HistoryStep *s, const HistoryStep *before) {
        if (s->n_mounts > 0)
                return;
        memcpy(s->mounts, before->mounts, sizeof(s->mounts));
        s->n_mounts = before->n_mounts;
}

/* Adds those of a later step. If there are too many, those with the most time remain. */
static void mounts_merge(HistoryStep *s, const HistoryStep *later) {
        for (unsigned i = 0; i < later->n_mounts; i++) {
                const HistoryMount *m = later->mounts + i;
                HistoryMount *least = s->mounts, *same = NULL;

                for (HistoryMount *o = s->mounts; o < s->mounts + s->n_mounts; o++) {
                        if (o->identity == m->identity)
                                same = o;
                        if (mount_time_is_more(&least->value, &o->value))
                                least = o;
                }
                if (same)
                        mount_counts_add(&same->value, &m->value);
                else if (s->n_mounts < HISTORY_MOUNTS_MAX)
                        s->mounts[s->n_mounts++] = *m;
                else if (mount_time_is_more(&m->value, &least->value))
                        *least = *m;
        }
}

/* ---- which metrics ------------------------------------------------------------------------------------ */

/* Whether the metric is stored as a value. */
bool metric_is_kept(const Metric *metric) {
        if (metric->type != METRIC_INTEGER)
                return false;
        if (metric->offset >= offsetof(Metrics, contention))
                return false;
        /* Entries of peers have no checkpoints for the length of a step */
        if (metric->offset >= offsetof(Metrics, requests.client) &&
            metric->offset < offsetof(Metrics, requests.client) + sizeof(ClientRole))
                return false;
        if (metric->kind == METRIC_COUNTER)
                return true;
        for (size_t i = 0; i < ELEMENTSOF(gauges); i++)
                if (metric->offset == gauges[i])
                        return true;
        return false;
}

/* Whether the metric can be derived from amounts: tries a step that has all of them. */
static bool metric_is_derived(const Metric *metric) {
        HistoryStep s = {};
        Metrics m;

        for (size_t i = 0; i < _HISTORY_AMOUNT_MAX; i++)
                s.amounts[i] = 1;
        metrics_set_absent(&m);
        m.requests.server.first_byte.count = m.requests.server.latency.count = 1;
        step_get_phases(&s, &m.requests.server);
        step_get_contention(&s, &m.contention);
        step_get_storage(&s, &m.storage);
        step_get_network(&s, /* minimum_samples= */ 0, &m.network);
        return metric_is_present(metric, &m);
}

bool history_has_metric(const Metric *metric) {
        if (metric_is_kept(metric) ||
            metric->offset == offsetof(Metrics, requests.quality) ||
            metric->offset == offsetof(Metrics, requests.server.rate) ||
            metric->offset == offsetof(Metrics, requests.server.unparsed.share))
                return true;
        for (size_t i = 0; i < HISTORY_DISTRIBUTIONS; i++)
                if (metric->offset >= distributions[i].offset && metric->offset < distributions[i].offset +
                    sizeof(Distribution))
                        return true;
        return metric_is_derived(metric);
}

int history_find_distribution(const char *name) {
        for (unsigned i = 0; i < HISTORY_DISTRIBUTIONS; i++)
                if (streq(name, distributions[i].name))
                        return (int) i;
        return -ENOENT;
}

const char* history_distribution_name(unsigned i) {
        return distributions[i].name;
}

enum qos_distribution history_distribution(unsigned i) {
        return distributions[i].distribution;
}

/* Hash of the names of all values, to detect files written with another catalogue. */
uint64_t catalogue_hash(void) {
        uint64_t h = HASH_INIT;

        for (const Metric *m = metric_table; m < metric_table + metric_table_size; m++)
                if (metric_is_kept(m))
                        h = hash_bytes(h, m->name, strlen(m->name) + 1);
        return h;
}

/* ---- one step ----------------------------------------------------------------------------------------- */

void history_step_set_metrics(HistoryStep *s, const Metrics *metrics) {
        size_t n = 0;

        for (size_t i = 0; i < HISTORY_VALUES_MAX; i++)
                s->values[i] = ABSENT;
        for (const Metric *m = metric_table; m < metric_table + metric_table_size; m++)
                if (metric_is_kept(m)) {
                        assert(n < HISTORY_VALUES_MAX);
                        if (!metric_get_integer(m, metrics, &s->values[n]))
                                s->values[n] = ABSENT;
                        n++;
                }
}

/* Counters of requests, and metrics derived from them. */
static void step_get_requests(const HistoryStep *s, Metrics *ret) {
        size_t n = 0;

        metrics_set_absent(ret);
        for (const Metric *m = metric_table; m < metric_table + metric_table_size; m++)
                if (metric_is_kept(m))
                        *(uint64_t*) ((char*) ret + m->offset) = s->values[n++];
        window_classify(s->overlaps, s->missed, &ret->requests);
}

static bool step_has_distribution(const HistoryStep *s, unsigned i, const Metrics *metrics) {
        return s->measured[i] && metrics->requests.quality != QUALITY_OVERLAPPING;
}

bool history_step_has_distribution(const HistoryStep *s, unsigned i) {
        Metrics metrics;

        step_get_requests(s, &metrics);
        return step_has_distribution(s, i, &metrics);
}

void history_step_get_metrics(const HistoryStep *s, unsigned minimum_samples, Metrics *ret) {
        Server *server = &ret->requests.server;

        step_get_requests(s, ret);
        step_get_contention(s, &ret->contention);
        step_get_storage(s, &ret->storage);
        step_get_network(s, minimum_samples, &ret->network);

        if (server->count != ABSENT && s->covered > 0)
                server->rate = server->count * (double) NSEC_PER_SEC / s->covered;

        for (unsigned i = 0; i < HISTORY_DISTRIBUTIONS; i++)
                if (step_has_distribution(s, i, ret))
                        window_bins_get_distribution(&s->distributions[i], minimum_samples,
                                                     (Distribution*) ((char*) ret +
                                                                      distributions[i].offset));
        step_get_phases(s, server);
}

void step_coarsen(HistoryStep *s) {
        for (unsigned i = 0; i < HISTORY_DISTRIBUTIONS; i++)
                window_bins_coarsen(&s->distributions[i]);
}

/* Merges a later step into s, all but custom metrics. */
void step_add(HistoryStep *s, const HistoryStep *later) {
        size_t n = 0;

        s->covered += later->covered;
        s->overlaps += later->overlaps;

        for (const Metric *m = metric_table; m < metric_table + metric_table_size; m++) {
                if (!metric_is_kept(m))
                        continue;
                if (m->kind == METRIC_GAUGE)
                        s->values[n] = later->values[n];
                else if (s->values[n] == ABSENT || later->values[n] == ABSENT)
                        s->values[n] = ABSENT; /* not all summands are known */
                else
                        s->values[n] += later->values[n];
                n++;
        }

        for (size_t i = 0; i < _HISTORY_AMOUNT_MAX; i++)
                s->amounts[i] += later->amounts[i];
        mounts_merge(s, later);
        s->violated = s->violated || later->violated;
        s->missed = s->missed || later->missed;

        for (unsigned i = 0; i < HISTORY_DISTRIBUTIONS; i++) {
                s->measured[i] = s->measured[i] && later->measured[i];
                window_bins_add(&s->distributions[i], &later->distributions[i]);
        }
}
