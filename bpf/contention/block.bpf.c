// SPDX-License-Identifier: GPL-2.0-or-later

/* The probe "block": block I/O of units.
 *
 *   block_start     a request is inserted, mostly in the context of its originator, and attributed
 *   block_issue     it is issued to the device
 *   block_complete  a part of it is completed
 *   block_done      it is done
 *
 * These are the places where the kernel updates /sys/block/DEVICE/stat, so the metrics are comparable. Every
 * request of the machine is counted for its device, to compare the I/O of a unit with, and costs one map
 * lookup.
 *
 * Bio-based devices (zram, device mapper, md) have no requests: those of the underlying devices are
 * counted. */

#include "contention-maps.h"

char LICENSE[] SEC("license") = "GPL";

/* A request of a unit in flight. */
struct block {
        __u64 map_id;
        __u64 loaded_at;        /* load time of the programs that created the entry */
        __u64 start;            /* CLOCK_MONOTONIC ns */
        __u64 issued;           /* CLOCK_MONOTONIC ns of the last issue; 0: not yet */
        __u32 kind;             /* enum qos_block_counter */
        bool writeback;         /* issued by a task outside of the unit */
        __u16 merges;           /* merges, as of the last issue */
};

/* Requests in flight, by address of struct request, which the kernel recycles: the element of a request that
 * was merged into another is removed when its struct request is used again. Sized for 16 devices with the
 * usual maximum of 1024 requests. */
struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __uint(map_flags, BPF_F_NO_PREALLOC);
        __uint(max_entries, 16384);
        __type(key, __u64);
        __type(value, struct block);
} blocks SEC(".maps");

BPF_ARRAY_MAP(block_devices, ARRAY, 1, struct qos_block_devices);

static __always_inline struct block* block_find(__u64 key) {
        struct block *b = bpf_map_lookup_elem(&blocks, &key);

        return b && b->loaded_at == loaded_at ? b : NULL;
}

/* Commands issued by drivers or by user space with SG_IO */
static __always_inline bool request_is_command(struct request *request) {
        __u32 operation = request->cmd_flags & REQ_OP_MASK;

        return operation == REQ_OP_DRV_IN || operation == REQ_OP_DRV_OUT;
}

/* Like op_stat_group() in the kernel, with flushes as a separate kind. Valid at block_start only: later the
 * flag has been cleared. */
static __always_inline __u32 request_kind(struct request *request) {
        __u32 operation = request->cmd_flags & REQ_OP_MASK;

        if (operation == REQ_OP_DISCARD)
                return QOS_BLOCK_DISCARDS;
        if (!(operation & 1))
                return QOS_BLOCK_READS;
        return request->cmd_flags & REQ_PREFLUSH && request->__data_len == 0 ? QOS_BLOCK_FLUSHES :
               QOS_BLOCK_WRITES;
}

static __always_inline __u32 request_row(struct request *request) {
        struct gendisk *disk = request->q->disk;
        struct qos_block_devices *d;
        __u32 zero = 0, device;

        d = bpf_map_lookup_elem(&block_devices, &zero);
        device = block_device(disk->major, disk->first_minor);
        if (!d || device == 0)
                return 0;
        for (__u32 i = 0; i < QOS_BLOCK_DEVICES; i++) {
                __u32 known = *(volatile __u32*) &d->devices[i];

                if (known == 0)
                        known = __sync_val_compare_and_swap(&d->devices[i], 0, device) ?: device;
                if (known == device)
                        return i + 1;
        }
        return 0;
}

/* Recent users of each device, to attribute I/O that is not of the unit. A few tens of control groups do I/O
 * at a time; the least recently used is evicted. */
struct {
        __uint(type, BPF_MAP_TYPE_LRU_HASH);
        __uint(max_entries, QOS_BLOCK_USERS);
        __type(key, struct qos_block_user);
        __type(value, struct qos_block_use);
} block_users SEC(".maps");

static __always_inline void block_use(struct request *request, struct cgroup *group) {
        struct qos_block_user key = { .group = group->kn->id };
        struct gendisk *disk = request->q->disk;
        struct qos_block_use *use, none = {};

        key.device = block_device(disk->major, disk->first_minor);
        use = bpf_map_lookup_elem(&block_users, &key);
        if (!use) {
                (void) bpf_map_update_elem(&block_users, &key, &none, BPF_NOEXIST);
                use = bpf_map_lookup_elem(&block_users, &key);
        }
        if (!use) {
                element_lost(QOS_STATISTIC_LOST_BLOCK_USERS, NULL);
                return;
        }
        __sync_fetch_and_add(&use->requests, 1);
        __sync_fetch_and_add(&use->bytes, request->__data_len);
}

/* Contention map to attribute a request to, as a thread's word; 0: none. The kernel associates a bio with
 * the innermost control group that has the io controller. If that is an ancestor of the task's group, the
 * latter is more precise. Otherwise it is writeback on behalf of another group, known only by this
 * association. */
static __always_inline __u64 request_find_map_id(struct request *request, bool *ret_writeback) {
        struct cgroup *own = bpf_get_current_task_btf()->cgroups->dfl_cgrp, *noted = NULL, *around = NULL;
        __u32 level;

        *ret_writeback = false;
        if (bpf_core_field_exists(struct bio, bi_blkg))
                noted = request->bio->bi_blkg->blkcg->css.cgroup;
        if (!noted || noted->root->hierarchy_id != 0) {
                block_use(request, own);
                return group_find_map_id(own, QOS_PROBE_CONFIG_BLOCK);
        }

        level = noted->level;
        if (level <= own->level)
                (void) bpf_probe_read_kernel(&around, sizeof(around),
                                             (char*) own + bpf_core_field_offset(struct cgroup, ancestors) +
                                             level * sizeof(around));
        if (around == noted) {
                block_use(request, own);
                return group_find_map_id(own, QOS_PROBE_CONFIG_BLOCK);
        }
        *ret_writeback = true;
        block_use(request, noted);
        return group_find_map_id(noted, QOS_PROBE_CONFIG_BLOCK);
}

SEC("tp_btf/block_io_start")
int BPF_PROG(block_start, struct request *request) {
        struct block b = { .loaded_at = loaded_at, .start = bpf_ktime_get_ns() };
        __u64 key = (__u64) request;

        b.map_id = request_find_map_id(request, &b.writeback);
        if (!b.map_id || request_is_command(request)) {
                bpf_map_delete_elem(&blocks, &key);
                return 0;
        }
        b.kind = request_kind(request);
        if (bpf_map_update_elem(&blocks, &key, &b, BPF_ANY) < 0)
                contention_lost(QOS_STATISTIC_LOST_BLOCKS, b.map_id);
        contention_record_overhead(b.map_id, b.start, 1);
        return 0;
}

/* Maximum number of bios counted. A request has at most as many as the device takes segments, mostly 128 or
 * 256; NVMe may take more, and such a request counts fewer merges. */
#define BLOCK_MERGES_MAX 256

/* Number of merges of a request: each bio after the first one was merged, by itself or together with its own
 * request. */
static __always_inline __u16 request_merges(struct request *request) {
        struct bio *bio = request->bio;
        __u16 n = 0;
        int i;

        bpf_for(i, 0, BLOCK_MERGES_MAX) {
                if (!bio || !bio->bi_next)
                        break;
                bio = bio->bi_next;
                n++;
        }
        return n;
}

SEC("tp_btf/block_rq_issue")
int BPF_PROG(block_issue, struct request *request) {
        __u64 key = (__u64) request;
        struct block *b;

        b = block_find(key);
        if (b) {
                b->issued = bpf_ktime_get_ns();
                b->merges = request_merges(request);
                contention_record_overhead(b->map_id, b->issued, 1);
        }
        return 0;
}

static __always_inline struct qos_contention_map* machine_enter(__u64 now) {
        struct qos_contention_map *c = contention_find(QOS_SLOT_MACHINE);

        if (c)
                /* The machine has no per-CPU maps */
                contention_roll(c, QOS_SLOT_MACHINE, now / QOS_EPOCH_NSEC);
        return c;
}

/* Completions run with interrupts enabled, or in an interrupt that may hit such a run, and the kernel skips
 * a program that is interrupted by itself. Hence there are two copies of each, and the second one only
 * handles runs that the first one had to skip. block_running: set while the first one is running on this
 * CPU, [0] for block_complete, [1] for block_done. */
BPF_ARRAY_MAP(block_running, PERCPU_ARRAY, 2, __u32);

static __always_inline void block_run(__u32 i, bool running) {
        __u32 *r = bpf_map_lookup_elem(&block_running, &i);

        if (r)
                *(volatile __u32*) r = running;
}

static __always_inline bool block_runs(__u32 i) {
        __u32 *r = bpf_map_lookup_elem(&block_running, &i);

        return r && *(volatile __u32*) r;
}

/* Called for each completed part, before block_done. */
static __always_inline int block_completed(struct request *request, unsigned int bytes) {
        __u64 now, key = (__u64) request;
        struct qos_contention_map *c;
        struct block *b;
        __u32 row, kind;

        if (bytes == 0 || request_is_command(request))
                return 0;
        now = bpf_ktime_get_ns();
        row = request_row(request);
        kind = request_kind(request);

        c = machine_enter(now);
        if (c)
                contention_sum_add(c, QOS_BLOCK_FIRST_SUM + row * QOS_BLOCK_SUMS + QOS_BLOCK_BYTES + kind,
                                   bytes);

        b = block_find(key);
        c = b ? contention_enter(b->map_id, now) : NULL;
        if (!c)
                return 0;
        contention_sum_add(c, QOS_BLOCK_FIRST_SUM + row * QOS_BLOCK_SUMS + QOS_BLOCK_BYTES + kind, bytes);
        if (b->writeback && kind == QOS_BLOCK_WRITES)
                contention_sum_add(c, QOS_BLOCK_WRITEBACK_BYTES, bytes);
        contention_record_overhead(b->map_id, now, 1);
        return 0;
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(block_complete, struct request *request, int error, unsigned int bytes) {
        block_run(0, true);
        block_completed(request, bytes);
        block_run(0, false);
        return 0;
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(block_complete_nested, struct request *request, int error, unsigned int bytes) {
        return block_runs(0) ? block_completed(request, bytes) : 0;
}

static __always_inline int block_is_done(struct request *request) {
        __u64 now, map_id, queued, served, key = (__u64) request;
        struct qos_contention_map *c;
        struct block *b;
        __u32 row;

        b = block_find(key);
        if (!b || request_is_command(request))
                return 0;
        now = bpf_ktime_get_ns();
        c = contention_enter(b->map_id, now);
        if (c) {
                /* A flush is never issued itself: the kernel issues one for all that are pending */
                queued = b->issued > b->start ? b->issued - b->start : 0;
                served = now - b->start - queued;
                row = request_row(request);
                contention_count(c, QOS_BLOCK_FIRST_COUNTER + row * QOS_BLOCK_COUNTERS + b->kind, 1);
                contention_sum_add(c, QOS_BLOCK_FIRST_SUM + row * QOS_BLOCK_SUMS + QOS_BLOCK_QUEUE_NSEC,
                                   queued);
                contention_sum_add(c, QOS_BLOCK_FIRST_SUM + row * QOS_BLOCK_SUMS + QOS_BLOCK_DEVICE_NSEC,
                                   served);
                if (b->merges > 0)
                        contention_sum_add(c, QOS_BLOCK_FIRST_SUM + row * QOS_BLOCK_SUMS + QOS_BLOCK_MERGES,
                                           b->merges);
                if (b->kind == QOS_BLOCK_READS || b->kind == QOS_BLOCK_WRITES) {
                        bool reads = b->kind == QOS_BLOCK_READS;

                        contention_add(c, reads ? QOS_BLOCK_READ_QUEUE : QOS_BLOCK_WRITE_QUEUE, queued);
                        contention_add(c, reads ? QOS_BLOCK_READ_DEVICE : QOS_BLOCK_WRITE_DEVICE, served);
                }
        }
        map_id = b->map_id;
        bpf_map_delete_elem(&blocks, &key);
        contention_record_overhead(map_id, now, 1);
        return 0;
}

SEC("tp_btf/block_io_done")
int BPF_PROG(block_done, struct request *request) {
        block_run(1, true);
        block_is_done(request);
        block_run(1, false);
        return 0;
}

SEC("tp_btf/block_io_done")
int BPF_PROG(block_done_nested, struct request *request) {
        return block_runs(1) ? block_is_done(request) : 0;
}
