/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "storage-mounts.h"
#include "util.h"
#include "window.h"

/* Attempts to read a map consistently, as in window.c. The programs reassign a row at most ten times a
 * second, which takes about 10 us. */
#define TRIES_MAX 16

static uint64_t load(const __u64 *p) {
        return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

/* The window over which the rows of a map are read. */
typedef struct MountWindow {
        const union qos_storage_element *map;
        uint64_t now;
        uint64_t since;         /* CLOCK_MONOTONIC ns of the creation of the map */
        uint64_t boundary;      /* its beginning, in steps of QOS_MOUNT_LEVEL; 0: creation of the map */
        uint64_t bins_boundary; /* the same in steps of QOS_MOUNT_BINS_LEVEL, for latencies */
} MountWindow;

/* Returns the index of the entry that was written for the boundary, or -ENOENT. */
static int boundaries_find(const struct qos_boundaries *list, unsigned n, uint64_t boundary) {
        for (unsigned i = 0; i < n; i++) {
                uint64_t last = load(&list[i].last);

                if (load(&list[i].first) <= boundary && boundary <= last)
                        return (int) i;
        }
        return -ENOENT;
}

/* Counters and bins of a row as they are. */
static void row_load(const union qos_storage_element *map, unsigned number, MountCounts *ret) {
        const struct qos_mount_row *row = &map[QOS_STORAGE_ROW + number].row;
        uint64_t *words = (uint64_t*) &ret->counts;

        for (size_t i = 0; i < QOS_MOUNT_WORDS; i++)
                words[i] = load((const __u64*) &row->counts + i);
        for (unsigned i = 0; i < ELEMENTSOF(ret->bins); i++)
                ret->bins[i] = carried_load(&row->bins[i], &row->carry[i]);
}

/* The same as they were at the boundary of a mark and of a checkpoint, counts modulo 2^32; -1: nothing. */
static void row_load_at(const union qos_storage_element *map, unsigned number, int mark, int checkpoint,
                        MountCounts *ret) {
        const struct qos_mount_row *row = &map[QOS_STORAGE_ROW + number].row;

        *ret = (MountCounts) {};
        if (mark >= 0) {
                const struct qos_mount_mark *m = &map[QOS_STORAGE_MARKS + (unsigned) mark / 3].marks
                                                          .rows[mark % 3][number];

                memcpy(ret->counts.nsec, m->nsec, sizeof(m->nsec));
                memcpy(ret->counts.bytes, m->bytes, sizeof(m->bytes));
                for (unsigned i = 0; i < QOS_MOUNT_CALLS; i++) {
                        ret->counts.count[i] = m->count[i];
                        ret->counts.errors[i] = m->errors[i];
                }
        }
        for (unsigned i = 0; i < ELEMENTSOF(ret->bins) && checkpoint >= 0; i++)
                ret->bins[i] = row->checkpoints[checkpoint][i];
}

static void row_subtract(MountCounts *row, const MountCounts *before) {
        for (unsigned i = 0; i < QOS_MOUNT_TIMED; i++)
                row->counts.nsec[i] -= before->counts.nsec[i];
        for (unsigned i = 0; i <= QOS_STORAGE_WRITE; i++)
                row->counts.bytes[i] -= before->counts.bytes[i];
        for (unsigned i = 0; i < QOS_MOUNT_CALLS; i++) {
                row->counts.count[i] = (uint32_t) (row->counts.count[i] - before->counts.count[i]);
                row->counts.errors[i] = (uint32_t) (row->counts.errors[i] - before->counts.errors[i]);
        }
        for (unsigned i = 0; i < ELEMENTSOF(row->bins); i++)
                row->bins[i] = (uint32_t) (row->bins[i] - before->bins[i]);
}

/* The largest latency in sub-windows first to last of QOS_MOUNT_BINS_LEVEL. */
static uint64_t row_get_maximum(const struct qos_mount_row *row, unsigned call, uint64_t first,
                                uint64_t last) {
        uint64_t max = 0;

        for (uint64_t subwindow = first; subwindow <= last; subwindow++) {
                uint64_t word = load(&row->maxima[call][subwindow % QOS_MOUNT_MAXIMA]);

                if (word >> QOS_MAXIMUM_BITS == (subwindow & (UINT64_MAX >> QOS_MAXIMUM_BITS)))
                        max = MAX(max, word & QOS_MAXIMUM_MASK);
        }
        return max;
}

/* Reads the row, less its values in a mark and the bins of a checkpoint; -1: since the map was created. */
static void row_read(const MountWindow *w, unsigned number, int mark, int checkpoint, MountCounts *ret) {
        const struct qos_mount_row *row = &w->map[QOS_STORAGE_ROW + number].row;
        const uint64_t step = QOS_LEVEL_EPOCHS(QOS_MOUNT_BINS_LEVEL) * QOS_EPOCH_NSEC;
        MountCounts before;

        row_load(w->map, number, ret);
        if (mark >= 0) {
                row_load_at(w->map, number, mark, checkpoint, &before);
                row_subtract(ret, &before);
        }
        for (unsigned call = 0; call < QOS_MOUNT_TIMED; call++)
                ret->maxima[call] = w->boundary == 0 ? load(&row->maxima_total[call]) :
                                    row_get_maximum(row, call, MAX(w->bins_boundary, w->since / step),
                                                    w->now / step);
}

bool mount_time_is_more(const MountCounts *a, const MountCounts *b) {
        uint64_t x = 0, y = 0;

        for (unsigned i = 0; i < QOS_MOUNT_TIMED; i++) {
                x += a->counts.nsec[i];
                y += b->counts.nsec[i];
        }
        return x > y;
}

void mount_counts_add(MountCounts *counts, const MountCounts *other) {
        uint64_t *to = (uint64_t*) counts;
        const uint64_t *from = (const uint64_t*) other;

        for (size_t i = 0; i < offsetof(MountCounts, maxima) / sizeof(uint64_t); i++)
                to[i] += from[i];
        for (unsigned i = 0; i < QOS_MOUNT_TIMED; i++)
                counts->maxima[i] = MAX(counts->maxima[i], other->maxima[i]);
}

/* Adds a row, merging those of the same file system: two programs may have raced for a row, and nested units
 * have one each. If all rows are taken, the row with the least time is added to the first one, "others". */
static void mounts_add(MountsReading *mounts, const MountReading *row) {
        MountReading *least;

        for (size_t i = 1; i < mounts->n; i++)
                if (memcmp(&mounts->rows[i].key, &row->key, sizeof(row->key)) == 0) {
                        mount_counts_add(&mounts->rows[i].value, &row->value);
                        return;
                }
        if (mounts->n < QOS_STORAGE_ROWS) {
                mounts->rows[mounts->n++] = *row;
                return;
        }

        least = mounts->rows + 1;
        for (size_t i = 2; i < mounts->n; i++)
                if (mount_time_is_more(&least->value, &mounts->rows[i].value))
                        least = mounts->rows + i;
        if (mount_time_is_more(&row->value, &least->value)) {
                mount_counts_add(&mounts->rows[0].value, &least->value);
                *least = *row;
        } else
                mount_counts_add(&mounts->rows[0].value, &row->value);
}

/* Reads all rows of a map. Returns -EAGAIN if a program has changed them meanwhile. */
static int source_read(const MountWindow *w, MountsReading *mounts) {
        const struct qos_storage_header *h = &w->map->header;
        uint32_t folds = __atomic_load_n(&h->folds, __ATOMIC_ACQUIRE);
        uint64_t newest = load(&h->epoch);
        int mark = -1, checkpoint = -1;
        MountReading rows[QOS_STORAGE_ROWS] = {};

        if (w->boundary > 0) {
                mark = boundaries_find(h->marks, QOS_MOUNT_MARKS, w->boundary);
                /* The newest event precedes the window */
                if (mark < 0 && newest / QOS_LEVEL_EPOCHS(QOS_MOUNT_LEVEL) < w->boundary &&
                    __atomic_load_n(&h->rolling, __ATOMIC_ACQUIRE) == 0)
                        return load(&h->epoch) == newest ? 0 : -EAGAIN;
        }
        if (w->bins_boundary > 0)
                checkpoint = boundaries_find(h->checkpoints, QOS_MOUNT_CHECKPOINTS, w->bins_boundary);
        if ((w->boundary > 0 && mark < 0) || (w->bins_boundary > 0 && checkpoint < 0) || folds % 2 != 0)
                return -EAGAIN;

        for (unsigned i = 0; i < QOS_STORAGE_ROWS; i++) {
                if (i > 0 && __atomic_load_n(&h->mounts[i].used, __ATOMIC_ACQUIRE) == 0)
                        continue;
                rows[i].key = h->mounts[i].key;
                memcpy(rows[i].type, h->mounts[i].type, sizeof(rows[i].type));
                row_read(w, i, mark, checkpoint, &rows[i].value);
        }

        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (__atomic_load_n(&h->folds, __ATOMIC_ACQUIRE) != folds ||
            (w->boundary > 0 && boundaries_find(h->marks, QOS_MOUNT_MARKS, w->boundary) != mark) ||
            (w->bins_boundary > 0 &&
             boundaries_find(h->checkpoints, QOS_MOUNT_CHECKPOINTS, w->bins_boundary) != checkpoint))
                return -EAGAIN;
        mount_counts_add(&mounts->rows[0].value, &rows[0].value);
        for (unsigned i = 1; i < QOS_STORAGE_ROWS; i++)
                if (mount_reading_get_device(rows + i) != 0)
                        mounts_add(mounts, rows + i);
        return 0;
}

static int mount_compare(const void *a, const void *b) {
        const MountReading *x = a, *y = b;

        return mount_time_is_more(&x->value, &y->value) ? -1 : mount_time_is_more(&y->value, &x->value) ? 1 :
               memcmp(&x->key, &y->key, sizeof(x->key));
}

/* Whether maps had counted calls before the unit was observed. before is negative for maps that are no
 * longer those of the unit, whose calls remain in "others". */
static bool maps_are_older(const StorageCounts *before) {
        for (unsigned call = 0; before && call < QOS_STORAGE_CALLS; call++)
                if ((int64_t) before->sums[QOS_STORAGE_COUNT + call] > 0)
                        return true;
        return false;
}

void mounts_read(const StorageSources *sources, uint64_t now, uint64_t window, MountsReading *ret) {
        const uint64_t step = QOS_LEVEL_EPOCHS(QOS_MOUNT_LEVEL) * QOS_EPOCH_NSEC,
                       bins_step = QOS_LEVEL_EPOCHS(QOS_MOUNT_BINS_LEVEL) * QOS_EPOCH_NSEC;
        uint64_t boundary = window == WINDOW_TOTAL ? 0 : window_boundary(now / step, window / step);

        assert(sources);
        assert(ret);

        /* Do not clear all rows, which are large */
        ret->rows[0] = (MountReading) {};
        ret->n = 1;
        /* Of counts before the unit was observed only the sum is known, not the rows */
        ret->measured = window_is_for_rows(window) &&
                        !(boundary * step <= sources->since && maps_are_older(sources->before));

        for (size_t i = 0; i < sources->n && ret->measured; i++) {
                MountWindow w = {
                        .map = sources->sources[i].map,
                        .now = now,
                        .since = sources->sources[i].since,
                        .boundary = boundary * step > sources->sources[i].since ? boundary : 0,
                };
                int r = -EAGAIN;

                w.bins_boundary = w.boundary * step / bins_step;
                if (w.bins_boundary * bins_step <= w.since)
                        w.bins_boundary = 0;
                for (unsigned try = 0; try < TRIES_MAX && r < 0; try++)
                        r = source_read(&w, ret);
                ret->measured = r >= 0;
        }
        qsort(ret->rows + 1, ret->n - 1, sizeof(MountReading), mount_compare);
}

/* Reads all rows of a map in a step. Returns -EAGAIN if a program has changed them meanwhile, or if their
 * values at its ends are not kept any more. */
static int source_read_step(const StorageSource *s, uint64_t n, MountsReading *mounts) {
        const uint64_t marks = QOS_LEVEL_EPOCHS(QOS_MOUNT_BINS_LEVEL) / QOS_LEVEL_EPOCHS(QOS_MOUNT_LEVEL);
        const struct qos_storage_header *h = &s->map->header;
        uint32_t folds = __atomic_load_n(&h->folds, __ATOMIC_ACQUIRE);
        uint64_t newest = load(&h->epoch), step = newest / QOS_LEVEL_EPOCHS(QOS_MOUNT_BINS_LEVEL);
        int mark = -1, checkpoint = -1, end_mark = -1, end_checkpoint = -1;
        MountReading rows[QOS_STORAGE_ROWS] = {};

        if (folds % 2 != 0 || __atomic_load_n(&h->rolling, __ATOMIC_ACQUIRE) != 0)
                return -EAGAIN;
        if (step < n)
                return load(&h->epoch) == newest ? 0 : -EAGAIN;
        if (n * WINDOW_STEP_NSEC > s->since) {
                mark = boundaries_find(h->marks, QOS_MOUNT_MARKS, n * marks);
                checkpoint = boundaries_find(h->checkpoints, QOS_MOUNT_CHECKPOINTS, n);
                if (mark < 0 || checkpoint < 0)
                        return -EAGAIN;
        }
        /* Otherwise no call since: the rows are as they were */
        if (step > n) {
                end_mark = boundaries_find(h->marks, QOS_MOUNT_MARKS, (n + 1) * marks);
                end_checkpoint = boundaries_find(h->checkpoints, QOS_MOUNT_CHECKPOINTS, n + 1);
                if (end_mark < 0 || end_checkpoint < 0)
                        return -EAGAIN;
        }

        for (unsigned i = 1; i < QOS_STORAGE_ROWS; i++) {
                MountCounts *value = &rows[i].value, before;

                if (__atomic_load_n(&h->mounts[i].used, __ATOMIC_ACQUIRE) == 0)
                        continue;
                rows[i].key = h->mounts[i].key;
                if (step > n)
                        row_load_at(s->map, i, end_mark, end_checkpoint, value);
                else
                        row_load(s->map, i, value);
                row_load_at(s->map, i, mark, checkpoint, &before);
                row_subtract(value, &before);
                for (unsigned call = 0; call < QOS_MOUNT_TIMED; call++)
                        value->maxima[call] = row_get_maximum(&s->map[QOS_STORAGE_ROW + i].row, call, n, n);
        }

        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (__atomic_load_n(&h->folds, __ATOMIC_ACQUIRE) != folds ||
            (step == n && load(&h->epoch) / QOS_LEVEL_EPOCHS(QOS_MOUNT_BINS_LEVEL) != n) ||
            (mark >= 0 && (boundaries_find(h->marks, QOS_MOUNT_MARKS, n * marks) != mark ||
                           boundaries_find(h->checkpoints, QOS_MOUNT_CHECKPOINTS, n) != checkpoint)))
                return -EAGAIN;
        for (unsigned i = 1; i < QOS_STORAGE_ROWS; i++)
                if (mount_reading_get_device(rows + i) != 0)
                        mounts_add(mounts, rows + i);
        return 0;
}

int mounts_read_step(const StorageSources *sources, uint64_t n, MountsReading *ret) {
        assert(sources);
        assert(ret);

        ret->rows[0] = (MountReading) {};
        ret->n = 1;
        ret->measured = n * WINDOW_STEP_NSEC > sources->since || !maps_are_older(sources->before);
        if (!ret->measured)
                return -ENODATA;
        for (size_t i = 0; i < sources->n; i++) {
                int r = -EAGAIN;

                for (unsigned try = 0; try < TRIES_MAX && r < 0; try++)
                        r = source_read_step(sources->sources + i, n, ret);
                if (r < 0)
                        return -ENODATA;
        }
        qsort(ret->rows + 1, ret->n - 1, sizeof(MountReading), mount_compare);
        return 0;
}

int mounts_find_identity(const StorageSources *sources, bool (*matches)(uint32_t device, void *userdata),
                         void *userdata, uint64_t *ret) {
        for (size_t i = 0; i < sources->n; i++)
                for (unsigned k = 1; k < QOS_STORAGE_ROWS; k++) {
                        const struct qos_mount *m = &sources->sources[i].map->header.mounts[k];
                        MountReading row = {};

                        if (__atomic_load_n(&m->used, __ATOMIC_ACQUIRE) == 0)
                                continue;
                        row.key = m->key;
                        if (!matches(mount_reading_get_device(&row), userdata))
                                continue;
                        *ret = mount_reading_get_identity(&row);
                        return 0;
                }
        return -ENOENT;
}

/* Saturates at 0: rows are read after the unit, and include the newest calls. */
static void word_subtract(uint64_t *word, uint64_t n) {
        *word -= MIN(*word, n);
}

void mounts_settle(MountsReading *mounts, const StorageReading *unit) {
        struct qos_mount_counts *rest = &mounts->rows[0].value.counts;
        const uint64_t *sums = unit->counts.sums;

        for (unsigned i = 0; i < QOS_MOUNT_CALLS; i++) {
                unsigned call = i == QOS_MOUNT_CHANGE ? QOS_STORAGE_CHANGE : i;

                rest->count[i] = sums[QOS_STORAGE_COUNT + call];
                rest->errors[i] = sums[QOS_STORAGE_ERRORS + call];
                if (call <= QOS_STORAGE_WRITE)
                        rest->bytes[i] = sums[QOS_STORAGE_BYTES_READ + call];
                if (i < QOS_MOUNT_TIMED)
                        rest->nsec[i] = sums[QOS_STORAGE_NSEC + call];
        }
        for (size_t k = 1; k < mounts->n; k++) {
                const uint64_t *words = (const uint64_t*) &mounts->rows[k].value.counts;

                for (size_t i = 0; i < QOS_MOUNT_WORDS; i++)
                        word_subtract((uint64_t*) rest + i, words[i]);
        }
}

void mount_get_latency(const MountCounts *counts, enum qos_storage_call call, unsigned minimum_samples,
                       Distribution *ret) {
        WindowBins bins = { .schema = QOS_MOUNT_SCHEMA, .max = counts->maxima[call] };

        assert(call < QOS_MOUNT_TIMED);

        if (counts->counts.count[call] > 0) {
                memcpy(bins.count, counts->bins + call * QOS_MOUNT_BINS, QOS_MOUNT_BINS * sizeof(uint64_t));
                bins.sum = counts->counts.nsec[call];
        }
        window_bins_get_distribution(&bins, minimum_samples, ret);
        ret->count = counts->counts.count[call];
        if (ret->count > 0)
                ret->mean = counts->counts.nsec[call] / ret->count;
}

uint32_t mount_reading_get_device(const MountReading *row) {
        uint32_t device;

        memcpy(&device, row->key.address + 8, sizeof(device));
        return device;
}

uint64_t mount_reading_get_identity(const MountReading *row) {
        uint64_t identity;

        memcpy(&identity, row->key.address, sizeof(identity));
        return identity;
}
