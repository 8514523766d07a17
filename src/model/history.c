/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Steps of a unit: retention and storage. */

#include "history-internal.h"
#include "history.h"

/* When space is short, distributions are reduced to this schema before amounts are dropped: two bins per
 * octave still distinguish quantiles. */
#define SCHEMA_KEPT 1

/* Allocation granularity: the histories of most units are small. */
#define ALLOCATION_STEP 4096U

/* ---- records ------------------------------------------------------------------------------------------ */

int history_new(History **ret) {
        History *h;

        h = new0(History, 1);
        if (!h)
                return -ENOMEM;
        *ret = h;
        return 0;
}

History* history_free(History *h) {
        if (!h)
                return NULL;

        free(h->data);
        free(h);
        return NULL;
}

static size_t level_begin(const History *h, HistoryLevel level) {
        return level == HISTORY_FINE ? 0 : h->size[HISTORY_FINE];
}

/* Position of a record. */
typedef struct Position {
        HistoryLevel level;
        size_t offset, length;
        const uint8_t *rest;
        size_t rest_size;
} Position;

static void position_begin(const History *h, HistoryLevel level, Position *p) {
        *p = (Position) {
                .level = level,
                .offset = level_begin(h, level),
        };
}

/* Advances to the next record, or to the first one. Records were validated when added. */
static bool position_next(const History *h, Position *p) {
        size_t end = level_begin(h, p->level) + h->size[p->level];

        p->offset += p->length;
        if (p->offset >= end)
                return false;
        p->length = record_length(h->data + p->offset, end - p->offset, &p->rest);
        assert(p->length > 0);
        p->rest_size = h->data + p->offset + p->length - p->rest;
        return true;
}

static void position_read(const Position *p, HistoryStep *ret) {
        int r;

        r = record_read(p->rest, p->rest_size, p->level, ret);
        assert(r >= 0);
}

static uint64_t position_index(const Position *p) {
        Parser in = { .p = p->rest + 1, .end = p->rest + p->rest_size };

        return get_number(&in);
}

static int position_schema(const Position *p) {
        return (int) (p->rest[0] & RECORD_SCHEMA) + WINDOW_BINS_SCHEMA_MIN;
}

/* Replaces length bytes at offset by data. */
int history_splice(History *h, HistoryLevel level, size_t offset, size_t length, const uint8_t *data,
                          size_t size) {
        size_t all = h->size[HISTORY_FINE] + h->size[HISTORY_COARSE], need = all - length + size;

        assert(need <= DATA_MAX);
        if (need > h->allocated) {
                size_t n = MIN((need + ALLOCATION_STEP - 1) / ALLOCATION_STEP * ALLOCATION_STEP, DATA_MAX);
                uint8_t *p = realloc(h->data, n);

                if (!p)
                        return -ENOMEM;
                h->data = p;
                h->allocated = n;
        }

        if (all > offset + length)
                memmove(h->data + offset + size, h->data + offset + length, all - offset - length);
        assert(h->data || size == 0);
        if (size > 0)
                memcpy(h->data + offset, data, size);
        h->size[level] += size - length;
        return 0;
}

/* Finds the largest record finer than the schema; the oldest one if there are several. */
static bool history_find_largest(const History *h, int schema, Position *ret) {
        Position p;

        *ret = (Position) {};
        for (HistoryLevel level = 0; level < _HISTORY_LEVEL_MAX; level++)
                for (position_begin(h, level, &p); position_next(h, &p); )
                        if (position_schema(&p) > schema && p.length > ret->length)
                                *ret = p;
        return ret->length > 0;
}

/* Replaces a record by a modified step. The record never grows: merging two non-zero bins replaces two
 * numbers by one of at most one bit more than the larger. */
static void history_replace(History *h, const Position *p, const HistoryStep *s) {
        uint8_t record[RECORD_MAX];
        size_t n;

        n = record_write(s, p->level, record);
        assert(n <= p->length);
        (void) history_splice(h, p->level, p->offset, p->length, record, n);
}

static void history_coarsen(History *h, const Position *p) {
        HistoryStep s;

        position_read(p, &s);
        step_coarsen(&s);
        history_replace(h, p, &s);
}

/* Index of the first 5 min step not created yet. */
static uint64_t history_next_coarse(const History *h) {
        uint64_t next = 0;
        Position p;

        for (position_begin(h, HISTORY_COARSE, &p); position_next(h, &p); )
                next = position_index(&p) + 1;
        return next;
}

/* Drops the amounts, file systems or custom metrics (flag: RECORD_*) of the oldest record before that step
 * that has any. */
static bool level_forget(History *h, HistoryLevel level, uint64_t before, uint8_t flag) {
        HistoryStep s;
        Position p;

        for (position_begin(h, level, &p); position_next(h, &p) && position_index(&p) < before; ) {
                if (!(p.rest[0] & flag))
                        continue;
                position_read(&p, &s);
                if (flag == RECORD_MOUNTS)
                        s.n_mounts = 0;
                else if (flag == RECORD_CUSTOM)
                        s.n_custom = 0;
                else
                        memset(s.amounts, 0, sizeof(s.amounts));
                history_replace(h, &p, &s);
                return true;
        }
        return false;
}

/* Those of 10 s steps that are part of a 5 min step are dropped first. The 5 min steps are the base of
 * baselines, and get amounts only from 10 s steps that have them when merged. */
static bool history_forget(History *h, uint8_t flag) {
        return level_forget(h, HISTORY_FINE,
                            history_next_coarse(h) * (HISTORY_COARSE_NSEC / HISTORY_FINE_NSEC), flag) ||
               level_forget(h, HISTORY_COARSE, UINT64_MAX, flag) ||
               level_forget(h, HISTORY_FINE, UINT64_MAX, flag);
}

static bool level_forget_entries(History *h, HistoryLevel level, uint64_t before) {
        HistoryStep s;
        Position p;

        for (position_begin(h, level, &p); position_next(h, &p) && position_index(&p) < before; ) {
                if (position_index(&p) < h->bare[level])
                        continue;
                h->bare[level] = position_index(&p) + 1;
                if (!(p.rest[0] & RECORD_CUSTOM))
                        continue;
                position_read(&p, &s);
                if (!custom_forget_entries(&s))
                        continue;
                history_replace(h, &p, &s);
                return true;
        }
        return false;
}

static bool history_forget_entries(History *h) {
        return level_forget_entries(h, HISTORY_FINE,
                                    history_next_coarse(h) * (HISTORY_COARSE_NSEC / HISTORY_FINE_NSEC)) ||
               level_forget_entries(h, HISTORY_COARSE, UINT64_MAX) ||
               level_forget_entries(h, HISTORY_FINE, UINT64_MAX);
}

static void history_forget_oldest(History *h) {
        Position p;

        position_begin(h, h->size[HISTORY_FINE] > 0 ? HISTORY_FINE : HISTORY_COARSE, &p);
        if (position_next(h, &p))
                (void) history_splice(h, p.level, p.offset, p.length, NULL, 0);
}

size_t history_size(const History *h) {
        return h->size[HISTORY_FINE] + h->size[HISTORY_COARSE];
}

static int level_put(History *h, HistoryLevel level, const HistoryStep *step) {
        uint8_t record[RECORD_MAX];
        HistoryStep s = *step;
        Position p;
        size_t n;

        _Static_assert(RECORD_MAX < DATA_MAX, "one always fits");

        for (position_begin(h, level, &p); position_next(h, &p); )
                if (position_index(&p) == s.index) {
                        HistoryStep before;

                        /* Keep the first timestamp, as the clock may have been set meanwhile */
                        position_read(&p, &before);
                        s.timestamp = before.timestamp;
                        amounts_keep(s.amounts, before.amounts);
                        mounts_keep(&s, &before);
                        custom_keep(&s, &before);
                        s.violated = s.violated || before.violated;
                        s.missed = s.missed || before.missed;
                        (void) history_splice(h, level, p.offset, p.length, NULL, 0);
                        break;
                }

        n = record_write(&s, level, record);
        while (history_size(h) + n > DATA_MAX) {
                Position largest;
                int schema;

                if (history_forget_entries(h))
                        continue;
                if (custom_forget_entries(&s)) {
                        n = record_write(&s, level, record);
                        continue;
                }
                for (schema = SCHEMA_KEPT;; schema = WINDOW_BINS_SCHEMA_MIN) {
                        bool any = history_find_largest(h, schema, &largest);

                        if (s.distributions[0].schema > schema && n >= largest.length) {
                                step_coarsen(&s);
                                n = record_write(&s, level, record);
                        } else if (any)
                                history_coarsen(h, &largest);
                        else if (schema == SCHEMA_KEPT && !history_forget(h, RECORD_MOUNTS) &&
                                 !history_forget(h, RECORD_CUSTOM) && !history_forget(h, RECORD_AMOUNTS))
                                continue;
                        else if (schema < SCHEMA_KEPT)
                                history_forget_oldest(h);
                        break;
                }
        }

        for (position_begin(h, level, &p); position_next(h, &p); )
                if (position_index(&p) > s.index)
                        break;
        h->bare[level] = MIN(h->bare[level], s.index);
        return history_splice(h, level, p.offset, 0, record, n);
}

int history_put(History *h, const HistoryStep *step) {
        return level_put(h, HISTORY_FINE, step);
}

/* Merges the 10 s steps within a 5 min step. Returns false if there are none. */
static bool history_merge(const History *h, uint64_t index, HistoryStep *ret) {
        bool any = false;
        Position p;

        for (position_begin(h, HISTORY_FINE, &p); position_next(h, &p); ) {
                uint64_t i = position_index(&p);
                HistoryStep s;

                if (i / (HISTORY_COARSE_NSEC / HISTORY_FINE_NSEC) != index)
                        continue;
                position_read(&p, &s);
                if (any) {
                        step_add(ret, &s);
                        custom_merge(ret, &s);
                } else {
                        *ret = s;
                        ret->index = index;
                        /* Beginning of the 5 min step, even if the unit was not observed then */
                        ret->timestamp -= MIN(ret->timestamp,
                                              i * HISTORY_FINE_NSEC - index * HISTORY_COARSE_NSEC);
                        any = true;
                }
        }
        return any;
}

static void level_expire(History *h, HistoryLevel level, uint64_t first) {
        Position p;

        for (;;) {
                position_begin(h, level, &p);
                if (!position_next(h, &p) || position_index(&p) >= first)
                        return;
                (void) history_splice(h, level, p.offset, p.length, NULL, 0);
        }
}

int history_roll(History *h, uint64_t newest) {
        const uint64_t steps = HISTORY_COARSE_NSEC / HISTORY_FINE_NSEC;
        uint64_t next = history_next_coarse(h);
        Position p;

        for (;;) {
                HistoryStep s;
                bool found = false;
                uint64_t index = 0;
                int r;

                for (position_begin(h, HISTORY_FINE, &p); !found && position_next(h, &p); ) {
                        index = position_index(&p) / steps;
                        found = index >= next;
                }
                /* Steps that are still in the map may change */
                if (!found || (index + 1) * steps + WINDOW_STEPS > newest + 1)
                        break;

                (void) history_merge(h, index, &s);
                r = level_put(h, HISTORY_COARSE, &s);
                if (r < 0)
                        return r;
                next = index + 1;
        }

        if (newest >= HISTORY_FINE_STEPS)
                level_expire(h, HISTORY_FINE, newest - HISTORY_FINE_STEPS + 1);
        if (newest / steps >= HISTORY_COARSE_STEPS)
                level_expire(h, HISTORY_COARSE, newest / steps - HISTORY_COARSE_STEPS + 1);
        return 0;
}

int history_foreach(const History *h, HistoryLevel level, int (*each)(const HistoryStep *s, void *userdata),
                    void *userdata) {
        const uint64_t steps = HISTORY_COARSE_NSEC / HISTORY_FINE_NSEC;
        uint64_t next;
        HistoryStep s;
        Position p;
        int r;

        for (position_begin(h, level, &p); position_next(h, &p); ) {
                position_read(&p, &s);
                r = each(&s, userdata);
                if (r < 0)
                        return r;
        }
        if (level == HISTORY_FINE)
                return 0;

        next = history_next_coarse(h);
        for (position_begin(h, HISTORY_FINE, &p); position_next(h, &p); ) {
                uint64_t index = position_index(&p) / steps;

                if (index < next)
                        continue;
                next = index + 1;
                (void) history_merge(h, index, &s);
                r = each(&s, userdata);
                if (r < 0)
                        return r;
        }
        return 0;
}
