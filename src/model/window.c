/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <math.h>

#include "util.h"
#include "window.h"

/* How often a reader starts anew because a checkpoint was overwritten while it was copied: that takes a program that
 * rolls on in just these microseconds, which it does ten times a second at most. */
#define TRIES_MAX 16

/* Of a hundred questions, how many may come while one is open before "one answer per question" is not true. */
#define OVERLAP_PERCENT 1

bool window_is_valid(uint64_t window) {
        if (window == WINDOW_TOTAL || window == 60 * NSEC_PER_SEC || window == 300 * NSEC_PER_SEC)
                return true;
        if (window <= NSEC_PER_SEC)
                return window % (100 * NSEC_PER_MSEC) == 0;
        return window <= 10 * NSEC_PER_SEC && window % NSEC_PER_SEC == 0;
}

unsigned window_level(uint64_t window) {
        return window <= NSEC_PER_SEC ? 0 : window <= 10 * NSEC_PER_SEC ? 1 : window <= 60 * NSEC_PER_SEC ? 2 : 3;
}

/* Of six and more the oldest is left out, so that not more than the window is covered; of fewer it is kept, or too little would
 * be. A machine may be younger than the window. */
uint64_t window_boundary(uint64_t current, uint64_t n) {
        uint64_t end = current + (n >= 6);

        return end - MIN(end, n);
}

static uint64_t load(const __u64 *p) {
        return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

static uint32_t load32(const __u32 *p) {
        return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

/* The cells that a reader wants, in order: nearly all that a reading takes is what its cells take. */
typedef struct Parts {
        struct {
                unsigned first, end;
                unsigned sum;           /* all cells are the same as long as this is; QOS_SUMS: there is none */
        } parts[QOS_DISTRIBUTIONS + 1];
        unsigned n;
        unsigned distributions;         /* by bits, with those that they are differences from */
} Parts;

#define parts_foreach(i, p)                                                                             \
        for (unsigned _k = 0; _k < (p)->n; _k++)                                                        \
                for (unsigned i = (p)->parts[_k].first; i < (p)->parts[_k].end; i++)

static const Parts all_parts = { .parts = { { 0, QOS_COUNTERS } }, .n = 1, .distributions = WINDOW_ALL_DISTRIBUTIONS };

/* The bins of the distributions, and all that is no bin. What is kept as a difference from another one is nearly always 0, and so is
 * its sum. */
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
                        p.parts[p.n].sum = d == QOS_LATENCY || d == QOS_RECEIVE || d == QOS_ANSWER ? d : QOS_SUMS;
                        p.parts[p.n++].end = QOS_DISTRIBUTION_FIRST_COUNTER(d) + QOS_DISTRIBUTION_BINS(d);
                }
        p.parts[p.n].first = QOS_COUNTER_COUNT;
        p.parts[p.n].sum = QOS_SUMS;
        p.parts[p.n++].end = QOS_COUNTERS;
        return p;
}

/* Some thousand counters, of which none has a carry while they are read, nearly always. */
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

                carry = load32(&u->carry[i]);
                for (;;) {
                        low = load32(&u->cells[i]);
                        again = load32(&u->carry[i]);
                        if (again == carry)
                                break;
                        carry = again;
                }
                cells[i] = (uint64_t) carry << 32 | low;
        }
}

/* The counters as they are now, 64 bit wide. */
static void counters_read(const struct qos_unit_map *u, const Parts *parts, uint64_t *cells,
                uint64_t *sums) {
        for (unsigned k = 0; k < parts->n; k++)
                cells_read(u, parts->parts[k].first, parts->parts[k].end, cells);
        for (unsigned i = 0; i < QOS_SUMS; i++)
                sums[i] = load(&u->sums[i]);
}

/* Whether all counters are what was read. */
static bool counters_are_still(const struct qos_unit_map *u, const Parts *parts, const uint64_t *cells, const uint64_t *sums) {
        uint64_t changes = 0;

        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        parts_foreach(i, parts)
                changes |= cells[i] ^ ((uint64_t) u->carry[i] << 32 | u->cells[i]);
        for (unsigned i = 0; i < QOS_SUMS; i++)
                changes |= sums[i] ^ load(&u->sums[i]);
        return changes == 0;
}

/* A bin and the sum beside it are two words: while programs run a sample may be in the one already and not in the other.
 * Counters that are still the same after they were read have no sample between. That takes a microsecond or two: at 100000 requests
 * per second one of five readings has one, and all of SETTLE_TRIES practically never. Where none is found what is off is one sample
 * per CPU out of very many. */
#define SETTLE_TRIES 32
static void counters_read_settled(const struct qos_unit_map *u, const Parts *parts, uint64_t *cells, uint64_t *sums) {
        for (unsigned try = 0; try < SETTLE_TRIES; try++) {
                counters_read(u, parts, cells, sums);
                if (counters_are_still(u, parts, cells, sums))
                        return;
        }
}

/* As counters_read_settled(), in less time. A sample is in the sum first, and in its bin then: while the sums stay as they are, none
 * has come. */
static void parts_read_settled(const struct qos_unit_map *u, const Parts *parts, uint64_t *cells, uint64_t *sums) {
        uint64_t again[QOS_SUMS];

        for (unsigned i = 0; i < QOS_SUMS; i++)
                sums[i] = load(&u->sums[i]);
        for (unsigned try = 0; try < 4; try++) {
                counters_read(u, parts, cells, again);
                __atomic_thread_fence(__ATOMIC_ACQUIRE);
                for (unsigned i = 0; i < QOS_SUMS; i++)
                        again[i] = load(&u->sums[i]);
                if (memcmp(sums, again, sizeof(again)) == 0)
                        return;
                memcpy(sums, again, sizeof(again));
        }
}

/* The counters as a checkpoint has them: modulo 2^32. */
typedef struct Checkpoint {
        uint32_t cells[QOS_COUNTERS];
        uint64_t sums[QOS_SUMS];
        int64_t in_flight, open;
} Checkpoint;

/* The checkpoint that has the boundary, and what its two words were then. NULL: there is none. */
static const struct qos_checkpoint* checkpoint_find(const struct qos_unit_map *u, unsigned level, uint64_t boundary, uint64_t *ret_first, uint64_t *ret_last) {
        unsigned n = QOS_LEVEL_CHECKPOINTS(level), guess;
        uint64_t epoch = load(&u->epoch) / QOS_LEVEL_EPOCHS(level);

        /* Where there is one for each boundary it is this one, where there are fewer one that was written later. They lie pages apart:
         * to look at all of them takes as long as to read one */
        guess = (load32(&u->written[level]) % n + 2 * n - 1 - (epoch - MIN(boundary, epoch)) % n) % n;
        for (unsigned i = 0; i < n; i++) {
                const struct qos_checkpoint *c = &u->checkpoints[QOS_LEVEL_FIRST_CHECKPOINT(level) + (guess + i) % n];
                uint64_t last = load(&c->last), first = load(&c->first);

                if (boundary < first || boundary > last)
                        continue;
                *ret_first = first;
                *ret_last = last;
                return c;
        }
        return NULL;
}

/* Whether it was the same all the time that it was read. */
static bool checkpoint_is_still(const struct qos_checkpoint *c, uint64_t first, uint64_t last) {
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        return load(&c->last) == last && load(&c->first) == first;
}

/* -ENOENT: there is none for the boundary. */
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

/* Modulo 2^32, and below zero where what is kept is a difference */
static void checkpoint_subtract(const Checkpoint *c, uint64_t *cells, uint64_t *sums) {
        for (unsigned i = 0; i < QOS_COUNTERS; i++)
                cells[i] = (uint64_t) (int64_t) (int32_t) ((uint32_t) cells[i] - c->cells[i]);
        for (unsigned k = 0; k < QOS_SUMS; k++)
                sums[k] -= c->sums[k];
}

/* What the counters are ahead of a checkpoint. Of some thousand cells a window has some dozen: the others are only compared. */
typedef struct Changes {
        unsigned n;
        uint16_t cells[QOS_COUNTERS];
        int32_t by[QOS_COUNTERS];
        uint64_t sums[QOS_SUMS];
} Changes;

static void change_add(Changes *changes, const struct qos_unit_map *u, const struct qos_checkpoint *c, unsigned cell) {
        uint32_t by = __atomic_load_n(&u->cells[cell], __ATOMIC_RELAXED) - __atomic_load_n(&c->cells[cell], __ATOMIC_RELAXED);

        if (by == 0)
                return;
        changes->cells[changes->n] = cell;
        changes->by[changes->n++] = (int32_t) by;
}

/* Both cells of a pair at once: they lie where a word does. */
static uint64_t load_pair(const __u32 *p) {
        return __atomic_load_n((const uint64_t*) (const void*) p, __ATOMIC_RELAXED);
}

_Static_assert(offsetof(struct qos_unit_map, cells) % sizeof(uint64_t) == 0 && offsetof(struct qos_checkpoint, cells) % sizeof(uint64_t) == 0 &&
               HISTOGRAM_FINE_BINS % 2 == 0 && HISTOGRAM_COARSE_BINS % 2 == 0, "pairs of cells are words");

/* Settled as in parts_read_settled(). -ENOENT: there is no such checkpoint. */
static int changes_read(const struct qos_unit_map *u, const Parts *parts, unsigned level, uint64_t boundary, Changes *ret) {
        const struct qos_checkpoint *c;
        uint64_t first, last, again[QOS_SUMS];

        c = checkpoint_find(u, level, boundary, &first, &last);
        if (!c)
                return -ENOENT;

        for (unsigned i = 0; i < QOS_SUMS; i++)
                ret->sums[i] = load(&u->sums[i]);
        for (unsigned try = 0; try < 4; try++) {
                ret->n = 0;
                for (unsigned k = 0; k < parts->n; k++) {
                        unsigned cell = parts->parts[k].first, end = parts->parts[k].end, sum = parts->parts[k].sum;

                        if (sum < QOS_SUMS && ret->sums[sum] == __atomic_load_n(&c->sums[sum], __ATOMIC_RELAXED))
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
                        again[i] = load(&u->sums[i]);
                if (memcmp(ret->sums, again, sizeof(again)) == 0)
                        break;
                memcpy(ret->sums, again, sizeof(again));
        }
        for (unsigned i = 0; i < QOS_SUMS; i++)
                ret->sums[i] -= __atomic_load_n(&c->sums[i], __ATOMIC_RELAXED);
        return checkpoint_is_still(c, first, last) ? 0 : -ENOENT;
}

static void maxima_read(const struct qos_unit_map *u, unsigned level, uint64_t first, uint64_t last, uint64_t *ret) {
        for (uint64_t subwindow = first; subwindow <= last; subwindow++) {
                unsigned i = QOS_LEVEL_FIRST_MAXIMUM(level) + subwindow % QOS_LEVEL_MAXIMA(level);

                for (unsigned d = 0; d < QOS_DISTRIBUTIONS; d++) {
                        uint64_t word = load(&u->maxima[i][d]);

                        if (word >> QOS_MAXIMUM_BITS == (subwindow & (UINT64_MAX >> QOS_MAXIMUM_BITS)))
                                ret[d] = MAX(ret[d], word & QOS_MAXIMUM_MASK);
                }
        }
}

/* A sample that moves on is one more in a bin and one less in one below. If it was not in the latter to begin with (it
 * moves just now, or was there before a mark), that is below zero: the one is taken from the next bin above that has some,
 * so that the number of samples stays what it is. */
static void bins_settle(uint64_t *bins, unsigned n) {
        uint64_t signs = 0;
        int64_t missing = 0;

        /* Mostly none is, and that is seen sooner */
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

/* From what is kept to what is meant: distributions that are kept as their difference from another (unit-map.h) get that
 * added. The differences add up to zero, therefore they have as many samples as the other, whatever is torn. */
static void window_complete(WindowReading *r, const Parts *parts) {
        if (parts->distributions & 1U << QOS_LATENCY)
                for (unsigned i = 0; i < HISTOGRAM_FINE_BINS; i++)
                        r->cells[QOS_DISTRIBUTION_FIRST_COUNTER(QOS_LATENCY) + i] += r->cells[QOS_DISTRIBUTION_FIRST_COUNTER(QOS_FIRST_BYTE) + i];
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

/* No larger than the bins say: for maxima of which some are from before. */
static void maxima_settle(WindowReading *r, const Parts *parts) {
        for (enum qos_distribution d = 0; d < QOS_DISTRIBUTIONS; d++)
                for (unsigned bin = parts->distributions & 1U << d ? QOS_DISTRIBUTION_BINS(d) : 0; bin-- > 0;) {
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

/* Nothing in it yet, of what is wanted. */
static void reading_begin(WindowReading *r, const Parts *parts, uint64_t boundary, uint64_t covered) {
        for (unsigned k = 0; k < parts->n; k++)
                memset(r->cells + parts->parts[k].first, 0, (parts->parts[k].end - parts->parts[k].first) * sizeof(r->cells[0]));
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

/* Of several books, each of which has one: of all its cells, or none at all. */
static void reading_sign(WindowReading *r, const Parts *parts, const uint64_t *cells, const uint64_t *sums) {
        if (parts == &all_parts)
                r->signature = (r->signature ^ signature_of(cells, sums)) * UINT64_C(0x100000001b3);
}

/* What all books have counted by now, with the signature of that. */
static void sources_read(const WindowSource *sources, size_t n, const Parts *parts, WindowReading *ret) {
        uint64_t cells[QOS_COUNTERS], sums[QOS_SUMS];

        reading_begin(ret, parts, 0, 0);
        for (size_t i = 0; i < n; i++) {
                counters_read_settled(sources[i].map, parts, cells, sums);
                reading_add(ret, parts, cells, sums);
                reading_sign(ret, parts, cells, sums);
        }
}

/* The largest samples since a mark: exact if they are the largest since the attach, or no larger ones were in the sub-window
 * before the mark. */
static void maxima_read_since(const struct qos_unit_map *u, uint64_t now, const WindowMark *mark, uint64_t *ret) {
        uint64_t maxima[QOS_DISTRIBUTIONS] = {};
        bool known = false;

        for (unsigned level = 0; level < QOS_LEVELS && !known; level++) {
                uint64_t step = QOS_LEVEL_EPOCHS(level) * QOS_EPOCH_NSEC;

                known = now / step - mark->at / step < QOS_LEVEL_MAXIMA(level) - 1;
                if (known)
                        maxima_read(u, level, mark->at / step, now / step, maxima);
        }

        for (unsigned d = 0; d < QOS_DISTRIBUTIONS; d++) {
                uint64_t total = load(&u->maxima_total[d]);

                ret[d] = MAX(ret[d], total > mark->maxima[d] || !known ? total : maxima[d]);
        }
}

/* All since the attach, as it is kept. */
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

/* Adds what one book has since a boundary of the level. 0: nothing; 1: something, perhaps. */
static int source_read(const WindowSource *b, unsigned level, uint64_t boundary, uint64_t current, const Parts *parts, WindowReading *ret) {
        uint64_t cells[QOS_COUNTERS], sums[QOS_SUMS], step = QOS_LEVEL_EPOCHS(level) * QOS_EPOCH_NSEC;
        const struct qos_unit_map *u = b->map;
        bool young = boundary * step <= b->since;
        Checkpoint checkpoint;
        Changes changes;

        for (unsigned try = 0; try < TRIES_MAX; try++) {
                /* Before the counters: an event in between can then only be in both */
                bool quiet = load(&u->epoch) / QOS_LEVEL_EPOCHS(level) < boundary;

                /* Ten times a second for each unit with thresholds, where it is some */
                if (parts != &all_parts && !young) {
                        /* The newest event is older than the window, and nobody asks what there was before */
                        if (quiet)
                                return 0;
                        if (changes_read(u, parts, level, boundary, &changes) < 0)
                                continue;
                        reading_add_changes(ret, &changes);
                        maxima_read(u, level, boundary, current, ret->maxima);
                        return 1;
                }

                if (parts == &all_parts)
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

                if (quiet && load(&u->epoch) / QOS_LEVEL_EPOCHS(level) < boundary) {
                        /* As above */
                        reading_sign(ret, parts, cells, sums);
                        return 0;
                }
        }

        return -EAGAIN;
}

static int parts_read(const WindowSources *w, uint64_t now, uint64_t window, const Parts *parts, WindowReading *ret) {
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
                /* The total of maxima is for ever, also where it is only the window that is as long */
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
        return parts_read(w, now, window, &all_parts, ret);
}

int window_read_some(const WindowSources *w, uint64_t now, uint64_t window, unsigned distributions, WindowReading *ret) {
        Parts parts = parts_of(distributions);

        return parts_read(w, now, window, &parts, ret);
}

int window_read_distribution(const WindowSource *b, uint64_t now, uint64_t window, enum qos_distribution d, WindowReading *ret) {
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
                        ret->maxima[i] = load(&u->maxima_total[i]);
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

static void sources_mark(const WindowSource *sources, size_t n, uint64_t now, WindowMark *ret) {
        WindowReading r;

        sources_read(sources, n, &all_parts, &r);
        *ret = (WindowMark) { .at = now };
        memcpy(ret->cells, r.cells, sizeof(ret->cells));
        memcpy(ret->sums, r.sums, sizeof(ret->sums));
        for (size_t i = 0; i < n; i++)
                for (unsigned d = 0; d < QOS_DISTRIBUTIONS; d++)
                        ret->maxima[d] = MAX(ret->maxima[d], load(&sources[i].map->maxima_total[d]));
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

        sources_read(w->sources, w->n, &all_parts, ret);
        ret->boundary = mark->at;
        ret->covered = now > mark->at ? now - mark->at : 0;

        if (w->base)
                reading_subtract(ret, &all_parts, &w->base->before);
        reading_subtract(ret, &all_parts, mark);
        for (size_t i = 0; i < w->n; i++)
                maxima_read_since(w->sources[i].map, now, mark, ret->maxima);
        window_complete(ret, &all_parts);
        maxima_settle(ret, &all_parts);
}

/* The counters at a boundary of level 2 that has passed. */
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

                /* Nobody has come since, so there is none yet: it would be what is there now */
                if (load(&u->epoch) / QOS_LEVEL_EPOCHS(2) >= boundary) {
                        if (load32(&u->rolling) == 0 && checkpoint_read(u, 2, boundary, ret) < 0)
                                return -ENODATA;
                        continue;
                }
                counters_read_settled(u, &all_parts, cells, ret->sums);
                for (unsigned i = 0; i < QOS_COUNTERS; i++)
                        ret->cells[i] = (uint32_t) cells[i];
                ret->in_flight = __atomic_load_n(&u->in_flight, __ATOMIC_RELAXED);
                ret->open = __atomic_load_n(&u->open, __ATOMIC_RELAXED);
                __atomic_thread_fence(__ATOMIC_ACQUIRE);
                if (load(&u->epoch) / QOS_LEVEL_EPOCHS(2) < boundary)
                        return 0;
        }

        return -EAGAIN;
}

/* Adds what one book has at the end of a step, and without_from: not what it had at its begin. */
static int source_read_step(const WindowSource *b, uint64_t n, bool without_from, Checkpoint *sum) {
        Checkpoint from = {}, to, again;
        int r;

        /* A sample that moves on leaves the checkpoints one after the other: nothing has if the later one has not changed
         * while the earlier one was read */
        for (unsigned try = 0; ; try++) {
                r = boundary_read(b, n + 1, &to);
                if (r >= 0 && without_from)
                        r = boundary_read(b, n, &from);
                if (r >= 0)
                        r = boundary_read(b, n + 1, &again);
                if (r < 0)
                        return r;
                if (memcmp(to.cells, again.cells, sizeof(to.cells)) == 0 && memcmp(to.sums, again.sums, sizeof(to.sums)) == 0)
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
        window_complete(ret, &all_parts);
        if (!whole && w->base)
                maxima_settle(ret, &all_parts);

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
                        *ret = load(&c->serving);
                        if (checkpoint_is_still(c, first, last))
                                return 0;
                }
                /* Nobody has come since, so it would be what is there now */
                now = load(&u->serving);
                __atomic_thread_fence(__ATOMIC_ACQUIRE);
                if (load32(&u->rolling) == 0 && load(&u->epoch) / QOS_LEVEL_EPOCHS(level) < boundary) {
                        *ret = now;
                        return 0;
                }
        }
        return -EAGAIN;
}

/* ---- rows ----------------------------------------------------------------------------------------------------- */

bool window_is_for_rows(uint64_t window) {
        /* One of 1 s begins at a tenth of it, where rows have no checkpoint: they would not add up to the unit */
        return window == WINDOW_TOTAL || (window_is_valid(window) &&
                window_level(window) == QOS_ENTRY_LEVEL);
}

static void row_read_now(const struct qos_peer_entry *row, WindowRow *ret) {
        for (unsigned i = 0; i < QOS_ENTRY_COUNTERS; i++) {
                uint32_t carry, low, again;

                carry = load32(&row->carry[i]);
                for (;;) {
                        low = load32(&row->cells[i]);
                        again = load32(&row->carry[i]);
                        if (again == carry)
                                break;
                        carry = again;
                }
                ret->cells[i] = (uint64_t) carry << 32 | low;
        }
        for (unsigned i = 0; i < QOS_ENTRY_SUMS; i++)
                ret->sums[i] = load(&row->sums[i]);
        ret->maximum = load(&row->maximum_total);
}

static uint64_t row_read_maximum(const struct qos_peer_entry *row, uint64_t first, uint64_t last) {
        uint64_t max = 0;

        for (uint64_t subwindow = first; subwindow <= last; subwindow++) {
                uint64_t word = load(&row->maxima[subwindow % QOS_LEVEL_MAXIMA(QOS_ENTRY_LEVEL)]);

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

/* Takes off what was there at the boundary. -ENOENT: that is not known. */
static int row_subtract_checkpoint(const struct qos_peer_entry *row, uint64_t boundary, WindowRow *value) {
        uint64_t oldest = UINT64_MAX;

        for (unsigned i = 0; i < QOS_ENTRY_CHECKPOINTS; i++) {
                const struct qos_entry_checkpoint *c = &row->checkpoints[i];
                uint64_t last = load(&c->last), first = load(&c->first);
                WindowRow after = *value;

                if (first <= last && last > 0)
                        oldest = MIN(oldest, first);
                if (boundary < first || boundary > last)
                        continue;

                for (unsigned k = 0; k < QOS_ENTRY_COUNTERS; k++)
                        after.cells[k] = (uint64_t) (int64_t) (int32_t) ((uint32_t) after.cells[k] - __atomic_load_n(&c->cells[k], __ATOMIC_RELAXED));
                for (unsigned k = 0; k < QOS_ENTRY_SUMS; k++)
                        after.sums[k] -= __atomic_load_n(&c->sums[k], __ATOMIC_RELAXED);

                __atomic_thread_fence(__ATOMIC_ACQUIRE);
                if (load(&c->last) != last || load(&c->first) != first)
                        return -ENOENT;
                *value = after;
                return 0;
        }

        /* The row was nobody's then: all it has came later */
        return load32(&row->written) < QOS_ENTRY_CHECKPOINTS && boundary < oldest ? 0 : -ENOENT;
}

bool window_row_is_used(const struct qos_unit_map *u, unsigned number) {
        static const enum qos_entry_counter counters[] = {
                QOS_ENTRY_COUNT, QOS_ENTRY_ERRORS_RESET, QOS_ENTRY_ERRORS_TIMEOUT, QOS_ENTRY_CLIENT_ABORTS,
        };
        const struct qos_peer_entry *row;

        assert(u);
        assert(number > 0 && number <= QOS_ENTRIES);

        row = &u->rows[number - 1];
        for (size_t i = 0; i < ELEMENTSOF(counters); i++)
                if ((int64_t) ((uint64_t) load32(&row->carry[counters[i]]) << 32 | load32(&row->cells[counters[i]])) > 0)
                        return true;
        return __atomic_load_n(&row->in_flight, __ATOMIC_RELAXED) > 0 ||
                (int64_t) load(&row->sums[QOS_ENTRY_SUM_BYTES_IN]) > 0 || (int64_t) load(&row->sums[QOS_ENTRY_SUM_BYTES_OUT]) > 0;
}

int window_read_row(const struct qos_unit_map *u, unsigned number, uint64_t now, uint64_t attached_at, uint64_t window, WindowRow *ret) {
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
                bool quiet = load(&u->epoch) / QOS_LEVEL_EPOCHS(QOS_ENTRY_LEVEL) < boundary;

                row_read_now(row, ret);
                ret->in_flight = (uint64_t) MAX(__atomic_load_n(&row->in_flight, __ATOMIC_RELAXED), INT64_C(0));

                if (window != WINDOW_TOTAL && boundary * step > attached_at) {
                        if (quiet && load(&u->epoch) / QOS_LEVEL_EPOCHS(QOS_ENTRY_LEVEL) < boundary) {
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
                        [QOS_ENTRY_SUM_BYTES_IN]  = reading->sums[QOS_SUM_BYTES_IN],
                        [QOS_ENTRY_SUM_BYTES_OUT] = reading->sums[QOS_SUM_BYTES_OUT],
                },
                .maximum = reading->maxima[QOS_LATENCY],
        };
        for (unsigned i = 0; i < HISTOGRAM_FINE_BINS; i++)
                ret->cells[histogram_coarse_bin(i)] += reading->cells[QOS_DISTRIBUTION_FIRST_COUNTER(QOS_LATENCY) + i];
        ret->cells[QOS_ENTRY_COUNT] = reading->cells[QOS_COUNTER_COUNT];
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
        row->maximum = row->maximum == ABSENT || other->maximum == ABSENT ? ABSENT : MAX(row->maximum, other->maximum);
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

/* ---- what is from before -------------------------------------------------------------------------------------- */

static void row_add_times(WindowRow *row, const WindowRow *other, int64_t times) {
        for (unsigned i = 0; i < QOS_ENTRY_COUNTERS; i++)
                row->cells[i] += times * other->cells[i];
        for (unsigned i = 0; i < QOS_ENTRY_SUMS; i++)
                row->sums[i] += times * other->sums[i];
}

/* All peers together, as of now: rows pass from one to another, the sum does not change then. */
static void peers_read(const struct qos_unit_map *u, WindowRow *ret) {
        for (unsigned try = 0; try < TRIES_MAX; try++) {
                uint32_t folds = load32(&u->folds);

                *ret = (WindowRow) {};
                for (unsigned i = 1; i <= QOS_ENTRIES; i++) {
                        WindowRow row = {};

                        if (i != QOS_ENTRY_PEERS_OTHERS && u->names[i].kind != QOS_ENTRY_PEER)
                                continue;
                        row_read_now(&u->rows[i - 1], &row);
                        row.in_flight = (uint64_t) MAX(__atomic_load_n(&u->rows[i - 1].in_flight, __ATOMIC_RELAXED), INT64_C(0));
                        window_row_add(ret, &row);
                }
                __atomic_thread_fence(__ATOMIC_ACQUIRE);
                if (folds % 2 == 0 && load32(&u->folds) == folds)
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

        counters_read_settled(source->map, &all_parts, cells, sums);
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

        counters_read_settled(source->map, &all_parts, cells, sums);
        for (unsigned i = 0; i < QOS_COUNTERS; i++)
                base->before.cells[i] += cells[i];
        for (unsigned i = 0; i < QOS_SUMS; i++)
                base->before.sums[i] += sums[i];
        for (unsigned d = 0; d < QOS_DISTRIBUTIONS; d++)
                base->before.maxima[d] = MAX(base->before.maxima[d], load(&source->map->maxima_total[d]));

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

bool window_is_overlapping(uint64_t overlaps, uint64_t count) {
        return overlaps * 100 > count * OVERLAP_PERCENT;
}

static bool is_some(uint64_t n) {
        return n != ABSENT && n > 0;
}

void window_classify(uint64_t overlaps, bool missed, Requests *requests) {
        Server *s = &requests->server;
        uint64_t *const parsed[] = {
                &s->protocol_http1, &s->protocol_redis, &s->protocol_memcached, &s->protocol_http2, &s->protocol_grpc,
        };
        uint64_t *const plain[] = { &s->protocol_tls, &s->protocol_unix, &s->protocol_udp };
        uint64_t *const others[] = {
                &s->count, &s->protocol_tcp, &s->blocking, &s->streams, &s->status4xx, &s->status_unknown, &s->errors_status5xx, &s->errors_grpc,
        };
        bool unknown = is_some(s->status_unknown);
        uint64_t n = 0, m = 0;

        if (unknown || !(is_some(s->protocol_http1) || is_some(s->protocol_http2) || is_some(s->protocol_grpc)))
                s->status4xx = s->errors_status5xx = ABSENT;
        if (unknown || !is_some(s->protocol_grpc))
                s->errors_grpc = ABSENT;

        if (s->count == ABSENT) {
                requests->quality = QUALITY_ABSENT;
                s->protocol_tcp = ABSENT;
                return;
        }

        for (size_t i = 0; i < ELEMENTSOF(parsed); i++)
                if (*parsed[i] != ABSENT)
                        n += *parsed[i];
        for (size_t i = 0; i < ELEMENTSOF(plain); i++)
                if (*plain[i] != ABSENT)
                        m += *plain[i];
        s->protocol_tcp = s->count - MIN(n + m, s->count);
        /* Which of the two is not known, either */
        if (unknown)
                s->protocol_http2 = s->protocol_grpc = ABSENT;

        if (!window_is_overlapping(overlaps, s->count)) {
                requests->quality = s->count > 0 && n >= s->count && !missed ? QUALITY_EXACT : QUALITY_EXCHANGES;
                return;
        }
        requests->quality = QUALITY_OVERLAPPING;
        for (size_t i = 0; i < ELEMENTSOF(parsed); i++)
                *parsed[i] = ABSENT;
        for (size_t i = 0; i < ELEMENTSOF(plain); i++)
                *plain[i] = ABSENT;
        for (size_t i = 0; i < ELEMENTSOF(others); i++)
                *others[i] = ABSENT;
}

uint64_t window_get_count(const WindowReading *reading, enum qos_distribution d) {
        uint64_t n = 0;

        for (unsigned i = 0; i < QOS_DISTRIBUTION_BINS(d); i++)
                n += reading->cells[QOS_DISTRIBUTION_FIRST_COUNTER(d) + i];
        return n;
}

/* A distribution, wherever its bins lie. */
typedef struct Bins {
        int schema;
        unsigned n;
        const uint64_t *count;
        uint64_t sum, max;
} Bins;

static Bins reading_get_bins(const WindowReading *reading, enum qos_distribution d) {
        return (Bins) {
                .schema = QOS_DISTRIBUTION_IS_FINE(d) ? HISTOGRAM_FINE_SCHEMA : HISTOGRAM_COARSE_SCHEMA,
                .n = QOS_DISTRIBUTION_BINS(d),
                .count = reading->cells + QOS_DISTRIBUTION_FIRST_COUNTER(d),
                .sum = reading->sums[d],
                .max = reading->maxima[d],
        };
}

/* Where a bin but the last one ends */
static double bin_bound(int schema, unsigned bin) {
        return exp2(HISTOGRAM_MIN_EXPONENT + ldexp(bin, -schema));
}

static void bin_get_bounds(int schema, unsigned n, unsigned bin, uint64_t *ret_lower, uint64_t *ret_upper) {
        assert(bin < n);

        *ret_lower = bin == 0 ? 0 : (uint64_t) bin_bound(schema, bin - 1);
        *ret_upper = bin == n - 1 ? UINT64_MAX : (uint64_t) bin_bound(schema, bin);
}

void window_get_bounds(enum qos_distribution d, unsigned bin, uint64_t *ret_lower, uint64_t *ret_upper) {
        bin_get_bounds(QOS_DISTRIBUTION_IS_FINE(d) ? HISTOGRAM_FINE_SCHEMA : HISTOGRAM_COARSE_SCHEMA, QOS_DISTRIBUTION_BINS(d), bin,
                       ret_lower, ret_upper);
}

/* The value that stands for a bin: its relative distance to both bounds is the same, (upper - lower) / (upper + lower). */
static uint64_t bin_value(const Bins *b, unsigned bin, uint64_t maximum) {
        double lower, upper;

        if (bin == 0)
                return 0; /* less than the clock can tell */
        if (bin == b->n - 1)
                return maximum;

        lower = bin_bound(b->schema, bin - 1);
        upper = bin_bound(b->schema, bin);
        return MIN((uint64_t) llround(2 * lower * upper / (lower + upper)), maximum);
}

/* The largest sample. It is kept in another word than the bins, per sub-window: a reader that was held up between the
 * two may find it missing or overwritten, and then the highest bin that is not empty is what is known. end: behind it. */
static uint64_t maximum_of(const Bins *b, unsigned end) {
        for (unsigned bin = end; bin-- > 0;) {
                uint64_t lower, upper;

                if (b->count[bin] == 0)
                        continue;
                bin_get_bounds(b->schema, b->n, bin, &lower, &upper);
                return b->max >= lower ? b->max : bin_value(b, bin, upper == UINT64_MAX ? lower : upper);
        }
        return 0;
}

/* + 1e-9 because 0.1 * 50 may be a little less than 5 */
static bool quantile_is_known(uint64_t n, double q, unsigned minimum_samples) {
        return n * MIN(q, 1 - q) + 1e-9 >= minimum_samples;
}

/* Of the nearest-rank quantile: 1 … n. */
static uint64_t quantile_get_rank(uint64_t n, double q) {
        return MAX((uint64_t) ceil(n * q - 1e-9), UINT64_C(1));
}

static void bins_get_distribution(const Bins *b, unsigned minimum_samples, Distribution *ret) {
        uint64_t n = 0, maximum, seen = 0;
        unsigned bin = 0, end = b->n;

        for (unsigned i = 0; i < b->n; i++)
                n += b->count[i];

        distribution_set_absent(ret);
        ret->count = n;
        if (n == 0)
                return;

        while (b->count[end - 1] == 0)
                end--;
        ret->max = maximum = maximum_of(b, end);
        ret->mean = MIN(b->sum / n, maximum);
        /* In one pass: each lies above the one before, and takes as many samples at least */
        for (const Quantile *i = quantile_table; i < quantile_table + QUANTILES && quantile_is_known(n, i->q, minimum_samples); i++) {
                while (seen < quantile_get_rank(n, i->q))
                        seen += b->count[bin++];
                *(uint64_t*) ((char*) ret + i->offset) = bin_value(b, bin - 1, maximum);
        }
}

void window_get_distribution(const WindowReading *reading, enum qos_distribution d, unsigned minimum_samples, Distribution *ret) {
        Bins b = reading_get_bins(reading, d);

        bins_get_distribution(&b, minimum_samples, ret);
}

uint64_t window_get_quantile(const WindowReading *reading, enum qos_distribution d, double q, unsigned minimum_samples, uint64_t waiting,
                             uint64_t *ret_samples) {
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

uint64_t window_count_within(const WindowReading *reading, enum qos_distribution d, double limit) {
        Bins b = reading_get_bins(reading, d);
        uint64_t maximum = maximum_of(&b, b.n), n = 0;

        for (unsigned i = 0; i < b.n; i++)
                if (b.count[i] > 0 && bin_value(&b, i, maximum) <= limit)
                        n += b.count[i];
        return n;
}

void window_row_get_distribution(const WindowRow *row, unsigned minimum_samples, Distribution *ret) {
        Bins b = {
                .schema = HISTOGRAM_COARSE_SCHEMA,
                .n = HISTOGRAM_COARSE_BINS,
                .count = row->cells,
                .sum = row->sums[QOS_ENTRY_SUM_LATENCY],
                .max = row->maximum == ABSENT ? 0 : row->maximum,
        };

        bins_get_distribution(&b, minimum_samples, ret);
        if (row->maximum == ABSENT)
                ret->max = ABSENT;
}

/* ---- distributions by themselves ------------------------------------------------------------------------------ */

unsigned window_bins_number(int schema) {
        return (unsigned) ldexp(HISTOGRAM_OCTAVES, schema) + 2;
}

int window_bins_get_index(int schema, unsigned bin) {
        return (int) ldexp(HISTOGRAM_MIN_EXPONENT, schema) + (int) bin;
}

void window_get_bins(const WindowReading *reading, enum qos_distribution d, WindowBins *ret) {
        Bins b = reading_get_bins(reading, d);

        *ret = (WindowBins) {
                .schema = WINDOW_BINS_SCHEMA_MAX,
                .sum = b.sum,
        };
        for (unsigned i = 0; i < b.n; i++)
                ret->count[QOS_DISTRIBUTION_IS_FINE(d) ? histogram_coarse_bin(i) : i] += b.count[i];
        /* As the finer bins know it, should it be missing */
        ret->max = maximum_of(&b, b.n);
}

void window_bins_coarsen(WindowBins *b) {
        unsigned n = window_bins_number(b->schema), last = window_bins_number(b->schema - 1) - 1;
        uint64_t count[WINDOW_BINS_MAX] = {};

        assert(b->schema > WINDOW_BINS_SCHEMA_MIN);

        for (unsigned i = 0; i < n; i++)
                count[i == n - 1 ? last : (i + 1) / 2] += b->count[i];
        memcpy(b->count, count, sizeof(count));
        b->schema--;
}

void window_bins_add(WindowBins *b, const WindowBins *other) {
        WindowBins o = *other;

        while (b->schema > o.schema)
                window_bins_coarsen(b);
        while (o.schema > b->schema)
                window_bins_coarsen(&o);

        for (unsigned i = 0; i < WINDOW_BINS_MAX; i++)
                b->count[i] += o.count[i];
        b->sum += o.sum;
        b->max = MAX(b->max, o.max);
}

void window_bins_get_distribution(const WindowBins *b, unsigned minimum_samples, Distribution *ret) {
        Bins bins = {
                .schema = b->schema,
                .n = window_bins_number(b->schema),
                .count = b->count,
                .sum = b->sum,
                .max = b->max,
        };

        bins_get_distribution(&bins, minimum_samples, ret);
}
