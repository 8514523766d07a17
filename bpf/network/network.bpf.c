// SPDX-License-Identifier: GPL-2.0-or-later

/* The probe "network": what TCP counts of the connections of units.
 *
 *   network_state, network_state_nested    a connection begins, is established, or ends
 *   network_destroy                        its socket is released: what was read since the end
 *   network_move                           a segment has arrived: its way until there, and what TCP
 *                                          counts once in 134 ms
 *   network_recovery,
 *   network_recovery_nested                TCP begins to recover from a loss
 *   network_rtt                            TCP has measured a round-trip time, or is about to send a SYN
 *   network_drop                           a packet is discarded (drops.bpf.h)
 *   network_flows                          iterator: records all connections
 *   network_walk                           the same, by the files of all tasks
 *   network_list, network_walk_list        iterators: list the connections of some units
 *
 * Which unit a connection belongs to is known by the programs of the probe "requests" (struct conn). */

#include "receive.bpf.h"

#define PREEMPTION_OBJECT network
#include "preemption.h"

char LICENSE[] SEC("license") = "GPL";

/* What a run is for. */
enum flow_event {
        FLOW_MOVES,
        FLOW_CONNECTS,          /* the unit is the client */
        FLOW_OPENS,             /* the handshake is complete */
        FLOW_ENDS,
};

/* Bit of sock.__sk_common.skc_flags (enum sock_flags): a FIN has been received. */
#define SOCK_DONE 1

/* state: of the connection before the change; 0: as it is. In this order, what an iterator sees of a
 * connection that moves is no more than what has been read and written: the kernel adds to bytes_acked
 * before snd_una, to bytes_received before rcv_nxt, and sets the state before it queues a FIN. */
static __always_inline void flow_read(const struct sock *sk, const struct tcp_sock *tp, __u32 state,
                                      struct flow_fields *ret) {
        ret->copied_seq = tp->copied_seq;
        ret->write_seq = tp->write_seq;
        barrier();
        if (state == 0)
                state = sk->__sk_common.skc_state;
        ret->bytes_received = tp->bytes_received;
        ret->bytes_acked = tp->bytes_acked;
        barrier();
        ret->rcv_nxt = tp->rcv_nxt;
        ret->snd_una = tp->snd_una;
        ret->bytes_sent = tp->bytes_sent;
        ret->bytes_retrans = tp->bytes_retrans;
        ret->total_retrans = tp->total_retrans;
        ret->total_rto = tp->total_rto;
        ret->chrono_type = BPF_CORE_READ_BITFIELD(tp, chrono_type);
        ret->chrono_start = tp->chrono_start;
        ret->chrono_stat[0] = tp->chrono_stat[0];
        ret->chrono_stat[1] = tp->chrono_stat[1];
        ret->chrono_stat[2] = tp->chrono_stat[2];
        ret->jiffies = (__u32) bpf_jiffies64();
        ret->fin_sent = state == TCP_FIN_WAIT1 || state == TCP_FIN_WAIT2 || state == TCP_LAST_ACK ||
                        state == TCP_CLOSING;
        ret->fin_received = sk->__sk_common.skc_flags >> SOCK_DONE & 1;
        ret->connects = state == TCP_SYN_SENT;
        ret->opened = state != TCP_SYN_SENT && state != TCP_SYN_RECV && state != TCP_NEW_SYN_RECV;
}

/* What a run has to record, as the lock is held while it is found out. */
struct flow_change {
        __u64 n[QOS_FLOW_COUNTERS];
        __u64 duration;         /* these two: 0: none */
        __u64 handshake;
        __u64 syn_retransmits;
        struct qos_owner owner; /* generation 0: nothing */
        __u32 generation;
};

/* An event of a connection, and the unit that it belongs to now; generation 0: none with the probe. */
struct flow_moment {
        struct qos_owner owner;
        __u32 generation;       /* of the network map */
        __u32 event;            /* enum flow_event */
        __u32 client;           /* 1: of one that begins, the unit is the client */
        __u64 now;              /* CLOCK_MONOTONIC ns */
};

/* The lock is held. */
static __always_inline void flow_apply(struct flow *f, const struct flow_fields *fields,
                                       const struct flow_moment *m, struct flow_change *ret) {
        const struct qos_owner *owner = &m->owner;
        __u32 event = m->event, generation = m->generation;
        __u64 now = m->now;
        bool same = f->owner.generation == owner->generation && f->owner.slot == owner->slot &&
                f->generation == generation;

        ret->duration = ret->handshake = ret->syn_retransmits = 0;
        ret->owner.generation = 0;
        if (event == FLOW_CONNECTS || (event == FLOW_OPENS && !f->begun && (f->since == 0 || !same))) {
                flow_begin(&f->counts, fields, m->client);
                f->since = 0;
                f->begun = 1;
                f->max_queued = 0;
                f->connects_at = event == FLOW_CONNECTS ? now : 0;
        } else if (f->owner.generation == 0 || (!same && f->owner.generation == owner->generation))
                /* Found later, or the unit was not observed with the probe for a while */
                flow_join(&f->counts, fields);
        else {
                ret->owner = f->owner;
                ret->generation = f->generation;
                flow_step(&f->counts, fields, ret->n);
                ret->syn_retransmits = ret->n[QOS_FLOW_RETRANSMITS] & -(__u64) fields->connects;
        }
        if (event == FLOW_OPENS && f->begun) {
                f->begun = 0;
                f->since = now;
                if (f->connects_at != 0)
                        ret->handshake = now - f->connects_at;
                f->connects_at = 0;
                f->counts.counted[QOS_FLOW_TICKS] = fields->jiffies;
        }
        if (event == FLOW_ENDS && !f->counts.ended) {
                if (f->since != 0)
                        ret->duration = now - f->since;
                f->since = 0;
                f->begun = 0;
                f->connects_at = 0;
                f->counts.ended = 1;
        }
        if (fields->opened && fields->write_seq - fields->snd_una > f->max_queued)
                f->max_queued = fields->write_seq - fields->snd_una;
        f->owner = *owner;
        if (generation == 0)
                f->owner.generation = 0;
        f->generation = generation;
}

static __attribute__((noinline)) int flow_record(const struct flow_change *change) {
        struct qos_network_counts *live;
        __u64 now = bpf_ktime_get_ns();
        __u32 generation = 0;
        void *map;

        if (!change)
                return 0;
        map = network_map_get(&change->owner, &generation);
        if (!map || generation != change->generation)
                return 0;
        live = network_enter(map, now);
        if (!live)
                return 0;
        for (__u32 i = 0; i < QOS_FLOW_COUNTERS; i++)
                if (change->n[i] != 0)
                        network_add(live, QOS_NETWORK_FLOWS + i, change->n[i]);
        if (change->duration != 0)
                network_sample(map, live, now, QOS_NETWORK_DURATION, change->duration);
        if (change->handshake != 0)
                network_sample(map, live, now, QOS_NETWORK_HANDSHAKE, change->handshake);
        if (change->syn_retransmits != 0)
                network_add(live, QOS_NETWORK_SYN_RETRANSMITS, change->syn_retransmits);
        return 0;
}

/* What the endpoint or peer of a connection has of it, in the map of the probe "requests". target: that of
 * struct conn; rtt: us, 0: unchanged. Verified on its own. */
BPF_SUBPROG int flow_record_entry(__u32 slot, __u32 unit, __u32 target, __u32 retransmits, __u32 rtt) {
        const struct qos_owner owner = { .slot = slot, .generation = unit };
        struct qos_unit_map *u = unit_get(&owner);

        if (!u)
                return 0;
        window_advance(u, bpf_ktime_get_ns());
        target = target_resolve(u, target);
        record_count(u, target, QOS_COUNTER_FLOW_RETRANSMITS, QOS_ENTRY_FLOW_RETRANSMITS, retransmits);
        record_sum(u, target, QOS_SUM_FLOW_RTT, QOS_ENTRY_SUM_RTT, rtt);
        record_count(u, target, QOS_COUNTER_FLOW_RTTS, QOS_ENTRY_FLOW_RTTS, rtt != 0);
        return 0;
}

/* Peers have an entry, or none yet. */
static __always_inline bool conn_has_target(const struct conn *c) {
        return c->kind == CONN_SERVER || (c->kind == CONN_CLIENT && c->target & TARGET_ENTRY);
}

/* state: of the connection, before it changes; 0: it does not. Returns whether flow_update_entry() has
 * something to record. */
static __attribute__((noinline)) int flow_update(struct sock *sk, __u32 state, __u32 event) {
        struct flow_moment m = { .event = event };
        struct flow_fields fields;
        struct flow_change change;
        struct tcp_sock *tp;
        struct flow *f;
        struct conn *c;
        bool create;
        void *map;

        if (!sk || sk->__sk_common.skc_state == TCP_LISTEN)
                return 0;
        c = bpf_sk_storage_get(&conns, sk, 0, 0);
        tp = c ? bpf_skc_to_tcp_sock(sk) : NULL;
        if (!tp)
                return 0;
        m.owner = owner_read(&c->owner);
        map = network_map_get(&m.owner, &m.generation);
        /* Nothing follows on one that has ended */
        create = map && (sk->__sk_common.skc_state != TCP_CLOSE || event == FLOW_CONNECTS);
        f = create ? BPF_STORAGE_CREATE(sk, flows, sk) : bpf_sk_storage_get(&flows, sk, 0, 0);
        if (!f) {
                if (create)
                        element_lost(QOS_STATISTIC_LOST_FLOWS, &m.owner);
                return 0;
        }
        if (!map && f->owner.generation == 0)
                return 0;

        m.client = state == TCP_SYN_SENT || event == FLOW_CONNECTS;
        m.now = bpf_ktime_get_ns();
        flow_read(sk, tp, state, &fields);
        /* With TCP_FASTOPEN_CONNECT the SYN may wait for the first write */
        if (event == FLOW_CONNECTS)
                f->searches = !BPF_CORE_READ_BITFIELD(tp, fastopen_connect);
        bpf_spin_lock(&f->lock);
        flow_apply(f, &fields, &m, &change);
        bpf_spin_unlock(&f->lock);
        if (change.owner.generation == 0)
                return 0;
        flow_record(&change);
        if (!owner_equal(&change.owner, &m.owner))
                return 0;
        __sync_fetch_and_add(&f->entry_retransmits, (__u32) change.n[QOS_FLOW_RETRANSMITS]);
        if (change.n[QOS_FLOW_BYTES_ACKED] != 0)
                f->entry_rtt = tp->srtt_us >> 3;
        return change.n[QOS_FLOW_RETRANSMITS] + change.n[QOS_FLOW_BYTES_ACKED] != 0;
}

/* Records what flow_update() has left for the endpoint or peer. Not called by it, as programs that call it
 * have no stack left. */
static __attribute__((noinline)) int flow_update_entry(struct sock *sk) {
        struct conn *c = sk ? bpf_sk_storage_get(&conns, sk, 0, 0) : NULL;
        struct flow *f = c ? bpf_sk_storage_get(&flows, sk, 0, 0) : NULL;
        struct qos_owner owner;
        __u32 retransmits, rtt;

        if (!f || !conn_has_target(c))
                return 0;
        owner = owner_read(&c->owner);
        retransmits = __sync_lock_test_and_set(&f->entry_retransmits, 0);
        rtt = __sync_lock_test_and_set(&f->entry_rtt, 0);
        if (retransmits + rtt != 0)
                flow_record_entry(owner.slot, owner.generation, c->target, retransmits, rtt);
        return 0;
}

static __always_inline void flow_update_all(struct sock *sk, __u32 state, __u32 event) {
        if (flow_update(sk, state, event))
                flow_update_entry(sk);
}

/* A run whose connection may not be known yet. */
static __always_inline int flow_handle(struct sock *sk, __u32 state, __u32 event) {
        __u32 zero = 0, *turn = bpf_map_lookup_elem(&overhead_turns, &zero);
        __u64 begin = turn && overhead_sample(turn) ? bpf_ktime_get_ns() : 0;

        flow_update_all(sk, state, event);
        if (begin != 0)
                flow_record_overhead(sk, begin);
        return 0;
}

/* connect(2) has found no local port. A port that the application has bound is in skc_num. */
static __attribute__((noinline)) int ports_exhausted(struct sock *sk) {
        struct qos_network_counts *live;
        __u32 generation;
        struct flow *f;
        void *map;

        f = sk ? bpf_sk_storage_get(&flows, sk, 0, 0) : NULL;
        if (!f || f->counts.ended)
                return 0;
        map = network_map_get(&f->owner, &generation);
        live = map ? network_enter(map, bpf_ktime_get_ns()) : NULL;
        if (live)
                network_add(live, QOS_NETWORK_PORTS_EXHAUSTED, 1);
        return 0;
}

/* Sockets of no unit have no storage, unless other programs have given them some. The programs of "requests"
 * run before, and give it to those of units. */
static __always_inline void state_handle(struct sock *sk, __u32 old_state, __u32 new_state) {
        if (!sk->sk_bpf_storage || sk->sk_protocol != IPPROTO_TCP)
                return;
        if (new_state == TCP_SYN_SENT)
                flow_handle(sk, old_state, FLOW_CONNECTS);
        else if (new_state == TCP_ESTABLISHED)
                flow_handle(sk, old_state, FLOW_OPENS);
        else if (new_state == TCP_CLOSE) {
                if (old_state == TCP_SYN_SENT && sk->__sk_common.skc_num == 0)
                        ports_exhausted(sk);
                flow_handle(sk, old_state, FLOW_ENDS);
        }
}

/* Two programs, as requests_state. Both run mostly, and the second one finds nothing to record. */
SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(network_state, struct sock *sk, int old_state, int new_state) {
        preemption_disable();
        state_handle(sk, old_state, new_state);
        preemption_enable();
        return 0;
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(network_state_nested, struct sock *sk, int old_state, int new_state) {
        preemption_disable();
        state_handle(sk, old_state, new_state);
        preemption_enable();
        return 0;
}

/* The data that was queued when the connection ended can still be read. */
SEC("tp_btf/tcp_destroy_sock")
int BPF_PROG(network_destroy, struct sock *sk) {
        if (!sk->sk_bpf_storage)
                return 0;
        preemption_disable();
        flow_handle(sk, 0, FLOW_ENDS);
        preemption_enable();
        return 0;
}

/* A connection is recorded when it moves for the first time in an interval of 134 ms, which begins for each
 * peer's port at another time. */
#define FLOW_INTERVAL_SHIFT 27 /* ns */

static __always_inline __u32 flow_interval(const struct sock *sk, __u32 jiffies) {
        return (__u32) (jiffies + sk->__sk_common.skc_dport) * tick_nsec >> FLOW_INTERVAL_SHIFT;
}

/* Whether TCP has got nothing on the connection in this interval before, as far as it remembers: without
 * storage of the socket, for nearly all segments. */
static __always_inline bool flow_is_due(const struct sock *sk) {
        const struct tcp_sock *tp = bpf_rdonly_cast___path(sk, bpf_core_type_id_kernel(struct tcp_sock));
        __u32 now = flow_interval(sk, bpf_jiffies64());

        return flow_interval(sk, tp->rcv_tstamp) != now &&
                flow_interval(sk, tp->inet_conn.icsk_ack.lrcvtime) != now;
}

/* One after the other, as what flow_update() calls leaves 16 bytes of stack. */
SEC("tp_btf/tcp_probe")
int BPF_PROG(network_move, struct sock *sk, struct sk_buff *skb) {
        struct flow *f;
        __u64 begin;

        if (!sk->sk_bpf_storage)
                return 0;
        preemption_disable();
        f = path_is_measured(sk, skb) ? bpf_sk_storage_get(&flows, sk, 0, 0) : NULL;
        if (f) {
                begin = overhead_begin_sample(f);
                path_receive(sk, skb, f);
                if (begin != 0)
                        flow_record_overhead(sk, begin);
        }
        if (flow_is_due(sk))
                flow_handle(sk, 0, FLOW_MOVES);
        preemption_enable();
        return 0;
}

/* enum tcp_ca_state */
#define TCP_CA_RECOVERY 3

/* state: the next one; in between two recoveries there is another. */
static __always_inline void recovery_handle(struct sock *sk, __u32 state) {
        __u32 recovers = (state & 0xff) == TCP_CA_RECOVERY, generation;
        struct qos_network_counts *live;
        struct flow *f;
        void *map;

        f = bpf_sk_storage_get(&flows, sk, 0, 0);
        if (!f || f->recovers == recovers)
                return;
        f->recovers = recovers;
        if (!recovers)
                return;
        map = network_map_get(&f->owner, &generation);
        live = map ? network_enter(map, bpf_ktime_get_ns()) : NULL;
        if (live)
                network_add(live, QOS_NETWORK_RECOVERIES, 1);
}

/* Two programs, as network_state: a segment that has waited for its socket is handled with interrupts
 * enabled, and one of another connection may interrupt the first one. */
SEC("tp_btf/tcp_cong_state_set")
int BPF_PROG(network_recovery, struct sock *sk, __u32 state) {
        if (!sk->sk_bpf_storage)
                return 0;
        preemption_disable();
        recovery_handle(sk, state);
        preemption_enable();
        return 0;
}

SEC("tp_btf/tcp_cong_state_set")
int BPF_PROG(network_recovery_nested, struct sock *sk, __u32 state) {
        if (!sk->sk_bpf_storage)
                return 0;
        preemption_disable();
        recovery_handle(sk, state);
        preemption_enable();
        return 0;
}

/* The kernel calls it for each round-trip time of sockets with this flag: those of units with the probe get
 * it when they are established. The flags of a socket are shared with other programs, and are only added
 * to. */
SEC("sockops")
int network_rtt(struct bpf_sock_ops *ctx) {
        struct bpf_sock *sk = ctx->sk;
        struct qos_network_counts *live;
        struct qos_owner owner;
        __u32 generation;
        struct flow *f;
        struct conn *c;
        __u64 now;
        void *map;

        if (!sk)
                return 1;
        if (ctx->op == BPF_SOCK_OPS_RTT_CB) {
                f = bpf_sk_storage_get(&flows, sk, 0, 0);
                map = f ? network_map_get(&f->owner, &generation) : NULL;
                now = bpf_ktime_get_ns();
                live = map ? network_enter(map, now) : NULL;
                if (live)
                        network_sample(map, live, now, QOS_NETWORK_RTT, ctx->args[0] * 1000ULL);
        } else if (ctx->op == BPF_SOCK_OPS_TCP_CONNECT_CB) {
                f = bpf_sk_storage_get(&flows, sk, 0, 0);
                if (!f || !f->searches || f->connects_at == 0)
                        return 1;
                f->searches = 0;
                map = network_map_get(&f->owner, &generation);
                now = bpf_ktime_get_ns();
                live = map ? network_enter(map, now) : NULL;
                if (live)
                        network_sample(map, live, now, QOS_NETWORK_PORTS, now - f->connects_at);
        } else if (ctx->op == BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB ||
                   ctx->op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB) {
                c = bpf_sk_storage_get(&conns, sk, 0, 0);
                if (!c)
                        return 1;
                owner = owner_read(&c->owner);
                if (network_map_get(&owner, &generation))
                        bpf_sock_ops_cb_flags_set(ctx, ctx->bpf_sock_ops_cb_flags |
                                                       BPF_SOCK_OPS_RTT_CB_FLAG);
        }
        return 1;
}

#include "drops.bpf.h"

/* ---- readings ----------------------------------------------------------------------------------------- */

SEC("iter/bpf_sk_storage_map")
int network_flows(struct bpf_iter__bpf_sk_storage_map *ctx) {
        struct qos_iter_session session = { .id = ctx->meta->session_id };
        struct sock *sk = ctx->sk;

        if (sk) {
                flow_update_all(sk, 0, FLOW_MOVES);
                return 0;
        }
        bpf_seq_write(ctx->meta->seq, &session, sizeof(session));
        return 0;
}

/* Connections that wait to be accepted are in no table of files, and are recorded once they are. */
SEC("iter/task_file")
int network_walk(struct bpf_iter__task_file *ctx) {
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
        if (!sk || sk->sk_protocol != IPPROTO_TCP)
                return 0;
        flow_update_all(sk, 0, FLOW_MOVES);
        return 0;
}

BPF_ARRAY_MAP(connections_request, ARRAY, 1, struct qos_connections_request);

/* IPv4 on an IPv6 socket is shown as that. */
static __always_inline void address_unmap(struct qos_address *a) {
        volatile __u32 *words = (volatile __u32*) a->address;

        if (a->family != AF_INET6 || words[0] != 0 || words[1] != 0 || words[2] != bpf_htonl(0xffff))
                return;
        words[0] = words[3];
        words[2] = words[3] = 0;
        a->family = AF_INET;
}

static __attribute__((noinline)) int connection_list(struct sock *sk, struct seq_file *seq) {
        const struct qos_connections_request *request;
        struct qos_connection out = {};
        struct tcp_sock *tp;
        struct qos_owner owner;
        __u32 zero = 0;
        struct flow *f;
        struct conn *c;

        if (!sk || !seq || sk->__sk_common.skc_state == TCP_LISTEN || sk->__sk_common.skc_state == TCP_CLOSE)
                return 0;
        request = bpf_map_lookup_elem(&connections_request, &zero);
        c = bpf_sk_storage_get(&conns, sk, 0, 0);
        tp = c ? bpf_skc_to_tcp_sock(sk) : NULL;
        f = tp ? bpf_sk_storage_get(&flows, sk, 0, 0) : NULL;
        if (!request || !f)
                return 0;
        owner = owner_read(&c->owner);
        if (owner.generation == 0 || !(request->slots[owner.slot / 64 % (UNITS_MAX_LIMIT / 64)] &
                                       1ULL << owner.slot % 64))
                return 0;

        sock_local(sk, &out.local);
        address_unmap(&out.local);
        sock_remote(sk, &out.peer);
        out.slot = owner.slot;
        out.unit = owner.generation;
        out.age = f->since != 0 ? bpf_ktime_get_ns() - f->since : 0;
        out.bytes_sent = tp->bytes_sent;
        out.bytes_acked = tp->bytes_acked;
        out.bytes_received = tp->bytes_received;
        out.bytes_retransmitted = tp->bytes_retrans;
        out.retransmits = tp->total_retrans;
        out.timeouts = tp->total_rto;
        out.rtt = tp->srtt_us >> 3;
        out.peer_window = tp->snd_wnd;
        out.receive_window = tp->rcv_wnd;
        out.congestion_window = tp->snd_cwnd;
        out.mss = tp->mss_cache;
        out.in_flight = tp->snd_nxt - tp->snd_una;
        out.in_flight_segments = tp->packets_out;
        out.unsent = tp->write_seq - tp->snd_nxt;
        out.max_queued = tp->write_seq - tp->snd_una;
        if (f->max_queued > out.max_queued)
                out.max_queued = f->max_queued;
        out.state = sk->__sk_common.skc_state;
        out.limit = BPF_CORE_READ_BITFIELD(tp, chrono_type);
        out.client = c->kind == CONN_CLIENT;
        bpf_seq_write(seq, &out, sizeof(out));
        return 0;
}

SEC("iter/bpf_sk_storage_map")
int network_list(struct bpf_iter__bpf_sk_storage_map *ctx) {
        return ctx->sk ? connection_list(ctx->sk, ctx->meta->seq) : 0;
}

/* A socket in several tables of files, or twice in one, is listed as often. */
SEC("iter/task_file")
int network_walk_list(struct bpf_iter__task_file *ctx) {
        struct file *file = ctx->file;
        struct socket *socket;
        struct sock *sk;

        socket = file ? bpf_sock_from_file(file) : NULL;
        sk = socket ? socket->sk : NULL;
        if (!sk || sk->sk_protocol != IPPROTO_TCP)
                return 0;
        return connection_list(sk, ctx->meta->seq);
}
