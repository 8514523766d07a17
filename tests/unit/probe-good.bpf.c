/* SPDX-License-Identifier: GPL-2.0-or-later */

/* An object file that a custom probe may have. */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __uint(max_entries, 1);
        __type(key, __u32);
        __type(value, __u64);
} runs SEC(".maps");

static __attribute__((noinline)) int count(void) {
        __u64 *n;
        __u32 zero = 0;

        n = bpf_map_lookup_elem(&runs, &zero);
        if (n)
                __sync_fetch_and_add(n, 1);
        return 0;
}

SEC("raw_tp/sched_process_exec")
int on_exec(void *ctx) {
        return count();
}

SEC("perf_event")
int on_clock(void *ctx) {
        return count();
}

char LICENSE[] SEC("license") = "GPL";
