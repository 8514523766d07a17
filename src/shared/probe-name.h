/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The probes, as people call them. Pure, and shared with qosctl. */

#include "error.h"
#include "util.h"

/* The probes, as bits: what a hold asks for. */
typedef enum ProbeMask {
        PROBE_REQUESTS = 1 << 0,
        PROBE_TLS      = 1 << 1,        /* looks into TLS; what it sees are requests */
        PROBE_CPU      = 1 << 2,        /* where the time of threads goes */
        PROBE_BLOCK    = 1 << 3,        /* what block devices are asked for */
        PROBE_MEMORY   = 1 << 4,        /* page faults, reclaim, and what is known of the control group */
        _PROBE_ALL     = (1 << 5) - 1,
} ProbeMask;

/* Their programs run for every process of the machine: when it calls a library that it shares with the unit,
 * and at each page fault. */
#define PROBES_MACHINE_WIDE (PROBE_TLS | PROBE_MEMORY)

/* In messages about files, and in those to clients */
#define PROBES_LISTED "('requests', 'tls', 'cpu', 'block', 'memory')"
#define PROBES_EXPECTED "'requests', 'tls', 'cpu', 'block' or 'memory'"

/* "requests" → PROBE_REQUESTS; 0 if there is no such probe. */
ProbeMask probe_mask_from_name(const char *s);
/* Iterates over the names of the probes, in the order of their bits; NULL after the last. */
const char* probe_mask_name(unsigned i);

/* What a client has written, with an error that names what is no probe. words: NULL for nothing. */
int probe_mask_parse(char **words, ProbeMask *ret, QosError *e);
