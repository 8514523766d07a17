// SPDX-License-Identifier: GPL-2.0-or-later

/* Iterators over all TCP connections, run by the daemon: after an attach to find connections of the unit,
 * and for each reading to collect metrics that only sockets have.
 *
 *   units_…      owners of sockets
 *   requests_…   metrics of the probe "requests" that only sockets have, and targets */

#include "owner-hierarchy.h"
#include "tcp-conn.bpf.h"
#include "http2-conn.bpf.h"
#include "send-wait.h"
#include "tls-plaintext.bpf.h"

char LICENSE[] SEC("license") = "GPL";

struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __uint(map_flags, BPF_F_NO_PREALLOC);
        __uint(max_entries, QOS_ADDRESSES);
        __type(key, struct qos_address);
        __type(value, struct qos_owner);
} addresses SEC(".maps");

/* ---- owners ---- */

/* Moves a socket and, if it is a listener, its element in listeners. */
static __always_inline void socket_move(struct sock *sk, struct conn *c, const struct qos_owner *to) {
        struct qos_listener *l;

        conn_move(sk, c, to);
        l = bpf_sk_storage_get(&listeners, sk, 0, 0);
        if (l)
                l->owner = *to;
}

/* Finds the sockets that tasks of attached units have open. Runs at attach, and when a unit has started. */
SEC("iter/task_file")
int units_find_sockets(struct bpf_iter__task_file *ctx) {
        struct task_struct *task = ctx->task;
        struct file *file = ctx->file;
        struct exchange_effect effect = {};
        __u32 rcv_nxt, copied, snd_nxt;
        struct qos_owner owner, known;
        struct socket *socket;
        struct tcp_sock *tp;
        struct qos_unit_map *u;
        struct sock *sk;
        struct conn *c;
        bool at_attach;
        __u64 now;

        if (!task || !file)
                return 0;

        if (!group_owner(task->cgroups->dfl_cgrp, &owner))
                return 0;
        u = unit_get(&owner);
        if (!u || file_is_managers(task, &owner, file, ctx->fd))
                return 0;
        if (u->search_session == 0)
                u->search_session = ctx->meta->session_id;
        at_attach = u->search_session == ctx->meta->session_id;

        socket = bpf_sock_from_file(file);
        if (!socket)
                return 0;
        sk = socket->sk;
        if (!sk)
                return 0;

        /* Only listeners of MPTCP: the TCP sockets of other ones are not reachable from here */
        if (sk->sk_protocol != IPPROTO_TCP &&
            (sk->sk_protocol != IPPROTO_MPTCP || sk->__sk_common.skc_state != TCP_LISTEN))
                return 0;
        /* bpf_skc_to_tcp_sock() requires a trusted pointer; one read from a file is not trusted */
        tp = (struct tcp_sock*) sk;

        c = bpf_sk_storage_get(&conns, sk, 0, 0);
        if (c) {
                known = owner_read(&c->owner);
                if (unit_get(&known)) {
                        if (owner_is_superseded(&known, &owner)) {
                                if (c->kind == CONN_LISTENER)
                                        c->found = CONN_FOUND_OUTER; /* may belong to several units */
                                socket_move(sk, c, &owner);
                        }
                        return 0;
                }
        }

        if (sk->__sk_common.skc_state == TCP_LISTEN) {
                listener_learn(sk, &owner, u, true);
                return 0;
        }
        if (sk->__sk_common.skc_state != TCP_ESTABLISHED && sk->__sk_common.skc_state != TCP_CLOSE_WAIT)
                return 0;

        c = conn_learn(sk, sock_kind(sk), &owner, u);
        if (!c)
                return 0;
        /* Requests read before the attach are not counted. Data unread at the attach is treated as arriving
         * now. For a connection that is found later, since it was in the accept queue at the attach,
         * arrivals up to now are unknown */
        now = bpf_ktime_get_ns();
        copied = BPF_CORE_READ(tp, copied_seq);
        rcv_nxt = BPF_CORE_READ(tp, rcv_nxt);
        snd_nxt = BPF_CORE_READ(tp, snd_nxt);

        bpf_spin_lock(&c->lock);
        if (!(c->x.flags & (EXCHANGE_IN_KNOWN | EXCHANGE_READ_KNOWN | EXCHANGE_OUT_KNOWN))) {
                exchange_begin(&c->x, c->kind == CONN_CLIENT || !at_attach ? rcv_nxt : copied, copied,
                               snd_nxt);
                if (rcv_nxt != copied && c->kind == CONN_SERVER && at_attach)
                        exchange_arrive(&c->x, now,
                                        &(struct exchange_segment) { .seq = copied, .end = rcv_nxt,
                                                .rcv_nxt = copied, .window_end = rcv_nxt }, &effect);
        }
        bpf_spin_unlock(&c->lock);

        conn_apply(c, u, &effect, now);
        return 0;
}

static __always_inline int socket_reassign(struct sock *sk) {
        const struct qos_hierarchy *h;
        struct qos_owner owner, to;
        struct conn *c;

        c = bpf_sk_storage_get(&conns, sk, 0, 0);
        if (!c)
                return 0;
        owner = owner_read(&c->owner);
        h = bpf_map_lookup_elem(&hierarchies, &owner.slot);
        if (!h || h->generation != owner.generation)
                return 0;

        if (h->flags & QOS_HIERARCHY_RETAINED) {
                to = owner_read(&h->outer);
                if (to.generation != 0)
                        socket_move(sk, c, &to);
        } else if (h->flags & QOS_HIERARCHY_RESCAN && c->found == 0 &&
                   sk->__sk_common.skc_state != TCP_LISTEN)
                c->found = CONN_FOUND_OUTER;
        return 0;
}

/* Runs over all known sockets after a unit was attached within another one, or detached there. Connections
 * of the outer unit that are in no table of files may belong to the inner one: their first reader decides.
 * Sockets of a detached unit are moved to the outer one. */
SEC("iter/bpf_sk_storage_map")
int units_reassign(struct bpf_iter__bpf_sk_storage_map *ctx) {
        struct qos_iter_session session = { .id = ctx->meta->session_id };
        struct sock *sk = ctx->sk;

        if (sk)
                return socket_reassign(sk);
        bpf_seq_write(ctx->meta->seq, &session, sizeof(session));
        return 0;
}

/* Listeners opened by the service manager, the only task visited: lists all, and assigns those at known
 * addresses to their units. */
SEC("iter/task_file")
int units_find_activated(struct bpf_iter__task_file *ctx) {
        struct qos_activation_socket passed = {};
        struct file *file = ctx->file;
        struct qos_owner *known, owner;
        struct socket *socket;
        struct qos_unit_map *u;
        struct sock *sk;
        struct conn *c;

        if (!ctx->task || !file)
                return 0;
        socket = bpf_sock_from_file(file);
        if (!socket)
                return 0;
        sk = socket->sk;
        if (!sk || (sk->sk_protocol != IPPROTO_TCP && sk->sk_protocol != IPPROTO_MPTCP) ||
            sk->__sk_common.skc_state != TCP_LISTEN)
                return 0;

        passed.cookie = bpf_get_socket_cookie(sk);
        sock_local(sk, &passed.address);

        known = bpf_map_lookup_elem(&addresses, &passed.address);
        if (known) {
                owner = *known;
                u = unit_get(&owner);
                c = bpf_sk_storage_get(&conns, sk, 0, 0);
                if (u && !(c && c->owner.slot == owner.slot && c->owner.generation == owner.generation))
                        listener_learn(sk, &owner, u, true);
        }
        bpf_seq_write(ctx->meta->seq, &passed, sizeof(passed));
        return 0;
}

/* ---- metrics of sockets ---- */

static __always_inline int listener_count(struct sock *sk, __u64 session) {
        const struct mptcp_sock *msk;
        struct qos_listener *l;
        struct qos_unit_map *u;

        l = bpf_sk_storage_get(&listeners, sk, 0, 0);
        if (!l || sk->__sk_common.skc_state != TCP_LISTEN || l->session == session)
                return 0;
        l->session = session;
        u = unit_get(&l->owner);
        if (!u)
                return 0;

        if (u->listeners_session != session) {
                u->accept_queue = 0;
                u->accept_queue_max = 0;
                u->listeners_session = session;
        }
        msk = (const struct mptcp_sock*) sk;
        if (sk->sk_protocol == IPPROTO_MPTCP && bpf_core_field_exists(msk->first)) {
                u->accept_queue += BPF_CORE_READ(msk, first, sk_ack_backlog);
                u->accept_queue_max += BPF_CORE_READ(msk, first, sk_max_ack_backlog);
        } else {
                u->accept_queue += sk->sk_ack_backlog;
                u->accept_queue_max += sk->sk_max_ack_backlog;
        }
        return 0;
}

/* Length and limit of accept queues. */
SEC("iter/bpf_sk_storage_map")
int requests_listeners(struct bpf_iter__bpf_sk_storage_map *ctx) {
        struct qos_iter_session session = { .id = ctx->meta->session_id };
        struct sock *sk = ctx->sk;

        if (sk)
                return listener_count(sk, session.id);
        bpf_seq_write(ctx->meta->seq, &session, sizeof(session));
        return 0;
}

struct oldest_search {
        const struct h2_streams *streams;
        struct qos_unit_map *u;
        const struct qos_intended *known; /* of the endpoint */
        __u64 now;
        __u64 at;
};

static long oldest_step(__u64 i, void *data) {
        struct oldest_search *o = data;
        const struct h2_stream *s = &o->streams->list[i & (H2_STREAMS / 2 - 1)];

        if (s->id == 0 || s->first_at == 0 || s->flags & H2_STREAM_ASIDE)
                return 0;
        if (s->first_out_at == 0 && s->last_at != 0 && s->read_at != 0 &&
            o->known && intent_is_usual(o->known, s->first_at, o->now)) {
                o->u->intending++;
                return 0;
        }
        if (s->first_at < o->at)
                o->at = s->first_at;
        if (s->first_out_at == 0)
                waiting_add(&o->u->waiting, o->now, s->first_at, 1);
        return 0;
}

/* Arrival of the oldest request of these streams, without those that seem delayed by intent; ~0: there is
 * none. Counts both kinds. known: of the endpoint; NULL: none is delayed by intent. A global function,
 * verified once. */
BPF_SUBPROG __u64 streams_find_oldest(const struct h2_streams *streams, struct qos_unit_map *u,
                                      const struct qos_intended *known, __u64 now) {
        struct oldest_search o = { .streams = streams, .u = u, .known = known, .now = now, .at = ~0ULL };

        if (!streams || !u)
                return ~0ULL;
        bpf_loop(H2_STREAMS / 2, oldest_step, &o, 0);
        return o.at;
}

/* Adds outstanding requests that were read to those waiting, except for long polls. */
static __attribute__((noinline)) int oldest_pipeline(struct qos_unit_map *u, const struct pipeline *p,
                __u64 now) {
        if (!u || !p)
                return 0;
        for (int i = 0; i < PIPELINE_BATCHES; i++) {
                const struct pipeline_batch *g = &p->groups[(p->head + i) & (PIPELINE_BATCHES - 1)];

                if (i < p->n_groups && !g->waits && g->n > g->excluded && g->first_at != 0)
                        waiting_add(&u->waiting, now, g->first_at, g->n - g->excluded);
        }
        return 0;
}

/* Requests to an endpoint that has never responded (a log collector) are not in flight once they were read:
 * they would be as long as their connections are open. Returns 1 if the request is no longer in flight. */
static __attribute__((noinline)) int request_ignore(struct conn *c, struct qos_unit_map *u, __u64 now) {
        struct exchange_effect effect = {};
        struct attribution p;

        if (!c || !u || target_has_responded(u, c->target))
                return 0;

        bpf_spin_lock(&c->lock);
        if (exchange_is_ignored(&c->x, now)) {
                c->x.flags |= EXCHANGE_ONE_WAY;
                exchange_shut(&c->x, &effect);
        }
        p = conn_commit(c, &effect);
        bpf_spin_unlock(&c->lock);
        u = effect.in_flight != 0 ? attribution_resolve(u, &p) : NULL;
        if (u) {
                window_advance(u, now);
                record_effect(u, p.target, &effect);
        }
        return effect.in_flight != 0;
}

/* Number of requests of a connection if these seem delayed by intent: they are long polls by their command,
 * or other requests to the endpoint were delayed by intent, and the client neither sends more nor has
 * closed. */
static __attribute__((noinline)) int pipeline_intends(struct qos_unit_map *u, const struct pipeline *p,
                                                      const struct conn *c, __u64 now) {
        const struct pipeline_batch *g;

        if (!u || !p || !c || p->n_groups != 1 || p->pending == 0)
                return 0;
        g = &p->groups[p->head & (PIPELINE_BATCHES - 1)];
        if (g->waits)
                return p->pending;
        return p->protocol == PROTOCOL_HTTP1 && p->pending == 1 && p->excluding == 0 && c->x.n_marks == 0 &&
                p->in.state == 0 && intent_is_usual(target_intended(u, c->target), g->first_at, now);
}

static __always_inline int conn_count_oldest(struct sock *sk, __u64 session) {
        const struct h2_more *more = NULL;
        const struct h2_conn *h = NULL;
        struct qos_unit_map *u;
        struct pipeline *p;
        struct conn *c;
        __u64 at, now = bpf_ktime_get_ns();
        int intended;

        c = bpf_sk_storage_get(&conns, sk, 0, 0);
        if (!c || c->kind != CONN_SERVER || c->target & TARGET_ONLY || c->visited == (__u32) session)
                return 0;
        c->visited = session;
        at = *(volatile __u64*) &c->x.open_at;
        if (c->x.flags & EXCHANGE_H2)
                h = bpf_sk_storage_get(&h2_conns, sk, 0, 0);
        else if (c->x.flags & EXCHANGE_TLS) {
                struct tls_conn *conn = bpf_sk_storage_get(&tls_conns, sk, 0, 0);
                struct tls_plaintext_h2 *m = conn && conn->key.ssl != 0 ? bpf_map_lookup_elem(&plaintext_h2,
                                &conn->key) : NULL;

                if (m) {
                        h = &m->h2;
                        more = &m->more;
                }
        }
        if (at == 0 && !(h && h->open > 0))
                return 0;
        u = unit_get(&c->owner);
        if (!u)
                return 0;
        if (!(c->x.flags & (EXCHANGE_PARSED | EXCHANGE_H2)) && exchange_is_ignored(&c->x, now) &&
            request_ignore(c, u, now))
                return 0;

        if (u->oldest_session != session) {
                u->oldest_at = ~0ULL;
                u->intending = 0;
                waiting_reset(&u->waiting);
                u->oldest_session = session;
        }

        if (h) {
                const struct qos_intended *known = NULL;
                __u64 oldest = ~0ULL, other, intending = u->intending;

                if (!fin_received(sk->__sk_common.skc_state))
                        known = target_intended(u, c->target);
                if (h->open > 0) {
                        oldest = streams_find_oldest(&h->streams, u, known, now);
                        if (!more && h->more == H2_MORE_HERE)
                                more = bpf_sk_storage_get(&h2_mores, sk, 0, 0);
                        other = more ? streams_find_oldest(&more->streams, u, known, now) : ~0ULL;
                        if (other < oldest)
                                oldest = other;
                }
                if (oldest != ~0ULL)
                        at = oldest;
                else if (u->intending != intending)
                        return 0;
        } else {
                p = c->x.flags & EXCHANGE_PARSED ? bpf_sk_storage_get(&pipelines, sk, 0, 0) : 0;
                intended = 0;
                if (!fin_received(sk->__sk_common.skc_state))
                        intended = p ? pipeline_intends(u, p, c, now) : exchange_is_reaction(&c->x);
                if (intended > 0) {
                        u->intending += intended;
                        return 0;
                }
                if (p && p->n_groups > 0)
                        oldest_pipeline(u, p, now);
                else if (at > c->x.first_out_at) /* otherwise a response is being sent */
                        waiting_add(&u->waiting, now, at, 1);
        }

        if (at != 0 && at < u->oldest_at)
                u->oldest_at = at;
        return 0;
}

/* Finds the oldest request in flight of each unit, and the ages of those without any response byte. */
SEC("iter/bpf_sk_storage_map")
int requests_oldest(struct bpf_iter__bpf_sk_storage_map *ctx) {
        struct qos_iter_session session = { .id = ctx->meta->session_id };
        struct sock *sk = ctx->sk;

        if (sk)
                return conn_count_oldest(sk, session.id);
        bpf_seq_write(ctx->meta->seq, &session, sizeof(session));
        return 0;
}

/* Bits of sock.sk_tsq_flags and socket.flags */
#define TSQ_THROTTLED 1UL
#define SOCK_NOSPACE 4UL

/* Whether the peer was the last to send data. Within a jiffy that shows in the last segment that has
 * acknowledged something: more data came with it, or behind it. */
static __always_inline bool peer_was_last(const struct tcp_sock *tp) {
        const struct inet_connection_sock *icsk = (const struct inet_connection_sock*) tp;

        return (__s32) (icsk->icsk_ack.lrcvtime - tp->lsndtime) > 0 || tp->snd_wl1 != tp->rcv_nxt;
}

static __always_inline int conn_count_send(struct sock *sk, __u64 session) {
        struct send_state s = {};
        struct qos_unit_map *u;
        struct tcp_sock *tp;
        struct conn *c;
        __u32 wait;

        c = bpf_sk_storage_get(&conns, sk, 0, 0);
        if (!c || c->kind != CONN_SERVER || c->target & TARGET_ONLY || c->visited == (__u32) session)
                return 0;
        c->visited = session;
        tp = bpf_skc_to_tcp_sock(sk);
        if (!tp)
                return 0;
        s.snd_una = tp->snd_una;
        s.snd_nxt = tp->snd_nxt;
        s.write_seq = tp->write_seq;
        s.packets_out = tp->packets_out;
        if (s.write_seq == s.snd_nxt && s.packets_out == 0) {
                /* Nothing has arrived that would be in flight, or responded to */
                if (c->x.flags & EXCHANGE_FRESH || c->x.first_at != 0 ||
                    sk->__sk_common.skc_state != TCP_ESTABLISHED || !peer_was_last(tp))
                        return 0;
                u = unit_get(&c->owner);
                if (u)
                        u->sends.awaiting++;
                return 0;
        }
        s.snd_sml = tp->snd_sml;
        s.snd_wnd = tp->snd_wnd;
        s.max_window = tp->max_window;
        s.mss = tp->mss_cache;
        s.in_network = s.packets_out - tp->sacked_out - tp->lost_out + tp->retrans_out;
        s.cwnd = tp->snd_cwnd;
        s.nonagle = BPF_CORE_READ_BITFIELD_PROBED(tp, nonagle);
        s.ca_state = BPF_CORE_READ_BITFIELD_PROBED((struct inet_connection_sock*) tp, icsk_ca_state);
        s.srtt = tp->srtt_us >> 3;
        s.min_rtt = s.srtt == 0 ? 0 : BPF_CORE_READ(tp, rtt_min.s[0].v);
        s.throttled = bpf_core_field_exists(sk->sk_tsq_flags) ? !!(sk->sk_tsq_flags & TSQ_THROTTLED) : 0;
        s.paced = tp->tcp_wstamp_ns > bpf_ktime_get_ns();
        s.nospace = !!(BPF_CORE_READ(sk, sk_socket, flags) & SOCK_NOSPACE);

        wait = send_wait_classify(&s);
        u = wait < QOS_SEND_WAITS ? unit_get(&c->owner) : NULL;
        if (!u)
                return 0;
        u->sends.waits[wait]++;
        u->sends.rtt += s.srtt;
        return 0;
}

/* Counts connections by what their written data waits for, and those whose clients may wait. */
SEC("iter/bpf_sk_storage_map")
int requests_sends(struct bpf_iter__bpf_sk_storage_map *ctx) {
        struct qos_iter_session session = { .id = ctx->meta->session_id };
        struct sock *sk = ctx->sk;

        if (sk)
                return conn_count_send(sk, session.id);
        bpf_seq_write(ctx->meta->seq, &session, sizeof(session));
        return 0;
}

static __always_inline int socket_retarget(struct sock *sk) {
        struct qos_owner owner;
        struct conn *c;

        c = bpf_sk_storage_get(&conns, sk, 0, 0);
        if (!c || (c->kind != CONN_LISTENER && c->kind != CONN_SERVER) ||
            sk->__sk_common.skc_state == TCP_CLOSE)
                return 0;
        owner = owner_read(&c->owner);
        if (unit_get(&owner))
                conn_move(sk, c, &owner);
        return 0;
}

/* Updates the target of all sockets after a change of exclusions, or when listeners were found. */
SEC("iter/bpf_sk_storage_map")
int requests_retarget(struct bpf_iter__bpf_sk_storage_map *ctx) {
        struct qos_iter_session session = { .id = ctx->meta->session_id };
        struct sock *sk = ctx->sk;

        if (sk)
                return socket_retarget(sk);
        bpf_seq_write(ctx->meta->seq, &session, sizeof(session));
        return 0;
}

/* ---- replacement for iterators over maps, where the kernel rejects these ---- */

/* Task of units_walk_tcp (enum qos_walk), written before each run. */
BPF_ARRAY_MAP(walk_purpose, ARRAY, 1, __u32);

/* More than the length of any accept queue in practice (net.core.somaxconn). */
#define WALK_SOCKETS 65536

/* The socket of a file, and the connections in its accept queue, which are in no table of files. The
 * pointers are valid within the RCU read-side section of the iterator: memory of TCP sockets and of
 * request_socks is only reused for objects of the same type. Connections accepted meanwhile may be missed,
 * or found twice. */
struct walk {
        struct sock *sk;
        struct request_sock *next;
        __u64 session;
        __u32 purpose;
};

static __attribute__((noinline)) int walk_visit(struct sock *sk, __u32 purpose, __u64 session) {
        if (!sk)
                return 0;
        switch (purpose) {
        case QOS_WALK_REASSIGN:
                return socket_reassign(sk);
        case QOS_WALK_LISTENERS:
                return listener_count(sk, session);
        case QOS_WALK_OLDEST:
                return conn_count_oldest(sk, session);
        case QOS_WALK_RETARGET:
                return socket_retarget(sk);
        default:
                return 0;
        }
}

static long walk_step(__u64 i, void *data) {
        struct walk *w = data;

        walk_visit(w->sk, w->purpose, w->session);
        if (!w->next)
                return 1;
        w->sk = w->next->sk;
        w->next = w->next->dl_next;
        return 0;
}

/* Does the same as the programs above (enum qos_walk), visiting the files of all tasks: PID 1 has listeners
 * of units open, and a process that has passed a socket may still have it. Sockets in no table of files are
 * missed: those being passed, and those used only by io_uring or the kernel. */
SEC("iter/task_file")
int units_walk_tcp(struct bpf_iter__task_file *ctx) {
        struct qos_iter_session session = { .id = ctx->meta->session_id };
        struct walk w = { .session = session.id };
        struct file *file = ctx->file;
        struct socket *socket;
        struct tcp_sock *tp;
        __u32 *purpose, zero = 0;

        if (!file) {
                bpf_seq_write(ctx->meta->seq, &session, sizeof(session));
                return 0;
        }
        purpose = bpf_map_lookup_elem(&walk_purpose, &zero);
        socket = bpf_sock_from_file(file);
        if (!purpose || !socket)
                return 0;
        w.purpose = *purpose;
        w.sk = socket->sk;
        if (!w.sk)
                return 0;
        if (w.sk->sk_protocol != IPPROTO_TCP && w.sk->sk_protocol != IPPROTO_MPTCP)
                return 0;

        /* NULL for MPTCP sockets, whose TCP sockets are not reachable from here */
        tp = bpf_skc_to_tcp_sock(w.sk);
        if (tp && w.sk->__sk_common.skc_state == TCP_LISTEN)
                w.next = ((struct inet_connection_sock*) tp)->icsk_accept_queue.rskq_accept_head;
        bpf_loop(WALK_SOCKETS, walk_step, &w, 0);
        return 0;
}

/* Like requests_sends. A separate program, as it runs some tens of times a second during a diagnosis. */
SEC("iter/task_file")
int requests_walk_sends(struct bpf_iter__task_file *ctx) {
        struct qos_iter_session session = { .id = ctx->meta->session_id };
        struct file *file = ctx->file;
        struct socket *socket;

        if (!file) {
                bpf_seq_write(ctx->meta->seq, &session, sizeof(session));
                return 0;
        }
        socket = bpf_sock_from_file(file);
        if (!socket || !socket->sk || socket->sk->sk_protocol != IPPROTO_TCP)
                return 0;
        return conn_count_send(socket->sk, session.id);
}

/* ---- gauges after skipped runs ---- */

static long gauges_begin_step(__u64 i, void *data) {
        __u32 slot = i;
        const struct qos_hierarchy *h = bpf_map_lookup_elem(&hierarchies, &slot);
        struct qos_owner owner = { .slot = slot, .generation = h ? h->generation : 0 };
        struct qos_unit_map *u = owner.generation ? unit_get(&owner) : NULL;

        if (u)
                window_sum_begin(u);
        return 0;
}

static long gauges_end_step(__u64 i, void *data) {
        const __u64 *session = data;
        __u32 slot = i;
        const struct qos_hierarchy *h = bpf_map_lookup_elem(&hierarchies, &slot);
        struct qos_owner owner = { .slot = slot, .generation = h ? h->generation : 0 };
        struct qos_unit_map *u = owner.generation ? unit_get(&owner) : NULL;

        if (!u)
                return 0;
        window_advance(u, bpf_ktime_get_ns());
        window_reconcile(u, *session);
        return 0;
}

/* Sums up the gauges of all connections, and corrects those of the units if the kernel has skipped a run
 * that would have changed them. */
SEC("iter/bpf_sk_storage_map")
int requests_gauges(struct bpf_iter__bpf_sk_storage_map *ctx) {
        struct qos_iter_session session = { .id = ctx->meta->session_id };
        struct sock *sk = ctx->sk;
        struct tls_plaintext_h2 *m;
        struct attribution p;
        __s32 in_flight;
        struct qos_unit_map *u;
        struct conn *c;
        struct tls_conn *conn;
        __u32 open;

        if (ctx->meta->seq_num == 0)
                bpf_loop(UNITS_MAX_LIMIT, gauges_begin_step, NULL, 0);
        if (!sk) {
                bpf_loop(UNITS_MAX_LIMIT, gauges_end_step, &session.id, 0);
                bpf_seq_write(ctx->meta->seq, &session, sizeof(session));
                return 0;
        }
        c = bpf_sk_storage_get(&conns, sk, 0, 0);
        if (!c || (c->kind != CONN_SERVER && c->kind != CONN_CLIENT))
                return 0;
        bpf_spin_lock(&c->lock);
        p.owner = c->owner;
        p.target = c->target;
        in_flight = c->in_flight;
        open = c->counted;
        bpf_spin_unlock(&c->lock);
        u = unit_get(&p.owner);
        if (!u)
                return 0;
        conn = c->x.flags & EXCHANGE_TLS ? bpf_sk_storage_get(&tls_conns, sk, 0, 0) : NULL;
        m = conn && conn->key.ssl != 0 ? bpf_map_lookup_elem(&plaintext_h2, &conn->key) : NULL;
        if (m && owner_equal(&m->owner, &p.owner))
                in_flight += m->counted;
        p.target = target_resolve(u, p.target);
        window_sum(u, session.id, open, in_flight, p.target & TARGET_ENTRY, p.target & TARGET_ONLY);
        return 0;
}
