/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Interface of the writers of each format. */

#include "exposition.h"
#include "sparse-histogram.h"

typedef enum FamilyType {
        FAMILY_COUNTER,
        FAMILY_GAUGE,
        FAMILY_INFO,
        FAMILY_HISTOGRAM,
        _FAMILY_TYPE_MAX,
} FamilyType;

/* Samples of one name, which have to be contiguous. */
typedef struct Family {
        const char *name;       /* without "_total" and "_info" */
        const char *unit;       /* last word of the name: "seconds", "bytes", or NULL */
        const char *help;
        FamilyType type;
} Family;

typedef struct Label {
        const char *name, *value;
} Label;

#define LABELS_MAX 4U

typedef struct Sample {
        Label labels[LABELS_MAX];
        size_t n_labels;
        uint64_t created;       /* CLOCK_REALTIME ns of the start of the counter; 0: unknown */
        enum {
                SAMPLE_INTEGER,
                SAMPLE_NSEC,    /* n is in nanoseconds, to be written in seconds */
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
        const Family *family;   /* current family; NULL: none */
        void *state;            /* state of the writer */
} Output;

/* All functions return a negative errno on error. Errors of writing are those of the stream. */
struct Writer {
        int (*begin)(Output *o);
        int (*add)(Output *o, const Sample *sample);
        int (*end)(Output *o);
        void (*abort)(Output *o);       /* called instead of end() after an error; may be NULL */
};

/* Passes the samples of the units within the limit of series to a writer. state: state of its Output.
 * ret_dropped: number of series beyond the limit. */
int exposition_visit(const Writer *writer, void *state, const ExpositionOptions *options,
                     const Replies *catalogue, const Replies *exports, uint64_t *ret_dropped);

/* Counts samples; the state is a uint64_t. */
extern const Writer count_writer;
extern const Writer text_writer;
#if HAVE_PROTOBUF
extern const Writer protobuf_writer;
#endif
