/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* Writers of contention maps. Compiled for BPF and, for the unit tests, for user space; the including file
 * provides window_copy(), window_cpu(), contention_cpu_of(), contention_loop() and contention_now(). */

#include "checkpoints.h"
#include "contention-map.h"
#include "max-ring.h"

/* Begins or ends a write section of a per-CPU element (sequence count). x86 does not reorder stores; other
 * architectures need a barrier. */
static inline __attribute__((always_inline)) void contention_cpu_mark(struct qos_contention_cpu *s) {
#if defined(__TARGET_ARCH_x86) || defined(__x86_64__)
        __asm__ volatile("" : : : "memory");
        *(volatile __u32*) &s->writes = s->writes + 1;
        __asm__ volatile("" : : : "memory");
#else
        __sync_lock_test_and_set(&s->writes, s->writes + 1);
#endif
}

/* Moves a thread from one state to another, either of which may be QOS_STATE_NONE. The caller is the only
 * writer of the element. served: serving clock at now. */
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

/* Moves a part of the time recorded for one state to another state. served: progress of the serving clock
 * during that part. */
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
        __u32 torn;             /* 1: an element was never consistent */
};

/* Attempts to read an element consistently. A write section takes nanoseconds; if all attempts fail, the
 * virtual CPU of the writer has been preempted in the middle of it. */
#define SHARD_READS 8

/* Maximum duration of summing up. Elements are read one after another: a longer interruption of the reader,
 * possible in iterators, would combine values of different times. */
#define SUM_NSEC_MAX 1000000ULL

static long contention_sum_step(__u64 i, void *data) {
        struct contention_sum *sum = data;
        struct qos_contention_cpu *copy = &sum->c->scratch;
        const struct qos_contention_cpu *s = contention_cpu_of(sum->slot, sum->c->generation, i);

        if (!s)
                return 1;
        for (int try = 0; try < SHARD_READS; try++) {
                __u32 writes;

                /* BPF has no barriers but atomic operations whose result is used: these keep the copy
                 * between both reads of the sequence count */
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

/* Sums up all CPUs. Returns 1 if the result is consistent. If it is not, the checkpoint stays invalid, and
 * windows that would begin there have no data. */
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

/* Writes the checkpoints that are due at epoch, like window_roll(). Does not wait if another CPU is doing
 * so: an event recorded meanwhile may land on either side of the checkpoint, an error of some microseconds
 * of one state. */
BPF_SUBPROG int contention_roll(struct qos_contention_map *c, __u64 slot, __u64 epoch) {
        BPF_REQUIRE(c);

        struct checkpoints all = { &c->rolling, &c->epoch, c->written };
        struct qos_contention_checkpoint *newest = NULL;

        if (!checkpoints_begin(&all, epoch))
                return 0;
        for (__u32 level = 0; level < QOS_LEVELS; level++) {
                struct qos_contention_checkpoint *p;
                struct checkpoint_due due;

                if (!checkpoints_get_due(&all, level, epoch, &due))
                        break;
                p = &c->checkpoints[due.index];
                checkpoint_begin(&p->first, &p->last, &due);
                if (!newest) {
                        if (!contention_sum_up(c, p, slot))
                                break;
                        newest = p;
                } else
                        window_copy(p->threads, newest->threads,
                                    sizeof(*p) - __builtin_offsetof(struct qos_contention_checkpoint,
                                                                    threads));
                checkpoint_end(&p->last, &due);
                c->written[level]++;
        }
        checkpoints_end(&all, epoch);
        return 0;
}

/* Records a sample in a distribution. */
static inline __attribute__((always_inline)) void contention_add(struct qos_contention_map *c,
                                                                 __u64 distribution, __u64 nsec) {
        __u64 bin = histogram_coarse_bin(histogram_fine_bin(nsec));

        BPF_BOUND(distribution, QOS_CONTENTION_DISTRIBUTIONS);
        BPF_BOUND(bin, HISTOGRAM_COARSE_BINS);
        max_ring_update(&c->peaks[distribution], c->epoch, nsec);
        __sync_fetch_and_add(&c->sums[distribution], nsec);
        __sync_fetch_and_add(&c->cells[distribution * HISTOGRAM_COARSE_BINS + bin], 1);
}
