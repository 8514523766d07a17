/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What a custom probe measures, and where its values are in the maps of units, from the JSON of
 * qosd-probe-check. */

#include <systemd/sd-json.h>

#include "custom-map.h"
#include "util.h"

typedef enum CustomDecoder {
        DECODER_UINT,
        DECODER_MAP,
        DECODER_ERRNO,
        DECODER_DEVICE,
        DECODER_ADDRESS,
        DECODER_STRING,
        DECODER_INTERFACE,
        DECODER_SYMBOL,
        DECODER_SYSCALL,
        _DECODER_MAX,
} CustomDecoder;

typedef struct CustomValue {
        uint64_t key;
        char *name;
} CustomValue;

typedef struct CustomLabel {
        char *name;
        CustomDecoder decoder;
        CustomValue *values;
        size_t n_values;
} CustomLabel;

typedef struct CustomMetric {
        char *name, *unit, *description;
        CustomLabel labels[QOS_CUSTOM_LABELS];
        struct qos_custom_metric place;
} CustomMetric;

/* What a program of the probe is attached to, if its section does not say so. */
typedef struct CustomProgram {
        char *name;
        char *type;                     /* "perf-event", "uprobe", "uretprobe" or "usdt" */
        char *path, *symbol, *provider; /* of a file; symbol: also the name of a USDT probe */
        uint32_t perf_type;
        uint64_t perf_config, frequency;
} CustomProgram;

typedef struct CustomManifest {
        char *name, *description;
        char *sha256;                   /* of the object file */
        CustomMetric *metrics;
        size_t n_metrics;
        CustomProgram *programs;
        size_t n_programs;
        struct qos_custom_layout layout;
} CustomManifest;

/* -EBADMSG: it is no valid manifest. -E2BIG: the map of a unit would be too large. */
int custom_manifest_new(sd_json_variant *v, CustomManifest **ret);
CustomManifest* custom_manifest_free(CustomManifest *m);
static inline void custom_manifest_freep(CustomManifest **m) {
        (void) custom_manifest_free(*m);
}

static inline uint32_t custom_metric_entries(const CustomMetric *m) {
        return m->place.labels > 0 ? 1 + QOS_CUSTOM_ENTRIES : 1;
}

/* Cells of an entry. */
static inline uint32_t custom_metric_cells(const CustomMetric *m) {
        return QOS_CUSTOM_CELLS(m->place.type, m->place.labels);
}
