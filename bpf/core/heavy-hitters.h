/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* Candidates for an entry, by the time that they account for (Misra and Gries). Compiled for BPF and user
 * space. */

#include "unit-map.h"

/* Minimum interval of reassignments: each takes some 3000 additions, negligible ten times a second. */
#define HEAVY_HITTERS_PAUSE_NSEC 100000000ULL

/* Returns 0 if equal. */
static inline __attribute__((always_inline)) __u64 address_difference(const struct qos_address *a,
                                                                      const struct qos_address *b) {
        const __u32 *x = (const __u32*) a->address, *y = (const __u32*) b->address;

        return (x[0] ^ y[0]) | (x[1] ^ y[1]) | (x[2] ^ y[2]) | (x[3] ^ y[3]) | (__u32) (a->port ^ b->port) |
               (__u32) (a->family ^ b->family);
}

/* Index of the challenger with this address; QOS_CHALLENGERS: none. */
BPF_SUBPROG int challenger_find(struct qos_heavy_hitters *c, const struct qos_address *address) {
        __u64 found = QOS_CHALLENGERS;

        BPF_REQUIRE(c);
        BPF_REQUIRE(address);
        for (int i = 0; i < QOS_CHALLENGERS; i++)
                found = histogram_choose(
                        histogram_if_zero(address_difference(&c->list[i].address, address)) &
                                    ~histogram_if_zero(c->list[i].nsec), i, found);
        return found;
}

/* Adds a challenger, reducing all others by the least of them (Misra-Gries). Returns its index, or
 * QOS_CHALLENGERS. */
BPF_SUBPROG int challenger_enter(struct qos_heavy_hitters *c, const struct qos_address *address,
                                 __u64 nsec) {
        __u64 smallest = nsec, free = QOS_CHALLENGERS;

        BPF_REQUIRE(c);
        BPF_REQUIRE(address);
        for (int i = 0; i < QOS_CHALLENGERS; i++)
                smallest = histogram_choose(histogram_if_less(c->list[i].nsec, smallest), c->list[i].nsec,
                                            smallest);
        for (int i = 0; i < QOS_CHALLENGERS; i++) {
                c->list[i].nsec -= smallest;
                free = histogram_choose(histogram_if_zero(c->list[i].nsec), i, free);
        }
        if (free >= QOS_CHALLENGERS || nsec <= smallest)
                return QOS_CHALLENGERS;
        BPF_BOUND(free, QOS_CHALLENGERS);
        c->list[free].address = *address;
        c->list[free].nsec = nsec - smallest;
        return free;
}

/* Adds the time of a candidate. The caller holds c->busy. Returns its index, or QOS_CHALLENGERS if it has
 * none, or if the previous reassignment was too recent for another one. */
static inline __attribute__((always_inline)) __u64 challenger_add(struct qos_heavy_hitters *c,
                                                                  const struct qos_address *address,
                                                                  __u64 nsec, __u64 now) {
        __u64 mine = (__u32) challenger_find(c, address);

        if (mine < QOS_CHALLENGERS) {
                BPF_BOUND(mine, QOS_CHALLENGERS);
                c->list[mine].nsec += nsec;
        } else
                mine = (__u32) challenger_enter(c, address, nsec);
        return now - c->changed_at >= HEAVY_HITTERS_PAUSE_NSEC ? mine : QOS_CHALLENGERS;
}
