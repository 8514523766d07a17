/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <math.h>

#include "history.h"
#include "manager.h"
#include "metric.h"
#include "probe.h"
#include "window.h"

/* How old the gauges of listeners and of open connections may be: looking takes time in proportion to how many there
 * are, and readers do not look more often than they change on a screen. */
#define GAUGES_AGE_NSEC (20 * NSEC_PER_MSEC)

/* How long a reading is given again while nothing happens: rates are per time that passes. */
#define SNAPSHOT_AGE_NSEC NSEC_PER_SEC

static const char *const probe_table[] = { "requests" };

ProbeMask probe_from_string(const char *s) {
        for (size_t i = 0; i < ELEMENTSOF(probe_table); i++)
                if (streq(s, probe_table[i]))
                        return 1U << i;
        return 0;
}

const char* probe_name(unsigned i) {
        return i < ELEMENTSOF(probe_table) ? probe_table[i] : NULL;
}

const char* hold_type_to_string(HoldType t) {
        static const char *const table[_HOLD_TYPE_MAX] = {
                [HOLD_ADMINISTRATOR] = "administrator",
                [HOLD_LEASE]         = "lease",
        };

        return table[t];
}

const char* quality_to_string(Quality q) {
        static const char *const table[_QUALITY_MAX] = {
                [QUALITY_EXACT]       = "exact",
                [QUALITY_EXCHANGES]   = "exchanges",
                [QUALITY_OVERLAPPING] = "overlapping",
        };

        return table[q];
}

void histogram_done(Histogram *h) {
        free(h->buckets);
        *h = (Histogram) {};
}

/* ---- the numbers ---------------------------------------------------------------------------------------------- */

/* Which programs a figure needs: without one of them it is not measured. */
#define NEEDS_EXCHANGES (PROGRAM_BIT(PROGRAM_READ) | PROGRAM_BIT(PROGRAM_EGRESS))
#define NEEDS_ARRIVALS (NEEDS_EXCHANGES | PROGRAM_BIT(PROGRAM_INGRESS))
#define NEEDS_IN_FLIGHT (NEEDS_ARRIVALS | PROGRAM_BIT(PROGRAM_STATE))
#define NEEDS_LISTENERS PROGRAM_BIT(PROGRAM_FIND_SOCKETS) /* of those older than the attach nothing else tells */
#define NEEDS_CONTENT (NEEDS_EXCHANGES | PROGRAM_BIT(PROGRAM_CONTENT))
#define NEEDS_ENDS (NEEDS_EXCHANGES | PROGRAM_BIT(PROGRAM_STATE))

static bool has(uint32_t programs, uint32_t needed) {
        return (programs & needed) == needed;
}

static void distribution_set_absent(Distribution *d) {
        *d = (Distribution) { ABSENT, ABSENT, ABSENT, ABSENT, ABSENT, ABSENT, ABSENT, ABSENT };
}

static uint64_t gauge(const __s64 *p) {
        int64_t n = __atomic_load_n(p, __ATOMIC_RELAXED);

        /* Two programs that run at once may be seen in the wrong order: not below zero */
        return n > 0 ? (uint64_t) n : 0;
}

static void gauges_refresh(Unit *u, uint64_t now) {
        Manager *m = u->manager;
        bool missing;

        /* A question that came since the last look has no age yet */
        missing = gauge(&u->view->in_flight) > 0 && u->view->oldest_session != m->oldest_session;
        if (m->gauges_at != 0 && now < m->gauges_at + GAUGES_AGE_NSEC && !missing)
                return;

        m->gauges_at = now;
        if (probe_read_listeners(m->probe, &m->listeners_session) < 0)
                m->listeners_session = 0;
        if (probe_read_oldest(m->probe, &m->oldest_session) < 0)
                m->oldest_session = 0;
}

/* As they are counted, whatever that means. */
static void counters_fill(Unit *u, const WindowReading *reading, Metrics *ret) {
        uint32_t programs = probe_get_programs(u->manager->probe);
        Server *s = &ret->requests.server;
        const struct {
                enum qos_cell cell;
                uint32_t needs;
                uint64_t *value;
        } counters[] = {
                { QOS_CELL_COUNT,          NEEDS_EXCHANGES,                   &s->count                    },
                { QOS_CELL_HTTP1,          NEEDS_CONTENT,                     &s->protocol_http1           },
                { QOS_CELL_REDIS,          NEEDS_CONTENT,                     &s->protocol_redis           },
                { QOS_CELL_WAITS,          NEEDS_CONTENT,                     &s->blocking                 },
                { QOS_CELL_STREAMS,        NEEDS_CONTENT,                     &s->streams                  },
                { QOS_CELL_STATUS_4XX,     NEEDS_CONTENT,                     &s->status4xx                },
                { QOS_CELL_STATUS_5XX,     NEEDS_CONTENT,                     &s->errors_status5xx         },
                { QOS_CELL_ERRORS_RESET,   NEEDS_ENDS,                        &s->errors_reset             },
                { QOS_CELL_ERRORS_TIMEOUT, NEEDS_ENDS,                        &s->errors_timeout           },
                { QOS_CELL_CLIENT_ABORTS,  NEEDS_ENDS,                        &s->client_aborts            },
                { QOS_CELL_ACCEPTED,       NEEDS_LISTENERS | PROGRAM_BIT(PROGRAM_STATE), &s->connections.accepted     },
                { QOS_CELL_LISTEN_DROPS,   NEEDS_LISTENERS | PROGRAM_BIT(PROGRAM_LISTENERS), &s->connections.listen_drops },
                { QOS_CELL_RETRANSMITS,    PROGRAM_BIT(PROGRAM_RETRANSMIT),   &s->connections.retransmits  },
        };

        for (size_t i = 0; i < ELEMENTSOF(counters); i++)
                *counters[i].value = has(programs, counters[i].needs) ? reading->cells[counters[i].cell] : ABSENT;
}

static void metrics_fill(Unit *u, const WindowReading *reading, uint64_t now, Metrics *ret) {
        uint32_t programs = probe_get_programs(u->manager->probe);
        Server *s = &ret->requests.server;
        const struct {
                enum qos_distribution distribution;
                uint32_t needs;
                Distribution *value;
        } distributions[] = {
                { QOS_LATENCY,    NEEDS_ARRIVALS,  &s->latency    },
                { QOS_FIRST_BYTE, NEEDS_ARRIVALS,  &s->first_byte },
                { QOS_RECEIVE,    NEEDS_ARRIVALS,  &s->receive    },
                { QOS_QUEUE,      NEEDS_ARRIVALS,  &s->queue      },
                { QOS_SERVICE,    NEEDS_EXCHANGES, &s->service    },
                { QOS_ANSWER,     NEEDS_EXCHANGES, &s->answer     },
        };
        unsigned minimum = u->manager->config.minimum_samples;
        bool overlapping;

        counters_fill(u, reading, ret);
        window_judge(reading->cells[QOS_CELL_OVERLAPS], &ret->requests);
        overlapping = ret->requests.quality == QUALITY_OVERLAPPING;

        for (size_t i = 0; i < ELEMENTSOF(distributions); i++)
                if (has(programs, distributions[i].needs) && !overlapping)
                        window_get_distribution(reading, distributions[i].distribution, minimum, distributions[i].value);
                else
                        distribution_set_absent(distributions[i].value);

        s->rate = s->count == ABSENT || reading->covered == 0 ? NAN : s->count * (double) NSEC_PER_SEC / reading->covered;
        /* Of connections that are only learned when they are read, what came before is not counted */
        s->bytes_in = has(programs, PROGRAM_BIT(PROGRAM_INGRESS) | PROGRAM_BIT(PROGRAM_FIND_SOCKETS)) ? reading->sums[QOS_SUM_BYTES_IN] : ABSENT;
        s->bytes_out = has(programs, PROGRAM_BIT(PROGRAM_EGRESS)) ? reading->sums[QOS_SUM_BYTES_OUT] : ABSENT;

        s->connections.open = has(programs, PROGRAM_BIT(PROGRAM_STATE)) ? gauge(&u->view->open) : ABSENT;
        if (u->manager->listeners_session == 0 || !has(programs, NEEDS_LISTENERS))
                s->connections.accept_queue = s->connections.accept_queue_max = ABSENT;
        else if (u->view->listeners_session == u->manager->listeners_session) {
                s->connections.accept_queue = u->view->accept_queue;
                s->connections.accept_queue_max = u->view->accept_queue_max;
        } else
                s->connections.accept_queue = s->connections.accept_queue_max = 0; /* it does not listen */

        s->in_flight = has(programs, NEEDS_IN_FLIGHT) ? gauge(&u->view->in_flight) : ABSENT;
        if (has(programs, NEEDS_IN_FLIGHT) && u->manager->oldest_session != 0 &&
            u->view->oldest_session == u->manager->oldest_session)
                s->oldest_in_flight = now > u->view->oldest_at ? now - u->view->oldest_at : 0;
        else
                s->oldest_in_flight = ABSENT;
        if (s->in_flight == 0)
                s->oldest_in_flight = ABSENT;
}

static bool gauges_equal(const Metrics *a, const Metrics *b) {
        const Server *x = &a->requests.server, *y = &b->requests.server;

        return x->in_flight == y->in_flight &&
                x->connections.open == y->connections.open &&
                x->connections.accept_queue == y->connections.accept_queue &&
                x->connections.accept_queue_max == y->connections.accept_queue_max;
}

void unit_get_snapshot(Unit *u, uint64_t window, Snapshot *ret) {
        uint64_t now = now_nsec(CLOCK_MONOTONIC);
        WindowReading reading, total;
        Snapshot s = {
                .window = window,
                .timestamp = now_nsec(CLOCK_REALTIME),
                .cost_share = NAN,
                .drops = 0, /* nothing is counted: nothing is lost */
        };

        assert(window_is_valid(window));

        if (u->view)
                gauges_refresh(u, now);

        if (!u->view ||
            window_read(u->view, now, u->attached_since_monotonic, window, &reading) < 0 ||
            window_read(u->view, now, u->attached_since_monotonic, WINDOW_TOTAL, &total) < 0) {
                metrics_set_absent(&s.metrics);
                metrics_set_absent(&s.totals);
                s.covered = 0;
                s.seq = ++u->seq;
                *ret = u->cached = s;
                return;
        }

        s.covered = reading.covered;
        s.drops = total.cells[QOS_CELL_DROPS];
        metrics_fill(u, &reading, now, &s.metrics);
        metrics_fill(u, &total, now, &s.totals);

        /* Nothing has happened, and nothing is in flight that grows older: the same reading, with the same seq */
        if (u->cached_at != 0 && u->cached.window == window && u->cached_signature == total.signature &&
            u->cached_boundary == reading.boundary && now < u->cached_at + SNAPSHOT_AGE_NSEC &&
            s.metrics.requests.server.in_flight == 0 && gauges_equal(&s.metrics, &u->cached.metrics)) {
                *ret = u->cached;
                return;
        }

        s.seq = ++u->seq;
        u->cached = s;
        u->cached_at = now;
        u->cached_signature = total.signature;
        u->cached_boundary = reading.boundary;
        *ret = s;
}

void unit_mark(Unit *u, WindowMark *ret) {
        assert(u->view);

        window_mark(u->view, now_nsec(CLOCK_MONOTONIC), ret);
}

void unit_get_snapshot_since(Unit *u, const WindowMark *mark, Snapshot *ret) {
        uint64_t now = now_nsec(CLOCK_MONOTONIC);
        WindowReading reading, total;

        assert(u->view); /* it does not go again while the unit is attached */

        *ret = (Snapshot) {
                .seq = ++u->seq,
                .window = WINDOW_TOTAL,
                .timestamp = now_nsec(CLOCK_REALTIME),
                .cost_share = NAN,
        };

        gauges_refresh(u, now);
        window_read_since(u->view, now, mark, &reading);
        (void) window_read(u->view, now, u->attached_since_monotonic, WINDOW_TOTAL, &total); /* which never fails */
        ret->covered = reading.covered;
        ret->drops = total.cells[QOS_CELL_DROPS];
        metrics_fill(u, &reading, now, &ret->metrics);
        metrics_fill(u, &total, now, &ret->totals);
}

int unit_get_histogram(Unit *u, const char *metric, uint64_t window, Histogram *ret, QosError *e) {
        static const struct {
                const char *name;
                uint32_t needs;
        } table[QOS_DISTRIBUTIONS] = {
                [QOS_LATENCY]    = { "requests.server.latency",   NEEDS_ARRIVALS  },
                [QOS_FIRST_BYTE] = { "requests.server.firstByte", NEEDS_ARRIVALS  },
                [QOS_RECEIVE]    = { "requests.server.receive",   NEEDS_ARRIVALS  },
                [QOS_QUEUE]      = { "requests.server.queue",     NEEDS_ARRIVALS  },
                [QOS_SERVICE]    = { "requests.server.service",   NEEDS_EXCHANGES },
                [QOS_ANSWER]     = { "requests.server.answer",    NEEDS_EXCHANGES },
        };
        _cleanup_histogram_ Histogram h = {};
        uint64_t now = now_nsec(CLOCK_MONOTONIC);
        WindowReading reading;
        Snapshot snapshot;
        unsigned d;

        assert(window_is_valid(window));

        for (d = 0; d < QOS_DISTRIBUTIONS; d++)
                if (streq(metric, table[d].name))
                        break;
        if (d >= QOS_DISTRIBUTIONS)
                return qos_error_set(e, QOS_ERROR_NO_SUCH_METRIC, metric,
                                     "'%s' is not a distribution, expected one like 'requests.server.latency'", metric);

        /* For seq, and to know whether the figures mean anything */
        unit_get_snapshot(u, window, &snapshot);

        if (!u->view || !has(probe_get_programs(u->manager->probe), table[d].needs) ||
            snapshot.metrics.requests.quality == QUALITY_OVERLAPPING ||
            window_read(u->view, now, u->attached_since_monotonic, window, &reading) < 0)
                return -ENODATA;

        h = (Histogram) {
                .seq = snapshot.seq,
                .timestamp = snapshot.timestamp,
                .window = window,
                .covered = reading.covered,
                .schema = QOS_DISTRIBUTION_IS_FINE(d) ? GRID_FINE_SCHEMA : GRID_COARSE_SCHEMA,
                .sum = reading.sums[d],
                .buckets = new0(HistogramBucket, QOS_DISTRIBUTION_BINS(d)),
        };
        if (!h.buckets)
                return -ENOMEM;

        for (unsigned i = 0; i < QOS_DISTRIBUTION_BINS(d); i++) {
                uint64_t n = reading.cells[QOS_DISTRIBUTION_FIRST_CELL(d) + i];
                HistogramBucket *b = h.buckets + h.n_buckets;

                if (n == 0)
                        continue;
                window_get_bounds(d, i, &b->lower, &b->upper);
                b->count = n;
                h.count += n;
                h.n_buckets++;
        }

        *ret = h;
        h.buckets = NULL;
        return 0;
}

int unit_collect_history(Unit *u) {
        uint64_t now = now_nsec(CLOCK_MONOTONIC), realtime = now_nsec(CLOCK_REALTIME), current = now / WINDOW_STEP_NSEC, first;
        int r;

        if (!u->view || current == 0)
                return 0;

        /* Also those that were collected before, see window_read_step() */
        first = current - MIN(current, (uint64_t) WINDOW_STEPS);
        first = MAX(first, u->attached_since_monotonic / WINDOW_STEP_NSEC);
        for (uint64_t n = first; n < current; n++) {
                HistoryStep step = { .index = n };
                WindowReading reading;
                WindowGauges gauges;
                Metrics metrics;
                uint64_t signature;
                size_t place;

                _Static_assert(ELEMENTSOF(u->collected) > WINDOW_STEPS, "each step has its place");

                r = window_read_step(u->view, u->attached_since_monotonic, n, &reading, &gauges);
                if (r < 0)
                        continue; /* it stays as it is known, or a gap */

                /* Mostly it has not changed since */
                signature = reading.signature ^ gauges.in_flight << 32 ^ gauges.open;
                place = n % ELEMENTSOF(u->collected);
                if (u->collected[place].index == n && u->collected[place].signature == signature)
                        continue;

                step.timestamp = realtime - MIN(realtime, now - n * WINDOW_STEP_NSEC);
                step.covered = reading.covered;

                /* What was counted; whether it means something is decided when it is shown, for a step of any length */
                step.overlaps = reading.cells[QOS_CELL_OVERLAPS];
                metrics_fill(u, &reading, now, &metrics);
                counters_fill(u, &reading, &metrics);
                if (metrics.requests.server.in_flight != ABSENT)
                        metrics.requests.server.in_flight = gauges.in_flight;
                if (metrics.requests.server.connections.open != ABSENT)
                        metrics.requests.server.connections.open = gauges.open;
                history_step_set_metrics(&step, &metrics);

                for (unsigned i = 0; i < HISTORY_DISTRIBUTIONS; i++) {
                        window_get_bins(&reading, history_distribution(i), &step.distributions[i]);
                        step.measured[i] = has(probe_get_programs(u->manager->probe), NEEDS_ARRIVALS);
                }

                r = history_put(u->history, &step);
                if (r < 0)
                        return r;
                u->collected[place].index = n;
                u->collected[place].signature = signature;
        }

        return history_roll(u->history, current - 1);
}

const char* unit_degraded_reason(Unit *u) {
        uint32_t programs = probe_get_programs(u->manager->probe);
        unsigned missing = 0;

        for (unsigned i = 0; i < _PROGRAM_MAX; i++)
                if (!(programs & PROGRAM_BIT(i)))
                        missing++;

        free(u->degraded);
        u->degraded = NULL;
        if (!u->view)
                (void) asprintf(&u->degraded, "requests: %s", probe_get_failure(u->manager->probe) ?: "no map for the unit");
        else if (missing > 0)
                (void) asprintf(&u->degraded, "requests: %u of %u programs not available, see 'qosctl probes'", missing, _PROGRAM_MAX);
        return u->degraded;
}
