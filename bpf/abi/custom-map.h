/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* Layout of the map of a unit for a custom probe. Written by the programs of the probe
 * (bpf/custom/custom-record.h), read by src/model/custom-window.c.
 *
 * The map is an array of elements of 1 KiB:
 *
 *   QOS_CUSTOM_HEADER    generation, boundaries of the checkpoints
 *   keys                 the label values of entries: QOS_CUSTOM_KEYS of them for each metric with labels
 *   cells                the values of all metrics
 *   checkpoints          the cells at boundaries of sub-windows: QOS_CHECKPOINTS copies of them
 *
 * A metric without labels has one entry, one with labels has QOS_CUSTOM_ENTRIES, and before them one for all
 * others. Entries are never replaced. */

#include "unit-map.h"

/* Version of this layout, to be changed with it: programs were compiled by others, with the header of their
 * time. */
#define QOS_CUSTOM_VERSION 2U

/* Limits of a probe, as in its manifest */
#define QOS_CUSTOM_METRICS 32U
#define QOS_CUSTOM_LABELS 3U
#define QOS_CUSTOM_ENTRIES 64U

#define QOS_CUSTOM_LABEL_SIZE 16U
#define QOS_CUSTOM_WORDS 128U           /* 64 bit words of an element */

enum qos_custom_type {
        QOS_CUSTOM_COUNTER,
        QOS_CUSTOM_GAUGE,
        QOS_CUSTOM_HISTOGRAM,
        _QOS_CUSTOM_TYPES,
};

/* Cells of an entry: a counter or gauge has one, a histogram its sum in ns and its bins. Those of a metric
 * with labels are octaves (schema 0). */
#define QOS_CUSTOM_OCTAVES (HISTOGRAM_OCTAVES + 2)
#define QOS_CUSTOM_CELLS(type, labels) \
        ((type) != QOS_CUSTOM_HISTOGRAM ? 1U : \
                                          1U + ((labels) > 0 ? QOS_CUSTOM_OCTAVES : HISTOGRAM_COARSE_BINS))

static inline __attribute__((always_inline)) __u32 custom_octave(__u32 fine_bin) {
        return fine_bin >= HISTOGRAM_FINE_BINS - 1 ? QOS_CUSTOM_OCTAVES - 1 : (fine_bin + 31) / 32;
}

/* Place of a metric in the map: constants of the programs, set by the daemon. */
struct qos_custom_metric {
        __u32 type; /* enum qos_custom_type; set by the program, and compared with the manifest */
        __u32 labels;           /* number of labels */
        __u32 keys;             /* first element of its keys */
        __u32 cells;            /* first cell */
};

struct qos_custom_layout {
        __u32 version;          /* QOS_CUSTOM_VERSION, of the header that the program was compiled with */
        __u32 cells;            /* first element of cells */
        __u32 n;                /* number of elements of cells */
        __u32 checkpoints;      /* first element of the checkpoints */
        __u32 elements;
};

struct qos_custom_labels {
        union {
                __u8 bytes[QOS_CUSTOM_LABELS][QOS_CUSTOM_LABEL_SIZE];
                __u64 words[QOS_CUSTOM_LABELS * QOS_CUSTOM_LABEL_SIZE / 8];
        };
};

enum qos_custom_key_state {
        QOS_CUSTOM_FREE,
        QOS_CUSTOM_WRITING,
        QOS_CUSTOM_USED,
};

struct qos_custom_key {
        struct qos_custom_labels labels;
        __u64 state;            /* enum qos_custom_key_state; set to used when the labels are complete */
        __u64 _padding;
};

#define QOS_CUSTOM_KEYS_PER_ELEMENT (QOS_CUSTOM_WORDS * 8U / sizeof(struct qos_custom_key))
#define QOS_CUSTOM_KEYS (QOS_CUSTOM_ENTRIES / QOS_CUSTOM_KEYS_PER_ELEMENT)

/* Boundaries first … last, in sub-windows of the level. No event lies between the two. */
struct qos_custom_checkpoint {
        __u64 first;
        __u64 last;             /* < first: invalid or being written */
};

struct qos_custom_header {
        __u32 generation;       /* set once before the map is frozen; differs for each map created */
        __u32 unit;             /* generation of the unit, as in struct qos_owner */
        __u32 rolling;          /* CPU + 1 of the program writing checkpoints; 0: none */
        __u32 slot;             /* of the unit; set once */
        __u64 epoch;            /* of the newest event */
        __u32 written[QOS_LEVELS];
        struct qos_custom_checkpoint checkpoints[QOS_CHECKPOINTS];
        __u64 recorded;         /* number of values, by which the cost of the probe is divided; not on the
                                 * line of the epoch, which all CPUs read */
};

union qos_custom_element {
        struct qos_custom_header header;
        struct qos_custom_key keys[QOS_CUSTOM_KEYS_PER_ELEMENT];
        __u64 words[QOS_CUSTOM_WORDS];
};

#define QOS_CUSTOM_HEADER 0U

/* Limit of the elements of a map: 1 MiB. */
#define QOS_CUSTOM_ELEMENTS_MAX 1024U

_Static_assert(sizeof(union qos_custom_element) == QOS_CUSTOM_WORDS * 8,
               "elements of an array follow each other");
