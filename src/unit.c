/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <arpa/inet.h>
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

/* A row passes from one peer to another ten times a second at most, and that takes some 10 us. */
#define ROWS_TRIES_MAX 16

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
#define NEEDS_IN_FLIGHT (NEEDS_ARRIVALS | PROGRAM_BIT(PROGRAM_STATE) | \
                         PROGRAM_BIT(PROGRAM_UNIX_OPEN) | PROGRAM_BIT(PROGRAM_UDP_OPEN))
#define NEEDS_LISTENERS PROGRAM_BIT(PROGRAM_FIND_SOCKETS) /* of those older than the attach nothing else tells */
#define NEEDS_CONTENT (NEEDS_EXCHANGES | PROGRAM_BIT(PROGRAM_CONTENT))
#define NEEDS_UNIX (PROGRAM_BIT(PROGRAM_UNIX) | PROGRAM_BIT(PROGRAM_CONTENT))
#define NEEDS_UDP (PROGRAM_BIT(PROGRAM_INGRESS) | PROGRAM_BIT(PROGRAM_EGRESS) | PROGRAM_BIT(PROGRAM_BIND4) | \
                   PROGRAM_BIT(PROGRAM_BIND6) | PROGRAM_BIT(PROGRAM_FIND_UDP))
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
        for (enum qos_gauge i = 0; i < QOS_GAUGES; i++)
                if (probe_read_gauge(m->probe, i, &m->gauge_sessions[i]) < 0)
                        m->gauge_sessions[i] = 0;
}

static bool gauge_is_current(const Unit *u, enum qos_gauge g) {
        return u->manager->gauge_sessions[g] != 0 && u->view->gauges[g].session == u->manager->gauge_sessions[g];
}

/* What is in flight on sockets that only an iterator counts, and since when the oldest of all is. */
static uint64_t gauges_add(const Unit *u, uint64_t in_flight, uint64_t *oldest_at) {
        for (enum qos_gauge i = 0; i < QOS_GAUGES; i++) {
                const struct qos_open *g = &u->view->gauges[i];

                if (!gauge_is_current(u, i))
                        continue;
                in_flight += g->in_flight;
                *oldest_at = MIN(*oldest_at, g->oldest_at);
        }
        return in_flight;
}

static void client_set_absent(ClientRole *c) {
        memset(c, 0xff, sizeof(*c)); /* all integers, but one */
        c->rate = NAN;
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
        const struct {
                enum qos_cell cell;
                uint32_t needs;
                uint64_t *value;
        } counters[] = {
                { QOS_CELL_COUNT,          NEEDS_EXCHANGES,                   &s->count                    },
                { QOS_CELL_REDIS,          NEEDS_CONTENT,                     &s->protocol_redis           },
                { QOS_CELL_TLS,            NEEDS_CONTENT,                     &s->protocol_tls             },
                { QOS_CELL_UNIX,           NEEDS_UNIX,                        &s->protocol_unix            },
                { QOS_CELL_UDP,            NEEDS_UDP,                         &s->protocol_udp             },
                { QOS_CELL_WAITS,          NEEDS_CONTENT,                     &s->blocking                 },
                { QOS_CELL_ERRORS_RESET,   NEEDS_ENDS,                        &s->errors_reset             },
                { QOS_CELL_ERRORS_TIMEOUT, NEEDS_ENDS,                        &s->errors_timeout           },
                { QOS_CELL_CLIENT_ABORTS,  NEEDS_ENDS,                        &s->client_aborts            },
                { QOS_CELL_ACCEPTED,       NEEDS_LISTENERS | PROGRAM_BIT(PROGRAM_STATE), &s->connections.accepted     },
                { QOS_CELL_LISTEN_DROPS,   NEEDS_LISTENERS | PROGRAM_BIT(PROGRAM_LISTENERS), &s->connections.listen_drops },
                { QOS_CELL_RETRANSMITS,    PROGRAM_BIT(PROGRAM_RETRANSMIT),   &s->connections.retransmits  },
        };
        unsigned minimum = u->manager->config.minimum_samples;
        uint64_t parsed = reading->cells[QOS_CELL_REDIS], oldest_at = ABSENT;
        bool overlapping;

        ret->requests.quality = !has(programs, NEEDS_EXCHANGES) ? QUALITY_ABSENT :
                window_get_quality(reading->cells[QOS_CELL_OVERLAPS], reading->cells[QOS_CELL_COUNT], parsed);
        overlapping = ret->requests.quality == QUALITY_OVERLAPPING;

        for (size_t i = 0; i < ELEMENTSOF(distributions); i++)
                if (has(programs, distributions[i].needs) && !overlapping)
                        window_get_distribution(reading, distributions[i].distribution, minimum, distributions[i].value);
                else
                        distribution_set_absent(distributions[i].value);

        for (size_t i = 0; i < ELEMENTSOF(counters); i++)
                *counters[i].value = has(programs, counters[i].needs) &&
                        !(overlapping && counters[i].cell <= QOS_CELL_ANSWERED_LAST) ?
                        reading->cells[counters[i].cell] : ABSENT;

        s->protocol_tcp = s->count == ABSENT ? ABSENT :
                s->count - MIN(parsed + reading->cells[QOS_CELL_TLS] + reading->cells[QOS_CELL_UNIX] + reading->cells[QOS_CELL_UDP], s->count);
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

        s->in_flight = has(programs, NEEDS_IN_FLIGHT) ? gauges_add(u, gauge(&u->view->in_flight), &oldest_at) : ABSENT;
        if (has(programs, NEEDS_IN_FLIGHT) && u->manager->oldest_session != 0 &&
            u->view->oldest_session == u->manager->oldest_session)
                oldest_at = MIN(oldest_at, u->view->oldest_at);
        if (oldest_at != ABSENT)
                s->oldest_in_flight = now > oldest_at ? now - oldest_at : 0;
        else
                s->oldest_in_flight = ABSENT;
        if (s->in_flight == 0 || s->in_flight == ABSENT)
                s->oldest_in_flight = ABSENT;

        client_set_absent(&ret->requests.client); /* rows_fill() knows, where it is asked */
}

/* ---- endpoints and peers -------------------------------------------------------------------------------------- */

static void row_fill(const Unit *u, const WindowRow *from, uint64_t covered, Row *row) {
        uint64_t count = from->cells[QOS_ROW_COUNT];
        bool overlapping = window_is_overlapping(from->cells[QOS_ROW_OVERLAPS], count);

        row->measured = true;
        row->count = overlapping ? ABSENT : count;
        row->rate = overlapping || covered == 0 ? NAN : count * (double) NSEC_PER_SEC / covered;
        row->errors_reset = from->cells[QOS_ROW_ERRORS_RESET];
        row->errors_timeout = from->cells[QOS_ROW_ERRORS_TIMEOUT];
        row->aborts = from->cells[QOS_ROW_CLIENT_ABORTS];
        row->in_flight = from->in_flight;
        row->bytes_in = from->sums[QOS_ROW_SUM_BYTES_IN];
        row->bytes_out = from->sums[QOS_ROW_SUM_BYTES_OUT];
        if (overlapping)
                distribution_set_absent(&row->latency);
        else
                window_row_get_distribution(from, u->manager->config.minimum_samples, &row->latency);
}

static void client_fill(const Row *all, ClientRole *ret) {
        *ret = (ClientRole) {
                .count = all->count,
                .rate = all->rate,
                .errors_reset = all->errors_reset,
                .errors_timeout = all->errors_timeout,
                .aborts = all->aborts,
                .in_flight = all->in_flight,
                .latency = all->latency,
                .bytes_in = all->bytes_in,
                .bytes_out = all->bytes_out,
        };
}

typedef struct RowReading {
        Row row;
        WindowRow value;
} RowReading;

static int row_compare(const void *a, const void *b) {
        const RowReading *x = a, *y = b;
        uint64_t t = x->value.sums[QOS_ROW_SUM_LATENCY], v = y->value.sums[QOS_ROW_SUM_LATENCY];

        if ((x->row.kind == ROW_PEER) != (y->row.kind == ROW_PEER))
                return x->row.kind == ROW_PEER ? 1 : -1;
        if (x->row.rest != y->row.rest)
                return x->row.rest ? 1 : -1;
        if (x->row.kind != ROW_PEER || t == v)
                return memcmp(&x->row.port, &y->row.port, sizeof(x->row.port)); /* as long as nothing sets them apart, in a steady order */
        return t > v ? -1 : 1;
}

static bool row_has_activity(const WindowRow *r) {
        return r->cells[QOS_ROW_COUNT] > 0 || r->in_flight > 0 || r->sums[QOS_ROW_SUM_BYTES_IN] > 0 || r->sums[QOS_ROW_SUM_BYTES_OUT] > 0 ||
                r->cells[QOS_ROW_ERRORS_RESET] > 0 || r->cells[QOS_ROW_ERRORS_TIMEOUT] > 0 || r->cells[QOS_ROW_CLIENT_ABORTS] > 0;
}

typedef struct RowsReading {
        RowReading rows[SNAPSHOT_ROWS_MAX];
        size_t n;
        WindowRow peers;        /* all of them */
        bool measured;
} RowsReading;

static void rows_read(const Unit *u, const WindowReading *reading, uint64_t now, uint64_t window, RowsReading *ret) {
        static const RowKind kinds[] = {
                [QOS_ROW_ENDPOINT] = ROW_ENDPOINT,
                [QOS_ROW_EXCLUDED] = ROW_EXCLUDED,
                [QOS_ROW_PEER]     = ROW_PEER,
        };
        WindowRow first, total;

        _Static_assert(SNAPSHOT_ROWS_MAX == QOS_ROWS + 1, "a place for each row and the first endpoint");

        *ret = (RowsReading) {
                .measured = window_is_for_rows(window) && has(probe_get_programs(u->manager->probe), NEEDS_ARRIVALS),
        };

        window_get_row(reading, &first);
        first.in_flight = gauges_add(u, gauge(&u->view->in_flight), &(uint64_t) { ABSENT });

        for (unsigned i = 0; i <= QOS_ROWS; i++) {
                bool rest = i == QOS_ROW_ENDPOINTS_REST || i == QOS_ROW_PEERS_REST;
                struct qos_row_name name = u->view->names[i];
                RowReading r = {};
                size_t k;

                if (rest)
                        name = (struct qos_row_name) { .kind = i == QOS_ROW_ENDPOINTS_REST ? QOS_ROW_ENDPOINT : QOS_ROW_PEER };
                if (name.kind == QOS_ROW_FREE || name.kind >= ELEMENTSOF(kinds))
                        continue;
                if (i > 0 && ret->measured &&
                    window_read_row(u->view, i, now, u->attached_since_monotonic, window, &r.value) < 0)
                        ret->measured = false;
                for (enum qos_gauge g = 0; i > 0 && g < QOS_GAUGES; g++)
                        if (gauge_is_current(u, g))
                                r.value.in_flight += u->view->gauges[g].rows[i];
                /* All have a row of their own; or a peer has got one, and never came again */
                if ((rest || name.kind == QOS_ROW_PEER) &&
                    (window_read_row(u->view, i, now, u->attached_since_monotonic, WINDOW_TOTAL, &total) < 0 || !row_has_activity(&total)))
                        continue;

                r.row = (Row) {
                        .kind = kinds[name.kind],
                        .rest = rest,
                        .port = name.address.port,
                        .family = name.address.family,
                };
                memcpy(r.row.address, name.address.address, sizeof(r.row.address));
                memcpy(r.row.path, name.path, sizeof(name.path));

                if (r.row.kind == ROW_ENDPOINT && i > 0)
                        window_row_subtract(&first, &r.value);
                else if (r.row.kind == ROW_PEER)
                        window_row_add(&ret->peers, &r.value);

                /* Two programs that saw it first at once: see row_find() */
                for (k = 0; k < ret->n; k++)
                        if (ret->rows[k].row.kind == r.row.kind && ret->rows[k].row.rest == rest &&
                            ret->rows[k].row.port == r.row.port && ret->rows[k].row.family == r.row.family &&
                            memcmp(ret->rows[k].row.address, r.row.address, sizeof(r.row.address)) == 0)
                                break;
                if (k < ret->n)
                        window_row_add(&ret->rows[k].value, &r.value);
                else
                        ret->rows[ret->n++] = r;
        }

        if (u->view->names[0].kind == QOS_ROW_ENDPOINT)
                window_row_add(&ret->rows[0].value, &first);
}

/* What the rows are, and what they have in the window. Also the unit's figures as a client, which are the peers' together. */
static void rows_fill(Unit *u, const WindowReading *reading, uint64_t now, uint64_t window, Snapshot *ret, ClientRole *ret_client) {
        RowsReading r;
        Row all = {};

        /* A row that becomes part of the rest meanwhile would be in both, or in none */
        for (unsigned try = 0; try < ROWS_TRIES_MAX; try++) {
                uint32_t folds = __atomic_load_n(&u->view->folds, __ATOMIC_ACQUIRE);

                rows_read(u, reading, now, window, &r);
                __atomic_thread_fence(__ATOMIC_ACQUIRE);
                if (folds % 2 == 0 && __atomic_load_n(&u->view->folds, __ATOMIC_ACQUIRE) == folds)
                        break;
        }

        if (r.measured) {
                row_fill(u, &r.peers, reading->covered, &all);
                client_fill(&all, ret_client);
        }

        qsort(r.rows, r.n, sizeof(*r.rows), row_compare);
        for (size_t k = 0; k < r.n; k++) {
                if (r.measured)
                        row_fill(u, &r.rows[k].value, reading->covered, &r.rows[k].row);
                ret->rows[k] = r.rows[k].row;
        }
        ret->n_rows = r.n;
}

const char* row_format_address(const Row *row, char buffer[static ADDRESS_STRING_MAX]) {
        static const uint8_t any[16] = {};
        char address[INET6_ADDRSTRLEN];

        if (row->family == AF_UNIX)
                (void) snprintf(buffer, ADDRESS_STRING_MAX, "%s", row->path);
        else if (row->family == AF_INET6) {
                (void) inet_ntop(AF_INET6, row->address, address, sizeof(address));
                (void) snprintf(buffer, ADDRESS_STRING_MAX, "[%s]:%u", address, row->port);
        } else if (memcmp(row->address, any, sizeof(any)) == 0)
                (void) snprintf(buffer, ADDRESS_STRING_MAX, "*:%u", row->port);
        else {
                (void) inet_ntop(AF_INET, row->address, address, sizeof(address));
                (void) snprintf(buffer, ADDRESS_STRING_MAX, "%s:%u", address, row->port);
        }
        return buffer;
}

/* Whether who connects to this address reaches a socket that listens on that one. Of a listener on all addresses it is only
 * known for those that are always this machine's. */
static bool address_reaches(const Row *row, const struct qos_address *listen) {
        static const uint8_t any[16] = {}, loopback6[16] = { [15] = 1 };
        bool local;

        if (row->port != listen->port)
                return false;
        if (row->family == listen->family && memcmp(row->address, listen->address, sizeof(row->address)) == 0)
                return true;
        local = row->family == AF_INET ? row->address[0] == 127 : memcmp(row->address, loopback6, sizeof(loopback6)) == 0;
        return local && memcmp(listen->address, any, sizeof(any)) == 0 &&
                (row->family == listen->family || listen->family == AF_INET6);
}

const char* unit_find_listening(const Unit *u, const Row *row) {
        if (row->rest)
                return NULL;

        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++) {
                const Unit *other = u->manager->units[i];

                for (unsigned k = 0; other && other->view && k <= QOS_ROWS; k++) {
                        const struct qos_row_name *name = &other->view->names[k];

                        if ((name->kind == QOS_ROW_ENDPOINT || name->kind == QOS_ROW_EXCLUDED) && address_reaches(row, &name->address))
                                return other->name;
                }
        }
        return NULL;
}

static bool gauges_equal(const Metrics *a, const Metrics *b) {
        const Server *x = &a->requests.server, *y = &b->requests.server;

        return x->in_flight == y->in_flight &&
                x->connections.open == y->connections.open &&
                x->connections.accept_queue == y->connections.accept_queue &&
                x->connections.accept_queue_max == y->connections.accept_queue_max;
}

/* What the unit asks of others is in no cell of its own. */
static uint64_t client_get_signature(const ClientRole *c, uint64_t signature) {
        const uint64_t words[] = { c->count, c->errors_reset, c->errors_timeout, c->aborts, c->in_flight, c->bytes_in, c->bytes_out, c->latency.mean };

        for (size_t i = 0; i < ELEMENTSOF(words); i++)
                signature = (signature ^ words[i]) * UINT64_C(0x100000001b3);
        return signature;
}

void unit_get_snapshot(Unit *u, uint64_t window, Snapshot *ret) {
        uint64_t now = now_nsec(CLOCK_MONOTONIC);
        WindowReading reading, total;
        Snapshot totals = {}, s = {
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
        rows_fill(u, &reading, now, window, &s, &s.metrics.requests.client);
        rows_fill(u, &total, now, WINDOW_TOTAL, &totals, &s.totals.requests.client);
        total.signature = client_get_signature(&s.totals.requests.client, total.signature);

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
                reading.cells[QOS_CELL_OVERLAPS] = 0;
                metrics_fill(u, &reading, now, &metrics);
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
