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

/* ---- entries ------------------------------------------------------------------------------------------ */

static const HistoryEntry* custom_find_entry(const HistoryCustom *c, uint64_t identity) {
        for (unsigned i = 0; i < c->n_entries; i++)
                if (c->entries[i].identity == identity)
                        return c->entries + i;
        return NULL;
}

/* If there are too many, those with the largest number, or of histograms with the most time, remain. */
static void custom_put_entry(HistoryCustom *c, const HistoryEntry *e) {
        HistoryEntry *least = c->entries;

        if (c->n_entries < HISTORY_ENTRIES_MAX) {
                c->entries[c->n_entries++] = *e;
                return;
        }
        for (unsigned i = 1; i < c->n_entries; i++)
                if (c->entries[i].cells[0] < least->cells[0])
                        least = c->entries + i;
        if (e->cells[0] > least->cells[0])
                *least = *e;
        c->complete = false;
}

/* Adds the entries of a metric. The one of all others has no name, and may include any that is not there.
 * Labels that differ may be equal as texts: these are one entry. */
static void custom_add_entries(HistoryCustom *c, const CustomReading *reading, const CustomMetric *metric,
                               size_t number, custom_device_t device_name) {
        _cleanup_free_ uint64_t *identities = new0(uint64_t, reading->n_rows); /* 0: is not to be added */
        uint64_t begin = hash_bytes(c->identity, "[", 1);
        char labels[CUSTOM_LABELS_SIZE];

        if (!identities)
                return;
        c->complete = true;
        for (size_t i = 0; i < reading->n_rows; i++) {
                const CustomRow *row = reading->rows + i;

                if (row->metric != number || custom_cells_are_empty(metric, reading->cells + row->cells))
                        continue;
                if (row->rest) {
                        c->complete = false;
                        continue;
                }
                custom_labels_format(metric, row, device_name, labels);
                identities[i] = hash_bytes(hash_bytes(begin, labels, strlen(labels)), "]", 1);
        }
        for (size_t i = 0; i < reading->n_rows; i++) {
                HistoryEntry e = { .identity = identities[i] };

                if (e.identity == 0)
                        continue;
                for (size_t k = i; k < reading->n_rows; k++) {
                        if (identities[k] != e.identity)
                                continue;
                        for (uint32_t cell = 0; cell < custom_metric_cells(metric); cell++)
                                e.cells[cell] += reading->cells[reading->rows[k].cells + cell];
                        identities[k] = 0;
                }
                custom_put_entry(c, &e);
        }
}

/* Adds those of a later step. What an entry is in both is known if each has the entry, or all that are not
 * empty. */
static void custom_merge_entries(HistoryCustom *c, const HistoryCustom *later) {
        HistoryCustom both = { .complete = c->complete && later->complete };

        for (unsigned i = 0; i < later->n_entries; i++) {
                const HistoryEntry *same = custom_find_entry(c, later->entries[i].identity);
                HistoryEntry e = later->entries[i];

                for (size_t cell = 0; same && cell < ELEMENTSOF(e.cells); cell++)
                        e.cells[cell] += same->cells[cell];
                if (same || c->complete)
                        custom_put_entry(&both, &e);
        }
        for (unsigned i = 0; i < c->n_entries && later->complete; i++)
                if (!custom_find_entry(later, c->entries[i].identity))
                        custom_put_entry(&both, c->entries + i);
        c->complete = both.complete;
        c->n_entries = both.n_entries;
        memcpy(c->entries, both.entries, sizeof(c->entries));
}

/* ---- metrics ------------------------------------------------------------------------------------------ */

void history_step_add_custom(HistoryStep *s, const CustomReading *reading, const CustomManifest *m,
                             custom_device_t device_name) {
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
                if (c->labeled)
                        custom_add_entries(c, reading, metric, i, device_name);
        }
}

double history_step_get_custom(const HistoryStep *s, const char *path, size_t length, CustomField field,
                               unsigned minimum_samples) {
        uint64_t identity = hash_bytes(HASH_INIT, path, length);

        for (const HistoryCustom *c = s->custom; c < s->custom + s->n_custom; c++) {
                const CustomMetric metric = { .place = { .type = c->type, .labels = c->labeled } };
                const HistoryEntry *e = custom_find_entry(c, identity);

                if (e || c->identity == identity)
                        return custom_cells_get(&metric, e ? e->cells : c->cells, c->covered, field,
                                                minimum_samples);
        }
        return NAN;
}

bool custom_forget_entries(HistoryStep *s) {
        bool any = false;

        for (unsigned i = 0; i < s->n_custom; i++) {
                any = any || s->custom[i].n_entries > 0;
                s->custom[i].complete = s->custom[i].complete && s->custom[i].n_entries == 0;
                s->custom[i].n_entries = 0;
        }
        return any;
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
                        uint64_t covered = same->covered + c->covered;

                        if (c->type == QOS_CUSTOM_GAUGE)
                                *same = *c;
                        else {
                                for (size_t i = 0; i < CUSTOM_SUM_CELLS; i++)
                                        same->cells[i] += c->cells[i];
                                custom_merge_entries(same, c);
                        }
                        same->covered = covered;
                } else if (same)
                        *same = *c;
                else if (s->n_custom < HISTORY_CUSTOM_MAX)
                        s->custom[s->n_custom++] = *c;
        }
}
