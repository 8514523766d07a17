/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "window-internal.h"
#include "window.h"

bool window_is_valid(uint64_t window) {
        if (window == WINDOW_TOTAL || window == 60 * NSEC_PER_SEC || window == 300 * NSEC_PER_SEC)
                return true;
        if (window <= NSEC_PER_SEC)
                return window % (100 * NSEC_PER_MSEC) == 0;
        return window <= 10 * NSEC_PER_SEC && window % NSEC_PER_SEC == 0;
}

unsigned window_level(uint64_t window) {
        return window <= NSEC_PER_SEC ? 0 : window <= 10 * NSEC_PER_SEC ? 1 : window <= 60 * NSEC_PER_SEC ?
               2 : 3;
}

/* Windows of six or more sub-windows exclude the oldest, incomplete one, so as not to be longer than
 * requested; shorter windows would lack too much without it. Limited, as the machine may have been up for
 * less than the window. */
uint64_t window_boundary(uint64_t current, uint64_t n) {
        uint64_t end = current + (n >= 6);

        return end - MIN(end, n);
}

uint64_t map_load(const __u64 *p) {
        return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

uint32_t map_load32(const __u32 *p) {
        return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

#define parts_foreach(i, p)                                                                             \
        for (unsigned _k = 0; _k < (p)->n; _k++)                                                        \
                for (unsigned i = (p)->parts[_k].first; i < (p)->parts[_k].end; i++)

const Parts window_all_parts = { .parts = { { 0, QOS_COUNTERS } }, .n = 1,
                                 .distributions = WINDOW_ALL_DISTRIBUTIONS };

/* The cells of selected distributions, and all plain counters. The sum of a distribution stored as
 * differences is usually unchanged, and then all its cells are. */
static Parts parts_of(unsigned distributions) {
        Parts p = {};

        if (distributions & 1U << QOS_LATENCY)
                distributions |= 1U << QOS_FIRST_BYTE;
        if (distributions & 1U << QOS_RECEIVE)
                distributions |= 1U << QOS_QUEUE;
        if (distributions & 1U << QOS_ANSWER)
                distributions |= 1U << QOS_SERVICE;
        p.distributions = distributions;
        for (enum qos_distribution d = 0; d < QOS_DISTRIBUTIONS; d++)
                if (distributions & 1U << d) {
                        p.parts[p.n].first = QOS_DISTRIBUTION_FIRST_COUNTER(d);
                        p.parts[p.n].sum = d == QOS_LATENCY || d == QOS_RECEIVE ||
                                           d == QOS_ANSWER ? d : QOS_SUMS;
                        p.parts[p.n++].end = QOS_DISTRIBUTION_FIRST_COUNTER(d) + QOS_DISTRIBUTION_BINS(d);
                }
        p.parts[p.n].first = QOS_COUNTER_COUNT;
        p.parts[p.n].sum = QOS_SUMS;
        p.parts[p.n++].end = QOS_COUNTERS;
        return p;
}

/* Reads 32 bit cells and their carries. Copies all of them; only if a carry has changed meanwhile, which is
 * very unlikely, reads them again one by one. */
static void cells_read(const struct qos_unit_map *u, unsigned first, unsigned end, uint64_t *cells) {
        uint32_t carries[QOS_COUNTERS], lows[QOS_COUNTERS];
        size_t size = (end - first) * sizeof(uint32_t);

        memcpy(carries, u->carry + first, size);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        memcpy(lows, u->cells + first, size);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (memcmp(carries, u->carry + first, size) == 0) {
                for (unsigned i = first; i < end; i++)
                        cells[i] = (uint64_t) carries[i - first] << 32 | lows[i - first];
                return;
        }

        for (unsigned i = first; i < end; i++) {
                uint32_t carry, low, again;

                carry = map_load32(&u->carry[i]);
                for (;;) {
                        low = map_load32(&u->cells[i]);
                        again = map_load32(&u->carry[i]);
                        if (again == carry)
                                break;
                        carry = again;
                }
                cells[i] = (uint64_t) carry << 32 | low;
        }
}

/* Reads the counters, widened to 64 bit. */
static void counters_read(const struct qos_unit_map *u, const Parts *parts, uint64_t *cells,
                          uint64_t *sums) {
        for (unsigned k = 0; k < parts->n; k++)
                cells_read(u, parts->parts[k].first, parts->parts[k].end, cells);
        for (unsigned i = 0; i < QOS_SUMS; i++)
                sums[i] = map_load(&u->sums[i]);
}

/* Whether the counters are unchanged. */
static bool counters_are_still(const struct qos_unit_map *u, const Parts *parts, const uint64_t *cells,
                               const uint64_t *sums) {
        uint64_t changes = 0;

        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        parts_foreach(i, parts)
                changes |= cells[i] ^ ((uint64_t) u->carry[i] << 32 | u->cells[i]);
        for (unsigned i = 0; i < QOS_SUMS; i++)
                changes |= sums[i] ^ map_load(&u->sums[i]);
        return changes == 0;
}

/* Limit of attempts to read counters without a concurrent sample, which may be in the sum of a distribution,
 * but not in its bin yet: counters have to be unchanged after reading. Reading takes 1 to 2 us: at 100,000
 * requests per second a fifth of the attempts fail, but practically never all. Then the error is one sample
 * per CPU. */
#define SETTLE_TRIES 32
void counters_read_settled(const struct qos_unit_map *u, const Parts *parts, uint64_t *cells,
                           uint64_t *sums) {
        for (unsigned try = 0; try < SETTLE_TRIES; try++) {
                counters_read(u, parts, cells, sums);
                if (counters_are_still(u, parts, cells, sums))
                        return;
        }
}

/* As counters_read_settled(), but faster: programs add to the sum before the bin, so that there was no
 * sample if sums are unchanged. */
static void parts_read_settled(const struct qos_unit_map *u, const Parts *parts, uint64_t *cells,
                               uint64_t *sums) {
        uint64_t again[QOS_SUMS];

        for (unsigned i = 0; i < QOS_SUMS; i++)
                sums[i] = map_load(&u->sums[i]);
        for (unsigned try = 0; try < 4; try++) {
                counters_read(u, parts, cells, again);
                __atomic_thread_fence(__ATOMIC_ACQUIRE);
                for (unsigned i = 0; i < QOS_SUMS; i++)
                        again[i] = map_load(&u->sums[i]);
                if (memcmp(sums, again, sizeof(again)) == 0)
                        return;
                memcpy(sums, again, sizeof(again));
        }
}

/* Counters of a checkpoint: cells modulo 2^32. */
typedef struct Checkpoint {
        uint32_t cells[QOS_COUNTERS];
        uint64_t sums[QOS_SUMS];
        int64_t in_flight, open;
} Checkpoint;

/* Finds the checkpoint of a boundary, and its first and last boundary; NULL: none. */
static const struct qos_checkpoint* checkpoint_find(const struct qos_unit_map *u, unsigned level,
                                                    uint64_t boundary, uint64_t *ret_first,
                                                    uint64_t *ret_last) {
        unsigned n = QOS_LEVEL_CHECKPOINTS(level), guess;
        uint64_t epoch = map_load(&u->epoch) / QOS_LEVEL_EPOCHS(level);

        /* The index, if a checkpoint was written at every boundary. Checkpoints are pages apart, so that
         * checking all of them would take as long as reading one */
        guess = (map_load32(&u->written[level]) % n + 2 * n - 1 - (epoch - MIN(boundary, epoch)) % n) % n;
        for (unsigned i = 0; i < n; i++) {
                const struct qos_checkpoint *c = &u->checkpoints[QOS_LEVEL_FIRST_CHECKPOINT(level) +
                                                                 (guess + i) % n];
                uint64_t last = map_load(&c->last), first = map_load(&c->first);

                if (boundary < first || boundary > last)
                        continue;
                *ret_first = first;
                *ret_last = last;
                return c;
        }
        return NULL;
}

/* Whether the checkpoint was not overwritten while it was read. */
static bool checkpoint_is_still(const struct qos_checkpoint *c, uint64_t first, uint64_t last) {
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        return map_load(&c->last) == last && map_load(&c->first) == first;
}

/* -ENOENT: no checkpoint for the boundary. */
static int checkpoint_read(const struct qos_unit_map *u, unsigned level, uint64_t boundary,
                           Checkpoint *ret) {
        const struct qos_checkpoint *c;
        uint64_t first, last;

        c = checkpoint_find(u, level, boundary, &first, &last);
        if (!c)
                return -ENOENT;
        for (unsigned cell = 0; cell < QOS_COUNTERS; cell++)
                ret->cells[cell] = __atomic_load_n(&c->cells[cell], __ATOMIC_RELAXED);
        for (unsigned k = 0; k < QOS_SUMS; k++)
                ret->sums[k] = __atomic_load_n(&c->sums[k], __ATOMIC_RELAXED);
        ret->in_flight = __atomic_load_n(&c->in_flight, __ATOMIC_RELAXED);
        ret->open = __atomic_load_n(&c->open, __ATOMIC_RELAXED);
        return checkpoint_is_still(c, first, last) ? 0 : -ENOENT;
}

/* Subtracts modulo 2^32. Results may be negative for distributions stored as differences. */
static void checkpoint_subtract(const Checkpoint *c, uint64_t *cells, uint64_t *sums) {
        for (unsigned i = 0; i < QOS_COUNTERS; i++)
                cells[i] = (uint64_t) (int64_t) (int32_t) ((uint32_t) cells[i] - c->cells[i]);
        for (unsigned k = 0; k < QOS_SUMS; k++)
                sums[k] -= c->sums[k];
}

/* Counters that differ from a checkpoint: some dozen of several thousand cells. */
typedef struct Changes {
        unsigned n;
        uint16_t cells[QOS_COUNTERS];
        int32_t by[QOS_COUNTERS];
        uint64_t sums[QOS_SUMS];
} Changes;

static void change_add(Changes *changes, const struct qos_unit_map *u, const struct qos_checkpoint *c,
                       unsigned cell) {
        uint32_t by = __atomic_load_n(&u->cells[cell], __ATOMIC_RELAXED) - __atomic_load_n(&c->cells[cell],
                        __ATOMIC_RELAXED);

        if (by == 0)
                return;
        changes->cells[changes->n] = cell;
        changes->by[changes->n++] = (int32_t) by;
}

/* Loads two cells as one aligned word. */
static uint64_t load_pair(const __u32 *p) {
        return __atomic_load_n((const uint64_t*) (const void*) p, __ATOMIC_RELAXED);
}

_Static_assert(offsetof(struct qos_unit_map, cells) % sizeof(uint64_t) == 0 &&
               offsetof(struct qos_checkpoint, cells) % sizeof(uint64_t) == 0 &&
               HISTOGRAM_FINE_BINS % 2 == 0 && HISTOGRAM_COARSE_BINS % 2 == 0, "pairs of cells are words");

/* Consistent as in parts_read_settled(). -ENOENT: no checkpoint. */
static int changes_read(const struct qos_unit_map *u, const Parts *parts, unsigned level, uint64_t boundary,
                        Changes *ret) {
        const struct qos_checkpoint *c;
        uint64_t first, last, again[QOS_SUMS];

        c = checkpoint_find(u, level, boundary, &first, &last);
        if (!c)
                return -ENOENT;

        for (unsigned i = 0; i < QOS_SUMS; i++)
                ret->sums[i] = map_load(&u->sums[i]);
        for (unsigned try = 0; try < 4; try++) {
                ret->n = 0;
                for (unsigned k = 0; k < parts->n; k++) {
                        unsigned cell = parts->parts[k].first, end = parts->parts[k].end,
                                sum = parts->parts[k].sum;

                        if (sum < QOS_SUMS &&
                            ret->sums[sum] == __atomic_load_n(&c->sums[sum], __ATOMIC_RELAXED))
                                continue;
                        for (; cell + 1 < end; cell += 2)
                                if (load_pair(&u->cells[cell]) != load_pair(&c->cells[cell])) {
                                        change_add(ret, u, c, cell);
                                        change_add(ret, u, c, cell + 1);
                                }
                        if (cell < end)
                                change_add(ret, u, c, cell);
                }
                __atomic_thread_fence(__ATOMIC_ACQUIRE);
                for (unsigned i = 0; i < QOS_SUMS; i++)
                        again[i] = map_load(&u->sums[i]);
                if (memcmp(ret->sums, again, sizeof(again)) == 0)
                        break;
                memcpy(ret->sums, again, sizeof(again));
        }
        for (unsigned i = 0; i < QOS_SUMS; i++)
                ret->sums[i] -= __atomic_load_n(&c->sums[i], __ATOMIC_RELAXED);
        return checkpoint_is_still(c, first, last) ? 0 : -ENOENT;
}

void max_rings_read(const struct qos_max_ring *rings, unsigned n, unsigned level, uint64_t first,
                    uint64_t last, uint64_t *maxima) {
        for (unsigned k = 0; k < n; k++)
                for (uint64_t subwindow = first; subwindow <= last; subwindow++) {
                        unsigned i = QOS_LEVEL_FIRST_MAXIMUM(level) + subwindow % QOS_LEVEL_MAXIMA(level);
                        uint64_t word = map_load(&rings[k].ring[i]);

                        if (word >> QOS_MAXIMUM_BITS == (subwindow & (UINT64_MAX >> QOS_MAXIMUM_BITS)))
                                maxima[k] = MAX(maxima[k], word & QOS_MAXIMUM_MASK);
                }
}

static void maxima_read(const struct qos_unit_map *u, unsigned level, uint64_t first, uint64_t last,
                        uint64_t *ret) {
        for (uint64_t subwindow = first; subwindow <= last; subwindow++) {
                unsigned i = QOS_LEVEL_FIRST_MAXIMUM(level) + subwindow % QOS_LEVEL_MAXIMA(level);

                for (unsigned d = 0; d < QOS_DISTRIBUTIONS; d++) {
                        uint64_t word = map_load(&u->maxima[i][d]);

                        if (word >> QOS_MAXIMUM_BITS == (subwindow & (UINT64_MAX >> QOS_MAXIMUM_BITS)))
                                ret[d] = MAX(ret[d], word & QOS_MAXIMUM_MASK);
                }
        }
}

/* Makes bins non-negative. Moving a sample (window_move()) increments a bin and decrements a lower one. If
 * the latter precedes the window, it becomes negative: take the sample from the next non-empty bin above, so
 * that the number of samples is right. */
void bins_settle(uint64_t *bins, unsigned n) {
        uint64_t signs = 0;
        int64_t missing = 0;

        /* Fast path: usually no bin is negative */
        for (unsigned i = 0; i < n; i++)
                signs |= bins[i];
        if ((int64_t) signs >= 0)
                return;

        for (unsigned i = 0; i < n; i++) {
                missing += (int64_t) bins[i];
                bins[i] = missing > 0 ? (uint64_t) missing : 0;
                missing = MIN(missing, INT64_C(0));
        }
}

/* Adds the base distribution to those stored as differences (unit-map.h). Differences add up to zero, so
 * that the number of samples is that of the base, even with concurrent samples. */
static void window_complete(WindowReading *r, const Parts *parts) {
        if (parts->distributions & 1U << QOS_LATENCY)
                for (unsigned i = 0; i < HISTOGRAM_FINE_BINS; i++)
                        r->cells[QOS_DISTRIBUTION_FIRST_COUNTER(QOS_LATENCY) + i] +=
                                r->cells[QOS_DISTRIBUTION_FIRST_COUNTER(QOS_FIRST_BYTE) + i];
        r->sums[QOS_LATENCY] += r->sums[QOS_FIRST_BYTE];
        r->maxima[QOS_LATENCY] = MAX(r->maxima[QOS_LATENCY], r->maxima[QOS_FIRST_BYTE]);

        if (parts->distributions & 1U << QOS_RECEIVE)
                r->cells[QOS_DISTRIBUTION_FIRST_COUNTER(QOS_RECEIVE)] += window_get_count(r, QOS_QUEUE);
        if (parts->distributions & 1U << QOS_ANSWER)
                r->cells[QOS_DISTRIBUTION_FIRST_COUNTER(QOS_ANSWER)] += window_get_count(r, QOS_SERVICE);

        for (enum qos_distribution d = 0; d < QOS_DISTRIBUTIONS; d++)
                if (parts->distributions & 1U << d)
                        bins_settle(r->cells + QOS_DISTRIBUTION_FIRST_COUNTER(d), QOS_DISTRIBUTION_BINS(d));
        for (unsigned i = 0; i < QOS_SUMS; i++)
                if ((int64_t) r->sums[i] < 0)
                        r->sums[i] = 0;
}

static uint64_t signature_of(const uint64_t *cells, const uint64_t *sums) {
        return hash_words(hash_words(UINT64_C(0xcbf29ce484222325), cells, QOS_COUNTERS), sums, QOS_SUMS);
}

/* Limits maxima to the highest non-empty bin, as some may be from before the window. */
static void maxima_settle(WindowReading *r, const Parts *parts) {
        for (enum qos_distribution d = 0; d < QOS_DISTRIBUTIONS; d++)
                for (unsigned bin = parts->distributions & 1U << d ? QOS_DISTRIBUTION_BINS(d) : 0; bin-- > 0;
                     ) {
                        uint64_t lower, upper;

                        if (r->cells[QOS_DISTRIBUTION_FIRST_COUNTER(d) + bin] == 0)
                                continue;
                        window_get_bounds(d, bin, &lower, &upper);
                        r->maxima[d] = MIN(r->maxima[d], upper);
                        break;
                }
}

static void reading_add(WindowReading *r, const Parts *parts, const uint64_t *cells, const uint64_t *sums) {
        parts_foreach(i, parts)
                r->cells[i] += cells[i];
        for (unsigned i = 0; i < QOS_SUMS; i++)
                r->sums[i] += sums[i];
}

static void reading_add_changes(WindowReading *r, const Changes *changes) {
        for (unsigned i = 0; i < changes->n; i++)
                r->cells[changes->cells[i]] += (uint64_t) (int64_t) changes->by[i];
        for (unsigned i = 0; i < QOS_SUMS; i++)
                r->sums[i] += changes->sums[i];
}

/* Initializes a reading of the selected parts. */
static void reading_begin(WindowReading *r, const Parts *parts, uint64_t boundary, uint64_t covered) {
        for (unsigned k = 0; k < parts->n; k++)
                memset(r->cells + parts->parts[k].first, 0,
                       (parts->parts[k].end - parts->parts[k].first) * sizeof(r->cells[0]));
        memset(r->sums, 0, sizeof(r->sums));
        memset(r->maxima, 0, sizeof(r->maxima));
        r->boundary = boundary;
        r->covered = covered;
        r->signature = 0;
}

static void reading_subtract(WindowReading *r, const Parts *parts, const WindowMark *mark) {
        parts_foreach(i, parts)
                r->cells[i] -= mark->cells[i];
        for (unsigned i = 0; i < QOS_SUMS; i++)
                r->sums[i] -= mark->sums[i];
}

/* Combines the signature of a map, if all cells were read. */
static void reading_sign(WindowReading *r, const Parts *parts, const uint64_t *cells, const uint64_t *sums) {
        if (parts == &window_all_parts)
                r->signature = (r->signature ^ signature_of(cells, sums)) * UINT64_C(0x100000001b3);
}

/* Sums up the current counters of all maps, with signature. */
static void sources_read(const WindowSource *sources, size_t n, const Parts *parts, WindowReading *ret) {
        uint64_t cells[QOS_COUNTERS], sums[QOS_SUMS];

        reading_begin(ret, parts, 0, 0);
        for (size_t i = 0; i < n; i++) {
                counters_read_settled(sources[i].map, parts, cells, sums);
                reading_add(ret, parts, cells, sums);
                reading_sign(ret, parts, cells, sums);
        }
}

/* Maxima since a mark: exact if they are the largest since attach, or nothing larger was in the sub-window
 * before the mark. */
void maxima_read_since(const struct qos_unit_map *u, uint64_t now, const WindowMark *mark, uint64_t *ret) {
        uint64_t maxima[QOS_DISTRIBUTIONS] = {};
        bool known = false;

        for (unsigned level = 0; level < QOS_LEVELS && !known; level++) {
                uint64_t step = QOS_LEVEL_EPOCHS(level) * QOS_EPOCH_NSEC;

                known = now / step - mark->at / step < QOS_LEVEL_MAXIMA(level) - 1;
                if (known)
                        maxima_read(u, level, mark->at / step, now / step, maxima);
        }

        for (unsigned d = 0; d < QOS_DISTRIBUTIONS; d++) {
                uint64_t total = map_load(&u->maxima_total[d]);

                ret[d] = MAX(ret[d], total > mark->maxima[d] || !known ? total : maxima[d]);
        }
}

/* Reads everything since the attach, as stored. */
static void total_read(const WindowSources *w, uint64_t now, const Parts *parts, WindowReading *ret) {
        static const WindowMark nothing = {};

        sources_read(w->sources, w->n, parts, ret);
        ret->boundary = w->attached_at;
        ret->covered = now > w->attached_at ? now - w->attached_at : 0;
        for (size_t i = 0; i < w->n; i++)
                maxima_read_since(w->sources[i].map, now, w->base ? &w->base->before : &nothing,
                        ret->maxima);
        if (!w->base)
                return;

        reading_subtract(ret, parts, &w->base->before);
        for (unsigned d = 0; d < QOS_DISTRIBUTIONS; d++)
                ret->maxima[d] = MAX(ret->maxima[d], w->base->maxima[d]);
}

/* Adds the counters of a map since a boundary of the level. Returns 1; 0: nothing was counted since. */
static int source_read(const WindowSource *b, unsigned level, uint64_t boundary, uint64_t current,
                       const Parts *parts, WindowReading *ret) {
        uint64_t cells[QOS_COUNTERS], sums[QOS_SUMS], step = QOS_LEVEL_EPOCHS(level) * QOS_EPOCH_NSEC;
        const struct qos_unit_map *u = b->map;
        bool young = boundary * step <= b->since;
        Checkpoint checkpoint;
        Changes changes;

        for (unsigned try = 0; try < TRIES_MAX; try++) {
                /* Read before the counters: a concurrent event may then be in both, but is not lost */
                bool quiet = map_load(&u->epoch) / QOS_LEVEL_EPOCHS(level) < boundary;

                /* Copy changes only, as thresholds read selected distributions ten times a second */
                if (parts != &window_all_parts && !young) {
                        /* No event within the window, and no signature requested */
                        if (quiet)
                                return 0;
                        if (changes_read(u, parts, level, boundary, &changes) < 0)
                                continue;
                        reading_add_changes(ret, &changes);
                        maxima_read(u, level, boundary, current, ret->maxima);
                        return 1;
                }

                if (parts == &window_all_parts)
                        counters_read_settled(u, parts, cells, sums);
                else
                        parts_read_settled(u, parts, cells, sums);

                if (young) {
                        reading_add(ret, parts, cells, sums);
                        reading_sign(ret, parts, cells, sums);
                        maxima_read(u, level, b->since / step, current, ret->maxima);
                        return 1;
                }

                if (checkpoint_read(u, level, boundary, &checkpoint) >= 0) {
                        reading_sign(ret, parts, cells, sums);
                        checkpoint_subtract(&checkpoint, cells, sums);
                        reading_add(ret, parts, cells, sums);
                        maxima_read(u, level, boundary, current, ret->maxima);
                        return 1;
                }

                if (quiet && map_load(&u->epoch) / QOS_LEVEL_EPOCHS(level) < boundary) {
                        /* No event within the window, as above */
                        reading_sign(ret, parts, cells, sums);
                        return 0;
                }
        }

        return -EAGAIN;
}

static int parts_read(const WindowSources *w, uint64_t now, uint64_t window, const Parts *parts,
                      WindowReading *ret) {
        uint64_t step, current, boundary;
        bool some = false;
        unsigned level, n;
        int r;

        assert(w);
        assert(ret);
        assert(window_is_valid(window));

        if (window == WINDOW_TOTAL) {
                total_read(w, now, parts, ret);
                window_complete(ret, parts);
                if (w->base)
                        maxima_settle(ret, parts);
                return 0;
        }

        level = window_level(window);
        step = QOS_LEVEL_EPOCHS(level) * QOS_EPOCH_NSEC;
        n = window / step;

        current = now / step;
        boundary = window_boundary(current, n);

        if (boundary * step <= w->attached_at) {
                total_read(w, now, parts, ret);
                /* The total maxima include the time before the attach, which matters if the window is longer
                 * than the total */
                memset(ret->maxima, 0, sizeof(ret->maxima));
                for (size_t i = 0; i < w->n; i++)
                        maxima_read(w->sources[i].map, level, w->attached_at / step, current, ret->maxima);
        } else {
                reading_begin(ret, parts, boundary * step, now - boundary * step);
                for (size_t i = 0; i < w->n; i++) {
                        r = source_read(&w->sources[i], level, boundary, current, parts, ret);
                        if (r < 0)
                                return r;
                        some = some || r > 0;
                }
                if (!some)
                        return 0;
        }

        window_complete(ret, parts);
        if (w->base && ret->boundary == w->attached_at)
                maxima_settle(ret, parts);
        return 0;
}

int window_read(const WindowSources *w, uint64_t now, uint64_t window, WindowReading *ret) {
        return parts_read(w, now, window, &window_all_parts, ret);
}

int window_read_some(const WindowSources *w, uint64_t now, uint64_t window, unsigned distributions,
                     WindowReading *ret) {
        Parts parts = parts_of(distributions);

        return parts_read(w, now, window, &parts, ret);
}

int window_read_distribution(const WindowSource *b, uint64_t now, uint64_t window, enum qos_distribution d,
                             WindowReading *ret) {
        const Parts parts = parts_of(1U << d);
        uint64_t step, current, boundary;
        const struct qos_unit_map *u = b->map;
        unsigned level;
        int r;

        assert(b);
        assert(ret);
        assert(window_is_valid(window));

        level = window == WINDOW_TOTAL ? 0 : window_level(window);
        step = QOS_LEVEL_EPOCHS(level) * QOS_EPOCH_NSEC;
        current = now / step;
        boundary = window == WINDOW_TOTAL ? 0 : window_boundary(current, window / step);

        if (window == WINDOW_TOTAL) {
                reading_begin(ret, &parts, b->since, 0);
                parts_read_settled(u, &parts, ret->cells, ret->sums);
                for (enum qos_distribution i = 0; i < QOS_DISTRIBUTIONS; i++)
                        ret->maxima[i] = map_load(&u->maxima_total[i]);
        } else {
                reading_begin(ret, &parts, MAX(boundary * step, b->since), 0);
                r = source_read(b, level, boundary, current, &parts, ret);
                if (r < 0)
                        return r;
        }

        ret->covered = now > ret->boundary ? now - ret->boundary : 0;
        window_complete(ret, &parts);
        return 0;
}

void sources_mark(const WindowSource *sources, size_t n, uint64_t now, WindowMark *ret) {
        WindowReading r;

        sources_read(sources, n, &window_all_parts, &r);
        *ret = (WindowMark) { .at = now };
        memcpy(ret->cells, r.cells, sizeof(ret->cells));
        memcpy(ret->sums, r.sums, sizeof(ret->sums));
        for (size_t i = 0; i < n; i++)
                for (unsigned d = 0; d < QOS_DISTRIBUTIONS; d++)
                        ret->maxima[d] = MAX(ret->maxima[d], map_load(&sources[i].map->maxima_total[d]));
}

void window_mark(const WindowSources *w, uint64_t now, WindowMark *ret) {
        assert(w);
        assert(ret);

        sources_mark(w->sources, w->n, now, ret);
        if (!w->base)
                return;
        for (unsigned i = 0; i < QOS_COUNTERS; i++)
                ret->cells[i] -= w->base->before.cells[i];
        for (unsigned i = 0; i < QOS_SUMS; i++)
                ret->sums[i] -= w->base->before.sums[i];
}

void window_read_since(const WindowSources *w, uint64_t now, const WindowMark *mark, WindowReading *ret) {
        assert(w);
        assert(mark);
        assert(ret);

        sources_read(w->sources, w->n, &window_all_parts, ret);
        ret->boundary = mark->at;
        ret->covered = now > mark->at ? now - mark->at : 0;

        if (w->base)
                reading_subtract(ret, &window_all_parts, &w->base->before);
        reading_subtract(ret, &window_all_parts, mark);
        for (size_t i = 0; i < w->n; i++)
                maxima_read_since(w->sources[i].map, now, mark, ret->maxima);
        window_complete(ret, &window_all_parts);
        maxima_settle(ret, &window_all_parts);
}

/* Reads the counters at a boundary of level 2 in the past. */
static int boundary_read(const WindowSource *b, uint64_t boundary, Checkpoint *ret) {
        const struct qos_unit_map *u = b->map;
        uint64_t cells[QOS_COUNTERS];

        if (boundary * WINDOW_STEP_NSEC <= b->since) {
                *ret = (Checkpoint) {};
                return 0;
        }

        for (unsigned try = 0; try < TRIES_MAX; try++) {
                if (checkpoint_read(u, 2, boundary, ret) >= 0)
                        return 0;

                /* Without an event since, there is no checkpoint yet, which would have the current
                 * counters */
                if (map_load(&u->epoch) / QOS_LEVEL_EPOCHS(2) >= boundary) {
                        if (map_load32(&u->rolling) == 0 && checkpoint_read(u, 2, boundary, ret) < 0)
                                return -ENODATA;
                        continue;
                }
                counters_read_settled(u, &window_all_parts, cells, ret->sums);
                for (unsigned i = 0; i < QOS_COUNTERS; i++)
                        ret->cells[i] = (uint32_t) cells[i];
                ret->in_flight = __atomic_load_n(&u->in_flight, __ATOMIC_RELAXED);
                ret->open = __atomic_load_n(&u->open, __ATOMIC_RELAXED);
                __atomic_thread_fence(__ATOMIC_ACQUIRE);
                if (map_load(&u->epoch) / QOS_LEVEL_EPOCHS(2) < boundary)
                        return 0;
        }

        return -EAGAIN;
}

/* Adds the counters of a map at the end of a step. without_from: subtracts those at its beginning. */
static int source_read_step(const WindowSource *b, uint64_t n, bool without_from, Checkpoint *sum) {
        Checkpoint from = {}, to, again;
        int r;

        /* A moved sample leaves checkpoints in chronological order: if the later checkpoint is unchanged
         * after the earlier one was read, none was moved */
        for (unsigned try = 0; ; try++) {
                r = boundary_read(b, n + 1, &to);
                if (r >= 0 && without_from)
                        r = boundary_read(b, n, &from);
                if (r >= 0)
                        r = boundary_read(b, n + 1, &again);
                if (r < 0)
                        return r;
                if (memcmp(to.cells, again.cells, sizeof(to.cells)) == 0 &&
                    memcmp(to.sums, again.sums, sizeof(to.sums)) == 0)
                        break;
                if (try >= TRIES_MAX)
                        return -EAGAIN;
        }

        for (unsigned i = 0; i < QOS_COUNTERS; i++)
                sum->cells[i] += to.cells[i] - from.cells[i];
        for (unsigned i = 0; i < QOS_SUMS; i++)
                sum->sums[i] += to.sums[i] - from.sums[i];
        sum->in_flight += to.in_flight;
        sum->open += to.open;
        return 0;
}

int window_read_step(const WindowSources *w, uint64_t n, WindowReading *ret, WindowGauges *ret_gauges) {
        uint64_t begin = n * WINDOW_STEP_NSEC, end = begin + WINDOW_STEP_NSEC;
        Checkpoint sum = {};
        bool whole;
        int r;

        assert(w);
        assert(ret);
        assert(ret_gauges);

        if (end <= w->attached_at)
                return -ENODATA;
        whole = begin > w->attached_at;

        *ret = (WindowReading) {
                .boundary = MAX(begin, w->attached_at),
                .covered = end - MAX(begin, w->attached_at),
        };
        for (size_t i = 0; i < w->n; i++) {
                r = source_read_step(&w->sources[i], n, whole, &sum);
                if (r < 0)
                        return r;
                maxima_read(w->sources[i].map, 2, n, n, ret->maxima);
        }

        for (unsigned i = 0; i < QOS_COUNTERS; i++)
                ret->cells[i] = (uint64_t) (int64_t) (int32_t)
                        (sum.cells[i] - (whole || !w->base ? 0 : (uint32_t) w->base->before.cells[i]));
        for (unsigned i = 0; i < QOS_SUMS; i++)
                ret->sums[i] = sum.sums[i] - (whole || !w->base ? 0 : w->base->before.sums[i]);
        ret->signature = signature_of(ret->cells, ret->sums);
        window_complete(ret, &window_all_parts);
        if (!whole && w->base)
                maxima_settle(ret, &window_all_parts);

        *ret_gauges = (WindowGauges) {
                .in_flight = (uint64_t) MAX(sum.in_flight, INT64_C(0)),
                .open = (uint64_t) MAX(sum.open, INT64_C(0)),
        };
        return 0;
}

int window_read_clock(const struct qos_unit_map *u, unsigned level, uint64_t boundary, uint64_t *ret) {
        assert(u);
        assert(ret);

        for (unsigned try = 0; try < TRIES_MAX; try++) {
                const struct qos_checkpoint *c;
                uint64_t now, first, last;

                c = checkpoint_find(u, level, boundary, &first, &last);
                if (c) {
                        *ret = map_load(&c->serving);
                        if (checkpoint_is_still(c, first, last))
                                return 0;
                }
                /* Without an event since, the clock has its current value */
                now = map_load(&u->serving);
                __atomic_thread_fence(__ATOMIC_ACQUIRE);
                if (map_load32(&u->rolling) == 0 &&
                    map_load(&u->epoch) / QOS_LEVEL_EPOCHS(level) < boundary) {
                        *ret = now;
                        return 0;
                }
        }
        return -EAGAIN;
}
