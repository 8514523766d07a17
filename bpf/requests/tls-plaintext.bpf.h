/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

/* Plaintext of TLS connections (probe "tls"): state shared by openssl.bpf.c, which sees data passed to and
 * returned by the library, and tls-conn.bpf.h, which sees when it is received and sent.
 *
 * The programs in the library can neither reach sockets nor take their locks. They parse, and store requests
 * and responses; metrics are recorded when the records are sent, as for any parsed connection
 * (transmit_record()).
 *
 * The socket of a library object is identified by data that is copied from it while a task is in a library
 * call. Applications that read from the socket themselves and pass the data to the library have connections
 * without an element here, which are counted by their records (tls-record.h). */

#include "maps.h"
#include "http2.h"

/* A library object ("SSL") of a process. */
struct tls_plaintext_key {
        __u64 ssl;              /* its address; 0: none */
        __u32 tgid;
        __u32 _padding;
};

struct tls_plaintext {
        struct pipeline pipeline;       /* PROTOCOL_PLAIN: unknown so far, counted by records; HTTP/2: see
                                         * plaintext_h2 */
        struct tls_plaintext_key key;   /* own key: the element may be reassigned while a program uses it */
        __u64 sock;             /* address of the struct sock */
        __u64 came_first_at;    /* arrival of the first and the last record read */
        __u64 came_last_at;
        __u64 missed_at;        /* time at which data was sent while another program had the lock; 0: none */
        __u32 generation;       /* of the unit */
        __u32 target;           /* of the socket */
        __u32 busy;             /* lock: CPU + 1 of the program that holds it; 0: free */
        __u32 position;         /* bytes of requests parsed, modulo 2^32 */
        __u32 read_end;         /* sequence number up to which came_first_at and came_last_at are known */
        __u32 ahead;            /* bytes of responses that were parsed, but refused by the library, and will
                                 * be passed again */
        __u32 pending;          /* responses begun, but not sent */
        __u32 pending_position; /* sequence number after which they are sent */
        __u32 streams;          /* counters of these as in struct parsed_chunk */
        __u32 status4xx;
        __u32 failed;
        __u8 lost;              /* 1: the parser is lost, or data was missed */
        __u8 begins;            /* 1: the next data read may begin a request */
        __u8 unread;            /* 1: records were read, but not returned by the library yet */
        __u8 growing;           /* 1: data sent is the rest of a response */
        __u8 astray;            /* 1: a response could not be parsed */
        __u8 tunnel;            /* 1: no requests follow the pending responses */
        __u8 tries;             /* failed attempts to detect the protocol */
        __u8 strays;            /* number of times that data was sent without a write to the library */
        __u8 late;              /* 1: earlier data was not seen */
        __u8 requested;         /* 1: a request of the socket is in flight */
        __u8 delivered;         /* 1: the library has returned data from the client */
        __u8 untimed;           /* 1: the library has returned data before the read was seen: came_first_at
                                 * and came_last_at are those of earlier data */
};

/* Size: concurrent connections, 1 KiB each while open. */
struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __uint(map_flags, BPF_F_NO_PREALLOC);
        __uint(max_entries, 16384);
        __type(key, struct tls_plaintext_key);
        __type(value, struct tls_plaintext);
} plaintext SEC(".maps") __weak;

/* HTTP/2 connections. Requests and responses are only known in the library: they are recorded there, and a
 * response ends when it is passed to the library. */
struct tls_plaintext_h2 {
        struct h2_conn h2;
        struct h2_more more;
        struct qos_owner owner; /* unit with the gauge */
        __u32 target;           /* of the socket */
        __s32 counted;          /* contribution to the gauge */
        __u32 known;            /* streams included in counted */
        __u32 gone;             /* 1: the connection has ended, and nothing is in flight, even if a program
                                 * is still running */
};

/* Size: concurrent connections, 15 KiB each while open (16 as allocated), hence at most 64 MiB for the whole
 * machine. Further ones are counted by their records, and in the drops. */
struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __uint(map_flags, BPF_F_NO_PREALLOC);
        __uint(max_entries, 4096);
        __type(key, struct tls_plaintext_key);
        __type(value, struct tls_plaintext_h2);
} plaintext_h2 SEC(".maps") __weak;

/* Changes the gauge of requests in flight for the current owner of the connection. */
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

/* Adds to the requests in flight, without waiting for a concurrent end of the connection: what is added
 * after that is undone at once. */
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
        __u64 stack;            /* stack pointer at its entry */
        __u64 buffer;
        __u64 count;            /* pointer to the returned count; 0: the return value is the count */
        __u32 size;             /* of the buffer, or number of bytes to write */
        __u32 kind;             /* enum qos_openssl_call */
        __u32 inner;            /* depth of nested calls */
        __u32 _padding;
};

BPF_STORAGE_MAP(openssl_calls, TASK, struct library_call) __weak;

/* Probe configuration of a unit with the probe "tls"; NULL: its plaintext is not observed. */
static __always_inline struct qos_probe_config* watch_get(const struct qos_owner *owner) {
        struct qos_probe_config *w = bpf_map_lookup_elem(&probe_configs, &owner->slot);

        return w && w->generation == owner->generation && w->probes & QOS_PROBE_CONFIG_TLS ? w : NULL;
}

static __always_inline bool tls_plaintext_key_equal(const struct tls_plaintext_key *a,
                const struct tls_plaintext_key *b) {
        return a->ssl == b->ssl && a->tgid == b->tgid;
}

/* Iterations of the wait for another CPU: about 5 us, enough to parse or record a request. A program never
 * waits for its own CPU, where a packet has interrupted the holder. */
#define TLS_PLAINTEXT_ROUNDS 128

BPF_SUBPROG int tls_plaintext_lock(struct tls_plaintext *plain) {
        __u32 me = bpf_get_smp_processor_id() + 1, other;

        BPF_REQUIRE(plain);
        for (int i = 0; i < TLS_PLAINTEXT_ROUNDS; i++) {
                other = __sync_val_compare_and_swap(&plain->busy, 0, me);
                if (other == 0)
                        return 1;
                if (other == me)
                        return 0;
        }
        return 0;
}

static __always_inline void tls_plaintext_unlock(struct tls_plaintext *plain) {
        (void) __sync_lock_test_and_set(&plain->busy, 0);
}
