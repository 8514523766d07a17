/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "contention-step.h"
#include "util.h"
#include "window.h"

/* As in window.c. */
#define TRIES_MAX 16

/* Level with sub-windows of the length of a step. */
#define LEVEL 2

static uint64_t load(const __u64 *p) {
        return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

/* Counters at the beginning of step n, cells modulo 2^32. -ENOENT: no checkpoint. */
static int checkpoint_read(const struct qos_contention_map *c, uint64_t n, ContentionCounts *ret) {
        uint64_t at = n * WINDOW_STEP_NSEC;

        for (unsigned i = 0; i < QOS_LEVEL_CHECKPOINTS(LEVEL); i++) {
                const struct qos_contention_checkpoint *p =
                        &c->checkpoints[QOS_LEVEL_FIRST_CHECKPOINT(LEVEL) + i];
                uint64_t last = load(&p->last), first = load(&p->first);

                if (n < first || n > last)
                        continue;
                for (unsigned k = 0; k < QOS_STATES; k++)
                        ret->times[k] = __atomic_load_n(&p->times[k], __ATOMIC_RELAXED) +
                                (uint64_t) __atomic_load_n(&p->threads[k], __ATOMIC_RELAXED) * at;
                for (unsigned k = 0; k < QOS_CONTENTION_CPU_COUNTERS; k++)
                        ret->counters[k] = __atomic_load_n(&p->counters[k], __ATOMIC_RELAXED);
                for (unsigned k = 0; k < QOS_CONTENTION_SUMS; k++)
                        ret->sums[k] = __atomic_load_n(&p->sums[k], __ATOMIC_RELAXED);
                for (unsigned k = 0; k < QOS_CONTENTION_COUNTERS; k++)
                        ret->cells[k] = __atomic_load_n(&p->cells[k], __ATOMIC_RELAXED);
                __atomic_thread_fence(__ATOMIC_ACQUIRE);
                return load(&p->last) == last && load(&p->first) == first ? 0 : -ENOENT;
        }
        return -ENOENT;
}

static int source_read_at(const ContentionSource *b, uint64_t n, uint64_t now, ContentionCounts *ret) {
        const ContentionSources alone = { .sources = b, .n = 1 };
        uint64_t at = n * WINDOW_STEP_NSEC;
        int r;

        if (at <= b->since) {
                *ret = (ContentionCounts) {};
                return 0;
        }

        for (unsigned try = 0; try < TRIES_MAX; try++) {
                bool quiet = load(&b->map->epoch) / QOS_LEVEL_EPOCHS(LEVEL) < n &&
                             __atomic_load_n(&b->map->rolling, __ATOMIC_ACQUIRE) == 0;
                ContentionReading live;

                if (checkpoint_read(b->map, n, ret) >= 0)
                        return 0;
                if (!quiet)
                        continue;

                /* No event since the boundary: only times have advanced */
                r = contention_read_some(&alone, now, WINDOW_TOTAL, /* cells= */ true, &live);
                if (r < 0)
                        return r;
                if (load(&b->map->epoch) / QOS_LEVEL_EPOCHS(LEVEL) >= n)
                        continue;
                *ret = live.counts;
                for (unsigned i = 0; i < QOS_STATES; i++)
                        ret->times[i] -= live.threads[i] * (now - at);
                return 0;
        }
        return -ENODATA;
}

int contention_read_step(const ContentionSources *sources, uint64_t n, uint64_t now,
                         ContentionReading *ret) {
        uint64_t begin = n * WINDOW_STEP_NSEC, end = begin + WINDOW_STEP_NSEC;
        bool first = begin <= sources->since;
        int r;

        assert(sources);
        assert(ret);
        assert(end <= now);

        if (end <= sources->since)
                return -ENODATA;

        *ret = (ContentionReading) { .boundary = MAX(begin, sources->since) };
        ret->covered = end - ret->boundary;
        for (size_t i = 0; i < sources->n; i++) {
                ContentionCounts before = {}, after = {}; /* not all words are part of a checkpoint */

                r = source_read_at(sources->sources + i, n + 1, now, &after);
                if (r >= 0 && !first)
                        r = source_read_at(sources->sources + i, n, now, &before);
                if (r < 0)
                        return r;

                for (size_t k = 0; k < offsetof(ContentionCounts, cells) / sizeof(uint64_t); k++)
                        ((uint64_t*) &ret->counts)[k] += ((const uint64_t*) &after)[k] -
                                                         ((const uint64_t*) &before)[k];
                for (unsigned k = 0; k < QOS_CONTENTION_COUNTERS; k++)
                        ret->counts.cells[k] += (uint32_t) (after.cells[k] - before.cells[k]);
        }
        for (size_t k = 0; first && sources->before && k < CONTENTION_WORDS; k++)
                ((uint64_t*) &ret->counts)[k] -= ((const uint64_t*) sources->before)[k];

        /* CPUs are not read at the same moment, see reading_settle(): clamp differences that are negative by
         * microseconds */
        for (size_t k = 0; k < CONTENTION_WORDS; k++)
                if ((int64_t) ((const uint64_t*) &ret->counts)[k] < 0)
                        ((uint64_t*) &ret->counts)[k] = 0;
        return 0;
}
