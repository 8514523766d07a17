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

#include "storage-cache.bpf.h"
#include "storage-call.bpf.h"
#include "storage-request.bpf.h"

char LICENSE[] SEC("license") = "GPL";

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

/* ---- calls -------------------------------------------------------------------------------------------- */

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

/* syncfs(2), and what umount(2) waits for. */
SEC("fentry/sync_filesystem")
int BPF_PROG(storage_syncfs_begin, struct super_block *sb) {
        if (!task_is_unowned())
                CALL_BEGIN(ctx, QOS_STORAGE_SYNC, sb, NULL, /* verifies= */ false);
        return 0;
}
STORAGE_END(syncfs, sync_filesystem)

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
