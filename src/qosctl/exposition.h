/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Metrics of units in the formats of Prometheus. */

#include <stdio.h>

#include "replies.h"

typedef enum Exposition {
        EXPOSITION_OPENMETRICS,         /* OpenMetrics 1.0 */
        EXPOSITION_OPENMETRICS2,        /* draft of OpenMetrics 2.0, with native histograms */
        EXPOSITION_PROMETHEUS,          /* Prometheus text 0.0.4 */
        EXPOSITION_PROTOBUF, /* Prometheus' protobuf messages, with native histograms */
        _EXPOSITION_MAX,
} Exposition;

/* Default limit of Mimir, Grafana Cloud and OpenTelemetry, which reduce the resolution of larger
 * histograms. */
#define EXPOSITION_BUCKETS_DEFAULT 160U
/* Number of buckets of schema 0, with one bucket for each power of two. */
#define EXPOSITION_BUCKETS_MIN 29U
#define EXPOSITION_BUCKETS_MAX 10000U

/* Sufficient for 350 units with the essential metrics. */
#define EXPOSITION_SERIES_DEFAULT 10000U
#define EXPOSITION_SERIES_MAX 10000000U

/* Metrics to write. */
typedef enum ExpositionScope {
        EXPOSITION_REQUESTS,            /* essential metrics of the probe "requests" */
        EXPOSITION_PROBES,              /* metrics of all probes */
        EXPOSITION_EVERYTHING,          /* also those of endpoints, devices and file systems; requires
                                         * "tables" of Export() */
        _EXPOSITION_SCOPE_MAX,
} ExpositionScope;

typedef struct ExpositionOptions {
        Exposition format;
        ExpositionScope scope;
        unsigned buckets_max; /* limit for native histograms, at least EXPOSITION_BUCKETS_MIN; 0: no limit */
        unsigned series_max;            /* limit for all units together; 0: no limit. Beyond it, endpoints
                                         * and devices are dropped first, then whole units. The number of
                                         * dropped series is written */
} ExpositionOptions;

/* Returns whether this build supports the format. */
bool exposition_is_supported(Exposition format);

/* Names of scopes, for messages. */
#define EXPOSITION_SCOPES "requests, probes or everything"

int exposition_parse_scope(const char *s, ExpositionScope *ret);
/* Parse a limit: 0, or a number within the bounds above. Return -EINVAL. */
int exposition_parse_buckets(const char *s, unsigned *ret);
int exposition_parse_series(const char *s, unsigned *ret);

/* Writes the replies to ListMetrics(), and to one or more calls of Export(). Errors of writing are those of
 * the stream. Returns -EBADMSG if a reply is invalid, or -ENOMEM. */
int exposition_write(FILE *file, const ExpositionOptions *options, const Replies *catalogue,
                     const Replies *exports);

/* Writes a gauge without labels. unit: NULL, or "seconds", for nanoseconds. Returns -ENOMEM. */
int exposition_write_gauge(FILE *file, Exposition format, const char *name, const char *unit,
                           const char *help, uint64_t n);

/* Writes the end marker of the format, if it has one. */
void exposition_end(FILE *file, Exposition format);
