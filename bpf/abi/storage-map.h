/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* Layout of the storage map of a unit: calls of its threads on files. Written by the programs of the probe
 * "storage" (bpf/storage/storage-record.h), read by src/model/storage-window.c.
 *
 * The map is an array whose elements have one size:
 *
 *   QOS_STORAGE_HEADER        generation, checkpoints written, largest latencies, names of the rows
 *   QOS_STORAGE_CHECKPOINT    totals of all CPUs at boundaries of sub-windows: QOS_CHECKPOINTS of them
 *   QOS_STORAGE_ROW           calls on one file system, or on all without a row: QOS_STORAGE_ROWS of them
 *   QOS_STORAGE_MARKS         counters of the rows at boundaries of sub-windows
 *   QOS_STORAGE_SLOW          the latest slow calls
 *   QOS_STORAGE_SHARDS        counters of a CPU: two elements for each, the second of which has the
 *                             wraparounds of the 32 bit counters and of the bins of the first
 *
 * A program adds to the elements of its CPU, atomically, as it may be preempted: no cache line is written by
 * several CPUs in each call. Rows are shared by all CPUs: one for each CPU would take 14 KiB more. An
 * element takes 3.9 KiB, the map of a machine with 2 CPUs 255 KiB, with 8 CPUs 301 KiB. */

#include "unit-map.h"

/* Calls on files. A call within another one, e.g. a copy within the file system below an overlay, is part of
 * that one, and not counted. */
enum qos_storage_call {
        QOS_STORAGE_READ,
        QOS_STORAGE_WRITE,
        QOS_STORAGE_SYNC,
        QOS_STORAGE_OPEN,
        QOS_STORAGE_TIMED,      /* those above have a distribution of latency */
        QOS_STORAGE_CREATE = QOS_STORAGE_TIMED, /* files, directories, links, devices */
        QOS_STORAGE_REMOVE,
        QOS_STORAGE_RENAME,
        QOS_STORAGE_LOOKUP,     /* attributes of files, and reads of directories */
        QOS_STORAGE_CHANGE,     /* truncation, allocation, attributes */
        QOS_STORAGE_CALLS,
};

/* If the kernel rejects programs on functions, calls are not visible, and other events are counted instead:
 * reads and writes of io_uring and with O_DIRECT, and requests to FUSE servers in place of opens. */
#define QOS_STORAGE_FUSE QOS_STORAGE_OPEN

/* States of threads between a call and its return. QOS_STORAGE_OTHER includes all states that are impossible
 * there. */
enum qos_storage_state {
        QOS_STORAGE_RUNNING,
        QOS_STORAGE_RUN_QUEUE,
        QOS_STORAGE_THROTTLED,
        QOS_STORAGE_LOCK,
        QOS_STORAGE_DISK,
        QOS_STORAGE_SOCKET,
        QOS_STORAGE_PIPE,
        QOS_STORAGE_SLEEP,
        QOS_STORAGE_MEMORY,
        QOS_STORAGE_STOPPED,
        QOS_STORAGE_OTHER,
        QOS_STORAGE_STATES,
};

/* State of a call by state of its thread. */
static inline __attribute__((always_inline)) __u32 storage_state(__u32 thread_state) {
        return thread_state == QOS_STATE_RUNNING   ? QOS_STORAGE_RUNNING :
               thread_state == QOS_STATE_RUN_QUEUE ? QOS_STORAGE_RUN_QUEUE :
               thread_state == QOS_STATE_THROTTLED ? QOS_STORAGE_THROTTLED :
               thread_state == QOS_STATE_LOCK      ? QOS_STORAGE_LOCK :
               thread_state == QOS_STATE_DISK      ? QOS_STORAGE_DISK :
               thread_state == QOS_STATE_SOCKET    ? QOS_STORAGE_SOCKET :
               thread_state == QOS_STATE_PIPE      ? QOS_STORAGE_PIPE :
               thread_state == QOS_STATE_SLEEP     ? QOS_STORAGE_SLEEP :
               thread_state == QOS_STATE_MEMORY    ? QOS_STORAGE_MEMORY :
               thread_state == QOS_STATE_STOPPED   ? QOS_STORAGE_STOPPED : QOS_STORAGE_OTHER;
}

/* Number of calls with a time by state */
#define QOS_STORAGE_DIVIDED QOS_STORAGE_OPEN

enum qos_storage_sum {
        QOS_STORAGE_NSEC,       /* index is this plus enum qos_storage_call, of the timed ones */
        QOS_STORAGE_BYTES_READ = QOS_STORAGE_NSEC + QOS_STORAGE_TIMED,
        QOS_STORAGE_BYTES_WRITTEN,
        QOS_STORAGE_CALLS_BYTES_READ,    /* rchar, see QOS_STORAGE_CALLS_READ */
        QOS_STORAGE_CALLS_BYTES_WRITTEN, /* wchar */
        QOS_STORAGE_COST,       /* run time of the programs in ns, extrapolated from samples */
        QOS_STORAGE_WIDE,       /* those above have 64 bits in an element, those below 32 */

        QOS_STORAGE_COUNT = QOS_STORAGE_WIDE, /* calls that ended, by call */
        QOS_STORAGE_ERRORS = QOS_STORAGE_COUNT + QOS_STORAGE_CALLS, /* failed ones of these, by call */
        /* As counted by the kernel in each task, including sockets and pipes (/proc/PID/io) */
        QOS_STORAGE_CALLS_READ = QOS_STORAGE_ERRORS + QOS_STORAGE_CALLS, /* syscr */
        QOS_STORAGE_CALLS_WRITE,        /* syscw */
        QOS_STORAGE_PAGES_LOOKED_UP,    /* pages of files looked up in the page cache by reads */
        QOS_STORAGE_PAGES_ADDED,        /* pages added to the page cache */
        QOS_STORAGE_PAGES_CREATED,      /* those of them created by writes, not read from the file */
        QOS_STORAGE_PAGES_AHEAD,        /* those of them after the data that was read or accessed */
        QOS_STORAGE_PAGES_DIRTIED,
        QOS_STORAGE_FAULTS,             /* page faults on mapped files */
        QOS_STORAGE_FAULTS_MAJOR,       /* those of them that waited for a page to be read */
        QOS_STORAGE_UNSEEN,             /* reads and writes that began, but are not counted */
        QOS_STORAGE_STATE,              /* ns, by divided call and enum qos_storage_state */
        QOS_STORAGE_SUMS = QOS_STORAGE_STATE + QOS_STORAGE_DIVIDED * QOS_STORAGE_STATES,
};

#define QOS_STORAGE_NARROW (QOS_STORAGE_SUMS - QOS_STORAGE_WIDE)

/* Shift of times by state in checkpoints, which are in units of 4 us: they overflow within a window of 5 min
 * only if 58 threads or more are in such calls all the time. */
#define QOS_STORAGE_STATE_SHIFT 12

#define QOS_STORAGE_BINS (QOS_STORAGE_TIMED * HISTOGRAM_COARSE_BINS)

/* ---- file systems ------------------------------------------------------------------------------------- */

/* Row 0 is for all file systems without a row of their own, and for calls that fail before the file system
 * is known. Its counters are those of the unit minus those of all other rows. */
#define QOS_STORAGE_MOUNTS 15
#define QOS_STORAGE_ROWS (1U + QOS_STORAGE_MOUNTS)

/* Index of calls in rows: the timed calls first, then others. */
#define QOS_MOUNT_CHANGE QOS_STORAGE_TIMED      /* QOS_STORAGE_CHANGE */
#define QOS_MOUNT_CALLS (QOS_MOUNT_CHANGE + 1)
#define QOS_MOUNT_TIMED QOS_STORAGE_OPEN        /* those before have a distribution of latency */

/* Latencies of rows have bins of schema 1, each the union of four of the unit's. Their windows begin at
 * boundaries of level 2, those of counters at boundaries of level 1: a distribution takes six times as much
 * as the counters, and the map would take 590 KiB more with the bins and levels of the unit. */
#define QOS_MOUNT_SCHEMA 1
#define QOS_MOUNT_BINS (HISTOGRAM_OCTAVES * 2 + 2)
#define QOS_MOUNT_LEVEL 1
#define QOS_MOUNT_MARKS QOS_LEVEL_CHECKPOINTS(QOS_MOUNT_LEVEL)
#define QOS_MOUNT_BINS_LEVEL 2
/* The last two boundaries, and one being written */
#define QOS_MOUNT_CHECKPOINTS 3U
#define QOS_MOUNT_MAXIMA 4U

/* Bin of a row for a bin of the unit. */
static inline __attribute__((always_inline)) __u32 mount_bin(__u32 coarse_bin) {
        return (coarse_bin + 3) / 4;
}

#define QOS_MOUNT_TYPE_SIZE 20

/* A super block. Device numbers and memory are reused: its identity is a hash of both and of the UUID, which
 * a new file system in memory has, too. */
struct qos_mount {
        struct qos_address key; /* address: identity in the first 8 bytes, then the device number in the
                                 * kernel's internal encoding; all else 0 */
        __u32 taken;            /* 1: allocated, the name may not be complete yet */
        __u32 used;             /* 1: the row has a file system. Written last, once key and type are valid */
        char type[QOS_MOUNT_TYPE_SIZE]; /* of the file system, may be truncated */
        __u64 nsec;             /* time of its calls, including the known part before it got the row */
};

#define QOS_MOUNT_DEVICE(mount) (*(const __u32*) ((mount)->key.address + 8))

struct qos_mount_counts {
        __u64 nsec[QOS_MOUNT_TIMED];
        __u64 bytes[QOS_STORAGE_WRITE + 1];
        __u64 count[QOS_MOUNT_CALLS];
        __u64 errors[QOS_MOUNT_CALLS];
};

#define QOS_MOUNT_WORDS (sizeof(struct qos_mount_counts) / sizeof(__u64))

/* Counters at a boundary; counts modulo 2^32. */
struct qos_mount_mark {
        __u64 nsec[QOS_MOUNT_TIMED];
        __u64 bytes[QOS_STORAGE_WRITE + 1];
        __u32 count[QOS_MOUNT_CALLS];
        __u32 errors[QOS_MOUNT_CALLS];
};

struct qos_mount_row {
        struct qos_mount_counts counts;
        __u64 maxima_total[QOS_MOUNT_TIMED];
        __u64 maxima[QOS_MOUNT_TIMED][QOS_MOUNT_MAXIMA]; /* by sub-window, as in struct qos_unit_map */
        __u32 bins[QOS_MOUNT_TIMED * QOS_MOUNT_BINS];
        __u32 carry[QOS_MOUNT_TIMED * QOS_MOUNT_BINS];  /* number of wraparounds of each bin */
        __u32 checkpoints[QOS_MOUNT_CHECKPOINTS][QOS_MOUNT_TIMED * QOS_MOUNT_BINS];
};

/* Marks of all rows; an element has three of them. */
struct qos_mount_marks {
        struct qos_mount_mark rows[3][QOS_STORAGE_ROWS];
};

/* Boundaries first … last, as in struct qos_storage_counts. */
struct qos_boundaries {
        __u64 first;
        __u64 last;
};

/* Maximum number of reads and writes of io_uring and libaio in progress, of all units. */
#define QOS_STORAGE_REQUESTS 8192U

/* ---- elements ----------------------------------------------------------------------------------------- */

/* Calls in progress, counted by the iterator. */
struct qos_storage_in_flight {
        __u64 session;          /* of the iterator that wrote this; stale if it is not the last session */
        __u64 count;
        __u64 oldest_at;        /* CLOCK_MONOTONIC ns */
};

struct qos_storage_header {
        __u32 generation;       /* set once before the map is frozen; differs for each map created */
        __u32 unit;             /* generation of the unit, as in struct qos_owner */
        __u32 rolling;          /* CPU + 1 of the program writing checkpoints; 0: none */
        __u32 cpus;             /* number of CPUs with elements; set once */
        __u32 slot;             /* of the unit; set once */
        __u32 folds;            /* odd while a row is merged into row 0 */
        __u64 slow;             /* number of slow calls since the map was created */
        __u64 epoch;            /* of the newest event */
        __u32 written[QOS_LEVELS];
        struct qos_max_ring peaks[QOS_STORAGE_TIMED];
        struct qos_mount mounts[QOS_STORAGE_ROWS];      /* by row */
        struct qos_heavy_hitters challengers;           /* file systems without a row */
        struct qos_storage_in_flight in_flight;
        struct qos_boundaries marks[QOS_MOUNT_MARKS];
        struct qos_boundaries checkpoints[QOS_MOUNT_CHECKPOINTS]; /* of bins */
};

/* Counters of a CPU, or of all CPUs at the boundaries first … last, in sub-windows of the level. No event
 * happened between the two. */
struct qos_storage_counts {
        __u64 first;
        __u64 last;             /* < first: invalid or being written */
        __u64 sums[QOS_STORAGE_WIDE];
        __u32 counts[QOS_STORAGE_NARROW]; /* modulo 2^32: enum qos_storage_sum from QOS_STORAGE_WIDE on */
        __u32 bins[QOS_STORAGE_BINS]; /* modulo 2^32: latencies in ns, by call, coarse */
};

/* A slow call. The latest QOS_STORAGE_SLOW_CALLS are kept. */
#define QOS_STORAGE_SLOW_CALLS 32U
#define QOS_STORAGE_SLOW_NAME 40

struct qos_storage_slow {
        __u64 at;               /* CLOCK_MONOTONIC ns of the call; 0: none, or being written */
        __u64 nsec;             /* from the call to its return */
        __u64 result;           /* bytes read or written, a negative errno, or 0 */
        __u64 mount;            /* identity of the file system (struct qos_mount), as device numbers are
                                 * reused; 0: unknown */
        __u32 device;           /* its device number in the kernel's internal encoding */
        __u32 pid;              /* of the thread, in the PID namespace of qosd; 0: not visible there */
        __u8 call;              /* enum qos_storage_call */
        __u8 divided;           /* 1: shares are known */
        __u16 shares[QOS_STORAGE_STATES]; /* of nsec, in 1/65535 */
        char thread[16];        /* its name */
        char name[QOS_STORAGE_SLOW_NAME]; /* last component of the path, may be truncated; empty: unknown */
};

union qos_storage_element {
        struct qos_storage_header header;
        struct qos_storage_slow slow[QOS_STORAGE_SLOW_CALLS];
        struct qos_storage_counts counts;
        struct qos_mount_row row;
        struct qos_mount_marks marks;
};

#define QOS_STORAGE_HEADER 0U
#define QOS_STORAGE_CHECKPOINT 1U
#define QOS_STORAGE_ROW (QOS_STORAGE_CHECKPOINT + QOS_CHECKPOINTS)
#define QOS_STORAGE_MARKS (QOS_STORAGE_ROW + QOS_STORAGE_ROWS)
#define QOS_STORAGE_SLOW (QOS_STORAGE_MARKS + QOS_MOUNT_MARKS / 3)
#define QOS_STORAGE_SHARDS (QOS_STORAGE_SLOW + 1U)
#define QOS_STORAGE_SHARD(cpu) (QOS_STORAGE_SHARDS + 2U * (cpu))
#define QOS_STORAGE_ELEMENTS(cpus) (QOS_STORAGE_SHARDS + 2U * (cpus))

/* Array elements begin at multiples of 8 bytes. */
_Static_assert(sizeof(union qos_storage_element) % 8 == 0, "elements of an array follow each other");
_Static_assert(sizeof(union qos_storage_element) * QOS_STORAGE_ELEMENTS(2) <= 256 << 10,
               "a map of a small machine takes at most 256 KiB");
