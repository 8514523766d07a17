/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <math.h>

#include "contention-probe.h"
#include "gauges.h"
#include "hierarchy.h"
#include "manager.h"
#include "measured.h"
#include "metric.h"
#include "mounts.h"
#include "observer.h"
#include "peers.h"
#include "probe.h"
#include "service-manager.h"
#include "threshold-monitor.h"
#include "threshold-sample.h"
#include "unit-custom.h"
#include "unit-map.h"
#include "unit-mounts.h"
#include "unit-peers.h"
#include "unit-snapshot.h"
#include "window.h"

/* Whether the metric is part of this member of struct Metrics. */
#define METRIC_IS_IN(metric, \
                     member) ((metric)->offset - \
                              offsetof(Metrics, member) < sizeof(((const Metrics*) NULL)->member))

uint64_t sources_count_pending(const WindowSources *w, const Manager *m, double limit,
                               uint64_t *ret_oldest_at) {
        uint64_t n = 0, oldest_at = UINT64_MAX;

        for (size_t i = 0; i < w->n; i++) {
                const struct qos_unit_map *map = w->sources[i].map;
                int64_t in_flight = __atomic_load_n(&map->in_flight, __ATOMIC_RELAXED);
                bool iterated = m->readings.gauges.sessions.oldest != 0 &&
                        map->oldest_session == m->readings.gauges.sessions.oldest;
                uint64_t waiting = 0;

                if (iterated)
                        oldest_at = MIN(oldest_at, (uint64_t) map->waiting.oldest_at);
                for (unsigned bin = 1; bin < QOS_WAITING_BINS; bin++) {
                        if (QOS_WAITING_NSEC(bin) < limit)
                                continue;
                        if (iterated)
                                waiting += map->waiting.ages[bin];
                        for (enum qos_gauge g = 0; g < QOS_GAUGES; g++)
                                if (m->readings.gauges.sessions.gauges[g] != 0 &&
                                    map->gauges[g].session == m->readings.gauges.sessions.gauges[g]) {
                                        n += map->gauges[g].waiting.ages[bin];
                                        oldest_at = MIN(oldest_at,
                                                        (uint64_t) map->gauges[g].waiting.oldest_at);
                                }
                }
                /* Requests that have ended since the iterator ran are still among the counts */
                if (in_flight > 0)
                        n += MIN(waiting, (uint64_t) in_flight);
        }
        if (ret_oldest_at)
                *ret_oldest_at = oldest_at;
        return n;
}

bool metric_get_server_quantile(const Metric *metric, enum qos_distribution *ret_distribution,
                                double *ret_q) {
        const char *name;
        size_t length;

        if (METRIC_IS_IN(metric, requests.server.latency))
                *ret_distribution = QOS_LATENCY;
        else if (METRIC_IS_IN(metric, requests.server.first_byte))
                *ret_distribution = QOS_FIRST_BYTE;
        else
                return false;
        return threshold_rule_get_quantile(metric, &name, &length, ret_q);
}

void threshold_sample_init(ThresholdSample *sample, uint64_t window) {
        /* Do not clear readings, which are large */
        sample->window = window;
        sample->distributions = 0;
        sample->needs_requests = sample->needs_gauges = sample->needs_listeners = sample->needs_rows = false;
        sample->needs_contention = sample->needs_cells = false;
        sample->needs_storage = sample->needs_network = false;
}

void threshold_sample_require(ThresholdSample *sample, const ThresholdRule *rule) {
        const Metric *metric = rule->metric;

        if (metric_is_custom(metric))
                return; /* read by itself */
        if (METRIC_IS_IN(metric, storage)) {
                sample->needs_storage = true;
                return;
        }
        if (METRIC_IS_IN(metric, network)) {
                sample->needs_network = true;
                return;
        }
        if (METRIC_IS_IN(metric, contention)) {
                sample->needs_contention = true;
                sample->needs_cells = sample->needs_cells ||
                        METRIC_IS_IN(metric, contention.run_queue_latency) ||
                        METRIC_IS_IN(metric, contention.block) || METRIC_IS_IN(metric, contention.memory);
                if (METRIC_IS_IN(metric, contention.serving))
                        sample->needs_requests = sample->needs_gauges = true;
                return;
        }
        sample->needs_requests = true;
        if (*rule->selector || METRIC_IS_IN(metric, requests.client)) {
                sample->needs_rows = true;
                return;
        }
        for (enum qos_distribution d = 0; d < QOS_DISTRIBUTIONS; d++)
                if (metric->offset - offsetof(Metrics, requests.server) -
                    server_distributions[d].offset < sizeof(Distribution))
                        sample->distributions |= 1U << d;
        sample->needs_listeners = sample->needs_listeners ||
                METRIC_IS_IN(metric, requests.server.connections);
        sample->needs_gauges = sample->needs_gauges ||
                METRIC_IS_IN(metric, requests.server.in_flight) ||
                METRIC_IS_IN(metric, requests.server.oldest_in_flight) ||
                METRIC_IS_IN(metric, requests.server.waiting) ||
                METRIC_IS_IN(metric, requests.server.oldest_waiting) ||
                METRIC_IS_IN(metric, requests.server.latency) ||
                METRIC_IS_IN(metric, requests.server.first_byte);
}

static void threshold_sample_read_contention(UnitReading *r, ThresholdSample *sample) {
        bool clock = sample->measured && clock_is_whole(&r->context, &sample->reading);
        ContentionReading reading;

        contention_set_absent(&sample->metrics);
        if (unit_reading_get_contention(r, sample->needs_cells) &&
            contention_read_some(&r->contention, sample->now, sample->window, sample->needs_cells,
                                 &reading) >= 0) {
                contention_metrics_fill(&r->context, &reading, sample->needs_cells, clock,
                                        &sample->metrics.contention);
                usage_fill(r->unit, sample->window, &sample->metrics.contention);
        }
}

static void threshold_sample_read_storage(UnitReading *r, ThresholdSample *sample) {
        StorageReading reading;
        MountsReading mounts;

        sample->n_mounts = 0;
        storage_set_absent(&sample->metrics);
        if (!unit_reading_get_storage(r) ||
            unit_reading_read_storage(r, sample->window, &reading, NULL, &mounts) < 0)
                return;
        storage_metrics_fill(&r->context, &reading, &sample->metrics.storage);
        sample->n_mounts = mounts_fill(r, &mounts, sample->mounts);
}

static void threshold_sample_read_network(UnitReading *r, ThresholdSample *sample) {
        NetworkReading reading;

        network_set_absent(&sample->metrics);
        if (unit_reading_get_network(r) &&
            network_read(&r->network, sample->now, sample->window, &reading, NULL) >= 0)
                network_metrics_fill(&r->context, &reading, &sample->metrics.network);
}

/* Whether the metric is not one of requests. */
static bool metric_is_of_other_map(const Metric *metric) {
        return METRIC_IS_IN(metric, contention) || METRIC_IS_IN(metric, storage) ||
               METRIC_IS_IN(metric, network) || metric_is_custom(metric);
}

void threshold_sample_read(Unit *u, uint64_t now, ThresholdSample *sample) {
        UnitReading reading;
        unsigned refresh = 0;
        int r;

        sample->now = now;
        sample->timestamp = now_nsec(CLOCK_REALTIME);
        sample->measured = false;
        if (sample->needs_requests && sample->needs_listeners)
                refresh |= READING_LISTENERS;
        /* For rows as well, of which all sessions have to be from the same run of the iterators */
        if (sample->needs_requests && (sample->needs_gauges || sample->needs_rows))
                refresh |= READING_IN_FLIGHT;
        unit_reading_begin(u, now, refresh, &reading);

        if (sample->needs_requests && u->view) {
                r = window_read_some(&reading.sources, now, sample->window, sample->distributions,
                                     &sample->reading);
                if (r == -EAGAIN) {
                        /* The data has been overwritten meanwhile: read the present moment instead */
                        sample->now = reading.context.now = now_nsec(CLOCK_MONOTONIC);
                        sample->timestamp = now_nsec(CLOCK_REALTIME);
                        r = window_read_some(&reading.sources, sample->now, sample->window,
                                             sample->distributions, &sample->reading);
                }
                sample->measured = r >= 0;
        }
        if (sample->measured) {
                unit_reading_get_gauges(&reading);
                metrics_fill(&reading.context, &sample->reading, sample->distributions, &sample->metrics);
                if (sample->needs_rows) {
                        unit_reading_get_rows(&reading, sample->window, sample->reading.covered,
                                              &sample->rows);
                        rows_get_client(u, &sample->rows, &sample->metrics.requests.client);
                }
        }
        if (sample->needs_contention)
                threshold_sample_read_contention(&reading, sample);
        if (sample->needs_storage)
                threshold_sample_read_storage(&reading, sample);
        if (sample->needs_network)
                threshold_sample_read_network(&reading, sample);
}

static bool unit_read_shares(Unit *u, uint64_t now, uint64_t window, Contention *ret) {
        const ReadingContext context = { .now = now, .measured = manager_get_measured(u->manager) };
        ContentionSource buffer[UNITS_MAX_LIMIT];
        ContentionReading reading;
        ContentionSources sources;

        if (!(u->contention.probes & PROBE_CPU) || !is_measured(context.measured, MEASURED_STATES) ||
            !unit_get_contention_sources(u, buffer, &sources) ||
            contention_read_some(&sources, now, window, false, &reading) < 0)
                return false;
        ret->covered = reading.covered;
        states_fill(&context, &reading, /* cells= */ false, ret);
        return true;
}

size_t unit_get_state_share_changes(Unit *u, uint64_t now, uint64_t window,
                                    ShareChange ret[static SHARE_CHANGES_MAX]) {
        uint64_t usual_window = 300 * NSEC_PER_SEC;
        Contention current, usual;
        size_t n = 0;

        if (!unit_read_shares(u, now, window, &current) ||
            !unit_read_shares(u, now, window < usual_window ? usual_window : WINDOW_TOTAL, &usual) ||
            usual.covered <= current.covered)
                return 0;

        for (enum qos_state state = QOS_STATE_RUNNING; state < QOS_STATES; state++) {
                ShareChange c = { state, current.shares[state], usual.shares[state] };
                size_t i;

                /* Also skips unknown values */
                if (!(fabs(c.share - c.usual) >= SHARE_CHANGE_MIN))
                        continue;
                for (i = n; i > 0 && fabs(c.share - c.usual) > fabs(ret[i - 1].share - ret[i - 1].usual);
                     i--)
                        if (i < SHARE_CHANGES_MAX)
                                ret[i] = ret[i - 1];
                if (i < SHARE_CHANGES_MAX)
                        ret[i] = c;
                n = MIN(n + 1, (size_t) SHARE_CHANGES_MAX);
        }
        return n;
}

/* Value of the metric restricted by the rule's selector. */
static double sample_get_value(Unit *u, const ThresholdSample *sample, const ThresholdRule *rule,
                               uint64_t *ret_samples) {
        const Metrics *values = &sample->metrics;
        Metrics of_row;
        Selector s;
        uint64_t n;
        double real;

        if (metric_is_custom(rule->metric)) {
                *ret_samples = ABSENT;
                return unit_get_custom_value(u, rule->selector, metric_get_custom_field(rule->metric),
                                             sample->now, sample->window);
        }
        *ret_samples = METRIC_IS_IN(rule->metric, requests.client) ? sample->metrics.requests.client.count :
                       metric_is_of_other_map(rule->metric) ? ABSENT : sample->metrics.requests.server.count;
        if (*rule->selector && METRIC_IS_IN(rule->metric, storage)) {
                threshold_rule_get_selector(rule, &s);
                mount_get_metrics(mounts_find(sample->mounts, sample->n_mounts, &s), &of_row);
                values = &of_row;
        } else if (*rule->selector) {
                WindowRow value;
                Row row;

                threshold_rule_get_selector(rule, &s);
                rows_sum(u, &sample->rows, &s, &value, &row);
                row_get_metrics(&row, &of_row);
                values = &of_row;
                *ret_samples = row.measured ? row.count : ABSENT;
        }
        if (rule->metric->type == METRIC_REAL)
                return metric_get_real(rule->metric, values, &real) ? real : NAN;
        return metric_get_integer(rule->metric, values, &n) ? (double) n : NAN;
}

bool threshold_sample_is_hidden(const Unit *u, const ThresholdSample *sample, const ThresholdRule *rule) {
        WindowRow value;
        Selector s;
        Row row;

        if (!sample->measured || metric_is_of_other_map(rule->metric))
                return false;
        if (!*rule->selector)
                return METRIC_IS_IN(rule->metric, requests.client)
                        ? sample->metrics.requests.client.count == ABSENT
                        : sample->metrics.requests.quality == QUALITY_OVERLAPPING;
        threshold_rule_get_selector(rule, &s);
        rows_sum(u, &sample->rows, &s, &value, &row);
        return row.measured && row.count == ABSENT;
}

double unit_get_threshold_value(Unit *u, const ThresholdSample *sample, const ThresholdRule *rule,
                                uint64_t *ret_samples) {
        const Server *server = &sample->metrics.requests.server;
        uint64_t waiting, samples, value;
        WindowSource buffer[UNITS_MAX_LIMIT];
        enum qos_distribution d;
        WindowSources sources;
        double real, q;

        *ret_samples = ABSENT;
        if (metric_is_of_other_map(rule->metric) ? !u->view : !sample->measured)
                return NAN;

        real = sample_get_value(u, sample, rule, ret_samples);
        if (rule->metric->kind == METRIC_COUNTER || streq(rule->metric->unit, "1/s"))
                return sample->now - MIN(sample->now, u->attached_since_monotonic) < sample->window ? NAN
                                                                                                    : real;

        if (*rule->selector || !metric_get_server_quantile(rule->metric, &d, &q))
                return real;

        *ret_samples = d == QOS_LATENCY ? server->latency.count : server->first_byte.count;
        /* Unknown with overlapping requests, as are pending ones */
        if (*ret_samples == ABSENT || server->oldest_waiting == ABSENT ||
            server->oldest_waiting <= threshold_rule_get_good_limit(rule))
                return real;

        unit_get_sources(u, buffer, &sources);
        waiting = sources_count_pending(&sources, u->manager, threshold_rule_get_good_limit(rule), NULL);
        if (waiting == 0)
                return real;
        value = window_get_quantile(&sample->reading, d, q, u->manager->config.minimum_samples, waiting,
                                    &samples);
        *ret_samples = samples;
        if (value == WINDOW_WAITING)
                return server->oldest_waiting;
        return value == ABSENT ? NAN : value;
}
