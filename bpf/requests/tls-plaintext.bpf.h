/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

/* TLS connections of which the plaintext is observed (probe "tls"): state shared by openssl.bpf.c, which
 * sees data passed to and returned by the library, and tls-conn.bpf.h, which sees when it is received and
 * sent.
 *
 * The programs in the library can neither reach sockets nor take their locks. They parse, and keep requests
 * and responses; metrics are recorded when the records are sent, as for any parsed connection
 * (transmit_record()).
 *
 * The socket of a library object is identified by bytes copied from it while a task is in a library call.
 * Applications that read and pass the bytes themselves have connections without entry, which are counted by
 * their records (tls-record.h). */

#include "maps.h"
#include "http2.h"

/* A library object ("SSL") of a process. */
struct tls_plaintext_key {
        __u64 ssl;              /* its address; 0: none */
        __u32 tgid;
        __u32 _padding;
};

struct tls_plaintext {
        struct pipeline pipeline;       /* no protocol: unknown, counted by records so far; HTTP/2: see
                                         * plaintext_h2 */
        struct tls_plaintext_key key; /* the element may be reassigned while a program holds it */
        __u64 sock;             /* address of the struct sock */
        __u64 came_first_at;    /* arrival of the first and last record read */
        __u64 came_last_at;
        __u64 missed_at;        /* something was sent while another program had the lock; 0: nothing */
        __u32 generation;       /* of the unit */
        __u32 target;            /* as that of the socket */
        __u32 busy;             /* lock: CPU + 1 of the program that holds it; 0: free */
        __u32 position;         /* bytes of requests parsed, modulo 2^32 */
        __u32 read_end;         /* sequence number up to which came_first_at and came_last_at are known */
        __u32 ahead;            /* bytes of responses parsed that the library refused, and will be passed
                                 * again */
        __u32 pending;          /* responses begun and not sent */
        __u32 pending_position; /* sequence number beyond which they are sent */
        __u32 streams;          /* as in struct parsed_chunk, of these */
        __u32 status4xx;
        __u32 failed;
        __u8 lost;              /* the parser is lost, or data was missed */
        __u8 begins;            /* the next data read may begin a request */
        __u8 unread;            /* records were read, and not returned by the library yet */
        __u8 growing;           /* data sent is the rest of a response */
        __u8 astray;            /* a response could not be parsed */
        __u8 tunnel;            /* no requests behind the pending responses */
        __u8 tries;             /* failed attempts to detect the protocol */
        __u8 strays;            /* times that data was sent without a write seen */
        __u8 late;              /* earlier data was not seen */
        __u8 requested;         /* a request of the socket is in flight */
        __u8 delivered;         /* the library has returned data from the client */
        __u8 untimed;           /* it has returned data before the read was seen: came_first_at and
                                 * came_last_at are those of earlier data */
};

/* Concurrent connections, 1 KiB each while open. */
struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __uint(map_flags, BPF_F_NO_PREALLOC);
        __uint(max_entries, 16384);
        __type(key, struct tls_plaintext_key);
        __type(value, struct tls_plaintext);
} plaintext SEC(".maps") __weak;

/* Connections with HTTP/2. Requests and responses are known in the library only: they are recorded from
 * there, with responses ending when passed to the library. */
struct tls_plaintext_h2 {
        struct h2_conn h2;
        struct h2_more more;
        struct qos_owner owner; /* unit with the gauge */
        __u32 target;            /* target */
        __s32 counted;          /* contribution to the gauge */
        __u32 known;            /* streams in counted */
        __u32 gone;             /* 1: connection ended, nothing is in flight, even if a program is still
                                 * running */
};

/* Concurrent connections, 15 KiB each while open (16 as allocated): 64 MiB for the whole machine. Those
 * beyond are counted by their records, and in the drops. */
struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __uint(map_flags, BPF_F_NO_PREALLOC);
        __uint(max_entries, 4096);
        __type(key, struct tls_plaintext_key);
        __type(value, struct tls_plaintext_h2);
} plaintext_h2 SEC(".maps") __weak;

/* Records it for the current owner of the connection. */
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

/* Adds to the requests in flight. Does not wait for a concurrent end of the connection: what is added after
 * it is undone at once. */
static __attribute__((noinline)) int tls_plaintext_h2_count(struct tls_plaintext_h2 *m, __s32 more) {
        if (!m || more == 0)
                return 0;
        __sync_fetch_and_add(&m->counted, more);
        tls_plaintext_h2_record(m, more);
        if (*(volatile __u32*) &m->gone)
                tls_plaintext_h2_record(m, -(__s32) __sync_lock_test_and_set(&m->counted, 0));
        return 0;
}

/* Discards the HTTP/2 state of the object. Returns the number of open streams. */
static __attribute__((noinline)) __u32 tls_plaintext_h2_drop(const struct tls_plaintext_key *key) {
        struct tls_plaintext_h2 *m;
        __u32 open;

        if (!key)
                return 0;
        m = bpf_map_lookup_elem(&plaintext_h2, key);
        if (!m)
                return 0;
        open = __sync_lock_test_and_set(&m->gone, 1) || m->known == 0 ? 0 : h2_get_failed(&m->h2, m->known);
        tls_plaintext_h2_record(m, -(__s32) __sync_lock_test_and_set(&m->counted, 0));
        bpf_map_delete_elem(&plaintext_h2, key);
        return open;
}

/* The library call that a task is in. */
struct library_call {
        struct tls_plaintext_key key;
        __u64 stack;            /* stack pointer at its beginning */
        __u64 buffer;
        __u64 count;            /* pointer to the returned count; 0: it is the return value */
        __u32 size;             /* of the buffer, or bytes to write */
        __u32 kind;             /* enum qos_openssl_call */
        __u32 inner;            /* nested calls */
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

/* Iterations of waiting for another CPU: some 5 us, in which a request is parsed or recorded. Never waits
 * for the own CPU, where a packet has interrupted the holder. */
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
