/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Names of probes. Pure, and shared with qosctl. */

#include "error.h"
#include "util.h"

/* Bitmask of probes. */
typedef enum ProbeMask {
        PROBE_REQUESTS = 1 << 0,
        PROBE_TLS      = 1 << 1,        /* decrypted TLS; its requests are metrics of "requests" */
        PROBE_CPU      = 1 << 2,        /* states of threads */
        PROBE_BLOCK    = 1 << 3,        /* block I/O */
        PROBE_MEMORY   = 1 << 4,        /* page faults, reclaim, and statistics of the control group */
        PROBE_STORAGE  = 1 << 5,        /* calls on files */
        PROBE_NETWORK  = 1 << 6,        /* what TCP knows of connections */
        _PROBE_ALL     = (1 << 7) - 1,
} ProbeMask;

/* Probes with overhead for all processes: on calls of a library shared with the unit, on page faults, on
 * calls on files, and on received segments. */
#define PROBES_MACHINE_WIDE (PROBE_TLS | PROBE_MEMORY | PROBE_STORAGE | PROBE_NETWORK)

/* Lists for error messages, in files and for clients */
#define PROBES_LISTED "('requests', 'tls', 'cpu', 'block', 'memory', 'storage', 'network')"
#define PROBES_EXPECTED "'requests', 'tls', 'cpu', 'block', 'memory', 'storage' or 'network'"

/* 0: unknown name. */
ProbeMask probe_mask_from_name(const char *s);
/* Name of the i-th probe, in the order of bits; NULL after the last. */
const char* probe_mask_name(unsigned i);

/* Parses probes passed by a client. The error names an unknown one. words: NULL: empty list. */
int probe_mask_parse(char **words, ProbeMask *ret, QosError *e);
