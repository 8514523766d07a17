/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* Where the time of a unit's threads goes: what the programs of the probe "cpu" and the daemon share. The writing half is
 * bpf/account.h, the reading half src/contention-reading.c.
 *
 * Each thread is in exactly one state at any time. A state's account is two words: how many threads are in it, and the sum of
 * the times at which those that left it did so, minus the times at which they (and those who are still in it) entered it. What
 * the state has taken up to a moment T is then
 *
 *         times + threads * T        (modulo 2^64)
 *
 * with those included that are in it still, and without anybody having to look at them. A thread that goes from one state to
 * another subtracts the moment in the one and adds it in the other, therefore all states together always are what all
 * threads have lived. */

#include "qos.h"

enum qos_state {
        QOS_STATE_NONE,         /* of a thread that is not in any book */
        QOS_STATE_RUNNING,      /* on a CPU, in the program or in the kernel for it */
        QOS_STATE_RUN_QUEUE,    /* ready, but others run */
        QOS_STATE_THROTTLED,    /* ready, but the CPU quota of its control group is used up */
        QOS_STATE_LOCK,         /* waits for what another thread holds: a mutex, a file lock, a lock in the kernel */
        QOS_STATE_PARK,         /* waits in futex(2) for work: condition variables, idle pools */
        QOS_STATE_DISK,         /* waits for files and block devices */
        QOS_STATE_SOCKET,       /* in a call on one socket */
        QOS_STATE_POLL,         /* for one of many descriptors, or one that is neither socket, pipe nor file */
        QOS_STATE_PIPE,         /* in a call on a pipe or a message queue */
        QOS_STATE_SLEEP,        /* for a time, or a signal */
        QOS_STATE_MEMORY,       /* page faults, reclaim, dirty pages that are too many */
        QOS_STATE_CHILD,        /* for another process to end, or to be started */
        QOS_STATE_OTHER,        /* stopped, frozen, traced, and what is known to be none of the above */
        QOS_STATES,
};

/* Events that are counted where they happen, in the shard of a CPU. */
enum qos_shard_counter {
        QOS_SHARD_WAITS,        /* how often a thread began to wait, by state: from this plus the state on */
        QOS_SHARD_INVOLUNTARY = QOS_SHARD_WAITS + QOS_STATES, /* it had to leave the CPU and was ready to go on */
        QOS_SHARD_MIGRATIONS,   /* it came to run on another CPU than the time before */
        QOS_SHARD_WAKE_UPS,     /* it was woken */
        QOS_SHARD_FUTEX_WAKES,  /* a thread was woken by one of the unit that is in futex(2) */
        QOS_SHARD_COUNTERS,
};

/* What happened on one CPU (an element of the unit's second map, by the CPU's number). Only programs that run there with
 * interrupts off write it, so that no word needs an atomic operation; a thread that falls asleep on one CPU and is woken
 * by another has a part of its account in either. Two more are for those that run with interrupts on: see QOS_SHARDS_MORE. */
struct qos_shard {
        __u32 generation;       /* of the book, see struct qos_contention */
        __u32 writes;           /* odd while it is written */
        __u64 epoch_end;        /* CLOCK_MONOTONIC ns: from then on checkpoints are due, as far as is known here */
        __s64 threads[QOS_STATES];
        __u64 times[QOS_STATES];
        __u64 counters[QOS_SHARD_COUNTERS];
} __attribute__((aligned(64)));

/* Behind those of the CPUs: that of the iterator that looks for threads. */
#define QOS_SHARDS_MORE 1U

/* Distributions, in nanoseconds, on the coarse grid. */
enum qos_contention_distribution {
        QOS_RUN_QUEUE_LATENCY,  /* from when a thread was ready to when it ran, what it was throttled for aside */
        QOS_CONTENTION_DISTRIBUTIONS,
};

/* 64 bit words that any program adds to: the bins of the distributions, then plain counters. */
enum qos_contention_cell {
        QOS_CONTENTION_CELLS = QOS_CONTENTION_DISTRIBUTIONS * GRID_COARSE_BINS,
};

/* The sums of the distributions, in nanoseconds. */
enum qos_contention_sum {
        QOS_CONTENTION_SUMS = QOS_CONTENTION_DISTRIBUTIONS,
};

/* All words that are counted, of all shards together, at the boundaries first … last (in sub-windows of the level): nothing
 * happened between these. */
struct qos_contention_checkpoint {
        __u64 first;
        __u64 last;             /* < first: being written, or never was */
        __s64 threads[QOS_STATES];
        __u64 times[QOS_STATES];
        __u64 counters[QOS_SHARD_COUNTERS];
        __u64 sums[QOS_CONTENTION_SUMS];
        __u32 cells[QOS_CONTENTION_CELLS]; /* modulo 2^32 */
};

/* The largest samples, as in struct qos_unit. */
struct qos_peaks {
        __u64 total;
        __u64 ring[QOS_MAXIMA];
};

/* A unit's book of contention: the only element of an mmapped, frozen array. It is made when the unit is first watched with one
 * of these probes, and gone with the last. */
struct qos_contention {
        __u32 generation;       /* set once, before the map is frozen; another one each time that a book is made */
        __u32 unit;             /* the generation of the unit, as in struct qos_owner */
        __u32 rolling;          /* the CPU, from 1, whose program writes checkpoints; 0: none */
        __u32 shards;           /* how many there are */
        __u64 epoch;            /* of the newest event */
        __u64 cells[QOS_CONTENTION_CELLS];
        __u64 sums[QOS_CONTENTION_SUMS];
        struct qos_peaks peaks[QOS_CONTENTION_DISTRIBUTIONS];
        __u32 written[QOS_LEVELS];
        struct qos_contention_checkpoint checkpoints[QOS_CHECKPOINTS];
        struct qos_shard scratch; /* of whoever rolls */
};

/* ---- a thread ------------------------------------------------------------------------------------------------- */

/* Which book a thread is in, and its state, in one word that is exchanged as a whole: whoever puts another one there books what
 * the one before says as left, so that each state that was entered is left once, whatever happens at the same time. */
#define THREAD_STATE 0xffULL
#define THREAD_SLOT_SHIFT 8
#define THREAD_SLOT (0xffULL << THREAD_SLOT_SHIFT)
#define THREAD_SEEDED (1ULL << 16)      /* found by the iterator, and nothing has happened to it since */
#define THREAD_GENERATION_SHIFT 32
#define THREAD_BOOK (THREAD_SLOT | ~0ULL << THREAD_GENERATION_SHIFT)
_Static_assert(QOS_STATES <= THREAD_STATE, "no room for so many states");

static inline __attribute__((always_inline)) __u64 thread_book(__u32 slot, __u32 generation) {
        return (__u64) slot << THREAD_SLOT_SHIFT | (__u64) generation << THREAD_GENERATION_SHIFT;
}
