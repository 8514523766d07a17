/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

/* The network maps of units, and the connections that are recorded in them. Shared by the programs of the
 * probe "network". */

#include "tcp-conn.bpf.h"

#include "flow.h"

static __always_inline union qos_network_element* network_element(void *map, __u32 i) {
        return bpf_map_lookup_elem(map, &i);
}

/* Writes the checkpoints of the map in the slot; verified once, as opposed to each place that records. */
BPF_SUBPROG int network_roll_slot(__u32 slot, __u64 epoch);
#define network_roll_due(map, h, epoch) network_roll_slot((h)->slot, epoch)

#include "network-record.h"

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
        __uint(max_entries, UNITS_MAX_LIMIT);
        __type(key, __u32);
        __array(values, struct {
                __uint(type, BPF_MAP_TYPE_ARRAY);
                __uint(map_flags, BPF_F_MMAPABLE);
                __uint(max_entries, QOS_NETWORK_ELEMENTS);
                __type(key, __u32);
                __uint(value_size, sizeof(union qos_network_element));
        });
} network_maps SEC(".maps") __weak;

BPF_SUBPROG int network_roll_slot(__u32 slot, __u64 epoch) {
        void *map = bpf_map_lookup_elem(&network_maps, &slot);
        struct qos_network_header *h = map ? network_header_get(map) : NULL;

        if (h)
                network_roll(map, h, epoch);
        return 0;
}

/* A connection of a unit with the probe (SK_STORAGE). */
struct flow {
        struct qos_owner owner; /* of what is recorded from now on; generation 0: none */
        __u32 generation;       /* of its network map */
        __u32 turn;             /* run to be measured next (overhead.h) */
        __u32 awaits;           /* 1: an acknowledgement is to be measured */
        __u32 recovers;         /* 1: from a loss */
        __u64 never;            /* 0, see overhead_begin_sample() */
        __u64 since;            /* CLOCK_MONOTONIC ns when it was established; 0: not yet, or not known */
        __u32 searches;         /* 1: connect(2) has not sent a SYN yet */
        struct bpf_spin_lock lock; /* of what follows: the iterator does not hold the lock of the socket */
        __u64 connects_at;      /* CLOCK_MONOTONIC ns of connect(2); 0: not known */
        __u32 max_queued;       /* most bytes written and not acknowledged */
        __u32 begun;            /* 1: it was seen from its beginning, and is not established yet */
        struct flow_counts counts;
        __u32 entry_retransmits; /* these two: not recorded for its endpoint or peer yet */
        __u32 entry_rtt;        /* us, smoothed; 0: none */
};

BPF_STORAGE_MAP(flows, SK, struct flow) __weak;

static __always_inline void* network_map_get(const struct qos_owner *owner, __u32 *ret_generation) {
        struct qos_network_header *h;
        __u32 slot = owner->slot;
        void *map;

        map = bpf_map_lookup_elem(&network_maps, &slot);
        h = map ? network_header_get(map) : NULL;
        if (!h || h->unit != owner->generation)
                return NULL;
        *ret_generation = h->generation;
        return map;
}

static __attribute__((noinline)) int flow_record_overhead(struct sock *sk, __u64 begin) {
        struct flow *f = sk ? bpf_sk_storage_get(&flows, sk, 0, 0) : NULL;
        struct qos_network_counts *live;
        __u64 now = bpf_ktime_get_ns();
        __u32 generation;
        void *map;

        map = f ? network_map_get(&f->owner, &generation) : NULL;
        live = map ? network_enter(map, now) : NULL;
        if (live)
                network_add(live, QOS_NETWORK_COST, overhead_nsec(begin, now) * OVERHEAD_SAMPLE_PERIOD);
        return 0;
}
