/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "endpoint-totals.h"

/* Readings of the first endpoint per export, of which the maximum is used: one is too small if a request to
 * another endpoint is being recorded meanwhile, and after a restart there is no earlier export to compare
 * with. */
#define FIRST_READINGS 3

/* Counters that are made monotonic: all except the latency, of which samples move between bins. */
static const enum qos_entry_counter counters[] = {
        QOS_ENTRY_COUNT, QOS_ENTRY_ERRORS_RESET, QOS_ENTRY_ERRORS_TIMEOUT, QOS_ENTRY_CLIENT_ABORTS,
        QOS_ENTRY_OVERLAPS,
};
static const enum qos_entry_sum sums[] = { QOS_ENTRY_SUM_BYTES_IN, QOS_ENTRY_SUM_BYTES_OUT };

typedef struct EndpointTotal {
        uint8_t address[16];
        uint16_t port, family;
        bool rest;
        uint64_t counters[ELEMENTSOF(counters)], sums[ELEMENTSOF(sums)];
} EndpointTotal;

struct EndpointTotals {
        uint64_t attached_since;        /* of the unit */
        EndpointTotal items[SNAPSHOT_ROWS_MAX];
        size_t n;
};

static bool total_is_of(const EndpointTotal *t, const Row *row) {
        return t->rest == row->rest && t->port == row->port && t->family == row->family &&
               memcmp(t->address, row->address, sizeof(t->address)) == 0;
}

static EndpointTotal* total_get(EndpointTotals *totals, const Row *row) {
        EndpointTotal *t;

        for (size_t i = 0; i < totals->n; i++)
                if (total_is_of(&totals->items[i], row))
                        return &totals->items[i];
        /* Endpoints keep their entries */
        if (totals->n >= ELEMENTSOF(totals->items))
                return NULL;
        t = &totals->items[totals->n++];
        *t = (EndpointTotal) { .rest = row->rest, .port = row->port, .family = row->family };
        memcpy(t->address, row->address, sizeof(t->address));
        return t;
}

static void row_raise(WindowRow *row, const WindowRow *other) {
        for (size_t k = 0; k < ELEMENTSOF(counters); k++)
                row->cells[counters[k]] = MAX(row->cells[counters[k]], other->cells[counters[k]]);
        for (size_t k = 0; k < ELEMENTSOF(sums); k++)
                row->sums[sums[k]] = MAX(row->sums[sums[k]], other->sums[sums[k]]);
}

/* Reads the first endpoint again, for units with a single map. */
static void first_raise(const struct qos_unit_map *u, RowsReading *rows) {
        for (size_t i = 0; i < rows->n; i++) {
                RowReading *r = &rows->rows[i];

                if (r->row.kind != ROW_ENDPOINT || r->row.rest || r->row.port != u->names[0].address.port ||
                    r->row.family != u->names[0].address.family ||
                    memcmp(r->row.address, u->names[0].address.address, sizeof(r->row.address)) != 0)
                        continue;
                for (unsigned k = 0; k < FIRST_READINGS; k++) {
                        WindowRow first;

                        window_read_first(u, &first);
                        row_raise(&r->value, &first);
                }
                return;
        }
}

int endpoint_totals_raise(EndpointTotals **totals, uint64_t attached_since, const WindowSources *sources,
                          RowsReading *rows) {
        if (!*totals) {
                *totals = new0(EndpointTotals, 1);
                if (!*totals)
                        return -ENOMEM;
        }
        if ((*totals)->attached_since != attached_since)
                **totals = (EndpointTotals) { .attached_since = attached_since };

        if (sources->n == 1 && sources->sources[0].map->names[0].kind == QOS_ENTRY_ENDPOINT)
                first_raise(sources->sources[0].map, rows);
        for (size_t i = 0; i < rows->n; i++) {
                WindowRow *value = &rows->rows[i].value;
                EndpointTotal *t;

                if (rows->rows[i].row.kind != ROW_ENDPOINT)
                        continue;
                t = total_get(*totals, &rows->rows[i].row);
                for (size_t k = 0; t && k < ELEMENTSOF(counters); k++) {
                        uint64_t *n = &value->cells[counters[k]];

                        *n = t->counters[k] = MAX(t->counters[k], *n);
                }
                for (size_t k = 0; t && k < ELEMENTSOF(sums); k++) {
                        uint64_t *n = &value->sums[sums[k]];

                        *n = t->sums[k] = MAX(t->sums[k], *n);
                }
        }
        return 0;
}
