/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

/* Exchanges on UDP: what udp.bpf.c and the programs that see packets (in tcp.bpf.c) share.
 *
 * One socket has many peers, and answers come in any order: what a peer has asked is remembered by the
 * peer's address, and by the ID of the question where that is DNS. A datagram that goes to a peer which has
 * asked answers it. One that goes to a peer which has not is the unit's own question, and what comes from
 * there then is no request.
 *
 * Nothing tells when a datagram is read: there is no hook for that which TCP would not have to pay for. So a
 * question counts with its answer, and how long it was in the queue is not told apart from how long it was
 * worked on. */

#include "maps.h"
#include "datagram.h"

/* How long an answer is waited for. A resolver's client asks again after 5 s, or gives up; what is sent
 * later was not asked for by anybody who is still there. */
#define UDP_WAIT_NSEC (10 * 1000000000ULL)

/* Questions and peers that are remembered, of all units: as many as a busy resolver has open. What was not
 * used for longest is forgotten. 136 bytes each. */
#define UDP_PEERS 4096

/* So many peers that ask a socket and get no answer make it one that does not answer: it collects logs or
 * metrics, and would use up the room of those that do. */
#define UDP_SINK (UDP_PEERS / 4)

enum udp_kind {
        UDP_SERVER = 1,
        UDP_OTHER,              /* it speaks QUIC */
        UDP_CLIENT,             /* it is not bound, and has asked questions of DNS */
};

/* Questions of DNS that units have asked and whose answers they wait for, of all units, and those that are
 * not answered, for as long as UDP_WAIT_NSEC. 192 bytes each while they are there; what is more is in the
 * unit's drops. */
#define UDP_ASKED 8192

/* To so many peers the same question may go from one socket at a time: musl asks all that a resolv.conf may
 * name at once. */
#define UDP_ASKED_PEERS 3

/* How often questions are looked for that nobody has answered: some 100 us for all of them. */
#define UDP_SWEEP_NSEC 1000000000ULL

/* A socket that is bound to a port, or asks. */
struct udp_socket {
        struct qos_owner owner;
        __u64 cookie;
        __u64 learned_at;
        __u32 unseen;           /* what was in its queue when it was learned */
        __u32 unanswered;       /* peers that were noted since the last answer */
        __u16 kind;             /* enum udp_kind */
        __u8 found;             /* 1: it is older than the attach: it may answer what nobody has seen */
        __u8 answers;           /* 1: it has answered something: a question is in flight */
        __u8 asks_dns;          /* 1: it has asked questions of DNS, and is answered */
        __u8 target;             /* TARGET_ENTRY, TARGET_ONLY */
        __u8 _padding[2];
};

struct udp_peer {
        __u64 cookie;           /* of the socket */
        __u8 address[16];       /* IPv4: the first four */
        __be16 port;
        __u16 id;               /* of a DNS question */
        __u8 dns;
        __u8 version;
        __u16 _padding;
};

struct udp_exchange {
        struct qos_owner owner;
        __u64 first_at;         /* the oldest open question came; if there is none, the one that was answered
                                 * last */
        __u64 last_at;          /* the newest did */
        __u64 out_at;           /* the last datagram of an answer left */
        __u64 asked_at;         /* the unit has asked this peer */
        __u32 open;             /* questions */
        __u32 bytes;            /* of these */
        __u32 seen;             /* 1: they are in flight */
        __u32 target;            /* the socket's */
};

/* The peer's address is no part of it: that from which an answer comes is another one than the question went
 * to where it is translated on the way (containers), unless the socket is connected. */
struct udp_asked_key {
        __u64 cookie;           /* of the socket */
        __u64 id;
};

struct udp_question {
        __u64 at;               /* it left; 0: there is none */
        struct qos_owner owner;
        __u32 who;              /* the peer: a hash of its address */
        __u32 target;            /* its row, as struct conn has it */
};

struct udp_asked {
        struct bpf_spin_lock lock;
        __u32 dead;             /* 1: it is being deleted */
        struct udp_question to[UDP_ASKED_PEERS];
};

BPF_STORAGE_MAP(udp_sockets, SK, struct udp_socket) __weak;

struct {
        __uint(type, BPF_MAP_TYPE_LRU_HASH);
        __uint(max_entries, UDP_PEERS);
        __type(key, struct udp_peer);
        __type(value, struct udp_exchange);
} udp_peers SEC(".maps") __weak;

struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __uint(map_flags, BPF_F_NO_PREALLOC);
        __uint(max_entries, UDP_ASKED);
        __type(key, struct udp_asked_key);
        __type(value, struct udp_asked);
} udp_asked SEC(".maps") __weak;

struct udp_sweep {
        __u64 at;               /* they were looked through */
        /* what one is at first, for which there is no room on the stack */
        __u64 fresh[sizeof(struct udp_asked) / sizeof(__u64)];
};

BPF_ARRAY_MAP(udp_swept, ARRAY, 1, struct udp_sweep) __weak;

/* ---- whose socket is it ------------------------------------------------------------------------------- */

static __always_inline void udp_adopt(struct udp_socket *c, const struct qos_owner *owner, __u64 cookie,
                                      __u32 unseen, bool found) {
        if (owner_equal(&c->owner, owner) && c->kind != UDP_CLIENT)
                return;
        c->kind = 0;
        c->cookie = cookie;
        c->learned_at = bpf_ktime_get_ns();
        c->unseen = unseen;
        c->unanswered = 0;
        c->found = found;
        c->answers = 0;
        if (!owner_equal(&c->owner, owner))
                c->asks_dns = 0; /* else it has asked before it was found */
        c->target = 0;
        c->owner = *owner;
        c->kind = UDP_SERVER;
}

/* ---- packets ------------------------------------------------------------------------------------------ */

struct udp_header {
        __be16 source;
        __be16 dest;
        __be16 length;
        __be16 check;
};

struct udp_datagram {
        struct udp_peer peer;
        __u32 kind;             /* enum datagram_kind */
        __u32 length;           /* of the payload */
};

/* Walked by the verifier by itself: who calls it does not multiply with all the ways through a header. */
__attribute__((noinline, weak)) int udp_parse(struct __sk_buff *skb, int incoming, __u64 cookie,
                                              struct udp_datagram *ret) {
        __u8 head[DATAGRAM_HEAD] = {};
        struct udp_header header;
        struct udp_peer *p;
        __u32 offset, n;
        __u8 next;

        if (!ret)
                return false;
        p = &ret->peer;
        if (skb->protocol == bpf_htons(ETH_P_IP)) {
                __u8 first;

                if (bpf_skb_load_bytes(skb, 0, &first, 1) < 0 || bpf_skb_load_bytes(skb, 9, &next, 1) < 0 ||
                    bpf_skb_load_bytes(skb, incoming ? 12 : 16, p->address, 4) < 0)
                        return false;
                offset = (first & 0xf) * 4;
                p->version = 4;
        } else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
                if (bpf_skb_load_bytes(skb, 6, &next, 1) < 0 ||
                    bpf_skb_load_bytes(skb, incoming ? 8 : 24, p->address, 16) < 0)
                        return false;
                offset = 40;
                p->version = 6;

                /* Those that segment_parse() walks, and a fragment header: what comes in is whole again */
                for (int i = 0; i < 4 && (next == 0 || next == 43 || next == 60 || next == 44); i++) {
                        __u8 extension[2];

                        if (bpf_skb_load_bytes(skb, offset, extension, 2) < 0)
                                return false;
                        offset += next == 44 ? 8 : (extension[1] + 1) * 8;
                        next = extension[0];
                }
        } else
                return false;

        if (next != IPPROTO_UDP || bpf_skb_load_bytes(skb, offset, &header, sizeof(header)) < 0)
                return false;
        offset += sizeof(header);
        ret->length = skb->len > offset ? skb->len - offset : 0;
        n = ret->length < sizeof(head) ? ret->length : sizeof(head);
        BPF_BOUND(n, sizeof(head) + 1);
        if (n > 0 && bpf_skb_load_bytes(skb, offset, head, n) < 0)
                return false;

        p->cookie = cookie;
        p->port = incoming ? header.source : header.dest;
        ret->kind = datagram_classify(head, ret->length);
        p->id = datagram_word(head, 0);
        return true;
}

/* Of this kind all that is remembered is by its ID. */
static __always_inline void udp_key(struct udp_datagram *d, bool dns) {
        d->peer.dns = dns;
        if (!dns)
                d->peer.id = 0;
}

static __always_inline struct udp_exchange* udp_find(const struct udp_datagram *d,
                                                     const struct qos_owner *owner) {
        struct udp_exchange *x = bpf_map_lookup_elem(&udp_peers, &d->peer);

        return x && owner_equal(&x->owner, owner) ? x : NULL;
}

/* ---- the unit asks ------------------------------------------------------------------------------------ */

/* A question is not answered. */
__attribute__((noinline, weak)) int udp_give_up(const struct qos_owner *owner, __u32 target, __u64 now) {
        struct qos_unit_map *u;

        if (!owner)
                return 0;
        u = unit_get(owner);
        if (!u)
                return 0;
        window_advance(u, now);
        target = target_resolve(u, target);
        entry_apply(u, target, -1, 0);
        entry_count(entry_get(u, target & TARGET_ENTRY), QOS_ENTRY_ERRORS_TIMEOUT, 1);
        return 0;
}

/* Questions of this ID that were asked too long ago are not answered any more. */
static __always_inline int udp_expire(struct udp_asked *x, const struct udp_asked_key *key, __u64 now) {
        struct qos_owner owner = {};
        bool dead = false;
        __u32 target = 0;
        __u64 old;

        if (!x || !key)
                return 0;
        for (int i = 0; i < UDP_ASKED_PEERS; i++) {
                bpf_spin_lock(&x->lock);
                old = x->to[i].at;
                if (old != 0 && (__s64) (now - old) >= (__s64) UDP_WAIT_NSEC) {
                        owner = x->to[i].owner;
                        target = x->to[i].target;
                        x->to[i].at = 0;
                } else
                        old = 0;
                if (!x->dead && x->to[0].at == 0 && x->to[1].at == 0 && x->to[2].at == 0)
                        dead = x->dead = 1;
                bpf_spin_unlock(&x->lock);
                if (old != 0)
                        udp_give_up(&owner, target, now);
        }
        /* Whoever has marked it deletes it: nobody puts anything into it in between */
        if (dead)
                bpf_map_delete_elem(&udp_asked, key);
        return 0;
}

static long udp_sweep_step(struct bpf_map *map, const struct udp_asked_key *key, struct udp_asked *x,
                           __u64 *now) {
        udp_expire(x, key, *now);
        return 0;
}

__attribute__((noinline, weak)) int udp_sweep(void) {
        __u64 now = bpf_ktime_get_ns();
        struct udp_sweep *s;
        __u32 zero = 0;
        __u64 old;

        s = bpf_map_lookup_elem(&udp_swept, &zero);
        if (!s)
                return 0;
        old = *(volatile __u64*) &s->at;
        if ((__s64) (now - old) < (__s64) UDP_SWEEP_NSEC ||
            __sync_val_compare_and_swap(&s->at, old, now) != old)
                return 0;
        bpf_for_each_map_elem(&udp_asked, udp_sweep_step, &now, 0);
        return 0;
}

/* Whom a socket asks: the peer that it is connected with, or where the datagram goes to. */
static __always_inline void udp_find_peer(struct bpf_sock *sk, const struct udp_datagram *d,
                                          struct qos_address *ret) {
        volatile __u32 *words = (volatile __u32*) ret->address;

        if (sk->state != TCP_ESTABLISHED) {
                __builtin_memcpy(ret->address, d->peer.address, sizeof(ret->address));
                ret->family = d->peer.version == 4 ? AF_INET : AF_INET6;
                ret->port = bpf_ntohs(d->peer.port);
                return;
        }
        ret->family = sk->family;
        ret->port = bpf_ntohs(sk->dst_port);
        if (ret->family == AF_INET6) {
                words[0] = sk->dst_ip6[0];
                words[1] = sk->dst_ip6[1];
                words[2] = sk->dst_ip6[2];
                words[3] = sk->dst_ip6[3];
                if (words[0] == 0 && words[1] == 0 && words[2] == bpf_htonl(0xffff)) {
                        /* IPv4 through a socket for IPv6 */
                        words[0] = words[3];
                        words[2] = words[3] = 0;
                        ret->family = AF_INET;
                }
        } else
                words[0] = sk->dst_ip4;
}

static __always_inline __u32 udp_hash_peer(const struct qos_address *a) {
        const volatile __u32 *words = (const volatile __u32*) a->address;
        __u32 hash = 0x811c9dc5;

        for (int i = 0; i < 4; i++)
                hash = (hash ^ words[i]) * 0x01000193;
        return (hash ^ a->port) * 0x01000193;
}

/* Who is asked by multicast or broadcast is nobody in particular. */
static __always_inline bool udp_is_for_all(const struct udp_peer *p) {
        if (p->version == 4)
                return p->address[0] >= 224;
        return p->address[0] == 0xff;
}

/* The unit asks something of DNS: the datagram leaves. This and the next are functions as udp_parse(). */
__attribute__((noinline, weak)) int udp_asks(struct __sk_buff *skb) {
        __u64 now = bpf_ktime_get_ns();
        struct udp_question q = { .at = now };
        struct udp_datagram d = {};
        struct qos_address a = {};
        struct udp_asked_key key = {};
        struct qos_owner before = {};
        struct udp_asked *x;
        struct udp_socket *c;
        struct bpf_sock *sk;
        struct qos_unit_map *u;
        struct udp_sweep *sweep;
        bool placed = false;
        __u32 row, target = 0, zero = 0;

        sk = skb->sk;
        if (!sk)
                return 0;
        sk = bpf_sk_fullsock(sk);
        if (!sk)
                return 0;
        c = bpf_sk_storage_get(&udp_sockets, sk, 0, 0);
        if (!c || !udp_parse(skb, false, 0, &d) || udp_is_for_all(&d.peer))
                return 0;
        q.owner = owner_read(&c->owner);
        u = unit_get(&q.owner);
        if (!u)
                return 0;
        sweep = bpf_map_lookup_elem(&udp_swept, &zero);
        if (!sweep)
                return 0;

        udp_find_peer(sk, &d, &a);
        q.who = udp_hash_peer(&a);
        row = entry_find(u, &a, QOS_ENTRY_PEER);
        BPF_BOUND(row, QOS_ENTRIES + 1);
        q.target = row | TARGET_ONLY | (u->names[row].generation & 0xff) << TARGET_GENERATION_SHIFT;

        key.cookie = c->cookie;
        key.id = d.peer.id;
        window_advance(u, now);
        x = bpf_map_lookup_elem(&udp_asked, &key);
        if (!x) {
                bpf_map_update_elem(&udp_asked, &key, sweep->fresh, BPF_NOEXIST);
                x = bpf_map_lookup_elem(&udp_asked, &key);
        }
        if (!x) {
                element_lost(QOS_STATISTIC_LOST_UDP_ASKED, &c->owner);
                return 0;
        }
        {
                bpf_spin_lock(&x->lock);
                /* Asked once more: who asks does not wait for the first answer any longer */
                for (int i = 0; i < UDP_ASKED_PEERS; i++)
                        if (!placed && !x->dead && x->to[i].at != 0 && x->to[i].who == q.who) {
                                before = x->to[i].owner;
                                target = x->to[i].target;
                                x->to[i] = q;
                                placed = true;
                        }
                for (int i = 0; i < UDP_ASKED_PEERS; i++)
                        if (!placed && !x->dead && x->to[i].at == 0) {
                                x->to[i] = q;
                                placed = true;
                        }
                bpf_spin_unlock(&x->lock);
        }
        if (!placed) {
                window_count(u, QOS_COUNTER_DROPS, 1);
                return 0;
        }
        q.target = target_resolve(u, q.target);
        entry_apply(u, q.target, 1, 0);
        record_sum(u, q.target, QOS_SUM_BYTES_OUT, QOS_ENTRY_SUM_BYTES_OUT, d.length);
        if (before.generation != 0)
                udp_give_up(&before, target, now);
        return 0;
}

/* An answer of DNS has come. Returns 1: the unit has asked for it. */
__attribute__((noinline, weak)) int udp_hears(struct __sk_buff *skb, const struct udp_datagram *d,
                                              __u64 now) {
        struct request_record book = { .now = now, .n = 1 };
        struct udp_asked_key key = {};
        struct qos_address a = {};
        struct udp_question q = {};
        struct udp_socket *c;
        struct udp_asked *x;
        struct bpf_sock *sk;
        struct qos_unit_map *u;
        __u32 who, n = 0;
        bool dead = false;
        __u64 row;

        if (!d)
                return 0;
        sk = skb->sk;
        if (!sk)
                return 0;
        sk = bpf_sk_fullsock(sk);
        if (!sk)
                return 0;
        c = bpf_sk_storage_get(&udp_sockets, sk, 0, 0);
        if (!c)
                return 0;
        key.cookie = c->cookie;
        key.id = d->peer.id;
        x = bpf_map_lookup_elem(&udp_asked, &key);
        if (!x)
                return 0;
        udp_find_peer(sk, d, &a);
        who = udp_hash_peer(&a);

        bpf_spin_lock(&x->lock);
        for (int i = 0; i < UDP_ASKED_PEERS; i++)
                if (x->to[i].at != 0 && x->to[i].who == who) {
                        q = x->to[i];
                        x->to[i].at = 0;
                }
        /* From an address that nobody has asked: where only one was asked it has been translated on the
         * way */
        if (q.at == 0) {
                for (int i = 0; i < UDP_ASKED_PEERS; i++)
                        n += x->to[i].at != 0;
                for (int i = 0; i < UDP_ASKED_PEERS; i++)
                        if (n == 1 && x->to[i].at != 0) {
                                q = x->to[i];
                                x->to[i].at = 0;
                        }
        }
        if (!x->dead && x->to[0].at == 0 && x->to[1].at == 0 && x->to[2].at == 0)
                dead = x->dead = 1;
        bpf_spin_unlock(&x->lock);
        if (dead)
                bpf_map_delete_elem(&udp_asked, &key);
        if (q.at == 0)
                return 0;

        if ((__s64) (now - q.at) >= (__s64) UDP_WAIT_NSEC) {
                udp_give_up(&q.owner, q.target, now);
                return 1;
        }
        u = unit_get(&q.owner);
        if (!u)
                return 1;
        window_advance(u, now);
        book.target = target_resolve(u, q.target);
        book.first_at = q.at;
        entry_apply(u, book.target, -1, 0);
        record_sum(u, book.target, QOS_SUM_BYTES_IN, QOS_ENTRY_SUM_BYTES_IN, d->length);
        entry_record(u, &book);

        /* It has no row: perhaps it has earned one, for the next question */
        if ((book.target & TARGET_ENTRY) == QOS_ENTRY_PEERS_OTHERS) {
                row = entry_find(u, &a, QOS_ENTRY_PEER);
                if (row == QOS_ENTRY_PEERS_OTHERS)
                        peer_challenge(u, &a, exchange_between(q.at, now), now);
        }
        return 1;
}

/* ---- packets of a socket ------------------------------------------------------------------------------ */

static __attribute__((noinline)) int udp_arrive(struct __sk_buff *skb, struct bpf_sock *sk,
                                                struct overhead *overhead) {
        struct udp_datagram d = {};
        struct udp_exchange *x;
        struct udp_socket *c;
        struct qos_unit_map *u;
        __u64 now;

        if (!overhead)
                return 0;
        c = bpf_sk_storage_get(&udp_sockets, sk, 0, 0);
        if (!c || (c->kind != UDP_SERVER && c->kind != UDP_CLIENT))
                return 0;
        u = unit_get(&c->owner);
        if (!u)
                return 0;
        overhead_begin(overhead, &c->owner, u);
        /* What is sent to a group, or to all, asks nobody in particular */
        if (skb->pkt_type == PACKET_BROADCAST || skb->pkt_type == PACKET_MULTICAST)
                return 0;
        if (!udp_parse(skb, true, c->cookie, &d)) {
                statistics_count(QOS_STATISTIC_SEGMENTS_LOST);
                return 0;
        }
        now = bpf_ktime_get_ns();
        if (d.kind == DATAGRAM_DNS_ANSWER && c->asks_dns)
                return udp_hears(skb, &d, now);
        if (d.kind == DATAGRAM_QUIC || c->kind == UDP_CLIENT)
                return 0;

        udp_key(&d, d.kind == DATAGRAM_DNS_QUESTION);
        x = udp_find(&d, &c->owner);
        if (!x) {
                struct udp_exchange fresh = {
                        .owner = c->owner,
                        .first_at = now,
                        .last_at = now,
                        .open = 1,
                        .bytes = d.length,
                        .seen = c->answers,
                        .target = c->target,
                };

                if (c->unanswered >= UDP_SINK)
                        return 0;
                c->unanswered++;
                if (bpf_map_update_elem(&udp_peers, &d.peer, &fresh, BPF_ANY) < 0)
                        element_lost(QOS_STATISTIC_LOST_UDP_PEERS, &c->owner);
                return 0;
        }

        if (x->asked_at != 0 && (__s64) (now - x->asked_at) < (__s64) UDP_WAIT_NSEC)
                return 0; /* it answers the unit */
        if ((__s64) (now - x->last_at) >= (__s64) UDP_WAIT_NSEC)
                x->open = 0; /* nobody waits for that any more */
        if (__sync_fetch_and_add(&x->open, 1) == 0) {
                x->first_at = now;
                x->bytes = 0;
        }
        x->last_at = now;
        x->seen = c->answers;
        x->target = c->target;
        __sync_fetch_and_add(&x->bytes, d.length);
        return 0;
}

/* The socket's endpoint. With its first answer: many are bound to a port and only ask, a resolver has one
 * for each question. */
static __attribute__((noinline)) int udp_find_target(struct bpf_sock *sk, struct udp_socket *c,
                                                     struct qos_unit_map *u) {
        struct qos_address a = {};
        volatile __u32 *words = (volatile __u32*) a.address;
        struct qos_owner owner;

        if (!sk || !c || !u)
                return 0;
        a.family = sk->family;
        a.port = sk->src_port;
        if (sk->family == AF_INET6) {
                words[0] = sk->src_ip6[0];
                words[1] = sk->src_ip6[1];
                words[2] = sk->src_ip6[2];
                words[3] = sk->src_ip6[3];
        } else
                words[0] = sk->src_ip4;
        owner = c->owner;
        return endpoint_find(u, &owner, &a, false);
}

/* A question is answered. This and the next are functions of their own, as their room on the stack is not
 * there for all. */
__attribute__((noinline, weak)) int udp_book(struct udp_socket *c, struct qos_unit_map *u, __u64 now,
                                             __u64 first_at, __u64 bytes) {
        struct request_record book = { .now = now, .first_at = first_at, .n = 1 };
        __u32 bytes_in = bytes >> 32, bytes_out = bytes;

        if (!c || !u)
                return 0;
        c->unanswered = 0;
        record_sum(u, c->target, QOS_SUM_BYTES_IN, QOS_ENTRY_SUM_BYTES_IN, bytes_in);
        record_sum(u, c->target, QOS_SUM_BYTES_OUT, QOS_ENTRY_SUM_BYTES_OUT, bytes_out);
        book.target = c->target;
        entry_record(u, &book);
        if (c->target & TARGET_ONLY) {
                window_count(u, QOS_COUNTER_EXCLUDED, 1);
                return 0;
        }
        window_count(u, QOS_COUNTER_COUNT, 1);
        window_count(u, QOS_COUNTER_UDP, 1);
        window_add(u, QOS_FIRST_BYTE, exchange_between(first_at, now), 1);
        return 0;
}

/* One more datagram of an answer leaves. */
__attribute__((noinline, weak)) int udp_book_more(const struct udp_socket *c, struct qos_unit_map *u,
                                                  __u64 now, struct udp_exchange *x, __u64 bytes) {
        struct request_record book = { .now = now };

        if (!c || !u || !x)
                return 0;
        book.first_at = x->first_at;
        book.before = x->out_at;
        book.target = c->target;
        entry_record_more(u, &book);
        if (!(c->target & TARGET_ONLY))
                window_move(u, QOS_LATENCY, x->out_at, exchange_between(x->first_at, x->out_at),
                            now, exchange_between(x->first_at, now));
        x->out_at = now;
        record_sum(u, c->target, QOS_SUM_BYTES_OUT, QOS_ENTRY_SUM_BYTES_OUT, bytes);
        return 0;
}

/* The socket has something to answer. */
static __always_inline void udp_answers(struct bpf_sock *sk, struct udp_socket *c, struct qos_unit_map *u) {
        if (c->answers)
                return;
        c->target = udp_find_target(sk, c, u);
        c->answers = 1;
}

/* Notes what a peer that is not known is to the unit: one that has asked, and is answered at out_at; or, if
 * that is 0, one that is asked. */
__attribute__((noinline, weak)) int udp_note(const struct udp_datagram *d, const struct udp_socket *c,
                                             struct qos_unit_map *u, __u64 first_at, __u64 out_at) {
        struct udp_exchange fresh = {};

        if (!d || !c || !u)
                return 0;
        fresh.owner = c->owner;
        fresh.first_at = fresh.last_at = first_at;
        fresh.out_at = out_at;
        fresh.asked_at = out_at == 0 ? first_at : 0;
        fresh.target = c->target;
        if (bpf_map_update_elem(&udp_peers, &d->peer, &fresh, BPF_ANY) < 0)
                element_lost(QOS_STATISTIC_LOST_UDP_PEERS, &c->owner);
        return 0;
}

/* Takes one question as answered. Returns how many were open with it; others may do the same at this
 * moment. */
static __always_inline __u32 udp_take(struct udp_exchange *x) {
        /* So many that answer the same peer from one socket at the same time, and no loop without end */
        for (int i = 0; i < 4; i++) {
                __u32 open = *(volatile __u32*) &x->open;

                if (open == 0)
                        return 0;
                if (__sync_val_compare_and_swap(&x->open, open, open - 1) == open)
                        return open;
        }
        return 0;
}

/* Of a socket that is not bound: most never ask anything that is understood. */
static __attribute__((noinline)) int udp_client_departs(struct __sk_buff *skb, struct bpf_sock *sk,
                                                        struct udp_socket *c, struct overhead *overhead) {
        struct udp_datagram d = {};
        struct qos_owner owner;
        struct qos_unit_map *u;

        if (!skb || !sk || !overhead || !task_owner(&owner))
                return 0;
        u = unit_get(&owner);
        if (!u)
                return 0;
        overhead_begin(overhead, &owner, u);
        if (!udp_parse(skb, false, 0, &d) || d.kind != DATAGRAM_DNS_QUESTION)
                return 0;
        if (!c) {
                c = bpf_sk_storage_get(&udp_sockets, sk, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
                if (!c) {
                        element_lost(QOS_STATISTIC_LOST_UDP_SOCKETS, &owner);
                        return 0;
                }
        }
        if (c->kind != UDP_CLIENT || !owner_equal(&c->owner, &owner)) {
                c->cookie = bpf_get_socket_cookie(skb);
                c->owner = owner;
                c->asks_dns = 1;
                c->kind = UDP_CLIENT;
        }
        return 1;
}

static __attribute__((noinline)) int udp_server_departs(struct __sk_buff *skb, struct bpf_sock *sk,
                                                        struct udp_socket *c, struct overhead *overhead) {
        struct udp_exchange *x = NULL;
        struct udp_datagram d = {};
        struct qos_unit_map *u;
        __u32 open;
        __u64 now;

        if (!skb || !sk || !c || !overhead || c->kind != UDP_SERVER)
                return 0;
        u = unit_get(&c->owner);
        if (!u)
                return 0;
        overhead_begin(overhead, &c->owner, u);
        if (!udp_parse(skb, false, c->cookie, &d)) {
                statistics_count(QOS_STATISTIC_SEGMENTS_LOST);
                return 0;
        }
        if (d.kind == DATAGRAM_QUIC) {
                c->kind = UDP_OTHER;
                return 0;
        }

        now = bpf_ktime_get_ns();
        window_advance(u, now);

        if (d.kind == DATAGRAM_DNS_ANSWER) {
                udp_key(&d, true);
                x = udp_find(&d, &c->owner);
        }
        if (!x) {
                udp_key(&d, false);
                x = udp_find(&d, &c->owner);
        }

        open = x && (__s64) (now - x->first_at) < (__s64) UDP_WAIT_NSEC ? udp_take(x) : 0;
        if (open > 0) {
                __u32 bytes = x->bytes;
                __u64 first_at = x->first_at;

                if (open > 1 && !d.peer.dns)
                        record_count(u, c->target, QOS_COUNTER_OVERLAPS, QOS_ENTRY_OVERLAPS, 1);
                if (open > 1)
                        x->first_at = x->last_at;
                bytes /= open;
                __sync_fetch_and_add(&x->bytes, -bytes);
                x->out_at = now;
                udp_answers(sk, c, u);
                udp_book(c, u, now, first_at, (__u64) bytes << 32 | d.length);
                if (open == 1 && d.peer.dns)
                        bpf_map_delete_elem(&udp_peers, &d.peer);
                return 0;
        }

        if (x && x->out_at != 0) {
                if (now - x->out_at < EXCHANGE_SILENCE_NSEC)
                        udp_book_more(c, u, now, x, d.length);
                return 0;
        }

        if (c->unseen > 0 && d.kind != DATAGRAM_DNS_QUESTION) {
                /* It came before the socket was known, and was in its queue then */
                c->unseen--;
                udp_answers(sk, c, u);
                udp_book(c, u, now, c->learned_at, d.length);
                if (d.kind != DATAGRAM_DNS_ANSWER)
                        udp_note(&d, c, u, c->learned_at, now);
                return 0;
        }

        if (d.kind == DATAGRAM_DNS_ANSWER)
                return 0; /* to the group, or once more */
        if (d.kind == DATAGRAM_DNS_QUESTION) {
                c->asks_dns = 1;
                return 1;
        }
        if (c->found && now - c->learned_at < UDP_WAIT_NSEC)
                return 0; /* perhaps it answers what was read before the attach */
        udp_note(&d, c, u, now, 0);
        return 0;
}

/* True: the unit asks, see udp_asks(). That is not called from where it is seen, as there is too little room
 * on the stack. */
static __always_inline bool udp_depart(struct __sk_buff *skb, struct bpf_sock *sk,
                struct overhead *overhead) {
        struct udp_socket *c = bpf_sk_storage_get(&udp_sockets, sk, 0, 0);

        return c && c->kind != UDP_CLIENT ? udp_server_departs(skb, sk, c, overhead) :
               udp_client_departs(skb, sk, c, overhead);
}
