// SPDX-License-Identifier: GPL-2.0-or-later

/* The probe "storage": what threads of units request of file systems.
 *
 *   storage_NAME_begin, storage_NAME_end   a function of the virtual file system, where fentry is available
 *   storage_fork, storage_exit             a thread starts without calls; its last calls are recorded
 *   storage_find_calls                     iterator: records the latest calls, and those in flight
 *
 *   storage_ring_*, storage_aio_*          reads and writes of io_uring and libaio
 *   storage_pages_*, storage_fault, storage_map_pages   the page cache
 *
 * The outermost call of a thread counts: what a file system requests of the one below it, or of another
 * file, is a part of that call. */

#include "maps.h"

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

char LICENSE[] SEC("license") = "GPL";

const volatile __u64 loaded_at __weak = 0;
const volatile __u32 page_size __weak = 4096;

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
        __u64 loaded_at;        /* load time of the programs that recorded them */
        __u64 frame;            /* of the outermost call in progress: address on the stack; 0: none */
        __u64 begun;            /* calls of the thread by then, as the kernel counts them */
        __u64 since;            /* CLOCK_MONOTONIC ns */
        __u32 call;             /* enum qos_storage_call */
        __u32 never;            /* 0, see overhead_begin_sample() */
        __u64 counted[4];       /* what the kernel has counted in the task, recorded or from before */
        struct storage_mount mount; /* of the last call */
        __u32 fault_is_open;    /* 1: a fault on a mapped file has not ended, or was not seen to be major */
        __u64 faults;           /* of the thread, as the kernel counts them at their end, at the last one
                                 * on a mapped file, plus 1; 0: none */
        __u64 major_faults;     /* the same, major ones alone */
        __u64 mapping;          /* the last file whose pages were looked up */
        __u64 page;             /* of these the first one, and the last one */
        __u64 last_page;
        __u64 lookup_calls;     /* reads of the thread by then, as the kernel counts them at their end */
        __u64 added;            /* address of the last folio that was added to the page cache */
};

BPF_STORAGE_MAP(storage_threads, TASK, struct storage_thread);

/* A read or write that goes on when the call that requested it has returned, by the address of what the
 * kernel has of it. The kernel reuses these: one that begins replaces an earlier one whose end was not
 * seen. */
struct storage_request {
        struct qos_owner owner;
        __u32 generation;       /* of the storage map */
        __u32 call;             /* enum qos_storage_call */
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
                                         struct qos_storage_counts *shard) {
        if (!t->fault_is_open || task->min_flt + task->maj_flt + 1 == t->faults ||
            __sync_lock_test_and_set(&t->fault_is_open, 0) == 0)
                return;
        if (task->maj_flt != t->major_faults)
                storage_add(shard, QOS_STORAGE_FAULTS_MAJOR, 1);
}

/* Records the calls of a thread since the last time. The thread and the iterator may run concurrently: the
 * exchanges make the sum of both right. */
static __attribute__((noinline)) int counted_record(struct task_struct *task, struct storage_thread *t,
                                                    void *map) {
        struct qos_storage_counts *shard;
        struct qos_storage_header *h;
        __u64 counted[4], now;

        h = storage_header_get(map);
        shard = storage_counts_get(map, QOS_STORAGE_SHARD(bpf_get_smp_processor_id()));
        if (!h || !shard)
                return 0;
        now = bpf_ktime_get_ns() / QOS_EPOCH_NSEC;
        if (now > *(volatile __u64*) &h->epoch)
                storage_roll_due(map, h, now);
        fault_settle(task, t, shard);
        counted_get(task, counted);
        for (int i = 0; i < 4; i++)
                if (counted[i] != t->counted[i])
                        storage_add(shard, QOS_STORAGE_CALLS_READ + i, counted[i] -
                                    __sync_lock_test_and_set(&t->counted[i], counted[i]));
        return 0;
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
        t = bpf_task_storage_get(&storage_threads, task, 0, map ? BPF_LOCAL_STORAGE_GET_F_CREATE : 0);
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
                t->owner = owner;
                t->generation = generation;
                t->loaded_at = loaded_at;
        }
        *ret_map = map;
        return t;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(storage_fork, struct task_struct *parent, struct task_struct *child) {
        void *map;

        preemption_disable();
        (void) storage_thread_get(child, &map, /* begun= */ true);
        preemption_enable();
        return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(storage_exit, struct task_struct *task) {
        struct storage_thread *t;
        void *map;

        preemption_disable();
        t = storage_thread_get(task, &map, /* begun= */ false);
        if (t)
                counted_record(task, t, map);
        preemption_enable();
        return 0;
}

/* ---- calls -------------------------------------------------------------------------------------------- */

/* Of eventfd, timerfd and the like, which are regular files since Linux 6.16. */
#define ANON_INODE_FS_MAGIC 0x09041934

/* Whether files of this kind are in a file system: sockets, pipes and character devices are not. */
static __always_inline bool inode_is_stored(const struct inode *inode) {
        __u32 type = inode->i_mode & S_IFMT;

        return type == S_IFREG ? inode->i_sb->s_magic != ANON_INODE_FS_MAGIC :
               type == S_IFDIR || type == S_IFBLK || type == S_IFLNK;
}

/* Calls of the thread so far, as the kernel counts them at their end. */
static __always_inline __u64 task_count_calls(const struct task_struct *task) {
        return bpf_core_field_exists(task->ioac) ? task->ioac.syscr + task->ioac.syscw : 0;
}

/* A nested call has its frame below that of the outermost one. If that one has ended, and the program for
 * its end was skipped, the new frame is not below it, or the kernel has counted another call since. */
static __always_inline bool call_is_nested(const struct storage_thread *t, __u64 frame, __u64 calls) {
        return t->frame != 0 && frame < t->frame && t->begun == calls;
}

/* One whose end was not seen is none any more once the kernel has counted another one. */
static __always_inline void in_flight_count(const struct task_struct *task, const struct storage_thread *t,
                                            void *map, __u64 session) {
        struct qos_storage_header *h = storage_header_get(map);
        __u64 since = t->since;

        if (!h || t->frame == 0 || t->begun != task_count_calls(task))
                return;
        if (h->in_flight.session != session) {
                h->in_flight.session = session;
                h->in_flight.count = 0;
                h->in_flight.oldest_at = since;
        }
        h->in_flight.count++;
        if (since < h->in_flight.oldest_at)
                h->in_flight.oldest_at = since;
}

SEC("iter/task")
int storage_find_calls(struct bpf_iter__task *ctx) {
        struct qos_iter_session session = { .id = ctx->meta->session_id };
        struct task_struct *task = ctx->task;
        struct storage_thread *t;
        void *map;

        if (!task) {
                bpf_seq_write(ctx->meta->seq, &session, sizeof(session));
                return 0;
        }
        if (task->exit_state)
                return 0;
        t = storage_thread_get(task, &map, /* begun= */ false);
        if (!t)
                return 0;
        counted_record(task, t, map);
        in_flight_count(task, t, map, session.id);
        return 0;
}

static __always_inline void storage_record_overhead(void *map, __u64 begin) {
        struct qos_storage_counts *shard;

        if (begin == 0)
                return;
        shard = storage_counts_get(map, QOS_STORAGE_SHARD(bpf_get_smp_processor_id()));
        if (shard)
                storage_add(shard, QOS_STORAGE_COST,
                            overhead_nsec(begin, bpf_ktime_get_ns()) * OVERHEAD_SAMPLE_PERIOD);
}

/* The file system of the call. */
static __always_inline void mount_set(struct storage_mount *m, const struct super_block *sb) {
        __u64 uuid[2] = {};

        m->super_block = (__u64) sb;
        if (!sb)
                return;
        (void) bpf_probe_read_kernel(uuid, sizeof(uuid), &sb->s_uuid);
        mount_set_key(&m->key, BPF_CORE_READ(sb, s_dev), *(volatile __u64*) &m->super_block, uuid);
}

BPF_SUBPROG int mount_enter_slot(__u32 slot, const struct qos_address *key, __u64 super_block, __u64 nsec) {
        void *map = bpf_map_lookup_elem(&storage_maps, &slot);
        struct qos_storage_header *h = map ? storage_header_get(map) : NULL;

        BPF_REQUIRE(key);
        return h ? mount_enter(map, h, key, super_block, nsec, bpf_ktime_get_ns()) : 0;
}

static __always_inline __u32 mount_get(struct storage_mount *m, void *map, __u64 nsec) {
        struct qos_storage_header *h = storage_header_get(map);
        __u64 row = m->row;

        if (!h || m->super_block == 0)
                return 0;
        BPF_BOUND(row, QOS_STORAGE_ROWS);
        if (h->mounts[row].used && mount_identity(&h->mounts[row].key) == mount_identity(&m->key))
                return (__u32) row;
        row = (__u32) mount_find(h, &m->key);
        if (row == 0)
                row = (__u32) mount_enter_slot(h->slot, &m->key, m->super_block, nsec);
        m->row = (__u32) row;
        return (__u32) row;
}

static __attribute__((noinline)) int call_begin(__u64 frame, __u32 call, const struct super_block *sb) {
        struct task_struct *task = bpf_get_current_task_btf();
        struct storage_thread *t;
        __u64 calls, begin;
        void *map;

        t = storage_thread_get(task, &map, /* begun= */ false);
        if (!t)
                return 0;
        begin = overhead_begin_sample(t);
        calls = task_count_calls(task);
        if (!call_is_nested(t, frame, calls)) {
                t->frame = frame;
                t->begun = calls;
                t->call = call;
                mount_set(&t->mount, sb);
                t->since = bpf_ktime_get_ns();
        }
        storage_record_overhead(map, begin);
        return 0;
}

/* Within a function that has no row for it, the compiler removes that part. */
static __always_inline void call_record(struct storage_thread *t, void *map, __u32 call, __s64 result,
                                        __u64 now, bool in_row) {
        __u64 nsec = now - t->since;

        storage_record(map, bpf_get_smp_processor_id(), now, call, result, nsec);
        if (in_row)
                mount_record(map, mount_get(&t->mount, map, nsec), now, call, result, nsec);
}

/* also: another call that this one is at the same time, on another file system; QOS_STORAGE_CALLS: none */
static __always_inline int call_end_inline(__u64 frame, __u32 also, __s64 result,
                                           const struct super_block *also_sb, bool in_row) {
        struct storage_thread *t;
        __u32 generation;
        __u64 now, begin;
        void *map;

        t = bpf_task_storage_get(&storage_threads, bpf_get_current_task_btf(), 0, 0);
        if (!t || t->frame != frame)
                return 0;
        begin = overhead_begin_sample(t);
        t->frame = 0;
        map = storage_map_get(&t->owner, &generation);
        if (!map || generation != t->generation)
                return 0;
        now = bpf_ktime_get_ns();
        call_record(t, map, t->call, result, now, in_row);
        if (also < QOS_STORAGE_CALLS) {
                mount_set(&t->mount, also_sb);
                call_record(t, map, also, result, now, in_row);
        }
        storage_record_overhead(map, begin);
        return 0;
}

static __attribute__((noinline)) int call_end(__u64 frame, __u32 also, __s64 result,
                                              const struct super_block *also_sb) {
        return call_end_inline(frame, also, result, also_sb, /* in_row= */ true);
}

static __attribute__((noinline)) int call_end_without_row(__u64 frame, __s64 result) {
        return call_end_inline(frame, QOS_STORAGE_CALLS, result, NULL, /* in_row= */ false);
}

/* The call of a thread that is in a unit; others cost one load. */
#define CALL_BEGIN(context, call, sb)                                                                   \
        do {                                                                                            \
                preemption_disable();                                                                   \
                call_begin((__u64) (context), call, sb);                                                \
                preemption_enable();                                                                    \
        } while (0)

/* What the function returns. Some return a pointer since Linux 6.15: see result_is_error(). */
static __always_inline __s64 call_get_result(void *context) {
        __u64 result = 0;

        (void) bpf_get_func_ret(context, &result);
        return (__s64) result;
}

#define CALL_END(context, also, also_sb)                                                                \
        do {                                                                                            \
                preemption_disable();                                                                   \
                call_end((__u64) (context), also, call_get_result(context), also_sb);                   \
                preemption_enable();                                                                    \
        } while (0)

#define STORAGE_END(name, function)                                                                     \
        SEC("fexit/" #function)                                                                         \
        int storage_##name##_end(void *ctx) {                                                           \
                CALL_END(ctx, QOS_STORAGE_CALLS, NULL);                                                 \
                return 0;                                                                               \
        }

#define STORAGE_END_WITHOUT_ROW(name, function)                                                         \
        SEC("fexit/" #function)                                                                         \
        int storage_##name##_end(void *ctx) {                                                           \
                preemption_disable();                                                                   \
                call_end_without_row((__u64) ctx, call_get_result(ctx));                                \
                preemption_enable();                                                                    \
                return 0;                                                                               \
        }

/* A call on an open file, the first argument of the function. */
#define STORAGE_FILE_BEGIN(name, function, call)                                                        \
        SEC("fentry/" #function)                                                                        \
        int BPF_PROG(storage_##name##_begin, struct file *file) {                                       \
                if (!task_is_unowned() && inode_is_stored(file->f_inode))                               \
                        CALL_BEGIN(ctx, call, file->f_inode->i_sb);                                     \
                return 0;                                                                               \
        }
#define STORAGE_FILE_CALL(name, function, call)                                                         \
        STORAGE_FILE_BEGIN(name, function, call)                                                        \
        STORAGE_END(name, function)

/* A call by name. Not in a row: the arguments of these functions change from kernel to kernel. */
#define STORAGE_NAME_CALL(name, function, call)                                                         \
        SEC("fentry/" #function)                                                                        \
        int storage_##name##_begin(void *ctx) {                                                         \
                if (!task_is_unowned())                                                                 \
                        CALL_BEGIN(ctx, call, NULL);                                                    \
                return 0;                                                                               \
        }                                                                                               \
        STORAGE_END_WITHOUT_ROW(name, function)

STORAGE_FILE_CALL(read, vfs_read, QOS_STORAGE_READ)
STORAGE_FILE_CALL(readv, vfs_readv, QOS_STORAGE_READ)
STORAGE_FILE_CALL(sendfile, do_splice_direct, QOS_STORAGE_READ)
STORAGE_FILE_CALL(write, vfs_write, QOS_STORAGE_WRITE)
STORAGE_FILE_CALL(writev, vfs_writev, QOS_STORAGE_WRITE)
STORAGE_FILE_CALL(sync, vfs_fsync_range, QOS_STORAGE_SYNC)
STORAGE_FILE_CALL(allocate, vfs_fallocate, QOS_STORAGE_CHANGE)

STORAGE_FILE_BEGIN(list, iterate_dir, QOS_STORAGE_LOOKUP)
STORAGE_END_WITHOUT_ROW(list, iterate_dir)

STORAGE_NAME_CALL(create, vfs_create, QOS_STORAGE_CREATE)
STORAGE_NAME_CALL(mkdir, vfs_mkdir, QOS_STORAGE_CREATE)
STORAGE_NAME_CALL(mknod, vfs_mknod, QOS_STORAGE_CREATE)
STORAGE_NAME_CALL(link, vfs_link, QOS_STORAGE_CREATE)
STORAGE_NAME_CALL(symlink, vfs_symlink, QOS_STORAGE_CREATE)
STORAGE_NAME_CALL(unlink, vfs_unlink, QOS_STORAGE_REMOVE)
STORAGE_NAME_CALL(rmdir, vfs_rmdir, QOS_STORAGE_REMOVE)
STORAGE_NAME_CALL(rename, vfs_rename, QOS_STORAGE_RENAME)
STORAGE_NAME_CALL(stat, vfs_statx, QOS_STORAGE_LOOKUP)

/* Of two files, which may be in two file systems. */
STORAGE_FILE_BEGIN(copy, vfs_copy_file_range, QOS_STORAGE_READ)
SEC("fexit/vfs_copy_file_range")
int BPF_PROG(storage_copy_end, struct file *in, __u64 position, struct file *out) {
        CALL_END(ctx, QOS_STORAGE_WRITE, out->f_inode->i_sb);
        return 0;
}

SEC("fentry/notify_change")
int BPF_PROG(storage_change_begin, void *idmap, struct dentry *dentry) {
        if (!task_is_unowned())
                CALL_BEGIN(ctx, QOS_STORAGE_CHANGE, dentry->d_sb);
        return 0;
}
STORAGE_END(change, notify_change)

/* vfs_getattr() is mostly inlined. */
SEC("fentry/vfs_getattr_nosec")
int BPF_PROG(storage_fstat_begin, const struct path *path) {
        if (!task_is_unowned() && inode_is_stored(path->dentry->d_inode))
                CALL_BEGIN(ctx, QOS_STORAGE_LOOKUP, NULL);
        return 0;
}
STORAGE_END_WITHOUT_ROW(fstat, vfs_getattr_nosec)

/* A file that the call makes is one that was created; the function that creates it is not called then. */
SEC("fentry/do_filp_open")
int storage_open_begin(void *ctx) {
        if (!task_is_unowned())
                CALL_BEGIN(ctx, QOS_STORAGE_OPEN, NULL);
        return 0;
}

SEC("fexit/do_filp_open")
int storage_open_end(void *ctx) {
        __u32 also = QOS_STORAGE_CALLS;
        struct storage_thread *t;
        struct file *file;

        preemption_disable();
        t = bpf_task_storage_get(&storage_threads, bpf_get_current_task_btf(), 0, 0);
        /* An open within another call is a part of that one, which goes on */
        if (t && t->frame != (__u64) ctx)
                t = NULL;
        file = t ? (struct file*) call_get_result(ctx) : NULL;
        if (t && !result_is_error((__s64) file)) {
                __u32 type = BPF_CORE_READ(file, f_inode, i_mode) & S_IFMT;

                if (type != S_IFREG && type != S_IFDIR && type != S_IFBLK)
                        t->frame = 0; /* a device, a pipe */
                else {
                        mount_set(&t->mount, BPF_CORE_READ(file, f_inode, i_sb));
                        if (BPF_CORE_READ(file, f_mode) & FMODE_CREATED)
                                also = QOS_STORAGE_CREATE;
                }
        }
        if (t)
                call_end((__u64) ctx, also, call_get_result(ctx), NULL);
        preemption_enable();
        return 0;
}

/* ---- io_uring and libaio ------------------------------------------------------------------------------ */

/* Opcodes of io_uring; all others are calls by name or on files that are counted as such, or have none. */
#define RING_READS (1ULL << 1 | 1ULL << 4 | 1ULL << 22 | 1ULL << 49 | 1ULL << 58)
#define RING_WRITES (1ULL << 2 | 1ULL << 5 | 1ULL << 23 | 1ULL << 59)

static __attribute__((noinline)) int request_begin(__u64 address, __u32 call) {
        struct storage_request request = {};
        void *map;

        if (!group_owner(bpf_get_current_task_btf()->cgroups->dfl_cgrp, &request.owner))
                return 0;
        map = storage_map_get(&request.owner, &request.generation);
        if (!map)
                return 0;
        request.call = call;
        request.since = bpf_ktime_get_ns();
        (void) bpf_map_update_elem(&storage_requests, &address, &request, BPF_ANY);
        return 0;
}

/* Maybe in an interrupt. file: the one that it was for. */
static __attribute__((noinline)) int request_end(__u64 address, const struct file *file, __s64 result) {
        struct storage_request *request = bpf_map_lookup_elem(&storage_requests, &address);
        const struct inode *inode;
        __u64 now, nsec;
        __u32 generation = 0, type;
        void *map;

        if (!request)
                return 0;
        inode = BPF_CORE_READ(file, f_inode);
        type = BPF_CORE_READ(inode, i_mode) & S_IFMT;
        map = storage_map_get(&request->owner, &generation);
        if (map && generation == request->generation && (type == S_IFREG || type == S_IFBLK)) {
                now = bpf_ktime_get_ns();
                nsec = now - request->since;
                mount_set(&request->mount, BPF_CORE_READ(inode, i_sb));
                storage_record(map, bpf_get_smp_processor_id(), now, request->call, result, nsec);
                mount_record(map, mount_get(&request->mount, map, nsec), now, request->call, result, nsec);
        }
        (void) bpf_map_delete_elem(&storage_requests, &address);
        return 0;
}

SEC("tp_btf/io_uring_submit_req")
int BPF_PROG(storage_ring_submit, struct io_kiocb *request) {
        __u64 operation;

        if (task_is_unowned())
                return 0;
        operation = request->opcode < 64 ? 1ULL << request->opcode : 0;
        if (!(operation & (RING_READS | RING_WRITES)))
                return 0;
        preemption_disable();
        request_begin((__u64) request, operation & RING_READS ? QOS_STORAGE_READ : QOS_STORAGE_WRITE);
        preemption_enable();
        return 0;
}

/* The request is the second argument on all kernels, others differ. */
SEC("tp_btf/io_uring_complete")
int storage_ring_complete(__u64 *ctx) {
        const struct io_kiocb *request = (const struct io_kiocb*) ctx[1];

        preemption_disable();
        if (request)
                request_end((__u64) request, BPF_CORE_READ(request, file),
                            (__s64) (__s32) BPF_CORE_READ(request, cqe.res));
        preemption_enable();
        return 0;
}

#define STORAGE_AIO(name, function, call)                                                               \
        SEC("fentry/" #function)                                                                        \
        int BPF_PROG(storage_##name##_submit, struct kiocb *kiocb) {                                    \
                if (!task_is_unowned()) {                                                               \
                        preemption_disable();                                                           \
                        request_begin((__u64) kiocb, call);                                             \
                        preemption_enable();                                                            \
                }                                                                                       \
                return 0;                                                                               \
        }

STORAGE_AIO(aio_read, aio_read, QOS_STORAGE_READ)
STORAGE_AIO(aio_write, aio_write, QOS_STORAGE_WRITE)

SEC("fentry/aio_complete_rw")
int BPF_PROG(storage_aio_complete, struct kiocb *kiocb, __s64 result) {
        preemption_disable();
        request_end((__u64) kiocb, kiocb->ki_filp, result);
        preemption_enable();
        return 0;
}

/* ---- page cache --------------------------------------------------------------------------------------- */

/* Task storage of the current thread, if it is in a unit with the probe, and the counters of its map.
 * Programs that run under locks of the page cache do not create any: those at calls do, and the iterator. */
static __always_inline struct storage_thread* current_get_counts(struct qos_storage_counts **ret) {
        struct storage_thread *t = bpf_task_storage_get(&storage_threads, bpf_get_current_task_btf(), 0, 0);
        struct qos_storage_header *h;
        __u32 generation = 0;
        __u64 epoch;
        void *map;

        if (!t || t->owner.generation == 0 || t->loaded_at != loaded_at)
                return NULL;
        map = storage_map_get(&t->owner, &generation);
        if (!map || generation != t->generation)
                return NULL;
        h = storage_header_get(map);
        *ret = storage_counts_get(map, QOS_STORAGE_SHARD(bpf_get_smp_processor_id()));
        if (!h || !*ret)
                return NULL;
        epoch = bpf_ktime_get_ns() / QOS_EPOCH_NSEC;
        if (epoch > *(volatile __u64*) &h->epoch)
                storage_roll_due(map, h, epoch);
        return t;
}

/* A folio of several pages has its order behind the flags of its first page. */
static __always_inline __u64 folio_count_pages(const void *folio) {
        __u64 flags = 0, order = 0;

        (void) bpf_probe_read_kernel(&flags, sizeof(flags), folio);
        if (!(flags >> bpf_core_enum_value(enum pageflags, PG_head) & 1))
                return 1;
        (void) bpf_probe_read_kernel(&order, sizeof(order), folio + bpf_core_type_size(struct page));
        return 1ULL << (order & 31);
}

/* Pages first to last, of a file that may end before. A read looks up all that is left of it again when it
 * goes on behind some pages. */
static __attribute__((noinline)) int pages_look_up(__u64 mapping, __u64 first, __u64 last) {
        __u64 calls = task_count_calls(bpf_get_current_task_btf());
        struct qos_storage_counts *shard = NULL;
        struct storage_thread *t = current_get_counts(&shard);

        if (!t || !shard || last < first)
                return 0;
        if (t->mapping != mapping || t->last_page != last || t->lookup_calls != calls || first <= t->page)
                storage_add(shard, QOS_STORAGE_PAGES_LOOKED_UP, last - first + 1);
        t->mapping = mapping;
        t->page = first;
        t->last_page = last;
        t->lookup_calls = calls;
        return 0;
}

SEC("tp_btf/mm_filemap_get_pages")
int BPF_PROG(storage_pages_look_up, struct address_space *mapping, __u64 first, __u64 last) {
        __u64 size;

        if (task_is_unowned())
                return 0;
        preemption_disable();
        size = BPF_CORE_READ(mapping, host, i_size);
        if (size > 0 && last > (size - 1) / page_size)
                last = (size - 1) / page_size;
        pages_look_up((__u64) mapping, first, last);
        preemption_enable();
        return 0;
}

static __attribute__((noinline)) int folio_record(__u64 folio, __u64 pages, int dirtied) {
        struct qos_storage_counts *shard = NULL;
        struct storage_thread *t = current_get_counts(&shard);

        if (!t || !shard)
                return 0;
        storage_add(shard, dirtied ? QOS_STORAGE_PAGES_DIRTIED : QOS_STORAGE_PAGES_ADDED, pages);
        /* A write makes a page, and then it is dirty */
        if (dirtied && t->added == folio)
                storage_add(shard, QOS_STORAGE_PAGES_CREATED, pages);
        t->added = dirtied ? 0 : folio;
        return 0;
}

SEC("tp_btf/mm_filemap_add_to_page_cache")
int BPF_PROG(storage_pages_add, void *folio) {
        if (task_is_unowned())
                return 0;
        preemption_disable();
        folio_record((__u64) folio, folio_count_pages(folio), /* dirtied= */ 0);
        preemption_enable();
        return 0;
}

SEC("tp_btf/writeback_dirty_folio")
int BPF_PROG(storage_pages_dirty, void *folio) {
        if (task_is_unowned())
                return 0;
        preemption_disable();
        folio_record((__u64) folio, folio_count_pages(folio), /* dirtied= */ 1);
        preemption_enable();
        return 0;
}

/* ---- mapped files ------------------------------------------------------------------------------------- */

/* Pages around that of a fault are mapped if they are in the page cache. If that one is not, it is read: the
 * same fault. */
static __attribute__((noinline)) int fault_record(void) {
        struct task_struct *task = bpf_get_current_task_btf();
        struct qos_storage_counts *shard = NULL;
        struct storage_thread *t = current_get_counts(&shard);
        __u64 faults = task->min_flt + task->maj_flt + 1;

        if (!t || !shard || t->faults == faults)
                return 0;
        fault_settle(task, t, shard);
        t->faults = faults;
        t->major_faults = task->maj_flt;
        t->fault_is_open = 1;
        storage_add(shard, QOS_STORAGE_FAULTS, 1);
        return 0;
}

#define STORAGE_FAULT(name, tracepoint)                                                                 \
        SEC("tp_btf/" #tracepoint)                                                                      \
        int storage_##name(void *ctx) {                                                                 \
                if (!task_is_unowned()) {                                                               \
                        preemption_disable();                                                           \
                        fault_record();                                                                 \
                        preemption_enable();                                                            \
                }                                                                                       \
                return 0;                                                                               \
        }

STORAGE_FAULT(fault, mm_filemap_fault)
STORAGE_FAULT(map_pages, mm_filemap_map_pages)
