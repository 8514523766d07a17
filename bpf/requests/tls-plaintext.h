/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

/* Sealed connections whose plaintext is seen (the probe "tls"). What openssl.bpf.c, which sees what goes
 * into the library and comes out of it, and tls-conn.h, which sees when it came and left, know of one
 * together.
 *
 * The programs on the library have no way to sockets, nor may they take their locks. They parse, and keep
 * which questions and answers there are; what these mean to the unit is booked where the sealed bytes leave,
 * as for any connection that is parsed (transmit_record()).
 *
 * Which socket has the sealed bytes of an object of the library is seen where bytes are copied out of a
 * socket while a task is in a call of it. Who reads them elsewhere and hands them over has connections
 * without an entry here, which are counted by their records (tls-record.h). */

#include "maps.h"
#include "http2.h"

/* An object of the library ("SSL"), in a process. */
struct tls_plaintext_key {
        __u64 ssl;              /* its address; 0: none */
        __u32 tgid;
        __u32 _padding;
};

struct tls_plaintext {
        struct pipeline pipeline;       /* of no protocol: it is not known, and the connection is counted by
                                         * its records still;
                                 * of HTTP/2: it is in plaintext_h2 */
        struct tls_plaintext_key key; /* the element of a map may become another's while somebody holds it */
        __u64 sock;             /* the address of its struct sock */
        __u64 came_first_at;    /* when the sealed bytes came that were read last … */
        __u64 came_last_at;
        __u64 missed_at;        /* when something left while another program was at it; 0: nothing did */
        __u32 generation;       /* of the unit */
        __u32 target;            /* as that of the socket is */
        __u32 busy;             /* the CPU, from 1, whose program is at it; 0: none */
        __u32 position;         /* bytes of questions that were parsed, modulo 2^32 */
        __u32 ahead;            /* bytes of answers that were parsed and that the library is to be given
                                 * again */
        __u32 pending;          /* answers that began and have not left … */
        __u32 pending_position; /* … which they have when the stream is beyond this: a sequence number */
        __u32 streams;          /* as in struct parsed_chunk, of these */
        __u32 status4xx;
        __u32 status5xx;
        __u8 lost;              /* the parser has lost its place, or something was not seen */
        __u8 begins;            /* what is read next may be the beginning of a question */
        __u8 unread;            /* sealed bytes were read, and nothing of them has come out of the library
                                 * yet */
        __u8 growing;           /* what leaves is the rest of an answer that has begun to leave */
        __u8 astray;            /* an answer was not understood */
        __u8 tunnel;            /* behind the answers that are pending nothing is asked any more */
        __u8 tries;             /* how often its protocol was looked for in vain */
        __u8 strays;            /* how often something has left that nobody was seen to write */
        __u8 late;              /* what was said before was not seen */
        __u8 asked;             /* of the socket something is in flight */
        __u8 delivered;         /* the library has returned data from the client */
};

/* Connections that are open at a time: 1 KiB each, as long as they are. */
struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __uint(map_flags, BPF_F_NO_PREALLOC);
        __uint(max_entries, 16384);
        __type(key, struct tls_plaintext_key);
        __type(value, struct tls_plaintext);
} plaintext SEC(".maps") __weak;

/* Those that speak HTTP/2. Which questions there are, and when their answers are written, is known in the
 * library alone: what is in flight and what is answered is booked from there, with times of answers that end
 * where they are handed to the library. */
struct tls_plaintext_h2 {
        struct h2_conn h2;
        struct h2_more more;
        struct qos_owner owner; /* in whose gauge … */
        __u32 target;            /* … and with which share … */
        __s32 counted;          /* … so many questions are */
        __u32 known;            /* streams that are among these */
        __u32 gone;             /* 1: nothing of it is in flight, whoever is at it still */
};

/* Connections that are open at a time: 15 KiB each, as long as they are, of which the kernel makes 16. 64
 * MiB are what all of a machine's may take; those that have no room are counted by their records, and in the
 * drops. */
struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __uint(map_flags, BPF_F_NO_PREALLOC);
        __uint(max_entries, 4096);
        __type(key, struct tls_plaintext_key);
        __type(value, struct tls_plaintext_h2);
} plaintext_h2 SEC(".maps") __weak;

/* Books it where the connection is at that time. */
static __attribute__((noinline)) int tls_plaintext_h2_record(struct tls_plaintext_h2 *m, __s32 in_flight) {
        struct exchange_effect effect = { .in_flight = in_flight };
        struct qos_owner owner;
        struct qos_unit_map *u;
        __u32 target;

        if (!m || in_flight == 0)
                return 0;
        owner = m->owner;
        target = m->target;
        u = unit_get(&owner);
        if (!u)
                return 0;
        window_advance(u, bpf_ktime_get_ns());
        record_effect(u, target_resolve(u, target), &effect);
        return 0;
}

/* So many more are in flight. The end of the connection comes from elsewhere, and neither waits for the
 * other: what is added behind it is taken back at once. */
static __attribute__((noinline)) int tls_plaintext_h2_count(struct tls_plaintext_h2 *m, __s32 more) {
        if (!m || more == 0)
                return 0;
        __sync_fetch_and_add(&m->counted, more);
        tls_plaintext_h2_record(m, more);
        if (*(volatile __u32*) &m->gone)
                tls_plaintext_h2_record(m, -(__s32) __sync_lock_test_and_set(&m->counted, 0));
        return 0;
}

/* Nothing is known any more of what is in frames on the object. Returns how many streams were open. */
static __attribute__((noinline)) __u32 tls_plaintext_h2_drop(const struct tls_plaintext_key *key) {
        struct tls_plaintext_h2 *m;
        __u32 open;

        if (!key)
                return 0;
        m = bpf_map_lookup_elem(&plaintext_h2, key);
        if (!m)
                return 0;
        open = __sync_lock_test_and_set(&m->gone, 1) ? 0 : m->known;
        tls_plaintext_h2_record(m, -(__s32) __sync_lock_test_and_set(&m->counted, 0));
        bpf_map_delete_elem(&plaintext_h2, key);
        return open;
}

/* The call of the library that a task is in. */
struct library_call {
        struct tls_plaintext_key key;
        __u64 stack;            /* the stack pointer at its beginning */
        __u64 buffer;
        __u64 count;            /* where it says how much was read or written; 0: it returns that */
        __u32 size;             /* of the buffer, what is to be written of it */
        __u32 kind;             /* enum qos_openssl_call */
        __u32 inner;            /* calls within it */
        __u32 _padding;
};

BPF_STORAGE_MAP(openssl_calls, TASK, struct library_call) __weak;

/* What this unit is watched with besides requests; NULL: its plaintext is not to be looked at. */
static __always_inline struct qos_probe_config* watch_get(const struct qos_owner *owner) {
        struct qos_probe_config *w = bpf_map_lookup_elem(&probe_configs, &owner->slot);

        return w && w->generation == owner->generation && w->probes & QOS_PROBE_CONFIG_TLS ? w : NULL;
}

static __always_inline bool tls_plaintext_key_equal(const struct tls_plaintext_key *a,
                const struct tls_plaintext_key *b) {
        return a->ssl == b->ssl && a->tgid == b->tgid;
}

/* Rounds of waiting for another CPU: some 5 us, in which a request is parsed or booked. On this CPU nobody
 * waits, it is a packet that has interrupted who is at it. */
#define TLS_PLAINTEXT_ROUNDS 128

BPF_SUBPROG int tls_plaintext_lock(struct tls_plaintext *o) {
        __u32 me = bpf_get_smp_processor_id() + 1, other;

        BPF_REQUIRE(o);
        for (int i = 0; i < TLS_PLAINTEXT_ROUNDS; i++) {
                other = __sync_val_compare_and_swap(&o->busy, 0, me);
                if (other == 0)
                        return 1;
                if (other == me)
                        return 0;
        }
        return 0;
}

static __always_inline void tls_plaintext_unlock(struct tls_plaintext *o) {
        (void) __sync_lock_test_and_set(&o->busy, 0);
}
