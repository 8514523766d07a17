/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* Writers of storage maps. Compiled for BPF and, for the unit tests, for user space; the including file
 * provides window_copy(), window_cpu(), row_loop(), storage_element(), storage_roll_due() and
 * mount_read_type(). */

#include "checkpoints.h"
#include "max-ring.h"
#include "storage-map.h"

#define STORAGE_INLINE static inline __attribute__((always_inline))

STORAGE_INLINE struct qos_storage_counts* storage_counts_get(void *map, __u32 i) {
        union qos_storage_element *e = storage_element(map, i);

        return e ? &e->counts : NULL;
}

STORAGE_INLINE struct qos_storage_header* storage_header_get(void *map) {
        union qos_storage_element *e = storage_element(map, QOS_STORAGE_HEADER);

        return e ? &e->header : NULL;
}

/* Whether it is an error code of the kernel. Other negative values are pointers. */
STORAGE_INLINE int result_is_error(__s64 result) {
        return result < 0 && result >= -4095;
}

/* What a function returns, of which a register has 64 bits: a negative int has an upper half of zeros. No
 * call reads or writes 2 GiB (MAX_RW_COUNT). Without a branch, as the verifier would walk all that follows
 * twice. */
STORAGE_INLINE __s64 result_extend(__s64 result) {
        __u64 negative = (((__u64) result >> 31 ^ 1) - 1) >> 63;

        BPF_OPAQUE(negative);
        return result | (__s64) (-negative << 32);
}

#include "mount-table.h"

/* What a CPU has recorded of a state: both words, in units of checkpoints. */
STORAGE_INLINE __u32 storage_state_round(__u32 low, __u32 carry) {
        return (__u32) (((__u64) carry << 32 | low) >> QOS_STORAGE_STATE_SHIFT);
}

struct storage_total {
        void *map;
        struct qos_storage_counts *to;
        const struct qos_storage_counts *from;
};

/* Bins in parts, as the verifier follows each one of a part. */
#define STORAGE_BINS_PART (HISTOGRAM_COARSE_BINS / 2)
_Static_assert(HISTOGRAM_COARSE_BINS % 2 == 0, "two parts for each call");

static long storage_bins_step(__u64 part, void *data) {
        struct storage_total *total = data;

        BPF_BOUND(part, 2 * QOS_STORAGE_TIMED);
        for (__u32 i = 0; i < STORAGE_BINS_PART; i++)
                total->to->bins[part * STORAGE_BINS_PART + i] +=
                        total->from->bins[part * STORAGE_BINS_PART + i];
        return 0;
}

static long storage_total_step(__u64 cpu, void *data) {
        struct storage_total *total = data;
        const struct qos_storage_counts *shard, *carry;

        shard = storage_counts_get(total->map, QOS_STORAGE_SHARD((__u32) cpu));
        carry = storage_counts_get(total->map, QOS_STORAGE_SHARD((__u32) cpu) + 1);
        if (!shard || !carry)
                return 1;
        if (cpu == 0) {
                window_copy(total->to->sums, shard->sums,
                            sizeof(*shard) - __builtin_offsetof(struct qos_storage_counts, sums));
                for (__u32 i = QOS_STORAGE_STATE - QOS_STORAGE_WIDE; i < QOS_STORAGE_NARROW; i++)
                        total->to->counts[i] = storage_state_round(shard->counts[i], carry->counts[i]);
                return 0;
        }
        for (__u32 i = 0; i < QOS_STORAGE_WIDE; i++)
                total->to->sums[i] += shard->sums[i];
        for (__u32 i = 0; i < QOS_STORAGE_NARROW; i++)
                total->to->counts[i] += i < QOS_STORAGE_STATE - QOS_STORAGE_WIDE ? shard->counts[i] :
                                        storage_state_round(shard->counts[i], carry->counts[i]);
        total->from = shard;
        row_loop(2 * QOS_STORAGE_TIMED, storage_bins_step, total);
        return 0;
}

/* Writes the checkpoints that are due at epoch. An event recorded meanwhile may land on either side of them,
 * as a whole or in parts; totals are not affected. */
STORAGE_INLINE void storage_roll(void *map, struct qos_storage_header *h, __u64 epoch) {
        struct checkpoints all = { &h->rolling, &h->epoch, h->written };
        struct qos_storage_counts *newest = NULL;

        if (!checkpoints_begin(&all, epoch))
                return;
        for (__u32 level = 0; level < QOS_LEVELS; level++) {
                struct checkpoint_due due;
                struct qos_storage_counts *c;

                if (!checkpoints_get_due(&all, level, epoch, &due))
                        break;
                c = storage_counts_get(map, QOS_STORAGE_CHECKPOINT + (__u32) due.index);
                if (!c)
                        break;
                checkpoint_begin(&c->first, &c->last, &due);
                if (!newest) {
                        struct storage_total total = { .map = map, .to = c };

                        row_loop(h->cpus, storage_total_step, &total);
                        newest = c;
                } else
                        window_copy(c->sums, newest->sums,
                                    sizeof(*c) - __builtin_offsetof(struct qos_storage_counts, sums));
                checkpoint_end(&c->last, &due);
                if (level == QOS_MOUNT_LEVEL)
                        mounts_mark(map, h, &due);
                if (level == QOS_MOUNT_BINS_LEVEL)
                        mounts_checkpoint(map, h, &due);
                h->written[level]++;
        }
        checkpoints_end(&all, epoch);
}

/* The counters of a CPU. */
struct storage_shard {
        void *map;
        struct qos_storage_counts *counts;
        __u64 cpu;
};

/* 0: the map has no such CPU. */
STORAGE_INLINE int storage_shard_get(void *map, __u32 cpu, struct storage_shard *ret) {
        ret->map = map;
        ret->counts = storage_counts_get(map, QOS_STORAGE_SHARD(cpu));
        ret->cpu = cpu;
        return ret->counts != NULL;
}

/* The same, and writes the checkpoints that are due. */
STORAGE_INLINE int storage_shard_enter(void *map, __u32 cpu, __u64 now, struct storage_shard *ret) {
        struct qos_storage_header *h = storage_header_get(map);
        __u64 epoch = now / QOS_EPOCH_NSEC;

        if (!h || !storage_shard_get(map, cpu, ret))
                return 0;
        if (epoch > *(volatile __u64*) &h->epoch)
                storage_roll_due(map, h, epoch);
        return 1;
}

/* Wraparounds of a word. */
STORAGE_INLINE struct qos_storage_counts* storage_shard_get_carry(const struct storage_shard *s) {
        return storage_counts_get(s->map, QOS_STORAGE_SHARD((__u32) s->cpu) + 1);
}

/* sum: before QOS_STORAGE_WIDE */
STORAGE_INLINE void storage_add(const struct storage_shard *s, __u64 sum, __u64 n) {
        BPF_BOUND(sum, QOS_STORAGE_WIDE);
        __sync_fetch_and_add(&s->counts->sums[sum], n);
}

/* sum: from QOS_STORAGE_WIDE on */
STORAGE_INLINE void storage_count(const struct storage_shard *s, __u64 sum, __u64 n) {
        __u32 i = (__u32) sum - QOS_STORAGE_WIDE, low = (__u32) n, old;
        struct qos_storage_counts *carry;

        BPF_BOUND(i, QOS_STORAGE_NARROW);
        old = __sync_fetch_and_add(&s->counts->counts[i], low);
        n = (n >> 32) + (old + low < old);
        if (n == 0)
                return;
        carry = storage_shard_get_carry(s);
        if (carry)
                __sync_fetch_and_add(&carry->counts[i], (__u32) n);
}

/* A call that ended. result: bytes read or written, a negative errno, or anything else. nsec: of timed
 * calls. */
STORAGE_INLINE void storage_record(void *map, __u32 cpu, __u64 now, __u32 call, __s64 result, __u64 nsec) {
        struct qos_storage_header *h = storage_header_get(map);
        struct qos_storage_counts *carry;
        struct storage_shard s;
        __u64 bin;

        if (!h || !storage_shard_enter(map, cpu, now, &s))
                return;
        result = result_extend(result);
        storage_count(&s, QOS_STORAGE_COUNT + call, 1);
        if (result_is_error(result))
                storage_count(&s, QOS_STORAGE_ERRORS + call, 1);
        else if (call <= QOS_STORAGE_WRITE)
                storage_add(&s, QOS_STORAGE_BYTES_READ + call, (__u64) result);
        if (call >= QOS_STORAGE_TIMED)
                return;

        BPF_BOUND(call, QOS_STORAGE_TIMED);
        max_ring_update(&h->peaks[call], now / QOS_EPOCH_NSEC, nsec);
        storage_add(&s, QOS_STORAGE_NSEC + call, nsec);
        bin = call * HISTOGRAM_COARSE_BINS + histogram_coarse_bin(histogram_fine_bin(nsec));
        BPF_BOUND(bin, QOS_STORAGE_BINS);
        if (__sync_fetch_and_add(&s.counts->bins[bin], 1) == ~0U) {
                carry = storage_shard_get_carry(&s);
                if (carry)
                        __sync_fetch_and_add(&carry->bins[bin], 1);
        }
}

/* ---- time by state ------------------------------------------------------------------------------------ */

/* The times of a thread between a call and its return, by state. begun, ended: its account then, indexed by
 * enum qos_state: times in states that it has left. It runs at both moments, so that the rest of nsec is the
 * time on a CPU. */
STORAGE_INLINE void storage_divide(const __u64 *begun, const __u64 *ended, __u64 nsec, __u64 *ret) {
        __u64 waited = 0;

        for (__u32 i = 0; i < QOS_STORAGE_STATES; i++)
                ret[i] = 0;
        for (__u32 i = QOS_STATE_RUN_QUEUE; i < QOS_STATES; i++) {
                __u64 n = ended[i] - begun[i];

                ret[storage_state(i)] += n;
                waited += n;
        }
        ret[QOS_STORAGE_RUNNING] = nsec - histogram_choose(histogram_if_less(nsec, waited), nsec, waited);
}

struct storage_states {
        const struct storage_shard *shard;
        __u64 sum;              /* of the first state */
        __u64 nsec[QOS_STORAGE_STATES];
};

static long storage_state_step(__u64 i, void *data) {
        const struct storage_states *s = data;

        BPF_BOUND(i, QOS_STORAGE_STATES);
        if (s->nsec[i] != 0)
                storage_count(s->shard, s->sum + i, s->nsec[i]);
        return 0;
}

/* To be called after storage_record(), which has written the checkpoints that were due. call: before
 * QOS_STORAGE_DIVIDED */
STORAGE_INLINE void storage_record_states(const struct storage_shard *shard, __u32 call,
                                          struct storage_states *states) {
        states->shard = shard;
        states->sum = QOS_STORAGE_STATE + call * QOS_STORAGE_STATES;
        row_loop(QOS_STORAGE_STATES, storage_state_step, states);
}
