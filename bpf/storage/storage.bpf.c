// SPDX-License-Identifier: GPL-2.0-or-later

/* The probe "storage": what threads of units request of file systems.
 *
 *   storage_NAME_begin, storage_NAME_end   a function of the virtual file system, where fentry is available
 *   storage_verify                         the kernel begins a read or write in whatever way
 *   storage_fork, storage_exit             a thread starts without calls; its last calls are recorded
 *   storage_find_calls                     iterator: records the latest calls, and those in flight
 *
 *   storage_ring_*, storage_aio_*          reads and writes of io_uring and libaio
 *   storage_pages_*, storage_fault, storage_map_pages   the page cache
 *   storage_ext4_*, storage_direct_*, storage_fuse_*    what tracepoints show of calls, without fentry
 *
 * The outermost call of a thread counts: what a file system requests of the one below it, or of another
 * file, is a part of that call. */

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

char LICENSE[] SEC("license") = "GPL";

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
                t->pid = own_number(task);
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
        if (t) {
                counted_record(task, t, map);
                if (t->verified > 0)
                        verified_flush(t, map);
        }
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
        struct qos_inspect_request *inquiry;
        struct storage_thread *t;
        __u32 zero = 0;
        void *map;

        if (!task) {
                bpf_seq_write(ctx->meta->seq, &session, sizeof(session));
                return 0;
        }
        if (ctx->meta->seq_num == 0) {
                inquiry = bpf_map_lookup_elem(&inspect_requests, &zero);
                if (inquiry)
                        inquiry_note_self(inquiry);
        }
        if (task->exit_state)
                return 0;
        t = storage_thread_get(task, &map, /* begun= */ false);
        if (!t)
                return 0;
        counted_record(task, t, map);
        if (t->verified > 0 && bpf_ktime_get_ns() > t->verified_at + VERIFIED_NSEC_MAX)
                verified_flush(t, map);
        in_flight_count(task, t, map, session.id);
        return 0;
}

static __always_inline void storage_record_overhead(void *map, __u64 begin) {
        struct storage_shard shard;
        __u64 now;

        if (begin == 0)
                return;
        now = bpf_ktime_get_ns();
        if (storage_shard_enter(map, bpf_get_smp_processor_id(), now, &shard))
                storage_add(&shard, QOS_STORAGE_COST, overhead_nsec(begin, now) * OVERHEAD_SAMPLE_PERIOD);
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

/* The account of the current thread, if the unit is observed with "cpu", too. */
static __always_inline const struct thread* account_get(struct task_struct *task, __u64 *ret_account) {
        const struct thread *thread = thread_of(task);
        __u64 word = thread ? *(const volatile __u64*) &thread->word : 0;

        *ret_account = word & THREAD_MAP_ID;
        return *ret_account != 0 && (word & THREAD_STATE) == QOS_STATE_RUNNING ? thread : NULL;
}

static __always_inline void account_begin(struct task_struct *task, struct storage_thread *t) {
        __u64 account;
        const struct thread *thread = account_get(task, &account);

        t->account = thread ? account : 0;
        if (!thread)
                return;
        for (int i = QOS_STATE_RUN_QUEUE; i < QOS_STATES; i++)
                t->times[i] = thread->times[i];
}

/* false: not known */
static __always_inline bool account_end(struct task_struct *task, const struct storage_thread *t, __u64 nsec,
                                        __u64 *ret_states) {
        const struct thread *thread;
        __u64 account;

        if (t->account == 0)
                return false;
        thread = account_get(task, &account);
        if (!thread || account != t->account)
                return false;
        storage_divide(t->times, thread->times, nsec, ret_states);
        return true;
}

/* sb, dentry: of the file; NULL: not known. verifies: what the kernel has verified is for this call */
static __attribute__((noinline)) int call_begin(__u64 frame, __u32 call, const struct super_block *sb,
                                                const struct dentry *dentry, bool verifies) {
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
                if (t->frame != 0 && t->call <= QOS_STORAGE_WRITE)
                        unseen_record(map, 1);
                if (verifies)
                        t->verified = 0;
                else if (t->verified > 0)
                        verified_flush(t, map);
                t->in_request = 0;
                t->frame = frame;
                t->begun = calls;
                t->call = call;
                t->dentry = (__u64) dentry;
                mount_set(&t->mount, sb);
                account_begin(task, t);
                t->since = bpf_ktime_get_ns();
        }
        storage_record_overhead(map, begin);
        return 0;
}

/* ---- calls that took long ----------------------------------------------------------------------------- */

/* What is kept of such a call. */
struct slow_call {
        __u64 since;
        __u64 nsec;
        __s64 result;
        __u64 dentry;           /* address; 0: not known */
        struct storage_states states;
        __u32 divided;
        __u32 call;
        __u32 pid;              /* as in struct storage_thread */
        __u32 slot;             /* of the unit */
        bool waited;            /* the current thread has waited for it; false: nothing is known of the
                                 * thread but its PID */
};

/* Whether a call of that time is kept for the unit. */
static __always_inline bool call_is_slow(const struct qos_owner *owner, __u64 nsec) {
        struct qos_probe_config *config;
        __u32 slot = owner->slot;

        config = bpf_map_lookup_elem(&probe_configs, &slot);
        return config && config->generation == owner->generation && config->slow_usec > 0 &&
               nsec >= config->slow_usec * 1000ULL;
}

BPF_SUBPROG int slow_record(const struct slow_call *s, const struct storage_mount *m) {
        struct qos_storage_header *h;
        union qos_storage_element *e;
        struct qos_storage_slow *to;
        __u32 slot;
        void *map;
        __u64 i;

        BPF_REQUIRE(s);
        BPF_REQUIRE(m);
        slot = s->slot;
        map = bpf_map_lookup_elem(&storage_maps, &slot);
        h = map ? storage_header_get(map) : NULL;
        e = map ? storage_element(map, QOS_STORAGE_SLOW) : NULL;
        if (!h || !e)
                return 0;
        i = __sync_fetch_and_add(&h->slow, 1) % QOS_STORAGE_SLOW_CALLS;
        BPF_BOUND(i, QOS_STORAGE_SLOW_CALLS);
        to = &e->slow[i];
        __sync_lock_test_and_set(&to->at, 0);
        to->nsec = s->nsec;
        to->result = s->call <= QOS_STORAGE_WRITE || result_is_error(s->result) ? (__u64) s->result : 0;
        to->mount = m->super_block != 0 ? mount_identity(&m->key) : 0;
        to->device = m->super_block != 0 ? *(const __u32*) (m->key.address + 8) : 0;
        to->call = (__u8) s->call;
        to->divided = (__u8) s->divided;
        for (int k = 0; k < QOS_STORAGE_STATES; k++)
                to->shares[k] = s->divided ? (__u16) (s->states.nsec[k] * 0xffff / (s->nsec | 1)) : 0;
        to->pid = s->pid;
        to->thread[0] = to->name[0] = 0;
        if (s->waited)
                (void) bpf_get_current_comm(to->thread, sizeof(to->thread));
        if (s->dentry != 0) {
                const struct dentry *dentry = (const struct dentry*) s->dentry;

                (void) bpf_probe_read_kernel_str(to->name, sizeof(to->name),
                                                 BPF_CORE_READ(dentry, d_name.name));
        }
        __sync_lock_test_and_set(&to->at, s->since);
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

/* The time of a call by state, and the call itself if it took long. Verified once, as opposed to each place
 * that ends calls. */
BPF_SUBPROG int call_divide(struct storage_thread *t, __u64 now, __s64 result) {
        struct slow_call slow = {};
        struct storage_shard shard;
        struct qos_owner owner;
        __u32 generation = 0;
        void *map;

        BPF_REQUIRE(t);
        owner = t->owner;
        map = storage_map_get(&owner, &generation);
        if (!map)
                return 0;
        slow.since = t->since;
        slow.nsec = now - t->since;
        slow.result = result_extend(result);
        slow.dentry = t->dentry;
        slow.call = t->call;
        slow.pid = t->pid;
        slow.slot = owner.slot;
        slow.waited = true;
        slow.divided = account_end(bpf_get_current_task_btf(), t, slow.nsec, slow.states.nsec);
        if (slow.divided && slow.call < QOS_STORAGE_DIVIDED &&
            storage_shard_get(map, bpf_get_smp_processor_id(), &shard))
                storage_record_states(&shard, slow.call, &slow.states);
        if (call_is_slow(&owner, slow.nsec))
                slow_record(&slow, &t->mount);
        return 0;
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
        call_divide(t, now, result);
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
#define CALL_BEGIN(context, call, sb, dentry, verifies)                                                 \
        do {                                                                                            \
                preemption_disable();                                                                   \
                call_begin((__u64) (context), call, sb, dentry, verifies);                              \
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
#define STORAGE_FILE_BEGIN(name, function, call, verifies)                                              \
        SEC("fentry/" #function)                                                                        \
        int BPF_PROG(storage_##name##_begin, struct file *file) {                                       \
                if (!task_is_unowned() && inode_is_stored(file->f_inode))                               \
                        CALL_BEGIN(ctx, call, file->f_inode->i_sb, file->f_path.dentry, verifies);      \
                return 0;                                                                               \
        }
#define STORAGE_FILE_CALL(name, function, call)                                                         \
        STORAGE_FILE_BEGIN(name, function, call, /* verifies= */ false)                                 \
        STORAGE_END(name, function)

/* A call by name. Not in a row: the arguments of these functions change from kernel to kernel. */
#define STORAGE_NAME_CALL(name, function, call)                                                         \
        SEC("fentry/" #function)                                                                        \
        int storage_##name##_begin(void *ctx) {                                                         \
                if (!task_is_unowned())                                                                 \
                        CALL_BEGIN(ctx, call, NULL, NULL, /* verifies= */ false);                       \
                return 0;                                                                               \
        }                                                                                               \
        STORAGE_END_WITHOUT_ROW(name, function)

STORAGE_FILE_CALL(read, vfs_read, QOS_STORAGE_READ)
STORAGE_FILE_CALL(readv, vfs_readv, QOS_STORAGE_READ)
STORAGE_FILE_CALL(write, vfs_write, QOS_STORAGE_WRITE)
STORAGE_FILE_CALL(writev, vfs_writev, QOS_STORAGE_WRITE)
STORAGE_FILE_CALL(sync, vfs_fsync_range, QOS_STORAGE_SYNC)
STORAGE_FILE_CALL(allocate, vfs_fallocate, QOS_STORAGE_CHANGE)

STORAGE_FILE_BEGIN(list, iterate_dir, QOS_STORAGE_LOOKUP, /* verifies= */ false)
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
STORAGE_FILE_BEGIN(copy, vfs_copy_file_range, QOS_STORAGE_READ, /* verifies= */ false)
SEC("fexit/vfs_copy_file_range")
int BPF_PROG(storage_copy_end, struct file *in, __u64 position, struct file *out) {
        CALL_END(ctx, QOS_STORAGE_WRITE, out->f_inode->i_sb);
        return 0;
}

/* ---- files to pipes, sockets and other files ---- */

/* Of two files one at least is no pipe. If both are files, the call reads one and writes the other. */
static __always_inline void splice_begin(void *ctx, const struct file *in, const struct file *out) {
        const struct file *file = inode_is_stored(in->f_inode) ? in : out;

        if (!inode_is_stored(file->f_inode))
                return;
        CALL_BEGIN(ctx, file == in ? QOS_STORAGE_READ : QOS_STORAGE_WRITE, file->f_inode->i_sb,
                   file->f_path.dentry, /* verifies= */ true);
}

static __always_inline void splice_end(void *ctx, const struct file *in, const struct file *out) {
        bool copy = inode_is_stored(in->f_inode) && inode_is_stored(out->f_inode);

        CALL_END(ctx, copy ? QOS_STORAGE_WRITE : QOS_STORAGE_CALLS, copy ? out->f_inode->i_sb : NULL);
}

SEC("fentry/do_splice_direct")
int BPF_PROG(storage_sendfile_begin, struct file *in, __u64 *position, struct file *out) {
        if (!task_is_unowned())
                splice_begin(ctx, in, out);
        return 0;
}

SEC("fexit/do_splice_direct")
int BPF_PROG(storage_sendfile_end, struct file *in, __u64 *position, struct file *out) {
        splice_end(ctx, in, out);
        return 0;
}

SEC("fentry/do_splice")
int BPF_PROG(storage_splice_begin, struct file *in, __u64 *position, struct file *out) {
        if (!task_is_unowned())
                splice_begin(ctx, in, out);
        return 0;
}

SEC("fexit/do_splice")
int BPF_PROG(storage_splice_end, struct file *in, __u64 *position, struct file *out) {
        splice_end(ctx, in, out);
        return 0;
}

/* Within splice(2) it is a part of that call; sendfile(2) to a pipe is this function alone. */
SEC("fentry/splice_file_to_pipe")
int BPF_PROG(storage_pipe_begin, struct file *in) {
        if (!task_is_unowned())
                splice_begin(ctx, in, in);
        return 0;
}
STORAGE_END(pipe, splice_file_to_pipe)

/* ---- reads and writes of the kernel for a thread: execve(2), core dumps ---- */

STORAGE_FILE_BEGIN(kernel_read, __kernel_read, QOS_STORAGE_READ, /* verifies= */ true)
STORAGE_END(kernel_read, __kernel_read)
STORAGE_FILE_BEGIN(kernel_write, __kernel_write_iter, QOS_STORAGE_WRITE, /* verifies= */ true)
STORAGE_END(kernel_write, __kernel_write_iter)

SEC("fentry/notify_change")
int BPF_PROG(storage_change_begin, void *idmap, struct dentry *dentry) {
        if (!task_is_unowned())
                CALL_BEGIN(ctx, QOS_STORAGE_CHANGE, dentry->d_sb, dentry, /* verifies= */ false);
        return 0;
}
STORAGE_END(change, notify_change)

/* vfs_getattr() is mostly inlined. */
SEC("fentry/vfs_getattr_nosec")
int BPF_PROG(storage_fstat_begin, const struct path *path) {
        if (!task_is_unowned() && inode_is_stored(path->dentry->d_inode))
                CALL_BEGIN(ctx, QOS_STORAGE_LOOKUP, NULL, path->dentry, /* verifies= */ false);
        return 0;
}
STORAGE_END_WITHOUT_ROW(fstat, vfs_getattr_nosec)

/* A file that the call makes is one that was created; the function that creates it is not called then. */
SEC("fentry/do_filp_open")
int storage_open_begin(void *ctx) {
        if (!task_is_unowned())
                CALL_BEGIN(ctx, QOS_STORAGE_OPEN, NULL, NULL, /* verifies= */ false);
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
                        t->dentry = (__u64) BPF_CORE_READ(file, f_path.dentry);
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

/* file: of libaio; NULL: of io_uring, which finds it later */
static __attribute__((noinline)) int request_begin(__u64 address, __u32 call, const struct file *file) {
        struct storage_request request = {};
        struct storage_thread *t;
        void *map;

        if (!group_owner(bpf_get_current_task_btf()->cgroups->dfl_cgrp, &request.owner))
                return 0;
        map = storage_map_get(&request.owner, &request.generation);
        if (!map)
                return 0;
        t = bpf_task_storage_get(&storage_threads, bpf_get_current_task_btf(), 0, 0);
        if (t) {
                t->request_file = (__u64) file;
                t->in_request = 0;
        }
        request.call = call;
        request.pid = t ? t->pid : 0;
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
                if (call_is_slow(&request->owner, nsec)) {
                        struct slow_call slow = {
                                .since = request->since,
                                .nsec = nsec,
                                .result = result_extend(result),
                                .dentry = (__u64) BPF_CORE_READ(file, f_path.dentry),
                                .call = request->call,
                                .pid = request->pid,
                                .slot = request->owner.slot,
                        };

                        slow_record(&slow, &request->mount);
                }
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
        request_begin((__u64) request, operation & RING_READS ? QOS_STORAGE_READ : QOS_STORAGE_WRITE, NULL);
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
                        request_begin((__u64) kiocb, call, kiocb->ki_filp);                             \
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

/* ---- kernels without fentry --------------------------------------------------------------------------- */

/* A frame that none is below: no other program is there to begin a call within it. */
#define FRAME_OF_TRACEPOINT 1

/* Writes to files with these flags wait for the same function. */
#define O_DSYNC 00010000

SEC("tp_btf/ext4_sync_file_enter")
int BPF_PROG(storage_ext4_sync_begin, struct file *file) {
        if (!task_is_unowned() && !(file->f_flags & O_DSYNC)) {
                preemption_disable();
                call_begin(FRAME_OF_TRACEPOINT, QOS_STORAGE_SYNC, file->f_inode->i_sb, file->f_path.dentry,
                           /* verifies= */ false);
                preemption_enable();
        }
        return 0;
}

SEC("tp_btf/ext4_sync_file_exit")
int BPF_PROG(storage_ext4_sync_end, struct inode *inode, int result) {
        preemption_disable();
        call_end(FRAME_OF_TRACEPOINT, QOS_STORAGE_CALLS, result, NULL);
        preemption_enable();
        return 0;
}

SEC("tp_btf/ext4_unlink_exit")
int BPF_PROG(storage_ext4_unlink, struct dentry *dentry, int result) {
        struct storage_thread *t;
        void *map;

        if (task_is_unowned())
                return 0;
        preemption_disable();
        t = storage_thread_get(bpf_get_current_task_btf(), &map, /* begun= */ false);
        if (t)
                storage_record(map, bpf_get_smp_processor_id(), bpf_ktime_get_ns(), QOS_STORAGE_REMOVE,
                               result, 0);
        preemption_enable();
        return 0;
}

/* A request of io_uring has begun already. */
SEC("tp_btf/iomap_dio_rw_begin")
int BPF_PROG(storage_direct_begin, struct kiocb *kiocb, struct iov_iter *iter) {
        __u64 ring = (__u64) kiocb - bpf_core_field_offset(struct io_kiocb, cmd);

        if (task_is_unowned() || bpf_map_lookup_elem(&storage_requests, &ring))
                return 0;
        preemption_disable();
        request_begin((__u64) kiocb, iter->data_source ? QOS_STORAGE_WRITE : QOS_STORAGE_READ,
                      kiocb->ki_filp);
        preemption_enable();
        return 0;
}

SEC("tp_btf/iomap_dio_complete")
int BPF_PROG(storage_direct_end, struct kiocb *kiocb, int error, __s64 result) {
        preemption_disable();
        request_end((__u64) kiocb, kiocb->ki_filp, result);
        preemption_enable();
        return 0;
}

SEC("tp_btf/fuse_request_send")
int BPF_PROG(storage_fuse_begin, const struct fuse_req *request) {
        if (!task_is_unowned()) {
                preemption_disable();
                request_begin((__u64) request, QOS_STORAGE_FUSE, NULL);
                preemption_enable();
        }
        return 0;
}

/* In the context of the server. */
SEC("tp_btf/fuse_request_end")
int BPF_PROG(storage_fuse_end, const struct fuse_req *request) {
        __u64 address = (__u64) request, now = bpf_ktime_get_ns();
        struct storage_request *begun;
        __u32 generation = 0;
        void *map;

        preemption_disable();
        begun = bpf_map_lookup_elem(&storage_requests, &address);
        if (begun && begun->call == QOS_STORAGE_FUSE) {
                map = storage_map_get(&begun->owner, &generation);
                if (map && generation == begun->generation)
                        storage_record(map, bpf_get_smp_processor_id(), now, QOS_STORAGE_FUSE, 0,
                                       now - begun->since);
                (void) bpf_map_delete_elem(&storage_requests, &address);
        }
        preemption_enable();
        return 0;
}

/* ---- page cache --------------------------------------------------------------------------------------- */

/* Task storage of the current thread, if it is in a unit with the probe, and the counters of its map.
 * Programs that run under locks of the page cache do not create any: those at calls do, and the iterator. */
static __always_inline struct storage_thread* current_get_shard(struct storage_shard *ret) {
        struct storage_thread *t = bpf_task_storage_get(&storage_threads, bpf_get_current_task_btf(), 0, 0);
        __u32 generation = 0;
        void *map;

        if (!t || t->owner.generation == 0 || t->loaded_at != loaded_at)
                return NULL;
        map = storage_map_get(&t->owner, &generation);
        if (!map || generation != t->generation)
                return NULL;
        return storage_shard_enter(map, bpf_get_smp_processor_id(), bpf_ktime_get_ns(), ret) ? t : NULL;
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

/* Pages added for a lookup of pages up to last: those behind. The kernel reports the lookup once it has
 * added what is missing. */
static __always_inline __u64 pages_ahead(const struct storage_thread *t, __u64 mapping, __u64 last) {
        __u64 ahead = t->added_end - t->added_first;

        if (t->added_mapping != mapping || t->added_pages == 0 || t->added_end <= last + 1)
                return 0;
        if (t->added_first <= last)
                ahead = t->added_end - last - 1;
        return ahead < t->added_pages ? ahead : t->added_pages;
}

/* Pages first to last, of a file that may end before. A read looks up all that is left of it again when it
 * goes on behind some pages. */
static __attribute__((noinline)) int pages_look_up(__u64 mapping, __u64 first, __u64 last) {
        __u64 calls = task_count_calls(bpf_get_current_task_btf());
        struct storage_shard shard;
        struct storage_thread *t = current_get_shard(&shard);
        __u64 ahead;

        if (!t || last < first)
                return 0;
        if (t->mapping != mapping || t->last_page != last || t->lookup_calls != calls || first <= t->page)
                storage_count(&shard, QOS_STORAGE_PAGES_LOOKED_UP, last - first + 1);
        ahead = pages_ahead(t, mapping, last);
        if (ahead > 0)
                storage_count(&shard, QOS_STORAGE_PAGES_AHEAD, ahead);
        t->added_pages = 0;
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

/* Pages that are added: of a fault, all but that page are read ahead, of a read that is known later. */
static __always_inline void pages_added(struct storage_thread *t, const struct storage_shard *shard,
                                        const struct folio *folio, __u64 pages) {
        struct task_struct *task = bpf_get_current_task_btf();
        __u64 mapping = (__u64) BPF_CORE_READ(folio, mapping), first = BPF_CORE_READ(folio, index);

        if (t->fault_is_open && t->fault_mapping == mapping &&
            t->faults == task->min_flt + task->maj_flt + 1) {
                pages -= t->fault_page - first < pages;
                if (pages > 0)
                        storage_count(shard, QOS_STORAGE_PAGES_AHEAD, pages);
                return;
        }
        if (t->added_mapping != mapping || t->added_pages == 0) {
                t->added_mapping = mapping;
                t->added_first = first;
                t->added_end = t->added_pages = 0;
        }
        if (first < t->added_first)
                t->added_first = first;
        if (first + pages > t->added_end)
                t->added_end = first + pages;
        t->added_pages += pages;
}

static __attribute__((noinline)) int folio_record(__u64 folio, __u64 pages, int dirtied) {
        struct storage_shard shard;
        struct storage_thread *t = current_get_shard(&shard);

        if (!t)
                return 0;
        storage_count(&shard, dirtied ? QOS_STORAGE_PAGES_DIRTIED : QOS_STORAGE_PAGES_ADDED, pages);
        /* A write makes a page, and then it is dirty */
        if (dirtied && t->added == folio) {
                storage_count(&shard, QOS_STORAGE_PAGES_CREATED, pages);
                t->added_pages -= t->added_pages < pages ? t->added_pages : pages;
        }
        if (!dirtied)
                pages_added(t, &shard, (const struct folio*) folio, pages);
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
 * same fault. mapping, page: of the one that is read. */
static __attribute__((noinline)) int fault_record(__u64 mapping, __u64 page) {
        struct task_struct *task = bpf_get_current_task_btf();
        struct storage_shard shard;
        struct storage_thread *t = current_get_shard(&shard);
        __u64 faults = task->min_flt + task->maj_flt + 1;

        if (!t)
                return 0;
        t->fault_mapping = mapping;
        t->fault_page = page;
        if (t->faults == faults)
                return 0;
        fault_settle(task, t, &shard);
        t->faults = faults;
        t->major_faults = task->maj_flt;
        t->fault_is_open = 1;
        storage_count(&shard, QOS_STORAGE_FAULTS, 1);
        return 0;
}

SEC("tp_btf/mm_filemap_fault")
int BPF_PROG(storage_fault, struct address_space *mapping, __u64 page) {
        if (!task_is_unowned()) {
                preemption_disable();
                fault_record((__u64) mapping, page);
                preemption_enable();
        }
        return 0;
}

SEC("tp_btf/mm_filemap_map_pages")
int storage_map_pages(void *ctx) {
        if (!task_is_unowned()) {
                preemption_disable();
                fault_record(0, 0);
                preemption_enable();
        }
        return 0;
}

/* ---- what no program sees ----------------------------------------------------------------------------- */

/* Whether requests of io_uring may run in the thread, at any time, and again. Their ends are seen in any
 * case. */
static __always_inline bool task_has_ring(const struct task_struct *task) {
        return task->flags & PF_IO_WORKER || (bpf_core_field_exists(task->io_uring) && task->io_uring);
}

/* The kernel begins to read or write in whatever way. Within a call that is known, or for a request of
 * libaio that is, it is not another one; what a file system requests of the one below it follows that
 * request. */
static __attribute__((noinline)) int verify_record(const struct file *file) {
        struct task_struct *task = bpf_get_current_task_btf();
        struct storage_thread *t;
        __u64 now;
        void *map;

        t = storage_thread_get(task, &map, /* begun= */ false);
        if (!t || (t->frame != 0 && t->begun == task_count_calls(task)) || task_has_ring(task))
                return 0;
        if (t->request_file == (__u64) file)
                t->in_request = 1;
        if (t->in_request)
                return 0;
        now = bpf_ktime_get_ns();
        if (t->verified >= 2 || now > t->verified_at + VERIFIED_NSEC_MAX)
                verified_flush(t, map);
        t->verified_at = now;
        __sync_fetch_and_add(&t->verified, 1);
        return 0;
}

SEC("fentry/rw_verify_area")
int BPF_PROG(storage_verify, int operation, struct file *file) {
        if (!task_is_unowned() && inode_is_stored(file->f_inode)) {
                preemption_disable();
                verify_record(file);
                preemption_enable();
        }
        return 0;
}
