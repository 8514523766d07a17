/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

/* Requests on UDP, shared by udp.bpf.c and the programs that see packets (in tcp.bpf.c).
 *
 * A socket has many peers, and responses come in any order: requests are identified by the address of the
 * peer and, for DNS, by their ID. A datagram to a peer with an outstanding request is a response. A datagram
 * to another peer is a request of the unit, and those that come back are not requests.
 *
 * Reads are not observable: no hook is free of cost for TCP. A request is therefore counted with its
 * response, and queue and service time are not distinguished. */

#include "maps.h"
#include "datagram.h"

/* Timeout of a request. Resolver clients retry after 5 s, or stop; later responses have no receiver. */
#define UDP_WAIT_NSEC (10 * 1000000000ULL)

/* Number of requests and peers stored, of all units: as many as a busy resolver has. LRU; 136 bytes each. */
#define UDP_PEERS 4096

/* Number of peers without response after which a socket is considered a sink, such as a log or metrics
 * collector, which would otherwise evict the peers of others. */
#define UDP_SINK (UDP_PEERS / 4)

enum udp_kind {
        UDP_SERVER = 1,
        UDP_OTHER,              /* QUIC */
        UDP_CLIENT,             /* unbound, has sent DNS queries */
};

/* DNS queries of all units without response, kept for UDP_WAIT_NSEC. 192 bytes each; further ones are
 * counted in the drops of the unit. */
#define UDP_PENDING 8192

/* Number of peers to which a socket may send the same query at a time: musl queries all servers that
 * resolv.conf may list. */
#define UDP_PENDING_PEERS 3

/* Interval of scans for timeouts, each about 100 us for all queries. */
#define UDP_SWEEP_NSEC 1000000000ULL

/* A socket that is bound to a port, or of a client. */
struct udp_socket {
        struct qos_owner owner;
        struct qos_owner previous; /* previous one of nested units, the owner of older requests */
        __u64 cookie;
        __u64 learned_at;
        __u32 unseen;           /* number of datagrams in its queue when it was found */
        __u32 unanswered;       /* peers added since the last response */
        __u16 kind;             /* enum udp_kind */
        __u8 found;             /* 1: older than the attach: may respond to unseen requests */
        __u8 responses;         /* 1: has sent a response, so requests are in flight */
        __u8 queries_dns;       /* 1: has sent DNS queries */
        __u8 target;            /* TARGET_ENTRY, TARGET_ONLY */
        __u8 _padding[2];
};

struct udp_peer {
        __u64 cookie;           /* of the socket */
        __u8 address[16];       /* IPv4: the first 4 bytes */
        __be16 port;
        __u16 id;               /* of a DNS query */
        __u8 dns;
        __u8 version;
        __u16 _padding;
};

struct udp_exchange {
        struct qos_owner owner;
        __u64 first_at;         /* arrival of the oldest outstanding request, or else of the last one
                                 * responded to */
        __u64 last_at;          /* arrival of the newest request */
        __u64 out_at;           /* last datagram of a response sent */
        __u64 requested_at;     /* last request of the unit to this peer */
        __u32 open;             /* outstanding requests */
        __u32 bytes;            /* bytes of these requests */
        __u32 seen;             /* 1: counted as in flight */
        __u32 target;            /* of the socket */
};

/* Does not include the peer's address: with NAT (containers) a response comes from another address than the
 * query was sent to, unless the socket is connected. */
struct udp_pending_key {
        __u64 cookie;           /* of the socket */
        __u64 id;
};

struct udp_query {
        __u64 at;               /* time sent; 0: none */
        struct qos_owner owner;
        __u32 who;              /* hash of the peer's address */
        __u32 target;           /* of the peer, as in struct conn */
};

struct udp_pending {
        struct bpf_spin_lock lock;
        __u32 dead;             /* 1: being deleted */
        struct udp_query to[UDP_PENDING_PEERS];
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
        __uint(max_entries, UDP_PENDING);
        __type(key, struct udp_pending_key);
        __type(value, struct udp_pending);
} udp_pending SEC(".maps") __weak;

struct udp_sweep {
        __u64 at;               /* time of the last scan */
        /* Initial value of struct udp_pending, too large for the stack */
        __u64 fresh[sizeof(struct udp_pending) / sizeof(__u64)];
};

BPF_ARRAY_MAP(udp_swept, ARRAY, 1, struct udp_sweep) __weak;

/* ---- owners ------------------------------------------------------------------------------------------- */

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
        c->responses = 0;
        if (!owner_equal(&c->owner, owner))
                c->queries_dns = 0; /* the same owner: queries were sent before it was found */
        c->target = 0;
        c->owner = c->previous = *owner;
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

/* Parses the headers of a datagram. Global, so that the verifier does not explore its paths for each
 * caller. */
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

                /* Headers as in segment_parse(), and the fragment header: incoming datagrams are
                 * reassembled */
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

/* Completes the key: only DNS requests are identified by their ID. */
static __always_inline void udp_key(struct udp_datagram *d, bool dns) {
        d->peer.dns = dns;
        if (!dns)
                d->peer.id = 0;
}

static __always_inline struct udp_exchange* udp_find(const struct udp_datagram *d,
                                                     const struct udp_socket *c) {
        struct udp_exchange *x = bpf_map_lookup_elem(&udp_peers, &d->peer);

        if (!x || owner_equal(&x->owner, &c->owner))
                return x;
        if (!owner_equal(&x->owner, &c->previous))
                return NULL;
        x->owner = c->owner;
        x->target = c->target;
        return x;
}

/* ---- client role -------------------------------------------------------------------------------------- */

/* A request has timed out. */
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

/* Times out queries of this ID. */
static __always_inline int udp_expire(struct udp_pending *x, const struct udp_pending_key *key, __u64 now) {
        struct qos_owner owner = {};
        bool dead = false;
        __u32 target = 0;
        __u64 old;

        if (!x || !key)
                return 0;
        for (int i = 0; i < UDP_PENDING_PEERS; i++) {
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
        /* Only the run that has marked it deletes it, and nothing is added in between */
        if (dead)
                bpf_map_delete_elem(&udp_pending, key);
        return 0;
}

static long udp_sweep_step(struct bpf_map *map, const struct udp_pending_key *key, struct udp_pending *x,
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
        bpf_for_each_map_elem(&udp_pending, udp_sweep_step, &now, 0);
        return 0;
}

/* Peer of a socket: the connected one, or the destination of the datagram. */
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
                        /* IPv4-mapped */
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

/* Multicast and broadcast have no particular peer. */
static __always_inline bool udp_is_for_all(const struct udp_peer *p) {
        if (p->version == 4)
                return p->address[0] >= 224;
        return p->address[0] == 0xff;
}

/* A DNS query of the unit is sent. This and the next function are global like udp_parse(). */
__attribute__((noinline, weak)) int udp_send_query(struct __sk_buff *skb) {
        __u64 now = bpf_ktime_get_ns();
        struct udp_query q = { .at = now };
        struct udp_datagram d = {};
        struct qos_address a = {};
        struct udp_pending_key key = {};
        struct qos_owner before = {};
        struct udp_pending *x;
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
        x = bpf_map_lookup_elem(&udp_pending, &key);
        if (!x) {
                bpf_map_update_elem(&udp_pending, &key, sweep->fresh, BPF_NOEXIST);
                x = bpf_map_lookup_elem(&udp_pending, &key);
        }
        if (!x) {
                element_lost(QOS_STATISTIC_LOST_UDP_PENDING, &c->owner);
                return 0;
        }
        {
                bpf_spin_lock(&x->lock);
                /* A retry replaces the first query */
                for (int i = 0; i < UDP_PENDING_PEERS; i++)
                        if (!placed && !x->dead && x->to[i].at != 0 && x->to[i].who == q.who) {
                                before = x->to[i].owner;
                                target = x->to[i].target;
                                x->to[i] = q;
                                placed = true;
                        }
                for (int i = 0; i < UDP_PENDING_PEERS; i++)
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
        entry_mark_queries(u, q.target & TARGET_ENTRY);
        entry_apply(u, q.target, 1, 0);
        record_sum(u, q.target, QOS_SUM_BYTES_OUT, QOS_ENTRY_SUM_BYTES_OUT, d.length);
        if (before.generation != 0)
                udp_give_up(&before, target, now);
        return 0;
}

/* A DNS response has arrived. Returns 1 if it is to a query of the unit. */
__attribute__((noinline, weak)) int udp_receive_response(struct __sk_buff *skb, const struct udp_datagram *d,
                                                         __u64 now) {
        struct request_record record = { .now = now, .n = 1 };
        struct udp_pending_key key = {};
        struct qos_address a = {};
        struct udp_query q = {};
        struct udp_socket *c;
        struct udp_pending *x;
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
        x = bpf_map_lookup_elem(&udp_pending, &key);
        if (!x)
                return 0;
        udp_find_peer(sk, d, &a);
        who = udp_hash_peer(&a);

        bpf_spin_lock(&x->lock);
        for (int i = 0; i < UDP_PENDING_PEERS; i++)
                if (x->to[i].at != 0 && x->to[i].who == who) {
                        q = x->to[i];
                        x->to[i].at = 0;
                }
        /* From an unknown address: with a single query, it was translated */
        if (q.at == 0) {
                for (int i = 0; i < UDP_PENDING_PEERS; i++)
                        n += x->to[i].at != 0;
                for (int i = 0; i < UDP_PENDING_PEERS; i++)
                        if (n == 1 && x->to[i].at != 0) {
                                q = x->to[i];
                                x->to[i].at = 0;
                        }
        }
        if (!x->dead && x->to[0].at == 0 && x->to[1].at == 0 && x->to[2].at == 0)
                dead = x->dead = 1;
        bpf_spin_unlock(&x->lock);
        if (dead)
                bpf_map_delete_elem(&udp_pending, &key);
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
        record.target = target_resolve(u, q.target);
        record.first_at = q.at;
        entry_apply(u, record.target, -1, 0);
        record_sum(u, record.target, QOS_SUM_BYTES_IN, QOS_ENTRY_SUM_BYTES_IN, d->length);
        entry_record(u, &record);

        /* The peer has no entry yet, and may earn one for its next request */
        if ((record.target & TARGET_ENTRY) == QOS_ENTRY_PEERS_OTHERS) {
                row = entry_find(u, &a, QOS_ENTRY_PEER);
                if (row == QOS_ENTRY_PEERS_OTHERS)
                        peer_challenge(u, &a, exchange_between(q.at, now), now);
        }
        return 1;
}

/* ---- server role -------------------------------------------------------------------------------------- */

/* Records payload of QUIC, as of unparsed connections. Returns 0. */
static __attribute__((noinline)) int udp_unparsed(struct udp_socket *c, struct qos_unit_map *u, __u32 bytes,
                                                  __u64 now, bool departs) {
        if (!c || !u)
                return 0;
        window_advance(u, now);
        record_sum(u, c->target, departs ? QOS_SUM_UNPARSED_OUT : QOS_SUM_UNPARSED_IN,
                   departs ? QOS_ENTRY_SUM_BYTES_OUT : QOS_ENTRY_SUM_BYTES_IN, bytes);
        return 0;
}

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
        if (!c || !c->kind)
                return 0;
        u = unit_get(&c->owner);
        if (!u)
                return 0;
        overhead_begin(overhead, &c->owner, u);
        /* Multicasts and broadcasts are not requests to this unit in particular */
        if (skb->pkt_type == PACKET_BROADCAST || skb->pkt_type == PACKET_MULTICAST)
                return 0;
        if (!udp_parse(skb, true, c->cookie, &d)) {
                statistics_count(QOS_STATISTIC_SEGMENTS_LOST);
                return 0;
        }
        now = bpf_ktime_get_ns();
        if (d.kind == DATAGRAM_DNS_RESPONSE && c->queries_dns)
                return udp_receive_response(skb, &d, now);
        if (c->kind == UDP_OTHER)
                return udp_unparsed(c, u, d.length, now, false);
        if (d.kind == DATAGRAM_QUIC || c->kind == UDP_CLIENT)
                return 0;

        udp_key(&d, d.kind == DATAGRAM_DNS_QUERY);
        x = udp_find(&d, c);
        if (!x) {
                struct udp_exchange fresh = {
                        .owner = c->owner,
                        .first_at = now,
                        .last_at = now,
                        .open = 1,
                        .bytes = d.length,
                        .seen = c->responses,
                        .target = c->target,
                };

                if (c->unanswered >= UDP_SINK)
                        return 0;
                c->unanswered++;
                if (bpf_map_update_elem(&udp_peers, &d.peer, &fresh, BPF_ANY) < 0)
                        element_lost(QOS_STATISTIC_LOST_UDP_PEERS, &c->owner);
                return 0;
        }

        if (x->requested_at != 0 && (__s64) (now - x->requested_at) < (__s64) UDP_WAIT_NSEC)
                return 0; /* a response to the unit */
        if ((__s64) (now - x->last_at) >= (__s64) UDP_WAIT_NSEC)
                x->open = 0; /* timed out */
        if (__sync_fetch_and_add(&x->open, 1) == 0) {
                x->first_at = now;
                x->bytes = 0;
        }
        x->last_at = now;
        x->seen = c->responses;
        x->target = c->target;
        __sync_fetch_and_add(&x->bytes, d.length);
        return 0;
}

/* Target of the socket's endpoint. Determined with the first response: many bound sockets are clients, and
 * resolvers have one per query. */
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

/* Records a response. This and the next function are global for the space on the stack. */
__attribute__((noinline, weak)) int udp_record(struct udp_socket *c, struct qos_unit_map *u, __u64 now,
                                               __u64 first_at, __u64 bytes) {
        struct request_record record = { .now = now, .first_at = first_at, .n = 1 };
        __u32 bytes_in = bytes >> 32, bytes_out = bytes;

        if (!c || !u)
                return 0;
        c->unanswered = 0;
        record_sum(u, c->target, QOS_SUM_BYTES_IN, QOS_ENTRY_SUM_BYTES_IN, bytes_in);
        record_sum(u, c->target, QOS_SUM_BYTES_OUT, QOS_ENTRY_SUM_BYTES_OUT, bytes_out);
        record.target = c->target;
        entry_record(u, &record);
        if (c->target & TARGET_ONLY) {
                window_count(u, QOS_COUNTER_EXCLUDED, 1);
                return 0;
        }
        window_count(u, QOS_COUNTER_COUNT, 1);
        window_count(u, QOS_COUNTER_UDP, 1);
        window_add(u, QOS_FIRST_BYTE, exchange_between(first_at, now), 1);
        return 0;
}

/* A further datagram of a response is sent. */
__attribute__((noinline, weak)) int udp_record_more(const struct udp_socket *c, struct qos_unit_map *u,
                                                    __u64 now, struct udp_exchange *x, __u64 bytes) {
        struct request_record record = { .now = now };

        if (!c || !u || !x)
                return 0;
        record.first_at = x->first_at;
        record.before = x->out_at;
        record.target = c->target;
        entry_record_more(u, &record);
        if (!(c->target & TARGET_ONLY))
                window_move(u, QOS_LATENCY, x->out_at, exchange_between(x->first_at, x->out_at),
                            now, exchange_between(x->first_at, now));
        x->out_at = now;
        record_sum(u, c->target, QOS_SUM_BYTES_OUT, QOS_ENTRY_SUM_BYTES_OUT, bytes);
        return 0;
}

/* Notes that the socket has sent a response. */
static __always_inline void udp_mark_responded(struct bpf_sock *sk, struct udp_socket *c,
                                               struct qos_unit_map *u) {
        if (c->responses)
                return;
        c->target = udp_find_target(sk, c, u);
        c->responses = 1;
}

/* Adds an unknown peer: a client to which a response was sent at out_at, or, if that is 0, a peer to which
 * the unit has sent a request. */
__attribute__((noinline, weak)) int udp_note(const struct udp_datagram *d, const struct udp_socket *c,
                                             struct qos_unit_map *u, __u64 first_at, __u64 out_at) {
        struct udp_exchange fresh = {};

        if (!d || !c || !u)
                return 0;
        fresh.owner = c->owner;
        fresh.first_at = fresh.last_at = first_at;
        fresh.out_at = out_at;
        fresh.requested_at = out_at == 0 ? first_at : 0;
        fresh.target = c->target;
        if (bpf_map_update_elem(&udp_peers, &d->peer, &fresh, BPF_ANY) < 0)
                element_lost(QOS_STATISTIC_LOST_UDP_PEERS, &c->owner);
        return 0;
}

/* Completes an outstanding request of a peer. Returns their number before; other CPUs may do so
 * concurrently. */
static __always_inline __u32 udp_take(struct udp_exchange *x) {
        /* Bounds concurrent responses to a peer from one socket */
        for (int i = 0; i < 4; i++) {
                __u32 open = *(volatile __u32*) &x->open;

                if (open == 0)
                        return 0;
                if (__sync_val_compare_and_swap(&x->open, open, open - 1) == open)
                        return open;
        }
        return 0;
}

/* Data is sent on an unbound socket; most of it is not parsed. */
static __attribute__((noinline)) int udp_client_transmit(struct __sk_buff *skb, struct bpf_sock *sk,
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
        if (!udp_parse(skb, false, 0, &d) || d.kind != DATAGRAM_DNS_QUERY)
                return 0;
        if (!c) {
                c = BPF_STORAGE_CREATE(sk, udp_sockets, sk);
                if (!c) {
                        element_lost(QOS_STATISTIC_LOST_UDP_SOCKETS, &owner);
                        return 0;
                }
        }
        if (c->kind != UDP_CLIENT || !owner_equal(&c->owner, &owner)) {
                c->cookie = bpf_get_socket_cookie(skb);
                c->owner = owner;
                c->queries_dns = 1;
                c->kind = UDP_CLIENT;
        }
        return 1;
}

static __attribute__((noinline)) int udp_server_transmit(struct __sk_buff *skb, struct bpf_sock *sk,
                                                         struct udp_socket *c, struct overhead *overhead) {
        struct udp_exchange *x = NULL;
        struct udp_datagram d = {};
        struct qos_unit_map *u;
        __u32 open;
        __u64 now;

        if (!skb || !sk || !c || !overhead || (c->kind != UDP_SERVER && c->kind != UDP_OTHER))
                return 0;
        u = unit_get(&c->owner);
        if (!u)
                return 0;
        overhead_begin(overhead, &c->owner, u);
        if (!udp_parse(skb, false, c->cookie, &d)) {
                statistics_count(QOS_STATISTIC_SEGMENTS_LOST);
                return 0;
        }
        now = bpf_ktime_get_ns();
        if (d.kind == DATAGRAM_QUIC)
                c->kind = UDP_OTHER;
        if (c->kind == UDP_OTHER)
                return udp_unparsed(c, u, d.length, now, true);

        window_advance(u, now);

        if (d.kind == DATAGRAM_DNS_RESPONSE) {
                udp_key(&d, true);
                x = udp_find(&d, c);
        }
        if (!x) {
                udp_key(&d, false);
                x = udp_find(&d, c);
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
                udp_mark_responded(sk, c, u);
                udp_record(c, u, now, first_at, (__u64) bytes << 32 | d.length);
                if (open == 1 && d.peer.dns)
                        bpf_map_delete_elem(&udp_peers, &d.peer);
                return 0;
        }

        if (x && x->out_at != 0) {
                if (now - x->out_at < EXCHANGE_SILENCE_NSEC)
                        udp_record_more(c, u, now, x, d.length);
                return 0;
        }

        if (c->unseen > 0 && d.kind != DATAGRAM_DNS_QUERY) {
                /* The request was in the queue before the socket was found */
                c->unseen--;
                udp_mark_responded(sk, c, u);
                udp_record(c, u, now, c->learned_at, d.length);
                if (d.kind != DATAGRAM_DNS_RESPONSE)
                        udp_note(&d, c, u, c->learned_at, now);
                return 0;
        }

        if (d.kind == DATAGRAM_DNS_RESPONSE)
                return 0; /* multicast, or a duplicate */
        if (d.kind == DATAGRAM_DNS_QUERY) {
                c->queries_dns = 1;
                return 1;
        }
        if (c->found && now - c->learned_at < UDP_WAIT_NSEC)
                return 0; /* may be a response to a request read before the attach */
        udp_note(&d, c, u, now, 0);
        return 0;
}

/* A datagram is sent. Returns true if it is a DNS query of the unit: the caller then calls udp_send_query(),
 * which is not done here for the space on the stack. */
static __always_inline bool udp_depart(struct __sk_buff *skb, struct bpf_sock *sk,
                struct overhead *overhead) {
        struct udp_socket *c = bpf_sk_storage_get(&udp_sockets, sk, 0, 0);

        return c && c->kind != UDP_CLIENT ? udp_server_transmit(skb, sk, c, overhead) :
               udp_client_transmit(skb, sk, c, overhead);
}
