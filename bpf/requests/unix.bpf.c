// SPDX-License-Identifier: GPL-2.0-or-later

/* The probe "requests": requests on Unix sockets, stream and seqpacket, of units in both roles.
 *
 *   arrival, departure   sk_data_ready             of the receiving socket, called by the sender after it
 *                                                  has queued the data and before the receiver is woken:
 *                                                  at an accepted socket the arrival of a request, at its
 *                                                  peer the departure of a response
 *   connection           sk_data_ready             of the listener, before connect() returns
 *   read                 skb_copy_datagram_iovec   in tcp.bpf.c, which calls unix_content()
 *
 * A client sees the same events from the other end: data queued at the accepted socket is sent, data queued
 * at its own socket arrives.
 *
 * No event shows that such a socket is closed, but its storage is freed with it: iterators count the
 * requests in flight for each reading. */

#define PREEMPTION_OBJECT unix_sockets
#include "preemption.h"
#include "unix.bpf.h"

char LICENSE[] SEC("license") = "GPL";

/* Owners of listeners, by the address of their name. An accepted socket is created by the client, in the
 * client's control group; it shares the name object with its listener, which is freed with the last of them.
 * If the memory is reused for another name, the first connection to that one corrects the element. The size
 * limits concurrent listeners of units: if one is evicted, the first request on a connection has no arrival
 * time. 80 KiB. */
struct unix_name {
        struct qos_owner owner;
        __u32 found;
        __u32 target;
        __u32 responded;        /* 1: a response was sent; only used if the listener shares its entry */
        __u32 _padding;
};

struct {
        __uint(type, BPF_MAP_TYPE_LRU_HASH);
        __uint(max_entries, 1024);
        __type(key, __u64);
        __type(value, struct unix_name);
} unix_names SEC(".maps");

/* Owner of a listener: by its storage, or by the task that has created it. */
static __always_inline bool listener_owner(struct sock *sk, struct unix_name *ret) {
        struct qos_owner owner;
        struct unix_conn *c;

        c = bpf_sk_storage_get(&unix_conns, sk, 0, 0);
        if (c && c->kind == UNIX_LISTENER && unit_get(&c->owner)) {
                ret->owner = c->owner;
                ret->found = c->found;
                return true;
        }

        if (!group_owner(sk->sk_cgrp_data.cgroup, &owner) || !unit_get(&owner))
                return false;
        ret->owner = owner;
        ret->found = 0;
        return true;
}

static __always_inline void listener_note(struct sock *sk, struct unix_sock *us) {
        struct unix_name name = {}, *known;
        __u64 key = (__u64) us->addr;
        struct qos_unit_map *u;

        known = bpf_map_lookup_elem(&unix_names, &key);
        if (!listener_owner(sk, &name)) {
                if (known)
                        bpf_map_delete_elem(&unix_names, &key);
                return;
        }
        if (known && owner_equal(&known->owner, &name.owner) && known->found == name.found)
                return; /* the entry of an endpoint does not change */
        u = unit_get(&name.owner);
        if (!u)
                return;
        name.target = unix_find_target(us, u);
        if (bpf_map_update_elem(&unix_names, &key, &name, BPF_ANY) < 0)
                element_lost(QOS_STATISTIC_LOST_UNIX_NAMES, &name.owner);
}

/* Like target_has_responded(), for a listener that shares its entry. */
static __attribute__((noinline)) int unix_has_responded(struct sock *sk, struct qos_unit_map *u,
                __u32 target) {
        struct unix_name *name;
        struct unix_sock *us;
        __u64 key;

        if (!sk || !u)
                return 0;
        us = target == QOS_ENTRY_ENDPOINTS_OTHERS ? bpf_skc_to_unix_sock(sk) : NULL;
        if (us) {
                key = (__u64) us->addr;
                name = bpf_map_lookup_elem(&unix_names, &key);
                if (name)
                        return name->responded;
        }
        return target_has_responded(u, target);
}

static __attribute__((noinline)) int unix_mark_responded(struct sock *sk) {
        struct unix_name *name;
        struct unix_sock *us;
        __u64 key;

        us = sk ? bpf_skc_to_unix_sock(sk) : NULL;
        if (!us)
                return 0;
        key = (__u64) us->addr;
        name = bpf_map_lookup_elem(&unix_names, &key);
        if (name)
                name->responded = 1;
        return 0;
}

/* Length of the newest buffer of a socket. */
static __attribute__((noinline)) __u32 unix_newest_length(struct sock *sk) {
        struct sk_buff *skb = NULL;
        __u32 length = 0;

        if (!sk || bpf_core_read(&skb, sizeof(skb), &sk->sk_receive_queue.prev) < 0 ||
            bpf_core_read(&length, sizeof(length), &skb->len) < 0)
                return ~0U;
        return length;
}

/* Records an effect. Global, so that the verifier does not explore it for each path of the state machine. */
__attribute__((noinline, weak)) int unix_record(struct qos_unit_map *u, const struct request_record *record,
                                                const struct exchange_effect *effect) {
        if (!u || !record || !effect)
                return 0;
        window_advance(u, record->now);
        record_effect(u, record->target, effect);
        if (effect->begun) {
                window_count(u, QOS_COUNTER_UNIX, 1);
                record_request(u, record);
        } else if (effect->grown)
                record_request_more(u, record);
        return 0;
}

/* A response was queued at the peer of this socket, at this time. at: 0: now. */
static __attribute__((noinline)) int unix_depart(struct sock *sk, struct unix_conn *c,
                                                 struct qos_unit_map *u, __u64 at) {
        struct exchange_effect effect = {};
        struct request_record record = {};
        __u64 now, late;
        __u32 queued;

        if (!sk || !c || !u)
                return 0;
        queued = sk->sk_receive_queue.qlen;
        now = bpf_ktime_get_ns();
        late = at != 0 && at < now ? now - at : 0;

        bpf_spin_lock(&c->lock);
        /* Recorded now, with times moved so that the durations are right */
        if (late > 0 && c->x.last_at != 0) {
                c->x.first_at += late;
                c->x.last_at += late;
        }
        c->x.read_at += late;
        if (c->x.n_marks > 0 && queued == 0 && late == 0)
                /* Spliced out of the socket at an unknown time, now at the latest */
                exchange_read(&c->x, now, c->x.in_end, 0, &effect);
        /* If at is given, the later run for this response does not belong to the next request */
        c->heard_out = at != 0 ||
                       (c->x.n_marks > 0 &&
                        (c->heard_out || (c->kept_at >= c->x.read_at && c->x.mark_at[0] >= c->kept_at)));
        exchange_depart(&c->x, now, 0, true, &effect);
        record.first_at = c->x.last_at == 0 ? 0 : c->x.first_at;
        record.last_at = c->x.last_at;
        record.read_at = c->x.read_at;
        record.first_out_at = c->x.first_out_at;
        record.target = c->target;
        bpf_spin_unlock(&c->lock);

        effect.in_flight = 0; /* see requests_unix_open */
        record.now = now;
        record.n = 1;
        record.before = effect.grown_from;
        unix_record(u, &record, &effect);
        if (effect.begun && record.target == QOS_ENTRY_ENDPOINTS_OTHERS)
                unix_mark_responded(sk);
        return 0;
}

/* Whether the client has read the response to its request before the run for its queueing. */
static __always_inline bool unix_is_unrecorded(const struct unix_conn *c) {
        return c->x.state == EXCHANGE_PENDING && c->kept_at != 0 && c->kept_at >= c->x.read_at;
}

/* The response was recorded: clears the copy of its request at the client's socket. */
static __attribute__((noinline)) int unix_forget(struct sock *client, struct unix_conn *c) {
        struct unix_unrecorded *kept;

        if (!client || !c)
                return 0;
        kept = bpf_sk_storage_get(&unix_unrecorded, client, 0, 0);
        if (!kept)
                return 0;
        bpf_spin_lock(&c->lock);
        if (c->x.state != EXCHANGE_PENDING) {
                kept->owner.generation = 0;
                c->kept_at = 0;
        }
        bpf_spin_unlock(&c->lock);
        return 0;
}

/* A response was queued by a socket that has been closed since, and the client has read data: it is the
 * response to the request in flight. */
static __attribute__((noinline)) int unix_depart_late(struct sock *client) {
        struct unix_unrecorded *kept;
        struct request_record record = { .n = 1 };
        struct qos_owner owner;
        struct qos_unit_map *u;

        if (!client)
                return 0;
        kept = bpf_sk_storage_get(&unix_unrecorded, client, 0, 0);
        if (!kept)
                return 0;
        owner.slot = kept->owner.slot;
        owner.generation = __sync_lock_test_and_set(&kept->owner.generation, 0);
        u = owner.generation != 0 ? unit_get(&owner) : NULL;
        if (!u)
                return 0;

        record.now = bpf_ktime_get_ns();
        record.first_at = kept->first_at;
        record.last_at = kept->last_at;
        record.read_at = kept->read_at;
        record.first_out_at = record.now;
        record.target = kept->target;
        window_advance(u, record.now);
        window_count(u, QOS_COUNTER_UNIX, 1);
        record_request(u, &record);
        return 0;
}

/* A datagram was queued, possibly a response: then its sender is the server. */
static __attribute__((noinline)) int unix_send_datagram(struct sock *sk, struct overhead *overhead) {
        struct qos_owner owner;
        struct unix_conn *c;
        struct qos_unit_map *u;
        __u32 bytes;
        __u64 now;

        if (!sk || !overhead)
                return 0;
        c = bpf_sk_storage_get(&unix_conns, sk, 0, 0);
        if (!c || c->kind != UNIX_ASKER || !task_owner(&owner) || !owner_equal(&owner, &c->owner))
                return 0;
        u = unit_get(&owner);
        if (!u)
                return 0;
        overhead_begin(overhead, &owner, u);

        now = bpf_ktime_get_ns();
        bpf_spin_lock(&c->lock);
        if (c->x.state == EXCHANGE_PENDING && now - c->x.read_at >= UNIX_WAIT_NSEC)
                c->x.state = EXCHANGE_IDLE; /* timed out */
        bytes = c->x.in_end - c->x.read_end;
        c->x.read_end = c->x.in_end;
        c->found = 1;
        bpf_spin_unlock(&c->lock);

        unix_depart(sk, c, u, 0);
        record_sum(u, c->target, QOS_SUM_BYTES_IN, QOS_ENTRY_SUM_BYTES_IN, bytes);
        return 0;
}

/* ---- client role -------------------------------------------------------------------------------------- */

/* The current task has queued data at an accepted socket. asker: socket of the client; us: accepted socket,
 * which has the name of the listener. */
static __attribute__((noinline)) int unix_client_send(struct sock *asker, struct sock *sk,
                                                      struct unix_sock *us, struct overhead *overhead) {
        struct exchange_effect effect = {};
        struct request_record record = { .n = 1 };
        __u32 waiting, queued, length = 0;
        struct qos_owner owner;
        struct unix_conn *c;
        struct qos_unit_map *u;
        bool first = false;

        if (!asker || !sk || !us || !overhead)
                return 0;
        c = bpf_sk_storage_get(&unix_conns, asker, 0, 0);
        u = c ? unit_get(&c->owner) : NULL;
        if (!u) {
                /* A client that has shut down its receiving side (as for the journal) sends no requests */
                if (!task_owner(&owner) || asker->sk_shutdown & RCV_SHUTDOWN)
                        return 0;
                u = unit_get(&owner);
                if (!u)
                        return 0;
                c = unix_learn(asker, &owner, unix_find_peer(us, u, 0, 0), UNIX_CLIENT, 0);
                if (!c)
                        return 0;
                first = true;
        }
        if (c->kind != UNIX_CLIENT)
                return 0;
        overhead_begin(overhead, &c->owner, u);
        waiting = asker->sk_receive_queue.qlen;
        queued = sk->sk_receive_queue.qlen;
        if (c->x.state == EXCHANGE_PENDING)
                length = unix_newest_length(sk);
        record.now = bpf_ktime_get_ns();

        bpf_spin_lock(&c->lock);
        c->x.flags &= ~EXCHANGE_FAREWELL;
        c->heard_out = c->x.state == EXCHANGE_PENDING && c->heard_out < 0xffff ? c->heard_out + 1 : 1;
        exchange_note_part(&c->x, record.now, c->x.read_at, length, queued <= 1);
        if (c->x.state == EXCHANGE_PENDING && queued <= 1)
                exchange_request_again(&c->x, record.now, &effect); /* earlier data was read */
        else if (c->x.state == EXCHANGE_PENDING || waiting == 0)
                exchange_request(&c->x, record.now, &effect);
        else if ((c->found || first) && queued == 0) {
                /* The peer has read and responded before this run */
                c->x.state = EXCHANGE_RESPONDING;
                c->x.first_at = c->x.last_out_at = record.now;
                effect.begun = ~c->x.flags / EXCHANGE_UNPARSED & 1;
                effect.overlap = effect.begun ^ 1;
        } else
                exchange_overlap(&c->x, 1, &effect); /* there is an unread response */
        c->found = 0;
        record.first_at = c->x.first_at;
        bpf_spin_unlock(&c->lock);

        if (!effect.begun && !effect.overlap && !effect.unparsed)
                return 0;
        window_advance(u, record.now);
        record.target = target_resolve(u, c->target);
        effect.in_flight = 0; /* see requests_unix_open */
        record_effect(u, record.target, &effect);
        if (effect.unparsed && record.target & TARGET_ENTRY)
                entry_count(entry_get(u, record.target & TARGET_ENTRY), QOS_ENTRY_UNPARSED, 1);
        if (effect.begun)
                entry_record(u, &record);
        return 0;
}

/* Number of buffers in the queue of a socket, 0 if the first one is partly read. */
static __attribute__((noinline)) __u32 unix_untouched(struct unix_sock *us) {
        struct sock *sk = (struct sock*) us;
        struct sk_buff *skb = NULL;
        __u32 queued, consumed;

        if (!sk)
                return 0;
        queued = sk->sk_receive_queue.qlen;
        if (queued == 0 || bpf_core_read(&skb, sizeof(skb), &sk->sk_receive_queue.next) < 0)
                return 0;
        if (!unix_is_packets(sk) && (!unix_consumed(skb, &consumed) || consumed > 0))
                return 0;
        return queued;
}

/* A response was queued at the socket of a unit in the client role. late: it was also read, but not recorded
 * yet. server: accepted socket; NULL: the server has closed it since. */
static __attribute__((noinline)) int unix_client_receive(struct unix_conn *c, struct unix_sock *server,
                                                         bool late, struct overhead *overhead) {
        struct exchange_effect effect = {};
        struct request_record record = { .n = 1 };
        __u32 end, untouched = 0;
        struct qos_unit_map *u;

        if (!c || !overhead)
                return 0;
        u = unit_get(&c->owner);
        if (!u)
                return 0;
        overhead_begin(overhead, &c->owner, u);
        if (server && !late)
                untouched = unix_untouched(server);
        record.now = bpf_ktime_get_ns();

        bpf_spin_lock(&c->lock);
        if (late ? c->x.state != EXCHANGE_PENDING || c->heard != UNIX_HEARD_READ :
            c->heard == UNIX_HEARD_RECORDED) {
                if (!late)
                        c->heard = UNIX_HEARD_SEEN;
                bpf_spin_unlock(&c->lock);
                return 0;
        }
        /* Data without a request: the server has not read the request yet */
        if (untouched > 0 && c->x.state == EXCHANGE_PENDING && c->heard == UNIX_HEARD_SEEN &&
            untouched >= c->heard_out) {
                bpf_spin_unlock(&c->lock);
                return 0;
        }
        c->heard = late ? UNIX_HEARD_RECORDED : UNIX_HEARD_SEEN;
        if (c->x.state != EXCHANGE_PENDING)
                c->found = 1;
        end = c->x.in_end + UNIX_STEP;
        exchange_receive_response(&c->x, record.now, end, end, end, &effect);
        record.first_at = c->x.first_at;
        record.before = effect.grown_from;
        bpf_spin_unlock(&c->lock);

        if (!effect.begun && !effect.grown && !effect.overlap)
                return 0;
        window_advance(u, record.now);
        record.target = target_resolve(u, c->target);
        if (effect.overlap)
                entry_apply(u, record.target, 0, 1);
        else if (effect.begun)
                entry_record(u, &record);
        else
                entry_record_more(u, &record);
        /* If the peer has no entry, or lost it, it may get one */
        if (server && effect.begun && (record.target & TARGET_ENTRY) == QOS_ENTRY_PEERS_OTHERS)
                c->target = unix_find_peer(server, u, record.first_at, record.now);
        return 0;
}

/* Data was queued at an accepted socket: a request, if a unit owns the socket. peer: NULL if it is
 * closed. */
static __always_inline int unix_queue_at_server(struct sock *sk, struct unix_sock *us,
                                                struct sock *peer, struct overhead *overhead) {
        struct unix_conn *c;
        struct qos_unit_map *u;
        __u32 queued, length;
        __u64 now, before;

        if (peer) {
                c = bpf_sk_storage_get(&unix_conns, peer, 0, 0);
                if (c && c->kind == UNIX_CLIENT && c->heard == UNIX_HEARD_READ) {
                        unix_client_receive(c, us, true, overhead);
                        overhead_end(overhead);
                }
                unix_client_send(peer, sk, us, overhead);
                overhead_end(overhead);
        }
        c = bpf_sk_storage_get(&unix_conns, sk, 0, 0);
        u = c ? unit_get(&c->owner) : NULL;
        if (!u) {
                __u64 key = (__u64) us->addr;
                struct unix_name *name;

                name = bpf_map_lookup_elem(&unix_names, &key);
                u = name ? unit_get(&name->owner) : NULL;
                if (!u)
                        return 0;
                c = unix_learn(sk, &name->owner, name->target, UNIX_SERVER, name->found);
                if (!c)
                        return 0;
                /* A greeting was queued before all requests */
                if (peer)
                        c->noted = peer->sk_receive_queue.qlen;
        }
        if (c->kind != UNIX_SERVER)
                return 0;
        overhead_begin(overhead, &c->owner, u);

        /* The client has read the response and sends again: the run for the response was skipped, or is
         * late */
        if (peer && unix_is_unrecorded(c)) {
                unix_depart(sk, c, u, c->kept_at);
                unix_forget(peer, c);
        }
        queued = sk->sk_receive_queue.qlen;
        length = c->x.state == EXCHANGE_PENDING ? unix_newest_length(sk) : 0;
        now = bpf_ktime_get_ns();
        bpf_spin_lock(&c->lock);
        before = c->x.tail_at;
        /* No request is in flight, and all earlier data was read: this data is unread, and the kernel has
         * skipped a run for data that was read */
        if (c->heard > 0 && queued > 0 && c->x.state != EXCHANGE_PENDING && c->x.n_marks == 0)
                c->heard = 0;
        if (c->heard > 0)
                c->heard--; /* the data was read, or is being read, by a task that did not sleep */
        else if (queued > 0)
                unix_arrive(&c->x, now);
        if (c->x.n_marks <= 1)
                exchange_note_part(&c->x, now, before, length, true);
        bpf_spin_unlock(&c->lock);
        return 0;
}

static __always_inline int unix_queue(struct sock *sk, struct overhead *overhead) {
        struct unix_conn *c;
        struct unix_sock *us;
        struct qos_unit_map *u;
        struct sock *peer;

        if (sk->sk_type == SOCK_DGRAM)
                return unix_send_datagram(sk, overhead);
        us = bpf_skc_to_unix_sock(sk);
        if (!us)
                return 0;
        if (sk->__sk_common.skc_state == TCP_LISTEN) {
                listener_note(sk, us);
                return 0;
        }

        peer = us->peer;
        if (unix_is_accepted(sk, us))
                return unix_queue_at_server(sk, us, peer, overhead);

        c = bpf_sk_storage_get(&unix_conns, sk, 0, 0);
        if (!peer) {
                /* The server has closed its socket between the response and this run. If the client had not
                 * read the response by then, it has none */
                if (c && c->kind == UNIX_CLIENT && c->heard == UNIX_HEARD_READ)
                        unix_client_receive(c, NULL, false, overhead);
                return unix_depart_late(sk);
        }
        if (c && c->kind == UNIX_CLIENT) {
                /* The run for the earlier response, which is recorded, was skipped: this run is for the next
                 * one, which is unread */
                if (c->heard == UNIX_HEARD_RECORDED && c->x.state == EXCHANGE_PENDING &&
                    sk->sk_receive_queue.qlen > 0)
                        c->heard = UNIX_HEARD_SEEN;
                us = bpf_skc_to_unix_sock(peer);
                if (us)
                        unix_client_receive(c, us, false, overhead);
                overhead_end(overhead);
        }
        c = bpf_sk_storage_get(&unix_conns, peer, 0, 0);
        if (!c || c->kind != UNIX_SERVER)
                return 0;
        u = unit_get(&c->owner);
        if (!u)
                return 0;
        overhead_begin(overhead, &c->owner, u);
        c->noted = sk->sk_receive_queue.qlen;
        unix_depart(peer, c, u, 0);
        if (c->kept_at != 0)
                unix_forget(sk, c);
        return 0;
}

SEC("tp_btf/sk_data_ready")
int BPF_PROG(requests_unix, struct sock *sk) {
        struct overhead overhead = {};
        int r;

        /* The tracepoint also fires for each TCP segment */
        if (sk->__sk_common.skc_family != AF_UNIX)
                return 0;
        preemption_disable();
        r = unix_queue(sk, &overhead);
        overhead_end(&overhead);
        preemption_enable();
        return r;
}

/* ---- end of connections ------------------------------------------------------------------------------- */

/* Whether the unread data of the socket is a farewell of the client. */
static __attribute__((noinline)) int unix_has_farewell(struct sock *sk) {
        struct sk_buff *skb = NULL;
        __u32 length = 0;
        void *data;

        if (!sk || sk->sk_receive_queue.qlen != 1)
                return 0;
        if (bpf_core_read(&skb, sizeof(skb), &sk->sk_receive_queue.next) < 0 ||
            bpf_core_read(&length, sizeof(length), &skb->len) < 0 ||
            bpf_core_read(&data, sizeof(data), &skb->data) < 0)
                return 0;
        return exchange_is_farewell(unix_look(length, data), length);
}

/* A connection of a unit in the server role ends. sk: its socket; client: socket of the client, if it closes
 * the connection. */
static __attribute__((noinline)) int unix_server_end(struct sock *sk, struct unix_conn *c,
                                                     struct sock *client) {
        __u32 cell = client ? QOS_COUNTER_CLIENT_ABORTS : QOS_COUNTER_ERRORS_RESET, target;
        struct unix_unrecorded *kept = NULL;
        struct exchange_effect effect = {};
        bool farewell, ignored;
        struct qos_unit_map *u;
        __u64 now;

        if (!sk || !c)
                return 0;
        u = unit_get(&c->owner);
        if (!u)
                return 0;
        if (client)
                kept = bpf_sk_storage_get(&unix_unrecorded, client, 0, 0);
        farewell = client && unix_has_farewell(sk);
        now = bpf_ktime_get_ns();
        /* The client has read the response. A later run for it has no effect in unix_depart_late() */
        if (kept && unix_is_unrecorded(c) && __sync_lock_test_and_set(&kept->owner.generation, 0) != 0)
                unix_depart(sk, c, u, c->kept_at);

        bpf_spin_lock(&c->lock);
        ignored = exchange_is_ignored(&c->x, now);
        if (farewell && c->x.state != EXCHANGE_PENDING)
                c->x.flags |= EXCHANGE_FAREWELL;
        exchange_end(&c->x, 1, c->x.state == EXCHANGE_PENDING, 0, &effect);
        bpf_spin_unlock(&c->lock);
        if (!effect.unanswered)
                return 0;
        target = target_resolve(u, c->target);
        /* Some peers never respond, see unix_count_open() */
        if ((client || ignored) && !unix_has_responded(sk, u, target))
                return 0;
        window_advance(u, now);
        record_count(u, target, cell, cell - QOS_COUNTER_ERRORS_RESET + QOS_ENTRY_ERRORS_RESET, 1);
        return 0;
}

/* A connection of a unit in the client role ends. server: socket of the server; cell: counter for the side
 * that closes the connection. */
static __attribute__((noinline)) int unix_client_end(struct unix_conn *c, struct sock *server, __u32 cell) {
        struct exchange_effect effect = {};
        struct qos_unit_map *u;
        bool farewell;
        __u32 target;

        if (!c || !server)
                return 0;
        u = unit_get(&c->owner);
        if (!u)
                return 0;
        farewell = unix_has_farewell(server);

        bpf_spin_lock(&c->lock);
        if (c->x.state == EXCHANGE_PENDING && c->heard == UNIX_HEARD_READ) {
                /* Its response was read, and will be recorded by a later run */
                bpf_spin_unlock(&c->lock);
                return 0;
        }
        if (farewell && c->x.first_at == c->x.read_at)
                c->x.flags |= EXCHANGE_FAREWELL;
        exchange_end(&c->x, 1, c->x.state == EXCHANGE_PENDING, 0, &effect);
        bpf_spin_unlock(&c->lock);
        if (!effect.unanswered)
                return 0;
        target = target_resolve(u, c->target);
        if (!(target & TARGET_ENTRY) || !target_has_responded(u, target))
                return 0;
        window_advance(u, bpf_ktime_get_ns());
        entry_count(entry_get(u, target & TARGET_ENTRY), cell, 1);
        return 0;
}

/* The side that closes first ends the connection. */
static __always_inline int unix_close(struct sock *sk) {
        struct unix_conn *c;
        struct unix_sock *us;
        struct sock *peer;
        bool accepted;

        if (sk->sk_type == SOCK_DGRAM)
                return 0;
        us = bpf_skc_to_unix_sock(sk);
        if (!us)
                return 0;
        peer = us->peer;
        accepted = unix_is_accepted(sk, us);

        c = bpf_sk_storage_get(&unix_conns, sk, 0, 0);
        if (c && c->kind == UNIX_SERVER)
                unix_server_end(sk, c, NULL);
        else if (c && c->kind == UNIX_CLIENT && peer)
                unix_client_end(c, peer, QOS_ENTRY_CLIENT_ABORTS);

        c = peer ? bpf_sk_storage_get(&unix_conns, peer, 0, 0) : NULL;
        if (c && c->kind == UNIX_SERVER)
                unix_server_end(peer, c, sk);
        else if (c && c->kind == UNIX_CLIENT && accepted)
                unix_client_end(c, sk, QOS_ENTRY_ERRORS_RESET);
        return 0;
}

/* Runs before the kernel has changed the socket. */
SEC("fentry/unix_release_sock")
int BPF_PROG(requests_unix_close, struct sock *sk) {
        int r;

        preemption_disable();
        r = unix_close(sk);
        preemption_enable();
        return r;
}

/* Moves a connection, with its request in flight, to another one of nested units. */
static __always_inline void unix_move(struct unix_sock *us, struct unix_conn *c, struct qos_unit_map *u,
                                      const struct qos_owner *to) {
        struct qos_owner owner = *to;
        struct sock *peer = us->peer;
        __u32 target = 0;

        if (c->kind == UNIX_CLIENT)
                us = peer ? bpf_skc_to_unix_sock(peer) : NULL;
        if (us && c->kind == UNIX_CLIENT)
                target = unix_find_peer(us, u, 0, 0);
        else if (us && c->kind == UNIX_SERVER)
                target = unix_find_target(us, u);

        bpf_spin_lock(&c->lock);
        c->owner = owner;
        c->target = target;
        bpf_spin_unlock(&c->lock);
}

/* Finds the sockets that tasks of attached units have open, and which units have any that may carry
 * requests: clients are known if they have sent one. Runs at attach, when a unit has started and some time
 * later, and when one of nested units is detached. */
SEC("iter/task_file")
int units_find_unix(struct bpf_iter__task_file *ctx) {
        struct task_struct *task = ctx->task;
        struct file *file = ctx->file;
        struct qos_owner maker, owner, known;
        struct socket *socket;
        struct unix_sock *us;
        struct unix_conn *c;
        struct qos_unit_map *u;
        struct sock *sk;
        __u64 now;

        if (!task || !file)
                return 0;
        if (!group_owner(task->cgroups->dfl_cgrp, &owner))
                return 0;
        u = unit_get(&owner);
        if (!u || file_is_managers(task, &owner, file, ctx->fd))
                return 0;

        socket = bpf_sock_from_file(file);
        if (!socket)
                return 0;
        sk = socket->sk;
        if (!sk || sk->__sk_common.skc_family != AF_UNIX)
                return 0;
        us = bpf_skc_to_unix_sock(sk);
        if (!us)
                return 0;
        if (sk->sk_type == SOCK_DGRAM) {
                if (us->addr)
                        unix_note_use(&owner);
                return 0;
        }
        c = bpf_sk_storage_get(&unix_conns, sk, 0, 0);
        if (sk->__sk_common.skc_state == TCP_LISTEN || unix_is_accepted(sk, us) ||
            (c && c->kind == UNIX_CLIENT))
                unix_note_use(&owner);
        if (c) {
                known = owner_read(&c->owner);
                if (unit_get(&known)) {
                        if (!owner_is_superseded(&known, &owner))
                                return 0;
                        if (c->kind != UNIX_LISTENER) {
                                unix_move(us, c, u, &owner);
                                return 0;
                        }
                }
        }

        if (sk->__sk_common.skc_state == TCP_LISTEN) {
                if (c || !group_owner(sk->sk_cgrp_data.cgroup, &maker) || !owner_equal(&maker, &owner))
                        unix_learn(sk, &owner, 0, UNIX_LISTENER, 1);
                listener_note(sk, us);
                return 0;
        }
        if (!unix_is_accepted(sk, us))
                return 0;
        c = unix_learn(sk, &owner, unix_find_target(us, u), UNIX_SERVER, 0);
        if (!c)
                return 0;

        /* Unread data has arrived now at the latest; data read before is not counted */
        now = bpf_ktime_get_ns();
        if (sk->sk_receive_queue.qlen > 0) {
                bpf_spin_lock(&c->lock);
                if (c->x.n_marks == 0)
                        unix_arrive(&c->x, now);
                bpf_spin_unlock(&c->lock);
        }
        return 0;
}

static __attribute__((noinline)) int unix_count_open(struct sock *sk, __u64 session) {
        struct unix_conn *c;
        struct qos_unit_map *u;
        __u32 target;
        __u64 at;

        if (!sk)
                return 0;
        c = bpf_sk_storage_get(&unix_conns, sk, 0, 0);
        if (!c || (c->kind != UNIX_SERVER && c->kind != UNIX_ASKER && c->kind != UNIX_CLIENT) ||
            c->visited == (__u32) session)
                return 0;
        c->visited = session;
        at = *(volatile __u64*) &c->x.open_at;
        if (at == 0 || sk->sk_shutdown == SHUTDOWN_MASK)
                return 0; /* a response has no receiver */
        if (c->kind == UNIX_ASKER && (!c->found || bpf_ktime_get_ns() - at >= UNIX_WAIT_NSEC))
                return 0;
        u = unit_get(&c->owner);
        if (!u)
                return 0;

        target = target_resolve(u, c->target);
        /* Some peers never respond: then nothing is in flight */
        if ((c->kind == UNIX_CLIENT || exchange_is_ignored(&c->x, bpf_ktime_get_ns())) &&
            !unix_has_responded(sk, u, target))
                return 0;
        record_in_flight(u, QOS_GAUGE_UNIX, session,
                         &(struct found_in_flight) { .target = target, .n = 1, .at = at,
                                                     .waiting = at > c->x.first_out_at });
        return 0;
}

/* Counts the requests in flight; closed sockets are not in the map. */
SEC("iter/bpf_sk_storage_map")
int requests_unix_open(struct bpf_iter__bpf_sk_storage_map *ctx) {
        struct qos_iter_session session = { .id = ctx->meta->session_id };
        struct sock *sk = ctx->sk;

        if (sk)
                return unix_count_open(sk, session.id);
        bpf_seq_write(ctx->meta->seq, &session, sizeof(session));
        return 0;
}

/* The same, visiting the files of all tasks, like units_walk_tcp. A connection in the accept queue is found
 * as the peer of the client's socket, to which it stays connected while that is open. */
SEC("iter/task_file")
int units_walk_unix(struct bpf_iter__task_file *ctx) {
        struct qos_iter_session session = { .id = ctx->meta->session_id };
        struct file *file = ctx->file;
        struct socket *socket;
        struct unix_sock *us;
        struct sock *sk;

        if (!file) {
                bpf_seq_write(ctx->meta->seq, &session, sizeof(session));
                return 0;
        }
        socket = bpf_sock_from_file(file);
        sk = socket ? socket->sk : NULL;
        if (!sk || sk->__sk_common.skc_family != AF_UNIX)
                return 0;
        unix_count_open(sk, session.id);
        us = sk->sk_type != SOCK_DGRAM ? bpf_skc_to_unix_sock(sk) : NULL;
        if (us)
                unix_count_open(us->peer, session.id);
        return 0;
}
