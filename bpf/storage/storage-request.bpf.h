/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

/* Reads and writes of io_uring and libaio, which go on when the call that requested them has returned. */

#include "storage-call.bpf.h"

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
