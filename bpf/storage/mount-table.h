/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* Rows of a storage map, one for each file system. Part of storage-record.h, compiled for BPF and user
 * space. */

#include "heavy-hitters.h"

STORAGE_INLINE struct qos_mount_row* mount_row_get(void *map, __u32 row) {
        union qos_storage_element *e = storage_element(map, QOS_STORAGE_ROW + row);

        return e ? &e->row : NULL;
}

STORAGE_INLINE struct qos_mount_marks* mount_marks_get(void *map, __u32 k) {
        union qos_storage_element *e = storage_element(map, QOS_STORAGE_MARKS + k / 3);

        return e ? &e->marks : NULL;
}

STORAGE_INLINE __u64 mount_identity(const struct qos_address *key) {
        return *(const __u64*) key->address;
}

/* address: of the super block */
STORAGE_INLINE void mount_set_key(struct qos_address *key, __u32 device, __u64 address, const __u64 *uuid) {
        __u64 hash = address;

        hash = (hash ^ uuid[0]) * 0x9e3779b97f4a7c15ULL;
        hash = (hash ^ uuid[1] ^ hash >> 32) * 0x9e3779b97f4a7c15ULL;
        hash = (hash ^ device ^ hash >> 32) * 0x9e3779b97f4a7c15ULL;
        *(__u64*) key->address = hash | 1;
        *(__u32*) (key->address + 8) = device;
        *(__u32*) (key->address + 12) = 0;
        key->port = key->family = 0;
}

/* ---- checkpoints -------------------------------------------------------------------------------------- */

struct mount_roll {
        void *map;
        __u32 k;                /* of the marks, or of the checkpoint */
        __u32 _padding;
};

static long mount_mark_step(__u64 i, void *data) {
        struct mount_roll *roll = data;
        const struct qos_mount_row *row = mount_row_get(roll->map, (__u32) i);
        struct qos_mount_marks *marks = mount_marks_get(roll->map, roll->k);
        __u64 k = roll->k % 3;
        struct qos_mount_mark *mark;

        BPF_BOUND(i, QOS_STORAGE_ROWS);
        BPF_BOUND(k, 3);
        if (!row || !marks)
                return 1;
        mark = &marks->rows[k][i];
        window_copy(mark->nsec, row->counts.nsec, sizeof(mark->nsec));
        window_copy(mark->bytes, row->counts.bytes, sizeof(mark->bytes));
        for (int call = 0; call < QOS_MOUNT_CALLS; call++) {
                mark->count[call] = (__u32) row->counts.count[call];
                mark->errors[call] = (__u32) row->counts.errors[call];
        }
        return 0;
}

static long mount_checkpoint_step(__u64 i, void *data) {
        struct mount_roll *roll = data;
        struct qos_mount_row *row = mount_row_get(roll->map, (__u32) i);
        __u64 k = roll->k;

        BPF_BOUND(k, QOS_MOUNT_CHECKPOINTS);
        if (!row)
                return 1;
        window_copy(row->checkpoints[k], row->bins, sizeof(row->bins));
        return 0;
}

/* As the checkpoints of the unit, to be called while these are written. */
STORAGE_INLINE void mounts_mark(void *map, struct qos_storage_header *h,
                                 const struct checkpoint_due *due) {
        struct mount_roll roll = { .map = map, .k = h->written[QOS_MOUNT_LEVEL] % QOS_MOUNT_MARKS };
        __u64 k = roll.k;

        BPF_BOUND(k, QOS_MOUNT_MARKS);
        checkpoint_begin(&h->marks[k].first, &h->marks[k].last, due);
        row_loop(QOS_STORAGE_ROWS, mount_mark_step, &roll);
        checkpoint_end(&h->marks[k].last, due);
}

STORAGE_INLINE void mounts_checkpoint(void *map, struct qos_storage_header *h,
                                 const struct checkpoint_due *due) {
        struct mount_roll roll = {
                .map = map,
                .k = h->written[QOS_MOUNT_BINS_LEVEL] % QOS_MOUNT_CHECKPOINTS,
        };
        __u64 k = roll.k;

        BPF_BOUND(k, QOS_MOUNT_CHECKPOINTS);
        checkpoint_begin(&h->checkpoints[k].first, &h->checkpoints[k].last, due);
        row_loop(QOS_STORAGE_ROWS, mount_checkpoint_step, &roll);
        checkpoint_end(&h->checkpoints[k].last, due);
}

/* ---- recording ---------------------------------------------------------------------------------------- */

STORAGE_INLINE void mount_count_bin(struct qos_mount_row *row, __u64 bin, __u32 n) {
        __u32 old;

        BPF_BOUND(bin, QOS_MOUNT_TIMED * QOS_MOUNT_BINS);
        old = __sync_fetch_and_add(&row->bins[bin], n);
        if (old + n < old)
                __sync_fetch_and_add(&row->carry[bin], 1);
}

/* As max_ring_update(). */
STORAGE_INLINE void mount_maximum(struct qos_mount_row *row, __u64 call, __u64 epoch, __u64 nsec) {
        __u64 subwindow = epoch / QOS_LEVEL_EPOCHS(QOS_MOUNT_BINS_LEVEL), i = subwindow % QOS_MOUNT_MAXIMA,
                word = subwindow << QOS_MAXIMUM_BITS | (nsec < QOS_MAXIMUM_MASK ? nsec : QOS_MAXIMUM_MASK);

        BPF_BOUND(i, QOS_MOUNT_MAXIMA);
        for (int try = 0; try < 4; try++) {
                __u64 old = *(volatile __u64*) &row->maxima[call][i];

                if ((old >> QOS_MAXIMUM_BITS == word >> QOS_MAXIMUM_BITS && old >= word) ||
                    __sync_val_compare_and_swap(&row->maxima[call][i], old, word) == old)
                        break;
        }
        for (int try = 0; try < 4; try++) {
                __u64 old = *(volatile __u64*) &row->maxima_total[call];

                if (old >= nsec || __sync_val_compare_and_swap(&row->maxima_total[call], old, nsec) == old)
                        break;
        }
}

/* result: as storage_record(), extended. */
BPF_SUBPROG int mount_row_count(struct qos_mount_row *row, __u64 call, __s64 result) {
        BPF_REQUIRE(row);
        BPF_BOUND(call, QOS_MOUNT_CALLS);
        __sync_fetch_and_add(&row->counts.count[call], 1);
        if (result_is_error(result))
                __sync_fetch_and_add(&row->counts.errors[call], 1);
        else if (call <= QOS_STORAGE_WRITE)
                __sync_fetch_and_add(&row->counts.bytes[call], (__u64) result);
        return 0;
}

BPF_SUBPROG int mount_row_add(struct qos_mount_row *row, __u64 call, __u64 epoch, __u64 nsec) {
        BPF_REQUIRE(row);
        BPF_BOUND(call, QOS_MOUNT_TIMED);
        __sync_fetch_and_add(&row->counts.nsec[call], nsec);
        mount_maximum(row, call, epoch, nsec);
        mount_count_bin(row, call * QOS_MOUNT_BINS +
                             mount_bin(histogram_coarse_bin(histogram_fine_bin(nsec))), 1);
        return 0;
}

/* A call that ended, to be called after storage_record(): no call is in a row and not in the unit. row: 0 if
 * the file system has none. */
STORAGE_INLINE void mount_record(void *map, __u32 row, __u64 now, __u32 call, __s64 result, __u64 nsec) {
        struct qos_storage_header *h = storage_header_get(map);
        struct qos_mount_row *r = mount_row_get(map, row);
        __u64 i = row;

        if (!h || !r || (call >= QOS_STORAGE_TIMED && call != QOS_STORAGE_CHANGE))
                return;
        if (row > 0)
                mount_row_count(r, call < QOS_STORAGE_TIMED ? call : QOS_MOUNT_CHANGE,
                                result_extend(result));
        if (call >= QOS_MOUNT_TIMED)
                return;
        BPF_BOUND(i, QOS_STORAGE_ROWS);
        __sync_fetch_and_add(&h->mounts[i].nsec, nsec);
        mount_row_add(r, call, now / QOS_EPOCH_NSEC, nsec);
}

/* ---- assignment --------------------------------------------------------------------------------------- */

/* Without a branch, as the verifier would walk all that follows twice. */
STORAGE_INLINE void maximum_move(__u64 *from, __u64 *to) {
        *to = histogram_choose(histogram_if_less(*to, *from), *from, *to);
        *from = 0;
}

struct mount_fold {
        struct qos_mount_row *from;
        struct qos_mount_row *to;
};

static long mount_fold_step(__u64 bin, void *data) {
        struct mount_fold *f = data;
        __u32 n, carry;

        BPF_BOUND(bin, QOS_MOUNT_TIMED * QOS_MOUNT_BINS);
        n = __sync_lock_test_and_set(&f->from->bins[bin], 0);
        carry = __sync_lock_test_and_set(&f->from->carry[bin], 0);
        mount_count_bin(f->to, bin, n);
        if (carry > 0)
                __sync_fetch_and_add(&f->to->carry[bin], carry);
        for (__u32 k = 0; k < QOS_MOUNT_CHECKPOINTS; k++) {
                f->to->checkpoints[k][bin] += f->from->checkpoints[k][bin];
                f->from->checkpoints[k][bin] = 0;
        }
        return 0;
}

struct mount_clear {
        void *map;
        __u32 row;
        __u32 _padding;
};

static long mount_clear_step(__u64 k, void *data) {
        struct mount_clear *clear = data;
        struct qos_mount_marks *marks = mount_marks_get(clear->map, (__u32) k);
        __u64 i = clear->row, j = k % 3;

        BPF_BOUND(i, QOS_STORAGE_ROWS);
        BPF_BOUND(j, 3);
        if (!marks)
                return 1;
        marks->rows[j][i] = (struct qos_mount_mark) {};
        return 0;
}

/* Merges a row into row 0, and resets it. To be called while no checkpoint is written; readers check folds
 * before and after. What other programs record meanwhile may land in either. */
STORAGE_INLINE void mount_fold(void *map, struct qos_storage_header *h, __u32 number) {
        struct mount_fold f = { .from = mount_row_get(map, number), .to = mount_row_get(map, 0) };
        struct mount_clear clear = { .map = map, .row = number };

        if (!f.from || !f.to)
                return;
        __sync_fetch_and_add(&h->folds, 1);
        row_loop(QOS_MOUNT_TIMED * QOS_MOUNT_BINS, mount_fold_step, &f);
        row_loop(QOS_MOUNT_MARKS, mount_clear_step, &clear);
        f.from->counts = (struct qos_mount_counts) {};
        for (__u32 call = 0; call < QOS_MOUNT_TIMED; call++) {
                for (__u32 i = 0; i < QOS_MOUNT_MAXIMA; i++)
                        maximum_move(&f.from->maxima[call][i], &f.to->maxima[call][i]);
                maximum_move(&f.from->maxima_total[call], &f.to->maxima_total[call]);
        }
        __sync_fetch_and_add(&h->folds, 1);
}

/* A mask that the compiler does not turn back into a branch: each one doubles what the verifier walks. */
STORAGE_INLINE __u64 mount_mask(__u64 mask) {
        BPF_OPAQUE(mask);
        return mask;
}

/* Row of the file system; 0: none. */
BPF_SUBPROG int mount_find(struct qos_storage_header *h, const struct qos_address *key) {
        __u64 found = 0;

        BPF_REQUIRE(h);
        BPF_REQUIRE(key);
        for (int i = 1; i < (int) QOS_STORAGE_ROWS; i++)
                found = histogram_choose(mount_mask(histogram_if_zero(mount_identity(&h->mounts[i].key) ^
                                                                      mount_identity(key)) &
                                                    ~histogram_if_zero(h->mounts[i].used)), i, found);
        return found;
}

/* Row of another file system that had the device number before; else an unused one; else 0. */
BPF_SUBPROG int mount_find_replaceable(struct qos_storage_header *h, const struct qos_address *key) {
        __u32 device;
        __u64 unused = 0, same = 0;

        BPF_REQUIRE(h);
        BPF_REQUIRE(key);
        device = *(const __u32*) (key->address + 8);
        for (int i = QOS_STORAGE_ROWS - 1; i > 0; i--) {
                unused = histogram_choose(mount_mask(histogram_if_zero(h->mounts[i].taken)), i, unused);
                same = histogram_choose(mount_mask(histogram_if_zero(device ^
                                                                     QOS_MOUNT_DEVICE(&h->mounts[i])) &
                                                   ~histogram_if_zero(h->mounts[i].used)), i, same);
        }
        return same ?: unused;
}

/* Row of the file system with the least time. */
BPF_SUBPROG int mount_find_least(struct qos_storage_header *h) {
        __u64 least = ~0ULL >> 1, row = 0;

        BPF_REQUIRE(h);
        for (int i = 1; i < (int) QOS_STORAGE_ROWS; i++) {
                __u64 nsec = h->mounts[i].nsec,
                        less = mount_mask(~histogram_if_zero(h->mounts[i].used) &
                                          histogram_if_less(nsec, least));

                least = histogram_choose(less, nsec, least);
                row = histogram_choose(less, i, row);
        }
        return row;
}

STORAGE_INLINE void mount_name(struct qos_mount *mount, const struct qos_address *key, __u64 super_block,
                               __u64 nsec) {
        mount->key = *key;
        mount->nsec = nsec;
        mount_read_type(mount->type, sizeof(mount->type), super_block);
        __sync_lock_test_and_set(&mount->used, 1);
}

/* Assigns a row that has a file system already, unless its time is more. Returns it; 0: none. */
STORAGE_INLINE __u32 mount_replace(void *map, struct qos_storage_header *h, const struct qos_address *key,
                                   __u64 super_block, __u64 nsec, __u64 now) {
        struct qos_heavy_hitters *c = &h->challengers;
        __u64 mine = QOS_CHALLENGERS, lead = 0, row = (__u32) mount_find_replaceable(h, key);

        if (row == 0) {
                mine = challenger_add(c, key, nsec, now);
                if (mine >= QOS_CHALLENGERS)
                        return 0;
                BPF_BOUND(mine, QOS_CHALLENGERS);
                lead = c->list[mine].nsec;
                row = (__u32) mount_find_least(h);
        }
        BPF_BOUND(row, QOS_STORAGE_ROWS);
        if (row == 0 || (mine < QOS_CHALLENGERS && lead <= h->mounts[row].nsec) ||
            __sync_val_compare_and_swap(&h->rolling, 0, window_cpu() + 1) != 0)
                return 0;
        if (mine < QOS_CHALLENGERS) {
                c->list[mine].nsec = 0;
                c->changed_at = now;
        }
        __sync_lock_test_and_set(&h->mounts[row].used, 0);
        mount_fold(map, h, (__u32) row);
        mount_name(&h->mounts[row], key, super_block, lead);
        __sync_lock_test_and_set(&h->rolling, 0);
        return (__u32) row;
}

/* A file system without a row has taken nsec. It gets an unused one, or that of a file system that had its
 * device number before; or, once its Misra-Gries counter exceeds the least time of a file system with a row,
 * that one's. Many similar ones do not displace each other. Two programs may race for an unused row, and get
 * two: readers add these. Returns the row; 0: none. */
STORAGE_INLINE __u32 mount_enter(void *map, struct qos_storage_header *h, const struct qos_address *key,
                                 __u64 super_block, __u64 nsec, __u64 now) {
        __u32 row = 0;

        for (int try = 0; try < 4; try++) {
                __u64 i = (__u32) mount_find_replaceable(h, key);

                BPF_BOUND(i, QOS_STORAGE_ROWS);
                if (i == 0 || h->mounts[i].used)
                        break;
                if (__sync_val_compare_and_swap(&h->mounts[i].taken, 0, 1) != 0)
                        continue;
                mount_name(&h->mounts[i], key, super_block, 0);
                return (__u32) i;
        }
        if (__sync_val_compare_and_swap(&h->challengers.busy, 0, 1) != 0)
                return 0;
        /* Another program may have entered it since */
        row = (__u32) mount_find(h, key);
        if (row == 0)
                row = mount_replace(map, h, key, super_block, nsec, now);
        __sync_lock_test_and_set(&h->challengers.busy, 0);
        return row;
}
