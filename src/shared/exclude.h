/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What is left out of a unit's figures: "port:9100", an endpoint that the unit answers at; "http:/healthz",
 * "http:/static/" and a star, "redis:BRPOP", what it is asked for. Pure. */

#include "error.h"
#include "util.h"

/* Per unit, all holds together. A unit has a port or two for its own metrics and health; one that needs more
 * than this is better measured by what is left. QOS_EXCLUDES in bpf/abi/unit-map.h has room for as many in
 * each of 256 units. */
#define EXCLUDES_MAX 16U

/* Paths of health checks and metrics are short, and it is kept with each hold of each unit. */
#define EXCLUDE_STRING_MAX 136U

typedef struct Exclude {
        uint32_t kind;                  /* as in struct qos_exclude … */
        uint64_t name;                  /* … the same */
        char text[EXCLUDE_STRING_MAX];  /* as exclude_list_add() takes it */
} Exclude;

/* Sorted, each once. */
typedef struct ExcludeList {
        Exclude list[EXCLUDES_MAX];
        size_t n;
} ExcludeList;

/* -EINVAL: s is nothing that can be left out, -E2BIG: there would be more than EXCLUDES_MAX. */
int exclude_list_add(ExcludeList *l, const char *s);
int exclude_list_merge(ExcludeList *l, const ExcludeList *other);

/* What a client has written, with an error that names it. words: NULL for nothing. */
int exclude_list_parse(char **words, ExcludeList *ret, QosError *e);
