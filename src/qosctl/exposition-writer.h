/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* How families of samples are written in each format. */

#include "exposition.h"
#include "sparse-histogram.h"

typedef enum FamilyType {
        FAMILY_COUNTER,
        FAMILY_GAUGE,
        FAMILY_INFO,
        FAMILY_HISTOGRAM,
        _FAMILY_TYPE_MAX,
} FamilyType;

/* All samples of one name, which have to stand together. */
typedef struct Family {
        const char *name;       /* without "_total" and "_info" */
        const char *unit;       /* its last word: "seconds", "bytes", or NULL */
        const char *help;
        FamilyType type;
} Family;

typedef struct Label {
        const char *name, *value;
} Label;

#define LABELS_MAX 3U

typedef struct Sample {
        Label labels[LABELS_MAX];
        size_t n_labels;
        uint64_t created;       /* CLOCK_REALTIME, ns; 0: not known */
        enum {
                SAMPLE_INTEGER,
                SAMPLE_NSEC,    /* an integer, to be written in seconds */
                SAMPLE_REAL,
                SAMPLE_HISTOGRAM,
        } kind;
        union {
                uint64_t n;
                double real;
                const SparseHistogram *histogram;
        };
} Sample;

typedef struct Writer Writer;

typedef struct Output {
        FILE *file;
        Exposition format;
        const Writer *writer;
        const Family *family;   /* that has been begun; NULL: none */
        void *state;            /* of the writer, for the family */
} Output;

/* Each returns a negative errno; errors of writing are those of the stream. */
struct Writer {
        int (*begin)(Output *o);
        int (*add)(Output *o, const Sample *sample);
        int (*end)(Output *o);
        void (*abort)(Output *o);       /* instead of end(), after an error; may be NULL */
};

/* Passes the samples of the units to a writer, as far as they are within the limit of series; state is that
 * of its Output. Returns how many series the other units have. */
int exposition_visit(const Writer *writer, void *state, const ExpositionOptions *options,
                     const Replies *catalogue, const Replies *exports, uint64_t *ret_dropped);

/* Counts samples; the state is a uint64_t. */
extern const Writer count_writer;
extern const Writer text_writer;
#if HAVE_PROTOBUF
extern const Writer protobuf_writer;
#endif
