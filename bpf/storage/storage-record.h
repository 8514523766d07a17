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

struct storage_total {
        void *map;
        struct qos_storage_counts *to;
};

static long storage_total_step(__u64 cpu, void *data) {
        struct storage_total *total = data;
        const struct qos_storage_counts *shard;

        shard = storage_counts_get(total->map, QOS_STORAGE_SHARD((__u32) cpu));
        if (!shard)
                return 1;
        if (cpu == 0) {
                window_copy(total->to->sums, shard->sums,
                            sizeof(*shard) - __builtin_offsetof(struct qos_storage_counts, sums));
                return 0;
        }
        for (__u32 i = 0; i < QOS_STORAGE_SUMS; i++)
                total->to->sums[i] += shard->sums[i];
        for (__u32 i = 0; i < QOS_STORAGE_BINS; i++)
                total->to->bins[i] += shard->bins[i];
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

STORAGE_INLINE void storage_add(struct qos_storage_counts *shard, __u64 sum, __u64 n) {
        BPF_BOUND(sum, QOS_STORAGE_SUMS);
        __sync_fetch_and_add(&shard->sums[sum], n);
}

/* A call that ended. result: bytes read or written, a negative errno, or anything else. nsec: of timed
 * calls. */
STORAGE_INLINE void storage_record(void *map, __u32 cpu, __u64 now, __u32 call, __s64 result, __u64 nsec) {
        struct qos_storage_header *h = storage_header_get(map);
        struct qos_storage_counts *shard = storage_counts_get(map, QOS_STORAGE_SHARD(cpu)), *carry;
        __u64 epoch = now / QOS_EPOCH_NSEC, bin;

        if (!h || !shard)
                return;
        result = result_extend(result);
        if (epoch > *(volatile __u64*) &h->epoch)
                storage_roll_due(map, h, epoch);
        storage_add(shard, QOS_STORAGE_COUNT + call, 1);
        if (result_is_error(result))
                storage_add(shard, QOS_STORAGE_ERRORS + call, 1);
        else if (call <= QOS_STORAGE_WRITE)
                storage_add(shard, QOS_STORAGE_BYTES_READ + call, (__u64) result);
        if (call >= QOS_STORAGE_TIMED)
                return;

        BPF_BOUND(call, QOS_STORAGE_TIMED);
        max_ring_update(&h->peaks[call], epoch, nsec);
        storage_add(shard, QOS_STORAGE_NSEC + call, nsec);
        bin = call * HISTOGRAM_COARSE_BINS + histogram_coarse_bin(histogram_fine_bin(nsec));
        BPF_BOUND(bin, QOS_STORAGE_BINS);
        if (__sync_fetch_and_add(&shard->bins[bin], 1) == ~0U) {
                carry = storage_counts_get(map, QOS_STORAGE_SHARD(cpu) + 1);
                if (carry)
                        __sync_fetch_and_add(&carry->bins[bin], 1);
        }
}
