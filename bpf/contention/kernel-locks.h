/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* Recognizes functions of lock implementations in a stack trace by prefixes of their names. Pure: compiled
 * for BPF and for the unit tests. */

#include <linux/types.h>
#include <stdbool.h>

#include "histogram.h"

/* Maximum number of bytes compared */
#define LOCK_PREFIX_MAX 8

struct lock_name {
        char begin[LOCK_PREFIX_MAX];
};

static const char lock_prefixes[][LOCK_PREFIX_MAX] = {
        /* Frames between the lock and the BPF program */
        { 'b', 'p', 'f', '_' },
        { '_', '_', 'b', 'p', 'f', '_' },
        { '_', '_', 't', 'r', 'a', 'c', 'e', 'i' },     /* __traceiter_contention_begin */
        { 's', 'c', 'h', 'e', 'd', 'u', 'l', 'e' },

        { 'm', 'u', 't', 'e', 'x', '_' },
        { '_', '_', 'm', 'u', 't', 'e', 'x', '_' },
        { 'w', 'w', '_', 'm', 'u', 't', 'e', 'x' },
        { '_', '_', 'w', 'w', '_', 'm', 'u', 't' },
        { 'r', 't', '_', 'm', 'u', 't', 'e', 'x' },
        { '_', '_', 'r', 't', '_', 'm', 'u', 't' },
        { 'r', 'w', 'b', 'a', 's', 'e', '_' },
        { 'r', 'w', 's', 'e', 'm', '_' },
        { 'd', 'o', 'w', 'n' },                         /* semaphores and rw_semaphores */
        { '_', '_', 'd', 'o', 'w', 'n' },
        { '_', '_', '_', 'd', 'o', 'w', 'n' },
        { 'p', 'e', 'r', 'c', 'p', 'u', '_' },
        { '_', '_', 'p', 'e', 'r', 'c', 'p', 'u' },
};
#define LOCK_PREFIXES (sizeof(lock_prefixes) / sizeof(lock_prefixes[0]))

/* Returns 1 if the function belongs to the implementation of a lock. */
BPF_SUBPROG int lock_function(const struct lock_name *name) {
        BPF_REQUIRE(name);

        for (unsigned i = 0; i < LOCK_PREFIXES; i++) {
                bool same = true;

                for (unsigned k = 0; k < LOCK_PREFIX_MAX && lock_prefixes[i][k] != 0; k++)
                        if (name->begin[k] != lock_prefixes[i][k]) {
                                same = false;
                                break;
                        }
                if (same)
                        return 1;
        }
        return 0;
}
