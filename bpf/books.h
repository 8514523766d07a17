/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

/* What the files of programs share: whose is it, and booking. Maps are weak: each file has them, the linked object once. */

#include "kernel.h"

#define window_copy(to, from, size) bpf_probe_read_kernel(to, size, from)
#include "accumulate.h"
#include "exchange.h"

void* bpf_rdonly_cast(const void *object, __u32 type_id) __ksym;

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
        __uint(max_entries, 256);       /* UNITS_MAX_LIMIT in src/manager.h */
        __type(key, __u32);
        __array(values, struct {
                __uint(type, BPF_MAP_TYPE_ARRAY);
                __uint(map_flags, BPF_F_MMAPABLE);
                __uint(max_entries, 1);
                __type(key, __u32);
                __uint(value_size, sizeof(struct qos_unit));
        });
} units SEC(".maps") __weak;

struct {
        __uint(type, BPF_MAP_TYPE_CGRP_STORAGE);
        __uint(map_flags, BPF_F_NO_PREALLOC);
        __type(key, int);
        __type(value, struct qos_owner);
} groups SEC(".maps") __weak;

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __uint(max_entries, QOS_STATISTICS);
        __type(key, __u32);
        __type(value, __u64);
} statistics SEC(".maps") __weak;

static __always_inline void statistics_count(__u32 which) {
        __u64 *n = bpf_map_lookup_elem(&statistics, &which);

        if (n)
                __sync_fetch_and_add(n, 1);
}

/* The unit's map, or NULL if it was detached (and the slot perhaps given to another). */
static __always_inline struct qos_unit* unit_get(const struct qos_owner *owner) {
        __u32 slot = owner->slot, zero = 0;
        struct qos_unit *u;
        void *map;

        map = bpf_map_lookup_elem(&units, &slot);
        if (!map)
                return NULL;
        u = bpf_map_lookup_elem(map, &zero);
        if (!u || u->generation != owner->generation)
                return NULL;
        return u;
}

/* ---- booking -------------------------------------------------------------------------------------------------- */

static __always_inline void unit_apply(struct qos_unit *u, const struct exchange_effect *effect) {
        if (effect->in_flight != 0)
                __sync_fetch_and_add(&u->in_flight, effect->in_flight);
        if (effect->overlap)
                window_count(u, QOS_CELL_OVERLAPS, 1);
}

/* The first byte of n answers has left: the questions count, with what their life was so far. Of the distributions that
 * are kept as a difference (qos.h) only what differs is booked. */
static __always_inline void unit_book(struct qos_unit *u, __u64 now, __u32 n, __u64 first_at, __u64 last_at, __u64 read_at) {
        __u64 receive;

        window_count(u, QOS_CELL_COUNT, n);
        window_add(u, QOS_SERVICE, exchange_between(read_at, now), n);

        if (first_at == 0 || last_at == 0)
                return; /* it came before the unit was attached, or arrivals are not seen: no guess */

        window_add(u, QOS_FIRST_BYTE, exchange_between(first_at, now), n);
        window_add(u, QOS_QUEUE, exchange_between(last_at, read_at), n);
        receive = exchange_between(first_at, last_at);
        if (receive > 0)
                window_shift(u, QOS_RECEIVE, 0, receive, n);
}

/* Later bytes of the answer leave. A function that the verifier walks once. */
GRID_FUNCTION int unit_book_more(struct qos_unit *u, __u64 now, __u64 first_at, __u64 first_out_at, __u64 before) {
        if (!u)
                return 0;
        window_move(u, QOS_ANSWER, before, exchange_between(first_out_at, before),
                    now, exchange_between(first_out_at, now));
        if (first_at != 0)
                window_move(u, QOS_LATENCY, before, exchange_between(first_at, before),
                            now, exchange_between(first_at, now));
        return 0;
}

/* The owner of a socket nobody has seen, by whose task uses it. Sockets that wait for accept() at attach, and those
 * whose listener somebody else has opened, come this way. */
static __always_inline bool task_owner(struct qos_owner *ret) {
        struct task_struct *task = bpf_get_current_task_btf();
        struct qos_owner *owner;

        owner = bpf_cgrp_storage_get(&groups, task->cgroups->dfl_cgrp, 0, 0);
        if (!owner)
                return false;

        *ret = *owner;
        return true;
}
