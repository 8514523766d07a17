/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

/* The outermost call of a thread: its begin and its end, and what is kept of one that took long. */

#include "storage-thread.bpf.h"

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
