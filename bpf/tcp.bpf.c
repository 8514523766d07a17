// SPDX-License-Identifier: GPL-2.0-or-later

/* The probe "requests": exchanges on TCP, of the units that answer and of those that ask.
 *
 *   arrival     cgroup_skb/ingress           at the root: a unit's own group, and a program attached to it, die with
 *                                            each restart (the group is made anew)
 *   read        tcp_rcv_space_adjust         fires for every way to take bytes out of the socket, with copied_seq
 *                                            already moved
 *   content     skb_copy_datagram_iovec      the bytes on their way to the application, in order and once: in arrivals
 *                                            they are neither. What is spliced does not pass here, and is not parsed
 *   departure   cgroup_skb/egress            sock_send_length comes after the data left, and too late to order it
 *   connection  inet_sock_set_state          listen(), accepted, closing, gone
 *
 * Every program may be missing: without one its own figures are missing, and nothing else. */

#include "books.h"
#include "feed.h"
#include "mux.h"
#include "thread.h"
#include "tls.h"
#include "udp.h"
#include "unix.h"
#include "unsealed.h"

char LICENSE[] SEC("license") = "GPL";

int bpf_dynptr_from_skb(struct __sk_buff *skb, __u64 flags, struct bpf_dynptr *ret) __ksym;

enum conn_kind {
        CONN_LISTENER = 1,
        CONN_SERVER,            /* accepted from a listener */
        CONN_CLIENT,            /* the unit asked for the connection */
        CONN_OTHER,             /* nobody's */
};

/* Socket storage is charged to the application's own option memory (net.core.optmem_max, 128 KiB since 6.9, 20 KiB
 * before): it has to stay small. */
struct conn {
        struct qos_owner owner;         /* one word; written under the lock */
        struct bpf_spin_lock lock;      /* of x, and of what the unit's gauges have: arrivals come without the socket's own lock */
        __u8 kind;                      /* enum conn_kind */
        __u8 found;                     /* enum conn_found */
        __u16 share;                    /* SHARE_ROW, SHARE_ALONE, and above them the generation of the row; under the lock */
        __u32 counted;                  /* 1: in the unit's open connections */
        __s32 in_flight;                /* so many are in the unit's gauge, and in the row's */
        __u32 retransmits;              /* total_retrans when it was last looked at */
        __u16 tries;                    /* how often the protocol was looked for in vain; under the socket's own lock */
        __u16 tcp_state;                /* the last that was seen of it, the same */
        struct exchange x;
};

/* Who reads first shows whose a connection is: */
enum conn_found {
        CONN_FOUND_LISTENER = 1,        /* nobody saw who opened the listener; read by nobody's task it is nobody's */
        CONN_FOUND_OUTER,               /* a unit was attached in the one whose it was until then */
};

/* Data that completes the handshake (deferred accept, a lost ACK) reaches the listener's ingress program and never the
 * child's: kept here for the child, which is made on the same CPU right after. */
struct handover {
        __u64 at;
        __u32 seq;
        __u32 end;
        __be16 client_port;
        __u16 _padding;
        __u32 _padding2;
};

/* Clones of a listener's entry come with the connections accepted from it. */
struct {
        __uint(type, BPF_MAP_TYPE_SK_STORAGE);
        __uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
        __type(key, int);
        __type(value, struct conn);
} conns SEC(".maps");

/* Connections whose protocol is parsed. */
struct {
        __uint(type, BPF_MAP_TYPE_SK_STORAGE);
        __uint(map_flags, BPF_F_NO_PREALLOC);
        __type(key, int);
        __type(value, struct talk);
} talks SEC(".maps");

/* … in frames (HTTP/2). */
struct {
        __uint(type, BPF_MAP_TYPE_SK_STORAGE);
        __uint(map_flags, BPF_F_NO_PREALLOC);
        __type(key, int);
        __type(value, struct h2);
} muxes SEC(".maps");

/* Connections that are sealed. */
struct seal {
        struct tls tls;
        struct unsealed_key key;        /* where its plaintext is; ssl 0: that is not known */
        /* What requests_egress leaves to library_egress, which looks at the same packet next */
        __u64 left_at;
        __u32 left_bytes;               /* 0: nothing */
        __u32 left_complete;
};

struct {
        __uint(type, BPF_MAP_TYPE_SK_STORAGE);
        __uint(map_flags, BPF_F_NO_PREALLOC);
        __type(key, int);
        __type(value, struct seal);
} seals SEC(".maps");

/* Units whose sealed connections are read by who is in no known library: for the daemon, which looks for it. One is written at
 * a time for each. */
struct {
        __uint(type, BPF_MAP_TYPE_RINGBUF);
        __uint(max_entries, 4096);
} wanted SEC(".maps");

/* What an entry of it is at first. */
struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __uint(max_entries, 1);
        __type(key, __u32);
        __type(value, struct unsealed);
} unsealed_fresh SEC(".maps");

/* Listeners alone, so that an iterator over them is short. */
struct {
        __uint(type, BPF_MAP_TYPE_SK_STORAGE);
        __uint(map_flags, BPF_F_NO_PREALLOC);
        __type(key, int);
        __type(value, struct qos_listener);
} listeners SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __uint(map_flags, BPF_F_NO_PREALLOC);
        __uint(max_entries, QOS_ADDRESSES);
        __type(key, struct qos_address);
        __type(value, struct qos_owner);
} addresses SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
        __uint(max_entries, 1);
        __type(key, __u32);
        __type(value, struct handover);
} handovers SEC(".maps");

/* ---- connections ---------------------------------------------------------------------------------------------- */

/* ---- rows ---- */

static __always_inline void sock_remote(const struct sock *sk, struct qos_address *ret) {
        volatile __u32 *words = (volatile __u32*) ret->address;

        ret->family = sk->__sk_common.skc_family;
        ret->port = bpf_ntohs(sk->__sk_common.skc_dport);
        if (ret->family == AF_INET6) {
                bpf_core_read(ret->address, sizeof(ret->address), &sk->__sk_common.skc_v6_daddr);
                if (words[0] == 0 && words[1] == 0 && words[2] == bpf_htonl(0xffff)) {
                        /* IPv4 through a socket for IPv6 */
                        words[0] = words[3];
                        words[2] = words[3] = 0;
                        ret->family = AF_INET;
                }
        } else
                words[0] = sk->__sk_common.skc_daddr;
}

/* Which row has the figures of a socket, by its address. Apart: it is asked once for each listener, and for connections
 * older than the attach. */
static __attribute__((noinline)) int sock_find_share(struct sock *sk, struct qos_unit *u, __u32 kind, __u32 slot, __u32 generation) {
        struct qos_owner owner = { .slot = slot, .generation = generation };
        struct qos_address a = {};
        __u32 row, alone = 0, found;

        if (!sk || !u)
                return 0;

        if (kind == CONN_CLIENT) {
                sock_remote(sk, &a);
                row = row_find(u, &a, QOS_ROW_PEER);
                alone = SHARE_ALONE;
        } else {
                sock_local(sk, &a);
                /* It is being closed, its port has been given back; what it had went where it was */
                if (a.port == 0)
                        return 0;
                /* Under load connections are seen before the listeners that were there at the attach are found, one after
                 * the other. Then requests_share comes and knows better than to take each for an endpoint. Of those whose
                 * listener is never found it is not known which one they came in at: they are the unit's alone */
                found = kind != CONN_SERVER || row_find_listener(u, &a);
                row = endpoint_find(u, &owner, &a, !found);
                alone = row & SHARE_ALONE;
                row &= SHARE_ROW;
        }

        GRID_BOUND(row, QOS_ROWS + 1);
        return row | alone | (u->names[row].generation & 0xff) << SHARE_GENERATION_SHIFT;
}

/* Makes a fresh connection of this owner out of storage that is new, was cloned from a listener, or belonged to a unit
 * that was detached. Of several who try, one does it and gets true. Positions in the streams are taken from the first
 * event, or set by the caller. */
static __always_inline bool conn_adopt(struct conn *c, const struct qos_owner *owner, __u32 kind) {
        struct qos_owner o = *owner;
        struct exchange x = {};
        bool fresh;

        bpf_spin_lock(&c->lock);
        fresh = c->kind != kind || !owner_equal(&c->owner, &o);
        if (fresh) {
                c->owner = o;
                c->kind = kind;
                c->counted = 0;
                c->in_flight = 0;
                c->share = 0;
                c->tries = 0;
                c->x = x;
        }
        bpf_spin_unlock(&c->lock);
        return fresh;
}

/* A connection may become another unit's at any time, or get another row (conn_move()), and what the gauges have of it goes
 * with it. What is changed of them is therefore noted under the lock, and booked in the place that it has then. */
struct place {
        struct qos_owner owner;
        __u32 share;
};

static __always_inline struct place conn_note(struct conn *c, const struct exchange_effect *effect) {
        struct place p = { .owner = c->owner, .share = c->share };

        c->in_flight += effect->in_flight;
        return p;
}

static __attribute__((noinline)) struct qos_unit* unit_get_other(const struct qos_owner *owner) {
        return unit_get(owner);
}

/* u: whose it was when the program began. Makes p->share what it is in the unit's map now. */
static __always_inline struct qos_unit* place_get(struct qos_unit *u, struct place *p) {
        if (u->generation != p->owner.generation) {
                u = unit_get_other(&p->owner);
                if (!u)
                        return NULL;
        }
        p->share = share_now(u, p->share);
        return u;
}

/* The same without other business under the lock. */
static __attribute__((noinline)) int conn_apply(struct conn *c, struct qos_unit *u, const struct exchange_effect *effect, __u64 now) {
        struct place p;

        if (!c || !u || !effect)
                return 0;
        bpf_spin_lock(&c->lock);
        p = conn_note(c, effect);
        bpf_spin_unlock(&c->lock);

        u = place_get(u, &p);
        if (!u)
                return 0;
        window_enter(u, now);
        share_apply(u, p.share, effect);
        return 0;
}

static __always_inline void conn_count(struct conn *c, struct qos_unit *u, bool open) {
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
        window_enter(u, bpf_ktime_get_ns());
        __sync_fetch_and_add(&u->open, open ? 1 : -1);
}

static __attribute__((noinline)) int gauges_add(const struct qos_owner *owner, __u32 share, __s32 in_flight, __s32 open) {
        struct exchange_effect effect = { .in_flight = in_flight };
        struct qos_unit *u;

        if (!owner)
                return 0;
        u = unit_get(owner);
        if (!u)
                return 0;
        window_enter(u, bpf_ktime_get_ns());
        share_apply(u, share_now(u, share), &effect);
        __sync_fetch_and_add(&u->open, open);
        return 0;
}

/* Makes a connection or a listener that of another unit; of nobody where to is {}. Of the same, it gets the row that it should
 * have by now. */
static __attribute__((noinline)) int conn_move(struct sock *sk, struct conn *c, const struct qos_owner *to) {
        struct qos_owner from, owner;
        __u32 share = 0, before;
        __s32 in_flight, open;
        struct qos_unit *u;

        if (!sk || !c || !to)
                return 0;
        owner = *to;
        u = unit_get(&owner);
        if (u)
                share = sock_find_share(sk, u, c->kind, owner.slot, owner.generation);

        bpf_spin_lock(&c->lock);
        from = c->owner;
        before = c->share;
        c->owner = owner;
        c->share = share;
        in_flight = c->in_flight;
        open = c->counted;
        if (owner.generation == 0) {
                c->kind = CONN_OTHER;
                c->in_flight = 0;
                c->counted = 0;
        }
        bpf_spin_unlock(&c->lock);

        if (in_flight != 0 || open != 0) {
                gauges_add(&owner, share, in_flight, open);
                gauges_add(&from, before, -in_flight, -open);
        }
        return 0;
}

/* Makes the entry that came from the listener that of the connection, whatever is seen of it first: the end of the
 * handshake, or a segment on another CPU that overtakes it, or all that there is where inet_sock_set_state is not watched.
 * begin: of the stream. What lies between it and rcv_nxt came with the handshake (fast open), or while we were at it. */
static __attribute__((noinline)) int conn_accept(struct conn *c, struct qos_unit *u, struct tcp_sock *tp, __u32 begin,
                                                 __u64 now) {
        struct exchange_effect effect = {};
        __u32 end, snd_nxt, retransmits;
        struct place p;
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
                /* The application reads from another socket, which gathers what several connections bring: nothing tells when */
                if (mptcp)
                        c->x.flags |= EXCHANGE_DONE;
                if (end != begin)
                        exchange_arrive(&c->x, now, begin, end, begin, end, &effect);
        }
        p = conn_note(c, &effect);
        bpf_spin_unlock(&c->lock);

        u = effect.bytes > 0 ? place_get(u, &p) : NULL;
        if (u) {
                window_enter(u, now);
                share_sum(u, p.share, QOS_SUM_BYTES_IN, QOS_ROW_SUM_BYTES_IN, effect.bytes);
                share_apply(u, p.share, &effect);
        }
        return 0;
}

/* A connection of a listener that was found and not seen being opened (the service manager opens them for others, and one
 * socket may be passed to several services), or one that was an outer unit's before another was attached in it, and is in no
 * table of open files: the unit that reads first has it. Returns that, NULL: none. */
static __always_inline struct qos_unit* conn_claim(struct sock *sk, struct conn *c, struct qos_unit *u) {
        struct task_struct *task = bpf_get_current_task_btf();
        struct qos_owner owner = {}, none = {};
        struct qos_unit *to = NULL;
        bool outer = c->found == CONN_FOUND_OUTER;

        c->found = 0;
        if (task_owner(&owner)) {
                if (owner.generation == u->generation)
                        return u;
                to = unit_get(&owner);
        } else if (task->flags & PF_KTHREAD)
                return u; /* on behalf of whoever gave it the socket */
        if (!to && outer)
                return u;

        conn_move(sk, c, to ? &owner : &none);
        return to;
}

/* Only accepted sockets have a backlog limit: it is the listener's, copied with the rest of it. One that asked for the
 * connection never had listen() called on it. */
static __always_inline __u32 sock_kind(const struct sock *sk) {
        return sk->sk_max_ack_backlog > 0 ? CONN_SERVER : CONN_CLIENT;
}

struct segment {
        __u32 seq;
        __u32 offset;           /* of the payload, from the IP header on */
        __u32 len;              /* of the payload */
        __be16 source;
        bool syn;
};

struct tcp_header {
        __be16 source;
        __be16 dest;
        __be32 seq;
        __be32 ack_seq;
        __u8 offset;            /* upper four bits: length in words */
        __u8 flags;
};

#define TCP_FLAG_SYN 0x02

/* By the packet's protocol, not the socket's family: a v6 socket carries v4 packets. */
static __always_inline bool segment_parse(struct __sk_buff *skb, struct segment *ret) {
        struct tcp_header header;
        __u32 offset, length;
        __u8 next;

        if (skb->protocol == bpf_htons(ETH_P_IP)) {
                __u8 first;

                if (bpf_skb_load_bytes(skb, 0, &first, 1) < 0 || bpf_skb_load_bytes(skb, 9, &next, 1) < 0)
                        return false;
                offset = (first & 0xf) * 4;

        } else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
                if (bpf_skb_load_bytes(skb, 6, &next, 1) < 0)
                        return false;
                offset = 40;

                /* Extension headers: hop-by-hop, routing, destination options. More than four of them in front of TCP
                 * are no traffic that a server answers */
                for (int i = 0; i < 4 && (next == 0 || next == 43 || next == 60); i++) {
                        __u8 extension[2];

                        if (bpf_skb_load_bytes(skb, offset, extension, 2) < 0)
                                return false;
                        next = extension[0];
                        offset += (extension[1] + 1) * 8;
                }
        } else
                return false;

        if (next != IPPROTO_TCP)
                return false;
        if (bpf_skb_load_bytes(skb, offset, &header, sizeof(header)) < 0)
                return false;

        length = offset + (header.offset >> 4) * 4;
        ret->seq = bpf_ntohl(header.seq);
        ret->offset = length;
        ret->len = skb->len > length ? skb->len - length : 0;
        ret->source = header.source;
        ret->syn = header.flags & TCP_FLAG_SYN;
        return true;
}

/* The same for the usual case, where the headers lie in the packet's linear part: no helper call. */
static __always_inline bool segment_read(struct __sk_buff *skb, struct segment *ret) {
        void *data = (void*) (long) skb->data, *data_end = (void*) (long) skb->data_end;
        struct tcp_header *header;
        __u32 offset, length;

        if (skb->protocol == bpf_htons(ETH_P_IP)) {
                __u8 *ip = data;

                if (data + 20 > data_end)
                        return segment_parse(skb, ret);
                if (ip[9] != IPPROTO_TCP)
                        return false;
                offset = (ip[0] & 0xf) * 4;
        } else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
                __u8 *ip = data;

                if (data + 40 > data_end || ip[6] != IPPROTO_TCP)
                        return segment_parse(skb, ret);
                offset = 40;
        } else
                return false;

        header = data + offset;
        if ((void*) (header + 1) > data_end)
                return segment_parse(skb, ret);

        length = offset + (header->offset >> 4) * 4;
        ret->seq = bpf_ntohl(header->seq);
        ret->offset = length;
        ret->len = skb->len > length ? skb->len - length : 0;
        ret->source = header->source;
        ret->syn = header->flags & TCP_FLAG_SYN;
        return true;
}

/* All of a segment that is no longer than a farewell. */
static __attribute__((noinline)) __u64 segment_short(struct __sk_buff *skb, __u32 offset, __u32 length) {
        __u64 bytes = 0;

        GRID_BOUND(length, EXCHANGE_FAREWELL_MAX + 1);
        if (skb && length > 0)
                (void) bpf_skb_load_bytes(skb, offset, &bytes, length);
        return bytes;
}

/* ---- the unit asks -------------------------------------------------------------------------------------------- */

/* connect() was called on the socket, perhaps not for the first time. */
static __always_inline void client_begins(struct sock *sk, struct conn *c, const struct qos_owner *owner) {
        struct exchange x = {};

        bpf_spin_lock(&c->lock);
        c->x = x;
        c->x.flags = EXCHANGE_FRESH;
        c->tries = 0;
        bpf_spin_unlock(&c->lock);
        conn_move(sk, c, owner);
}

/* The first of what is asked leaves, and not more of it */
#define CLIENT_ASKS (1ULL << 32)
/* … and there is an answer that was not read */
#define CLIENT_UNREAD (1ULL << 33)

enum client_says {
        CLIENT_SAYS_NOTHING,
        CLIENT_SAYS_QUESTION,
        CLIENT_SAYS_AGAIN,      /* … and the peer has acknowledged all before it */
        CLIENT_SAYS_FAREWELL,   /* … perhaps (EXCHANGE_FAREWELL) */
        CLIENT_SAYS_LAST_FAREWELL, /* … also of what was asked before */
};

/* Whole frames of HTTP/2 that ask for nothing: what keeps a connection going comes in one, or in two. */
#define CLIENT_FRAMES_MAX 4
static __attribute__((noinline)) int client_says_frames(struct __sk_buff *skb, __u32 offset, __u32 length) {
        if (!skb)
                return 0;
        for (int i = 0; i < CLIENT_FRAMES_MAX && length >= H2_HEADER_SIZE; i++) {
                __u64 header = 0;
                __u32 type, size;

                if (bpf_skb_load_bytes(skb, offset, &header, sizeof(header)) < 0)
                        return 0;
                type = header >> 24 & 0xff;
                size = H2_HEADER_SIZE + ((header & 0xff) << 16 | (header >> 8 & 0xff) << 8 | (header >> 16 & 0xff));
                if (size > length || (type != H2_RST_STREAM && type != H2_SETTINGS && type != H2_PING && type != H2_GOAWAY && type != H2_WINDOW_UPDATE))
                        return 0;
                offset += size;
                length -= size;
        }
        return length == 0;
}

/* What a segment is; acknowledged: all before it; muxed: in HTTP/2. */
static __attribute__((noinline)) __u32 client_says(struct __sk_buff *skb, __u32 offset, __u32 length, bool acknowledged, bool muxed) {
        __u64 bytes = 0;

        if (!skb || (muxed && client_says_frames(skb, offset, length)))
                return CLIENT_SAYS_NOTHING;
        if (length <= EXCHANGE_FAREWELL_MAX)
                bytes = segment_short(skb, offset, length);
        else if (exchange_may_be_feedback(length))
                (void) bpf_skb_load_bytes(skb, offset, &bytes, EXCHANGE_FEEDBACK_SIZE);
        else if (length >= TLS_HEADER_SIZE && length <= TLS_FAREWELL_MAX)
                (void) bpf_skb_load_bytes(skb, offset, &bytes, TLS_HEADER_SIZE);
        if (exchange_is_feedback(bytes, length) || tls_is_farewell(bytes, length))
                return CLIENT_SAYS_NOTHING;
        if (exchange_is_farewell(bytes, length))
                return exchange_is_last_farewell(bytes, length) ? CLIENT_SAYS_LAST_FAREWELL : CLIENT_SAYS_FAREWELL;
        return acknowledged ? CLIENT_SAYS_AGAIN : CLIENT_SAYS_QUESTION;
}

/* All of it apart: servers that ask nobody do not pay for it. tcp: where the segment ends, and snd_nxt. Returns how much leaves. */
static __attribute__((noinline)) __u64 client_departs(struct conn *c, struct qos_unit *u, __u64 tcp, __u32 says, __u64 now) {
        struct exchange_effect effect = {};
        __u64 begins = 0;
        struct place p;
        __u32 bytes;

        if (!c || !u)
                return 0;

        bpf_spin_lock(&c->lock);
        bytes = exchange_leave(&c->x, tcp >> 32, tcp);
        if (bytes > 0 && says != CLIENT_SAYS_NOTHING) {
                c->x.flags &= ~EXCHANGE_FAREWELL;
                if (says == CLIENT_SAYS_LAST_FAREWELL || (says == CLIENT_SAYS_FAREWELL && c->x.open_at == 0))
                        c->x.flags |= EXCHANGE_FAREWELL;
                if (c->x.state != EXCHANGE_ASKED)
                        begins = CLIENT_ASKS;
                if (says == CLIENT_SAYS_AGAIN)
                        exchange_ask_again(&c->x, now, &effect);
                else
                        exchange_ask(&c->x, now, &effect);
        }
        p = conn_note(c, &effect);
        bpf_spin_unlock(&c->lock);
        u = bytes > 0 ? place_get(u, &p) : NULL;
        if (!u)
                return 0;

        window_enter(u, now);
        share_sum(u, p.share, QOS_SUM_BYTES_OUT, QOS_ROW_SUM_BYTES_OUT, bytes);
        share_apply(u, p.share, &effect);
        return bytes | begins;
}

static __attribute__((noinline)) int client_arrives(struct conn *c, struct qos_unit *u, __u64 segment, __u64 tcp, __u64 now) {
        struct exchange_effect effect = {};
        struct booking book = { .now = now };
        __u32 seq = segment >> 32;
        struct place p;

        if (!c || !u)
                return 0;

        bpf_spin_lock(&c->lock);
        book.n = exchange_hear(&c->x, now, seq + (__u32) segment, tcp >> 32, tcp, &effect);
        book.first_at = c->x.first_at;
        p = conn_note(c, &effect);
        bpf_spin_unlock(&c->lock);
        u = effect.bytes > 0 ? place_get(u, &p) : NULL;
        if (!u)
                return 0;

        window_enter(u, now);
        share_sum(u, p.share, QOS_SUM_BYTES_IN, QOS_ROW_SUM_BYTES_IN, effect.bytes);
        book.share = p.share;
        book.before = effect.grown_from;
        if (effect.begun)
                row_book(u, &book);
        else if (effect.grown)
                row_book_more(u, &book);
        share_apply(u, p.share, &effect);
        return effect.begun && (p.share & SHARE_ROW) == QOS_ROW_PEERS_REST;
}

/* The peer has no row, and has just answered: perhaps it has one by now, or earns one. */
static __attribute__((noinline)) int client_seeks_row(struct sock *sk, struct conn *c, struct qos_unit *u, __u64 now) {
        struct qos_address a = {};
        __u64 row;

        if (!sk || !c || !u)
                return 0;
        sock_remote(sk, &a);
        row = row_find(u, &a, QOS_ROW_PEER);
        if (row == QOS_ROW_PEERS_REST)
                row = peer_challenge(u, &a, exchange_between(c->x.first_at, now), now);
        if (row == 0)
                return 0;

        GRID_BOUND(row, QOS_ROWS + 1);
        row |= SHARE_ALONE | (u->names[row].generation & 0xff) << SHARE_GENERATION_SHIFT;
        bpf_spin_lock(&c->lock);
        if (c->in_flight == 0)
                c->share = row;
        bpf_spin_unlock(&c->lock);
        return 0;
}

/* What the end of a connection with a question open, or of an attempt to connect, says about the peer. */
static __attribute__((noinline)) int client_ends(struct conn *c, struct qos_unit *u, __u32 error, __u32 old_state, __u32 new_state) {
        struct exchange_effect effect = {};
        struct place p;
        bool unread;
        __u32 cell;

        if (!c || !u)
                return 0;

        bpf_spin_lock(&c->lock);
        unread = new_state == TCP_CLOSE_WAIT && c->x.flags & EXCHANGE_PIPED && c->x.n_marks > 0;
        if (!unread) {
                exchange_ask_none(&c->x, &effect);
                exchange_end(&c->x, 1, c->x.state == EXCHANGE_ASKED, 0, &effect);
        }
        p = conn_note(c, &effect);
        bpf_spin_unlock(&c->lock);
        /* What came before the end is answered when it is read, see client_has_read() */
        if (unread)
                return 0;
        if (!effect.unanswered && effect.in_flight == 0 && old_state != TCP_SYN_SENT)
                return 0;

        if (error == ETIMEDOUT)
                cell = QOS_ROW_ERRORS_TIMEOUT;
        else if (error != 0 || new_state == TCP_CLOSE_WAIT)
                cell = QOS_ROW_ERRORS_RESET;
        else
                cell = QOS_ROW_CLIENT_ABORTS; /* the unit gave up */

        u = place_get(u, &p);
        if (!u)
                return 0;
        window_enter(u, bpf_ktime_get_ns());
        if (p.share & SHARE_ROW && (effect.unanswered || old_state == TCP_SYN_SENT))
                row_count(row_get(u, p.share & SHARE_ROW), cell, 1);
        share_apply(u, p.share, &effect);
        return 0;
}

/* ---- arrival -------------------------------------------------------------------------------------------------- */

static __always_inline void listener_account(struct sock *sk, struct qos_listener *l) {
        struct qos_unit *u;
        __s32 drops, old;

        /* Two who look at once: one of them counts, or the next to come */
        old = *(volatile __s32*) &l->drops;
        drops = sk->sk_drops.counter;
        if (drops - old <= 0 || __sync_val_compare_and_swap(&l->drops, old, drops) != old)
                return;

        u = unit_get(&l->owner);
        if (!u)
                return;
        window_enter(u, bpf_ktime_get_ns());
        window_count(u, QOS_CELL_LISTEN_DROPS, drops - old);
}

static __always_inline void listener_arrive(struct bpf_sock *sk, const struct segment *segment) {
        struct qos_listener *l;
        struct tcp_sock *tp;

        if (segment->syn) {
                /* Drops are noticed with the next attempt; the iterator sees what came after the last one */
                l = bpf_sk_storage_get(&listeners, sk, 0, 0);
                tp = l ? bpf_skc_to_tcp_sock(sk) : NULL;
                if (tp)
                        listener_account((struct sock*) tp, l);
        }

        if (segment->len > 0) {
                __u32 zero = 0;
                struct handover *h = bpf_map_lookup_elem(&handovers, &zero);

                if (!h)
                        return;
                h->at = bpf_ktime_get_ns();
                h->seq = segment->seq + segment->syn;
                h->end = h->seq + segment->len;
                h->client_port = segment->source;
        }
}

SEC("cgroup_skb/ingress")
int requests_ingress(struct __sk_buff *skb) {
        struct exchange_effect effect = {};
        struct segment segment;
        struct qos_unit *u;
        struct tcp_sock *tp;
        struct bpf_sock *sk;
        struct conn *c;
        __u32 rcv_nxt, window_end;
        __u64 now, bytes = 0;
        struct place p;
        bool idle;

        sk = skb->sk;
        if (!sk)
                return 1;
        sk = bpf_sk_fullsock(sk);
        if (!sk)
                return 1;
        c = bpf_sk_storage_get(&conns, sk, 0, 0);
        if (!c && sk->protocol == IPPROTO_UDP)
                udp_arrive(skb, sk);
        if (!c || c->kind == CONN_OTHER)
                return 1;
        if (!segment_read(skb, &segment)) {
                statistics_count(QOS_STATISTIC_SEGMENTS_LOST);
                return 1;
        }

        if (sk->state == TCP_LISTEN) {
                listener_arrive(sk, &segment);
                return 1;
        }
        if (segment.len == 0)
                return 1;

        u = unit_get(&c->owner);
        if (!u)
                return 1;
        tp = bpf_skc_to_tcp_sock(sk);
        if (!tp)
                return 1;
        now = bpf_ktime_get_ns();
        if (c->kind == CONN_LISTENER)
                conn_accept(c, u, tp, tp->copied_seq, now);

        rcv_nxt = tp->rcv_nxt;
        window_end = tp->rcv_wup + tp->rcv_wnd;
        if (c->kind == CONN_CLIENT) {
                if (client_arrives(c, u, (__u64) segment.seq << 32 | segment.len, (__u64) rcv_nxt << 32 | window_end, now))
                        client_seeks_row((struct sock*) tp, c, u, now);
                return 1;
        }

        if (segment.len <= EXCHANGE_FAREWELL_MAX)
                bytes = segment_short(skb, segment.offset, segment.len);
        else if (exchange_may_be_feedback(segment.len))
                (void) bpf_skb_load_bytes(skb, segment.offset, &bytes, EXCHANGE_FEEDBACK_SIZE);

        bpf_spin_lock(&c->lock);
        idle = c->x.open_at == 0;
        if (exchange_is_feedback(bytes, segment.len) && exchange_is_idle(&c->x))
                exchange_arrive_unasked(&c->x, now, segment.seq, segment.seq + segment.len, rcv_nxt, window_end, &effect);
        else
                exchange_arrive(&c->x, now, segment.seq, segment.seq + segment.len, rcv_nxt, window_end, &effect);
        if (idle ? exchange_is_farewell(bytes, effect.bytes) : exchange_is_last_farewell(bytes, effect.bytes))
                c->x.flags |= EXCHANGE_FAREWELL;
        p = conn_note(c, &effect);
        bpf_spin_unlock(&c->lock);

        u = effect.bytes > 0 ? place_get(u, &p) : NULL;
        if (u) {
                window_enter(u, now);
                share_sum(u, p.share, QOS_SUM_BYTES_IN, QOS_ROW_SUM_BYTES_IN, effect.bytes);
                share_apply(u, p.share, &effect);
        }
        return 1;
}

/* ---- content -------------------------------------------------------------------------------------------------- */

struct answer_feed {
        struct feed f;
        struct __sk_buff *skb;
        __u32 offset;           /* of the piece in the packet */
};

static long answer_step(__u64 i, void *data) {
        struct answer_feed *a = data;
        struct feed *f = &a->f;
        __u32 n;

        if (!feed_skip(f, &f->talk->out))
                return 1;
        n = feed_move(f, &f->talk->out);
        GRID_BOUND(n, WINDOW_SIZE + 1);
        if (n > 0 && bpf_skb_load_bytes(a->skb, a->offset + f->window_begin, f->talk->window.bytes, n) < 0)
                f->piece.lost = 1;
        else
                f->at += talk_answer_bytes(f->talk, f->at - f->window_begin, f->window_end - f->window_begin, &f->piece);
        return f->piece.lost || f->piece.tunnel;
}

struct question_feed {
        struct feed f;
        struct bpf_dynptr *data;
        __u32 offset;           /* of the piece in the buffer */
        __u32 position;         /* of the piece in the stream */
        struct qos_owner owner;
};

static long question_step(__u64 i, void *data) {
        struct question_feed *q = data;
        struct feed *f = &q->f;
        __u32 n;

        if (!feed_skip(f, &f->talk->in))
                return 1;
        n = feed_move(f, &f->talk->in);
        GRID_BOUND(n, WINDOW_SIZE + 1);
        if (n > 0 && bpf_dynptr_read(f->talk->window.bytes, n, q->data, q->offset + f->window_begin, 0) < 0)
                f->piece.lost = 1;
        else
                f->at += talk_question_bytes(f->talk, feed_window(f), &f->talk->times, q->position + f->at, &f->piece);
        if (f->piece.named) {
                f->piece.named = 0;
                question_look_up(f->talk, &q->owner);
        }
        return f->piece.lost != 0;
}

/* What a static function returns that always returns the same is left out by the compiler, and the verifier refuses what is in
 * its place if that happens to be a pointer to the stack. */
static __always_inline int zero(void) {
        int r = 0;

        __asm__ volatile("" : "+r"(r));
        return r;
}

struct seal_feed {
        struct tls *tls;
        struct bpf_dynptr *data;
        struct __sk_buff *skb;
        __u32 offset;           /* of the piece */
        __u32 at;               /* the next byte … */
        __u32 end;              /* … of this many */
        __u32 seen;             /* TLS_STEP_APPLICATION, TLS_STEP_LOST */
};

static long seal_step_in(__u64 i, void *data) {
        struct seal_feed *f = data;
        __u32 there = f->end - f->at, n, r;
        __u64 bytes = 0;

        if (f->at >= f->end)
                return 1;
        if (f->tls->in.left == 0) {
                n = there < sizeof(bytes) ? there : sizeof(bytes);
                GRID_BOUND(n, sizeof(bytes) + 1);
                if (n > 0 && bpf_dynptr_read(&bytes, n, f->data, f->offset + f->at, 0) < 0) {
                        f->seen |= TLS_STEP_LOST;
                        return 1;
                }
        }
        r = tls_step(f->tls, 0, bytes, there);
        f->at += TLS_STEP_TAKEN(r);
        f->seen |= r & (TLS_STEP_APPLICATION | TLS_STEP_LOST);
        return (f->seen & TLS_STEP_LOST) != 0;
}

static long seal_step_out(__u64 i, void *data) {
        struct seal_feed *f = data;
        __u32 there = f->end - f->at, n, r;
        __u64 bytes = 0;

        if (f->at >= f->end)
                return 1;
        if (f->tls->out.left == 0) {
                n = there < sizeof(bytes) ? there : sizeof(bytes);
                GRID_BOUND(n, sizeof(bytes) + 1);
                if (n > 0 && bpf_skb_load_bytes(f->skb, f->offset + f->at, &bytes, n) < 0) {
                        f->seen |= TLS_STEP_LOST;
                        return 1;
                }
        }
        r = tls_step(f->tls, 1, bytes, there);
        f->at += TLS_STEP_TAKEN(r);
        f->seen |= r & (TLS_STEP_APPLICATION | TLS_STEP_LOST);
        return (f->seen & TLS_STEP_LOST) != 0;
}

/* What a connection turns out to be: */
#define CONTENT_SEALED 1
#define CONTENT_MUXED 2

/* What is known of the plaintext of a connection is nobody's any more. */
static __attribute__((noinline)) int unsealed_forget(struct sock *sk, struct seal *s) {
        struct unsealed *o;

        if (!sk || !s || s->key.ssl == 0)
                return 0;
        o = bpf_map_lookup_elem(&unsealed, &s->key);
        if (o && o->sock == (__u64) (long) sk) {
                bpf_map_delete_elem(&unsealed, &s->key);
                unsealed_mux_drop(&s->key);
        }
        s->key.ssl = 0;
        return 0;
}

/* The connection is sealed. Returns CONTENT_SEALED: its records are to be followed from here on. */
static __attribute__((noinline)) int content_seal(struct sock *sk, struct conn *c, __u32 copied, __u32 type) {
        const struct tls_side fresh = {};
        struct seal *s;

        if (!sk || !c)
                return 0;
        s = bpf_sk_storage_get(&seals, sk, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
        if (!s) {
                statistics_count(QOS_STATISTIC_SOCKETS_LOST);
                c->tries = TRIES_MAX;
                return 0;
        }
        /* Perhaps it was known before, to a unit that was detached: what is spoken and that the handshake is over is as it was */
        unsealed_forget(sk, s);
        s->left_bytes = 0;
        s->tls.in = s->tls.out = fresh;
        s->tls.asks = s->tls.out_lost = s->tls.tries = 0;
        s->tls.in_pos = copied;
        if (type == TLS_APPLICATION)
                s->tls.phase = TLS_ESTABLISHED; /* it is older than the attach */

        bpf_spin_lock(&c->lock);
        if (c->x.state == EXCHANGE_ASKED)
                c->x.state = EXCHANGE_IDLE;
        c->x.flags |= EXCHANGE_SEALED;
        bpf_spin_unlock(&c->lock);
        return CONTENT_SEALED;
}

/* A piece of what the client says on a sealed connection, as content_parse(). */
static __attribute__((noinline)) int content_unseal(struct sk_buff *skb, struct conn *c, __u32 copied, __u64 piece) {
        __u32 offset = piece >> 32, len = piece;
        struct seal_feed f = {};
        struct bpf_dynptr data;
        struct seal *s;
        struct sock *sk;

        if (!skb || !c)
                return 0;
        sk = skb->sk;
        if (!sk)
                return 0;
        s = bpf_sk_storage_get(&seals, sk, 0, 0);
        if (!s)
                return 0;
        f.tls = &s->tls;
        if (bpf_dynptr_from_skb((struct __sk_buff*) skb, 0, &data) < 0)
                return 0;

        f.data = &data;
        f.offset = offset;
        f.end = len;
        if ((__s32) (f.tls->in_pos - copied) > 0)
                f.at = f.tls->in_pos - copied; /* looked at before (MSG_PEEK) */
        if ((__s32) (f.tls->in_pos - copied) < 0)
                f.seen = TLS_STEP_LOST; /* something was taken out another way */
        else if (f.at < f.end) {
                bpf_loop(PIECE_MAX, seal_step_in, &f, 0);
                f.tls->in_pos = copied + f.at;
        }

        if (f.seen & TLS_STEP_APPLICATION)
                f.tls->asks = 1;
        if (f.seen & TLS_STEP_LOST) {
                bpf_spin_lock(&c->lock);
                c->x.flags &= ~EXCHANGE_SEALED;
                c->tries = TRIES_MAX;
                bpf_spin_unlock(&c->lock);
        }
        return 0;
}

/* ---- sealed connections whose plaintext is seen ---- */

/* Whether what is known of the plaintext is this connection's, and all of it. */
static __always_inline bool unsealed_holds(const struct unsealed *o, const struct sock *sk, struct conn *c) {
        return o->sock == (__u64) (long) sk && o->generation == c->owner.generation && !o->lost && watch_get(&c->owner);
}

/* From here on the connection is counted by its records again. False: another program is at it, and it is not. */
static __attribute__((noinline)) int unsealed_quit(struct conn *c, struct qos_unit *u, struct seal *s, struct unsealed *o) {
        struct exchange_effect effect = {};

        if (!c || !u || !s || !o || !unsealed_enter(o))
                return 0;

        if (o->talk.protocol == PROTOCOL_HTTP2) {
                struct unsealed_mux *m = bpf_map_lookup_elem(&unsealed_muxes, &s->key);

                /* Not what only looked like it */
                if (!o->late || (m && m->h2.settled))
                        s->tls.http2 = 1;
                /* What was open is not followed any further; nobody wants to know where the probe has been taken away */
                effect.overlap = unsealed_mux_drop(&s->key) > 0 && (o->lost || watch_get(&c->owner));
                o->talk.protocol = PROTOCOL_PLAIN;
        }
        s->tls.tries = o->talk.flags & TALK_UNDERSTOOD && o->lost ? TRIES_MAX : o->tries + o->lost;
        bpf_spin_lock(&c->lock);
        if (o->talk.protocol != PROTOCOL_PLAIN) {
                talk_give_up(&o->talk, &c->x, &effect);
                if (!o->lost)
                        effect.overlap = 0; /* nobody wants to know any more */
        }
        bpf_spin_unlock(&c->lock);
        bpf_map_delete_elem(&unsealed, &s->key);
        s->key.ssl = 0;

        conn_apply(c, u, &effect, bpf_ktime_get_ns());
        return zero() + 1;
}

/* What is known of the plaintext; NULL: the connection is counted by its records. */
static __attribute__((noinline)) struct unsealed* unsealed_get(struct sock *sk, struct conn *c, struct qos_unit *u, struct seal *s) {
        struct unsealed *o;

        if (!sk || !c || !u || !s || s->key.ssl == 0)
                return NULL;
        o = bpf_map_lookup_elem(&unsealed, &s->key);
        if (!o || o->sock != (__u64) (long) sk) {
                s->key.ssl = 0; /* another connection has that object now */
                return NULL;
        }
        if (!unsealed_holds(o, sk, c)) {
                unsealed_quit(c, u, s, o);
                return NULL;
        }
        return o;
}

/* Bytes are copied out of a sealed connection: whoever is in a call of the library reads them for that. */
static __attribute__((noinline)) int unsealed_bind(struct sock *sk, struct conn *c, struct qos_unit *u) {
        struct qos_owner owner;
        struct library_call *call;
        struct unsealed *o;
        struct qos_watch *w;
        struct seal *s;
        __u32 zero = 0;
        void *fresh;

        if (!sk || !c || !u)
                return 0;
        s = bpf_sk_storage_get(&seals, sk, 0, 0);
        if (!s || s->tls.tries >= TRIES_MAX)
                return 0;
        /* After a reset what has come is read still, and nobody would come to take away what is known of the connection */
        if (sk->__sk_common.skc_state == TCP_CLOSE)
                return 0;
        owner = owner_read(&c->owner);

        call = bpf_task_storage_get(&library_calls, bpf_get_current_task_btf(), 0, 0);
        if (!call || call->key.ssl == 0) {
                w = s->key.ssl == 0 ? watch_get(&owner) : NULL;
                if (w && __sync_val_compare_and_swap(&w->wanted, 0, 1) == 0 &&
                    bpf_ringbuf_output(&wanted, &owner, sizeof(owner), 0) < 0)
                        w->wanted = 0;
                return 0;
        }

        o = s->key.ssl != 0 ? bpf_map_lookup_elem(&unsealed, &s->key) : NULL;
        if (o && o->sock == (__u64) (long) sk) {
                if (unsealed_key_equal(&s->key, &call->key) && unsealed_holds(o, sk, c)) {
                        /* A record is read in two parts by some: the second one takes nothing back */
                        o->begins |= c->x.state != EXCHANGE_ASKED;
                        return 0;
                }
                if (!unsealed_quit(c, u, s, o))
                        return 0;
        }

        /* Another connection had the object, and has not ended yet */
        unsealed_mux_drop(&call->key);
        fresh = bpf_map_lookup_elem(&unsealed_fresh, &zero);
        if (!fresh || bpf_map_update_elem(&unsealed, &call->key, fresh, BPF_ANY) < 0) {
                statistics_count(QOS_STATISTIC_UNSEALED_LOST);
                window_count(u, QOS_CELL_DROPS, 1);
                return 0;
        }
        o = bpf_map_lookup_elem(&unsealed, &call->key);
        if (!o)
                return 0;
        o->share = c->share;
        o->sock = (__u64) (long) sk;
        o->generation = owner.generation;
        o->tries = s->tls.tries;
        o->begins = c->x.state != EXCHANGE_ASKED;
        o->late = s->tls.phase == TLS_ESTABLISHED;
        o->key = call->key;
        s->key = call->key;
        return 0;
}

/* Of a connection in frames: what there is of questions is known when it comes out of the library, and what has not been read may be
 * one. */
static __always_inline void unsealed_settle(struct exchange *x, struct exchange_effect *effect) {
        x->state = EXCHANGE_IDLE;
        if (x->n_marks > 0 && !(x->flags & EXCHANGE_DONE))
                exchange_open(x, x->mark_at[0], effect);
        else
                exchange_shut(x, effect);
}

/* That was done, and the library need not subtract any longer what was not known to be frames when it was read. */
static __attribute__((noinline)) int unsealed_mux_settle(struct unsealed *o) {
        if (!o || !o->asked)
                return 0;
        o->asked = 0;
        return unsealed_mux_count(bpf_map_lookup_elem(&unsealed_muxes, &o->key), 1);
}

/* Sealed bytes up to a position were read. where: that, and what has not left of what was written. */
static __attribute__((noinline)) int unsealed_reads(struct conn *c, struct qos_unit *u, struct tls *t, struct unsealed *o,
                                                    __u64 where) {
        struct exchange_effect effect = {};
        __u64 now = bpf_ktime_get_ns(), first_at, last_at;
        __u32 copied = where >> 32, unsent = where;
        bool alone, muxed;

        if (!c || !u || !t || !o)
                return 0;
        if (exchange_distance(copied, t->in_pos) > 0)
                o->lost = 1; /* something was taken out another way */
        alone = unsealed_enter(o);
        muxed = o->talk.protocol == PROTOCOL_HTTP2;
        o->share = c->share;

        bpf_spin_lock(&c->lock);
        exchange_take(&c->x, copied, &first_at, &last_at);
        if (t->asks && !(c->x.flags & EXCHANGE_DONE)) {
                if (!o->unread)
                        o->came_first_at = first_at;
                o->came_last_at = last_at;
                o->unread = 1;
        }
        if (muxed)
                unsealed_settle(&c->x, &effect);
        else if (t->asks && !(c->x.flags & EXCHANGE_DONE))
                exchange_open(&c->x, c->x.open_at ?: first_at ?: now, &effect);
        else if (!t->asks && alone && !o->unread)
                talk_settle(&o->talk, &c->x, now, unsent == 0, &effect);
        if (!muxed)
                o->asked = c->x.open_at != 0;
        bpf_spin_unlock(&c->lock);
        t->asks = 0;
        if (alone)
                unsealed_leave(o);

        if (effect.in_flight != 0)
                conn_apply(c, u, &effect, now);
        if (muxed)
                unsealed_mux_settle(o);
        return zero();
}

/* The connection's questions and answers are in frames. Returns CONTENT_MUXED, unless there is no room for it. */
static __attribute__((noinline)) int content_mux_begin(struct sock *sk, struct conn *c, __u32 copied, __u32 late) {
        struct h2 *h;

        if (!sk || !c)
                return 0;
        h = bpf_sk_storage_get(&muxes, sk, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
        if (!h) {
                statistics_count(QOS_STATISTIC_SOCKETS_LOST);
                c->tries = TRIES_MAX;
                return 0;
        }
        h2_begin(h, copied, late);
        h2_clear(h);

        bpf_spin_lock(&c->lock);
        c->x.flags |= EXCHANGE_MUXED;
        bpf_spin_unlock(&c->lock);
        return CONTENT_MUXED;
}

/* These are no frames, or some were missed. */
static __attribute__((noinline)) int mux_give_up(struct conn *c, struct h2 *h, struct qos_unit *u) {
        struct exchange_effect effect = {};

        if (!c || !h || !u)
                return 0;
        bpf_spin_lock(&c->lock);
        h2_give_up(h, &c->x, &effect);
        bpf_spin_unlock(&c->lock);
        h2_clear(h);
        effect.in_flight += h2_extra(h);
        c->tries++;
        return conn_apply(c, u, &effect, bpf_ktime_get_ns());
}

struct mux_question_feed {
        struct mux_feed f;
        struct bpf_dynptr *data;
        struct qos_unit *u;
        struct qos_owner owner;
        __u32 share;
};

static long mux_question_step(__u64 i, void *data) {
        struct mux_question_feed *q = data;
        struct mux_feed *f = &q->f;
        __u32 n;

        if (f->at >= f->end)
                return 1;
        n = mux_move(f, h2_is_blind(&f->h->in, 0));
        GRID_BOUND(n, WINDOW_SIZE + 1);
        if (n > 0 && bpf_dynptr_read(f->h->window.bytes, n, q->data, f->offset + f->window_begin, 0) < 0) {
                f->h->piece.lost = 1;
                return 1;
        }
        f->h->piece.position = f->position + f->window_begin;
        n = h2_questions(f->h, mux_window(f), f->end - f->window_end, &f->h->times, &f->h->piece);
        f->at += n;
        mux_questions_book(f->h, q->u, &q->owner, q->share);
        return n == 0 || f->h->piece.lost;
}

/* A piece of what the client says on such a connection, as content_parse(). */
static __attribute__((noinline)) int content_mux(struct sk_buff *skb, struct conn *c, struct qos_unit *u, __u32 copied, __u64 piece) {
        __u32 offset = piece >> 32, len = piece, parsed;
        struct mux_question_feed q = {};
        struct exchange_effect effect = {};
        struct bpf_dynptr data;
        struct place p;
        struct sock *sk;
        struct h2 *h;

        if (!skb || !c || !u)
                return 0;
        sk = skb->sk;
        if (!sk)
                return 0;
        h = bpf_sk_storage_get(&muxes, sk, 0, 0);
        if (!h || bpf_dynptr_from_skb((struct __sk_buff*) skb, 0, &data) < 0)
                return 0;

        q.f.h = h;
        q.f.end = len;
        q.f.offset = offset;
        q.f.position = copied;
        h2_piece_begin(&h->piece, bpf_ktime_get_ns());
        q.data = &data;
        parsed = h->in_pos - copied;
        if ((__s32) parsed > 0)
                q.f.at = parsed; /* looked at before (MSG_PEEK) */
        if ((__s32) parsed < 0)
                h->piece.lost = 1; /* something was taken out another way */

        bpf_spin_lock(&c->lock);
        h->times.came_at = exchange_came_at_once(&c->x, copied + len);
        if (h->times.came_at == 0)
                exchange_get_marks(&c->x, &h->times.marks);
        p = conn_note(c, &effect);
        bpf_spin_unlock(&c->lock);
        if (!h->piece.lost && q.f.at < q.f.end) {
                u = place_get(u, &p);
                if (!u)
                        return 0;
                window_enter(u, h->piece.now);
                q.u = u;
                q.owner = p.owner;
                q.share = p.share;
                h->names = names_are_wanted(&q.owner);
                bpf_loop(PIECE_MAX, mux_question_step, &q, 0);
                h->in_pos = copied + q.f.at;
        }
        if (h->piece.lost)
                return mux_give_up(c, h, u);

        effect.in_flight = h2_extra(h);
        if (effect.in_flight == 0 && h->piece.unseen == 0 && h->piece.dropped == 0)
                return zero();

        bpf_spin_lock(&c->lock);
        p = conn_note(c, &effect);
        bpf_spin_unlock(&c->lock);
        u = place_get(u, &p);
        if (!u)
                return 0;
        window_enter(u, h->piece.now);
        share_apply(u, p.share, &effect);
        if (h->piece.unseen > 0)
                share_count(u, p.share, QOS_CELL_OVERLAPS, QOS_ROW_OVERLAPS, h->piece.unseen);
        if (h->piece.dropped > 0)
                share_count(u, p.share, QOS_CELL_CLIENT_ABORTS, QOS_ROW_CLIENT_ABORTS, h->piece.dropped);
        return 0;
}

/* Was the first piece the beginning of HTTP/2's preface? */
static __attribute__((noinline)) int content_is_preface(struct sock *sk, struct conn *c, struct talk *t, __u64 bytes, __u64 piece) {
        __u32 copied = piece >> 32, taken;
        struct h2 *h;

        if (!sk || !c || !t)
                return 0;
        taken = t->in_pos == copied ? mux_preface(t, bytes, piece) : 0;
        if (taken == 0 || !content_mux_begin(sk, c, copied, 0))
                return 0;
        h = bpf_sk_storage_get(&muxes, sk, 0, 0);
        if (!h)
                return 0;
        h->in.left -= taken;

        bpf_spin_lock(&c->lock);
        c->x.flags &= ~EXCHANGE_PARSED;
        bpf_spin_unlock(&c->lock);
        return CONTENT_MUXED;
}

/* Apart, so that connections which are not parsed do not pay for the room that this takes on the stack. copied: where in
 * the stream the piece begins, offset: where in the buffer. */
static __attribute__((noinline)) int content_parse(struct sk_buff *skb, struct conn *c, struct qos_unit *u, __u32 copied,
                                                   __u64 piece) {

        __u32 offset = piece >> 32, len = piece, parsed;
        struct exchange_effect effect = {};
        struct question_feed q = {};
        struct bpf_dynptr data;
        struct sock *sk;
        struct talk *t;

        if (!skb || !c || !u)
                return 0;
        sk = skb->sk;
        if (!sk)
                return 0;
        if (bpf_dynptr_from_skb((struct __sk_buff*) skb, 0, &data) < 0)
                return 0;

        t = c->x.flags & EXCHANGE_PARSED ? bpf_sk_storage_get(&talks, sk, 0, 0) : NULL;
        if (!t || mux_may_be_preface(t)) {
                __u64 first = 0;
                __u32 n = len, protocol;

                if (n > sizeof(first))
                        n = sizeof(first);
                GRID_BOUND(n, sizeof(first) + 1);
                if (bpf_dynptr_read(&first, n, &data, offset, 0) < 0)
                        return 0;
                /* Behind what asks for TLS in another protocol, and is not answered (MySQL) */
                if (!t && c->x.state == EXCHANGE_ASKED && !tls_is_greeting(first, n))
                        return 0;
                if (t) {
                        if (content_is_preface(sk, c, t, first, (__u64) copied << 32 | n))
                                return CONTENT_MUXED;
                        goto talk;
                }
                if (h2_detect(first, n))
                        return content_mux_begin(sk, c, copied, 0);
                protocol = protocol_detect(first, n);
                if (protocol == PROTOCOL_PLAIN) {
                        c->tries++;
                        if (exchange_is_fastcgi(first, n)) {
                                bpf_spin_lock(&c->lock);
                                c->x.flags |= EXCHANGE_FASTCGI;
                                bpf_spin_unlock(&c->lock);
                        }
                        if (tls_detect(first, n))
                                return content_seal(sk, c, copied, first & 0xff);
                        if (!(c->x.flags & EXCHANGE_FRESH) && h2_detect_late(first, n))
                                return content_mux_begin(sk, c, copied, 1);
                        return 0;
                }
                t = bpf_sk_storage_get(&talks, sk, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
                if (!t) {
                        statistics_count(QOS_STATISTIC_SOCKETS_LOST);
                        c->tries = TRIES_MAX;
                        return 0;
                }
                talk_begin(t, protocol, copied, c->x.state == EXCHANGE_ANSWERING);

                bpf_spin_lock(&c->lock);
                c->x.flags |= EXCHANGE_PARSED;
                bpf_spin_unlock(&c->lock);
        }

talk:
        q.f.talk = t;
        q.f.end = len;
        q.data = &data;
        q.offset = offset;
        q.position = copied;
        q.owner = owner_read(&c->owner);
        t->times.names = names_are_wanted(&q.owner) ? PROTOCOL_NAMES : 0;
        /* Looked at before (MSG_PEEK) */
        parsed = t->in_pos - copied;
        if ((__s32) parsed > 0)
                q.f.at = q.f.window_begin = q.f.window_end = parsed;
        if ((__s32) parsed < 0)
                q.f.piece.lost = 1; /* something was taken out another way */

        bpf_spin_lock(&c->lock);
        t->times.came_at = exchange_came_at_once(&c->x, copied + len);
        if (t->times.came_at == 0)
                exchange_get_marks(&c->x, &t->times.marks);
        bpf_spin_unlock(&c->lock);
        if (!q.f.piece.lost && q.f.at < q.f.end)
                bpf_loop(PIECE_MAX, question_step, &q, 0);

        if (!q.f.piece.lost) {
                if (q.f.at > parsed || (__s32) parsed <= 0)
                        t->in_pos = copied + q.f.at;
                talk_question_piece(t, &t->times, t->in_pos);
                effect.in_flight += talk_extra(t);
        } else {
                bpf_spin_lock(&c->lock);
                c->tries = t->flags & TALK_UNDERSTOOD ? TRIES_MAX : c->tries + 1;
                talk_give_up(t, &c->x, &effect);
                bpf_spin_unlock(&c->lock);
        }

        if (effect.in_flight != 0 || effect.overlap)
                conn_apply(c, u, &effect, bpf_ktime_get_ns());
        return zero();
}

/* ---- answers to several questions that the unit has asked (EXCHANGE_PIPED) ---- */

struct client_feed {
        struct feed f;          /* end: of what came at the same time */
        struct bpf_dynptr *data;
        struct conn *conn;
        struct qos_unit *u;
        __u32 offset;           /* of the piece in the buffer … */
        __u32 copied;           /* … in the stream */
        __u32 end;              /* of all of it */
        __u32 mark;             /* which of the arrivals (struct talk_times) it is in */
};

#define ANSWERED_MORE (1U << 31)        /* it begins with the rest of an answer before */
#define ANSWERED_UNSURE (1U << 30)      /* when it came is not known any more */
#define ANSWERED_MAX (ANSWERED_UNSURE - 1)

/* What is booked of an answer that grows: what it was, which was booked then, and what it is now. */
__attribute__((noinline, weak)) int client_grows(struct qos_unit *u, const struct booking *b, __u64 was, __u64 is) {
        if (!u || !b || !(b->share & SHARE_ROW))
                return 0;
        row_move(row_get(u, b->share & SHARE_ROW), b->before, was, b->now, is);
        return 0;
}

/* Answers to so many questions of one group begin in what came at this time; 0: no question is open. */
__attribute__((noinline, weak)) __u32 client_hears_group(struct talk *t, struct qos_unit *u, struct booking *b, __u32 n, __u64 at) {
        struct talk_group group;

        if (!t || !u || !b)
                return 0;
        b->n = talk_answer(t, n, &group);
        if (b->n == 0)
                return 0;
        /* It is booked now, with the time that it had taken when it came */
        b->last_at = group.first_at;
        b->first_at = b->now - exchange_between(group.first_at, at);
        row_book(u, b);
        return b->n;
}

/* What came at this time was read, and answers to so many questions begin in it. In struct exchange: first_at, when the question was asked
 * whose answer began last; last_at, when the newest part of that came; last_out_at, when that was booked. */
static __attribute__((noinline)) int client_hears(struct conn *c, struct qos_unit *u, struct talk *t, __u64 at, __u32 found) {
        struct exchange_effect effect = {};
        __u32 left = found & ANSWERED_MAX, n = 0, taken;
        struct booking *book;
        struct place p;

        if (!c || !u || !t)
                return 0;
        _Static_assert(sizeof(*book) <= sizeof(t->work), "no room for what is booked");
        book = (struct booking*) t->work;
        __builtin_memset(book, 0, sizeof(*book));
        book->now = bpf_ktime_get_ns();
        bpf_spin_lock(&c->lock);
        p = conn_note(c, &effect);
        bpf_spin_unlock(&c->lock);
        u = place_get(u, &p);
        if (!u)
                return 0;
        window_enter(u, book->now);
        book->share = p.share;

        /* Under the socket's own lock these are nobody else's */
        book->before = c->x.last_out_at;
        if (found & ANSWERED_MORE && at > c->x.last_at) {
                client_grows(u, book, exchange_between(c->x.first_at, c->x.last_at), exchange_between(c->x.first_at, at));
                c->x.last_at = at;
                c->x.last_out_at = book->now;
        }
        for (int i = 0; i < TALK_GROUPS && left > 0; i++) {
                taken = client_hears_group(t, u, book, left, at);
                if (taken == 0)
                        break;
                left -= taken < left ? taken : left;
                n += taken;
        }
        if (n == 0)
                return 0;
        c->x.first_at = book->last_at;
        c->x.last_at = at;
        c->x.last_out_at = book->now;
        if (found & ANSWERED_UNSURE && p.share & SHARE_ROW)
                row_count(row_get(u, p.share & SHARE_ROW), QOS_ROW_BUNDLED, n);

        bpf_spin_lock(&c->lock);
        exchange_piped(&c->x, n, &effect);
        p = conn_note(c, &effect);
        bpf_spin_unlock(&c->lock);
        u = place_get(u, &p);
        if (u)
                share_apply(u, p.share, &effect);
        return zero() + 1;
}

static long client_answer_step(__u64 i, void *data) {
        struct client_feed *a = data;
        struct feed *f = &a->f;
        struct talk *t = f->talk;
        struct exchange_marks *marks = &t->times.marks;
        __u64 mark = a->mark, at = 0;
        __u32 n, from = f->at, found = 0;

        GRID_BOUND(mark, EXCHANGE_MARKS);
        if (f->at >= a->end)
                return 1;
        f->end = a->end;
        if (a->mark < marks->n && a->mark < EXCHANGE_MARKS) {
                n = marks->end[mark] - a->copied;
                if ((__s32) (n - f->at) <= 0) {
                        a->mark++;
                        return 0;
                }
                if (n < f->end)
                        f->end = n;
                at = marks->at[mark];
                if (a->mark == marks->n - 1 && marks->tail_at != at)
                        found = ANSWERED_UNSURE;
        }

        if (at == 0)
                at = bpf_ktime_get_ns(); /* behind the last arrival that is known: it comes at this moment */

        f->piece.begun = 0;
        if (t->flags & TALK_ANSWERING)
                found |= ANSWERED_MORE;
        if (feed_skip(f, &t->out)) {
                n = feed_move(f, &t->out);
                GRID_BOUND(n, WINDOW_SIZE + 1);
                if (n > 0 && bpf_dynptr_read(t->window.bytes, n, a->data, a->offset + f->window_begin, 0) < 0) {
                        f->piece.lost = 1;
                        return 1;
                }
                f->at += talk_answer_bytes(t, f->at - f->window_begin, f->window_end - f->window_begin, &f->piece);
        }
        if (f->at == from || f->piece.tunnel)
                f->piece.lost = 1;
        if (f->piece.begun > 0 || found & ANSWERED_MORE)
                client_hears(a->conn, a->u, t, at, found | (f->piece.begun & ANSWERED_MAX));
        return f->piece.lost != 0;
}

/* All has been read up to this position of the stream. Apart, for the room on the stack. */
static __attribute__((noinline)) int client_has_read(struct sock *sk, struct conn *c, struct qos_unit *u, __u32 position, bool lost) {
        struct exchange_effect effect = {};
        struct place p;
        struct talk *t;
        bool ended;

        if (!sk || !c || !u)
                return 0;
        t = bpf_sk_storage_get(&talks, sk, 0, 0);
        if (!t)
                return 0;
        /* What was asked is answered, as far as anybody can tell, and nobody knows when */
        if (lost)
                client_hears(c, u, t, bpf_ktime_get_ns(), ANSWERED_UNSURE | ANSWERED_MAX);

        bpf_spin_lock(&c->lock);
        ended = exchange_pipe_read(&c->x, position, t->out.state == 0 && !(t->flags & TALK_ANSWERING), lost, &effect);
        p = conn_note(c, &effect);
        bpf_spin_unlock(&c->lock);
        if (ended) {
                __builtin_memset(&t->out, 0, sizeof(t->out));
                talk_forget(t);
        }
        u = place_get(u, &p);
        if (!u)
                return 0;
        share_apply(u, p.share, &effect);
        /* No answer grows any more in the row that it was booked in */
        if (ended && (p.share & SHARE_ROW) == QOS_ROW_PEERS_REST)
                client_seeks_row(sk, c, u, bpf_ktime_get_ns());
        /* The peer has hung up behind that */
        if (!ended && sk->__sk_common.skc_state == TCP_CLOSE_WAIT)
                client_ends(c, u, 0, TCP_ESTABLISHED, TCP_CLOSE_WAIT);
        return zero();
}

/* A piece of what the unit is answered, as content_parse(). */
static __attribute__((noinline)) int client_reads(struct sk_buff *skb, struct conn *c, struct qos_unit *u, __u32 copied, __u64 piece) {
        struct client_feed a = {};
        struct bpf_dynptr data;
        struct sock *sk;
        struct talk *t;

        if (!skb || !c || !u)
                return 0;
        sk = skb->sk;
        if (!sk)
                return 0;
        t = bpf_sk_storage_get(&talks, sk, 0, 0);
        if (!t || bpf_dynptr_from_skb((struct __sk_buff*) skb, 0, &data) < 0)
                return 0;
        a.f.talk = t;
        a.data = &data;
        a.conn = c;
        a.u = u;
        a.copied = copied;
        a.offset = piece >> 32;
        a.end = piece;
        a.f.at = c->x.read_end - copied;
        a.f.window_begin = a.f.window_end = a.f.at;
        if ((__s32) (a.f.at - a.end) >= 0)
                return 0; /* looked at before (MSG_PEEK) */

        bpf_spin_lock(&c->lock);
        exchange_get_marks(&c->x, &t->times.marks);
        bpf_spin_unlock(&c->lock);
        if ((__s32) a.f.at < 0)
                a.f.piece.lost = 1; /* something was taken out another way */
        else
                bpf_loop(PIECE_MAX, client_answer_step, &a, 0);
        return client_has_read(sk, c, u, copied + a.end, a.f.piece.lost);
}

/* After a reset what was queued can still be read. Whoever asked that has gone, and nothing tells of the socket any more. */
static __always_inline bool connection_is_gone(const struct sock *sk) {
        return sk->__sk_common.skc_state == TCP_CLOSE;
}

SEC("tp_btf/skb_copy_datagram_iovec")
int BPF_PROG(requests_content, struct sk_buff *skb, int len) {
        struct tcp_sock *tp;
        struct qos_unit *u;
        struct sock *sk;
        struct conn *c;
        __u32 copied, offset, what;

        sk = skb->sk;
        if (!sk)
                return 0;
        /* Two hooks on one tracepoint would be two calls for each that reads */
        if (sk->__sk_common.skc_family == AF_UNIX)
                return unix_content(skb, len);
        if (connection_is_gone(sk))
                return 0;
        c = bpf_sk_storage_get(&conns, sk, 0, 0);
        if (!c)
                return 0;
        if (c->kind == CONN_CLIENT) {
                if (!(c->x.flags & EXCHANGE_PIPED))
                        return 0;
        } else if (c->kind != CONN_SERVER || (c->tries >= TRIES_MAX && !(c->x.flags & EXCHANGE_SEALED)))
                return 0;
        u = unit_get(&c->owner);
        if (!u)
                return 0;
        if (c->kind == CONN_SERVER && c->found) {
                u = conn_claim(sk, c, u);
                if (!u)
                        return 0;
        }
        /* What has an entry as a server's connection is TCP. bpf_skc_to_tcp_sock() wants more trust than this has */
        tp = bpf_rdonly_cast(sk, bpf_core_type_id_kernel(struct tcp_sock));

        /* Where in the stream, and so in the buffer: TCP_SKB_CB(skb)->seq. One further on is only looked at (MSG_PEEK) */
        if (bpf_core_read(&offset, sizeof(offset), &skb->cb) < 0)
                return 0;
        copied = tp->copied_seq;
        offset = copied - offset;
        if (len <= 0 || offset >= skb->len || (__u32) len > skb->len - offset)
                return 0;
        if (c->kind == CONN_CLIENT)
                return client_reads(skb, c, u, copied, (__u64) offset << 32 | (__u32) len);
        if (c->x.flags & EXCHANGE_SEALED)
                what = CONTENT_SEALED;
        else if (c->x.flags & EXCHANGE_MUXED)
                what = CONTENT_MUXED;
        else
                what = content_parse(skb, c, u, copied, (__u64) offset << 32 | (__u32) len);
        if (what == CONTENT_SEALED) {
                if (watch_get(&c->owner))
                        unsealed_bind(sk, c, u);
                content_unseal(skb, c, copied, (__u64) offset << 32 | (__u32) len);
        } else if (what == CONTENT_MUXED)
                content_mux(skb, c, u, copied, (__u64) offset << 32 | (__u32) len);
        return 0;
}

/* ---- departure ------------------------------------------------------------------------------------------------ */

struct departure {
        __u64 now;
        __u32 bytes;            /* that leave for the first time, at the end of the packet */
        bool complete;          /* nothing is left to send */
        struct booking book;    /* as struct exchange has it afterwards; where it is parsed, room to work in */
        struct place place;     /* where it is booked */
};

static __always_inline void departure_apply(struct departure *d, struct exchange *x, struct exchange_effect *effect) {
        exchange_depart(x, d->now, d->bytes, d->complete, effect);
        d->book.first_at = x->last_at == 0 ? 0 : x->first_at;
        d->book.last_at = x->last_at;
        d->book.read_at = x->read_at;
        d->book.first_out_at = x->first_out_at;
}

struct hello {
        struct __sk_buff *skb;
        __u32 at;               /* the next extension … */
        __u32 end;
        __u32 http2;
};

static long hello_step(__u64 i, void *data) {
        struct hello *h = data;
        __u64 bytes;

        if (h->at + sizeof(bytes) > h->end || bpf_skb_load_bytes(h->skb, h->at, &bytes, sizeof(bytes)) < 0)
                return 1;
        bytes = bpf_be64_to_cpu(bytes);
        h->http2 = bytes == TLS_EXTENSION_HTTP2;
        h->at += 4 + TLS_EXTENSION_LENGTH(bytes);
        return h->http2;
}

/* The greeting of a server: does it say that HTTP/2 is spoken? piece: as that of content_parse(). */
static __attribute__((noinline)) int hello_is_http2(struct __sk_buff *skb, __u64 piece) {
        __u32 offset = piece >> 32, len = piece;
        struct hello h = {};
        __u8 session;

        if (!skb || bpf_skb_load_bytes(skb, offset + TLS_HELLO_SESSION, &session, 1) < 0)
                return 0;
        h.skb = skb;
        h.at = offset + TLS_HELLO_EXTENSIONS(session);
        h.end = offset + len;
        bpf_loop(TLS_EXTENSIONS_MAX, hello_step, &h, 0);
        return h.http2;
}

/* Of a connection that is sealed: what is no part of an answer changes nothing. Returns 1 where the plaintext is seen: what that
 * means is for library_egress to say. */
static __attribute__((noinline)) int sealed_departs(struct __sk_buff *skb, struct bpf_sock *sk, struct conn *c,
                                                    struct departure *d, struct exchange_effect *effect) {
        struct seal_feed f = {};
        struct unsealed *o;
        struct seal *s;
        struct qos_unit *u;
        bool talks;

        if (!skb || !sk || !c || !d || !effect)
                return 0;
        s = bpf_sk_storage_get(&seals, sk, 0, 0);
        if (!s)
                return 0;
        s->left_bytes = 0;
        f.tls = &s->tls;
        f.skb = skb;
        f.offset = skb->len - d->bytes;
        f.end = d->bytes;
        if (f.tls->phase == TLS_HELLO && hello_is_http2(skb, (__u64) f.offset << 32 | f.end))
                f.tls->http2 = 1;
        if (!f.tls->out_lost) {
                bpf_loop(PIECE_MAX, seal_step_out, &f, 0);
                if (f.seen & TLS_STEP_LOST)
                        f.tls->out_lost = 1;
        }

        talks = f.tls->out_lost || f.seen & TLS_STEP_APPLICATION;
        /* Not where the probe has been taken away: who books it is not there any more */
        o = s->key.ssl != 0 ? unsealed_get((struct sock*) sk, c, unit_get(&c->owner), s) : NULL;
        if (o && o->talk.protocol != PROTOCOL_PLAIN) {
                s->left_at = d->now;
                s->left_complete = d->complete;
                s->left_bytes = talks ? d->bytes : 0;
                bpf_spin_lock(&c->lock);
                d->place = conn_note(c, effect);
                bpf_spin_unlock(&c->lock);
                return 1;
        }

        bpf_spin_lock(&c->lock);
        if (talks) {
                departure_apply(d, &c->x, effect);
                if (effect->begun && s->tls.http2)
                        effect->overlap = 1;
        }
        d->place = conn_note(c, effect);
        bpf_spin_unlock(&c->lock);

        if (effect->begun) {
                s->tls.farewell = 0;
                u = s->tls.http2 && s->tls.questions > 1 ? unit_get(&d->place.owner) : NULL;
                if (u) {
                        window_enter(u, d->now);
                        share_count(u, share_now(u, d->place.share), QOS_CELL_OVERLAPS, QOS_ROW_OVERLAPS, s->tls.questions - 1);
                }
                s->tls.questions = 0;
        }
        return 0;
}

/* What a departure means: how many questions begin to be answered, and these. */
#define DEPARTURE_TUNNEL (1ULL << 32)   /* behind that nothing is asked any more */
#define DEPARTURE_MORE (1ULL << 33)     /* the answer before that goes on */
#define DEPARTURE_UPGRADE (1ULL << 34)  /* behind that there is HTTP/2 … */
#define DEPARTURE_TAKEN_SHIFT 40        /* … which is behind so many bytes */

/* The parts of talk_departs(), each with a room of its own on the stack, which is small. This one is walked by the verifier by
 * itself: what it may return is not followed through the other. */
__attribute__((noinline, weak)) __u64 departure_parse(struct __sk_buff *skb, struct talk *t, struct qos_unit *u,
                                                       const struct departure *d) {
        struct answer_feed a = {};
        __u64 answers;

        if (!skb || !t || !u || !d)
                return 0;

        a.f.talk = t;
        a.f.end = d->bytes;
        a.skb = skb;
        a.offset = skb->len - d->bytes;
        bpf_loop(PIECE_MAX, answer_step, &a, 0);
        answers = talk_answers(t, &a.f.piece, d->complete);

        if (a.f.piece.lost)
                share_count(u, d->place.share, QOS_CELL_OVERLAPS, QOS_ROW_OVERLAPS, 1);
        if (a.f.piece.tunnel == 2)
                answers |= DEPARTURE_UPGRADE | (__u64) a.f.at << DEPARTURE_TAKEN_SHIFT;
        else if (a.f.piece.tunnel)
                answers |= DEPARTURE_TUNNEL;
        if (d->place.share & SHARE_ALONE)
                return answers;
        if (a.f.piece.streams > 0)
                window_count(u, QOS_CELL_STREAMS, a.f.piece.streams);
        if (a.f.piece.status4xx > 0)
                window_count(u, QOS_CELL_STATUS_4XX, a.f.piece.status4xx);
        if (a.f.piece.status5xx > 0)
                window_count(u, QOS_CELL_STATUS_5XX, a.f.piece.status5xx);
        return answers;
}

/* When the last one came of the questions of a group. */
struct first {
        __u64 at;
        __u64 booked;           /* 0: none of them is in a distribution */
};

/* Answers begin to leave: those to the oldest questions that were asked together, at most so many. Returns how many. Walked by the
 * verifier by itself, as its loop would be for each of its rounds. */
__attribute__((noinline, weak)) __u32 departure_book_group(struct talk *t, struct qos_unit *u, struct departure *d, __u32 answers,
                                                           struct first *ret) {
        struct talk_group group;
        struct booking *book;
        __u32 share, taken, n;

        if (!t || !u || !d || !ret)
                return 0;
        book = &d->book;
        ret->booked = 0;
        taken = n = talk_answer(t, answers, &group);
        if (n == 0)
                return 0;

        share = d->place.share;
        if (group.excluded > 0) {
                window_count(u, QOS_CELL_EXCLUDED, group.excluded);
                n -= group.excluded;
                t->flags &= ~TALK_ANSWERED;
                if (n == 0)
                        return taken;
        }
        if (!(share & SHARE_ALONE))
                window_count(u, QOS_CELL_COUNT + t->protocol, n);
        if (group.waits) {
                share_count(u, share, QOS_CELL_COUNT, QOS_ROW_COUNT, n);
                window_count(u, share & SHARE_ALONE ? QOS_CELL_EXCLUDED : QOS_CELL_WAITS, n);
                t->flags &= ~TALK_ANSWERED;
                return taken;
        }
        book->now = d->now;
        book->share = share;
        book->n = n;
        book->first_at = group.last_at == 0 ? 0 : group.first_at;
        book->last_at = group.last_at;
        /* A part of the question was read that was not the last, where whoever reads has not returned */
        book->read_at = group.read_at ?: d->now;
        share_book(u, book);
        if (!(t->flags & TALK_EXCLUDED))
                t->flags |= TALK_ANSWERED;
        ret->at = group.first_at;
        ret->booked = 1;
        return taken;
}

/* The answer before goes on. */
static __attribute__((noinline)) int departure_book_more(struct conn *c, struct qos_unit *u, struct departure *d) {
        if (!c || !u || !d)
                return 0;
        d->book.now = d->now;
        d->book.share = d->place.share;
        d->book.first_at = c->x.first_at;
        d->book.first_out_at = c->x.first_out_at;
        d->book.before = c->x.last_out_at;
        share_book_more(u, &d->book);
        c->x.last_out_at = d->now;
        return zero();
}

/* What struct exchange has of the last answer is only touched here and under the socket's lock: ours is for what arrivals
 * touch too. */
static __attribute__((noinline)) int departure_book(struct talk *t, struct conn *c, struct qos_unit *u, struct departure *d,
                                                    __u64 parsed) {
        __u32 n, answers = parsed;
        struct exchange_effect effect = {};
        struct first first = {};
        struct place p;

        if (!t || !c || !u || !d)
                return 0;

        if (parsed & DEPARTURE_MORE)
                departure_book_more(c, u, d);

        for (int i = 0; i < TALK_GROUPS && answers > 0; i++) {
                n = departure_book_group(t, u, d, answers, &first);
                if (n == 0)
                        break;
                answers -= n;
                if (first.booked) {
                        c->x.first_at = first.at;
                        c->x.first_out_at = c->x.last_out_at = d->now;
                }
        }

        bpf_spin_lock(&c->lock);
        if (parsed & DEPARTURE_TUNNEL) {
                talk_end(t, &c->x, &effect);
                c->tries = TRIES_MAX;
        } else
                talk_settle(t, &c->x, d->now, d->complete, &effect);
        p = conn_note(c, &effect);
        bpf_spin_unlock(&c->lock);
        u = place_get(u, &p);
        if (u)
                share_apply(u, p.share, &effect);
        return zero();
}

struct mux_answer_feed {
        struct mux_feed f;
        struct __sk_buff *skb;
        struct qos_unit *u;
        __u32 share;
};

static long mux_answer_step(__u64 i, void *data) {
        struct mux_answer_feed *a = data;
        struct mux_feed *f = &a->f;
        __u32 n;

        if (f->at >= f->end)
                return 1;
        n = mux_move(f, h2_is_blind(&f->h->out, 1));
        GRID_BOUND(n, WINDOW_SIZE + 1);
        if (n > 0 && bpf_skb_load_bytes(a->skb, f->offset + f->window_begin, f->h->window.bytes, n) < 0) {
                f->h->piece.lost = 1;
                return 1;
        }
        n = h2_answers(f->h, mux_window(f), f->end - f->window_end, &f->h->piece);
        f->at += n;
        if (f->h->piece.event)
                mux_book(a->u, &f->h->piece, a->share);
        return n == 0 || f->h->piece.lost;
}

/* Of a connection with frames, as talk_departs(). */
static __attribute__((noinline)) int mux_departs(struct __sk_buff *skb, struct bpf_sock *sk, struct conn *c, struct qos_unit *u,
                                                 const struct departure *d) {
        struct exchange_effect effect = {};
        struct mux_answer_feed a = {};
        struct place p;
        struct h2 *h;

        if (!skb || !sk || !c || !u || !d)
                return 0;
        h = bpf_sk_storage_get(&muxes, sk, 0, 0);
        if (!h)
                return 0;

        if (h->out.synced != H2_LOST) {
                a.f.h = h;
                a.f.end = d->bytes;
                a.f.offset = skb->len - d->bytes;
                h2_piece_begin(&h->piece, d->now);
                a.skb = skb;
                a.u = u;
                a.share = d->place.share;
                bpf_loop(PIECE_MAX, mux_answer_step, &a, 0);
                if (h->piece.lost)
                        return mux_give_up(c, h, u);
                if (h->piece.dropped > 0)
                        share_count(u, a.share, QOS_CELL_ERRORS_RESET, QOS_ROW_ERRORS_RESET, h->piece.dropped);
        } else if (d->complete)
                h->out.synced = H2_EDGE;

        bpf_spin_lock(&c->lock);
        h2_settle(h, &c->x, d->now, &effect);
        p = conn_note(c, &effect);
        bpf_spin_unlock(&c->lock);
        u = place_get(u, &p);
        if (u)
                share_apply(u, p.share, &effect);
        return zero();
}

/* From HTTP/1.1 the connection goes over to HTTP/2, with the question that asked for it. */
static __attribute__((noinline)) int mux_upgrade(struct bpf_sock *sk, struct conn *c, struct qos_unit *u, struct talk *t) {
        struct exchange_effect effect = {};
        struct talk_group group;
        struct h2 *h;

        if (!sk || !c || !u || !t)
                return 0;
        h = bpf_sk_storage_get(&muxes, sk, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
        if (!h)
                statistics_count(QOS_STATISTIC_SOCKETS_LOST);
        if (!h || talk_answer(t, 1, &group) == 0)
                return 0;
        h2_begin(h, t->in_pos, 0);
        h2_clear(h);
        h2_upgrade(h, &group);
        /* What was asked behind it in HTTP/1.1 is not answered */
        talk_forget(t);
        effect.in_flight = talk_extra(t);

        bpf_spin_lock(&c->lock);
        c->x.flags = (c->x.flags & ~(EXCHANGE_PARSED | EXCHANGE_LATE)) | EXCHANGE_MUXED;
        bpf_spin_unlock(&c->lock);
        if (effect.in_flight != 0)
                conn_apply(c, u, &effect, bpf_ktime_get_ns());
        return 1;
}

/* Of a connection whose protocol is parsed. Apart, as content_parse(). Returns 1: what of the packet is left is HTTP/2. */
static __attribute__((noinline)) int talk_departs(struct __sk_buff *skb, struct bpf_sock *sk, struct conn *c, struct qos_unit *u,
                                                  struct departure *d) {
        __u64 parsed = 0;
        struct talk *t;

        if (!skb || !sk || !c || !u || !d)
                return 0;
        t = bpf_sk_storage_get(&talks, sk, 0, 0);
        if (!t)
                return 0;
        if ((talk_is_more(t) || t->flags & TALK_ANSWERING) && t->flags & TALK_ANSWERED)
                parsed = DEPARTURE_MORE;

        if (talk_is_whole(t, &c->x, d->bytes, d->complete))
                parsed |= 1;
        else if (!talk_is_more(t))
                parsed |= departure_parse(skb, t, u, d);
        departure_book(t, c, u, d, parsed);
        if (!(parsed & DEPARTURE_UPGRADE) || !mux_upgrade(sk, c, u, t))
                return 0;
        d->bytes -= parsed >> DEPARTURE_TAKEN_SHIFT;
        return 1;
}

static long ask_step(__u64 i, void *data) {
        struct answer_feed *a = data;
        struct feed *f = &a->f;
        __u32 n;

        if (!feed_skip(f, &f->talk->in))
                return 1;
        n = feed_move(f, &f->talk->in);
        GRID_BOUND(n, WINDOW_SIZE + 1);
        if (n > 0 && bpf_skb_load_bytes(a->skb, a->offset + f->window_begin, f->talk->window.bytes, n) < 0)
                f->piece.lost = 1;
        else
                f->at += talk_take_questions(f->talk, feed_window(f), &f->talk->times, 0, &f->piece);
        return f->piece.lost != 0;
}

/* Of a peer whose protocol is parsed: counts the questions in the last bytes of what leaves. Returns 1: that is not understood.
 * Walked by the verifier by itself. */
__attribute__((noinline, weak)) int client_parse(struct __sk_buff *skb, struct talk *t, __u32 bytes) {
        struct answer_feed a = {};

        if (!skb || !t || bytes > skb->len)
                return 0;
        a.f.talk = t;
        a.f.end = bytes;
        a.skb = skb;
        a.offset = skb->len - bytes;
        t->times.names = 0;
        bpf_loop(PIECE_MAX, ask_step, &a, 0);
        return a.f.piece.lost;
}

/* What client_counts() has found: */
#define CLIENT_PARSED 1
#define CLIENT_MUXED 2
#define CLIENT_OVERLAPS 4
#define CLIENT_NOTHING 8        /* what leaves asks for nothing */
#define CLIENT_ENDS 16          /* behind that nothing is asked any more */
#define CLIENT_PIPES 32         /* several questions are open, whose answers can be told apart */

/* Apart, as client_counts() has calls in it for which there is no room on the stack otherwise. found: how many questions, and how many
 * of them were asked while another was open, unless their answers are told apart. */
static __attribute__((noinline)) int client_notes(struct conn *c, struct qos_unit *u, __u64 found, __u32 what, __u32 rcv_nxt) {
        __u32 asked = found >> 32, bundled = found;
        struct exchange_effect effect = { .overlap = !!(what & CLIENT_OVERLAPS) };
        __u64 now = bpf_ktime_get_ns();
        struct place p;

        if (!c || !u)
                return 0;
        bpf_spin_lock(&c->lock);
        if (what & CLIENT_PARSED) {
                c->x.flags |= EXCHANGE_PARSED;
                exchange_ask_more(&c->x, now, asked, &effect);
        } else
                c->x.flags &= ~(EXCHANGE_PARSED | EXCHANGE_PIPED);
        if (what & CLIENT_PIPES) {
                exchange_pipe(&c->x, rcv_nxt);
                if (c->x.flags & EXCHANGE_PIPED)
                        bundled = 0;
        }
        if (what & CLIENT_MUXED)
                c->x.flags |= EXCHANGE_MUXED;
        if (what & (CLIENT_NOTHING | CLIENT_ENDS)) {
                exchange_ask_none(&c->x, &effect);
                exchange_shut(&c->x, &effect);
                c->x.state = EXCHANGE_IDLE;
        }
        if (what & CLIENT_ENDS) {
                c->x.flags |= EXCHANGE_DONE;
                c->tries = TRIES_MAX;
        }
        p = conn_note(c, &effect);
        bpf_spin_unlock(&c->lock);

        if (!effect.overlap && effect.in_flight == 0 && bundled == 0)
                return 0;
        u = place_get(u, &p);
        if (!u)
                return 0;
        share_apply(u, p.share, &effect);
        if (p.share & SHARE_ROW)
                row_count(row_get(u, p.share & SHARE_ROW), QOS_ROW_BUNDLED, bundled);
        return zero() + 1;
}

/* Who asks more than one thing at once gets more than one answer, of which nobody here knows where the one ends and the other begins.
 * They count, and how long each took is not known. Where even how many they are is not, that is said. */
static __attribute__((noinline)) int client_counts(struct __sk_buff *skb, struct bpf_sock *sk, struct conn *c, struct qos_unit *u,
                                                   __u64 left) {
        bool unread = left & CLIENT_UNREAD, muxed, overlap = false;
        __u32 bytes = left, protocol, asked = 0, bundled = 0, pipes = 0, rcv_nxt = 0;
        struct talk *t = NULL;

        if (!skb || !sk || !c || !u)
                return 0;
        if (bytes > skb->len)
                return 0;
        muxed = c->x.flags & EXCHANGE_MUXED;
        if (c->x.flags & EXCHANGE_PARSED)
                t = bpf_sk_storage_get(&talks, sk, 0, 0);
        if (!t && !muxed) {
                __u64 first = 0;
                __u32 n = bytes < sizeof(first) ? bytes : sizeof(first);

                if (!(left & CLIENT_ASKS) || n == 0)
                        return 0;
                GRID_BOUND(n, sizeof(first) + 1);
                if (n == 0 || bpf_skb_load_bytes(skb, skb->len - bytes, &first, n) < 0)
                        return 0;
                protocol = protocol_detect(first, n);
                muxed = h2_detect(first, n) ||
                        (protocol == PROTOCOL_PLAIN && !(c->x.flags & EXCHANGE_FRESH) && h2_detect_late(first, n));
                t = protocol != PROTOCOL_PLAIN ? bpf_sk_storage_get(&talks, sk, 0, BPF_LOCAL_STORAGE_GET_F_CREATE) : NULL;
                if (!t && !muxed) {
                        if (protocol != PROTOCOL_PLAIN)
                                statistics_count(QOS_STATISTIC_SOCKETS_LOST);
                        c->tries = protocol != PROTOCOL_PLAIN ? TRIES_MAX : c->tries + 1;
                        return 0;
                }
                if (t)
                        talk_begin(t, protocol, 0, 0);
                unread = false;
        } else if (t && left & CLIENT_ASKS) {
                /* It is a replica: what it says now nobody answers */
                if (t->protocol == PROTOCOL_REDIS && t->flags & TALK_TUNNEL)
                        return client_notes(c, u, 0, CLIENT_ENDS, 0);
                talk_forget(t);
        } else
                unread = false;

        if (t) {
                asked = t->asked;
                t->times.came_at = c->x.read_at;
                if (client_parse(skb, t, bytes)) {
                        c->tries = TRIES_MAX;
                        overlap = true;
                        t = NULL;
                }
        }
        if (t) {
                bundled = t->asked > 1 ? t->asked - (asked > 1 ? asked : 0) : unread;
                asked = t->asked - asked;
        }

        if (muxed && left & CLIENT_ASKS)
                overlap = true; /* of HTTP/2 any may be many */
        /* Where there are more of them than have times of their own, or the peer speaks unasked, they are not told apart */
        if (t && t->asked > 1 && t->n_groups < TALK_GROUPS && !(t->flags & (TALK_PUSHES | TALK_TUNNEL))) {
                struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);

                if (tp) {
                        pipes = CLIENT_PIPES;
                        rcv_nxt = tp->rcv_nxt;
                }
        }
        return client_notes(c, u, (__u64) asked << 32 | bundled,
                            (t ? CLIENT_PARSED : 0) | (overlap ? CLIENT_OVERLAPS : 0) | (muxed ? CLIENT_MUXED : 0) | pipes |
                            (t && t->asked == 0 && t->in.state == 0 ? CLIENT_NOTHING : 0), rcv_nxt);
}

SEC("cgroup_skb/egress")
int requests_egress(struct __sk_buff *skb) {
        struct exchange_effect effect = {};
        struct departure d = {};
        __u32 snd_nxt, written_end;
        struct segment segment;
        struct qos_unit *u;
        struct tcp_sock *tp;
        struct bpf_sock *sk;
        struct conn *c;
        bool parsed, sealed, muxed;
        int unsealed = 0;

        sk = skb->sk;
        if (!sk)
                return 1;
        sk = bpf_sk_fullsock(sk);
        if (!sk)
                return 1;
        c = bpf_sk_storage_get(&conns, sk, 0, 0);
        if (!c && sk->protocol == IPPROTO_UDP && udp_depart(skb, sk)) {
                udp_asks(skb);
                udp_sweep();
        }
        if (!c || c->kind == CONN_OTHER || sk->state == TCP_LISTEN)
                return 1;
        if (!segment_read(skb, &segment)) {
                statistics_count(QOS_STATISTIC_SEGMENTS_LOST);
                return 1;
        }
        if (segment.len == 0)
                return 1;

        u = unit_get(&c->owner);
        if (!u)
                return 1;
        tp = bpf_skc_to_tcp_sock(sk);
        if (!tp)
                return 1;
        if (c->kind == CONN_LISTENER)
                conn_accept(c, u, tp, tp->copied_seq, tp->tcp_clock_cache);

        snd_nxt = tp->snd_nxt;
        /* After the unit has hung up the last position is that of the FIN */
        written_end = tp->write_seq - (sk->state == TCP_FIN_WAIT1 || sk->state == TCP_LAST_ACK || sk->state == TCP_CLOSING);
        d.complete = exchange_distance(segment.seq + segment.len, written_end) >= 0;
        /* CLOCK_MONOTONIC ns, which TCP takes each time it begins to transmit (tcp_mstamp_refresh() in tcp_write_xmit(),
         * tcp_write_timer_handler()), just before this. Reading the clock once more takes 24 ns, of some 300 that an
         * exchange costs */
        d.now = tp->tcp_clock_cache;
        if (c->kind == CONN_CLIENT) {
                __u64 bytes;

                bytes = client_departs(c, u, (__u64) (segment.seq + segment.len) << 32 | snd_nxt,
                                       client_says(skb, segment.offset, segment.len, segment.seq == tp->snd_una,
                                                   c->x.flags & EXCHANGE_MUXED), d.now);
                if (bytes > 0 && c->tries < TRIES_MAX) {
                        if (tp->rcv_nxt != tp->copied_seq && sk->state == TCP_ESTABLISHED)
                                bytes |= CLIENT_UNREAD;
                        client_counts(skb, sk, c, u, bytes);
                }
                return 1;
        }

        bpf_spin_lock(&c->lock);
        d.bytes = exchange_leave(&c->x, segment.seq + segment.len, snd_nxt);
        parsed = c->x.flags & EXCHANGE_PARSED;
        sealed = c->x.flags & EXCHANGE_SEALED;
        muxed = c->x.flags & EXCHANGE_MUXED;
        if (d.bytes > 0 && !parsed && !sealed && !muxed)
                departure_apply(&d, &c->x, &effect);
        if (!sealed)
                d.place = conn_note(c, &effect);
        bpf_spin_unlock(&c->lock);
        if (d.bytes == 0)
                return 1;

        if (sealed) {
                if (d.bytes > segment.len)
                        d.bytes = segment.len;
                unsealed = sealed_departs(skb, sk, c, &d, &effect);
        }
        u = place_get(u, &d.place);
        if (!u)
                return 1;

        window_enter(u, d.now);
        share_sum(u, d.place.share, QOS_SUM_BYTES_OUT, QOS_ROW_SUM_BYTES_OUT, d.bytes);
        if (parsed || muxed) {
                /* More than the packet: the position was unknown, and data left before it was */
                if (d.bytes > segment.len)
                        d.bytes = segment.len;
                if (parsed)
                        muxed = talk_departs(skb, sk, c, u, &d);
                if (muxed)
                        mux_departs(skb, sk, c, u, &d);
                return 1;
        }
        if (unsealed)
                return 1;
        if (sealed && effect.begun && !(d.place.share & SHARE_ALONE))
                window_count(u, QOS_CELL_TLS, 1);
        share_apply(u, d.place.share, &effect);
        d.book.now = d.now;
        d.book.n = 1;
        d.book.share = d.place.share;
        d.book.before = effect.grown_from;
        if (effect.begun)
                share_book(u, &d.book);
        else if (effect.grown)
                share_book_more(u, &d.book);
        return 1;
}

/* Something leaves without a question and without having been seen to be written. In the beginning these are tickets for
 * sessions, of which OpenSSL sends two at once or apart; later the library is used in a way that is not known here. */
#define STRAYS_MAX 4

/* What that means which leaves up to a position, as departure_parse() says it of plaintext. */
__attribute__((noinline, weak)) __u64 unsealed_take(struct unsealed *o, struct qos_unit *u, struct departure *d, __u32 end) {
        __u64 parsed = 0;

        if (!o || !u || !d)
                return 0;
        if (o->growing && o->talk.flags & TALK_ANSWERED)
                parsed = DEPARTURE_MORE;
        if (o->pending == 0 || exchange_distance(end, o->pending_position) <= 0) {
                if (parsed == 0 && o->pending == 0 && !(o->talk.flags & (TALK_PUSHES | TALK_ANSWERING)) && ++o->strays > STRAYS_MAX)
                        o->lost = 1;
                return parsed;
        }

        parsed |= o->pending;
        o->pending = 0;
        if (o->missed_at != 0)
                d->now = o->missed_at;
        if (o->tunnel)
                parsed |= DEPARTURE_TUNNEL;
        if (o->astray)
                share_count(u, d->place.share, QOS_CELL_OVERLAPS, QOS_ROW_OVERLAPS, 1);
        if (!(d->place.share & SHARE_ALONE)) {
                if (o->streams > 0)
                        window_count(u, QOS_CELL_STREAMS, o->streams);
                if (o->status4xx > 0)
                        window_count(u, QOS_CELL_STATUS_4XX, o->status4xx);
                if (o->status5xx > 0)
                        window_count(u, QOS_CELL_STATUS_5XX, o->status5xx);
        }
        o->streams = o->status4xx = o->status5xx = 0;
        o->astray = 0;
        return parsed;
}

/* Frames leave, of which all is known since they were written. */
static __attribute__((noinline)) int unsealed_mux_departs(struct unsealed *o, struct conn *c, struct qos_unit *u,
                                                          const struct departure *d) {
        struct exchange_effect effect = {};

        if (!o || !c || !u || !d)
                return 0;
        if (o->pending == 0 && !o->growing && ++o->strays > STRAYS_MAX)
                o->lost = 1;
        if (exchange_distance(c->x.out_end, o->pending_position) > 0)
                o->pending = 0;
        o->growing = !d->complete;

        bpf_spin_lock(&c->lock);
        unsealed_settle(&c->x, &effect);
        bpf_spin_unlock(&c->lock);
        if (effect.in_flight != 0)
                conn_apply(c, u, &effect, d->now);
        return unsealed_mux_settle(o);
}

/* A part of an answer leaves whose plaintext was parsed when it was written. */
static __attribute__((noinline)) int unsealed_departs(struct unsealed *o, struct conn *c, struct qos_unit *u,
                                                      struct departure *d) {
        __u64 parsed;

        if (!o || !c || !u || !d)
                return 0;
        if (o->talk.protocol == PROTOCOL_HTTP2)
                return unsealed_mux_departs(o, c, u, d);
        if (!unsealed_enter(o)) {
                if (o->missed_at == 0)
                        o->missed_at = d->now;
                return 0;
        }
        parsed = unsealed_take(o, u, d, c->x.out_end);
        o->missed_at = 0;
        departure_book(&o->talk, c, u, d, parsed);
        o->growing = o->talk.flags & TALK_ANSWERING || !d->complete;
        if (parsed & DEPARTURE_TUNNEL) {
                /* Nothing is asked any more, and nothing is to be parsed */
                o->talk.protocol = PROTOCOL_PLAIN;
                o->tries = TRIES_MAX;
        }
        unsealed_leave(o);
        return zero();
}

/* … or it was, and is not any more: an exchange. */
static __attribute__((noinline)) int sealed_book(struct conn *c, struct qos_unit *u, struct departure *d) {
        struct exchange_effect effect = {};

        if (!c || !u || !d)
                return 0;
        bpf_spin_lock(&c->lock);
        departure_apply(d, &c->x, &effect);
        d->place = conn_note(c, &effect);
        bpf_spin_unlock(&c->lock);
        u = place_get(u, &d->place);
        if (!u)
                return 0;

        share_apply(u, d->place.share, &effect);
        d->book.now = d->now;
        d->book.n = 1;
        d->book.share = d->place.share;
        d->book.before = effect.grown_from;
        if (effect.begun && !(d->place.share & SHARE_ALONE))
                window_count(u, QOS_CELL_TLS, 1);
        if (effect.begun)
                share_book(u, &d->book);
        else if (effect.grown)
                share_book_more(u, &d->book);
        return 0;
}

/* Apart from requests_egress, and attached behind it, so that this is there only while a unit has the probe "tls". */
SEC("cgroup_skb/egress")
int library_egress(struct __sk_buff *skb) {
        struct exchange_effect effect = {};
        struct departure d = {};
        struct unsealed *o;
        struct qos_unit *u;
        struct bpf_sock *sk;
        struct conn *c;
        struct seal *s;

        sk = skb->sk;
        if (!sk)
                return 1;
        sk = bpf_sk_fullsock(sk);
        if (!sk)
                return 1;
        s = bpf_sk_storage_get(&seals, sk, 0, 0);
        if (!s || s->left_bytes == 0)
                return 1;
        c = bpf_sk_storage_get(&conns, sk, 0, 0);
        u = c ? unit_get(&c->owner) : NULL;
        if (!u)
                return 1;
        d.now = s->left_at;
        d.bytes = s->left_bytes;
        d.complete = s->left_complete;
        s->left_bytes = 0;

        o = unsealed_get((struct sock*) sk, c, u, s);
        bpf_spin_lock(&c->lock);
        d.place = conn_note(c, &effect);
        bpf_spin_unlock(&c->lock);
        u = place_get(u, &d.place);
        if (!u)
                return 1;
        window_enter(u, d.now);
        if (o)
                unsealed_departs(o, c, u, &d);
        else
                sealed_book(c, u, &d);
        return 1;
}

/* ---- read ----------------------------------------------------------------------------------------------------- */

/* A socket that is used by a task of the unit and was not known to be the unit's. */
static __always_inline struct conn* conn_learn(struct sock *sk, __u32 kind, const struct qos_owner *owner, struct qos_unit *u) {
        struct conn *c;

        c = bpf_sk_storage_get(&conns, sk, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
        if (!c) {
                statistics_count(QOS_STATISTIC_SOCKETS_LOST);
                window_count(u, QOS_CELL_DROPS, 1);
                return NULL;
        }

        if (!conn_adopt(c, owner, kind))
                return c;
        conn_move(sk, c, owner);
        if (kind == CONN_SERVER) {
                struct tcp_sock *tp = bpf_rdonly_cast(sk, bpf_core_type_id_kernel(struct tcp_sock));

                c->retransmits = tp->total_retrans;
                conn_count(c, u, true);
        }
        return c;
}

static __always_inline bool fin_received(const struct sock *sk) {
        __u8 state = sk->__sk_common.skc_state;

        return state == TCP_CLOSE_WAIT || state == TCP_LAST_ACK || state == TCP_CLOSING;
}

/* The parts of requests_read, each with a room of its own on the stack. */
static __attribute__((noinline)) struct conn* conn_learn_read(struct sock *sk) {
        struct qos_owner owner;
        struct qos_unit *u;

        /* No file: a socket of the kernel's own, whose reader may be any task */
        if (!sk || !task_owner(&owner) || !sk->sk_socket || !sk->sk_socket->file)
                return NULL;
        u = unit_get(&owner);
        return u ? conn_learn(sk, sock_kind(sk), &owner, u) : NULL;
}

/* What the library has read is to be looked at instead. */
#define READ_UNSEALED 1

static __attribute__((noinline)) int unsealed_has_read(struct sock *sk) {
        struct tcp_sock *tp;
        struct unsealed *o;
        struct qos_unit *u;
        struct conn *c;
        struct seal *s;
        __u32 copied, unsent;

        if (!sk)
                return 0;
        c = bpf_sk_storage_get(&conns, sk, 0, 0);
        s = bpf_sk_storage_get(&seals, sk, 0, 0);
        tp = bpf_skc_to_tcp_sock(sk);
        u = c ? unit_get(&c->owner) : NULL;
        if (!u || !s || !tp)
                return 0;
        o = unsealed_get(sk, c, u, s);
        if (!o)
                return 0;
        copied = tp->copied_seq - (tp->copied_seq == tp->rcv_nxt && fin_received(sk));
        unsent = tp->write_seq - tp->snd_nxt;
        return unsealed_reads(c, u, &s->tls, o, (__u64) copied << 32 | unsent);
}

/* c: NULL, or perhaps of a unit that is gone. */
static __attribute__((noinline)) int server_has_read(struct sock *sk, struct conn *c) {
        struct exchange_effect effect = {};
        struct tcp_sock *tp;
        struct qos_unit *u;
        struct talk *t = NULL;
        struct unsealed *o = NULL;
        struct seal *seal;
        struct tls *s = NULL;
        struct h2 *h = NULL;
        __u32 copied, unsent;
        struct place p;
        __u64 now, first_at, last_at;

        if (!sk)
                return 0;
        u = c ? unit_get(&c->owner) : NULL;
        if (!u) {
                c = conn_learn_read(sk);
                u = c ? unit_get(&c->owner) : NULL;
                if (!u)
                        return 0;
        }
        if (c->kind == CONN_OTHER || c->kind == CONN_CLIENT)
                return 0;

        tp = bpf_skc_to_tcp_sock(sk);
        if (!tp)
                return 0;
        now = bpf_ktime_get_ns();

        if (c->kind == CONN_LISTENER)
                /* Fast open: read before the handshake has ended. What came so far is all that ever came */
                conn_accept(c, u, tp, tp->rcv_nxt - (__u32) tp->bytes_received, now);

        if (c->found) {
                u = conn_claim(sk, c, u);
                if (!u)
                        return 0;
        }

        copied = tp->copied_seq;
        /* Splice passes here once more for the FIN, which has a position but no byte. Where that is the first that is seen
         * of a connection it was idle, or nothing tells that it was not */
        if (copied == tp->rcv_nxt && fin_received(sk)) {
                if (!(c->x.flags & EXCHANGE_READ_KNOWN))
                        return 0;
                copied--;
        }
        unsent = tp->write_seq - tp->snd_nxt;

        if (c->x.flags & EXCHANGE_PARSED)
                t = bpf_sk_storage_get(&talks, sk, 0, 0);
        else if (c->x.flags & EXCHANGE_SEALED) {
                seal = bpf_sk_storage_get(&seals, sk, 0, 0);
                if (seal) {
                        s = &seal->tls;
                        if (seal->key.ssl != 0)
                                o = unsealed_get(sk, c, u, seal);
                        if (o && o->talk.protocol != PROTOCOL_PLAIN)
                                return READ_UNSEALED;
                }
        } else if (c->x.flags & EXCHANGE_MUXED) {
                h = bpf_sk_storage_get(&muxes, sk, 0, 0);
                if (h && exchange_distance(copied, h->in_pos) > 0) {
                        mux_give_up(c, h, u);
                        c->tries = TRIES_MAX;
                        h = NULL;
                }
        }

        bpf_spin_lock(&c->lock);
        if (s && exchange_distance(copied, s->in_pos) > 0) {
                c->x.flags &= ~EXCHANGE_SEALED;
                c->tries = TRIES_MAX;
                s = NULL;
        }
        /* Read without passing requests_content: spliced */
        if (t && exchange_distance(copied, t->in_pos) > 0) {
                talk_give_up(t, &c->x, &effect);
                c->tries = TRIES_MAX;
                t = NULL;
        }
        if (t) {
                exchange_take(&c->x, copied, &first_at, &last_at);
                talk_read(t, now);
                talk_settle(t, &c->x, now, unsent == 0, &effect);
        } else if (h) {
                exchange_take(&c->x, copied, &first_at, &last_at);
                h2_settle(h, &c->x, now, &effect);
        } else if (s && !s->asks)
                exchange_pass(&c->x, copied, &effect);
        else {
                exchange_read(&c->x, now, copied, unsent, &effect);
                if (s)
                        s->asks = 0;
                if (o) {
                        o->came_first_at = c->x.first_at;
                        o->came_last_at = c->x.last_at;
                        o->asked = c->x.open_at != 0;
                }
        }
        p = conn_note(c, &effect);
        bpf_spin_unlock(&c->lock);
        question_read(now);

        if (effect.in_flight != 0 || effect.overlap) {
                u = place_get(u, &p);
                if (!u)
                        return 0;
                window_enter(u, now);
                share_apply(u, p.share, &effect);
        }
        return 0;
}

SEC("tp_btf/tcp_rcv_space_adjust")
int BPF_PROG(requests_read, struct sock *sk) {
        struct tcp_sock *tp;
        struct qos_unit *u;
        struct conn *c;
        __u32 copied;

        if (connection_is_gone(sk))
                return 0;
        c = bpf_sk_storage_get(&conns, sk, 0, 0);
        u = c && c->kind == CONN_CLIENT ? unit_get(&c->owner) : NULL;
        if (!u) {
                if (server_has_read(sk, c) == READ_UNSEALED)
                        unsealed_has_read(sk);
                return 0;
        }
        if (!(c->x.flags & EXCHANGE_PIPED))
                return 0;
        tp = bpf_skc_to_tcp_sock(sk);
        if (!tp)
                return 0;
        copied = tp->copied_seq - (tp->copied_seq == tp->rcv_nxt && fin_received(sk));
        /* Read without passing requests_content: spliced */
        return exchange_distance(copied, c->x.read_end) > 0 ? client_has_read(sk, c, u, copied, true) : 0;
}

/* The connection's own count, which has segments where a buffer that is sent again may be several. */
static __always_inline void conn_count_retransmits(struct conn *c, __u32 total, struct qos_unit *u) {
        __u32 old = *(volatile __u32*) &c->retransmits;

        if ((__s32) (total - old) <= 0 || __sync_val_compare_and_swap(&c->retransmits, old, total) != old)
                return;
        window_count(u, QOS_CELL_RETRANSMITS, total - old);
}

/* ---- connections begin and end -------------------------------------------------------------------------------- */

static __always_inline void listener_learn(struct sock *sk, const struct qos_owner *owner, struct qos_unit *u, bool found) {
        struct qos_listener *l;
        struct conn *c;

        /* When it is called from inet_sock_set_state the socket is not in that state yet */
        c = conn_learn(sk, CONN_LISTENER, owner, u);
        if (!c)
                return;
        c->found = found;

        l = bpf_sk_storage_get(&listeners, sk, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
        if (!l) {
                statistics_count(QOS_STATISTIC_SOCKETS_LOST);
                return;
        }
        if (!owner_equal(&l->owner, owner)) {
                l->owner = *owner;
                l->drops = sk->sk_drops.counter;
        }
}

/* What a connection that ends with a question open says about the unit. */
static __always_inline __u32 end_cell(int error, int old_state) {
        if (error == ETIMEDOUT)
                return QOS_CELL_ERRORS_TIMEOUT;
        if (error != 0)
                return QOS_CELL_CLIENT_ABORTS; /* a reset has come */
        if (old_state == TCP_CLOSE_WAIT || old_state == TCP_LAST_ACK || old_state == TCP_CLOSING)
                return QOS_CELL_CLIENT_ABORTS; /* the client hung up first */
        return QOS_CELL_ERRORS_RESET;
}

static __always_inline int state_changed(struct sock *sk, int old_state, int new_state) {
        struct exchange_effect effect = {};
        struct qos_owner owner;
        struct tcp_sock *tp;
        struct qos_unit *u;
        struct conn *c;
        struct place p;
        __u64 now;

        if (new_state == TCP_LISTEN) {
                if (!task_owner(&owner))
                        return 0;
                u = unit_get(&owner);
                if (u)
                        listener_learn(sk, &owner, u, false);
                return 0;
        }

        if (new_state == TCP_SYN_SENT) {
                /* connect(), its address is known by now. A socket may be used for that again and again */
                if (!task_owner(&owner))
                        return 0;
                u = unit_get(&owner);
                c = u ? conn_learn(sk, CONN_CLIENT, &owner, u) : NULL;
                if (c) {
                        client_begins(sk, c, &owner);
                        c->tcp_state = new_state;
                }
                return 0;
        }

        c = bpf_sk_storage_get(&conns, sk, 0, 0);
        if (!c)
                return 0;

        if (old_state == TCP_LISTEN) {
                struct qos_listener *l;

                if (new_state == TCP_CLOSE) {
                        l = bpf_sk_storage_get(&listeners, sk, 0, 0);
                        if (l)
                                listener_account(sk, l);
                }
                return 0;
        }

        /* Seen by the other of the two programs below */
        if (c->tcp_state == new_state)
                return 0;
        c->tcp_state = new_state;

        if (c->kind == CONN_OTHER)
                return 0;
        u = unit_get(&c->owner);
        if (!u) {
                struct seal *s = new_state == TCP_CLOSE ? bpf_sk_storage_get(&seals, sk, 0, 0) : NULL;

                return s ? unsealed_forget(sk, s) : 0;
        }
        if (c->kind == CONN_CLIENT) {
                /* shutdown() for writing alone may be part of a question */
                if (new_state == TCP_CLOSE || new_state == TCP_CLOSE_WAIT ||
                    (new_state == TCP_FIN_WAIT1 && sk->sk_shutdown == SHUTDOWN_MASK))
                        client_ends(c, u, sk->sk_err, old_state, new_state);
                return 0;
        }
        tp = bpf_skc_to_tcp_sock(sk);
        if (!tp)
                return 0;

        now = bpf_ktime_get_ns();

        if (new_state == TCP_ESTABLISHED && old_state == TCP_SYN_RECV) {
                __u32 zero = 0, copied = tp->copied_seq, window_end = tp->rcv_wup + tp->rcv_wnd;
                struct handover *h = bpf_map_lookup_elem(&handovers, &zero);

                window_enter(u, now);
                window_count(u, QOS_CELL_ACCEPTED, 1);

                /* Perhaps not the first of its data: segments overtake each other, and the acknowledgement */
                if (h && (h->at == 0 || h->client_port != sk->__sk_common.skc_dport ||
                          exchange_distance(h->seq, copied) < 0 || exchange_distance(window_end, h->end) < 0))
                        h = NULL;

                if (c->kind == CONN_LISTENER)
                        conn_accept(c, u, tp, copied, h ? h->at : now);

                /* Also where a segment on another CPU was faster than this one, and has made the connection ours */
                if (h) {
                        bpf_spin_lock(&c->lock);
                        exchange_arrive(&c->x, h->at, h->seq, h->end, copied, window_end, &effect);
                        p = conn_note(c, &effect);
                        bpf_spin_unlock(&c->lock);
                        h->at = 0;

                        u = place_get(u, &p);
                        if (!u)
                                return 0;
                        share_sum(u, p.share, QOS_SUM_BYTES_IN, QOS_ROW_SUM_BYTES_IN, effect.bytes);
                        share_apply(u, p.share, &effect);
                }

                conn_count(c, u, true);
                return 0;
        }

        if (new_state == TCP_FIN_WAIT1 || new_state == TCP_LAST_ACK || new_state == TCP_CLOSE) {
                __u32 unsent = tp->write_seq - tp->snd_nxt, asked;
                bool gone = new_state == TCP_CLOSE;
                struct unsealed *o = NULL;
                struct talk *t = NULL;
                struct seal *s = NULL;
                struct h2 *h = NULL;
                bool muxed;

                if (c->x.flags & EXCHANGE_PARSED)
                        t = bpf_sk_storage_get(&talks, sk, 0, 0);
                else if (c->x.flags & EXCHANGE_MUXED)
                        h = bpf_sk_storage_get(&muxes, sk, 0, 0);
                else if (c->x.flags & EXCHANGE_SEALED || c->tries >= TRIES_MAX || gone) {
                        s = bpf_sk_storage_get(&seals, sk, 0, 0);
                        o = s && s->key.ssl != 0 ? bpf_map_lookup_elem(&unsealed, &s->key) : NULL;
                        if (o && o->sock != (__u64) (long) sk)
                                o = NULL;
                        if (o && o->talk.protocol != PROTOCOL_PLAIN && o->talk.protocol != PROTOCOL_HTTP2 && unsealed_enter(o))
                                t = &o->talk;
                }
                muxed = o && o->talk.protocol == PROTOCOL_HTTP2;

                bpf_spin_lock(&c->lock);
                if ((c->x.flags & EXCHANGE_SEALED) && unsent == 0 && !(t && t->asked > 0))
                        tls_end(&c->x, s ? &s->tls : NULL, &effect);
                asked = t ? talk_waiting(t) : h ? h->open : c->x.state == EXCHANGE_ASKED;
                /* What was not read of frames is perhaps no question (GOAWAY) */
                if ((h && asked == 0) || muxed)
                        exchange_shut(&c->x, &effect);
                if (t && !gone)
                        talk_hang_up(t, &c->x, now, unsent, &effect);
                exchange_end(&c->x, gone, asked, unsent, &effect);
                if (t && effect.unanswered) {
                        talk_forget(t);
                        effect.in_flight += talk_extra(t);
                }
                if (h && effect.unanswered) {
                        h->open = 0;
                        effect.in_flight += h2_extra(h);
                }
                if (gone)
                        effect.in_flight = -c->in_flight; /* also what was known to somebody who is at it */
                p = conn_note(c, &effect);
                bpf_spin_unlock(&c->lock);
                if (h && effect.unanswered)
                        h2_clear(h);
                if (o && t)
                        unsealed_leave(o);

                if (o && gone)
                        bpf_map_delete_elem(&unsealed, &s->key);
                if (muxed && (gone || unsent == 0))
                        effect.unanswered = unsealed_mux_drop(&s->key);
                else if (muxed)
                        unsealed_mux_settle(o);
                if (o && gone)
                        s->key.ssl = 0;
                u = place_get(u, &p);
                if (!u)
                        return 0;
                window_enter(u, now);
                if (effect.unanswered) {
                        __u32 cell = end_cell(sk->sk_err, old_state);

                        share_count(u, p.share, cell, cell - QOS_CELL_ERRORS_RESET + QOS_ROW_ERRORS_RESET, effect.unanswered);
                }
                /* One that failed to leave is in the count, and is not traced by all kernels */
                conn_count_retransmits(c, tp->total_retrans, u);
                share_apply(u, p.share, &effect);
                if (gone)
                        conn_count(c, u, false);
        }
        return 0;
}

/* A task's program may be interrupted by packets that change the state of other sockets. The kernel lets no program interrupt
 * itself, and what comes is lost to it, the end of a handshake with the data that it brought as well as the end of a
 * connection. Therefore there are two, of which one is free unless interrupts interrupt interrupts, and whoever is first
 * does it. */
SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(requests_state, struct sock *sk, int old_state, int new_state) {
        return state_changed(sk, old_state, new_state);
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(requests_state_too, struct sock *sk, int old_state, int new_state) {
        return state_changed(sk, old_state, new_state);
}

SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(requests_retransmit, struct sock *sk) {
        struct tcp_sock *tp;
        struct qos_unit *u;
        struct conn *c;

        c = bpf_sk_storage_get(&conns, sk, 0, 0);
        if (!c || c->kind != CONN_SERVER)
                return 0;
        u = unit_get(&c->owner);
        tp = u ? bpf_skc_to_tcp_sock(sk) : NULL;
        if (!tp)
                return 0;

        window_enter(u, bpf_ktime_get_ns());
        conn_count_retransmits(c, tp->total_retrans, u);
        return 0;
}

/* ---- iterators ------------------------------------------------------------------------------------------------ */

/* Does the one lie in the other? */
static __attribute__((noinline)) int owner_is_inside(const struct qos_owner *inner, const struct qos_owner *outer) {
        struct qos_owner o;

        if (!inner || !outer)
                return 0;
        o = *inner;
        for (int i = 0; i < QOS_NEST_DEPTH; i++) {
                const struct qos_nest *nest = bpf_map_lookup_elem(&nests, &o.slot);

                if (!nest || nest->generation != o.generation)
                        return 0;
                o = owner_read(&nest->outer);
                if (o.generation == 0)
                        return 0;
                if (owner_equal(&o, outer))
                        return 1;
        }
        return 0;
}

/* With its connections' storage, or its listener's. */
static __always_inline void socket_move(struct sock *sk, struct conn *c, const struct qos_owner *to) {
        struct qos_listener *l;

        conn_move(sk, c, to);
        l = bpf_sk_storage_get(&listeners, sk, 0, 0);
        if (l)
                l->owner = *to;
}

/* The sockets that tasks of observed units have open already: run at attach, and when a unit has started. */
SEC("iter/task_file")
int units_find_sockets(struct bpf_iter__task_file *ctx) {
        struct task_struct *task = ctx->task;
        struct file *file = ctx->file;
        struct exchange_effect effect = {};
        __u32 rcv_nxt, copied, snd_nxt;
        struct qos_owner *group, owner, known;
        struct socket *socket;
        struct tcp_sock *tp;
        struct qos_unit *u;
        struct sock *sk;
        struct conn *c;
        __u64 now;

        if (!task || !file)
                return 0;

        group = bpf_cgrp_storage_get(&groups, task->cgroups->dfl_cgrp, 0, 0);
        if (!group)
                return 0;
        owner = owner_read(group);
        u = unit_get(&owner);
        if (!u || file_is_managers(task, &owner, file, ctx->fd))
                return 0;

        socket = bpf_sock_from_file(file);
        if (!socket)
                return 0;
        sk = socket->sk;
        if (!sk)
                return 0;

        /* The listeners of MPTCP lie behind another socket, where the verifier lets no program go from here: their
         * connections are learned when they are read */
        if (sk->sk_protocol != IPPROTO_TCP)
                return 0;
        /* bpf_skc_to_tcp_sock() wants a pointer that the verifier trusts, which one read from a file is not */
        tp = bpf_rdonly_cast(sk, bpf_core_type_id_kernel(struct tcp_sock));

        c = bpf_sk_storage_get(&conns, sk, 0, 0);
        if (c) {
                known = owner_read(&c->owner);
                if (unit_get(&known)) {
                        /* That of a unit around this one, before this one was attached */
                        if (owner_is_inside(&owner, &known)) {
                                if (c->kind == CONN_LISTENER)
                                        c->found = CONN_FOUND_OUTER; /* it may be several's */
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
        /* Nothing is in flight that was read before now: what was asked of the unit before the attach is not counted.
         * What is unread came at the latest now */
        now = bpf_ktime_get_ns();
        copied = tp->copied_seq;
        rcv_nxt = tp->rcv_nxt;
        snd_nxt = tp->snd_nxt;

        bpf_spin_lock(&c->lock);
        if (!(c->x.flags & (EXCHANGE_IN_KNOWN | EXCHANGE_READ_KNOWN | EXCHANGE_OUT_KNOWN))) {
                exchange_begin(&c->x, c->kind == CONN_CLIENT ? rcv_nxt : copied, copied, snd_nxt);
                if (rcv_nxt != copied && c->kind == CONN_SERVER)
                        exchange_arrive(&c->x, now, copied, rcv_nxt, copied, rcv_nxt, &effect);
        }
        bpf_spin_unlock(&c->lock);

        conn_apply(c, u, &effect, now);
        return 0;
}

/* After a unit was attached in another, or was detached there: run over all known sockets. Those in no table of files are
 * with the outer one still, and what was a detached one's is the outer one's now. */
SEC("iter/bpf_sk_storage_map")
int units_settle(struct bpf_iter__bpf_sk_storage_map *ctx) {
        struct qos_session session = { .id = ctx->meta->session_id };
        struct sock *sk = ctx->sk;
        const struct qos_nest *nest;
        struct qos_owner owner, to;
        struct conn *c;

        if (!sk) {
                bpf_seq_write(ctx->meta->seq, &session, sizeof(session));
                return 0;
        }
        c = bpf_sk_storage_get(&conns, sk, 0, 0);
        if (!c)
                return 0;
        owner = owner_read(&c->owner);
        nest = bpf_map_lookup_elem(&nests, &owner.slot);
        if (!nest || nest->generation != owner.generation)
                return 0;

        if (nest->flags & QOS_NEST_CLOSED) {
                to = owner_read(&nest->outer);
                if (to.generation != 0)
                        socket_move(sk, c, &to);
        } else if (nest->flags & QOS_NEST_LOOK && c->found == 0 && sk->__sk_common.skc_state != TCP_LISTEN)
                c->found = CONN_FOUND_OUTER;
        return 0;
}


/* The listeners that the service manager (the only task that is looked at) has opened: lists them all, and makes those at
 * known addresses their unit's. */
SEC("iter/task_file")
int units_find_passed(struct bpf_iter__task_file *ctx) {
        struct qos_passed passed = {};
        struct file *file = ctx->file;
        struct qos_owner *known, owner;
        struct socket *socket;
        struct qos_unit *u;
        struct sock *sk;
        struct conn *c;

        if (!ctx->task || !file)
                return 0;
        socket = bpf_sock_from_file(file);
        if (!socket)
                return 0;
        sk = socket->sk;
        if (!sk || sk->sk_protocol != IPPROTO_TCP || sk->__sk_common.skc_state != TCP_LISTEN)
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

/* Accept queues: their length and limit are only in the listeners. */
SEC("iter/bpf_sk_storage_map")
int requests_listeners(struct bpf_iter__bpf_sk_storage_map *ctx) {
        struct qos_session session = { .id = ctx->meta->session_id };
        struct sock *sk = ctx->sk;
        struct qos_listener *l;
        struct qos_unit *u;

        if (!sk) {
                bpf_seq_write(ctx->meta->seq, &session, sizeof(session));
                return 0;
        }
        l = bpf_sk_storage_get(&listeners, sk, 0, 0);
        if (!l || sk->__sk_common.skc_state != TCP_LISTEN)
                return 0;
        u = unit_get(&l->owner);
        if (!u)
                return 0;

        listener_account(sk, l);
        if (u->listeners_session != session.id) {
                u->accept_queue = 0;
                u->accept_queue_max = 0;
                u->listeners_session = session.id;
        }
        u->accept_queue += sk->sk_ack_backlog;
        u->accept_queue_max += sk->sk_max_ack_backlog;
        return 0;
}

struct oldest_search {
        const struct h2 *h;
        struct qos_unit *u;
        __u64 now;
        __u64 at;
};

static long oldest_step(__u64 i, void *data) {
        struct oldest_search *o = data;
        const struct h2_stream *s = &o->h->streams[i & (H2_STREAMS - 1)];

        if (s->id == 0 || s->first_at == 0 || s->flags & H2_STREAM_EXCLUDED)
                return 0;
        if (s->first_at < o->at)
                o->at = s->first_at;
        if (s->first_out_at == 0)
                waiting_add(o->u->waiting, o->now, s->first_at, 1);
        return 0;
}

/* Of those that the application has read: the ones that did not ask to wait. */
static __attribute__((noinline)) int oldest_talk(struct qos_unit *u, const struct talk *t, __u64 now) {
        if (!u || !t)
                return 0;
        for (int i = 0; i < TALK_GROUPS; i++) {
                const struct talk_group *g = &t->groups[(t->head + i) & (TALK_GROUPS - 1)];

                if (i < t->n_groups && !g->waits && g->n > g->excluded && g->first_at != 0)
                        waiting_add(u->waiting, now, g->first_at, g->n - g->excluded);
        }
        return 0;
}

/* What an endpoint that has never answered anything has read is in flight no longer (it collects logs): it would be for as long as its
 * connections are open. */
static __attribute__((noinline)) int question_ignore(struct conn *c, struct qos_unit *u, __u64 now) {
        struct exchange_effect effect = {};
        struct place p;

        if (!c || !u || share_has_answered(u, c->share))
                return 0;

        bpf_spin_lock(&c->lock);
        if (exchange_is_ignored(&c->x, now)) {
                c->x.flags |= EXCHANGE_ONE_WAY;
                exchange_shut(&c->x, &effect);
        }
        p = conn_note(c, &effect);
        bpf_spin_unlock(&c->lock);
        u = effect.in_flight != 0 ? place_get(u, &p) : NULL;
        if (u) {
                window_enter(u, now);
                share_apply(u, p.share, &effect);
        }
        return effect.in_flight != 0;
}

/* The oldest question of each unit that is in flight, and how long those wait of which no answer has begun to leave. */
SEC("iter/bpf_sk_storage_map")
int requests_oldest(struct bpf_iter__bpf_sk_storage_map *ctx) {
        struct qos_session session = { .id = ctx->meta->session_id };
        struct oldest_search o = { .now = bpf_ktime_get_ns(), .at = ~0ULL };
        struct sock *sk = ctx->sk;
        struct qos_unit *u;
        struct talk *t;
        struct conn *c;
        __u64 at;

        if (!sk) {
                bpf_seq_write(ctx->meta->seq, &session, sizeof(session));
                return 0;
        }
        c = bpf_sk_storage_get(&conns, sk, 0, 0);
        if (!c || c->kind != CONN_SERVER || c->share & SHARE_ALONE)
                return 0;
        at = *(volatile __u64*) &c->x.open_at;
        if (c->x.flags & EXCHANGE_MUXED)
                o.h = bpf_sk_storage_get(&muxes, sk, 0, 0);
        else if (c->x.flags & EXCHANGE_SEALED) {
                struct seal *s = bpf_sk_storage_get(&seals, sk, 0, 0);
                struct unsealed_mux *m = s && s->key.ssl != 0 ? bpf_map_lookup_elem(&unsealed_muxes, &s->key) : NULL;

                if (m)
                        o.h = &m->h2;
        }
        if (at == 0 && !(o.h && o.h->open > 0))
                return 0;
        u = unit_get(&c->owner);
        if (!u)
                return 0;
        if (!(c->x.flags & (EXCHANGE_PARSED | EXCHANGE_MUXED)) && exchange_is_ignored(&c->x, o.now) && question_ignore(c, u, o.now))
                return 0;

        if (u->oldest_session != session.id) {
                u->oldest_at = ~0ULL;
                for (int i = 0; i < QOS_WAITING_BINS; i++)
                        u->waiting[i] = 0;
                u->oldest_session = session.id;
        }

        if (o.h) {
                o.u = u;
                if (o.h->open > 0)
                        bpf_loop(H2_STREAMS, oldest_step, &o, 0);
                if (o.at != ~0ULL)
                        at = o.at;
        } else {
                t = c->x.flags & EXCHANGE_PARSED ? bpf_sk_storage_get(&talks, sk, 0, 0) : 0;
                if (t && t->n_groups > 0)
                        oldest_talk(u, t, o.now);
                else if (at > c->x.first_out_at) /* else what is in flight is an answer that leaves */
                        waiting_add(u->waiting, o.now, at, 1);
        }

        if (at != 0 && at < u->oldest_at)
                u->oldest_at = at;
        return 0;
}

/* Gives all sockets the share that is theirs now: what is excluded has changed, or listeners were found. Not by the files of
 * tasks, which sockets that wait to be accepted, that PID 1 holds, or that io_uring has alone, are not in. */
SEC("iter/bpf_sk_storage_map")
int requests_share(struct bpf_iter__bpf_sk_storage_map *ctx) {
        struct qos_session session = { .id = ctx->meta->session_id };
        struct sock *sk = ctx->sk;
        struct qos_owner owner;
        struct conn *c;

        if (!sk) {
                bpf_seq_write(ctx->meta->seq, &session, sizeof(session));
                return 0;
        }
        c = bpf_sk_storage_get(&conns, sk, 0, 0);
        if (!c || (c->kind != CONN_LISTENER && c->kind != CONN_SERVER) || sk->__sk_common.skc_state == TCP_CLOSE)
                return 0;
        owner = owner_read(&c->owner);
        if (unit_get(&owner))
                conn_move(sk, c, &owner);
        return 0;
}
