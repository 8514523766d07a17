/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* Where the time of a unit's threads goes, and what it has of the resources of the machine: what the
 * programs of the probes "cpu", "block" and "memory" share with the daemon. The writing half is
 * bpf/contention/contention-record.h, the reading half src/model/contention-window.c.
 *
 * Each thread is in exactly one state at any time. A state's account is two words: how many threads are in
 * it, and the sum of the times at which those that left it did so, minus the times at which they (and those
 * who are still in it) entered it. What the state has taken up to a moment T is then
 *
 *         times + threads * T        (modulo 2^64)
 *
 * with those included that are in it still, and without anybody having to look at them. A thread that goes
 * from one state to another subtracts the moment in the one and adds it in the other, therefore all states
 * together always are what all threads have lived.
 *
 * The same with the unit's serving clock (unit-map.h) in place of the time is what the state has taken while
 * questions were in flight. */

#include "unit-map.h"

/* Events that are counted where they happen, in the shard of a CPU. */
enum qos_contention_cpu_counter {
        QOS_CONTENTION_CPU_WAITS,        /* how often a thread began to wait, by state: from this plus the
                                          * state on */
        /* it had to leave the CPU and was ready to go on */
        QOS_CONTENTION_CPU_INVOLUNTARY = QOS_CONTENTION_CPU_WAITS + QOS_STATES,
        QOS_CONTENTION_CPU_MIGRATIONS,   /* it came to run on another CPU than the time before */
        QOS_CONTENTION_CPU_WAKE_UPS,     /* it was woken */
        QOS_CONTENTION_CPU_FUTEX_WAKES,  /* a thread was woken by one of the unit that is in futex(2) */
        QOS_THREAD_COUNTERS,    /* those that each thread has for itself, too */
        QOS_CONTENTION_CPU_COST = QOS_THREAD_COUNTERS, /* nanoseconds of programs, by those that were
                                                        * measured (overhead.h) */
        QOS_CONTENTION_CPU_COUNTERS,
};

/* What happened on one CPU (an element of the unit's second map, by the CPU's number). Only programs that
 * run there with interrupts off write it, so that no word needs an atomic operation; a thread that falls
 * asleep on one CPU and is woken by another has a part of its account in either. One more is for those that
 * run with interrupts on: see QOS_CONTENTION_CPUS_MORE. */
struct qos_contention_cpu {
        __u32 generation;       /* of the book, see struct qos_contention_map */
        __u32 writes;           /* odd while it is written */
        __u64 epoch_end;        /* CLOCK_MONOTONIC ns: from then on checkpoints are due, as far as is known
                                 * here */
        __s64 threads[QOS_STATES];
        __u64 times[QOS_STATES];
        __u64 serving[QOS_STATES]; /* as times, by the serving clock */
        __u64 counters[QOS_CONTENTION_CPU_COUNTERS];
} __attribute__((aligned(64)));

/* Behind those of the CPUs: that of the iterator that looks for threads. */
#define QOS_CONTENTION_CPUS_MORE 1U

/* Distributions, in nanoseconds, on the coarse grid. */
enum qos_contention_distribution {
        QOS_RUN_QUEUE_LATENCY,  /* from when a thread was ready to when it ran, what it was throttled for
                                 * aside */
        QOS_BLOCK_READ_QUEUE,   /* from when a request to read was made to when the device was given it */
        QOS_BLOCK_READ_DEVICE,  /* … and until it was done */
        QOS_BLOCK_WRITE_QUEUE,
        QOS_BLOCK_WRITE_DEVICE,
        QOS_CONTENTION_DISTRIBUTIONS,
};

/* The devices of all units have the same rows: those that are used first while units are watched with
 * "block". The first row is that of all others. Sixteen are more disks than most machines have, at 2 KiB
 * each in each book. */
#define QOS_BLOCK_DEVICES 16U
#define QOS_BLOCK_ROWS (1U + QOS_BLOCK_DEVICES)

enum qos_block_counter {
        QOS_BLOCK_READS,
        QOS_BLOCK_WRITES,
        QOS_BLOCK_FLUSHES,      /* those that carry no data */
        QOS_BLOCK_DISCARDS,
        QOS_BLOCK_COUNTERS,
};

enum qos_block_sum {
        QOS_BLOCK_BYTES,        /* of reads, writes and discards: from this plus the cell on; those of
                                 * flushes are not used */
        QOS_BLOCK_QUEUE_NSEC = QOS_BLOCK_BYTES + QOS_BLOCK_COUNTERS,
        QOS_BLOCK_DEVICE_NSEC,
        QOS_BLOCK_SUMS,
};

/* What the kernel calls dev_t: a whole disk. */
static inline __attribute__((always_inline)) __u32 block_device(__u32 major, __u32 minor) {
        return major << 20 | minor;
}

struct qos_block_devices {
        __u32 devices[QOS_BLOCK_DEVICES]; /* by their row, less one; 0: none yet */
};

/* Who else uses a device: by control group, since the probe "block" is loaded. */
struct qos_block_user {
        __u64 group;            /* the id of the control group */
        __u32 device;           /* as block_device() */
        __u32 _padding;
};

struct qos_block_use {
        __u64 requests;
        __u64 bytes;
};

/* How many of these are kept. */
#define QOS_BLOCK_USERS 256U

/* The slot of the book of the whole machine, in which only what its devices do is counted: behind those of
 * the units. */
#define QOS_SLOT_MACHINE 256U

/* 64 bit words that any program adds to: the bins of the distributions, then plain counters. */
enum qos_contention_counter {
        QOS_MEMORY_MINOR_FAULTS = QOS_CONTENTION_DISTRIBUTIONS * HISTOGRAM_COARSE_BINS,
        QOS_MEMORY_MAJOR_FAULTS,
        QOS_MEMORY_RECLAIMS,    /* how often a thread had to look for memory to free, for itself or within
                                 * the unit's limit */
        QOS_MEMORY_THROTTLES,   /* how often a thread had to wait as too much was dirty */
        QOS_MEMORY_OOM_KILLS,
        QOS_BLOCK_FIRST_COUNTER,   /* by row, then by enum qos_block_counter */
        QOS_CONTENTION_COUNTERS = QOS_BLOCK_FIRST_COUNTER + QOS_BLOCK_ROWS * QOS_BLOCK_COUNTERS,
};

/* The sums of the distributions, in nanoseconds, then plain ones. */
enum qos_contention_sum {
        QOS_MEMORY_MINOR_NSEC = QOS_CONTENTION_DISTRIBUTIONS,
        QOS_MEMORY_MAJOR_NSEC,
        QOS_MEMORY_RECLAIM_NSEC,
        QOS_MEMORY_THROTTLE_NSEC,
        QOS_BLOCK_WRITEBACK_BYTES, /* that others have written for the unit */
        QOS_COST_NSEC,          /* of the programs that add to these */
        QOS_BLOCK_FIRST_SUM,    /* by row, then by enum qos_block_sum */
        QOS_CONTENTION_SUMS = QOS_BLOCK_FIRST_SUM + QOS_BLOCK_ROWS * QOS_BLOCK_SUMS,
};

/* All words that are counted, of all shards together, at the boundaries first … last (in sub-windows of the
 * level): nothing happened between these. */
struct qos_contention_checkpoint {
        __u64 first;
        __u64 last;             /* < first: being written, or never was */
        __s64 threads[QOS_STATES];
        __u64 times[QOS_STATES];
        __u64 serving[QOS_STATES];
        __u64 counters[QOS_CONTENTION_CPU_COUNTERS];
        __u64 sums[QOS_CONTENTION_SUMS];
        __u32 cells[QOS_CONTENTION_COUNTERS]; /* modulo 2^32 */
};

/* The largest samples, as in struct qos_unit_map. */
struct qos_max_ring {
        __u64 total;
        __u64 ring[QOS_MAXIMA];
};

/* ---- what threads wait for ---------------------------------------------------------------------------- */

enum qos_resource_kind {
        QOS_RESOURCE_NONE,      /* not known: a path, many descriptors, memory */
        QOS_RESOURCE_FUTEX,
        QOS_RESOURCE_SOCKET,
        QOS_RESOURCE_PIPE,
        QOS_RESOURCE_EPOLL,
        QOS_RESOURCE_FILE,      /* also what is behind other descriptors: eventfd, timerfd … */
        QOS_RESOURCE_KERNEL_LOCK, /* a lock of the kernel's that is one of a kind … */
        QOS_RESOURCE_KERNEL_CALL, /* … and one of many, by the place where it is taken */
        QOS_RESOURCE_CPU,       /* that somebody else had, or another thread of the unit's */
        QOS_RESOURCE_KINDS,
};

enum qos_resource_side {
        QOS_SIDE_NONE,
        QOS_SIDE_LISTENS,       /* the address is the one that it listens on, or what it accepted came in
                                 * at */
        QOS_SIDE_ASKS,          /* … that of the peer */
};

/* In place of the id of a control group: threads of the kernel had the CPU, or nobody, so that it had to
 * wake up. No control group has these. */
#define QOS_GROUP_KERNEL 0ULL
#define QOS_GROUP_IDLE ~0ULL

/* What it is that threads in one state wait for. Sockets of one address are one, as connections come and go.
 * Compared as words. */
struct qos_resource {
        __u8 state;             /* enum qos_state */
        __u8 kind;
        __u8 side;
        __u8 family;
        __u16 port;             /* host byte order */
        __u16 protocol;
        __u32 process;          /* as the machine numbers it; 0: it is not one process's alone */
        __u32 device;           /* of the file system, as the kernel has it inside */
        __u64 id;               /* the address of a futex, of a lock or a place in the kernel; a descriptor,
                                 * an inode; of a Unix socket what its name has in the kernel; of a CPU the
                                 * control group of who had it */
        __u64 address[2];       /* the first 4 bytes, or all, as in qos_address */
};
#define QOS_RESOURCE_WORDS (sizeof(struct qos_resource) / sizeof(__u64))

/* Who has ended waits there: those that do it most are kept, the last of them by what is left of their
 * credit. */
struct qos_waker {
        __u32 thread;           /* as the machine numbers it; 0: a free place */
        __s32 credit;           /* grows with each wait that it ends, falls with each that is ended by one
                                 * who has no place */
        __u32 tid;              /* as qosd sees it; 0: it does not */
        __u32 _padding;
        __u64 group;            /* the id of its control group */
        __u64 waits;
        char name[16];
};

/* Three: who holds a lock, or the other end of a pipe, is one mostly, or they are many. */
#define QOS_WAKERS 3U

/* The whole name of a Unix socket, and its length. */
#define QOS_RESOURCE_NAME_SIZE 112U

struct qos_wait_target {
        struct qos_resource resource;
        __u32 generation;       /* odd while it becomes another one's; 0: it never was one's */
        __u32 credit;           /* as of wakers: grows with waits that end there, falls with those that find
                                 * no place */
        __u64 waits;            /* that have ended */
        __u64 nsec;
        __u64 blocked_by_requests;             /* … of that, what is QOS_STATE_BLOCKED_BY_REQUESTS */
        __u32 process;          /* one that has it, as qosd sees it; 0: it does not */
        __u32 fd;               /* … and its descriptor there */
        char name[QOS_RESOURCE_NAME_SIZE]; /* of the thread that had the CPU first, of the file, the lock or
                                            * the function in the kernel, or of a Unix socket as it is in the
                                            * kernel: with the length in front */
        struct qos_waker wakers[QOS_WAKERS];
};

/* By a part of their hash: each resource has one of the rows of a set. Of those that are not in use much the
 * row goes to another one, and what it had to the rest of its state, so that all rows and the rest together
 * are all waits that have ended. 256 rows are more than people read, and 88 KiB. */
#define QOS_RESOURCE_SET 4U
#define QOS_RESOURCE_SETS 64U
#define QOS_WAIT_TARGETS (QOS_RESOURCE_SET * QOS_RESOURCE_SETS)

struct qos_resource_others {
        __u64 waits;
        __u64 nsec;
};

/* A unit's book of contention: the only element of an mmapped, frozen array. It is made when the unit is
 * first watched with one of these probes, and gone with the last. */
struct qos_contention_map {
        __u32 generation;       /* set once, before the map is frozen; another one each time that a book is
                                 * made */
        __u32 unit;             /* the generation of the unit, as in struct qos_owner */
        __u32 rolling;          /* the CPU, from 1, whose program writes checkpoints; 0: none */
        __u32 contention_cpus;           /* how many there are */
        __u64 epoch;            /* of the newest event */
        __u64 served;           /* the serving clock when the book was made; set once, as generation */
        __u64 cells[QOS_CONTENTION_COUNTERS];
        __u64 sums[QOS_CONTENTION_SUMS];
        struct qos_max_ring peaks[QOS_CONTENTION_DISTRIBUTIONS];
        __u32 written[QOS_LEVELS];
        struct qos_contention_checkpoint checkpoints[QOS_CHECKPOINTS];
        struct qos_contention_cpu scratch; /* of whoever rolls */
        struct qos_resource_others rests[QOS_STATES];
        struct qos_wait_target rows[QOS_WAIT_TARGETS];
};

/* ---- a thread ----------------------------------------------------------------------------------------- */

/* Which book a thread is in, and its state, in one word that is exchanged as a whole: whoever puts another
 * one there books what the one before says as left, so that each state that was entered is left once,
 * whatever happens at the same time. */
#define THREAD_STATE 0xffULL
#define THREAD_SLOT_SHIFT 8
#define THREAD_SLOT (0xffULL << THREAD_SLOT_SHIFT)
#define THREAD_SEEDED (1ULL << 16)      /* found by the iterator, and nothing has happened to it since */
#define THREAD_GENERATION_SHIFT 32
#define THREAD_BOOK (THREAD_SLOT | ~0ULL << THREAD_GENERATION_SHIFT)
_Static_assert(QOS_STATES <= THREAD_STATE, "no room for so many states");

static inline __attribute__((always_inline)) __u64 thread_record(__u32 slot, __u32 generation) {
        return (__u64) slot << THREAD_SLOT_SHIFT | (__u64) generation << THREAD_GENERATION_SHIFT;
}

/* Whom the iterator over threads is asked for (array, the only element). */
#define QOS_SLOTS 256U
struct qos_inspect_request {
        __u64 slots[QOS_SLOTS / 64]; /* a bit for each unit's */
        __u64 address;          /* what is looked for in the memory of a process */
        __u64 numbers;          /* qosd's PID namespace; the iterator that finds threads writes it … */
        __u32 level;            /* … and how deep that lies */
        __u32 _padding;
};

/* A file that a process has mapped, as the iterator over its memory writes it. */
#define QOS_MAPPING_PATH_SIZE 1024
struct qos_mapping {
        __u64 start, end;
        __u64 offset;           /* in the file, bytes */
        __u64 inode;
        char path[QOS_MAPPING_PATH_SIZE]; /* as qosd sees it, if it can */
};

/* A thread, as the iterator writes it. */
struct qos_thread {
        __u64 book;             /* as in the thread's word */
        __u64 nsec;             /* for how long it has been in its state, included in times */
        __u64 times[QOS_STATES];
        __u64 counters[QOS_THREAD_COUNTERS];
        __u32 tid;              /* as qosd sees them; 0: it does not */
        __u32 pid;
        __u32 state;
        __u32 row;              /* of what it waits for, from 1; 0: that has none … */
        __u32 generation;       /* … if it still is that one's */
        __u32 _padding;
        char name[16];
};
