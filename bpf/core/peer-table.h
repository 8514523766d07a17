/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* Entries of a unit (unit-map.h): recording, and assignment. Part of window-record.h, compiled for BPF and
 * user space. */

#include "heavy-hitters.h"

/* Writes due checkpoints of the entries. */
BPF_SUBPROG int rows_roll(struct qos_unit_map *u, __u64 before, __u64 now) {
        BPF_REQUIRE(u);

        for (__u32 i = 0; i < QOS_ENTRIES; i++) {
                struct qos_peer_entry *row = &u->rows[i];
                struct qos_entry_checkpoint *c;
                __u32 k = row->written % QOS_ENTRY_CHECKPOINTS;

                BPF_BOUND(k, QOS_ENTRY_CHECKPOINTS);
                c = &row->checkpoints[k];

                /* The entries shared by others have no name */
                if (i >= QOS_ENTRY_FIRST - 1 && u->names[i + 1].kind == QOS_ENTRY_FREE)
                        continue;

                __sync_lock_test_and_set(&c->last, 0);
                c->first = before + 1;
                window_copy(c->sums, row->sums, sizeof(c->sums));
                window_copy(c->cells, row->cells, sizeof(c->cells));
                __sync_lock_test_and_set(&c->last, now);
                row->written++;
        }
        return 0;
}

/* number: from 1 */
WINDOW_INLINE struct qos_peer_entry* entry_get(struct qos_unit_map *u, __u64 number) {
        __u64 i = number - 1;

        BPF_BOUND(i, QOS_ENTRIES);
        return &u->rows[i];
}

WINDOW_INLINE void entry_count(struct qos_peer_entry *row, __u64 cell, __u32 n) {
        __u32 old;

        BPF_BOUND(cell, QOS_ENTRY_COUNTERS);
        old = __sync_fetch_and_add(&row->cells[cell], n);
        if (old + n < old)
                __sync_fetch_and_add(&row->carry[cell], 1);
}

WINDOW_INLINE void entry_uncount(struct qos_peer_entry *row, __u64 cell, __u32 n) {
        __u32 old;

        BPF_BOUND(cell, QOS_ENTRY_COUNTERS);
        old = __sync_fetch_and_add(&row->cells[cell], -n);
        if (old < n)
                __sync_fetch_and_add(&row->carry[cell], -1);
}

/* Updates the maximum of the sub-window at epoch, that of the newest event, and the total. */
WINDOW_INLINE void row_maximum(struct qos_peer_entry *row, __u64 epoch, __u64 nsec) {
        __u64 value = nsec < QOS_MAXIMUM_MASK ? nsec : QOS_MAXIMUM_MASK,
                subwindow = epoch / QOS_LEVEL_EPOCHS(QOS_ENTRY_LEVEL);
        __u64 i = subwindow % QOS_LEVEL_MAXIMA(QOS_ENTRY_LEVEL), word = subwindow << QOS_MAXIMUM_BITS |
                value, old;

        BPF_BOUND(i, QOS_LEVEL_MAXIMA(QOS_ENTRY_LEVEL));
        for (int try = 0; try < 4; try++) {
                old = *(volatile __u64*) &row->maxima[i];
                if ((old >> QOS_MAXIMUM_BITS == word >> QOS_MAXIMUM_BITS && old >= word) ||
                    __sync_val_compare_and_swap(&row->maxima[i], old, word) == old)
                        break;
        }
        for (int try = 0; try < 4; try++) {
                old = *(volatile __u64*) &row->maximum_total;
                if (old >= nsec || __sync_val_compare_and_swap(&row->maximum_total, old, nsec) == old)
                        break;
        }
}

WINDOW_INLINE void row_add(struct qos_peer_entry *row, __u64 epoch, __u64 nsec, __u32 n) {
        row_maximum(row, epoch, nsec);
        __sync_fetch_and_add(&row->sums[QOS_ENTRY_SUM_LATENCY], nsec * n);
        entry_count(row, histogram_coarse_bin(histogram_fine_bin(nsec)), n);
}

/* A sample recorded at recorded_at has grown, see window_forget(). */
WINDOW_INLINE void entry_move_sample(struct qos_peer_entry *row, __u64 recorded_at, __u64 old_nsec,
                                     __u64 now, __u64 nsec) {
        __u64 from = histogram_coarse_bin(histogram_fine_bin(old_nsec)),
                to = histogram_coarse_bin(histogram_fine_bin(nsec));
        __u64 step = QOS_LEVEL_EPOCHS(QOS_ENTRY_LEVEL) * QOS_EPOCH_NSEC, subwindow = recorded_at / step;

        BPF_BOUND(from, QOS_ENTRY_COUNTERS);
        if (subwindow != now / step)
                for (__u32 i = 0; i < QOS_ENTRY_CHECKPOINTS; i++) {
                        struct qos_entry_checkpoint *c = &row->checkpoints[i];

                        if (c->last >= c->first && c->first > subwindow) {
                                __sync_fetch_and_add(&c->cells[from], -1);
                                __sync_fetch_and_add(&c->sums[QOS_ENTRY_SUM_LATENCY], -old_nsec);
                        }
                }

        if (from != to) {
                entry_count(row, to, 1);
                entry_uncount(row, from, 1);
        }
        __sync_fetch_and_add(&row->sums[QOS_ENTRY_SUM_LATENCY], nsec - old_nsec);
        row_maximum(row, now / QOS_EPOCH_NSEC, nsec);
}

WINDOW_INLINE int address_equal(const struct qos_address *a, const struct qos_address *b) {
        return address_difference(a, b) == 0;
}

/* Maps the local address of a connection to the address of its listener among the entries: the most specific
 * one, as TCP does. Returns 0 if there is none. */
BPF_SUBPROG int entry_find_listener(struct qos_unit_map *u, struct qos_address *address) {
        struct qos_address any = {};
        __u64 found = 0;

        BPF_REQUIRE(u);
        BPF_REQUIRE(address);

        any.port = address->port;
        any.family = address->family;
        for (int i = 0; i <= QOS_ENTRIES; i++) {
                struct qos_peer_key *name = &u->names[i];

                if (name->kind != QOS_ENTRY_ENDPOINT && name->kind != QOS_ENTRY_EXCLUDED)
                        continue;
                if (address_equal(&name->address, address))
                        return 1;
                found |= histogram_if_zero(address_difference(&name->address, &any));
        }
        if (found)
                *address = any;
        return found != 0;
}

/* Kind for looking up an endpoint whose listener may not have been found yet: it gets no entry. If all
 * entries are in use, it is one of the others. */
#define ENTRY_ENDPOINT_WITHOUT_LISTENER (QOS_ENTRY_PEER + 1)

/* Finds the entry of an address, or assigns one. Returns 0 for the first endpoint, and for an excluded
 * endpoint or one without a listener that gets no entry. Two programs may race for the same new address and
 * get two entries: readers add these. */
BPF_SUBPROG int entry_find(struct qos_unit_map *u, const struct qos_address *address, int kind) {
        __u32 endpoints = 0;

        BPF_REQUIRE(u);
        BPF_REQUIRE(address);

        if (kind == QOS_ENTRY_ENDPOINT) {
                struct qos_peer_key *first = &u->names[0];

                if (first->kind == QOS_ENTRY_FREE && __sync_val_compare_and_swap(&first->taken, 0, 1) == 0) {
                        first->address = *address;
                        __sync_lock_test_and_set(&first->kind, QOS_ENTRY_ENDPOINT);
                }
                if (first->kind == QOS_ENTRY_ENDPOINT && address_equal(&first->address, address))
                        return 0;
        } else if (kind == ENTRY_ENDPOINT_WITHOUT_LISTENER && u->names[0].kind == QOS_ENTRY_FREE)
                return 0;

        for (int i = QOS_ENTRY_FIRST; i <= QOS_ENTRIES; i++) {
                struct qos_peer_key *name = &u->names[i];

                if (name->kind == (__u32) kind && address_equal(&name->address, address))
                        return i;
                endpoints += ((1U << QOS_ENTRY_ENDPOINT | 1U << QOS_ENTRY_EXCLUDED) >> (name->kind & 31)) &
                             1;
        }

        if (kind == QOS_ENTRY_PEER || endpoints < QOS_ENDPOINT_ENTRIES_MAX)
                for (int i = QOS_ENTRY_FIRST; i <= QOS_ENTRIES; i++) {
                        struct qos_peer_key *name = &u->names[i];

                        if (name->kind != QOS_ENTRY_FREE)
                                continue;
                        if (kind == ENTRY_ENDPOINT_WITHOUT_LISTENER)
                                return 0;
                        if (__sync_val_compare_and_swap(&name->taken, 0, 1) != 0)
                                continue;
                        name->address = *address;
                        __sync_lock_test_and_set(&name->kind, kind);
                        return i;
                }

        return kind == QOS_ENTRY_PEER ? QOS_ENTRY_PEERS_OTHERS : kind == QOS_ENTRY_EXCLUDED ? 0 :
               QOS_ENTRY_ENDPOINTS_OTHERS;
}

/* ---- peers: assignment of entries by time ------------------------------------------------------------- */

struct row_fold {
        struct qos_peer_entry *from;
        struct qos_peer_entry *to;
        __u32 counterpart[QOS_ENTRY_CHECKPOINTS]; /* by checkpoint of "from": that of "to" with the same
                                                   * boundary; QOS_ENTRY_CHECKPOINTS: none */
};

/* Adds a cell of an entry to that of another, at each common boundary. */
static long row_fold_step(__u64 cell, void *data) {
        struct row_fold *f = data;
        __u32 n, carry;

        if (cell >= QOS_ENTRY_COUNTERS)
                return 1;

        n = __sync_lock_test_and_set(&f->from->cells[cell], 0);
        carry = __sync_lock_test_and_set(&f->from->carry[cell], 0);
        entry_count(f->to, cell, n);
        if (carry > 0)
                __sync_fetch_and_add(&f->to->carry[cell], carry);

        for (__u32 i = 0; i < QOS_ENTRY_CHECKPOINTS; i++) {
                __u64 k = f->counterpart[i];

                if (k >= QOS_ENTRY_CHECKPOINTS)
                        continue;
                BPF_BOUND(k, QOS_ENTRY_CHECKPOINTS);
                __sync_fetch_and_add(&f->to->checkpoints[k].cells[cell],
                                     f->from->checkpoints[i].cells[cell]);
        }
        return 0;
}

/* Compares one pair of checkpoints. */
static long row_place_step(__u64 step, void *data) {
        __u64 i = step / QOS_ENTRY_CHECKPOINTS, k = step % QOS_ENTRY_CHECKPOINTS;
        struct row_fold *f = data;
        struct qos_entry_checkpoint *c;

        BPF_BOUND(i, QOS_ENTRY_CHECKPOINTS);
        BPF_BOUND(k, QOS_ENTRY_CHECKPOINTS);
        c = &f->from->checkpoints[i];
        if (k == 0)
                f->counterpart[i] = QOS_ENTRY_CHECKPOINTS;
        if (c->last != 0 && c->first <= c->last && c->last == f->to->checkpoints[k].last)
                f->counterpart[i] = k;
        return 0;
}

/* Merges an entry into that of the other peers, and resets it. Readers check folds before and after. */
BPF_SUBPROG int row_fold(struct qos_unit_map *u, __u64 number) {
        struct row_fold f = {};

        BPF_REQUIRE(u);
        f.from = entry_get(u, number);
        f.to = entry_get(u, QOS_ENTRY_PEERS_OTHERS);
        if (f.from == f.to)
                return 0;

        __sync_fetch_and_add(&u->folds, 1);

        row_loop(QOS_ENTRY_CHECKPOINTS * QOS_ENTRY_CHECKPOINTS, row_place_step, &f);
        row_loop(QOS_ENTRY_COUNTERS, row_fold_step, &f);

        for (__u32 i = 0; i < QOS_ENTRY_CHECKPOINTS; i++) {
                struct qos_entry_checkpoint *c = &f.from->checkpoints[i];
                __u64 k = f.counterpart[i];

                for (__u32 sum = 0; sum < QOS_ENTRY_SUMS && k < QOS_ENTRY_CHECKPOINTS; sum++) {
                        BPF_BOUND(k, QOS_ENTRY_CHECKPOINTS);
                        __sync_fetch_and_add(&f.to->checkpoints[k].sums[sum], c->sums[sum]);
                }
                c->first = 1;
                c->last = 0;
        }
        f.from->written = 0;
        for (__u32 sum = 0; sum < QOS_ENTRY_SUMS; sum++)
                __sync_fetch_and_add(&f.to->sums[sum], __sync_lock_test_and_set(&f.from->sums[sum], 0));
        __sync_fetch_and_add(&f.to->in_flight, __sync_lock_test_and_set(&f.from->in_flight, 0));

        for (__u32 i = 0; i < QOS_LEVEL_MAXIMA(QOS_ENTRY_LEVEL); i++) {
                __u64 word = __sync_lock_test_and_set(&f.from->maxima[i], 0);

                if (word > f.to->maxima[i])
                        f.to->maxima[i] = word;
        }
        if (f.from->maximum_total > f.to->maximum_total)
                f.to->maximum_total = f.from->maximum_total;
        f.from->maximum_total = 0;

        __sync_fetch_and_add(&u->folds, 1);
        return 0;
}

/* Time of the peer since it got the entry, and before. */
WINDOW_INLINE __u64 entry_get_time(const struct qos_unit_map *u, __u64 row) {
        return u->rows[row - 1].sums[QOS_ENTRY_SUM_LATENCY] + u->rows[row - 1].earned;
}

/* Entry of the peer with the least time; 0: none. */
BPF_SUBPROG int entry_find_least(struct qos_unit_map *u) {
        __u64 least = ~0ULL >> 1, row = 0;

        BPF_REQUIRE(u);
        for (int i = QOS_ENTRY_FIRST; i <= QOS_ENTRIES; i++) {
                __u64 nsec = entry_get_time(u, i),
                      less = histogram_if_zero(u->names[i].kind ^ QOS_ENTRY_PEER) &
                             histogram_if_less(nsec, least);

                least = histogram_choose(less, nsec, least);
                row = histogram_choose(less, i, row);
        }
        return row;
}

/* A peer without an entry accounts for another nsec. Once its Misra-Gries counter exceeds the least time of
 * a peer with an entry, it gets that entry; many similar peers do not displace each other. Returns the
 * entry; 0: none. */
BPF_SUBPROG int peer_challenge(struct qos_unit_map *u, const struct qos_address *address, __u64 nsec,
                               __u64 now) {
        struct qos_heavy_hitters *c;
        __u64 ahead, mine, row = 0;

        BPF_REQUIRE(u);
        BPF_REQUIRE(address);
        c = &u->challengers;
        if (__sync_val_compare_and_swap(&c->busy, 0, 1) != 0)
                return 0;

        mine = challenger_add(c, address, nsec, now);
        if (mine < QOS_CHALLENGERS) {
                BPF_BOUND(mine, QOS_CHALLENGERS);
                ahead = c->list[mine].nsec;
                row = (__u32) entry_find_least(u);
                BPF_BOUND(row, QOS_ENTRIES + 1);
                if (row > 0 && ahead > entry_get_time(u, row)) {
                        c->list[mine].nsec = 0;
                        c->changed_at = now;
                        /* Still taken: other programs do not assign it */
                        __sync_lock_test_and_set(&u->names[row].kind, QOS_ENTRY_FREE);
                        __sync_fetch_and_add(&u->names[row].generation, 1);
                        entry_get(u, row)->earned = ahead;
                        row_fold(u, row);
                        *(volatile char*) u->names[row].path = 0;
                        u->names[row].address = *address;
                        __sync_lock_test_and_set(&u->names[row].kind, QOS_ENTRY_PEER);
                } else
                        row = 0;
        }

        __sync_lock_test_and_set(&c->busy, 0);
        return row;
}
