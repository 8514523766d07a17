/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

/* TCP connections: the state stored with a socket, its owner, and changes of both. Shared by tcp.bpf.c,
 * which handles events, and tcp-iter.bpf.c, which iterates over all connections. */

#include "maps.h"
#include "stream-chunk.bpf.h"
#include "http2-conn.bpf.h"
#include "tls-record.h"
#include "tls-plaintext.bpf.h"

enum conn_kind {
        CONN_LISTENER = 1,
        CONN_SERVER,            /* accepted from a listener */
        CONN_CLIENT,            /* opened by the unit */
        CONN_OTHER,             /* of no unit */
};

/* Socket storage is charged to the option memory of the application (net.core.optmem_max, 128 KiB since
 * 6.9, 20 KiB before): it has to stay small. */
struct conn {
        struct qos_owner owner;         /* one word, written under the lock */
        struct bpf_spin_lock lock;      /* protects x, and the contribution to the gauges of the unit:
                                         * arrivals do not hold the socket lock */
        __u8 kind;                      /* enum conn_kind */
        __u8 found;                     /* enum conn_found */
        __u16 target;                   /* TARGET_ENTRY, TARGET_ONLY, and above these the generation of the
                                         * entry; written under the lock */
        __s32 in_flight;                /* requests in the gauges of the unit and the entry */
        __u32 retransmits;              /* last known total_retrans */
        __u32 visited;                  /* last session of an iterator that has counted it, lower half */
        __u8 tries;                     /* failed attempts to detect the protocol; under the socket lock */
        __u8 moves;                     /* changes of owner and target, twice; odd during one */
        __u8 tcp_state;                 /* last known TCP state; under the socket lock */
        __u8 counted;                   /* 1: counted in the open connections of the unit */
        struct exchange x;
};

/* Why the first reader of a connection becomes its owner: */
enum conn_found {
        CONN_FOUND_LISTENER = 1,        /* it was not seen which process opened the listener; if a task of no
                                         * unit reads, there is no owner */
        CONN_FOUND_OUTER,               /* a unit was attached within the previous owner */
};

/* Parser of the data of a connection, and result of receive_parse(): RECEIVE_NOTHING if no other parser is
 * to be called. */
#define RECEIVE_NOTHING 0
#define RECEIVE_TLS 1
#define RECEIVE_H2 2
#define RECEIVE_UNKNOWN 3

/* Accepted connections start with a clone of the element of their listener. */
BPF_STORAGE_MAP_FLAGS(conns, SK, struct conn, BPF_F_CLONE) __weak;

/* Connections with a parsed protocol. */
BPF_STORAGE_MAP(pipelines, SK, struct pipeline) __weak;

/* HTTP/2 connections. */
BPF_STORAGE_MAP(h2_conns, SK, struct h2_conn) __weak;

/* HTTP/2 connections with many concurrent requests, or of units that exclude requests by name. */
BPF_STORAGE_MAP(h2_mores, SK, struct h2_more) __weak;

/* TLS connections. */
struct tls_conn {
        struct tls tls;
        struct tls_plaintext_key key;   /* key of the plaintext; ssl 0: unknown */
        /* Passed from requests_egress to openssl_egress, which runs next for the same packet: */
        __u64 left_at;
        __u32 left_bytes;               /* 0: nothing */
        __u32 left_complete;
};

BPF_STORAGE_MAP(tls_conns, SK, struct tls_conn) __weak;

/* Only listeners, so that iterating over them is fast. */
BPF_STORAGE_MAP(listeners, SK, struct qos_listener) __weak;

BPF_ARRAY_MAP(read_checks, ARRAY, UNITS_MAX_LIMIT, struct qos_read_check) __weak;

/* Counts a read of a connection of the unit. seen: requests_content has seen it. Notifies the daemon at the
 * end of the check, and whenever the number of unseen reads has doubled: some of these are runs that the
 * kernel has skipped. Concurrent runs may lose a count, which a later one makes up for. */
__attribute__((noinline, weak)) int read_check(const struct qos_owner *owner, bool seen) {
        struct qos_read_check *check;
        struct qos_owner o;
        __u32 one = 1, n;

        if (!owner)
                return 0;
        o = owner_read(owner);
        check = bpf_map_lookup_elem(&read_checks, &o.slot);
        if (!check)
                return 0;
        if (check->generation != o.generation) {
                check->seen = check->unseen = 0;
                check->generation = o.generation;
        }
        if (seen) {
                if (check->seen >= QOS_READS_CHECKED || ++check->seen < QOS_READS_CHECKED)
                        return 0;
        } else {
                n = ++check->unseen;
                if (n & (n - 1))
                        return 0;
        }
        (void) bpf_ringbuf_output(&read_events, &one, sizeof(one), 0);
        return 0;
}

static __always_inline void sock_remote(const struct sock *sk, struct qos_address *ret) {
        volatile __u32 *words = (volatile __u32*) ret->address;

        ret->family = sk->__sk_common.skc_family;
        ret->port = bpf_ntohs(sk->__sk_common.skc_dport);
        if (ret->family == AF_INET6) {
                bpf_core_read(ret->address, sizeof(ret->address), &sk->__sk_common.skc_v6_daddr);
                if (words[0] == 0 && words[1] == 0 && words[2] == bpf_htonl(0xffff)) {
                        /* IPv4-mapped */
                        words[0] = words[3];
                        words[2] = words[3] = 0;
                        ret->family = AF_INET;
                }
        } else
                words[0] = sk->__sk_common.skc_daddr;
}

/* Finds the target of a socket by its address. A separate function, as it runs once for each listener, and
 * for connections older than the attach. */
static __attribute__((noinline)) int sock_find_target(struct sock *sk, struct qos_unit_map *u, __u32 kind,
                                                      __u32 slot, __u32 generation) {
        struct qos_owner owner = { .slot = slot, .generation = generation };
        struct qos_address a = {};
        __u32 row, only = 0, found;

        if (!sk || !u)
                return 0;

        if (kind == CONN_CLIENT) {
                sock_remote(sk, &a);
                row = entry_find(u, &a, QOS_ENTRY_PEER);
                only = TARGET_ONLY;
        } else {
                sock_local(sk, &a);
                /* Without a port the socket is being closed. Its entry does not change */
                if (a.port == 0)
                        return 0;
                /* Under load connections are seen before all listeners that existed at the attach have been
                 * found. requests_retarget corrects their targets later. If the listener is never found, the
                 * connection has no entry */
                found = kind != CONN_SERVER || entry_find_listener(u, &a);
                row = endpoint_find(u, &owner, &a, !found);
                only = row & TARGET_ONLY;
                row &= TARGET_ENTRY;
        }

        BPF_BOUND(row, QOS_ENTRIES + 1);
        return row | only | (u->names[row].generation & 0xff) << TARGET_GENERATION_SHIFT;
}

/* The caller holds the lock. */
static __always_inline void conn_set_attribution(struct conn *c, struct qos_owner owner, __u32 target) {
        *(volatile __u8*) &c->moves = c->moves + 1;
        __asm__ volatile("" ::: "memory");
        c->owner = owner;
        c->target = target;
        __asm__ volatile("" ::: "memory");
        *(volatile __u8*) &c->moves = c->moves + 1;
}

/* Initializes a connection of this owner in storage that is new, was cloned from a listener, or belonged to
 * a unit that was detached. Returns true for one of concurrent callers. Positions in the streams are taken
 * from the first event, or set by the caller. */
static __always_inline bool conn_adopt(struct conn *c, const struct qos_owner *owner, __u32 kind) {
        struct qos_owner o = *owner;
        struct exchange x = {};
        bool fresh;

        bpf_spin_lock(&c->lock);
        fresh = c->kind != kind || !owner_equal(&c->owner, &o);
        if (fresh) {
                conn_set_attribution(c, o, 0);
                c->kind = kind;
                c->counted = 0;
                c->in_flight = 0;
                c->tries = 0;
                c->x = x;
        }
        bpf_spin_unlock(&c->lock);
        return fresh;
}

/* Owner and target of a connection at the time of an event. Both may change at any time (conn_move()), and
 * the connection's contribution to the gauges moves along. Changes of the gauges are therefore determined
 * under the lock, together with owner and target. */
struct attribution {
        struct qos_owner owner;
        __u32 target;
};

static __always_inline struct attribution conn_commit(struct conn *c, const struct exchange_effect *effect) {
        struct attribution p = { .owner = c->owner, .target = c->target };

        c->in_flight += effect->in_flight;
        return p;
}

/* Gets owner and target without the lock, which costs 20 ns. Returns false if they are being changed. */
static __always_inline bool conn_get_attribution(const struct conn *c, struct attribution *ret) {
#if defined(__TARGET_ARCH_x86)
        /* Other CPUs see stores in the order of the program, as do loads */
        __u8 moves = *(const volatile __u8*) &c->moves;

        ret->owner = owner_read(&c->owner);
        ret->target = *(const volatile __u16*) &c->target;
        return !(moves & 1) && *(const volatile __u8*) &c->moves == moves;
#else
        return false;
#endif
}

static __attribute__((noinline)) struct qos_unit_map* unit_get_other(const struct qos_owner *owner) {
        return unit_get(owner);
}

/* Returns the map to record in, and updates p->target; NULL: none. u: map of the owner when the program
 * began. */
static __always_inline struct qos_unit_map* attribution_resolve(struct qos_unit_map *u,
                struct attribution *p) {
        if (u->generation != p->owner.generation) {
                u = unit_get_other(&p->owner);
                if (!u)
                        return NULL;
        }
        p->target = target_resolve(u, p->target);
        return u;
}

/* Records an effect, taking the lock itself. */
static __attribute__((noinline)) int conn_apply(struct conn *c, struct qos_unit_map *u,
                                                const struct exchange_effect *effect, __u64 now) {
        struct attribution p;

        if (!c || !u || !effect)
                return 0;
        bpf_spin_lock(&c->lock);
        p = conn_commit(c, effect);
        bpf_spin_unlock(&c->lock);

        u = attribution_resolve(u, &p);
        if (!u)
                return 0;
        window_advance(u, now);
        record_effect(u, p.target, effect);
        return 0;
}

static __always_inline void conn_count(struct conn *c, struct qos_unit_map *u, bool open, __u64 now) {
        struct qos_owner owner;
        bool changed;

        bpf_spin_lock(&c->lock);
        changed = c->counted != open;
        c->counted = open;
        owner = c->owner;
        bpf_spin_unlock(&c->lock);

        u = !changed ? NULL : u->generation == owner.generation ? u : unit_get_other(&owner);
        if (!u)
                return;
        window_advance(u, now);
        if (open)
                __sync_fetch_and_add(&u->opened, 1); /* before open, see window_reconcile() */
        __sync_fetch_and_add(&u->open, open ? 1 : -1);
}

/* Adds to the gauges of a unit and a target. Global, to be verified once. */
__attribute__((noinline, weak)) int gauges_add(const struct qos_owner *owner, __u32 target, __s32 in_flight,
                                               __s32 open) {
        struct exchange_effect effect = { .in_flight = in_flight };
        struct qos_unit_map *u;

        if (!owner)
                return 0;
        u = unit_get(owner);
        if (!u)
                return 0;
        window_advance(u, bpf_ktime_get_ns());
        record_effect(u, target_resolve(u, target), &effect);
        if (open > 0)
                __sync_fetch_and_add(&u->opened, open);
        __sync_fetch_and_add(&u->open, open);
        return 0;
}

/* Moves a connection or a listener to another unit, or to none if to is {}. If the unit stays the same, its
 * target is updated. */
static __attribute__((noinline)) int conn_move(struct sock *sk, struct conn *c, const struct qos_owner *to) {
        struct qos_owner from, owner;
        __u32 target = 0, before;
        __s32 in_flight, open;
        struct qos_unit_map *u;

        if (!sk || !c || !to)
                return 0;
        owner = *to;
        u = unit_get(&owner);
        if (u)
                target = sock_find_target(sk, u, c->kind, owner.slot, owner.generation);

        bpf_spin_lock(&c->lock);
        from = c->owner;
        before = c->target;
        conn_set_attribution(c, owner, target);
        in_flight = c->in_flight;
        open = c->counted;
        if (owner.generation == 0) {
                c->kind = CONN_OTHER;
                c->in_flight = 0;
                c->counted = 0;
        }
        bpf_spin_unlock(&c->lock);

        if (in_flight != 0 || open != 0) {
                gauges_add(&owner, target, in_flight, open);
                gauges_add(&from, before, -in_flight, -open);
        }
        return 0;
}

/* Initializes a connection from the clone of its listener's element, at its first event: the end of the
 * handshake, a segment on another CPU that overtakes it, or any other one without inet_sock_set_state.
 * begin: of the stream. Data between begin and rcv_nxt has arrived with the handshake (fast open), or during
 * this run. */
static __attribute__((noinline)) int conn_accept(struct conn *c, struct qos_unit_map *u, struct tcp_sock *tp,
                                                 __u32 begin, __u64 now) {
        struct exchange_effect effect = {};
        __u32 end, snd_nxt, retransmits;
        struct attribution p;
        struct exchange x = {};
        bool mptcp;

        if (!c || !u || !tp)
                return 0;
        end = tp->rcv_nxt;
        snd_nxt = tp->snd_nxt;
        retransmits = tp->total_retrans; /* SYN-ACKs */
        mptcp = bpf_core_field_exists(tp->is_mptcp) && tp->is_mptcp;

        bpf_spin_lock(&c->lock);
        if (c->kind == CONN_LISTENER) {
                c->kind = CONN_SERVER;
                c->counted = 0;
                c->in_flight = 0;
                c->tries = 0;
                c->retransmits = retransmits;
                c->x = x;
                exchange_begin(&c->x, begin, begin, snd_nxt);
                c->x.flags |= EXCHANGE_FRESH;
                /* The application reads from an MPTCP socket, which collects the data of several
                 * connections: no event shows when */
                c->x.flags |= mptcp * (EXCHANGE_DONE | EXCHANGE_UNREAD | EXCHANGE_UNPARSED);
                effect.unparsed = mptcp;
                if (end != begin)
                        exchange_arrive(&c->x, now,
                                        &(struct exchange_segment) { .seq = begin, .end = end,
                                                .rcv_nxt = begin, .window_end = end }, &effect);
        }
        p = conn_commit(c, &effect);
        bpf_spin_unlock(&c->lock);

        u = (effect.bytes | effect.unparsed) != 0 ? attribution_resolve(u, &p) : NULL;
        if (u) {
                window_advance(u, now);
                record_sum(u, p.target, exchange_sum(&c->x, QOS_SUM_BYTES_IN), QOS_ENTRY_SUM_BYTES_IN,
                           effect.bytes);
                record_effect(u, p.target, &effect);
        }
        return 0;
}

/* The first reader becomes the owner of a connection (enum conn_found). Its listener was found, not seen
 * being opened: the service manager opens listeners for others, and one socket may be passed to several
 * services. Or it belonged to an outer unit before another one was attached within it, and is in no table of
 * open files. Returns the map of the owner; NULL: none. */
static __always_inline struct qos_unit_map* conn_claim(struct sock *sk, struct conn *c,
                struct qos_unit_map *u) {
        struct task_struct *task = bpf_get_current_task_btf();
        struct qos_owner owner = {}, none = {};
        struct qos_unit_map *to = NULL;
        bool outer = c->found == CONN_FOUND_OUTER;

        c->found = 0;
        if (task_owner(&owner)) {
                if (owner.generation == u->generation)
                        return u;
                to = unit_get(&owner);
        } else if (task->flags & PF_KTHREAD)
                return u; /* reads on behalf of the owner of the socket */
        if (!to && outer)
                return u;

        conn_move(sk, c, to ? &owner : &none);
        return to;
}

/* Role of a connected socket: only accepted ones have a backlog limit, copied from the listener. listen()
 * was never called on a socket that has connected. */
static __always_inline __u32 sock_kind(const struct sock *sk) {
        return sk->sk_max_ack_backlog > 0 ? CONN_SERVER : CONN_CLIENT;
}

/* Return value of static functions without a result. The compiler would omit a constant, and the verifier
 * rejects a pointer to the stack that is left in the register. */
static __always_inline int zero(void) {
        int r = 0;

        __asm__ volatile("" : "+r"(r));
        return r;
}

/* ---- sockets that were not seen from their beginning ---- */

/* Whether a socket is unknown, and remains so as the current task belongs to no unit. Checked first by
 * programs that run for each read on the machine. */
static __always_inline bool socket_is_foreign(const struct sock *sk) {
        return !sk->sk_bpf_storage && task_is_unowned();
}

/* Adds a socket that is used by a task of the unit, and not known yet. Returns NULL if there is no
 * memory. */
static __always_inline struct conn* conn_learn(struct sock *sk, __u32 kind, const struct qos_owner *owner,
                                               struct qos_unit_map *u) {
        struct conn *c;

        c = BPF_STORAGE_CREATE(sk, conns, sk);
        if (!c) {
                element_lost(QOS_STATISTIC_LOST_CONNS, owner);
                return NULL;
        }

        if (!conn_adopt(c, owner, kind))
                return c;
        conn_move(sk, c, owner);
        if (kind == CONN_SERVER) {
                c->retransmits = BPF_CORE_READ((struct tcp_sock*) sk, total_retrans);
                conn_count(c, u, true, bpf_ktime_get_ns());
        }
        return c;
}

/* Position up to which the application has read, without the FIN, which has a position but no byte. */
static __always_inline __u32 tcp_read_end(const struct tcp_sock *tp, __u32 state) {
        __u32 copied = tp->copied_seq;

        return copied - (fin_received(state) && copied == tp->rcv_nxt);
}

/* After a reset the queued data can still be read, but no further event follows on the socket. */
static __always_inline bool connection_is_gone(const struct sock *sk) {
        return sk->__sk_common.skc_state == TCP_CLOSE;
}

/* Whether this is a TCP socket of an MPTCP connection. */
static __always_inline bool socket_is_mptcp(const struct sock *sk) {
        /* Not const: clang 21 and newer warn about the temporary of that type in BPF_CORE_READ() */
        struct tcp_sock *tp = (struct tcp_sock*) sk;

        return bpf_core_field_exists(tp->is_mptcp) && BPF_CORE_READ(tp, is_mptcp);
}

static __always_inline void listener_learn(struct sock *sk, const struct qos_owner *owner,
                                           struct qos_unit_map *u, bool found) {
        struct qos_listener *l;
        struct conn *c;

        /* In inet_sock_set_state the socket is not in that state yet */
        c = conn_learn(sk, CONN_LISTENER, owner, u);
        if (!c)
                return;
        c->found = found;

        /* An MPTCP listener has two sockets: that of the application, and a TCP socket that accepts for it,
         * the element of which is cloned for connections. They count as one listener, that of the
         * application */
        if (sk->sk_protocol == IPPROTO_TCP && socket_is_mptcp(sk))
                return;
        l = BPF_STORAGE_CREATE(sk, listeners, sk);
        if (!l) {
                element_lost(QOS_STATISTIC_LOST_LISTENERS, owner);
                return;
        }
        l->owner = *owner;
}
