/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* Writers of wait targets. Compiled for BPF and, for the unit tests, for user space. */

#include <stdbool.h>

#include "contention-map.h"

/* Maximum credit. Credit keeps a frequently used entry from being evicted by a burst of targets that are
 * used once. */
#define RESOURCE_CREDIT_MAX 1024U

/* Flag: the entry was reassigned, name and descriptor have to be filled in. */
#define RESOURCE_NEW (1U << 31)

static inline __attribute__((always_inline)) bool resource_equal(const struct qos_resource *a,
                                                                 const struct qos_resource *b) {
        const __u64 *x = (const __u64*) a, *y = (const __u64*) b;

        for (unsigned i = 0; i < QOS_RESOURCE_WORDS; i++)
                if (x[i] != y[i])
                        return false;
        return true;
}

static inline __attribute__((always_inline)) __u64 resource_hash(const struct qos_resource *r) {
        const __u64 *words = (const __u64*) r;
        __u64 h = 0xcbf29ce484222325ULL;

        /* Multiplication propagates to higher bits only */
        for (unsigned i = 0; i < QOS_RESOURCE_WORDS; i++) {
                h = (h ^ words[i]) * 0x9e3779b97f4a7c15ULL;
                h ^= h >> 29;
        }
        return h >> 32;
}

/* Reassigns an entry, guarded by an odd generation. A concurrent update by another CPU, within nanoseconds
 * and of a rarely used entry, may be attributed to the new target. */
static inline __attribute__((always_inline)) bool resource_take(struct qos_contention_map *c,
                                                                struct qos_wait_target *row,
                                                                const struct qos_resource *r) {
        __u32 generation = *(volatile __u32*) &row->generation;
        __u64 state = row->resource.state;

        if (generation % 2 != 0 ||
            __sync_val_compare_and_swap(&row->generation, generation, generation + 1) != generation)
                return false;

        BPF_BOUND(state, QOS_STATES);
        __sync_fetch_and_add(&c->rests[state].waits, __sync_lock_test_and_set(&row->waits, 0));
        __sync_fetch_and_add(&c->rests[state].nsec, __sync_lock_test_and_set(&row->nsec, 0));
        row->blocked_by_requests = 0;
        row->resource = *r;
        row->credit = 1;
        row->process = row->fd = 0;
        row->name[0] = 0;
        for (unsigned i = 0; i < QOS_WAKERS; i++)
                row->wakers[i].thread = 0;
        __sync_lock_test_and_set(&row->generation, generation + 2);
        return true;
}

/* Returns the entry for a wait that begins, from 1, or'ed with RESOURCE_NEW if it was reassigned; 0: none,
 * and the credit of all entries of the set has been decremented. */
BPF_SUBPROG __u32 resource_find(struct qos_contention_map *c, const struct qos_resource *r) {
        BPF_REQUIRE(c);
        BPF_REQUIRE(r);

        __u64 first = resource_hash(r) % QOS_RESOURCE_SETS * QOS_RESOURCE_SET, place = QOS_WAIT_TARGETS;

        for (__u64 k = 0; k < QOS_RESOURCE_SET; k++) {
                __u64 i = first + k;
                struct qos_wait_target *row;

                BPF_BOUND(i, QOS_WAIT_TARGETS);
                row = &c->rows[i];
                if (row->generation != 0 && row->generation % 2 == 0 && resource_equal(&row->resource, r))
                        return i + 1;
                if (row->credit == 0)
                        place = i;
        }
        if (place < QOS_WAIT_TARGETS)
                return resource_take(c, &c->rows[place], r) ? (place + 1) | RESOURCE_NEW : 0;

        for (__u64 k = 0; k < QOS_RESOURCE_SET; k++) {
                __u64 i = first + k;
                struct qos_wait_target *row;

                BPF_BOUND(i, QOS_WAIT_TARGETS);
                row = &c->rows[i];
                if (row->credit > 0)
                        row->credit--;
        }
        return 0;
}

/* A thread has ended a wait for the target. Misra-Gries over wakers. */
static inline __attribute__((always_inline)) void wakers_count(struct qos_wait_target *row,
                                                               const struct qos_waker *waker) {
        struct qos_waker *place = NULL;

        for (unsigned i = 0; i < QOS_WAKERS; i++) {
                struct qos_waker *w = &row->wakers[i];

                if (w->thread == waker->thread) {
                        if (w->credit < (__s32) RESOURCE_CREDIT_MAX)
                                w->credit++;
                        __sync_fetch_and_add(&w->waits, 1);
                        return;
                }
                if (!place && (w->thread == 0 || w->credit <= 0))
                        place = w;
        }
        if (!place) {
                for (unsigned i = 0; i < QOS_WAKERS; i++)
                        row->wakers[i].credit--;
                return;
        }
        *place = *waker;
        place->credit = 1;
        place->waits = 1;
}

/* Flags added to the state of resource_end(): the waker is known */
#define RESOURCE_WOKEN (1U << 8)
/* the waker was processing a request */
#define RESOURCE_BY_REQUEST (1U << 9)

/* a part of a wait already counted */
#define RESOURCE_PART (1U << 10)

/* Records the end of a wait in the entry assigned when it began, or, for 0, in the rest of its state.
 * Returns 0 if the wait had no entry, or has lost it. */
BPF_SUBPROG int resource_end(struct qos_contention_map *c, __u64 row_and_generation, __u64 state, __u64 nsec,
                             const struct qos_waker *waker) {
        BPF_REQUIRE(c);
        BPF_REQUIRE(waker);

        __u64 i = (__u32) row_and_generation, waits;
        struct qos_wait_target *row;

        if (i > 0) {
                i--;
                BPF_BOUND(i, QOS_WAIT_TARGETS);
                row = &c->rows[i];
                if (*(volatile __u32*) &row->generation == row_and_generation >> 32) {
                        if (!(state & RESOURCE_PART))
                                __sync_fetch_and_add(&row->waits, 1);
                        __sync_fetch_and_add(&row->nsec, nsec);
                        if (row->credit < RESOURCE_CREDIT_MAX)
                                row->credit++;
                        if (state & RESOURCE_WOKEN)
                                wakers_count(row, waker);
                        if (state & RESOURCE_BY_REQUEST)
                                __sync_fetch_and_add(&row->blocked_by_requests, nsec);
                        return 1;
                }
        }
        waits = !(state & RESOURCE_PART);
        state &= ~(__u64) (RESOURCE_WOKEN|RESOURCE_BY_REQUEST|RESOURCE_PART);
        BPF_BOUND(state, QOS_STATES);
        __sync_fetch_and_add(&c->rests[state].waits, waits);
        __sync_fetch_and_add(&c->rests[state].nsec, nsec);
        return 0;
}
