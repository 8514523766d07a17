/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What qosd's programs do most often, many times in each run, for calibration.c. */

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "calibration.h"

char LICENSE[] SEC("license") = "GPL";

struct value {
        struct bpf_spin_lock lock;
        __u32 _padding;
};

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __uint(max_entries, 1);
        __type(key, __u32);
        __type(value, struct value);
} values SEC(".maps");

SEC("tc")
int nothing(struct __sk_buff *skb) {
        (void) skb;
        return 0;
}

SEC("tc")
int clock_read(struct __sk_buff *skb) {
        __u64 sum = skb->len;

#pragma unroll
        for (int i = 0; i < REPETITIONS; i++)
                sum += bpf_ktime_get_ns();
        return sum == 0;
}

SEC("tc")
int lock_pair(struct __sk_buff *skb) {
        __u32 zero = 0;
        struct value *v = bpf_map_lookup_elem(&values, &zero);

        (void) skb;
        if (!v)
                return 0;
#pragma unroll
        for (int i = 0; i < REPETITIONS; i++) {
                bpf_spin_lock(&v->lock);
                bpf_spin_unlock(&v->lock);
        }
        return 0;
}
