/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* For BPF programs of custom probes, see qosd.probe(5). The first header of such a program:
 *
 *     #include <qosd/qosd-probe.h>
 *
 *     QOSD_COUNTER(started);
 *
 *     SEC("tp_btf/sched_process_exec")
 *     int on_exec(unsigned long long *ctx) {
 *             struct qosd_unit unit;
 *
 *             if (qosd_unit_of_current(&unit))
 *                     qosd_count(&started, &unit, 1);
 *             return 0;
 *     }
 *
 *     char LICENSE[] SEC("license") = "GPL";
 */

#include <stdbool.h>
#include <stddef.h>

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#include "custom-map.h"

/* ---- maps of qosd ------------------------------------------------------------------------------------- */

/* Of each unit that is observed with the probe, by slot. The daemon replaces the prototype by one of the
 * right size. */
struct {
        __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
        __uint(max_entries, UNITS_MAX_LIMIT);
        __type(key, __u32);
        __array(values, struct {
                __uint(type, BPF_MAP_TYPE_ARRAY);
                __uint(map_flags, BPF_F_MMAPABLE | BPF_F_INNER_MAP);
                __uint(max_entries, 1);
                __type(key, __u32);
                __uint(value_size, sizeof(union qos_custom_element));
        });
} qosd_custom_maps SEC(".maps") __attribute__((weak));

/* Owners of control groups and of TCP sockets. Maps of the daemon. */
struct {
        __uint(type, BPF_MAP_TYPE_CGRP_STORAGE);
        __uint(map_flags, BPF_F_NO_PREALLOC);
        __type(key, int);
        __type(value, struct qos_owner);
} qosd_groups SEC(".maps") __attribute__((weak));

/* Begins with the owner; the daemon's has more. */
struct {
        __uint(type, BPF_MAP_TYPE_SK_STORAGE);
        __uint(map_flags, BPF_F_NO_PREALLOC);
        __type(key, int);
        __type(value, struct qos_owner);
} qosd_sockets SEC(".maps") __attribute__((weak));

/* All but the version is set by the daemon. */
const volatile struct qos_custom_layout qosd_layout SEC(".rodata.qosd") __attribute__((weak)) = {
        .version = QOS_CUSTOM_VERSION,
};

#define window_copy(to, from, size) bpf_probe_read_kernel(to, size, from)
#define window_cpu() bpf_get_smp_processor_id()

static __always_inline union qos_custom_element* custom_element(void *map, __u32 i) {
        return bpf_map_lookup_elem(map, &i);
}

#include "custom-record.h"

/* ---- metrics ------------------------------------------------------------------------------------------ */

/* Each metric of the manifest has one of these, with its name. */
struct qosd_counter {
        struct qos_custom_metric metric;
};
struct qosd_gauge {
        struct qos_custom_metric metric;
};
struct qosd_histogram {
        struct qos_custom_metric metric;
};

#define QOSD_METRIC(kind, constant, name)                                                       \
        const volatile struct kind name SEC(".rodata.qosd") = { .metric.type = constant }
#define QOSD_COUNTER(name) QOSD_METRIC(qosd_counter, QOS_CUSTOM_COUNTER, name)
#define QOSD_GAUGE(name) QOSD_METRIC(qosd_gauge, QOS_CUSTOM_GAUGE, name)
#define QOSD_HISTOGRAM(name) QOSD_METRIC(qosd_histogram, QOS_CUSTOM_HISTOGRAM, name)

/* ---- units -------------------------------------------------------------------------------------------- */

struct qosd_unit {
        struct qos_owner owner;
};

struct cgroup;
struct net_device;
struct request;
struct sock;
struct task_struct;

/* As much of the kernel's types as is read, under names that do not clash with those of the program */
struct cgroup___qosd {
        void *bpf_cgrp_storage;
} __attribute__((preserve_access_index));

struct css_set___qosd {
        struct cgroup *dfl_cgrp;
} __attribute__((preserve_access_index));

struct task_struct___qosd {
        struct css_set___qosd *cgroups;
} __attribute__((preserve_access_index));

struct sock_cgroup_data___qosd {
        struct cgroup *cgroup;
} __attribute__((preserve_access_index));

struct sock___qosd {
        struct sock_cgroup_data___qosd sk_cgrp_data;
} __attribute__((preserve_access_index));

struct cgroup_subsys_state___qosd {
        struct cgroup *cgroup;
} __attribute__((preserve_access_index));

struct blkcg___qosd {
        struct cgroup_subsys_state___qosd css;
} __attribute__((preserve_access_index));

struct blkcg_gq___qosd {
        struct blkcg___qosd *blkcg;
} __attribute__((preserve_access_index));

struct bio___qosd {
        struct blkcg_gq___qosd *bi_blkg; /* only with CONFIG_BLK_CGROUP */
} __attribute__((preserve_access_index));

struct request___qosd {
        struct bio___qosd *bio;
} __attribute__((preserve_access_index));

struct net_device___qosd {
        char name[16];
} __attribute__((preserve_access_index));

/* The unit that a control group, and what happens in it, counts for: its innermost attached unit, over
 * restarts. False: none. */
static __always_inline bool qosd_unit_of_cgroup(struct cgroup *group, struct qosd_unit *ret) {
        struct qos_owner *owner;

        if (!((struct cgroup___qosd*) group)->bpf_cgrp_storage)
                return false;
        owner = bpf_cgrp_storage_get(&qosd_groups, group, 0, 0);
        if (!owner)
                return false;
        *(__u64*) &ret->owner = *(volatile __u64*) owner;
        return true;
}

/* The unit of a thread. */
static __always_inline bool qosd_unit_of_task(struct task_struct *task, struct qosd_unit *ret) {
        return qosd_unit_of_cgroup(((struct task_struct___qosd*) task)->cgroups->dfl_cgrp, ret);
}

/* The unit of the thread that runs: in an interrupt that is any. */
static __always_inline bool qosd_unit_of_current(struct qosd_unit *ret) {
        return qosd_unit_of_task((struct task_struct*) bpf_get_current_task_btf(), ret);
}

/* The unit of a socket, not NULL: of a TCP socket that qosd knows the one that uses it, also if another
 * process has opened it; otherwise the one that opened it. For programs at tp_btf, fentry and fexit. */
static __always_inline bool qosd_unit_of_socket(struct sock *sk, struct qosd_unit *ret) {
        struct qos_owner *owner = bpf_sk_storage_get(&qosd_sockets, sk, 0, 0);

        if (!owner)
                return qosd_unit_of_cgroup(((struct sock___qosd*) sk)->sk_cgrp_data.cgroup, ret);
        *(__u64*) &ret->owner = *(volatile __u64*) owner;
        return true;
}

/* The unit of a request to a block device that begins: the one that the kernel charges, as with writeback,
 * or else that of the current thread. */
static __always_inline bool qosd_unit_of_request(struct request *request, struct qosd_unit *ret) {
        struct cgroup *charged = NULL;

        if (bpf_core_field_exists(struct bio___qosd, bi_blkg))
                charged = ((struct request___qosd*) request)->bio->bi_blkg->blkcg->css.cgroup;
        return (charged && qosd_unit_of_cgroup(charged, ret)) || qosd_unit_of_current(ret);
}

/* ---- recording ---------------------------------------------------------------------------------------- */

static __always_inline void qosd_record(const volatile struct qos_custom_metric *metric,
                                        const struct qosd_unit *unit, const struct qos_custom_labels *labels,
                                        __u64 value) {
        union qos_custom_element *e;
        void *map;

        map = bpf_map_lookup_elem(&qosd_custom_maps, &unit->owner.slot);
        if (!map)
                return;
        e = custom_element(map, QOS_CUSTOM_HEADER);
        if (!e || e->header.unit != unit->owner.generation)
                return; /* detached, or not observed with this probe */
        custom_record(map, &qosd_layout, metric, labels, bpf_ktime_get_ns(), value);
}

/* Label values, all of which have to be set: struct qosd_labels labels = {}; one call for each. */
struct qosd_labels {
        struct qos_custom_labels labels;
};

/* i: index of the label in the manifest, a constant. */
static __always_inline void qosd_label_number(struct qosd_labels *labels, int i, __u64 value) {
        labels->labels.words[i * 2] = value;
}

/* A text of up to 16 bytes, NUL terminated if it is shorter. */
#define qosd_label_text(l, i, text) __builtin_memcpy((l)->labels.bytes[i], text, QOS_CUSTOM_LABEL_SIZE)

/* The name of a network interface, for the decoder of the same name. */
static __always_inline void qosd_label_interface(struct qosd_labels *labels, int i,
                                                 struct net_device *device) {
        (void) bpf_probe_read_kernel_str(labels->labels.bytes[i], QOS_CUSTOM_LABEL_SIZE,
                                         &((struct net_device___qosd*) device)->name);
}

/* The name of a function of the kernel, or its first 15 characters, for the decoder "symbol". */
static __always_inline void qosd_label_symbol(struct qosd_labels *labels, int i, const void *function) {
        __u64 address = (unsigned long) function;

        (void) bpf_snprintf((char*) labels->labels.bytes[i], QOS_CUSTOM_LABEL_SIZE, "%ps", &address,
                            sizeof(address));
}

/* Adds to a counter. */
static __always_inline void qosd_count(const volatile struct qosd_counter *counter,
                                       const struct qosd_unit *unit, __u64 n) {
        qosd_record(&counter->metric, unit, NULL, n);
}

static __always_inline void qosd_count_by(const volatile struct qosd_counter *counter,
                                          const struct qosd_unit *unit, __u64 n,
                                          const struct qosd_labels *labels) {
        qosd_record(&counter->metric, unit, &labels->labels, n);
}

/* Sets a gauge. */
static __always_inline void qosd_set(const volatile struct qosd_gauge *gauge, const struct qosd_unit *unit,
                                     __u64 value) {
        qosd_record(&gauge->metric, unit, NULL, value);
}

static __always_inline void qosd_set_by(const volatile struct qosd_gauge *gauge,
                                        const struct qosd_unit *unit, __u64 value,
                                        const struct qosd_labels *labels) {
        qosd_record(&gauge->metric, unit, &labels->labels, value);
}

/* Adds a duration to a histogram. */
static __always_inline void qosd_observe(const volatile struct qosd_histogram *histogram,
                                         const struct qosd_unit *unit, __u64 nsec) {
        qosd_record(&histogram->metric, unit, NULL, nsec);
}

static __always_inline void qosd_observe_by(const volatile struct qosd_histogram *histogram,
                                            const struct qosd_unit *unit, __u64 nsec,
                                            const struct qosd_labels *labels) {
        qosd_record(&histogram->metric, unit, &labels->labels, nsec);
}
