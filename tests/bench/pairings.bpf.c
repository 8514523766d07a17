/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Requests as eBeeMetrics sees them, from published descriptions: out of pairs of system calls. "accept to
 * close" takes a connection for a request; "read to send" takes the time from the beginning of the last read
 * to the end of the next send. What is repaired here are the limits that are not the idea's: all processes
 * of a control group count and not one, all system calls that read and send do and not two, two threads in a
 * call at the same time are not mixed up, nothing stays behind when a connection is closed, and each sample
 * is kept, with its time, for exact figures over any window. */

#include <asm/unistd.h>
#include <linux/bpf.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "pairings.h"

#define CONNECTIONS_MAX 65536
#define THREADS_MAX 4096

/* Where the kernel keeps the first argument of a system call */
#ifdef __TARGET_ARCH_x86
#define ARGUMENT di
#elif defined(__TARGET_ARCH_arm64)
#define ARGUMENT orig_x0
#else
#error "The saved registers of this architecture are not known."
#endif

struct pt_regs {
        unsigned long ARGUMENT;
} __attribute__((preserve_access_index));

struct descriptor {
        __u32 process;
        __u32 fd;
};

struct connection {
        __u64 accepted_at;
        __u64 read_at;                  /* 0: nothing since the last send */
};

struct call {
        __u32 number;
        __u32 fd;
};

struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __type(key, struct descriptor);
        __type(value, struct connection);
        __uint(max_entries, CONNECTIONS_MAX);
} connections SEC(".maps");

/* The call that a thread is in */
struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __type(key, __u64);
        __type(value, struct call);
        __uint(max_entries, THREADS_MAX);
} calls SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __uint(map_flags, BPF_F_MMAPABLE);
        __type(key, __u32);
        __type(value, struct sample);
        __uint(max_entries, SAMPLES_MAX);
} accept_close SEC(".maps"), read_send SEC(".maps");

const volatile __u64 control_group = 0;
struct taken taken = {};

static void keep(void *samples, __u64 *n, __u64 from, __u64 now) {
        __u32 i = __sync_fetch_and_add(n, 1);
        struct sample *s;

        s = bpf_map_lookup_elem(samples, &i);
        if (!s)
                return;         /* more than there is room for: n says so */
        s->at = now;
        s->took = now - from;
}

SEC("raw_tp/sys_enter")
int enter(struct bpf_raw_tracepoint_args *ctx) {
        struct pt_regs *regs = (struct pt_regs *) ctx->args[0];
        struct call call = { .number = ctx->args[1] };
        struct descriptor d = {};
        struct connection *c;
        __u64 thread;

        if (bpf_get_current_cgroup_id() != control_group)
                return 0;

        thread = bpf_get_current_pid_tgid();
        call.fd = d.fd = BPF_CORE_READ(regs, ARGUMENT);
        d.process = thread >> 32;

        switch (call.number) {

#ifdef __NR_accept
        case __NR_accept:
#endif
        case __NR_accept4:
                break;

        case __NR_read:
        case __NR_readv:
        case __NR_recvfrom:
        case __NR_recvmsg:
                c = bpf_map_lookup_elem(&connections, &d);
                if (c)
                        c->read_at = bpf_ktime_get_ns();
                return 0;

        case __NR_close:
        case __NR_write:
        case __NR_writev:
        case __NR_sendto:
        case __NR_sendmsg:
        case __NR_sendmmsg:
        case __NR_sendfile:
                if (!bpf_map_lookup_elem(&connections, &d))
                        return 0;
                break;

        default:
                return 0;
        }

        bpf_map_update_elem(&calls, &thread, &call, BPF_ANY);
        return 0;
}

SEC("raw_tp/sys_exit")
int leave(struct bpf_raw_tracepoint_args *ctx) {
        struct descriptor d = {};
        struct connection *c;
        long result = ctx->args[1];
        struct call *call;
        __u64 thread, now;
        __u32 number;

        if (bpf_get_current_cgroup_id() != control_group)
                return 0;

        thread = bpf_get_current_pid_tgid();
        call = bpf_map_lookup_elem(&calls, &thread);
        if (!call)
                return 0;
        number = call->number;
        d.fd = call->fd;
        d.process = thread >> 32;
        bpf_map_delete_elem(&calls, &thread);
        if (result < 0)
                return 0;
        now = bpf_ktime_get_ns();

        if (number == __NR_accept4
#ifdef __NR_accept
            || number == __NR_accept
#endif
        ) {
                struct connection accepted = { .accepted_at = now };

                d.fd = result;
                bpf_map_update_elem(&connections, &d, &accepted, BPF_ANY);
                return 0;
        }

        c = bpf_map_lookup_elem(&connections, &d);
        if (!c)
                return 0;
        if (number == __NR_close) {
                keep(&accept_close, &taken.accept_close, c->accepted_at, now);
                bpf_map_delete_elem(&connections, &d);
        } else if (c->read_at != 0) {
                keep(&read_send, &taken.read_send, c->read_at, now);
                c->read_at = 0;
        }
        return 0;
}

char _license[] SEC("license") = "GPL";
