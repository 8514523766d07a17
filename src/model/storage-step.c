/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "storage-step.h"
#include "util.h"
#include "window.h"

/* As in window.c. */
#define TRIES_MAX 16

/* Level with sub-windows of the length of a step. */
#define LEVEL 2

static uint64_t load(const __u64 *p) {
        return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

/* Counters at the beginning of step n, those of 32 bits modulo 2^32. -ENOENT: no checkpoint. */
static int checkpoint_read(const union qos_storage_element *map, uint64_t n, StorageCounts *ret) {
        for (unsigned i = 0; i < QOS_LEVEL_CHECKPOINTS(LEVEL); i++) {
                const struct qos_storage_counts *c =
                        &map[QOS_STORAGE_CHECKPOINT + QOS_LEVEL_FIRST_CHECKPOINT(LEVEL) + i].counts;
                uint64_t last = load(&c->last), first = load(&c->first);

                if (n < first || n > last)
                        continue;
                for (unsigned k = 0; k < QOS_STORAGE_WIDE; k++)
                        ret->sums[k] = __atomic_load_n(&c->sums[k], __ATOMIC_RELAXED);
                for (unsigned k = QOS_STORAGE_WIDE; k < QOS_STORAGE_STATE; k++)
                        ret->sums[k] = __atomic_load_n(&c->counts[k - QOS_STORAGE_WIDE], __ATOMIC_RELAXED);
                __atomic_thread_fence(__ATOMIC_ACQUIRE);
                return load(&c->last) == last && load(&c->first) == first ? 0 : -ENOENT;
        }
        return -ENOENT;
}

static int source_read_at(const StorageSource *s, uint64_t n, StorageCounts *ret) {
        *ret = (StorageCounts) {};
        if (n * WINDOW_STEP_NSEC <= s->since)
                return 0;

        for (unsigned try = 0; try < TRIES_MAX; try++) {
                bool quiet = load(&s->map->header.epoch) / QOS_LEVEL_EPOCHS(LEVEL) < n &&
                             __atomic_load_n(&s->map->header.rolling, __ATOMIC_ACQUIRE) == 0;

                if (checkpoint_read(s->map, n, ret) >= 0)
                        return 0;
                if (!quiet)
                        continue;
                /* No call since */
                *ret = (StorageCounts) {};
                storage_counts_add(ret, s, 1);
                if (load(&s->map->header.epoch) / QOS_LEVEL_EPOCHS(LEVEL) < n)
                        return 0;
        }
        return -ENODATA;
}

int storage_read_step(const StorageSources *sources, uint64_t n, StorageReading *ret) {
        uint64_t begin = n * WINDOW_STEP_NSEC, end = begin + WINDOW_STEP_NSEC, *sums;
        bool first = begin <= sources->since;
        int r;

        assert(sources);
        assert(ret);

        if (end <= sources->since)
                return -ENODATA;

        *ret = (StorageReading) { .covered = end - MAX(begin, sources->since) };
        sums = ret->counts.sums;
        for (size_t i = 0; i < sources->n; i++) {
                StorageCounts before = {}, after;

                r = source_read_at(sources->sources + i, n + 1, &after);
                if (r >= 0 && !first)
                        r = source_read_at(sources->sources + i, n, &before);
                if (r < 0)
                        return r;
                for (unsigned k = 0; k < QOS_STORAGE_STATE; k++)
                        sums[k] += after.sums[k] - before.sums[k];
        }
        for (unsigned k = 0; first && sources->before && k < QOS_STORAGE_STATE; k++)
                sums[k] -= sources->before->sums[k];

        for (unsigned k = 0; k < QOS_STORAGE_STATE; k++) {
                if (k >= QOS_STORAGE_WIDE)
                        sums[k] = (uint32_t) sums[k];
                /* CPUs are not read at the same moment */
                if (k < QOS_STORAGE_WIDE ? (int64_t) sums[k] < 0 : (int32_t) sums[k] < 0)
                        sums[k] = 0;
        }
        return 0;
}
