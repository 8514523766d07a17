/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Metrics of custom probes in steps. */

#include <math.h>

#include "history-internal.h"
#include "history.h"

static HistoryCustom* step_find_custom(HistoryStep *s, uint64_t identity) {
        for (unsigned i = 0; i < s->n_custom; i++)
                if (s->custom[i].identity == identity)
                        return s->custom + i;
        return NULL;
}

void history_step_add_custom(HistoryStep *s, const CustomReading *reading, const CustomManifest *m) {
        uint64_t probe = hash_bytes(hash_bytes(HASH_INIT, m->name, strlen(m->name)), ".", 1);

        for (size_t i = 0; i < m->n_metrics && s->n_custom < HISTORY_CUSTOM_MAX; i++) {
                const CustomMetric *metric = m->metrics + i;
                HistoryCustom *c = &s->custom[s->n_custom++];

                *c = (HistoryCustom) {
                        .identity = hash_bytes(probe, metric->name, strlen(metric->name)),
                        .covered = MIN(reading->covered, HISTORY_FINE_NSEC),
                        .type = metric->place.type,
                        .labeled = metric->place.labels > 0,
                };
                custom_reading_sum(reading, m, i, c->cells);
        }
}

double history_step_get_custom(const HistoryStep *s, const char *path, size_t length, CustomField field,
                               unsigned minimum_samples) {
        uint64_t identity = hash_bytes(HASH_INIT, path, length);

        for (const HistoryCustom *c = s->custom; c < s->custom + s->n_custom; c++) {
                const CustomMetric metric = { .place = { .type = c->type, .labels = c->labeled } };

                if (c->identity == identity)
                        return custom_cells_get(&metric, c->cells, c->covered, field, minimum_samples);
        }
        return NAN;
}

/* Keeps what a later reading of a step does not have: the probe may have been unloaded meanwhile. */
void custom_keep(HistoryStep *s, const HistoryStep *before) {
        for (unsigned i = 0; i < before->n_custom && s->n_custom < HISTORY_CUSTOM_MAX; i++)
                if (!step_find_custom(s, before->custom[i].identity))
                        s->custom[s->n_custom++] = before->custom[i];
}

/* Adds those of a later step. A probe that was replaced may have others of the same name: the last ones
 * count. */
void custom_merge(HistoryStep *s, const HistoryStep *later) {
        for (const HistoryCustom *c = later->custom; c < later->custom + later->n_custom; c++) {
                HistoryCustom *same = step_find_custom(s, c->identity);

                if (same && same->type == c->type && same->labeled == c->labeled) {
                        same->covered += c->covered;
                        for (size_t i = 0; i < CUSTOM_SUM_CELLS; i++)
                                same->cells[i] = c->type == QOS_CUSTOM_GAUGE ? c->cells[i] :
                                                                               same->cells[i] + c->cells[i];
                } else if (same)
                        *same = *c;
                else if (s->n_custom < HISTORY_CUSTOM_MAX)
                        s->custom[s->n_custom++] = *c;
        }
}
