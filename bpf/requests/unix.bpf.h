/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

/* Connections on Unix sockets, stream and seqpacket: shared by unix.bpf.c and the program that sees data
 * being copied to applications (in tcp.bpf.c).
 *
 * The state machine is that of TCP (exchange.h). There are no sequence numbers, nor are they needed: nothing
 * is lost or retransmitted, and the kernel's own queue shows what is unread. Positions count the buffers in
 * which the kernel queues data, UNIX_STEP each; a partial read advances the position by 1, or to the rest of
 * the buffer if that is small (EXCHANGE_REST_MAX). */

#include "owner-hierarchy.h"
#include "thread.h"

/* Buffers have less than 2^16 bytes unless they are spliced, and no application reads as many bytes one by
 * one. */
#define UNIX_STEP (1U << 16)

/* Timeout of a request in a datagram, as on UDP. */
#define UNIX_WAIT_NSEC (10 * 1000000000ULL)

enum unix_kind {
        UNIX_LISTENER = 1,
        UNIX_SERVER,            /* accepted from a listener */
        UNIX_OTHER,             /* of a unit that is not observed */
        UNIX_BUS,               /* D-Bus: both sides send messages at any time */
        UNIX_CLIENT_BUS,        /* the other end of UNIX_BUS */
        UNIX_ASKER,             /* client of a datagram socket, see unix_receive_datagram() */
        UNIX_CLIENT,            /* socket of a unit that has opened the connection */
};

/* A response is queued before it is recorded: a client that does not sleep may have read it, and sent
 * another request, before it is recorded. */
enum unix_heard {
        UNIX_HEARD_SEEN,
        UNIX_HEARD_READ,        /* the client has read while its request was in flight */
        UNIX_HEARD_RECORDED,    /* then it has sent the next request: the response was recorded with that,
                                 * and the run for the response is still to come */
};

/* Charged to the application's option memory, like struct conn. */
struct unix_conn {
        struct bpf_spin_lock lock;
        struct qos_owner owner;
        __u16 kind;             /* enum unix_kind */
        __u16 found;            /* 1: another process has created the listener, and the first reader owns the
                                 * connection; UNIX_ASKER: a response was received; UNIX_CLIENT: data was
                                 * received without a request */
        __u16 target;           /* TARGET_ENTRY; UNIX_CLIENT: as in struct conn */
        __u16 looked;           /* 1: the beginning of the first request was examined */
        __u16 heard;            /* UNIX_CLIENT: enum unix_heard; UNIX_SERVER: number of buffers that were
                                 * read before their arrival was recorded */
        __u16 heard_out;        /* UNIX_SERVER: 1 if the client has read the response, and then sent what is
                                 * unread, before the response was recorded; UNIX_CLIENT: number of buffers
                                 * of its request, if known */
        __u32 noted;            /* UNIX_SERVER: number of recorded buffers of responses that the client has
                                 * not read yet */
        __u32 visited;          /* last session of an iterator that has counted it, lower half */
        __u64 kept_at;          /* UNIX_SERVER: time since which the request is also stored with the client's
                                 * socket (unix_keep()); 0: it is not */
        struct exchange x;
};

BPF_STORAGE_MAP(unix_conns, SK, struct unix_conn) __weak;

/* A request of a client that has read while it was in flight. The data read may be the response, which is
 * queued before it is recorded. If the server closes the connection in between, it is not known any more
 * when the response is recorded. This copy is stored with the client's socket, which still is. */
struct unix_unrecorded {
        struct qos_owner owner; /* generation 0: none */
        __u32 target;
        __u32 _padding;
        __u64 first_at;         /* as in struct exchange */
        __u64 last_at;
        __u64 read_at;
};

BPF_STORAGE_MAP(unix_unrecorded, SK, struct unix_unrecorded) __weak;

BPF_ARRAY_MAP(unix_uses, ARRAY, UNITS_MAX_LIMIT, struct qos_unix_use) __weak;

/* A unit has a Unix socket that may carry requests. Verified on its own. */
__attribute__((noinline, weak)) int unix_note_use(const struct qos_owner *owner) {
        struct qos_unix_use *use;
        struct qos_owner o;
        __u32 one = 1;

        if (!owner)
                return 0;
        o = owner_read(owner);
        use = bpf_map_lookup_elem(&unix_uses, &o.slot);
        if (!use || use->generation == o.generation)
                return 0;
        *(volatile __u32*) &use->generation = o.generation;
        (void) bpf_ringbuf_output(&read_events, &one, sizeof(one), 0);
        return 0;
}

static __always_inline bool unix_is_packets(const struct sock *sk) {
        return sk->sk_type != SOCK_STREAM;
}

/* Whether a socket was accepted from a listener: it has the listener's name without having been bound to it.
 * Bound sockets are in a list of their file's, or in a hash bucket of abstract names; those without a name
 * are in the first 256. */
static __always_inline bool unix_is_accepted(const struct sock *sk, const struct unix_sock *us) {
        return us->addr && sk->__sk_common.skc_state == TCP_ESTABLISHED &&
               !sk->__sk_common.skc_bind_node.pprev &&
                sk->__sk_common.skc_hash < 256;
}

/* Writes the first byte last: to a reader, a name without it is unknown. */
static __always_inline void unix_set_path(struct qos_peer_key *name, const char *path) {
        for (int i = 1; i < QOS_SOCKET_PATH_SIZE / 4; i++)
                ((__u32*) name->path)[i] = ((const __u32*) path)[i];
        for (int i = 1; i < 4; i++)
                name->path[i] = path[i];
        __asm__ volatile("" ::: "memory");
        *(volatile char*) name->path = path[0];
}

/* Finds the entry of an endpoint or a peer (kind) by the name of the listener's sockets. A peer without one
 * that has just responded to a request of first_at may get one. */
static __attribute__((noinline)) int unix_find_row(struct unix_sock *us, struct qos_unit_map *u, __u32 kind,
                                                   __u64 first_at, __u64 now) {
        char path[QOS_SOCKET_PATH_SIZE] __attribute__((aligned(8))) = {};
        struct qos_address a = { .family = AF_UNIX };
        __u64 hash = 0xcbf29ce484222325, *words = (__u64*) path;
        struct qos_peer_key *name;
        struct unix_address *addr;
        __u32 length, earned = 0;
        __u64 row;

        if (!us || !u)
                return 0;
        addr = us->addr;
        if (!addr || bpf_core_read(&length, sizeof(length), &addr->len) < 0)
                return 0;
        length -= sizeof(__u16); /* sun_family */
        if (length == 0 || length > sizeof(path))
                return 0;
        BPF_BOUND(length, sizeof(path) + 1);
        if (bpf_core_read(path, length, &addr->name[0].sun_path) < 0)
                return 0;
        if (path[0] == 0)
                path[0] = '@';

        /* FNV-1a over words, zero-padded. A socket with the name of another one of the same unit gets the
         * same entry */
        for (int i = 0; i < QOS_SOCKET_PATH_SIZE / 8; i++)
                hash = (hash ^ words[i]) * 0x100000001b3;
        *(volatile __u64*) a.address = hash ^ *(__u32*) (path + QOS_SOCKET_PATH_SIZE - 4);

        row = entry_find(u, &a, kind);
        if (row == QOS_ENTRY_PEERS_OTHERS && first_at != 0) {
                earned = peer_challenge(u, &a, exchange_between(first_at, now), now);
                if (earned)
                        row = earned;
        }
        BPF_BOUND(row, QOS_ENTRIES + 1);
        name = &u->names[row];
        if ((row == 0 || row >= QOS_ENTRY_FIRST) && name->path[0] == 0)
                unix_set_path(name, path);
        return row;
}

static __always_inline int unix_find_target(struct unix_sock *us, struct qos_unit_map *u) {
        return unix_find_row(us, u, QOS_ENTRY_ENDPOINT, 0, 0);
}

/* The same for a peer: its metrics are not the unit's. */
static __always_inline __u32 unix_find_peer(struct unix_sock *us, struct qos_unit_map *u, __u64 first_at,
                                            __u64 now) {
        __u32 row = unix_find_row(us, u, QOS_ENTRY_PEER, first_at, now);

        /* Peers without a name have no entry */
        if (row < QOS_ENTRY_PEERS_OTHERS)
                row = QOS_ENTRY_PEERS_OTHERS;
        BPF_BOUND(row, QOS_ENTRIES + 1);
        return row | TARGET_ONLY | (u->names[row].generation & 0xff) << TARGET_GENERATION_SHIFT;
}

/* Initializes a connection of this owner in storage that is new, or belonged to a unit that was detached. */
static __always_inline void unix_adopt(struct unix_conn *c, const struct qos_owner *owner, __u32 target,
                                       __u16 kind, __u16 found) {
        struct qos_owner o = *owner;
        struct exchange x = {};

        exchange_begin(&x, 0, 0, 0);
        bpf_spin_lock(&c->lock);
        if (c->kind != kind || c->owner.slot != o.slot || c->owner.generation != o.generation) {
                c->owner = o;
                c->kind = kind;
                c->found = found;
                c->target = target;
                c->looked = 0;
                c->heard = UNIX_HEARD_SEEN;
                c->heard_out = 0;
                c->noted = 0;
                c->kept_at = 0;
                c->x = x;
        }
        bpf_spin_unlock(&c->lock);
}

static __always_inline struct unix_conn* unix_learn(struct sock *sk, const struct qos_owner *owner,
                                                    __u32 target, __u16 kind,
                                                      __u16 found) {
        struct unix_conn *c;

        c = BPF_STORAGE_CREATE(sk, unix_conns, sk);
        if (!c) {
                element_lost(QOS_STATISTIC_LOST_UNIX_CONNS, owner);
                return NULL;
        }
        unix_adopt(c, owner, target, kind, found);
        unix_note_use(owner);
        return c;
}

/* Data was queued. The caller holds the lock. */
static __always_inline void unix_arrive(struct exchange *x, __u64 now) {
        struct exchange_effect effect = {};
        __u32 end = x->in_end + UNIX_STEP;

        exchange_arrive(x, now, &(struct exchange_segment) { .seq = x->in_end, .end = end, .rcv_nxt = end,
                                                             .window_end = end }, &effect);
}

/* Part of the first buffer in the queue is being read. left: bytes that remain of it; queued: number of
 * buffers in the queue, including this one. known: its arrival was recorded, or will be after this. Returns
 * whether the data was not seen before (MSG_PEEK). The caller holds the lock. */
static __always_inline bool unix_read(struct unix_conn *c, __u64 now, __u32 left, __u32 queued, bool known,
                                      struct exchange_effect *effect) {
        struct exchange *x = &c->x;
        __u32 to;

        if (x->in_end == x->read_end) {
                /* Nothing is recorded as unread: the data was peeked at before, and is read now */
                if (x->state == EXCHANGE_PENDING) {
                        x->read_at = now;
                        return false;
                }
                /* The read is faster than the run for the arrival, which follows immediately */
                unix_arrive(x, now);
                if (known)
                        c->heard++;
        }

        to = x->read_end / UNIX_STEP * UNIX_STEP + UNIX_STEP;
        if (left > 0)
                to = left <= EXCHANGE_REST_MAX && exchange_distance(to - left, x->read_end) > 0 ? to - left :
                     x->read_end + 1;
        else if (queued <= 1)
                to = x->in_end;
        exchange_read(x, now, to, 0, effect);
        if (c->heard_out)
                x->flags &= ~EXCHANGE_LEFT;
        c->heard_out = 0;
        return true;
}

/* Adds an unknown socket that is read by a task of the unit: it was accepted from a listener that another
 * process has opened, or while requests_unix was not attached, as were sockets of clients. */
static __always_inline struct unix_conn* unix_learn_reader(struct sock *sk) {
        struct qos_owner owner;
        struct unix_sock *us;
        struct qos_unit_map *u;

        if (!task_owner(&owner))
                return NULL;
        u = unit_get(&owner);
        if (!u)
                return NULL;
        unix_note_use(&owner);
        us = bpf_skc_to_unix_sock(sk);
        if (!us || !unix_is_accepted(sk, us))
                return NULL;
        return unix_learn(sk, &owner, unix_find_target(us, u), UNIX_SERVER, 0);
}

/* The first reader becomes the owner of a connection if another process, i.e. the service manager, has
 * created the listener. */
static __always_inline void unix_claim(struct sock *sk, struct unix_conn *c) {
        struct qos_owner owner = {}, none = {};
        struct qos_unit_map *u = NULL;
        struct unix_sock *us;
        __u32 target = 0;

        if (task_owner(&owner))
                u = unit_get(&owner);
        us = u ? bpf_skc_to_unix_sock(sk) : NULL;
        if (us)
                target = unix_find_target(us, u);

        bpf_spin_lock(&c->lock);
        c->found = 0;
        c->owner = u ? owner : none;
        c->target = target;
        if (!u)
                c->kind = UNIX_OTHER;
        bpf_spin_unlock(&c->lock);
}

/* A datagram is being read. It is a request if its sender has a name and is connected, and can thus get a
 * response: most senders of logs and notifications cannot. The state is stored with the client's socket, as
 * the server's socket is shared by all clients. Positions: in_end counts bytes of requests, read_end those
 * with a response. */
static __attribute__((noinline)) int unix_receive_datagram(struct sock *sender, struct unix_sock *us,
                                                           int len, struct overhead *overhead) {
        struct unix_sock *peer_us;
        struct qos_owner owner;
        struct unix_conn *c;
        struct qos_unit_map *u;
        struct sock *peer;
        bool overlap;
        __u64 now;

        if (!sender || !us || !overhead)
                return 0;
        peer = us->peer;
        if (!peer || !us->addr)
                return 0;
        peer_us = bpf_skc_to_unix_sock(peer);
        if (!peer_us || peer_us->peer)
                return 0; /* connected to each other: neither is the server */
        if (!task_owner(&owner))
                return 0;
        u = unit_get(&owner);
        if (!u)
                return 0;
        overhead_begin(overhead, &owner, u);
        c = bpf_sk_storage_get(&unix_conns, sender, 0, 0);
        if (!c || c->kind != UNIX_ASKER || !unit_get(&c->owner) ||
            (!owner_equal(&c->owner, &owner) && owner_is_superseded(&c->owner, &owner)))
                c = unix_learn(sender, &owner, unix_find_target(peer_us, u), UNIX_ASKER, 0);
        if (!c || !owner_equal(&c->owner, &owner))
                return 0;

        now = bpf_ktime_get_ns();
        bpf_spin_lock(&c->lock);
        overlap = c->x.state == EXCHANGE_PENDING && c->found && now - c->x.read_at < UNIX_WAIT_NSEC;
        c->x.in_end += len;
        c->x.state = EXCHANGE_PENDING;
        c->x.read_at = c->x.open_at = now;
        bpf_spin_unlock(&c->lock);
        if (overlap) {
                window_advance(u, now);
                record_count(u, c->target, QOS_COUNTER_OVERLAPS, QOS_ENTRY_OVERLAPS, 1);
        }
        return 0;
}

/* Detects D-Bus by the first data: the beginning of a connection, possibly a single byte, or a message on
 * one that is older than the attach. */
static __always_inline bool unix_is_bus(struct sk_buff *skb, __u32 consumed) {
        __u32 length = skb->len - consumed;
        void *data = skb->data;
        __u8 head[4] = {};

        if (length < 4)
                return length == 1 && bpf_probe_read_kernel(head, 1, data + consumed) == 0 && head[0] == 0;
        if (bpf_probe_read_kernel(head, sizeof(head), data + consumed) < 0)
                return false;
        return (head[0] == 0 && head[1] == 'A' && head[2] == 'U' && head[3] == 'T') ||
                ((head[0] == 'l' || head[0] == 'B') && head[1] >= 1 && head[1] <= 4 && head[2] < 8 &&
                 head[3] == 1);
}

static __always_inline bool unix_is_fastcgi(struct sk_buff *skb, __u32 consumed) {
        __u64 head;

        return skb->len - consumed >= sizeof(head) &&
               bpf_probe_read_kernel(&head, sizeof(head), (void*) skb->data + consumed) == 0 &&
                exchange_is_fastcgi(head, sizeof(head));
}

static __always_inline bool unix_consumed(struct sk_buff *skb, __u32 *ret) {
        return bpf_core_read(ret, sizeof(*ret), &((struct unix_skb_parms*) &skb->cb)->consumed) >= 0;
}

/* First bytes of a client's message, if it may be one without a response (exchange_look()). */
static __always_inline __u64 unix_look(__u32 length, const void *data) {
        __u32 look = exchange_look(length);
        __u64 bytes = 0;

        BPF_BOUND(look, sizeof(bytes) + 1);
        if (look > 0)
                (void) bpf_probe_read_kernel(&bytes, look, data);
        return bytes;
}

/* Whether the message that the peer of a client is reading is the last one sent so far. A message may be
 * read in parts, and the client may send its next request before the last of these. */
static __attribute__((noinline)) int unix_is_last(struct sock *client) {
        struct unix_sock *us;
        struct socket *socket;

        if (!client)
                return 0;
        if (unix_is_packets(client))
                return 1; /* never read in parts */
        socket = client->sk_socket;
        us = socket ? bpf_skc_to_unix_sock(socket->sk) : NULL;
        /* It remains in the queue until it is read as a whole */
        return us && us->peer && us->peer->sk_receive_queue.qlen <= 1;
}

/* A client reads while its request has no recorded response: stores a copy of the request. */
static __attribute__((noinline)) int unix_keep(struct sock *client, struct unix_conn *c) {
        struct unix_unrecorded *kept;
        __u64 now;

        if (!client || !c)
                return 0;
        now = bpf_ktime_get_ns();
        kept = BPF_STORAGE_CREATE(sk, unix_unrecorded, client);
        if (!kept) {
                element_lost(QOS_STATISTIC_LOST_UNIX_UNRECORDED, &c->owner);
                return 0;
        }
        bpf_spin_lock(&c->lock);
        if (c->x.state == EXCHANGE_PENDING) {
                kept->owner = c->owner;
                kept->target = c->target;
                kept->first_at = c->x.last_at == 0 ? 0 : c->x.first_at;
                kept->last_at = c->x.last_at;
                kept->read_at = c->x.read_at;
                c->kept_at = c->kept_at ?: now;
        }
        bpf_spin_unlock(&c->lock);
        return 0;
}

/* Data of a client is read by its peer. farewell, remark: it may be a message without a response. */
static __always_inline void unix_content_of_client(struct sk_buff *skb, struct sock *sender,
                                                   struct unix_conn *c, bool farewell, bool remark,
                                                   struct exchange_effect *effect) {
        __u32 consumed = 0;

        if (remark && unix_is_last(sender)) {
                bpf_spin_lock(&c->lock);
                if (c->x.state == EXCHANGE_PENDING && c->x.read_at == c->x.first_at) {
                        c->x.state = EXCHANGE_IDLE;
                        exchange_shut(&c->x, effect);
                }
                bpf_spin_unlock(&c->lock);
        }
        if (farewell) {
                bpf_spin_lock(&c->lock);
                if (c->x.state == EXCHANGE_PENDING && c->x.read_at == c->x.first_at)
                        c->x.flags |= EXCHANGE_FAREWELL;
                bpf_spin_unlock(&c->lock);
        }
        if (c->kind == UNIX_CLIENT && !c->looked) {
                c->looked = 1;
                if (!unix_is_packets(sender) && unix_consumed(skb, &consumed) && unix_is_bus(skb, consumed))
                        c->kind = UNIX_CLIENT_BUS;
        }
}

/* Records the bytes of a response when they are read. When they are queued their number is unknown: the
 * client may already have read them. */
static __always_inline void unix_content_of_server(struct unix_conn *c, int len, struct overhead *overhead) {
        struct qos_unit_map *u = c->kind == UNIX_SERVER ? unit_get(&c->owner) : NULL;

        if (!u)
                return;
        overhead_begin(overhead, &c->owner, u);
        window_advance(u, bpf_ktime_get_ns());
        record_sum(u, c->target, QOS_SUM_BYTES_OUT, QOS_ENTRY_SUM_BYTES_OUT, len);
}

/* Determines how much of the buffer remains after len bytes of a stream, and at the first time the protocol.
 * Returns whether the data is requests. */
static __always_inline bool unix_content_look(struct sk_buff *skb, struct unix_conn *c, int len,
                                              __u32 *ret_left) {
        __u32 consumed = 0;

        if (!unix_consumed(skb, &consumed))
                return false;
        if (consumed + len < skb->len)
                *ret_left = skb->len - consumed - len;
        if (c->looked)
                return true;
        c->looked = 1;
        if (unix_is_bus(skb, consumed)) {
                c->kind = UNIX_BUS;
                return false;
        }
        if (unix_is_fastcgi(skb, consumed)) {
                bpf_spin_lock(&c->lock);
                c->x.flags |= EXCHANGE_FASTCGI;
                bpf_spin_unlock(&c->lock);
        }
        return true;
}

/* Data is copied to an application, in the server or client role. Spliced data does not pass here, see
 * unix_depart(). */
static __attribute__((noinline)) int unix_content(struct sk_buff *skb, int len, struct overhead *overhead) {
        struct exchange_effect effect = {};
        struct sock *sender, *sk;
        struct socket *socket;
        struct unix_sock *us;
        struct unix_conn *c, *server = NULL;
        struct qos_unit_map *u;
        __u32 consumed = 0, queued, left = 0;
        bool known = true, fresh, farewell, remark, idle;
        __u64 now, bytes;

        /* skb->sk has sent the data. If it was closed meanwhile, it expects no response. Through struct
         * socket, as the pointer in skb may not be cast to another type */
        sender = skb->sk;
        if (!sender || !overhead)
                return 0;
        c = sender->sk_type == SOCK_DGRAM ? NULL : bpf_sk_storage_get(&unix_conns, sender, 0, 0);
        bytes = unix_look(skb->len, skb->data);
        farewell = (__u32) len == skb->len && exchange_is_farewell(bytes, len);
        remark = exchange_is_remark(bytes, skb->len);
        if (c && (c->kind == UNIX_CLIENT || c->kind == UNIX_CLIENT_BUS))
                unix_content_of_client(skb, sender, c, farewell, remark, &effect);
        else if (c) {
                unix_content_of_server(c, len, overhead);
                server = c;
        }
        socket = sender->sk_socket;
        if (!socket)
                return 0;
        us = bpf_skc_to_unix_sock(socket->sk);
        if (!us)
                return 0;
        if (sender->sk_type == SOCK_DGRAM)
                return unix_receive_datagram(sender, us, len, overhead);
        sk = us->peer;
        if (!sk)
                return 0;
        if (server && server->kind == UNIX_SERVER) {
                /* Data already recorded is a response to an earlier request, or to none (a greeting) */
                if (server->noted > 0) {
                        if (unix_is_packets(sk) || !unix_consumed(skb, &consumed) ||
                            consumed + len >= skb->len)
                                server->noted--;
                } else if (server->x.state == EXCHANGE_PENDING)
                        unix_keep(sk, server);
        }

        c = bpf_sk_storage_get(&unix_conns, sk, 0, 0);
        if (c && c->kind == UNIX_CLIENT) {
                bpf_spin_lock(&c->lock);
                if (c->x.state == EXCHANGE_PENDING && c->heard == UNIX_HEARD_SEEN)
                        c->heard = UNIX_HEARD_READ;
                bpf_spin_unlock(&c->lock);
                peer_note_read();
                return 0;
        }
        if (server)
                return 0;
        /* Only of UNIX_SERVER: found has another meaning in the client role */
        if (c && c->kind == UNIX_SERVER && c->found)
                unix_claim(sk, c);
        if (!c || !unit_get(&c->owner)) {
                c = unix_learn_reader(sk);
                if (!c)
                        return 0;
                known = false;
        }
        u = unit_get(&c->owner);
        if (!u || c->kind != UNIX_SERVER)
                return 0;
        overhead_begin(overhead, &c->owner, u);

        if (!unix_is_packets(sk) && !unix_content_look(skb, c, len, &left))
                return 0;
        queued = sk->sk_receive_queue.qlen;
        now = bpf_ktime_get_ns();

        bpf_spin_lock(&c->lock);
        idle = c->x.state != EXCHANGE_PENDING;
        fresh = unix_read(c, now, left, queued, known, &effect);
        if (farewell && idle && c->x.n_marks == 0)
                c->x.flags |= EXCHANGE_FAREWELL;
        if (remark && idle) {
                c->x.state = EXCHANGE_IDLE; /* not a request, but the data that follows is one */
                if (c->x.n_marks == 0)
                        exchange_shut(&c->x, &effect);
        }
        bpf_spin_unlock(&c->lock);
        thread_read_request(u, now);

        if (fresh) {
                window_advance(u, now);
                record_sum(u, c->target, QOS_SUM_BYTES_IN, QOS_ENTRY_SUM_BYTES_IN, len);
                effect.in_flight = 0; /* see requests_unix_open */
                record_effect(u, c->target, &effect);
        }
        return 0;
}
