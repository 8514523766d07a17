// SPDX-License-Identifier: GPL-2.0-or-later

/* The probe "requests": UDP sockets. Their packets are handled in tcp.bpf.c, whose programs see them
 * anyway. */

#include "owner-hierarchy.h"
#include "udp.bpf.h"

char LICENSE[] SEC("license") = "GPL";

/* A socket is bound before it sends anything: the peer that sends first is the client. Unbound sockets are
 * those of clients. */
static __always_inline int udp_bound(struct bpf_sock *sk) {
        struct qos_owner owner;
        struct udp_socket *c;

        if (sk->protocol != IPPROTO_UDP || !task_owner(&owner) || !unit_get(&owner))
                return 1;
        c = BPF_STORAGE_CREATE(sk, udp_sockets, sk);
        if (c)
                udp_adopt(c, &owner, bpf_get_socket_cookie(sk), 0, false);
        else
                element_lost(QOS_STATISTIC_LOST_UDP_SOCKETS, &owner);
        return 1;
}

SEC("cgroup/post_bind4")
int requests_bind4(struct bpf_sock *sk) {
        return udp_bound(sk);
}

SEC("cgroup/post_bind6")
int requests_bind6(struct bpf_sock *sk) {
        return udp_bound(sk);
}

/* Finds the sockets that tasks of observed units have open. Runs at attach, when a unit has started, and
 * when one of nested units is detached. */
SEC("iter/task_file")
int units_find_udp(struct bpf_iter__task_file *ctx) {
        struct task_struct *task = ctx->task;
        struct file *file = ctx->file;
        struct qos_owner owner, known;
        struct socket *socket;
        struct udp_socket *c;
        struct sock *sk;

        if (!task || !file)
                return 0;
        if (!group_owner(task->cgroups->dfl_cgrp, &owner))
                return 0;
        if (!unit_get(&owner) || file_is_managers(task, &owner, file, ctx->fd))
                return 0;

        socket = bpf_sock_from_file(file);
        if (!socket)
                return 0;
        sk = socket->sk;
        if (!sk || sk->sk_protocol != IPPROTO_UDP)
                return 0;
        c = bpf_sk_storage_get(&udp_sockets, sk, 0, 0);
        if (c && c->kind != UDP_CLIENT) {
                known = owner_read(&c->owner);
                if (unit_get(&known)) {
                        if (!owner_is_superseded(&known, &owner))
                                return 0;
                        /* Moves its outstanding requests along. The next response looks up its endpoint */
                        c->responses = 0;
                        c->target = 0;
                        c->previous = known;
                        c->owner = owner;
                        return 0;
                }
        }
        /* If the kernel has chosen the port, most likely when the first datagram was sent, it is a client */
        if (!(BPF_CORE_READ_BITFIELD_PROBED(sk, sk_userlocks) & SOCK_BINDPORT_LOCK))
                return 0;

        c = BPF_STORAGE_CREATE(sk, udp_sockets, sk);
        if (c)
                udp_adopt(c, &owner, bpf_get_socket_cookie(sk),
                          sk->sk_receive_queue.qlen +
                          BPF_CORE_READ((struct udp_sock*) sk, reader_queue.qlen), true);
        else
                element_lost(QOS_STATISTIC_LOST_UDP_SOCKETS, &owner);
        return 0;
}

static __always_inline int udp_retarget(struct sock *sk) {
        struct qos_address a = {};
        struct qos_owner owner;
        struct udp_socket *c;
        struct qos_unit_map *u;

        c = bpf_sk_storage_get(&udp_sockets, sk, 0, 0);
        if (!c || !c->responses)
                return 0;
        owner = c->owner;
        u = unit_get(&owner);
        if (!u)
                return 0;
        sock_local(sk, &a);
        c->target = endpoint_find(u, &owner, &a, false);
        return 0;
}

/* Like requests_retarget, for sockets with an endpoint. Open requests stay in their endpoint until the
 * response. */
SEC("iter/bpf_sk_storage_map")
int requests_retarget_udp(struct bpf_iter__bpf_sk_storage_map *ctx) {
        struct qos_iter_session session = { .id = ctx->meta->session_id };
        struct sock *sk = ctx->sk;

        if (sk)
                return udp_retarget(sk);
        bpf_seq_write(ctx->meta->seq, &session, sizeof(session));
        return 0;
}

/* The same, visiting the files of all tasks, like units_walk_tcp. */
SEC("iter/task_file")
int units_walk_udp(struct bpf_iter__task_file *ctx) {
        struct qos_iter_session session = { .id = ctx->meta->session_id };
        struct file *file = ctx->file;
        struct socket *socket;
        struct sock *sk;

        if (!file) {
                bpf_seq_write(ctx->meta->seq, &session, sizeof(session));
                return 0;
        }
        socket = bpf_sock_from_file(file);
        sk = socket ? socket->sk : NULL;
        return sk && sk->sk_protocol == IPPROTO_UDP ? udp_retarget(sk) : 0;
}

static long udp_open_step(struct bpf_map *map, const struct udp_peer *peer, struct udp_exchange *x,
                          struct qos_iter_session *session) {
        __u64 first_at = x->first_at;
        struct qos_unit_map *u;
        __u32 open = x->open;

        if (open == 0 || !x->seen || bpf_ktime_get_ns() - first_at >= UDP_WAIT_NSEC)
                return 0;
        u = unit_get(&x->owner);
        if (!u)
                return 0;
        record_in_flight(u, QOS_GAUGE_UDP, session->id,
                         &(struct found_in_flight) { .target = x->target, .n = open, .at = first_at,
                                                     .waiting = open });
        return 0;
}

/* Counts the requests in flight. */
SEC("syscall")
int requests_udp_open(struct qos_iter_session *ctx) {
        struct qos_iter_session session = { .id = ctx->id };

        bpf_for_each_map_elem(&udp_peers, udp_open_step, &session, 0);
        return 0;
}

/* Times out requests sent by units, in case no other one follows that calls udp_sweep(). */
SEC("syscall")
int requests_udp_expire(void *ctx) {
        __u64 now = bpf_ktime_get_ns();

        bpf_for_each_map_elem(&udp_pending, udp_sweep_step, &now, 0);
        return 0;
}
