/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Metrics from maps as programs and iterators leave them. */

#include <math.h>
#include <stdlib.h>

#include "check.h"
#include "snapshot-fill.h"

#define NOW UINT64_C(1000000)

static const ReadingSessions sessions = { .listeners = 5, .oldest = 6, .gauges = { 7, 0 } };

static struct qos_unit_map maps[2];
static const WindowSource buffer[] = { { .map = maps }, { .map = maps + 1 } };
static const WindowSources sources = { .sources = buffer, .n = ELEMENTSOF(buffer) };

static ReadingContext read_gauges(uint64_t measured) {
        ReadingContext c = { .now = NOW, .measured = measured };

        reading_get_gauges(&c, &sources, &sessions);
        return c;
}

static void test_gauges(void) {
        ReadingGauges g;

        /* In the first map all are known, the second was visited by no iterator of these sessions */
        maps[0].listeners_session = 5;
        maps[0].accept_queue = 3;
        maps[0].accept_queue_max = 128;
        maps[0].in_flight = 2;
        maps[0].open = 10;
        maps[0].oldest_session = 6;
        maps[0].oldest_at = NOW - 400;
        maps[0].waiting = (struct qos_waiting) { .oldest_at = NOW - 300, .ages = { 1 } };
        maps[1].listeners_session = 4;
        maps[1].accept_queue = 50;
        maps[1].open = -1; /* closed by one CPU before it was opened by another */

        g = read_gauges(UINT32_MAX).gauges;
        check(g.accept_queue == 3 && g.accept_queue_max == 128 && g.open == 9);
        check(g.in_flight == 2 && g.oldest_in_flight == 400);
        check(g.waiting == 1 && g.oldest_waiting == 300);
        check(!g.not_tcp);
        maps[0].open = 0;
        check(read_gauges(UINT32_MAX).gauges.open == 0);

        /* Requests that an iterator has counted, and those of an older session, or of one that has failed */
        maps[1].gauges[0] = (struct qos_open_requests) { .session = 7, .in_flight = 3,
                                                         .oldest_at = NOW - 900,
                                                         .waiting = { NOW - 700, { 0, 2 } } };
        maps[1].gauges[1] = (struct qos_open_requests) { .session = 0, .in_flight = 100 };
        maps[0].gauges[0] = (struct qos_open_requests) { .session = 6, .in_flight = 100 };
        g = read_gauges(UINT32_MAX).gauges;
        check(g.in_flight == 5 && g.oldest_in_flight == 900);
        check(g.waiting == 3 && g.oldest_waiting == 700);
        check(g.not_tcp);

        /* Requests of a map without ages are not known to wait */
        maps[0].oldest_session = 0;
        maps[1].gauges[0].session = 0;
        g = read_gauges(UINT32_MAX).gauges;
        check(g.in_flight == 2 && g.oldest_in_flight == ABSENT);
        check(g.waiting == ABSENT && g.oldest_waiting == ABSENT);

        /* Nothing in flight: nothing waits, and there is no oldest one */
        maps[0].in_flight = 0;
        g = read_gauges(UINT32_MAX).gauges;
        check(g.in_flight == 0 && g.waiting == 0);
        check(g.oldest_in_flight == ABSENT && g.oldest_waiting == ABSENT);
}

/* A figure is absent without its programs, also where the map has a value. */
static void test_measured(void) {
        static const struct {
                Measured needs;
                size_t offset;
        } table[] = {
                { MEASURED_EXCHANGES,     offsetof(Metrics, requests.server.count)                     },
                { MEASURED_CONTENT,       offsetof(Metrics, requests.server.parsed[PARSED(HTTP1)])      },
                { MEASURED_ENDS,          offsetof(Metrics, requests.server.errors_reset)              },
                { MEASURED_BYTES_IN,      offsetof(Metrics, requests.server.bytes_in)                  },
                { MEASURED_BYTES_OUT,     offsetof(Metrics, requests.server.bytes_out)                 },
                { MEASURED_OPEN,          offsetof(Metrics, requests.server.connections.open)          },
                { MEASURED_ACCEPT_QUEUES, offsetof(Metrics, requests.server.connections.accept_queue)  },
                { MEASURED_LISTEN_DROPS,  offsetof(Metrics, requests.server.connections.listen_drops)  },
                { MEASURED_RETRANSMITS,   offsetof(Metrics, requests.server.connections.retransmits)   },
                { MEASURED_IN_FLIGHT,     offsetof(Metrics, requests.server.in_flight)                 },
                { MEASURED_ARRIVALS,      offsetof(Metrics, requests.server.first_byte.count)          },
        };
        WindowReading reading = { .covered = NSEC_PER_SEC };
        Metrics metrics;

        for (enum qos_counter i = 0; i < QOS_COUNTERS; i++)
                reading.cells[i] = 1;
        reading.cells[QOS_COUNTER_OVERLAPS] = 0;

        for (size_t i = 0; i < ELEMENTSOF(table); i++) {
                const uint64_t *value = (const uint64_t*) ((const char*) &metrics + table[i].offset);
                ReadingContext c = read_gauges(UINT32_MAX);

                c.minimum_samples = 5;
                metrics_fill(&c, &reading, WINDOW_ALL_DISTRIBUTIONS, &metrics);
                check(*value != ABSENT);
                c = read_gauges(UINT64_MAX & ~(UINT64_C(1) << table[i].needs));
                c.minimum_samples = 5;
                metrics_fill(&c, &reading, WINDOW_ALL_DISTRIBUTIONS, &metrics);
                check(*value == ABSENT);
        }

        /* Distributions that were not read */
        metrics_fill(&(ReadingContext) { .measured = UINT32_MAX, .minimum_samples = 5 }, &reading,
                     1U << QOS_LATENCY, &metrics);
        check(metrics.requests.server.latency.count != ABSENT);
        check(metrics.requests.server.queue.count == ABSENT);
        check(fabs(metrics.requests.server.rate - 1) < 1e-9);
}

static void test_contention(void) {
        ReadingContext c = { .measured = UINT32_MAX, .probes = PROBE_CPU, .minimum_samples = 5 };
        static ContentionReading reading;
        Metrics metrics;

        reading.covered = 1000;
        reading.counts.times[QOS_STATE_RUNNING] = 300;
        reading.counts.times[QOS_STATE_LOCK] = 100;
        reading.counts.cells[QOS_MEMORY_OOM_KILLS] = 1;

        contention_set_absent(&metrics);
        contention_metrics_fill(&c, &reading, /* cells= */ true, /* clock= */ false, &metrics.contention);
        check(metrics.contention.covered == 1000 && metrics.contention.thread_time == 400);
        check(fabs(metrics.contention.shares[QOS_STATE_LOCK] - 0.25) < 1e-9);
        check(fabs(metrics.contention.threads[QOS_STATE_RUNNING] - 0.3) < 1e-9);
        /* The clock is not valid, and there is no probe "memory" */
        check(metrics.contention.serving.thread_time == ABSENT);
        check(metrics.contention.memory.oom_kills == ABSENT);

        c.probes = PROBE_MEMORY;
        contention_set_absent(&metrics);
        contention_metrics_fill(&c, &reading, /* cells= */ true, /* clock= */ true, &metrics.contention);
        check(metrics.contention.thread_time == ABSENT);
        check(metrics.contention.memory.oom_kills == 1);
}

int main(void) {
        test_gauges();
        test_measured();
        test_contention();
        return EXIT_SUCCESS;
}
