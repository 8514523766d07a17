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
        _PROBE_ALL     = (1 << 7) - 1,  /* those of qosd */
} ProbeMask;

/* Custom probes have the bits above, in the order in which they were found. Limit of their number: each has
 * up to 1 MiB of maps for each unit. */
#define PROBE_CUSTOM_FIRST 7U
#define CUSTOM_PROBES_MAX 8U
#define PROBE_CUSTOM(i) (1U << (PROBE_CUSTOM_FIRST + (i)))
#define PROBES_CUSTOM (((1U << CUSTOM_PROBES_MAX) - 1) << PROBE_CUSTOM_FIRST)

#define CUSTOM_NAME_MAX 32U
#define CUSTOM_NAME_PREFIX "custom:"

/* Probes with overhead for all processes: on calls of a library shared with the unit, on page faults, on
 * calls on files, on received segments, and on what custom probes are attached to. */
#define PROBES_MACHINE_WIDE (PROBE_TLS | PROBE_MEMORY | PROBE_STORAGE | PROBE_NETWORK | PROBES_CUSTOM)

/* Lists for error messages, in files and for clients */
#define PROBES_LISTED "('requests', 'tls', 'cpu', 'block', 'memory', 'storage', 'network', 'custom:NAME')"
#define PROBES_EXPECTED "'requests', 'tls', 'cpu', 'block', 'memory', 'storage', 'network' or 'custom:NAME'"

/* 0: unknown name. */
ProbeMask probe_mask_from_name(const char *s);
/* Name of the i-th probe, in the order of bits; NULL after the last. */
const char* probe_mask_name(unsigned i);

/* Makes the name of a custom probe known, that of its file without the ending. false: it is no valid name,
 * or there are too many. */
bool probe_mask_add_custom(const char *name, size_t length);
/* The same, with this bit. */
bool probe_mask_set_custom(unsigned i, const char *name, size_t length);
/* Forgets all names but those of these bits, until they are added again. */
void probe_mask_forget_custom(ProbeMask except);
/* Name of a custom probe, without prefix; NULL: there is none with this bit. */
const char* probe_mask_custom_name(unsigned i);

/* Parses probes passed by a client. The error names an unknown one. words: NULL: empty list. */
int probe_mask_parse(char **words, ProbeMask *ret, QosError *e);
