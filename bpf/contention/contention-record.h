/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* The writing half of the books of contention. Compiled for BPF and, for the unit tests, for user space; the
 * including file provides window_copy(), window_cpu(), contention_cpu_of(), contention_loop() and
 * contention_now(). */

#include "contention-map.h"

/* A reader on another CPU looks at this before and after. x86 keeps the order of writes, others are told
 * to. */
static inline __attribute__((always_inline)) void contention_cpu_mark(struct qos_contention_cpu *s) {
#if defined(__TARGET_ARCH_x86) || defined(__x86_64__)
        __asm__ volatile("" : : : "memory");
        *(volatile __u32*) &s->writes = s->writes + 1;
        __asm__ volatile("" : : : "memory");
#else
        __sync_lock_test_and_set(&s->writes, s->writes + 1);
#endif
}

/* From one state to another, either of which may be none. By who writes this shard. served: the serving
 * clock now. */
static inline __attribute__((always_inline)) void state_transition(struct qos_contention_cpu *s, __u64 from,
                                                                   __u64 to, __u64 now, __u64 served) {
        BPF_BOUND(from, QOS_STATES);
        BPF_BOUND(to, QOS_STATES);

        contention_cpu_mark(s);
        s->threads[from]--;
        s->times[from] += now;
        s->serving[from] += served;
        s->threads[to]++;
        s->times[to] -= now;
        s->serving[to] -= served;
        contention_cpu_mark(s);
}

static inline __attribute__((always_inline)) void contention_cpu_count(struct qos_contention_cpu *s,
                __u64 counter) {
        BPF_BOUND(counter, QOS_CONTENTION_CPU_COUNTERS);
        s->counters[counter]++;
}

/* A part of a time that was booked as one state was in another. served: how far the serving clock went in
 * that part. */
static inline __attribute__((always_inline)) void state_reclassify(struct qos_contention_cpu *s, __u64 from,
                                                                   __u64 to, __u64 nsec, __u64 served) {
        BPF_BOUND(from, QOS_STATES);
        BPF_BOUND(to, QOS_STATES);

        contention_cpu_mark(s);
        s->times[from] -= nsec;
        s->serving[from] -= served;
        s->times[to] += nsec;
        s->serving[to] += served;
        contention_cpu_mark(s);
}

struct contention_sum {
        struct qos_contention_map *c;
        struct qos_contention_checkpoint *to;
        __u32 slot;
        __u32 torn;             /* 1: one was written all the time */
};

/* Reads of another CPU's shard until none of what was read has changed meanwhile. A write takes some
 * nanoseconds; who meets one each time has met a virtual CPU that does not run, in the middle of it. */
#define SHARD_READS 8

/* CPUs are read one after the other. Who was held up in between for longer than this (iterators may be)
 * would put together what was not at the same time. */
#define SUM_NSEC_MAX 1000000ULL

static long contention_sum_step(__u64 i, void *data) {
        struct contention_sum *sum = data;
        struct qos_contention_cpu *copy = &sum->c->scratch;
        const struct qos_contention_cpu *s = contention_cpu_of(sum->slot, sum->c->generation, i);

        if (!s)
                return 1;
        for (int try = 0; try < SHARD_READS; try++) {
                __u32 writes;

                /* An atomic operation whose result is used is the only barrier that BPF has: what is copied
                 * is read behind the first look at the writes, and before the second one */
                copy->writes = *(const volatile __u32*) &s->writes;
                writes = __sync_fetch_and_or(&copy->writes, 0);
                window_copy(copy, s, sizeof(*copy));
                sum->torn = writes % 2 != 0 || __sync_fetch_and_or(&copy->writes, 0) != writes ||
                        *(const volatile __u32*) &s->writes != writes;
                if (!sum->torn)
                        break;
        }
        if (sum->torn)
                return 1;
        for (int k = 0; k < QOS_STATES; k++) {
                sum->to->threads[k] += copy->threads[k];
                sum->to->times[k] += copy->times[k];
                sum->to->serving[k] += copy->serving[k];
        }
        for (int k = 0; k < QOS_CONTENTION_CPU_COUNTERS; k++)
                sum->to->counters[k] += copy->counters[k];
        return 0;
}

/* What all CPUs have counted by now. Returns whether that is of one moment: rather none than a wrong one,
 * those who would begin there have no figures then. */
BPF_SUBPROG int contention_sum_up(struct qos_contention_map *c, struct qos_contention_checkpoint *p,
                                  __u64 slot) {
        struct contention_sum sum = { .c = c, .to = p, .slot = slot };
        __u64 begin;

        BPF_REQUIRE(c);
        BPF_REQUIRE(p);
        begin = contention_now();
        for (int k = 0; k < QOS_STATES; k++)
                p->threads[k] = p->times[k] = p->serving[k] = 0;
        for (int k = 0; k < QOS_CONTENTION_CPU_COUNTERS; k++)
                p->counters[k] = 0;
        contention_loop(c->contention_cpus, contention_sum_step, &sum);
        if (sum.torn || contention_now() - begin > SUM_NSEC_MAX)
                return 0;
        for (int k = 0; k < QOS_CONTENTION_SUMS; k++)
                p->sums[k] = c->sums[k];
        for (int k = 0; k < QOS_CONTENTION_COUNTERS; k++)
                p->cells[k] = (__u32) c->cells[k];
        return 1;
}

/* Writes the checkpoints that are due at epoch, as window_roll(). Who comes while another CPU does that goes
 * on: what it books is in the checkpoint or not, which is a matter of some microseconds of a state. */
BPF_SUBPROG int contention_roll(struct qos_contention_map *c, __u64 slot, __u64 epoch) {
        BPF_REQUIRE(c);

        struct qos_contention_checkpoint *newest = NULL;
        __u64 old = *(volatile __u64*) &c->epoch;

        if (epoch <= old || __sync_val_compare_and_swap(&c->rolling, 0, window_cpu() + 1) != 0)
                return 0;

        old = *(volatile __u64*) &c->epoch;
        for (__u32 level = 0; epoch > old && level < QOS_LEVELS; level++) {
                __u64 before = old / QOS_LEVEL_EPOCHS(level), now = epoch / QOS_LEVEL_EPOCHS(level);
                struct qos_contention_checkpoint *p;
                __u64 i;

                if (now == before)
                        break; /* the boundaries of a level are boundaries of all finer ones */

                i = QOS_LEVEL_FIRST_CHECKPOINT(level) + c->written[level] % QOS_LEVEL_CHECKPOINTS(level);
                BPF_BOUND(i, QOS_CHECKPOINTS);
                p = &c->checkpoints[i];

                __sync_lock_test_and_set(&p->last, 0);
                p->first = before + 1;
                if (!newest) {
                        if (!contention_sum_up(c, p, slot))
                                break;
                        newest = p;
                } else
                        window_copy(p->threads, newest->threads,
                                    sizeof(*p) - __builtin_offsetof(struct qos_contention_checkpoint,
                                                                    threads));
                __sync_lock_test_and_set(&p->last, now);

                c->written[level]++;
        }
        if (epoch > old)
                __sync_lock_test_and_set(&c->epoch, epoch);

        __sync_lock_test_and_set(&c->rolling, 0);
        return 0;
}

/* As window_maximum(). */
BPF_SUBPROG int max_ring_update(struct qos_max_ring *peaks, __u64 epoch, __u64 nsec) {
        __u64 value = nsec < QOS_MAXIMUM_MASK ? nsec : QOS_MAXIMUM_MASK;

        BPF_REQUIRE(peaks);
        for (__u32 level = 0; level < QOS_LEVELS; level++) {
                __u64 subwindow = epoch / QOS_LEVEL_EPOCHS(level), word = subwindow << QOS_MAXIMUM_BITS |
                        value, old;
                __u64 i = QOS_LEVEL_FIRST_MAXIMUM(level) + subwindow % QOS_LEVEL_MAXIMA(level);

                BPF_BOUND(i, QOS_MAXIMA);
                for (int try = 0; try < 4; try++) {
                        old = *(volatile __u64*) &peaks->ring[i];
                        if (old >> QOS_MAXIMUM_BITS == word >> QOS_MAXIMUM_BITS && old >= word)
                                return 0;
                        if (__sync_val_compare_and_swap(&peaks->ring[i], old, word) == old)
                                break;
                }
        }
        for (int try = 0; try < 4; try++) {
                __u64 old = *(volatile __u64*) &peaks->total;

                if (old >= nsec || __sync_val_compare_and_swap(&peaks->total, old, nsec) == old)
                        break;
        }
        return 0;
}

/* Adds a sample to a distribution. */
static inline __attribute__((always_inline)) void contention_add(struct qos_contention_map *c,
                                                                 __u64 distribution, __u64 nsec) {
        __u64 bin = histogram_coarse_bin(histogram_fine_bin(nsec));

        BPF_BOUND(distribution, QOS_CONTENTION_DISTRIBUTIONS);
        BPF_BOUND(bin, HISTOGRAM_COARSE_BINS);
        max_ring_update(&c->peaks[distribution], c->epoch, nsec);
        __sync_fetch_and_add(&c->sums[distribution], nsec);
        __sync_fetch_and_add(&c->cells[distribution * HISTOGRAM_COARSE_BINS + bin], 1);
}
