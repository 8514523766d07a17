/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Calls on files that took long, as storage maps have them: arithmetic, no I/O, no clock. The writer is in
 * bpf/storage/storage-call.bpf.h. */

#include "storage-window.h"

typedef struct SlowOperation {
        uint64_t at;                    /* CLOCK_MONOTONIC ns of the call */
        uint64_t nsec;                  /* until its return */
        enum qos_storage_call call;
        uint64_t bytes;                 /* read or written; ABSENT: of another call, or of one that failed */
        int error;                      /* errno; 0: none */
        uint32_t device;                /* of the file system, in the kernel's internal encoding; 0: not
                                         * known */
        bool reused;                    /* another file system has that number since */
        uint32_t pid;                   /* of the thread; 0: not known */
        double shares[QOS_STATES];      /* of nsec, by enum qos_state; NaN: not known */
        char thread[16];                /* empty: not known */
        char name[QOS_STORAGE_SLOW_NAME]; /* last part of the path, may be truncated; empty: not known */
} SlowOperation;

/* The latest ones of all maps since the unit was observed, newest first. ret: QOS_STORAGE_SLOW_CALLS.
 * Returns their number. */
size_t slow_operations_read(const StorageSources *sources, SlowOperation *ret);

/* "read" */
const char* storage_call_to_string(enum qos_storage_call call);
