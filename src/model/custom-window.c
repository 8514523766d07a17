/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "custom-window.h"
#include "window-internal.h"

void custom_reading_done(CustomReading *r) {
        free(r->rows);
        free(r->cells);
        *r = (CustomReading) {};
}

CustomRow* custom_reading_get_row(CustomReading *r, const CustomManifest *m, const CustomRow *row) {
        size_t n = custom_metric_cells(m->metrics + row->metric);
        uint64_t *cells;
        CustomRow *rows;

        for (size_t i = 0; i < r->n_rows; i++)
                if (r->rows[i].metric == row->metric && r->rows[i].rest == row->rest &&
                    memcmp(&r->rows[i].labels, &row->labels, sizeof(row->labels)) == 0)
                        return r->rows + i;

        rows = reallocarray(r->rows, r->n_rows + 1, sizeof(CustomRow));
        if (!rows)
                return NULL;
        r->rows = rows;
        cells = reallocarray(r->cells, r->n_cells + n, sizeof(uint64_t));
        if (!cells)
                return NULL;
        r->cells = cells;
        memset(cells + r->n_cells, 0, n * sizeof(uint64_t));
        rows[r->n_rows] = *row;
        rows[r->n_rows].cells = r->n_cells;
        r->n_cells += n;
        return rows + r->n_rows++;
}

/* Bins first, their sum is the first cell: what is in a bin is in the sum already. */
static void cells_load(const CustomManifest *m, const union qos_custom_element *map, uint32_t element,
                       uint64_t *ret) {
        for (size_t i = (size_t) m->layout.n * QOS_CUSTOM_WORDS; i > 0; i--)
                ret[i - 1] = map_load(
                        &map[element + (i - 1) / QOS_CUSTOM_WORDS].words[(i - 1) % QOS_CUSTOM_WORDS]);
}

/* Adds the cells of a map, times 1 or -1, to the rows of its entries. Cells of gauges are those of live,
 * and are never subtracted. */
static int reading_add_cells(CustomReading *reading, const CustomManifest *m,
                             const union qos_custom_element *map, const uint64_t *cells, int times) {
        for (size_t i = 0; i < m->n_metrics; i++) {
                const CustomMetric *metric = m->metrics + i;
                uint32_t n = custom_metric_cells(metric);

                for (uint32_t entry = 0; entry < custom_metric_entries(metric); entry++) {
                        const uint64_t *from = cells + metric->place.cells + entry * n;
                        CustomRow key = { .metric = i, .rest = entry == 0 }, *row;

                        if (entry > 0) {
                                const struct qos_custom_key *k =
                                        &map[metric->place.keys + (entry - 1) / QOS_CUSTOM_KEYS_PER_ELEMENT]
                                                 .keys[(entry - 1) % QOS_CUSTOM_KEYS_PER_ELEMENT];

                                if (map_load(&k->state) != QOS_CUSTOM_USED)
                                        continue;
                                key.labels = k->labels;
                        }
                        row = custom_reading_get_row(reading, m, &key);
                        if (!row)
                                return -ENOMEM;
                        for (uint32_t c = 0; c < n; c++)
                                reading->cells[row->cells + c] += (uint64_t) times * from[c];
                }
        }
        return 0;
}

static size_t cells_number(const CustomManifest *m) {
        return (size_t) m->layout.n * QOS_CUSTOM_WORDS;
}

/* Sets gauges, which have no past, to 0. */
static void cells_clear_gauges(const CustomManifest *m, uint64_t *cells) {
        for (size_t i = 0; i < m->n_metrics; i++)
                if (m->metrics[i].place.type == QOS_CUSTOM_GAUGE)
                        memset(cells + m->metrics[i].place.cells, 0,
                               custom_metric_entries(m->metrics + i) * sizeof(uint64_t));
}

int custom_reading_add(CustomReading *reading, const CustomManifest *m, const CustomSource *source,
                       int times) {
        _cleanup_free_ uint64_t *cells = new0(uint64_t, cells_number(m));

        if (!cells)
                return -ENOMEM;
        cells_load(m, source->map, m->layout.cells, cells);
        cells_clear_gauges(m, cells);
        return reading_add_cells(reading, m, source->map, cells, times);
}

/* Returns the cells at a boundary of the level. -ENOENT: no checkpoint. */
static int checkpoint_load(const CustomManifest *m, const CustomSource *s, unsigned level, uint64_t boundary,
                           uint64_t *ret) {
        for (unsigned i = 0; i < QOS_LEVEL_CHECKPOINTS(level); i++) {
                unsigned index = QOS_LEVEL_FIRST_CHECKPOINT(level) + i;
                const struct qos_custom_checkpoint *c = s->map->header.checkpoints + index;
                uint64_t last = map_load(&c->last), first = map_load(&c->first);

                if (boundary < first || boundary > last)
                        continue;
                cells_load(m, s->map, m->layout.checkpoints + index * m->layout.n, ret);
                __atomic_thread_fence(__ATOMIC_ACQUIRE);
                return map_load(&c->last) != last || map_load(&c->first) != first ? -ENOENT : 0;
        }
        return -ENOENT;
}

/* Adds a window of one map. buffer: twice the number of cells. */
static int source_read(const CustomSources *sources, const CustomSource *s, unsigned level,
                       uint64_t boundary, uint64_t *buffer, CustomReading *ret) {
        const CustomManifest *m = sources->manifest;
        uint64_t step = QOS_LEVEL_EPOCHS(level) * QOS_EPOCH_NSEC, *live = buffer,
                 *then = buffer + cells_number(m);

        for (unsigned try = 0; try < TRIES_MAX; try++) {
                /* Read before the words: a concurrent event may then be in both, but not be lost */
                bool quiet = map_load(&s->map->header.epoch) / QOS_LEVEL_EPOCHS(level) < boundary &&
                        __atomic_load_n(&s->map->header.rolling, __ATOMIC_ACQUIRE) == 0;
                int r = 0;

                cells_load(m, s->map, m->layout.cells, live);
                if (boundary * step > s->since) {
                        r = checkpoint_load(m, s, level, boundary, then);
                        if (r < 0 && quiet &&
                            map_load(&s->map->header.epoch) / QOS_LEVEL_EPOCHS(level) < boundary) {
                                /* The newest event precedes the window */
                                memcpy(then, live, cells_number(m) * sizeof(uint64_t));
                                r = 0;
                        }
                        if (r >= 0) {
                                cells_clear_gauges(m, then);
                                for (size_t i = 0; i < cells_number(m); i++)
                                        live[i] -= then[i];
                        }
                }
                if (r >= 0)
                        return reading_add_cells(ret, m, s->map, live, 1);
        }
        return -EAGAIN;
}

static int reading_subtract(CustomReading *reading, const CustomManifest *m, const CustomReading *before) {
        for (size_t i = 0; i < before->n_rows; i++) {
                CustomRow *row = custom_reading_get_row(reading, m, before->rows + i);

                if (!row)
                        return -ENOMEM;
                for (uint32_t c = 0; c < custom_metric_cells(m->metrics + row->metric); c++)
                        reading->cells[row->cells + c] -= before->cells[before->rows[i].cells + c];
        }
        return 0;
}

int custom_read(const CustomSources *sources, uint64_t now, uint64_t window, CustomReading *ret) {
        unsigned level = window == WINDOW_TOTAL ? 0 : window_level(window);
        uint64_t step = QOS_LEVEL_EPOCHS(level) * QOS_EPOCH_NSEC, boundary;
        _cleanup_free_ uint64_t *buffer = NULL;
        bool total;
        int r = 0;

        assert(window_is_valid(window));

        *ret = (CustomReading) {};
        buffer = new0(uint64_t, 2 * cells_number(sources->manifest));
        if (!buffer)
                return -ENOMEM;

        boundary = window == WINDOW_TOTAL ? 0 : window_boundary(now / step, window / step);
        total = boundary * step <= sources->since;
        if (total)
                boundary = 0;
        ret->covered = now - MIN(now, total ? sources->since : boundary * step);
        for (size_t i = 0; i < sources->n && r >= 0; i++)
                r = source_read(sources, sources->sources + i, level, boundary, buffer, ret);
        if (r >= 0 && total && sources->before)
                r = reading_subtract(ret, sources->manifest, sources->before);
        if (r < 0)
                custom_reading_done(ret);
        return r;
}

/* Level with sub-windows of the length of a step. */
#define STEP_LEVEL 2

/* Cells at the beginning of step n. */
static int source_read_at(const CustomManifest *m, const CustomSource *s, uint64_t n, uint64_t *ret) {
        memset(ret, 0, cells_number(m) * sizeof(uint64_t));
        if (n * WINDOW_STEP_NSEC <= s->since)
                return 0;

        for (unsigned try = 0; try < TRIES_MAX; try++) {
                bool quiet = map_load(&s->map->header.epoch) / QOS_LEVEL_EPOCHS(STEP_LEVEL) < n &&
                        __atomic_load_n(&s->map->header.rolling, __ATOMIC_ACQUIRE) == 0;

                if (checkpoint_load(m, s, STEP_LEVEL, n, ret) >= 0)
                        return 0;
                if (!quiet)
                        continue;
                /* No event since */
                cells_load(m, s->map, m->layout.cells, ret);
                if (map_load(&s->map->header.epoch) / QOS_LEVEL_EPOCHS(STEP_LEVEL) < n)
                        return 0;
        }
        return -ENODATA;
}

int custom_read_step(const CustomSources *sources, uint64_t n, CustomReading *ret) {
        uint64_t begin = n * WINDOW_STEP_NSEC, end = begin + WINDOW_STEP_NSEC, *before, *after;
        const CustomManifest *m = sources->manifest;
        _cleanup_free_ uint64_t *buffer = NULL;
        bool first = begin <= sources->since;
        int r = 0;

        *ret = (CustomReading) {};
        if (end <= sources->since)
                return -ENODATA;
        buffer = new0(uint64_t, 2 * cells_number(m));
        if (!buffer)
                return -ENOMEM;
        before = buffer;
        after = buffer + cells_number(m);

        ret->covered = end - MAX(begin, sources->since);
        for (size_t i = 0; i < sources->n && r >= 0; i++) {
                r = source_read_at(m, sources->sources + i, n + 1, after);
                if (r >= 0 && !first)
                        r = source_read_at(m, sources->sources + i, n, before);
                if (r < 0)
                        break;
                cells_clear_gauges(m, before);
                for (size_t k = 0; k < cells_number(m); k++)
                        after[k] -= before[k];
                r = reading_add_cells(ret, m, sources->sources[i].map, after, 1);
        }
        if (r >= 0 && first && sources->before)
                r = reading_subtract(ret, m, sources->before);
        if (r < 0)
                custom_reading_done(ret);
        return r;
}
