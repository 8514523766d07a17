/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Latency of requests to block devices, by device. */

#include <qosd/qosd-probe.h>

struct block_device {
        unsigned int bd_dev;
} __attribute__((preserve_access_index));

struct request {
        struct block_device *part;
} __attribute__((preserve_access_index));

struct begin {
        __u64 at;
        struct qosd_unit unit;
};

/* By the address of the request */
struct {
        __uint(type, BPF_MAP_TYPE_LRU_HASH);
        __uint(max_entries, 8192);
        __type(key, __u64);
        __type(value, struct begin);
} begun SEC(".maps");

QOSD_HISTOGRAM(latency);

SEC("tp_btf/block_io_start")
int on_start(unsigned long long *ctx) {
        struct begin begin = { .at = bpf_ktime_get_ns() };
        __u64 key = ctx[0];

        /* At its end the current thread is any */
        if (qosd_unit_of_request((void*) ctx[0], &begin.unit))
                bpf_map_update_elem(&begun, &key, &begin, BPF_ANY);
        return 0;
}

SEC("tp_btf/block_io_done")
int on_done(unsigned long long *ctx) {
        struct request *request = (void*) ctx[0];
        struct qosd_labels labels = {};
        struct begin *begin;
        __u64 key = ctx[0];

        begin = bpf_map_lookup_elem(&begun, &key);
        if (!begin)
                return 0;
        qosd_label_number(&labels, 0, request->part->bd_dev);
        qosd_observe_by(&latency, &begin->unit, bpf_ktime_get_ns() - begin->at, &labels);
        bpf_map_delete_elem(&begun, &key);
        return 0;
}

char LICENSE[] SEC("license") = "GPL";
