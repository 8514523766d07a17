/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* Layout of the storage map of a unit: what its threads request of file systems. Written by the programs of
 * the probe "storage" (bpf/storage/storage-record.h), read by src/model/storage-window.c.
 *
 * The map is an array whose elements have one size:
 *
 *   QOS_STORAGE_HEADER        generation, checkpoints written, largest latencies
 *   QOS_STORAGE_CHECKPOINT    totals of all CPUs at boundaries of sub-windows: QOS_CHECKPOINTS of them
 *   QOS_STORAGE_SHARDS        counters of a CPU: two elements for each, the second of which has the
 *                             wraparounds of the bins of the first
 *
 * A program adds to the elements of its CPU, atomically, as it may be preempted: no line of memory is
 * written by several CPUs in each call. An element takes 3.8 KiB, the map of a machine with 8 CPUs
 * 217 KiB. */

#include "unit-map.h"

/* Calls on files. A call within another one (a copy within the file system below an overlay) is a part of
 * that one, and does not count. */
enum qos_storage_call {
        QOS_STORAGE_READ,
        QOS_STORAGE_WRITE,
        QOS_STORAGE_SYNC,
        QOS_STORAGE_OPEN,
        QOS_STORAGE_TIMED,      /* those above have a distribution of their latency */
        QOS_STORAGE_CREATE = QOS_STORAGE_TIMED, /* files, directories, links, devices */
        QOS_STORAGE_REMOVE,
        QOS_STORAGE_RENAME,
        QOS_STORAGE_LOOKUP,     /* attributes of a file, and reading of directories */
        QOS_STORAGE_CHANGE,     /* truncation, allocation, attributes */
        QOS_STORAGE_CALLS,
};

/* 64 bit words. */
enum qos_storage_sum {
        QOS_STORAGE_NSEC,       /* index is this plus enum qos_storage_call, of the timed ones */
        QOS_STORAGE_COUNT = QOS_STORAGE_NSEC + QOS_STORAGE_TIMED, /* calls that ended, by call */
        QOS_STORAGE_ERRORS = QOS_STORAGE_COUNT + QOS_STORAGE_CALLS, /* of these, failed ones, by call */
        QOS_STORAGE_BYTES_READ = QOS_STORAGE_ERRORS + QOS_STORAGE_CALLS,
        QOS_STORAGE_BYTES_WRITTEN,
        /* As the kernel counts them in each task, sockets and pipes included (/proc/PID/io) */
        QOS_STORAGE_CALLS_READ,         /* syscr */
        QOS_STORAGE_CALLS_WRITE,        /* syscw */
        QOS_STORAGE_CALLS_BYTES_READ,   /* rchar */
        QOS_STORAGE_CALLS_BYTES_WRITTEN, /* wchar */
        QOS_STORAGE_PAGES_LOOKED_UP,    /* pages of files that reads looked up in the page cache */
        QOS_STORAGE_PAGES_ADDED,        /* pages added to the page cache */
        QOS_STORAGE_PAGES_DIRTIED,
        QOS_STORAGE_FAULTS,             /* page faults on mapped files */
        QOS_STORAGE_COST,               /* run time of the programs in ns, extrapolated from samples */
        QOS_STORAGE_SUMS,
};

#define QOS_STORAGE_BINS (QOS_STORAGE_TIMED * HISTOGRAM_COARSE_BINS)

/* Largest samples, as in struct qos_unit_map. */
struct qos_storage_peaks {
        __u64 total;
        __u64 ring[QOS_MAXIMA];
};

struct qos_storage_header {
        __u32 generation;       /* set once before the map is frozen; differs for each map created */
        __u32 unit;             /* generation of the unit, as in struct qos_owner */
        __u32 rolling;          /* CPU + 1 of the program writing checkpoints; 0: none */
        __u32 cpus;             /* number of CPUs with elements; set once */
        __u64 epoch;            /* of the newest event */
        __u32 written[QOS_LEVELS];
        struct qos_storage_peaks peaks[QOS_STORAGE_TIMED];
};

/* Counters of a CPU; or of all at the boundaries first … last, in sub-windows of the level. No event lies
 * between first and last. */
struct qos_storage_counts {
        __u64 first;
        __u64 last;             /* < first: invalid or being written */
        __u64 sums[QOS_STORAGE_SUMS];
        __u32 bins[QOS_STORAGE_BINS]; /* modulo 2^32: latencies in ns, by call, coarse */
};

union qos_storage_element {
        struct qos_storage_header header;
        struct qos_storage_counts counts;
};

#define QOS_STORAGE_HEADER 0U
#define QOS_STORAGE_CHECKPOINT 1U
#define QOS_STORAGE_SHARDS (QOS_STORAGE_CHECKPOINT + QOS_CHECKPOINTS)
#define QOS_STORAGE_SHARD(cpu) (QOS_STORAGE_SHARDS + 2U * (cpu))
#define QOS_STORAGE_ELEMENTS(cpus) (QOS_STORAGE_SHARDS + 2U * (cpus))

/* Array elements begin at multiples of 8 bytes. */
_Static_assert(sizeof(union qos_storage_element) % 8 == 0, "elements of an array follow each other");
