/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

/* Storage maps, and what is known of the threads of units: the calls that the kernel counts in each. */

#include "own-pid.h"
#include "thread-storage.h"

#define PREEMPTION_OBJECT storage
#include "preemption.h"

static __always_inline union qos_storage_element* storage_element(void *map, __u32 i) {
        return bpf_map_lookup_elem(map, &i);
}

/* Writes the checkpoints of the map in the slot; verified once, as opposed to each place that records. */
BPF_SUBPROG int storage_roll_slot(__u32 slot, __u64 epoch);
#define storage_roll_due(map, h, epoch) storage_roll_slot((h)->slot, epoch)

#define mount_read_type(buffer, size, address)                                                          \
        do {                                                                                            \
                const struct super_block *_sb = (const struct super_block*) (address);                  \
                (void) bpf_probe_read_kernel_str(buffer, size, BPF_CORE_READ(_sb, s_type, name));       \
        } while (0)

#include "storage-record.h"

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
        __uint(max_entries, UNITS_MAX_LIMIT);
        __type(key, __u32);
        __array(values, struct {
                __uint(type, BPF_MAP_TYPE_ARRAY);
                __uint(map_flags, BPF_F_MMAPABLE);
                /* resized by the daemon to the number of possible CPUs */
                __uint(max_entries, QOS_STORAGE_ELEMENTS(1));
                __type(key, __u32);
                __uint(value_size, sizeof(union qos_storage_element));
        });
} storage_maps SEC(".maps");

BPF_SUBPROG int storage_roll_slot(__u32 slot, __u64 epoch) {
        void *map = bpf_map_lookup_elem(&storage_maps, &slot);
        struct qos_storage_header *h = map ? storage_header_get(map) : NULL;

        if (h)
                storage_roll(map, h, epoch);
        return 0;
}

/* The file system of a call. */
struct storage_mount {
        __u64 super_block;      /* address; 0: not known */
        struct qos_address key; /* see mount_set_key() */
        __u32 row;              /* that it had, unless reassigned since */
};

/* A thread of a unit (TASK_STORAGE). */
struct storage_thread {
        struct qos_owner owner; /* of the recorded calls; generation 0: none */
        __u32 generation;       /* of the storage map */
        __u32 turn;             /* run to be measured next (overhead.h) */
        __u32 pid;              /* as qosd sees it; 0: it does not */
        __u64 loaded_at;        /* load time of the programs that recorded them */
        __u64 frame;            /* of the outermost call in progress: address on the stack; 0: none */
        __u64 begun;            /* calls of the thread by then, as the kernel counts them */
        __u64 since;            /* CLOCK_MONOTONIC ns */
        __u32 call;             /* enum qos_storage_call */
        __u32 never;            /* 0, see overhead_begin_sample() */
        __u64 counted[4];       /* what the kernel has counted in the task, recorded or from before */
        struct storage_mount mount; /* of the last call */
        __u64 dentry;           /* address, of the file of that call; 0: not known */
        __u64 account;          /* contention map (THREAD_MAP_ID) with the times below; 0: not known */
        __u64 times[QOS_STATES]; /* of the thread when the call began, as in struct thread */
        __u64 request_file;     /* address, of the last read or write of libaio */
        __u32 verified;         /* reads and writes that have begun, whose call may still follow: sendfile(2)
                                 * and splice(2) verify both files first */
        __u32 in_request;       /* 1: the last file that was verified is that of the request */
        __u64 verified_at;      /* the last of them, CLOCK_MONOTONIC ns */
        __u32 fault_is_open;    /* 1: a fault on a mapped file has not ended, or was not seen to be major */
        __u64 faults;           /* of the thread, as the kernel counts them at their end, at the last one
                                 * on a mapped file, plus 1; 0: none */
        __u64 major_faults;     /* the same, major ones alone */
        __u64 fault_mapping;    /* the last file and page of a fault whose page was not mapped */
        __u64 fault_page;
        __u64 mapping;          /* the last file whose pages were looked up */
        __u64 page;             /* of these the first one, and the last one */
        __u64 last_page;
        __u64 lookup_calls;     /* reads of the thread by then, as the kernel counts them at their end */
        __u64 added;            /* address of the last folio that was added to the page cache */
        __u64 added_mapping;    /* pages that were added since the last lookup: their file, the first and the
                                 * last one plus 1, and their number */
        __u64 added_first;
        __u64 added_end;
        __u64 added_pages;
};

BPF_STORAGE_MAP(storage_threads, TASK, struct storage_thread);

/* A read or write that goes on when the call that requested it has returned, by the address of what the
 * kernel has of it. The kernel reuses these: one that begins replaces an earlier one whose end was not
 * seen. */
struct storage_request {
        struct qos_owner owner;
        __u32 generation;       /* of the storage map */
        __u32 call;             /* enum qos_storage_call */
        __u32 pid;              /* of the thread that has submitted it, as qosd sees it; 0: not known */
        __u32 _padding;
        __u64 since;            /* CLOCK_MONOTONIC ns */
        struct storage_mount mount;
};

struct {
        __uint(type, BPF_MAP_TYPE_LRU_HASH);
        __uint(max_entries, QOS_STORAGE_REQUESTS);
        __type(key, __u64);
        __type(value, struct storage_request);
} storage_requests SEC(".maps");

static __always_inline void* storage_map_get(const struct qos_owner *owner, __u32 *ret_generation) {
        struct qos_storage_header *h;
        __u32 slot = owner->slot;
        void *map;

        map = bpf_map_lookup_elem(&storage_maps, &slot);
        h = map ? storage_header_get(map) : NULL;
        if (!h || h->unit != owner->generation)
                return NULL;
        *ret_generation = h->generation;
        return map;
}

/* Without these fields the programs do not load. */
static __always_inline void counted_get(struct task_struct *task, __u64 *ret) {
        ret[0] = *(volatile __u64*) &task->ioac.syscr;
        ret[1] = *(volatile __u64*) &task->ioac.syscw;
        ret[2] = *(volatile __u64*) &task->ioac.rchar;
        ret[3] = *(volatile __u64*) &task->ioac.wchar;
}

/* A major fault is one once the kernel has counted it, at its end. */
static __always_inline void fault_settle(const struct task_struct *task, struct storage_thread *t,
                                         const struct storage_shard *shard) {
        if (!t->fault_is_open || task->min_flt + task->maj_flt + 1 == t->faults ||
            __sync_lock_test_and_set(&t->fault_is_open, 0) == 0)
                return;
        if (task->maj_flt != t->major_faults)
                storage_count(shard, QOS_STORAGE_FAULTS_MAJOR, 1);
}

/* Records the calls of a thread since the last time. The thread and the iterator may run concurrently: the
 * exchanges make the sum of both right. */
static __attribute__((noinline)) int counted_record(struct task_struct *task, struct storage_thread *t,
                                                    void *map) {
        struct storage_shard shard;
        __u64 counted[4], n;

        if (!storage_shard_enter(map, bpf_get_smp_processor_id(), bpf_ktime_get_ns(), &shard))
                return 0;
        fault_settle(task, t, &shard);
        counted_get(task, counted);
        for (int i = 0; i < 4; i++) {
                if (counted[i] == t->counted[i])
                        continue;
                n = counted[i] - __sync_lock_test_and_set(&t->counted[i], counted[i]);
                if (i < 2)
                        storage_count(&shard, QOS_STORAGE_CALLS_READ + i, n);
                else
                        storage_add(&shard, QOS_STORAGE_CALLS_BYTES_READ + i - 2, n);
        }
        return 0;
}

/* Reads or writes of the unit that no program has seen, or has seen the end of. */
static __attribute__((noinline)) int unseen_record(void *map, __u32 n) {
        struct storage_shard shard;

        if (n > 0 && storage_shard_enter(map, bpf_get_smp_processor_id(), bpf_ktime_get_ns(), &shard))
                storage_count(&shard, QOS_STORAGE_UNSEEN, n);
        return 0;
}

/* Time after which what has been verified belongs to no call that follows. */
#define VERIFIED_NSEC_MAX 10000000ULL

static __always_inline void verified_flush(struct storage_thread *t, void *map) {
        unseen_record(map, __sync_lock_test_and_set(&t->verified, 0));
}

/* The thread is in another unit than before, or in none: its calls so far were in the one before, whose map
 * may be retained. */
static __always_inline void storage_thread_leave(struct task_struct *task, struct storage_thread *t) {
        __u32 generation;
        void *map;

        t->frame = 0;
        if (t->owner.generation == 0 || t->loaded_at != loaded_at)
                return;
        map = storage_map_get(&t->owner, &generation);
        if (map && generation == t->generation)
                counted_record(task, t, map);
}

/* Task storage of a thread of a unit with the probe, and the map. Calls from before the thread was in the
 * unit, or was known, are not the unit's. begun: the thread is new, so that all its calls are known. */
static __always_inline struct storage_thread* storage_thread_get(struct task_struct *task, void **ret_map,
                                                                 bool begun) {
        struct qos_owner owner = {};
        struct storage_thread *t;
        __u32 generation = 0;
        void *map = NULL;

        if (group_owner(task->cgroups->dfl_cgrp, &owner))
                map = storage_map_get(&owner, &generation);
        t = map ? BPF_STORAGE_CREATE(task, storage_threads, task) :
            bpf_task_storage_get(&storage_threads, task, 0, 0);
        if (!t) {
                if (map)
                        element_lost(QOS_STATISTIC_LOST_STORAGE_THREADS, &owner);
                return NULL;
        }
        if (!map) {
                storage_thread_leave(task, t);
                t->owner.generation = 0;
                return NULL;
        }
        if (t->owner.generation != owner.generation || t->owner.slot != owner.slot ||
            t->generation != generation || t->loaded_at != loaded_at) {
                storage_thread_leave(task, t);
                if (begun)
                        t->counted[0] = t->counted[1] = t->counted[2] = t->counted[3] = 0;
                else
                        counted_get(task, t->counted);
                t->turn = overhead_first_sample(task->pid);
                t->pid = own_number(task);
                t->owner = owner;
                t->generation = generation;
                t->loaded_at = loaded_at;
        }
        *ret_map = map;
        return t;
}
