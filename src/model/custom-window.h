/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Windows of the metrics of a custom probe, of the maps of a unit and those nested in it (custom-map.h). */

#include "custom-manifest.h"
#include "custom-metric.h"
#include "json-writer.h"

/* A map, valid since it was created. */
typedef struct CustomSource {
        const union qos_custom_element *map;
        uint64_t since;                 /* CLOCK_MONOTONIC ns */
} CustomSource;

/* An entry of a metric. */
typedef struct CustomRow {
        size_t metric;
        bool rest;                      /* the entry of all others; or the only one */
        struct qos_custom_labels labels;
        size_t cells;                   /* index in CustomReading.cells */
} CustomRow;

typedef struct CustomReading {
        uint64_t covered;               /* ns */
        CustomRow *rows;
        size_t n_rows;
        uint64_t *cells;
        size_t n_cells;
} CustomReading;

void custom_reading_done(CustomReading *r);

/* The row of an entry, which is added if there is none; NULL: out of memory. */
CustomRow* custom_reading_get_row(CustomReading *r, const CustomManifest *m, const CustomRow *row);

/* The maps of a unit, and what is to be subtracted from their sum: what they had counted when they were
 * added to it, minus what those had that were removed from it. */
typedef struct CustomSources {
        const CustomManifest *manifest;
        const CustomSource *sources;
        size_t n;
        uint64_t since; /* CLOCK_MONOTONIC ns since when the unit is observed with the probe */
        const CustomReading *before;    /* NULL: nothing */
} CustomSources;

/* Reads a window; WINDOW_TOTAL: since the unit is observed. -EAGAIN: checkpoints are being written all the
 * time. */
int custom_read(const CustomSources *sources, uint64_t now, uint64_t window, CustomReading *ret);

/* Reads step n of the history, which has to be over; gauges are those at its end. -ENODATA: no longer in the
 * maps, or the unit was not observed with the probe then. */
int custom_read_step(const CustomSources *sources, uint64_t n, CustomReading *ret);

/* Adds what a map has counted so far, or with times -1 subtracts it. */
int custom_reading_add(CustomReading *reading, const CustomManifest *m, const CustomSource *source,
                       int times);

/* Values other than 0, as numbers; NULL: there are none. */
int custom_reading_to_json(const CustomReading *reading, sd_json_variant **ret);
/* Adds these to a reading. -EBADMSG: it is not of this manifest. */
int custom_reading_from_json(CustomReading *reading, const CustomManifest *m, sd_json_variant *v);

/* Value of a field (custom-metric.h) of the metric with this name, the sum of all entries; NaN: there is no
 * such metric, it does not have the field, or there are too few samples. */
double custom_reading_get(const CustomReading *reading, const CustomManifest *m, const char *metric,
                          CustomField field, unsigned minimum_samples);

/* Sum of all entries of a metric. */
#define CUSTOM_SUM_CELLS QOS_CUSTOM_CELLS(QOS_CUSTOM_HISTOGRAM, 0)
void custom_reading_sum(const CustomReading *reading, const CustomManifest *m, size_t metric,
                        uint64_t ret[static CUSTOM_SUM_CELLS]);
/* Value of a field of such a sum; NaN as above. */
double custom_cells_get(const CustomMetric *m, const uint64_t *cells, uint64_t covered, CustomField field,
                        unsigned minimum_samples);

/* Whether an entry has no value. */
bool custom_cells_are_empty(const CustomMetric *m, const uint64_t *cells);

/* Name of a block device by its number. */
typedef void (*custom_device_t)(uint32_t device, char *ret, size_t size);

/* Size of the value of a label as text: that of a named value in the manifest. */
#define CUSTOM_LABEL_SIZE 257U
#define CUSTOM_LABELS_SIZE (QOS_CUSTOM_LABELS * 2 * CUSTOM_LABEL_SIZE)

/* The values of all labels of an entry, as "EADDRINUSE,lo". Commas and backslashes in them have a backslash
 * before them. */
void custom_labels_format(const CustomMetric *m, const CustomRow *row, custom_device_t device_name,
                          char ret[static CUSTOM_LABELS_SIZE]);

/* Adds an object with the metrics. minimum_samples: as for window_get_distribution(). device_name: NULL:
 * without entries. */
void custom_reading_write(const CustomReading *reading, const CustomManifest *m, unsigned minimum_samples,
                          custom_device_t device_name, JsonWriter *w);

/* Adds an ExportedCustom for each entry with a value, to an array. The reading is of WINDOW_TOTAL. */
void custom_reading_export(const CustomReading *reading, const CustomManifest *m,
                           custom_device_t device_name, JsonWriter *w);
