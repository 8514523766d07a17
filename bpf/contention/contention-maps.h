/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

/* Contention maps, shared by the programs of "cpu", "block" and "memory". Maps are weak, as in maps.h. */

#include "maps.h"

struct qos_contention_cpu;
static const struct qos_contention_cpu* contention_cpu_of(__u32 slot, __u32 generation, __u32 i);
#define contention_loop(n, step, data) bpf_loop(n, step, data, 0)
#define contention_now() bpf_ktime_get_ns()
#include "contention-record.h"

/* Number of possible CPUs, and hence the index of the first element that is not of a CPU. */
const volatile __u32 cpus __weak = 1;

/* Load time of the programs, CLOCK_MONOTONIC ns. State left behind by previous programs is older, and
 * ignored. */
const volatile __u64 loaded_at __weak = 0;

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
        __uint(max_entries, QOS_SLOT_MACHINE + 1); /* units, and the machine */
        __type(key, __u32);
        __array(values, struct {
                __uint(type, BPF_MAP_TYPE_ARRAY);
                __uint(map_flags, BPF_F_MMAPABLE);
                __uint(max_entries, 1);
                __type(key, __u32);
                __uint(value_size, sizeof(struct qos_contention_map));
        });
} contention_maps SEC(".maps") __weak;

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
        __uint(max_entries, UNITS_MAX_LIMIT);
        __type(key, __u32);
        __array(values, struct {
                __uint(type, BPF_MAP_TYPE_ARRAY);
                __uint(map_flags, BPF_F_MMAPABLE);
                /* resized by the daemon to the number of possible CPUs */
                __uint(max_entries, 1 + QOS_CONTENTION_CPUS_MORE);
                __type(key, __u32);
                __uint(value_size, sizeof(struct qos_contention_cpu));
        });
} contention_cpus SEC(".maps") __weak;

static __always_inline struct qos_contention_cpu* contention_cpu_find(__u32 slot, __u32 generation,
                                                                      __u32 i) {
        struct qos_contention_cpu *s;
        void *map;

        map = bpf_map_lookup_elem(&contention_cpus, &slot);
        if (!map)
                return NULL;
        s = bpf_map_lookup_elem(map, &i);
        return s && s->generation == generation ? s : NULL;
}

static const struct qos_contention_cpu* contention_cpu_of(__u32 slot, __u32 generation, __u32 i) {
        return contention_cpu_find(slot, generation, i);
}

/* The per-CPU element of the contention map in a thread's word; NULL if that map no longer exists. */
static __always_inline struct qos_contention_cpu* contention_cpu_get(__u64 word, __u32 i) {
        return contention_cpu_find((word & THREAD_SLOT) >> THREAD_SLOT_SHIFT,
                word >> THREAD_GENERATION_SHIFT, i);
}

/* Like element_lost(), for the unit in a thread's word. */
static __always_inline void contention_lost(__u32 statistic, __u64 word) {
        struct qos_owner owner = {
                .slot = (word & THREAD_SLOT) >> THREAD_SLOT_SHIFT,
                .generation = word >> THREAD_GENERATION_SHIFT,
        };

        element_lost(statistic, &owner);
}

/* The serving clock of the unit in a thread's word. */
static __always_inline __u64 serving_get(__u64 word, __u64 now) {
        __u32 slot = (word & THREAD_SLOT) >> THREAD_SLOT_SHIFT, zero = 0;
        struct qos_unit_map *u;
        void *map;

        map = bpf_map_lookup_elem(&units, &slot);
        u = map ? bpf_map_lookup_elem(map, &zero) : NULL;
        return u ? serving_clock_read(*(volatile __u64*) &u->serving, now) : 0;
}

static __always_inline struct qos_contention_map* contention_find(__u32 slot) {
        __u32 zero = 0;
        void *map;

        map = bpf_map_lookup_elem(&contention_maps, &slot);
        return map ? bpf_map_lookup_elem(map, &zero) : NULL;
}

static __always_inline struct qos_contention_map* contention_get(__u64 word) {
        struct qos_contention_map *c = contention_find((word & THREAD_SLOT) >> THREAD_SLOT_SHIFT);

        return c && c->generation == word >> THREAD_GENERATION_SHIFT ? c : NULL;
}

/* Like contention_get(), but also writes due checkpoints. Not for writers of per-CPU elements, see
 * contention_cpu_enter(). */
static __always_inline struct qos_contention_map* contention_enter(__u64 word, __u64 now) {
        struct qos_contention_map *c = contention_get(word);

        if (c)
                contention_roll(c, (word & THREAD_SLOT) >> THREAD_SLOT_SHIFT, now / QOS_EPOCH_NSEC);
        return c;
}

static __always_inline void contention_count(struct qos_contention_map *c, __u64 cell, __s64 n) {
        BPF_BOUND(cell, QOS_CONTENTION_COUNTERS);
        __sync_fetch_and_add(&c->cells[cell], n);
}

static __always_inline void contention_sum_add(struct qos_contention_map *c, __u64 sum, __u64 n) {
        BPF_BOUND(sum, QOS_CONTENTION_SUMS);
        __sync_fetch_and_add(&c->sums[sum], n);
}

/* Accounts for the run time of a program of "block" or "memory" since begin, multiplied by runs for
 * sampling. */
__attribute__((noinline, weak)) int contention_record_overhead(__u64 map_id, __u64 begin, __u64 runs) {
        struct qos_contention_map *c;
        __u64 now = bpf_ktime_get_ns();

        c = contention_enter(map_id, now);
        if (c)
                contention_sum_add(c, QOS_COST_NSEC, overhead_nsec(begin, now) * runs);
        return 0;
}

/* Writes due checkpoints. Called before an event is recorded in a per-CPU element. */
static __always_inline void contention_cpu_enter(struct qos_contention_cpu *s, __u64 word, __u64 now) {
        struct qos_contention_map *c;

        if (now < s->epoch_end)
                return;
        s->epoch_end = (now / QOS_EPOCH_NSEC + 1) * QOS_EPOCH_NSEC;
        c = contention_get(word);
        if (c)
                contention_roll(c, (word & THREAD_SLOT) >> THREAD_SLOT_SHIFT, now / QOS_EPOCH_NSEC);
}

/* The contention map for tasks in a control group, as a thread's word without state; 0: none, or the unit is
 * not observed with the probe (QOS_PROBE_CONFIG_*; 0: any). The map exists if the unit has any of these
 * probes, and the programs of a probe also run for units without it. */
static __always_inline __u64 group_find_map_id(struct cgroup *group, __u32 probe) {
        const struct qos_probe_config *config;
        struct qos_contention_map *c;
        struct qos_owner owner;

        if (!group_owner(group, &owner))
                return 0;
        c = contention_find(owner.slot);
        if (!c || c->unit != owner.generation)
                return 0;
        if (probe != 0) {
                config = bpf_map_lookup_elem(&probe_configs, &owner.slot);
                if (!config || config->generation != owner.generation || !(config->probes & probe))
                        return 0;
        }
        return thread_map_id(owner.slot, c->generation);
}
