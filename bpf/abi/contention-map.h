/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* Layout of the contention map of a unit: thread states, block I/O, memory stalls and wait targets. Written
 * by the programs of the probes "cpu", "block" and "memory" (bpf/contention/contention-record.h), read by
 * src/model/contention-window.c.
 *
 * Each thread is in exactly one state at any time. A state has two words: threads, the number of threads in
 * it, and times, the sum of all leave times minus the sum of all enter times, including the enter times of
 * the threads still in it. The total time spent in the state up to T, threads still in it included, is
 *
 *         times + threads * T        (modulo 2^64)
 *
 * so that no program has to visit waiting threads. A transition subtracts and adds the same timestamp, hence
 * the states always sum up to the lifetime of all threads.
 *
 * "serving" is the same sum by the serving clock of the unit (unit-map.h): the time spent in the state while
 * requests were in flight. */

#include "unit-map.h"

/* Counters of events, kept per CPU. */
enum qos_contention_cpu_counter {
        QOS_CONTENTION_CPU_WAITS,        /* waits begun, by state: index is this plus the state */
        /* preemptions: the thread was descheduled while runnable */
        QOS_CONTENTION_CPU_INVOLUNTARY = QOS_CONTENTION_CPU_WAITS + QOS_STATES,
        QOS_CONTENTION_CPU_MIGRATIONS,   /* runs on another CPU than the previous one */
        QOS_CONTENTION_CPU_WAKE_UPS,     /* wakeups of the thread */
        QOS_CONTENTION_CPU_FUTEX_WAKES,  /* wakeups of other threads from futex(2) */
        QOS_THREAD_COUNTERS,    /* number of the above: each thread has these for itself, too */
        QOS_CONTENTION_CPU_COST = QOS_THREAD_COUNTERS, /* run time of the programs in ns, extrapolated from
                                                        * samples (overhead.h) */
        QOS_CONTENTION_CPU_COUNTERS,
};

/* Per-CPU part of the contention map: an element of the unit's second map, indexed by CPU. Only programs
 * running on that CPU with interrupts disabled write it, hence no atomics. A thread may enter a state on one
 * CPU and leave it on another, so a single element may be negative; only the sum is meaningful. Writers with
 * interrupts enabled use the extra element, see QOS_CONTENTION_CPUS_MORE. */
struct qos_contention_cpu {
        __u32 generation;       /* of the contention map; set once */
        __u32 writes;           /* sequence count, odd while being written */
        __u64 epoch_end;        /* CLOCK_MONOTONIC ns at which the next checkpoint is due; may lag */
        __s64 threads[QOS_STATES];
        __u64 times[QOS_STATES];
        __u64 serving[QOS_STATES]; /* like times, by the serving clock */
        __u64 counters[QOS_CONTENTION_CPU_COUNTERS];
} __attribute__((aligned(64)));

/* Number of elements after those of the CPUs: one, written by the iterator over tasks. */
#define QOS_CONTENTION_CPUS_MORE 1U

/* Distributions in ns, coarse bins. */
enum qos_contention_distribution {
        QOS_RUN_QUEUE_LATENCY,  /* from runnable to running, without time throttled by the CPU quota */
        QOS_BLOCK_READ_QUEUE,   /* from insertion of a read request to its issue to the device */
        QOS_BLOCK_READ_DEVICE,  /* from issue to completion */
        QOS_BLOCK_WRITE_QUEUE,
        QOS_BLOCK_WRITE_DEVICE,
        QOS_CONTENTION_DISTRIBUTIONS,
};

/* Devices have the same index in the maps of all units: the first 16 devices used while a unit is observed
 * with "block". Row 0 is for all other devices. A row takes 2 KiB in each map; 16 exceeds the disks of most
 * machines. */
#define QOS_BLOCK_DEVICES 16U
#define QOS_BLOCK_ROWS (1U + QOS_BLOCK_DEVICES)

enum qos_block_counter {
        QOS_BLOCK_READS,
        QOS_BLOCK_WRITES,
        QOS_BLOCK_FLUSHES,      /* requests without data */
        QOS_BLOCK_DISCARDS,
        QOS_BLOCK_COUNTERS,
};

enum qos_block_sum {
        QOS_BLOCK_BYTES,        /* index is this plus enum qos_block_counter; unused for flushes */
        QOS_BLOCK_QUEUE_NSEC = QOS_BLOCK_BYTES + QOS_BLOCK_COUNTERS,
        QOS_BLOCK_DEVICE_NSEC,
        QOS_BLOCK_MERGES,       /* requests that became part of these */
        QOS_BLOCK_SUMS,
};

/* dev_t of a whole disk, in the kernel's internal encoding. */
static inline __attribute__((always_inline)) __u32 block_device(__u32 major, __u32 minor) {
        return major << 20 | minor;
}

struct qos_block_devices {
        __u32 devices[QOS_BLOCK_DEVICES]; /* by row - 1; 0: free */
};

/* Key of an I/O user: control group and device. Counted since the probe "block" was loaded. */
struct qos_block_user {
        __u64 group;            /* id of the control group */
        __u32 device;           /* as returned by block_device() */
        __u32 _padding;
};

struct qos_block_use {
        __u64 requests;
        __u64 bytes;
};

/* Size of the LRU map of I/O users. */
#define QOS_BLOCK_USERS 256U

/* Slot of the contention map of the whole machine, after those of the units. Only has block I/O. */
#define QOS_SLOT_MACHINE 256U

/* 64 bit words, added to atomically by any program: the bins of the distributions, then plain counters. */
enum qos_contention_counter {
        QOS_MEMORY_MINOR_FAULTS = QOS_CONTENTION_DISTRIBUTIONS * HISTOGRAM_COARSE_BINS,
        QOS_MEMORY_MAJOR_FAULTS,
        QOS_MEMORY_RECLAIMS,    /* direct reclaims, for the machine or within the limit of a control group */
        QOS_MEMORY_THROTTLES,   /* sleeps in balance_dirty_pages() */
        QOS_MEMORY_OOM_KILLS,
        QOS_BLOCK_FIRST_COUNTER,   /* by row, then enum qos_block_counter */
        QOS_CONTENTION_COUNTERS = QOS_BLOCK_FIRST_COUNTER + QOS_BLOCK_ROWS * QOS_BLOCK_COUNTERS,
};

/* Sums of the distributions in ns, then plain sums. */
enum qos_contention_sum {
        QOS_MEMORY_MINOR_NSEC = QOS_CONTENTION_DISTRIBUTIONS,
        QOS_MEMORY_MAJOR_NSEC,
        QOS_MEMORY_RECLAIM_NSEC,
        QOS_MEMORY_THROTTLE_NSEC,
        QOS_BLOCK_WRITEBACK_BYTES, /* written on behalf of the unit by tasks outside of it */
        QOS_COST_NSEC,          /* run time of the programs that use these words */
        QOS_BLOCK_FIRST_SUM,    /* by row, then enum qos_block_sum */
        QOS_CONTENTION_SUMS = QOS_BLOCK_FIRST_SUM + QOS_BLOCK_ROWS * QOS_BLOCK_SUMS,
};

/* Totals of all CPUs at the boundaries first … last, in sub-windows of the level. No event happened between
 * the two. */
struct qos_contention_checkpoint {
        __u64 first;
        __u64 last;             /* < first: invalid or being written */
        __s64 threads[QOS_STATES];
        __u64 times[QOS_STATES];
        __u64 serving[QOS_STATES];
        __u64 counters[QOS_CONTENTION_CPU_COUNTERS];
        __u64 sums[QOS_CONTENTION_SUMS];
        __u32 cells[QOS_CONTENTION_COUNTERS]; /* modulo 2^32 */
};

/* ---- what threads wait for ---------------------------------------------------------------------------- */

enum qos_resource_kind {
        QOS_RESOURCE_NONE,      /* unknown: a path, several descriptors, memory */
        QOS_RESOURCE_FUTEX,
        QOS_RESOURCE_SOCKET,
        QOS_RESOURCE_PIPE,
        QOS_RESOURCE_EPOLL,
        QOS_RESOURCE_FILE,      /* also anonymous inodes: eventfd, timerfd, ... */
        QOS_RESOURCE_KERNEL_LOCK, /* kernel lock with a symbol of its own */
        QOS_RESOURCE_KERNEL_CALL, /* kernel lock without one, identified by its caller */
        QOS_RESOURCE_CPU,       /* a CPU occupied by another control group, or by another thread of the
                                 * unit */
        QOS_RESOURCE_KINDS,
};

enum qos_resource_side {
        QOS_SIDE_NONE,
        QOS_SIDE_LISTENS,       /* server side: the local port */
        QOS_SIDE_CONNECTS,      /* client side: the address of the peer */
};

/* In place of the id of a control group: kernel threads, or the idle task (the CPU had to leave an idle
 * state). No control group has these ids. */
#define QOS_GROUP_KERNEL 0ULL
#define QOS_GROUP_IDLE ~0ULL

/* A target that threads in one state wait for. Sockets with the same address are one target, as
 * connections are short-lived. Compared by words. */
struct qos_resource {
        __u8 state;             /* enum qos_state */
        __u8 kind;
        __u8 side;
        __u8 family;
        __u16 port;             /* host byte order */
        __u16 protocol;
        __u32 process;          /* tgid in the initial PID namespace; 0: shared between processes */
        __u32 device;           /* of the file system, kernel encoding */
        __u64 id;               /* address of a futex, lock or kernel function; descriptor; inode; address of
                                 * a Unix socket's name; control group that occupied a CPU */
        __u64 address[2];       /* first 4 bytes, or all, as in struct qos_address */
};
#define QOS_RESOURCE_WORDS (sizeof(struct qos_resource) / sizeof(__u64))

/* A thread that ended waits for the target. The most frequent ones are kept, by Misra and Gries. */
struct qos_waker {
        __u32 thread;           /* pid in the initial PID namespace; 0: free */
        __s32 credit;           /* incremented by each wait ended, decremented by each wait ended by a thread
                                 * without an entry */
        __u32 tid;              /* in the PID namespace of qosd; 0: not visible there */
        __u32 _padding;
        __u64 group;            /* id of the control group */
        __u64 waits;
        char name[16];
};

/* A lock or a pipe has one dominant waker, or many: three distinguish these cases. */
#define QOS_WAKERS 3U

/* sun_path and its length. */
#define QOS_RESOURCE_NAME_SIZE 112U

struct qos_wait_target {
        struct qos_resource resource;
        __u32 generation;       /* odd while reassigned; 0: never used */
        __u32 credit;           /* Misra-Gries, as for wakers: incremented by waits that end here,
                                 * decremented by waits that find no entry */
        __u64 waits;            /* ended waits */
        __u64 nsec;
        __u64 blocked_by_requests; /* part of nsec spent in QOS_STATE_BLOCKED_BY_REQUESTS */
        __u32 process;          /* a process that waits for it, in the PID namespace of qosd; 0: not
                                 * visible */
        __u32 fd;               /* its descriptor in that process */
        char name[QOS_RESOURCE_NAME_SIZE]; /* name of the file, kernel lock or function, or of the unit that
                                            * occupied the CPU ("../" and the control group's name if it is
                                            * outside the daemon's root); of a Unix socket its sun_path,
                                            * preceded by the length */
        struct qos_waker wakers[QOS_WAKERS];
};

/* Set-associative by hash. An entry used little is reassigned, and its sums are added to the rest of its
 * state: entries and rest together are all ended waits. 256 entries take 88 KiB, and are more than a reader
 * can use. */
#define QOS_RESOURCE_SET 4U
#define QOS_RESOURCE_SETS 64U
#define QOS_WAIT_TARGETS (QOS_RESOURCE_SET * QOS_RESOURCE_SETS)

struct qos_resource_others {
        __u64 waits;
        __u64 nsec;
};

/* The contention map of a unit: the only element of an mmapable, frozen array. It exists while any of these
 * probes observes the unit. */
struct qos_contention_map {
        __u32 generation;       /* set once before the map is frozen; differs for each map created */
        __u32 unit;             /* generation of the unit, as in struct qos_owner */
        __u32 rolling;          /* CPU + 1 of the program writing checkpoints; 0: none */
        __u32 contention_cpus;  /* number of elements of the per-CPU map */
        __u64 epoch;            /* epoch of the newest event */
        __u64 served;           /* serving clock when the map was created; set once */
        __u64 cells[QOS_CONTENTION_COUNTERS];
        __u64 sums[QOS_CONTENTION_SUMS];
        struct qos_max_ring peaks[QOS_CONTENTION_DISTRIBUTIONS];
        __u32 written[QOS_LEVELS];
        struct qos_contention_checkpoint checkpoints[QOS_CHECKPOINTS];
        struct qos_contention_cpu scratch; /* owned by the program in rolling */
        struct qos_resource_others rests[QOS_STATES];
        struct qos_wait_target rows[QOS_WAIT_TARGETS];
};

/* ---- a thread ----------------------------------------------------------------------------------------- */

/* Contention map and state of a thread in one word. It is replaced by compare-and-swap, and the program that
 * succeeds accounts for leaving the old state: each state entered is left exactly once, whatever runs
 * concurrently. */
#define THREAD_STATE 0xffULL
#define THREAD_SLOT_SHIFT 8
#define THREAD_SLOT (0xffULL << THREAD_SLOT_SHIFT)
#define THREAD_SEEDED (1ULL << 16)      /* found by the iterator, no event since */
#define THREAD_GENERATION_SHIFT 32
#define THREAD_MAP_ID (THREAD_SLOT | ~0ULL << THREAD_GENERATION_SHIFT)
_Static_assert(QOS_STATES <= THREAD_STATE, "no room for so many states");

static inline __attribute__((always_inline)) __u64 thread_map_id(__u32 slot, __u32 generation) {
        return (__u64) slot << THREAD_SLOT_SHIFT | (__u64) generation << THREAD_GENERATION_SHIFT;
}

/* Parameters of the task iterators (array with a single element). */
#define QOS_SLOTS 256U
struct qos_inspect_request {
        __u64 slots[QOS_SLOTS / 64]; /* bitmap of slots */
        __u64 address;          /* address to look up in a process */
        __u64 numbers;          /* address of the PID namespace of qosd, filled in by the iterator */
        __u32 level;            /* level of that namespace */
        __u32 _padding;
};

/* A file mapping of a process, as written by the iterator over its VMAs. */
#define QOS_MAPPING_PATH_SIZE 1024
struct qos_mapping {
        __u64 start, end;
        __u64 offset;           /* of the mapping in the file, bytes */
        __u64 inode;
        char path[QOS_MAPPING_PATH_SIZE]; /* as visible to qosd, if it is */
};

/* A thread, as written by the iterator. */
struct qos_thread {
        __u64 map_id;           /* THREAD_MAP_ID part of the thread's word */
        __u64 nsec;             /* time in the current state, included in times */
        __u64 times[QOS_STATES];
        __u64 counters[QOS_THREAD_COUNTERS];
        __u32 tid;              /* in the PID namespace of qosd; 0: not visible there */
        __u32 pid;
        __u32 state;
        __u32 row;              /* entry of its wait target, from 1; 0: none */
        __u32 generation;       /* of that entry when the wait began */
        __u32 _padding;
        char name[16];
};
