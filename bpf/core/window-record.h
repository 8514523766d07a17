/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* Writers of windows and distributions. Compiled for BPF and, for the unit tests, for user space; the
 * including file provides window_copy(), window_cpu(), window_now(), WINDOW_WAITS and row_loop(). The
 * readers are in src/model/window.c. */

#include "unit-map.h"

#define WINDOW_INLINE static inline __attribute__((always_inline))

#include "peer-table.h"

WINDOW_INLINE void window_count(struct qos_unit_map *u, __u64 cell, __u32 n) {
        __u32 old;

        BPF_BOUND(cell, QOS_COUNTERS);
        old = __sync_fetch_and_add(&u->cells[cell], n);
        if (old + n < old)
                __sync_fetch_and_add(&u->carry[cell], 1);
}

WINDOW_INLINE void window_uncount(struct qos_unit_map *u, __u64 cell, __u32 n) {
        __u32 old;

        BPF_BOUND(cell, QOS_COUNTERS);
        old = __sync_fetch_and_add(&u->cells[cell], -n);
        if (old < n)
                __sync_fetch_and_add(&u->carry[cell], -1);
}

static long window_wait_step(__u64 i, void *data) {
        struct qos_unit_map **u = data;

        return *(volatile __u32*) &(*u)->rolling == 0;
}

/* Writes the checkpoints that are due at epoch, for all levels, one program at a time. Programs on other
 * CPUs wait: otherwise their events would count for a sub-window that is over, after an idle period even for
 * one long ago. A program that interrupts the writer cannot wait, and one that has waited too long because
 * the writer was preempted does not wait any longer: a checkpoint may then contain events that are newer
 * than its end, each sample as a whole. Totals are not affected. */
BPF_SUBPROG int window_roll(struct qos_unit_map *u, __u64 epoch) {
        __u32 self = window_cpu() + 1, writer;

        if (!u)
                return 0;
        writer = __sync_val_compare_and_swap(&u->rolling, 0, self);
        if (writer != 0) {
                if (writer != self)
                        row_loop(WINDOW_WAITS, window_wait_step, &u);
                return 0;
        }

        __u64 old = *(volatile __u64*) &u->epoch;
        if (epoch > old) {
                for (__u32 level = 0; level < QOS_LEVELS; level++) {
                        __u64 before = old / QOS_LEVEL_EPOCHS(level), now = epoch / QOS_LEVEL_EPOCHS(level);
                        struct qos_checkpoint *c;
                        __u32 i;

                        if (now == before)
                                break; /* a boundary of a level is one of all finer levels */

                        i = QOS_LEVEL_FIRST_CHECKPOINT(level) +
                            u->written[level] % QOS_LEVEL_CHECKPOINTS(level);
                        if (i >= QOS_CHECKPOINTS)
                                break;
                        c = &u->checkpoints[i];

                        /* Readers check last before and after copying */
                        __sync_lock_test_and_set(&c->last, 0);
                        c->first = before + 1;
                        c->in_flight = u->in_flight;
                        c->open = u->open;
                        c->serving = u->serving;
                        window_copy(c->sums, u->sums, sizeof(c->sums));
                        window_copy(c->cells, u->cells, sizeof(c->cells));
                        __sync_lock_test_and_set(&c->last, now);

                        u->written[level]++;
                        if (level == QOS_ENTRY_LEVEL)
                                rows_roll(u, before, now);
                }

                __sync_lock_test_and_set(&u->epoch, epoch);
                __sync_lock_test_and_set(&u->epoch_end, (epoch + 1) * QOS_EPOCH_NSEC);
        }

        __sync_lock_test_and_set(&u->rolling, 0);
        return 0;
}

/* Called before an event is recorded. */
WINDOW_INLINE void window_advance(struct qos_unit_map *u, __u64 now) {
        if (now >= *(volatile __u64*) &u->epoch_end)
                window_roll(u, now / QOS_EPOCH_NSEC);
}

/* Attempts to set the clock while requests begin and end on other CPUs. The gauge is read again after each,
 * and whoever loses a race leaves the clock to the winner. The clock is wrong, until the next request, only
 * if the gauge changes right after each of these attempts. */
#define SERVING_TRIES 8

/* Starts or stops the clock according to the gauge. CPUs may get here in another order than they have
 * changed the gauge, hence the gauge is compared again after the clock was set. */
BPF_SUBPROG int serving_clock_update(struct qos_unit_map *u) {
        BPF_REQUIRE(u);
        for (int try = 0; try < SERVING_TRIES; try++) {
                __u64 word = *(volatile __u64*) &u->serving;
                int serves = *(volatile __s64*) &u->in_flight > 0;

                if (serves == !!(word & QOS_SERVING))
                        break;
                /* The time is read after the word, and hence not before that of the word */
                __sync_val_compare_and_swap(&u->serving, word, serving_clock_toggle(word, window_now()));
        }
        return 0;
}

/* Adds n requests in flight, n may be negative. seen: word of the serving clock, read before now was. If it
 * is stopped, and the clock still has this word, the clock starts at now. With QOS_SERVING, now is
 * ignored. */
WINDOW_INLINE void window_add_in_flight_at(struct qos_unit_map *u, __s32 n, __u64 seen, __u64 now) {
        __s64 old = __sync_fetch_and_add(&u->in_flight, n);

        if ((old > 0) == (old + n > 0))
                return;
        if (n > 0 && !(seen & QOS_SERVING))
                __sync_val_compare_and_swap(&u->serving, seen, serving_clock_toggle(seen, now));
        serving_clock_update(u);
}

WINDOW_INLINE void window_add_in_flight(struct qos_unit_map *u, __s32 n) {
        window_add_in_flight_at(u, n, QOS_SERVING, 0);
}

/* Updates the maxima of the sub-windows of the newest event, and the total. */
BPF_SUBPROG int window_maximum(struct qos_unit_map *u, __u64 distribution, __u64 nsec) {
        __u64 value = nsec < QOS_MAXIMUM_MASK ? nsec : QOS_MAXIMUM_MASK, epoch;

        BPF_REQUIRE(u);
        epoch = *(volatile __u64*) &u->epoch;
        BPF_BOUND(distribution, QOS_DISTRIBUTIONS);

        for (__u32 level = 0; level < QOS_LEVELS; level++) {
                __u64 subwindow = epoch / QOS_LEVEL_EPOCHS(level), word, old;
                __u32 i = QOS_LEVEL_FIRST_MAXIMUM(level) + subwindow % QOS_LEVEL_MAXIMA(level);
                __u64 *p;

                if (i >= QOS_MAXIMA)
                        return 0;
                p = &u->maxima[i][distribution];
                word = subwindow << QOS_MAXIMUM_BITS | value;

                /* More attempts than programs interrupt one another or compete in practice; the loser of
                 * four races has most likely lost to larger values */
                for (int try = 0; try < 4; try++) {
                        old = *(volatile __u64*) p;
                        if (old >> QOS_MAXIMUM_BITS == word >> QOS_MAXIMUM_BITS && old >= word) {
                                /* Coarser levels include this sub-window, and have a value at least as
                                 * large */
                                return 0;
                        }
                        if (__sync_val_compare_and_swap(p, old, word) == old)
                                break;
                }
        }

        for (int try = 0; try < 4; try++) {
                __u64 old = *(volatile __u64*) &u->maxima_total[distribution];

                if (old >= nsec ||
                    __sync_val_compare_and_swap(&u->maxima_total[distribution], old, nsec) == old)
                        break;
        }
        return 0;
}

WINDOW_INLINE __u32 window_cell(__u32 distribution, __u64 nsec) {
        __u32 bin = histogram_fine_bin(nsec);

        if (!QOS_DISTRIBUTION_IS_FINE(distribution))
                bin = histogram_coarse_bin(bin);

        return QOS_DISTRIBUTION_FIRST_COUNTER(distribution) + bin;
}

/* Adds n equal samples to a distribution. */
WINDOW_INLINE void window_add(struct qos_unit_map *u, __u32 distribution, __u64 nsec, __u32 n) {
        __u64 epoch = *(volatile __u64*) &u->epoch;

        /* Bin last: a counted sample is already in sum and maximum. Most are not the largest of their
         * sub-window */
        if (*(volatile __u64*) &u->maxima[epoch % QOS_LEVEL_MAXIMA(0)][distribution] <
            (epoch << QOS_MAXIMUM_BITS | (nsec < QOS_MAXIMUM_MASK ? nsec : QOS_MAXIMUM_MASK)))
                window_maximum(u, distribution, nsec);
        __sync_fetch_and_add(&u->sums[distribution], nsec * n);
        window_count(u, window_cell(distribution, nsec), n);
}

/* Changes the value of n equal samples of this sub-window. */
WINDOW_INLINE void window_move_sample(struct qos_unit_map *u, __u32 distribution, __u64 old_nsec, __u64 nsec,
                                      __u32 n) {
        __u32 from = window_cell(distribution, old_nsec), to = window_cell(distribution, nsec);

        if (from != to) {
                /* In this order, a concurrent reader sees an extra sample rather than a negative bin */
                window_count(u, to, n);
                window_uncount(u, from, n);
        }
        __sync_fetch_and_add(&u->sums[distribution], (nsec - old_nsec) * n);
        window_maximum(u, distribution, nsec);
}

/* A sample recorded at recorded_at has grown: it is removed from its sub-window, and counts in the current
 * one. Checkpoints written since contain the old value, and have to be corrected, or windows that begin
 * there would count it as -1. */
static __attribute__((noinline)) int window_forget(struct qos_unit_map *u, __u32 distribution,
                                                   __u64 recorded_at, __u64 nsec) {
        __u32 cell = window_cell(distribution, nsec);
        __u64 epoch = recorded_at / QOS_EPOCH_NSEC;

        if (!u || cell >= QOS_COUNTERS || distribution >= QOS_DISTRIBUTIONS)
                return 0;

        for (__u32 i = 0; i < QOS_CHECKPOINTS; i++) {
                struct qos_checkpoint *c = &u->checkpoints[i];
                __u32 epochs = i < 12 ? QOS_LEVEL_EPOCHS(0) : i < 24 ? QOS_LEVEL_EPOCHS(1) :
                               i < 32 ? QOS_LEVEL_EPOCHS(2) : QOS_LEVEL_EPOCHS(3);

                if (c->last >= c->first && c->first > epoch / epochs) {
                        __sync_fetch_and_add(&c->cells[cell], -1);
                        __sync_fetch_and_add(&c->sums[distribution], -nsec);
                }
        }
        return 0;
}

WINDOW_INLINE void window_move(struct qos_unit_map *u, __u32 distribution, __u64 recorded_at, __u64 old_nsec,
                               __u64 now, __u64 nsec) {

        if (recorded_at / QOS_EPOCH_NSEC != now / QOS_EPOCH_NSEC)
                window_forget(u, distribution, recorded_at, old_nsec);
        window_move_sample(u, distribution, old_nsec, nsec, 1);
}

/* Changes with any activity on the unit's connections, possibly with a delay. */
WINDOW_INLINE __u64 window_activity(const struct qos_unit_map *u) {
        return (u->sums[QOS_SUM_BYTES_IN] + u->sums[QOS_SUM_UNPARSED_IN]) * 3 +
               (u->sums[QOS_SUM_BYTES_OUT] + u->sums[QOS_SUM_UNPARSED_OUT]) * 5 + u->opened * 7 +
               u->in_flight * 11 + u->open * 13;
}

/* The same for an entry, which may be reassigned. */
WINDOW_INLINE __u64 row_activity(const struct qos_unit_map *u, __u64 number) {
        const struct qos_peer_entry *row = &u->rows[number - 1];

        return row->sums[QOS_ENTRY_SUM_BYTES_IN] * 3 + row->sums[QOS_ENTRY_SUM_BYTES_OUT] * 5 +
               row->sums[QOS_ENTRY_SUM_LATENCY] * 7 +
                row->cells[QOS_ENTRY_COUNT] * 11ULL + row->in_flight * 13 +
                u->names[number].generation * 17ULL;
}

/* row: number of an entry of the peer of a query; 0: none. */
WINDOW_INLINE void entry_mark_queries(struct qos_unit_map *u, __u64 row) {
        if (row == 0)
                return;
        row--;
        BPF_BOUND(row, QOS_ENTRIES);
        if (!u->summed.rows[row].queries)
                u->summed.rows[row].queries = 1;
}

/* Called before all connections are summed up. */
BPF_SUBPROG int window_sum_begin(struct qos_unit_map *u) {
        BPF_REQUIRE(u);
        u->summed.activity = window_activity(u);
        u->summed.begun = u->opened;
        for (__u32 i = 1; i <= QOS_ENTRIES; i++) {
                u->summed.rows[i - 1].activity = row_activity(u, i);
                u->summed.rows[i - 1].in_flight = 0;
        }
        return 0;
}

/* Adds a connection to the sum. row: number of its entry; 0: none. entry_only: its requests are not part of
 * the unit's gauge. */
WINDOW_INLINE void window_sum(struct qos_unit_map *u, __u64 session, __s64 open, __s64 in_flight, __u64 row,
                              int entry_only) {
        struct qos_summed *s = &u->summed;

        if (s->session != session) {
                s->session = session;
                s->open = s->in_flight = 0;
        }
        s->open += open;
        if (!entry_only)
                s->in_flight += in_flight;
        if (row > 0) {
                row--;
                BPF_BOUND(row, QOS_ENTRIES);
                s->rows[row].in_flight += in_flight;
        }
}

/* Called after all connections were summed up: corrects the gauges, while connections come and go.
 * Connections in the gauge that were not summed up were either opened since the start, and their number is
 * known, or closed unseen. As a program that has changed a connection may be about to update the gauge, only
 * an excess found twice in a row is corrected. For requests in flight there is no such bound: they are
 * corrected if there was no activity meanwhile, and not of entries with queries over UDP. */
BPF_SUBPROG int window_reconcile(struct qos_unit_map *u, __u64 session) {
        struct qos_summed *s;
        __s64 more, correct;
        int quiet;

        BPF_REQUIRE(u);
        s = &u->summed;
        quiet = window_activity(u) == s->activity;
        if (s->session != session)
                s->open = s->in_flight = 0;

        more = *(volatile __s64*) &u->open;
        more -= (__s64) (*(volatile __u64*) &u->opened - s->begun) + s->open;
        if (more < 0 && !quiet)
                more = 0;
        correct = more == s->more_open || (more > 0 && s->more_open > more) ? more : more > 0 &&
                  s->more_open > 0 ? s->more_open : 0;
        if (correct != 0)
                __sync_fetch_and_add(&u->open, -correct);
        s->more_open = more - correct;

        more = quiet ? u->in_flight - s->in_flight : 0;
        correct = more == s->more_in_flight ? more : 0;
        if (correct != 0)
                window_add_in_flight(u, (__s32) -correct);
        s->more_in_flight = more - correct;

        for (__u32 i = 1; i <= QOS_ENTRIES; i++) {
                more = row_activity(u, i) == s->rows[i - 1].activity && !s->rows[i - 1].queries ?
                       u->rows[i - 1].in_flight - s->rows[i - 1].in_flight : 0;
                correct = more == s->rows[i - 1].more ? more : 0;
                if (correct != 0)
                        __sync_fetch_and_add(&u->rows[i - 1].in_flight, -correct);
                s->rows[i - 1].more = more - correct;
        }
        return 0;
}
