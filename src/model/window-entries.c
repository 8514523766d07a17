/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Endpoints and peers over windows, and counter offsets. */

#include "window-internal.h"

/* ---- entries ------------------------------------------------------------------------------------------ */

bool window_is_for_rows(uint64_t window) {
        /* Windows of 1 s begin at boundaries of level 0, which entries do not have: they would not add up to
         * the unit */
        return window == WINDOW_TOTAL || (window_is_valid(window) &&
                window_level(window) == QOS_ENTRY_LEVEL);
}

/* Reads a counter of 64 bits in two words. */
static uint64_t carried_load(const __u32 *cell, const __u32 *carry) {
        uint32_t high = map_load32(carry), low, again;

        for (;;) {
                low = map_load32(cell);
                again = map_load32(carry);
                if (again == high)
                        return (uint64_t) high << 32 | low;
                high = again;
        }
}

static void row_read_now(const struct qos_peer_entry *row, WindowRow *ret) {
        for (unsigned i = 0; i < QOS_ENTRY_COUNTERS; i++)
                ret->cells[i] = carried_load(&row->cells[i], &row->carry[i]);
        for (unsigned i = 0; i < QOS_ENTRY_SUMS; i++)
                ret->sums[i] = map_load(&row->sums[i]);
        ret->maximum = map_load(&row->maximum_total);
}

static uint64_t row_read_maximum(const struct qos_peer_entry *row, uint64_t first, uint64_t last) {
        uint64_t max = 0;

        for (uint64_t subwindow = first; subwindow <= last; subwindow++) {
                uint64_t word = map_load(&row->maxima[subwindow % QOS_LEVEL_MAXIMA(QOS_ENTRY_LEVEL)]);

                if (word >> QOS_MAXIMUM_BITS == (subwindow & (UINT64_MAX >> QOS_MAXIMUM_BITS)))
                        max = MAX(max, word & QOS_MAXIMUM_MASK);
        }
        return max;
}

static void row_settle(WindowRow *row) {
        bins_settle(row->cells, HISTOGRAM_COARSE_BINS);
        for (unsigned i = HISTOGRAM_COARSE_BINS; i < QOS_ENTRY_COUNTERS; i++)
                row->cells[i] = (int64_t) row->cells[i] > 0 ? row->cells[i] : 0;
        for (unsigned i = 0; i < QOS_ENTRY_SUMS; i++)
                row->sums[i] = (int64_t) row->sums[i] > 0 ? row->sums[i] : 0;
}

/* Subtracts the checkpoint at the boundary. -ENOENT: no checkpoint. */
static int row_subtract_checkpoint(const struct qos_peer_entry *row, uint64_t boundary, WindowRow *value) {
        uint64_t oldest = UINT64_MAX;

        for (unsigned i = 0; i < QOS_ENTRY_CHECKPOINTS; i++) {
                const struct qos_entry_checkpoint *c = &row->checkpoints[i];
                uint64_t last = map_load(&c->last), first = map_load(&c->first);
                WindowRow after = *value;

                if (first <= last && last > 0)
                        oldest = MIN(oldest, first);
                if (boundary < first || boundary > last)
                        continue;

                for (unsigned k = 0; k < QOS_ENTRY_COUNTERS; k++)
                        after.cells[k] = (uint64_t) (int64_t) (int32_t) ((uint32_t) after.cells[k] -
                                                                         __atomic_load_n(&c->cells[k],
                                        __ATOMIC_RELAXED));
                for (unsigned k = 0; k < QOS_ENTRY_SUMS; k++)
                        after.sums[k] -= __atomic_load_n(&c->sums[k], __ATOMIC_RELAXED);

                __atomic_thread_fence(__ATOMIC_ACQUIRE);
                if (map_load(&c->last) != last || map_load(&c->first) != first)
                        return -ENOENT;
                *value = after;
                return 0;
        }

        /* The entry is younger than the boundary, and entirely within the window */
        return map_load32(&row->written) < QOS_ENTRY_CHECKPOINTS && boundary < oldest ? 0 : -ENOENT;
}

bool window_row_is_used(const struct qos_unit_map *u, unsigned number) {
        static const enum qos_entry_counter counters[] = {
                QOS_ENTRY_COUNT, QOS_ENTRY_ERRORS_RESET, QOS_ENTRY_ERRORS_TIMEOUT, QOS_ENTRY_CLIENT_ABORTS,
                QOS_ENTRY_OVERLAPS,
        };
        const struct qos_peer_entry *row;

        assert(u);
        assert(number > 0 && number <= QOS_ENTRIES);

        row = &u->rows[number - 1];
        for (size_t i = 0; i < ELEMENTSOF(counters); i++)
                if ((int64_t) ((uint64_t) map_load32(&row->carry[counters[i]]) << 32 |
                               map_load32(&row->cells[counters[i]])) > 0)
                        return true;
        return __atomic_load_n(&row->in_flight, __ATOMIC_RELAXED) > 0 ||
                (int64_t) map_load(&row->sums[QOS_ENTRY_SUM_BYTES_IN]) > 0 ||
                (int64_t) map_load(&row->sums[QOS_ENTRY_SUM_BYTES_OUT]) > 0;
}

int window_read_row(const struct qos_unit_map *u, unsigned number, uint64_t now, uint64_t attached_at,
                    uint64_t window, WindowRow *ret) {
        const struct qos_peer_entry *row;
        uint64_t step = QOS_LEVEL_EPOCHS(QOS_ENTRY_LEVEL) * QOS_EPOCH_NSEC, boundary, n;

        assert(u);
        assert(number > 0 && number <= QOS_ENTRIES);
        assert(window_is_for_rows(window));
        assert(ret);

        row = &u->rows[number - 1];
        n = window / step;
        boundary = window_boundary(now / step, n);

        for (unsigned try = 0; try < TRIES_MAX; try++) {
                bool quiet = map_load(&u->epoch) / QOS_LEVEL_EPOCHS(QOS_ENTRY_LEVEL) < boundary;

                row_read_now(row, ret);
                ret->in_flight = (uint64_t) MAX(__atomic_load_n(&row->in_flight, __ATOMIC_RELAXED),
                                                INT64_C(0));

                if (window != WINDOW_TOTAL && boundary * step > attached_at) {
                        if (quiet && map_load(&u->epoch) / QOS_LEVEL_EPOCHS(QOS_ENTRY_LEVEL) < boundary) {
                                memset(ret->cells, 0, sizeof(ret->cells));
                                memset(ret->sums, 0, sizeof(ret->sums));
                                ret->maximum = 0;
                                return 0;
                        }
                        if (row_subtract_checkpoint(row, boundary, ret) < 0)
                                continue;
                        ret->maximum = row_read_maximum(row, boundary, now / step);
                }

                row_settle(ret);
                return 0;
        }

        return -EAGAIN;
}

void window_get_row(const WindowReading *reading, WindowRow *ret) {
        *ret = (WindowRow) {
                .sums = {
                        [QOS_ENTRY_SUM_LATENCY]   = reading->sums[QOS_LATENCY],
                        [QOS_ENTRY_SUM_BYTES_IN]  = window_get_bytes_in(reading),
                        [QOS_ENTRY_SUM_BYTES_OUT] = window_get_bytes_out(reading),
                        [QOS_ENTRY_SUM_RTT]       = reading->sums[QOS_SUM_FLOW_RTT],
                },
                .maximum = reading->maxima[QOS_LATENCY],
        };
        for (unsigned i = 0; i < HISTOGRAM_FINE_BINS; i++)
                ret->cells[histogram_coarse_bin(i)] +=
                        reading->cells[QOS_DISTRIBUTION_FIRST_COUNTER(QOS_LATENCY) + i];
        ret->cells[QOS_ENTRY_COUNT] = reading->cells[QOS_COUNTER_COUNT];
        ret->cells[QOS_ENTRY_FLOW_RETRANSMITS] = reading->cells[QOS_COUNTER_FLOW_RETRANSMITS];
        ret->cells[QOS_ENTRY_FLOW_RTTS] = reading->cells[QOS_COUNTER_FLOW_RTTS];
        ret->cells[QOS_ENTRY_ERRORS_RESET] = reading->cells[QOS_COUNTER_ERRORS_RESET];
        ret->cells[QOS_ENTRY_ERRORS_TIMEOUT] = reading->cells[QOS_COUNTER_ERRORS_TIMEOUT];
        ret->cells[QOS_ENTRY_CLIENT_ABORTS] = reading->cells[QOS_COUNTER_CLIENT_ABORTS];
        ret->cells[QOS_ENTRY_OVERLAPS] = reading->cells[QOS_COUNTER_OVERLAPS];
}

void window_row_add(WindowRow *row, const WindowRow *other) {
        for (unsigned i = 0; i < QOS_ENTRY_COUNTERS; i++)
                row->cells[i] += other->cells[i];
        for (unsigned i = 0; i < QOS_ENTRY_SUMS; i++)
                row->sums[i] += other->sums[i];
        row->in_flight += other->in_flight;
        row->maximum = row->maximum == ABSENT || other->maximum == ABSENT ? ABSENT :
                       MAX(row->maximum, other->maximum);
}

void window_row_subtract(WindowRow *row, const WindowRow *other) {
        for (unsigned i = 0; i < QOS_ENTRY_COUNTERS; i++)
                row->cells[i] -= other->cells[i];
        for (unsigned i = 0; i < QOS_ENTRY_SUMS; i++)
                row->sums[i] -= other->sums[i];
        row->in_flight -= MIN(row->in_flight, other->in_flight);
        if (other->cells[QOS_ENTRY_COUNT] > 0)
                row->maximum = ABSENT;
        row_settle(row);
}

static bool entry_is_endpoint(const struct qos_unit_map *u, unsigned number) {
        return number == QOS_ENTRY_ENDPOINTS_OTHERS ||
               __atomic_load_n(&u->names[number].kind, __ATOMIC_RELAXED) == QOS_ENTRY_ENDPOINT;
}

/* Programs count an event of another endpoint in its entry before the unit (record_count()). Reading in the
 * opposite order, no event is found in the unit only; the difference may be negative. */
static uint64_t difference_get(uint64_t all, uint64_t others) {
        return (int64_t) (all - others) > 0 ? all - others : 0;
}

void window_read_first(const struct qos_unit_map *u, WindowRow *ret) {
        static const struct {
                enum qos_entry_counter of_entry;
                unsigned of_unit;
        } counters[] = {
                { QOS_ENTRY_COUNT,          QOS_COUNTER_COUNT          },
                { QOS_ENTRY_ERRORS_RESET,   QOS_COUNTER_ERRORS_RESET   },
                { QOS_ENTRY_ERRORS_TIMEOUT, QOS_COUNTER_ERRORS_TIMEOUT },
                { QOS_ENTRY_CLIENT_ABORTS,  QOS_COUNTER_CLIENT_ABORTS  },
                { QOS_ENTRY_OVERLAPS,       QOS_COUNTER_OVERLAPS       },
        };
        static const struct {
                enum qos_entry_sum of_entry;
                enum qos_sum parsed, unparsed;
        } sums[] = {
                { QOS_ENTRY_SUM_BYTES_IN,  QOS_SUM_BYTES_IN,  QOS_SUM_UNPARSED_IN  },
                { QOS_ENTRY_SUM_BYTES_OUT, QOS_SUM_BYTES_OUT, QOS_SUM_UNPARSED_OUT },
        };

        *ret = (WindowRow) {};
        for (size_t k = 0; k < ELEMENTSOF(counters); k++) {
                uint64_t all = carried_load(&u->cells[counters[k].of_unit], &u->carry[counters[k].of_unit]),
                         others = 0;

                __atomic_thread_fence(__ATOMIC_ACQUIRE);
                for (unsigned i = 1; i <= QOS_ENTRIES; i++)
                        if (entry_is_endpoint(u, i))
                                others += carried_load(&u->rows[i - 1].cells[counters[k].of_entry],
                                                       &u->rows[i - 1].carry[counters[k].of_entry]);
                ret->cells[counters[k].of_entry] = difference_get(all, others);
        }
        for (size_t k = 0; k < ELEMENTSOF(sums); k++) {
                uint64_t all = map_load(&u->sums[sums[k].unparsed]) + map_load(&u->sums[sums[k].parsed]),
                         others = 0;

                __atomic_thread_fence(__ATOMIC_ACQUIRE);
                for (unsigned i = 1; i <= QOS_ENTRIES; i++)
                        if (entry_is_endpoint(u, i))
                                others += map_load(&u->rows[i - 1].sums[sums[k].of_entry]);
                ret->sums[sums[k].of_entry] = difference_get(all, others);
        }
}

/* ---- counter offsets ---------------------------------------------------------------------------------- */

static void row_add_times(WindowRow *row, const WindowRow *other, int64_t times) {
        for (unsigned i = 0; i < QOS_ENTRY_COUNTERS; i++)
                row->cells[i] += times * other->cells[i];
        for (unsigned i = 0; i < QOS_ENTRY_SUMS; i++)
                row->sums[i] += times * other->sums[i];
}

/* Sum of all peers, which is invariant when entries are reassigned. */
static void peers_read(const struct qos_unit_map *u, WindowRow *ret) {
        for (unsigned try = 0; try < TRIES_MAX; try++) {
                uint32_t folds = map_load32(&u->folds);

                *ret = (WindowRow) {};
                for (unsigned i = 1; i <= QOS_ENTRIES; i++) {
                        WindowRow row = {};

                        if (i != QOS_ENTRY_PEERS_OTHERS && u->names[i].kind != QOS_ENTRY_PEER)
                                continue;
                        row_read_now(&u->rows[i - 1], &row);
                        row.in_flight = (uint64_t) MAX(__atomic_load_n(&u->rows[i - 1].in_flight,
                                                                       __ATOMIC_RELAXED), INT64_C(0));
                        window_row_add(ret, &row);
                }
                __atomic_thread_fence(__ATOMIC_ACQUIRE);
                if (folds % 2 == 0 && map_load32(&u->folds) == folds)
                        return;
        }
}

void counter_offset_begin(const WindowSource *sources, size_t n, uint64_t now, CounterOffset *ret) {
        WindowRow peers;

        assert(sources || n == 0);
        assert(ret);

        *ret = (CounterOffset) {};
        sources_mark(sources, n, now, &ret->before);
        for (size_t i = 0; i < n; i++) {
                peers_read(sources[i].map, &peers);
                window_row_add(&ret->peers, &peers);
        }
}

void window_base_close(CounterOffset *base, uint64_t now, const WindowSource *source) {
        uint64_t cells[QOS_COUNTERS], sums[QOS_SUMS];
        WindowRow peers;

        assert(base);
        assert(source);

        counters_read_settled(source->map, &window_all_parts, cells, sums);
        for (unsigned i = 0; i < QOS_COUNTERS; i++)
                base->before.cells[i] -= cells[i];
        for (unsigned i = 0; i < QOS_SUMS; i++)
                base->before.sums[i] -= sums[i];
        maxima_read_since(source->map, now, &base->before, base->maxima);

        peers_read(source->map, &peers);
        row_add_times(&base->peers, &peers, -1);
        if (peers.maximum > base->peers.maximum)
                base->peers_maximum = MAX(base->peers_maximum, peers.maximum);
}

void window_base_open(CounterOffset *base, const WindowSource *source) {
        uint64_t cells[QOS_COUNTERS], sums[QOS_SUMS];
        WindowRow peers;

        assert(base);
        assert(source);

        counters_read_settled(source->map, &window_all_parts, cells, sums);
        for (unsigned i = 0; i < QOS_COUNTERS; i++)
                base->before.cells[i] += cells[i];
        for (unsigned i = 0; i < QOS_SUMS; i++)
                base->before.sums[i] += sums[i];
        for (unsigned d = 0; d < QOS_DISTRIBUTIONS; d++)
                base->before.maxima[d] = MAX(base->before.maxima[d],
                                             map_load(&source->map->maxima_total[d]));

        peers_read(source->map, &peers);
        window_row_add(&base->peers, &peers);
}

void window_sources_read_peers(const WindowSources *w, WindowRow *ret) {
        WindowRow peers;

        assert(w);
        assert(ret);

        *ret = (WindowRow) {};
        for (size_t i = 0; i < w->n; i++) {
                peers_read(w->sources[i].map, &peers);
                window_row_add(ret, &peers);
        }
        if (!w->base)
                return;

        row_add_times(ret, &w->base->peers, -1);
        row_settle(ret);
        if (ret->maximum <= w->base->peers.maximum)
                ret->maximum = w->base->peers_maximum > 0 ? w->base->peers_maximum : ABSENT;
}

uint64_t window_get_quantile(const WindowReading *reading, enum qos_distribution d, double q,
                             unsigned minimum_samples, uint64_t waiting, uint64_t *ret_samples) {
        Bins b = reading_get_bins(reading, d);
        uint64_t n = 0, rank, seen = 0;

        for (unsigned i = 0; i < b.n; i++)
                n += b.count[i];
        *ret_samples = n + waiting;

        rank = quantile_get_rank(n + waiting, q);
        if (waiting > 0 && rank > n)
                return WINDOW_WAITING;
        if (!quantile_is_known(n + waiting, q, minimum_samples))
                return ABSENT;
        for (unsigned i = 0; i < b.n; i++) {
                seen += b.count[i];
                if (seen >= rank)
                        return bin_value(&b, i, maximum_of(&b, b.n));
        }
        return ABSENT;
}
