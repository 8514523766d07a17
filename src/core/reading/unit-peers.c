/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <arpa/inet.h>
#include <math.h>

#include "hierarchy.h"
#include "manager.h"
#include "metric.h"
#include "parse.h"
#include "peers.h"
#include "probe.h"
#include "unit-peers.h"

/* Limit of retries. Entries are reassigned ten times a second at most, which takes some 10 us. */
#define TRIES_MAX 16

/* ---- reading ------------------------------------------------------------------------------------------ */

static int row_compare(const void *a, const void *b) {
        const RowReading *x = a, *y = b;
        uint64_t t = x->value.sums[QOS_ENTRY_SUM_LATENCY], v = y->value.sums[QOS_ENTRY_SUM_LATENCY];

        if ((x->row.kind == ROW_PEER) != (y->row.kind == ROW_PEER))
                return x->row.kind == ROW_PEER ? 1 : -1;
        if (x->row.rest != y->row.rest)
                return x->row.rest ? 1 : -1;
        if (x->row.kind == ROW_PEER && t != v)
                return t > v ? -1 : 1;
        if (x->row.kind != y->row.kind)
                return x->row.kind == ROW_EXCLUDED ? 1 : -1;
        if (x->row.port != y->row.port)
                return x->row.port > y->row.port ? 1 : -1;
        if (x->row.family != y->row.family)
                return x->row.family > y->row.family ? 1 : -1;
        return memcmp(x->row.address, y->row.address, sizeof(x->row.address));
}

static bool entry_is_same(const Row *a, const Row *b) {
        return a->kind == b->kind && a->rest == b->rest && a->port == b->port && a->family == b->family &&
                memcmp(a->address, b->address, sizeof(a->address)) == 0;
}

/* Adds a row, merging rows with the same name: of two programs that raced for an entry (entry_find()), or of
 * nested units. Rows beyond the limit are added to the others. */
static void rows_add(RowsReading *rows, const RowReading *r) {
        RowReading rest = { .row = { .kind = r->row.kind == ROW_PEER ? ROW_PEER : ROW_ENDPOINT,
                                     .rest = true }, .value = r->value };
        size_t n = 0;

        for (size_t k = 0; k < rows->n; k++) {
                if (entry_is_same(&rows->rows[k].row, &r->row)) {
                        window_row_add(&rows->rows[k].value, &r->value);
                        return;
                }
                n += !rows->rows[k].row.rest;
        }

        /* Two rows are reserved for the others */
        if (r->row.rest || n < SNAPSHOT_ROWS_MAX - 2)
                rows->rows[rows->n++] = *r;
        else if (r->row.kind != ROW_EXCLUDED) { /* not part of the unit's metrics anyway */
                rows->folded = true;
                rows_add(rows, &rest);
        }
}

/* Reads all entries of a map. -EAGAIN: not consistent. */
static int peers_read_source(const WindowSource *b, const uint64_t *sessions, uint64_t attached_at,
                             uint64_t now, uint64_t window, RowsReading *rows) {
        static const RowKind kinds[] = {
                [QOS_ENTRY_ENDPOINT] = ROW_ENDPOINT,
                [QOS_ENTRY_EXCLUDED] = ROW_EXCLUDED,
                [QOS_ENTRY_PEER]     = ROW_PEER,
        };
        const WindowSources alone = { .sources = b, .n = 1, .attached_at = attached_at };
        uint64_t in_flight[QOS_ENTRIES + 1] = {};
        RowReading first = {};
        WindowReading reading;
        int r = 0;

        /* Requests in flight counted by iterators */
        for (enum qos_gauge g = 0; g < QOS_GAUGES; g++)
                if (rows->measured && sessions[g] != 0 && b->map->gauges[g].session == sessions[g]) {
                        first.value.in_flight += b->map->gauges[g].in_flight;
                        for (unsigned i = 1; i <= QOS_ENTRIES; i++)
                                in_flight[i] += b->map->gauges[g].rows[i];
                }

        if (rows->measured) {
                /* The first endpoint is the unit minus the other endpoints */
                if (b->map->names[0].kind != QOS_ENTRY_FREE)
                        r = window_read_some(&alone, now, window, 1U << QOS_LATENCY, &reading);
                if (b->map->names[0].kind != QOS_ENTRY_FREE && r >= 0) {
                        uint64_t counted = first.value.in_flight;

                        window_get_row(&reading, &first.value);
                        rows->known += window_count_known(&reading);
                        first.value.in_flight = counted;
                }
                first.value.in_flight += (uint64_t) MAX(__atomic_load_n(&b->map->in_flight,
                                                                        __ATOMIC_RELAXED), INT64_C(0));
        }

        /* The unit before its entries, see window_read_first() */
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        for (unsigned i = QOS_ENTRIES + 1; i-- > 0;) {
                bool rest = i == QOS_ENTRY_ENDPOINTS_OTHERS || i == QOS_ENTRY_PEERS_OTHERS;
                struct qos_peer_key name = b->map->names[i];
                RowReading row;

                if (rest)
                        name = (struct qos_peer_key) { .kind = i == QOS_ENTRY_ENDPOINTS_OTHERS ?
                                                       QOS_ENTRY_ENDPOINT : QOS_ENTRY_PEER };
                if (name.kind == QOS_ENTRY_FREE || name.kind >= ELEMENTSOF(kinds))
                        continue;
                /* An entry just assigned, without its name yet */
                if (name.kind == QOS_ENTRY_PEER && name.address.family == AF_UNIX && name.path[0] == 0) {
                        name = (struct qos_peer_key) { .kind = QOS_ENTRY_PEER };
                        rest = true;
                }
                /* No others so far, or an entry that was assigned and never used */
                if ((rest || name.kind == QOS_ENTRY_PEER) && !window_row_is_used(b->map, i))
                        continue;
                row.value = (WindowRow) {};
                if (i > 0 && rows->measured && r >= 0)
                        r = window_read_row(b->map, i, now, MAX(attached_at, b->since), window, &row.value);
                row.value.in_flight += in_flight[i];

                row.row = (Row) {
                        .kind = kinds[name.kind],
                        .rest = rest,
                        .port = name.address.port,
                        .family = name.address.family,
                };
                memcpy(row.row.address, name.address.address, sizeof(row.row.address));
                memcpy(row.row.path, name.path, sizeof(name.path));
                utf8_sanitize(row.row.path);

                /* The first endpoint is calculated last */
                if (i == 0)
                        row.value = first.value;
                else if (row.row.kind == ROW_ENDPOINT)
                        window_row_subtract(&first.value, &row.value);
                rows_add(rows, &row);
        }
        return r;
}

void rows_read(const WindowSources *w, const uint64_t *sessions, uint64_t now, uint64_t window,
               uint64_t covered, RowsReading *ret) {
        /* Maps older than the attach: only the sum of peers at that time is known, not single entries */
        bool before = w->base && covered == now - MIN(now, w->attached_at);
        bool measurable = sessions && window_is_for_rows(window) && !before;

        for (unsigned try = 0; try < TRIES_MAX; try++) {
                uint64_t folds = 0, again = 0;
                int r = 0;

                /* Do not clear the rows, which are large */
                ret->n = 0;
                ret->known = 0;
                ret->folded = false;
                ret->measured = measurable;
                ret->covered = covered;

                /* Retry if entries were merged into the others meanwhile: they would be counted twice, or
                 * not at all */
                for (size_t i = 0; i < w->n; i++)
                        folds += __atomic_load_n(&w->sources[i].map->folds, __ATOMIC_ACQUIRE);
                for (size_t i = 0; i < w->n && r >= 0; i++)
                        r = peers_read_source(&w->sources[i], sessions, w->attached_at, now, window, ret);
                __atomic_thread_fence(__ATOMIC_ACQUIRE);
                for (size_t i = 0; i < w->n; i++) {
                        uint32_t f = __atomic_load_n(&w->sources[i].map->folds, __ATOMIC_ACQUIRE);

                        again += f + f % 2;
                }

                if (r < 0)
                        ret->measured = false;
                else if (folds == again)
                        break;
        }
        qsort(ret->rows, ret->n, sizeof(ret->rows[0]), row_compare);

        ret->peers_known = sessions && window_is_for_rows(window) && before;
        if (ret->peers_known)
                window_sources_read_peers(w, &ret->peers);
}

/* ---- conversion --------------------------------------------------------------------------------------- */

/* Percentage of requests to a peer that may lack a latency of their own. Above that, no latency is shown. */
#define BUNDLED_PERCENT 1

/* Requests to a peer are counted only if they were parsed or did not overlap, so that any count is valid. */
static bool row_is_overlapping(const WindowRow *from, RowKind kind, uint64_t known) {
        uint64_t count = from->cells[QOS_ENTRY_COUNT], overlaps = from->cells[QOS_ENTRY_OVERLAPS];

        return kind == ROW_PEER ? count == 0 && overlaps > 0 :
               window_is_overlapping(overlaps, count, count > 0 ? known : 0);
}

static void row_fill_unparsed(const WindowRow *from, Row *row) {
        row->unparsed = (Unparsed) {
                .connections = row->kind == ROW_PEER ? from->cells[QOS_ENTRY_UNPARSED] : ABSENT,
                .bytes = ABSENT,
                .share = NAN,
        };
        if (row->kind != ROW_PEER || row->bytes_in == ABSENT)
                return;
        row->unparsed.bytes = from->sums[QOS_ENTRY_SUM_UNPARSED];
        row->unparsed.share = unparsed_get_share(row->unparsed.bytes, row->bytes_in, row->bytes_out);
}

/* known: as in RowsReading */
static void row_fill(const Unit *u, const WindowRow *from, uint64_t known, uint64_t covered, Row *row) {
        uint64_t count = from->cells[QOS_ENTRY_COUNT];
        bool overlapping = row_is_overlapping(from, row->kind, known);

        row->measured = true;
        row->count = overlapping ? ABSENT : count;
        row->rate = overlapping || covered == 0 ? NAN : count * (double) NSEC_PER_SEC / covered;
        row->errors_reset = from->cells[QOS_ENTRY_ERRORS_RESET];
        row->errors_timeout = from->cells[QOS_ENTRY_ERRORS_TIMEOUT];
        row->errors_status5xx = row->kind == ROW_PEER ? from->cells[QOS_ENTRY_STATUS_5XX] : ABSENT;
        row->errors_replies = row->kind == ROW_PEER ? from->cells[QOS_ENTRY_ERRORS_REPLIES] : ABSENT;
        row->aborts = from->cells[QOS_ENTRY_CLIENT_ABORTS];
        row->in_flight = from->in_flight;
        row->bytes_in = from->sums[QOS_ENTRY_SUM_BYTES_IN];
        row->bytes_out = from->sums[QOS_ENTRY_SUM_BYTES_OUT];
        /* Requests do not time out on Unix sockets. Closing is not observable on all kernels, nor are bytes
         * of the client role */
        if (row->family == AF_UNIX) {
                row->errors_timeout = ABSENT;
                if (!programs_attached(probe_get_programs(u->manager->probe),
                                       PROGRAMS(PROGRAM_UNIX_CLOSE)))
                        row->errors_reset = row->aborts = ABSENT;
        }
        if (row->kind == ROW_PEER && row->family == AF_UNIX)
                row->bytes_in = row->bytes_out = row->errors_status5xx = row->errors_replies = ABSENT;
        row_fill_unparsed(from, row);
        row->retransmits = row->rtt = ABSENT;
        if (u->network.map && row->family != AF_UNIX) {
                row->retransmits = from->cells[QOS_ENTRY_FLOW_RETRANSMITS];
                if (from->cells[QOS_ENTRY_FLOW_RTTS] > 0)
                        row->rtt = from->sums[QOS_ENTRY_SUM_RTT] * NSEC_PER_USEC /
                                   from->cells[QOS_ENTRY_FLOW_RTTS];
        }
        if (row->kind == ROW_PEER)
                row->quality = overlapping ? QUALITY_OVERLAPPING :
                        unparsed_is_partial(from->cells[QOS_ENTRY_OVERLAPS], count, row->unparsed.share) ?
                        QUALITY_PARTIAL : count == 0 ? QUALITY_ABSENT : QUALITY_EXCHANGES;
        if (overlapping || from->cells[QOS_ENTRY_BUNDLED] * 100 > count * BUNDLED_PERCENT)
                distribution_set_absent(&row->latency);
        else
                window_row_get_distribution(from, u->manager->config.minimum_samples, &row->latency);
}

void rows_sum(const Unit *u, const RowsReading *rows, const Selector *s, WindowRow *ret_value, Row *ret) {
        bool all = s->type == SELECTOR_NONE && s->client, some = all;

        *ret_value = (WindowRow) {};
        *ret = (Row) { .kind = s->client ? ROW_PEER : ROW_ENDPOINT };
        for (size_t i = 0; i < rows->n; i++) {
                const Row *row = &rows->rows[i].row;

                if (all ? row->kind != ROW_PEER :
                    !selector_matches(s, row, s->client ? unit_find_listening(u, row) : NULL))
                        continue;
                window_row_add(ret_value, &rows->rows[i].value);
                some = true;
        }
        if (some && rows->measured)
                row_fill(u, ret_value, rows->known, rows->covered, ret);
}

void rows_get_client(const Unit *u, const RowsReading *rows, ClientRole *ret) {
        WindowRow value;
        Row all;

        rows_sum(u, rows, &(Selector) { .client = true }, &value, &all);
        if (rows->peers_known)
                row_fill(u, &rows->peers, rows->known, rows->covered, &all);
        if (all.measured)
                row_get_client_role(&all, ret);
}

void rows_fill(const Unit *u, RowsReading *rows, Snapshot *ret) {
        for (size_t i = 0; i < rows->n; i++) {
                RowReading *r = rows->rows + i;

                if (rows->measured)
                        row_fill(u, &r->value, rows->known, rows->covered, &r->row);
                ret->rows[i] = r->row;
        }
        ret->n_rows = rows->n;
}

uint64_t rows_get_signature(const RowsReading *rows, uint64_t signature) {
        const uint64_t prime = UINT64_C(0x100000001b3);

        signature = (signature ^ rows->n) * prime;
        for (size_t i = 0; i < rows->n; i++) {
                const WindowRow *value = &rows->rows[i].value;

                for (unsigned k = QOS_ENTRY_COUNT; k < QOS_ENTRY_COUNTERS; k++)
                        signature = (signature ^ value->cells[k]) * prime;
                for (unsigned k = 0; k < QOS_ENTRY_SUMS; k++)
                        signature = (signature ^ value->sums[k]) * prime;
                signature = (signature ^ value->in_flight) * prime;
        }
        return signature;
}

/* Whether connecting to this address reaches a listener on that one. For listeners on all addresses, only
 * loopback addresses are certain to be local. */
static bool address_reaches(const Row *row, const struct qos_address *listen) {
        static const uint8_t any[16] = {}, loopback6[16] = { [15] = 1 };
        bool local;

        if (row->port != listen->port)
                return false;
        if (row->family == listen->family &&
            memcmp(row->address, listen->address, sizeof(row->address)) == 0)
                return true;
        local = row->family == AF_INET ? row->address[0] == 127 :
                memcmp(row->address, loopback6, sizeof(loopback6)) == 0;
        return local && memcmp(listen->address, any, sizeof(any)) == 0 &&
                (row->family == listen->family || listen->family == AF_INET6);
}

static bool unit_listens(const Unit *u, const Row *row) {
        for (unsigned k = 0; u->view && k <= QOS_ENTRIES; k++) {
                const struct qos_peer_key *name = &u->view->names[k];

                if ((name->kind == QOS_ENTRY_ENDPOINT || name->kind == QOS_ENTRY_EXCLUDED) &&
                    address_reaches(row, &name->address))
                        return true;
        }
        return false;
}

const char* unit_find_listening(const Unit *u, const Row *row) {
        const Unit *found = NULL;

        if (row->rest)
                return NULL;

        /* Users may listen on any address within a network or mount namespace of their own: units of root
         * take precedence */
        FOREACH_UNIT(other, u->manager)
                if (unit_listens(other, row) &&
                    (!found || (!manager_uid_owns_attached(u->manager, found->name, 0) &&
                                manager_uid_owns_attached(u->manager, other->name, 0))))
                        found = other;
        return found ? found->name : NULL;
}

static const char* identity_find_listening(const UnitIdentity *identity, const Row *row) {
        return unit_find_listening(identity->userdata, row);
}

void unit_get_identity(const Unit *u, UnitIdentity *ret) {
        *ret = (UnitIdentity) {
                .name = u->name,
                .control_group = u->control_group,
                .active_state = u->active_state,
                .invocation_id = u->invocation_id,
                .lifecycle = &u->lifecycle,
                .attached_since = u->attached_since,
                .find_listening = identity_find_listening,
                .userdata = u,
        };
}
