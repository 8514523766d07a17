/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Readings of custom probes in the state file. */

#include "custom-window.h"
#include "window-internal.h"

#define LABEL_WORDS ELEMENTSOF(((struct qos_custom_labels*) NULL)->words)

/* Rows have their cells one after the other. */
static size_t row_end(const CustomReading *reading, size_t i) {
        return i + 1 < reading->n_rows ? reading->rows[i + 1].cells : reading->n_cells;
}

static int append_number(sd_json_variant **array, uint64_t number) {
        return sd_json_variant_append_arrayb(array, SD_JSON_BUILD_UNSIGNED(number));
}

/* Metric, whether it is the entry of all others, labels, and pairs of the number and value of a cell. */
static int row_to_json(const CustomReading *reading, size_t i, sd_json_variant **ret) {
        const CustomRow *row = reading->rows + i;
        int r;

        r = append_number(ret, row->metric);
        if (r >= 0)
                r = append_number(ret, row->rest);
        for (size_t k = 0; k < LABEL_WORDS && r >= 0; k++)
                r = append_number(ret, row->labels.words[k]);
        for (size_t c = row->cells; c < row_end(reading, i) && r >= 0; c++)
                if (reading->cells[c] != 0) {
                        r = append_number(ret, c - row->cells);
                        if (r >= 0)
                                r = append_number(ret, reading->cells[c]);
                }
        return r;
}

static bool row_is_zero(const CustomReading *reading, size_t i) {
        for (size_t c = reading->rows[i].cells; c < row_end(reading, i); c++)
                if (reading->cells[c] != 0)
                        return false;
        return true;
}

int custom_reading_to_json(const CustomReading *reading, sd_json_variant **ret) {
        int r = 0;

        for (size_t i = 0; i < reading->n_rows && r >= 0; i++) {
                sd_json_variant *row = NULL;

                if (row_is_zero(reading, i))
                        continue;
                r = row_to_json(reading, i, &row);
                if (r >= 0)
                        r = sd_json_variant_append_array(ret, row);
                (void) sd_json_variant_unref(row);
        }
        return r;
}

/* false: it is no number. */
static bool number_of(sd_json_variant *array, size_t i, uint64_t *ret) {
        sd_json_variant *v = sd_json_variant_by_index(array, i);

        *ret = v ? sd_json_variant_unsigned(v) : 0;
        return v && sd_json_variant_is_unsigned(v);
}

static int row_from_json(CustomReading *reading, const CustomManifest *m, sd_json_variant *v) {
        size_t n = sd_json_variant_is_array(v) ? sd_json_variant_elements(v) : 0;
        uint64_t metric, rest, cell, value;
        CustomRow key = {}, *row;

        if (n < 2 + LABEL_WORDS || (n - LABEL_WORDS) % 2 != 0 || !number_of(v, 0, &metric) ||
            !number_of(v, 1, &rest) || metric >= m->n_metrics)
                return -EBADMSG;
        key = (CustomRow) { .metric = metric, .rest = rest != 0 };
        for (size_t k = 0; k < LABEL_WORDS; k++) {
                if (!number_of(v, 2 + k, &value))
                        return -EBADMSG;
                key.labels.words[k] = value;
        }
        row = custom_reading_get_row(reading, m, &key);
        if (!row)
                return -ENOMEM;
        for (size_t k = 2 + LABEL_WORDS; k < n; k += 2) {
                if (!number_of(v, k, &cell) || !number_of(v, k + 1, &value) ||
                    cell >= custom_metric_cells(m->metrics + metric))
                        return -EBADMSG;
                reading->cells[row->cells + cell] += value;
        }
        return 0;
}

int custom_reading_from_json(CustomReading *reading, const CustomManifest *m, sd_json_variant *v) {
        size_t n = sd_json_variant_is_array(v) ? sd_json_variant_elements(v) : 0;

        for (size_t i = 0; i < n; i++) {
                int r = row_from_json(reading, m, sd_json_variant_by_index(v, i));

                if (r < 0)
                        return r;
        }
        return 0;
}
