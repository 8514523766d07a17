/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What units have counted, in the formats of Prometheus. */

#include <stdio.h>

#include "replies.h"

typedef enum Exposition {
        EXPOSITION_OPENMETRICS,         /* OpenMetrics 1.0 */
        EXPOSITION_OPENMETRICS2,        /* OpenMetrics 2.0, as drafted: with native histograms */
        EXPOSITION_PROMETHEUS,          /* Prometheus text 0.0.4 */
        EXPOSITION_PROTOBUF, /* Prometheus' messages, each behind its length, with native histograms */
        _EXPOSITION_MAX,
} Exposition;

/* Mimir and Grafana Cloud make a native histogram of more buckets coarser, as OpenTelemetry does. */
#define EXPOSITION_BUCKETS_DEFAULT 160U
/* With one bucket for each power of two there are 29. */
#define EXPOSITION_BUCKETS_MIN 29U
#define EXPOSITION_BUCKETS_MAX 10000U

/* Of 350 units with the essential metrics. */
#define EXPOSITION_SERIES_DEFAULT 10000U
#define EXPOSITION_SERIES_MAX 10000000U

/* What is written of the units. */
typedef enum ExpositionScope {
        EXPOSITION_REQUESTS,            /* essential metrics, of the probe requests */
        EXPOSITION_PROBES,              /* metrics of all probes */
        EXPOSITION_EVERYTHING,          /* and those of each endpoint and device, which Export() has with
                                         * "tables" */
        _EXPOSITION_SCOPE_MAX,
} ExpositionScope;

typedef struct ExpositionOptions {
        Exposition format;
        ExpositionScope scope;
        unsigned buckets_max; /* of a native histogram, at least EXPOSITION_BUCKETS_MIN; 0: no limit */
        unsigned series_max;            /* of all units: first endpoints and devices of units that do not fit
                                         * are left out, then whole units, and how many series are missing is
                                         * written; 0: no limit */
} ExpositionOptions;

/* Whether this build writes the format. */
bool exposition_is_supported(Exposition format);

/* The scopes' names, for messages. */
#define EXPOSITION_SCOPES "requests, probes or everything"

int exposition_parse_scope(const char *s, ExpositionScope *ret);
/* Parse limits: 0, or a number within these bounds. Return -EINVAL. */
int exposition_parse_buckets(const char *s, unsigned *ret);
int exposition_parse_series(const char *s, unsigned *ret);

/* Writes the replies to ListMetrics(), and to one or more calls of Export(). Errors of writing are those of
 * the stream. Returns -EBADMSG if a reply is invalid, or -ENOMEM. */
int exposition_write(FILE *file, const ExpositionOptions *options, const Replies *catalogue,
                     const Replies *exports);

/* Writes a gauge without labels. unit: NULL, or "seconds", for nanoseconds. Returns -ENOMEM. */
int exposition_write_gauge(FILE *file, Exposition format, const char *name, const char *unit,
                           const char *help, uint64_t n);

/* Writes what a format has at its end. */
void exposition_end(FILE *file, Exposition format);
