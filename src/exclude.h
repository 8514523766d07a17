/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What is left out of a unit's figures: "port:9100", an endpoint that the unit answers at. Pure. */

#include "util.h"

/* Per unit, all holds together. A unit has a port or two for its own metrics and health; one that needs more than this is
 * better measured by what is left. QOS_EXCLUDES in bpf/qos.h has room for as many in each of 256 units. */
#define EXCLUDES_MAX 16U

/* Sorted, each once. */
typedef struct ExcludeList {
        uint16_t ports[EXCLUDES_MAX];
        size_t n;
} ExcludeList;

#define EXCLUDE_EXPECTED "'port:' and a number from 1 to 65535"

/* -EINVAL: s is no EXCLUDE_EXPECTED, -E2BIG: there would be more than EXCLUDES_MAX. */
int exclude_list_add(ExcludeList *l, const char *s);
int exclude_list_merge(ExcludeList *l, const ExcludeList *other);

/* The i-th, as exclude_list_add() takes it. */
#define EXCLUDE_STRING_MAX sizeof("port:65535")
const char* exclude_list_format(const ExcludeList *l, size_t i, char buffer[static EXCLUDE_STRING_MAX]);
