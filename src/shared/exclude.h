/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Exclusions from the metrics of a unit: "port:9100" for an endpoint; "http:/healthz", "http:/static/" plus
 * an asterisk and "redis:BRPOP" for requests. Pure. */

#include "error.h"
#include "util.h"

/* Limit per unit, over all holds. One or two are usual, for metrics and health checks. QOS_EXCLUDES
 * (bpf/abi/unit-map.h) is this many for each of 256 units. */
#define EXCLUDES_MAX 16U

/* Limit of the length, as each hold has a copy. Paths of health checks and metrics are short. */
#define EXCLUDE_STRING_MAX 136U

typedef struct Exclude {
        uint32_t kind;                  /* as in struct qos_exclude */
        uint64_t name;                  /* as in struct qos_exclude */
        char text[EXCLUDE_STRING_MAX];  /* as passed to exclude_list_add() */
} Exclude;

/* Sorted, without duplicates. */
typedef struct ExcludeList {
        Exclude list[EXCLUDES_MAX];
        size_t n;
} ExcludeList;

/* -EINVAL: invalid exclusion, -E2BIG: more than EXCLUDES_MAX. */
int exclude_list_add(ExcludeList *l, const char *s);
int exclude_list_merge(ExcludeList *l, const ExcludeList *other);

/* Parses exclusions passed by a client. The error names the invalid one. words: NULL: empty list. */
int exclude_list_parse(char **words, ExcludeList *ret, QosError *e);
